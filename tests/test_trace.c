/* The Chrome trace: as a viewer reads it, slices nest and spans begin and end; and what it counts is what happened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/support/program.h"
#include "tests/support/run.h"
#include "tests/support/temp_folder.h"

enum { REQUESTS = 6, ANSWERS = 3, TOKENS = 60, MAX_ARGUMENTS = 40 };

static struct temp_folder folder;

static int make_folder(void **state)
{
    (void)state;
    temp_folder_make(&folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder.path, name);
    return path;
}

/* Runs a command with a trace on few blocks, so that half of the requests are swapped and others recomputed. */
static void run_command(struct program *p, const char *command, const char *trace, const char *input,
                        const char *const *more)
{
    const char *argv[MAX_ARGUMENTS] = {QUIRE_EXECUTABLE,
                                       command,
                                       "--model",
                                       QUIRE_TEST_DATA "/golden/gqa",
                                       "--skip-tokenizer-init",
                                       "--device",
                                       "cpu",
                                       "--threads",
                                       "1",
                                       "--num-gpu-blocks-override",
                                       "30",
                                       "--max-model-len",
                                       "200",
                                       "--max-num-seqs",
                                       "12",
                                       "--ignore-eos",
                                       "--trace",
                                       trace};
    int count = 18;
    while (*more && count < MAX_ARGUMENTS - 1) argv[count++] = *more++;
    program_run(p, argv, input);
}

/* Odd requests have three answers, even ones have one. */
static void write_prompts(struct text *lines)
{
    for (int i = 0; i < REQUESTS; i++)
        assert_true(text_printf(lines, "{\"n\": %d, \"max_tokens\": %d, \"temperature\": 1, \"prompt\": [%d, 7, 9]}\n",
                                i % 2 ? ANSWERS : 1, TOKENS + 10 * i, 10 + i));
}

/* ---- reading a trace ---- */

static json_t *load_trace(const char *path)
{
    json_error_t why;
    json_t *events = json_load_file(path, 0, &why);
    if (!events) fail_msg("%s: %s in line %d", path, why.text, why.line);
    assert_true(json_is_array(events));
    return events;
}

static const char *string_of(const json_t *event, const char *key)
{
    const char *value = json_string_value(json_object_get(event, key));
    return value ? value : "";
}

static bool is(const json_t *event, const char *phase, const char *name)
{
    return strcmp(string_of(event, "ph"), phase) == 0 && (!name || strcmp(string_of(event, "name"), name) == 0);
}

static int64_t argument(const json_t *event, const char *key)
{
    return json_require_integer(json_object_get(event, "args"), key);
}

static int64_t nanoseconds(const json_t *event, const char *key)
{
    return llround(1000 * json_require_number(event, key));
}

static int64_t end_of(const json_t *slice)
{
    return nanoseconds(slice, "ts") + nanoseconds(slice, "dur");
}

static const char *const PARTS[] = {"schedule", "submit", "collect", "deliver"};

/* What the slices say in all. */
struct steps {
    int64_t submitted, collected, tokens, samples, drafts;
};

/* The parts follow each other in the slice of their step, and fill it; steps follow each other. */
static struct steps check_slices(json_t *events)
{
    struct steps steps = {0};
    int64_t end_of_step = 0, end_of_part = 0;
    int part = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        if (!is(event, "X", NULL)) continue;
        const int64_t begin = nanoseconds(event, "ts");
        if (is(event, "X", "step")) {
            assert_int_equal(end_of_part, end_of_step);
            assert_true(begin >= end_of_step);
            end_of_part = begin;
            end_of_step = end_of(event);
            part = 0;
            continue;
        }
        while (part < 4 && !is(event, "X", PARTS[part])) part++;
        assert_int_not_equal(part++, 4);
        assert_int_equal(begin, end_of_part);
        end_of_part = end_of(event);
        assert_true(end_of_part <= end_of_step);
        if (is(event, "X", "collect")) assert_int_equal(argument(event, "step"), ++steps.collected);
        if (!is(event, "X", "submit")) continue;
        assert_int_equal(argument(event, "step"), ++steps.submitted);
        steps.tokens += argument(event, "num_tokens");
        steps.samples += argument(event, "num_samples");
        steps.drafts += json_integer_value(json_object_get(json_object_get(event, "args"), "num_drafts"));
        assert_true(argument(event, "num_decodes") <= argument(event, "num_tokens"));
    }
    assert_int_equal(end_of_part, end_of_step);
    assert_int_equal(steps.collected, steps.submitted);
    return steps;
}

