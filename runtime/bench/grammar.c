/* quire bench grammar: the time to make grammars ready, and that of masks along given answers. */
#include "runtime/bench/bench.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_parse.h"
#include "runtime/input.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/model_folder.h"
#include "tokenizer/grammar/structured.h"
#include "tokenizer/tokenizer.h"

#define COMMAND "bench"

struct grammar_options {
    const char *model, *revision, *file;
    int32_t num_iters;
    bool json;
};

/* The times of one run through the file: seconds that the thread computes, because a mask takes less time than a pause
 * that the system makes. */
struct times {
    struct samples compile, new_masks, known_masks, accept;
};

/* What is reported of the times of a run, in microseconds. */
static const struct figure {
    const char *key, *label;
    size_t times; /* which of struct times */
    double percent;
} figures[] = {
    {"compile_median", "grammar ready", offsetof(struct times, compile), 50},
    {"compile_max", "  the slowest", offsetof(struct times, compile), 100},
    {"mask_median", "mask of a first answer", offsetof(struct times, new_masks), 50},
    {"mask_p99", "  99 %", offsetof(struct times, new_masks), 99},
    {"mask_p99_9", "  99.9 %", offsetof(struct times, new_masks), 99.9},
    {"known_mask_median", "mask of a second answer", offsetof(struct times, known_masks), 50},
    {"known_mask_p99_9", "  99.9 %", offsetof(struct times, known_masks), 99.9},
    {"accept_median", "token accepted", offsetof(struct times, accept), 50},
};
enum { NUM_FIGURES = sizeof figures / sizeof *figures };

struct measurement {
    const struct grammar_options *options;
    struct tokenizer *tokenizer;
    struct vocabulary *vocabulary;
    double vocabulary_seconds;
    uint32_t *words;
    struct times times;
    struct samples figures[NUM_FIGURES], mask_mean; /* of the runs */
    int64_t num_grammars, num_tokens;               /* of a run */
    size_t most_bytes;                              /* of a constraint after its answer */
    struct report report;
};

/* ---- one grammar ---- */

/* The kind whose name is a key of the line, and its value. */
static bool find_structured(const json_t *line, struct structured *out)
{
    *out = (struct structured){.disable_any_whitespace = json_is_true(json_object_get(line, "disable_any_whitespace"))};
    for (enum structured_kind kind = STRUCTURED_NONE + 1; kind < NUM_STRUCTURED_KINDS; kind++) {
        out->kind = kind;
        out->value = json_object_get(line, structured_kind_name(kind));
        if (out->value) return true;
    }
    return false;
}

/* From the request's value to a constraint. */
static enum status compile(struct measurement *m, const struct structured *s, struct constraint **out,
                           struct error *err)
{
    struct grammar *g = NULL;
    const double start = clock_thread_seconds();
    enum status status = structured_grammar(s, &g, err);
    if (status == STATUS_OK) status = constraint_create(g, m->vocabulary, out, err);
    if (status == STATUS_OK) samples_add(&m->times.compile, clock_thread_seconds() - start);
    grammar_free(g);
    return status;
}

/* Asks for the mask before each token of the answer. */
static enum status follow(struct measurement *m, struct constraint *c, const struct token_list *ids,
                          struct samples *masks, struct error *err)
{
    struct matcher *matcher;
    enum status status = matcher_create(c, true, &matcher, err);
    for (size_t i = 0; i < ids->count && status == STATUS_OK; i++) {
        const double start = clock_thread_seconds();
        matcher_mask(matcher, m->words);
        const double middle = clock_thread_seconds();
        if (!matcher_accept(matcher, ids->ids[i]))
            status = error_set(err, STATUS_INVALID, "the grammar refuses token %zu of the answer", i);
        samples_add(masks, middle - start);
        samples_add(&m->times.accept, clock_thread_seconds() - middle);
    }
    if (status == STATUS_OK && !matcher_may_end(matcher))
        status = error_set(err, STATUS_INVALID, "the answer ends before a text of the grammar does");
    matcher_free(matcher);
    return status;
}

