/* quire generate: a file of prompts in, a file of answers out.
 *
 * An answer is written as soon as it is finished: a run that ends early loses nothing that was finished, and finished
 * answers take no memory. With --ordered an answer waits in memory for those of the lines before it. Lines are read a
 * little ahead of the answers, never the whole file: a window of them at a time, whose prompts the engine gets sorted,
 * so that equal beginnings are computed once. Two bounds stop reading: the window's size, and, for --ordered, the
 * number of results in memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "runtime/commands.h"
#include "runtime/interrupt.h"
#include "runtime/inputs.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/model_folder.h"
#include "runtime/options/sampling_flags.h"
#include "runtime/generate/dry_run.h"
#include "runtime/generate/output.h"
#include "runtime/progress.h"
#include "runtime/prompts.h"
#include "runtime/generate/results.h"
#include "runtime/generate/window.h"

static const char COMMAND[] = "generate";
static const char USAGE[] = "generate [--input FILE]... [--output FILE] [flags]";
static const char SUMMARY[] =
    "Runs a file of prompts through a model: a prompt a line, or JSON objects with \"prompt\" (a text or token ids), "
    "\"prompt_token_ids\" or \"messages\" (with \"tools\", \"documents\" and \"chat_template_kwargs\"), an \"id\" or "
    "\"custom_id\", a \"cache_salt\" (prompts share cached blocks only with those of the same salt), a \"priority\" "
    "(an integer, smaller is earlier, with --scheduling-policy priority), and sampling fields of their own, named as "
    "the flags are (\"max_tokens\" for --max-tokens, ...). Lines of OpenAI batches (\"custom_id\", \"url\", \"body\") "
    "are answered as in its output files. Blank lines are skipped. Each line gives one JSON line, "
    "which is written when its answer is finished: with its \"index\" among the prompts, from 0, and the \"id\" that "
    "it has. A line "
    "that cannot be answered gives an \"error\", and the exit status is then 1.";

/* Bounds: prompts that the engine has and results beside the window's, in multiples of max_num_seqs; and prompts that
 * are read and sorted together, the larger of both, with their tokens. */
enum {
    WAITING_PER_SEQUENCE = 2,
    RESULTS_PER_SEQUENCE = 64,
    WINDOW_PER_SEQUENCE = 4,
    WINDOW_PROMPTS = 1024,
    WINDOW_TOKENS = 1 << 22
};

struct generate_options {
    struct engine_options engine;
    struct log log;
    struct sampling_flags sampling;
    struct template_flags template;
    struct input_list input;
    const char *output, *format, *system;
    const char *model_name; /* of the answers to lines of a batch */
    int as_chat;
    bool dry_run, overwrite, ordered, return_token_ids, quiet;
};

struct run {
    struct engine *engine;
    struct prompt_rules prompts;
    struct result_rules rules;
    struct inputs inputs;
    struct window window; /* of prompts that the engine has not got yet */
    struct prompt_warnings said;
    const struct log *log;
    uint64_t seed; /* of requests without one */
    struct output output;
    struct text line; /* the one that is being written */
    struct result_queue queue;
    struct progress progress;
    int64_t num_read, num_written, num_failed, num_unfinished;
    int64_t prompt_tokens, cached_tokens, output_tokens; /* of what is written */
    uint64_t bytes_read;     /* of the input: of the lines that became results, and the blank lines before them */
    uint64_t bytes_answered; /* of bytes_read: of the lines whose answers are written */
    bool input_ended;        /* no more lines are read */
    bool input_failed;       /* ... because the input cannot be read any further */
    bool at_terminal;        /* answers and progress are shown on the same screen */
};

/* ---- flags ---- */

static void set_defaults(struct generate_options *o)
{
    *o = (struct generate_options){.engine = engine_options_default(),
                                   .log = {LOG_WARNING},
                                   .sampling.params = sampling_params_default(),
                                   .output = "-",
                                   .format = "auto",
                                   .as_chat = -1};
    o->engine.log = &o->log;
}

