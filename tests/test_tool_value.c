/* Values of arguments: Python's and Gemma's to JSON (runtime/prompts/literal.h), and text by the schema's types
 * (runtime/prompts/tool_value.h). */
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
#include "runtime/prompts/literal.h"
#include "runtime/prompts/tool_value.h"

/* ---- literals ---- */

static void check_literal(const char *python, const char *json)
{
    struct text out = {0};
    text_append_string(&out, "=");
    const bool whole = literal_whole(python, strlen(python), &out);
    if (whole != (json != NULL)) fail_msg("%s: %s", python, whole ? out.data : "refused");
    assert_string_equal(out.data + 1, json ? json : "");
    text_free(&out);
}

static void test_literals(void **state)
{
    (void)state;
    check_literal("[]", "[]");
    check_literal("{ }", "{}");
    check_literal("[1, -2.5, 1e3, True, False, None, true, null]", "[1, -2.5, 1e3, true, false, null, true, null]");
    check_literal("{'a': \"b\", \"c\": ('d',), }", "{\"a\": \"b\", \"c\": [\"d\"]}");
    check_literal("['it\\'s', \"a\\\"b\", '\"', '', \"\"]", "[\"it's\", \"a\\\"b\", \"\\\"\", \"\", \"\"]");
    check_literal("['''a'b\n''', \"\"\"\"c\"\"\"]", "[\"a'b\\n\", \"\\\"c\"]");
    check_literal("['\\n\\t\\\\\\x41\\101\\0\\u00e4\\U0001F600\\q\\\n']", "[\"\\n\\t\\\\AA\\u0000ä😀\\\\q\"]");
    check_literal("['\\ud83d\\ude00', '\\ud83d', '\\ude00x', '\\ud83d\\n']",
                  "[\"😀\", \"\xef\xbf\xbd\", \"\xef\xbf\xbdx\", \"\xef\xbf\xbd\\n\"]");
    check_literal("[[[{}]], [1]] ", "[[[{}]], [1]]");
    static const char *const wrong[] = {"",       "[",       "1",         "'a'",    "[1,,2]", "[,]",      "[1 2]",
                                        "{1: 2}", "{a: 1}",  "[a]",       "[01]",   "[1}",    "{'a'}",    "{'a' 1}",
                                        "[] []",  "(1",      "[f()]",     "[u'a']", "['a'b]", "['\\x4']", "[\"a]",
                                        "[]]",    "{'a': }", "['\\x4:']", "[1.]",   "[nan]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) check_literal(wrong[i], NULL);
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * LITERAL_MAX_DEPTH + 3];
    for (int extra = 0; extra < 2; extra++) {
        const int depth = LITERAL_MAX_DEPTH + extra;
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        check_literal(text, extra ? NULL : text);
    }
}

/* Words are held back, and so they have a longest. */
static void test_long_words(void **state)
{
    (void)state;
    for (size_t length = LITERAL_MAX_WORD - 1; length <= LITERAL_MAX_WORD; length++) {
        char text[LITERAL_MAX_WORD + 3] = "[";
        memset(text + 1, '1', length);
        strcpy(text + 1 + length, "]");
        check_literal(text, length < LITERAL_MAX_WORD ? text : NULL);
    }
}

/* A value in Gemma's form, which is a dict. */
static void check_gemma(const char *gemma, const char *json)
{
    struct text out = {0};
    struct literal l;
    enum literal_result result = LITERAL_MORE;
    literal_init(&l, "<|\"|>", &out);
    for (const char *at = gemma; *at && result == LITERAL_MORE; at++) result = literal_add(&l, *at);
    assert_int_equal(result, json ? LITERAL_END : LITERAL_WRONG);
    if (json) assert_string_equal(out.data, json);
    text_free(&out);
}

