/* quire profile as a person runs it: the report adds up, and step by step every block is accounted for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/file.h"
#include "runtime/profile/picture.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

/* 2 layers, 2 heads of K and V, head size 16, float32: a block of 16 tokens has 2 * 2 * 16 * 2 * 16 * 4 bytes. */
static const char *const CONFIG =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64,"
    " \"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
    " \"vocab_size\": 256, \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0,"
    " \"tie_word_embeddings\": false, \"hidden_act\": \"silu\", \"torch_dtype\": \"float32\", \"bos_token_id\": 1,"
    " \"eos_token_id\": 2}";
enum { BLOCK_BYTES = 2 * 2 * 16 * 2 * 16 * 4, MAX_ARGUMENTS = 32 };

static int make_folder(void **state)
{
    static struct temp_folder folder;
    temp_folder_make(&folder);
    temp_folder_write_string(&folder, "config.json", CONFIG);
    *state = &folder;
    return 0;
}

static int remove_folder(void **state)
{
    temp_folder_remove(*state);
    return 0;
}

/* Runs quire profile on the tiny model with the given arguments, which end with NULL, added. */
static void profile(struct program *p, const struct temp_folder *folder, const char *input, ...)
{
    const char *argv[MAX_ARGUMENTS] = {QUIRE_EXECUTABLE,
                                       "profile",
                                       "--model",
                                       folder->path,
                                       "--load-format",
                                       "dummy",
                                       "--device",
                                       "cpu",
                                       "--threads",
                                       "1",
                                       "--max-num-seqs",
                                       "8",
                                       "--max-num-batched-tokens",
                                       "64"};
    int count = 14;
    va_list args;
    va_start(args, input);
    const char *word;
    while ((word = va_arg(args, const char *)) != NULL && count < MAX_ARGUMENTS - 1) argv[count++] = word;
    va_end(args);
    program_run(p, argv, input);
}

static void report_is_a_sum(void **state)
{
    struct program p;
    profile(&p, *state, NULL, "--json", NULL);
    json_t *json = program_json(&p);
    assert_int_equal(json_require_integer(json, "budget_memory"),
                     json_require_integer(json, "weights_memory") + json_require_integer(json, "activation_memory") +
                         json_require_integer(json, "workspace_memory") + json_require_integer(json, "state_memory") +
                         json_require_integer(json, "kv_cache_memory"));
    assert_int_equal(json_require_integer(json, "graph_memory"), 0);
    assert_int_equal(json_require_integer(json, "pinned_host_memory"), 0);
    assert_null(json_object_get(json, "device_memory_in_use")); /* only a GPU counts for itself */
    assert_int_equal(json_require_integer(json, "block_bytes"), BLOCK_BYTES);
    assert_int_equal(json_require_integer(json, "kv_cache_memory"),
                     json_require_integer(json, "num_gpu_blocks") * BLOCK_BYTES);
    assert_int_equal(json_require_integer(json, "kv_cache_tokens"), json_require_integer(json, "num_gpu_blocks") * 16);
    assert_int_equal(json_require_integer(json, "max_model_len"), 512);
    json_t *groups = json_pack("[{s:i, s:n, s:i}]", "num_layers", 2, "sliding_window", "max_request_blocks", 32);
    assert_true(json_equal(json_object_get(json, "kv_groups"), groups));
    json_decref(groups);
    /* Embedding and output, 2 layers of q, k, v, o, gate, up, down and two gains, the last gain; float32. */
    const int64_t layer = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 128 * 64 + 2 * 64;
    assert_int_equal(json_require_integer(json, "weights_memory"), 4 * (2 * 256 * 64 + 2 * layer + 64));
    json_decref(json);
    program_free(&p);
}

/* A column, and an object, for each of several ranks. */
static void ranks_have_reports_of_their_own(void **state)
{
    struct program p;
    profile(&p, *state, NULL, "--json", "--tensor-parallel-size", "2", "--kv-cache-space", "0.01", NULL);
    json_t *json = program_json(&p), *ranks = json_object_get(json, "ranks");
    const int64_t blocks = json_require_integer(json, "num_gpu_blocks");
    assert_int_equal(json_array_size(ranks), 2);
    assert_int_equal(json_require_integer(json, "block_bytes"), BLOCK_BYTES / 2);
    for (size_t r = 0; r < 2; r++) {
        const json_t *rank = json_array_get(ranks, r);
        assert_string_equal(json_string_value(json_object_get(rank, "device")), "cpu");
        assert_int_equal(json_require_integer(rank, "kv_cache_memory"), blocks * BLOCK_BYTES / 2);
        /* Embedding and output, 2 layers of q, k, v, o, gate, up, down, all halved; and gains. */
        const int64_t layer = (64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 128 * 64) / 2 + 2 * 64;
        assert_int_equal(json_require_integer(rank, "weights_memory"), 4 * (256 * 64 + 2 * layer + 64));
    }
    json_decref(json);
    program_free(&p);
    profile(&p, *state, NULL, "--tensor-parallel-size", "2", NULL);
    assert_non_null(strstr(p.out.data, "  rank 0  "));
    assert_non_null(strstr(p.out.data, "  rank 1\n"));
    program_free(&p);
    profile(&p, *state, NULL, NULL);
    assert_null(strstr(p.out.data, "rank"));
    program_free(&p);
}

