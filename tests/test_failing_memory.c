/* Memory that runs out: each allocation in turn fails while an engine or a drafter is created, while a request is
 * added, when swap space grows, while an answer is parsed, while a form becomes a constraint, and while a request of an
 * API is read and answered. What fails says so in a sentence, and what was running goes on. A build with
 * AddressSanitizer also finds what is leaked.
 *
 * The linker gives quire's own calls of malloc and its like to the functions below (--wrap, in CMakeLists.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <jansson.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/engine/draft.h"
#include "runtime/prompts/answer_parser.h"
#include "tests/support/answer_parts.h"
#include "tests/support/api_call.h"
#include "tests/support/must.h"
#include "tests/support/run.h"
#include "tests/support/toy_model.h"
#include "tokenizer/grammar/structured.h"

/* ---- allocations that fail ---- */

static atomic_long until_failure = -1; /* allocations that still succeed; negative: all do */
static atomic_bool has_failed;

static bool fails(void)
{
    if (atomic_load(&until_failure) < 0 || atomic_fetch_sub(&until_failure, 1) > 0) return false;
    atomic_store(&has_failed, true);
    errno = ENOMEM;
    return true;
}

/* The allocation after the next `count` fails, that one alone. */
static void fail_after(long count)
{
    atomic_store(&has_failed, false);
    atomic_store(&until_failure, count);
}

/* Whether the failure came. From here on everything succeeds. */
static bool failure_came(void)
{
    atomic_store(&until_failure, -1);
    return atomic_load(&has_failed);
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
char *__real_strdup(const char *string);
void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
char *__wrap_strdup(const char *string);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    return fails() ? ENOMEM : __real_posix_memalign(out, alignment, size);
}

char *__wrap_strdup(const char *string)
{
    return fails() ? NULL : __real_strdup(string);
}

void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return fails() ? MAP_FAILED : __real_mmap(address, length, protection, flags, fd, offset);
}

/* ---- creating an engine ---- */

/* Fails each allocation of engine_create in turn. Returns how many there are. A few pools of threads are done without,
 * which only takes longer. */
static long create_without(const struct engine_options *o)
{
    int done_without = 0;
    for (long i = 0;; i++) {
        struct engine *e = NULL;
        struct error err = {""};
        fail_after(i);
        const enum status status = engine_create(o, &e, &err);
        const bool came = failure_came();
        if (status == STATUS_OK) {
            engine_destroy(e);
            assert_true(!came || ++done_without < 4);
            if (came) continue;
            return i;
        }
        if (status != STATUS_OUT_OF_MEMORY && status != STATUS_IO) /* IO: a file could not be mapped */
            fail_msg("allocation %ld failed: status %d, \"%s\"", i, status, err.text);
        assert_null(e);
        assert_non_null(strstr(err.text, "memory"));
    }
}

static void test_create(void **state)
{
    (void)state;
    char path[512];
    struct engine_options o = run_options("golden/gqa", path, sizeof path);
    o.trace_file = "/dev/null";
    assert_true(create_without(&o) > 50);
    o.quantization = "int4";
    assert_true(create_without(&o) > 100);
}

static struct engine_options toy_options(const struct temp_folder *folder, char *path, size_t size)
{
    struct engine_options o = run_options(folder->path, path, size);
    o.load_format = LOAD_FORMAT_DUMMY;
    o.skip_tokenizer = false;
    return o;
}

static void test_create_with_tokenizer(void **state)
{
    (void)state;
    char path[512];
    struct temp_folder folder;
    toy_model_make(&folder, QUIRE_GUIDE, true);
    const struct engine_options o = toy_options(&folder, path, sizeof path);
    assert_true(create_without(&o) > 100);
    temp_folder_remove(&folder);
}

static void test_create_drafter(void **state)
{
    (void)state;
    for (enum draft_method method = DRAFT_NGRAM; method <= DRAFT_SUFFIX; method++) {
        struct speculative_config config = speculative_config_default();
        enum status status = STATUS_OUT_OF_MEMORY;
        config.method = method;
        for (long i = 0; status != STATUS_OK; i++) {
            struct drafter *d = NULL;
            struct error err = {""};
            fail_after(i);
            status = drafter_create(&config, 4096, &d, &err);
            assert_int_equal(status, failure_came() ? STATUS_OUT_OF_MEMORY : STATUS_OK);
            assert_int_equal(status == STATUS_OK, d != NULL);
            if (!d) assert_non_null(strstr(err.text, draft_method_name(method)));
            drafter_destroy(d);
        }
    }
}

