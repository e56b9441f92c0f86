/* Several engines behind one queue (engine_pool.h): the answers of one engine, where requests go, and how a pool ends
 * early. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "runtime/engine/engine_pool.h"
#include "runtime/engine/piece_copy.h"
#include "runtime/engine/prefix_routes.h"
#include "scheduler/sequence.h"
#include "tests/support/generate.h"
#include "tests/support/run.h"

enum { VOCAB = 320, NUM_PROMPTS = 12, BLOCK = 16 };
static const int32_t LENGTHS[NUM_PROMPTS] = {5, 70, 17, 33, 1, 90, 40, 8, 64, 21, 3, 50};

static struct engine_pool *open_pool(const struct engine_options *o)
{
    struct engine_pool *p = NULL;
    struct error err = {""};
    if (engine_pool_create(o, &p, &err) != STATUS_OK) fail_msg("engine_pool_create: %s", err.text);
    return p;
}

static void deliver(void *user, const struct answer_piece *piece)
{
    run_answer_add((struct run_answer *)user + piece->index, piece);
}

static uint64_t add(struct engine_pool *p, const struct run_prompt *prompt, const struct sampling_params *params,
                    struct run_answer *answers)
{
    struct error err = {""};
    uint64_t id = 0;
    const struct engine_request request = {
        .prompt = prompt->ids, .prompt_len = prompt->length, .params = params, .deliver = deliver, .user = answers};
    if (engine_pool_add(p, &request, &id, &err) != STATUS_OK) fail_msg("engine_pool_add: %s", err.text);
    assert_true(id != 0);
    return id;
}

static void step_to_end(struct engine_pool *p)
{
    struct error err = {""};
    bool worked;
    while (engine_pool_has_work(p))
        if (engine_pool_step(p, &worked, &err) != STATUS_OK) fail_msg("engine_pool_step: %s", err.text);
}

static struct run make_run(int32_t num_prompts, int32_t n)
{
    struct run run = {.num_prompts = num_prompts, .n = n};
    run.answers = calloc((size_t)num_prompts * (size_t)n, sizeof *run.answers);
    for (int32_t i = 0; i < num_prompts * n; i++) run_answer_open(&run.answers[i], 256);
    return run;
}

/* ---- the answers ---- */

/* Greedy ones, sampled ones with a seed and without one, several of a prompt, and the best of several. */
static void set_params(struct sampling_params params[NUM_PROMPTS])
{
    for (int32_t i = 0; i < NUM_PROMPTS; i++) {
        struct sampling_params *p = &params[i];
        *p = sampling_params_default();
        p->max_tokens = 12 + i;
        p->ignore_eos = true;
        p->logprobs = 2;
        p->temperature = i % 4 == 0 ? 0 : 1;
        p->has_seed = i % 4 == 1;
        p->seed = 77;
        p->n = i % 4 == 2 ? 3 : 1;
        if (i % 4 == 2) p->best_of = i % 8 == 2 ? 3 : 4;
    }
}

static void run_pool(int size, const struct run_prompt *prompts, const struct sampling_params *params, struct run *out)
{
    char path[512];
    struct engine_options o = run_options("golden/gqa", path, sizeof path);
    struct scheduler_stats stats;
    o.data_parallel_size = size;
    o.seed = 5;
    struct engine_pool *p = open_pool(&o);
    assert_int_equal(engine_pool_size(p), size);
    assert_int_equal(engine_pool_max_num_seqs(p), (int64_t)size * engine_pool_info(p)->limits->max_num_seqs);
    *out = make_run(NUM_PROMPTS, 3);
    for (int32_t i = 0; i < NUM_PROMPTS; i++) add(p, &prompts[i], &params[i], &out->answers[3 * i]);
    step_to_end(p);
    for (int32_t i = 0; i < NUM_PROMPTS; i++)
        for (int32_t j = 0; j < params[i].n; j++) run_answer_check(&out->answers[3 * i + j]);
    engine_pool_stats(p, &stats);
    assert_int_equal(stats.blocks_in_use, 0);
    assert_int_equal(stats.num_running + stats.num_waiting, 0);
    engine_pool_destroy(p);
}

