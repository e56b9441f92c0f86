#include "tests/support/answer_parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_scan.h"
#include "tests/support/must.h"

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
        text_printf(&p->shown, "[%.*s%s%s ", (int)part->length, part->text, part->id ? "#" : "",
                    part->id ? part->id : "");
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

void parts_free(struct parts *p)
{
    text_free(&p->shown);
    text_free(&p->content);
    text_free(&p->arguments);
}

static const char TOOL_LIST[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"metric\":{\"type\":\"boolean\"},"
    "\"places\":{\"type\":\"array\"},\"where\":{\"$ref\":\"#/$defs/place\"},\"hint\":{\"type\":[\"string\",\"null\"]}},"
    "\"$defs\":{\"place\":{\"type\":\"object\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"clock\"}}]";

json_t *answer_tool_list(void)
{
    json_t *list = json_loads(TOOL_LIST, 0, NULL);
    assert_non_null(list);
    return list;
}

struct answer_parser *open_parser(const struct form *form, struct parts *parts)
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

void close_parser(struct answer_parser *parser, struct parts *parts)
{
    assert_true(answer_parser_finish(parser));
    assert_int_equal(answer_parser_num_tools(parser), parts->num_tools);
    assert_false(parts->in_call);
    if (parts->kind == PART_REASONING || parts->kind == PART_CONTENT) text_append_string(&parts->shown, ")");
    if (!parts->shown.data) text_append_string(&parts->shown, "");
    answer_parser_free(parser);
}

/* Gives the text in memory of its own, so that a sanitizer sees what is read behind it. */
void add_piece(struct answer_parser *parser, const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    memcpy(copy, text, length);
    assert_true(answer_parser_add(parser, copy, length));
    memset(copy, '!', length);
    free(copy);
}

void parse_answer(const struct form *form, const char *text, size_t length, size_t size, struct random *random,
                  struct parts *parts)
{
    struct answer_parser *parser = open_parser(form, parts);
    for (size_t at = 0; at < length;) {
        size_t piece = size ? size : 1 + (size_t)random_between(random, 0, 8);
        if (piece > length - at) piece = length - at;
        add_piece(parser, text + at, piece);
        at += piece;
    }
    close_parser(parser, parts);
}

void check_pieces(const struct form *form, const char *text, const char *expected, struct random *random)
{
    const size_t length = strlen(text);
    struct parts parts;
    for (size_t size = 1; size <= length + 8; size++) {
        parse_answer(form, text, length, size <= length ? size : 0, random, &parts);
        assert_string_equal(parts.shown.data, expected);
        parts_free(&parts);
    }
    for (size_t cut = 1; cut < length; cut++) {
        struct answer_parser *parser = open_parser(form, &parts);
        add_piece(parser, text, cut);
        add_piece(parser, text + cut, length - cut);
        close_parser(parser, &parts);
        assert_string_equal(parts.shown.data, expected);
        parts_free(&parts);
    }
}
