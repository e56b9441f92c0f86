/* quire bench as a person runs it: what it counted is what was asked for. No time is judged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/file.h"
#include "runtime/report.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

static const char *const CONFIG =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64,"
    " \"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
    " \"vocab_size\": 256, \"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0,"
    " \"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"torch_dtype\": \"float32\", \"bos_token_id\": 1,"
    " \"eos_token_id\": 2}";
enum { MAX_ARGUMENTS = 48 };

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

/* Runs quire bench NAME on the tiny model with the given arguments, which end with NULL, added. */
static void bench(struct program *p, const struct temp_folder *folder, const char *name, ...)
{
    const char *argv[MAX_ARGUMENTS] = {
        QUIRE_EXECUTABLE, "bench", name,        "--model", folder->path,       "--load-format", "dummy",
        "--device",       "cpu",   "--threads", "1",       "--kv-cache-space", "0.01"};
    int count = 13;
    va_list args;
    va_start(args, name);
    const char *word;
    while ((word = va_arg(args, const char *)) != NULL && count < MAX_ARGUMENTS - 1) argv[count++] = word;
    va_end(args);
    program_run(p, argv, NULL);
}

static void check_distribution(const json_t *json, const char *key)
{
    char names[4][64];
    static const char *const kinds[] = {"mean", "median", "p90", "p99"};
    for (int i = 0; i < 4; i++) {
        snprintf(names[i], sizeof names[i], "%s_%s_ms", kinds[i], key);
        assert_true(json_require_number(json, names[i]) > 0);
    }
    assert_true(json_require_number(json, names[1]) <= json_require_number(json, names[2]));
    assert_true(json_require_number(json, names[2]) <= json_require_number(json, names[3]));
}

/* Bytes that bench latency says a decode step reads. */
static double bytes_of_a_step(const struct temp_folder *folder, const char *quantization)
{
    struct program p;
    bench(&p, folder, "latency", "--json", "--input-len", "20", "--output-len", "6", "--num-iters", "1",
          "--quantization", quantization, NULL);
    json_t *json = program_json(&p);
    const double bytes =
        json_require_number(json, "decode_read_gb_per_second") * 1e9 * json_require_number(json, "mean_step_ms") / 1e3;
    program_free(&p);
    json_decref(json);
    return bytes;
}

/* The matrices of a layer have 36864 elements and 512 output features; int8 has a scale for each. The embedding is not
 * read, and lm_head, 256 x 64, stays float32. K and V take 512 bytes a token; the steps have 21 to 25 of them. */
static void latency_counts_quantized_weights(void **state)
{
    static const char tied[] = "\"tie_word_embeddings\": true";
    const double rest = 256 * 64 * 4 + 5 * 64 * 4 + 23 * 512;
    char config[1024];
    (void)state;
    struct temp_folder folder;
    const char *at = strstr(CONFIG, tied);
    assert_non_null(at);
    snprintf(config, sizeof config, "%.*s\"tie_word_embeddings\": false%s", (int)(at - CONFIG), CONFIG,
             at + sizeof tied - 1);
    temp_folder_make(&folder);
    temp_folder_write_string(&folder, "config.json", config);
    assert_float_equal(bytes_of_a_step(&folder, "none"), 2 * 36864 * 4 + rest, 600);
    assert_float_equal(bytes_of_a_step(&folder, "int8"), 2 * (36864 + 512 * 4) + rest, 600);
    temp_folder_remove(&folder);
}

static void latency_has_every_time(void **state)
{
    struct program p;
    bench(&p, *state, "latency", "--json", "--input-len", "20", "--output-len", "6", "--batch-size", "3", "--num-iters",
          "2", NULL);
    json_t *json = program_json(&p);
    assert_int_equal(json_require_integer(json, "batch_size"), 3);
    assert_int_equal(json_require_integer(json, "num_iters"), 2);
    check_distribution(json, "ttft");
    check_distribution(json, "tpot");
    check_distribution(json, "step");
    check_distribution(json, "e2el");
    assert_true(json_require_number(json, "mean_ttft_ms") <= json_require_number(json, "mean_e2el_ms"));
    assert_true(json_require_number(json, "decode_throughput") > 0);
    json_decref(json);
    program_free(&p);
}

static void one_token_has_no_time_per_output_token(void **state)
{
    struct program p;
    bench(&p, *state, "latency", "--json", "--input-len", "20", "--output-len", "1", "--num-iters", "1", NULL);
    json_t *json = program_json(&p);
    check_distribution(json, "ttft");
    assert_null(json_object_get(json, "mean_tpot_ms"));
    json_decref(json);
    program_free(&p);
}