static void test_answers_of_one_engine(void **state)
{
    (void)state;
    struct sampling_params params[NUM_PROMPTS];
    struct run one, several;
    struct run_prompt *prompts = run_random_prompts(LENGTHS, NUM_PROMPTS, VOCAB, 3);
    set_params(params);
    run_pool(1, prompts, params, &one);
    for (int size = 2; size <= 3; size++) {
        run_pool(size, prompts, params, &several);
        for (int32_t i = 0; i < NUM_PROMPTS * 3; i++) {
            assert_int_equal(several.answers[i].count, one.answers[i].count);
            assert_memory_equal(several.answers[i].tokens, one.answers[i].tokens,
                                (size_t)one.answers[i].count * sizeof(int32_t));
            assert_int_equal(several.answers[i].finish, one.answers[i].finish);
        }
        run_free(&several);
    }
    run_free(&one);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* Engines on GPUs of their own, which open at the same time, give the greedy tokens of one, but for near ties: what a
 * step computes beside a sequence changes how its numbers are rounded. */
static void test_answers_on_gpus(void **state)
{
    (void)state;
    struct sampling_params params[NUM_PROMPTS];
    struct run one, several;
    const int32_t most = run_max_ranks();
    struct run_prompt *prompts = run_random_prompts(LENGTHS, NUM_PROMPTS, VOCAB, 3);
    set_params(params);
    for (int32_t i = 0; i < NUM_PROMPTS; i++) params[i].temperature = 0, params[i].n = params[i].best_of = 1;
    run_pool(1, prompts, params, &one);
    for (int32_t size = 2; size <= most; size++) {
        run_pool(size, prompts, params, &several);
        for (int32_t i = 0; i < NUM_PROMPTS; i++) {
            int32_t at;
            assert_int_not_equal(run_answer_match(&one.answers[3 * i], &several.answers[3 * i], &at), RUN_DIFFERENT);
        }
        run_free(&several);
    }
    run_free(&one);
    run_prompts_free(prompts, NUM_PROMPTS);
}

/* Every pointer of a piece leads to a copy with the same contents. */
static void test_piece_copy(void **state)
{
    (void)state;
    const int32_t ids[] = {7, 8, 9}, rank = 2;
    const float logprob = -1.5f, tops[] = {-1, -2};
    const double score = 0.25;
    const struct error error = {"a reason"};
    struct prompt_logprobs prompt = {.num_tokens = 3,
                                     .num_top = 1,
                                     .logprobs = (float[]){1, 2, 3},
                                     .ranks = (int32_t[]){4, 5, 6},
                                     .top_ids = (int32_t[]){7, 8, 9},
                                     .top_logprobs = (float[]){10, 11, 12}};
    const struct answer_piece piece = {.request = 3,
                                       .token_ids = ids,
                                       .num_tokens = 1,
                                       .text = "text",
                                       .text_length = 4,
                                       .logprob = &logprob,
                                       .rank = &rank,
                                       .top_ids = ids,
                                       .top_logprobs = tops,
                                       .num_top = 2,
                                       .prompt_logprobs = &prompt,
                                       .prompt_ids = ids,
                                       .prompt_tokens = 3,
                                       .stop_reason = "stop",
                                       .error = &error,
                                       .score = &score};
    int user;
    struct piece_copy *copy = piece_copy_create(&piece, &user);
    assert_non_null(copy);
    const struct answer_piece *c = &copy->piece;
    assert_ptr_equal(copy->user, &user);
    assert_true(c->token_ids != ids && c->token_ids[0] == 7);
    assert_memory_equal(c->text, "text", 4);
    assert_true(*c->logprob == logprob && *c->rank == 2 && *c->score == score);
    assert_memory_equal(c->top_ids, ids, 2 * sizeof *ids);
    assert_memory_equal(c->top_logprobs, tops, sizeof tops);
    assert_ptr_not_equal(c->prompt_logprobs, &prompt);
    assert_memory_equal(c->prompt_logprobs->logprobs, prompt.logprobs, 3 * sizeof(float));
    assert_memory_equal(c->prompt_logprobs->ranks, prompt.ranks, 3 * sizeof(int32_t));
    assert_memory_equal(c->prompt_logprobs->top_ids, prompt.top_ids, 3 * sizeof(int32_t));
    assert_memory_equal(c->prompt_logprobs->top_logprobs, prompt.top_logprobs, 3 * sizeof(float));
    assert_memory_equal(c->prompt_ids, ids, sizeof ids);
    assert_string_equal(c->stop_reason, "stop");
    assert_string_equal(c->error->text, "a reason");
    free(copy);
}

/* ---- where requests go ---- */

static void test_prefix_routes(void **state)
{
    (void)state;
    int32_t prompt[200], matched[3];
    for (int32_t i = 0; i < 200; i++) prompt[i] = i;
    struct prefix_routes *r = prefix_routes_create(BLOCK);
    assert_non_null(r);
    prefix_routes_note(r, prompt, 150, NULL, 1);
    prefix_routes_find(r, prompt, 200, NULL, 3, matched);
    assert_int_equal(matched[0], 0);
    assert_int_equal(matched[1], 128);
    prompt[100]++; /* the first 64 are the same */
    prefix_routes_find(r, prompt, 200, NULL, 3, matched);
    assert_int_equal(matched[1], 64);
    prefix_routes_note(r, prompt, 65, NULL, 2);
    prefix_routes_find(r, prompt, 200, NULL, 3, matched);
    assert_int_equal(matched[1], 64);
    assert_int_equal(matched[2], 64);
    prefix_routes_find(r, prompt, 64, NULL, 3, matched); /* its last token is computed */
    assert_int_equal(matched[1], 0);
    prefix_routes_find(r, prompt, 200, "salt", 3, matched);
    assert_int_equal(matched[1], 0);
    prefix_routes_clear(r);
    prefix_routes_find(r, prompt, 200, NULL, 3, matched);
    assert_int_equal(matched[1], 0);
    prefix_routes_free(r);
}

/* The number of the engine is the rest of an id: see engine_pool_abort. */
static int engine_of(uint64_t id)
{
    return (int)(id % 2);
}

/* Equal requests take turns; those that begin like an earlier one follow it and find its blocks. */
static void test_routing(void **state)
{
    (void)state;
    char path[512];
    struct engine_options o = run_options("golden/gqa", path, sizeof path);
    o.data_parallel_size = 2;
    const int32_t lengths[] = {100, 100, 10, 10};
    struct run_prompt *prompts = run_random_prompts(lengths, 4, VOCAB, 9);
    struct sampling_params params = sampling_params_default();
    params.max_tokens = 3;
    params.ignore_eos = true;
    struct engine_pool *p = open_pool(&o);
    struct run run = make_run(8, 1);
    assert_int_equal(engine_of(add(p, &prompts[0], &params, &run.answers[0])), 0);
    assert_int_equal(engine_of(add(p, &prompts[1], &params, &run.answers[1])), 1);
    assert_int_equal(engine_of(add(p, &prompts[2], &params, &run.answers[2])), 0);
    assert_int_equal(engine_of(add(p, &prompts[3], &params, &run.answers[3])), 1);
    step_to_end(p);
    for (int i = 4; i < 8; i++) { /* though engine 0 would be as idle, or more */
        assert_int_equal(engine_of(add(p, &prompts[1 - i / 6], &params, &run.answers[i])), 1 - i / 6);
        step_to_end(p);
        assert_true(run.answers[i].cached_tokens >= 64);
    }
    engine_pool_reset_prefix_cache(p);
    assert_int_equal(engine_of(add(p, &prompts[1], &params, &run.answers[0])), 0);
    step_to_end(p);
    assert_int_equal(run.answers[0].cached_tokens, 0);
    engine_pool_destroy(p);
    run_free(&run);
    run_prompts_free(prompts, 4);
}

/* ---- ending early ---- */

static void test_abort(void **state)
{
    (void)state;
    char path[512];
    struct engine_options o = run_options("golden/gqa", path, sizeof path);
    o.data_parallel_size = 3;
    struct run_prompt *prompts = run_random_prompts(LENGTHS, 6, VOCAB, 1);
    struct sampling_params params = sampling_params_default();
    params.max_tokens = 100;
    params.ignore_eos = true;
    struct engine_pool *p = open_pool(&o);
    struct run run = make_run(6, 1);
    uint64_t ids[6];
    for (int i = 0; i < 6; i++) ids[i] = add(p, &prompts[i], &params, &run.answers[i]);
    for (int i = 0; i < 6; i += 2) engine_pool_abort(p, ids[i]);
    step_to_end(p);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(run.answers[i].pieces_after_end, 0);
        if (i % 2) assert_int_equal(run.answers[i].finish, FINISH_LENGTH);
        if (i % 2 == 0) assert_true(run.answers[i].finish == FINISH_ABORT || run.answers[i].count == 100);
    }
    engine_pool_abort(p, ids[0]); /* a finished one is ignored */
    engine_pool_destroy(p);
    run_free(&run);
    run_prompts_free(prompts, 6);
}