/* The tiny model is its own draft model, so that each block has twice the bytes, on the host, too. */
static void a_draft_model_is_part_of_the_sum(void **state)
{
    const struct temp_folder *folder = *state;
    struct program p;
    profile(&p, folder, NULL, "--json", NULL);
    json_t *alone = program_json(&p);
    program_free(&p);
    profile(&p, folder, NULL, "--json", "--plan", "--speculative-model", folder->path, "--swap-space", "0.01", NULL);
    json_t *json = program_json(&p);
    const int64_t space = (int64_t)(0.01 * 1024 * 1024 * 1024), blocks = json_require_integer(json, "num_gpu_blocks");
    const int64_t draft = json_require_integer(json, "draft_model_memory");
    assert_int_equal(json_require_integer(json, "budget_memory"),
                     json_require_integer(json, "weights_memory") + json_require_integer(json, "activation_memory") +
                         json_require_integer(json, "workspace_memory") + json_require_integer(json, "state_memory") +
                         json_require_integer(json, "kv_cache_memory") + draft);
    assert_int_equal(json_require_integer(json, "weights_memory"), json_require_integer(alone, "weights_memory"));
    assert_true(draft > json_require_integer(json, "weights_memory")); /* and what it computes with */
    assert_int_equal(json_require_integer(json, "block_bytes"), 2 * BLOCK_BYTES);
    assert_int_equal(json_require_integer(json, "kv_cache_memory"), blocks * 2 * BLOCK_BYTES);
    assert_int_equal(json_require_integer(json, "draft_model_kv_cache_memory"), blocks * BLOCK_BYTES);
    assert_int_equal(json_require_integer(json, "num_cpu_blocks"), space / (2 * BLOCK_BYTES));
    assert_int_equal(json_require_integer(json, "swap_space_memory"), space / (2 * BLOCK_BYTES) * (2 * BLOCK_BYTES));
    assert_int_equal(json_require_integer(alone, "draft_model_memory"), 0);
    assert_int_equal(json_require_integer(alone, "draft_model_kv_cache_memory"), 0);
    json_decref(json);
    json_decref(alone);
    program_free(&p);
    profile(&p, folder, NULL, "--plan", "--speculative-model", folder->path, NULL);
    assert_non_null(strstr(p.out.data, "  draft model "));
    program_free(&p);
}

/* floor(bytes for the cache / bytes of a block). */
static void blocks_are_what_the_space_holds(void **state)
{
    struct program p;
    profile(&p, *state, NULL, "--json", "--kv-cache-space", "0.01", "--block-size", "32", NULL);
    json_t *json = program_json(&p);
    const int64_t space = (int64_t)(0.01 * 1024 * 1024 * 1024);
    assert_int_equal(json_require_integer(json, "block_bytes"), 2 * BLOCK_BYTES);
    assert_int_equal(json_require_integer(json, "num_gpu_blocks"), space / (2 * BLOCK_BYTES));
    const json_t *fit = json_object_get(json, "max_concurrency");
    assert_true(json_is_real(fit));
    assert_float_equal(json_real_value(fit), (double)json_require_integer(json, "num_gpu_blocks") / 16, 1e-6);
    json_decref(json);
    program_free(&p);
}

/* Host blocks are what the swap space holds; they are no part of the budget. */
static void host_blocks_are_what_the_swap_space_holds(void **state)
{
    struct program p;
    const char *const spaces[] = {"4", "0.01", "0"};
    for (int i = 0; i < 3; i++) {
        profile(&p, *state, NULL, "--json", "--num-gpu-blocks-override", "50", "--max-model-len", "512", "--swap-space",
                spaces[i], NULL);
        json_t *json = program_json(&p);
        const int64_t space = (int64_t)(strtod(spaces[i], NULL) * 1024 * 1024 * 1024);
        assert_int_equal(json_require_integer(json, "num_cpu_blocks"), space / BLOCK_BYTES);
        assert_int_equal(json_require_integer(json, "swap_space_memory"), space / BLOCK_BYTES * BLOCK_BYTES);
        json_decref(json);
        program_free(&p);
    }
    profile(&p, *state, NULL, "--preemption-mode", "swap", "--swap-space", "0", NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "the swap space of 0 GiB does not hold one block"));
    assert_non_null(strstr(p.err.data, ": raise --swap-space to 0.001, or set --preemption-mode to recompute\n"));
    program_free(&p);
}

/* States of recurrent layers get half of it at most, and no more slots than the device has; blocks get the rest. */
static void states_have_a_share_of_the_swap_space(void **state)
{
    (void)state;
    struct program p;
    struct temp_folder model;
    const char *const spaces[] = {"0.01", "0.0001", "0.00002"};
    snprintf(model.path, sizeof model.path, "%s/golden/qwen3_5", QUIRE_TEST_DATA);
    for (int i = 0; i < 3; i++) {
        profile(&p, &model, NULL, "--json", "--plan", "--swap-space", spaces[i], NULL);
        json_t *json = program_json(&p);
        const int64_t space = (int64_t)(strtod(spaces[i], NULL) * 1024 * 1024 * 1024);
        const int64_t slot = json_require_integer(json, "state_slot_bytes"), half = space / 2 / slot;
        const int64_t block = json_require_integer(json, "block_bytes");
        const int64_t most = json_require_integer(json, "num_state_slots"), slots = half < most ? half : most;
        assert_int_equal(json_require_integer(json, "num_cpu_state_slots"), slots);
        assert_int_equal(json_require_integer(json, "num_cpu_blocks"), (space - slots * slot) / block);
        assert_int_equal(json_require_integer(json, "swap_space_memory"),
                         slots * slot + (space - slots * slot) / block * block);
        json_decref(json);
        program_free(&p);
    }
    profile(&p, &model, NULL, "--preemption-mode", "swap", "--swap-space", "0.00001", NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "which is for states of recurrent layers, does not hold one of 0.011 MiB: raise "
                                       "--swap-space to 0.001, or set --preemption-mode to recompute\n"));
    program_free(&p);
}

static void override_wins(void **state)
{
    struct program p;
    profile(&p, *state, NULL, "--json", "--num-gpu-blocks-override", "50", NULL);
    json_t *json = program_json(&p);
    assert_int_equal(json_require_integer(json, "num_gpu_blocks"), 50);
    assert_int_equal(json_require_integer(json, "num_gpu_blocks_override"), 50);
    json_decref(json);
    program_free(&p);
}

static void table_names_every_term(void **state)
{
    static const char *const terms[] = {"total",
                                        "held by others",
                                        "weights",
                                        "activations",
                                        "workspace",
                                        "state",
                                        "KV cache",
                                        "blocks",
                                        "tokens",
                                        "max_model_len",
                                        "blocks of a request",
                                        "1 of 2 layers, no window",
                                        "requests that fit",
                                        "swap space"};
    struct program p;
    profile(&p, *state, NULL, NULL);
    assert_int_equal(p.exit_status, 0);
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++)
        if (!strstr(p.out.data, terms[i])) fail_msg("the table has no '%s':\n%s", terms[i], p.out.data);
    program_free(&p);
}

