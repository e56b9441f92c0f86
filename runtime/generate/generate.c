/* quire generate: a file of prompts in, a file of answers out.
 *
 * An answer is written as soon as it is finished: a run that ends early loses nothing that was finished, and finished
 * answers take no memory. The same command goes on where it ended (answers.h). Lines are read a little ahead of the
 * answers, never the whole file: a window of them at a time, whose prompts the engine gets sorted, so that equal
 * beginnings are computed once. The window's size stops reading. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/notice.h"
#include "base/random.h"
#include "runtime/drafts_report.h"
#include "runtime/engine/engine_pool.h"
#include "runtime/options/command.h"
#include "runtime/generate/answers.h"
#include "runtime/generate/dry_run.h"
#include "runtime/generate/generate_options.h"
#include "runtime/generate/id_set.h"
#include "runtime/generate/input_facts.h"
#include "runtime/generate/result_queue.h"
#include "runtime/generate/window.h"
#include "runtime/input.h"
#include "runtime/interrupt.h"
#include "runtime/node.h"
#include "runtime/options/model_folder.h"
#include "runtime/progress.h"
#include "runtime/prompt_line.h"
#include "runtime/prompts/result_line.h"

static const char COMMAND[] = "generate";
static const char SUMMARY[] =
    "Runs a file of prompts through a model, one a line. A line is a text, or JSON with \"prompt\" (a text or token "
    "ids), \"prompt_token_ids\" or \"messages\" (with \"tools\", \"documents\" and \"chat_template_kwargs\"), an "
    "\"id\" or \"custom_id\", a \"cache_salt\" (prompts share cached blocks only with those of the same salt), a "
    "\"priority\" (an integer, smaller is earlier, with --scheduling-policy priority), and sampling fields of their "
    "own, named as the flags are (\"max_tokens\" for --max-tokens, ...). Lines of OpenAI batches (\"custom_id\", "
    "\"url\", \"body\") are answered as in its output files. Blank lines are skipped. Each line gives one JSON "
    "line, which is written when its answer is finished: with its \"index\" among the prompts, from 0, and the "
    "\"id\" that it has. A line that cannot be answered gives an \"error\" and its number, and the exit status is "
    "then 1. Started again with the same input, which may have more lines at its end, model and parameters, quire "
    "generate keeps the answers that are in the output, and computes the others.";

/* Reading lines is shown if it takes longer; else what is shown first is that the engine has them. */
static const double LONG_SECONDS = 0.2;

/* Bounds: prompts that the engine has, in multiples of max_num_seqs; and prompts that are read and sorted together, the
 * larger of both, with their tokens. */
enum { WAITING_PER_SEQUENCE = 2, WINDOW_PER_SEQUENCE = 4, WINDOW_PROMPTS = 1024, WINDOW_TOKENS = 1 << 22 };

struct run {
    const struct generate_options *options;
    struct engine_pool *pool;
    struct prompt_rules prompts;
    struct api_rules rules; /* of answers */
    const char *model_names[2];
    struct inputs inputs;
    struct window window; /* of prompts that the engine has not got yet */
    struct prompt_warnings said;
    struct answers answers;
    struct text line; /* the one that is being written */
    struct result_queue queue;
    struct id_set ids; /* of the lines that this run has taken */
    struct progress progress;
    int64_t begin, end;                                  /* the indices that this run is to answer */
    int64_t next_index;                                  /* of the next prompt in the input */
    int64_t num_taken;                                   /* prompts that became results */
    int64_t num_written, num_unfinished;                 /* by this run */
    int64_t num_failed, num_cut;                         /* of all answers, those of an earlier run included, and of
                                                            lines that are refused and not written yet */
    int64_t prompt_tokens, cached_tokens, output_tokens; /* of what is written */
    bool counted;                                        /* `end` is known, and not only a bound */
    bool input_ended;                                    /* no more lines are read */
    bool input_failed;                                   /* ... because the input cannot be read any further */
    bool at_terminal;                                    /* answers and progress are shown on the same screen */
};

/* ---- progress ---- */

/* How many prompts there are, guessed from the part of the input that was read; 0: it has no known size. */
static int64_t estimate_total(struct run *run)
{
    const uint64_t position = inputs_position(&run->inputs);
    if (run->input_ended || run->inputs.size == 0 || position == 0) return 0;
    return (int64_t)((double)run->next_index * (double)run->inputs.size / (double)position);
}

