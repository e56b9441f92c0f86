/* What a model computes, as data: sizes, rope and, for each layer, what its attention and its MLP do. A family file
 * (families/) fills it from config.json; tensors.h derives from it which tensors there are, and decoder.h computes it.
 */
#ifndef QUIRE_MODEL_MODEL_SPEC_H
#define QUIRE_MODEL_MODEL_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"

#define MODEL_MAX_LAYERS 1024
#define MODEL_MAX_HEAD_SIZE 1024
#define MODEL_MAX_ROPES 2
#define MODEL_MAX_SCHEMES 8

enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_DYNAMIC,
    ROPE_YARN,
    ROPE_LLAMA3,
    ROPE_LONGROPE,
    ROPE_PROPORTIONAL,
    NUM_ROPE_TYPES
};

/* rope_theta and rope_scaling (transformers 4), or rope_parameters (5). Formulas: transformers' modeling_rope_utils. */
struct rope_config {
    enum rope_type type;
    double theta;
    double factor;     /* linear, dynamic, yarn, llama3, proportional */
    double proportion; /* proportional: of the pairs, those before it rotate; the others are at angle 0 */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn: 32, 1 */
    double attention_factor;                  /* yarn, longrope: <= 0: follows from the other values */
    double mscale, mscale_all_dim;            /* yarn, 0: absent */
    bool truncate;                            /* yarn: true unless the file says otherwise */
    int32_t original_max_position;            /* yarn, llama3, longrope: the file's, or max_position_embeddings */
    /* longrope (Ding et al., 2024): what divides each pair's frequency in sequences of up to original_max_position
     * tokens, and in longer ones */
    float short_factor[MODEL_MAX_HEAD_SIZE / 2], long_factor[MODEL_MAX_HEAD_SIZE / 2];
};

/* Where a sublayer (attention, MLP) is normed. x is the residual stream.
 * BEFORE: x + f(norm(x)); AFTER: x + norm(f(x)); AROUND: x + norm(f(norm(x))).
 * PARALLEL: x + attention(norm(x)) + mlp(norm(x)), with one norm (GPT-J: Wang and Komatsuzaki, 2021).
 * PARALLEL_TWO: the same with a norm each (GPT-NeoX: Black et al., 2022).
 * STREAM: s * (n + m * f(n)), where n is norm(x): the residual stream itself is normed (DeepNet: Wang et al., 2022). */
enum norm_placement { NORM_BEFORE, NORM_AFTER, NORM_AROUND, NORM_PARALLEL, NORM_PARALLEL_TWO, NORM_STREAM };

static inline bool norm_is_parallel(enum norm_placement placement)
{
    return placement == NORM_PARALLEL || placement == NORM_PARALLEL_TWO;
}

/* Norms of queries and keys: none, over each head, or over all heads of a token at once. */
enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_PROJECTION };

/* GATED: down(activation(gate(x)) * up(x)). PLAIN: down(activation(up(x))). */
enum mlp_kind { MLP_GATED, MLP_PLAIN };

/* How a matrix lies in the checkpoint's files. `NAME` is its name there without ".weight". Words are int32 and hold 8
 * elements of 4 bits, or 4 of 8, the first in the lowest bits. */
enum weight_storage {
    STORED_ROWS,   /* NAME.weight [out, in]: floats, fp8 or int8; quantized: NAME.weight_scale, or NAME.weight_scale_inv
                    */
    STORED_PACKED, /* compressed-tensors: NAME.weight_packed [out, in / 8] words, .weight_scale [out, groups],
                      .weight_zero_point [out / 8, groups] words, .weight_g_idx [in] */
    STORED_GPTQ,   /* NAME.qweight [in / 8, out] words, .qzeros [groups, out / 8] words, .scales [groups, out], .g_idx
                      [in] */
    STORED_AWQ,    /* NAME.qweight [in, out / 8] words, .qzeros [groups, out / 8] words, both in the order 0 2 4 6 1 3 5
                      7, .scales [groups, out] */
    STORED_MXFP4,  /* compressed-tensors: NAME.weight_packed [out, in / 2] bytes, .weight_scale [out, groups] e8m0 */
    STORED_NVFP4,  /* the same, but .weight_scale is e4m3, and is to be divided by .weight_global_scale [1] */
    STORED_MXFP4_BLOCKS /* gpt-oss, all experts of a layer: NAME_blocks [num_experts, out, groups, 16] bytes,
                           NAME_scales [num_experts, out, groups] e8m0, not transposed */
};