static void add_file_flags(struct option_table *table, struct generate_options *o)
{
    const struct option_spec files[] = {
        {.heading = "Files:",
         .name = "input",
         .letter = 'i',
         .kind = OPTION_CUSTOM,
         .target = &o->input,
         .parse = input_list_add,
         .not_empty = true,
         .argument = "FILE",
         .help = "The prompts; -: standard input. gzip and zstd are unpacked. Given several times, the files are read "
                 "one after the other. Default: -."},
        {.name = "output",
         .letter = 'o',
         .kind = OPTION_STRING,
         .target = &o->output,
         .not_empty = true,
         .argument = "FILE",
         .help = "Where the answers go; -: standard output. Default: -."},
        {.name = "overwrite",
         .kind = OPTION_SWITCH,
         .target = &o->overwrite,
         .help = "Replace an output file that is not empty, once the first answer is there. Default: off."},
        {.name = "ordered",
         .kind = OPTION_SWITCH,
         .target = &o->ordered,
         .help = "Write the answers in the order of the input: each waits for those before it. Default: off."},
        {.name = "format",
         .kind = OPTION_STRING,
         .target = &o->format,
         .choices = PROMPT_FORMAT_CHOICES,
         .help = "What a line is. Default: auto, JSON if it begins with {, else text."},
        {.name = "dry-run",
         .kind = OPTION_SWITCH,
         .target = &o->dry_run,
         .help = "Answer nothing: count prompts and tokens, name bad lines, and estimate the time. Default: off."},
        {.name = "chat",
         .kind = OPTION_TRISTATE,
         .target = &o->as_chat,
         .help = "Make each text a question to a chat model, through its chat template; a list of token ids stays as "
                 "it is. Default: off, and a warning if the model has a template."},
        {.name = "system",
         .letter = 's',
         .kind = OPTION_STRING,
         .target = &o->system,
         .argument = "TEXT",
         .help = "With --chat: the system message before each question. Default: none."},
    };
    option_table_add(table, files, (int)(sizeof files / sizeof files[0]));
}

static void add_answer_flags(struct option_table *table, struct generate_options *o)
{
    const struct option_spec specs[] = {
        {.name = "return-token-ids",
         .kind = OPTION_SWITCH,
         .target = &o->return_token_ids,
         .help = "Give the token ids of each answer. Default: off."},
        {.name = "skip-tokenizer-init",
         .kind = OPTION_SWITCH,
         .target = &o->engine.skip_tokenizer,
         .help = "Open no tokenizer: prompts are token ids, answers have no text. Default: off."},
        {.name = "quiet",
         .letter = 'q',
         .kind = OPTION_SWITCH,
         .target = &o->quiet,
         .help = "No progress and no summary on stderr. Default: off."},
    };
    sampling_flags_add_answers(table, &o->sampling, "Answers:");
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
    trace_flag_add(table, &o->engine);
}

static void add_flags(struct option_table *table, struct generate_options *o)
{
    add_file_flags(table, o);
    engine_flags_add(table, &o->engine, &o->log);
    add_answer_flags(table, o);
    template_flags_add(table, &o->template, "Conversations:");
    sampling_flags_add(table, &o->sampling);
}

/* ---- a line in ---- */

static enum status add_request(struct run *run, const struct prompt *prompt, struct result *result, struct error *err)
{
    if (prompt->tokens.count > INT32_MAX) return error_set(err, STATUS_INVALID, "the prompt is too long");
    const struct engine_request request = {.prompt = prompt->tokens.ids,
                                           .prompt_len = (int32_t)prompt->tokens.count,
                                           .params = &prompt->params,
                                           .cache_salt = prompt->cache_salt,
                                           .priority = prompt->priority,
                                           .at_start = prompt->is_chat,
                                           .deliver = result_deliver,
                                           .user = result};
    return engine_add(run->engine, &request, &result->request, err);
}

static void warn(struct run *run, const struct prompt *prompt)
{
    struct error sentence;
    while (prompt_warning(&run->said, &run->prompts, prompt, &sentence)) {
        progress_clear(&run->progress);
        log_write(run->log, LOG_WARNING, "%s", sentence.text);
    }
}

/* A request without a seed gets one of its place in the input, so that its answer does not depend on when it runs. */
static void set_seed(const struct run *run, int64_t index, struct sampling_params *params)
{
    if (params->has_seed) return;
    params->has_seed = true;
    params->seed = random_mix(run->seed * RANDOM_STEP + (uint64_t)index + 1);
}

/* Every line becomes a result in the queue; what is wrong with the line is the result's error. Its prompt waits in the
 * window. */
