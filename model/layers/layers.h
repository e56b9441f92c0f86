/* What the decoder (model/decoder.h) computes a layer with: its sublayers, one file for each kind, and the residual
 * stream x, from which a sublayer reads and to which it adds:
 *
 *     x = x + multiplier * post_norm(last(inner(norm(x))))
 *
 * `last` is the last matmul of the sublayer, o or down, and `inner` what comes before it. They are two functions of a
 * sublayer, because the decoder does other things between them: a parallel block computes the inner part of its MLP
 * before the output of its attention is added, and the last layer drops the tokens that nothing is sampled from. */
#ifndef QUIRE_MODEL_LAYERS_LAYERS_H
#define QUIRE_MODEL_LAYERS_LAYERS_H

#include "model/decoder.h"
#include "model/stage.h"

/* A sublayer's output stays pending in `hidden` until the next norm adds it to `residual`, which saves a pass over
 * memory. The fused linear_residual adds the output as it computes it: then nothing is pending. */
struct residual_stream {
    const struct decoder *d;
    void *hidden, *residual; /* [num_tokens, hidden_size] */
    int32_t num_tokens;
    bool pending;
    bool share;           /* the pending output is a share, which the other ranks' are added to */
    float multiplier;     /* of the pending output */
    float sum_multiplier; /* of the residual stream with the pending output, or with the one that is added next */
    struct left_out_scales scales;       /* of the pending output */
    const struct norm_params *post_norm; /* of the pending output; NULL: none */
    const struct norm_params *normed;    /* hidden is this norm of residual; NULL: of none */
    int64_t normed_groups;               /* 0: hidden is; else act.quantized is, in groups of so many elements */
};

/* The input of matmuls: floats, or the same in 8 bits. */
struct matmul_input {
    const void *x;
    struct quantized_rows rows; /* data NULL: x */
};

/* Columns that follow those of the part before. */
struct column_part {
    int64_t size;
    float multiplier;
};

static inline float multiplier_or_1(float multiplier)
{
    return multiplier == 0 ? 1 : multiplier;
}

static inline const struct quantized_rows *rows_of(const struct matmul_input *in)
{
    return in->rows.data ? &in->rows : NULL;
}

static inline char *at_column(void *row, int64_t column, enum dtype dtype)
{
    return (char *)row + column * dtype_size(dtype);
}

/* Where the results of the recurrent mixer beside attention are in x: behind those of attention, of all tokens. */
static inline char *beside_out(const struct layer_spec *l, const void *x, int32_t num_tokens, enum dtype dtype)
{
    return at_column((void *)x, num_tokens * attention_out_size(&l->attention), dtype);
}

/* Whether the MLP beside a layer's experts is computed as one of them: that of a single token. */
static inline bool layer_mlp_is_expert(const struct residual_stream *s, int32_t layer)
{
    const struct decoder *d = s->d;
    const struct router_params *r = &d->spec->layers[layer].experts.router;
    return s->num_tokens == 1 && d->weights->layers[layer].experts.has_shared &&
           r->num_experts == d->act.experts.num_experts && r->top_k == d->act.experts.top_k;
}

/* Whether a head reads the residual stream of all tokens after the last layer, or its final norm. */
static inline bool serves_last_state(const struct decoder *d)
{
    return d->served && d->served->kind == HEAD_MTP;
}

/* Whether it is the last of all layers, behind which only the tokens that are sampled from matter. */
static inline bool layer_is_last(const struct decoder *d, int32_t layer)
{
    return layer == d->spec->num_layers - 1 && stage_is_last(d->spec);
}

/* Whether anything reads the output of this layer: of the last one, only logits and heads do. */
static inline bool layer_is_read(const struct decoder *d, const struct step_shape *shape, int32_t layer)
{
    return !layer_is_last(d, layer) || shape->num_samples > 0 || shape->num_targets > 0 || serves_last_state(d);
}