/* How a matrix is stored, and what format it gets in memory. */
struct weight_scheme {
    enum weight_storage storage;
    bool is_quantized;         /* in memory; false: floats, and the rest is not used but with `dequantize` */
    bool dequantize;           /* the file has it as the rest says, but memory float32 */
    bool quantize;             /* the file has floats (STORED_ROWS), which are quantized while they are loaded */
    enum weight_format format; /* in memory: FP8, INT8, INT4 or MXFP4 */
    int32_t group_size;        /* input features that share a scale; 0: all */
    bool per_tensor;           /* the file has one scale, which is repeated for each output feature */
    bool blocks;               /* group_size output features share it too */
    bool has_zeros;            /* asymmetric: zero points are stored (INT4) */
    bool zeros_less_one;       /* as GPTQ stores them (checkpoint_format "gptq") */
    bool ordered;              /* g_idx gives each input feature its group */
    bool quantize_x;           /* as in struct weight */
    enum dtype scale_dtype;    /* with quantize: of which type scales are numbers */
};

bool weight_scheme_equal(const struct weight_scheme *a, const struct weight_scheme *b);

/* What a tensor is in the model, or in each layer of it. */
enum tensor_role {
    TENSOR_EMBEDDING,
    TENSOR_POSITION_EMBEDDING,
    TENSOR_EMBEDDING_NORM,
    TENSOR_HEAD_PROJECTION,
    TENSOR_HEAD_STATE_NORM,
    TENSOR_HEAD_EMBEDDING_NORM,
    TENSOR_PER_LAYER_EMBEDDING,
    TENSOR_PER_LAYER_PROJECTION,
    TENSOR_PER_LAYER_NORM,
    TENSOR_ATTENTION_NORM,
    TENSOR_STREAM_NORM, /* of NORM_STREAM, before the mixer */
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_OUTPUT_GATE,
    TENSOR_Q_NORM,
    TENSOR_K_NORM,
    TENSOR_V_NORM,
    TENSOR_SINKS,
    TENSOR_MIX_Q, /* of a convolution all three parts, as they lie in the file */
    TENSOR_MIX_K,
    TENSOR_MIX_V,
    TENSOR_MIX_GATE,
    TENSOR_MIX_A,
    TENSOR_MIX_B,
    TENSOR_MIX_GATE_B, /* the second matrices of gates and a */
    TENSOR_MIX_A_B,
    TENSOR_CONV,
    TENSOR_CONV_BIAS,
    TENSOR_A_LOG,
    TENSOR_DT_BIAS,
    TENSOR_SKIP,
    TENSOR_MIX_NORM,
    TENSOR_MIX_O,    /* of a recurrent mixer beside attention; of one alone it is O */
    TENSOR_LATENT_Q, /* q_a_proj, or q_proj */
    TENSOR_LATENT_KV,
    TENSOR_LATENT_Q_NORM,
    TENSOR_LATENT_Q_B,
    TENSOR_LATENT_NORM,
    TENSOR_LATENT_KV_B,
    TENSOR_O,
    TENSOR_POST_ATTENTION_NORM,
    TENSOR_MLP_NORM,
    TENSOR_MLP_STREAM_NORM,
    TENSOR_GATE,
    TENSOR_UP,
    TENSOR_XIELU_BETA,
    TENSOR_XIELU_EPS,
    TENSOR_XIELU_ALPHA_P,
    TENSOR_XIELU_ALPHA_N,
    TENSOR_DOWN,
    TENSOR_ROUTER_NORM,
    TENSOR_ROUTER,
    TENSOR_CHOICE_BIAS,
    TENSOR_EXPERT_SCALES,
    TENSOR_EXPERTS_NORM,
    TENSOR_SHARED_GATE,
    TENSOR_EXPERTS_IN,
    TENSOR_EXPERT_GATE,
    TENSOR_EXPERT_UP,
    TENSOR_EXPERT_DOWN,
    TENSOR_EXPERTS_OUT,
    TENSOR_POST_EXPERTS_NORM,
    TENSOR_POST_SHARED_NORM,
    TENSOR_POST_MLP_NORM,
    TENSOR_PER_LAYER_GATE,
    TENSOR_PER_LAYER_DOWN,
    TENSOR_POST_PER_LAYER_NORM,
    TENSOR_LAYER_SCALAR,
    TENSOR_FINAL_NORM,
    TENSOR_LM_HEAD,
    TENSOR_TARGET_IDS,
    TENSOR_K_SCALE,
    TENSOR_V_SCALE,
    NUM_TENSOR_ROLES
};

