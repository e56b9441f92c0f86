#include "runtime/profile/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "runtime/commands.h"
#include "runtime/progress.h"
#include "runtime/prompts.h"
#include "runtime/report.h"

/* One prompt, and the progress of its answers. */
struct profiled {
    struct prompt prompt;
    const char *file;       /* its name in sentences */
    int64_t line;           /* of that file, from 1 */
    int32_t *output_tokens; /* [n] of each answer */
    double *last_token;     /* [n] when each got its last token: clock_seconds() */
    struct profile_run *run;
};

struct profile_run {
    struct profiled *requests; /* [count] */
    size_t count, capacity;
    int32_t block_size;
    int64_t output_tokens, num_ended; /* tokens, requests */
    int32_t num_errors;
    struct error first_error;
    struct samples gaps; /* seconds between two tokens of an answer */
    /* After a step: the most requests of each state, the most blocks in use and what of their slots was filled then,
     * and the most blocks that the same sequences would take without sharing. */
    int32_t most_running, most_waiting, most_swapped;
    int32_t peak_blocks;
    int64_t peak_slots_filled, peak_unshared;
    int64_t most_step_tokens;
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
    r->last_token = calloc((size_t)r->prompt.params.n, sizeof *r->last_token);
    if (r->output_tokens && r->last_token) return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %zu prompts", run->count);
}

/* "FILE:LINE: sentence". */
static enum status fail_at(const char *name, int64_t line, enum status status, struct error *err)
{
    char place[320];
    snprintf(place, sizeof place, "%.256s:%lld", name, (long long)line);
    return error_prefix(err, status, place);
}

static enum status add_lines(struct profile_run *run, const struct prompt_rules *rules, struct inputs *input,
                             struct error *err)
{
    const char *line;
    size_t length;
    enum line_result kind;
    while ((kind = inputs_next(input, true, &line, &length, err)) != LINE_END) {
        if (kind == LINE_FAILED) return STATUS_IO;
        if (kind == LINE_NOT_YET || (kind == LINE_READY && prompt_line_is_blank(line, length))) continue;
        enum status status = add_line(run, rules, kind, line, length, err);
        if (status != STATUS_OK) return fail_at(input->description, inputs_line(input), status, err);
        run->requests[run->count - 1].file = input->description;
        run->requests[run->count - 1].line = inputs_line(input);
    }
    if (run->count == 0) return error_set(err, STATUS_INVALID, "%s: there is no prompt in it", input->description);
    return STATUS_OK;
}

static enum status read_prompts(struct profile_run *run, struct engine *e, const struct profile_options *o,
                                struct inputs *input, struct error *err)
{
    struct prompt_rules rules;
    const struct prompt_model model = prompt_model_of(e);
    const struct prompt_options options = {.format = o->format, .sampling = &o->sampling};
    enum status status = prompt_rules_make(&model, &options, &rules, err);
    if (status == STATUS_OK) status = add_lines(run, &rules, input, err);
    prompt_rules_free(&rules);
    return status;
}

static void profile_run_free(struct profile_run *run)
{
    for (size_t i = 0; i < run->count; i++) {
        prompt_free(&run->requests[i].prompt);
        free(run->requests[i].output_tokens);
        free(run->requests[i].last_token);
    }
    free(run->requests);
    samples_free(&run->gaps);
}

/* ---- running them ---- */

/* Answers that are ranked come all at once. */
static void note_token(struct profiled *r, int32_t answer)
{
    if (sampling_params_ranks(&r->prompt.params)) return;
    const double now = clock_seconds();
    if (r->output_tokens[answer] > 0) samples_add(&r->run->gaps, now - r->last_token[answer]);
    r->last_token[answer] = now;
}

static void deliver(void *user, const struct answer_piece *piece)
{
    struct profiled *r = user;
    if (piece->num_tokens > 0) note_token(r, piece->index);
    r->output_tokens[piece->index] += piece->num_tokens;
    r->run->output_tokens += piece->num_tokens;
    if (piece->finish_reason == FINISH_ERROR && r->run->num_errors++ == 0) r->run->first_error = *piece->error;
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
                                               .cache_salt = r->prompt.cache_salt,
                                               .priority = r->prompt.priority,
                                               .deliver = deliver,
                                               .user = r};
        enum status status = engine_add(e, &request, NULL, err);
        if (status != STATUS_OK) return fail_at(r->file, r->line, status, err);
    }
    return STATUS_OK;
}

