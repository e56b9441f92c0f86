/* Structured outputs (tokenizer/grammar/structured.h) as constraints over tokens of one byte and some of several. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_parse.h"
#include "tests/support/must.h"
#include "tokenizer/grammar/structured.h"

enum { STOP_ID = 256, FIRST_LONG = 257 };

static const char *const long_tokens[] = {"{\"", "\": ", "</think>", "\n\n", "\xc3\xa9\xc3"};

struct fixture {
    struct token_table table;
    struct vocabulary *vocabulary;
    struct structured_cache *cache;
};

static void setup(struct fixture *f, size_t max_bytes)
{
    struct error err = {""};
    const int32_t count = FIRST_LONG + (int32_t)(sizeof long_tokens / sizeof *long_tokens);
    f->table = (struct token_table){.rules = {.decoding = DECODE_BYTE_LEVEL}};
    for (int32_t id = 0; id < count; id++) {
        const char byte = (char)id, *bytes = id < STOP_ID ? &byte : id == STOP_ID ? "" : long_tokens[id - FIRST_LONG];
        const size_t length = id < STOP_ID ? 1 : strlen(bytes);
        assert_true(token_table_set(&f->table, id, bytes, length, id == STOP_ID ? TOKEN_SPECIAL : 0));
    }
    must(vocabulary_create(&f->table, count, (int32_t[]){STOP_ID}, 1, &f->vocabulary, &err), &err);
    must(structured_cache_create(f->vocabulary, max_bytes, &f->cache, &err), &err);
}

static void teardown(struct fixture *f)
{
    structured_cache_free(f->cache);
    vocabulary_free(f->vocabulary);
    token_table_free(&f->table);
}

/* Whether the constraint has the text, byte by byte, and the mask agrees about each byte. */
static bool accepts(struct constraint *c, const struct vocabulary *v, const char *text)
{
    uint32_t mask[64];
    struct matcher *m;
    struct error err = {""};
    bool ok = true;
    assert_true(vocabulary_mask_words(v) <= 64);
    must(matcher_create(c, false, &m, &err), &err);
    for (const unsigned char *byte = (const unsigned char *)text; ok && *byte; byte++) {
        matcher_mask(m, mask);
        ok = matcher_accept(m, *byte);
        assert_int_equal(ok, mask[*byte / 32] >> *byte % 32 & 1);
    }
    ok = ok && matcher_may_end(m);
    assert_false(matcher_failed(m));
    matcher_free(m);
    return ok;
}

/* The value as JSON. The caller gives it back. */
static struct structured form(enum structured_kind kind, const char *value)
{
    struct structured s = {.kind = kind};
    struct error err = {""};
    json_t *parsed;
    must(json_value_parse(value, strlen(value), JSON_DECODE_ANY, NULL, &parsed, &err), &err);
    s.value = parsed;
    return s;
}

static void give_back(const struct structured *s)
{
    json_decref((json_t *)s->value);
}

struct form_case {
    enum structured_kind kind;
    const char *value;
    bool disable_any_whitespace, disable_additional_properties;
    const char *yes[6], *no[6];
};

static void check_form(struct fixture *f, const struct structured *s, const struct form_case *c)
{
    struct constraint *constraint;
    struct error err = {""};
    if (structured_cache_get(f->cache, s, &constraint, &err) != STATUS_OK) fail_msg("%s: %s", c->value, err.text);
    for (int i = 0; i < 6 && c->yes[i]; i++)
        if (!accepts(constraint, f->vocabulary, c->yes[i])) fail_msg("%s has not: %s", c->value, c->yes[i]);
    for (int i = 0; i < 6 && c->no[i]; i++)
        if (accepts(constraint, f->vocabulary, c->no[i])) fail_msg("%s has: %s", c->value, c->no[i]);
    constraint_free(constraint);
}

#define SCHEMA "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}"

