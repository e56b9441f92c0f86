/* KV cache groups: which a model has, which layers are in them and which tensors serve these; the blocks that requests
 * need then; a step's inputs for several groups. What a model computes with groups is in test_golden.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "model/inputs.h"
#include "model/kv_cache.h"
#include "model/memory_profile.h"
#include "runtime/profile/memory_report.h"
#include "tests/support/program.h"

static struct model_spec spec;

/* A model whose layers have these windows in turn. */
static void make_spec(int32_t num_layers, const int32_t *windows, int32_t period)
{
    spec = (struct model_spec){.num_layers = num_layers};
    for (int32_t i = 0; i < num_layers; i++)
        spec.layers[i].attention =
            (struct attention_spec){.num_kv_heads = 4, .head_size = 32, .window = windows[i % period]};
}

static struct kv_groups assign(const struct batch_limits *limits)
{
    struct kv_groups groups;
    struct error err;
    if (kv_groups_assign(&spec, limits, &groups, &err) != STATUS_OK) fail_msg("%s", err.text);
    return groups;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Elements of a token's K, or of its V, of which there may be more. */
static int64_t room(int32_t layer)
{
    const struct attention_spec *a = &spec.layers[layer].attention;
    return larger(attention_k_size(a), attention_v_size(a));
}

/* Whether a block of the group has room for the layer's tokens. */
static bool tokens_fit(const struct batch_limits *limits, int32_t layer, int32_t group)
{
    int64_t most = 0;
    for (int32_t i = 0; i < spec.num_layers; i++) most = larger(most, room(i));
    return room(layer) * batch_block_size(limits, group) <= most * limits->block_size;
}

/* Every layer has tensors that no other layer of its group has, there are as few as that takes, and no group's window
 * is shorter than that of a layer in it. */
static void check_groups(const struct batch_limits *limits, const struct kv_groups *groups)
{
    int32_t counts[KV_MAX_GROUPS] = {0}, most = 0;
    assert_in_range(limits->num_groups, 1, KV_MAX_GROUPS);
    assert_int_equal(groups->count, limits->num_groups);
    for (int32_t i = 0; i < spec.num_layers; i++) {
        const int32_t g = groups->group[i], window = limits->windows[g];
        assert_in_range(g, 0, limits->num_groups - 1);
        assert_int_equal(groups->index[i], counts[g]++); /* in the order of the layers */
        if (window != 0) assert_int_equal(window, spec.layers[i].attention.window);
        assert_true(tokens_fit(limits, i, g));
        if (counts[g] > most) most = counts[g];
    }
    assert_int_equal(groups->num_tensors, most);
    for (int32_t g = 0; g < limits->num_groups; g++) {
        assert_int_equal(groups->num_layers[g], counts[g]);
        assert_true(counts[g] > 0);
        if (g > 0) assert_false(limits->windows[g] == 0 && limits->windows[g - 1] != 0); /* full attention first */
    }
}

struct expected {
    int32_t num_groups, num_tensors;
    int32_t windows[KV_MAX_GROUPS];
};

static void check(int32_t num_layers, const int32_t *windows, int32_t period, int32_t max_model_len,
                  const struct expected *expected)
{
    struct batch_limits limits = {.max_model_len = max_model_len, .block_size = 16};
    make_spec(num_layers, windows, period);
    kv_groups_choose(&spec, &limits);
    const struct kv_groups groups = assign(&limits);
    check_groups(&limits, &groups);
    assert_int_equal(limits.num_groups, expected->num_groups);
    assert_int_equal(groups.num_tensors, expected->num_tensors);
    for (int32_t g = 0; g < limits.num_groups; g++) assert_int_equal(limits.windows[g], expected->windows[g]);
    assert_int_equal(kv_cache_block_bytes(&spec, &groups, &limits, DTYPE_BFLOAT16),
                     2 * expected->num_tensors * 16 * 4 * 32 * 2);
}

static void one_kind_is_one_group(void **state)
{
    (void)state;
    const int32_t full = 0, window = 4096;
    check(32, &full, 1, 8192, &(struct expected){1, 32, {0}});
    check(32, &window, 1, 32768, &(struct expected){1, 32, {4096}}); /* Mistral 7B v0.1 */
    check(32, &window, 1, 4097, &(struct expected){1, 32, {4096}});
    check(32, &window, 1, 4096, &(struct expected){1, 32, {0}}); /* no sequence outgrows it */
}

static void groups_are_as_large_as_the_smallest_kind(void **state)
{
    (void)state;
    const int32_t gemma2[] = {4096, 0}, gemma3[] = {1024, 1024, 1024, 1024, 1024, 0}, three[] = {0, 8, 0, 64, 0, 8, 8};
    check(26, gemma2, 2, 8192, &(struct expected){2, 13, {0, 4096}});
    check(26, gemma2, 2, 4096, &(struct expected){1, 26, {0}});
    check(48, gemma3, 6, 32768, &(struct expected){6, 8, {0, 1024, 1024, 1024, 1024, 1024}});        /* Gemma 3 12B */
    check(62, gemma3, 6, 32768, &(struct expected){7, 10, {0, 1024, 1024, 1024, 1024, 1024, 1024}}); /* 27B */
    check(7, three, 7, 65, &(struct expected){7, 1, {0, 0, 0, 8, 8, 8, 64}});
    check(7, three, 7, 64, &(struct expected){3, 3, {0, 0, 8}}); /* the 64 counts as full: 4 and 3 */
}

/* Llama 4: three of four layers read chunks. A window of the same length is another kind. */
static void chunks_are_a_kind(void **state)
{
    (void)state;
    struct batch_limits limits = {.max_model_len = 8193, .block_size = 16};
    const int32_t none = 0, windows[] = {8192, 0};
    make_spec(8, &none, 1);
    for (int32_t i = 0; i < 8; i++) spec.layers[i].attention.chunk = i % 4 == 3 ? 0 : 8192;
    kv_groups_choose(&spec, &limits);
    const struct kv_groups groups = assign(&limits);
    assert_int_equal(limits.num_groups, 4);
    assert_int_equal(groups.num_tensors, 2);
    for (int32_t g = 0; g < 4; g++) {
        assert_int_equal(limits.windows[g], g == 0 ? 0 : 8192);
        assert_int_equal(limits.chunked[g], g != 0);
    }
    for (int32_t i = 0; i < 8; i++) assert_int_equal(groups.group[i] == 0, i % 4 == 3);
    limits.max_model_len = 8192; /* no sequence outgrows a chunk */
    kv_groups_choose(&spec, &limits);
    assert_int_equal(limits.num_groups, 1);
    assert_false(limits.chunked[0]);

    limits.max_model_len = 8193;
    make_spec(4, windows, 2);
    spec.layers[1].attention.chunk = spec.layers[3].attention.chunk = 8192;
    kv_groups_choose(&spec, &limits);
    assert_int_equal(limits.num_groups, 2);
    assert_false(limits.chunked[0]);
    assert_true(limits.chunked[1]);
    assert_int_equal(assign(&limits).group[3], 1);
}

/* Fewer than 1.25 times as many: the groups are of the largest kind's size. */
static void kinds_of_nearly_one_size_are_not_cut(void **state)
{
    (void)state;
    const int32_t nine[] = {0, 0, 0, 0, 7, 7, 7, 7, 7}, less[] = {0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7};
    check(9, nine, 9, 100, &(struct expected){3, 4, {0, 7, 7}});
    check(11, less, 11, 100, &(struct expected){2, 6, {0, 7}});
}

static void groups_are_never_too_many(void **state)
{
    (void)state;
    int32_t windows[31] = {0}, many[KV_MAX_GROUPS + 1];
    for (int i = 1; i < 31; i++) windows[i] = 16;
    check(31, windows, 31, 100, &(struct expected){7, 5, {0, 16, 16, 16, 16, 16, 16}});
    for (int i = 0; i <= KV_MAX_GROUPS; i++) many[i] = i + 1;
    check(KV_MAX_GROUPS, many, KV_MAX_GROUPS, 100, &(struct expected){8, 1, {1, 2, 3, 4, 5, 6, 7, 8}});
    check(2 * (KV_MAX_GROUPS + 1), many, KV_MAX_GROUPS + 1, 100, &(struct expected){1, 18, {0}});
    check(MODEL_MAX_LAYERS, windows, 31, 100, &(struct expected){8, 142, {0, 16, 16, 16, 16, 16, 16, 16}});
}

static void random_models(void **state)
{
    (void)state;
    struct random random = {.state = 12};
    for (int i = 0; i < 20000; i++) {
        const int32_t kinds = (int32_t)random_between(&random, 1, 12);
        struct batch_limits limits = {.max_model_len = (int32_t)random_between(&random, 1, 16), .block_size = 8};
        int32_t windows[64];
        for (int k = 0; k < 64; k++) windows[k] = (int32_t)random_between(&random, 0, kinds);
        make_spec((int32_t)random_between(&random, 1, 64), windows, 64);
        for (int k = 0; k < spec.num_layers && i % 2; k++)
            spec.layers[k].attention.num_kv_heads = (int32_t)random_between(&random, 1, i % 8 + 1);
        kv_groups_choose(&spec, &limits);
        const struct kv_groups groups = assign(&limits);
        check_groups(&limits, &groups);
    }
}

/* Groups that do not keep what a layer reads are refused; one group without a window serves any model. */
static void limits_must_suit_the_model(void **state)
{
    (void)state;
    const int32_t gemma2[] = {4096, 0};
    struct batch_limits limits = {.max_model_len = 8192, .block_size = 16, .num_groups = 1, .windows = {4096}};
    struct kv_groups groups;
    struct error err;
    make_spec(26, gemma2, 2);
    assert_int_equal(kv_groups_assign(&spec, &limits, &groups, &err), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "no KV cache group keeps what layer 1 reads"));
    limits.windows[0] = 0;
    groups = assign(&limits);
    check_groups(&limits, &groups);
}

