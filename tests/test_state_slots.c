/* State slots of a model with recurrent layers, through the engine: how many there are, and what chats, prompts with a
 * common beginning and long prompts compute. test_states.c has the scheduler's part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "runtime/engine/loaded_model_state.h"
#include "runtime/prompts/prompt.h"
#include "scheduler/state_pool.h"
#include "tests/support/program.h"
#include "tests/support/run.h"
#include "tests/support/toy_model.h"

#define BLOCK 16

static struct engine_options options_for(const struct temp_folder *folder)
{
    static char path[4096];
    struct engine_options o = run_options(folder->path, path, sizeof path);
    o.load_format = LOAD_FORMAT_DUMMY;
    o.max_num_seqs = 16;
    o.max_num_batched_tokens = 512;
    o.max_model_len = 4096;
    o.num_gpu_blocks_override = 600;
    return o;
}

static int64_t tokens_computed(struct engine *e)
{
    struct scheduler_stats stats;
    engine_stats(e, &stats);
    return stats.tokens;
}

/* ---- chats whose template rewrites earlier turns ---- */

/* The template begins an answer with an empty thought, which it leaves out of earlier turns. */
static const char SETTINGS[] = "\"temperature\": 0, \"ignore_eos\": true, \"max_tokens\": 8, "
                               "\"chat_template_kwargs\": {\"enable_thinking\": false}";

static void read_template(struct chat_setup_options *out)
{
    struct error err;
    *out = (struct chat_setup_options){.file = QUIRE_TEST_DATA "/templates/qwen3.jinja"};
    if (file_read(out->file, &out->source, &err) != STATUS_OK) fail_msg("%s", err.text);
}

static void keep_text(void *user, const struct answer_piece *piece)
{
    if (piece->finish_reason == FINISH_ERROR) abort();
    if (!text_append(user, piece->text, piece->text_length)) abort();
}

/* Asks and answers one question. Returns how many tokens that computed; *length and *lasting get those of the prompt.
 */