/* What happened to one request. */
struct span {
    int64_t last;      /* time of its newest event */
    const char *state; /* "waiting", "running", "swapped"; NULL: it has not begun, or has ended */
    int begun, ended, first_tokens, answers, waits, swaps;
    int64_t output_tokens, preemptions, n;
    char reasons[ANSWERS][16];
};

static void read_end(struct span *s, json_t *event)
{
    assert_true(s->begun == 1 && s->ended == 0 && s->state == NULL);
    s->ended = 1;
    s->preemptions = argument(event, "preemptions");
}

static void read_state(struct span *s, const char *name, bool begins)
{
    if (!begins) {
        assert_string_equal(s->state, name);
        s->state = NULL;
        return;
    }
    assert_true(s->begun && !s->ended && !s->state);
    s->state = name;
    s->waits += strcmp(name, "waiting") == 0;
    s->swaps += strcmp(name, "swapped") == 0;
}

static void read_answer(struct span *s, json_t *event)
{
    const int64_t index = argument(event, "index");
    assert_in_range(index, 0, ANSWERS - 1);
    snprintf(s->reasons[index], sizeof s->reasons[index], "%s",
             string_of(json_object_get(event, "args"), "finish_reason"));
    s->answers++;
    s->output_tokens += argument(event, "output_tokens");
}

static void read_span_event(struct span *s, json_t *event)
{
    const char *phase = string_of(event, "ph"), *name = string_of(event, "name");
    assert_true(nanoseconds(event, "ts") >= s->last);
    s->last = nanoseconds(event, "ts");
    assert_string_equal(string_of(event, "cat"), "request");
    if (strcmp(phase, "n") == 0) {
        assert_true(s->begun && !s->ended);
        if (strcmp(name, "answer") == 0)
            read_answer(s, event);
        else
            s->first_tokens++;
    } else if (strcmp(name, "request") != 0) {
        read_state(s, name, *phase == 'b');
    } else if (*phase == 'e') {
        read_end(s, event);
    } else {
        assert_int_equal(s->begun++, 0);
        s->n = argument(event, "n");
    }
}

/* Every request begins and ends once and is in one state at a time. spans: [count] */
static void read_spans(json_t *events, struct span *spans, int count)
{
    size_t i;
    json_t *event;
    memset(spans, 0, (size_t)count * sizeof *spans);
    json_array_foreach(events, i, event)
    {
        if (!is(event, "b", NULL) && !is(event, "e", NULL) && !is(event, "n", NULL)) continue;
        const int64_t id = json_require_integer(event, "id");
        assert_in_range(id, 1, count);
        read_span_event(&spans[id - 1], event);
    }
    for (int r = 0; r < count; r++) assert_true(spans[r].begun == 1 && spans[r].ended == 1 && !spans[r].state);
}

/* The last counters of this name. */
static json_t *last_counter(json_t *events, const char *name)
{
    json_t *last = NULL, *event;
    size_t i;
    json_array_foreach(events, i, event) if (is(event, "C", name)) last = json_object_get(event, "args");
    assert_non_null(last);
    return last;
}

/* After every step the blocks add up, and the requests are those whose spans have begun and not ended. */
static void check_counters(json_t *events, int64_t num_blocks)
{
    int64_t begun = 0, ended = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        begun += is(event, "b", "request");
        ended += is(event, "e", "request");
        if (is(event, "C", "blocks"))
            assert_int_equal(argument(event, "in use") + argument(event, "cached") + argument(event, "free"),
                             num_blocks);
        if (is(event, "C", "requests"))
            assert_int_equal(argument(event, "running") + argument(event, "waiting") + argument(event, "swapped"),
                             begun - ended);
    }
    assert_int_equal(json_require_integer(last_counter(events, "blocks"), "in use"), 0);
    assert_int_equal(json_require_integer(last_counter(events, "host blocks"), "in use"), 0);
}

/* ---- tests ---- */

/* Against the lines that generate wrote. */
static void check_answers(const struct span *spans, const char *lines)
{
    int checked = 0;
    for (const char *line = lines, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, checked++) {
        json_t *result = json_loadb(line, (size_t)(end - line), 0, NULL);
        const struct span *s = &spans[json_require_integer(result, "index")];
        assert_int_equal(s->first_tokens, 1);
        assert_int_equal(s->answers, s->n);
        assert_int_equal(s->output_tokens, json_require_integer(result, "completion_tokens"));
        const json_t *reasons = json_object_get(result, "finish_reasons");
        for (int i = 0; i < s->n; i++)
            assert_string_equal(s->reasons[i], s->n == 1 ? string_of(result, "finish_reason")
                                                         : json_string_value(json_array_get(reasons, (size_t)i)));
        json_decref(result);
    }
    assert_int_equal(checked, REQUESTS);
}

