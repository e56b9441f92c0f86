/* What the ranks of a model have of its weights: put together, each tensor is the whole model's, bit for bit; and what
 * several ranks cannot have parts of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "model/config.h"
#include "model/device_weights.h"
#include "model/quantization.h"
#include "model/shard.h"
#include "model/weights.h"
#include "tests/support/golden.h"
#include "tests/support/must.h"
#include "tests/support/quantized_checkpoint.h"

enum { MAX_RANKS = 8 };

static struct model_config config;
static struct model_spec specs[MAX_RANKS];

/* A model on one rank, and on several. */
struct ranks {
    const char *name;
    const struct model_spec *spec;
    struct model_weights whole, ranks[MAX_RANKS];
    int32_t count;
    bool on_device; /* the weights of ranks are copies there, in float32 */
    struct backend *backend;
    struct arena arenas[MAX_RANKS];
};

/* ---- what ranks have ---- */

static bool is_channels(const struct tensor *t)
{
    return t->role == TENSOR_CONV || t->role == TENSOR_CONV_BIAS;
}

/* The tensor of a rank that is a part of *t; NULL: it has none. */
static const struct tensor *find(const struct model_weights *w, const struct tensor *t)
{
    for (int32_t i = 0; i < w->table.count; i++) {
        const struct tensor *found = &w->table.tensors[i];
        if (found->role == t->role && found->kind == t->kind && found->layer == t->layer &&
            found->expert == t->expert && (!is_channels(t) || found->part == t->part))
            return found;
    }
    return NULL;
}

static float element(const struct model_weights *w, const struct tensor *t, int64_t row, int64_t column)
{
    const struct weights_place place = model_weights_place(w, t);
    if (t->kind == TENSOR_MATRIX) return weight_element(place.matrix, place.first_row + row, column);
    assert_non_null(*place.vector);
    return dtype_load(*place.vector, *place.vector_dtype, place.first_row + row);
}

/* Whether a row is quantized while it is loaded, so that a rank's columns have a scale of their own: it is the whole
 * row's or less. */
static bool has_own_scale(const struct ranks *r, const struct tensor *part, const struct tensor *whole, int64_t row,
                          float difference)
{
    if (!part->scheme.quantize || part->scheme.group_size > 0 || part->in_features == whole->in_features) return false;
    const struct weight *w = model_weights_matrix(&r->whole, whole);
    return fabsf(difference) <= 1.001f * dtype_load(w->scales, w->scale_dtype, row);
}

/* A row of a rank's tensor is, from a column on, one of the whole one. */
static void same_row(const struct ranks *r, int32_t rank, const struct tensor *part, const struct tensor *whole,
                     int64_t row, int64_t whole_row, int64_t first_column)
{
    const int64_t columns = part->kind == TENSOR_MATRIX ? part->in_features : 1;
    for (int64_t i = 0; i < columns; i++) {
        const float found = element(&r->ranks[rank], part, row, i);
        const float expected = element(&r->whole, whole, whole_row, first_column + i);
        if (found != expected && !has_own_scale(r, part, whole, whole_row, found - expected))
            fail_msg("%s: %s: rank %d of %d: element [%lld, %lld] is %g and not %g", r->name, whole->name, rank,
                     r->count, (long long)row, (long long)i, (double)found, (double)expected);
    }
}

/* Rows and columns of a rank's tensor are those from there on of the whole one. */
static void same(const struct ranks *r, int32_t rank, const struct tensor *part, const struct tensor *whole,
                 int64_t first_row, int64_t first_column)
{
    for (int64_t o = 0; o < part->out_features; o++) same_row(r, rank, part, whole, o, first_row + o, first_column);
    if (part->kind != TENSOR_MATRIX) return;
    const struct weight *a = model_weights_matrix(&r->ranks[rank], part), *b = model_weights_matrix(&r->whole, whole);
    if (!r->on_device) assert_int_equal(a->format, b->format);
    assert_int_equal(a->is_share, part->is_share);
    assert_int_equal(a->input_order != NULL, b->input_order != NULL);
    if (a->input_order)
        assert_memory_equal(a->input_order, b->input_order + first_column, (size_t)a->in_features * sizeof(int32_t));
}