/* Sets the K and V heads of the layers with this window. */
static void set_heads(int32_t window, int32_t num_kv_heads, int32_t head_size)
{
    for (int32_t i = 0; i < spec.num_layers; i++) {
        struct attention_spec *a = &spec.layers[i].attention;
        if (a->window == window) a->num_kv_heads = num_kv_heads, a->head_size = head_size;
    }
}

/* What a block of each group holds and leaves empty; bfloat16. */
struct expected_blocks {
    int32_t num_groups, num_tensors;
    int32_t block_sizes[KV_MAX_GROUPS];
    int64_t tensor_elements; /* of a block */
    int64_t unused[KV_MAX_GROUPS];
};

static void check_blocks(int32_t block_size, const struct expected_blocks *expected)
{
    struct batch_limits limits = {.max_model_len = 8192, .block_size = block_size};
    kv_groups_choose(&spec, &limits);
    const struct kv_groups groups = assign(&limits);
    check_groups(&limits, &groups);
    assert_int_equal(limits.num_groups, expected->num_groups);
    assert_int_equal(groups.num_tensors, expected->num_tensors);
    assert_int_equal(kv_cache_block_bytes(&spec, &groups, &limits, DTYPE_BFLOAT16),
                     2 * expected->num_tensors * expected->tensor_elements * 2);
    for (int32_t g = 0; g < limits.num_groups; g++) {
        assert_int_equal(batch_block_size(&limits, g), expected->block_sizes[g]);
        assert_int_equal(kv_cache_unused_bytes(&spec, &groups, &limits, g, DTYPE_BFLOAT16), expected->unused[g]);
    }
}