static void count_tokens(const struct run *run, struct progress_facts *facts)
{
    facts->prompt_tokens = facts->prompt_tokens_known = run->prompt_tokens;
    facts->output_tokens = run->output_tokens;
    for (const struct result *r = run->queue.waiting.first; r; r = r->next) {
        facts->prompt_tokens += r->prompt_tokens ? r->prompt_tokens
                                : r->request     ? engine_pool_num_computed(run->pool, r->request)
                                                 : 0;
        facts->prompt_tokens_known += r->prompt_len;
        facts->output_tokens += result_output_tokens(r);
    }
}

static void show_progress(struct run *run)
{
    if (!progress_due(&run->progress)) return;
    struct scheduler_stats stats;
    engine_pool_stats(run->pool, &stats);
    struct progress_facts facts = {.done = run->answers.set.count + run->num_written,
                                   .done_before = run->answers.set.count,
                                   .running = stats.num_running};
    /* Those that came after the last step wait, too. */
    facts.waiting = (int32_t)(run->queue.num_unanswered - window_count(&run->window)) - stats.num_running;
    count_tokens(run, &facts);
    if (run->counted || run->input_ended)
        facts.total = run->counted ? run->end - run->begin : run->next_index;
    else
        facts.total = estimate_total(run);
    facts.total_estimated = !run->counted && !run->input_ended;
    if (stats.blocks_total > 0) facts.cache_used = (double)stats.blocks_in_use / (double)stats.blocks_total;
    if (stats.prefix_queries > 0) facts.hit_rate = (double)stats.prefix_hits / (double)stats.prefix_queries;
    progress_update(&run->progress, &facts);
}

/* ---- a line in ---- */

static enum status add_request(struct run *run, const struct prompt *prompt, struct result *result, struct error *err)
{
    struct engine_request request;
    const enum status status = prompt_request(prompt, &request, err);
    if (status != STATUS_OK) return status;
    request.deliver = result_deliver;
    request.user = result;
    return engine_pool_add(run->pool, &request, &result->request, err);
}

static void warn(struct run *run, const struct prompt *prompt)
{
    struct error sentence;
    while (prompt_warning(&run->said, &run->prompts, prompt, &sentence)) {
        progress_clear(&run->progress);
        log_write(&run->options->log, LOG_WARNING, "%s", sentence.text);
    }
}

/* The seed of a prompt that has none follows from its index alone: whatever is computed beside it, before it or in
 * another run, its answer is the same. */
static void choose_seed(const struct run *run, int64_t index, struct sampling_params *params)
{
    if (params->has_seed) return;
    params->has_seed = true;
    params->seed = random_mix(run->options->engine.seed * RANDOM_STEP + (uint64_t)index + 1);
}

static void refuse(struct run *run, struct result *result, const struct error *why)
{
    result_fail(result, why);
    run->num_failed++;
}

/* Every line becomes a result in the queue; what is wrong with the line is the result's error. Its prompt waits in the
 * window. */
static enum status take_line(struct run *run, int64_t index, enum line_result kind, const char *line, size_t length,
                             struct error *err)
{
    struct prompt prompt;
    struct error why = {""};
    const struct result_place place = {index, inputs_line(&run->inputs), inputs_file(&run->inputs)};
    const enum status status =
        prompt_read(&run->prompts, kind, inputs_is_object(&run->inputs), line, length, &prompt, &why);
    if (status != STATUS_OK) prompt.params.n = 1;
    warn(run, &prompt);
    choose_seed(run, index, &prompt.params);
    id_set_add(&run->ids, prompt.id);
    struct result *result = result_create(&run->rules, place, &prompt);
    bool ok = result != NULL;
    if (ok) {
        if (status != STATUS_OK) refuse(run, result, &why);
        result_queue_add(&run->queue, result);
        run->num_taken++;
        ok = !result->no_memory;
    }
    if (!ok || status != STATUS_OK || !(ok = window_add(&run->window, &prompt, result))) prompt_free(&prompt);
    return ok ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "no memory for line %lld", (long long)place.line);
}

/* Gives prompts of the window to the engine: as many as keep it busy. */
static void feed_engine(struct run *run)
{
    const int64_t most = WAITING_PER_SEQUENCE * engine_pool_max_num_seqs(run->pool);
    struct window_entry entry;
    while (run->queue.num_unanswered - window_count(&run->window) < most && window_take(&run->window, &entry)) {
        struct error why = {""};
        if (add_request(run, &entry.prompt, entry.result, &why) != STATUS_OK) refuse(run, entry.result, &why);
        prompt_free(&entry.prompt);
    }
}