/* Whether ranks have equal parts of it, by the model's arithmetic; a KV head may be in several of them. */
static bool has_part_of_rows(const struct tensor *t)
{
    static const enum tensor_role roles[] = {
        TENSOR_Q,       TENSOR_OUTPUT_GATE, TENSOR_SINKS,       TENSOR_MIX_V,     TENSOR_MIX_B,      TENSOR_MIX_GATE_B,
        TENSOR_MIX_A_B, TENSOR_A_LOG,       TENSOR_DT_BIAS,     TENSOR_SKIP,      TENSOR_LATENT_Q_B, TENSOR_LATENT_KV_B,
        TENSOR_GATE,    TENSOR_UP,          TENSOR_EXPERT_GATE, TENSOR_EXPERT_UP, TENSOR_EMBEDDING,  TENSOR_LM_HEAD,
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (roles[i] == t->role) return true;
    return false;
}

static bool has_part_of_columns(const struct tensor *t)
{
    return t->role == TENSOR_O || t->role == TENSOR_MIX_O || t->role == TENSOR_DOWN || t->role == TENSOR_EXPERT_DOWN;
}

/* Rank 0 alone has the bias of what ranks have columns of. */
static void check_bias_of_share(const struct ranks *r, const struct tensor *whole)
{
    for (int32_t i = 0; i < r->count; i++) {
        const struct tensor *part = find(&r->ranks[i], whole);
        struct tensor matrix = *whole;
        matrix.kind = TENSOR_MATRIX;
        const struct tensor *of = find(&r->ranks[i], &matrix);
        assert_non_null(of);
        assert_true(of->is_share);
        assert_int_equal(part != NULL, i == 0);
        assert_int_equal(model_weights_matrix(&r->ranks[i], of)->bias != NULL, i == 0);
        if (part) same(r, i, part, whole, 0, 0);
    }
}

/* The channels of q, k and v, which are three tensors of each rank. */
static void check_channels(const struct ranks *r, const struct tensor *whole)
{
    const struct recurrent_spec *net = &r->spec->layers[whole->layer].recurrent;
    const int64_t width = whole->width > 0 ? whole->width : 1;
    int64_t first = 0;
    for (int part = 0; part < 3; part++) {
        const bool is_v = part == (net->value_first ? 0 : 2);
        const int64_t heads = is_v ? net->num_v_heads : net->num_k_heads;
        const int64_t head = width * (is_v ? net->v_head_size : net->k_head_size);
        for (int32_t i = 0; i < r->count; i++) {
            struct tensor wanted = *whole;
            wanted.part = part;
            const struct tensor *found = find(&r->ranks[i], &wanted);
            assert_non_null(found);
            assert_int_equal(found->out_features, head * (heads >= r->count ? heads / r->count : 1));
            same(r, i, found, whole, first + head * (i * heads / r->count), 0);
        }
        first += head * heads;
    }
}

/* What reads the input of a short convolution: a rank has its channels of each of the three parts. */
static void check_conv_inputs(const struct ranks *r, const struct tensor *whole)
{
    const int64_t all = whole->out_features / 3, channels = all / r->count;
    for (int32_t i = 0; i < r->count; i++) {
        const struct tensor *part = find(&r->ranks[i], whole);
        assert_non_null(part);
        assert_int_equal(part->out_features, 3 * channels);
        for (int64_t o = 0; o < 3 * channels; o++)
            same_row(r, i, part, whole, o, o / channels * all + i * channels + o % channels, 0);
    }
}

static void check_tensor(const struct ranks *r, const struct tensor *whole)
{
    int64_t rows = 0, columns = 0, first_row = 0, first_column = 0;
    for (int32_t i = 0; i < r->count; i++) {
        const struct tensor *part = find(&r->ranks[i], whole);
        assert_non_null(part);
        rows += part->out_features, columns += part->in_features;
    }
    const int64_t repeated = rows / whole->out_features; /* of a row: in how many ranks it is */
    const bool all_columns = columns == r->count * whole->in_features;
    assert_true(rows % whole->out_features == 0);
    if (has_part_of_rows(whole)) assert_int_equal(rows, whole->out_features);
    if (has_part_of_columns(whole)) assert_int_equal(columns, whole->in_features);
    for (int32_t i = 0; i < r->count; i++) {
        const struct tensor *part = find(&r->ranks[i], whole);
        assert_int_equal(part->is_share, has_part_of_columns(whole) || whole->role == TENSOR_EXPERTS_OUT);
        same(r, i, part, whole, first_row, first_column);
        if (has_part_of_columns(whole) && whole->role != TENSOR_EXPERT_DOWN) {
            const struct column_range range = shard_columns(&specs[i], whole->layer, whole->role);
            assert_true(range.first == first_column && range.total == whole->in_features);
        }
        if ((i + 1) % repeated == 0 && repeated < r->count) first_row += part->out_features;
        if (!all_columns) first_column += part->in_features;
    }
}

/* One rank has an expert, all of it; the ranks have them in order, and none has two more than another. */
static void check_whole_expert(const struct ranks *r, const struct tensor *whole)
{
    int32_t before = 0;
    for (int32_t i = 0; i < r->count; i++) {
        const struct router_params *router = &specs[i].layers[whole->layer].experts.router;
        struct tensor wanted = *whole;
        wanted.expert -= before;
        const struct tensor *part = find(&r->ranks[i], &wanted);
        assert_int_equal(router->first_own, before);
        assert_in_range(router->num_own, router->num_experts / r->count,
                        (router->num_experts + r->count - 1) / r->count);
        assert_int_equal(part != NULL, wanted.expert >= 0 && wanted.expert < router->num_own);
        before += router->num_own;
        if (!part) continue;
        assert_int_equal(part->out_features, whole->out_features);
        assert_int_equal(part->in_features, whole->in_features);
        assert_int_equal(part->is_share, whole->role == TENSOR_EXPERT_DOWN);
        same(r, i, part, whole, 0, 0);
    }
    assert_int_equal(before, r->spec->layers[whole->layer].experts.router.num_experts);
}

static void check_layers(const struct ranks *r)
{
    for (int32_t layer = 0; layer < r->spec->num_layers; layer++)
        for (int32_t i = 0; i < r->count; i++) {
            const struct layer_weights *a = &r->ranks[i].layers[layer], *b = &r->whole.layers[layer];
            const struct attention_spec *part = &specs[i].layers[layer].attention;
            assert_true(a->scalar == b->scalar);
            assert_memory_equal(&a->xielu, &b->xielu, sizeof a->xielu);
            assert_memory_equal(a->kv_scales, b->kv_scales, sizeof a->kv_scales);
            for (int32_t head = 0; head < part->num_heads && part->alibi_bias_max != 0; head++)
                assert_true(attention_alibi_slope(part, head) ==
                            attention_alibi_slope(&r->spec->layers[layer].attention, i * part->num_heads + head));
        }
}

static void check_all(const struct ranks *r)
{
    for (int32_t k = 0; k < r->whole.table.count; k++) {
        const struct tensor *t = &r->whole.table.tensors[k];
        if (!tensor_is_weight(t)) continue;
        const bool of_conv = t->layer >= 0 && r->spec->layers[t->layer].mixer == MIXER_CONV;
        if (r->spec->expert_parallel && t->num_experts > 0)
            check_whole_expert(r, t);
        else if (t->kind == TENSOR_BIAS && (has_part_of_columns(t) || t->role == TENSOR_EXPERTS_OUT))
            check_bias_of_share(r, t);
        else if (t->role == TENSOR_MIX_Q && of_conv)
            check_conv_inputs(r, t);
        else if (is_channels(t) && t->kind == TENSOR_VECTOR && t->num_parts == 1 && !of_conv)
            check_channels(r, t);
        else
            check_tensor(r, t);
    }
    if (!r->on_device) check_layers(r);
}

/* Copies a rank's weights to a device, for which the CPU stands in, straight from the files. */
static enum status copy(struct ranks *r, int32_t rank, struct error *err)
{
    struct model_weights host = r->ranks[rank];
    struct upload *upload;
    arena_init(&r->arenas[rank], r->backend);
    must(device_weights_begin(&r->arenas[rank], &specs[rank], &host, DTYPE_FLOAT32, &r->ranks[rank], &upload, err),
         err);
    must(upload_finish(upload, err), err);
    assert_int_equal(r->ranks[rank].bytes, device_weights_bytes(&host, DTYPE_FLOAT32));
    model_weights_close(&host);
    return STATUS_OK;
}

/* UNSUPPORTED: the ranks cannot share the model. */
static enum status open_ranks(struct ranks *r, const char *folder, struct error *err)
{
    enum status status = model_weights_open(folder, r->spec, NULL, &r->whole, err);
    must(status, err);
    must(model_weights_pack(&r->whole, err), err);
    if (r->on_device) must(backend_open("cpu", 1, &r->backend, err), err);
    for (int32_t i = 0; i < r->count && status == STATUS_OK; i++) {
        status = model_spec_shard(r->spec, i, r->count, &specs[i], err);
        if (status == STATUS_OK) status = model_weights_open(folder, &specs[i], NULL, &r->ranks[i], err);
        if (status == STATUS_OK) status = r->on_device ? copy(r, i, err) : model_weights_pack(&r->ranks[i], err);
    }
    return status;
}

static void close_ranks(struct ranks *r)
{
    model_weights_close(&r->whole);
    for (int32_t i = 0; i < r->count; i++) {
        model_weights_close(&r->ranks[i]);
        if (r->on_device) arena_free(&r->arenas[i]);
    }
    if (r->on_device) r->backend->destroy(r->backend);
}

/* ---- checkpoints ---- */

/* One head becomes two of half its size, whose tensors have the same shapes. */
static void halve_heads(struct model_spec *spec)
{
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct attention_spec *a = &spec->layers[i].attention;
        if (a->num_heads != 1 || a->qk_norm == QK_NORM_HEAD || a->sinks || a->head_gates) continue;
        a->num_heads = a->num_kv_heads = 2;
        a->head_size /= 2, a->v_head_size /= 2;
    }
}

