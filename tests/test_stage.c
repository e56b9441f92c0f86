/* Stages of a model: which layers they have, and what of the weights; and what cannot be cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/config.h"
#include "model/kv_groups.h"
#include "model/shard.h"
#include "model/stage.h"
#include "model/weights.h"
#include "tests/support/must.h"

enum { MAX_STAGES = 8 };

static struct model_config config;
static struct model_spec stages[MAX_STAGES];

/* A model of golden data with so many layers, all like its first ones. */
static struct model_spec *load(const char *name, int32_t num_layers)
{
    char folder[512];
    struct error err;
    struct model_spec *spec = &config.spec;
    snprintf(folder, sizeof folder, "%s/golden/%s", QUIRE_TEST_DATA, name);
    must(model_config_load(folder, NULL, NULL, &config, &err), &err);
    for (int32_t i = spec->num_layers; i < num_layers; i++) spec->layers[i] = spec->layers[i % spec->num_layers];
    spec->num_layers = num_layers;
    return spec;
}

static void cut(const struct model_spec *all, int32_t num_stages)
{
    struct error err;
    for (int32_t s = 0; s < num_stages; s++) must(model_spec_stage(all, s, num_stages, &stages[s], &err), &err);
}

static int64_t bytes_of(const struct model_spec *spec)
{
    struct model_weights sizes;
    struct error err;
    must(model_weights_sizes(spec, &sizes, &err), &err);
    const int64_t bytes = sizes.bytes;
    model_weights_close(&sizes);
    return bytes;
}

/* ---- which layers a stage has ---- */

static void test_stages_follow_each_other(void **state)
{
    (void)state;
    for (int32_t layers = 8; layers < 20; layers += 3)
        for (int32_t n = 2; n <= MAX_STAGES; n++) {
            const struct model_spec *all = load("gqa", layers);
            int32_t next = 0;
            cut(all, n);
            for (int32_t s = 0; s < n; s++) {
                assert_ptr_equal(stages[s].all_stages, all);
                assert_int_equal(stages[s].stage, s);
                assert_int_equal(stages[s].num_stages, n);
                assert_int_equal(stages[s].first_layer, next);
                assert_true(stages[s].num_layers > 0);
                next += stages[s].num_layers;
            }
            assert_int_equal(next, layers);
        }
}

/* The largest stage of all ways to cut a model in three. */
static int64_t least_largest(const struct model_spec *all)
{
    static struct model_spec part;
    int64_t least = INT64_MAX;
    for (int32_t a = 1; a < all->num_layers - 1; a++)
        for (int32_t b = a + 1; b < all->num_layers; b++) {
            const int32_t begins[] = {0, a, b, all->num_layers};
            int64_t largest = 0;
            for (int32_t s = 0; s < 3; s++) {
                part = *all;
                part.all_stages = all, part.stage = s, part.num_stages = 3;
                part.num_layers = begins[s + 1] - begins[s];
                memmove(part.layers, all->layers + begins[s], (size_t)part.num_layers * sizeof *part.layers);
                const int64_t bytes = bytes_of(&part);
                if (bytes > largest) largest = bytes;
            }
            if (largest < least) least = largest;
        }
    return least;
}

/* Embedding and lm_head count, and layers of other sizes. */
static void test_bytes_are_balanced(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct model_spec *all = load("gqa", 9);
        int64_t largest = 0;
        all->tie_word_embeddings = i == 1;
        if (i == 2) all->vocab_size *= 20;
        for (int32_t layer = 0; i == 3 && layer < 3; layer++) all->layers[layer].mlp.intermediate_size *= 8;
        cut(all, 3);
        for (int32_t s = 0; s < 3; s++)
            if (bytes_of(&stages[s]) > largest) largest = bytes_of(&stages[s]);
        assert_int_equal(largest, least_largest(all));
    }
}

/* ---- what of the weights it has ---- */

static bool has(const struct tensor_table *table, enum tensor_role role)
{
    return tensor_table_find(table, role, -1) != NULL;
}

