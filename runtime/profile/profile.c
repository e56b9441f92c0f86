#include "runtime/profile/profile.h"

#include <limits.h>

#include "base/json.h"
#include "runtime/commands.h"
#include "runtime/profile/memory_report.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/model_folder.h"
#include "runtime/prompts.h"

static enum status write_failed(struct error *err)
{
    return error_set(err, STATUS_IO, "cannot write the report to standard output");
}

static enum status run_json(struct engine *e, const struct profile_options *o, struct inputs *input, struct error *err)
{
    json_t *json = json_pack("{s:s}", "model", o->engine.model);
    if (!json) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the report");
    memory_report_add(json, engine_memory_profile(e), engine_limits(e));
    enum status status = o->input.count ? profile_prompts(e, o, input, json, err) : STATUS_OK;
    /* The report is printed even if some prompts failed. */
    const bool complete = o->input.count == 0 || json_object_get(json, "summary");
    const size_t style = JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9);
    if (complete && !json_print(json, style, stdout)) status = write_failed(err);
    json_decref(json);
    return status;
}

static enum status run_table(struct engine *e, const struct profile_options *o, struct inputs *input, struct error *err)
{
    if (!memory_report_print(engine_memory_profile(e), engine_limits(e))) return write_failed(err);
    if (o->input.count == 0) return STATUS_OK;
    putchar('\n');
    return profile_prompts(e, o, input, NULL, err);
}

static void add_flags(struct option_table *table, struct profile_options *o)
{
    const struct option_spec specs[] = {
        {.heading = "Profile:",
         .name = "input",
         .common = true,
         .letter = 'i',
         .kind = OPTION_CUSTOM,
         .target = &o->input,
         .parse = input_list_add,
         .not_empty = true,
         .argument = "FILE",
         .help = "Run these prompts, one a line (text, or JSON as for quire generate; gzip and zstd are unpacked), and "
                 "show the blocks step by step; - is standard input. May be given several times."},
        {.name = "format",
         .kind = OPTION_STRING,
         .target = &o->format,
         .choices = PROMPT_FORMAT_CHOICES,
         .help = "What a line is. Default: auto, JSON if it begins with {, else text."},
        {.name = "skip-tokenizer-init",
         .kind = OPTION_SWITCH,
         .target = &o->engine.skip_tokenizer,
         .help = "Open no tokenizer: prompts are lists of token ids. Default: off."},
        {.name = "every",
         .kind = OPTION_INT32,
         .target = &o->every,
         .minimum = 1,
         .maximum = 1 << 30,
         .argument = "N",
         .help = "Show every Nth step. Default: 1."},
        {.name = "json",
         .common = true,
         .kind = OPTION_SWITCH,
         .target = &o->json,
         .help = "Print one JSON object; sizes are bytes. Default: off."},
    };
    option_table_add(table, specs, sizeof specs / sizeof specs[0]);
    trace_flag_add(table, &o->engine);
}

static enum status run_profile(const struct profile_options *o, struct error *err)
{
    struct engine *e = NULL;
    struct inputs input = {0};
    /* Opened before the model is loaded, which takes a while. */
    enum status status = o->input.count ? inputs_open(&input, &o->input, err) : STATUS_OK;
    if (status == STATUS_OK) status = engine_create(&o->engine, &e, err);
    if (status == STATUS_OK) status = o->json ? run_json(e, o, &input, err) : run_table(e, o, &input, err);
    engine_leave(e);
    inputs_close(&input);
    return status;
}

static int parse_and_profile(struct profile_options *o, struct log *log, int argc, char **argv)
{
    struct error err;
    char model[PATH_MAX];
    bool help = false;
    struct option_table table = {0};
    add_flags(&table, o);
    engine_flags_add(&table, &o->engine, log);
    sampling_flags_add(&table, &o->sampling);
    if (options_parse(&table, argc, argv, &help, &err) != STATUS_OK ||
        sampling_flags_check(&o->sampling, &err) != STATUS_OK)
        return command_fail("profile", &err, EXIT_STATUS_USAGE);
    if (help) {
        options_print_help(&table, "profile [flags]", "Shows where the memory goes, and how many requests fit.",
                           stdout);
        return EXIT_STATUS_OK;
    }
    if (model_folder_of_engine(&o->engine, model, sizeof model, &err) != STATUS_OK)
        return command_fail("profile", &err, EXIT_STATUS_FAILURE);
    if (o->input.count == 0) o->engine.skip_tokenizer = true; /* a report needs none */
    if (run_profile(o, &err) != STATUS_OK) return command_fail("profile", &err, EXIT_STATUS_FAILURE);
    return EXIT_STATUS_OK;
}

int command_profile(int argc, char **argv)
{
    struct log log = {LOG_WARNING};
    struct profile_options o = {.engine = engine_options_default(),
                                .sampling = {.params = sampling_params_default()},
                                .every = 1,
                                .format = "auto"};
    o.engine.log = &log;
    const int exit_status = parse_and_profile(&o, &log, argc, argv);
    sampling_flags_free(&o.sampling);
    input_list_free(&o.input);
    return exit_status;
}
