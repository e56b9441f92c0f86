#include "runtime/generate/dry_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/notice.h"
#include "base/random.h"
#include "runtime/options/command.h"
#include "runtime/engine/grammars.h"
#include "runtime/engine/loaded_model.h"
#include "runtime/generate/distinct.h"
#include "runtime/generate/id_set.h"
#include "runtime/prompt_line.h"
#include "runtime/report.h"

static const char COMMAND[] = "generate";

enum { MOST_BAD_SHOWN = 20, MOST_SAMPLED = 64 };

struct dry_run {
    const struct dry_run_options *options;
    struct loaded_model *outline; /* what is known without weights: the config, the tokenizer and limits */
    struct engine_info info;      /* of the outline */
    struct grammars *grammars;    /* likewise */
    struct prompt_rules rules;
    struct inputs inputs;
    struct prompt_warnings said;
    struct id_set ids;
    int64_t num_lines, num_bad;
    int64_t num_prompts, prompt_tokens, output_tokens; /* of good lines; the most that answers can have */
    int64_t longest_prompt, longest_answer;            /* tokens */
    int64_t num_blocks;                                /* full blocks of prompts that could be found again */
    struct distinct blocks;                            /* the different ones, by all tokens up to their end */
    struct prompt sample[MOST_SAMPLED];                /* [num_sampled] */
    size_t num_sampled;
    struct random random;
};

/* ---- without a model ---- */

static enum status open_outline(struct dry_run *d, struct error *err)
{
    struct engine_options quiet = *d->options->engine;
    quiet.log = NULL; /* the engine that measures reads the same files, and warns of them */
    enum status status = loaded_model_outline(&quiet, &d->outline, err);
    if (status == STATUS_OK) status = grammars_create(d->outline, &d->grammars, err);
    if (status != STATUS_OK) return status;
    d->info = loaded_model_info(&quiet, d->outline);
    d->info.grammars = d->info.tokenizer ? d->grammars : NULL;
    return prompt_rules_make(&d->info, &d->options->prompts, &d->rules, err);
}

/* ---- reading ---- */

static enum status check_prompt(const struct dry_run *d, const struct prompt *p, struct error *err)
{
    struct engine_request request;
    const enum status status = prompt_request(p, &request, err);
    return status == STATUS_OK ? request_check(d->options->engine, d->outline, &request, err) : status;
}

/* Counts as many blocks as the prefix cache looks for: one token is left to compute. What is shared ends a block of
 * every KV cache group. */
static void count_blocks(struct dry_run *d, const struct prompt *p)
{
    const size_t size = (size_t)batch_largest_block_size(d->info.limits), count = (p->tokens.count - 1) / size;
    uint64_t hash = p->cache_salt ? XXH3_64bits(p->cache_salt, strlen(p->cache_salt)) : 0;
    for (size_t i = 0; i < count; i++) {
        hash = XXH3_64bits_withSeed(p->tokens.ids + i * size, size * sizeof *p->tokens.ids, hash);
        distinct_add(&d->blocks, hash);
    }
    d->num_blocks += (int64_t)count;
}

/* Every prompt has the same chance to be in the sample (algorithm R). Takes the prompt over. */
static void sample(struct dry_run *d, struct prompt *p)
{
    size_t at = d->num_sampled;
    if (at == MOST_SAMPLED || at == (size_t)d->info.limits->max_num_seqs)
        at = (size_t)random_between(&d->random, 0, d->num_prompts - 1);
    else
        d->num_sampled++;
    if (at >= d->num_sampled) {
        prompt_free(p);
        return;
    }
    prompt_free(&d->sample[at]);
    d->sample[at] = *p;
}

static void count_prompt(struct dry_run *d, struct prompt *p)
{
    const int64_t length = (int64_t)p->tokens.count, room = d->info.limits->max_model_len - length;
    const int64_t answer = p->params.max_tokens >= 0 && p->params.max_tokens < room ? p->params.max_tokens : room;
    const char *name;
    d->num_prompts++;
    d->prompt_tokens += length;
    d->output_tokens += answer * sampling_params_num_sequences(&p->params, &name);
    if (length > d->longest_prompt) d->longest_prompt = length;
    if (answer > d->longest_answer) d->longest_answer = answer;
    count_blocks(d, p);
    sample(d, p);
}

