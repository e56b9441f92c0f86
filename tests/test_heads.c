/* Heads that draft from hidden states of their target, against tests/scripts/make_head_golden.py: the logits of a pass
 * over a prompt, which reads the target's states, and of passes that read the head's own. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/config.h"
#include "model/head.h"
#include "model/model.h"
#include "model/shard.h"
#include "model/state_cache.h"
#include "tests/support/golden.h"
#include "tests/support/must.h"
#include "tests/support/run.h"
#include "tests/support/temp_folder.h"

enum { MOST_TOKENS = 64, BLOCK_SIZE = 16, BLOCKS = 8 /* of a sequence */, SEQUENCES = 2, PASSES = 3 };

/* Those of MTP lie in the files of their target. */
static const char *const heads[] = {"eagle3",          "eagle3_layers",     "mtp_deepseek_v3", "mtp_ernie4_5_moe",
                                    "mtp_glm4_moe",    "mtp_glm4_moe_lite", "mtp_mimo",        "mtp_qwen3_5",
                                    "mtp_qwen3_5_moe", "mtp_qwen3_next"};
enum { NUM_HEADS = sizeof heads / sizeof *heads };

/* What target and head have of a model: all of it, or of each rank its share. */
struct part {
    struct backend *backend;
    struct model_spec target_spec, head_spec;
    struct model_weights target_weights, head_weights;
};

struct fixture {
    struct backend *backend; /* the first part's */
    struct model_config target_config, head_config;
    struct part *parts; /* [num_ranks] */
    int32_t num_ranks;
    struct model *target, *head;
    struct batch batch;
    struct golden golden;
    float *logits; /* on the host */
};

static void folder_of(const char *name, char *folder, size_t size)
{
    snprintf(folder, size, "%s/heads/%s", QUIRE_TEST_DATA, name);
}

static const char *target_of(const char *name)
{
    return strncmp(name, "mtp", 3) == 0 ? name : "target";
}

static void load_configs(const char *name, struct model_config *target, struct model_config *head)
{
    char folder[512], target_folder[512];
    struct error err;
    folder_of(name, folder, sizeof folder);
    folder_of(target_of(name), target_folder, sizeof target_folder);
    must(model_config_load(target_folder, NULL, NULL, target, &err), &err);
    if (strcmp(folder, target_folder) == 0)
        must(model_config_load_mtp(folder, NULL, head, &err), &err);
    else
        must(model_config_load_drafter(folder, NULL, head, &err), &err);
}

static struct model *create(struct fixture *f, bool is_head, const struct model_options *usual)
{
    struct model_options options = *usual;
    struct model *model;
    struct model_rank ranks[COLLECTIVE_MAX_RANKS] = {{NULL}};
    struct error err;
    options.is_drafter = is_head;
    if (is_head)
        options.max_in_flight = PASSES;
    else
        options.num_passes = PASSES;
    for (int32_t r = 0; r < f->num_ranks; r++) {
        struct part *p = &f->parts[r];
        if (is_head)
            ranks[r] = (struct model_rank){.backend = p->backend, .spec = &p->head_spec, .weights = &p->head_weights};
        else
            ranks[r] =
                (struct model_rank){p->backend, &p->target_spec, &p->target_weights, &p->head_spec, &p->head_weights};
    }
    must(model_create_ranks(ranks, f->num_ranks, &options, &model, &err), &err);
    if (is_head) model_attach(model, f->target);
    must(model_warm_up(model, &err), &err);
    must(model_allocate_cache(model, SEQUENCES * BLOCKS, &err), &err);
    must(model_capture(model, &err), &err);
    must(model_wait_for_weights(model, &err), &err);
    return model;
}