static enum status take_line(struct run *run, enum line_result kind, const char *line, size_t length, struct error *err)
{
    struct prompt prompt;
    struct error why = {""};
    const struct result_place place = {run->num_read++, inputs_line(&run->inputs), inputs_file(&run->inputs)};
    const enum status status = prompt_read(&run->prompts, kind, line, length, &prompt, &why);
    if (status != STATUS_OK) prompt.params.n = 1;
    warn(run, &prompt);
    set_seed(run, place.index, &prompt.params);
    struct result *result = result_create(&run->rules, place, &prompt);
    bool ok = result != NULL;
    if (ok) {
        const uint64_t position = inputs_position(&run->inputs);
        result->input_bytes = position - run->bytes_read;
        run->bytes_read = position;
        if (status != STATUS_OK) result_fail(result, &why);
        result_queue_add(&run->queue, result);
        ok = !result->no_memory;
    }
    if (!ok || status != STATUS_OK || !(ok = window_add(&run->window, &prompt, result))) prompt_free(&prompt);
    return ok ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "no memory for line %lld", (long long)place.line);
}

/* Gives prompts of the window to the engine: as many as keep it busy. */
static void feed_engine(struct run *run)
{
    const int64_t most = WAITING_PER_SEQUENCE * (int64_t)engine_limits(run->engine)->max_num_seqs;
    struct window_entry entry;
    while (run->queue.num_unanswered - window_count(&run->window) < most && window_take(&run->window, &entry)) {
        struct error why = {""};
        if (add_request(run, &entry.prompt, entry.result, &why) != STATUS_OK) result_fail(entry.result, &why);
        prompt_free(&entry.prompt);
    }
}

/* What the engine has is enough for its next steps: lines are then read a few at a time, so that no step waits long. */
static bool engine_is_fed(const struct run *run)
{
    return run->queue.num_unanswered - window_count(&run->window) >= engine_limits(run->engine)->max_num_seqs;
}

static bool has_room(const struct run *run, int64_t num_read)
{
    const int64_t seqs = engine_limits(run->engine)->max_num_seqs;
    const int64_t most = WINDOW_PER_SEQUENCE * seqs > WINDOW_PROMPTS ? WINDOW_PER_SEQUENCE * seqs : WINDOW_PROMPTS;
    return window_collected(&run->window) < most && run->window.num_tokens < WINDOW_TOKENS &&
           run->queue.num_results < RESULTS_PER_SEQUENCE * seqs + most && (num_read <= seqs / 4 || !engine_is_fed(run));
}

/* A failed read ends the input like its end does: the lines before it are still answered. */
static void end_input(struct run *run, enum line_result kind, struct error *why)
{
    run->input_ended = true;
    run->input_failed = kind == LINE_FAILED;
    if (!run->input_failed) return;
    progress_clear(&run->progress);
    command_fail(COMMAND, why, EXIT_STATUS_FAILURE);
}

/* Reads lines while there is room, and blocks only if there is nothing to compute and nothing to write. */
static enum status read_window(struct run *run, struct error *err)
{
    const int64_t read_before = run->num_read;
    while (!run->input_ended && has_room(run, run->num_read - read_before) && !interrupt_pending()) {
        const char *line;
        size_t length;
        struct error why;
        bool wait = run->queue.num_results == 0 && !engine_has_work(run->engine);
        enum line_result kind = inputs_next(&run->inputs, wait, &line, &length, &why);
        if (kind == LINE_NOT_YET) break;
        if (kind == LINE_END || kind == LINE_FAILED) {
            end_input(run, kind, &why);
        } else if (kind == LINE_TOO_LONG || !prompt_line_is_blank(line, length)) {
            enum status status = take_line(run, kind, line, length, err);
            if (status != STATUS_OK) return status;
        }
    }
    return STATUS_OK;
}

static enum status read_ahead(struct run *run, struct error *err)
{
    feed_engine(run);
    const enum status status = read_window(run, err);
    feed_engine(run);
    return status;
}

/* ---- an answer out ---- */

static void count_result(struct run *run, const struct result *r)
{
    run->num_written++;
    if (r->error) run->num_failed++;
    run->prompt_tokens += r->prompt_tokens;
    run->cached_tokens += r->cached_tokens;
    run->output_tokens += result_output_tokens(r);
    run->bytes_answered += r->input_bytes;
}