/* The flag of a signal handler ends the steps of all engines. */
static void test_cancel(void **state)
{
    (void)state;
    static volatile sig_atomic_t cancel;
    char path[512];
    struct engine_options o = run_options("golden/gqa", path, sizeof path);
    o.data_parallel_size = 2;
    o.cancel = &cancel;
    struct run_prompt *prompts = run_random_prompts(LENGTHS, 4, VOCAB, 1);
    struct sampling_params params = sampling_params_default();
    params.max_tokens = 100;
    params.ignore_eos = true;
    struct engine_pool *p = open_pool(&o);
    struct run run = make_run(4, 1);
    cancel = 1;
    for (int i = 0; i < 4; i++) add(p, &prompts[i], &params, &run.answers[i]);
    step_to_end(p);
    for (int i = 0; i < 4; i++) assert_int_equal(run.answers[i].finish, FINISH_ABORT);
    cancel = 0;
    for (int i = 0; i < 2; i++) add(p, &prompts[i], &params, &run.answers[i]); /* nobody waits for them */
    engine_pool_destroy(p);
    run_free(&run);
    run_prompts_free(prompts, 4);
}

static void copy_model(const struct temp_folder *to)
{
    static const char *const names[] = {"config.json", "model-00001-of-00003.safetensors",
                                        "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
                                        "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        temp_folder_copy(to, QUIRE_TEST_DATA "/golden/gqa", names[i]);
}

/* An engine whose weights are changed under it fails: the sentence names it, and earlier answers are there. */
static void test_failure(void **state)
{
    struct temp_folder *folder = *state;
    char path[512];
    struct engine_options o = run_options(folder->path, path, sizeof path);
    struct error err = {""};
    bool worked;
    enum status status = STATUS_OK;
    copy_model(folder);
    o.data_parallel_size = 2;
    struct run_prompt *prompts = run_random_prompts(LENGTHS, 3, VOCAB, 1);
    struct sampling_params params = sampling_params_default();
    params.max_tokens = 5;
    params.ignore_eos = true;
    struct engine_pool *p = open_pool(&o);
    struct run run = make_run(3, 1);
    add(p, &prompts[0], &params, &run.answers[0]);
    add(p, &prompts[2], &params, &run.answers[1]);
    step_to_end(p);
    run_answer_check(&run.answers[0]);
    run_answer_check(&run.answers[1]);
    assert_true(path_join(path, sizeof path, folder->path, "model-00002-of-00003.safetensors"));
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputc('x', file);
    fclose(file);
    add(p, &prompts[1], &params, &run.answers[2]);
    while (status == STATUS_OK && engine_pool_has_work(p)) status = engine_pool_step(p, &worked, &err);
    assert_int_equal(status, STATUS_IO);
    assert_ptr_equal(strstr(err.text, "engine 1 of 2, on cpu: "), err.text);
    assert_non_null(strstr(err.text, "was changed while"));
    assert_int_equal(engine_pool_step(p, &worked, &err), STATUS_IO); /* it does not wait */
    engine_pool_leave(p);
    run_free(&run);
    run_prompts_free(prompts, 3);
}

/* ---- what is refused ---- */

static void expect_refused(struct engine_options o, const char *expected)
{
    struct error err = {""};
    struct engine_pool *p;
    assert_int_not_equal(engine_pool_create(&o, &p, &err), STATUS_OK);
    assert_null(p);
    if (!strstr(err.text, expected)) fail_msg("'%s' is not in: %s", expected, err.text);
}

static void test_refused(void **state)
{
    (void)state;
    char path[512];
    struct engine_options o = run_options("golden/gqa", path, sizeof path), bad;
    o.data_parallel_size = 2;
    bad = o;
    bad.data_parallel_size = 0;
    expect_refused(bad, "0 engines were asked for");
    bad = o;
    bad.data_parallel_size = ENGINE_POOL_MAX + 1;
    expect_refused(bad, "a process runs at most 64");
    bad = o;
    bad.trace_file = "trace.json";
    expect_refused(bad, "a trace is of one engine");
    bad = o;
    bad.device = "cuda:0,1,2";
    expect_refused(bad, "the device 'cuda:0,1,2' is 3 GPUs, but 2 engines need 2");
    bad = o;
    bad.device = "cuda:3";
    expect_refused(bad, "the device 'cuda:3' is 1 GPU, but 2 engines need 2");
    bad = o;
    bad.device = "cuda:1,1";
    expect_refused(bad, "names GPU 1 twice");
    bad.tensor_parallel_size = 2;
    expect_refused(bad, "the device 'cuda:1,1' is 2 GPUs, but 2 engines need 4");
    bad = o;
    bad.max_model_len = 1 << 24;
    expect_refused(bad, "engine 1 of 2, on cpu: ");
}

/* ---- the command ---- */

static const char INPUT[] = "{\"prompt\": [1, 2, 3], \"n\": 2}\n{\"prompt\": [9]}\n{\"prompt\": [4, 5], "
                            "\"temperature\": 0}\nnot token ids\n{\"prompt\": [7, 7, 7, 7]}\n";

static void test_generate(void **state)
{
    (void)state;
    struct temp_folder model;
    struct program one, two;
    toy_model_make(&model, QUIRE_GUIDE, true);
    const char *const flags[] = {"--max-tokens", "20", "--ordered", "--overwrite", NULL};
    const char *const flags_of_two[] = {"--max-tokens", "20", "--ordered", "--overwrite", "-dp", "2", NULL};
    generate_run(&one, &model, INPUT, flags);
    generate_run(&two, &model, INPUT, flags_of_two);
    assert_int_equal(two.exit_status, one.exit_status);
    assert_int_equal(generate_count_lines(&two.out), 5);
    assert_string_equal(two.out.data, one.out.data);
    assert_null(strstr(one.err.data, "engines"));
    assert_non_null(strstr(two.err.data, " on 2 engines ("));
    program_free(&one);
    program_free(&two);
    temp_folder_remove(&model);
}

/* The first line is answered, then the weights are changed: the command ends, and keeps that answer. */
static void test_generate_failure(void **state)
{
    struct temp_folder *folder = *state;
    struct program p;
    char script[2048];
    copy_model(folder);
    snprintf(script, sizeof script,
             "cd %s && (echo '{\"prompt\": [1, 2, 3]}'; while [ ! -s out ]; do sleep 0.02; done; "
             "echo >>model-00001-of-00003.safetensors; echo '{\"prompt\": [4]}') | %s generate --model . "
             "--skip-tokenizer-init --device cpu --kv-cache-space 0.01 -dp 2 --max-tokens 4 --ignore-eos -q -o out",
             folder->path, QUIRE_EXECUTABLE);
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    program_run(&p, argv, NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "quire generate: engine "));
    assert_non_null(strstr(p.err.data, " of 2, on cpu: "));
    program_free(&p);
    snprintf(script, sizeof script, "cd %s && cat out", folder->path);
    program_run(&p, argv, NULL);
    assert_int_equal(generate_count_lines(&p.out), 1);
    json_decref(generate_line(&p.out, 0));
    program_free(&p);
}