struct attention_spec {
    int32_t num_heads, num_kv_heads; /* of q; of k and of v, a divisor of it */
    int32_t head_size;               /* elements of a head */
    int32_t v_head_size;             /* of a head of v, where they are others; 0: head_size */
    bool qkv_bias, o_bias;
    enum output_gate output_gate;
    bool head_gates; /* an output gate for each head, not for each of its elements */
    bool gate_in_q;  /* the file has the gates in q_proj: of each head its q, then its gates */
    bool sinks;      /* each head has a learnt sink (struct attention_params) */
    float clip;      /* elements of q, k and v are clipped to -clip .. clip, before all else; 0: they are not */
    enum qk_norm qk_norm;
    bool qk_norm_bias;
    bool norm_after_rotation; /* q and k; QK_NORM_HEAD only */
    bool no_qk_gains;         /* norms of q and k have no gains */
    bool v_norm;              /* each head of v is normed, without a gain */
    bool v_is_k;              /* v is computed by k's matrix: it is k before norm and rotation */
    int32_t shares_kv;  /* > 0: there is no k and v; the layer reads what the layer so many before it has cached */
    int32_t rotary_dim; /* elements of a head that are rotated; 0: none */
    int32_t rope;       /* by which of the spec's ropes */
    float in_multiplier, k_multiplier;  /* q, k and v are multiplied by the first, k by the second, too; 0: 1 */
    float out_multiplier;               /* what o computes is; 0: 1 */
    float scale;                        /* scores are scale * q.k */
    float soft_cap;                     /* of scores; 0: none */
    struct query_scaling query_scaling; /* only where heads have no norms, and without longrope */
    /* v is multiplied by this, which is done to what o computes of it: unless it is 1, o has no bias and its output no
     * norm. */
    float v_multiplier;
    int32_t window; /* a query attends to the last `window` tokens, itself included; 0: to all */
    int32_t chunk;  /* to the tokens of its own chunk of so many; 0: to all */
    /* ALiBi (Press et al., 2022): a score also gets the distance to its key times -attention_alibi_slope.
     * alibi_bias_max 0: there is none. */
    float alibi_bias_max, alibi_multiplier;
    /* Of a rank (shard.h): its first head, and how many the model has; all_heads 0: it is no rank's */
    int32_t first_head, all_heads;
};

static inline int32_t attention_v_head_size(const struct attention_spec *a)
{
    return a->v_head_size > 0 ? a->v_head_size : a->head_size;
}

/* Elements of a token's q, of the k and v that the layer computes, and of the results of attention, all heads together.
 */
static inline int64_t attention_q_size(const struct attention_spec *a)
{
    return (int64_t)a->num_heads * a->head_size;
}

static inline int64_t attention_k_size(const struct attention_spec *a)
{
    return a->shares_kv ? 0 : (int64_t)a->num_kv_heads * a->head_size;
}

static inline int64_t attention_v_size(const struct attention_spec *a)
{
    return a->shares_kv ? 0 : (int64_t)a->num_kv_heads * attention_v_head_size(a);
}

static inline int64_t attention_out_size(const struct attention_spec *a)
{
    return (int64_t)a->num_heads * attention_v_head_size(a);
}

/* The slope of a head, of n in the model: alibi_multiplier * 2^(-alibi_bias_max * i / m), where m is n or the next
 * power of two. i is the head's of 1 .. m: all of them in order or, where m is above n, the even ones and then the odd
 * ones. */
float attention_alibi_slope(const struct attention_spec *a, int32_t head);

/* Output gates of a token; 0: there are none. */
static inline int64_t attention_gate_size(const struct attention_spec *a)
{
    if (a->output_gate == OUTPUT_GATE_NONE) return 0;
    return a->head_gates ? a->num_heads : attention_out_size(a);
}

/* Elements of what a token's q, k, v and output gates are: the rows of a merged matrix. */
static inline int64_t attention_qkv_size(const struct attention_spec *a)
{
    return attention_q_size(a) + attention_k_size(a) + attention_v_size(a) + attention_gate_size(a);
}

