#include "model/tensors.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/shard.h"
#include "model/stage.h"

/* A layer has 14 matrices and gains, each with a bias (of a recurrent one, no more); or, with 4 scalars in place of a
 * gate and its bias, 2 tensors more; beside attention, 18 tensors of a recurrent mixer; a norm of V; 4 tensors behind
 * the MLP, one with a bias; sinks, and two scales of its cache; and, with experts, a router with two biases, scales, a
 * shared gate, and 4 norms or 2 projections. An expert has 3 matrices and their biases. Embedding, learned positions, 3
 * tensors of per-layer embeddings, a head's projection and ids, and, with biases, embedding norm, final norm, a head's
 * norms and lm_head are in no layer. */
enum { MOST_OF_A_LAYER = 69, MOST_OF_AN_EXPERT = 6, MOST_OF_NO_LAYER = 17 };

const struct tensor_names tensor_names_llama = {
    .embedding = "model.embed_tokens",
    .final_norm = "model.norm",
    .lm_head = "lm_head",
    .layers = "model.layers",
    .attention_norm = "input_layernorm",
    .post_attention_norm = "post_attention_layernorm",
    .mlp_norm = "post_attention_layernorm",
    .post_mlp_norm = "post_feedforward_layernorm",
    .attention = "self_attn",
    .o = "o_proj",
    .q_norm = "q_norm",
    .k_norm = "k_norm",
    .sinks = "sinks",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .router = "mlp.gate",
    .choice_bias = "mlp.gate.e_score_correction_bias",
    .experts = "mlp.experts",
    .expert_gate = "gate_proj",
    .expert_up = "up_proj",
    .expert_down = "down_proj",
};

const struct tensor_prefix tensor_prefixes[NUM_TENSOR_PREFIXES] = {
    {"model.", "lm_head"},
    {"backbone.", "lm_head"},
    {"language_model.model.", "language_model.lm_head"},
    {"model.language_model.", "lm_head"},
    {"model.text_model.", "lm_head"},
    {"language_model.", "lm_head"},
    {"", "lm_head"},
};