/* Of config.spec. */
static void check_spec(const char *folder, const char *name, int32_t count, const char *refusal)
{
    struct error err = {""};
    struct ranks r = {.name = name, .spec = &config.spec, .count = count};
    const enum status status = open_ranks(&r, folder, &err);
    if (status == STATUS_OK && !refusal) {
        check_all(&r);
    } else if (status != STATUS_UNSUPPORTED || !refusal || !strstr(err.text, refusal)) {
        fail_msg("%s on %d ranks: %s", name, count, status == STATUS_OK ? "is not refused" : err.text);
    }
    close_ranks(&r);
}

static void check_folder(const char *folder, const char *name, int32_t count, const char *refusal)
{
    struct error err;
    must(model_config_load(folder, NULL, NULL, &config, &err), &err);
    halve_heads(&config.spec);
    check_spec(folder, name, count, refusal);
}

struct refusal {
    const char *name, *text;
};

static const char *refusal_of(const struct refusal *refusals, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(refusals[i].name, name) == 0) return refusals[i].text;
    return NULL;
}

static void test_two_ranks(void **state)
{
    (void)state;
    static const char three_heads[] =
        "layer 0: the number of attention heads is 3, which 2 ranks cannot share equally; "
        "use a number of ranks that divides it";
    static const char one_head[] = "layer 0: the number of attention heads is 1, which 2 ranks cannot share equally";
    static const struct refusal refusals[] = {
        {"bloom", three_heads}, {"granitemoe_swa", one_head}, {"laguna", one_head},
        {"mpt", three_heads},   {"step3p7", one_head},
    };
    for (int i = 0; i < golden_num_checkpoints; i++) {
        const char *name = golden_checkpoints[i];
        char folder[512];
        snprintf(folder, sizeof folder, QUIRE_TEST_DATA "/golden/%s", name);
        check_folder(folder, name, 2, refusal_of(refusals, sizeof refusals / sizeof *refusals, name));
    }
}