/* Full attention of 6 layers with few heads, windows of 24 with many, or the reverse. */
static void smaller_layers_pack_more_tokens(void **state)
{
    (void)state;
    const int32_t windows[] = {512, 512, 512, 512, 0};
    make_spec(30, windows, 5);
    check_blocks(16, &(struct expected_blocks){5, 6, {16, 16, 16, 16, 16}, 16 * 128, {0}});
    set_heads(0, 2, 32); /* half of 4 x 32 */
    check_blocks(16, &(struct expected_blocks){5, 6, {32, 16, 16, 16, 16}, 16 * 128, {0}});
    set_heads(0, 1, 32);
    check_blocks(32, &(struct expected_blocks){5, 6, {128, 32, 32, 32, 32}, 32 * 128, {0}});
    check_blocks(64, &(struct expected_blocks){5, 6, {128, 64, 64, 64, 64}, 64 * 128, {6 * 2 * 64 * 64 * 2}});
    set_heads(0, 3, 32); /* three quarters: no power of two fits */
    check_blocks(16, &(struct expected_blocks){5, 6, {16, 16, 16, 16, 16}, 16 * 128, {6 * 2 * 16 * 32 * 2}});
    set_heads(0, 2, 256); /* Gemma 4: four times as many */
    check_blocks(8, &(struct expected_blocks){5, 6, {8, 32, 32, 32, 32}, 8 * 512, {0}});
    set_heads(512, 5, 32); /* 512 / 160 is 3.2 */
    check_blocks(8, &(struct expected_blocks){5,
                                              6,
                                              {8, 16, 16, 16, 16},
                                              8 * 512,
                                              {0, 6 * 2 * 2 * (8 * 512 - 16 * 160), 6 * 2 * 2 * (8 * 512 - 16 * 160),
                                               6 * 2 * 2 * (8 * 512 - 16 * 160), 6 * 2 * 2 * (8 * 512 - 16 * 160)}});
}