static void throughput_counts_what_was_asked_for(void **state)
{
    struct program p;
    bench(&p, *state, "throughput", "--json", "--input-len", "5:30", "--output-len", "2:9", "--num-prompts", "12",
          NULL);
    json_t *json = program_json(&p);
    const int64_t input = json_require_integer(json, "total_input_tokens"),
                  output = json_require_integer(json, "total_output_tokens");
    assert_int_equal(json_require_integer(json, "completed"), 12);
    assert_in_range(input, 12 * 5, 12 * 30);
    assert_in_range(output, 12 * 2, 12 * 9);
    const double seconds = json_require_number(json, "duration");
    assert_float_equal(json_require_number(json, "request_throughput") * seconds, 12, 1e-3);
    assert_float_equal(json_require_number(json, "output_throughput") * seconds, (double)output, 1e-2);
    assert_float_equal(json_require_number(json, "total_token_throughput") * seconds, (double)(input + output), 1e-2);
    check_distribution(json, "ttft");
    check_distribution(json, "e2el");
    json_decref(json);
    program_free(&p);
}

/* One seed always draws the same lengths, another seed other ones. */
static void lengths_follow_the_seed(void **state)
{
    static const char *const seeds[] = {"1", "1", "2"};
    int64_t tokens[3];
    for (int i = 0; i < 3; i++) {
        struct program p;
        bench(&p, *state, "throughput", "--json", "--input-len", "5:100", "--output-len", "2:9", "--num-prompts", "12",
              "--seed", seeds[i], NULL);
        json_t *json = program_json(&p);
        tokens[i] = json_require_integer(json, "total_input_tokens");
        json_decref(json);
        program_free(&p);
    }
    assert_int_equal(tokens[0], tokens[1]);
    assert_int_not_equal(tokens[0], tokens[2]);
}

/* Of the drafts of a benchmark: how many, how many were accepted, how many runs they were in. */
struct drafts {
    int64_t runs, drafted, accepted;
    double length;
};

static struct drafts read_drafts(const json_t *json)
{
    return (struct drafts){json_require_integer(json, "spec_decode_num_drafts"),
                           json_require_integer(json, "spec_decode_draft_tokens"),
                           json_require_integer(json, "spec_decode_accepted_tokens"),
                           json_require_number(json, "spec_decode_acceptance_length")};
}

/* Right drafts: the first token is the prefill's, and each run of 3 drafts gives 4 more, but the last. */
static void latency_accepts_all_drafts_or_none(void **state)
{
    struct program p;
    bench(&p, *state, "latency", "--json", "--input-len", "20", "--output-len", "41", "--num-iters", "2",
          "--batch-size", "2", "--num-speculative-tokens", "3", "--synthetic-acceptance-rate", "1", NULL);
    json_t *json = program_json(&p);
    struct drafts d = read_drafts(json);
    assert_int_equal(d.runs, 2 * 2 * 10);
    assert_int_equal(d.drafted, 3 * d.runs);
    assert_int_equal(d.accepted, d.drafted);
    assert_float_equal(d.length, 4, 1e-6);
    assert_int_equal(json_require_integer(json, "num_speculative_tokens"), 3);
    check_distribution(json, "step");
    const double step = json_require_number(json, "mean_step_ms");
    assert_float_equal(json_require_number(json, "decode_throughput") * step / 1e3, 2 * 4, 1e-3);
    json_decref(json);
    program_free(&p);
    bench(&p, *state, "latency", "--json", "--input-len", "20", "--output-len", "11", "--num-iters", "1",
          "--num-speculative-tokens", "1", "--synthetic-acceptance-rate", "0", NULL);
    json = program_json(&p);
    d = read_drafts(json);
    assert_int_equal(d.accepted, 0);
    assert_int_equal(d.drafted, 9); /* the last token needs none behind it */
    assert_float_equal(d.length, 1, 1e-6);
    json_decref(json);
    program_free(&p);
}

/* A draft is accepted with the probability that was asked for if those before it are: 0.5 + 0.25 + ... */
static void throughput_accepts_a_share_of_drafts(void **state)
{
    struct program p;
    bench(&p, *state, "throughput", "--json", "--input-len", "5:30", "--output-len", "100:200", "--num-prompts", "8",
          "--num-iters", "1", "--num-speculative-tokens", "7", "--synthetic-acceptance-rate", "0.5", NULL);
    json_t *json = program_json(&p);
    const struct drafts d = read_drafts(json);
    assert_int_equal(json_require_integer(json, "completed"), 8);
    assert_in_range(json_require_integer(json, "total_output_tokens"), 800, 1600);
    assert_float_equal(d.length, 1 + 0.5 * (1 - 1 / 128.0) / 0.5, 0.2);
    assert_in_range(d.drafted, 6 * d.runs, 7 * d.runs); /* fewer at the end of an answer */
    json_decref(json);
    program_free(&p);
}