/* How a layer mixes the tokens of a sequence. NONE: it is an MLP, or a mixture of experts, alone. */
enum mixer_kind { MIXER_ATTENTION, MIXER_RECURRENT, MIXER_CONV, MIXER_LATENT, MIXER_NONE };

/* How the files of a family lay out the matrices that read a recurrent layer's input.
 * APART: four, of [q, k, v], of the gate, of b and of a (Qwen 3.5).
 * BY_KEY_HEAD: two, in which the rows of a key head are together: its q, its k, the v and the gates of its value
 * heads; and the b and the a of these (Qwen3-Next).
 * MAMBA: one, of the gate, x, B, C and dt (Mamba 2).
 * KIMI: six, of q, k, v, the first of the gates, the first of a, and b (Kimi Linear).
 * LIGHTNING: two, of the gates, and one that has the q, the k and the v of each head together (MiniMax).
 * OLMO: six, of q, k, v, the gate, a and b (OLMo Hybrid). */
enum recurrent_layout {
    RECURRENT_APART,
    RECURRENT_BY_KEY_HEAD,
    RECURRENT_MAMBA,
    RECURRENT_KIMI,
    RECURRENT_LIGHTNING,
    RECURRENT_OLMO
};

/* A recurrent layer (kernels/recurrence.h): its input's projection, the *channels* of q, k and v, goes through a short
 * convolution with silu; then comes the recurrence; what it computes is normed, gated, and read by o. */
struct recurrent_spec {
    enum recurrence_kind kind;
    enum recurrent_layout layout;
    int32_t num_k_heads, num_v_heads, k_head_size, v_head_size;
    int32_t rank;       /* elements between the two matrices that make the gates, and a; 0: they have one matrix each */
    int32_t conv_width; /* 1: there is no convolution, and its weights in memory are 1 */
    float slope_factor; /* of FIXED: a_log of head h of n is this times 2^(-8 (h + 1) / n) */
    bool conv_apart;    /* the file has a convolution for q, one for k and one for v */
    bool conv_bias, in_bias, o_bias, has_skip, norm_qk;
    bool value_first; /* the channels are v, k, q, not q, k, v (Mamba 2's x, B, C) */
    float scale;
    float beta_factor, beta_min, beta_max; /* struct recurrence_args */
    /* struct gated_norm_args; norm_size: elements of its gain */
    int32_t norm_group_size, norm_size;
    bool gate_first, sigmoid_gate, no_norm, round_norm;
    double norm_eps;
    /* What the parts of the input's projection are multiplied by: q, k, v, gates and a; and what o computes. 0: 1 */
    float q_multiplier, k_multiplier, v_multiplier, gate_multiplier, a_multiplier, out_multiplier;
    int32_t first_head, all_heads; /* of values, as in struct attention_spec */
};

/* A layer that is a short convolution between two gates (LFM2): of the three parts of its input's projection, of
 * `channels` elements each, the first is the input gate, the second the output gate and the third x. */
struct conv_spec {
    int32_t channels; /* hidden_size, or a rank's part of it */
    int32_t width;
    bool bias; /* of the projections and of the convolution */
};

/* A layer with latent attention (kernels/latent.h). The layer's input is projected to the q of all heads, or to what a
 * second matrix makes q of, and to the latent and the rotated key. A head of q has `nope` elements, and then `rope`
 * that are rotated. */
struct latent_spec {
    int32_t num_heads;
    int32_t q_rank;     /* elements between the two matrices of q, which are normed; 0: q has one matrix */
    int32_t rank, rope; /* of the latent, which is normed, and of the rotated key: multiples of 16 */
    int32_t nope, v_head_size;
    bool no_rotation; /* q and the key that is called rotated stay as they are */
    bool bias;        /* of the two matrices that read the layer's input, and of o; only with q_rank */
    double norm_eps;  /* of both norms */
    float scale;      /* scores are scale * q.k */
    struct query_scaling query_scaling; /* not with longrope */
};

/* Elements of a head of q, of the q of a token, and of the vector that is cached of a token. */
static inline int32_t latent_head_size(const struct latent_spec *l)
{
    return l->nope + l->rope;
}

static inline int64_t latent_q_size(const struct latent_spec *l)
{
    return (int64_t)l->num_heads * latent_head_size(l);
}

static inline int32_t latent_vector_size(const struct latent_spec *l)
{
    return l->rank + l->rope;
}

