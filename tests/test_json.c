/* JSON text to values and back: what Python's json module reads, and where the text is wrong. The typed reader: ranges,
 * the sticky first failure, and messages that name the source and the key. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "tests/support/temp_folder.h"

static json_t *parse(const char *text)
{
    json_t *object;
    struct error err = {""};
    if (json_object_parse(text, strlen(text), JSON_REJECT_DUPLICATES, "file.json", &object, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return object;
}

static void refuse_text(const char *bytes, size_t length, size_t flags, const char *source, const char *words)
{
    json_t *object;
    struct error err = {""};
    assert_int_equal(json_object_parse(bytes, length, flags, source, &object, &err), STATUS_INVALID);
    assert_null(object);
    if (!strstr(err.text, words)) fail_msg("expected \"%s\", found: %s", words, err.text);
}

static void test_parse(void **state)
{
    (void)state;
    json_decref(parse(" {\"a\": [1, {\"b\": null}]}\n"));
    refuse_text("{\"a\":1,}", 8, 0, "file.json",
                "file.json: not valid JSON at line 1, column 8: expected a key in double quotes, found '}'");
    refuse_text("{\n\"a\" 1}", 8, 0, NULL, "not valid JSON at line 2, column 5: expected ':', found '1'");
    refuse_text("[]", 2, 0, "file.json", "file.json: expected a JSON object");
    refuse_text("{} x", 4, 0, NULL, "not valid JSON at column 4: expected the end, found 'x'");
    refuse_text("", 0, 0, NULL, "not valid JSON at column 1: expected a value, but the text ends; is it cut short?");
    refuse_text("7", 1, 0, NULL, "expected a JSON object {...}, found 7");
    refuse_text("{\"a\":\"\xff\"}", 9, 0, NULL, "not valid JSON at column 7: a byte that is not UTF-8");
    refuse_text("{\"\u00e9\":x}", 8, 0, NULL, "column 6: expected a value, found 'x'");
    refuse_text("\xef\xbb\xbf{\"a\":None}", 13, 0, NULL, "column 6: expected a value, found 'None'");
    refuse_text("[NaN, 1e999,\n tru]", 17, 0, NULL, "line 2, column 2: expected a value, found 'tru'");
    refuse_text("[1 2]", 5, 0, NULL, "column 4: expected ',' or ']', found '2'");
    refuse_text("[1, \"ab", 7, 0, NULL, "column 5: this string does not end; is the text cut short?");
    refuse_text("[1,", 3, 0, NULL, "column 4: expected a value, but the text ends; is it cut short?");
    refuse_text("{\"a\": \"\t\"}", 10, 0, NULL, "column 8: a control character in a string; write it as \\u0009");
    refuse_text("[\"a\\x\"]", 7, 0, NULL, "column 4: an escape is \\uXXXX or one of");
    refuse_text("{\"a\":1,\"a\":1}", 13, JSON_REJECT_DUPLICATES, NULL, "column 8: the key \"a\" is there twice");
    json_t *object;
    assert_int_equal(json_object_parse("{\"a\":1,\"a\":2}", 13, 0, NULL, &object, NULL), STATUS_OK);
    assert_int_equal(json_integer_value(json_object_get(object, "a")), 2);
    json_decref(object);
}

/* Objects and arrays inside each other, as deep as a value may be, and one level deeper. */
static void test_depth(void **state)
{
    (void)state;
    char text[2 * 2049];
    json_t *value;
    memset(text, '[', 2049);
    memset(text + 2049, ']', 2049);
    assert_int_equal(json_value_parse(text + 1, 2 * 2048, 0, NULL, &value, NULL), STATUS_OK);
    json_decref(value);
    struct error err;
    assert_int_equal(json_value_parse(text, 2 * 2049, 0, NULL, &value, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "more than 2048 objects and arrays inside each other"));
}

/* Whether quire's value is what Python wrote: a spelled number may be spelled in another way. */
static bool same(const json_t *a, const json_t *b)
{
    const char *key, *x = json_spelling(a), *y = json_spelling(b);
    json_t *value;
    bool equal = json_typeof(a) == json_typeof(b) && json_object_size(a) == json_object_size(b) &&
                 json_array_size(a) == json_array_size(b);
    if (x && y && (json_is_whole(a) || json_is_whole(b))) return strcmp(x, y) == 0;
    if (x && y) return strtod(x, NULL) == strtod(y, NULL) || (isnan(strtod(x, NULL)) && isnan(strtod(y, NULL)));
    if (!equal || (!json_is_object(a) && !json_is_array(a))) return equal && json_equal(a, b);
    json_object_foreach((json_t *)a, key, value) equal =
        equal && json_object_get(b, key) && same(value, json_object_get(b, key));
    for (size_t i = 0; i < json_array_size(a); i++) equal = equal && same(json_array_get(a, i), json_array_get(b, i));
    return equal;
}