static void test_kinds(void **state)
{
    (void)state;
    static const struct form_case cases[] = {
        {STRUCTURED_JSON, SCHEMA, true, false, {"{\"a\": 1}", "{\"a\": -20, \"b\": null}"}, {"{}", "{\"a\":1}", "[]"}},
        {STRUCTURED_JSON, SCHEMA, false, false, {"{\"a\": 1}", "{\"a\":1}"}, {"{}", "{\"a\": \"1\"}"}},
        {STRUCTURED_JSON, SCHEMA, true, true, {"{\"a\": 1}"}, {"{\"a\": 1, \"b\": null}"}},
        {STRUCTURED_JSON, "\"{\\\"enum\\\": [1, \\\"x\\\"]}\"", true, false, {"1", "\"x\""}, {"2", "x"}},
        {STRUCTURED_JSON, "true", true, false, {"1", "[{\"a\": null}]"}, {"", "["}},
        {STRUCTURED_JSON_OBJECT, "true", true, false, {"{}", "{\"a\": [1, {}]}"}, {"[]", "1", "{\"a\"}"}},
        {STRUCTURED_REGEX,
         "\"[0-9]+\\\\.?\\u00e9\"",
         false,
         false,
         {"1\xc3\xa9", "12.\xc3\xa9"},
         {"", "1", "x1\xc3\xa9"}},
        {STRUCTURED_CHOICE, "[\"yes\", \"no\", \"yes please\"]", false, false, {"yes", "no", "yes please"}, {"", "ye"}},
        {STRUCTURED_GRAMMAR, "\"root ::= root \\\"+\\\" [0-9] | [0-9]\"", false, false, {"1", "1+2+3"}, {"+", "1+"}},
        {STRUCTURED_GRAMMAR, "\"start: INT \\\"::=\\\" INT\\n%import common.INT\"", false, false, {"1::=2"}, {"1"}},
        {STRUCTURED_STRUCTURAL_TAG,
         "{\"format\":{\"type\":\"const_string\",\"value\":\"a\"}}",
         false,
         false,
         {"a"},
         {""}},
        {STRUCTURED_STRUCTURAL_TAG,
         "\"{\\\"format\\\":{\\\"type\\\":\\\"const_string\\\",\\\"value\\\":\\\"a\\\"}}\"",
         false,
         false,
         {"a"},
         {""}},
    };
    struct fixture f;
    setup(&f, SIZE_MAX);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct structured s = form(cases[i].kind, cases[i].value);
        s.disable_any_whitespace = cases[i].disable_any_whitespace;
        s.disable_additional_properties = cases[i].disable_additional_properties;
        check_form(&f, &s, &cases[i]);
        give_back(&s);
    }
    teardown(&f);
}

/* A property may be called as a keyword is. */
static void test_disable_additional_properties(void **state)
{
    (void)state;
    static const struct form_case cases[] = {
        {STRUCTURED_JSON,
         "{\"type\":\"object\",\"properties\":{\"properties\":{\"type\":\"object\",\"properties\":{\"x\":{}}}},"
         "\"required\":[\"properties\"]}",
         true,
         true,
         {"{\"properties\": {\"x\": 1}}", "{\"properties\": {}}"},
         {"{\"properties\": {\"y\": 1}}", "{\"properties\": {}, \"additionalProperties\": 1}"}},
        {STRUCTURED_JSON,
         "{\"$defs\":{\"d\":{\"type\":\"object\",\"properties\":{\"x\":{}}}},\"type\":\"array\","
         "\"items\":{\"anyOf\":[{\"$ref\":\"#/$defs/d\"},{\"type\":\"object\",\"properties\":{},"
         "\"additionalProperties\":true,\"required\":[\"z\"]}]}}",
         true,
         true,
         {"[]", "[{\"x\": 1}, {\"z\": 1}]"},
         {"[{\"y\": 1}]"}},
    };
    struct fixture f;
    setup(&f, SIZE_MAX);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct structured s = form(cases[i].kind, cases[i].value);
        s.disable_any_whitespace = s.disable_additional_properties = true;
        check_form(&f, &s, &cases[i]);
        give_back(&s);
    }
    teardown(&f);
}

static void test_thoughts(void **state)
{
    (void)state;
    static const char *const begins[] = {"<think>", NULL}, *const ends[] = {"</think>", "</t>", NULL};
    static const struct form_case optional = {STRUCTURED_CHOICE,
                                              "[\"yes\"]",
                                              false,
                                              false,
                                              {"yes", "<think>a < b</think>\n\nyes", "<think></t>yes"},
                                              {"", "x</think>yes", "<think>yes", "<think></think></think>yes", " yes"}};
    static const struct form_case open = {STRUCTURED_CHOICE,
                                          "[\"yes\"]",
                                          false,
                                          false,
                                          {"</think>yes", "yes</t>\n  yes"},
                                          {"yes", "<think>yes", "</think>no", "</think>\n\n\n\n\nyes"}};
    struct fixture f;
    setup(&f, SIZE_MAX);
    struct structured s = form(STRUCTURED_CHOICE, "[\"yes\"]");
    s.thought = (struct structured_thought){begins, ends, false};
    check_form(&f, &s, &optional);
    s.thought.is_open = true;
    check_form(&f, &s, &open);
    give_back(&s);
    teardown(&f);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        enum structured_kind kind;
        const char *value, *sentence;
    } refused[] = {
        {STRUCTURED_CHOICE, "[]", "it must be a list of strings that is not empty, found []"},
        {STRUCTURED_CHOICE, "\"a\"", "it must be a list of strings that is not empty, found \"a\""},
        {STRUCTURED_CHOICE, "[\"a\", 1]", "[1] must be a string of whole characters without U+0000, found 1"},
        {STRUCTURED_REGEX, "1", "it must be a string of whole characters without U+0000, found 1"},
        {STRUCTURED_GRAMMAR, "\"root ::= a\"", "line 1, column 10: 'a' is not defined"},
        {STRUCTURED_GRAMMAR, "\"start: a\"", "line 1, column 8: 'a' is not defined"},
        {STRUCTURED_STRUCTURAL_TAG, "[]", "a structural tag must be an object, found []"},
        {STRUCTURED_STRUCTURAL_TAG, "{}", "format: a format must be an object, found none"},
    };
    struct fixture f;
    setup(&f, SIZE_MAX);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct structured s = form(refused[i].kind, refused[i].value);
        struct constraint *constraint;
        struct error err = {""};
        assert_int_equal(structured_cache_get(f.cache, &s, &constraint, &err), STATUS_INVALID);
        assert_null(constraint);
        assert_string_equal(err.text, refused[i].sentence);
        give_back(&s);
    }
    teardown(&f);
}