/* Elements of what the layer computes of its input first: those of q, or of what q is made of. */
static inline int64_t latent_first_size(const struct latent_spec *l)
{
    return l->q_rank > 0 ? l->q_rank : latent_q_size(l);
}

static inline int64_t latent_out_size(const struct latent_spec *l)
{
    return (int64_t)l->num_heads * l->v_head_size;
}

/* a_log of a head of FIXED. */
float recurrent_slope(const struct recurrent_spec *r, int32_t head);

static inline int64_t recurrent_v_size(const struct recurrent_spec *r)
{
    return (int64_t)r->num_v_heads * r->v_head_size;
}

/* Channels of the convolution. */
static inline int64_t recurrent_channels(const struct recurrent_spec *r)
{
    return 2 * (int64_t)r->num_k_heads * r->k_head_size + recurrent_v_size(r);
}

/* Of a token: DELTA_CHANNELS has one for each element of k, FIXED none. */
static inline int64_t recurrent_a_size(const struct recurrent_spec *r)
{
    const int32_t of_head = r->kind == RECURRENCE_DELTA_CHANNELS ? r->k_head_size : r->kind != RECURRENCE_FIXED;
    return (int64_t)r->num_v_heads * of_head;
}

static inline int64_t recurrent_b_size(const struct recurrent_spec *r)
{
    return r->kind == RECURRENCE_DELTA || r->kind == RECURRENCE_DELTA_CHANNELS ? r->num_v_heads : 0;
}

/* Elements of the gates and of a, or of what their second matrices read, in what the layer computes of its input
 * first. */
static inline int64_t recurrent_first_gate_size(const struct recurrent_spec *r)
{
    return r->rank > 0 ? r->rank : recurrent_v_size(r);
}

static inline int64_t recurrent_first_a_size(const struct recurrent_spec *r)
{
    return r->rank > 0 ? r->rank : recurrent_a_size(r);
}

/* Elements of all of that, side by side: channels, gates, a and b. */
static inline int64_t recurrent_in_size(const struct recurrent_spec *r)
{
    return recurrent_channels(r) + recurrent_first_gate_size(r) + recurrent_first_a_size(r) + recurrent_b_size(r);
}

struct mlp_spec {
    enum mlp_kind kind;
    int32_t intermediate_size;
    bool bias;
    enum activation activation; /* XIELU's numbers are what the layer has learnt */
    float limit;                /* GATED only: struct act_and_mul_args; 0: none */
    float gate_multiplier;      /* GATED only: what the activation reads is multiplied by it; 0: 1 */
    float out_multiplier;       /* what down computes is; 0: 1. Not beside experts */
};

/* A mixture of experts: a router chooses for each token some of many MLPs (Shazeer et al., 2017; Fedus et al., 2022).
 * If the layer has an MLP beside it, that is the shared experts', or Gemma 4's dense MLP: its result is added.
 */
struct experts_spec {
    struct router_params router; /* num_experts 0: the layer has no experts. num_own: of a rank (shard.h) */
    int32_t intermediate_size;   /* of an expert */
    int32_t latent_size; /* experts read a projection of the layer's input to so many elements, and what they make is
                            projected back (Nemotron 3 Super); 0: neither */
    struct gate_params gate;
    bool bias;          /* of gate, up and down */
    bool latent_bias;   /* of both projections */
    bool router_bias;   /* of the router's logits */
    bool choice_bias;   /* struct route_experts_args */
    bool weights_first; /* struct experts_gate_up_args */
    bool expert_scales; /* struct route_experts_args */
    /* Gemma 4: the router and the experts norm the residual stream themselves, and what the experts and the MLP beside
     * them compute is normed before the two are added. There is an MLP. */
    bool own_norms;
    bool mean;        /* of the two, not the sum (Cohere) */
    bool shared_gate; /* the MLP beside them is multiplied by the sigmoid of a matrix of one row, which reads what the
                         router does (Qwen 2) */
};

/* Elements of a token that experts read and make. */
static inline int32_t experts_width(const struct experts_spec *e, int32_t hidden_size)
{
    return e->latent_size > 0 ? e->latent_size : hidden_size;
}

/* m and s of a sublayer with NORM_STREAM. */
struct stream_scaling {
    float output, sum;
};