static enum status write_result(struct run *run, const struct result *r, struct error *err)
{
    if (r->no_memory)
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the answer to line %lld", (long long)r->place.line);
    enum status status = result_format(r, &run->line, err);
    if (status != STATUS_OK) return status;
    if (run->at_terminal) progress_clear(&run->progress);
    status = output_write(&run->output, run->line.data, run->line.length, err);
    if (status == STATUS_OK) count_result(run, r);
    return status;
}

static enum status write_ready(struct run *run, struct error *err)
{
    enum status status = STATUS_OK;
    struct result *r;
    while (status == STATUS_OK && (r = result_queue_take(&run->queue)) != NULL) {
        status = write_result(run, r, err);
        result_free(r);
    }
    return status;
}

/* ---- the loop ---- */

static void show_progress(struct run *run)
{
    if (!progress_due(&run->progress)) return;
    const struct result_queue *q = &run->queue;
    int64_t tokens = run->output_tokens, done = run->num_written + q->num_results - q->num_unanswered;
    for (const struct result *r = q->waiting.first; r; r = r->next) tokens += result_output_tokens(r);
    progress_update(&run->progress, done, tokens,
                    run->inputs.size ? (double)run->bytes_answered / (double)run->inputs.size : -1);
}

static enum status answer_all(struct run *run, struct error *err)
{
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !interrupt_pending()) {
        status = read_ahead(run, err);
        bool worked = true;
        if (status == STATUS_OK && engine_has_work(run->engine)) status = engine_step(run->engine, &worked, err);
        enum status written = write_ready(run, status == STATUS_OK ? err : NULL);
        if (status == STATUS_OK) status = written;
        if (status == STATUS_OK && run->input_ended && run->queue.num_results == 0) break;
        show_progress(run);
    }
    return status;
}

/* After an interrupt or a failure: ends what is unfinished, writes what is complete and counts the rest. */
static enum status wind_up(struct run *run, bool engine_works, struct error *err)
{
    for (const struct result *r = run->queue.waiting.first; r && engine_works; r = r->next) {
        if (!r->done) engine_abort(run->engine, r->request);
    }
    bool worked = true;
    while (engine_works && engine_has_work(run->engine)) {
        if (engine_step(run->engine, &worked, NULL) != STATUS_OK) break;
    }
    enum status status = STATUS_OK;
    struct result *r;
    while ((r = result_queue_take_any(&run->queue)) != NULL) {
        if (!r->done || r->aborted)
            run->num_unfinished++;
        else if (status == STATUS_OK)
            status = write_result(run, r, err);
        result_free(r);
    }
    return status;
}

/* ---- start and end ---- */

static void print_summary(struct run *run, const struct generate_options *o)
{
    double seconds = progress_seconds(&run->progress);
    if (!o->quiet) {
        fprintf(
            stderr,
            "quire generate: %lld prompt%s, %lld token%s in %.2f s (%.1f tokens/s); %lld prompt token%s, %lld of them "
            "from the cache\n",
            (long long)run->num_written, plural(run->num_written), (long long)run->output_tokens,
            plural(run->output_tokens), seconds, seconds > 0 ? (double)run->output_tokens / seconds : 0,
            (long long)run->prompt_tokens, plural(run->prompt_tokens), (long long)run->cached_tokens);
    }
    if (run->num_failed) {
        fprintf(stderr, "quire generate: %lld of %lld prompt%s failed: see \"error\" in the output\n",
                (long long)run->num_failed, (long long)run->num_written, plural(run->num_written));
    }
}

/* Says what went wrong, but not that the reader of a pipe closed it: whoever did so knows. */
static int fail(const struct run *run, const struct error *err)
{
    if (run->output.reader_ended) return EXIT_STATUS_FAILURE;
    return command_fail(COMMAND, err, EXIT_STATUS_FAILURE);
}

static void print_interrupted(const struct run *run)
{
    const bool one = run->num_unfinished == 1;
    fprintf(stderr, "quire generate: interrupted; %lld prompt%s that %s read %s no answer%s\n",
            (long long)run->num_unfinished, plural(run->num_unfinished), one ? "was" : "were", one ? "has" : "have",
            run->input_ended ? "" : ", and the input was not read to its end");
}