/* More ranks than KV heads, a vocabulary that does not divide, and slopes of ALiBi. */
static void test_more_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int32_t ranks;
    } cases[] = {{"bloom", 3},      {"mpt", 3},         {"gqa", 4},          {"mha", 4},
                 {"mqa", 4},        {"sliding", 4},     {"falcon_alibi", 4}, {"falcon_two_norms", 4},
                 {"many_norms", 4}, {"many_groups", 4}, {"many_channels", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[512];
        snprintf(folder, sizeof folder, QUIRE_TEST_DATA "/golden/%s", cases[i].name);
        check_folder(folder, cases[i].name, cases[i].ranks, NULL);
    }
}

/* ---- quantized matrices ---- */

static void test_quantized_checkpoints(void **state)
{
    (void)state;
    static const char *const names[] = {"awq",
                                        "ct-fp8-channel",
                                        "ct-fp8-kv",
                                        "ct-fp8-lm-head",
                                        "ct-fp8-tensor",
                                        "ct-mixed",
                                        "ct-mxfp4",
                                        "ct-nvfp4",
                                        "ct-phi3",
                                        "ct-w4a16",
                                        "ct-w4a16-actorder",
                                        "ct-w4a16-asym",
                                        "ct-w4a16-g-idx",
                                        "ct-w4a16-channel",
                                        "ct-w8a8",
                                        "fp8",
                                        "fp8-block",
                                        "fp8-phi3",
                                        "fp8-static",
                                        "gated-ct-w4a16",
                                        "gptq-act-order",
                                        "gptq-channel",
                                        "gptq-phi3",
                                        "gptq-qwen2",
                                        "gptq-v2",
                                        "moe-awq",
                                        "moe-fp8",
                                        "moe-modelopt-fp8"};
    static const struct refusal refusals[] = {
        {"ct-w4a16", "o_proj.weight\" would have 64 input features on rank 0 of 2, and 128 of them share a scale"},
        {"fp8-block", "o_proj.weight\" would have 64 input features on rank 0 of 2, and 128 of them share a scale"},
        {"moe-awq", "experts.0.w2.weight\" would have 16 input features on rank 0 of 2, and 32 of them share a"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[512];
        snprintf(folder, sizeof folder, QUIRE_TEST_DATA "/quantized/%s", names[i]);
        check_folder(folder, names[i], 2, refusal_of(refusals, sizeof refusals / sizeof *refusals, names[i]));
    }
}

#define FP8 .storage = STORED_ROWS, .is_quantized = true, .format = WEIGHT_FP8
#define INT8 .storage = STORED_ROWS, .is_quantized = true, .format = WEIGHT_INT8
#define PACKED .storage = STORED_PACKED, .is_quantized = true, .format = WEIGHT_INT4
#define PACKED8 .storage = STORED_PACKED, .is_quantized = true, .format = WEIGHT_INT8
#define GPTQ .storage = STORED_GPTQ, .is_quantized = true, .format = WEIGHT_INT4
#define GPTQ8 .storage = STORED_GPTQ, .is_quantized = true, .format = WEIGHT_INT8
#define MXFP4 .storage = STORED_MXFP4, .is_quantized = true, .format = WEIGHT_MXFP4
#define NVFP4 .storage = STORED_NVFP4, .is_quantized = true, .format = WEIGHT_MXFP4
#define AWQ .storage = STORED_AWQ, .is_quantized = true, .format = WEIGHT_INT4
#define BLOCKS .storage = STORED_MXFP4_BLOCKS, .is_quantized = true, .format = WEIGHT_MXFP4

/* 2 and 4 ranks have 64 and 32 columns of o, 192 and 96 of down, and 12 and 6 rows of lm_head. */
static const struct {
    struct quantized_form form;
    const char *on_two, *on_four; /* why it is refused; NULL: it is not */
} forms[] = {
    {{"fp8, a scale of each row", {FP8, .quantize_x = true}, DTYPE_FLOAT32}},
    {{"fp8, bfloat16 scales in a vector", {FP8}, DTYPE_BFLOAT16, SCALE_VECTOR}},
    {{"fp8, one scale", {FP8}, DTYPE_FLOAT32, SCALE_SCALAR}},
    {{"fp8, a scale of each part, merged", {FP8}, DTYPE_BFLOAT16, SCALE_PARTS, .merged = true}},
    {{"fp8, rows, merged, lm_head", {FP8}, DTYPE_FLOAT32, .merged = true, .lm_head = true}},
    {{"fp8, head by head", {FP8}, DTYPE_FLOAT32, .merged = true, .by_head = true}},
    {{"fp8, blocks", {FP8, .group_size = 32, .blocks = true}, DTYPE_BFLOAT16, .inverse = true}},
    {{"fp8, blocks of whole heads",
      {FP8, .group_size = 32, .blocks = true},
      DTYPE_FLOAT32,
      .merged = true,
      .by_head = true}},
    {{"fp8, large blocks", {FP8, .group_size = 128, .blocks = true}, DTYPE_FLOAT32},
     "o_proj.weight\" would have 64 input features on rank 0 of 2, and 128 of them share a scale or a word; use "
     "fewer "
     "ranks",
     "o_proj.weight\" would have 32 input features on rank 0 of 4, and 128 of them share a scale or a word; use "
     "fewer "
     "ranks"},
    {{"int8, groups, merged", {INT8, .group_size = 64}, DTYPE_FLOAT16, .merged = true},
     NULL,
     "o_proj.weight\" would have 32 input features on rank 0 of 4, and 64 of them share a scale or a word; use "
     "fewer "
     "ranks"},
    {{"packed, lm_head", {PACKED, .group_size = 32}, DTYPE_FLOAT32, .lm_head = true}},
    {{"packed, rows", {PACKED}, DTYPE_FLOAT16}},
    {{"packed, one scale", {PACKED}, DTYPE_FLOAT16, SCALE_1}},
    {{"packed, zeros, lm_head", {PACKED, .group_size = 32, .has_zeros = true}, DTYPE_FLOAT16, .lm_head = true}},
    {{"packed, zeros, merged", {PACKED, .group_size = 32, .has_zeros = true}, DTYPE_BFLOAT16, .merged = true}},
    {{"packed, zeros, head by head",
      {PACKED, .group_size = 32, .has_zeros = true},
      DTYPE_BFLOAT16,
      .merged = true,
      .by_head = true}},
    {{"packed, ordered", {PACKED, .group_size = 32, .ordered = true}, DTYPE_FLOAT16}},
    {{"packed, 8 bits", {PACKED8, .group_size = 32}, DTYPE_BFLOAT16}},
    {{"gptq", {GPTQ, .group_size = 32, .zeros_less_one = true}, DTYPE_FLOAT16}},
    {{"gptq, one group", {GPTQ, .zeros_less_one = true}, DTYPE_FLOAT16}},
    {{"gptq, zeros, merged", {GPTQ, .group_size = 32, .has_zeros = true}, DTYPE_BFLOAT16, .merged = true}},
    {{"gptq, ordered", {GPTQ, .group_size = 32, .ordered = true}, DTYPE_FLOAT16}},
    {{"gptq of 8 bits, ordered", {GPTQ8, .group_size = 16, .ordered = true}, DTYPE_FLOAT16}},
    {{"gptq, in the usual order", {GPTQ, .group_size = 32, .ordered = true}, DTYPE_FLOAT16, .no_sorting = true}},
    {{"gptq, 8 bits", {GPTQ8, .group_size = 32, .zeros_less_one = true}, DTYPE_FLOAT16}},
    {{"awq", {AWQ, .group_size = 32, .has_zeros = true}, DTYPE_FLOAT16}},
    {{"awq, merged", {AWQ, .group_size = 32, .has_zeros = true}, DTYPE_FLOAT16, .merged = true}},
    {{"awq, lm_head", {AWQ, .group_size = 32}, DTYPE_BFLOAT16, .lm_head = true},
     "lm_head.weight\" would have 12 output features on rank 0 of 2, and 8 of them share a scale or a word",
     "lm_head.weight\" would have 6 output features on rank 0 of 4, and 8 of them share a scale or a word"},
    {{"mxfp4, lm_head", {MXFP4, .group_size = 32}, DTYPE_E8M0, .lm_head = true}},
    {{"mxfp4, merged", {MXFP4, .group_size = 32}, DTYPE_E8M0, .merged = true}},
    {{"nvfp4, merged, lm_head", {NVFP4, .group_size = 16}, DTYPE_FP8_E4M3, .merged = true, .lm_head = true}},
    {{"mxfp4, experts", {BLOCKS, .group_size = 32}, DTYPE_E8M0, .experts = true}}, /* 6 groups */
};

static void test_forms(void **state)
{
    const struct temp_folder *folder = *state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        quantized_spec(&forms[i].form, i % 2, &config.spec);
        if (forms[i].form.experts) config.spec.layers[0].experts.intermediate_size = 192;
        quantized_write(folder, &forms[i].form, &config.spec, i % 3 == 0, NULL);
        check_spec(folder->path, forms[i].form.name, 2, forms[i].on_two);
        check_spec(folder->path, forms[i].form.name, 4, forms[i].on_four);
    }
}