static void synthetic_requests_without_drafts(void **state)
{
    struct program p;
    bench(&p, *state, "latency", "--json", "--input-len", "20", "--output-len", "6", "--num-iters", "1",
          "--synthetic-acceptance-rate", "none", NULL);
    json_t *json = program_json(&p);
    assert_int_equal(json_require_integer(json, "num_speculative_tokens"), 0);
    assert_null(json_object_get(json, "spec_decode_num_drafts"));
    json_decref(json);
    program_free(&p);
    bench(&p, *state, "latency", "--synthetic-acceptance-rate", "0.5", "--speculative-model", "ngram", NULL);
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "leave out the drafter ngram of --speculative-model"));
    program_free(&p);
    static const char *const bad[] = {"1.5", "-0.1", "nan", "x", "0.5x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bench(&p, *state, "throughput", "--synthetic-acceptance-rate", bad[i], NULL);
        assert_int_equal(p.exit_status, 2);
        assert_non_null(
            strstr(p.err.data, "--synthetic-acceptance-rate: expected a number from 0 to 1, or none, got '"));
        program_free(&p);
    }
}

static void prefill_counts_prompt_tokens(void **state)
{
    struct program p;
    bench(&p, *state, "prefill", "--json", "--input-len", "33", "--num-iters", "3", NULL);
    json_t *json = program_json(&p);
    assert_int_equal(json_require_integer(json, "total_input_tokens"), 99);
    assert_true(json_require_number(json, "prefill_throughput") > 0);
    assert_true(json_require_number(json, "matmul_gflops") > 0);
    assert_float_equal(json_require_number(json, "prefill_matmul_percent"),
                       100 * json_require_number(json, "prefill_gflops") / json_require_number(json, "matmul_gflops"),
                       1e-3);
    check_distribution(json, "ttft");
    json_decref(json);
    program_free(&p);
}

static void cache_shares_whole_blocks(void **state)
{
    struct program p;
    bench(&p, *state, "cache", "--json", "--prefix-len", "100", "--input-len", "10", "--output-len", "4",
          "--num-prompts", "8", "--num-iters", "1", NULL);
    json_t *json = program_json(&p);
    /* 6 whole blocks of 16 are shared. Before the last step 112 tokens have a slot, in 7 blocks: one is each prompt's
     * own. */
    assert_int_equal(json_require_integer(json, "cached_tokens"), 96);
    assert_int_equal(json_require_integer(json, "unshared_blocks"), 8 * 7);
    assert_int_equal(json_require_integer(json, "peak_blocks"), 6 + 8);
    check_distribution(json, "ttft_cold");
    check_distribution(json, "ttft_cached");
    json_decref(json);
    program_free(&p);
}

/* Runs quire bench kernels at the shapes of the tiny model with the given arguments, which end with NULL, added. */
static void bench_kernels(struct program *p, const struct temp_folder *folder, ...)
{
    const char *argv[MAX_ARGUMENTS] = {QUIRE_EXECUTABLE, "bench", "kernels",   "--model", folder->path,
                                       "--device",       "cpu",   "--threads", "1"};
    int count = 9;
    va_list args;
    va_start(args, folder);
    const char *word;
    while ((word = va_arg(args, const char *)) != NULL && count < MAX_ARGUMENTS - 1) argv[count++] = word;
    va_end(args);
    program_run(p, argv, NULL);
}

static const char *string(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (!value) fail_msg("%s is missing or no text", key);
    return value;
}

/* Every operation is there, and what it read follows from the shape. */
static void kernels_measures_every_operation(void **state)
{
    static const char *const names[] = {"linear",          "rms_norm",         "fused_add_rms_norm",
                                        "act_and_mul",     "rotary_embedding", "reshape_and_cache",
                                        "paged_attention", "copy_blocks",      "paged_attention_prefill",
                                        "sample",          "swap_blocks"};
    struct program p;
    bench_kernels(&p, *state, "--json", NULL);
    json_t *json = program_json(&p);
    int seen[11] = {0};
    size_t i;
    const json_t *kernel;
    assert_string_equal(string(json, "weights_dtype"), "float32");
    assert_true(json_require_number(json, "memory_gb_per_second") > 0);
    assert_true(json_require_number(json, "matmul_gflops") > 0);
    json_array_foreach(json_object_get(json, "kernels"), i, kernel)
    {
        for (int j = 0; j < 11; j++) seen[j] += strcmp(string(kernel, "kernel"), names[j]) == 0;
        assert_true(json_require_number(kernel, "microseconds") > 0);
        assert_true(json_require_number(kernel, "bytes") > 0);
        assert_true(json_require_number(kernel, "percent_of_limit") > 0);
        if (strcmp(string(kernel, "shape"), "8 tokens, 128x64") != 0) continue; /* the projection to q, k and v */
        assert_int_equal(json_require_number(kernel, "operations"), 2 * 8 * 128 * 64);
        assert_int_equal(json_require_number(kernel, "bytes"), 4 * (128 * 64 + 8 * 64 + 8 * 128));
    }
    assert_int_equal(seen[0], 5 * 5);
    for (int j = 1; j < 11; j++)
        if (!seen[j]) fail_msg("%s was not measured", names[j]);
    json_decref(json);
    program_free(&p);
}

