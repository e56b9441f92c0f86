/* prompt_logprobs: the tiny checkpoints give transformers' log-probabilities and ranks
 * (tests/data/prompt_logprobs.json, made by tests/scripts/make_prompt_logprobs_golden.py), however the prompts are cut
 * into steps, whatever the prefix cache has of them, however little memory there is, and whatever kind of answer is
 * wanted beside them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "scheduler/sequence.h"
#include "tests/support/run.h"

enum { MAX_CASES = 8, COPIES = 3, MAX_REQUESTS = COPIES * MAX_CASES, MAX_PROMPT = 128, TOP = 5 };

struct row {
    float logprob, top_logprobs[TOP];
    int32_t rank, top_ids[TOP];
};

/* A prompt, and what transformers says of its tokens; or what the engine delivered. */
struct prompt {
    int32_t ids[MAX_PROMPT], length;
    struct row rows[MAX_PROMPT]; /* [length] rows[0] is unused */
};

struct cases {
    struct prompt prompts[MAX_CASES];
    int32_t count;
};

static int32_t integer_at(const json_t *list, size_t index)
{
    return (int32_t)json_integer_value(json_array_get(list, index));
}

static void read_row(const json_t *json, struct row *row)
{
    row->logprob = (float)json_number_value(json_array_get(json, 0));
    row->rank = integer_at(json, 1);
    for (size_t i = 0; i < TOP; i++) {
        row->top_ids[i] = integer_at(json_array_get(json, 2), i);
        row->top_logprobs[i] = (float)json_number_value(json_array_get(json_array_get(json, 3), i));
    }
}

static struct cases *load(const char *checkpoint)
{
    struct cases *c = calloc(1, sizeof *c);
    json_error_t where;
    json_t *root = json_load_file(QUIRE_TEST_DATA "/prompt_logprobs.json", 0, &where), *json;
    size_t i;
    assert_non_null(root);
    json_array_foreach(root, i, json)
    {
        if (strcmp(json_string_value(json_object_get(json, "checkpoint")), checkpoint) != 0) continue;
        assert_true(c->count < MAX_CASES);
        struct prompt *p = &c->prompts[c->count++];
        const json_t *ids = json_object_get(json, "prompt"), *rows = json_object_get(json, "rows");
        p->length = (int32_t)json_array_size(ids);
        assert_true(p->length <= MAX_PROMPT && (int32_t)json_array_size(rows) == p->length - 1);
        for (size_t t = 0; t < json_array_size(ids); t++) p->ids[t] = integer_at(ids, t);
        for (size_t t = 1; t < json_array_size(ids); t++) read_row(json_array_get(rows, t - 1), &p->rows[t]);
    }
    json_decref(root);
    assert_int_equal(c->count, 5);
    return c;
}

/* ---- requests ---- */

/* What came for one request. */
struct delivered {
    int32_t num_top, times, cached_tokens, answers;
    struct prompt prompt;
    enum finish_reason finish;
    struct error error;
};

static void deliver(void *user, const struct answer_piece *piece)
{
    struct delivered *d = user;
    const struct prompt_logprobs *p = piece->prompt_logprobs;
    if (piece->finish_reason != FINISH_NONE) {
        d->answers++;
        d->finish = piece->finish_reason;
        if (piece->error) d->error = *piece->error;
    }
    if (!p) return;
    assert_int_equal(piece->index, 0);
    assert_int_equal(p->num_tokens, piece->prompt_tokens);
    d->times++;
    d->num_top = p->num_top;
    d->cached_tokens = piece->cached_tokens;
    d->prompt.length = p->num_tokens;
    memcpy(d->prompt.ids, piece->prompt_ids, (size_t)p->num_tokens * sizeof *piece->prompt_ids);
    for (int32_t t = 1; t < p->num_tokens; t++) {
        struct row *row = &d->prompt.rows[t];
        row->logprob = p->logprobs[t];
        row->rank = p->ranks[t];
        memcpy(row->top_ids, p->top_ids + t * p->num_top, (size_t)p->num_top * sizeof *p->top_ids);
        memcpy(row->top_logprobs, p->top_logprobs + t * p->num_top, (size_t)p->num_top * sizeof *p->top_logprobs);
    }
}

/* Request i of a run: answers of every kind, with temperatures and penalties, of which nothing may be seen; every
 * fourth asks for no prompt_logprobs. */
static struct sampling_params params_of(int32_t i)
{
    struct sampling_params p = sampling_params_default();
    p.max_tokens = 1 + i * 5 % 32;
    p.ignore_eos = true;
    p.has_seed = true;
    p.seed = (uint64_t)i;
    p.prompt_logprobs = i % 4 == 3 ? -1 : i % 2 ? 0 : TOP;
    if (i % 5 == 1) p.temperature = 0;
    if (i % 5 == 2) p.n = 3;
    if (i % 5 == 3) p.best_of = 3;
    if (i % 5 == 4) p.beam_width = 3;
    if (i % 5 == 0) p.repetition_penalty = 2, p.min_tokens = 1, p.logprobs = 7;
    return p;
}

static void run_all(struct engine *e, const struct cases *c, struct delivered *out)
{
    struct error err = {""};
    memset(out, 0, MAX_REQUESTS * sizeof *out);
    for (int32_t i = 0; i < COPIES * c->count; i++) {
        const struct sampling_params params = params_of(i);
        const struct prompt *p = &c->prompts[i % c->count];
        const struct engine_request request = {
            .prompt = p->ids, .prompt_len = p->length, .params = &params, .deliver = deliver, .user = &out[i]};
        if (engine_add(e, &request, NULL, &err) != STATUS_OK) fail_msg("engine_add: %s", err.text);
    }
    while (engine_has_work(e)) {
        bool worked;
        if (engine_step(e, &worked, &err) != STATUS_OK) fail_msg("engine_step: %s", err.text);
    }
}