static void open_part(struct fixture *f, int32_t rank, const char *folder, const char *target_folder)
{
    struct part *p = &f->parts[rank];
    struct error err;
    if (rank > 0)
        p->backend = run_rank_device(f->backend, rank);
    else
        must(backend_open(run_need_device(), f->num_ranks > 1 ? 1 : 0, &p->backend, &err), &err);
    f->backend = f->parts[0].backend;
    must(model_spec_shard(&f->target_config.spec, rank, f->num_ranks, &p->target_spec, &err), &err);
    must(model_spec_shard(&f->head_config.spec, rank, f->num_ranks, &p->head_spec, &err), &err);
    must(model_weights_open(target_folder, &p->target_spec, NULL, &p->target_weights, &err), &err);
    must(model_weights_open(folder, &p->head_spec, NULL, &p->head_weights, &err), &err);
}

static void fixture_open(struct fixture *f, const char *name, bool copy_weights, int32_t num_ranks)
{
    char folder[512], target_folder[512];
    struct error err;
    const struct sampling_state greedy = {.num_logprobs = -1, .repetition_penalty = 1};
    struct model_options options = {.limits = {.max_num_tokens = MOST_TOKENS,
                                               .max_num_seqs = MOST_TOKENS,
                                               .max_num_drafts = 8,
                                               .max_model_len = BLOCKS * BLOCK_SIZE,
                                               .block_size = BLOCK_SIZE,
                                               .num_groups = 1},
                                    .dtype = DTYPE_FLOAT32,
                                    .cache_dtype = DTYPE_FLOAT32,
                                    .keep_logits = true};
    run_need_device(); /* a test that it skips has allocated nothing */
    *f = (struct fixture){.num_ranks = num_ranks, .parts = calloc((size_t)num_ranks, sizeof *f->parts)};
    assert_non_null(f->parts);
    load_configs(name, &f->target_config, &f->head_config);
    if (state_cache_slot_bytes(&f->target_config.spec) > 0) options.limits.num_state_slots = SEQUENCES;
    folder_of(name, folder, sizeof folder);
    folder_of(target_of(name), target_folder, sizeof target_folder);
    must(head_fit(&f->head_config.spec, &f->target_config.spec, &err), &err);
    for (int32_t r = 0; r < num_ranks; r++) open_part(f, r, folder, target_folder);
    options.copy_weights = copy_weights || f->backend->discrete;
    must(golden_load(folder, &f->golden, &err), &err);
    f->target = create(f, false, &options);
    f->head = create(f, true, &options);
    must(batch_init(&f->batch, &options.limits, &err), &err);
    for (int32_t s = 0; s < SEQUENCES; s++) model_set_sampling_state(f->target, s, &greedy, NULL, 0);
    f->logits = malloc((size_t)MOST_TOKENS * (size_t)f->golden.vocab_size * sizeof *f->logits);
    assert_non_null(f->logits);
}

static void fixture_close(struct fixture *f)
{
    free(f->logits);
    golden_free(&f->golden);
    batch_free(&f->batch);
    model_destroy(f->head);
    model_destroy(f->target);
    for (int32_t r = 0; r < f->num_ranks; r++) {
        struct part *p = &f->parts[r];
        model_weights_close(&p->head_weights);
        model_weights_close(&p->target_weights);
        p->backend->destroy(p->backend);
    }
    free(f->parts);
}

/* ---- batches ---- */

static void begin(struct batch *b)
{
    batch_clear(b);
    b->query_start[0] = 0;
}

/* Tokens [first, first + count) of a sequence, whose blocks follow one another. The states of token i are row
 * state_row + i, or i of the head's own from -(state_row + 1) on. All of them are sampled from, or the last. */