/* Of 64 float32 elements a token, which each rank reads and writes. CPU ranks have no NCCL and no fused operation. */
static void kernels_of_ranks(void **state)
{
    static const int counts[] = {1, 8, 32, 256, 2048};
    struct program p;
    size_t i;
    const json_t *kernel;
    bench_kernels(&p, *state, "--json", "-tp", "2", "--filter", "all_reduce", NULL);
    json_t *json = program_json(&p);
    assert_int_equal(json_require_integer(json, "tensor_parallel_size"), 2);
    assert_int_equal(json_array_size(json_object_get(json, "kernels")), 5);
    json_array_foreach(json_object_get(json, "kernels"), i, kernel)
    {
        assert_string_equal(string(kernel, "kernel"), "all_reduce");
        assert_int_equal(json_require_integer(kernel, "count"), counts[i]);
        assert_int_equal(json_require_number(kernel, "bytes"), 2 * 4 * 64 * counts[i]);
        assert_true(json_require_number(kernel, "microseconds") > 0);
    }
    json_decref(json);
    program_free(&p);
}

/* The weight of 128 x 64 in 8 bits with scales of rows, and in 4 bits with groups of 64; lm_head stays float32. */
static void kernels_of_quantized_weights(void **state)
{
    static const struct {
        const char *name;
        double bytes;
    } formats[] = {{"int8", 128 * 64 + 128 * 4}, {"fp8", 128 * 64 + 128 * 4}, {"int4", 128 * 32 + 128 * 2 + 128}};
    for (int f = 0; f < 3; f++) {
        struct program p;
        bench_kernels(&p, *state, "--json", "--quantization", formats[f].name, "--filter", "linear 8 tok", NULL);
        json_t *json = program_json(&p);
        size_t i;
        const json_t *kernel;
        int checked = 0;
        assert_true(strncmp(string(json, "quantization"), formats[f].name, 3) == 0);
        json_array_foreach(json_object_get(json, "kernels"), i, kernel)
        {
            const bool qkv = strcmp(string(kernel, "shape"), "8 tokens, 128x64") == 0;
            const bool lm_head = strcmp(string(kernel, "shape"), "8 tokens, 256x64") == 0 && i == 4;
            const double weight = qkv ? formats[f].bytes : 256 * 64 * 4;
            if (!qkv && !lm_head) continue;
            checked++;
            assert_true(json_require_number(kernel, "microseconds") > 0);
            assert_int_equal(json_require_number(kernel, "bytes"), weight + 4 * (8 * 64 + 8 * (qkv ? 128 : 256)));
        }
        assert_int_equal(checked, 2);
        json_decref(json);
        program_free(&p);
    }
}

/* Rows of experts are there for a model that has them. Read are the matrices of the distinct experts: top 2 of 3, of 64
 * x 64 and 64 x 32. Eight tokens go to all of them. */
static void kernels_of_experts(void **state)
{
    (void)state;
    static const struct {
        const char *kernel, *shape;
        int experts, weight, others, operations;
    } rows[] = {
        {"route_experts", "8 tokens", 0, 0, 8 * 3 + 4 + 3 * 16, 0},
        {"experts_gate_up", "1 token, 64x64", 2, 64 * 64, 64 + 2 * 32, 2 * 2 * 64 * 64},
        {"experts_gate_up", "8 tokens, 64x64", 3, 64 * 64, 8 * 64 + 16 * 32, 2 * 16 * 64 * 64},
        {"experts_gate_up", "512 tokens, 64x64, same experts", 2, 64 * 64, 512 * 64 + 1024 * 32, 2 * 1024 * 64 * 64},
        {"experts_down", "1 token, 64x32", 2, 64 * 32, 2 * 32 + 64, 2 * 2 * 64 * 32},
        {"experts_down", "512 tokens, 64x32, same experts", 2, 64 * 32, 1024 * 32 + 512 * 64, 2 * 1024 * 64 * 32}};
    enum { NUM_ROWS = sizeof rows / sizeof *rows };
    const struct temp_folder model = {QUIRE_TEST_DATA "/quantize/qwen3_moe"};
    for (int int4 = 0; int4 < 2; int4++) { /* groups of 32 with 16-bit scales, or bfloat16 */
        struct program p;
        int seen = 0;
        size_t i;
        const json_t *kernel;
        bench_kernels(&p, &model, "--json", "--filter", "expert", "--quantization", int4 ? "int4" : "none", NULL);
        json_t *json = program_json(&p);
        json_array_foreach(json_object_get(json, "kernels"), i, kernel)
        {
            assert_true(json_require_number(kernel, "microseconds") > 0);
            for (int j = 0; j < NUM_ROWS; j++) {
                if (strcmp(string(kernel, "kernel"), rows[j].kernel) || strcmp(string(kernel, "shape"), rows[j].shape))
                    continue;
                const int weight = int4 ? rows[j].weight / 2 + rows[j].weight / 32 * 2 : rows[j].weight * 2;
                seen++;
                assert_int_equal(json_require_number(kernel, "bytes"), rows[j].experts * weight + 4 * rows[j].others);
                assert_int_equal(json_require_number(kernel, "operations"), rows[j].operations);
            }
        }
        assert_int_equal(seen, NUM_ROWS);
        assert_int_equal(i, 3 * 7 + 2);
        json_decref(json);
        program_free(&p);
    }
}