/* What the output of a layer's mixer, or of its MLP, is multiplied by before it is added. */
static inline float mixer_multiplier(const struct layer_spec *l)
{
    return l->norm_placement == NORM_STREAM ? l->mixer_scaling.output : l->residual_multiplier;
}

static inline float mlp_multiplier(const struct layer_spec *l)
{
    return l->norm_placement == NORM_STREAM ? l->mlp_scaling.output : l->residual_multiplier;
}

/* ---- residual.c: the residual stream, and all choices between fused and single operations, and between floats and
 * quantized rows ---- */

/* The input of a sublayer: the normed residual stream or, if the layer norms only outputs, the residual stream itself.
 * Quantized if p, which reads it, wants that; p NULL: floats. */
struct matmul_input residual_input(struct residual_stream *s, const struct norm_params *norm,
                                   const struct projection *p);

/* residual stream = norm(residual stream), with the pending output added before. */
void residual_norm_stream(struct residual_stream *s, const struct norm_params *norm);

/* out = p(norm(residual stream)), the parts side by side for each token. */
void residual_project(struct residual_stream *s, void *out, enum dtype out_dtype, const struct projection *p,
                      const struct norm_params *norm);

/* residual += multiplier * post_norm(w(in)), at once or pending. */
void residual_add(struct residual_stream *s, const struct matmul_input *in, const struct weight *w,
                  const struct norm_params *post_norm, float multiplier);

/* o or down, w, and its input, for residual_add: as they are or, where ranks have the columns of w in an order of their
 * own (GPTQ with desc_act), those that w's columns are for. */
struct last_matmul {
    struct matmul_input in;
    struct weight weight;
};
struct last_matmul layer_last_matmul(const struct residual_stream *s, const struct matmul_input *in,
                                     const struct weight *w, int32_t layer, enum tensor_role role);

/* For a sublayer whose last operation is no single matmul: the first makes s->hidden free for its output; the second
 * says that it is there, pending. */
void residual_begin(struct residual_stream *s);
void residual_pend(struct residual_stream *s, const struct norm_params *post_norm, float multiplier, bool is_share);

/* x [num_tokens, size] = the sum of all ranks' x; and the same where `last`, which has computed it, has a share of the
 * columns. */
void layer_all_reduce(const struct residual_stream *s, void *x, int64_t size);
void layer_add_shares(const struct residual_stream *s, void *x, int64_t size, const struct weight *last);

/* out = p(in), the parts side by side for each token. If left_out is not NULL, scales of a p of one part may be left
 * out. */
void layer_project(const struct residual_stream *s, void *out, enum dtype out_dtype, const struct projection *p,
                   const struct matmul_input *in, struct left_out_scales *left_out);

/* The rows of w's input in the buffer, if the backend wants them; else none. An operation that can quantize writes
 * them. Scales come first: an operation may read those that a matmul left out, and write those of its own rows to the
 * same place. */
struct quantized_rows layer_rows_for(const struct residual_stream *s, const struct weight *w, void *buffer);

/* Writes these rows of x now, which an operation has computed that cannot quantize. */
struct matmul_input layer_quantize_for(const struct residual_stream *s, const void *x, const struct weight *w,
                                       void *buffer);

/* x = norm(x), where tokens are `stride` elements apart. */
void layer_norm_in_place(const struct residual_stream *s, void *x, int64_t stride, int64_t size,
                         const struct norm_params *norm);

/* The norms of args, whose tokens, ranks and dtype this sets. */
void layer_norm_over_ranks(const struct residual_stream *s, struct all_norm_args *args);

/* Multiplies q, whose tokens are `stride` elements apart, by what follows from their positions (scale_queries). */
void layer_scale_queries(const struct residual_stream *s, void *q, int64_t stride, int64_t size,
                         const struct query_scaling *scaling);