/* Layers of a model may differ in everything. */
struct layer_spec {
    uint8_t schemes[NUM_TENSOR_ROLES]; /* of the matrix with that role: which of the spec's schemes */
    enum norm_placement norm_placement;
    enum mixer_kind mixer;           /* which of the next four counts. Norms of attention are the mixer's */
    struct attention_spec attention; /* of another mixer: all 0 */
    struct recurrent_spec recurrent;
    /* The mixer is attention, and the recurrent one is beside it: it reads the same normed input, and what both compute
     * is added. The norms are NORM_BEFORE; heads of attention have multiples of 16 elements. */
    bool recurrent_beside;
    struct conv_spec conv;
    struct latent_spec latent;
    /* intermediate_size 0: the layer has experts only or, without these, a mixer only */
    struct mlp_spec mlp;
    struct experts_spec experts;
    /* a sublayer's output is multiplied by this before it is added to the residual stream, and by an out_multiplier */
    float residual_multiplier;
    struct stream_scaling mixer_scaling, mlp_scaling; /* only with NORM_STREAM */
};

static inline bool layer_is_recurrent(const struct layer_spec *layer)
{
    return layer->mixer == MIXER_RECURRENT || layer->recurrent_beside;
}

/* Elements of a token of what the mixer projects its input to, and of what it computes, which o reads. Of two mixers,
 * those of attention come first. */
int64_t layer_mixer_in_size(const struct layer_spec *layer);
int64_t layer_mixer_out_size(const struct layer_spec *layer);

/* Whether it has an MLP or experts; otherwise it is a mixer alone. */
static inline bool layer_has_mlp(const struct layer_spec *layer)
{
    return layer->mlp.intermediate_size > 0 || layer->experts.router.num_experts > 0;
}

/* A head drafts from hidden states of its target: it is a small model whose input at position i is made of the target's
 * states of token i and of the embedding e of token i + 1, and whose logits are those of token i + 2. Behind that input
 * it is a model like any other, of num_layers layers, with K and V of its own.
 *
 * EAGLE3 (Li et al., 2025; vLLM's LlamaForCausalLMEagle3): the states are the residual stream before three of the
 * target's layers, side by side. x = projection(states) is the residual stream. q, k and v of layer 0 read
 * [attention_norm(e), head_state_norm(x)], twice hidden_size elements.
 * MTP (DeepSeek-AI, 2024, section 2.2): the state is the target's residual stream after all layers and its final norm,
 * or with state_before_norm before that norm. The residual stream is projection([head_embedding_norm(e),
 * head_state_norm(state)]), or with state_first of the two in the other order.
 *
 * A draft's token has no states of the target yet. In their place is the head's own residual stream of the pass before,
 * after all its layers and before its final norm: as x (EAGLE3), or as the state (MTP). With own_state_normed it is the
 * output of that norm. */
enum head_kind { HEAD_NONE, HEAD_EAGLE3, HEAD_MTP };
enum { HEAD_MAX_STATES = 3 };
struct head_spec {
    enum head_kind kind;
    int32_t num_states, state_size;        /* of a token of the target: how many, and elements of one */
    int32_t state_layers[HEAD_MAX_STATES]; /* EAGLE3: of the target, counted from 0; -1: head_fit chooses them */
    bool state_first, state_before_norm;   /* MTP */
    bool own_state_normed;                 /* MTP */
    bool own_embedding, own_lm_head;       /* else the target's */
    bool maps_ids;                         /* EAGLE3: its vocabulary is a part of the target's: d2t */
    int32_t num_ids;                       /* with maps_ids: of that part, the rows of lm_head */
};