/* Follows the answer twice: what the first one finds the second one is given. */
static enum status measure_masks(struct measurement *m, struct constraint *c, const char *answer, struct error *err)
{
    struct token_list ids = {0};
    enum status status = tokenizer_encode(m->tokenizer, answer, strlen(answer), 0, &ids, err);
    if (status == STATUS_OK) status = follow(m, c, &ids, &m->times.new_masks, err);
    if (status == STATUS_OK) status = follow(m, c, &ids, &m->times.known_masks, err);
    m->num_tokens += (int64_t)ids.count;
    if (constraint_bytes(c) > m->most_bytes) m->most_bytes = constraint_bytes(c);
    token_list_free(&ids);
    return status;
}

static enum status measure_line(struct measurement *m, const json_t *line, struct error *err)
{
    struct structured s;
    struct constraint *c = NULL;
    const char *answer = json_string_value(json_object_get(line, "answer"));
    if (!find_structured(line, &s) || !answer)
        return error_set(err, STATUS_INVALID,
                         "expected an object with a grammar (\"json\", \"regex\", \"grammar\", "
                         "...) and an \"answer\", a string");
    enum status status = compile(m, &s, &c, err);
    if (status == STATUS_OK) status = measure_masks(m, c, answer, err);
    constraint_free(c);
    m->num_grammars++;
    return status;
}

/* ---- the file ---- */

static enum status measure_lines(struct measurement *m, const struct text *text, struct error *err)
{
    const char *at = text->data, *end = text->data + text->length;
    enum status status = STATUS_OK;
    for (int number = 1; at < end && status == STATUS_OK; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t length = (size_t)((newline ? newline : end) - at);
        char place[PATH_MAX + 32];
        json_t *line = NULL;
        snprintf(place, sizeof place, "%s:%d", m->options->file, number);
        if (length > json_leading_blanks(at, length)) {
            status = json_object_parse(at, length, 0, place, &line, err);
            if (status == STATUS_OK) {
                status = measure_line(m, line, err);
                if (status != STATUS_OK) error_prefix(err, status, place);
            }
        }
        json_decref(line);
        at += length + 1;
    }
    return status;
}

/* Ends a run. */
static void add_figures(struct measurement *m)
{
    for (int i = 0; i < NUM_FIGURES; i++) {
        const struct samples *s = (const struct samples *)((const char *)&m->times + figures[i].times);
        samples_add(&m->figures[i], 1e6 * samples_percentile(s, figures[i].percent));
    }
    samples_add(&m->mask_mean, 1e6 * samples_mean(&m->times.new_masks));
    samples_free(&m->times.compile);
    samples_free(&m->times.new_masks);
    samples_free(&m->times.known_masks);
    samples_free(&m->times.accept);
    m->times = (struct times){0};
}

static enum status measure_file(struct measurement *m, struct error *err)
{
    char argument[PATH_MAX + 1];
    struct text text = {0};
    snprintf(argument, sizeof argument, "@%s", m->options->file);
    enum status status = input_read_text(argument, &text, err);
    for (int32_t i = 0; i < m->options->num_iters && status == STATUS_OK && text.data; i++) {
        m->num_grammars = m->num_tokens = 0;
        status = measure_lines(m, &text, err);
        add_figures(m);
    }
    if (status == STATUS_OK && m->num_grammars == 0)
        status = error_set(err, STATUS_INVALID, "%s has no line with a grammar", m->options->file);
    text_free(&text);
    return status;
}