static void add(struct batch *b, int32_t sequence, const int32_t *ids, int32_t first, int32_t count, int32_t state_row,
                bool all_sampled)
{
    for (int32_t i = 0; i < count; i++) {
        const int32_t at = b->num_tokens + i, position = first + i;
        b->token_ids[at] = ids[i];
        b->positions[at] = position;
        b->slot_mapping[at] = (1 + sequence * BLOCKS) * BLOCK_SIZE + position;
        b->state_rows[at] = state_row < 0 ? state_row - i : state_row + i;
        if (!all_sampled && i + 1 < count) continue;
        b->logits_indices[b->num_samples] = at;
        b->sample_state_indices[b->num_samples] = sequence;
        b->sampled_drafts[b->num_samples] = -1;
        b->output_positions[b->num_samples++] = position;
    }
    b->num_tokens += count;
    if (b->limits.num_state_slots > 0) {
        b->state_sources[b->num_seqs] = first > 0 ? 1 + sequence : STATE_SLOT_NONE;
        b->state_slots[b->num_seqs] = 1 + sequence;
    }
    b->state_indices[b->num_seqs] = sequence;
    b->seq_lens[b->num_seqs++] = first + count;
    b->query_start[b->num_seqs] = b->num_tokens;
    if (count == 1 && b->num_decodes == b->num_seqs - 1) b->num_decodes++;
    if (count > b->max_query_len) b->max_query_len = count;
    if (first + count > b->max_seq_len) b->max_seq_len = first + count;
}

/* The target's step changes the block tables, which the head shares. */
static void add_blocks(struct batch *b, int32_t sequence)
{
    for (int32_t i = 0; i < BLOCKS; i++)
        b->deltas[b->num_deltas++] =
            (struct block_table_delta){.state_index = sequence, .index = i, .block = 1 + sequence * BLOCKS + i};
}

/* Runs the batch, and downloads the logits. */
static struct sample_output run(struct fixture *f, struct model *model)
{
    struct sample_output out;
    struct error err;
    const int64_t bytes = (int64_t)f->batch.num_samples * f->golden.vocab_size * (int64_t)sizeof *f->logits;
    must(model_submit(model, &f->batch, &err), &err);
    must(model_collect(model, &out, &err), &err);
    f->backend->copy(f->backend, f->logits, model_logits(model), bytes, NULL);
    must(f->backend->stream_synchronize(f->backend, NULL, &err), &err);
    return out;
}

/* ---- comparison ---- */

struct squares {
    double difference, size;
};

/* Compares a row of logits. What is no draft id has -infinity. */
static void compare(struct squares *s, const float *found, const float *expected, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        assert_int_equal(found[i] == -INFINITY, expected[i] == -INFINITY);
        if (found[i] == -INFINITY) continue;
        const double difference = (double)found[i] - (double)expected[i];
        s->difference += difference * difference;
        s->size += (double)expected[i] * (double)expected[i];
    }
}

static void compare_rows(struct squares *s, const struct fixture *f, int32_t first_row, const struct golden_case *c,
                         int32_t first, int32_t count)
{
    const int64_t size = f->golden.vocab_size;
    for (int64_t i = 0; i < count; i++)
        compare(s, f->logits + (first_row + i) * size, c->logits + (first + i) * size, (int32_t)size);
}

static void check(const char *what, const struct squares *s)
{
    const double error = sqrt(s->difference / s->size);
    const double bound = strcmp(run_need_device(), "cpu") == 0 ? 1e-5 : 1e-4;
    print_message("%s: relative error %.2g\n", what, error);
    if (!(error < bound)) fail_msg("%s: the logits are off by %g", what, error);
}

/* The token behind each of the prompt's. */
static int32_t *next_tokens(const struct golden_case *c)
{
    int32_t *ids = malloc((size_t)c->num_prompt * sizeof *ids);
    assert_non_null(ids);
    memcpy(ids, c->prompt + 1, (size_t)(c->num_prompt - 1) * sizeof *ids);
    ids[c->num_prompt - 1] = c->greedy[0];
    return ids;
}

/* ---- a prompt, and its drafts ---- */