static void generate(const char *async)
{
    struct text lines = {0};
    struct program p;
    struct span spans[REQUESTS];
    write_prompts(&lines);
    run_command(&p, "generate", path_of("generate.json"), lines.data, (const char *[]){"--quiet", async, NULL});
    assert_int_equal(p.exit_status, 0);
    json_t *events = load_trace(path_of("generate.json"));
    const struct steps steps = check_slices(events);
    check_counters(events, 30);
    read_spans(events, spans, REQUESTS);
    check_answers(spans, p.out.data);
    int64_t swaps = 0, waits = 0, preemptions = 0, output = 0;
    for (int r = 0; r < REQUESTS; r++) {
        swaps += spans[r].swaps;
        waits += spans[r].waits - 1;
        preemptions += spans[r].preemptions;
        output += spans[r].output_tokens;
    }
    const json_t *counted = last_counter(events, "preemptions");
    assert_true(swaps > 0 && waits > 0); /* both kinds occurred */
    assert_int_equal(swaps, json_require_integer(counted, "swap"));
    assert_int_equal(waits, json_require_integer(counted, "recompute"));
    assert_int_equal(swaps + waits, preemptions);
    assert_true(steps.samples >= output);
    json_decref(events);
    program_free(&p);
    text_free(&lines);
}

static void test_generate(void **state)
{
    (void)state;
    generate("--no-async-scheduling");
}

/* Two steps in flight. */
static void test_generate_async(void **state)
{
    (void)state;
    generate("--async-scheduling");
}

/* The trace of profile counts what its summary counts. */
static void test_profile(void **state)
{
    (void)state;
    struct text lines = {0};
    struct program p;
    write_prompts(&lines);
    run_command(&p, "profile", path_of("profile.json"), lines.data, (const char *[]){"--json", "--input", "-", NULL});
    json_t *json = program_json(&p), *summary = json_object_get(json, "summary");
    json_t *events = load_trace(path_of("profile.json"));
    const struct steps steps = check_slices(events);
    const json_t *counted = last_counter(events, "preemptions");
    assert_int_equal(steps.submitted, json_require_integer(summary, "num_steps"));
    assert_int_equal(steps.tokens, json_require_integer(summary, "num_tokens"));
    assert_int_equal(json_require_integer(counted, "swap"), json_require_integer(summary, "num_preemptions_swap"));
    assert_int_equal(json_require_integer(counted, "recompute"),
                     json_require_integer(summary, "num_preemptions_recompute"));
    json_decref(events);
    json_decref(json);
    program_free(&p);
    text_free(&lines);
}

/* What became of drafts, in the trace, the summary of profile and that of generate. */
static void test_drafts(void **state)
{
    (void)state;
    static const char input[] = "{\"prompt\": [5, 7, 9], \"max_tokens\": 60, \"logit_bias\": {\"7\": 100}}\n";
    struct program p, generate;
    char words[100];
    run_command(&p, "profile", path_of("drafts.json"), input,
                (const char *[]){"--json", "--speculative-model", "suffix", "--input", "-", NULL});
    json_t *json = program_json(&p), *summary = json_object_get(json, "summary");
    json_t *events = load_trace(path_of("drafts.json"));
    const struct steps steps = check_slices(events);
    const json_t *counted = last_counter(events, "drafts");
    const int64_t accepted = json_require_integer(counted, "accepted");
    assert_true(accepted > 30);
    assert_int_equal(steps.drafts, accepted + json_require_integer(counted, "rejected"));
    assert_int_equal(steps.drafts, json_require_integer(summary, "spec_decode_draft_tokens"));
    assert_int_equal(accepted, json_require_integer(summary, "spec_decode_accepted_tokens"));
    const double runs = (double)json_require_integer(summary, "spec_decode_num_drafts");
    assert_float_equal(json_require_number(summary, "spec_decode_acceptance_length"), 1 + (double)accepted / runs,
                       1e-6);
    run_command(&generate, "generate", path_of("drafts.json"), input,
                (const char *[]){"--speculative-model", "suffix", NULL});
    snprintf(words, sizeof words, "; %lld drafts (suffix), %lld of them accepted, %.1f tokens a run",
             (long long)steps.drafts, (long long)accepted, 1 + (double)accepted / runs);
    if (!strstr(generate.err.data, words)) fail_msg("no '%s' in: %s", words, generate.err.data);
    json_decref(events);
    json_decref(json);
    program_free(&p);
    program_free(&generate);
}

