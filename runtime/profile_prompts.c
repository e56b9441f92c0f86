#include "runtime/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/commands.h"
#include "runtime/progress.h"
#include "runtime/prompts.h"
#include "runtime/table.h"

/* One prompt, and the progress of its answers. */
struct profiled {
    struct prompt prompt;
    int64_t line;           /* of the input, from 1 */
    int32_t *output_tokens; /* [n] of each answer */
    bool *ended;            /* [n] */
    int32_t num_ended;
    struct profile_run *run;
};

struct profile_run {
    struct profiled *requests; /* [count] */
    size_t count, capacity;
    const char *input; /* its name in sentences */
    size_t oldest;     /* requests before this one have ended */
    int32_t block_size;
    int64_t output_tokens, num_ended; /* tokens, requests */
    int32_t num_errors;
    struct error first_error;
    /* The most blocks in use after a step, and the most that the same sequences would take without sharing. */
    int32_t peak_blocks;
    int64_t peak_unshared;
};

/* ---- reading the prompts ---- */

static enum status add_line(struct profile_run *run, const struct prompt_rules *rules, enum line_result kind,
                            const char *line, size_t length, struct error *err)
{
    if (!array_reserve(&run->requests, &run->capacity, run->count + 1, sizeof *run->requests))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %zu prompts", run->count + 1);
    struct profiled *r = &run->requests[run->count];
    *r = (struct profiled){0};
    enum status status = prompt_read(rules, kind, line, length, &r->prompt, err);
    run->count++; /* also if it failed, so that it is freed with the others */
    if (status != STATUS_OK) return status;
    r->output_tokens = calloc((size_t)r->prompt.params.n, sizeof *r->output_tokens);
    r->ended = calloc((size_t)r->prompt.params.n, sizeof *r->ended);
    if (r->output_tokens && r->ended) return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %zu prompts", run->count);
}

/* "FILE:LINE: sentence". */
static enum status fail_at(const char *name, int64_t line, enum status status, struct error *err)
{
    char place[320];
    snprintf(place, sizeof place, "%.256s:%lld", name, (long long)line);
    return error_prefix(err, status, place);
}

static enum status add_lines(struct profile_run *run, const struct prompt_rules *rules, struct line_reader *reader,
                             struct error *err)
{
    const char *line;
    size_t length;
    enum line_result kind;
    while ((kind = line_reader_next(reader, true, &line, &length, err)) != LINE_END) {
        if (kind == LINE_FAILED) return error_prefix(err, STATUS_IO, run->input);
        if (kind == LINE_NOT_YET || (kind == LINE_READY && prompt_line_is_blank(line, length))) continue;
        enum status status = add_line(run, rules, kind, line, length, err);
        if (status != STATUS_OK) return fail_at(run->input, reader->line, status, err);
        run->requests[run->count - 1].line = reader->line;
    }
    if (run->count == 0) return error_set(err, STATUS_INVALID, "%s: there is no prompt in it", run->input);
    return STATUS_OK;
}

static enum status read_prompts(struct profile_run *run, struct engine *e, const struct profile_options *o,
                                struct line_reader *input, struct error *err)
{
    struct prompt_rules rules;
    run->input = strcmp(o->input, "-") == 0 ? "standard input" : o->input;
    enum status status = prompt_rules_make(e, o->format, &o->sampling, NULL, &rules, err);
    if (status == STATUS_OK) status = add_lines(run, &rules, input, err);
    prompt_rules_free(&rules);
    return status;
}

static void profile_run_free(struct profile_run *run)
{
    for (size_t i = 0; i < run->count; i++) {
        prompt_free(&run->requests[i].prompt);
        free(run->requests[i].output_tokens);
        free(run->requests[i].ended);
    }
    free(run->requests);
}

/* ---- running them ---- */

static void deliver(void *user, const struct answer_piece *piece)
{
    struct profiled *r = user;
    r->output_tokens[piece->index] += piece->num_tokens;
    r->run->output_tokens += piece->num_tokens;
    if (piece->finish_reason == FINISH_NONE) return;
    if (piece->finish_reason == FINISH_ERROR && r->run->num_errors++ == 0) r->run->first_error = *piece->error;
    if (r->ended[piece->index]) return;
    r->ended[piece->index] = true;
    r->num_ended++;
    if (piece->request_finished) r->run->num_ended++;
}