static int64_t take_turn(struct engine *e, const struct prompt_rules *rules, json_t *messages, int turn, bool say,
                         size_t *length, size_t *lasting)
{
    struct prompt prompt;
    struct engine_request request;
    struct error err;
    struct text line = {0}, answer = {0};
    char question[64];
    bool worked;
    const int64_t before = tokens_computed(e);
    snprintf(question, sizeof question, "Question %d of many about blocks?", turn * turn);
    json_array_append_new(messages, chat_message("user", question, strlen(question)));
    char *list = json_dumps(messages, 0);
    assert_true(text_printf(&line, "{\"messages\": %s, %s}", list, SETTINGS));
    if (prompt_parse(rules, line.data, line.length, &prompt, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(prompt_request(&prompt, &request, &err), STATUS_OK);
    if (!say) request.num_lasting = 0;
    request.deliver = keep_text;
    request.user = &answer;
    if (engine_add(e, &request, NULL, &err) != STATUS_OK) fail_msg("%s", err.text);
    while (engine_has_work(e)) assert_int_equal(engine_step(e, &worked, &err), STATUS_OK);
    *length = prompt.tokens.count;
    *lasting = prompt.num_lasting;
    json_array_append_new(messages, chat_message("assistant", answer.data, answer.length));
    free(list);
    prompt_free(&prompt);
    text_free(&line);
    text_free(&answer);
    return tokens_computed(e) - before;
}

/* Each turn computes the tokens that are new and less than a block. `say`: the engine is told how many stay. Returns
 * the tokens of all turns. */
static int64_t run_chat(const struct temp_folder *folder, bool say)
{
    enum { TURNS = 20, ANSWER = 8 };
    struct engine_options o = options_for(folder);
    struct prompt_rules rules;
    struct chat_setup_options template;
    struct error err;
    const struct sampling_params sampling = sampling_params_default();
    size_t length = 0, lasting = 0;
    int64_t all = 0;
    o.skip_tokenizer = false;
    o.max_num_seqs = 1;
    struct engine *e = run_engine(&o);
    read_template(&template);
    const struct prompt_options options = {.format = "jsonl", .sampling = &sampling, .template = &template};
    if (prompt_rules_make(engine_info(e), &options, &rules, &err) != STATUS_OK) fail_msg("%s", err.text);
    json_t *messages = json_array();
    for (int turn = 0; turn < TURNS; turn++) {
        const size_t known = lasting;
        const int64_t computed = take_turn(e, &rules, messages, turn, say, &length, &lasting);
        const int64_t fresh = (int64_t)(length - known) + ANSWER - 1; /* nobody computes the last token of an answer */
        assert_in_range(lasting, known + 1, length - BLOCK); /* an empty thought has more tokens than a block */
        if (say) assert_true(computed < fresh + BLOCK);
        all += computed;
    }
    json_decref(messages);
    text_free(&template.source);
    prompt_rules_free(&rules);
    engine_destroy(e);
    return all;
}

static void test_a_chat_with_a_template_that_rewrites(void **state)
{
    const int64_t told = run_chat(*state, true), untold = run_chat(*state, false);
    print_message("20 turns compute %lld tokens; %lld if the boundary is not told\n", (long long)told,
                  (long long)untold);
    assert_true(told < untold);
}

/* ---- prompts that begin alike ---- */

enum { COMMON = 300, OWN = 20, NUM_PROMPTS = 100 };

static void test_prompts_that_arrive_together(void **state)
{
    struct sampling_params params = sampling_params_default();
    params.max_tokens = 1;
    params.temperature = 0;
    static int32_t ids[NUM_PROMPTS][COMMON + OWN];
    struct run_prompt prompts[NUM_PROMPTS];
    struct random r = {5};
    for (int i = 0; i < NUM_PROMPTS; i++) {
        for (int t = 0; t < COMMON + OWN; t++)
            ids[i][t] = i > 0 && t < COMMON ? ids[0][t] : (int32_t)(random_bits(&r) % 200);
        ids[i][COMMON] = i;
        prompts[i] = (struct run_prompt){ids[i], COMMON + OWN};
    }
    for (int async = 0; async < 2; async++) {
        struct engine_options o = options_for(*state);
        struct run run;
        o.async_scheduling = async;
        struct engine *e = run_engine(&o);
        run_prompts(e, prompts, NUM_PROMPTS, &params, &run);
        const int64_t whole = COMMON - COMMON % BLOCK;
        assert_int_equal(tokens_computed(e), 2 * whole + NUM_PROMPTS * (COMMON + OWN - whole));
        run_free(&run);
        engine_destroy(e);
    }
}

static void test_a_long_prompt_leaves_snapshots(void **state)
{
    static const struct {
        int32_t interval, found; /* of 600 tokens that the second prompt has in common with the first */
    } cases[] = {{128, 512}, {100, 560}, {8192, 0}, {0, 0}};
    struct sampling_params params = sampling_params_default();
    params.max_tokens = 1;
    static int32_t ids[2][1000];
    struct random r = {6};
    for (int t = 0; t < 1000; t++) ids[0][t] = ids[1][t] = (int32_t)(random_bits(&r) % 200);
    for (int t = 600; t < 1000; t++) ids[1][t] = (ids[0][t] + 1) % 200;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine_options o = options_for(*state);
        o.state_interval = cases[i].interval;
        struct engine *e = run_engine(&o);
        for (int p = 0; p < 2; p++) {
            struct run run;
            run_prompts(e, &(struct run_prompt){ids[p], 1000}, 1, &params, &run);
            assert_int_equal(run.answers[0].cached_tokens, p == 0 ? 0 : cases[i].found);
            run_free(&run);
        }
        engine_destroy(e);
    }
}

/* ---- how many there are ---- */

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* Qwen3.5-9B's layers of attention and states, with small MLPs. */
static const char LARGE[] =
    "{\"architectures\": [\"Qwen3_5ForCausalLM\"], \"model_type\": \"qwen3_5_text\", \"hidden_size\": 1024, "
    "\"intermediate_size\": 1024, \"num_hidden_layers\": 32, \"num_attention_heads\": 16, \"num_key_value_heads\": 4, "
    "\"head_dim\": 256, \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 128, \"linear_value_head_dim\": 128, "
    "\"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32, \"vocab_size\": 1000, \"rms_norm_eps\": 1e-6, "
    "\"max_position_embeddings\": 32768, \"dtype\": \"bfloat16\", \"rope_parameters\": {\"rope_type\": \"default\", "
    "\"rope_theta\": 10000000, \"partial_rotary_factor\": 0.25}}";

/* On a GPU that has so many GiB and nothing on it: a backend of the CPU that says so. */
static enum status plan(const struct engine_options *o, struct loaded_model *l, double gib, struct error *err)
{
    static struct loaded_model device;
    device.profile = (struct memory_profile){.total = (int64_t)(gib * GIB), .available = (int64_t)(gib * GIB)};
    l->backend->discrete = true;
    l->before = &device;
    l->lowered_for_states = false;
    const enum status status = loaded_model_plan(o, l, false, err);
    l->before = NULL;
    return status;
}

static void test_slots_leave_room_for_blocks(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct loaded_model *l;
    struct error err;
    temp_folder_make(&folder);
    temp_folder_write_string(&folder, "config.json", LARGE);
    struct engine_options o = options_for(&folder);
    o.max_num_seqs = o.max_model_len = o.num_gpu_blocks_override = 0;
    o.gpu_memory_utilization = 0.9;
    if (loaded_model_describe(&o, &l, &err, &err) != STATUS_OK) fail_msg("%s", err.text);
    const struct memory_profile *p = &l->profile;
    assert_int_equal(plan(&o, l, 80, &err), STATUS_OK); /* 256 sequences take 25.2 GiB */
    assert_int_equal(l->limits.max_num_seqs, 256);
    assert_false(l->lowered_for_states);
    assert_int_equal(p->num_state_slots - p->num_snapshot_slots, 2 * 256 + 1);
    assert_true(memory_profile_sequence_slots(p) < memory_profile_cache_budget(p));
    /* a snapshot for each 4096 tokens of blocks, 64 KiB each */
    assert_int_equal(p->num_snapshot_slots, memory_profile_cache_budget(p) / ((256 << 20) + p->slot_bytes));
    assert_int_equal(plan(&o, l, 24, &err), STATUS_OK);
    assert_true(l->lowered_for_states && l->limits.max_num_seqs % 8 == 0);
    const int32_t fewer = l->limits.max_num_seqs;
    assert_in_range(fewer, 64, 128);
    assert_true(memory_profile_sequence_slots(p) <= memory_profile_cache_budget(p));
    o.max_num_seqs = fewer + 16; /* is kept */
    assert_int_equal(plan(&o, l, 24, &err), STATUS_OK);
    assert_int_equal(l->limits.max_num_seqs, fewer + 16);
    o.enable_prefix_caching = false;
    assert_int_equal(plan(&o, l, 24, &err), STATUS_OK);
    assert_int_equal(p->num_snapshot_slots, 0);
    o.max_num_seqs = 256; /* is refused */
    assert_int_equal(plan(&o, l, 24, &err), STATUS_OUT_OF_MEMORY);
    assert_non_null(strstr(err.text, "the states of 256 sequences (25.17 GiB)"));
    assert_string_equal(err.advice[0].setting, "max_num_seqs");
    loaded_model_close(l);
    temp_folder_remove(&folder);
}

/* ---- flags ---- */

static void test_flags(void **state)
{
    const struct temp_folder *folder = *state;
    static const struct {
        const char *flag, *value;
        int exit_status;
        const char *says; /* on standard error */
    } cases[] = {
        {"--mamba-ssm-cache-dtype", "auto", 0, ""},
        {"--mamba_ssm_cache_dtype", "float32", 0, ""},
        {"--mamba-ssm-cache-dtype", "bfloat16", 2, "expected auto|float32, got 'bfloat16': the states of recurrent"},
        {"--state-interval", "512", 0, ""},
        {"--state-interval", "1000", 0,
         "snapshots of states are 1008 tokens apart, because 1000 are not a multiple of 16, a block"},
        {"--state-interval", "-1", 2, "--state-interval"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p;
        const char *argv[] = {QUIRE_EXECUTABLE,
                              "generate",
                              "--model",
                              folder->path,
                              "--device",
                              "cpu",
                              "--load-format",
                              "dummy",
                              "--max-model-len",
                              "512",
                              "--num-gpu-blocks-override",
                              "64",
                              "--max-num-seqs",
                              "2",
                              "--max-tokens",
                              "2",
                              cases[i].flag,
                              cases[i].value,
                              "hello",
                              NULL};
        program_run(&p, argv, NULL);
        if (p.exit_status != cases[i].exit_status || !strstr(p.err.data ? p.err.data : "", cases[i].says))
            fail_msg("%s %s: %d, %s", cases[i].flag, cases[i].value, p.exit_status, p.err.data);
        program_free(&p);
    }
}

/* ---- reports ---- */

/* What quire profile says of four prompts that begin alike; `format` is --json or --plot. */
static void profile(struct program *p, const struct temp_folder *folder, const char *format, const char *picture)
{
    struct text lines = {0};
    for (int i = 0; i < 4; i++)
        assert_true(
            text_printf(&lines,
                        "{\"prompt\": \"The quire of many pages is a stack of blocks, and each is a page of its "
                        "own: %d\", \"max_tokens\": 20, \"ignore_eos\": true}\n",
                        i));
    const char *argv[] = {QUIRE_EXECUTABLE,
                          "profile",
                          "--model",
                          folder->path,
                          "--device",
                          "cpu",
                          "-i",
                          "-",
                          format,
                          "--load-format",
                          "dummy",
                          "--png",
                          picture,
                          "--threads",
                          "1",
                          "--max-model-len",
                          "256",
                          "--max-num-seqs",
                          "4",
                          "--num-gpu-blocks-override",
                          "100",
                          NULL};
    setenv("LSAN_OPTIONS", "detect_leaks=0", 1); /* fontconfig, with which cairo writes text, keeps its memory */
    program_run(p, argv, lines.data);
    unsetenv("LSAN_OPTIONS");
    if (p->exit_status != 0) fail_msg("%s", p->err.data);
    text_free(&lines);
}

static void check_steps(const json_t *json)
{
    const int64_t slots = json_require_integer(json, "num_state_slots");
    const json_t *steps = json_object_get(json, "steps"), *summary = json_object_get(json, "summary");
    int64_t most = 0;
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *step = json_array_get(steps, i);
        const int64_t used = json_require_integer(step, "state_slots_in_use");
        assert_true(used + json_require_integer(step, "state_slots_cached") <= slots);
        most = used > most ? used : most;
    }
    assert_in_range(most, 4, slots);
    assert_int_equal(json_require_integer(summary, "peak_state_slots"), most);
    assert_true(json_require_integer(summary, "snapshots_made") > 0);
    assert_int_equal(slots - json_require_integer(json, "num_snapshot_slots"), 2 * 4 + 1);
    assert_int_equal(json_require_integer(json, "state_slots_memory"),
                     (slots + 1) * json_require_integer(json, "state_slot_bytes"));
}

static void test_profile_shows_slots(void **state)
{
    struct temp_folder out;
    struct program p;
    struct text png = {0};
    struct error err;
    char path[4200];
    temp_folder_make(&out);
    snprintf(path, sizeof path, "%s/run.png", out.path);
    profile(&p, *state, "--json", path);
    json_t *json = program_json(&p);
    check_steps(json);
    if (file_read(path, &png, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_true(png.length > 10000);
    json_decref(json);
    program_free(&p);
    profile(&p, *state, "--plot", path);
    assert_non_null(strstr(p.out.data, "\n  state slots "));
    assert_non_null(strstr(p.out.data, " 9 for 4 sequences, "));
    assert_non_null(strstr(p.out.data, "\n    slots  "));
    assert_non_null(strstr(p.out.data, " snapshots that none of them reads\n"));
    program_free(&p);
    text_free(&png);
    temp_folder_remove(&out);
}

static void test_inspect_says_what_a_sequence_takes(void **state)
{
    const struct temp_folder *folder = *state;
    struct program p;
    const char *argv[] = {QUIRE_EXECUTABLE, "inspect", "--model",         folder->path, "--device", "cpu",
                          "--load-format",  "dummy",   "--max-model-len", "5000",       "--json",   NULL};
    program_run(&p, argv, NULL);
    json_t *json = program_json(&p);
    const json_t *memory = json_object_get(json, "memory");
    const json_t *requests = json_object_get(memory, "requests_by_length");
    static const int32_t lengths[] = {1024, 4096, 5000};
    assert_int_equal(json_array_size(requests), 3);
    for (int i = 0; i < 3; i++) {
        const json_t *row = json_array_get(requests, (size_t)i);
        const int64_t blocks = (lengths[i] + BLOCK - 1) / BLOCK, all = json_require_integer(memory, "num_gpu_blocks");
        const int64_t most = json_require_integer(row, "max_requests");
        assert_int_equal(json_require_integer(row, "num_tokens"), lengths[i]);
        assert_true(most == json_require_integer(memory, "max_num_seqs") || (most + 1) * blocks > all - all / 100);
    }
    /* 4 heads of 16 x 16, and 3 tokens of 2 * 2 * 16 + 4 * 16 channels */
    assert_int_equal(json_require_integer(json, "state_bytes_per_sequence"), (4 * 16 * 16 + 3 * 128) * 4);
    json_decref(json);
    program_free(&p);
}

static int set_up(void **state)
{
    static struct temp_folder folder;
    toy_model_make_recurrent(&folder, QUIRE_GUIDE);
    *state = &folder;
    return 0;
}

static int tear_down(void **state)
{
    temp_folder_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_chat_with_a_template_that_rewrites),
        cmocka_unit_test(test_prompts_that_arrive_together),
        cmocka_unit_test(test_a_long_prompt_leaves_snapshots),
        cmocka_unit_test(test_slots_leave_room_for_blocks),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_profile_shows_slots),
        cmocka_unit_test(test_inspect_says_what_a_sequence_takes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