static void test_tables(void **state)
{
    (void)state;
    const struct model_spec *all = load("gqa", 8);
    struct error err;
    cut(all, 4);
    for (int32_t s = 0; s < 4; s++)
        for (int tied = 0; tied < 2; tied++) {
            struct tensor_table table;
            char name[64];
            const struct model_spec *stage = &stages[s];
            must(tensor_table_make(stage, tied, &table, &err), &err);
            assert_int_equal(has(&table, TENSOR_EMBEDDING), s == 0 || (s == 3 && tied));
            assert_int_equal(has(&table, TENSOR_FINAL_NORM), s == 3);
            assert_int_equal(has(&table, TENSOR_LM_HEAD), s == 3 && !tied);
            for (int32_t i = 0; i < stage->num_layers; i++) {
                snprintf(name, sizeof name, "model.layers.%d.self_attn.o_proj.weight", stage->first_layer + i);
                assert_string_equal(tensor_table_find(&table, TENSOR_O, i)->name, name);
            }
            tensor_table_free(&table);
        }
}

/* A rank of a stage has what the rank of the model has. */
static void test_ranks_of_stages(void **state)
{
    (void)state;
    static struct model_spec of_stage, of_model;
    const struct model_spec *all = load("gqa", 6);
    struct error err;
    cut(all, 3);
    for (int32_t s = 0; s < 3; s++)
        for (int32_t r = 0; r < 2; r++) {
            must(model_spec_shard(&stages[s], r, 2, &of_stage, &err), &err);
            must(model_spec_shard(all, r, 2, &of_model, &err), &err);
            assert_int_equal(stage_rank(&of_stage), 2 * s + r);
            for (int32_t i = 0; i < of_stage.num_layers; i++)
                assert_memory_equal(&of_stage.layers[i], &of_model.layers[of_stage.first_layer + i],
                                    sizeof of_stage.layers[i]);
        }
}

/* Of all stages, and all ranks of these, as of the model: one batch is for all. */
static void test_groups(void **state)
{
    (void)state;
    static struct model_spec rank;
    const char *const names[] = {"gemma3", "gpt_oss", "gemma4"};
    for (int i = 0; i < 3; i++) {
        struct model_spec *all = load(names[i], 12);
        struct error err;
        cut(all, 4);
        for (int32_t num_ranks = 1; num_ranks < 3; num_ranks++) {
            struct batch_limits wanted = {.max_model_len = 4096, .block_size = 16}, found = wanted;
            must(model_spec_shard(all, 0, num_ranks, &rank, &err), &err);
            kv_groups_choose(&rank, &wanted);
            for (int32_t s = 0; s < 4; s++) {
                struct kv_groups groups;
                must(model_spec_shard(&stages[s], 0, num_ranks, &rank, &err), &err);
                kv_groups_choose(&rank, &found);
                assert_memory_equal(&found, &wanted, sizeof found);
                must(kv_groups_assign(&rank, &found, &groups, &err), &err);
                for (int32_t layer = 0; layer < rank.num_layers; layer++)
                    assert_int_equal(wanted.windows[groups.group[layer]], rank.layers[layer].attention.window);
            }
        }
    }
}

/* ---- what cannot be cut ---- */

static void refused(const struct model_spec *all, int32_t num_stages, const char *sentence)
{
    struct error err;
    assert_int_equal(model_spec_stage(all, 0, num_stages, &stages[0], &err), STATUS_UNSUPPORTED);
    if (!strstr(err.text, sentence)) fail_msg("\"%s\" does not say \"%s\"", err.text, sentence);
}

/* Layers 4 and 5 read what layer 3 caches, and layer 7 what layer 6 does. */
static void test_shared_kv(void **state)
{
    (void)state;
    const int32_t counts[] = {1, 1, 1, 3, 2};
    struct model_spec *all = load("gqa", 8);
    all->layers[4].attention.shares_kv = 1;
    all->layers[5].attention.shares_kv = 2;
    all->layers[7].attention.shares_kv = 1;
    cut(all, 5);
    for (int32_t s = 0; s < 5; s++) assert_int_equal(stages[s].num_layers, counts[s]);
    refused(all, 6, "the model's 8 layers, some of which read the K and V that others cache, are too few for 6 stages");
}

static void test_refusals(void **state)
{
    (void)state;
    refused(load("gqa", 3), 4, "the model's 3 layers are too few for 4 stages; use 3 or fewer");
    refused(load("gqa", 20), 9, "9 stages are more than quire computes: at most 8");
    refused(load("gemma4_e", 4), 2, "per-layer embeddings");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages_follow_each_other),
        cmocka_unit_test(test_bytes_are_balanced),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_ranks_of_stages),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_shared_kv),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