static json_t *parse_any(const char *text, size_t length)
{
    json_t *value;
    struct error err;
    if (json_value_parse(text, length, JSON_DECODE_ANY, NULL, &value, &err) != STATUS_OK)
        fail_msg("%.*s: %s", (int)length, text, err.text);
    return value;
}

/* What is written of a value is read as the same value. */
static void check_written(const json_t *value, size_t flags)
{
    struct text text = {0};
    assert_true(json_append(&text, value, flags));
    json_t *again = parse_any(text.data, text.length);
    if (!json_equal(value, again)) fail_msg("written as %s", text.data);
    json_decref(again);
    text_free(&text);
}

/* `line` of json_cases.jsonl; returns whether Python reads it. */
static bool check_case(const char *line, size_t length)
{
    json_t *json = parse_any(line, length), *value, *wanted;
    const char *hex = json_string_value(json_object_get(json, "hex"));
    const char *python = json_string_value(json_object_get(json, "python"));
    char *bytes =
        malloc(strlen(hex) / 2 + 1); /* of that size, so that AddressSanitizer sees who reads behind the text */
    for (size_t i = 0; hex[2 * i]; i++) bytes[i] = (char)strtol((char[]){hex[2 * i], hex[2 * i + 1], '\0'}, NULL, 16);
    struct error err = {""};
    const enum status status = json_value_parse(bytes, strlen(hex) / 2, JSON_DECODE_ANY, NULL, &value, &err);
    if ((status == STATUS_OK) != !!python)
        fail_msg("%s: Python %s it; quire: %s", hex, python ? "reads" : "refuses", err.text);
    if (status != STATUS_OK) assert_non_null(strstr(err.text, "not valid JSON at "));
    if (python) {
        wanted = parse_any(python, strlen(python));
        if (!same(value, wanted)) fail_msg("%s: Python reads %s", hex, python);
        check_written(value, 0);
        check_written(value, JSON_INDENT(2) | JSON_COMPACT);
        json_decref(wanted);
        json_decref(value);
    }
    free(bytes);
    json_decref(json);
    return python != NULL;
}

static void test_python(void **state)
{
    (void)state;
    struct text file = {0};
    int read = 0, refused = 0;
    assert_int_equal(file_read(QUIRE_TEST_DATA "/json_cases.jsonl", &file, NULL), STATUS_OK);
    for (const char *at = file.data, *end; (end = strchr(at, '\n')) != NULL; at = end + 1)
        *(check_case(at, (size_t)(end - at)) ? &read : &refused) += 1;
    assert_true(read > 300 && refused > 300);
    text_free(&file);
}

static void check_text(const char *text, size_t flags, const char *wanted)
{
    struct text out = {0};
    json_t *value = parse_any(text, strlen(text));
    assert_true(text_append_string(&out, "before ") && json_append(&out, value, flags));
    assert_string_equal(out.data + 7, wanted);
    json_decref(value);
    text_free(&out);
}

/* A value is written as it was spelled, in jansson's layout. */
static void test_written(void **state)
{
    (void)state;
    check_text("{\"a\":[1,\"x\"]}", 0, "{\"a\": [1, \"x\"]}");
    check_text("{\"a\":[1e999,NaN,{},[],-0]}", 0, "{\"a\": [1e999, NaN, {}, [], 0]}");
    check_text("[12345678901234567890, {\"b\": -Infinity, \"c\": 0.5}]", JSON_COMPACT,
               "[12345678901234567890,{\"b\":-Infinity,\"c\":0.5}]");
    check_text("{\"a\": [NaN, 1], \"b\": {}}", JSON_INDENT(2), "{\n  \"a\": [\n    NaN,\n    1\n  ],\n  \"b\": {}\n}");
    check_text("[\"\\uD800\\n\u00e9\\ud83d\\ude00\"]", 0, "[\"\\ud800\\n\u00e9\U0001f600\"]");
    check_text("{\"\\udfff\\u0000\": NaN}", 0, "{\"\\udfff\\u0000\": NaN}");
    check_text("1e999", 0, "1e999");
}