/* Prompt and head's pass over it, `chunk` tokens at a time. Returns how many samples the last pass had. */
static int32_t run_prompt(struct fixture *f, const struct golden_case *c, int32_t chunk, struct squares *s)
{
    int32_t *next = next_tokens(c), count = 0;
    for (int32_t first = 0; first < c->num_prompt; first += count) {
        count = c->num_prompt - first < chunk ? c->num_prompt - first : chunk;
        begin(&f->batch);
        add(&f->batch, 0, c->prompt + first, first, count, 0, false);
        if (first == 0) add_blocks(&f->batch, 0);
        const bool is_last = first + count == c->num_prompt;
        if (!is_last) f->batch.num_samples = 0;
        const struct sample_output out = run(f, f->target);
        if (is_last) assert_int_equal(out.token_ids[0], c->greedy[0]);
        begin(&f->batch);
        add(&f->batch, 0, next + first, first, count, 0, true);
        const struct sample_output drafts = run(f, f->head);
        compare_rows(s, f, 0, c, first, count);
        if (is_last) assert_int_equal(drafts.token_ids[count - 1], c->greedy[1]);
    }
    free(next);
    return count;
}

/* Adds the pass of the draft that the last pass drew as its last sample, which is also its last token. */
static void add_draft(struct fixture *f, const struct golden_case *c, int32_t number, int32_t num_samples)
{
    const int32_t id = -num_samples;
    add(&f->batch, 0, &id, c->num_prompt + number, 1, -num_samples, true);
}

static void run_drafts(struct fixture *f, const struct golden_case *c, int32_t num_samples, struct squares *s)
{
    for (int32_t i = 0; i < PASSES; i++) {
        begin(&f->batch);
        add_draft(f, c, i, i == 0 ? num_samples : 1);
        const struct sample_output out = run(f, f->head);
        compare_rows(s, f, 0, c, c->num_prompt + i, 1);
        if (i + 1 < PASSES) assert_int_equal(out.token_ids[0], c->greedy[i + 2]);
    }
}

static void check_head(const char *name, bool copy_weights, int32_t num_ranks)
{
    static const int32_t chunks[] = {MOST_TOKENS, 7, 1};
    struct fixture f;
    char what[128];
    fixture_open(&f, name, copy_weights, num_ranks);
    for (int i = 0; i < 3; i++) {
        struct squares s = {0};
        for (int32_t j = 0; j < f.golden.num_cases; j++) {
            const struct golden_case *c = &f.golden.cases[j];
            run_drafts(&f, c, run_prompt(&f, c, chunks[i], &s), &s);
        }
        snprintf(what, sizeof what, "%s, chunks of %d, ranks: %d", name, chunks[i], num_ranks);
        check(what, &s);
    }
    fixture_close(&f);
}

static void test_logits(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_HEADS; i++) check_head(heads[i], false, 1);
}

static void test_logits_of_copied_weights(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_HEADS; i++) check_head(heads[i], true, 1);
}

/* Whether target and head can be shared between so many. */
static bool can_share(const char *name, int32_t num_ranks)
{
    static struct model_config target, head;
    static struct model_spec part;
    struct error err;
    load_configs(name, &target, &head);
    return model_spec_shard(&target.spec, 0, num_ranks, &part, &err) == STATUS_OK &&
           model_spec_shard(&head.spec, 0, num_ranks, &part, &err) == STATUS_OK;
}

/* A head is shared as its target is: heads, features, and the ids that it maps. */
static void test_logits_of_ranks(void **state)
{
    (void)state;
    const int32_t most = run_max_ranks();
    for (int32_t n = 2; n <= 4 && n <= most; n++) {
        int shared = 0;
        for (int i = 0; i < NUM_HEADS; i++) {
            if (!can_share(heads[i], n)) continue;
            check_head(heads[i], false, n);
            check_head(heads[i], true, n);
            shared++;
        }
        if (n == 2) assert_int_equal(shared, NUM_HEADS);
    }
}