/* kv_b_proj of latent attention, whose rows of a rank's heads are dequantized while they are read. */
static void test_dequantized(void **state)
{
    static const struct quantized_form form = {
        "dequantized", {FP8, .group_size = 32, .blocks = true}, DTYPE_FLOAT32, .inverse = true};
    const struct temp_folder *folder = *state;
    struct model_spec *spec = &config.spec;
    struct layer_spec *l = &spec->layers[0];
    quantized_spec(&form, false, spec);
    l->mixer = MIXER_LATENT;
    l->attention = (struct attention_spec){.num_heads = 0};
    l->latent = (struct latent_spec){.num_heads = 4, .rank = 64, .rope = 32, .nope = 32, .v_head_size = 32};
    quantized_write(folder, &form, spec, false, NULL);
    spec->schemes[2] = form.scheme;
    spec->schemes[2].is_quantized = false, spec->schemes[2].dequantize = true;
    spec->num_schemes = 3;
    l->schemes[TENSOR_LATENT_KV_B] = 2;
    check_spec(folder->path, form.name, 2, NULL);
    check_spec(folder->path, form.name, 4, NULL);
}

/* int8 with a scale of each row; and int4 in groups that ranks do not cut. */
static void test_quantized_while_loaded(void **state)
{
    (void)state;
    static const char folder[] = QUIRE_TEST_DATA "/golden/mha";
    struct error err;
    must(model_config_load(folder, NULL, NULL, &config, &err), &err);
    must(quantization_apply(&config.spec, "int8", &err), &err);
    check_spec(folder, "int8", 4, NULL);
    must(model_config_load(folder, NULL, NULL, &config, &err), &err);
    config.spec.schemes[config.spec.num_schemes] = (struct weight_scheme){.storage = STORED_ROWS,
                                                                          .is_quantized = true,
                                                                          .quantize = true,
                                                                          .format = WEIGHT_INT4,
                                                                          .group_size = 8,
                                                                          .scale_dtype = DTYPE_FLOAT16};
    for (int32_t i = 0; i < config.spec.num_layers; i++)
        memset(config.spec.layers[i].schemes, config.spec.num_schemes, sizeof config.spec.layers[i].schemes);
    config.spec.num_schemes++;
    check_spec(folder, "int4", 4, NULL);
}