static void too_few_blocks_is_an_error_that_says_what_to_do(void **state)
{
    struct program p;
    profile(&p, *state, NULL, "--num-gpu-blocks-override", "10", "--max-model-len", "512", NULL);
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(p.out.length, 0);
    assert_non_null(strstr(p.err.data, "--max-model-len to 160"));
    assert_non_null(strstr(p.err.data, "--num-gpu-blocks-override to 32"));
    program_free(&p);
}

/* Three prompts with 40 tokens in common (two whole blocks), one answer each. */
static void write_prompts(struct text *lines)
{
    for (int prompt = 0; prompt < 3; prompt++) {
        assert_true(text_append_string(lines, "{\"max_tokens\": 20, \"ignore_eos\": true, \"prompt\": ["));
        for (int t = 0; t < 40; t++) assert_true(text_printf(lines, "%d, ", 10 + t));
        assert_true(text_printf(lines, "%d]}\n", 100 + prompt));
    }
}

static void check_step(const json_t *step, int64_t total)
{
    assert_int_equal(json_require_integer(step, "blocks_in_use") + json_require_integer(step, "blocks_cached") +
                         json_require_integer(step, "blocks_free"),
                     total);
    assert_true(json_require_integer(step, "num_tokens") > 0 && json_require_integer(step, "num_tokens") <= 64);
    assert_true(json_require_integer(step, "num_running") <= 8);
}

/* More than any machine has. The advice is a value that fits. */
static void a_cache_without_room_is_an_error_that_says_what_to_do(void **state)
{
    static const char *const flags[][2] = {{"--kv-cache-space", "1048576"},
                                           {"--num-gpu-blocks-override", "2147483646"}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct program p;
        char advice[64];
        profile(&p, *state, NULL, "--block-size", "128", flags[i][0], flags[i][1], NULL);
        assert_int_equal(p.exit_status, 1);
        assert_non_null(strstr(p.err.data, "need more memory than is free, "));
        snprintf(advice, sizeof advice, ": lower %s to ", flags[i][0]);
        const char *found = strstr(p.err.data, advice);
        assert_non_null(found);
        char value[32];
        snprintf(value, sizeof value, "%.*s", (int)strcspn(found + strlen(advice), "\n"), found + strlen(advice));
        program_free(&p);
        /* What the machine has free changes meanwhile, so a half is asked for. */
        snprintf(value, sizeof value, i == 0 ? "%.2f" : "%.0f", strtod(value, NULL) / 2);
        profile(&p, *state, NULL, "--block-size", "128", flags[i][0], value, NULL);
        assert_int_equal(p.exit_status, 0);
        program_free(&p);
    }
}

/* The largest number of `key` in the rows is the summary's `summary_key`. */
static void check_most(const json_t *steps, const json_t *summary, const char *key, const char *summary_key)
{
    int64_t most = 0;
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const int64_t value = json_require_integer(json_array_get(steps, i), key);
        if (value > most) most = value;
    }
    assert_int_equal(json_require_integer(summary, summary_key), most);
}

static void check_queues(const json_t *steps, const json_t *summary)
{
    check_most(steps, summary, "num_running", "max_num_running");
    check_most(steps, summary, "num_waiting", "max_num_waiting");
    check_most(steps, summary, "num_swapped", "max_num_swapped");
    check_most(steps, summary, "num_tokens", "max_tokens_per_step");
    check_most(steps, summary, "blocks_in_use", "peak_blocks");
    assert_float_equal(json_require_number(summary, "mean_tokens_per_step"),
                       (double)json_require_integer(summary, "num_tokens") / (double)json_array_size(steps), 1e-6);
    assert_int_equal(json_require_integer(summary, "num_preemptions"),
                     json_require_integer(summary, "num_preemptions_recompute") +
                         json_require_integer(summary, "num_preemptions_swap"));
    assert_int_equal(json_require_integer(summary, "swapped_out_bytes"),
                     json_require_integer(summary, "num_swapped_out_blocks") * BLOCK_BYTES);
    assert_int_equal(json_require_integer(summary, "swapped_in_bytes"),
                     json_require_integer(summary, "num_swapped_in_blocks") * BLOCK_BYTES);
    double before = 0;
    static const char *const times[] = {"median_itl_ms", "p90_itl_ms", "p99_itl_ms", "max_itl_ms"};
    for (int i = 0; i < 4; i++) {
        const double time = json_require_number(summary, times[i]);
        assert_true(time > 0 && time >= before * (1 - 1e-8)); /* 9 digits are written */
        before = time;
    }
}

static void every_step_accounts_for_every_block(void **state)
{
    struct text lines = {0};
    struct program p;
    write_prompts(&lines);
    profile(&p, *state, lines.data, "--json", "--num-gpu-blocks-override", "40", "--max-model-len", "128",
            "--skip-tokenizer-init", "--input", "-", NULL);
    json_t *json = program_json(&p), *steps = json_object_get(json, "steps"),
           *summary = json_object_get(json, "summary");
    assert_true(json_array_size(steps) > 0);
    int64_t tokens = 0;
    for (size_t i = 0; i < json_array_size(steps); i++) {
        check_step(json_array_get(steps, i), 40);
        tokens += json_require_integer(json_array_get(steps, i), "num_tokens");
    }
    /* The last token of an answer is never computed; the common blocks are computed once. */
    assert_int_equal(tokens, 3 * (41 + 19) - 2 * 32);
    assert_int_equal(json_require_integer(summary, "num_tokens"), tokens);
    assert_int_equal(json_require_integer(summary, "num_steps"), (int64_t)json_array_size(steps));
    assert_int_equal(json_require_integer(summary, "num_prompts"), 3);
    assert_int_equal(json_require_integer(summary, "num_output_tokens"), 60);
    assert_int_equal(json_require_integer(summary, "prefix_cache_hits"), 64);
    assert_int_equal(json_require_integer(summary, "prefix_cache_queries"), 3 * 41);
    assert_int_equal(json_require_integer(summary, "num_preemptions"), 0);
    check_queues(steps, summary);
    assert_int_equal(json_require_integer(summary, "max_num_running"), 3);
    /* The two common blocks and two of each request, when all get their last block for the 49th token. */
    assert_int_equal(json_require_integer(summary, "peak_blocks"), 8);
    assert_float_equal(json_require_number(summary, "peak_blocks_filled"), (32 + 3 * 17) / (8 * 16.0), 1e-8);
    const json_t *last = json_array_get(steps, json_array_size(steps) - 1);
    assert_int_equal(json_require_integer(last, "blocks_in_use"), 0);
    assert_int_equal(json_require_integer(last, "num_running"), 0);
    assert_true(json_require_integer(summary, "peak_blocks") < json_require_integer(summary, "peak_blocks_unshared"));
    json_decref(json);
    program_free(&p);
    text_free(&lines);
}