/* A pass in which one token reads the head's own states, and others the target's. */
static void test_mixed_states(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_HEADS; i++) {
        struct fixture f;
        struct squares s = {0};
        fixture_open(&f, heads[i], false, 1);
        const struct golden_case *a = &f.golden.cases[1], *b = &f.golden.cases[2];
        int32_t *next_a = next_tokens(a), *next_b = next_tokens(b);
        begin(&f.batch);
        add(&f.batch, 0, a->prompt, 0, a->num_prompt, 0, false);
        add(&f.batch, 1, b->prompt, 0, b->num_prompt, 0, false);
        for (int32_t j = 0; j < SEQUENCES; j++) add_blocks(&f.batch, j);
        run(&f, f.target);
        begin(&f.batch);
        add(&f.batch, 0, next_a, 0, a->num_prompt, 0, true);
        run(&f, f.head);
        begin(&f.batch);
        add_draft(&f, a, 0, a->num_prompt);
        add(&f.batch, 1, next_b, 0, b->num_prompt, a->num_prompt, true);
        run(&f, f.head);
        compare_rows(&s, &f, 0, a, a->num_prompt, 1);
        compare_rows(&s, &f, 1, b, 0, b->num_prompt);
        check(heads[i], &s);
        free(next_a);
        free(next_b);
        fixture_close(&f);
    }
}

/* ---- what is refused ---- */

static void test_head_is_no_model(void **state)
{
    (void)state;
    struct model_config config;
    struct error err;
    char folder[512];
    folder_of("eagle3", folder, sizeof folder);
    assert_int_equal(model_config_load(folder, NULL, NULL, &config, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "LlamaForCausalLMEagle3"));
    folder_of("target", folder, sizeof folder);
    must(model_config_load_drafter(folder, NULL, &config, &err), &err);
    assert_int_equal(config.spec.head.kind, HEAD_NONE);
}

static void check_misfit(struct model_config *head, const struct model_config *target, const char *what)
{
    struct error err;
    assert_int_equal(head_fit(&head->spec, &target->spec, &err), STATUS_INVALID);
    if (!strstr(err.text, what)) fail_msg("\"%s\" does not say \"%s\"", err.text, what);
}

static void test_fit(void **state)
{
    (void)state;
    static struct model_config target, head, other;
    struct error err;
    load_configs("eagle3", &target, &head);
    assert_int_equal(head.spec.head.state_layers[0], -1);
    other = target, other.spec.hidden_size = 64;
    check_misfit(&head, &other, "hidden states of 32 elements, but those of the model have 64");
    other = target, other.spec.vocab_size = 161;
    check_misfit(&head, &other, "160 tokens, but that of the model has 161");
    other = target, other.spec.num_layers = 2;
    check_misfit(&head, &other, "layer 2, but the model has 2 layers");
    load_configs("eagle3", &target, &head);
    must(head_fit(&head.spec, &target.spec, &err), &err);
    const int32_t usual[HEAD_MAX_STATES] = {2, 3, 4};
    assert_memory_equal(head.spec.head.state_layers, usual, sizeof usual);
    load_configs("eagle3_layers", &target, &head);
    assert_true(head.spec.head.own_embedding);
    head.spec.head.own_embedding = false;
    check_misfit(&head, &target, "48 elements a token, so it cannot use the embedding of the model, which has 32");
}

static void check_weights(const struct model_spec *spec, const char *what)
{
    struct model_weights weights;
    struct error err;
    char folder[512];
    folder_of("eagle3", folder, sizeof folder);
    assert_int_equal(model_weights_open(folder, spec, NULL, &weights, &err), STATUS_INVALID);
    if (!strstr(err.text, what)) fail_msg("\"%s\" does not say \"%s\"", err.text, what);
}

static void test_ids_of_the_target(void **state)
{
    (void)state;
    static struct model_config target, head;
    load_configs("eagle3", &target, &head);
    struct model_spec *spec = &head.spec;
    spec->vocab_size = 120;
    check_weights(spec, "but the vocabulary has 120 tokens");
    spec->names.target_ids = "t2d";
    check_weights(spec, "no tensor \"t2d\" of 96 elements of type I64");
    spec->names.target_ids = "d3t";
    check_weights(spec, "no tensor \"d3t\" of 96 elements of type I64");
}