static void note_bad(struct dry_run *d, struct error *why)
{
    char place[320];
    const char *file = inputs_file(&d->inputs);
    const long long line = (long long)inputs_line(&d->inputs);
    if (d->num_bad++ >= MOST_BAD_SHOWN) return;
    if (file)
        snprintf(place, sizeof place, "%.256s:%lld", file, line);
    else
        snprintf(place, sizeof place, "line %lld", line);
    error_prefix(why, STATUS_INVALID, place);
    command_fail(COMMAND, why, EXIT_STATUS_FAILURE);
}

static void take_line(struct dry_run *d, enum line_result kind, const char *line, size_t length)
{
    struct prompt prompt;
    struct error why = {""}, sentence;
    d->num_lines++;
    enum status status = prompt_read(&d->rules, kind, inputs_is_object(&d->inputs), line, length, &prompt, &why);
    id_set_add(&d->ids, prompt.id);
    if (status == STATUS_OK) status = check_prompt(d, &prompt, &why);
    while (prompt_warning(&d->said, &d->rules, &prompt, &sentence))
        log_write(d->options->engine->log, LOG_WARNING, "%s", sentence.text);
    if (status == STATUS_OK) {
        count_prompt(d, &prompt);
    } else {
        note_bad(d, &why);
        prompt_free(&prompt);
    }
}

static enum status read_all(struct dry_run *d, struct error *err)
{
    const char *line;
    size_t length;
    enum line_result kind;
    while ((kind = inputs_next(&d->inputs, true, &line, &length, err)) != LINE_END) {
        if (kind == LINE_FAILED) return STATUS_IO;
        if (kind != LINE_NOT_YET && (kind == LINE_TOO_LONG || !prompt_line_is_blank(line, length)))
            take_line(d, kind, line, length);
    }
    return STATUS_OK;
}

/* ---- the estimate ---- */

static enum status measure(struct dry_run *d, struct speed *speed, struct error *err)
{
    struct engine_pool *p = NULL;
    enum status status = engine_pool_create(d->options->engine, &p, err);
    if (status == STATUS_OK && d->longest_prompt >= engine_pool_info(p)->limits->max_model_len)
        log_write(d->options->engine->log, LOG_WARNING,
                  "the longest prompt has %lld tokens, but the memory of this machine has room for %d in a sequence",
                  (long long)d->longest_prompt, engine_pool_info(p)->limits->max_model_len);
    if (status == STATUS_OK) status = speed_trial(p, d->sample, d->num_sampled, speed, err);
    engine_pool_leave(p);
    return status;
}