/* Three answers of 60 tokens to each prompt: 4 blocks each, and 20 are too few for all. */
static void swapped_requests_are_shown(void **state)
{
    struct text lines = {0};
    struct program p;
    for (int prompt = 0; prompt < 5; prompt++)
        assert_true(
            text_printf(&lines, "{\"n\": 3, \"max_tokens\": 60, \"ignore_eos\": true, \"prompt\": [%d]}\n", prompt));
    profile(&p, *state, lines.data, "--json", "--num-gpu-blocks-override", "20", "--max-num-seqs", "15",
            "--max-model-len", "128", "--skip-tokenizer-init", "--input", "-", NULL);
    json_t *json = program_json(&p), *steps = json_object_get(json, "steps"),
           *summary = json_object_get(json, "summary");
    int64_t swapped = 0;
    for (size_t i = 0; i < json_array_size(steps); i++)
        swapped += json_require_integer(json_array_get(steps, i), "num_swapped");
    check_queues(steps, summary);
    assert_true(swapped > 0 && json_require_integer(summary, "num_preemptions_swap") > 0);
    assert_true(json_require_integer(summary, "num_swapped_out_blocks") > 0);
    /* What the prefix cache still finds is not copied back. */
    const int64_t swapped_in = json_require_integer(summary, "num_swapped_in_blocks");
    assert_true(swapped_in > 0 && swapped_in < json_require_integer(summary, "num_swapped_out_blocks"));
    assert_int_equal(json_require_integer(summary, "num_output_tokens"), 5 * 3 * 60);
    json_decref(json);
    program_free(&p);
    text_free(&lines);
}

/* One request after the other. The slots of the first one's blocks no longer count when the second has the most. */
static void slots_of_released_blocks_are_not_filled(void **state)
{
    struct text lines = {0};
    struct program p;
    const int lengths[] = {33, 41}, tokens[] = {2, 20};
    for (int i = 0; i < 2; i++) {
        assert_true(text_printf(&lines, "{\"max_tokens\": %d, \"ignore_eos\": true, \"prompt\": [%d", tokens[i], i));
        for (int t = 1; t < lengths[i]; t++) assert_true(text_printf(&lines, ", %d", 10 + t));
        assert_true(text_append_string(&lines, "]}\n"));
    }
    profile(&p, *state, lines.data, "--json", "--num-gpu-blocks-override", "40", "--max-model-len", "128",
            "--max-num-seqs", "1", "--skip-tokenizer-init", "--input", "-", NULL);
    json_t *json = program_json(&p), *summary = json_object_get(json, "summary");
    assert_int_equal(json_require_integer(summary, "max_num_waiting"), 1);
    assert_int_equal(json_require_integer(summary, "peak_blocks"), 4);
    assert_float_equal(json_require_number(summary, "peak_blocks_filled"), 49 / (4 * 16.0), 1e-8);
    json_decref(json);
    program_free(&p);
    text_free(&lines);
}

static void summary_is_printed(void **state)
{
    static const char *const rows[] = {
        "most running", "most waiting", "preempted, recomputed", "preempted, swapped", "to the host, 0.00 MiB",
        "at most 59",   "64.84  % of",  "longest time between",  "milliseconds",       "time between tokens"};
    struct text lines = {0};
    struct program p;
    write_prompts(&lines);
    profile(&p, *state, lines.data, "--num-gpu-blocks-override", "40", "--max-model-len", "128",
            "--skip-tokenizer-init", "--input", "-", NULL);
    assert_int_equal(p.exit_status, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!strstr(p.out.data, rows[i])) fail_msg("the summary has no '%s':\n%s", rows[i], p.out.data);
    program_free(&p);
    text_free(&lines);
}

/* Every Nth step has a row, and so has the last; a row counts the tokens of the steps since the row before it. */
static void every_thins_out(void **state)
{
    struct text lines = {0};
    struct program p;
    write_prompts(&lines);
    profile(&p, *state, lines.data, "--json", "--num-gpu-blocks-override", "40", "--max-model-len", "128",
            "--skip-tokenizer-init", "--input", "-", "--every", "10", NULL);
    json_t *json = program_json(&p), *steps = json_object_get(json, "steps");
    const int64_t num_steps = json_require_integer(json_object_get(json, "summary"), "num_steps");
    int64_t tokens = 0;
    assert_int_equal((int64_t)json_array_size(steps), (num_steps + 9) / 10);
    for (size_t i = 0; i < json_array_size(steps); i++)
        tokens += json_require_integer(json_array_get(steps, i), "num_tokens");
    assert_int_equal(tokens, json_require_integer(json_object_get(json, "summary"), "num_tokens"));
    assert_int_equal(json_require_integer(json_object_get(json, "summary"), "max_tokens_per_step"),
                     59); /* of one step */
    json_decref(json);
    program_free(&p);
    text_free(&lines);
}

static void unshared_without_the_cache(void **state)
{
    struct text lines = {0};
    struct program p;
    write_prompts(&lines);
    profile(&p, *state, lines.data, "--json", "--num-gpu-blocks-override", "40", "--max-model-len", "128",
            "--skip-tokenizer-init", "--input", "-", "--no-enable-prefix-caching", NULL);
    json_t *json = program_json(&p), *summary = json_object_get(json, "summary");
    assert_int_equal(json_require_integer(summary, "prefix_cache_hits"), 0);
    assert_int_equal(json_require_integer(summary, "num_tokens"), 3 * (41 + 19));
    assert_int_equal(json_require_integer(summary, "peak_blocks"),
                     json_require_integer(summary, "peak_blocks_unshared"));
    json_decref(json);
    program_free(&p);
    text_free(&lines);
}