/* What the engine has is enough for its next steps: lines are then read a few at a time, so that no step waits long. */
static bool engine_is_fed(const struct run *run)
{
    return run->queue.num_unanswered - window_count(&run->window) >= engine_pool_max_num_seqs(run->pool);
}

static bool has_room(const struct run *run, int64_t num_taken)
{
    const int64_t seqs = engine_pool_max_num_seqs(run->pool);
    const int64_t most = WINDOW_PER_SEQUENCE * seqs > WINDOW_PROMPTS ? WINDOW_PER_SEQUENCE * seqs : WINDOW_PROMPTS;
    return window_collected(&run->window) < most && run->window.num_tokens < WINDOW_TOKENS &&
           (num_taken <= seqs / 4 || !engine_is_fed(run));
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

/* More failed than --max-errors allows. */
static bool failed_too_often(const struct run *run)
{
    return run->options->max_errors >= 0 && run->num_failed > run->options->max_errors;
}

static bool ends_early(const struct run *run)
{
    return interrupt_pending() || failed_too_often(run);
}

/* Takes a line that is not blank, unless it is for another shard or has its answer. */
static enum status take_prompt(struct run *run, enum line_result kind, const char *line, size_t length,
                               struct error *err)
{
    const int64_t index = run->next_index++;
    if (run->next_index >= run->end) run->input_ended = true;
    if (index < run->begin || index >= run->end || answers_have(&run->answers, index)) return STATUS_OK;
    return take_line(run, index, kind, line, length, err);
}

/* Reads lines while there is room, and blocks only if there is nothing to compute and nothing to write. */
static enum status read_window(struct run *run, struct error *err)
{
    const int64_t taken_before = run->num_taken;
    while (!run->input_ended && has_room(run, run->num_taken - taken_before) && !ends_early(run)) {
        const char *line;
        size_t length;
        struct error why;
        bool wait = run->queue.num_results == 0 && !engine_pool_has_work(run->pool);
        enum line_result kind = inputs_next(&run->inputs, wait, &line, &length, &why);
        if (kind == LINE_NOT_YET) break;
        if (kind == LINE_END || kind == LINE_FAILED) {
            end_input(run, kind, &why);
        } else if (kind == LINE_TOO_LONG || !prompt_line_is_blank(line, length)) {
            enum status status = take_prompt(run, kind, line, length, err);
            if (status != STATUS_OK) return status;
        }
        if (progress_seconds(&run->progress) >= LONG_SECONDS) show_progress(run);
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
    run->num_failed += r->error && !r->refused;
    run->num_cut += result_num_cut(r);
    run->prompt_tokens += r->prompt_tokens;
    run->cached_tokens += r->cached_tokens;
    run->output_tokens += result_output_tokens(r);
}

static enum status write_result(struct run *run, const struct result *r, struct error *err)
{
    if (r->no_memory)
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the answer to line %lld", (long long)r->place.line);
    enum status status = result_format(r, &run->line, err);
    if (status != STATUS_OK) return status;
    if (run->at_terminal) progress_clear(&run->progress);
    status = answers_write(&run->answers, r->place.index, run->line.data, run->line.length, err);
    if (status == STATUS_OK) count_result(run, r);
    return status;
}

static enum status write_ready(struct run *run, struct error *err)
{
    enum status status = STATUS_OK;
    struct result *r;
    while (status == STATUS_OK && (r = result_queue_take(&run->queue)) != NULL) {
        if (r->aborted) /* with its step, by an interrupt */
            run->num_unfinished++;
        else
            status = write_result(run, r, err);
        result_free(r);
    }
    return status;
}

/* ---- the loop ---- */

/* No more lines are read, and those that were read have their answers. */
static bool is_done(const struct run *run)
{
    return (run->input_ended || failed_too_often(run)) && run->queue.num_results == 0;
}

static enum status answer_all(struct run *run, struct error *err)
{
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !interrupt_pending()) {
        status = read_ahead(run, err);
        bool worked = true;
        show_progress(run); /* before a step, which may take seconds */
        if (status == STATUS_OK && engine_pool_has_work(run->pool)) status = engine_pool_step(run->pool, &worked, err);
        enum status written = write_ready(run, status == STATUS_OK ? err : NULL);
        if (status == STATUS_OK) status = written;
        if (status == STATUS_OK) status = answers_watch(&run->answers, err);
        if (status == STATUS_OK && is_done(run)) break;
    }
    return status;
}

/* After an interrupt or a failure: ends what is unfinished, writes what is complete and counts the rest. */
static enum status wind_up(struct run *run, bool engine_works, struct error *err)
{
    for (const struct result *r = run->queue.waiting.first; r && engine_works; r = r->next) {
        if (!r->done) engine_pool_abort(run->pool, r->request);
    }
    bool worked = true;
    while (engine_works && engine_pool_has_work(run->pool)) {
        if (engine_pool_step(run->pool, &worked, NULL) != STATUS_OK) break;
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

/* ---- what is said at the end ---- */

static void print_summary(const struct run *run)
{
    const double seconds = progress_seconds(&run->progress);
    char cut[96] = "", engines[32] = "";
    if (engine_pool_size(run->pool) > 1)
        snprintf(engines, sizeof engines, " on %d engines", engine_pool_size(run->pool));
    if (run->num_cut > 0)
        snprintf(cut, sizeof cut, "; %lld answer%s cut by length (--max-tokens)", (long long)run->num_cut,
                 run->num_cut == 1 ? " was" : "s were");
    struct scheduler_stats stats;
    engine_pool_stats(run->pool, &stats);
    const struct drafts_words drafts = drafts_words(engine_pool_info(run->pool)->drafter, &stats);
    const struct id_sentence ids = id_set_sentence(&run->ids);
    notice_printf(
        stderr,
        "quire generate: %lld prompt%s, %lld token%s in %.2f s%s (%.1f tokens/s); %lld prompt token%s, %lld of "
        "them from the cache%s%s%s%s%s\n",
        (long long)run->num_written, plural(run->num_written), (long long)run->output_tokens,
        plural(run->output_tokens), seconds, engines, seconds > 0 ? (double)run->output_tokens / seconds : 0,
        (long long)run->prompt_tokens, plural(run->prompt_tokens), (long long)run->cached_tokens,
        *drafts.text ? "; " : "", drafts.text, cut, *ids.text ? "; " : "", ids.text);
}

static void print_failed(const struct run *run)
{
    const int64_t all = run->answers.set.count + run->num_written;
    if (run->num_failed == 0) return;
    notice_printf(stderr, "quire generate: %lld of %lld prompt%s failed%s: see \"error\" in the output\n",
                  (long long)run->num_failed, (long long)all, plural(all),
                  failed_too_often(run) ? ", which ended the run (--max-errors)" : "");
}

/* Says what went wrong, but not that the reader of a pipe closed it: whoever did so knows. */
static int fail(const struct run *run, const struct error *err)
{
    if (run->answers.output.reader_ended) return EXIT_STATUS_FAILURE;
    return command_fail(COMMAND, err, EXIT_STATUS_FAILURE);
}

static void print_interrupted(const struct run *run)
{
    const bool one = run->num_unfinished == 1;
    notice_printf(stderr, "quire generate: interrupted; %lld prompt%s that %s read %s no answer%s%s\n",
                  (long long)run->num_unfinished, plural(run->num_unfinished), one ? "was" : "were",
                  one ? "has" : "have", run->input_ended ? "" : ", and the input was not read to its end",
                  run->answers.resumable ? "; the same command goes on from here" : "");
}

static void print_spooled(const struct run *run, int64_t count)
{
    if (count == 0) return;
    notice_printf(stderr, "quire generate: %lld finished answer%s in %s.spool for those before %s\n", (long long)count,
                  count == 1 ? " waits" : "s wait", run->answers.output.name, count == 1 ? "it" : "them");
}

/* ---- start and end ---- */

/* Everything that was finished is on the disk when this returns. */
static int end_answers(struct run *run, int exit_status)
{
    struct error err = {""};
    int64_t num_spooled = 0;
    enum status status = answers_end(&run->answers, &num_spooled, &err);
    if (status == STATUS_OK) status = output_close(&run->answers.output, &err);
    if (status != STATUS_OK && exit_status == EXIT_STATUS_OK) exit_status = fail(run, &err);
    print_spooled(run, num_spooled);
    return exit_status;
}

static int run_to_end(struct run *run)
{
    struct error err = {""};
    const bool quiet = run->options->quiet;
    progress_start(&run->progress, quiet ? NULL : COMMAND);
    run->at_terminal = run->answers.output.terminal;
    interrupt_catch_to_end();
    enum status status = answer_all(run, &err);
    const bool ended_early = status == STATUS_OK && ends_early(run);
    if (status == STATUS_OK && !ended_early && !run->input_failed)
        status = answers_begin(&run->answers, &err); /* the input may have no prompts */
    progress_clear(&run->progress);
    int exit_status = status == STATUS_OK ? EXIT_STATUS_OK : fail(run, &err);
    if (!run->answers.failed && (status != STATUS_OK || ended_early)) {
        status = wind_up(run, status == STATUS_OK, &err);
        if (status != STATUS_OK) exit_status = fail(run, &err);
    }
    if (ended_early && interrupt_pending()) print_interrupted(run);
    exit_status = end_answers(run, exit_status);
    if (!run->answers.failed && !quiet) print_summary(run);
    if (!run->answers.failed) print_failed(run);
    return ended_early || run->input_failed || run->num_failed ? EXIT_STATUS_FAILURE : exit_status;
}

static enum status start(struct run *run, struct error *err)
{
    const struct generate_options *o = run->options;
    enum status status = engine_pool_create(&o->engine, &run->pool, err);
    if (status != STATUS_OK) return status;
    const struct engine_info *info = engine_pool_info(run->pool);
    const struct prompt_options options = generate_prompt_options(o);
    status = prompt_rules_make(info, &options, &run->prompts, err);
    run->model_names[0] = o->model_name ? o->model_name : "";
    run->rules = (struct api_rules){.prompts = &run->prompts,
                                    .model_names = run->model_names,
                                    .return_token_ids = o->return_token_ids,
                                    .spell = command_spell_flag};
    if (status != STATUS_OK) return status;
    struct journal *now = &run->answers.now;
    now->max_model_len = info->limits->max_model_len;
    snprintf(now->dtype, sizeof now->dtype, "%s", dtype_name(info->memory->dtype));
    return STATUS_OK;
}

/* ---- a run that can be resumed ---- */

/* What this run is to answer, where it can be known before the answers are. */
static enum status describe(struct run *run, struct error *err)
{
    const struct generate_options *o = run->options;
    struct journal *now = &run->answers.now;
    if (!journal_init(now)) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the parameters of the run");
    now->ordered = o->ordered;
    enum status status = input_facts_count(&o->input, &now->num_prompts, err);
    now->end = now->num_prompts;
    if (o->shard.count > 0) {
        snprintf(now->shard, sizeof now->shard, "%d/%d", o->shard.number, o->shard.count);
        shard_range(&o->shard, now->num_prompts, &now->begin, &now->end);
    }
    run->begin = now->begin;
    run->end = now->end;
    run->counted = true;
    if (status == STATUS_OK) status = input_facts_hash(&o->input, &now->input, &now->input_sizes, err);
    const bool with_weights = o->engine.load_format != LOAD_FORMAT_DUMMY;
    if (status == STATUS_OK) status = fingerprint_model(o->engine.model, with_weights, &now->model, err);
    return status == STATUS_OK ? generate_describe_parameters(o, now, err) : status;
}

/* Opens the files, and finds out what is left to do. */
static enum status open_files(struct run *run, struct error *err)
{
    const struct generate_options *o = run->options;
    struct answers *a = &run->answers;
    run->end = INT64_MAX;
    enum status status = inputs_open(&run->inputs, &o->input, err);
    if (status == STATUS_OK) status = answers_open(a, o->output, &run->inputs, err);
    if (status != STATUS_OK) return status;
    const bool is_file = input_facts_are_files(&o->input);
    if (!is_file && o->shard.count > 0)
        return error_set(err, STATUS_INVALID,
                         "--shard needs an input that is a file: the lines of a pipe cannot be "
                         "counted before they are read");
    if (is_file && (a->output.named || o->shard.count > 0)) status = describe(run, err);
    if (status == STATUS_OK) status = answers_resume(a, is_file, err);
    run->num_failed = a->num_failed;
    run->num_cut = a->num_cut;
    return status;
}

static void print_resuming(const struct run *run)
{
    const struct answers *a = &run->answers;
    const bool torn = a->keep < output_size(&a->output);
    if (run->options->quiet || !a->resumes) return;
    notice_printf(stderr, "quire generate: %s%s of %s answers are in %s already%s%s\n",
                  answers_complete(a) ? "" : "resuming: ", grouped(a->set.count).text,
                  grouped(run->end - run->begin).text, a->output.name,
                  answers_complete(a) ? "; nothing is left to do" : "",
                  torn ? "; a torn line at its end is dropped" : "");
}

/* An earlier run has answered everything; the last answers may still wait in the spool. */
static int finish(struct run *run)
{
    struct error err = {""};
    node_dismiss_others(&run->options->engine);
    interrupt_catch_to_end();
    int exit_status = answers_begin(&run->answers, &err) == STATUS_OK ? EXIT_STATUS_OK : fail(run, &err);
    exit_status = end_answers(run, exit_status);
    print_failed(run);
    return run->num_failed ? EXIT_STATUS_FAILURE : exit_status;
}

/* The files are opened before the model is loaded, which takes a while. */
static int open_and_run(struct run *run)
{
    struct error err = {""};
    enum status status = open_files(run, &err);
    if (status == STATUS_OK) print_resuming(run);
    if (status == STATUS_OK && answers_complete(&run->answers)) return finish(run);
    const int exit_status = status == STATUS_INVALID ? EXIT_STATUS_USAGE : EXIT_STATUS_FAILURE;
    if (status == STATUS_OK) status = start(run, &err);
    if (status == STATUS_OK && !run->options->quiet && inputs_have_standard(&run->inputs))
        input_note_terminal(COMMAND, "prompts, one a line,");
    if (status != STATUS_OK) return command_fail(COMMAND, &err, exit_status);
    if (answers_check_engine(&run->answers, &err) != STATUS_OK) return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    return run_to_end(run);
}

static int generate(struct generate_options *o)
{
    struct run run = {
        .options = o,
        .answers = {.input = &o->input, .ordered = o->ordered, .overwrite = o->overwrite, .log = &o->log}};
    o->log.line = &run.progress.drawn;
    o->engine.cancel = interrupt_flag();
    const int exit_status = open_and_run(&run);
    prompt_rules_free(&run.prompts);
    window_free(&run.window);
    engine_pool_leave(run.pool);
    struct result *r;
    while ((r = result_queue_take_any(&run.queue)) != NULL) result_free(r);
    text_free(&run.line);
    id_set_free(&run.ids);
    inputs_close(&run.inputs);
    answers_close(&run.answers);
    o->log.line = NULL;
    return exit_status;
}

/* The name of the folder at the end of a path. */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static enum status check_flags(struct generate_options *o, struct error *err)
{
    enum status status = generate_options_read(o, err);
    if (status == STATUS_OK) status = sampling_flags_check(&o->sampling, err);
    if (status == STATUS_OK) status = template_flags_check(&o->template, err);
    const struct prompt_options prompts = generate_prompt_options(o);
    if (status == STATUS_OK) status = prompt_parsers_check(&prompts, err);
    if (status == STATUS_OK && o->system && o->as_chat != 1)
        return error_set(err, STATUS_INVALID, "--system goes with --chat");
    return status;
}

static int check_and_run(void *options)
{
    struct generate_options *o = options;
    struct error err;
    char model[4096];
    if (check_flags(o, &err) != STATUS_OK) return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    o->input.are_texts = strcmp(o->format, "text") == 0;
    o->model_name = o->served_model_name ? o->served_model_name : o->engine.model;
    const enum status status = structured_flags_read(&o->structured, &err);
    if (status != STATUS_OK)
        return command_fail(COMMAND, &err, status == STATUS_INVALID ? EXIT_STATUS_USAGE : EXIT_STATUS_FAILURE);
    if (template_flags_read(&o->template, &err) != STATUS_OK ||
        model_folder_of_engine(&o->engine, model, sizeof model, &err) != STATUS_OK ||
        node_prepare(&o->engine, &err) != STATUS_OK)
        return command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    if (node_serves(&o->engine)) return node_run(&o->engine, COMMAND);
    if (!o->model_name) o->model_name = last_part(o->engine.model);
    if (o->dry_run) {
        const struct dry_run_options dry = {&o->engine, &o->input, generate_prompt_options(o)};
        return dry_run(&dry);
    }
    return generate(o);
}

const struct command command_generate = {
    .name = COMMAND,
    .summary = "run a file of prompts through a model",
    .usage = "generate [PROMPT|@FILE|-] [flags]",
    .help = SUMMARY,
    .options_size = sizeof(struct generate_options),
    .add = generate_options_add,
    .run = check_and_run,
    .free = generate_options_free,
};
