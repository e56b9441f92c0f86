#include "runtime/bench/bench.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/edit_distance.h"
#include "model/quantization.h"
#include "runtime/bench/kernels.h"
#include "runtime/interrupt.h"
#include "runtime/options/engine_flags.h"
#include "runtime/node.h"
#include "runtime/options/model_folder.h"

struct benchmark {
    struct command command;
    bench_function *run;
    struct bench_options defaults; /* the engine's options are set elsewhere; what is 0, or one token, has no flag */
};

static bool parse_length(const char *text, const char **end, int32_t *value)
{
    char *stop;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    const long number = strtol(text, &stop, 10);
    *end = stop;
    *value = (int32_t)number;
    return errno == 0 && number >= 1 && number <= 1 << 24;
}

/* "N" or "A:B". */
static enum status parse_range(void *target, const char *text, struct error *err)
{
    struct bench_range range = {0, 0};
    const char *end;
    bool ok = parse_length(text, &end, &range.minimum);
    range.maximum = range.minimum;
    if (ok && *end == ':') ok = parse_length(end + 1, &end, &range.maximum);
    if (!ok || *end || range.maximum < range.minimum)
        return error_set(err, STATUS_INVALID, "expected a number of tokens from 1, or two as A:B, A <= B, got '%s'",
                         text);
    *(struct bench_range *)target = range;
    return STATUS_OK;
}

enum { MOST = 1 << 20 }; /* of anything that is counted */

/* Adds the flag if the benchmark has it. Its own flags are common, the engine's may not be. */
static void add_if(bool has, struct option_table *table, struct option_spec spec)
{
    spec.common = true;
    if (has) option_table_add(table, &spec, 1);
}

static void write_help(char *out, size_t size, const char *what, struct bench_range range)
{
    if (range.minimum == range.maximum)
        snprintf(out, size, "%s, or a range to draw from. Default: %d.", what, range.minimum);
    else
        snprintf(out, size, "%s, or a range to draw from. Default: %d:%d.", what, range.minimum, range.maximum);
}

static void add_own_flags(struct option_table *table, struct bench_options *o)
{
    write_help(o->help.input, sizeof o->help.input,
               o->prefix_len > 0 ? "Tokens of a prompt's own" : "Tokens of a prompt", o->input_len);
    write_help(o->help.output, sizeof o->help.output, "Tokens of an answer", o->output_len);
    snprintf(o->help.iters, sizeof o->help.iters, "Times to measure. Default: %d.", o->num_iters);
    add_if(true, table,
           (struct option_spec){"input-len", OPTION_CUSTOM, &o->input_len, "N|A:B", .help = o->help.input,
                                .heading = "Benchmark:", .parse = parse_range});
    add_if(o->output_len.maximum > 1, table,
           (struct option_spec){"output-len", OPTION_CUSTOM, &o->output_len, "N|A:B", .help = o->help.output,
                                .parse = parse_range});
    add_if(o->batch_size > 0, table,
           bench_count_flag("batch-size", &o->batch_size, 1, MOST, "Requests at once. Default: 1."));
    add_if(o->num_prompts > 0, table,
           bench_count_flag("num-prompts", &o->num_prompts, 1, MOST, "Requests in all. Default: 64."));
    add_if(o->prefix_len > 0, table,
           bench_count_flag("prefix-len", &o->prefix_len, 1, MOST, "Tokens that all prompts share. Default: 500."));
    add_if(true, table, bench_count_flag("num-iters", &o->num_iters, 1, MOST, o->help.iters));
    add_if(true, table,
           bench_count_flag("num-iters-warmup", &o->num_iters_warmup, 0, MOST,
                            "Times to run before measuring. Default: 1."));
    add_if(o->output_len.maximum > 1 && o->prefix_len == 0, table, bench_drafts_flag(o));
    add_if(true, table,
           (struct option_spec){"json", OPTION_SWITCH, &o->json,
                                .help = "Print one JSON object, with the names of vLLM's bench, for --compare."});
    trace_flag_add(table, &o->engine);
}

static enum status check_lengths(const struct bench_options *o, const struct engine_info *info, struct error *err)
{
    const int64_t longest = (int64_t)o->prefix_len + o->input_len.maximum + o->output_len.maximum;
    const int32_t max_model_len = info->limits->max_model_len;
    if (longest <= max_model_len) return STATUS_OK;
    return error_set(
        err, STATUS_INVALID,
        "prompt and answer together have up to %lld tokens, but max_model_len is %d: lower --input-len%s%s",
        (long long)longest, max_model_len, o->prefix_len ? ", --prefix-len" : "",
        o->output_len.maximum > 1 ? " or --output-len" : "");
}

