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

#include "model/config.h"
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
    if (t->kind == TENSOR_MATRIX) return weight_element(place.matrix, row, column);
    assert_non_null(*place.vector);
    return dtype_load(*place.vector, *place.vector_dtype, place.first_row + row);
}

/* Rows and columns of a rank's tensor are those from there on of the whole one. */
static void same(const struct ranks *r, int32_t rank, const struct tensor *part, const struct tensor *whole,
                 int64_t first_row, int64_t first_column)
{
    const int64_t columns = part->kind == TENSOR_MATRIX ? part->in_features : 1;
    for (int64_t o = 0; o < part->out_features; o++)
        for (int64_t i = 0; i < columns; i++) {
            const float found = element(&r->ranks[rank], part, o, i);
            const float expected = element(&r->whole, whole, first_row + o, first_column + i);
            if (found != expected)
                fail_msg("%s: %s: rank %d of %d: element [%lld, %lld] is %g and not %g", r->name, whole->name, rank,
                         r->count, (long long)o, (long long)i, (double)found, (double)expected);
        }
    if (part->kind != TENSOR_MATRIX) return;
    const struct weight *a = model_weights_matrix(&r->ranks[rank], part), *b = model_weights_matrix(&r->whole, whole);
    assert_int_equal(a->format, b->format);
    assert_int_equal(a->is_share, part->is_share);
    assert_int_equal(a->input_order != NULL, b->input_order != NULL);
    if (a->input_order) assert_memory_equal(a->input_order, b->input_order, (size_t)a->in_features * sizeof(int32_t));
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
        if ((i + 1) % repeated == 0 && repeated < r->count) first_row += part->out_features;
        if (!all_columns) first_column += part->in_features;
    }
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
        if (t->kind == TENSOR_BIAS && (has_part_of_columns(t) || t->role == TENSOR_EXPERTS_OUT))
            check_bias_of_share(r, t);
        else if (is_channels(t) && t->kind == TENSOR_VECTOR && t->num_parts == 1)
            check_channels(r, t);
        else
            check_tensor(r, t);
    }
    check_layers(r);
}

/* UNSUPPORTED: the ranks cannot share the model. */
static enum status open_ranks(struct ranks *r, const char *folder, struct error *err)
{
    enum status status = model_weights_open(folder, r->spec, NULL, &r->whole, err);
    must(status, err);
    must(model_weights_pack(&r->whole, err), err);
    for (int32_t i = 0; i < r->count && status == STATUS_OK; i++) {
        status = model_spec_shard(r->spec, i, r->count, &specs[i], err);
        if (status == STATUS_OK) status = model_weights_open(folder, &specs[i], NULL, &r->ranks[i], err);
        if (status == STATUS_OK) status = model_weights_pack(&r->ranks[i], err);
    }
    return status;
}

static void close_ranks(struct ranks *r)
{
    model_weights_close(&r->whole);
    for (int32_t i = 0; i < r->count; i++) model_weights_close(&r->ranks[i]);
}

/* ---- checkpoints ---- */

/* One head becomes two of half its size, whose tensors have the same shapes. */
static void halve_heads(struct model_spec *spec)
{
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct attention_spec *a = &spec->layers[i].attention;
        if (a->num_heads != 1 || a->qk_norm != QK_NORM_NONE || a->sinks || a->head_gates) continue;
        a->num_heads = a->num_kv_heads = 2;
        a->head_size /= 2, a->v_head_size /= 2;
    }
}

static void check_folder(const char *folder, const char *name, int32_t count, const char *refusal)
{
    struct error err = {""};
    struct ranks r = {.name = name, .spec = &config.spec, .count = count};
    must(model_config_load(folder, NULL, NULL, &config, &err), &err);
    halve_heads(&config.spec);
    const enum status status = open_ranks(&r, folder, &err);
    if (status == STATUS_OK && !refusal) {
        check_all(&r);
    } else if (status != STATUS_UNSUPPORTED || !refusal || !strstr(err.text, refusal)) {
        fail_msg("%s on %d ranks: %s", name, count, status == STATUS_OK ? "is not refused" : err.text);
    }
    close_ranks(&r);
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
    static const char three_heads[] = "layer 0 has 3 attention heads, which 2 ranks cannot have equal parts of; use a "
                                      "number of ranks that divides it";
    static const char one_head[] = "has 1 attention heads, which 2 ranks cannot have equal parts of";
    static const char gated_norm[] = "layer 0 has a norm of its recurrent mixer over the heads of several ranks, which "
                                     "quire does not compute on several ranks; use one";
    static const char qk_norm[] = "has norms of q and k over all heads at once, which";
    static const struct refusal refusals[] = {
        {"bamba", gated_norm},
        {"bloom", three_heads},
        {"flex_olmo", qk_norm},
        {"gemma4_moe", "has norms of its experts and of the MLP beside them, which"},
        {"granite4_h", gated_norm},
        {"granite4_h_moe", gated_norm},
        {"granitemoe_swa", one_head},
        {"laguna", one_head},
        {"lfm2", "layer 0 has a convolution as its mixer, which"},
        {"lfm2_moe", "layer 0 has a convolution as its mixer, which"},
        {"minimax", gated_norm},
        {"minimax_m2", qk_norm},
        {"mpt", three_heads},
        {"olmo2", qk_norm},
        {"olmo3", qk_norm},
        {"olmo_hybrid", qk_norm},
        {"olmoe", qk_norm},
        {"step3p7", one_head},
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
    } cases[] = {{"bloom", 3}, {"mpt", 3},     {"gqa", 4},          {"mha", 4},
                 {"mqa", 4},   {"sliding", 4}, {"falcon_alibi", 4}, {"falcon_two_norms", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[512];
        snprintf(folder, sizeof folder, QUIRE_TEST_DATA "/golden/%s", cases[i].name);
        check_folder(folder, cases[i].name, cases[i].ranks, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_more_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
