/* normalizer.h: the text is that of tokenizers 0.23, marks follow their characters, other components are refused. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tokenizer/normalizer.h"

static struct normalizer *open_value(const json_t *value)
{
    struct normalizer *n;
    struct error err = {{0}};
    if (normalizer_open(value, "tokenizer.json", &n, &err)) fail_msg("%s", err.text);
    return n;
}

static struct normalizer *open_string(const char *json)
{
    json_t *value = json_loads(json, 0, NULL);
    assert_non_null(value);
    struct normalizer *n = open_value(value);
    json_decref(value);
    return n;
}

static void check_text(const struct normalizer *n, const json_t *text, const json_t *expected, const char *what)
{
    struct marked_text out = {{0}};
    assert_int_equal(normalizer_apply(n, json_string_value(text), NULL, json_string_length(text), &out, NULL),
                     STATUS_OK);
    if (out.text.length != json_string_length(expected) ||
        memcmp(out.text.data, json_string_value(expected), out.text.length) != 0)
        fail_msg("%s of %s: %s, expected %s", what, show_value(text).text, out.text.data, show_value(expected).text);
    assert_int_equal(out.marks.length, 0);
    marked_text_free(&out);
}

static void test_golden(void **state)
{
    (void)state;
    json_t *golden;
    struct error err;
    assert_int_equal(json_object_read(QUIRE_TEST_DATA "/normalizer.json", &golden, &err), STATUS_OK);
    const json_t *texts = json_object_get(golden, "texts"), *test_case;
    size_t index;
    assert_true(json_array_size(json_object_get(golden, "cases")) > 10);
    json_array_foreach(json_object_get(golden, "cases"), index, test_case)
    {
        const json_t *value = json_object_get(test_case, "normalizer");
        struct normalizer *n = open_value(value);
        for (size_t i = 0; i < json_array_size(texts); i++)
            check_text(n, json_array_get(texts, i), json_array_get(json_object_get(test_case, "expected"), i),
                       show_value(value).text);
        normalizer_close(n);
    }
    json_decref(golden);
}

static void test_identity(void **state)
{
    (void)state;
    struct normalizer *none = open_value(NULL), *empty = open_string("{\"type\": \"Sequence\", \"normalizers\": []}"),
                      *nfc = open_string("{\"type\": \"NFC\"}");
    assert_true(normalizer_is_identity(none));
    assert_true(normalizer_is_identity(empty));
    assert_false(normalizer_is_identity(nfc));
    normalizer_close(none);
    normalizer_close(empty);
    normalizer_close(nfc);
}

/* Marks are given and expected as a string of '.' and 'x', one for each byte. */
static void check_marks(const char *json, const char *text, const char *marks, const char *expected_text,
                        const char *expected_marks)
{
    struct normalizer *n = open_string(json);
    struct marked_text out = {{0}};
    char flags[64];
    size_t length = strlen(text);
    assert_int_equal(strlen(marks), length);
    for (size_t i = 0; i < length; i++) flags[i] = marks[i] == 'x';
    assert_int_equal(normalizer_apply(n, text, flags, length, &out, NULL), STATUS_OK);
    assert_string_equal(out.text.data, expected_text);
    assert_int_equal(out.marks.length, out.text.length);
    for (size_t i = 0; i < out.marks.length; i++) assert_int_equal(out.marks.data[i], expected_marks[i] == 'x');
    marked_text_free(&out);
    normalizer_close(n);
}

static void test_marks(void **state)
{
    (void)state;
    check_marks("{\"type\": \"NFC\"}", "abcd", ".xx.", "abcd", ".xx.");
    check_marks("{\"type\": \"NFC\"}", "ae\xcc\x81z", "..xx.", "a\xc3\xa9z", ".xx.");
    check_marks("{\"type\": \"NFD\"}", "a\xc3\xa9z", ".xx.", "ae\xcc\x81z", ".xxx.");
    check_marks("{\"type\": \"NFKC\"}", "<\xef\xbd\x9c>", ".xxx.", "<|>", ".x.");
    check_marks("{\"type\": \"Lowercase\"}", "AB\xc4\xb0", ".x..", "abi\xcc\x87", ".x...");
    check_marks("{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}", " ab ", "..xx", "ab", ".x");
    check_marks("{\"type\": \"StripAccents\"}", "e\xcc\x81z", "xxx.", "ez", "x.");
    check_marks("{\"type\": \"Prepend\", \"prepend\": \"__\"}", "ab", "xx", "__ab", "..xx");
    check_marks("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" +\"}, \"content\": \"__\"}", "a  b c", "..x...",
                "a__b__c", ".xx....");
}

static void check_refused(const char *json, enum status expected, const char *message)
{
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    struct normalizer *n;
    struct error err = {{0}};
    assert_non_null(value);
    enum status status = normalizer_open(value, "F.json", &n, &err);
    if (status != expected || !strstr(err.text, message) || strncmp(err.text, "F.json: ", 8) != 0)
        fail_msg("%s: status %d, %s", json, (int)status, err.text);
    assert_null(n);
    json_decref(value);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused("[]", STATUS_INVALID, "must be an object");
    check_refused("{\"type\": \"Precompiled\"}", STATUS_UNSUPPORTED, "Precompiled");
    check_refused("{\"type\": \"BertNormalizer\"}", STATUS_UNSUPPORTED, "BertNormalizer");
    check_refused("{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Nmt\"}]}",
                  STATUS_UNSUPPORTED, "Nmt");
    check_refused("{\"type\": \"Sequence\"}", STATUS_INVALID, "normalizers");
    check_refused("{\"type\": \"Strip\", \"strip_left\": true}", STATUS_INVALID, "strip_right");
    check_refused("{\"type\": \"Prepend\"}", STATUS_INVALID, "prepend");
    check_refused("{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}}", STATUS_INVALID, "content");
    check_refused("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(\"}, \"content\": \"\"}", STATUS_INVALID,
                  "without its )");
}

static void test_search_is_bounded(void **state)
{
    (void)state;
    struct normalizer *n =
        open_string("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(?:a|a|aa)+[bc]\"}, \"content\": \"\"}");
    struct marked_text out = {{0}};
    struct error err = {{0}};
    char text[100];
    memset(text, 'a', sizeof text);
    assert_int_equal(normalizer_apply(n, text, NULL, sizeof text, &out, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "given up"));
    marked_text_free(&out);
    normalizer_close(n);
}

/* 8 MB of combining marks behind one letter, in the wrong order: sorting them must not be quadratic. */
static void test_long_run_of_marks(void **state)
{
    (void)state;
    struct normalizer *n = open_string("{\"type\": \"NFC\"}");
    struct marked_text out = {{0}};
    struct text text = {0};
    assert_true(text_append_string(&text, "a"));
    for (int i = 0; i < 2000000; i++) assert_true(text_append_string(&text, "\xcc\x81\xcc\x96"));
    assert_int_equal(normalizer_apply(n, text.data, NULL, text.length, &out, NULL), STATUS_OK);
    assert_int_equal(out.text.length, text.length - 1); /* a and the first acute accent are one character of 2 bytes */
    assert_memory_equal(out.text.data, "\xc3\xa1\xcc\x96\xcc\x96", 6);
    text_free(&text);
    marked_text_free(&out);
    normalizer_close(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_search_is_bounded),
        cmocka_unit_test(test_long_run_of_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