static void test_read_file(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct error err;
    json_t *object;
    char path[512];
    temp_folder_make(&folder);
    snprintf(path, sizeof path, "%s/a.json", folder.path);
    assert_int_equal(json_object_read(path, &object, &err), STATUS_IO);
    temp_folder_write_string(&folder, "a.json", "");
    assert_int_equal(json_object_read(path, &object, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "a.json: the file is empty"));
    temp_folder_write_string(&folder, "a.json", "{\"a\": 1}");
    assert_int_equal(json_object_read(path, &object, &err), STATUS_OK);
    json_decref(object);
    temp_folder_remove(&folder);
}

static void test_values(void **state)
{
    (void)state;
    json_t *object = parse("{\"i\": 7, \"big\": 9007199254740993, \"x\": 0.5, \"b\": true, \"s\": \"text\", \"null\": "
                           "null, \"whole\": 5.0, "
                           "\"minus\": -9007199254740992.0}");
    struct error err = {""};
    struct json_reader r = json_reader(object, "file.json", &err);
    assert_int_equal(json_reader_int(&r, "i", -1, 7, 7), 7);
    assert_int_equal(json_reader_require_int(&r, "i", 0, 10), 7);
    assert_true(json_reader_int64(&r, "big", 0, INT64_MIN, INT64_MAX) == 9007199254740993);
    assert_int_equal(json_reader_int(&r, "whole", -1, 5, 5), 5);
    assert_int_equal(json_reader_int64(&r, "minus", 0, INT64_MIN, INT64_MAX), -0x20000000000000);
    assert_true(json_reader_number(&r, "x", 0, 0, 1) == 0.5 &&
                json_reader_number(&r, "i", 0, -INFINITY, INFINITY) == 7);
    assert_true(json_reader_require_number(&r, "x", 0, 1) == 0.5);
    assert_true(json_reader_bool(&r, "b", false));
    assert_string_equal(json_reader_string(&r, "s", NULL), "text");
    assert_int_equal(json_reader_int(&r, "null", -5, 0, 1), -5);
    assert_int_equal(json_reader_int(&r, "none", -5, 0, 1), -5);
    assert_true(isnan(json_reader_number(&r, "none", NAN, 0, 1)) && json_reader_bool(&r, "none", true));
    assert_string_equal(json_reader_string(&r, "none", "absent"), "absent");
    assert_true(json_reader_has(&r, "null") && !json_reader_has(&r, "none"));
    assert_null(json_reader_get(&r, "null"));
    assert_int_equal(r.status, STATUS_OK);
    json_decref(object);
}

