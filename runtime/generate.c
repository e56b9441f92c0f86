/* quire generate: a file of prompts in, a file of answers out, in the same order.
 *
 * Lines are read a little ahead of the answers, never the whole file. Answers are written in the order of their lines:
 * one that is ready before its turn waits. How far reading may run ahead is bounded twice, by the requests that are
 * not answered yet (what keeps the engine busy) and by all that wait in memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/commands.h"
#include "runtime/interrupt.h"
#include "runtime/line_reader.h"
#include "runtime/options/options.h"
#include "runtime/progress.h"
#include "runtime/prompts.h"
#include "runtime/results.h"

static const char COMMAND[] = "generate";
static const char USAGE[] = "generate [--input FILE] [--output FILE] [flags]";
static const char SUMMARY[] =
    "Runs a file of prompts through a model: a prompt a line, or JSON objects with \"prompt\" (a text or token ids), "
    "\"prompt_token_ids\" or \"messages\", an \"id\" or \"custom_id\", and sampling fields of their own, named as the "
    "flags are (\"max_tokens\" for --max-tokens, ...). Blank lines are skipped. Answers are JSON lines in the order of "
    "the input; a line that "
    "cannot be answered gives an \"error\", and the exit status is then 1.";

enum { UNANSWERED_A_SEQUENCE = 4, WAITING_A_SEQUENCE = 64 }; /* both times max_num_seqs */

struct generate_options {
    struct engine_options engine;
    struct log log;
    struct sampling_flags sampling;
    const char *input, *output, *format;
    bool return_token_ids, quiet;
};

struct run {
    struct engine *engine;
    struct prompt_rules prompts;
    struct result_rules rules;
    struct line_reader reader;
    FILE *out;
    const char *out_name;
    struct progress progress;
    struct result *first, *last;         /* in input order, not written yet */
    int64_t num_waiting, num_unanswered; /* of those: all, and those not done */
    int64_t num_written, num_failed, num_unfinished;
    int64_t prompt_tokens, cached_tokens, output_tokens;
    uint64_t input_size, bytes_written; /* of the input: all (0: not known), and as far as it is answered */
    bool input_ended, pipe_closed;
    bool at_terminal; /* answers and progress share the screen */
};

/* ---- flags ---- */

static void set_defaults(struct generate_options *o)
{
    *o = (struct generate_options){.engine = engine_options_default(),
                                   .log = {LOG_WARNING},
                                   .sampling.params = sampling_params_default(),
                                   .input = "-",
                                   .output = "-",
                                   .format = "auto"};
    o->engine.log = &o->log;
}

