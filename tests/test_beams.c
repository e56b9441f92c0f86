/* Answers that are ranked. Beam search with the tiny checkpoints gives transformers' answers and scores
 * (tests/data/beams/models.json, made by tests/scripts/make_beam_model_golden.py), whatever runs beside it and however
 * little memory there is; best_of gives what choosing by hand gives. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/commands.h"
#include "tests/support/run.h"

enum { MAX_CASES = 16, NUM_OTHERS = 6, MAX_REQUESTS = MAX_CASES + NUM_OTHERS };

/* ---- the cases of a checkpoint ---- */

struct cases {
    json_t *root;
    const json_t *json[MAX_CASES];
    struct run_prompt prompts[MAX_REQUESTS]; /* of the cases, then others */
    struct sampling_params params[MAX_REQUESTS];
    int32_t count;
};

static int32_t integer(const json_t *object, const char *key)
{
    return (int32_t)json_integer_value(json_object_get(object, key));
}

static void read_case(const json_t *json, struct run_prompt *prompt, struct sampling_params *p)
{
    const json_t *ids = json_object_get(json, "prompt"), *stop = json_object_get(json, "stop_token_ids");
    const json_t *early = json_object_get(json, "early_stopping");
    int32_t *tokens = calloc(json_array_size(ids), sizeof *tokens);
    for (size_t i = 0; i < json_array_size(ids); i++) tokens[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    *prompt = (struct run_prompt){tokens, (int32_t)json_array_size(ids)};
    *p = sampling_params_default();
    p->n = integer(json, "n");
    p->beam_width = integer(json, "beam_width");
    p->length_penalty = json_number_value(json_object_get(json, "length_penalty"));
    p->early_stopping = json_is_true(early)     ? EARLY_STOPPING_TRUE
                        : json_is_string(early) ? EARLY_STOPPING_NEVER
                                                : EARLY_STOPPING_FALSE;
    p->max_tokens = integer(json, "max_tokens");
    p->min_tokens = integer(json, "min_tokens");
    for (size_t i = 0; i < json_array_size(stop); i++)
        assert_true(sampling_params_add_stop_token_id(p, (int32_t)json_integer_value(json_array_get(stop, i))));
}

/* Other requests: greedy, sampled, several answers, best_of. */
static struct sampling_params other_params(int i)
{
    struct sampling_params p = sampling_params_default();
    p.max_tokens = 30;
    p.ignore_eos = true;
    p.temperature = i % 3 == 0 ? 0 : 1;
    p.has_seed = true;
    p.seed = (uint64_t)i;
    if (i % 3 == 1) p.n = 3;
    if (i % 3 == 2) p.best_of = 4;
    if (i % 3 == 2) p.n = 2;
    return p;
}

static void load(struct cases *c, const char *checkpoint)
{
    json_error_t where;
    size_t i;
    json_t *json;
    *c = (struct cases){.root = json_load_file(QUIRE_TEST_DATA "/beams/models.json", 0, &where)};
    assert_non_null(c->root);
    json_array_foreach(c->root, i, json)
    {
        if (strcmp(json_string_value(json_object_get(json, "checkpoint")), checkpoint) != 0) continue;
        assert_true(c->count < MAX_CASES);
        c->json[c->count] = json;
        read_case(json, &c->prompts[c->count], &c->params[c->count]);
        c->count++;
    }
    assert_int_equal(c->count, 6);
    const int32_t lengths[NUM_OTHERS] = {5, 33, 20, 9, 41, 16};
    struct run_prompt *others = run_random_prompts(lengths, NUM_OTHERS, 300, 5);
    for (int j = 0; j < NUM_OTHERS; j++) c->prompts[c->count + j] = others[j];
    for (int j = 0; j < NUM_OTHERS; j++) c->params[c->count + j] = other_params(j);
    free(others);
}

static void unload(struct cases *c)
{
    for (int32_t i = 0; i < c->count + NUM_OTHERS; i++) {
        free((void *)c->prompts[i].ids);
        sampling_params_free(&c->params[i]);
    }
    json_decref(c->root);
}

/* One answer of a case against transformers'. */
static void check_answer(const json_t *json, size_t place, const struct run_answer *a, const char *what)
{
    const json_t *expected = json_array_get(json_object_get(json, "answers"), place);
    const json_t *stop = json_object_get(json, "stop_token_ids");
    const double score = json_number_value(json_array_get(json_object_get(json, "scores"), place));
    bool stops = false;
    if ((size_t)a->count != json_array_size(expected))
        fail_msg("%s: answer %zu has %d tokens, not %zu", what, place, a->count, json_array_size(expected));
    for (int32_t i = 0; i < a->count; i++)
        if (a->tokens[i] != json_integer_value(json_array_get(expected, (size_t)i)))
            fail_msg("%s: answer %zu differs at token %d", what, place, i);
    if (fabs(a->score - score) > 1e-4 * (1 + fabs(score)))
        fail_msg("%s: answer %zu has the score %.6f, not %.6f", what, place, a->score, score);
    for (size_t i = 0; i < json_array_size(stop); i++)
        stops |= json_integer_value(json_array_get(stop, i)) == a->tokens[a->count - 1];
    assert_int_equal(a->finish, stops ? FINISH_STOP : FINISH_LENGTH);
    assert_int_equal(a->stop_token, stops ? a->tokens[a->count - 1] : -1);
}

static void check_cases(const struct cases *c, const struct run *run, const char *what)
{
    for (int32_t i = 0; i < c->count; i++)
        for (int32_t j = 0; j < c->params[i].n; j++)
            check_answer(c->json[i], (size_t)j, &run->answers[i * run->n + j], what);
}

/* ---- beam search, whatever the path ---- */

struct variant {
    struct run_variant run;
    bool others; /* other requests run beside it */
};

static const struct variant variants[] = {
    {{"alone", 16, 16, 512, 0, false, 0, PREEMPTION_AUTO}, false},
    {{"together", 16, 64, 512, 0, true, 0, PREEMPTION_AUTO}, false},
    {{"two steps in flight", 16, 64, 512, 0, true, 1, PREEMPTION_AUTO}, false},
    {{"beside others", 16, 64, 512, 0, true, 1, PREEMPTION_AUTO}, true},
    {{"small steps", 8, 16, 16, 0, true, 1, PREEMPTION_AUTO}, true},
    {{"swapped", 8, 64, 512, 64, true, 0, PREEMPTION_AUTO}, true},
    {{"swapped, in flight", 8, 64, 512, 64, false, 1, PREEMPTION_SWAP}, true},
    {{"recomputed", 8, 64, 512, 64, true, 0, PREEMPTION_RECOMPUTE}, true},
    {{"recomputed, in flight, small steps", 8, 40, 40, 64, false, 1, PREEMPTION_RECOMPUTE}, true},
};

static struct engine *variant_engine(const char *checkpoint, const struct run_variant *v)
{
    char folder[64];
    snprintf(folder, sizeof folder, "golden/%s", checkpoint);
    return run_variant_engine(folder, 120, v);
}

static void check_preemptions(struct engine *e, const struct run_variant *v)
{
    struct scheduler_stats stats;
    engine_stats(e, &stats);
    if (v->num_blocks == 0) return;
    if (v->preemption_mode == PREEMPTION_RECOMPUTE)
        assert_true(stats.preemptions_recompute > 0 && stats.preemptions_swap == 0);
    else
        assert_true(stats.preemptions_swap > 0 && stats.blocks_swapped_in > 0);
    assert_int_equal(stats.host_blocks_in_use, 0);
}

static void equal_to_transformers(const char *checkpoint)
{
    struct cases c;
    struct run run;
    load(&c, checkpoint);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        struct engine *e = variant_engine(checkpoint, &variants[i].run);
        run_requests(e, c.prompts, c.count + (variants[i].others ? NUM_OTHERS : 0), c.params, &run);
        check_cases(&c, &run, variants[i].run.name);
        check_preemptions(e, &variants[i].run);
        run_free(&run);
        engine_destroy(e);
    }
    unload(&c);
}