static enum status open_vocabulary(struct measurement *m, const char *folder, struct error *err)
{
    enum status status = tokenizer_open(folder, &m->tokenizer, err);
    if (status != STATUS_OK) return status;
    const int32_t eos = tokenizer_eos_id(m->tokenizer);
    const double start = clock_thread_seconds();
    status = vocabulary_create(tokenizer_tokens(m->tokenizer), tokenizer_size(m->tokenizer), &eos, eos >= 0,
                               &m->vocabulary, err);
    m->vocabulary_seconds = clock_thread_seconds() - start;
    if (status != STATUS_OK) return status;
    m->words = malloc(((size_t)vocabulary_mask_words(m->vocabulary) + 1) * sizeof *m->words);
    return m->words ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a mask");
}

/* ---- the report ---- */

static enum status print(struct measurement *m, const char *folder, struct error *err)
{
    struct report *r = &m->report;
    snprintf(r->title, sizeof r->title, "grammar: %d tokens of %s", (int)tokenizer_size(m->tokenizer), folder);
    bench_report_machine(r, NULL);
    report_string(r, "benchmark", "grammar");
    report_string(r, "model", folder);
    report_number(r, "vocabulary_ms", "tokens ready", 1e3 * m->vocabulary_seconds, "ms");
    report_integer(r, "num_grammars", "grammars", m->num_grammars);
    report_integer(r, "num_tokens", "tokens of their answers", m->num_tokens);
    report_number(r, "most_mib", "most memory of a grammar", (double)m->most_bytes / (1 << 20), "MiB");
    for (int i = 0; i < NUM_FIGURES; i++)
        report_runs(r, figures[i].key, figures[i].label, &m->figures[i], "us", "lower");
    report_runs(r, "mask_mean", "mask of a first answer, mean", &m->mask_mean, "us", "lower");
    if (report_print(r, m->options->json, stdout)) return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot write the results to standard output");
}

static enum status run_grammar(struct grammar_options *o, struct error *err)
{
    struct measurement m = {.options = o};
    char model[PATH_MAX];
    report_init(&m.report);
    enum status status = model_folder_resolve(&o->model, o->revision, false, model, sizeof model, err);
    if (status == STATUS_OK) status = open_vocabulary(&m, o->model, err);
    if (status == STATUS_OK) status = measure_file(&m, err);
    if (status == STATUS_OK) status = print(&m, o->model, err);
    vocabulary_free(m.vocabulary);
    tokenizer_close(m.tokenizer);
    free(m.words);
    for (int i = 0; i < NUM_FIGURES; i++) samples_free(&m.figures[i]);
    samples_free(&m.mask_mean);
    report_free(&m.report);
    return status;
}

static void add_flags(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct grammar_options *o = options;
    *o = (struct grammar_options){.num_iters = 5};
    model_flags_add(table, &o->model, &o->revision, "Grammar:");
    const struct option_spec specs[] = {
        bench_count_flag("num-iters", &o->num_iters, 1, 1000, "Runs through the file. Default: 5."),
        {"json", OPTION_SWITCH, &o->json, .help = "Print one JSON object."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
    table->word = &o->file;
}

static int run(void *options)
{
    struct grammar_options *o = options;
    struct error err;
    if (!o->file) {
        error_set(&err, STATUS_INVALID, "give a file of grammars and answers, an object on each line");
        return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    }
    return run_grammar(o, &err) == STATUS_OK ? EXIT_STATUS_OK : command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
}

const struct command bench_grammar = {
    .name = "grammar",
    .summary = "grammars of structured answers, without a model: time to make one ready, and time of a mask",
    .usage = "bench grammar FILE [flags]",
    .help =
        "Measures grammars of structured answers with the tokenizer of a model. Each line of FILE is a JSON object: "
        "a grammar as structured_outputs has it ({\"json\": SCHEMA}, {\"regex\": TEXT}, {\"grammar\": TEXT}, ...), "
        "and an \"answer\", a text of it. Masks are asked for before each token of the answer.",
    .options_size = sizeof(struct grammar_options),
    .add = add_flags,
    .run = run,
};