static void add(struct tensor_table *table, const struct tensor *tensor, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add(struct tensor_table *table, const struct tensor *tensor, const char *format, ...)
{
    struct tensor *t = &table->tensors[table->count++];
    *t = *tensor;
    if (t->merged == MERGED_NONE) t->num_parts = 1, t->merged_rows = t->out_features;
    if (t->run == 0) {
        t->run = t->out_features;
        t->file_row = t->merged_in_file ? t->first_row : 0;
    }
    if (t->file_columns == 0) t->file_columns = t->in_features;
    if (t->file_rows == 0) t->file_rows = t->merged_in_file ? t->merged_rows : t->out_features;
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
}

/* The name of a layer. */
static struct tensor_name layer_name(const struct model_spec *spec, int32_t layer)
{
    const struct tensor_names *names = &spec->names;
    struct tensor_name name;
    if (names->only_layer)
        snprintf(name.text, sizeof name.text, "%s", names->layers);
    else
        snprintf(name.text, sizeof name.text, "%s.%d", names->layers, names->first_layer + layer);
    return name;
}

struct tensor_name tensor_module_name(const struct model_spec *spec, const char *name)
{
    struct tensor_name module = {""};
    if (name[0] == '.') module = layer_name(spec, 0);
    strncat(module.text, name, sizeof module.text - strlen(module.text) - 1);
    return module;
}

/* The name of a module in a layer's attention. */
static struct tensor_name in_attention(const struct model_spec *spec, const char *name)
{
    struct tensor_name module;
    snprintf(module.text, sizeof module.text, "%s.%s", spec->names.attention, name);
    return module;
}

/* The gain of a norm, and its bias; of no layer: `name` is the whole name. */
static void add_gain(struct tensor_table *table, const struct model_spec *spec, const struct tensor *gain,
                     const char *name, bool has_bias)
{
    struct tensor t = *gain;
    char module[2 * sizeof(struct tensor_name)];
    if (t.layer >= 0)
        snprintf(module, sizeof module, "%s.%s", layer_name(spec, t.layer).text, name);
    else
        snprintf(module, sizeof module, "%s", tensor_module_name(spec, name).text);
    t.kind = spec->no_gains || gain->kind == TENSOR_ONES ? TENSOR_ONES : TENSOR_GAIN;
    add(table, &t, "%s.weight", module);
    t.kind = TENSOR_BIAS;
    if (has_bias) add(table, &t, "%s.bias", module);
}

/* A norm of the residual stream, or of what is added to it. */
static void add_norm(struct tensor_table *table, const struct model_spec *spec, int32_t layer, enum tensor_role role,
                     const char *name)
{
    const struct tensor gain = {.role = role, .layer = layer, .out_features = spec->hidden_size};
    add_gain(table, spec, &gain, name, spec->norm_bias);
}

static void add_matrix(struct tensor_table *table, const struct model_spec *spec, const struct tensor *matrix,
                       const char *module, bool has_bias)
{
    const struct tensor_name layer = layer_name(spec, matrix->layer);
    struct tensor t = *matrix;
    t.transposed = spec->transposed;
    add(table, &t, "%s.%s.weight", layer.text, module);
    if (!has_bias) return;
    struct tensor bias = *matrix;
    bias.kind = TENSOR_BIAS;
    bias.in_features = 0;
    add(table, &bias, "%s.%s.bias", layer.text, module);
}

static void add_qk_norms(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct attention_spec *a = &spec->layers[layer].attention;
    const enum qk_norm kind = a->qk_norm;
    struct tensor gain = {.kind = a->no_qk_gains ? TENSOR_ONES : TENSOR_GAIN, .layer = layer};
    if (kind == QK_NORM_NONE) return;
    gain.role = TENSOR_Q_NORM;
    gain.out_features = kind == QK_NORM_HEAD ? a->head_size : attention_q_size(a);
    add_gain(table, spec, &gain, in_attention(spec, spec->names.q_norm).text, a->qk_norm_bias);
    if (a->shares_kv) return;
    gain.role = TENSOR_K_NORM;
    gain.out_features = kind == QK_NORM_HEAD ? a->head_size : attention_k_size(a);
    add_gain(table, spec, &gain, in_attention(spec, spec->names.k_norm).text, a->qk_norm_bias);
}

/* Of a merged matrix that has the rows of each KV head together, q, k or v are `count` heads from head `first` on of
 * each. */
static void set_runs(struct tensor *t, const struct attention_spec *a, int64_t first, int64_t count)
{
    t->file_row = first * a->head_size;
    t->run = count * a->head_size;
    t->step = (int64_t)(a->num_heads / a->num_kv_heads + 2) * a->head_size;
}

/* Of a q_proj that has the gates, too: the rows of q, or of the gates, of each head. */
static void set_gate_runs(struct tensor *t, const struct attention_spec *a, int64_t second)
{
    t->file_row = second * a->head_size;
    t->run = a->head_size;
    t->step = 2 * (int64_t)a->head_size;
    t->file_rows = 2 * attention_q_size(a);
    t->merged_in_file = true;
}

static void clear_runs(struct tensor *t)
{
    t->file_row = t->run = t->step = t->file_rows = 0;
    t->merged_in_file = false;
}

static void add_v_norm(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct tensor ones = {.role = TENSOR_V_NORM,
                                .kind = TENSOR_ONES,
                                .layer = layer,
                                .out_features = attention_v_head_size(&spec->layers[layer].attention)};
    add(table, &ones, "%s.%s.weight", layer_name(spec, layer).text, in_attention(spec, "v_norm").text);
}

/* The parts of what a recurrent layer's input is projected to, in their order in memory. */
enum mix_part { MIX_Q, MIX_K, MIX_V, MIX_GATE, MIX_A, MIX_B, NUM_MIX_PARTS };

static int mix_parts(const struct recurrent_spec *r)
{
    return MIX_A + (recurrent_a_size(r) > 0) + (recurrent_b_size(r) > 0);
}

/* q, k and v; q alone where the layer reads another's K and V. */
static void add_qkv(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct layer_spec *l = &spec->layers[layer];
    const struct attention_spec *a = &l->attention;
    const int64_t q_size = attention_q_size(a), k_size = attention_k_size(a), v_size = attention_v_size(a);
    struct tensor qkv = {.layer = layer,
                         .in_features = spec->hidden_size * (layer_reads_embedding(spec, layer) ? 2 : 1),
                         .merged = MERGED_QKV,
                         .num_parts = (a->output_gate ? 4 : 3) + (l->recurrent_beside ? mix_parts(&l->recurrent) : 0),
                         .merged_rows = layer_mixer_in_size(l)};
    const char *merged = spec->names.qkv;
    const int64_t shared = a->num_heads / a->num_kv_heads;
    qkv.merged_in_file = merged != NULL;
    qkv.role = TENSOR_Q, qkv.out_features = q_size;
    if (a->shares_kv) qkv.merged = MERGED_NONE;
    if (spec->qkv_by_head) set_runs(&qkv, a, 0, shared);
    if (a->gate_in_q) set_gate_runs(&qkv, a, 0);
    add_matrix(table, spec, &qkv, merged ? merged : in_attention(spec, "q_proj").text, a->qkv_bias);
    if (a->gate_in_q) clear_runs(&qkv);
    if (a->shares_kv) return;
    qkv.role = TENSOR_K, qkv.part = 1, qkv.out_features = k_size, qkv.first_row = q_size;
    if (spec->qkv_by_head) set_runs(&qkv, a, shared, 1);
    add_matrix(table, spec, &qkv, merged ? merged : in_attention(spec, "k_proj").text, a->qkv_bias);
    qkv.role = TENSOR_V, qkv.part = 2, qkv.out_features = v_size, qkv.first_row = q_size + k_size;
    if (spec->qkv_by_head) set_runs(&qkv, a, shared + 1, 1);
    add_matrix(table, spec, &qkv, merged ? merged : in_attention(spec, a->v_is_k ? "k_proj" : "v_proj").text,
               a->qkv_bias);
    qkv.role = TENSOR_OUTPUT_GATE, qkv.part = 3, qkv.out_features = attention_gate_size(a), qkv.first_row += v_size;
    if (a->gate_in_q) set_gate_runs(&qkv, a, 1);
    if (a->output_gate)
        add_matrix(table, spec, &qkv, in_attention(spec, a->gate_in_q ? "q_proj" : spec->names.output_gate).text,
                   false);
}

/* The name of a module of a layer that is recurrent or a convolution. */
static struct tensor_name in_mixer(const struct model_spec *spec, int32_t layer, const char *name)
{
    const bool conv = spec->layers[layer].mixer == MIXER_CONV;
    struct tensor_name module;
    snprintf(module.text, sizeof module.text, "%s.%s", conv ? spec->names.conv : spec->names.recurrent, name);
    return module;
}

static int64_t mix_rows(const struct recurrent_spec *r, enum mix_part part)
{
    const int64_t k_size = (int64_t)r->num_k_heads * r->k_head_size;
    const int64_t rows[NUM_MIX_PARTS] = {k_size,
                                         k_size,
                                         recurrent_v_size(r),
                                         recurrent_first_gate_size(r),
                                         recurrent_first_a_size(r),
                                         recurrent_b_size(r)};
    return rows[part];
}

/* Where the rows of a part lie in the file: its name in the layer, and in it the rows of `group` parts, of each of
 * `heads` heads, side by side. */
static const char *place_mix_part(struct tensor *t, const struct recurrent_spec *r, enum mix_part part)
{
    static const char *const names[][NUM_MIX_PARTS] = {
        [RECURRENT_APART] = {"in_proj_qkv", "in_proj_qkv", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b"},
        [RECURRENT_BY_KEY_HEAD] = {"in_proj_qkvz", "in_proj_qkvz", "in_proj_qkvz", "in_proj_qkvz", "in_proj_ba",
                                   "in_proj_ba"},
        [RECURRENT_MAMBA] = {"in_proj", "in_proj", "in_proj", "in_proj", "in_proj", "in_proj"},
        [RECURRENT_KIMI] = {"q_proj", "k_proj", "v_proj", "g_a_proj", "f_a_proj", "b_proj"},
        [RECURRENT_OLMO] = {"q_proj", "k_proj", "v_proj", "g_proj", "a_proj", "b_proj"},
        [RECURRENT_LIGHTNING] = {"qkv_proj", "qkv_proj", "qkv_proj", "output_gate", "", ""},
    };
    static const enum mix_part orders[][NUM_MIX_PARTS] = {
        [RECURRENT_APART] = {MIX_Q, MIX_K, MIX_V, MIX_GATE, MIX_A, MIX_B},
        [RECURRENT_BY_KEY_HEAD] = {MIX_Q, MIX_K, MIX_V, MIX_GATE, MIX_B, MIX_A},
        [RECURRENT_MAMBA] = {MIX_GATE, MIX_V, MIX_K, MIX_Q, MIX_A, MIX_B},
        [RECURRENT_KIMI] = {MIX_Q, MIX_K, MIX_V, MIX_GATE, MIX_A, MIX_B},
        [RECURRENT_OLMO] = {MIX_Q, MIX_K, MIX_V, MIX_GATE, MIX_A, MIX_B},
        [RECURRENT_LIGHTNING] = {MIX_Q, MIX_K, MIX_V, MIX_GATE, MIX_A, MIX_B},
    };
    const bool by_head = r->layout == RECURRENT_BY_KEY_HEAD || r->layout == RECURRENT_LIGHTNING;
    const int64_t heads = by_head ? r->num_k_heads : 1;
    const char *name = names[r->layout][part];
    int64_t before = 0, all = 0;
    bool found = false, alone = true;
    for (int i = 0; i < NUM_MIX_PARTS; i++) {
        const enum mix_part other = orders[r->layout][i];
        if (strcmp(names[r->layout][other], name) != 0) continue;
        found |= other == part;
        alone &= other == part;
        all += mix_rows(r, other);
        if (!found) before += mix_rows(r, other);
    }
    t->file_row = before / heads, t->run = mix_rows(r, part) / heads, t->step = all / heads;
    t->file_rows = all;
    t->merged_in_file = !alone;
    return name;
}

/* Beside attention, whose parts come first. */
static void add_mix(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    static const enum mix_part orders[][NUM_MIX_PARTS] = {{MIX_Q, MIX_K, MIX_V, MIX_GATE, MIX_A, MIX_B},
                                                          {MIX_V, MIX_K, MIX_Q, MIX_GATE, MIX_A, MIX_B}};
    const struct layer_spec *l = &spec->layers[layer];
    const struct recurrent_spec *r = &l->recurrent;
    const int before = l->recurrent_beside ? l->attention.output_gate ? 4 : 3 : 0;
    struct tensor t = {.layer = layer,
                       .in_features = spec->hidden_size,
                       .merged = MERGED_QKV,
                       .num_parts = before + mix_parts(r),
                       .first_row = l->recurrent_beside ? attention_qkv_size(&l->attention) : 0,
                       .merged_rows = layer_mixer_in_size(l)};
    for (t.part = before; t.part < t.num_parts; t.part++) {
        const enum mix_part part = orders[r->value_first][t.part - before];
        t.role = (enum tensor_role)(TENSOR_MIX_Q + part);
        t.out_features = mix_rows(r, part);
        const char *name = place_mix_part(&t, r, part);
        add_matrix(table, spec, &t, in_mixer(spec, layer, name).text, r->in_bias);
        t.first_row += t.out_features;
    }
}

/* The second matrices of gates and a. */
static void add_second_mix(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct recurrent_spec *r = &spec->layers[layer].recurrent;
    struct tensor t = {
        .role = TENSOR_MIX_GATE_B, .layer = layer, .out_features = recurrent_v_size(r), .in_features = r->rank};
    if (r->rank == 0) return;
    add_matrix(table, spec, &t, in_mixer(spec, layer, "g_b_proj").text, false);
    t.role = TENSOR_MIX_A_B, t.out_features = recurrent_a_size(r);
    add_matrix(table, spec, &t, in_mixer(spec, layer, "f_b_proj").text, false);
}

/* The weights of the convolution: one tensor, or three whose rows follow each other in memory. */
static void add_recurrent_conv(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    static const char *const names[] = {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"};
    const struct recurrent_spec *r = &spec->layers[layer].recurrent;
    struct tensor t = {.role = TENSOR_CONV,
                       .kind = r->conv_width > 1 ? TENSOR_VECTOR : TENSOR_ONES,
                       .layer = layer,
                       .width = r->conv_width,
                       .out_features = recurrent_channels(r) * r->conv_width};
    const struct tensor_name module = layer_name(spec, layer);
    if (!r->conv_apart) {
        add(table, &t, "%s.%s", module.text, in_mixer(spec, layer, "conv1d.weight").text);
        return;
    }
    t.merged = MERGED_QKV, t.num_parts = 3, t.merged_rows = t.out_features;
    for (; t.part < 3; t.part++, t.first_row += t.out_features) {
        t.out_features = mix_rows(r, (enum mix_part)(MIX_Q + t.part)) * r->conv_width;
        add(table, &t, "%s.%s", module.text, in_mixer(spec, layer, names[t.part]).text);
    }
}

static void add_recurrent(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct recurrent_spec *r = &spec->layers[layer].recurrent;
    const int64_t heads = r->num_v_heads, bias = r->kind == RECURRENCE_DELTA_CHANNELS ? heads * r->k_head_size : heads;
    add_mix(table, spec, layer);
    add_second_mix(table, spec, layer);
    add_recurrent_conv(table, spec, layer);
    const struct {
        enum tensor_role role;
        bool there;
        enum tensor_kind kind;
        int64_t count;
        const char *name;
    } vectors[] = {
        {TENSOR_CONV_BIAS, r->conv_bias, TENSOR_VECTOR, recurrent_channels(r), "conv1d.bias"},
        {TENSOR_A_LOG, true, r->kind == RECURRENCE_FIXED ? TENSOR_SLOPES : TENSOR_VECTOR, heads, "A_log"},
        {TENSOR_DT_BIAS, r->kind != RECURRENCE_FIXED, TENSOR_VECTOR, bias, "dt_bias"},
        {TENSOR_SKIP, r->has_skip, TENSOR_VECTOR, heads, "D"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const struct tensor vector = {
            .role = vectors[i].role, .kind = vectors[i].kind, .layer = layer, .out_features = vectors[i].count};
        if (vectors[i].there)
            add(table, &vector, "%s.%s", layer_name(spec, layer).text, in_mixer(spec, layer, vectors[i].name).text);
    }
    const struct tensor norm = {
        .role = TENSOR_MIX_NORM, .kind = TENSOR_VECTOR, .layer = layer, .out_features = r->norm_size};
    if (!r->no_norm)
        add(table, &norm, "%s.%s.weight", layer_name(spec, layer).text,
            in_mixer(spec, layer, spec->names.recurrent_norm).text);
    const struct tensor o = {.role = spec->layers[layer].recurrent_beside ? TENSOR_MIX_O : TENSOR_O,
                             .layer = layer,
                             .out_features = spec->hidden_size,
                             .in_features = recurrent_v_size(r)};
    add_matrix(table, spec, &o, in_mixer(spec, layer, spec->names.recurrent_o).text, r->o_bias);
}

static void add_conv(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct conv_spec *c = &spec->layers[layer].conv;
    const int64_t hidden = spec->hidden_size, channels = c->channels;
    const struct tensor in = {
        .role = TENSOR_MIX_Q, .layer = layer, .out_features = 3 * channels, .in_features = hidden};
    add_matrix(table, spec, &in, in_mixer(spec, layer, "in_proj").text, c->bias);
    const struct tensor conv = {.role = TENSOR_CONV,
                                .kind = TENSOR_VECTOR,
                                .layer = layer,
                                .width = c->width,
                                .out_features = channels * c->width};
    add(table, &conv, "%s.%s", layer_name(spec, layer).text, in_mixer(spec, layer, "conv.weight").text);
    const struct tensor bias = {
        .role = TENSOR_CONV_BIAS, .kind = TENSOR_VECTOR, .layer = layer, .out_features = channels};
    if (c->bias) add(table, &bias, "%s.%s", layer_name(spec, layer).text, in_mixer(spec, layer, "conv.bias").text);
    const struct tensor o = {.role = TENSOR_O, .layer = layer, .out_features = hidden, .in_features = channels};
    add_matrix(table, spec, &o, in_mixer(spec, layer, spec->names.conv_o).text, c->bias);
}

/* The gain of a norm inside latent attention. */
static void add_latent_norm(struct tensor_table *table, const struct model_spec *spec, int32_t layer,
                            enum tensor_role role, int64_t size, const char *name)
{
    const struct tensor gain = {.role = role, .layer = layer, .out_features = size};
    add_gain(table, spec, &gain, in_attention(spec, name).text, false);
}

static void add_latent(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct latent_spec *l = &spec->layers[layer].latent;
    const int64_t first = latent_first_size(l), vector = latent_vector_size(l), heads = l->num_heads;
    struct tensor in = {.role = TENSOR_LATENT_Q,
                        .layer = layer,
                        .out_features = first,
                        .in_features = spec->hidden_size,
                        .merged = MERGED_QKV,
                        .num_parts = 2,
                        .merged_rows = first + vector};
    add_matrix(table, spec, &in, in_attention(spec, l->q_rank > 0 ? "q_a_proj" : "q_proj").text, l->bias);
    in.role = TENSOR_LATENT_KV, in.part = 1, in.out_features = vector, in.first_row = first;
    add_matrix(table, spec, &in, in_attention(spec, "kv_a_proj_with_mqa").text, l->bias);
    const struct tensor q_b = {
        .role = TENSOR_LATENT_Q_B, .layer = layer, .out_features = latent_q_size(l), .in_features = l->q_rank};
    if (l->q_rank > 0) {
        add_latent_norm(table, spec, layer, TENSOR_LATENT_Q_NORM, l->q_rank, "q_a_layernorm");
        add_matrix(table, spec, &q_b, in_attention(spec, "q_b_proj").text, false);
    }
    add_latent_norm(table, spec, layer, TENSOR_LATENT_NORM, l->rank, "kv_a_layernorm");
    const struct tensor kv_b = {.role = TENSOR_LATENT_KV_B,
                                .layer = layer,
                                .out_features = heads * (l->nope + l->v_head_size),
                                .in_features = l->rank};
    add_matrix(table, spec, &kv_b, in_attention(spec, "kv_b_proj").text, false);
    const struct tensor o = {
        .role = TENSOR_O, .layer = layer, .out_features = spec->hidden_size, .in_features = latent_out_size(l)};
    add_matrix(table, spec, &o, in_attention(spec, spec->names.o).text, l->bias);
}

static void add_attention(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct attention_spec *a = &spec->layers[layer].attention;
    const int64_t hidden = spec->hidden_size, out_size = attention_out_size(a);
    add_qkv(table, spec, layer);
    add_qk_norms(table, spec, layer);
    if (a->v_norm) add_v_norm(table, spec, layer);
    const struct tensor sinks = {
        .role = TENSOR_SINKS, .kind = TENSOR_VECTOR, .layer = layer, .out_features = a->num_heads};
    if (a->sinks) add(table, &sinks, "%s.%s", layer_name(spec, layer).text, in_attention(spec, spec->names.sinks).text);
    const struct tensor o = {.role = TENSOR_O, .layer = layer, .out_features = hidden, .in_features = out_size};
    add_matrix(table, spec, &o, in_attention(spec, spec->names.o).text, a->o_bias);
}

static void add_xielu(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    static const char *const names[] = {"beta", "eps", "alpha_p", "alpha_n"}; /* as the roles follow each other */
    struct tensor scalar = {.kind = TENSOR_SCALAR, .layer = layer, .out_features = 1};
    for (int i = 0; i < 4; i++) {
        scalar.role = (enum tensor_role)(TENSOR_XIELU_BETA + i);
        scalar.optional = i < 2; /* no training changes these */
        add(table, &scalar, "%s.mlp.act_fn.%s", layer_name(spec, layer).text, names[i]);
    }
}

/* The name of a matrix of a layer's MLP: `name`, or `part` of the module of shared experts. */
static struct tensor_name in_mlp(const struct model_spec *spec, int32_t layer, const char *name, const char *part)
{
    struct tensor_name module;
    if (spec->names.shared && spec->layers[layer].experts.router.num_experts > 0)
        snprintf(module.text, sizeof module.text, "%s.%s", spec->names.shared, part);
    else
        snprintf(module.text, sizeof module.text, "%s", name);
    return module;
}

static void add_gate_and_up(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct mlp_spec *m = &spec->layers[layer].mlp;
    const int64_t hidden = spec->hidden_size, inner = m->intermediate_size;
    struct tensor gate_up = {.layer = layer,
                             .out_features = inner,
                             .in_features = hidden,
                             .merged = MERGED_GATE_UP,
                             .num_parts = 2,
                             .merged_rows = 2 * inner,
                             .merged_in_file = spec->names.gate_up != NULL};
    const char *merged = spec->names.gate_up;
    gate_up.role = TENSOR_GATE;
    add_matrix(table, spec, &gate_up, merged ? merged : in_mlp(spec, layer, spec->names.gate, "gate_proj").text,
               m->bias);
    gate_up.role = TENSOR_UP, gate_up.part = 1, gate_up.first_row = inner;
    add_matrix(table, spec, &gate_up, merged ? merged : in_mlp(spec, layer, spec->names.up, "up_proj").text, m->bias);
}

static void add_mlp(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct mlp_spec *m = &spec->layers[layer].mlp;
    const int64_t hidden = spec->hidden_size, inner = m->intermediate_size;
    const struct tensor up = {.role = TENSOR_UP, .layer = layer, .out_features = inner, .in_features = hidden};
    if (m->kind == MLP_GATED) {
        add_gate_and_up(table, spec, layer);
    } else {
        add_matrix(table, spec, &up, in_mlp(spec, layer, spec->names.up, "up_proj").text, m->bias);
    }
    if (m->kind == MLP_PLAIN && m->activation == ACTIVATION_XIELU) add_xielu(table, spec, layer);
    const struct tensor down = {.role = TENSOR_DOWN, .layer = layer, .out_features = hidden, .in_features = inner};
    add_matrix(table, spec, &down, in_mlp(spec, layer, spec->names.down, "down_proj").text, m->bias);
}

/* A matrix of an expert, and its bias. */
static void add_expert_matrix(struct tensor_table *table, const struct model_spec *spec, const struct tensor *matrix,
                              const char *name, bool has_bias)
{
    char module[sizeof matrix->name];
    struct tensor bias = *matrix;
    if (!matrix->merged_in_file) {
        const int32_t expert = spec->layers[matrix->layer].experts.router.first_own + matrix->expert;
        snprintf(module, sizeof module, "%s.%d.%s", spec->names.experts, expert, name);
        add_matrix(table, spec, matrix, module, has_bias);
        return;
    }
    add(table, matrix, "%s.%s", layer_name(spec, matrix->layer).text, name);
    if (!has_bias) return;
    bias.kind = TENSOR_BIAS;
    bias.in_features = 0;
    add(table, &bias, "%s.%s_bias", layer_name(spec, matrix->layer).text, name);
}

static void add_expert(struct tensor_table *table, const struct model_spec *spec, int32_t layer, int32_t expert)
{
    const struct experts_spec *e = &spec->layers[layer].experts;
    const struct tensor_names *names = &spec->names;
    const int64_t width = experts_width(e, spec->hidden_size), inner = e->intermediate_size;
    const int64_t n = router_num_own(&e->router);
    const bool merged = names->experts == NULL, apart = merged && !names->expert_gate_up;
    const int num_parts = gate_operands(&e->gate);
    const char *gate = merged && !apart ? names->expert_gate_up : names->expert_gate;
    const char *up = merged && !apart ? names->expert_gate_up : names->expert_up;
    struct tensor t = {.role = TENSOR_EXPERT_GATE,
                       .layer = layer,
                       .expert = expert,
                       .out_features = inner,
                       .in_features = width,
                       .merged = MERGED_EXPERTS,
                       .num_parts = num_parts,
                       .first_row = num_parts * expert * inner,
                       .merged_rows = num_parts * n * inner,
                       .merged_in_file = merged,
                       .num_experts = (int32_t)n,
                       .file_experts = e->router.num_experts,
                       .transposed = merged && names->experts_transposed,
                       .flat = merged && names->experts_flat};
    const bool interleaved = merged && names->experts_interleaved;
    if (interleaved) t.file_row = t.first_row, t.run = 1, t.step = 2;
    if (apart) t.file_row = expert * inner, t.run = inner, t.file_rows = n * inner;
    if (num_parts == 2) {
        add_expert_matrix(table, spec, &t, gate, e->bias);
        t.part = 1, t.first_row += inner, t.file_row += interleaved;
    }
    t.role = TENSOR_EXPERT_UP;
    add_expert_matrix(table, spec, &t, up, e->bias);
    t.role = TENSOR_EXPERT_DOWN, t.part = 0, t.num_parts = 1, t.run = t.file_rows = 0, t.transposed |= t.flat;
    t.out_features = width, t.in_features = inner, t.first_row = expert * width, t.merged_rows = n * width;
    add_expert_matrix(table, spec, &t, names->expert_down, e->bias);
}

/* Gemma 4's: the norms of a layer's experts that are its own, and of the MLP beside them. The router's gain is a part
 * of the router, which divides its input by sqrt(hidden_size). */
static void add_own_norms(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct tensor gain = {.role = TENSOR_ROUTER_NORM,
                                .kind = TENSOR_GAIN,
                                .layer = layer,
                                .out_features = spec->hidden_size,
                                .multiplier = 1 / sqrtf((float)spec->hidden_size)};
    add(table, &gain, "%s.router.scale", layer_name(spec, layer).text);
    add_norm(table, spec, layer, TENSOR_EXPERTS_NORM, "pre_feedforward_layernorm_2");
    add_norm(table, spec, layer, TENSOR_POST_EXPERTS_NORM, "post_feedforward_layernorm_2");
    add_norm(table, spec, layer, TENSOR_POST_SHARED_NORM, "post_feedforward_layernorm_1");
}

static void add_experts(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const struct experts_spec *e = &spec->layers[layer].experts;
    const int32_t n = e->router.num_experts;
    struct tensor router = {.role = TENSOR_ROUTER,
                            .layer = layer,
                            .out_features = n,
                            .in_features = spec->hidden_size,
                            .merged = e->shared_gate ? MERGED_ROUTER : MERGED_NONE,
                            .num_parts = 2,
                            .merged_rows = n + 1};
    struct tensor t = {.layer = layer, .in_features = spec->hidden_size};
    add_matrix(table, spec, &router, spec->names.router, e->router_bias);
    const struct tensor bias = {.role = TENSOR_CHOICE_BIAS, .kind = TENSOR_VECTOR, .layer = layer, .out_features = n};
    if (e->choice_bias) add(table, &bias, "%s.%s", layer_name(spec, layer).text, spec->names.choice_bias);
    const struct tensor scales = {
        .role = TENSOR_EXPERT_SCALES, .kind = TENSOR_VECTOR, .layer = layer, .out_features = n};
    if (e->expert_scales) add(table, &scales, "%s.router.per_expert_scale", layer_name(spec, layer).text);
    if (e->own_norms) add_own_norms(table, spec, layer);
    t.role = TENSOR_EXPERTS_IN, t.out_features = e->latent_size;
    if (e->latent_size > 0) add_matrix(table, spec, &t, spec->names.experts_in, e->latent_bias);
    for (int32_t i = 0; i < router_num_own(&e->router); i++) add_expert(table, spec, layer, i);
    t.role = TENSOR_EXPERTS_OUT, t.out_features = spec->hidden_size, t.in_features = e->latent_size;
    if (e->latent_size > 0) add_matrix(table, spec, &t, spec->names.experts_out, e->latent_bias);
    router.role = TENSOR_SHARED_GATE, router.part = 1, router.first_row = n, router.out_features = 1;
    if (e->shared_gate) add_matrix(table, spec, &router, spec->names.shared_gate, false);
}

static void add_per_layer(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const int64_t hidden = spec->hidden_size, size = spec->per_layer_size;
    const struct tensor gate = {
        .role = TENSOR_PER_LAYER_GATE, .layer = layer, .out_features = size, .in_features = hidden};
    const struct tensor down = {
        .role = TENSOR_PER_LAYER_DOWN, .layer = layer, .out_features = hidden, .in_features = size};
    add_matrix(table, spec, &gate, "per_layer_input_gate", false);
    add_matrix(table, spec, &down, "per_layer_projection", false);
    add_norm(table, spec, layer, TENSOR_POST_PER_LAYER_NORM, "post_per_layer_input_norm");
}

static void add_layer(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    const enum norm_placement placement = spec->layers[layer].norm_placement;
    const struct tensor_names *names = &spec->names;
    const bool before = placement != NORM_AFTER, after = placement == NORM_AFTER || placement == NORM_AROUND;
    const struct layer_spec *l = &spec->layers[layer];
    const bool mixes = l->mixer != MIXER_NONE, has_mlp = layer_has_mlp(l), stream = placement == NORM_STREAM;
    if (before && mixes)
        add_norm(table, spec, layer, stream ? TENSOR_STREAM_NORM : TENSOR_ATTENTION_NORM, names->attention_norm);
    if (l->mixer == MIXER_ATTENTION) add_attention(table, spec, layer);
    if (layer_is_recurrent(l)) add_recurrent(table, spec, layer);
    if (l->mixer == MIXER_CONV) add_conv(table, spec, layer);
    if (l->mixer == MIXER_LATENT) add_latent(table, spec, layer);
    if (after && mixes) add_norm(table, spec, layer, TENSOR_POST_ATTENTION_NORM, names->post_attention_norm);
    if (before && has_mlp && placement != NORM_PARALLEL)
        add_norm(table, spec, layer, stream ? TENSOR_MLP_STREAM_NORM : TENSOR_MLP_NORM, names->mlp_norm);
    if (spec->layers[layer].experts.router.num_experts > 0) add_experts(table, spec, layer);
    if (spec->layers[layer].mlp.intermediate_size > 0) add_mlp(table, spec, layer);
    if (after && has_mlp) add_norm(table, spec, layer, TENSOR_POST_MLP_NORM, names->post_mlp_norm);
    if (spec->per_layer_size) add_per_layer(table, spec, layer);
    const struct tensor scalar = {
        .role = TENSOR_LAYER_SCALAR, .kind = TENSOR_SCALAR, .layer = layer, .out_features = 1};
    if (spec->layer_scalars) add(table, &scalar, "%s.layer_scalar", layer_name(spec, layer).text);
}

static void add_cache_scales(struct tensor_table *table, const struct model_spec *spec, int32_t layer)
{
    struct tensor scale = {.role = TENSOR_K_SCALE, .kind = TENSOR_CACHE_SCALE, .layer = layer, .optional = true};
    if (spec->layers[layer].mixer != MIXER_ATTENTION) return;
    add(table, &scale, "%s.%s", layer_name(spec, layer).text, in_attention(spec, "k_scale").text);
    scale.role = TENSOR_V_SCALE;
    add(table, &scale, "%s.%s", layer_name(spec, layer).text, in_attention(spec, "v_scale").text);
}

static void set_scheme(struct tensor *t, const struct model_spec *spec)
{
    int scheme = 0; /* floats */
    if (t->kind != TENSOR_MATRIX) return;
    if (t->layer >= 0) scheme = spec->layers[t->layer].schemes[t->role];
    if (t->role == TENSOR_LM_HEAD) scheme = spec->lm_head_scheme;
    t->scheme = spec->schemes[scheme];
}

static void add_per_layer_inputs(struct tensor_table *table, const struct model_spec *spec)
{
    const int64_t all = (int64_t)spec->num_layers * spec->per_layer_size;
    struct tensor t = {.role = TENSOR_PER_LAYER_EMBEDDING,
                       .layer = -1,
                       .out_features = spec->per_layer_vocab_size,
                       .in_features = all};
    add(table, &t, "model.embed_tokens_per_layer.weight");
    t.role = TENSOR_PER_LAYER_PROJECTION, t.out_features = all, t.in_features = spec->hidden_size;
    add(table, &t, "model.per_layer_model_projection.weight");
    t.role = TENSOR_PER_LAYER_NORM, t.out_features = spec->per_layer_size, t.in_features = 0;
    add_gain(table, spec, &t, "model.per_layer_projection_norm", false);
}

/* Of the stage that begins, and of the one whose lm_head is the embedding. */
static void add_embeddings(struct tensor_table *table, const struct model_spec *spec, bool tied)
{
    const struct tensor_names *names = &spec->names;
    struct tensor t = {
        .role = TENSOR_EMBEDDING, .layer = -1, .out_features = spec->vocab_size, .in_features = spec->hidden_size};
    const bool has_embedding = stage_is_first(spec) || (stage_is_last(spec) && tied);
    if (has_embedding && (spec->head.kind == HEAD_NONE || spec->head.own_embedding))
        add(table, &t, "%s.weight", names->embedding);
    if (!stage_is_first(spec)) return;
    t.role = TENSOR_POSITION_EMBEDDING;
    t.out_features = spec->max_position_embeddings + spec->position_offset;
    if (names->position_embedding) add(table, &t, "%s.weight", names->position_embedding);
    if (names->embedding_norm) add_norm(table, spec, -1, TENSOR_EMBEDDING_NORM, names->embedding_norm);
    if (spec->per_layer_size) add_per_layer_inputs(table, spec);
}

/* What makes a head's input. */
static void add_head_input(struct tensor_table *table, const struct model_spec *spec)
{
    const struct head_spec *head = &spec->head;
    const struct tensor_names *names = &spec->names;
    const int64_t hidden = spec->hidden_size, states = (int64_t)head->num_states * head->state_size;
    const struct tensor t = {.role = TENSOR_HEAD_PROJECTION,
                             .layer = -1,
                             .out_features = hidden,
                             .in_features = head->kind == HEAD_MTP ? hidden + states : states};
    if (head->kind == HEAD_NONE) return;
    if (head->kind == HEAD_MTP) add_norm(table, spec, -1, TENSOR_HEAD_EMBEDDING_NORM, names->head_embedding_norm);
    add_norm(table, spec, -1, TENSOR_HEAD_STATE_NORM, names->head_state_norm);
    add(table, &t, "%s.weight", tensor_module_name(spec, names->head_projection).text);
}

static void add_lm_head(struct tensor_table *table, const struct model_spec *spec)
{
    const int32_t rows = model_spec_num_logits(spec);
    struct tensor t = {.role = TENSOR_LM_HEAD, .layer = -1, .out_features = rows, .in_features = spec->hidden_size};
    add(table, &t, "%s.weight", spec->names.lm_head);
    t.kind = TENSOR_BIAS;
    t.in_features = 0;
    if (spec->lm_head_bias) add(table, &t, "%s.bias", spec->names.lm_head);
}

/* As if there was one rank. */
static enum status make_table(const struct model_spec *spec, bool tied, struct tensor_table *table, struct error *err)
{
    const size_t most = MOST_OF_NO_LAYER + (size_t)spec->num_layers * MOST_OF_A_LAYER +
                        model_spec_num_experts(spec) * MOST_OF_AN_EXPERT;
    *table = (struct tensor_table){.tensors = malloc(most * sizeof *table->tensors)};
    if (!table->tensors) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the table of tensors");
    add_embeddings(table, spec, tied);
    add_head_input(table, spec);
    for (int32_t i = 0; i < spec->num_layers; i++) add_layer(table, spec, i);
    if (stage_is_last(spec)) add_norm(table, spec, -1, TENSOR_FINAL_NORM, spec->names.final_norm);
    if (stage_is_last(spec) && !tied && (spec->head.kind == HEAD_NONE || spec->head.own_lm_head))
        add_lm_head(table, spec);
    const struct tensor ids = {.role = TENSOR_TARGET_IDS,
                               .kind = TENSOR_IDS,
                               .layer = -1,
                               .out_features = model_spec_whole(spec)->head.num_ids};
    if (spec->head.maps_ids) add(table, &ids, "%s", spec->names.target_ids);
    for (int32_t i = 0; i < spec->num_layers; i++) add_cache_scales(table, spec, i);
    for (int32_t i = 0; i < table->count; i++) set_scheme(&table->tensors[i], spec);
    return STATUS_OK;
}

enum status tensor_table_make(const struct model_spec *spec, bool tied, struct tensor_table *table, struct error *err)
{
    struct tensor_table whole = {0};
    enum status status = make_table(spec, tied, table, err);
    if (status != STATUS_OK || !spec->whole) return status;
    status = make_table(spec->whole, tied, &whole, err);
    if (status == STATUS_OK) status = tensor_table_shard(table, &whole, spec, err);
    tensor_table_free(&whole);
    if (status != STATUS_OK) tensor_table_free(table);
    return status;
}

void tensor_table_free(struct tensor_table *table)
{
    free(table->tensors);
    *table = (struct tensor_table){0};
}

const struct tensor *tensor_table_find(const struct tensor_table *table, enum tensor_role role, int32_t layer)
{
    for (int32_t i = 0; i < table->count; i++) {
        const struct tensor *t = &table->tensors[i];
        if (t->role == role && t->layer == layer && t->kind != TENSOR_BIAS) return t;
    }
    return NULL;
}

int64_t tensor_elements(const struct tensor *t)
{
    return t->out_features * (t->in_features > 0 ? t->in_features : 1);
}

struct tensor_name tensor_name_ending(const struct tensor *t, const char *end)
{
    static const char weight[] = ".weight";
    const size_t length = strlen(t->name), cut = sizeof weight - 1;
    const bool ends = length > cut && strcmp(t->name + length - cut, weight) == 0;
    struct tensor_name name;
    snprintf(name.text, sizeof name.text, "%.*s%s", (int)(ends ? length - cut : length), t->name, end);
    return name;
}

struct tensor_name tensor_name_with(const char *text, const struct tensor_prefix *prefix)
{
    const struct tensor_prefix *own = &tensor_prefixes[0];
    const size_t model = strlen(own->model), head = strlen(own->lm_head);
    struct tensor_name name;
    if (strncmp(text, own->model, model) == 0)
        snprintf(name.text, sizeof name.text, "%s%s", prefix->model, text + model);
    else if (strncmp(text, own->lm_head, head) == 0)
        snprintf(name.text, sizeof name.text, "%s%s", prefix->lm_head, text + head);
    else
        snprintf(name.text, sizeof name.text, "%s", text);
    return name;
}

void tensor_table_rename(struct tensor_table *table, const struct tensor_prefix *prefix)
{
    for (int32_t i = 0; i < table->count; i++) {
        struct tensor *t = &table->tensors[i];
        const struct tensor_name name = tensor_name_with(t->name, prefix);
        memcpy(t->name, name.text, sizeof t->name - 1);
    }
}