/* States are read and written once, in float32. */
static void kernels_of_recurrent_layers(void **state)
{
    (void)state;
    enum { K = 16, V = 2 * 32, CHANNELS = 2 * K + V, WIDTH = 4 };
    static const struct {
        const char *kernel, *shape;
        int bytes;
    } rows[] = {{"recurrence", "1 sequence", 4 * (CHANNELS + V + 2 * V * K)},
                {"recurrence", "32 sequences", 32 * 4 * (CHANNELS + V + 2 * V * K)},
                {"recurrence", "2048 tokens", 4 * (2048 * (CHANNELS + V) + 2 * V * K)},
                {"short_conv", "8 sequences", 8 * 4 * CHANNELS * (2 + 2 * (WIDTH - 1)) + 4 * CHANNELS * WIDTH},
                {"short_conv", "2048 tokens", 4 * CHANNELS * (2 * 2048 + 2 * (WIDTH - 1)) + 4 * CHANNELS * WIDTH}};
    enum { NUM_ROWS = sizeof rows / sizeof *rows };
    const struct temp_folder model = {QUIRE_TEST_DATA "/golden/qwen3_5_moe"};
    int seen = 0;
    for (int of_conv = 0; of_conv < 2; of_conv++) {
        struct program p;
        size_t i;
        const json_t *kernel;
        bench_kernels(&p, &model, "--json", "--filter", of_conv ? "short_conv" : "recurrence", NULL);
        json_t *json = program_json(&p);
        json_array_foreach(json_object_get(json, "kernels"), i, kernel)
        {
            for (int j = 0; j < NUM_ROWS; j++) {
                if (strcmp(string(kernel, "kernel"), rows[j].kernel) || strcmp(string(kernel, "shape"), rows[j].shape))
                    continue;
                seen++;
                assert_int_equal(json_require_number(kernel, "bytes"), rows[j].bytes);
            }
        }
        assert_int_equal(i, 6);
        json_decref(json);
        program_free(&p);
    }
    assert_int_equal(seen, NUM_ROWS);
}

static void kernels_are_chosen_by_a_text(void **state)
{
    struct program p;
    bench_kernels(&p, *state, "--json", "--dtype", "bfloat16", "--filter", "norm 256 tok", NULL);
    json_t *json = program_json(&p);
    const json_t *kernels = json_object_get(json, "kernels");
    assert_int_equal(json_array_size(kernels), 2);
    assert_string_equal(string(json_array_get(kernels, 0), "kernel"), "rms_norm");
    assert_string_equal(string(json_array_get(kernels, 1), "kernel"), "fused_add_rms_norm");
    assert_string_equal(string(json, "weights_dtype"), "bfloat16");
    assert_string_equal(string(json, "dtype"), "float32");
    assert_int_equal(json_require_integer(json_array_get(kernels, 0), "count"), 256);
    assert_null(json_object_get(json, "matmul_gflops")); /* nothing here needs it */
    json_decref(json);
    program_free(&p);

    bench_kernels(&p, *state, "--filter", "convolution", NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "convolution"));
    program_free(&p);

    bench_kernels(&p, *state, "--device", "cpu", "--filter", "decode_attention", NULL); /* the CPU has no fused ones */
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "cpu has no kernel"));
    program_free(&p);
}

static void kernels_table(void **state)
{
    struct program p;
    bench_kernels(&p, *state, "--filter", "copy_blocks", NULL);
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "GFLOP/s"));
    assert_non_null(strstr(p.out.data, "32 blocks"));
    assert_null(strstr(p.out.data, "linear"));
    assert_null(strchr(p.out.data, '\033'));
    program_free(&p);

    bench_kernels(&p, *state, "--block-size", "24", NULL);
    assert_int_equal(p.exit_status, 2);
    program_free(&p);
    bench_kernels(&p, *state, "--device", "tpu", NULL);
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "tpu"));
    program_free(&p);
}

/* Runs quire bench scheduler at small counts with the given arguments, which end with NULL, added. */
static void bench_scheduler(struct program *p, ...)
{
    const char *argv[MAX_ARGUMENTS] = {
        QUIRE_EXECUTABLE, "bench",        "scheduler", "--num-iters",   "2", "--num-prompts", "60", "--prefix-len",
        "1024",           "--num-blocks", "100000",    "--num-waiting", "50"};
    int count = 13;
    va_list args;
    va_start(args, p);
    const char *word;
    while ((word = va_arg(args, const char *)) != NULL && count < MAX_ARGUMENTS - 1) argv[count++] = word;
    va_end(args);
    program_run(p, argv, NULL);
}

static void check_operation(const json_t *operation, const char *name, double count)
{
    const double best = json_require_number(operation, "microseconds");
    assert_string_equal(string(operation, "operation"), name);
    assert_true(best > 0);
    assert_true(json_require_number(operation, "median_microseconds") >= best);
    assert_float_equal(json_require_number(operation, "count"), count, 0);
    assert_float_equal(json_require_number(operation, "nanoseconds_each") * count, 1e3 * best, 1e-3 * best);
}