/* The others are run, and each bad line is said. */
static void a_bad_line_is_named(void **state)
{
    struct program p;
    profile(&p, *state, "{\"prompt\": [1, 2]}\n\n{\"prompt\": 7}\n{\"prompt\": [3], \"max_tokens\": 1}\nno json\n",
            "--skip-tokenizer-init", "--input", "-", "--json", "--format", "jsonl", NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "quire profile: standard input:3: "));
    assert_non_null(strstr(p.err.data, "quire profile: standard input:5: "));
    assert_non_null(strstr(p.err.data, "quire profile: 2 of 4 prompts failed; the first: standard input:3: "));
    json_t *json = json_loads(p.out.data, 0, NULL), *summary = json_object_get(json, "summary");
    assert_int_equal(json_require_integer(summary, "num_bad_lines"), 2);
    assert_int_equal(json_require_integer(summary, "num_prompts"), 2);
    assert_true(json_require_integer(summary, "num_output_tokens") > 1);
    json_decref(json);
    program_free(&p);

    profile(&p, *state, "\xEF\xBB\xBF{\"prompt\": [1, 2]}\n\n{\"prompt\": [1, 999999]}\n", "--skip-tokenizer-init",
            "--input", "-", NULL); /* a byte order mark is no text */
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "standard input:3: "));
    assert_non_null(strstr(p.err.data, "1 of 2 prompts failed"));
    program_free(&p);

    profile(&p, *state, "{\"prompt\": 7}\n", "--skip-tokenizer-init", "--input", "-", NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "1 of 1 prompt failed"));
    program_free(&p);

    profile(&p, *state, "\n \n", "--skip-tokenizer-init", "--input", "-", NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "no prompt"));
    program_free(&p);

    profile(&p, *state, NULL, "--skip-tokenizer-init", "--input", "/nonexistent/prompts", NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "/nonexistent/prompts"));
    program_free(&p);

    const struct temp_folder *folder = *state;
    profile(&p, folder, NULL, "--skip-tokenizer-init", "--input", folder->path, NULL);
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(p.out.length, 0); /* nothing was loaded */
    assert_non_null(strstr(p.err.data, "is a folder"));
    program_free(&p);
}

/* Rows of what if whose option is this; `value` gets the text of the flag's argument. */
static bool flag_of_row(const json_t *row, const char **flag, char value[32])
{
    static const char *const flags[][2] = {{"block_size", "--block-size"},     {"kv_cache_dtype", "--kv-cache-dtype"},
                                           {"quantization", "--quantization"}, {"kv_cache_space", "--kv-cache-space"},
                                           {"max_num_seqs", "--max-num-seqs"}, {"max_model_len", "--max-model-len"}};
    const char *option = json_string_value(json_object_get(row, "option"));
    const json_t *given = json_object_get(row, "value");
    if (json_is_string(given))
        snprintf(value, 32, "%s", json_string_value(given));
    else
        snprintf(value, 32, "%g", json_number_value(given));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        *flag = flags[i][1];
        if (strcmp(option, flags[i][0]) == 0) return true;
    }
    return false;
}

static int64_t tokens_of_cache(const json_t *rows, const char *dtype)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *value = json_object_get(row, "value");
        if (strcmp(json_string_value(json_object_get(row, "option")), "kv_cache_dtype") == 0 &&
            strcmp(json_string_value(value), dtype) == 0)
            return json_require_integer(row, "kv_cache_tokens");
    }
    fail_msg("no row for a cache of %s", dtype);
    return 0;
}

static void an_fp8_cache_has_twice_the_tokens(void **state)
{
    struct program p;
    profile(&p, *state, NULL, "--json", "--kv-cache-space", "0.25", NULL);
    json_t *json = program_json(&p), *rows = json_object_get(json, "what_if");
    const int64_t wide = tokens_of_cache(rows, "bfloat16"), narrow = tokens_of_cache(rows, "fp8");
    assert_true(wide > 1000 && narrow >= 2 * wide && narrow <= 2 * wide + 16);
    json_decref(json);
    program_free(&p);
}

/* Each row says what quire says when it is given that flag. */
static void what_if_rows_are_what_the_flags_give(void **state)
{
    static const char *const same[] = {"num_gpu_blocks", "kv_cache_tokens", "block_bytes", "max_model_len",
                                       "weights_memory"};
    struct program p;
    profile(&p, *state, NULL, "--json", "--kv-cache-space", "0.25", NULL);
    json_t *json = program_json(&p), *rows = json_object_get(json, "what_if");
    int num_compared = 0, options = 0;
    const char *last = "";
    program_free(&p);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *flag;
        char value[32];
        /* What is free changes from one run to the next: only rows far below it are compared. */
        if (!flag_of_row(row, &flag, value) || !json_is_true(json_object_get(row, "fits")) ||
            (strcmp(flag, "--kv-cache-space") == 0 && strtod(value, NULL) > 1))
            continue;
        profile(&p, *state, NULL, "--json", "--kv-cache-space", "0.25", flag, value, NULL);
        json_t *real = program_json(&p);
        for (size_t k = 0; k < sizeof same / sizeof *same; k++)
            if (json_require_integer(row, same[k]) != json_require_integer(real, same[k]))
                fail_msg("%s %s: %s is %lld, and what if says %lld", flag, value, same[k],
                         (long long)json_require_integer(real, same[k]), (long long)json_require_integer(row, same[k]));
        assert_float_equal(json_require_number(row, "max_concurrency"), json_require_number(real, "max_concurrency"),
                           1e-6);
        options += strcmp(last, flag) != 0;
        last = flag;
        num_compared++;
        json_decref(real);
        program_free(&p);
    }
    assert_int_equal(options, 6);
    assert_true(num_compared >= 12);
    json_decref(json);
}