/* MiMo-V2-Flash: the tensors of V have as large blocks as those of K, of which heads of 128 fill two thirds. */
static void heads_of_v_may_be_smaller(void **state)
{
    (void)state;
    const int32_t windows[] = {0, 128};
    make_spec(8, windows, 2);
    set_heads(0, 4, 192);
    set_heads(128, 8, 192);
    for (int32_t i = 0; i < 8; i++) spec.layers[i].attention.v_head_size = 128;
    const int64_t unused = 4 * 16 * 8 * 64 * 2;
    check_blocks(16, &(struct expected_blocks){2, 4, {32, 16}, 16 * 8 * 192, {unused, unused}});
    assert_int_equal(kv_cache_token_bytes(&spec, DTYPE_BFLOAT16), (4 * 4 + 4 * 8) * (192 + 128) * 2);
    set_heads(0, 4, 64); /* V of 4 x 128 is a third of 8 x 192, K of 4 x 64 a sixth */
    check_blocks(16, &(struct expected_blocks){
                         2, 4, {32, 16}, 16 * 8 * 192, {4 * 2 * (2 * 16 * 8 * 192 - 32 * 4 * 192), unused}});
}

/* Layers of one window whose sizes differ are of several groups, unless their blocks hold as many tokens. */
static void layers_of_one_window_may_differ(void **state)
{
    (void)state;
    const int32_t full = 0;
    make_spec(4, &full, 1);
    spec.layers[1].attention.num_kv_heads = 2; /* as many elements */
    spec.layers[1].attention.head_size = 64;
    check_blocks(16, &(struct expected_blocks){1, 4, {16}, 16 * 128, {0}});
    assert_int_equal(kv_cache_token_bytes(&spec, DTYPE_BFLOAT16), 4 * 2 * 4 * 32 * 2);
    spec.layers[2].attention.num_kv_heads = 3; /* fewer, but more than half */
    check_blocks(16, &(struct expected_blocks){1, 4, {16}, 16 * 128, {2 * 16 * 32 * 2}});
    spec.layers[3].attention.num_kv_heads = 1; /* a quarter */
    check_blocks(16, &(struct expected_blocks){4, 1, {16, 16, 16, 64}, 16 * 128, {0, 0, 2 * 16 * 32 * 2, 0}});
    struct batch_limits one = {.max_model_len = 8192, .block_size = 16, .num_groups = 1}; /* serves any model */
    const struct kv_groups groups = assign(&one);
    check_groups(&one, &groups);
    assert_int_equal(kv_cache_unused_bytes(&spec, &groups, &one, 0, DTYPE_BFLOAT16), 2 * 16 * (32 + 96) * 2);
}

/* Groups of blocks of 64 and 16 tokens: 8192 tokens take 128 and 512 of them. */
static void blocks_of_two_sizes_are_counted(void **state)
{
    (void)state;
    const struct batch_limits limits = {.max_num_tokens = 8192,
                                        .max_num_seqs = 1,
                                        .max_model_len = 8192,
                                        .block_size = 16,
                                        .num_groups = 3,
                                        .windows = {0, 0, 100},
                                        .block_shifts = {2, 0, 1}};
    const struct memory_profile p = {
        .num_blocks = 1001, .block_bytes = 4096, .group_layers = {4, 4, 4}, .group_unused = {512, 0, 1024}};
    assert_int_equal(batch_sequence_blocks(&limits, 8192), 128 + 512 + 256);
    assert_int_equal(batch_sequence_blocks(&limits, 65), 2 + 5 + 3);
    assert_int_equal(
        batch_group_blocks(
            &(struct batch_limits){
                .max_num_tokens = 8, .block_size = 16, .num_groups = 1, .windows = {100}, .block_shifts = {1}},
            0, 8192),
        (99 + 8 - 2) / 32 + 2); /* they begin at the end of a block */
    assert_int_equal(batch_first_block(&limits, 2, 8000), (8000 - 99) / 32);
    assert_int_equal(memory_profile_tokens(&p, &limits), 1001 / (1 + 4 + 2) * 64);
    assert_int_equal(memory_longest_request(&limits, memory_blocks_needed(&limits, 4096)), 4096);
    json_t *report = json_object();
    struct text groups = {0};
    memory_report_add(report, &(struct engine_info){.memory = &p, .limits = &limits});
    const json_t *third = json_array_get(json_object_get(report, "kv_groups"), 2);
    assert_int_equal(json_require_integer(third, "block_size"), 32);
    assert_int_equal(json_require_integer(third, "unused_block_bytes"), 1024);
    assert_true(memory_report_groups(&groups, &p, &limits));
    assert_string_equal(groups.data,
                        "1 of 4 layers, no window, 64 tokens in a block; 1 of 4 layers, no window; 1 of 4 layers, "
                        "window 100, 32 tokens in a block");
    text_free(&groups);
    json_decref(report);
}