static enum status add_all(struct profile_run *run, struct engine *e, struct error *err)
{
    for (size_t i = 0; i < run->count; i++) {
        struct profiled *r = &run->requests[i];
        r->run = run;
        const struct engine_request request = {.prompt = r->prompt.tokens.ids,
                                               .prompt_len = (int32_t)r->prompt.tokens.count,
                                               .params = &r->prompt.params,
                                               .deliver = deliver,
                                               .user = r};
        enum status status = engine_add(e, &request, NULL, err);
        if (status != STATUS_OK) return fail_at(run->input, r->line, status, err);
    }
    return STATUS_OK;
}

/* Blocks that a request would take without sharing. The newest token of an answer is not in the cache yet. While the
 * prompt is being computed, its blocks count once for all answers. */
static int64_t unshared_blocks(const struct profiled *r, int32_t block_size)
{
    const int32_t prompt = (int32_t)r->prompt.tokens.count;
    int64_t blocks = 0;
    for (int32_t i = 0; i < r->prompt.params.n; i++) {
        if (r->ended[i] || (i > 0 && r->output_tokens[i] == 0)) continue;
        const int32_t tokens = prompt + (r->output_tokens[i] > 0 ? r->output_tokens[i] - 1 : 0);
        blocks += (tokens + block_size - 1) / block_size;
    }
    return blocks;
}

/* Requests run in order of arrival, so the first num_running that have not ended hold the blocks. (A swapped request
 * that came back before an older, recomputed one is an exception, which is neglected.) */
static void note_peak(struct profile_run *run, const struct scheduler_stats *stats)
{
    int64_t unshared = 0;
    int32_t left = stats->num_running;
    while (run->oldest < run->count &&
           run->requests[run->oldest].num_ended == run->requests[run->oldest].prompt.params.n)
        run->oldest++;
    for (size_t i = run->oldest; i < run->count && left > 0; i++) {
        const struct profiled *r = &run->requests[i];
        if (r->num_ended == r->prompt.params.n) continue;
        unshared += unshared_blocks(r, run->block_size);
        left--;
    }
    if (unshared > run->peak_unshared) run->peak_unshared = unshared;
    if (stats->blocks_in_use > run->peak_blocks) run->peak_blocks = stats->blocks_in_use;
}

static double hit_rate(const struct scheduler_stats *s)
{
    return s->prefix_queries ? (double)s->prefix_hits / (double)s->prefix_queries : 0;
}

/* ---- saying what happened ---- */

static void print_head(void)
{
    printf("%8s %8s %8s %8s %8s %8s %8s %8s\n", "step", "running", "waiting", "tokens", "in use", "cached", "free",
           "hits");
}

static void print_step(const struct scheduler_stats *s, int64_t tokens)
{
    printf("%8lld %8d %8d %8lld %8d %8d %8d %7.1f%%\n", (long long)s->steps, s->num_running,
           s->num_waiting + s->num_swapped, (long long)tokens, s->blocks_in_use, s->blocks_cached, s->blocks_free,
           100 * hit_rate(s));
}

static enum status step_json(json_t *steps, const struct scheduler_stats *s, int64_t tokens, struct error *err)
{
    json_t *step =
        json_pack("{s:I, s:i, s:i, s:i, s:I, s:i, s:i, s:i, s:f}", "step", (json_int_t)s->steps, "num_running",
                  s->num_running, "num_waiting", s->num_waiting, "num_swapped", s->num_swapped, "num_tokens",
                  (json_int_t)tokens, "blocks_in_use", s->blocks_in_use, "blocks_cached", s->blocks_cached,
                  "blocks_free", s->blocks_free, "prefix_cache_hit_rate", hit_rate(s));
    if (step && json_array_append_new(steps, step) == 0) return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the report of a step");
}

/* Steps until all prompts are answered. A step is appended to `steps`, or printed if that is NULL. */
static enum status run_steps(struct profile_run *run, struct engine *e, int32_t every, json_t *steps,
                             struct scheduler_stats *stats, struct error *err)
{
    struct progress progress;
    progress_start(&progress, steps || !isatty(STDOUT_FILENO)); /* rows on the terminal show the progress already */
    int64_t shown_steps = 0, shown_tokens = 0;
    enum status status = STATUS_OK;
    engine_stats(e, stats);
    while (status == STATUS_OK && engine_has_work(e)) {
        bool worked;
        status = engine_step(e, &worked, err);
        engine_stats(e, stats);
        if (status != STATUS_OK || stats->steps == shown_steps) continue;
        note_peak(run, stats);
        if (progress_due(&progress))
            progress_update(&progress, run->num_ended, run->output_tokens, (double)run->num_ended / (double)run->count);
        if (stats->steps % every != 0 && engine_has_work(e)) continue;
        if (steps)
            status = step_json(steps, stats, stats->tokens - shown_tokens, err);
        else
            print_step(stats, stats->tokens - shown_tokens);
        shown_steps = stats->steps;
        shown_tokens = stats->tokens;
    }
    progress_clear(&progress);
    return status;
}