/* The plan of a report and a run with the model loaded agree. */
static void a_report_is_what_a_run_allocates(void **state)
{
    static const char *const same[] = {"weights_memory", "activation_memory", "workspace_memory",
                                       "state_memory",   "kv_cache_memory",   "num_gpu_blocks"};
    struct program p, run;
    profile(&p, *state, NULL, "--json", "--kv-cache-space", "0.01", NULL);
    profile(&run, *state, "{\"prompt\": [1], \"max_tokens\": 1}\n", "--json", "--kv-cache-space", "0.01",
            "--skip-tokenizer-init", "--input", "-", NULL);
    json_t *planned = program_json(&p), *loaded = program_json(&run);
    assert_true(json_is_true(json_object_get(planned, "planned")));
    assert_true(json_is_false(json_object_get(loaded, "planned")));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_int_equal(json_require_integer(planned, same[i]), json_require_integer(loaded, same[i]));
    json_decref(planned);
    json_decref(loaded);
    program_free(&p);
    program_free(&run);
}

/* A model of 70 billion parameters, of which there is only config.json. */
static void config_alone_is_enough(void **state)
{
    static const char *const arguments[] = {"dummy", "auto"};
    struct temp_folder folder;
    (void)state;
    temp_folder_make(&folder);
    temp_folder_write_string(
        &folder, "config.json",
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 8192,"
        " \"intermediate_size\": 28672, \"num_hidden_layers\": 80, \"num_attention_heads\": 64,"
        " \"num_key_value_heads\": 8, \"vocab_size\": 32000, \"max_position_embeddings\": 4096,"
        " \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false, \"hidden_act\": \"silu\","
        " \"torch_dtype\": \"float16\"}");
    for (int i = 0; i < 2; i++) {
        struct program p;
        const char *const argv[] = {QUIRE_EXECUTABLE,
                                    "profile",
                                    "--model",
                                    folder.path,
                                    "--device",
                                    "cpu",
                                    "--load-format",
                                    arguments[i],
                                    "--json",
                                    "--max-num-seqs",
                                    "8",
                                    "--max-num-batched-tokens",
                                    "64",
                                    "--kv-cache-space",
                                    "0.5",
                                    "--max-model-len",
                                    "512",
                                    NULL};
        program_run(&p, argv, NULL);
        json_t *json = program_json(&p);
        assert_int_equal(json_require_integer(json, "weights_memory"), 2 * 68976648192LL);
        assert_int_equal(json_require_integer(json, "block_bytes"), 2 * 80 * 8 * 128 * 16 * 4);
        const char *note = json_string_value(json_array_get(json_object_get(json, "notes"), 0));
        if (i == 1) assert_non_null(strstr(note, "counted from config.json"));
        json_decref(json);
        program_free(&p);
    }
    temp_folder_remove(&folder);
}

/* The rows of a run that is preempted, as CSV, as JSON and in the pictures. */
static void run_preempted(struct program *p, const struct temp_folder *folder, const char *svg, const char *png,
                          const char *csv)
{
    struct text lines = {0};
    for (int prompt = 0; prompt < 6; prompt++)
        assert_true(text_printf(&lines, "{\"max_tokens\": 60, \"ignore_eos\": true, \"prompt\": [%d, 7]}\n", prompt));
    profile(p, folder, lines.data, "--json", "--num-gpu-blocks-override", "16", "--max-model-len", "128",
            "--skip-tokenizer-init", "--input", "-", "--csv", csv, "--svg", svg, "--png", png, "--fail-if-preempted",
            NULL);
    text_free(&lines);
}

static void check_csv(const char *csv, const json_t *steps)
{
    static const char head[] = "step,seconds,num_running,num_waiting,num_swapped,num_tokens,blocks_in_use,"
                               "blocks_cached,blocks_free,num_preemptions,prefix_cache_hit_rate,state_slots_in_use,"
                               "state_slots_cached\n";
    assert_memory_equal(csv, head, strlen(head));
    const char *line = csv + strlen(head);
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *step = json_array_get(steps, i);
        static const char *const keys[] = {"num_running",   "num_waiting",   "num_swapped", "num_tokens",
                                           "blocks_in_use", "blocks_cached", "blocks_free", "num_preemptions"};
        long long number, v[8];
        double seconds, hits;
        int length = 0;
        assert_int_equal(sscanf(line, "%lld,%lf,%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lf,0,0\n%n", &number, &seconds,
                                &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &hits, &length),
                         11);
        assert_int_equal(number, json_require_integer(step, "step"));
        for (int k = 0; k < 8; k++) assert_int_equal(v[k], json_require_integer(step, keys[k]));
        line += length;
    }
    assert_string_equal(line, "");
}

/* Every element that is opened is closed, in order. */
static void check_xml(const char *xml)
{
    const char *names[64];
    int depth = 0, elements = 0;
    for (const char *at = strchr(xml, '<'); at; at = strchr(at + 1, '<')) {
        const char *end = strchr(at, '>');
        assert_non_null(end);
        if (at[1] == '?' || at[1] == '!') continue;
        if (at[1] == '/') {
            assert_true(depth > 0);
            const size_t length = strcspn(names[--depth], " \n/>");
            assert_memory_equal(at + 2, names[depth], length);
            assert_int_equal(at[2 + length], '>');
        } else if (end[-1] != '/') {
            assert_true(depth < 64);
            names[depth++] = at + 1;
        }
        elements++;
    }
    assert_int_equal(depth, 0);
    assert_true(elements > 100);
}

static void check_png(const struct text *png)
{
    static const unsigned char begin[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n', 0, 0,    0,   13, 'I',
                                          'H',  'D', 'R', 0,   0,    0x06, 0x40, 0,    0, 0x03, 0x84}; /* 1600, 900 */
    assert_true(png->length > 10000);
    assert_memory_equal(png->data, begin, sizeof begin);
    assert_memory_equal(png->data + png->length - 8, "IEND\xAE\x42\x60\x82", 8);
}

static void read_all(const char *path, struct text *out)
{
    char buffer[4096];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) assert_true(text_append(out, buffer, n));
    fclose(file);
}