static void ignore_piece(void *user, const struct answer_piece *piece)
{
    (void)user, (void)piece;
}

/* An engine that is destroyed with work left, or aborted requests, leaves a whole file, with an end for each. */
static void test_unfinished_requests_end(void **state)
{
    (void)state;
    char path[512];
    struct error err;
    struct span spans[4];
    uint64_t ids[4];
    bool worked;
    struct engine_options o = run_options("golden/gqa", path, sizeof path);
    o.max_num_seqs = 2;
    o.trace_file = path_of("unfinished.json");
    struct engine *e = run_engine(&o);
    struct sampling_params params = sampling_params_default();
    params.max_tokens = 50;
    params.ignore_eos = true;
    const struct engine_request request = {
        .prompt = (int32_t[]){1, 2, 3}, .prompt_len = 3, .params = &params, .deliver = ignore_piece};
    for (int i = 0; i < 4; i++) assert_int_equal(engine_add(e, &request, &ids[i], &err), STATUS_OK);
    engine_abort(e, ids[3]);
    for (int i = 0; i < 4; i++) assert_int_equal(engine_step(e, &worked, &err), STATUS_OK);
    engine_destroy(e);
    json_t *events = load_trace(path_of("unfinished.json"));
    check_slices(events);
    read_spans(events, spans, 4);
    assert_true(spans[0].first_tokens == 1 && spans[0].answers == 0 && spans[2].first_tokens == 0);
    assert_string_equal(spans[3].reasons[0], "abort");
    json_decref(events);
}

static void check_refused(const char *trace, const char *sentence)
{
    struct program p;
    run_command(&p, "generate", trace, "[1, 2]\n", (const char *[]){"--quiet", NULL});
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(p.out.length, 0);
    if (!strstr(p.err.data, sentence)) fail_msg("no '%s' in: %s", sentence, p.err.data);
    program_free(&p);
}

static void test_files_that_cannot_be_written(void **state)
{
    (void)state;
    struct program p;
    check_refused("/nowhere/trace.json", "cannot write the trace /nowhere/trace.json: No such file");
    check_refused(folder.path, "Is a directory");
    /* Nobody's prompts are overwritten. */
    temp_folder_write_string(&folder, "prompts.txt", "a prompt\n");
    check_refused(path_of("prompts.txt"), "it exists and is no trace");
    struct text kept = {0};
    struct error err;
    assert_int_equal(file_read(path_of("prompts.txt"), &kept, &err), STATUS_OK);
    assert_string_equal(kept.data, "a prompt\n");
    text_free(&kept);
    /* A full disk ends the trace, not the run. */
    run_command(&p, "generate", "/dev/full", "{\"prompt\": [1, 2], \"max_tokens\": 40}\n",
                (const char *[]){"--quiet", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "\"completion_tokens\": 40"));
    const char *warning = strstr(p.err.data, "warning: the trace /dev/full ends here: cannot write: No space left");
    assert_non_null(warning);
    assert_null(strstr(warning + 1, "warning: "));
    program_free(&p);
}

/* An earlier trace is replaced, whole; a file that answers or another trace are written to is not. */
static void test_files_that_exist(void **state)
{
    (void)state;
    struct program p;
    char long_trace[8192];
    struct span spans[1];
    memset(long_trace, 'x', sizeof long_trace);
    long_trace[0] = '[';
    temp_folder_write(&folder, "again.json", long_trace, sizeof long_trace);
    const char *const one = "{\"prompt\": [1, 2], \"max_tokens\": 2}\n";
    run_command(&p, "generate", path_of("again.json"), one, (const char *[]){"--quiet", NULL});
    assert_int_equal(p.exit_status, 0);
    program_free(&p);
    json_t *events = load_trace(path_of("again.json"));
    read_spans(events, spans, 1);
    json_decref(events);
    const int fd = open(path_of("again.json"), O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    check_refused(path_of("again.json"), "something else is written to it");
    close(fd);
    char both[512];
    snprintf(both, sizeof both, "%s", path_of("both.jsonl"));
    run_command(&p, "generate", both, one, (const char *[]){"--quiet", "--output", both, NULL});
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "something else is written to it"));
    program_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generate),
        cmocka_unit_test(test_generate_async),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_unfinished_requests_end),
        cmocka_unit_test(test_files_that_cannot_be_written),
        cmocka_unit_test(test_files_that_exist),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