/* ---- the cache ---- */

static struct constraint *get(struct fixture *f, enum structured_kind kind, const char *value)
{
    const struct structured s = form(kind, value);
    struct constraint *constraint;
    struct error err = {""};
    must(structured_cache_get(f->cache, &s, &constraint, &err), &err);
    give_back(&s);
    return constraint;
}

/* The same value in another spelling is found; another value, kind or option is not. */
static void test_cache(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, SIZE_MAX);
    struct constraint *first = get(&f, STRUCTURED_CHOICE, "[\"a\",  \"b\"]");
    struct constraint *same = get(&f, STRUCTURED_CHOICE, "[\"\\u0061\", \"b\"]");
    struct constraint *other = get(&f, STRUCTURED_CHOICE, "[\"b\", \"a\"]");
    struct constraint *regex = get(&f, STRUCTURED_REGEX, "\"a\"");
    struct constraint *grammar = get(&f, STRUCTURED_GRAMMAR, "\"root ::= \\\"a\\\"\"");
    assert_ptr_equal(first, same);
    assert_ptr_not_equal(first, other);
    assert_ptr_not_equal(regex, grammar);
    struct constraint *const all[] = {first, same, other, regex, grammar};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) constraint_free(all[i]);
    teardown(&f);
}

/* With no room the newest stays alone; one that an answer holds lives on. */
static void test_eviction(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 0);
    struct constraint *first = get(&f, STRUCTURED_REGEX, "\"a\"");
    struct constraint *second = get(&f, STRUCTURED_REGEX, "\"b\"");
    struct constraint *again = get(&f, STRUCTURED_REGEX, "\"b\"");
    assert_ptr_equal(second, again);
    struct constraint *anew = get(&f, STRUCTURED_REGEX, "\"a\"");
    assert_ptr_not_equal(first, anew);
    assert_true(accepts(first, f.vocabulary, "a"));
    assert_true(accepts(second, f.vocabulary, "b"));
    struct constraint *const all[] = {first, second, again, anew};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) constraint_free(all[i]);
    teardown(&f);
}

enum { NUM_THREADS = 4, NUM_ROUNDS = 50 };

struct user {
    pthread_t thread;
    struct fixture *fixture;
    bool failed;
};

/* Right values, the same for all threads, and wrong ones. cmocka's functions are for the main thread. */
static void *use_cache(void *argument)
{
    struct user *u = argument;
    for (int i = 0; i < NUM_ROUNDS; i++) {
        char pattern[32];
        struct constraint *constraint = NULL;
        struct matcher *m = NULL;
        struct error err;
        snprintf(pattern, sizeof pattern, i % 5 == 4 ? "(x%d" : "x{%d}", i % 7 + 1);
        json_t *value = json_string(pattern);
        const struct structured s = {.kind = STRUCTURED_REGEX, .value = value};
        const enum status status = structured_cache_get(u->fixture->cache, &s, &constraint, &err);
        if (status != (i % 5 == 4 ? STATUS_INVALID : STATUS_OK)) u->failed = true;
        if (constraint && matcher_create(constraint, false, &m, &err) != STATUS_OK) u->failed = true;
        for (int k = 0; m && k < i % 7 + 1; k++) u->failed = u->failed || !matcher_accept(m, 'x');
        u->failed = u->failed || (m && !matcher_must_end(m));
        matcher_free(m);
        constraint_free(constraint);
        json_decref(value);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    for (size_t max_bytes = 0; max_bytes <= 1 << 20; max_bytes += 1 << 20) {
        struct fixture f;
        struct user users[NUM_THREADS];
        setup(&f, max_bytes);
        for (int i = 0; i < NUM_THREADS; i++) {
            users[i] = (struct user){.fixture = &f};
            assert_int_equal(pthread_create(&users[i].thread, NULL, use_cache, &users[i]), 0);
        }
        for (int i = 0; i < NUM_THREADS; i++) {
            pthread_join(users[i].thread, NULL);
            assert_false(users[i].failed);
        }
        teardown(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),    cmocka_unit_test(test_disable_additional_properties),
        cmocka_unit_test(test_thoughts), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cache),    cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
