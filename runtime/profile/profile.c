#include "runtime/profile/profile.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/notice.h"
#include "model/quantization.h"
#include "model/weights.h"
#include "runtime/options/command.h"
#include "runtime/engine/loaded_model.h"
#include "runtime/input.h"
#include "runtime/interrupt.h"
#include "runtime/profile/bar.h"
#include "runtime/profile/memory_report.h"
#include "runtime/profile/picture.h"
#include "runtime/profile/what_if.h"
#include "runtime/options/engine_flags.h"
#include "runtime/node.h"
#include "runtime/options/model_folder.h"
#include "runtime/prompts/prompt.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static const char SUMMARY[] =
    "Shows where the memory goes, how many requests fit, and what other settings would give. With PROMPT or --input it "
    "runs prompts and shows blocks and queues. The exit status is 1 if a line is no prompt or a request fails.";

enum { NOTES_MAX = 4 };

/* What there is to say without a run. */
struct memory_facts {
    const struct engine_info *engine; /* or of what is only planned */
    bool planned;                     /* nothing was loaded */
    char weights[384];                /* words beside the weights in the table */
    int64_t weights_resident;         /* of mapped files, bytes; -1: not known, or there are none */
    struct error notes[NOTES_MAX];
    int num_notes;
    struct what_ifs what_ifs;
};

static enum status write_failed(struct error *err)
{
    return error_set(err, STATUS_IO, "cannot write the report to standard output: %s", strerror(errno));
}

static enum status no_memory(struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the report");
}

/* ---- the memory ---- */

static struct error *next_note(struct memory_facts *f)
{
    return &f->notes[f->num_notes < NOTES_MAX ? f->num_notes++ : NOTES_MAX - 1];
}