static void report_model(struct bench *b)
{
    const struct engine_info *info = engine_pool_info(b->pool);
    const struct model_spec *spec = &info->config->spec;
    const struct layer_sizes largest = model_spec_largest(spec);
    const struct memory_profile *memory = info->memory;
    const struct batch_limits *limits = info->limits;
    const struct quantization_words quantization = quantization_words(spec);
    const bool quantized = quantization.text[0];
    char *title = b->report.title;
    const size_t length = strlen(title);
    int64_t weights = 0; /* of all ranks */
    for (int32_t r = 0; r < info->num_ranks; r++) weights += info->rank_memory[r].weights;
    snprintf(
        title + length, sizeof b->report.title - length,
        "\nmodel    %d layer%s of %d, %d head%s (%d of K and V), %.2f GiB of weights%s%s%s%s; blocks of %d tokens, "
        "cache %s",
        spec->num_layers, plural(spec->num_layers), spec->hidden_size, largest.num_heads, plural(largest.num_heads),
        largest.num_kv_heads, (double)weights / (1 << 30), quantized ? " (" : "", quantization.text,
        quantized ? ")" : "", b->options->engine.load_format == LOAD_FORMAT_DUMMY ? ", dummy" : "", limits->block_size,
        dtype_name(memory->cache_dtype));
    report_string(&b->report, "quantization", quantized ? quantization.text : "none");
    report_integer(&b->report, "block_size", NULL, limits->block_size);
    report_integer(&b->report, "weights_bytes", NULL, weights);
}

/* Adds a line with so many names of devices to the title. */
static void report_devices(struct bench *b, const char *words, int count,
                           const char *(*device)(const struct bench *b, int number))
{
    char *title = b->report.title;
    size_t length = strlen(title);
    length += (size_t)snprintf(title + length, sizeof b->report.title - length, "%s", words);
    for (int i = 0; i < count && length < sizeof b->report.title; i++)
        length +=
            (size_t)snprintf(title + length, sizeof b->report.title - length, "%s%s", i == 0 ? "" : ", ", device(b, i));
}

static const char *rank_device(const struct bench *b, int rank)
{
    return engine_pool_info(b->pool)->rank_memory[rank].device;
}

/* What the title says of the device is true of each rank. */
static void report_ranks(struct bench *b)
{
    const struct engine_options *o = &b->options->engine;
    const int count = engine_pool_info(b->pool)->num_ranks;
    char words[64];
    report_integer(&b->report, "tensor_parallel_size", NULL, o->tensor_parallel_size);
    report_integer(&b->report, "pipeline_parallel_size", NULL, o->pipeline_parallel_size);
    snprintf(words, sizeof words, "\nranks    %d share the model, on ", count);
    if (count > 1) report_devices(b, words, count, rank_device);
}

static const char *engine_device(const struct bench *b, int number)
{
    return engine_pool_device(b->pool, number);
}

/* What the title says of the device, the threads and the model is true of each engine. */
static void report_engines(struct bench *b)
{
    const int size = engine_pool_size(b->pool);
    char words[64];
    report_integer(&b->report, "data_parallel_size", NULL, size);
    snprintf(words, sizeof words, "\nengines  %d, each with all of that, on ", size);
    if (size > 1) report_devices(b, words, size, engine_device);
}

static void report_setting(struct bench *b, const char *name)
{
    const struct engine_info *info = engine_pool_info(b->pool);
    const char *model = b->options->engine.model, *dtype = dtype_name(info->memory->dtype);
    char threads[40];
    bench_report_device(&b->report, name, model, info->device, info->threads, info->isa, threads);
    report_string(&b->report, "dtype", dtype);
    report_number(&b->report, "start_seconds", NULL, b->start_seconds, "s");
    snprintf(b->report.title, sizeof b->report.title, "%s: %.300s on %s%s, %s, ready in %.3f s", name, model,
             info->device, threads, dtype, b->start_seconds);
    report_model(b);
    report_ranks(b);
    report_engines(b);
    bench_drafts_setting(b);
    bench_report_machine(&b->report, info->discrete ? info->device : NULL);
}

static enum status run_benchmark(const struct bench_options *options, struct error *err)
{
    struct bench b = {.options = options, .random = {options->engine.seed}};
    const double start = clock_seconds();
    enum status status = engine_pool_create(&options->engine, &b.pool, err);
    if (status != STATUS_OK) return status;
    b.start_seconds = clock_seconds() - start;
    interrupt_catch_to_end();
    report_init(&b.report);
    status = check_lengths(options, engine_pool_info(b.pool), err);
    if (status == STATUS_OK) {
        report_setting(&b, options->benchmark->command.name);
        status = options->benchmark->run(&b, err);
    }
    if (status == STATUS_OK && !report_print(&b.report, options->json, stdout))
        status = error_set(err, STATUS_IO, "cannot write the results to standard output");
    report_free(&b.report);
    engine_pool_leave(b.pool);
    return status;
}