/* Ranks that have whole experts: of every kind of names and matrices, stacked on a device, too. */
static void test_expert_parallel(void **state)
{
    (void)state;
    int checked = 0;
    for (int i = 0; i < golden_num_checkpoints; i++) {
        struct error err;
        char folder[512];
        snprintf(folder, sizeof folder, QUIRE_TEST_DATA "/golden/%s", golden_checkpoints[i]);
        must(model_config_load(folder, NULL, NULL, &config, &err), &err);
        halve_heads(&config.spec);
        config.spec.expert_parallel = true;
        if (model_spec_num_experts(&config.spec) == 0) continue;
        for (int32_t count = 2; count <= 4; count++)
            for (int on_device = 0; on_device < 2; on_device++) {
                struct ranks r = {
                    .name = golden_checkpoints[i], .spec = &config.spec, .count = count, .on_device = on_device};
                if (model_spec_shard(r.spec, 0, count, &specs[0], &err) != STATUS_OK) continue;
                must(open_ranks(&r, folder, &err), &err);
                check_all(&r);
                close_ranks(&r);
                checked++;
            }
    }
    assert_true(checked > 40);
}

/* Where experts are whole, nothing of them is cut through what shares a scale or a word. */
static void test_quantized_expert_parallel(void **state)
{
    static const char *const names[] = {"moe-awq", "moe-fp8", "moe-modelopt-fp8"};
    static const struct quantized_form mxfp4 = {"", {BLOCKS, .group_size = 32}, DTYPE_E8M0, .experts = true};
    const struct temp_folder *temp = *state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct error err;
        char folder[512];
        snprintf(folder, sizeof folder, QUIRE_TEST_DATA "/quantized/%s", names[i]);
        must(model_config_load(folder, NULL, NULL, &config, &err), &err);
        halve_heads(&config.spec);
        config.spec.expert_parallel = true;
        check_spec(folder, names[i], 2, NULL);
    }
    quantized_spec(&mxfp4, false, &config.spec); /* 5 experts of 160 features */
    quantized_write(temp, &mxfp4, &config.spec, false, NULL);
    config.spec.expert_parallel = true;
    check_spec(temp->path, "mxfp4", 2, NULL);
    check_spec(temp->path, "mxfp4", 4, NULL);
}