/* Each reader on a key of the wrong type or range; the whole message. */
static void test_messages(void **state)
{
    (void)state;
    json_t *object = parse(
        "{\"s\": \"text\", \"i\": 12, \"x\": 1.5, \"half\": \"a\\ud800\", \"nul\": \"a\\u0000b\", "
        "\"even\": 12.0, \"wide\": 1e19, \"nan\": NaN, \"huge\": 1e999, \"big\": 1000000000000000019884624838656}");
    struct error err;
    struct json_reader r;
#define CHECK(call, message)                                                                                           \
    r = json_reader(object, "f", &err);                                                                                \
    (void)(call);                                                                                                      \
    assert_int_equal(r.status, STATUS_INVALID);                                                                        \
    assert_string_equal(err.text, message)
    CHECK(json_reader_int(&r, "s", 0, 1, 9), "f: s must be an integer from 1 to 9, found \"text\"");
    CHECK(json_reader_int(&r, "i", 0, 1, 9), "f: i must be an integer from 1 to 9, found 12");
    CHECK(json_reader_int64(&r, "x", 0, 0, INT64_MAX), "f: x must be an integer of 0 or more, found 1.5");
    CHECK(json_reader_int64(&r, "i", 0, INT64_MIN, 9), "f: i must be an integer of 9 or less, found 12");
    CHECK(json_reader_int64(&r, "x", 0, INT64_MIN, INT64_MAX), "f: x must be an integer, found 1.5");
    CHECK(json_reader_number(&r, "x", 0, 0, 1), "f: x must be a number from 0 to 1, found 1.5");
    CHECK(json_reader_number(&r, "x", 0, 2, INFINITY), "f: x must be a number of 2 or more, found 1.5");
    CHECK(json_reader_number(&r, "x", 0, -INFINITY, 1), "f: x must be a number of 1 or less, found 1.5");
    CHECK(json_reader_number(&r, "s", 0, -INFINITY, INFINITY), "f: s must be a number, found \"text\"");
    CHECK(json_reader_bool(&r, "i", true), "f: i must be true or false, found 12");
    CHECK(json_reader_string(&r, "i", NULL), "f: i must be a string, found 12");
    CHECK(json_reader_string(&r, "half", NULL),
          "f: half must be a string of whole characters without U+0000, found \"a\\ud800\"");
    CHECK(json_reader_string(&r, "nul", NULL),
          "f: nul must be a string of whole characters without U+0000, found \"a\\u0000b\"");
    CHECK(json_reader_int(&r, "nan", 0, 1, 9),
          "f: nan must be an integer from 1 to 9, found NaN; null stands for no value");
    CHECK(json_reader_number(&r, "nan", 0, -INFINITY, INFINITY),
          "f: nan must be a number, found NaN; null stands for no value");
    CHECK(json_reader_int64(&r, "even", 0, 0, 9), "f: even must be an integer from 0 to 9, found 12.0");
    CHECK(json_reader_int64(&r, "wide", 0, 0, INT64_MAX), "f: wide must be an integer of 0 or more, found 1e19");
    CHECK(json_reader_number(&r, "huge", 0, 0, INFINITY), "f: huge must be a number of 0 or more, found 1e999");
    CHECK(json_reader_int64(&r, "big", 0, INT64_MIN, INT64_MAX),
          "f: big must be an integer, found 1000000000000000019884624838656");
    CHECK(json_reader_bool(&r, "nan", false), "f: nan must be true or false, found NaN; null stands for no value");
    CHECK(json_reader_require_int(&r, "none", 1, 9), "f: the key none is missing; expected an integer");
    CHECK(json_reader_require_number(&r, "none", 0, 1), "f: the key none is missing; expected a number");
    CHECK(json_reader_to_int64(&r, "an id", json_object_get(object, "s"), 0, 9),
          "f: an id must be an integer from 0 to 9, found \"text\"");
    CHECK(json_reader_to_number(&r, "a value", NULL, 0, 1), "f: a value must be a number from 0 to 1, found nothing");
#undef CHECK
    r = json_reader(object, NULL, &err);
    r.prefix = "outer.";
    json_reader_bool(&r, "i", true);
    assert_string_equal(err.text, "outer.i must be true or false, found 12");
    json_decref(object);
}

static void test_first_failure_sticks(void **state)
{
    (void)state;
    json_t *object = parse("{\"a\": 1, \"b\": 2}");
    struct error err = {""};
    struct json_reader r = json_reader(object, "f", &err);
    json_reader_fail(&r, STATUS_UNSUPPORTED, "%s is not done", "a");
    assert_false(json_reader_bool(&r, "b", false));
    json_reader_fail(&r, STATUS_INTERNAL, "later");
    assert_int_equal(json_reader_int(&r, "a", 9, 0, 5), 9);
    assert_int_equal(r.status, STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "f: a is not done");
    r = json_reader(object, "f", NULL); /* nobody wants the sentence */
    json_reader_bool(&r, "b", false);
    assert_int_equal(r.status, STATUS_INVALID);
    json_decref(object);
}

static void test_shown(void **state)
{
    (void)state;
    char text[400];
    memset(text, 'a', sizeof text);
    text[399] = '\0';
    assert_int_equal(strlen(show_string(text).text), sizeof(struct shown) - 1);
    assert_non_null(strstr(show_string(text).text, "a..."));
    for (size_t i = 0; i + 1 < sizeof text; i++) text[i] = i % 2 ? '\xa4' : '\xc3';
    const struct shown shown = show_string(text);
    assert_int_equal((strlen(shown.text) - 3) % 2, 0); /* whole characters */
    assert_string_equal(show_string("a\nb\x7f").text, "a?b?");
    assert_string_equal(show_string(NULL).text, "");
    assert_string_equal(show_value(NULL).text, "");
    json_t *object = parse("{\"a\": [0.1, \"x\\ny\"]}");
    assert_string_equal(show_value(object).text, "{\"a\":[0.1,\"x\\ny\"]}");
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_depth),    cmocka_unit_test(test_python),    cmocka_unit_test(test_written),
        cmocka_unit_test(test_parse),    cmocka_unit_test(test_read_file), cmocka_unit_test(test_values),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_shown),     cmocka_unit_test(test_first_failure_sticks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
