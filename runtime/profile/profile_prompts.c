#include "runtime/profile/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/options/command.h"
#include "runtime/interrupt.h"
#include "runtime/progress.h"
#include "runtime/prompt_line.h"

/* ---- reading the prompts ---- */

static void profiled_free(struct profiled *r)
{
    prompt_free(&r->prompt);
    free(r->output_tokens);
    free(r->last_token);
}

static enum status add_line(struct profile_run *run, const struct prompt_rules *rules, enum line_result kind,
                            const char *line, size_t length, bool is_object, struct error *err)
{
    if (!array_reserve(&run->requests, &run->capacity, run->count + 1, sizeof *run->requests))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %zu prompt%s", run->count + 1,
                         plural((int64_t)run->count + 1));
    struct profiled *r = &run->requests[run->count];
    *r = (struct profiled){0};
    enum status status = prompt_read(rules, kind, is_object, line, length, &r->prompt, err);
    run->count++; /* also if it failed, so that it is freed with the others */
    if (status != STATUS_OK) return status;
    r->output_tokens = calloc((size_t)r->prompt.params.n, sizeof *r->output_tokens);
    r->last_token = calloc((size_t)r->prompt.params.n, sizeof *r->last_token);
    if (r->output_tokens && r->last_token) return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %zu prompt%s", run->count,
                     plural((int64_t)run->count));
}

/* Says "FILE:LINE: sentence", and counts the line. */
static void bad_line(struct profile_run *run, const char *file, int64_t line, enum status status, struct error *err)
{
    char place[320];
    snprintf(place, sizeof place, "%.256s:%lld", file, (long long)line);
    error_prefix(err, status, place);
    command_fail("profile", err, EXIT_STATUS_FAILURE);
    if (run->num_bad_lines++ == 0 && run->num_errors == 0) run->first_error = *err;
}

/* Takes the last prompt away. */
static void drop_last(struct profile_run *run)
{
    profiled_free(&run->requests[--run->count]);
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
        enum status status = add_line(run, rules, kind, line, length, inputs_is_object(input), err);
        if (status == STATUS_OUT_OF_MEMORY) return status;
        if (status == STATUS_OK) {
            run->requests[run->count - 1].file = input->description;
            run->requests[run->count - 1].line = inputs_line(input);
            continue;
        }
        bad_line(run, input->description, inputs_line(input), status, err);
        drop_last(run);
        run->num_unread++;
    }
    if (run->count > 0 || run->num_bad_lines > 0) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s: there is no prompt in it", input->description);
}

static enum status read_prompts(struct profile_run *run, struct engine *e, const struct profile_options *o,
                                struct inputs *input, struct error *err)
{
    struct prompt_rules rules;
    const struct prompt_options options = {.format = o->format,
                                           .sampling = &o->sampling.params,
                                           .sampling_given = o->sampling.given,
                                           .as_chat = o->as_chat};
    enum status status = prompt_rules_make(engine_info(e), &options, &rules, err);
    if (status == STATUS_OK) status = add_lines(run, &rules, input, err);
    prompt_rules_free(&rules);
    return status;
}

void profile_run_free(struct profile_run *run)
{
    for (size_t i = 0; i < run->count; i++) profiled_free(&run->requests[i]);
    free(run->requests);
    free(run->lengths);
    samples_free(&run->gaps);
    series_free(&run->series);
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
    if (piece->finish_reason == FINISH_ERROR && r->run->num_errors++ + r->run->num_bad_lines == 0)
        r->run->first_error = *piece->error;
    if (piece->request_finished) ++*(piece->finish_reason == FINISH_ABORT ? &r->run->num_aborted : &r->run->num_ended);
}

static void add_request(struct profile_run *run, struct profiled *r, struct engine *e)
{
    struct error err;
    struct engine_request request;
    r->run = run;
    enum status status = prompt_request(&r->prompt, &request, &err);
    if (status == STATUS_OK) {
        request.deliver = deliver;
        request.user = r;
        status = engine_add(e, &request, NULL, &err);
    }
    if (status == STATUS_OK)
        run->prompt_tokens += request.prompt_len;
    else
        bad_line(run, r->file, r->line, status, &err);
}

static void note_step(struct profile_run *run, struct engine *e, const struct scheduler_stats *stats, int64_t tokens)
{
    const int64_t unshared = engine_blocks_unshared(e);
    if (unshared > run->peak_unshared) run->peak_unshared = unshared;
    if (tokens > run->most_step_tokens) run->most_step_tokens = tokens;
    if (stats->num_running > run->most_running) run->most_running = stats->num_running;
    if (stats->num_waiting > run->most_waiting) run->most_waiting = stats->num_waiting;
    if (stats->num_swapped > run->most_swapped) run->most_swapped = stats->num_swapped;
    if (stats->state_slots_in_use > run->peak_slots) run->peak_slots = stats->state_slots_in_use;
    if (stats->blocks_in_use <= run->peak_blocks) return;
    run->peak_blocks = stats->blocks_in_use;
    run->peak_blocks_filled = engine_blocks_filled(e);
}

