/* Calls that must come (tool_format_force): random texts of each form's structural tag are answers whose parts are
 * calls, with arguments of the schema's types. The grammars are those of tests/support/plain_grammar.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/array.h"
#include "base/json_parse.h"
#include "base/json_value.h"
#include "base/random.h"
#include "runtime/prompts/answer_parser.h"
#include "tests/support/must.h"
#include "tests/support/plain_grammar.h"
#include "tokenizer/grammar/structured.h"

static const char TOOL_LIST[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"hint\":{\"type\":\"string\"},\"city\":{\"type\":\"string\"},\"unit\":{\"type\":\"string\",\"enum\":[\"C\",\"F\"]"
    "},"
    "\"days\":{\"type\":\"integer\"},\"list\":{\"type\":\"array\"},\"where\":{\"$ref\":\"#/$defs/place\"}},"
    "\"required\":[\"city\",\"days\"],\"$defs\":{\"place\":{\"type\":\"object\"}}}}},"
    "{\"name\":\"some\",\"input_schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{"
    "\"type\":"
    "\"string\"},\"c\":{\"type\":\"integer\"}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"clock\"}}]";

struct calls {
    int count;
    char name[32];
    struct text arguments, content;
    int seen[3]; /* of weather, some and clock */
};

static void check_type(const json_t *arguments, const char *key, bool is_right(const json_t *value))
{
    const json_t *value = json_object_get(arguments, key);
    if (value && !is_right(value)) fail_msg("%s has the wrong type", key);
}

static bool is_string(const json_t *value)
{
    return json_is_string(value);
}
static bool is_array(const json_t *value)
{
    return json_is_array(value);
}

static void check_call(struct calls *c)
{
    json_t *arguments;
    struct error err;
    must(json_object_parse(c->arguments.data, c->arguments.length, 0, c->name, &arguments, &err), &err);
    if (strcmp(c->name, "weather") == 0) {
        check_type(arguments, "hint", is_string);
        check_type(arguments, "city", is_string);
        check_type(arguments, "unit", is_string);
        check_type(arguments, "days", json_is_whole);
        check_type(arguments, "list", is_array);
        check_type(arguments, "where", json_is_map);
        assert_true(json_object_get(arguments, "city") && json_object_get(arguments, "days"));
        c->seen[0]++;
    } else if (strcmp(c->name, "some") == 0) {
        check_type(arguments, "a", json_is_whole);
        check_type(arguments, "b", is_string);
        c->seen[1]++;
    } else {
        assert_string_equal(c->name, "clock");
        c->seen[2]++;
    }
    json_decref(arguments);
    text_clear(&c->arguments);
    c->count++;
}

static void take(void *user, const struct answer_part *part)
{
    struct calls *c = user;
    if (part->kind == PART_CONTENT) text_append(&c->content, part->text, part->length);
    if (part->kind == PART_TOOL_CALL) snprintf(c->name, sizeof c->name, "%.*s", (int)part->length, part->text);
    if (part->kind == PART_TOOL_ARGUMENTS) text_append(&c->arguments, part->text, part->length);
    if (part->kind == PART_TOOL_END) check_call(c);
}

/* Reads a random text of the grammar; returns how many calls it has. */
static int read_text(const struct answer_format *format, const json_t *tools, const struct grammar *grammar,
                     struct random *random, struct calls *c)
{
    const struct answer_parser_options options = {.tools = format, .tool_list = tools};
    struct answer_parser *parser;
    struct error err;
    struct text text = {0};
    const int before = c->count;
    plain_grammar_draw(grammar, random, (size_t)random_between(random, 20, 400), &text);
    must(answer_parser_create(&options, take, c, &parser, &err), &err);
    assert_true(answer_parser_add(parser, text.data, text.length));
    assert_true(answer_parser_finish(parser));
    answer_parser_free(parser);
    if (c->count == before || c->content.length > 0) fail_msg("%s: %s", format->name, text.data);
    text_free(&text);
    return c->count - before;
}

static struct grammar *forced_grammar(const struct answer_format *format, const json_t *tools, const char *name)
{
    struct grammar *grammar;
    struct error err;
    json_t *tag;
    must(tool_format_force(format, tools, name, &tag, &err), &err);
    const struct structured structured = {.kind = STRUCTURED_STRUCTURAL_TAG, .value = tag};
    must(structured_grammar(&structured, &grammar, &err), &err);
    json_decref(tag);
    return grammar;
}

static void check_form(const struct answer_format *format, const json_t *tools, struct random *random)
{
    const bool has_one = strcmp(format->name, "kimi_k2") == 0 || strcmp(format->name, "openai") == 0;
    struct grammar *any = forced_grammar(format, tools, NULL), *one = forced_grammar(format, tools, "weather");
    struct calls c = {0};
    int most = 0;
    for (int round = 0; round < 200; round++) {
        const int count = read_text(format, tools, any, random, &c);
        if (count > most) most = count;
    }
    assert_int_equal(most > 1, !has_one);
    for (int k = 0; k < 3; k++) assert_true(c.seen[k] > 20);
    c.seen[0] = 0;
    for (int round = 0; round < 50; round++) assert_int_equal(read_text(format, tools, one, random, &c), 1);
    assert_int_equal(c.seen[0], 50);
    text_free(&c.arguments);
    text_free(&c.content);
    grammar_free(any);
    grammar_free(one);
}

static void test_forms(void **state)
{
    (void)state;
    const struct answer_format *format;
    struct random random = {11};
    json_t *tools = json_loads(TOOL_LIST, 0, NULL);
    for (int i = 0; (format = tool_format_at(i)); i++) check_form(format, tools, &random);
    json_decref(tools);
}

static void test_refused(void **state)
{
    (void)state;
    const struct answer_format *format = tool_format_find("hermes");
    struct error err;
    json_t *tools = json_loads(TOOL_LIST, 0, NULL), *out;
    assert_int_equal(tool_format_force(format, tools, "none", &out, &err), STATUS_INVALID);
    assert_string_equal(err.text, "tool none must be called, but it is none of the tools");
    assert_null(out);
    assert_int_equal(tool_format_force(format, NULL, NULL, &out, &err), STATUS_INVALID);
    assert_null(out);
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