/* What the file calls tensors, where families differ, without ".weight". `layers` is what comes before the number of a
 * layer: "model.layers", and the first is number first_layer; of an only_layer no number follows. The names below it
 * are what follows the number. In the module `attention` are q_proj, k_proj,
 * v_proj, `o`, `q_norm`, `k_norm` and `sinks`.
 *
 * In the module `recurrent` are, of a recurrent layer, in_proj_qkv and others (enum recurrent_layout), conv1d or
 * q_conv1d, k_conv1d and v_conv1d, with a rank g_b_proj and f_b_proj, A_log, dt_bias, D, `recurrent_norm` and
 * `recurrent_o`; in the module `conv`, of a convolution, in_proj, conv and `conv_o`.
 *
 * In the module `attention` are, of latent attention, q_a_proj, q_a_layernorm and q_b_proj, or q_proj;
 * kv_a_proj_with_mqa, kv_a_layernorm, kv_b_proj and `o`.
 *
 * A name that begins with a dot follows that of the first layer: ".shared_head.norm".
 *
 * position_embedding NULL: positions are not learned. embedding_norm NULL: the embedding has no norm. The names
 * head_... are those of a head (struct head_spec); head_embedding_norm is MTP's. next_layers is what the names of the
 * tensors of num_next_layers begin with; NULL: these layers are numbered behind the last one.
 *
 * Gains: attention_norm and mlp_norm norm a sublayer's input, the post norms its output. Which of them a layer has
 * follows from its norm_placement.
 *
 * Matrices: qkv and gate_up are one tensor each, whose rows are q, k, v or gate, up; NULL where the file has q_proj,
 * k_proj, v_proj or gate, up.
 *
 * Experts: each is a module of its own, `experts`.N, in which are expert_gate, expert_up and expert_down. Or experts is
 * NULL, and a layer has two tensors for all of them, expert_gate_up and expert_down, which are whole names, ".weight"
 * included where they have it: [num_experts, rows, in_features] or, transposed, [num_experts, in_features, rows]. The
 * rows of up follow those of gate, or, interleaved, each row that of gate. With expert_gate_up NULL they are two such
 * tensors, expert_gate and expert_up. Flat, tensors have two dimensions, [num_experts * rows, in_features], and
 * expert_down is transposed: [num_experts * in_features, rows]. quantized_experts is what experts is then in files
 * whose experts are quantized (not in MXFP4), as llm-compressor writes them; NULL: none are known. `shared` is the
 * module of the MLP beside experts; NULL: that is called as the MLP of other layers is. */
struct tensor_names {
    const char *embedding, *final_norm, *lm_head;
    const char *position_embedding, *embedding_norm;
    const char *head_projection, *head_state_norm, *head_embedding_norm, *target_ids;
    const char *layers, *next_layers;
    int32_t first_layer;
    bool only_layer;
    const char *attention_norm, *post_attention_norm;
    const char *mlp_norm, *post_mlp_norm;
    const char *attention, *o, *q_norm, *k_norm, *output_gate, *sinks;
    const char *recurrent, *recurrent_o, *recurrent_norm, *conv, *conv_o;
    const char *qkv, *gate_up;
    const char *gate, *up, *down;
    const char *router, *choice_bias, *shared, *shared_gate, *experts_in, *experts_out;
    const char *experts, *expert_gate, *expert_up, *expert_down, *expert_gate_up, *quantized_experts;
    bool experts_transposed, experts_interleaved, experts_flat;
};
extern const struct tensor_names tensor_names_llama; /* OLMo 2's for post norms, and Qwen 3's for experts */

struct model_spec {
    int32_t hidden_size, num_layers, vocab_size;
    int32_t max_position_embeddings;
    enum norm_type norm_type; /* of all norms */
    double norm_eps;
    bool no_gains;                   /* norms have none: the gains in memory are 1 */
    bool norm_bias;                  /* norms of the residual stream, and of what is added to it, have one */
    double gain_offset;              /* a norm's gain is this plus what the file holds: 0, or 1 (Gemma) */
    double embedding_multiplier;     /* 1 where the family has none, as the next */
    bool round_embedding_multiplier; /* to the dtype that the model computes in, before it multiplies (Gemma) */
    /* Per-layer embeddings (layers/per_layer.c): a token has this many elements for each layer; 0: there are none */
    int32_t per_layer_size, per_layer_vocab_size;
    bool layer_scalars; /* each layer multiplies the residual stream by a number; then it ends with a post norm */
    double logits_multiplier;
    double logits_soft_cap; /* 0: none */
    bool tie_word_embeddings;
    int32_t num_next_layers; /* that the file has behind the last one, to predict further tokens: a head (HEAD_MTP) */
    bool has_vision, has_audio; /* the checkpoint has parts for images or sound, which are not used */
    bool lm_head_bias;          /* not where the embedding is tied */
    int32_t position_offset;    /* position p of a sequence is row p + this of learned positions */
    struct tensor_names names;
    bool qkv_by_head; /* names.qkv has the rows of each KV head together: its queries', its k, its v */
    bool transposed;  /* the file has the matrices of layers as [in, out] */
    struct rope_config ropes[MODEL_MAX_ROPES];
    int32_t num_ropes;
    bool rope_interleaved; /* pairs are neighbours (struct rotary_args) */
    bool rope_reversed;    /* pairs are rotated by the negative angle */
    enum dtype dtype;      /* torch_dtype or dtype of the file; float32 if it is silent, as transformers takes it */
    struct weight_scheme schemes[MODEL_MAX_SCHEMES]; /* the first is that of floats */
    int32_t num_schemes;
    uint8_t lm_head_scheme;
    /* What one of several ranks computes (shard.h): the sizes above and of the layers are the rank's. NULL: all of the
     * model. */
    const struct model_spec *whole;
    int32_t rank, num_ranks; /* num_ranks 0 or 1: there is one */
    bool expert_parallel;    /* of several ranks each has some of the experts, whole */
    /* What one of several stages computes (stage.h): num_layers layers of the model, from first_layer on. all_stages:
     * the whole model; NULL: there is one stage */
    const struct model_spec *all_stages;
    int32_t stage, num_stages, first_layer;
    struct head_spec head;                      /* HEAD_NONE: the model stands alone */
    struct layer_spec layers[MODEL_MAX_LAYERS]; /* [num_layers] */
};