static int run_to_end(struct run *run, const struct generate_options *o)
{
    struct error err = {""};
    progress_start(&run->progress, !o->quiet);
    run->at_terminal = isatty(run->output.fd);
    interrupt_catch_to_end();
    enum status status = answer_all(run, &err);
    const bool interrupted = status == STATUS_OK && interrupt_pending();
    if (status == STATUS_OK && !interrupted && !run->input_failed) {
        status = output_begin(&run->output, &err); /* the input may have no prompts */
    }
    progress_clear(&run->progress);
    int exit_status = status == STATUS_OK ? EXIT_STATUS_OK : fail(run, &err);
    if (!run->output.failed && (status != STATUS_OK || interrupted)) {
        status = wind_up(run, status == STATUS_OK, &err);
        if (status != STATUS_OK) exit_status = fail(run, &err);
    }
    if (interrupted) print_interrupted(run);
    if (output_close(&run->output, &err) != STATUS_OK) exit_status = fail(run, &err);
    if (!run->output.failed) print_summary(run, o);
    return interrupted || run->input_failed || run->num_failed ? EXIT_STATUS_FAILURE : exit_status;
}

static struct prompt_options prompt_options_of(const struct generate_options *o)
{
    return (struct prompt_options){.format = o->format,
                                   .sampling = &o->sampling,
                                   .template = &o->template,
                                   .as_chat = o->as_chat,
                                   .system = o->system,
                                   .model_name = o->model_name};
}

static enum status start(struct run *run, struct generate_options *o, struct error *err)
{
    enum status status = engine_create(&o->engine, &run->engine, err);
    if (status != STATUS_OK) return status;
    const struct prompt_model model = prompt_model_of(run->engine);
    const struct prompt_options options = prompt_options_of(o);
    status = prompt_rules_make(&model, &options, &run->prompts, err);
    run->rules = (struct result_rules){
        .tokenizer = run->prompts.tokenizer, .model_name = o->model_name, .return_token_ids = o->return_token_ids};
    run->log = &o->log;
    run->seed = o->engine.seed;
    return status;
}

/* The files are opened before the model is loaded, which takes a while. */
static int generate(struct generate_options *o)
{
    struct run run = {.queue.ordered = o->ordered};
    struct error err = {""};
    int exit_status = EXIT_STATUS_FAILURE;
    enum status status = inputs_open(&run.inputs, &o->input, &err);
    if (status == STATUS_OK) status = output_open(&run.output, o->output, o->overwrite, &run.inputs, &err);
    if (status == STATUS_INVALID) exit_status = EXIT_STATUS_USAGE;
    if (status == STATUS_OK) status = start(&run, o, &err);
    exit_status = status == STATUS_OK ? run_to_end(&run, o) : command_fail(COMMAND, &err, exit_status);
    prompt_rules_free(&run.prompts);
    engine_leave(run.engine);
    struct result *r;
    while ((r = result_queue_take_any(&run.queue)) != NULL) result_free(r);
    text_free(&run.line);
    window_free(&run.window);
    inputs_close(&run.inputs);
    output_close(&run.output, NULL);
    return exit_status;
}

/* The name of the folder at the end of a path. */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static int parse_and_generate(struct generate_options *o, int argc, char **argv)
{
    struct option_table table = {.count = 0};
    struct error err;
    char model[4096];
    bool help;
    add_flags(&table, o);
    if (options_parse(&table, argc, argv, &help, &err) != STATUS_OK) {
        return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    }
    if (help) {
        options_print_help(&table, USAGE, SUMMARY, stdout);
        return EXIT_STATUS_OK;
    }
    if (sampling_flags_check(&o->sampling, &err) != STATUS_OK ||
        template_flags_check(&o->template, &err) != STATUS_OK) {
        return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    }
    if (o->system && o->as_chat != 1) {
        error_set(&err, STATUS_INVALID, "--system goes with --chat");
        return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    }
    o->model_name = o->engine.model;
    if (model_folder_of_engine(&o->engine, model, sizeof model, &err) != STATUS_OK) {
        return command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    }
    if (!o->model_name) o->model_name = last_part(o->engine.model);
    if (o->dry_run) {
        const struct dry_run_options dry = {&o->engine, &o->input, prompt_options_of(o)};
        return dry_run(&dry);
    }
    return generate(o);
}

int command_generate(int argc, char **argv)
{
    struct generate_options o;
    set_defaults(&o);
    const int exit_status = parse_and_generate(&o, argc, argv);
    sampling_flags_free(&o.sampling);
    input_list_free(&o.input);
    return exit_status;
}