static void test_on_device(void **state)
{
    (void)state;
    static const char *const names[] = {"gqa",     "qwen2",      "phi3",      "gptj",        "gpt2",
                                        "gpt_oss", "qwen3_next", "falcon_h1", "deepseek_v3", "nemotron_h_latent",
                                        "dbrx",    "llama4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct error err;
        char folder[512];
        struct ranks r = {.name = names[i], .spec = &config.spec, .count = 2, .on_device = true};
        snprintf(folder, sizeof folder, QUIRE_TEST_DATA "/golden/%s", names[i]);
        must(model_config_load(folder, NULL, NULL, &config, &err), &err);
        must(open_ranks(&r, folder, &err), &err);
        check_all(&r);
        close_ranks(&r);
    }
}

/* ---- the rest ---- */

/* Rows of a rank are used where the file has them, and columns are not. */
static void test_in_place(void **state)
{
    (void)state;
    static const char folder[] = QUIRE_TEST_DATA "/golden/gqa";
    struct model_weights w;
    struct error err;
    must(model_config_load(folder, NULL, NULL, &config, &err), &err);
    must(model_spec_shard(&config.spec, 1, 2, &specs[1], &err), &err);
    must(model_weights_open(folder, &specs[1], NULL, &w, &err), &err);
    for (int32_t i = 0; i < w.table.count; i++) {
        const struct tensor *t = &w.table.tensors[i];
        const struct weight_source *s = model_weights_source(&w, t);
        if (t->kind != TENSOR_MATRIX) continue;
        const int64_t row = t->in_features * s->data->type->bytes;
        if (t->is_share)
            assert_null(s->weight.data);
        else
            assert_ptr_equal(s->weight.data, (const char *)s->data->data + t->out_features * row);
    }
    model_weights_close(&w);
}

static void test_dummy(void **state)
{
    (void)state;
    struct error err;
    int64_t bytes = 0, shared = 0;
    must(model_config_load(QUIRE_TEST_DATA "/golden/qwen3_next", NULL, NULL, &config, &err), &err);
    for (int32_t i = 0; i < 2; i++) {
        struct model_weights w, sizes;
        must(model_spec_shard(&config.spec, i, 2, &specs[i], &err), &err);
        must(model_weights_dummy(&specs[i], 1, false, &w, &err), &err);
        must(model_weights_sizes(&specs[i], &sizes, &err), &err);
        assert_int_equal(w.bytes, sizes.bytes);
        bytes += w.bytes;
        for (int32_t k = 0; k < w.table.count; k++) {
            const struct tensor *t = &w.table.tensors[k];
            if (t->kind != TENSOR_MATRIX) continue;
            const struct weight *m = model_weights_matrix(&w, t);
            assert_int_equal(m->out_features, t->out_features);
            assert_int_equal(m->in_features, t->in_features);
            assert_int_equal(m->is_share, t->is_share);
            assert_non_null(m->data);
            shared += m->is_share;
        }
        model_weights_close(&w);
        model_weights_close(&sizes);
    }
    struct model_weights whole;
    must(model_weights_sizes(&config.spec, &whole, &err), &err);
    assert_true(shared > 0 && bytes > whole.bytes && bytes < 2 * whole.bytes);
    model_weights_close(&whole);
}

static void test_tokens(void **state)
{
    (void)state;
    const struct token_range last = shard_tokens(10, 3, 4), none = shard_tokens(5, 3, 4);
    assert_true(last.first == 9 && last.count == 1);
    assert_true(none.first == 5 && none.count == 0);
    for (int32_t rank = 0, first = 0; rank < 3; rank++) {
        const struct token_range range = shard_tokens(320, rank, 3);
        assert_true(range.first == first && range.count == (rank < 2 ? 107 : 106));
        first += range.count;
    }
}

/* 90 groups of 32 features, two of which stay together, in 4 ranks; 6 blocks of 128 in 8 are refused by the matrix that
 * would be cut. */