static void show_progress(struct progress *progress, const struct profile_run *run)
{
    const struct scheduler_stats *s = &run->stats;
    if (!progress_due(progress)) return;
    const struct progress_facts facts = {
        .done = run->num_ended,
        .total = run->count,
        .prompt_tokens = s->tokens - run->output_tokens - (s->drafts - s->drafts_accepted),
        .prompt_tokens_known = run->prompt_tokens - s->prefix_hits,
        .output_tokens = run->output_tokens,
        .running = s->num_running,
        .waiting = s->num_waiting,
        .cache_used = s->blocks_total ? (double)s->blocks_in_use / (double)s->blocks_total : 0,
        .hit_rate = s->prefix_queries ? (double)s->prefix_hits / (double)s->prefix_queries : 0};
    progress_update(progress, &facts);
}

/* Steps until all prompts are answered; with `rows` each row of the series is printed. */
static enum status run_steps(struct profile_run *run, struct engine *e, struct profile_options *o, bool rows,
                             struct error *err)
{
    struct progress progress;
    struct scheduler_stats *stats = &run->stats;
    const double start = clock_seconds();
    progress_start(&progress, !rows || !isatty(STDOUT_FILENO) ? "profile" : NULL); /* rows show the progress, too */
    o->log.line = &progress.drawn;
    int64_t seen_tokens = 0, kept_steps = 0;
    enum status status = STATUS_OK;
    engine_stats(e, stats);
    while (status == STATUS_OK && engine_has_work(e) && !interrupt_pending()) {
        bool worked;
        show_progress(&progress, run); /* before a step, which may take seconds */
        status = engine_step(e, &worked, err);
        engine_stats(e, stats);
        if (status != STATUS_OK || stats->steps == kept_steps) continue;
        note_step(run, e, stats, stats->tokens - seen_tokens);
        seen_tokens = stats->tokens;
        if (stats->steps % o->every != 0 && engine_has_work(e)) continue;
        status = series_add(&run->series, stats, clock_seconds() - start, err);
        if (status == STATUS_OK && rows) series_print_row(&run->series.rows[run->series.count - 1], stdout);
        kept_steps = stats->steps;
    }
    progress_clear(&progress);
    o->log.line = NULL;
    if (status != STATUS_OK || (!engine_has_work(e) && run->num_aborted == 0)) return status;
    return error_set(err, STATUS_CANCELLED, "interrupted; %lld of %zu prompts were answered", (long long)run->num_ended,
                     run->count);
}

/* ---- the end ---- */

/* K and V of an answer's last token are never computed. */
static enum status gather_lengths(struct profile_run *run, struct error *err)
{
    size_t capacity = 0;
    for (size_t i = 0; i < run->count; i++) {
        const struct profiled *r = &run->requests[i];
        for (int32_t a = 0; a < r->prompt.params.n; a++) {
            if (r->output_tokens[a] == 0) continue;
            if (!array_reserve(&run->lengths, &capacity, run->num_lengths + 1, sizeof *run->lengths))
                return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the report");
            run->lengths[run->num_lengths++] = (int32_t)r->prompt.tokens.count + r->output_tokens[a] - 1;
        }
    }
    return STATUS_OK;
}

enum status profile_run_prompts(struct profile_run *run, struct engine *e, struct profile_options *options,
                                struct inputs *input, bool rows, struct error *err)
{
    run->block_size = engine_info(e)->limits->block_size;
    run->series.num_blocks = engine_info(e)->memory->num_blocks;
    enum status status = read_prompts(run, e, options, input, err);
    if (status != STATUS_OK) return status;
    for (size_t i = 0; i < run->count; i++) add_request(run, &run->requests[i], e);
    interrupt_catch_to_end();
    if (rows) series_print_head(stdout);
    status = run_steps(run, e, options, rows, err);
    return status == STATUS_OK ? gather_lengths(run, err) : status;
}

enum status profile_run_failed(const struct profile_run *run, struct error *err)
{
    const int64_t failed = run->num_errors + run->num_bad_lines, all = (int64_t)run->count + run->num_unread;
    char how_many[96];
    if (failed == 0) return STATUS_OK;
    snprintf(how_many, sizeof how_many, "%lld of %lld prompt%s failed; the first", (long long)failed, (long long)all,
             plural(all));
    *err = run->first_error;
    return error_prefix(err, STATUS_INVALID, how_many);
}