static void scheduler_measures_every_part(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double count;
    } expected[] = {
        {"start with 100000 blocks", 100000},
        {"8 decodes, 1 in flight", 8},
        {"8 decodes, 2 in flight", 8},
        {"chat, a step", 1},
        {"admission of 1024 cached tokens", 64},
        {"its end", 64},
        {"one decode of that length", 1},
        {"and a request that has to wait", 1},
        {"50 requests are added", 50},
        {"and aborted in random order", 50},
        {"and handed back", 50},
    };
    enum { COUNT = sizeof expected / sizeof expected[0] };
    struct program p;
    bench_scheduler(&p, "--json", "--batch-size", "8", NULL);
    assert_string_equal(p.err.data, "");
    json_t *json = program_json(&p);
    const json_t *operations = json_object_get(json, "operations");
    assert_int_equal(json_array_size(operations), COUNT);
    for (size_t i = 0; i < COUNT; i++)
        check_operation(json_array_get(operations, i), expected[i].name, expected[i].count);
    assert_int_equal(json_require_integer(json, "num_prompts"), 60);
    assert_true(json_require_integer(json, "preemptions") > 0); /* the chat's pool is too small on purpose */
    /* Answers end between 100 and 1,024 tokens, in 8 places. */
    assert_in_range(json_require_integer(json, "steps"), 60 * 100 / 8, 60 * 1024 / 8 - 1);
    assert_in_range(json_require_number(json, "hit_rate"), 20, 90);
    assert_in_range(json_require_number(json, "tokens_per_step"), 8, 8192);
    json_decref(json);
    program_free(&p);
}

/* One seed always gives the same requests, and so the same steps. */
static void scheduler_follows_the_seed(void **state)
{
    (void)state;
    static const char *const seeds[] = {"1", "1", "2"};
    int64_t steps[3];
    for (int i = 0; i < 3; i++) {
        struct program p;
        bench_scheduler(&p, "--json", "--batch-size", "8", "--filter", "chat", "--seed", seeds[i], NULL);
        json_t *json = program_json(&p);
        steps[i] = json_require_integer(json, "steps");
        json_decref(json);
        program_free(&p);
    }
    assert_int_equal(steps[0], steps[1]);
    assert_int_not_equal(steps[0], steps[2]);
}

static void scheduler_table(void **state)
{
    (void)state;
    struct program p;
    bench_scheduler(&p, "--filter", "mem", NULL);
    assert_int_equal(p.exit_status, 0);
    assert_null(strstr(p.out.data, "decodes"));
    program_free(&p);

    bench_scheduler(&p, "--filter", "queue", NULL);
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "50 requests are added"));
    assert_null(strstr(p.out.data, "chat"));
    program_free(&p);

    bench_scheduler(&p, "--filter", "norm", NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "long prompt"));
    program_free(&p);

    bench_scheduler(&p, "--prefix-len", "1000", NULL);
    assert_int_equal(p.exit_status, 2);
    program_free(&p);
}

static void tables_are_plain_text(void **state)
{
    struct program p;
    bench(&p, *state, "latency", "--input-len", "20", "--output-len", "6", "--num-iters", "1", NULL);
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "time to first token"));
    assert_non_null(strstr(p.out.data, "p99"));
    assert_null(strchr(p.out.data, '\033'));
    assert_null(strchr(p.out.data, '\t'));
    program_free(&p);
}

static void lengths_that_do_not_fit_are_refused(void **state)
{
    struct program p;
    bench(&p, *state, "latency", "--input-len", "250", "--output-len", "7", NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "257"));
    assert_non_null(strstr(p.err.data, "256"));
    program_free(&p);
}

static void wrong_usage(void **state)
{
    static const char *const lengths[] = {"0", "9:5", "5:", ":5", "x", "5:6:7", "-3", ""};
    struct program p;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        bench(&p, *state, "latency", "--input-len", lengths[i], NULL);
        if (p.exit_status != 2) fail_msg("--input-len '%s': exit status %d", lengths[i], p.exit_status);
        program_free(&p);
    }
    bench(&p, *state, "speed", NULL);
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "speed"));
    program_free(&p);

    const char *const nothing[] = {QUIRE_EXECUTABLE, "bench", NULL};
    program_run(&p, nothing, NULL);
    assert_int_equal(p.exit_status, 2);
    assert_int_equal(p.out.length, 0);
    program_free(&p);

    bench(&p, *state, "cache", "--help", NULL);
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "--prefix-len"));
    program_free(&p);
}

/* A result whose runs of "speed" have these values. */
static void write_result(const struct temp_folder *folder, const char *name, const char *benchmark, const char *better,
                         const char *values)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"benchmark\": \"%s\", \"threads\": %d, \"runs\": {\"speed\": {\"unit\": \"tokens/s\", "
             "\"better\": \"%s\", \"values\": [%s]}}}",
             benchmark, name[0], better, values);
    temp_folder_write_string(folder, name, text);
}