static void check_no_mtp(const char *folder, const char *what)
{
    static struct model_config head;
    struct error err;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", QUIRE_TEST_DATA, folder);
    assert_int_equal(model_config_load_mtp(path, NULL, &head, &err), STATUS_UNSUPPORTED);
    if (!strstr(err.text, what)) fail_msg("\"%s\" does not say \"%s\"", err.text, what);
}

static void test_no_next_layers(void **state)
{
    (void)state;
    check_no_mtp("heads/target", "no layers of llama that predict further tokens");
    check_no_mtp("golden/glm4_moe", "num_nextn_predict_layers is 0");
    check_no_mtp("golden/ernie4_5_moe", "num_nextn_predict_layers is 0");
}

/* A config.json that counts, or may count, a layer that the files lack. */
static void test_lost_next_layer(void **state)
{
    (void)state;
    static const char *const folders[] = {QUIRE_TEST_DATA "/golden/qwen3_next", QUIRE_TEST_DATA "/golden/qwen3_5"};
    static struct model_config head;
    struct model_weights weights;
    struct error err;
    for (int i = 0; i < 2; i++) {
        must(model_config_load_mtp(folders[i], NULL, &head, &err), &err);
        assert_int_equal(model_weights_open(folders[i], &head.spec, NULL, &weights, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "no tensor \"mtp.pre_fc_norm_embedding.weight\""));
        assert_non_null(strstr(err.text, "lacks the layer that predicts further tokens"));
    }
}

/* ---- what the files say of the next layer ---- */

/* The config.json of a head's folder with one more key in front. */
static void write_config(const struct temp_folder *folder, const char *name, const char *key)
{
    char from[512], path[640];
    struct text config = {0}, changed = {0};
    struct error err;
    folder_of(name, from, sizeof from);
    snprintf(path, sizeof path, "%s/config.json", from);
    must(file_read(path, &config, &err), &err);
    assert_int_equal(config.data[0], '{');
    assert_true(text_printf(&changed, "{%s,%.*s", key, (int)config.length - 1, config.data + 1));
    temp_folder_write_string(folder, "config.json", changed.data);
    text_free(&config);
    text_free(&changed);
}

/* A program that quantizes the target copies the layer as it is. */
static void test_next_layer_of_floats(void **state)
{
    const struct temp_folder *folder = *state;
    static struct model_config head;
    struct model_weights weights;
    struct error err;
    char from[512];
    folder_of("mtp_qwen3_5", from, sizeof from);
    write_config(folder, "mtp_qwen3_5", "\"quantization_config\":{\"quant_method\":\"fp8\"}");
    must(model_config_load_mtp(folder->path, NULL, &head, &err), &err);
    assert_true(head.spec.num_schemes == 2 && head.spec.layers[0].schemes[TENSOR_Q] == 1); /* without files */
    temp_folder_copy(folder, from, "model.safetensors");
    must(model_config_load_mtp(folder->path, NULL, &head, &err), &err);
    for (int role = 0; role < NUM_TENSOR_ROLES; role++) assert_int_equal(head.spec.layers[0].schemes[role], 0);
    must(model_weights_open(folder->path, &head.spec, NULL, &weights, &err), &err);
    model_weights_close(&weights);
}

/* All experts of the layer are one tensor, or each is three. */
static void test_stacked_experts(void **state)
{
    const struct temp_folder *folder = *state;
    static struct model_config head;
    struct error err;
    char from[512];
    folder_of("mtp_qwen3_5_moe", from, sizeof from);
    must(model_config_load_mtp(from, NULL, &head, &err), &err);
    assert_string_equal(head.spec.names.experts, "mlp.experts");
    temp_folder_copy(folder, from, "config.json");
    temp_folder_write_safetensors(folder, "model.safetensors",
                                  "\"mtp.layers.0.mlp.experts.gate_up_proj\":"
                                  "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}",
                                  "\0\0\0\0", 4);
    must(model_config_load_mtp(folder->path, NULL, &head, &err), &err);
    assert_null(head.spec.names.experts);
    assert_string_equal(head.spec.names.expert_down, "mlp.experts.down_proj");
}