static void beams_of_gqa(void **state)
{
    (void)state;
    equal_to_transformers("gqa");
}

static void beams_of_qwen3(void **state)
{
    (void)state;
    equal_to_transformers("qwen3");
}

/* The search ends where the model does: an answer may fill max_model_len. */
static void beams_fill_the_model(void **state)
{
    (void)state;
    struct engine *e = variant_engine("gqa", &variants[0].run);
    const int32_t length = 111;
    struct run_prompt *prompt = run_random_prompts(&length, 1, 300, 3);
    struct sampling_params p = sampling_params_default();
    struct run run;
    p.beam_width = p.n = 4;
    p.max_tokens = -1;
    run_prompts(e, prompt, 1, &p, &run);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(run.answers[i].count, 9);
        assert_int_equal(run.answers[i].finish, FINISH_LENGTH);
        assert_true(i == 0 || run.answers[i].score <= run.answers[i - 1].score);
    }
    run_free(&run);
    run_prompts_free(prompt, 1);
    engine_destroy(e);
}

/* ---- best_of ---- */

/* The cumulative log-probability of an answer's tokens is noted beside it. */
struct noted {
    struct text text, logprobs;
    int32_t tokens[128], count, ranks;
    double sum, score;
    enum finish_reason finish;
    bool has_score;
};

