/* Calls that must come (tool_format_force): random texts of each form's structural tag are answers whose parts are
 * calls, with arguments of the schema's types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/array.h"
#include "base/random.h"
#include "runtime/prompts/answer_parser.h"
#include "tests/support/must.h"

/* ---- random texts of a structural tag ---- */

static void write_format(const json_t *format, struct random *random, struct text *out);

static const char *string_of(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    assert_non_null(value);
    return value;
}

static int64_t below(struct random *random, size_t count)
{
    assert_true(count > 0);
    return random_between(random, 0, (int64_t)count - 1);
}

/* A value of the types that the test's tools have. */
static json_t *value_of(const json_t *schema, const json_t *root, struct random *random)
{
    const json_t *constants = json_object_get(schema, "enum"), *properties = json_object_get(schema, "properties");
    const char *type = json_string_value(json_object_get(schema, "type")), *key;
    json_t *property;
    if (json_is_array(constants))
        return json_deep_copy(json_array_get(constants, below(random, json_array_size(constants))));
    if (json_object_get(schema, "$ref")) {
        assert_non_null(json_object_get(json_object_get(root, "$defs"), "place"));
        return json_pack("{s:[s,b]}", "p", "q, \"r\"", 1);
    }
    if (!type) return json_integer(random_between(random, -9, 9));
    if (strcmp(type, "integer") == 0) return json_integer(random_between(random, -99, 99));
    if (strcmp(type, "string") == 0) return json_string("a \"b\"\n{<c>}");
    if (strcmp(type, "array") == 0) return json_pack("[s,n,b]", "x'y", 0);
    assert_string_equal(type, "object");
    json_t *object = json_object();
    json_object_foreach((json_t *)properties, key, property)
        json_object_set_new(object, key, value_of(property, root, random));
    return object;
}

static void write_schema(const json_t *schema, struct random *random, struct text *out)
{
    json_t *value = value_of(schema, schema, random);
    char *dumped = json_dumps(value, JSON_ENCODE_ANY);
    text_append_string(out, dumped);
    free(dumped);
    json_decref(value);
}

static void write_elements(const json_t *list, struct random *random, struct text *out)
{
    assert_true(json_array_size(list) > 0);
    for (size_t i = 0; i < json_array_size(list); i++) write_format(json_array_get(list, i), random, out);
}

static void write_format(const json_t *format, struct random *random, struct text *out)
{
    const char *type = string_of(format, "type");
    const json_t *elements = json_object_get(format, "elements"), *content = json_object_get(format, "content");
    if (strcmp(type, "const_string") == 0)
        text_append_string(out, string_of(format, "value"));
    else if (strcmp(type, "json_schema") == 0)
        write_schema(json_object_get(format, "json_schema"), random, out);
    else if (strcmp(type, "sequence") == 0)
        write_elements(elements, random, out);
    else if (strcmp(type, "or") == 0)
        write_format(json_array_get(elements, below(random, json_array_size(elements))), random, out);
    else if (strcmp(type, "optional") == 0) {
        if (below(random, 2)) write_format(content, random, out);
    } else if (strcmp(type, "star") == 0) {
        while (below(random, 2)) write_format(content, random, out);
    } else {
        assert_string_equal(type, "tag");
        assert_string_equal(string_of(content, "type"), "any_text");
        text_append_string(out, string_of(format, "begin"));
        text_append_string(out, below(random, 2) ? "Köln, \"so\"\nor <so>" : "");
        text_append_string(out, string_of(format, "end"));
    }
}

/* ---- what is read from them ---- */

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
static bool is_integer(const json_t *value)
{
    return json_is_integer(value);
}
static bool is_array(const json_t *value)
{
    return json_is_array(value);
}
static bool is_object(const json_t *value)
{
    return json_is_object(value);
}

static void check_call(struct calls *c)
{
    json_t *arguments = json_loadb(c->arguments.data, c->arguments.length, 0, NULL);
    if (!json_is_object(arguments)) fail_msg("%s", c->arguments.data);
    check_type(arguments, "hint", is_string);
    check_type(arguments, "city", is_string);
    check_type(arguments, "unit", is_string);
    check_type(arguments, "days", is_integer);
    check_type(arguments, "list", is_array);
    check_type(arguments, "where", is_object);
    check_type(arguments, "a", is_integer);
    check_type(arguments, "b", is_string);
    if (strcmp(c->name, "weather") == 0)
        assert_true(json_object_get(arguments, "city") && json_object_get(arguments, "days"));
    c->seen[0] += strcmp(c->name, "weather") == 0;
    c->seen[1] += strcmp(c->name, "some") == 0;
    c->seen[2] += strcmp(c->name, "clock") == 0;
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

/* Reads a text of the tag. */
static int read_text(const struct answer_format *format, const json_t *tools, const json_t *tag, struct random *random,
                     struct calls *c)
{
    const struct answer_parser_options options = {.tools = format, .tool_list = tools};
    struct answer_parser *parser;
    struct error err;
    struct text text = {0};
    const int before = c->count;
    assert_string_equal(string_of(tag, "type"), "structural_tag");
    write_format(json_object_get(tag, "format"), random, &text);
    must(answer_parser_create(&options, take, c, &parser, &err), &err);
    assert_true(answer_parser_add(parser, text.data, text.length));
    assert_true(answer_parser_finish(parser));
    answer_parser_free(parser);
    if (c->count == before || c->content.length > 0) fail_msg("%s: %s", format->name, text.data);
    text_free(&text);
    return c->count - before;
}

static void test_forms(void **state)
{
    (void)state;
    const struct answer_format *format;
    struct random random = {11};
    json_t *tools = json_loads(TOOL_LIST, 0, NULL);
    for (int i = 0; (format = tool_format_at(i)); i++) {
        struct calls c = {0};
        struct error err;
        json_t *any, *one;
        int most = 0;
        must(tool_format_force(format, tools, NULL, &any, &err), &err);
        must(tool_format_force(format, tools, "weather", &one, &err), &err);
        for (int round = 0; round < 200; round++) {
            const int count = read_text(format, tools, any, &random, &c);
            if (count > most) most = count;
        }
        if (most < 2 && strcmp(format->name, "kimi_k2") != 0 && strcmp(format->name, "openai") != 0)
            fail_msg("%s has never two calls", format->name);
        for (int k = 0; k < 3; k++) assert_true(c.seen[k] > 20);
        c.seen[0] = 0;
        for (int round = 0; round < 50; round++) assert_int_equal(read_text(format, tools, one, &random, &c), 1);
        assert_int_equal(c.seen[0], 50);
        text_free(&c.arguments);
        text_free(&c.content);
        json_decref(any);
        json_decref(one);
    }
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