static void test_throughput(void **state)
{
    (void)state;
    struct temp_folder model;
    struct program p;
    toy_model_make(&model, QUIRE_GUIDE, true);
    const char *const argv[] = {QUIRE_EXECUTABLE,
                                "bench",
                                "throughput",
                                "--model",
                                model.path,
                                "--load-format",
                                "dummy",
                                "--device",
                                "cpu",
                                "--kv-cache-space",
                                "0.1",
                                "-dp",
                                "2",
                                "--num-prompts",
                                "6",
                                "--input-len",
                                "8",
                                "--output-len",
                                "4",
                                "--num-iters",
                                "1",
                                "--json",
                                NULL};
    program_run(&p, argv, NULL);
    assert_int_equal(p.exit_status, 0);
    json_t *json = program_json(&p);
    assert_int_equal(json_require_integer(json, "data_parallel_size"), 2);
    assert_int_equal(json_require_integer(json, "total_output_tokens"), 24);
    json_decref(json);
    program_free(&p);
    temp_folder_remove(&model);
}

static void test_commands_of_one_engine(void **state)
{
    (void)state;
    static const struct {
        const char *command, *part, *sentence;
    } cases[] = {{"chat", "hello", "one conversation runs on one engine"},
                 {"inspect", "--json", "quire inspect plans for one engine"},
                 {"profile", "--json", "quire profile reports one engine"},
                 {"bench", "latency", "this benchmark measures one engine"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p;
        const char *const argv[] = {QUIRE_EXECUTABLE, cases[i].command, cases[i].part, "-dp", "2", NULL};
        program_run(&p, argv, NULL);
        assert_int_equal(p.exit_status, 2);
        if (!strstr(p.err.data, cases[i].sentence)) fail_msg("%s: %s", cases[i].command, p.err.data);
        program_free(&p);
    }
}

/* A wake-up or a request that comes before the wait is not lost, and a wake-up also ends the wait of a step. */
static void check_wait(int size)
{
    char path[512];
    struct engine_options o = run_options("golden/gqa", path, sizeof path);
    struct run_prompt *prompts = run_random_prompts(LENGTHS, NUM_PROMPTS, VOCAB, 3);
    struct sampling_params params = sampling_params_default();
    struct run answers = make_run(1, 1);
    o.data_parallel_size = size;
    struct engine_pool *p = open_pool(&o);
    engine_pool_wake(p);
    engine_pool_wake(p);
    engine_pool_wait(p);
    assert_false(engine_pool_has_work(p));
    params.max_tokens = 5;
    params.ignore_eos = true;
    add(p, &prompts[0], &params, answers.answers);
    engine_pool_wait(p); /* there is work, and there is until it is done */
    engine_pool_wait(p);
    struct error err = {""};
    bool worked;
    while (engine_pool_has_work(p)) {
        engine_pool_wake(p);
        if (engine_pool_step(p, &worked, &err) != STATUS_OK) fail_msg("engine_pool_step: %s", err.text);
    }
    run_answer_check(answers.answers);
    assert_int_equal(answers.answers[0].count, 5);
    engine_pool_destroy(p);
    run_free(&answers);
    run_prompts_free(prompts, NUM_PROMPTS);
}

static void test_wait(void **state)
{
    (void)state;
    check_wait(1);
    check_wait(2);
}

/* engine_pool_check refuses with the sentence of engine_pool_add. */
static void test_check(void **state)
{
    (void)state;
    char path[512];
    struct engine_options o = run_options("golden/gqa", path, sizeof path);
    struct sampling_params params = sampling_params_default();
    const int32_t ids[] = {1, 2, VOCAB};
    struct engine_request request = {.prompt = ids, .prompt_len = 3, .params = &params, .deliver = deliver};
    struct error checked = {""}, added = {""};
    o.data_parallel_size = 2;
    struct engine_pool *p = open_pool(&o);
    assert_int_equal(engine_pool_check(p, &request, &checked), STATUS_INVALID);
    assert_int_equal(engine_pool_add(p, &request, NULL, &added), STATUS_INVALID);
    assert_string_equal(checked.text, added.text);
    request.prompt_len = 2;
    assert_int_equal(engine_pool_check(p, &request, &checked), STATUS_OK);
    assert_false(engine_pool_has_work(p));
    engine_pool_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_of_one_engine),
        cmocka_unit_test(test_piece_copy),
        cmocka_unit_test(test_prefix_routes),
        cmocka_unit_test(test_routing),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test_setup_teardown(test_failure, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_generate),
        cmocka_unit_test_setup_teardown(test_generate_failure, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test(test_throughput),
        cmocka_unit_test(test_commands_of_one_engine),
    };
    const struct CMUnitTest gpu_tests[] = {cmocka_unit_test(test_answers_on_gpus)};
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    run_set_device("cuda");
    return failed + cmocka_run_group_tests_name("cuda", gpu_tests, NULL, NULL);
}
