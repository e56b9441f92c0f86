/* JSON objects and their typed reader: strict parsing, ranges, the sticky first failure, and messages that name the
 * source and the key. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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
    refuse_text("{\"a\":1,}", 8, 0, "file.json", "file.json: not valid JSON at line 1, column 8");
    refuse_text("{\n\"a\" 1}", 8, 0, NULL, "not valid JSON at line 2");
    refuse_text("[]", 2, 0, "file.json", "file.json: expected a JSON object");
    refuse_text("{} x", 4, 0, "file.json", "not valid JSON");
    refuse_text("", 0, 0, "file.json", "not valid JSON");
    refuse_text("{\"a\":\"\xff\"}", 9, 0, "file.json", "not valid JSON");
    refuse_text("{\"a\":1e999}", 11, 0, "file.json", "real number overflow");
    refuse_text("{\"a\":1,\"a\":1}", 13, JSON_REJECT_DUPLICATES, "file.json", "duplicate");
    refuse_text("{\"a\":\"\\u0000\"}", 14, 0, "file.json", "not valid JSON");
    json_t *object;
    assert_int_equal(json_object_parse("{\"a\":1,\"a\":2}", 13, 0, NULL, &object, NULL), STATUS_OK);
    assert_int_equal(json_integer_value(json_object_get(object, "a")), 2);
    json_decref(object);
    assert_int_equal(json_object_parse("{\"a\":\"\\u0000\"}", 14, JSON_ALLOW_NUL, NULL, &object, NULL), STATUS_OK);
    json_decref(object);
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
    assert_int_equal(json_object_read(path, 0, &object, &err), STATUS_IO);
    temp_folder_write_string(&folder, "a.json", "");
    assert_int_equal(json_object_read(path, 0, &object, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "a.json: the file is empty"));
    temp_folder_write_string(&folder, "a.json", "{\"a\": 1}");
    assert_int_equal(json_object_read(path, 0, &object, &err), STATUS_OK);
    json_decref(object);
    temp_folder_remove(&folder);
}

static void test_values(void **state)
{
    (void)state;
    json_t *object =
        parse("{\"i\": 7, \"big\": 9007199254740993, \"x\": 0.5, \"b\": true, \"s\": \"text\", \"null\": null}");
    struct error err = {""};
    struct json_reader r = json_reader(object, "file.json", &err);
    assert_int_equal(json_reader_int(&r, "i", -1, 7, 7), 7);
    assert_int_equal(json_reader_require_int(&r, "i", 0, 10), 7);
    assert_true(json_reader_int64(&r, "big", 0, INT64_MIN, INT64_MAX) == 9007199254740993);
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
    json_t *object = parse("{\"s\": \"text\", \"i\": 12, \"x\": 1.5}");
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
        cmocka_unit_test(test_parse),    cmocka_unit_test(test_read_file), cmocka_unit_test(test_values),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_shown),     cmocka_unit_test(test_first_failure_sticks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