static inline const struct model_spec *model_spec_whole(const struct model_spec *spec)
{
    return spec->whole ? spec->whole : spec;
}

/* The vocabulary of lm_head. */
static inline int32_t model_spec_num_logits(const struct model_spec *spec)
{
    return spec->head.maps_ids ? spec->head.num_ids : spec->vocab_size;
}

/* Whether q, k and v of the layer read [embedding, state]. */
static inline bool layer_reads_embedding(const struct model_spec *spec, int32_t layer)
{
    return spec->head.kind == HEAD_EAGLE3 && layer == 0;
}

/* The largest of each size among the layers: for what has one size for all layers. */
struct layer_sizes {
    int32_t num_heads, num_kv_heads, head_size, intermediate_size; /* intermediate_size: of MLPs */
    int32_t latent_rank;                                           /* 0: no layer has latent attention */
    int32_t num_experts, top_k, expert_size; /* expert_size: the intermediate size of an expert; 0: no layer has one */
    int32_t expert_latent_size;
};
struct layer_sizes model_spec_largest(const struct model_spec *spec);

/* Of all layers together; of a rank, those that it has. */
size_t model_spec_num_experts(const struct model_spec *spec);

/* The most tokens of one sequence that the model is made for: max_position_embeddings, stretched by linear, dynamic or
 * yarn scaling (yarn: original_max_position x factor), as vLLM derives max_model_len. In files of models with two ropes
 * max_position_embeddings is stretched already. */
int32_t model_spec_max_length(const struct model_spec *spec);

/* "vision tower": what is not used of a checkpoint that also reads images or audio; "" for others. */
const char *model_spec_other_parts(const struct model_spec *spec);

/* As config.json calls them: "llama3", "gelu_pytorch_tanh". */
extern const char *const rope_type_names[NUM_ROPE_TYPES];
extern const char *const activation_names[NUM_ACTIVATIONS];

/* The elements of a head that a rotation by this rope changes; 0: none. */
int32_t layer_rotary_dim(const struct layer_spec *layer, int32_t rope);

/* The columns of a rope's table: the rotary_dim of the layers that it rotates; 0 if there are none. */
int32_t rope_rotary_dim(const struct model_spec *spec, int32_t rope);

/* Longrope's switch: a sequence of more tokens than this is rotated by other angles than a shorter one, from its first
 * token on. 0: the model has none, or max_length does not exceed it. */
int32_t model_spec_rope_switch(const struct model_spec *spec, int32_t max_length);

/* The rows of a table of angles: max_length, or twice as many if there is a switch. Then the row of position p of a
 * long sequence is max_length + p. */
int32_t rope_table_rows(const struct model_spec *spec, int32_t max_length);

/* Fills table[rope_table_rows, rope_rotary_dim]: cos of each pair's angle, then sin, both times the attention factor.
 * Angles are float32 products, rounded where transformers rounds them.
 *
 * Dynamic scaling: transformers changes the base with the current length of the sequence, which would make cached keys
 * depend on when they were computed. The table is fixed instead, as in vLLM: the base is the one for the longest
 * context, longest = max_position_embeddings * factor, whatever max_length is: theta * (factor * longest /
 * max_position_embeddings - (factor - 1)) ^ (rotary_dim / (rotary_dim - 2)).
 *
 * The threads of the pool share the work; NULL: only the caller does it. */
void rope_table(const struct model_spec *spec, int32_t rope, int32_t max_length, float *table, struct pool *pool);

#endif
