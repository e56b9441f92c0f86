#include "runtime/bench/bench.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"
#include "model/quantization.h"
#include "runtime/bench/compare.h"
#include "runtime/bench/kernels.h"
#include "runtime/bench/setting.h"
#include "runtime/bench/scheduler.h"
#include "runtime/commands.h"
#include "runtime/interrupt.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/model_folder.h"

struct benchmark {
    const char *name, *summary;
    bench_function *run;
    struct bench_options defaults; /* the engine's options are set elsewhere */
    bool has_output_len, has_batch_size, has_num_prompts, has_prefix_len, has_num_iters;
};

static const struct benchmark benchmarks[] = {
    {.name = "latency",
     .summary = "one batch: time to first token and time per output token",
     .run = bench_latency,
     .defaults =
         {.input_len = {512, 512}, .output_len = {128, 128}, .batch_size = 1, .num_iters = 5, .num_iters_warmup = 1},
     .has_output_len = true,
     .has_batch_size = true,
     .has_num_iters = true},
    {.name = "throughput",
     .summary = "many requests of random lengths: requests and tokens a second",
     .run = bench_throughput,
     .defaults =
         {.input_len = {32, 256}, .output_len = {32, 128}, .num_prompts = 64, .num_iters = 3, .num_iters_warmup = 1},
     .has_output_len = true,
     .has_num_prompts = true,
     .has_num_iters = true},
    {.name = "prefill",
     .summary = "one prompt at a time: prompt tokens a second",
     .run = bench_prefill,
     .defaults = {.input_len = {512, 512}, .output_len = {1, 1}, .num_iters = 5, .num_iters_warmup = 1},
     .has_num_iters = true},
    {.name = "cache",
     .summary = "prompts that begin alike: blocks shared, and time to first token",
     .run = bench_cache,
     .defaults = {.input_len = {16, 16},
                  .output_len = {16, 16},
                  .num_prompts = 64,
                  .prefix_len = 500,
                  .num_iters = 5,
                  .num_iters_warmup = 1},
     .has_output_len = true,
     .has_num_prompts = true,
     .has_prefix_len = true,
     .has_num_iters = true},
};
enum { NUM_BENCHMARKS = sizeof benchmarks / sizeof benchmarks[0] };
const char *const bench_names[] = {"latency", "throughput", "prefill", "cache", "kernels", "scheduler", NULL};

static void print_usage(FILE *out)
{
    fputs("usage: quire bench NAME [flags]\n\n", out);
    for (int i = 0; i < NUM_BENCHMARKS; i++) fprintf(out, "  %-12s %s\n", benchmarks[i].name, benchmarks[i].summary);
    fprintf(out, "  %-12s %s\n", "kernels", bench_kernels_summary);
    fprintf(out, "  %-12s %s\n", "scheduler", bench_scheduler_summary);
    fputs("\nquire bench NAME --help lists the flags. Every benchmark can print --json, and\n"
          "  quire bench --compare A.json B.json   compares two such files, with the spread of their runs\n",
          out);
}

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

/* Adds the flag if the benchmark has it. Its own flags are common, the engine's may not be. */
static void add_if(bool has, struct option_table *table, struct option_spec spec)
{
    spec.common = true;
    if (has) option_table_add(table, &spec, 1);
}

static struct option_spec count_spec(const char *name, int32_t *target, int minimum, const char *help)
{
    return (struct option_spec){.name = name,
                                .kind = OPTION_INT32,
                                .target = target,
                                .minimum = minimum,
                                .maximum = 1 << 20,
                                .argument = "N",
                                .help = help};
}

/* Help texts that name a default. The option table refers to them. */
struct length_help {
    char input[128], output[128], iters[64];
};

static void write_help(char *out, size_t size, const char *what, struct bench_range range)
{
    if (range.minimum == range.maximum)
        snprintf(out, size, "%s, or a range to draw from. Default: %d.", what, range.minimum);
    else
        snprintf(out, size, "%s, or a range to draw from. Default: %d:%d.", what, range.minimum, range.maximum);
}