static void note_step(struct profile_run *run, struct engine *e, const struct scheduler_stats *stats, int64_t tokens)
{
    const int64_t unshared = engine_blocks_unshared(e);
    if (unshared > run->peak_unshared) run->peak_unshared = unshared;
    if (tokens > run->most_step_tokens) run->most_step_tokens = tokens;
    if (stats->num_running > run->most_running) run->most_running = stats->num_running;
    if (stats->num_waiting > run->most_waiting) run->most_waiting = stats->num_waiting;
    if (stats->num_swapped > run->most_swapped) run->most_swapped = stats->num_swapped;
    if (stats->blocks_in_use <= run->peak_blocks) return;
    run->peak_blocks = stats->blocks_in_use;
    run->peak_slots_filled = engine_slots_filled(e);
}

static double hit_rate(const struct scheduler_stats *s)
{
    return s->prefix_queries ? (double)s->prefix_hits / (double)s->prefix_queries : 0;
}

/* ---- saying what happened ---- */

static void print_head(void)
{
    printf("%8s %8s %8s %8s %8s %8s %8s %8s %8s\n", "step", "running", "waiting", "swapped", "tokens", "in use",
           "cached", "free", "hits");
}

static void print_step(const struct scheduler_stats *s, int64_t tokens)
{
    printf("%8lld %8d %8d %8d %8lld %8d %8d %8d %7.1f%%\n", (long long)s->steps, s->num_running, s->num_waiting,
           s->num_swapped, (long long)tokens, s->blocks_in_use, s->blocks_cached, s->blocks_free, 100 * hit_rate(s));
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

static void show_progress(struct progress *progress, const struct profile_run *run, const struct scheduler_stats *s)
{
    const struct progress_facts facts = {.done = run->num_ended,
                                         .total = run->count,
                                         .prompt_tokens = s->tokens - run->output_tokens,
                                         .output_tokens = run->output_tokens,
                                         .running = s->num_running,
                                         .waiting = s->num_waiting,
                                         .cache_used =
                                             s->blocks_total ? (double)s->blocks_in_use / (double)s->blocks_total : 0,
                                         .hit_rate = hit_rate(s)};
    progress_update(progress, &facts);
}

/* Steps until all prompts are answered. A step is appended to `steps`, or printed if that is NULL. */
static enum status run_steps(struct profile_run *run, struct engine *e, int32_t every, json_t *steps,
                             struct scheduler_stats *stats, struct error *err)
{
    struct progress progress;
    progress_start(&progress, steps || !isatty(STDOUT_FILENO) ? "profile" : NULL); /* rows show the progress, too */
    int64_t seen_tokens = 0, shown_steps = 0, shown_tokens = 0;
    enum status status = STATUS_OK;
    engine_stats(e, stats);
    while (status == STATUS_OK && engine_has_work(e)) {
        bool worked;
        status = engine_step(e, &worked, err);
        engine_stats(e, stats);
        if (status != STATUS_OK || stats->steps == shown_steps) continue;
        note_step(run, e, stats, stats->tokens - seen_tokens);
        seen_tokens = stats->tokens;
        if (progress_due(&progress)) show_progress(&progress, run, stats);
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

static void report_swaps(struct report *r, const struct scheduler_stats *s, int64_t block_bytes)
{
    const double mib = 1024.0 * 1024.0;
    const struct {
        const char *label, *blocks_key, *bytes_key, *where;
        int64_t blocks;
    } ways[] = {
        {"swapped out", "num_swapped_out_blocks", "swapped_out_bytes", "to the host", s->blocks_swapped_out},
        {"swapped in", "num_swapped_in_blocks", "swapped_in_bytes", "and back", s->blocks_swapped_in},
    };
    for (int i = 0; i < 2; i++) {
        char note[64];
        const int64_t bytes = ways[i].blocks * block_bytes;
        snprintf(note, sizeof note, "blocks %s, %.2f MiB", ways[i].where, (double)bytes / mib);
        report_amount(r, ways[i].blocks_key, ways[i].label, ways[i].blocks, note);
        json_put_integer(r->json, ways[i].bytes_key, bytes);
    }
}

static void report_step_tokens(struct report *r, int64_t most, const struct scheduler_stats *s)
{
    char note[64];
    snprintf(note, sizeof note, "at most %lld", (long long)most);
    report_number(r, "mean_tokens_per_step", "tokens a step", s->steps ? (double)s->tokens / (double)s->steps : 0,
                  note);
    report_integer(r, "max_tokens_per_step", NULL, most);
}

static void report_queues(struct report *r, const struct profile_run *run, const struct scheduler_stats *s)
{
    report_amount(r, "max_num_running", "most running", run->most_running, "requests after a step");
    report_integer(r, "max_num_waiting", "most waiting", run->most_waiting);
    report_integer(r, "max_num_swapped", "most swapped", run->most_swapped);
    report_integer(r, "num_preemptions", NULL, s->preemptions_recompute + s->preemptions_swap);
    report_amount(r, "num_preemptions_recompute", "preempted, recomputed", s->preemptions_recompute, "requests");
    report_amount(r, "num_preemptions_swap", "preempted, swapped", s->preemptions_swap, "");
}

static void report_cache(struct report *r, const struct profile_run *run, const struct scheduler_stats *s)
{
    const int64_t slots = (int64_t)run->peak_blocks * run->block_size;
    const double used = slots ? (double)run->peak_slots_filled / (double)slots : 0;
    report_integer(r, "peak_blocks", "most blocks in use", run->peak_blocks);
    json_put_real(r->json, "peak_blocks_filled", used);
    report_number(r, NULL, "filled", 100 * used, "% of their slots");
    report_amount(r, "peak_blocks_unshared", "unshared", run->peak_unshared,
                  "the same sequences, each with blocks of its own");
    report_integer(r, "prefix_cache_queries", NULL, s->prefix_queries);
    report_integer(r, "prefix_cache_hits", "tokens found in cache", s->prefix_hits);
    json_put_real(r->json, "prefix_cache_hit_rate", hit_rate(s));
    report_number(r, NULL, "hit rate", 100 * hit_rate(s), "% of the prompts' tokens");
    report_amount(r, "num_evictions", "evictions", s->evictions, "cached blocks taken for something else");
}

static void make_summary(struct report *r, const struct profile_run *run, struct engine *e,
                         const struct scheduler_stats *s)
{
    report_integer(r, "num_prompts", "prompts", (int64_t)run->count);
    report_integer(r, "num_failed", NULL, run->num_errors);
    report_integer(r, "num_steps", "steps", s->steps);
    report_integer(r, "num_tokens", "tokens computed", s->tokens);
    report_step_tokens(r, run->most_step_tokens, s);
    report_integer(r, "num_output_tokens", "tokens of answers", run->output_tokens);
    report_queues(r, run, s);
    report_swaps(r, s, engine_memory_profile(e)->block_bytes);
    report_cache(r, run, s);
    report_number(r, "max_itl_ms", "longest time between tokens", 1e3 * samples_percentile(&run->gaps, 100), "ms");
    report_milliseconds(r, "itl", "time between tokens", &run->gaps);
}

/* The summary is printed, or becomes a part of `json` if that is not NULL. */
static enum status summarize(const struct profile_run *run, struct engine *e, const struct scheduler_stats *stats,
                             json_t *json, struct error *err)
{
    struct report report;
    report_init(&report);
    make_summary(&report, run, e, stats);
    bool ok = !run->gaps.failed && report.json;
    if (ok && json) {
        ok = json_object_set(json, "summary", report.json) == 0;
    } else if (ok) {
        putchar('\n');
        ok = report_print(&report, false, stdout) || ferror(stdout);
    }
    report_free(&report);
    return ok ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the report");
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
    status = summarize(run, e, &stats, json, err);
    if (status != STATUS_OK) return status;
    if (ferror(stdout)) return error_set(err, STATUS_IO, "cannot write the report to standard output");
    if (run->num_errors == 0) return STATUS_OK;
    char how_many[96];
    snprintf(how_many, sizeof how_many, "%d of %zu prompt%s failed; the first", run->num_errors, run->count,
             plural((int64_t)run->count));
    *err = run->first_error;
    return error_prefix(err, STATUS_INVALID, how_many);
}

enum status profile_prompts(struct engine *e, const struct profile_options *options, struct inputs *input, json_t *json,
                            struct error *err)
{
    struct profile_run run = {.block_size = engine_limits(e)->block_size};
    enum status status = read_prompts(&run, e, options, input, err);
    if (status == STATUS_OK) status = run_and_report(&run, e, options, json, err);
    profile_run_free(&run);
    return status;
}