/* jansson calls some of its own failures bad JSON, and can drop a byte of a string. So all that is asked is that
 * nothing crashes or leaks, and that a failure has a sentence. */
static void test_create_without_json(void **state)
{
    (void)state;
    char path[512];
    const struct engine_options o = run_options("golden/gqa", path, sizeof path);
    bool came = true;
    long failed = 0;
    json_set_alloc_funcs(__wrap_malloc, free);
    for (long i = 0; came; i++) {
        struct engine *e = NULL;
        struct error err = {""};
        fail_after(i);
        const enum status status = engine_create(&o, &e, &err);
        came = failure_came();
        failed += status != STATUS_OK;
        assert_int_equal(status == STATUS_OK, e != NULL);
        assert_int_equal(status == STATUS_OK, err.text[0] == '\0');
        engine_destroy(e);
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(failed > 500);
}

/* ---- adding requests ---- */

enum { LONG_ANSWER = 200, NUM_ADDED = 150 };

struct answer {
    int32_t tokens[LONG_ANSWER];
    int count;
    enum finish_reason finish;
};

static void keep_answer(void *user, const struct answer_piece *piece)
{
    struct answer *a = (struct answer *)user + piece->index;
    for (int32_t i = 0; i < piece->num_tokens && a->count < LONG_ANSWER; i++)
        a->tokens[a->count++] = piece->token_ids[i];
    if (piece->finish_reason != FINISH_NONE) a->finish = piece->finish_reason;
}

static void step(struct engine *e)
{
    bool worked;
    struct error err = {""};
    if (engine_step(e, &worked, &err) != STATUS_OK) fail_msg("engine_step: %s", err.text);
}

static struct sampling_params long_answer(void)
{
    struct sampling_params params = sampling_params_default();
    params.temperature = 0;
    params.max_tokens = LONG_ANSWER;
    params.ignore_eos = true;
    return params;
}

/* Two answers each: sampled, of a beam search, or the best of three. Every allocation of engine_add fails once, and
 * then it succeeds; so many requests are added that the inbox grows. */
static void add_with_failures(struct engine *e, int kind, struct answer *answers)
{
    struct sampling_params params = long_answer();
    params.n = 2;
    params.temperature = 1;
    params.max_tokens = 3;
    char stop[][SAMPLING_PARAMS_MAX_STOP_BYTES] = {"not a likely text"};
    params.num_stop = kind == 1 ? 0 : 1;
    params.stop = stop;
    params.beam_width = kind == 1 ? 3 : 1;
    params.best_of = kind == 2 ? 3 : -1;
    params.logprobs = kind == 2 ? 1 : -1;
    params.prompt_logprobs = kind == 0 ? 2 : -1;
    const struct engine_request request = {
        .prompt = (int32_t[]){5, 6, 7}, .prompt_len = 3, .params = &params, .deliver = keep_answer, .user = answers};
    struct error err = {""};
    for (long i = 0;; i++) {
        fail_after(i);
        const enum status status = engine_add(e, &request, NULL, &err);
        if (!failure_came()) {
            assert_int_equal(status, STATUS_OK);
            assert_true(i >= 4);
            return;
        }
        assert_int_equal(status, STATUS_OUT_OF_MEMORY);
        assert_non_null(strstr(err.text, "out of host memory"));
    }
}

static void test_add(void **state)
{
    (void)state;
    char path[512];
    struct temp_folder folder;
    struct error err;
    static struct answer alone, among, added[NUM_ADDED][2];
    toy_model_make(&folder, QUIRE_GUIDE, false);
    struct engine_options o = toy_options(&folder, path, sizeof path);
    o.max_model_len = 256;
    struct engine *e = run_engine(&o);
    const struct sampling_params params = long_answer();
    struct engine_request request = {
        .prompt = (int32_t[]){1, 2, 3, 4}, .prompt_len = 4, .params = &params, .deliver = keep_answer, .user = &alone};
    assert_int_equal(engine_add(e, &request, NULL, &err), STATUS_OK);
    while (engine_has_work(e)) step(e);
    request.user = &among;
    assert_int_equal(engine_add(e, &request, NULL, &err), STATUS_OK);
    for (int i = 0; i < NUM_ADDED; i++) {
        add_with_failures(e, i % 3, added[i]);
        if (i % 10 == 0) step(e);
    }
    while (engine_has_work(e)) step(e);
    for (int i = 0; i < NUM_ADDED; i++)
        for (int k = 0; k < 2; k++) assert_true(added[i][k].count == 3 && added[i][k].finish == FINISH_LENGTH);
    assert_int_equal(among.count, LONG_ANSWER);
    assert_memory_equal(among.tokens, alone.tokens, sizeof alone.tokens);
    engine_destroy(e);
    temp_folder_remove(&folder);
}

/* ---- requests of an API ---- */

/* Reads, answers and checks as far as memory lets it. False: it said that there was none. */
static bool try_api(struct api_world *w, const char *body, const char *text)
{
    struct api_request request;
    struct api_refusal refusal = {0};
    struct api_response *response = NULL;
    struct error err = {""};
    struct text out = {0};
    const int32_t token = 300;
    bool ok = api_request_read(&w->rules, API_CHAT, body, strlen(body), &request, &refusal);
    if (!ok) assert_int_equal(refusal.http_status, 503);
    if (ok) ok = api_response_create(&w->rules, &request, "id", &response, &err) == STATUS_OK;
    for (size_t i = 0; ok && text[i]; i++) {
        const struct answer_piece piece = {.token_ids = &token,
                                           .num_tokens = 1,
                                           .text = text + i,
                                           .text_length = 1,
                                           .stop_token = -1,
                                           .prompt_tokens = 5,
                                           .output_tokens = (int32_t)i + 1,
                                           .finish_reason = text[i + 1] ? FINISH_NONE : FINISH_STOP};
        ok = api_response_take(response, 0, &piece, &out);
    }
    if (ok) assert_true(api_response_is_whole(response));
    api_response_free(response);
    api_request_free(&request);
    text_free(&out);
    return ok;
}

static void test_api(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{" MESSAGES ", " TOOLS ", \"return_token_ids\": true}",
        "{" MESSAGES ", " TOOLS ", \"stream\": true, \"return_token_ids\": true}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
        "\"content\": \"<think>So\"}], \"continue_final_message\": true}"};
    struct api_world w;
    api_world_open(&w);
    for (size_t k = 0; k < sizeof bodies / sizeof *bodies; k++) {
        assert_true(try_api(&w, bodies[k], "<think>Hm.</think>" CALL));
        bool came = true;
        for (long i = 0; came; i++) {
            fail_after(i);
            const bool ok = try_api(&w, bodies[k], "<think>Hm.</think>" CALL);
            came = failure_came();
            assert_int_equal(ok, !came);
        }
    }
    api_world_close(&w);
}

/* ---- swap space ---- */

enum { NUM_SWAPPED = 6, SWAPPED_TOKENS = 60 };

/* What is written to stderr between the two calls. */
static FILE *said;
static int saved_stderr;

static void listen_to_stderr(void)
{
    fflush(stderr);
    said = tmpfile();
    assert_non_null(said);
    saved_stderr = dup(STDERR_FILENO);
    dup2(fileno(said), STDERR_FILENO);
}

static void heard_on_stderr(char *text, size_t size)
{
    fflush(stderr);
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    rewind(said);
    text[fread(text, 1, size - 1, said)] = '\0';
    fclose(said);
}

/* Runs requests on too few blocks while the allocation after the first `count` of the steps fails. Returns whether it
 * came to that. */
static bool swap_without(long count, struct answer *answers, struct scheduler_stats *stats)
{
    char path[512], text[2048];
    struct log log = {LOG_WARNING};
    struct error err;
    struct engine_options o = run_options("golden/gqa", path, sizeof path);
    o.log = &log;
    o.max_model_len = 128;
    o.block_size = 8;
    o.num_gpu_blocks_override = 20;
    o.preemption_mode = PREEMPTION_SWAP;
    struct engine *e = run_engine(&o);
    struct sampling_params params = long_answer();
    params.max_tokens = SWAPPED_TOKENS;
    memset(answers, 0, NUM_SWAPPED * sizeof *answers);
    for (int32_t i = 0; i < NUM_SWAPPED; i++) {
        const struct engine_request request = {.prompt = (int32_t[]){10 + i, 2 * i},
                                               .prompt_len = 2,
                                               .params = &params,
                                               .deliver = keep_answer,
                                               .user = &answers[i]};
        assert_int_equal(engine_add(e, &request, NULL, &err), STATUS_OK);
    }
    listen_to_stderr();
    fail_after(count);
    while (engine_has_work(e)) step(e);
    const bool came = failure_came();
    heard_on_stderr(text, sizeof text);
    const char *warning = strstr(text, "warning: no more swap space: ");
    if ((warning != NULL) != came) fail_msg("after %ld allocations: '%s'", count, text);
    if (warning) assert_null(strstr(warning + strlen("warning: n"), "no more swap space"));
    engine_stats(e, stats);
    engine_destroy(e);
    return came;
}

/* Requests are recomputed instead, and say the same. */
static void test_swap_space(void **state)
{
    (void)state;
    struct scheduler_stats stats;
    static struct answer expected[NUM_SWAPPED], answers[NUM_SWAPPED];
    assert_false(swap_without(1000, expected, &stats));
    assert_true(stats.preemptions_swap > 0 && stats.preemptions_recompute == 0);
    long count = 0;
    for (; swap_without(count, answers, &stats); count++) {
        assert_true(stats.preemptions_recompute > 0);
        assert_int_equal(stats.preemptions_swap, 0); /* what there is was allocated at once */
        assert_true(stats.blocks_in_use == 0 && stats.host_blocks_in_use == 0);
        for (int i = 0; i < NUM_SWAPPED; i++) assert_int_equal(answers[i].count, SWAPPED_TOKENS);
        assert_memory_equal(answers, expected, sizeof expected);
    }
    assert_true(count >= 2); /* the memory of the blocks, and the account of them */
}

/* ---- parsing answers ---- */

static void drop_part(void *user, const struct answer_part *part)
{
    (void)user, (void)part;
}

/* Parses the example's text in pieces while one allocation fails. Returns whether the failure came. */
static bool parse_without(const struct example *e, const json_t *tools, long count)
{
    struct answer_parser_options options = {.tool_list = tools};
    struct answer_parser *parser = NULL;
    struct error err = {""};
    if (e->tools) options.tools = tool_format_find(e->tools);
    if (e->reasoning) options.reasoning = reasoning_format_find(e->reasoning);
    fail_after(count);
    bool ok = answer_parser_create(&options, drop_part, NULL, &parser, &err) == STATUS_OK;
    assert_int_equal(ok, parser != NULL);
    for (size_t at = 0, length = strlen(e->text); ok && at < length; at += 7)
        ok = answer_parser_add(parser, e->text + at, length - at < 7 ? length - at : 7);
    /* A parser that has failed does nothing more. */
    if (parser && !ok) assert_false(answer_parser_finish(parser));
    if (ok) answer_parser_finish(parser);
    const bool came = failure_came();
    answer_parser_free(parser);
    return came;
}

/* The call that must come is made, or memory ran out. */
static bool force_without(const struct answer_format *format, const json_t *tools, long count)
{
    json_t *tag;
    struct error err = {""};
    fail_after(count);
    const enum status status = tool_format_force(format, tools, NULL, &tag, &err);
    const bool came = failure_came();
    assert_true(status == STATUS_OK || (status == STATUS_OUT_OF_MEMORY && came && !tag && err.text[0]));
    json_decref(tag);
    return came;
}

static void test_answers(void **state)
{
    (void)state;
    json_t *tools = answer_tool_list();
    for (int i = 0; i < num_answer_examples; i++) {
        long count = 0;
        while (parse_without(&answer_examples[i], tools, count)) count++;
        assert_true(count >= 2); /* the parser, and the text that it holds */
    }
    const struct answer_format *format;
    for (int i = 0; (format = tool_format_at(i)); i++) {
        long count = 0;
        while (force_without(format, tools, count)) count++;
        assert_true(count >= 2); /* text of each tool */
    }
    json_decref(tools);
}

/* ---- forms of answers ---- */

static const struct {
    enum structured_kind kind;
    const char *value;
} forms[] = {
    {STRUCTURED_REGEX, "\"[a-c\u00e9]+(x|y){2,3}\""},
    {STRUCTURED_JSON, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":5,\"multipleOf\":3}"
                      ",\"b\":{\"anyOf\":[{\"enum\":"
                      "[1,{\"x\":2.5}]},{\"type\":\"string\",\"pattern\":\"^(?=a)\",\"maxLength\":4}]},\"c\":{\"$ref\":"
                      "\"#\"}},\"patternProperties\":"
                      "{\"^x\":{\"type\":\"array\",\"prefixItems\":[{\"oneOf\":[{\"const\":1},{\"type\":\"null\"}]}]}},"
                      "\"maxProperties\":3}"},
    {STRUCTURED_CHOICE, "[\"yes\", \"no\"]"},
    {STRUCTURED_GRAMMAR, "\"root ::= [^a] \\\"b\\\"* | root other\\nother ::= ( . | \\\"x\\\" ){2}\""},
    {STRUCTURED_GRAMMAR,
     "\"start: (A | /b+/i)~2\\nA: \\\"a\\\"i | \\\"x\\\"..\\\"z\\\"\\n%import common.WS\\n%ignore WS\""},
    {STRUCTURED_STRUCTURAL_TAG,
     "{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<f\"],\"tags\":[{\"begin\":\"<f>\",\"content\":"
     "{\"type\":\"any_text\"},\"end\":\"</f>\"}]}}"},
};

/* A cache over tokens of one byte. */
static struct structured_cache *make_cache(struct token_table *table, struct vocabulary **vocabulary)
{
    struct structured_cache *cache;
    struct error err = {""};
    *table = (struct token_table){.rules = {.decoding = DECODE_BYTE_LEVEL}};
    for (int32_t id = 0; id < 256; id++) assert_true(token_table_set(table, id, &(const char){(char)id}, 1, 0));
    must(vocabulary_create(table, 256, NULL, 0, vocabulary, &err), &err);
    must(structured_cache_create(*vocabulary, 0, &cache, &err), &err);
    return cache;
}

/* Fails each allocation of a form in turn, then of the next form; the last try succeeds. */
static void test_forms(void **state)
{
    (void)state;
    struct token_table table;
    struct vocabulary *vocabulary;
    struct structured_cache *cache = make_cache(&table, &vocabulary);
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        json_t *value = json_loads(forms[k].value, JSON_DECODE_ANY, NULL);
        const struct structured s = {.kind = forms[k].kind, .value = value};
        enum status status = STATUS_OUT_OF_MEMORY;
        assert_non_null(value);
        for (long i = 0; status != STATUS_OK; i++) {
            struct constraint *constraint = NULL;
            struct error err = {""};
            fail_after(i);
            status = structured_cache_get(cache, &s, &constraint, &err);
            const bool came = failure_came();
            if (status == STATUS_OK && came) fail_msg("form %zu: allocation %ld is done without", k, i);
            /* Regular languages do not tell one that is too large from memory that ran out. */
            if (status != STATUS_OK && status != STATUS_OUT_OF_MEMORY && status != STATUS_UNSUPPORTED)
                fail_msg("form %zu: allocation %ld failed: status %d, \"%s\"", k, i, status, err.text);
            if (status == STATUS_OUT_OF_MEMORY) assert_non_null(strstr(err.text, "memory"));
            constraint_free(constraint);
        }
        json_decref(value);
    }
    structured_cache_free(cache);
    vocabulary_free(vocabulary);
    token_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_create_with_tokenizer),
        cmocka_unit_test(test_create_drafter),
        cmocka_unit_test(test_create_without_json),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_api),
        cmocka_unit_test(test_swap_space),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