static void add_flags(struct option_table *table, struct generate_options *o)
{
    const struct option_spec files[] = {
        {.heading = "Files:",
         .name = "input",
         .letter = 'i',
         .kind = OPTION_STRING,
         .target = &o->input,
         .argument = "FILE",
         .help = "The prompts; -: standard input. Default: -."},
        {.name = "output",
         .letter = 'o',
         .kind = OPTION_STRING,
         .target = &o->output,
         .argument = "FILE",
         .help = "Where the answers go; -: standard output. Default: -."},
        {.name = "format",
         .kind = OPTION_STRING,
         .target = &o->format,
         .choices = "auto|text|jsonl",
         .help = "What a line is. Default: auto, JSON if it begins with {, else text."},
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
    const struct option_spec answers[] = {
        {.heading = "Answers:",
         .name = "n",
         .kind = OPTION_INT32,
         .target = &o->sampling.params.n,
         .argument = "N",
         .help = "Answers to each prompt. Default: 1.",
         .given = &o->sampling.given,
         .given_bit = UINT64_C(1) << FIELD_N},
        {.name = "logprobs",
         .kind = OPTION_INT32,
         .target = &o->sampling.params.logprobs,
         .argument = "N",
         .help = "Give each token's log-probability, and the N most probable tokens, 0 to 20. Default: -1, none.",
         .given = &o->sampling.given,
         .given_bit = UINT64_C(1) << FIELD_LOGPROBS},
    };
    option_table_add(table, files, (int)(sizeof files / sizeof files[0]));
    options_add_engine(table, &o->engine, &o->log);
    option_table_add(table, answers, (int)(sizeof answers / sizeof answers[0]));
    options_add_sampling(table, &o->sampling);
}

/* ---- files ---- */

static bool is_standard(const char *name)
{
    return strcmp(name, "-") == 0;
}

static enum status open_input(struct run *run, const char *name, struct error *err)
{
    struct stat info;
    enum status status = line_reader_open(&run->reader, name, err);
    if (status != STATUS_OK || fstat(run->reader.fd, &info) != 0) return status;
    if (S_ISREG(info.st_mode) && info.st_size > 0) run->input_size = (uint64_t)info.st_size;
    return STATUS_OK;
}

static bool same_file(int a, int b)
{
    struct stat first, second;
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && S_ISREG(first.st_mode) && S_ISREG(second.st_mode) &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

/* Two runs on one file would mix their answers. Where a file system has no locks, nobody is kept out. */
static bool is_taken(int fd)
{
    struct stat info;
    if (fd == STDOUT_FILENO || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    return flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

/* Opens the output before the model is loaded, which takes a while, but leaves what it holds alone until the model is
 * there. */
static enum status open_output(struct run *run, const char *name, struct error *err)
{
    run->out_name = is_standard(name) ? "standard output" : name;
    int fd = is_standard(name) ? STDOUT_FILENO : open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return error_set(err, STATUS_IO, "cannot write the output %s: %s", name, strerror(errno));
    if (same_file(run->reader.fd, fd)) {
        if (fd != STDOUT_FILENO) close(fd);
        return error_set(err, STATUS_INVALID, "the output %s is the input; name another file", name);
    }
    if (is_taken(fd)) {
        close(fd);
        return error_set(err, STATUS_IO, "another quire is writing the output %s; wait for it, or name another file",
                         name);
    }
    run->out = fd == STDOUT_FILENO ? stdout : fdopen(fd, "w");
    if (run->out) return STATUS_OK;
    close(fd);
    return error_set(err, STATUS_OUT_OF_MEMORY, "cannot write the output %s: %s", name, strerror(errno));
}

static enum status empty_output(const struct run *run, struct error *err)
{
    struct stat info;
    int fd = fileno(run->out);
    if (run->out == stdout || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || ftruncate(fd, 0) == 0) {
        return STATUS_OK;
    }
    return error_set(err, STATUS_IO, "cannot write the output %s: %s", run->out_name, strerror(errno));
}

static enum status close_output(struct run *run, struct error *err)
{
    FILE *out = run->out;
    run->out = NULL;
    if (!out || out == stdout || fclose(out) == 0) return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot write the output %s: %s", run->out_name, strerror(errno));
}

/* ---- a line in ---- */

static void enqueue(struct run *run, struct result *result)
{
    if (run->last)
        run->last->next = result;
    else
        run->first = result;
    run->last = result;
    run->num_waiting++;
    if (result->done) return;
    run->num_unanswered++;
    result->unanswered = &run->num_unanswered;
}

static enum status add_request(struct run *run, const struct prompt *prompt, struct result *result, struct error *err)
{
    if (prompt->tokens.count > INT32_MAX) return error_set(err, STATUS_INVALID, "the prompt is too long");
    enum status (*add)(struct engine *, const int32_t *, int32_t, const struct sampling_params *, answer_function *,
                       void *, uint64_t *, struct error *) = prompt->is_chat ? engine_add_chat : engine_add;
    return add(run->engine, prompt->tokens.ids, (int32_t)prompt->tokens.count, &prompt->params, result_deliver, result,
               &result->request, err);
}

/* A line becomes a result in the queue, whatever is wrong with it; only a lack of memory is a failure. */
static enum status take_line(struct run *run, enum line_result kind, const char *line, size_t length, struct error *err)
{
    struct prompt prompt = {0};
    struct error why = {""};
    enum status status = STATUS_OK;
    if (kind == LINE_TOO_LONG) {
        status = error_set(&why, STATUS_INVALID, "the line is longer than %u bytes", LINE_READER_MAX_LINE);
    } else {
        status = prompt_parse(&run->prompts, line, length, &prompt, &why);
    }
    if (status != STATUS_OK) prompt.params.n = 1;
    struct result *result = result_create(&run->rules, run->reader.line, &prompt);
    if (result) {
        result->consumed = run->reader.consumed;
        if (status == STATUS_OK) status = add_request(run, &prompt, result, &why);
        if (status != STATUS_OK) result_fail(result, why.text);
        enqueue(run, result);
    }
    prompt_free(&prompt);
    if (result && !result->no_memory) return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for line %lld", (long long)run->reader.line);
}

static bool has_room(const struct run *run)
{
    int64_t seqs = engine_limits(run->engine)->max_num_seqs;
    return run->num_unanswered < UNANSWERED_A_SEQUENCE * seqs && run->num_waiting < WAITING_A_SEQUENCE * seqs;
}

/* Reads lines while there is room, and waits for one only if there is nothing else to do. */
static enum status read_ahead(struct run *run, struct error *err)
{
    while (!run->input_ended && has_room(run) && !interrupt_pending()) {
        const char *line;
        size_t length;
        bool wait = !run->first && !engine_has_work(run->engine);
        enum line_result kind = line_reader_next(&run->reader, wait, &line, &length, err);
        if (kind == LINE_NOT_YET) return STATUS_OK;
        if (kind == LINE_FAILED) return error_prefix(err, STATUS_IO, "the input");
        if (kind == LINE_END) {
            run->input_ended = true;
            return STATUS_OK;
        }
        if (kind == LINE_READY && prompt_line_is_blank(line, length)) continue;
        enum status status = take_line(run, kind, line, length, err);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* ---- an answer out ---- */

static void count_result(struct run *run, const struct result *r)
{
    run->num_written++;
    if (r->error) run->num_failed++;
    run->prompt_tokens += r->prompt_tokens;
    run->cached_tokens += r->cached_tokens;
    run->output_tokens += result_output_tokens(r);
    run->bytes_written = r->consumed;
}

static enum status write_result(struct run *run, const struct result *r, struct error *err)
{
    if (r->no_memory) {
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the answer to line %lld", (long long)r->line);
    }
    errno = 0;
    enum status status = result_write(r, run->out, err);
    if (status == STATUS_OK) count_result(run, r);
    if (status != STATUS_IO) return status;
    run->pipe_closed = errno == EPIPE;
    return error_prefix(err, status, run->out_name);
}

static struct result *dequeue(struct run *run)
{
    struct result *r = run->first;
    run->first = r->next;
    if (!run->first) run->last = NULL;
    run->num_waiting--;
    return r;
}

/* Writes what is ready, as far as its turn has come. */
static enum status write_ready(struct run *run, struct error *err)
{
    enum status status = STATUS_OK;
    while (status == STATUS_OK && run->first && run->first->done) {
        struct result *r = dequeue(run);
        if (run->at_terminal) progress_clear(&run->progress);
        status = write_result(run, r, err);
        result_free(r);
    }
    return status;
}

/* ---- the loop ---- */

static void show_progress(struct run *run)
{
    if (!progress_due(&run->progress)) return;
    double fraction = -1;
    if (run->input_size) fraction = (double)run->bytes_written / (double)run->input_size;
    int64_t tokens = run->output_tokens, done = run->num_written;
    for (const struct result *r = run->first; r; r = r->next) {
        tokens += result_output_tokens(r);
        done += r->done;
    }
    progress_update(&run->progress, done, tokens, fraction);
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
        if (status == STATUS_OK && run->input_ended && !run->first) break;
        show_progress(run);
    }
    return status;
}

/* After an interrupt or a failure: ends what is unfinished, writes what was complete and counts the rest. */
static enum status wind_up(struct run *run, bool engine_works, struct error *err)
{
    for (const struct result *r = run->first; r && engine_works; r = r->next) {
        if (!r->done) engine_abort(run->engine, r->request);
    }
    bool worked = true;
    while (engine_works && engine_has_work(run->engine)) {
        if (engine_step(run->engine, &worked, NULL) != STATUS_OK) break;
    }
    enum status status = STATUS_OK;
    while (run->first) {
        struct result *r = dequeue(run);
        if (!r->done || r->aborted)
            run->num_unfinished++;
        else if (status == STATUS_OK)
            status = write_result(run, r, err);
        result_free(r);
    }
    return status;
}

/* ---- start and end ---- */

static enum status set_rules(struct run *run, const struct generate_options *o, struct error *err)
{
    const struct tokenizer *tokenizer = engine_tokenizer(run->engine);
    run->prompts = (struct prompt_rules){.tokenizer = tokenizer,
                                         .vocab_size = engine_model_config(run->engine)->spec.vocab_size,
                                         .max_n = engine_limits(run->engine)->max_num_seqs};
    if (tokenizer) run->prompts.chat_format = chat_format_detect(tokenizer_chat_template(tokenizer));
    if (strcmp(o->format, "text") == 0) run->prompts.format = PROMPT_FORMAT_TEXT;
    if (strcmp(o->format, "jsonl") == 0) run->prompts.format = PROMPT_FORMAT_JSONL;
    engine_default_sampling(run->engine, &run->prompts.defaults);
    sampling_flags_apply(&o->sampling, &run->prompts.defaults);
    /* --seed is the engine's: every line draws numbers of its own from it, and two equal lines differ. */
    run->prompts.defaults.has_seed = false;
    run->rules = (struct result_rules){.tokenizer = tokenizer, .return_token_ids = o->return_token_ids};
    return sampling_params_check(&run->prompts.defaults, run->prompts.vocab_size, err);
}

static void print_summary(struct run *run, const struct generate_options *o)
{
    double seconds = progress_seconds(&run->progress);
    if (!o->quiet) {
        fprintf(stderr,
                "quire generate: %lld prompts, %lld tokens in %.2f s (%.1f tokens/s); %lld prompt tokens, %lld of them "
                "from the cache\n",
                (long long)run->num_written, (long long)run->output_tokens, seconds,
                seconds > 0 ? (double)run->output_tokens / seconds : 0, (long long)run->prompt_tokens,
                (long long)run->cached_tokens);
    }
    if (run->num_failed) {
        fprintf(stderr, "quire generate: %lld of %lld prompts failed; their lines in the output say why\n",
                (long long)run->num_failed, (long long)run->num_written);
    }
}

/* A reader that went away is no news to whoever closed it. */
static int fail_or_hush(const struct run *run, enum status status, const struct error *err)
{
    if (status == STATUS_IO && run->pipe_closed) return EXIT_STATUS_FAILURE;
    return command_fail(COMMAND, err, EXIT_STATUS_FAILURE);
}

static int run_to_end(struct run *run, const struct generate_options *o)
{
    struct error err = {""};
    progress_start(&run->progress, !o->quiet);
    run->at_terminal = isatty(fileno(run->out));
    interrupt_catch_once();
    enum status status = answer_all(run, &err);
    progress_clear(&run->progress);
    bool interrupted = status == STATUS_OK && interrupt_pending();
    int exit_status = EXIT_STATUS_OK;
    if (status != STATUS_OK) exit_status = fail_or_hush(run, status, &err);
    bool can_write = !ferror(run->out);
    if (can_write && (status != STATUS_OK || interrupted)) {
        status = wind_up(run, status == STATUS_OK, &err);
        if (status != STATUS_OK) exit_status = fail_or_hush(run, status, &err);
    }
    if (interrupted) {
        fprintf(stderr, "quire generate: interrupted; %lld prompts that were read have no answer%s\n",
                (long long)run->num_unfinished, run->input_ended ? "" : ", and the input was not read to its end");
    }
    bool closed = close_output(run, &err) == STATUS_OK;
    if (!closed && exit_status == EXIT_STATUS_OK) exit_status = command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    if (can_write && closed) print_summary(run, o);
    return interrupted || run->num_failed ? EXIT_STATUS_FAILURE : exit_status;
}

static enum status start(struct run *run, struct generate_options *o, struct error *err)
{
    enum status status = open_input(run, o->input, err);
    if (status == STATUS_OK) status = open_output(run, o->output, err);
    if (status == STATUS_OK) status = engine_create(&o->engine, &run->engine, err);
    if (status == STATUS_OK) status = set_rules(run, o, err);
    if (status == STATUS_OK) status = empty_output(run, err);
    return status;
}

static int generate(struct generate_options *o)
{
    struct run run = {0};
    struct error err = {""};
    enum status status = start(&run, o, &err);
    int exit_status = status == STATUS_OK ? run_to_end(&run, o) : command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    engine_leave(run.engine);
    while (run.first) result_free(dequeue(&run));
    line_reader_free(&run.reader);
    if (run.out && run.out != stdout) fclose(run.out);
    return exit_status;
}

int command_generate(int argc, char **argv)
{
    struct generate_options o;
    struct option_table table = {.count = 0};
    struct error err;
    char model[4096];
    bool help;
    set_defaults(&o);
    add_flags(&table, &o);
    if (options_parse(&table, argc, argv, &help, NULL, 0, NULL, &err) != STATUS_OK) {
        return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    }
    if (help) {
        options_print_help(&table, USAGE, SUMMARY, stdout);
        return EXIT_STATUS_OK;
    }
    if (sampling_params_check(&o.sampling.params, INT32_MAX, &err) != STATUS_OK) {
        return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    }
    if (options_require_model(&o.engine, model, sizeof model, &err) != STATUS_OK) {
        return command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    }
    return generate(&o);
}