static void note(void *user, const struct answer_piece *piece)
{
    struct noted *a = (struct noted *)user + piece->index;
    if (piece->num_tokens > 0) {
        a->tokens[a->count++] = piece->token_ids[0];
        a->sum += (double)piece->logprob[0];
        a->ranks += piece->rank[0];
        for (int32_t i = 0; i < piece->num_top; i++)
            text_printf(&a->logprobs, "%d %.6f ", piece->top_ids[i], (double)piece->top_logprobs[i]);
    }
    text_append(&a->text, piece->text, piece->text_length);
    if (piece->score) a->score = *piece->score, a->has_score = true;
    if (piece->finish_reason != FINISH_NONE) a->finish = piece->finish_reason;
}

static void run_noted(struct engine *e, const struct run_prompt *prompt, const struct sampling_params *params,
                      struct noted *answers)
{
    const struct engine_request request = {.prompt = prompt->ids,
                                           .prompt_len = prompt->length,
                                           .params = params,
                                           .deliver = note,
                                           .at_start = true,
                                           .user = answers};
    struct error err = {""};
    bool worked;
    assert_int_equal(engine_add(e, &request, NULL, &err), STATUS_OK);
    while (engine_has_work(e))
        if (engine_step(e, &worked, &err) != STATUS_OK) fail_msg("engine_step: %s", err.text);
}

static void assert_same_answer(const struct noted *a, const struct noted *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->count * sizeof *a->tokens);
    assert_string_equal(a->text.data ? a->text.data : "", b->text.data ? b->text.data : "");
    assert_string_equal(a->logprobs.data ? a->logprobs.data : "", b->logprobs.data ? b->logprobs.data : "");
    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->finish, b->finish);
}

/* Seven answers, of which the best three are chosen: by hand, then by best_of. Half of the prompts have a
 * stop text, one of them a space, which a first word loses. */
static void best_of_is_the_best(void **state)
{
    (void)state;
    enum { ALL = 7, BEST = 3 };
    char path[512];
    int32_t lengths[] = {3, 20, 40, 9}, stopped = 0;
    for (int async = 0; async <= 1; async++) {
        struct engine_options o = run_options(QUIRE_GUIDE, path, sizeof path);
        o.skip_tokenizer = false;
        o.max_model_len = 120;
        o.async_scheduling = async;
        o.enable_prefix_caching = false; /* both runs compute the same, to the last bit */
        struct engine *e = run_engine(&o);
        struct run_prompt *prompts = run_random_prompts(lengths, 4, 300, 9);
        for (int i = 0; i < 4; i++) {
            struct noted all[ALL] = {0}, best[BEST] = {0};
            struct sampling_params p = sampling_params_default();
            p.max_tokens = 25;
            p.logprobs = i;
            p.has_seed = true;
            p.seed = (uint64_t)i;
            if (i % 2) assert_true(sampling_params_add_stop(&p, i == 1 ? "e " : " "));
            p.n = ALL;
            run_noted(e, &prompts[i], &p, all);
            p.n = BEST;
            p.best_of = ALL;
            run_noted(e, &prompts[i], &p, best);
            for (int j = 0; j < ALL; j++) {
                int32_t place = 0;
                for (int k = 0; k < ALL; k++) place += all[k].sum > all[j].sum;
                assert_false(all[j].has_score);
                stopped += all[j].finish == FINISH_STOP && all[j].count < 25;
                if (place >= BEST) continue;
                assert_same_answer(&all[j], &best[place]);
                assert_true(best[place].has_score);
                assert_true(fabs(best[place].score - all[j].sum) < 1e-9);
            }
            for (int j = 0; j < ALL; j++) text_free(&all[j].text), text_free(&all[j].logprobs);
            for (int j = 0; j < BEST; j++) text_free(&best[j].text), text_free(&best[j].logprobs);
            sampling_params_free(&p);
        }
        run_prompts_free(prompts, 4);
        engine_destroy(e);
    }
    assert_true(stopped > 4);
}

/* ---- aborts ---- */