/* memory_longest_request is the inverse of memory_blocks_needed, with windows and without. */
static void longest_request_is_the_inverse(void **state)
{
    (void)state;
    const struct batch_limits kinds[] = {
        {.max_num_tokens = 64, .block_size = 16, .num_groups = 1},
        {.max_num_tokens = 64, .block_size = 8, .num_groups = 3, .windows = {0, 100, 100}},
        {.max_num_tokens = 8192, .block_size = 128, .num_groups = 8, .windows = {0, 0, 1, 4096, 4096, 4096, 9, 9}},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int32_t blocks = -1; blocks < 3000; blocks += 1 + blocks / 10) {
            const struct batch_limits *limits = &kinds[k];
            const int32_t longest = memory_longest_request(limits, blocks);
            assert_int_equal(longest % limits->block_size, 0);
            if (longest > 0) assert_true(memory_blocks_needed(limits, longest) <= blocks);
            assert_true(memory_blocks_needed(limits, longest + 1) > blocks);
        }
    assert_int_equal(memory_longest_request(&kinds[0], 1000), 990 * 16); /* the watermark is 10 */
    const struct batch_limits sliding = {.max_num_tokens = 64, .block_size = 16, .num_groups = 1, .windows = {100}};
    assert_int_equal(memory_blocks_needed(&sliding, 1 << 30), 12); /* ceil((100 - 1 + 64 - 1) / 16) + 1 */
    assert_true(memory_longest_request(&sliding, 12) > INT32_MAX - 32);
    assert_int_equal(memory_longest_request(&sliding, 11), 11 * 16);
}

/* What the blocks of a GPU hold of Gemma 3 12B: 6 groups of 8 layers, one of them without a window. */
static void windows_let_more_requests_in(void **state)
{
    (void)state;
    struct batch_limits limits = {.max_num_tokens = 8192,
                                  .max_num_seqs = 256,
                                  .max_model_len = 32768,
                                  .block_size = 16,
                                  .num_groups = 6,
                                  .windows = {0, 1024, 1024, 1024, 1024, 1024}};
    const struct memory_profile p = {.num_blocks = 60000};
    const int32_t most = (1023 + 8192 + 14) / 16 + 1;
    assert_int_equal(memory_blocks_needed(&limits, 32768), 2048 + 5 * most + (2048 + 5 * most) / 99);
    assert_int_equal(memory_profile_tokens(&p, &limits), 10000 * 16);
    assert_float_equal(memory_profile_concurrency(&p, &limits), 60000.0 / (2048 + 5 * most), 1e-9);
    assert_true(memory_profile_fits(&p, &limits));
    for (int g = 0; g < 6; g++) limits.windows[g] = 0;
    assert_float_equal(memory_profile_concurrency(&p, &limits), 60000.0 / (6 * 2048), 1e-9);
}