static void print_summary(const struct profile_run *run, const struct scheduler_stats *s)
{
    struct table t = {.columns = "lrl"};
    const struct {
        const char *label;
        int64_t value;
        const char *note;
    } rows[] = {
        {"prompts", (int64_t)run->count, ""},
        {"steps", s->steps, ""},
        {"tokens computed", s->tokens, ""},
        {"tokens of answers", run->output_tokens, ""},
        {"most blocks in use", run->peak_blocks, ""},
        {"unshared", run->peak_unshared, "the same sequences, each with blocks of its own"},
        {"tokens found in cache", s->prefix_hits, ""},
        {"evictions", s->evictions, "cached blocks taken for something else"},
        {"preemptions", s->preemptions_recompute + s->preemptions_swap, ""},
        {"swapped out", s->blocks_swapped_out, "blocks copied to the host"},
        {"swapped in", s->blocks_swapped_in, "and back"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        table_cell(&t, "%s", rows[i].label);
        table_cell(&t, "%lld", (long long)rows[i].value);
        table_cell(&t, "%s", rows[i].note);
    }
    table_cell(&t, "hit rate");
    table_cell(&t, "%.1f%%", 100 * hit_rate(s));
    table_cell(&t, "of the prompts' tokens");
    putchar('\n');
    table_print(&t, stdout);
    table_free(&t);
}

static json_t *summary_json(const struct profile_run *run, const struct scheduler_stats *s)
{
    return json_pack(
        "{s:I, s:i, s:I, s:I, s:I, s:i, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I}", "num_prompts", (json_int_t)run->count,
        "num_failed", run->num_errors, "num_steps", (json_int_t)s->steps, "num_tokens", (json_int_t)s->tokens,
        "num_output_tokens", (json_int_t)run->output_tokens, "peak_blocks", run->peak_blocks, "peak_blocks_unshared",
        (json_int_t)run->peak_unshared, "prefix_cache_queries", (json_int_t)s->prefix_queries, "prefix_cache_hits",
        (json_int_t)s->prefix_hits, "prefix_cache_hit_rate", hit_rate(s), "num_evictions", (json_int_t)s->evictions,
        "num_preemptions", (json_int_t)(s->preemptions_recompute + s->preemptions_swap), "num_swapped_out_blocks",
        (json_int_t)s->blocks_swapped_out, "num_swapped_in_blocks", (json_int_t)s->blocks_swapped_in);
}

static enum status run_and_report(struct profile_run *run, struct engine *e, const struct profile_options *o,
                                  json_t *json, struct error *err)
{
    struct scheduler_stats stats;
    json_t *steps = NULL;
    if (json) {
        steps = json_array();
        if (!steps || json_object_set_new(json, "steps", steps) != 0)
            return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the report");
    } else {
        print_head();
    }
    enum status status = add_all(run, e, err);
    if (status == STATUS_OK) status = run_steps(run, e, o->every, steps, &stats, err);
    if (status != STATUS_OK) return status;
    if (!json)
        print_summary(run, &stats);
    else if (json_object_set_new(json, "summary", summary_json(run, &stats)) != 0)
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the report");
    if (ferror(stdout)) return error_set(err, STATUS_IO, "cannot write the report to standard output");
    if (run->num_errors == 0) return STATUS_OK;
    char how_many[96];
    snprintf(how_many, sizeof how_many, "%d of %zu prompt%s failed; the first", run->num_errors, run->count,
             plural((int64_t)run->count));
    *err = run->first_error;
    return error_prefix(err, STATUS_INVALID, how_many);
}

enum status profile_prompts(struct engine *e, const struct profile_options *options, struct line_reader *input,
                            json_t *json, struct error *err)
{
    struct profile_run run = {.block_size = engine_limits(e)->block_size};
    enum status status = read_prompts(&run, e, options, input, err);
    if (status == STATUS_OK) status = run_and_report(&run, e, options, json, err);
    profile_run_free(&run);
    return status;
}