static void compare(struct program *p, const struct temp_folder *folder, const char *a, const char *b)
{
    char paths[2][512];
    assert_true(path_join(paths[0], sizeof paths[0], folder->path, a));
    assert_true(path_join(paths[1], sizeof paths[1], folder->path, b));
    program_run(p, (const char *[]){QUIRE_EXECUTABLE, "bench", "--compare", paths[0], b ? paths[1] : NULL, NULL}, NULL);
}

/* Ranges without a common value are a difference; which way is better, the file says. */
static void comparison_knows_the_spread(void **state)
{
    (void)state;
    static const struct {
        const char *better, *a, *b, *ratio, *verdict;
    } cases[] = {
        {"higher", "90, 100, 110", "120, 111, 130", "1.200", "BETTER"},
        {"lower", "90, 100, 110", "120, 111, 130", "1.200", "WORSE"},
        {"higher", "90, 100, 110", "110, 120, 130", "1.200", "within the spread"},
        {"higher", "90, 100, 110", "40, 50, 60", "0.500", "WORSE"},
        {"lower", "90, 100, 110", "40, 50, 60", "0.500", "BETTER"},
        {"lower", "100", "40, 50, 60", "0.500", "one run alone: no spread"},
    };
    struct temp_folder folder;
    struct program p;
    temp_folder_make(&folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_result(&folder, "a", "latency", cases[i].better, cases[i].a);
        write_result(&folder, "b", "latency", cases[i].better, cases[i].b);
        compare(&p, &folder, "a", "b");
        assert_int_equal(p.exit_status, 0);
        if (!strstr(p.out.data, cases[i].ratio) || !strstr(p.out.data, cases[i].verdict)) fail_msg("%s", p.out.data);
        assert_non_null(strstr(p.out.data, "threads       differs: 97, 98"));
        program_free(&p);
    }
    temp_folder_remove(&folder);
}

static void what_cannot_be_compared(void **state)
{
    (void)state;
    static const struct {
        const char *a, *sentence;
    } cases[] = {
        {"{}", "a: no result of quire bench NAME --json"},
        {"[", "a: "},
        {"{\"benchmark\": \"prefill\"}", "is of quire bench prefill, but"},
        {"{\"benchmark\": \"latency\"}", "have no figure in common"},
        {"{\"benchmark\": \"latency\", \"runs\": {\"speed\": 3}, \"kernels\": [3]}", "have no figure in common"},
    };
    struct temp_folder folder;
    struct program p;
    temp_folder_make(&folder);
    write_result(&folder, "b", "latency", "higher", "1, 2");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        temp_folder_write_string(&folder, "a", cases[i].a);
        compare(&p, &folder, "a", "b");
        assert_int_equal(p.exit_status, 1);
        if (!strstr(p.err.data, cases[i].sentence)) fail_msg("%s", p.err.data);
        program_free(&p);
    }
    compare(&p, &folder, "missing", "b");
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "missing"));
    program_free(&p);
    program_run(&p, (const char *[]){QUIRE_EXECUTABLE, "bench", "--compare", "a", NULL}, NULL);
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "--compare needs two files"));
    program_free(&p);
    temp_folder_remove(&folder);
}

#define GRAMMARS                                                                                                       \
    "{\"json\": {\"type\": \"integer\"}, \"answer\": \"12\"}\n\n{\"regex\": \"(ab)*\", \"answer\": \"ababab\"}\n"

/* Runs quire bench grammar on a file of these lines, with a flag more or NULL. */
static void bench_grammar(struct program *p, const char *lines, const char *flag)
{
    struct temp_folder folder;
    char file[sizeof folder.path + 16];
    temp_folder_make(&folder);
    temp_folder_write_string(&folder, "lines", lines);
    snprintf(file, sizeof file, "%s/lines", folder.path);
    program_run(
        p,
        (const char *[]){QUIRE_EXECUTABLE, "bench", "grammar", file, "-m", QUIRE_GUIDE, "--num-iters", "2", flag, NULL},
        NULL);
    temp_folder_remove(&folder);
}

static void grammar_follows_answers(void **state)
{
    (void)state;
    struct program p;
    bench_grammar(&p, GRAMMARS, "--json");
    assert_int_equal(p.exit_status, 0);
    json_t *json = program_json(&p);
    assert_int_equal(json_integer_value(json_object_get(json, "num_grammars")), 2);
    assert_true(json_integer_value(json_object_get(json, "num_tokens")) >= 2);
    json_decref(json);
    program_free(&p);
    bench_grammar(&p, GRAMMARS, NULL);
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "mask of a second answer"));
    program_free(&p);
}