struct ending {
    int32_t pieces, tokens, finished;
};

static void count_end(void *user, const struct answer_piece *piece)
{
    struct ending *ending = user;
    ending->pieces++;
    ending->tokens += piece->num_tokens;
    ending->finished += piece->request_finished;
    assert_int_equal(piece->finish_reason, FINISH_ABORT);
    assert_int_equal(piece->output_tokens, 0);
}

/* Aborted after any number of steps, each answer gets one piece, and the blocks are free. */
static void aborts_at_any_step(void **state)
{
    (void)state;
    struct cases c;
    struct error err = {""};
    load(&c, "gqa");
    struct sampling_params beams = sampling_params_default(), best = other_params(2);
    beams.beam_width = 4;
    beams.n = 3;
    beams.max_tokens = best.max_tokens = 60;
    for (int async = 0; async <= 1; async++) {
        struct run_variant v = variants[0].run;
        v.async = async;
        struct engine *e = variant_engine("gqa", &v);
        for (int steps = 0; steps < 25; steps++) {
            struct ending ending[2] = {0};
            uint64_t ids[2];
            bool worked = true;
            for (int i = 0; i < 2; i++) {
                const struct engine_request request = {.prompt = c.prompts[i].ids,
                                                       .prompt_len = c.prompts[i].length,
                                                       .params = i ? &beams : &best,
                                                       .deliver = count_end,
                                                       .user = &ending[i]};
                assert_int_equal(engine_add(e, &request, &ids[i], &err), STATUS_OK);
            }
            for (int i = 0; i < steps; i++) assert_int_equal(engine_step(e, &worked, &err), STATUS_OK);
            engine_abort(e, ids[0]);
            engine_abort(e, ids[1]);
            while (engine_has_work(e)) assert_int_equal(engine_step(e, &worked, &err), STATUS_OK);
            assert_true(ending[0].pieces == best.n && ending[1].pieces == beams.n);
            assert_true(ending[0].finished == 1 && ending[1].finished == 1);
            assert_int_equal(ending[0].tokens + ending[1].tokens, 0);
        }
        struct scheduler_stats stats;
        engine_stats(e, &stats);
        assert_int_equal(stats.blocks_in_use, 0);
        engine_destroy(e);
    }
    unload(&c);
}

/* ---- what is refused ---- */

static void refuse(struct engine *e, const struct sampling_params *p, const char *sentence)
{
    const int32_t prompt[] = {1, 2, 3};
    const struct engine_request request = {.prompt = prompt, .prompt_len = 3, .params = p};
    struct error err = {""};
    assert_int_equal(engine_add(e, &request, NULL, &err), STATUS_INVALID);
    if (!strstr(command_sentence(&err).text, sentence)) fail_msg("'%s' instead of '%s'", err.text, sentence);
}

static void too_wide(void **state)
{
    (void)state;
    struct engine *e = variant_engine("gqa", &variants[0].run); /* 16 sequences at once */
    struct sampling_params p = sampling_params_default();
    p.beam_width = 17;
    refuse(e, &p, "beam_width is 17, but at most 16 sequences run at once: raise --max-num-seqs to 17");
    p.beam_width = 13;
    for (int32_t i = 0; i < 4; i++) assert_true(sampling_params_add_stop_token_id(&p, i));
    refuse(e, &p, "beam_width is 13; it must be at most 12, with 320 ids and 4 stop ids");
    p.stop_token_ids[3] = 0; /* a second time */
    p.beam_width = 16;
    const int32_t length = 3;
    struct run run;
    struct run_prompt *prompt = run_random_prompts(&length, 1, 300, 3);
    run_prompts(e, prompt, 1, &p, &run);
    run_free(&run);
    run_prompts_free(prompt, 1);
    for (int32_t i = 4; i < 36; i++) assert_true(sampling_params_add_stop_token_id(&p, i));
    refuse(e, &p, "with 35 stop ids no beam search is possible");
    sampling_params_free(&p);
    p = sampling_params_default();
    p.best_of = 17;
    refuse(e, &p, "best_of is 17, but at most 16 sequences run at once: raise --max-num-seqs to 17");
    engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beams_of_gqa),         cmocka_unit_test(beams_of_qwen3),
        cmocka_unit_test(beams_fill_the_model), cmocka_unit_test(best_of_is_the_best),
        cmocka_unit_test(aborts_at_any_step),   cmocka_unit_test(too_wide),
    };
    return cmocka_run_group_tests_name("beams", tests, NULL, NULL);
}