/* Multiplies the columns of each part of x, whose tokens are `stride` elements apart. A multiplier of 0 is 1. */
void layer_scale_columns(const struct residual_stream *s, void *x, int64_t stride, const struct column_part *parts,
                         int num_parts);

/* out[i] = x[indices[i]], rows of `size` elements one after the other. */
void layer_gather(const struct decoder *d, void *out, const void *x, const int32_t *indices, int32_t count,
                  int32_t size);
/* out = the embedding of the tokens. */
void layer_embed(const struct residual_stream *s, void *out);

/* Fused operations. Each does nothing and returns false if the model or the backend needs the single operations.
 *
 * act.gated = activation(gate(y)) * up(y) or, without a gate, activation(up(y)), where y is norm(in) or, if norm is
 * NULL, in. */
bool fused_gate_up(const struct residual_stream *s, const struct matmul_input *in, const struct projection *p,
                   const struct mlp_spec *mlp, const struct norm_params *norm);
/* Rotation, caching and attention of a batch that has only decodes. */
bool fused_decode_attention(const struct decoder *d, const struct step_shape *shape,
                            const struct decode_attention_args *args);

/* ---- The sublayers ---- */

/* What a layer's mixer computes, in act.attention, of all tokens: attention_inner, latent_inner, recurrent_inner or
 * conv_inner. Of MIXER_NONE there is nothing. Elements of a token: layer_mixer_out_size. As attention_inner,
 * latent_inner caches the last layer's tokens even where nothing reads what it computes. */
void latent_inner(struct residual_stream *s, const struct step_shape *shape, int32_t layer);
void recurrent_inner(struct residual_stream *s, const struct step_shape *shape, int32_t layer);
void conv_inner(struct residual_stream *s, const struct step_shape *shape, int32_t layer);
/* The share of attention_inner of a recurrent mixer beside attention: its input's projection is in act.qkv, beside q, k
 * and v, and what it computes follows in act.attention (beside_out). */
void recurrent_beside(const struct residual_stream *s, const struct step_shape *shape, int32_t layer);

/* act.attention of all tokens. K and V of the last layer are cached even for tokens that are not sampled from, whose
 * attention is left out. */
void attention_inner(struct residual_stream *s, const struct step_shape *shape, int32_t layer);
/* Adds o of x [num_tokens, layer_mixer_out_size]: act.attention, or some of its rows. Of any mixer. Of two, x has the
 * results of the first, and then those of the second (beside_out). */
void attention_output(struct residual_stream *s, const void *x, int32_t layer);

/* All of the MLP but down, whose input it returns; and, of a layer with experts, experts_inner. */
struct matmul_input mlp_inner(struct residual_stream *s, int32_t layer);
void mlp_output(struct residual_stream *s, const struct matmul_input *in, int32_t layer);

/* The experts' share of mlp_inner, whose input is norm(residual stream): the plan, and gate and up. */
void experts_inner(struct residual_stream *s, const struct norm_params *norm, int32_t layer);
/* Adds down of the experts, and of the MLP beside them, whose input is `in`. */
void experts_output(struct residual_stream *s, const struct matmul_input *in, int32_t layer);
/* Of a head: makes the residual stream of the target's states, or of its own, and of the tokens' embedding. */
void head_begin(struct residual_stream *s, const struct step_shape *shape);
/* Keeps, in d->states, what heads read: before a layer adds its output, the residual stream that it reads; and of all
 * tokens what comes after the last layer, where `normed` is the final norm's output. */
void head_keep_before(const struct residual_stream *s, int32_t layer);
void head_keep_last(const struct residual_stream *s, const void *normed);
/* What all layers get from the tokens, in act.per_layer. The residual stream is that of the embedding. */
void per_layer_inputs(const struct residual_stream *s);
/* Adds the layer's part of them, behind its MLP. */
void per_layer_add(struct residual_stream *s, const struct step_shape *shape, int32_t layer);

#endif