static void grammar_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *sentence;
    } cases[] = {
        {"\n{\"regex\": \"a\", \"answer\": \"b\"}", "lines:2: the grammar refuses token 0 of the answer"},
        {"{\"regex\": \"aaa\", \"answer\": \"a\"}", "lines:1: the answer ends before a text of the grammar does"},
        {"{\"regex\": \"a\"}", "lines:1: expected an object with a grammar"},
        {"{\"regex\": \"(\", \"answer\": \"a\"}", "lines:1: "},
        {"\n", "has no line with a grammar"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct program p;
        bench_grammar(&p, cases[i].lines, NULL);
        assert_int_equal(p.exit_status, 1);
        if (!strstr(p.err.data, cases[i].sentence)) fail_msg("%s", p.err.data);
        program_free(&p);
    }
}

/* Every benchmark's JSON compared with itself: nothing differs, and there is something to compare. */
static void results_can_be_compared(void **state)
{
    static const char *const names[] = {"latency", "throughput", "prefill", "cache", "kernels", "scheduler", "grammar"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct temp_folder folder;
        struct program p;
        if (i == 4)
            program_run(&p,
                        (const char *[]){QUIRE_EXECUTABLE, "bench", names[i], "--json", "--device", "cpu", "--threads",
                                         "1", "--filter", "rms_norm 1 token", NULL},
                        NULL);
        else if (i == 5)
            program_run(&p,
                        (const char *[]){QUIRE_EXECUTABLE, "bench", names[i], "--json", "--filter", "queue",
                                         "--num-waiting", "50", "--num-iters", "2", NULL},
                        NULL);
        else if (i == 6)
            bench_grammar(&p, GRAMMARS, "--json");
        else
            bench(&p, *state, names[i], "--input-len", "8", "--num-iters", "2", "--json",
                  strcmp(names[i], "cache") == 0 ? "--prefix-len" : NULL, "32", NULL);
        json_t *json = program_json(&p);
        assert_non_null(json_object_get(json, "processor"));
        assert_non_null(json_object_get(json, "build"));
        temp_folder_make(&folder);
        temp_folder_write_string(&folder, "a", p.out.data);
        json_decref(json);
        program_free(&p);
        compare(&p, &folder, "a", "a");
        if (p.exit_status != 0) fail_msg("%s", p.err.data);
        assert_non_null(strstr(p.out.data, "within the spread"));
        assert_non_null(strstr(p.out.data, "B is better in 0 and worse in 0"));
        assert_null(strstr(p.out.data, "differs"));
        program_free(&p);
        temp_folder_remove(&folder);
    }
}

/* A count of one is not followed by a plural. */
static void one_thread_is_one_thread(void **state)
{
    struct program p;
    bench(&p, *state, "latency", "--input-len", "4", "--output-len", "2", "--num-iters", "1", NULL);
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "cpu (1 thread, "));
    program_free(&p);
}

static void percentiles_are_numpys(void **state)
{
    (void)state;
    struct samples s = {0};
    static const double values[] = {4, 1, 3, 2};
    for (int i = 0; i < 4; i++) samples_add(&s, values[i]);
    assert_float_equal(samples_mean(&s), 2.5, 1e-12);
    assert_float_equal(samples_percentile(&s, 0), 1, 1e-12);
    assert_float_equal(samples_percentile(&s, 50), 2.5, 1e-12);
    assert_float_equal(samples_percentile(&s, 90), 3.7, 1e-12);
    assert_float_equal(samples_percentile(&s, 100), 4, 1e-12);
    samples_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_is_one_thread),
        cmocka_unit_test(latency_counts_quantized_weights),
        cmocka_unit_test(latency_has_every_time),
        cmocka_unit_test(latency_accepts_all_drafts_or_none),
        cmocka_unit_test(throughput_accepts_a_share_of_drafts),
        cmocka_unit_test(synthetic_requests_without_drafts),
        cmocka_unit_test(one_token_has_no_time_per_output_token),
        cmocka_unit_test(throughput_counts_what_was_asked_for),
        cmocka_unit_test(lengths_follow_the_seed),
        cmocka_unit_test(prefill_counts_prompt_tokens),
        cmocka_unit_test(cache_shares_whole_blocks),
        cmocka_unit_test(kernels_measures_every_operation),
        cmocka_unit_test(kernels_of_ranks),
        cmocka_unit_test(kernels_of_quantized_weights),
        cmocka_unit_test(kernels_of_experts),
        cmocka_unit_test(kernels_of_recurrent_layers),
        cmocka_unit_test(kernels_are_chosen_by_a_text),
        cmocka_unit_test(kernels_table),
        cmocka_unit_test(scheduler_measures_every_part),
        cmocka_unit_test(scheduler_follows_the_seed),
        cmocka_unit_test(grammar_follows_answers),
        cmocka_unit_test(grammar_refuses),
        cmocka_unit_test(scheduler_table),
        cmocka_unit_test(tables_are_plain_text),
        cmocka_unit_test(lengths_that_do_not_fit_are_refused),
        cmocka_unit_test(wrong_usage),
        cmocka_unit_test(percentiles_are_numpys),
        cmocka_unit_test(comparison_knows_the_spread),
        cmocka_unit_test(what_cannot_be_compared),
        cmocka_unit_test(results_can_be_compared),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