/* Adds words, with "; " before them where there are some. */
static void note_weights(struct memory_facts *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note_weights(struct memory_facts *f, const char *format, ...)
{
    const size_t length = strlen(f->weights), between = length ? 2 : 0;
    if (length + between >= sizeof f->weights) return;
    memcpy(f->weights + length, "; ", between);
    va_list args;
    va_start(args, format);
    vsnprintf(f->weights + length + between, sizeof f->weights - length - between, format, args);
    va_end(args);
}

/* On the CPU the weights stay in their file, of which the system keeps what was read; or they are packed. */
static void note_mapped(struct memory_facts *f)
{
    const struct model_weights *w = f->engine->weights;
    int64_t bytes;
    if (!w->file || f->engine->discrete) return;
    model_weights_resident(w, &bytes, &f->weights_resident);
    if (!quantization_words(&f->engine->config->spec).text[0]) note_weights(f, "mapped");
    if (f->weights_resident >= 0)
        note_weights(f, "%.4f GiB %s in memory", (double)f->weights_resident / GIB,
                     w->memory ? "of the file and of packed weights are" : "of the file are");
}

/* A report of what would not run, or would run at the speed of the disk. */
static void note_room(const struct engine_options *o, struct memory_facts *f)
{
    const struct memory_profile *p = f->engine->memory;
    int64_t of_weights = 0, budget = 0; /* of all ranks */
    for (int32_t r = 0; r < f->engine->num_ranks; r++) {
        of_weights += f->engine->rank_memory[r].weights;
        budget += f->engine->rank_memory[r].budget;
    }
    if (p->discrete || !f->planned || budget <= p->total - p->others) return;
    const double weights = (double)of_weights / GIB, all = (double)budget / GIB,
                 left = (double)(p->total - p->others) / GIB;
    const bool dummy = o->load_format == LOAD_FORMAT_DUMMY;
    if (dummy || model_weights_to_pack(f->engine->weights) > 0)
        error_set(next_note(f), STATUS_INVALID,
                  "%s weights of %.2f GiB and the rest, %.2f GiB in all, do not fit in the %.2f GiB that are free: "
                  "they would be refused",
                  dummy ? "dummy" : "packed", weights, all, left);
    else
        error_set(next_note(f), STATUS_INVALID,
                  "the weights take %.2f GiB and everything together %.2f GiB, but %.2f GiB are free, so that parts of "
                  "the weights would be read from the file in every step",
                  weights, all, left);
}

static void find_facts(struct memory_facts *f, const struct engine_options *o, const struct engine_info *engine,
                       const struct error *weights_error)
{
    const struct model_spec *spec = &engine->config->spec;
    f->engine = engine;
    f->weights_resident = -1;
    if (quantization_words(spec).text[0]) note_weights(f, "%s", quantization_words(spec).text);
    note_mapped(f);
    if (f->planned && o->load_format == LOAD_FORMAT_DUMMY) note_weights(f, "dummy; not made for this report");
    if (weights_error && weights_error->text[0]) {
        note_weights(f, "counted from config.json");
        error_set(next_note(f), STATUS_INVALID, "the weights are counted from config.json, in %s, because %s",
                  dtype_name(spec->dtype), weights_error->text);
    }
    note_room(o, f);
    what_ifs_make(o, engine, &f->what_ifs);
}

static enum status print_facts(const struct memory_facts *f, struct error *err)
{
    bool ok = memory_report_print(f->engine, f->weights);
    putchar('\n');
    ok = ok && what_ifs_print(&f->what_ifs, f->engine);
    for (int i = 0; i < f->num_notes; i++)
        ok = notice_printf(stdout, "%snote: %s\n", i ? "" : "\n", command_sentence(&f->notes[i]).text) && ok;
    return ok ? STATUS_OK : write_failed(err);
}

static json_t *facts_json(const struct profile_options *o, const struct memory_facts *f)
{
    json_t *json = json_pack("{s:s}", "model", o->engine.model), *notes = json_array();
    if (!json) return NULL;
    const struct quantization_words quantization = quantization_words(&f->engine->config->spec);
    memory_report_add(json, f->engine);
    json_put_string(json, "quantization", quantization.text[0] ? quantization.text : NULL);
    json_object_set_new(json, "planned", json_boolean(f->planned));
    json_object_set_new(json, "weights_resident_memory",
                        f->weights_resident < 0 ? json_null() : json_integer(f->weights_resident));
    for (int i = 0; i < f->num_notes; i++)
        json_array_append_new(notes, json_string(command_sentence(&f->notes[i]).text));
    json_object_set_new(json, "notes", notes);
    json_object_set_new(json, "what_if", what_ifs_json(&f->what_ifs));
    return json;
}

static enum status dump_json(json_t *json, struct error *err)
{
    return report_print_json(json, stdout) ? STATUS_OK : write_failed(err);
}

/* The report without a run. On the CPU, or if it is only to be planned, nothing is allocated. */
static enum status report_memory(const struct profile_options *o, struct error *err)
{
    struct loaded_model *l;
    struct error weights_error;
    struct memory_facts f = {0};
    enum status status = loaded_model_describe(&o->engine, &l, &weights_error, err);
    if (status != STATUS_OK) return status;
    const struct engine_info info = loaded_model_info(&o->engine, l);
    f.planned = o->plan || !info.discrete || weights_error.text[0];
    status = f.planned ? loaded_model_plan(&o->engine, l, true, err) : loaded_model_load(&o->engine, l, err);
    if (status == STATUS_OK) {
        find_facts(&f, &o->engine, &info, &weights_error);
        json_t *json = o->json ? facts_json(o, &f) : NULL;
        status = !o->json ? print_facts(&f, err) : json ? dump_json(json, err) : no_memory(err);
        json_decref(json);
    }
    /* A GPU with a model is left as it is: the process exits next, and the driver frees the memory faster. */
    if (f.planned || status != STATUS_OK) loaded_model_close(l);
    return status;
}

/* ---- a run ---- */

/* Files that are opened before the run, so that a name which cannot be written ends it at once. */
enum { OUTPUT_CSV, OUTPUT_SVG, OUTPUT_PNG, NUM_OUTPUTS };
struct output_file {
    const char *name; /* NULL: it is not asked for, and not open */
    FILE *file;
};

static enum status outputs_open(struct output_file *out, struct error *err)
{
    for (int i = 0; i < NUM_OUTPUTS; i++) {
        if (out[i].name) out[i].file = fopen(out[i].name, "we");
        if (out[i].name && !out[i].file)
            return error_set(err, STATUS_IO, "%s: cannot be written: %s", out[i].name, strerror(errno));
    }
    return STATUS_OK;
}

/* `status` is that of the caller, whose error stays. */
static enum status outputs_close(struct output_file *out, enum status status, struct error *err)
{
    for (int i = 0; i < NUM_OUTPUTS; i++) {
        if (!out[i].file) continue;
        const bool failed = ferror(out[i].file) != 0;
        if ((fclose(out[i].file) == 0 && !failed) || status != STATUS_OK) continue;
        status = error_set(err, STATUS_IO, "%s: cannot be written: %s", out[i].name, strerror(errno));
    }
    return status;
}

static enum status draw(const struct profile_run *run, const struct profile_options *o, struct engine *e,
                        const struct output_file *out, struct error *err)
{
    const struct picture picture = {.model = o->engine.model,
                                    .device = engine_info(e)->device_description,
                                    .memory = engine_info(e)->memory,
                                    .block_size = run->block_size,
                                    .num_prompts = (int64_t)run->count,
                                    .num_preemptions = run->series.preemptions,
                                    .series = &run->series};
    enum status status = STATUS_OK;
    for (int i = OUTPUT_SVG; i <= OUTPUT_PNG && status == STATUS_OK; i++) {
        if (!out[i].file) continue;
        status = picture_write(&picture, i == OUTPUT_SVG ? PICTURE_SVG : PICTURE_PNG, out[i].file, err);
        if (status != STATUS_OK) error_prefix(err, status, out[i].name);
    }
    return status;
}

static enum status add_run_json(const struct profile_run *run, struct engine *e, json_t *json, struct error *err)
{
    struct report summary;
    report_init(&summary);
    profile_summary(&summary, run, engine_info(e));
    json_object_set_new(json, "steps", series_json(&run->series));
    if (!engine_info(e)->discrete) json_object_set_new(json, "host_memory", residence_json(e));
    json_object_set_new(json, "reservations", reservations_json(run, e));
    const bool ok =
        json_object_set(json, "summary", summary.json) == 0 && json_object_get(json, "steps") && !run->gaps.failed;
    report_free(&summary);
    return ok ? STATUS_OK : no_memory(err);
}

static enum status print_run(const struct profile_run *run, struct engine *e, bool plot, struct error *err)
{
    struct report summary;
    report_init(&summary);
    profile_summary(&summary, run, engine_info(e));
    bool ok = !plot || plot_print(&run->series, locale_is_utf8(), stdout);
    putchar('\n');
    ok = ok && report_print(&summary, false, stdout);
    putchar('\n');
    ok = ok && reservations_print(run, e);
    if (ok && !engine_info(e)->discrete) {
        putchar('\n');
        ok = residence_print(e);
    }
    report_free(&summary);
    return ok && !run->gaps.failed ? STATUS_OK : write_failed(err);
}

static enum status check_preempted(const struct profile_run *run, const struct profile_options *o, struct engine *e,
                                   struct error *err)
{
    const int64_t count = run->series.preemptions;
    const struct memory_profile *p = engine_info(e)->memory;
    if (!o->fail_if_preempted || count == 0) return STATUS_OK;
    error_set(err, STATUS_INVALID, "%lld preemption%s: the KV cache of %d block%s does not hold all that runs at once",
              (long long)count, plural(count), p->num_blocks, plural(p->num_blocks));
    if (engine_info(e)->limits->max_num_seqs > 1) error_advise(err, ADVICE_LOWER, "max_num_seqs", NULL);
    error_advise(err, ADVICE_RAISE, memory_profile_blocks_setting(p), NULL);
    return STATUS_INVALID;
}

/* The report comes first, whatever the verdict. */
static enum status run_and_report(struct profile_run *run, struct profile_options *o, struct engine *e,
                                  struct inputs *input, const struct output_file *out, struct error *err)
{
    const bool plot = o->plot < 0 ? isatty(STDOUT_FILENO) : o->plot > 0;
    struct memory_facts f = {0};
    find_facts(&f, &o->engine, engine_info(e), NULL);
    json_t *json = o->json ? facts_json(o, &f) : NULL;
    enum status status = json ? STATUS_OK : o->json ? no_memory(err) : print_facts(&f, err);
    if (!json) putchar('\n');
    if (status == STATUS_OK) status = profile_run_prompts(run, e, o, input, !json && o->steps, err);
    if (status == STATUS_OK) status = json ? add_run_json(run, e, json, err) : print_run(run, e, plot, err);
    if (status == STATUS_OK && json) status = dump_json(json, err);
    json_decref(json);
    if (status == STATUS_OK && o->csv)
        series_write_csv(&run->series, out[OUTPUT_CSV].file); /* closing it says what failed */
    if (status == STATUS_OK) status = draw(run, o, e, out, err);
    if (status == STATUS_OK) status = profile_run_failed(run, err);
    return status == STATUS_OK ? check_preempted(run, o, e, err) : status;
}

static enum status report_run(struct profile_options *o, struct error *err)
{
    struct engine *e = NULL;
    struct inputs input = {0};
    struct output_file out[NUM_OUTPUTS] = {{o->csv}, {o->svg}, {o->png}};
    struct profile_run run = {0};
    /* Opened before the model is loaded, which takes a while. */
    enum status status = inputs_open(&input, &o->input, err);
    if (status == STATUS_OK) status = outputs_open(out, err);
    if (status == STATUS_OK) status = engine_create(&o->engine, &e, err);
    if (status == STATUS_OK && inputs_have_standard(&input)) input_note_terminal("profile", "prompts, one a line,");
    if (status == STATUS_OK) status = run_and_report(&run, o, e, &input, out, err);
    status = outputs_close(out, status, err);
    profile_run_free(&run);
    engine_leave(e);
    inputs_close(&input);
    return status;
}

/* ---- the command ---- */

static void add_input_flags(struct option_table *table, struct profile_options *o)
{
    const struct option_spec specs[] = {
        {"input", OPTION_CUSTOM, &o->input, "FILE",
         .help = "Run these prompts, one a line (text, or JSON as for quire generate; gzip and zstd are unpacked), and "
                 "show what happened; - is standard input. May be given several times.",
         .heading = "Profile:", .letter = 'i', .common = true, .parse = input_list_add, .not_empty = true,
         .repeats = true},
        {"format", OPTION_CHOICE, &o->format, PROMPT_FORMAT_CHOICES,
         .help = "What a line is. Default: auto, JSON if it begins with {, if a line before did, or if the file's name "
                 "ends with .json or .jsonl; else text."},
        {"chat", OPTION_SWITCH, &o->as_chat,
         .help = "Make each text a question to a chat model, through its chat template. Default: off."},
        {"skip-tokenizer-init", OPTION_SWITCH, &o->engine.skip_tokenizer,
         .help = "Open no tokenizer: prompts are lists of token ids. Default: off."},
    };
    option_table_add(table, specs, sizeof specs / sizeof specs[0]);
}

static void add_report_flags(struct option_table *table, struct profile_options *o)
{
    const struct option_spec specs[] = {
        {"steps", OPTION_SWITCH, &o->steps,
         .help = "Print a row a step as it comes: requests, tokens, blocks, hits. Default: off."},
        {"every", OPTION_INT32, &o->every, "N",
         .help = "A row for every Nth step, with --steps, --csv and --json. Default: 1.", .minimum = 1,
         .maximum = 1 << 30},
        {"plot", OPTION_TRISTATE, &o->plot,
         .help = "Draw the blocks over the steps with characters. Default: if standard output is a terminal.",
         .common = true},
        {"csv", OPTION_STRING, &o->csv, "FILE",
         .help = "Write a line a step to this file: requests, tokens, blocks, preemptions. Default: none.",
         .not_empty = true},
        {"png", OPTION_STRING, &o->png, "FILE",
         .help = "Draw memory by purpose and blocks over the steps as one picture into this file, PNG of 1600 x 900. "
                 "Default: none.",
         .common = true, .not_empty = true},
        {"svg", OPTION_STRING, &o->svg, "FILE", .help = "The picture of --png as SVG. Default: none.",
         .not_empty = true},
        {"fail-if-preempted", OPTION_SWITCH, &o->fail_if_preempted,
         .help = "Exit with status 1 if a request was preempted. Default: off."},
        {"plan", OPTION_SWITCH, &o->plan,
         .help = "On a GPU, too, load nothing: count the CUDA context as it is at the start, and reserve what graphs "
                 "take at most. Default: off; on the CPU a report without --input loads nothing anyway."},
        {"json", OPTION_SWITCH, &o->json, .help = "Print one JSON object; sizes are bytes. Default: off.",
         .common = true},
    };
    option_table_add(table, specs, sizeof specs / sizeof specs[0]);
    table->word = &o->word;
    trace_flag_add(table, &o->engine);
}

/* What only a run has. */
static enum status check_options(const struct profile_options *o, struct error *err)
{
    if (engine_flags_check_one(&o->engine, "quire profile reports one engine", err) != STATUS_OK) return STATUS_INVALID;
    const struct {
        const char *flag;
        bool given;
    } flags[] = {{"--csv", o->csv != NULL},
                 {"--svg", o->svg != NULL},
                 {"--png", o->png != NULL},
                 {"--plot", o->plot > 0},
                 {"--steps", o->steps},
                 {"--trace", o->engine.trace_file != NULL},
                 {"--fail-if-preempted", o->fail_if_preempted}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags && o->input.count == 0; i++)
        if (flags[i].given)
            return error_set(err, STATUS_INVALID,
                             "%s is about a run: give its prompts, as PROMPT, @FILE or --input FILE", flags[i].flag);
    if (o->input.count > 0 && o->plan)
        return error_set(err, STATUS_INVALID, "--plan loads no model, so --input cannot be run");
    return STATUS_OK;
}

static void add_flags(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct profile_options *o = options;
    *o = (struct profile_options){.engine = engine_options_default(),
                                  .log = {LOG_WARNING},
                                  .sampling = {.params = sampling_params_default()},
                                  .plot = -1,
                                  .every = 1,
                                  .format = "auto"};
    o->engine.log = &o->log;
    o->engine.cancel = interrupt_flag();
    add_input_flags(table, o);
    add_report_flags(table, o);
    engine_flags_add(table, &o->engine, &o->log);
    sampling_flags_add(table, &o->sampling);
}

static int check_and_run(void *options)
{
    struct profile_options *o = options;
    struct error err;
    char model[PATH_MAX];
    if ((o->word && input_list_add_word(&o->input, o->word, &err) != STATUS_OK) ||
        sampling_flags_check(&o->sampling, &err) != STATUS_OK || check_options(o, &err) != STATUS_OK)
        return command_fail("profile", &err, EXIT_STATUS_USAGE);
    if (model_folder_of_engine(&o->engine, model, sizeof model, &err) != STATUS_OK ||
        node_prepare(&o->engine, &err) != STATUS_OK)
        return command_fail("profile", &err, EXIT_STATUS_FAILURE);
    if (node_serves(&o->engine)) return node_run(&o->engine, "profile");
    o->input.are_texts = strcmp(o->format, "text") == 0;
    if (o->input.count == 0) o->engine.skip_tokenizer = true; /* a report needs none */
    if ((o->input.count > 0 ? report_run(o, &err) : report_memory(o, &err)) != STATUS_OK)
        return command_fail("profile", &err, EXIT_STATUS_FAILURE);
    return EXIT_STATUS_OK;
}

static void free_options(void *options)
{
    struct profile_options *o = options;
    sampling_flags_free(&o->sampling);
    input_list_free(&o->input);
}

const struct command command_profile = {
    .name = "profile",
    .summary = "show where the memory goes, and how many requests fit",
    .usage = "profile [PROMPT|@FILE|-] [flags]",
    .help = SUMMARY,
    .options_size = sizeof(struct profile_options),
    .add = add_flags,
    .run = check_and_run,
    .free = free_options,
};
