#include "tokenizer/grammar/gbnf.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/grammar/grammar_source.h"

/* Blanks, newlines and comments. A rule ends where the next begins, so newlines say nothing. */
static void skip_blanks(struct grammar_source *s)
{
    while (!grammar_source_at_end(s)) {
        const char c = grammar_source_peek(s, 0);
        if (c == '#')
            while (!grammar_source_at_end(s) && grammar_source_peek(s, 0) != '\n') s->at++;
        else if (c == ' ' || c == '\t' || c == '\r' || c == '\n')
            s->at++;
        else
            return;
    }
}

static size_t name_length(const struct grammar_source *s)
{
    size_t length = 0;
    for (char c; (c = grammar_source_peek(s, length)) != '\0'; length++) {
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9') && c != '-' && c != '_') break;
    }
    return length;
}

/* "NAME ::=" stands here. */
static bool rule_begins(const struct grammar_source *s)
{
    struct grammar_source ahead = *s;
    ahead.at += name_length(s);
    if (ahead.at == s->at) return false;
    skip_blanks(&ahead);
    return grammar_source_take(&ahead, "::=");
}

/* A character of a literal or a class. */
static uint32_t read_character(struct grammar_source *s)
{
    static const struct grammar_escapes escapes = {"nrt", "\n\r\t", "\\\"[]-^'"};
    return grammar_source_take(s, "\\") ? grammar_source_escape(s, &escapes) : grammar_source_character(s);
}

static grammar_node read_literal(struct grammar_source *s, size_t place)
{
    struct text bytes = {0};
    char spelled[4];
    while (!grammar_source_at_end(s) && grammar_source_peek(s, 0) != '"')
        if (!text_append(&bytes, spelled, utf8_write(read_character(s), spelled))) grammar_source_no_memory(s);
    if (!grammar_source_take(s, "\"")) grammar_source_fail(s, place, STATUS_INVALID, "a literal has no second '\"'");
    const grammar_node node = grammar_bytes(s->builder, bytes.data ? bytes.data : "", bytes.length);
    text_free(&bytes);
    return node;
}

/* ---- classes of characters ---- */

struct ranges {
    struct character_range *list; /* [count] */
    size_t count, capacity;
};

static void add_range(struct grammar_source *s, struct ranges *ranges, uint32_t first, uint32_t last)
{
    if (array_reserve(&ranges->list, &ranges->capacity, ranges->count + 1, sizeof *ranges->list))
        ranges->list[ranges->count++] = (struct character_range){first, last};
    else
        grammar_source_no_memory(s);
}

static int compare_first(const void *a, const void *b)
{
    const uint32_t x = ((const struct character_range *)a)->first, y = ((const struct character_range *)b)->first;
    return (x > y) - (x < y);
}

/* All characters that are in none of the ranges. */
static struct ranges complement(struct grammar_source *s, struct ranges *ranges)
{
    struct ranges out = {0};
    uint32_t next = 0;
    qsort(ranges->list, ranges->count, sizeof *ranges->list, compare_first);
    for (size_t i = 0; i < ranges->count; i++) {
        if (ranges->list[i].first > next) add_range(s, &out, next, ranges->list[i].first - 1);
        if (ranges->list[i].last >= next) next = ranges->list[i].last + 1;
    }
    if (next <= 0x10FFFF) add_range(s, &out, next, 0x10FFFF);
    return out;
}

static void read_ranges(struct grammar_source *s, struct ranges *out)
{
    const size_t place = s->at;
    while (!grammar_source_at_end(s) && grammar_source_peek(s, 0) != ']') {
        const size_t at = s->at;
        const uint32_t first = read_character(s);
        uint32_t last = first;
        if (grammar_source_peek(s, 0) == '-' && grammar_source_peek(s, 1) != ']') {
            s->at++;
            last = read_character(s);
        }
        if (last < first) grammar_source_fail(s, at, STATUS_INVALID, "a range of characters is empty");
        add_range(s, out, first, last);
    }
    if (out->count == 0) grammar_source_fail(s, place, STATUS_INVALID, "a class has no characters");
    if (!grammar_source_take(s, "]")) grammar_source_fail(s, place, STATUS_INVALID, "a class has no ']'");
}

static grammar_node read_class(struct grammar_source *s)
{
    struct ranges ranges = {0}, others = {0};
    const bool negated = grammar_source_take(s, "^");
    read_ranges(s, &ranges);
    if (negated && s->status == STATUS_OK) others = complement(s, &ranges);
    const struct ranges *chosen = negated ? &others : &ranges;
    const grammar_node node = s->status == STATUS_OK
                                  ? grammar_characters(s->builder, chosen->list, (int32_t)chosen->count)
                                  : grammar_never(s->builder);
    free(ranges.list);
    free(others.list);
    return node;
}

