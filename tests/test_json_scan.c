/* base/json_scan.h: what is JSON and what is not, where a value ends, and depth. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/array.h"
#include "base/json_scan.h"
#include "base/json_value.h"
#include "base/random.h"

static void test_values(void **state)
{
    (void)state;
    static const char *const right[] = {"{}",
                                        "[]",
                                        " [1, 2] ",
                                        "{\"a\": {\"b\": [null]}}",
                                        "true",
                                        "false",
                                        "null",
                                        "0",
                                        "-0",
                                        "-12.50e+07",
                                        "1E5",
                                        "\"\"",
                                        "\"\\u00e4\\n\\/\"",
                                        "[[[]], {}]",
                                        "\t\n\r 1 ",
                                        "[\"\xc3\xa4\"]",
                                        "{\"\": 0}",
                                        "[1e-3,true]"};
    static const char *const wrong[] = {
        "",          " ",           "{",      "}",     "[1,]", "{\"a\":1,}", "{a:1}", "{\"a\" 1}", "01",      "-",
        "1.",        ".5",          "+1",     "1e",    "1e+",  "tru",        "truee", "'a'",       "\"a",     "\"\n\"",
        "\"\\x41\"", "\"\\u12g4\"", "[1}",    "{]",    "1 2",  "[1 2]",      "NaN",   "[] []",     "{\"a\"}", "nul",
        "-a",        ",",           "\"a\"b", "{1:2}", "[,1]", "{,}",        "1a",    "0x1"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        if (!json_scan_whole(right[i], strlen(right[i]))) fail_msg("refused: %s", right[i]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (json_scan_whole(wrong[i], strlen(wrong[i]))) fail_msg("taken: %s", wrong[i]);
}

/* Bytes up to and with the one that ends a value; 0: none does. */
static size_t end_of(const char *text)
{
    struct json_scan s = {0};
    for (size_t i = 0; text[i]; i++) {
        const enum json_scan_result result = json_scan_add(&s, text[i]);
        if (result == JSON_SCAN_END) return i + 1;
        if (result == JSON_SCAN_WRONG) return 0;
    }
    return 0;
}

static void test_end(void **state)
{
    (void)state;
    assert_int_equal(end_of("{\"a\": \"}\"}}"), 10);
    assert_int_equal(end_of("[[], [1]] x"), 9);
    assert_int_equal(end_of(" \"a\\\"b\"\""), 7);
    assert_int_equal(end_of("null,"), 4);
    assert_int_equal(end_of("12"), 0);
    assert_int_equal(end_of("{\"a\": 1"), 0);
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * JSON_SCAN_MAX_DEPTH + 2];
    for (int extra = 0; extra < 2; extra++) {
        const int depth = JSON_SCAN_MAX_DEPTH + extra;
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        assert_int_equal(json_scan_whole(text, 2 * (size_t)depth), extra == 0);
    }
}

/* Damaged JSON is JSON if jansson reads it, too. */
static void test_against_jansson(void **state)
{
    (void)state;
    static const char source[] = "{\"a\": [1, -2.5e3, true, null, \"x\\u0041\\n\"], \"b\": {\"c\": {}, \"d\": [[]]}}";
    struct random random = {5};
    int taken = 0;
    for (int round = 0; round < 20000; round++) {
        char text[sizeof source];
        memcpy(text, source, sizeof source);
        for (int64_t n = random_between(&random, 1, 2); n > 0; n--) {
            const int64_t at = random_between(&random, 0, sizeof source - 2);
            text[at] = source[random_between(&random, 0, sizeof source - 2)];
        }
        json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        if (json_scan_whole(text, strlen(text)) != (value != NULL)) fail_msg("%s", text);
        taken += value != NULL;
        json_decref(value);
    }
    assert_true(taken > 1000 && taken < 19000);
}

static void test_escaped(void **state)
{
    (void)state;
    struct text out = {0};
    assert_true(json_append_escaped(&out, "a\"\\\n\t\r\b\f\v\0\x1f\xc3\xa4/", 14));
    assert_string_equal(out.data, "a\\\"\\\\\\n\\t\\r\\b\\f\\u000b\\u0000\\u001f\xc3\xa4/");
    text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),          cmocka_unit_test(test_end),     cmocka_unit_test(test_depth),
        cmocka_unit_test(test_against_jansson), cmocka_unit_test(test_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
