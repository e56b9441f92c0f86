/* Beam search against transformers: tests/data/beams/cases.json, made by tests/scripts/make_beam_golden.py with a toy
 * model, which toy_logit computes here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "scheduler/beam_search.h"

enum { MAX_VOCAB = 100, MAX_WIDTH = 8, MAX_CANDIDATES = 5 * MAX_WIDTH, MAX_TOKENS = 40, MAX_IDS = 8 };

static double toy_logit(uint32_t seed, uint32_t before, uint32_t last, uint32_t token)
{
    uint32_t h = seed * 2654435761u + before * 40503u + last * 2246822519u + token * 3266489917u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    h *= 3266489917u;
    h ^= h >> 16;
    return h % 65536 / 65536.0 * 6;
}

/* One case, and the beams' outputs, which the scheduler keeps otherwise. */
struct search {
    const json_t *expected;
    struct beam_search_params params;
    int32_t stop_ids[MAX_IDS], prompt[2], vocab_size;
    uint32_t seed;
    int32_t outputs[MAX_WIDTH][MAX_TOKENS], length;
    int32_t ids[MAX_WIDTH][MAX_CANDIDATES];
    float logprobs[MAX_WIDTH][MAX_CANDIDATES];
};

static int32_t integer(const json_t *object, const char *key)
{
    return (int32_t)json_integer_value(json_object_get(object, key));
}

static int32_t read_ids(const json_t *list, int32_t *ids)
{
    for (size_t i = 0; i < json_array_size(list); i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return (int32_t)json_array_size(list);
}

static void read_case(struct search *s, const json_t *json)
{
    const json_t *early = json_object_get(json, "early_stopping");
    *s = (struct search){.expected = json, .vocab_size = integer(json, "vocab_size")};
    s->seed = (uint32_t)integer(json, "seed");
    read_ids(json_object_get(json, "prompt"), s->prompt);
    s->params = (struct beam_search_params){
        .width = integer(json, "width"),
        .length_penalty = json_number_value(json_object_get(json, "length_penalty")),
        .early_stopping = json_is_true(early)     ? EARLY_STOPPING_TRUE
                          : json_is_string(early) ? EARLY_STOPPING_NEVER
                                                  : EARLY_STOPPING_FALSE,
        .min_tokens = integer(json, "min_tokens"),
        .max_tokens = integer(json, "max_tokens"),
        .num_stop_ids = read_ids(json_object_get(json, "stop_ids"), s->stop_ids),
        .stop_ids = s->stop_ids,
    };
}

/* What a step of the model gives for one beam: its most probable tokens. */
static void run_beam(struct search *s, int32_t beam, int32_t count)
{
    const int32_t *output = s->outputs[beam], n = s->length;
    const int32_t last = n > 0 ? output[n - 1] : s->prompt[1], before = n > 1 ? output[n - 2] : s->prompt[n];
    double logits[MAX_VOCAB], sum = 0;
    for (int32_t t = 0; t < s->vocab_size; t++) {
        logits[t] = toy_logit(s->seed, (uint32_t)before, (uint32_t)last, (uint32_t)t);
        sum += exp(logits[t]);
    }
    for (int32_t i = 0; i < count; i++) {
        int32_t best = 0;
        for (int32_t t = 1; t < s->vocab_size; t++)
            if (logits[t] > logits[best]) best = t;
        s->ids[beam][i] = best;
        s->logprobs[beam][i] = (float)(logits[best] - log(sum));
        logits[best] = -INFINITY;
    }
}

static bool step(struct search *s, struct beam_search *b)
{
    struct beam_samples samples[MAX_WIDTH];
    struct beam beams[MAX_WIDTH];
    int32_t old[MAX_WIDTH][MAX_TOKENS];
    for (int32_t i = 0; i < s->params.width; i++) {
        run_beam(s, i, beam_search_num_candidates(s->params.width, s->params.num_stop_ids));
        samples[i] = (struct beam_samples){s->outputs[i], s->ids[i], s->logprobs[i]};
    }
    if (!beam_search_step(b, samples, beams)) return false;
    memcpy(old, s->outputs, sizeof old);
    for (int32_t i = 0; i < s->params.width; i++) {
        memcpy(s->outputs[i], old[beams[i].parent], sizeof old[0]);
        s->outputs[i][s->length] = beams[i].token;
    }
    s->length++;
    return true;
}

static void check_answers(const struct search *s, const struct beam_search *b)
{
    const json_t *answers = json_object_get(s->expected, "answers"), *scores = json_object_get(s->expected, "scores");
    int32_t count;
    const struct hypothesis *found = beam_search_finished(b, &count);
    assert_int_equal(count, json_array_size(answers));
    for (int32_t i = 0; i < count; i++) {
        int32_t expected[MAX_TOKENS];
        assert_int_equal(found[i].num_tokens, read_ids(json_array_get(answers, (size_t)i), expected));
        assert_memory_equal(found[i].tokens, expected, (size_t)found[i].num_tokens * sizeof *expected);
        assert_float_equal(found[i].score, json_number_value(json_array_get(scores, (size_t)i)), 2e-4);
    }
}

static void test_answers_are_those_of_transformers(void **state)
{
    json_error_t where;
    json_t *cases = json_load_file(QUIRE_TEST_DATA "/beams/cases.json", 0, &where);
    (void)state;
    assert_true(json_array_size(cases) >= 200);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        struct search s;
        struct beam_search *b;
        struct error err;
        read_case(&s, json_array_get(cases, i));
        assert_int_equal(beam_search_create(&s.params, &b, &err), STATUS_OK);
        while (step(&s, b)) continue;
        check_answers(&s, b);
        beam_search_destroy(b);
    }
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers_are_those_of_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