static void test_gemma(void **state)
{
    (void)state;
    check_gemma("{a:<|\"|>b<|<|\"c\"<|\"|>,d:1}", "{\"a\": \"b<|<|\\\"c\\\"\", \"d\": 1}");
    check_gemma("{<|\"|>a b<|\"|>:<|\"|><|\"|>,\"c\":\"d,e\"}", "{\"a b\": \"\", \"c\": \"d,e\"}");
    check_gemma("{a:New York ,b:[x,true,-1],c:{}}", "{\"a\": \"New York\", \"b\": [\"x\", true, -1], \"c\": {}}");
    check_gemma("{a}", NULL);
    check_gemma("{a:<|x", NULL);
    check_gemma("{a:[1}", NULL);
}

/* ---- types ---- */

static void check_types(const char *property, unsigned types)
{
    json_t *root = json_loads("{\"$defs\":{\"a\":{\"type\":\"array\"},\"loop\":{\"$ref\":\"#/$defs/loop\"}}}", 0, NULL);
    json_t *value = json_loads(property, 0, NULL);
    assert_non_null(value);
    assert_int_equal(tool_value_types(root, value), types);
    json_decref(value);
    json_decref(root);
}

static void test_types(void **state)
{
    (void)state;
    check_types("{}", 0);
    check_types("{\"type\":\"string\"}", TOOL_STRING);
    check_types("{\"type\":[\"integer\",\"null\"]}", TOOL_INTEGER | TOOL_NULL);
    check_types("{\"enum\":[1,\"a\",true,2.5,null,[],{}]}", 127);
    check_types("{\"const\":2}", TOOL_INTEGER);
    check_types("{\"anyOf\":[{\"type\":\"object\"},{\"oneOf\":[{\"type\":\"boolean\"}]}]}", TOOL_OBJECT | TOOL_BOOLEAN);
    check_types("{\"$ref\":\"#/$defs/a\"}", TOOL_ARRAY);
    check_types("{\"$ref\":\"#/$defs/loop\"}", 0);
    check_types("{\"$ref\":\"#/$defs/none/x\"}", 0);
    check_types("{\"type\":\"date\"}", TOOL_STRING);
    check_types("{\"type\":7,\"enum\":3}", 0);
}

static void check_value(unsigned types, const char *text, const char *json)
{
    struct text out = {0};
    assert_true(tool_value_append(&out, types, text, strlen(text)));
    assert_string_equal(out.data, json);
    text_free(&out);
}

static void test_values(void **state)
{
    (void)state;
    check_value(TOOL_STRING, " 5\n", "\" 5\\n\"");
    check_value(TOOL_INTEGER, " +007 ", "7");
    check_value(TOOL_INTEGER, "-0", "-0");
    check_value(TOOL_INTEGER, "99999999999999999999", "99999999999999999999");
    check_value(TOOL_INTEGER, "-", "\"-\"");
    check_value(TOOL_INTEGER, "1.5", "\"1.5\"");
    check_value(TOOL_NUMBER, "1.5e3", "1.5e3");
    check_value(TOOL_NUMBER, "nan", "\"nan\"");
    check_value(TOOL_BOOLEAN, "TRUE", "true");
    check_value(TOOL_BOOLEAN, "0", "false");
    check_value(TOOL_BOOLEAN, "yes", "\"yes\"");
    check_value(TOOL_NULL | TOOL_STRING, "Null", "null");
    check_value(TOOL_NULL | TOOL_STRING, "a", "\"a\"");
    check_value(TOOL_OBJECT, " {\"a\": 1} ", "{\"a\": 1}");
    check_value(TOOL_OBJECT, "{'a': None}", "{\"a\": null}");
    check_value(TOOL_OBJECT, "[1]", "\"[1]\"");
    check_value(TOOL_ARRAY, "[1, ", "\"[1, \"");
    check_value(TOOL_ARRAY | TOOL_STRING, "('a', 1)", "\"('a', 1)\"");
    check_value(0, "12", "12");
    check_value(0, "\"a\"", "\"a\"");
    check_value(0, "['a']", "[\"a\"]");
    check_value(0, "a \"b\"", "\"a \\\"b\\\"\"");
    check_value(0, "", "\"\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_literals), cmocka_unit_test(test_depth), cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_gemma),    cmocka_unit_test(test_types), cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