/* Warnings name flags, and only the one that decides how many blocks there are. */
static void a_warning_of_preemptions_advises_flags(void **state)
{
    static const char *const flags[][2] = {{"--num-gpu-blocks-override", "12"}, {"--kv-cache-space", "0.000093"}};
    struct text lines = {0};
    for (int prompt = 0; prompt < 8; prompt++) assert_true(text_printf(&lines, "{\"prompt\": [%d, 7]}\n", prompt));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct program p;
        char expected[128];
        profile(&p, *state, lines.data, "--input", "-", "--skip-tokenizer-init", "--max-model-len", "150",
                "--max-tokens", "120", "--ignore-eos", flags[i][0], flags[i][1], NULL);
        snprintf(expected, sizeof expected, "preempted 3 times so far: raise %s, or lower --max-num-seqs\n",
                 flags[i][0]);
        if (!strstr(p.err.data, expected)) fail_msg("no '%s' in: %s", expected, p.err.data);
        program_free(&p);
    }
    text_free(&lines);
}

static void a_run_is_written_and_drawn(void **state)
{
    struct temp_folder out;
    struct program p;
    struct text csv_text = {0}, svg_text = {0}, png_bytes = {0};
    temp_folder_make(&out);
    char csv[512], svg[512], png[512];
    snprintf(csv, sizeof csv, "%s/run.csv", out.path);
    snprintf(svg, sizeof svg, "%s/run.svg", out.path);
    snprintf(png, sizeof png, "%s/run.png", out.path);
    run_preempted(&p, *state, svg, png, csv);
    assert_int_equal(p.exit_status, 1); /* --fail-if-preempted */
    assert_non_null(strstr(p.err.data, "the KV cache of 16 blocks does not hold all that runs at once: lower "
                                       "--max-num-seqs, or raise --num-gpu-blocks-override\n"));
    json_t *json = json_loads(p.out.data, 0, NULL), *steps = json_object_get(json, "steps");
    int64_t preemptions = 0;
    for (size_t i = 0; i < json_array_size(steps); i++)
        preemptions += json_require_integer(json_array_get(steps, i), "num_preemptions");
    assert_true(preemptions > 0);
    assert_int_equal(preemptions, json_require_integer(json_object_get(json, "summary"), "num_preemptions"));
    read_all(csv, &csv_text);
    read_all(svg, &svg_text);
    read_all(png, &png_bytes);
    check_csv(csv_text.data, steps);
    check_xml(svg_text.data);
    check_png(&png_bytes);
    text_free(&csv_text);
    text_free(&svg_text);
    text_free(&png_bytes);
    json_decref(json);
    program_free(&p);
    temp_folder_remove(&out);
}

/* All is touched at the start but K and V: of those, what the run wrote, which one prompt of a token does little of. */
static void resident_memory_is_a_part_of_what_is_reserved(void **state)
{
    static const char *const kinds[] = {"weights_memory", "activation_memory", "workspace_memory", "state_memory",
                                        "kv_cache_memory"};
    struct program p;
    profile(&p, *state, "{\"prompt\": [1], \"max_tokens\": 1}\n", "--json", "--kv-cache-space", "0.5",
            "--skip-tokenizer-init", "--input", "-", NULL);
    json_t *json = program_json(&p), *memory = json_object_get(json, "host_memory");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const json_t *kind = json_object_get(memory, kinds[i]);
        assert_true(json_require_integer(kind, "resident") <= json_require_integer(kind, "reserved"));
    }
    const json_t *weights = json_object_get(memory, "weights_memory"),
                 *cache = json_object_get(memory, "kv_cache_memory");
    assert_int_equal(json_require_integer(weights, "resident"), json_require_integer(weights, "reserved"));
    assert_true(json_require_integer(cache, "resident") > 0);
    assert_true(json_require_integer(cache, "resident") < json_require_integer(cache, "reserved"));
    json_decref(json);
    program_free(&p);
}

/* Three sequences of 60 tokens with K and V, in 40 blocks of 16: 640 tokens. */
static void contiguous_caches_are_compared(void **state)
{
    struct text lines = {0};
    struct program p;
    write_prompts(&lines);
    profile(&p, *state, lines.data, "--json", "--num-gpu-blocks-override", "40", "--max-model-len", "128",
            "--skip-tokenizer-init", "--input", "-", NULL);
    json_t *json = program_json(&p), *rows = json_object_get(json, "reservations");
    const int64_t token = BLOCK_BYTES / 16, used = 3 * 60 * token;
    const int64_t reserved[] = {3 * 128 * token, 3 * 64 * token, 3 * 4 * BLOCK_BYTES}, at_once[] = {5, 10, 10};
    for (size_t i = 0; i < 3; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_int_equal(json_require_integer(row, "used_bytes"), used);
        assert_int_equal(json_require_integer(row, "reserved_bytes"), reserved[i]);
        assert_int_equal(json_require_integer(row, "internal_waste_bytes"), reserved[i] - used);
        assert_int_equal(json_require_integer(row, "external_waste_bytes"), 0);
        assert_int_equal(json_require_integer(row, "max_sequences"), at_once[i]);
    }
    json_decref(json);
    program_free(&p);
    text_free(&lines);
}

static void sizes_of_the_picture_have_one_unit(void **state)
{
    static const int64_t MIB = 1 << 20;
    static const struct {
        int64_t bytes, whole;
        const char *text;
    } cases[] = {
        {123 * 1024 * MIB, 200 * 1024 * MIB, "123 GiB"},
        {15 * 1024 * MIB, 20 * 1024 * MIB, "15.0 GiB"},
        {1536 * MIB, 20 * 1024 * MIB, "1.50 GiB"},
        {51 * MIB, 2048 * MIB, "0.050 GiB"},
        {51 * MIB, 1023 * MIB, "51.0 MiB"},
        {MIB / 20, 1023 * MIB, "0.050 MiB"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        picture_size(text, cases[i].bytes, cases[i].whole);
        assert_string_equal(text, cases[i].text);
    }
}

/* Rows step by step only where they are asked for. */
static void a_plot_is_drawn(void **state)
{
    struct text lines = {0};
    struct program p;
    write_prompts(&lines);
    profile(&p, *state, lines.data, "--num-gpu-blocks-override", "40", "--max-model-len", "128",
            "--skip-tokenizer-init", "--input", "-", "--plot", NULL);
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "cached, over 20 steps"));
    assert_null(strstr(p.out.data, "in use   cached     free"));
    program_free(&p);
    profile(&p, *state, lines.data, "--num-gpu-blocks-override", "40", "--max-model-len", "128",
            "--skip-tokenizer-init", "--input", "-", "--steps", "--every", "5", NULL);
    assert_null(strstr(p.out.data, "cached, over 20 steps"));
    assert_non_null(strstr(p.out.data, "in use   cached     free"));
    program_free(&p);
    text_free(&lines);
}