static void add_flags(const struct benchmark *b, struct option_table *table, struct bench_options *o,
                      struct length_help *help)
{
    write_help(help->input, sizeof help->input, b->has_prefix_len ? "Tokens of a prompt's own" : "Tokens of a prompt",
               o->input_len);
    write_help(help->output, sizeof help->output, "Tokens of an answer", o->output_len);
    snprintf(help->iters, sizeof help->iters, "Times to measure. Default: %d.", o->num_iters);
    struct option_spec range = {.name = "input-len",
                                .kind = OPTION_CUSTOM,
                                .target = &o->input_len,
                                .parse = parse_range,
                                .argument = "N|A:B",
                                .help = help->input,
                                .heading = "Benchmark:"};
    add_if(true, table, range);
    range.name = "output-len";
    range.target = &o->output_len;
    range.help = help->output;
    range.heading = NULL;
    add_if(b->has_output_len, table, range);
    add_if(b->has_batch_size, table, count_spec("batch-size", &o->batch_size, 1, "Requests at once. Default: 1."));
    add_if(b->has_num_prompts, table, count_spec("num-prompts", &o->num_prompts, 1, "Requests in all. Default: 64."));
    add_if(b->has_prefix_len, table,
           count_spec("prefix-len", &o->prefix_len, 1, "Tokens that all prompts share. Default: 500."));
    add_if(b->has_num_iters, table, count_spec("num-iters", &o->num_iters, 1, help->iters));
    add_if(true, table,
           count_spec("num-iters-warmup", &o->num_iters_warmup, 0, "Times to run before measuring. Default: 1."));
    add_if(true, table,
           (struct option_spec){.name = "json",
                                .kind = OPTION_SWITCH,
                                .target = &o->json,
                                .help = "Print one JSON object, with the names of vLLM's bench, for --compare."});
    trace_flag_add(table, &o->engine);
}

static enum status check_lengths(const struct bench_options *o, const struct engine *e, struct error *err)
{
    const int64_t longest = (int64_t)o->prefix_len + o->input_len.maximum + o->output_len.maximum;
    const int32_t max_model_len = engine_info(e)->limits->max_model_len;
    if (longest <= max_model_len) return STATUS_OK;
    return error_set(
        err, STATUS_INVALID,
        "prompt and answer together have up to %lld tokens, but max_model_len is %d: lower --input-len%s%s",
        (long long)longest, max_model_len, o->prefix_len ? ", --prefix-len" : "",
        o->output_len.maximum > 1 ? " or --output-len" : "");
}

static void report_model(struct bench *b)
{
    const struct engine_info *info = engine_info(b->engine);
    const struct model_spec *spec = &info->config->spec;
    const struct layer_sizes largest = model_spec_largest(spec);
    const struct memory_profile *memory = info->memory;
    const struct batch_limits *limits = info->limits;
    const struct quantization_words quantization = quantization_words(spec);
    const bool quantized = quantization.text[0];
    char *title = b->report.title;
    const size_t length = strlen(title);
    snprintf(
        title + length, sizeof b->report.title - length,
        "\nmodel    %d layer%s of %d, %d head%s (%d of K and V), %.2f GiB of weights%s%s%s%s; blocks of %d tokens, "
        "cache %s",
        spec->num_layers, plural(spec->num_layers), spec->hidden_size, largest.num_heads, plural(largest.num_heads),
        largest.num_kv_heads, (double)memory->weights / (1 << 30), quantized ? " (" : "", quantization.text,
        quantized ? ")" : "", b->options->engine.load_format == LOAD_FORMAT_DUMMY ? ", dummy" : "", limits->block_size,
        dtype_name(memory->cache_dtype));
    report_string(&b->report, "quantization", quantized ? quantization.text : "none");
    report_integer(&b->report, "block_size", NULL, limits->block_size);
    report_integer(&b->report, "weights_bytes", NULL, memory->weights);
}

