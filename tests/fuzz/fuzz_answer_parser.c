/* Answers with calls and thoughts. The input's first two lines are the names of the forms of both. The third has a "t"
 * if the tools are known and an "o" if the prompt began a thought; its length cuts the answer, which is the rest. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json_scan.h"
#include "base/utf8.h"
#include "runtime/prompts/answer_parser.h"
#include "tests/fuzz/fuzz.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"string\"},"
    "\"b\":{\"type\":\"integer\"},\"c\":{\"anyOf\":[{\"type\":\"array\"},{\"type\":\"null\"}]},\"d\":{\"type\":"
    "\"object\"},"
    "\"e\":{\"type\":\"boolean\"},\"f\":{\"type\":\"number\"}}}}},{\"name\":\"g\"}]";

/* The parts as one text, in which pieces of a part are joined. */
struct parts {
    struct text shown, arguments;
    int kind;
    int32_t num_tools;
    bool in_call, is_utf8;
};

/* Arguments grow as JSON does, whatever the model writes. */
static void check_arguments(struct parts *p)
{
    struct json_scan scan = {0};
    for (size_t i = 0; i < p->arguments.length; i++)
        fuzz_require(json_scan_add(&scan, p->arguments.data[i]) != JSON_SCAN_WRONG, "arguments that are no JSON");
    fuzz_require(p->arguments.length == 0 || p->arguments.data[0] == '{', "arguments that are no object");
    const size_t valid = utf8_valid_prefix(p->arguments.data, p->arguments.length);
    fuzz_require(!p->is_utf8 || valid == p->arguments.length, "arguments that are not UTF-8");
    text_clear(&p->arguments);
}

static void take(void *user, const struct answer_part *part)
{
    struct parts *p = user;
    const bool of_call = part->kind == PART_TOOL_ARGUMENTS || part->kind == PART_TOOL_END;
    fuzz_require(of_call == p->in_call, "a part of a call outside of it, or another inside");
    fuzz_require(part->length > 0 || part->kind == PART_TOOL_END, "an empty part");
    if (part->kind == PART_TOOL_CALL) p->num_tools++;
    fuzz_require(part->kind < PART_TOOL_CALL || part->tool == p->num_tools - 1, "calls are not counted");
    if (part->kind == PART_TOOL_ARGUMENTS) text_append(&p->arguments, part->text, part->length);
    if (part->kind == PART_TOOL_END) check_arguments(p);
    p->in_call = part->kind == PART_TOOL_CALL || part->kind == PART_TOOL_ARGUMENTS;
    if ((int)part->kind != p->kind) text_append(&p->shown, (char[]){'\0', (char)part->kind}, 2);
    p->kind = (int)part->kind;
    text_append(&p->shown, part->text, part->length);
    if (part->id) text_append_string(&p->shown, part->id);
}

/* Pieces of 1 to `most` bytes. */
static void parse(const struct answer_parser_options *options, struct fuzz_part text, size_t most, struct parts *parts)
{
    struct answer_parser *parser;
    struct error err;
    *parts = (struct parts){.kind = -1, .is_utf8 = utf8_valid_prefix(text.bytes, text.length) == text.length};
    fuzz_require(answer_parser_create(options, take, parts, &parser, &err) == STATUS_OK, err.text);
    for (size_t at = 0, size = most; at < text.length; size = size % most + 1) {
        const size_t left = text.length - at, piece = size < left ? size : left;
        fuzz_require(answer_parser_add(parser, text.bytes + at, piece), "no memory");
        at += piece;
    }
    fuzz_require(answer_parser_finish(parser), "no memory");
    fuzz_require(!parts->in_call, "a call without an end");
    fuzz_require(answer_parser_num_tools(parser) == parts->num_tools, "calls that were not given");
    answer_parser_free(parser);
}

static void parts_free(struct parts *p)
{
    text_free(&p->shown);
    text_free(&p->arguments);
}

/* A form of the name in the next line; NULL: there is none. */
static const struct answer_format *read_format(struct fuzz_part *rest,
                                               const struct answer_format *find(const char *name))
{
    char *name = fuzz_string(fuzz_split(rest, '\n'));
    const struct answer_format *format = find(name);
    free(name);
    return format;
}

static bool has_flag(struct fuzz_part flags, char flag)
{
    return flags.length > 0 && memchr(flags.bytes, flag, flags.length);
}

static bool is_same(const struct text *a, const struct text *b)
{
    return a->length == b->length && (a->length == 0 || memcmp(a->data, b->data, a->length) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_part text = {(const char *)data, size};
    struct answer_parser_options options = {.tools = read_format(&text, tool_format_find)};
    options.reasoning = read_format(&text, reasoning_format_find);
    const struct fuzz_part flags = fuzz_split(&text, '\n');
    json_t *list = json_loads(tools, 0, NULL);
    fuzz_require(list != NULL, "no memory");
    options.in_reasoning = has_flag(flags, 'o');
    if (has_flag(flags, 't')) options.tool_list = list;
    struct parts whole, bytes, pieces;
    parse(&options, text, text.length + 1, &whole);
    parse(&options, text, 1, &bytes);
    parse(&options, text, flags.length % 64 + 1, &pieces);
    fuzz_require(is_same(&whole.shown, &bytes.shown) && is_same(&whole.shown, &pieces.shown),
                 "the parts depend on the pieces");
    parts_free(&whole);
    parts_free(&bytes);
    parts_free(&pieces);
    json_decref(list);
    return 0;
}