/* What a model would allocate of a workspace. */
static int64_t workspace(struct backend *b, const struct model_spec *spec, const struct model_weights *weights,
                         const struct model_options *options)
{
    int64_t bytes[NUM_PURPOSES];
    struct error err;
    must(model_plan(b, spec, weights, options, bytes, &err), &err);
    return bytes[PURPOSE_WORKSPACE];
}

/* A backend has one workspace: the target's has room for what its drafter computes, whichever is the larger. */
static void test_workspace(void **state)
{
    (void)state;
    static struct model_spec specs[2];
    static struct model_config config;
    struct model_weights weights[2];
    struct backend *b;
    struct error err;
    char folder[512];
    must(backend_open(run_need_device(), 0, &b, &err), &err);
    folder_of("target", folder, sizeof folder);
    must(model_config_load(folder, NULL, NULL, &config, &err), &err);
    specs[0] = config.spec;
    must(model_config_load(QUIRE_GUIDE, NULL, NULL, &config, &err), &err);
    specs[1] = config.spec;
    for (int i = 0; i < 2; i++) must(model_weights_sizes(&specs[i], &weights[i], &err), &err);
    for (int i = 0; i < 2; i++) {
        const int other = 1 - i;
        struct model_options options = {.limits = {.max_num_tokens = 64,
                                                   .max_num_seqs = 8,
                                                   .max_model_len = 256,
                                                   .block_size = BLOCK_SIZE,
                                                   .num_groups = 1}};
        const int64_t alone[2] = {workspace(b, &specs[i], &weights[i], &options),
                                  workspace(b, &specs[other], &weights[other], &options)};
        options.drafter_spec = &specs[other], options.drafter_weights = &weights[other];
        const int64_t both = workspace(b, &specs[i], &weights[i], &options);
        assert_true(alone[0] != alone[1] && both >= alone[0] && both >= alone[1]);
        options.is_drafter = true;
        assert_int_equal(workspace(b, &specs[i], &weights[i], &options), 0);
    }
    for (int i = 0; i < 2; i++) model_weights_close(&weights[i]);
    b->destroy(b);
}

/* Dummy weights have ids that the target has, too. */
static void test_dummy_weights(void **state)
{
    (void)state;
    static struct model_config target, head;
    struct model_weights weights;
    struct error err;
    load_configs("eagle3", &target, &head);
    must(model_weights_dummy(&head.spec, 1, false, &weights, &err), &err);
    const int32_t *ids = weights.target_ids.data;
    for (int32_t i = 0; i < head.spec.head.num_ids; i++) assert_int_equal(ids[i], i);
    assert_null(weights.embedding.data);
    model_weights_close(&weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_logits_of_copied_weights),
        cmocka_unit_test(test_logits_of_ranks),
        cmocka_unit_test(test_mixed_states),
        cmocka_unit_test(test_head_is_no_model),
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_dummy_weights),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_ids_of_the_target),
        cmocka_unit_test(test_no_next_layers),
        cmocka_unit_test(test_lost_next_layer),
        cmocka_unit_test_setup_teardown(test_next_layer_of_floats, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test_setup_teardown(test_stacked_experts, temp_folder_setup, temp_folder_teardown),
    };
    const struct CMUnitTest gpu_tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_logits_of_ranks),
        cmocka_unit_test(test_mixed_states),
        cmocka_unit_test(test_workspace),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    run_set_device("cuda");
    return failed + cmocka_run_group_tests_name("cuda", gpu_tests, NULL, NULL);
}