/* ---- the commands ---- */

static void add_flags(const struct command *c, struct option_table *table, void *options)
{
    const struct benchmark *benchmark = (const struct benchmark *)c; /* whose first member it is */
    struct bench_options *o = options;
    *o = benchmark->defaults;
    o->benchmark = benchmark;
    o->log = (struct log){LOG_WARNING};
    o->engine = engine_options_default();
    o->engine.log = &o->log;
    o->engine.cancel = interrupt_flag();
    o->engine.skip_tokenizer = true; /* prompts are random ids */
    add_own_flags(table, o);
    engine_flags_add(table, &o->engine, &o->log);
}

static int run(void *options)
{
    struct bench_options *o = options;
    struct error err;
    char model[PATH_MAX];
    if ((o->benchmark->run != bench_throughput &&
         engine_flags_check_one(&o->engine, "this benchmark measures one engine", &err) != STATUS_OK) ||
        bench_drafts_add(o, &err) != STATUS_OK)
        return command_fail("bench", &err, EXIT_STATUS_USAGE);
    enum status status = model_folder_of_engine(&o->engine, model, sizeof model, &err);
    if (status == STATUS_OK) status = node_prepare(&o->engine, &err);
    if (status == STATUS_OK && node_serves(&o->engine)) return node_run(&o->engine, "bench");
    if (status == STATUS_OK) status = run_benchmark(o, &err);
    return status == STATUS_OK ? EXIT_STATUS_OK : command_fail("bench", &err, EXIT_STATUS_FAILURE);
}

static const struct benchmark latency = {
    {"latency", "one batch: time to first token and time per output token", "bench latency [flags]", NULL,
     sizeof(struct bench_options), add_flags, run},
    bench_latency,
    {.input_len = {512, 512}, .output_len = {128, 128}, .batch_size = 1, .num_iters = 5, .num_iters_warmup = 1}};
static const struct benchmark throughput = {
    {"throughput", "many requests of random lengths: requests and tokens a second", "bench throughput [flags]", NULL,
     sizeof(struct bench_options), add_flags, run},
    bench_throughput,
    {.input_len = {32, 256}, .output_len = {32, 128}, .num_prompts = 64, .num_iters = 3, .num_iters_warmup = 1}};
static const struct benchmark prefill = {
    {"prefill", "one prompt at a time: prompt tokens a second", "bench prefill [flags]", NULL,
     sizeof(struct bench_options), add_flags, run},
    bench_prefill,
    {.input_len = {512, 512}, .output_len = {1, 1}, .num_iters = 5, .num_iters_warmup = 1}};
static const struct benchmark cache = {{"cache", "prompts that begin alike: blocks shared, and time to first token",
                                        "bench cache [flags]", NULL, sizeof(struct bench_options), add_flags, run},
                                       bench_cache,
                                       {.input_len = {16, 16},
                                        .output_len = {16, 16},
                                        .num_prompts = 64,
                                        .prefix_len = 500,
                                        .num_iters = 5,
                                        .num_iters_warmup = 1}};
static const struct command *const parts[] = {&latency.command, &throughput.command, &prefill.command, &cache.command,
                                              &bench_kernels,   &bench_scheduler,    &bench_grammar,   NULL};

static void print_usage(FILE *out)
{
    fputs("usage: quire bench NAME [flags]\n\n", out);
    for (const struct command *const *part = parts; *part; part++)
        fprintf(out, "  %-12s %s\n", (*part)->name, (*part)->summary);
    fputs("\nquire bench NAME --help lists the flags. Every benchmark can print --json, and\n"
          "  quire bench --compare A.json B.json   compares two such files, with the spread of their runs\n",
          out);
}

static int unknown_benchmark(const char *name)
{
    struct error err;
    struct nearest nearest = nearest_begin(name);
    for (const struct command *const *part = parts; *part; part++) nearest_consider(&nearest, (*part)->name);
    error_set(&err, STATUS_INVALID, "there is no benchmark '%s'%s%s%s quire bench --help lists them", name,
              nearest.word ? "; did you mean " : ";", nearest.word ? nearest.word : "", nearest.word ? "?" : "");
    return command_fail("bench", &err, EXIT_STATUS_USAGE);
}

static int run_without_name(int argc, char **argv)
{
    const bool help = argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (argc >= 2 && strcmp(argv[1], "--compare") == 0) return bench_compare(argc - 1, argv + 1);
    if (argc >= 2 && !help) return unknown_benchmark(argv[1]);
    print_usage(help ? stdout : stderr);
    return help ? EXIT_STATUS_OK : EXIT_STATUS_USAGE;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure how fast a model runs here",
    .parts = parts,
    .run_without_part = run_without_name,
};
