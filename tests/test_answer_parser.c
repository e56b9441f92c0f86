/* The parts of answers (runtime/prompts/answer_parser.h): an example of each form, and that the parts do not depend on
 * the pieces in which the text comes, nor are lost where it is damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json_scan.h"
#include "base/random.h"
#include "runtime/prompts/answer_parser.h"
#include "tests/support/must.h"

/* ---- parts as text ----
 *
 * "R(thought)C(content)" and for a call "[f" or "[f#id", its arguments, "]". Pieces of a part are joined. */

struct parts {
    struct text shown, content, arguments; /* content: all of it; arguments: of the last call */
    int kind;                              /* of the last part; -1: none */
    int32_t num_tools;
    bool in_call, calls_are_whole; /* the arguments of every call are JSON */
};

static void take(void *user, const struct answer_part *part)
{
    struct parts *p = user;
    const bool joins = (int)part->kind == p->kind;
    if (!joins && (p->kind == PART_REASONING || p->kind == PART_CONTENT)) text_append_string(&p->shown, ")");
    switch (part->kind) {
    case PART_REASONING:
    case PART_CONTENT:
        assert_false(p->in_call);
        assert_true(part->length > 0);
        if (!joins) text_append_string(&p->shown, part->kind == PART_CONTENT ? "C(" : "R(");
        text_append(&p->shown, part->text, part->length);
        if (part->kind == PART_CONTENT) text_append(&p->content, part->text, part->length);
        break;
    case PART_TOOL_CALL:
        assert_false(p->in_call);
        assert_true(part->length > 0);
        assert_int_equal(part->tool, p->num_tools++);
        text_printf(&p->shown, "[%.*s%s%s ", (int)part->length, part->text, part->id ? "#" : "", part->id ? part->id : "");
        p->in_call = true;
        break;
    case PART_TOOL_ARGUMENTS:
        assert_true(p->in_call && part->length > 0);
        assert_int_equal(part->tool, p->num_tools - 1);
        text_append(&p->shown, part->text, part->length);
        text_append(&p->arguments, part->text, part->length);
        break;
    case PART_TOOL_END:
        assert_true(p->in_call);
        assert_int_equal(part->tool, p->num_tools - 1);
        text_append_string(&p->shown, "]");
        p->calls_are_whole = p->calls_are_whole && json_scan_whole(p->arguments.data, p->arguments.length);
        text_clear(&p->arguments);
        p->in_call = false;
        break;
    }
    p->kind = part->kind;
}

static void parts_free(struct parts *p)
{
    text_free(&p->shown);
    text_free(&p->content);
    text_free(&p->arguments);
}

/* ---- parsing in pieces ---- */

struct form {
    const char *tools, *reasoning;
    const json_t *tool_list;
    bool in_reasoning;
};

static const char TOOL_LIST[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"metric\":{\"type\":\"boolean\"},"
    "\"places\":{\"type\":\"array\"},\"where\":{\"$ref\":\"#/$defs/place\"},\"hint\":{\"type\":[\"string\",\"null\"]}},"
    "\"$defs\":{\"place\":{\"type\":\"object\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"clock\"}}]";

static json_t *tool_list(void)
{
    json_t *list = json_loads(TOOL_LIST, 0, NULL);
    assert_non_null(list);
    return list;
}

static struct answer_parser *open_parser(const struct form *form, struct parts *parts)
{
    struct answer_parser_options options = {.tool_list = form->tool_list, .in_reasoning = form->in_reasoning};
    struct answer_parser *parser;
    struct error err;
    if (form->tools) assert_non_null(options.tools = tool_format_find(form->tools));
    if (form->reasoning) assert_non_null(options.reasoning = reasoning_format_find(form->reasoning));
    *parts = (struct parts){.kind = -1, .calls_are_whole = true};
    must(answer_parser_create(&options, take, parts, &parser, &err), &err);
    return parser;
}

static void close_parser(struct answer_parser *parser, struct parts *parts)
{
    assert_true(answer_parser_finish(parser));
    assert_int_equal(answer_parser_num_tools(parser), parts->num_tools);
    assert_false(parts->in_call);
    if (parts->kind == PART_REASONING || parts->kind == PART_CONTENT) text_append_string(&parts->shown, ")");
    if (!parts->shown.data) text_append_string(&parts->shown, "");
    answer_parser_free(parser);
}

/* Gives the text in memory of its own, so that a sanitizer sees what is read behind it. */
static void add(struct answer_parser *parser, const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    memcpy(copy, text, length);
    assert_true(answer_parser_add(parser, copy, length));
    memset(copy, '!', length);
    free(copy);
}

/* Pieces of `size` bytes; 0: of random sizes. */
static void parse(const struct form *form, const char *text, size_t length, size_t size, struct random *random,
                  struct parts *parts)
{
    struct answer_parser *parser = open_parser(form, parts);
    for (size_t at = 0; at < length;) {
        size_t piece = size ? size : 1 + random_below(random, 9);
        if (piece > length - at) piece = length - at;
        add(parser, text + at, piece);
        at += piece;
    }
    close_parser(parser, parts);
}