/* ---- comparisons ---- */

static void check_value(const char *what, int32_t i, int32_t t, float value, float expected)
{
    if (!(fabsf(value - expected) < 2e-4f))
        fail_msg("%s: request %d, token %d: log-probability %g, not %g", what, i, t, (double)value, (double)expected);
}

static void check_delivered(const char *what, int32_t i, const struct delivered *d, const struct prompt *expected)
{
    const struct sampling_params p = params_of(i);
    assert_int_equal(d->answers, p.n);
    if (d->finish != FINISH_LENGTH) fail_msg("%s: request %d: %s", what, i, d->error.text);
    assert_int_equal(d->times, p.prompt_logprobs >= 0);
    if (d->times == 0) return;
    assert_int_equal(d->cached_tokens, 0);
    assert_int_equal(d->num_top, p.prompt_logprobs);
    assert_int_equal(d->prompt.length, expected->length);
    assert_memory_equal(d->prompt.ids, expected->ids, (size_t)expected->length * sizeof *expected->ids);
    for (int32_t t = 1; t < expected->length; t++) {
        const struct row *row = &d->prompt.rows[t], *right = &expected->rows[t];
        check_value(what, i, t, row->logprob, right->logprob);
        if (row->rank != right->rank) fail_msg("%s: request %d, token %d: rank %d", what, i, t, row->rank);
        assert_memory_equal(row->top_ids, right->top_ids, (size_t)d->num_top * sizeof *row->top_ids);
        for (int32_t k = 0; k < d->num_top; k++) check_value(what, i, t, row->top_logprobs[k], right->top_logprobs[k]);
    }
}

static void check_all(const char *what, const struct cases *c, const struct delivered *all)
{
    for (int32_t i = 0; i < COPIES * c->count; i++) check_delivered(what, i, &all[i], &c->prompts[i % c->count]);
}

/* ---- tests ---- */

static const struct run_variant variants[] = {
    {"whole prompts", 16, 16, 512, 0, false, 0, PREEMPTION_AUTO},
    {"two steps in flight", 16, 16, 512, 0, true, 1, PREEMPTION_AUTO},
    {"chunks of 5", 8, 5, 5, 0, false, 0, PREEMPTION_AUTO},
    {"chunks of 17", 16, 8, 17, 0, true, 1, PREEMPTION_AUTO},
    {"few rows of logits", 16, 3, 64, 0, true, 0, PREEMPTION_AUTO},
    {"little memory", 8, 8, 40, 20, true, 0, PREEMPTION_RECOMPUTE},
    {"little memory, swapping", 8, 8, 24, 20, true, 1, PREEMPTION_SWAP},
    {"little memory, no cache", 8, 8, 24, 20, false, 1, PREEMPTION_AUTO},
};

static void test_transformers(void **state)
{
    (void)state;
    run_need_device();
    static const char *const names[] = {"gqa", "qwen3", "gemma2", "gemma3", "phi3"};
    struct delivered *all = calloc(MAX_REQUESTS, sizeof *all);
    int64_t preemptions = 0, hits = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[64], what[128];
        struct cases *c = load(names[i]);
        snprintf(folder, sizeof folder, "golden/%s", names[i]);
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            struct run_variant variant = variants[v];
            if (i == 2 || i == 3) variant.num_blocks += variant.num_blocks * 3 / 5; /* these have two KV cache groups */
            struct engine *e = run_variant_engine(folder, 110, &variant);
            struct scheduler_stats stats;
            for (int round = 0; round < 2; round++) { /* the prefix cache has the prompts in the second */
                run_all(e, c, all);
                snprintf(what, sizeof what, "%s, %s", names[i], variants[v].name);
                check_all(what, c, all);
            }
            engine_stats(e, &stats);
            assert_int_equal(stats.blocks_in_use, 0);
            preemptions += stats.preemptions_recompute + stats.preemptions_swap;
            hits += stats.prefix_hits;
            engine_destroy(e);
        }
        free(c);
    }
    free(all);
    assert_true(preemptions > 20);
    assert_true(hits > 500); /* of the requests that do not ask */
}

/* The blocks of a prompt that was computed whole are found by later requests; one that asks finds none. */
static void test_prefix_cache(void **state)
{
    (void)state;
    run_need_device();
    const struct run_variant v = {"", 16, 8, 512, 0, true, 0, PREEMPTION_AUTO};
    struct cases *c = load("qwen3");
    struct engine *e = run_variant_engine("golden/qwen3", 110, &v);
    const struct run_prompt prompt = {c->prompts[4].ids, c->prompts[4].length};
    struct sampling_params params = sampling_params_default();
    params.max_tokens = 2;
    for (int i = 0; i < 4; i++) {
        struct run run;
        params.prompt_logprobs = i % 2 ? -1 : 0;
        run_prompts(e, &prompt, 1, &params, &run);
        assert_int_equal(run.answers[0].cached_tokens, i % 2 ? 64 : 0);
        run_free(&run);
    }
    engine_destroy(e);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformers),
        cmocka_unit_test(test_prefix_cache),
    };
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    run_set_device("cuda");
    return failed + cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