/* --chat puts the template around a text, as quire generate does; a text may stand beside the flags. */
static void texts_become_questions(void **state)
{
    static const char *const modes[] = {"--no-chat", "--chat"};
    int64_t tokens[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct program p;
        program_run(&p,
                    (const char *[]){QUIRE_EXECUTABLE, "profile", "--model", QUIRE_GUIDE, "--device", "cpu", "--json",
                                     "--max-num-seqs", "2", "--max-tokens", "1", modes[i], "What is a block?", NULL},
                    NULL);
        assert_int_equal(p.exit_status, 0);
        json_t *json = program_json(&p);
        tokens[i] = json_require_integer(json_object_get(json, "summary"), "num_tokens");
        json_decref(json);
        program_free(&p);
    }
    assert_true(tokens[1] > tokens[0]);
}

static void bad_flags_are_wrong_usage(void **state)
{
    struct program p;
    profile(&p, *state, NULL, "--every", "0", NULL);
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "--every"));
    program_free(&p);

    profile(&p, *state, NULL, "--evry", "3", NULL);
    assert_int_equal(p.exit_status, 2);
    program_free(&p);

    profile(&p, *state, NULL, "--png", "/nonexistent/x.png", NULL);
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "--png is about a run: give its prompts, as PROMPT, @FILE or --input FILE"));
    program_free(&p);

    profile(&p, *state, NULL, "--png", "/nonexistent/x.png", "--input", "-", NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "/nonexistent/x.png: cannot be written"));
    program_free(&p);

    profile(&p, *state, NULL, "--plan", "--input", "-", NULL);
    assert_int_equal(p.exit_status, 2);
    program_free(&p);

    profile(&p, *state, NULL, "--help", NULL);
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "--input"));
    program_free(&p);
}

/* What the threads compute in about a second, by the sizes of the matrices; whatever was asked for wins. */
static void steps_of_a_second_on_a_cpu(void **state)
{
    (void)state;
    static const struct {
        const char *model, *threads, *max_num_seqs, *asked;
        int64_t tokens;
        const char *flag;
    } cases[] = {
        {"llama-3.1-8b-instruct", "1", "1", "0", 128},
        {"llama-3.1-8b-instruct", "64", "1", "0", 128},
        {"llama-3.1-8b-instruct", "128", "1", "0", 256},
        {"llama-3.1-8b-instruct", "1", "300", "0", 300},
        {"qwen2.5-0.5b-instruct", "1", "1", "0", 128},
        {"qwen2.5-0.5b-instruct", "4", "1", "0", 256},
        {"qwen2.5-0.5b-instruct", "16", "1", "0", 1024},
        {"qwen2.5-0.5b-instruct", "256", "1", "0", 8192},
        {"qwen2.5-0.5b-instruct", "4", "1", "77", 77},
        {"llama-3.1-8b-instruct", "1", "1", "8192", 8192},
        {"llama-3.1-8b-instruct", "1", "1", "0", 8192, "--no-enable-chunked-prefill"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct temp_folder folder;
        struct program p;
        char path[512];
        struct text config = {0};
        struct error err;
        snprintf(path, sizeof path, QUIRE_TEST_DATA "/configs/%s.json", cases[i].model);
        assert_int_equal(file_read(path, &config, &err), STATUS_OK);
        temp_folder_make(&folder);
        temp_folder_write_string(&folder, "config.json", config.data);
        profile(&p, &folder, NULL, "--json", "--max-model-len", "8192", "--num-gpu-blocks-override", "600", "--threads",
                cases[i].threads, "--max-num-seqs", cases[i].max_num_seqs, "--max-num-batched-tokens", cases[i].asked,
                cases[i].flag, NULL);
        json_t *json = program_json(&p);
        assert_int_equal(json_require_integer(json, "max_num_batched_tokens"), cases[i].tokens);
        json_decref(json);
        program_free(&p);
        temp_folder_remove(&folder);
        text_free(&config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_a_second_on_a_cpu),
        cmocka_unit_test(report_is_a_sum),
        cmocka_unit_test(a_draft_model_is_part_of_the_sum),
        cmocka_unit_test(ranks_have_reports_of_their_own),
        cmocka_unit_test(blocks_are_what_the_space_holds),
        cmocka_unit_test(host_blocks_are_what_the_swap_space_holds),
        cmocka_unit_test(states_have_a_share_of_the_swap_space),
        cmocka_unit_test(override_wins),
        cmocka_unit_test(table_names_every_term),
        cmocka_unit_test(too_few_blocks_is_an_error_that_says_what_to_do),
        cmocka_unit_test(a_cache_without_room_is_an_error_that_says_what_to_do),
        cmocka_unit_test(every_step_accounts_for_every_block),
        cmocka_unit_test(swapped_requests_are_shown),
        cmocka_unit_test(slots_of_released_blocks_are_not_filled),
        cmocka_unit_test(summary_is_printed),
        cmocka_unit_test(every_thins_out),
        cmocka_unit_test(unshared_without_the_cache),
        cmocka_unit_test(a_bad_line_is_named),
        cmocka_unit_test(an_fp8_cache_has_twice_the_tokens),
        cmocka_unit_test(what_if_rows_are_what_the_flags_give),
        cmocka_unit_test(a_report_is_what_a_run_allocates),
        cmocka_unit_test(config_alone_is_enough),
        cmocka_unit_test(a_warning_of_preemptions_advises_flags),
        cmocka_unit_test(a_run_is_written_and_drawn),
        cmocka_unit_test(resident_memory_is_a_part_of_what_is_reserved),
        cmocka_unit_test(contiguous_caches_are_compared),
        cmocka_unit_test(sizes_of_the_picture_have_one_unit),
        cmocka_unit_test(a_plot_is_drawn),
        cmocka_unit_test(texts_become_questions),
        cmocka_unit_test(bad_flags_are_wrong_usage),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