/* ---- rules ---- */

static grammar_node read_alternatives(struct grammar_source *s);

static grammar_node read_group(struct grammar_source *s, size_t place)
{
    if (!grammar_source_enter(s, place)) return grammar_never(s->builder);
    const grammar_node node = read_alternatives(s);
    if (!grammar_source_take(s, ")")) grammar_source_expected(s, "')'");
    grammar_source_leave(s);
    return node;
}

static grammar_node read_item(struct grammar_source *s)
{
    static const struct character_range any = {0, 0x10FFFF};
    const size_t place = s->at, length = name_length(s);
    if (length > 0) {
        s->at += length;
        return grammar_source_reference(s, place, length);
    }
    if (grammar_source_take(s, "\"")) return read_literal(s, place);
    if (grammar_source_take(s, "[")) return read_class(s);
    if (grammar_source_take(s, "(")) return read_group(s, place);
    if (grammar_source_take(s, ".")) return grammar_characters(s->builder, &any, 1);
    if (grammar_source_peek(s, 0) == '<' || (grammar_source_peek(s, 0) == '!' && grammar_source_peek(s, 1) == '<'))
        grammar_source_fail(s, place, STATUS_UNSUPPORTED, "quire does not support tokens in a grammar");
    grammar_source_expected(s, "a rule's name, '\"', '[', '(' or '.'");
    return grammar_never(s->builder);
}

/* {m}, {m,} or {m,n}, behind the brace. */
static grammar_node read_counts(struct grammar_source *s, size_t place, grammar_node item)
{
    skip_blanks(s);
    const int32_t least = grammar_source_count(s);
    int32_t most = least;
    skip_blanks(s);
    if (grammar_source_take(s, ",")) {
        skip_blanks(s);
        most = grammar_source_peek(s, 0) == '}' ? GRAMMAR_UNBOUNDED : grammar_source_count(s);
        skip_blanks(s);
    }
    if (!grammar_source_take(s, "}")) grammar_source_expected(s, "'}'");
    if (most != GRAMMAR_UNBOUNDED && most < least)
        grammar_source_fail(s, place, STATUS_INVALID, "a repetition has at least %d and at most %d", least, most);
    return s->status == STATUS_OK ? grammar_repeat(s->builder, item, least, most) : item;
}

static grammar_node read_repeated_item(struct grammar_source *s)
{
    grammar_node node = read_item(s);
    while (skip_blanks(s), !grammar_source_at_end(s)) {
        const size_t place = s->at;
        if (grammar_source_take(s, "*"))
            node = grammar_repeat(s->builder, node, 0, GRAMMAR_UNBOUNDED);
        else if (grammar_source_take(s, "+"))
            node = grammar_repeat(s->builder, node, 1, GRAMMAR_UNBOUNDED);
        else if (grammar_source_take(s, "?"))
            node = grammar_repeat(s->builder, node, 0, 1);
        else if (grammar_source_take(s, "{"))
            node = read_counts(s, place, node);
        else
            break;
    }
    return node;
}

static grammar_node read_sequence(struct grammar_source *s)
{
    struct grammar_list parts = {0};
    while (skip_blanks(s), !grammar_source_at_end(s)) {
        const char c = grammar_source_peek(s, 0);
        if (c == '|' || c == ')' || rule_begins(s)) break;
        grammar_list_append(s, &parts, read_repeated_item(s));
    }
    return grammar_list_sequence(s, &parts);
}

static grammar_node read_alternatives(struct grammar_source *s)
{
    struct grammar_list alternatives = {0};
    do grammar_list_append(s, &alternatives, read_sequence(s));
    while (grammar_source_take(s, "|"));
    return grammar_list_choice(s, &alternatives);
}

static void read_rule(struct grammar_source *s)
{
    const size_t place = s->at, length = name_length(s);
    if (!rule_begins(s)) {
        grammar_source_expected(s, "a rule, NAME ::= ...");
        return;
    }
    s->at += length;
    skip_blanks(s);
    grammar_source_take(s, "::=");
    const grammar_node node = read_alternatives(s);
    grammar_source_define(s, place, length, node);
}

enum status gbnf_parse(const char *text, size_t length, struct grammar_builder *b, int32_t *root, struct error *err)
{
    struct grammar_source s;
    grammar_source_begin(&s, text, length, b, err);
    while (skip_blanks(&s), !grammar_source_at_end(&s)) read_rule(&s);
    *root = grammar_source_root(&s, "root");
    grammar_source_end(&s);
    return s.status;
}