static void report_setting(struct bench *b, const char *name)
{
    const struct engine_info *info = engine_info(b->engine);
    const char *model = b->options->engine.model, *dtype = dtype_name(info->memory->dtype);
    char threads[40] = "";
    if (!info->discrete) {
        snprintf(threads, sizeof threads, " (%d thread%s, %s)", info->threads, plural(info->threads), info->isa);
        report_integer(&b->report, "threads", NULL, info->threads);
        report_string(&b->report, "cpu_isa", info->isa);
    }
    report_string(&b->report, "benchmark", name);
    report_string(&b->report, "model", model);
    report_string(&b->report, "device", info->device);
    report_string(&b->report, "dtype", dtype);
    report_number(&b->report, "start_seconds", NULL, info->start_seconds, "s");
    snprintf(b->report.title, sizeof b->report.title, "%s: %.300s on %s%s, %s, ready in %.3f s", name, model,
             info->device, threads, dtype, info->start_seconds);
    report_model(b);
    bench_report_machine(&b->report, info->discrete ? info->device : NULL);
}

static enum status run_benchmark(const struct benchmark *benchmark, const struct bench_options *options,
                                 struct error *err)
{
    struct bench b = {.options = options, .random = {options->engine.seed}};
    enum status status = engine_create(&options->engine, &b.engine, err);
    if (status != STATUS_OK) return status;
    interrupt_catch_to_end();
    report_init(&b.report);
    status = check_lengths(options, b.engine, err);
    if (status == STATUS_OK) {
        report_setting(&b, benchmark->name);
        status = benchmark->run(&b, err);
    }
    if (status == STATUS_OK && !report_print(&b.report, options->json, stdout))
        status = error_set(err, STATUS_IO, "cannot write the results to standard output");
    report_free(&b.report);
    engine_leave(b.engine);
    return status;
}

static int run_named(const struct benchmark *benchmark, int argc, char **argv)
{
    struct error err;
    struct log log = {LOG_WARNING};
    struct bench_options options = benchmark->defaults;
    char model[PATH_MAX];
    bool help = false;
    options.engine = engine_options_default();
    options.engine.log = &log;
    options.engine.cancel = interrupt_flag();
    options.engine.skip_tokenizer = true; /* prompts are random ids */

    struct option_table table = {0};
    struct length_help texts;
    add_flags(benchmark, &table, &options, &texts);
    engine_flags_add(&table, &options.engine, &log);
    if (options_parse(&table, argc, argv, &help, &err) != STATUS_OK)
        return command_fail("bench", &err, EXIT_STATUS_USAGE);
    if (help) {
        char usage[64], summary[128];
        snprintf(usage, sizeof usage, "bench %s [flags]", benchmark->name);
        snprintf(summary, sizeof summary, "Measures %s.", benchmark->summary);
        options_print_help(&table, usage, summary, stdout);
        return EXIT_STATUS_OK;
    }
    if (model_folder_of_engine(&options.engine, model, sizeof model, &err) != STATUS_OK)
        return command_fail("bench", &err, EXIT_STATUS_FAILURE);
    if (run_benchmark(benchmark, &options, &err) != STATUS_OK) return command_fail("bench", &err, EXIT_STATUS_FAILURE);
    return EXIT_STATUS_OK;
}

static int unknown_benchmark(const char *name)
{
    struct error err;
    struct nearest nearest = nearest_begin(name);
    for (const char *const *known = bench_names; *known; known++) nearest_consider(&nearest, *known);
    error_set(&err, STATUS_INVALID, "there is no benchmark '%s'%s%s%s quire bench --help lists them", name,
              nearest.word ? "; did you mean " : ";", nearest.word ? nearest.word : "", nearest.word ? "?" : "");
    return command_fail("bench", &err, EXIT_STATUS_USAGE);
}

int command_bench(int argc, char **argv)
{
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_usage(stdout);
        return EXIT_STATUS_OK;
    }
    for (int i = 0; argc >= 2 && i < NUM_BENCHMARKS; i++)
        if (strcmp(argv[1], benchmarks[i].name) == 0) return run_named(&benchmarks[i], argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "kernels") == 0) return bench_kernels_command(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "scheduler") == 0) return bench_scheduler_command(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "--compare") == 0) return bench_compare_command(argc - 1, argv + 1);
    if (argc < 2) print_usage(stderr);
    return argc < 2 ? EXIT_STATUS_USAGE : unknown_benchmark(argv[1]);
}