/* What is reported of a model with windows. */
static void report_has_the_groups(void **state)
{
    (void)state;
    const struct batch_limits limits = {.max_num_tokens = 64,
                                        .max_num_seqs = 2,
                                        .max_model_len = 1000,
                                        .block_size = 16,
                                        .num_groups = 4,
                                        .windows = {0, 100, 100, 100}};
    const struct memory_profile p = {.num_blocks = 500, .group_layers = {3, 4, 4, 3}, .block_bytes = 1};
    struct text groups = {0};
    assert_true(memory_report_groups(&groups, &p, &limits));
    assert_string_equal(groups.data, "1 of 3 layers, no window; 2 of 4 layers, window 100; 1 of 3 layers, window 100");
    text_free(&groups);
    json_t *report = json_object();
    memory_report_add(report, &(struct engine_info){.memory = &p, .limits = &limits});
    const json_t *second = json_array_get(json_object_get(report, "kv_groups"), 1);
    assert_int_equal(json_array_size(json_object_get(report, "kv_groups")), 4);
    assert_int_equal(json_require_integer(second, "num_layers"), 4);
    assert_int_equal(json_require_integer(second, "sliding_window"), 100);
    assert_int_equal(json_require_integer(second, "max_request_blocks"), 12);
    assert_int_equal(json_require_integer(report, "max_request_blocks"), 63 + 3 * 12);
    assert_int_equal(json_require_integer(report, "max_request_blocks_without_windows"), 4 * 63);
    assert_int_equal(json_require_integer(report, "kv_cache_tokens"), 500 / 4 * 16);
    json_decref(report);
}

/* A decode batch of 3, padded to 4: the groups' slots lie side by side, each with its padding. */
static void slots_are_packed_by_group(void **state)
{
    (void)state;
    const struct batch_limits limits = {.max_num_tokens = 10,
                                        .max_num_seqs = 5,
                                        .max_model_len = 64,
                                        .block_size = 16,
                                        .num_groups = 3,
                                        .windows = {0, 8, 8}};
    struct backend *b;
    struct error err;
    struct arena arena;
    struct step_inputs in;
    struct batch batch;
    assert_int_equal(backend_open("cpu", 1, &b, &err), STATUS_OK);
    arena_init(&arena, b);
    assert_int_equal(step_inputs_allocate(&in, &arena, &limits, 2, false, &err), STATUS_OK);
    assert_int_equal(batch_init(&batch, &limits, &err), STATUS_OK);
    batch.num_tokens = batch.num_seqs = batch.num_decodes = batch.num_samples = 3;
    for (int t = 0; t < 3; t++)
        for (int g = 0; g < 3; g++) batch.slot_mapping[g * 10 + t] = 1000 * g + t;
    batch.num_copies = 15; /* one for each sequence and group */
    for (int i = 0; i < 15; i++) batch.copies[i] = (struct block_pair){i, 100 + i};
    batch.num_deltas = batch.max_deltas;
    assert_int_equal(batch.max_deltas, 3 * 5 * 4);
    for (int i = 0; i < batch.max_deltas; i++)
        batch.deltas[i] = (struct block_table_delta){i % 3, i % 5, i % 4, 200 + i};
    for (int parity = 0; parity < 2; parity++) {
        for (int i = 0; i < 30; i++) in.slot_mapping[i] = 77;
        step_inputs_upload(&in, b, &batch, parity ? 4 : 0, parity);
        const int32_t each = parity ? 4 : 3;
        for (int g = 0; g < 3; g++)
            for (int t = 0; t < each; t++) assert_int_equal(in.slot_mapping[g * each + t], t < 3 ? 1000 * g + t : -1);
        assert_int_equal(in.slot_mapping[3 * each], 77);
        assert_memory_equal(in.copies, batch.copies, 15 * sizeof *in.copies);
        assert_memory_equal(in.deltas, batch.deltas, (size_t)batch.max_deltas * sizeof *in.deltas);
    }
    batch_free(&batch);
    arena_free(&arena);
    b->destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_kind_is_one_group),
        cmocka_unit_test(groups_are_as_large_as_the_smallest_kind),
        cmocka_unit_test(chunks_are_a_kind),
        cmocka_unit_test(kinds_of_nearly_one_size_are_not_cut),
        cmocka_unit_test(groups_are_never_too_many),
        cmocka_unit_test(random_models),
        cmocka_unit_test(limits_must_suit_the_model),
        cmocka_unit_test(smaller_layers_pack_more_tokens),
        cmocka_unit_test(heads_of_v_may_be_smaller),
        cmocka_unit_test(layers_of_one_window_may_differ),
        cmocka_unit_test(blocks_of_two_sizes_are_counted),
        cmocka_unit_test(longest_request_is_the_inverse),
        cmocka_unit_test(windows_let_more_requests_in),
        cmocka_unit_test(report_has_the_groups),
        cmocka_unit_test(slots_are_packed_by_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