/* "12 s", "3 min 5 s", "2 h 10 min", "4 d 3 h" */
static void format_duration(double seconds, char *out, size_t size)
{
    const long long s = (long long)(seconds + 0.5);
    if (seconds < 10)
        snprintf(out, size, "%.1f s", seconds);
    else if (s < 60)
        snprintf(out, size, "%lld s", s);
    else if (s < 3600)
        snprintf(out, size, "%lld min %lld s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, size, "%lld h %lld min", s / 3600, s / 60 % 60);
    else
        snprintf(out, size, "%lld d %lld h", s / 86400, s / 3600 % 24);
}

/* Tokens of prompts whose blocks an earlier prompt has. The count of different blocks is an estimate. */
static int64_t shared_tokens(const struct dry_run *d)
{
    const double again = (double)d->num_blocks - distinct_count(&d->blocks);
    return again < 1 ? 0 : (int64_t)(again + 0.5) * batch_largest_block_size(d->info.limits);
}

static void report_duration(struct report *r, const char *key, const char *label, double seconds, const char *note)
{
    char text[32];
    json_put_real(r->json, key, seconds);
    format_duration(seconds, text, sizeof text);
    table_row(&r->numbers, label, text, note);
}

static void report_time(struct report *r, const struct dry_run *d, const struct speed *speed)
{
    const struct engine_options *o = d->options->engine;
    const int64_t computed = d->prompt_tokens - (o->enable_prefix_caching ? shared_tokens(d) : 0);
    const double prompts = (double)computed / speed->prompt_tokens;
    char note[96];
    snprintf(note, sizeof note, "tokens/s, measured with %zu of the prompts at once", speed->num_prompts);
    report_number(r, "prompt_tokens_per_s", "prompts", speed->prompt_tokens, note);
    report_number(r, "output_tokens_per_s", "answers", speed->output_tokens, "tokens/s, all of them together");
    report_duration(r, "prompt_seconds", "time for the prompts", prompts, "");
    report_duration(r, "seconds_for_100_tokens", "time for answers",
                    (double)d->num_prompts * 100 / speed->output_tokens, "for each 100 tokens that every answer has");
    report_duration(r, "most_seconds", "time at most", prompts + (double)d->output_tokens / speed->output_tokens,
                    "if every answer has all its tokens");
}

static void report_counts(struct report *r, const struct dry_run *d)
{
    char note[96];
    const int64_t shared = shared_tokens(d);
    snprintf(note, sizeof note, "at most %lld in one", (long long)d->longest_prompt);
    report_integer(r, "num_prompts", "prompts", d->num_prompts);
    report_integer(r, "num_bad", "bad lines", d->num_bad);
    if (d->ids.num_repeated > 0)
        report_amount(r, "num_repeated_ids", "repeated ids", d->ids.num_repeated, id_set_sentence(&d->ids).text);
    report_amount(r, "prompt_tokens", "prompt tokens", d->prompt_tokens, note);
    snprintf(note, sizeof note, "about %.3g %%, if the prefix cache keeps them",
             d->prompt_tokens ? 100.0 * (double)shared / (double)d->prompt_tokens : 0.0);
    report_amount(r, "shared_tokens", "in earlier prompts, too", shared, note);
    snprintf(note, sizeof note, "at most; %lld in one answer", (long long)d->longest_answer);
    report_amount(r, "output_tokens", "answer tokens", d->output_tokens, note);
}

/* ---- the run ---- */

static int print(const struct dry_run *d, const struct speed *speed, int exit_status)
{
    struct report report;
    report_init(&report);
    report_counts(&report, d);
    if (speed->prompt_tokens > 0 && speed->output_tokens > 0) report_time(&report, d, speed);
    const bool ok = report_print(&report, false, stdout);
    report_free(&report);
    return ok ? exit_status : EXIT_STATUS_FAILURE;
}

static int count_and_print(struct dry_run *d)
{
    struct error err = {""};
    struct speed speed = {0};
    int exit_status = EXIT_STATUS_OK;
    if (read_all(d, &err) != STATUS_OK) exit_status = command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    if (d->num_bad > MOST_BAD_SHOWN)
        notice_printf(stderr, "quire generate: and %lld more bad line%s\n", (long long)(d->num_bad - MOST_BAD_SHOWN),
                      plural(d->num_bad - MOST_BAD_SHOWN));
    if (d->num_bad > 0) exit_status = EXIT_STATUS_FAILURE;
    if (d->num_prompts > 0 && measure(d, &speed, &err) != STATUS_OK) {
        error_prefix(&err, STATUS_INVALID, "no time is estimated");
        command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    }
    return print(d, &speed, exit_status);
}

int dry_run(const struct dry_run_options *options)
{
    struct error err = {""};
    struct dry_run *d = calloc(1, sizeof *d);
    int exit_status = EXIT_STATUS_FAILURE;
    enum status status = d ? STATUS_OK : error_set(&err, STATUS_OUT_OF_MEMORY, "no memory for a dry run");
    if (d) {
        d->options = options;
        status = inputs_open(&d->inputs, options->input, &err);
        if (status == STATUS_OK) status = open_outline(d, &err);
    }
    if (status == STATUS_OK)
        exit_status = count_and_print(d);
    else
        command_fail(COMMAND, &err, exit_status);
    if (!d) return exit_status;
    for (size_t i = 0; i < d->num_sampled; i++) prompt_free(&d->sample[i]);
    prompt_rules_free(&d->rules);
    id_set_free(&d->ids);
    inputs_close(&d->inputs);
    grammars_free(d->grammars);
    loaded_model_close(d->outline);
    free(d);
    return exit_status;
}