static void test_unequal_parts(void **state)
{
    (void)state;
    static const int32_t sizes[] = {11 * 64, 11 * 64, 11 * 64, 12 * 64};
    static const struct quantized_form mxfp4 = {"", {BLOCKS, .group_size = 32}, DTYPE_E8M0, .experts = true};
    static const struct quantized_form fp8 = {"", {FP8, .group_size = 128, .blocks = true}, DTYPE_FLOAT32};
    struct tensor_table table;
    struct error err;
    quantized_spec(&mxfp4, true, &config.spec);
    config.spec.layers[0].experts.intermediate_size = 2880;
    for (int32_t i = 0, first = 0; i < 4; i++) {
        must(model_spec_shard(&config.spec, i, 4, &specs[0], &err), &err);
        assert_int_equal(specs[0].layers[0].experts.intermediate_size, sizes[i]);
        must(tensor_table_make(&specs[0], true, &table, &err), &err);
        assert_int_equal(tensor_table_find(&table, TENSOR_EXPERT_DOWN, 0)->first_column, first);
        tensor_table_free(&table);
        first += sizes[i];
    }
    quantized_spec(&fp8, true, &config.spec);
    config.spec.layers[0].attention.num_heads = config.spec.layers[0].attention.num_kv_heads = 32;
    config.spec.layers[0].mlp.intermediate_size = 768;
    must(model_spec_shard(&config.spec, 7, 8, &specs[0], &err), &err);
    assert_int_equal(tensor_table_make(&specs[0], true, &table, &err), STATUS_UNSUPPORTED);
    assert_null(table.tensors);
    assert_string_equal(err.text, "the quantized matrix \"model.layers.0.mlp.gate_proj.weight\" would have 96 output "
                                  "features on rank 7 of 8, and 128 of them share a scale or a word; use fewer ranks, "
                                  "or the model in bfloat16 or float16");
}

/* What sizes and kinds of models are refused that no checkpoint above has. */
static void test_refusals(void **state)
{
    (void)state;
    struct error err;
    must(model_config_load(QUIRE_TEST_DATA "/golden/bamba", NULL, NULL, &config, &err), &err);
    struct recurrent_spec *net = &config.spec.layers[0].recurrent; /* of 4 heads */
    net->norm_group_size = 3 * net->v_head_size;
    assert_int_equal(model_spec_shard(&config.spec, 0, 2, &specs[0], &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "layer 0 has a norm of its recurrent mixer over some of the heads of several ranks, "
                                  "which quire does not compute on several ranks; use one");
    struct model_spec *spec = &config.spec, *part = &specs[0];
    const char *folder = QUIRE_TEST_DATA "/golden/gqa"; /* 4 heads, 2 KV heads, 96 features */
    must(model_config_load(folder, NULL, NULL, &config, &err), &err);
    must(model_spec_shard(spec, 0, 1, part, &err), &err);
    assert_true(part->whole == NULL && part->vocab_size == spec->vocab_size);
    assert_int_equal(model_spec_shard(spec, 0, 8, part, &err), STATUS_UNSUPPORTED);
    spec->layers[1].attention.num_heads = 6, spec->layers[1].attention.num_kv_heads = 3;
    assert_int_equal(model_spec_shard(spec, 0, 2, part, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "layer 1: the number of KV heads is 3, which 2 ranks cannot share equally; use a "
                                  "number of ranks that divides it");
    spec->layers[1].attention = spec->layers[0].attention;
    spec->layers[1].mlp.intermediate_size = 97;
    assert_int_equal(model_spec_shard(spec, 1, 2, part, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "layer 1: the number of features in its MLP is 97, which 2 ranks cannot share "
                                  "equally; use a number of ranks that divides it");
    spec->layers[1].mlp.intermediate_size = 96;
    spec->expert_parallel = true;
    spec->layers[1].experts.router.num_experts = 3;
    assert_int_equal(model_spec_shard(spec, 1, 4, part, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "layer 1 has 3 experts, too few for 4 ranks that each have some of them; use fewer "
                                  "ranks, or no expert parallelism");
    spec->layers[1].experts.router.num_experts = 0;
    spec->expert_parallel = false;
    spec->vocab_size = 5;
    assert_int_equal(model_spec_shard(spec, 1, 4, part, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "a vocabulary of 5 tokens is too small for 4 ranks; use fewer");
    spec->vocab_size = 160;
    spec->head = (struct head_spec){.kind = HEAD_EAGLE3, .maps_ids = true, .num_ids = 6};
    assert_int_equal(model_spec_shard(spec, 1, 4, part, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "a vocabulary of 6 tokens is too small for 4 ranks; use fewer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_more_ranks),
        cmocka_unit_test(test_quantized_checkpoints),
        cmocka_unit_test_setup_teardown(test_forms, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test_setup_teardown(test_dequantized, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test(test_quantized_while_loaded),
        cmocka_unit_test(test_expert_parallel),
        cmocka_unit_test_setup_teardown(test_quantized_expert_parallel, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test(test_on_device),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_dummy),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_unequal_parts),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
