#include "tokenizer/grammar/lark.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/json_value.h"
#include "base/utf8.h"
#include "tokenizer/grammar/grammar_form.h"
#include "tokenizer/grammar/grammar_source.h"
#include "tokenizer/grammar/lark_terminals.h"

struct lark {
    struct grammar_source source;
    /* What %ignore names may stand behind every terminal of a rule, and before the first. It may be said below the
     * rules, so that they refer to a rule for it. */
    int32_t ignored_rule;
    struct grammar_list ignored;
    bool in_terminal; /* what is read is a part of a terminal */
};

/* ---- blanks and names ---- */

static void skip_comment(struct grammar_source *s)
{
    while (!grammar_source_at_end(s) && grammar_source_peek(s, 0) != '\n') s->at++;
}

/* Blanks and comments, up to the end of the line; a backslash there joins it with the next. */
static void skip_inline(struct grammar_source *s)
{
    while (!grammar_source_at_end(s)) {
        const char c = grammar_source_peek(s, 0);
        if (c == '#' || (c == '/' && grammar_source_peek(s, 1) == '/'))
            skip_comment(s);
        else if (c == ' ' || c == '\t' || c == '\r')
            s->at++;
        else if (!grammar_source_take(s, "\\\n") && !grammar_source_take(s, "\\\r\n"))
            return;
    }
}

static void skip_blanks(struct grammar_source *s)
{
    do skip_inline(s);
    while (grammar_source_take(s, "\n"));
}

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

/* The name of a rule is written in small letters, that of a terminal in capitals. *is_terminal may be NULL. */
static size_t name_length(const struct grammar_source *s, bool *is_terminal)
{
    size_t length = 0;
    while (grammar_source_peek(s, length) == '_') length++;
    const char first = grammar_source_peek(s, length);
    if (!is_upper(first) && !is_lower(first)) return 0;
    for (char c; (c = grammar_source_peek(s, length)) != '\0'; length++)
        if (!(is_upper(first) ? is_upper(c) : is_lower(c)) && !(c >= '0' && c <= '9') && c != '_') break;
    if (is_terminal) *is_terminal = is_upper(first);
    return length;
}

/* Reads ".PRIORITY", which changes nothing in what texts there are. */
static void skip_priority(struct grammar_source *s)
{
    if (!grammar_source_take(s, ".")) return;
    if (!grammar_source_take(s, "-")) grammar_source_take(s, "+");
    grammar_source_count(s);
}

/* A definition or a directive stands here. */
static bool statement_begins(const struct grammar_source *s)
{
    struct error unread;
    struct grammar_source ahead = *s;
    ahead.err = &unread;
    if (grammar_source_peek(s, 0) == '%') return true;
    while (grammar_source_take(&ahead, "?") || grammar_source_take(&ahead, "!")) continue;
    const size_t length = name_length(&ahead, NULL);
    ahead.at += length;
    if (length > 0 && grammar_source_peek(&ahead, 1) != '.') skip_priority(&ahead);
    skip_inline(&ahead);
    return length > 0 && grammar_source_peek(&ahead, 0) == ':';
}

/* ---- terminals ---- */

static struct text read_string(struct lark *l, size_t place)
{
    static const struct grammar_escapes escapes = {"nrtf", "\n\r\t\f", "\\\""};
    struct grammar_source *s = &l->source;
    struct text out = {0};
    char spelled[4];
    while (!grammar_source_at_end(s) && !strchr("\"\n", grammar_source_peek(s, 0))) {
        const uint32_t c =
            grammar_source_take(s, "\\") ? grammar_source_escape(s, &escapes) : grammar_source_character(s);
        if (!text_append(&out, spelled, utf8_write(c, spelled))) grammar_source_no_memory(s);
    }
    if (!grammar_source_take(s, "\"")) grammar_source_fail(s, place, STATUS_INVALID, "a string has no second '\"'");
    return out;
}

static grammar_node any_case(struct lark *l, const struct text *text)
{
    struct grammar_source *s = &l->source;
    struct grammar_list characters = {0};
    for (size_t at = 0; at < text->length;) {
        const int32_t c = (int32_t)utf8_next(text->data + at, &at);
        const uint32_t lower = (uint32_t)utf8proc_tolower(c), upper = (uint32_t)utf8proc_toupper(c);
        const struct character_range cases[] = {{lower, lower}, {upper, upper}};
        grammar_list_append(s, &characters, grammar_characters(s->builder, cases, 2));
    }
    return grammar_list_sequence(s, &characters);
}

/* "a".."z", of which the first string has been read. */
static grammar_node read_range(struct lark *l, size_t place, const struct text *first)
{
    struct grammar_source *s = &l->source;
    struct text last = {0};
    struct character_range range = {0, 0};
    size_t first_length = 0, last_length = 0;
    skip_inline(s);
    if (grammar_source_take(s, "\""))
        last = read_string(l, place);
    else
        grammar_source_expected(s, "'\"'");
    if (first->length > 0) range.first = utf8_next(first->data, &first_length);
    if (last.length > 0) range.last = utf8_next(last.data, &last_length);
    const bool are_characters =
        first_length > 0 && first_length == first->length && last_length > 0 && last_length == last.length;
    if (!are_characters || range.last < range.first)
        grammar_source_fail(s, place, STATUS_INVALID, "a range must go from a character to a later one");
    text_free(&last);
    return grammar_characters(s->builder, &range, 1);
}

static grammar_node read_literal(struct lark *l, size_t place)
{
    struct grammar_source *s = &l->source;
    grammar_node node;
    struct text text = read_string(l, place);
    const bool ignore_case = grammar_source_take(s, "i");
    const size_t behind = s->at;
    skip_inline(s);
    if (!ignore_case && grammar_source_take(s, "..")) {
        node = read_range(l, place, &text);
    } else {
        s->at = behind;
        node = ignore_case ? any_case(l, &text) : grammar_bytes(s->builder, text.data ? text.data : "", text.length);
    }
    text_free(&text);
    return node;
}

/* The pattern's language, for a sentence about the grammar's byte `place`. */
static grammar_node pattern_node(struct lark *l, size_t place, const char *pattern, size_t length)
{
    struct grammar_source *s = &l->source;
    struct error err = {""};
    grammar_node node = grammar_never(s->builder);
    if (s->status != STATUS_OK) return node;
    const enum status status = grammar_pattern_node(pattern, length, s->builder, &node, &err);
    if (status != STATUS_OK) grammar_source_fail(s, place, status, "%s", err.text);
    return node;
}

/* Appends the pattern up to its second slash. */
static void read_pattern_text(struct grammar_source *s, struct text *out)
{
    bool has_memory = true;
    while (!grammar_source_at_end(s) && !strchr("/\n", grammar_source_peek(s, 0))) {
        const size_t from = s->at;
        if (grammar_source_take(s, "\\/")) {
            has_memory = has_memory && text_append(out, "/", 1);
            continue;
        }
        s->at += grammar_source_peek(s, 0) == '\\';
        grammar_source_character(s);
        has_memory = has_memory && text_append(out, s->text + from, s->at - from);
    }
    if (!has_memory) grammar_source_no_memory(s);
}

/* /PATTERN/flags, behind the first slash. u, Unicode, is always on. */
static grammar_node read_pattern(struct lark *l, size_t place)
{
    struct grammar_source *s = &l->source;
    struct text pattern = {0}, whole = {0};
    read_pattern_text(s, &pattern);
    if (!grammar_source_take(s, "/")) grammar_source_fail(s, place, STATUS_INVALID, "a pattern has no second '/'");
    for (char flag; (flag = grammar_source_peek(s, 0)) != '\0' && strchr("imslux", flag); s->at++) {
        if (strchr("mlx", flag))
            grammar_source_fail(s, s->at, STATUS_UNSUPPORTED, "quire does not support the flag %c of a pattern", flag);
        else if (flag != 'u' && !text_printf(&whole, "(?%c)", flag))
            grammar_source_no_memory(s);
    }
    if (!text_append(&whole, pattern.data ? pattern.data : "", pattern.length)) grammar_source_no_memory(s);
    const grammar_node node = pattern_node(l, place, whole.data ? whole.data : "", whole.length);
    text_free(&pattern);
    text_free(&whole);
    return node;
}

/* A terminal that stands in a rule may be followed by what is ignored. */
static grammar_node terminal(struct lark *l, grammar_node node)
{
    struct grammar_builder *b = l->source.builder;
    if (l->in_terminal) return node;
    const grammar_node parts[] = {node, grammar_reference(b, l->ignored_rule)};
    return grammar_sequence(b, parts, 2);
}

/* ---- rules ---- */

static grammar_node read_alternatives(struct lark *l);

static grammar_node read_group(struct lark *l, size_t place, const char *end)
{
    struct grammar_source *s = &l->source;
    if (!grammar_source_enter(s, place)) return grammar_never(s->builder);
    const grammar_node node = read_alternatives(l);
    if (!grammar_source_take(s, end)) grammar_source_expected(s, *end == ')' ? "')'" : "']'");
    grammar_source_leave(s);
    return node;
}

static grammar_node read_reference(struct lark *l, size_t length, bool is_terminal)
{
    struct grammar_source *s = &l->source;
    const size_t place = s->at;
    s->at += length;
    if (grammar_source_peek(s, 0) == '{')
        grammar_source_fail(s, place, STATUS_UNSUPPORTED, "quire does not support templates");
    if (l->in_terminal && !is_terminal)
        grammar_source_fail(s, place, STATUS_INVALID, "a terminal cannot be made of the rule '%s'",
                            show_text(s->text + place, length).text);
    const grammar_node node = grammar_source_reference(s, place, length);
    return is_terminal ? terminal(l, node) : node;
}

static grammar_node read_item(struct lark *l)
{
    struct grammar_source *s = &l->source;
    const size_t place = s->at;
    bool is_terminal = false;
    const size_t length = name_length(s, &is_terminal);
    if (length > 0) return read_reference(l, length, is_terminal);
    if (grammar_source_take(s, "\"")) return terminal(l, read_literal(l, place));
    if (grammar_source_take(s, "/")) return terminal(l, read_pattern(l, place));
    if (grammar_source_take(s, "(")) return read_group(l, place, ")");
    if (grammar_source_take(s, "[")) return grammar_repeat(s->builder, read_group(l, place, "]"), 0, 1);
    if (grammar_source_peek(s, 0) == '<')
        grammar_source_fail(s, place, STATUS_UNSUPPORTED, "quire does not support special tokens in a grammar");
    grammar_source_expected(s, "a name, '\"', '/', '(' or '['");
    return grammar_never(s->builder);
}

/* ITEM~n or ITEM~n..m, behind the sign. */
static grammar_node read_counts(struct lark *l, size_t place, grammar_node item)
{
    struct grammar_source *s = &l->source;
    skip_inline(s);
    const int32_t least = grammar_source_count(s);
    int32_t most = least;
    skip_inline(s);
    if (grammar_source_take(s, "..")) {
        skip_inline(s);
        most = grammar_source_count(s);
    }
    if (most < least)
        grammar_source_fail(s, place, STATUS_INVALID, "a repetition has at least %d and at most %d", least, most);
    return s->status == STATUS_OK ? grammar_repeat(s->builder, item, least, most) : item;
}

static grammar_node read_repeated_item(struct lark *l)
{
    struct grammar_source *s = &l->source;
    const grammar_node item = read_item(l);
    skip_inline(s);
    const size_t place = s->at;
    if (grammar_source_take(s, "*")) return grammar_repeat(s->builder, item, 0, GRAMMAR_UNBOUNDED);
    if (grammar_source_take(s, "+")) return grammar_repeat(s->builder, item, 1, GRAMMAR_UNBOUNDED);
    if (grammar_source_take(s, "?")) return grammar_repeat(s->builder, item, 0, 1);
    return grammar_source_take(s, "~") ? read_counts(l, place, item) : item;
}

/* "-> NAME" names a node of the tree that Lark makes. */
static void skip_alias(struct grammar_source *s)
{
    if (!grammar_source_take(s, "->")) grammar_source_expected(s, "'->'");
    skip_inline(s);
    const size_t length = name_length(s, NULL);
    if (length == 0) grammar_source_expected(s, "a name");
    s->at += length;
}

static grammar_node read_sequence(struct lark *l)
{
    struct grammar_source *s = &l->source;
    struct grammar_list parts = {0};
    while (skip_blanks(s), !grammar_source_at_end(s)) {
        const char c = grammar_source_peek(s, 0);
        if (strchr("|)]-", c) || statement_begins(s)) break;
        grammar_list_append(s, &parts, read_repeated_item(l));
    }
    if (grammar_source_peek(s, 0) == '-') skip_alias(s);
    skip_blanks(s);
    return grammar_list_sequence(s, &parts);
}

static grammar_node read_alternatives(struct lark *l)
{
    struct grammar_source *s = &l->source;
    struct grammar_list alternatives = {0};
    do grammar_list_append(s, &alternatives, read_sequence(l));
    while (grammar_source_take(s, "|"));
    return grammar_list_choice(s, &alternatives);
}

/* ---- statements ---- */

static void read_definition(struct lark *l)
{
    struct grammar_source *s = &l->source;
    while (grammar_source_take(s, "?") || grammar_source_take(s, "!")) continue;
    const size_t place = s->at, length = name_length(s, &l->in_terminal);
    if (length == 0) grammar_source_expected(s, "a definition, NAME: ..., or a directive");
    s->at += length;
    if (grammar_source_peek(s, 0) == '{')
        grammar_source_fail(s, place, STATUS_UNSUPPORTED, "quire does not support templates");
    skip_priority(s);
    skip_inline(s);
    if (!grammar_source_take(s, ":")) grammar_source_expected(s, "':'");
    const grammar_node node = read_alternatives(l);
    grammar_source_define(s, place, length, node);
}

/* One name of %import; in a list no alias follows. */
static void import_name(struct lark *l, bool in_list)
{
    struct grammar_source *s = &l->source;
    const size_t from = s->at, from_length = name_length(s, NULL);
    size_t place = from, length = from_length;
    const char *pattern = lark_terminal(s->text + from, from_length);
    s->at += from_length;
    skip_inline(s);
    if (!pattern)
        grammar_source_fail(s, from, STATUS_UNSUPPORTED, "quire's module common has no terminal '%s'",
                            show_text(s->text + from, from_length).text);
    if (!in_list && grammar_source_take(s, "->")) {
        skip_inline(s);
        place = s->at;
        length = name_length(s, NULL);
        if (length == 0) grammar_source_expected(s, "a name");
        s->at += length;
    }
    if (s->status == STATUS_OK)
        grammar_source_define(s, place, length, pattern_node(l, from, pattern, strlen(pattern)));
}

/* %import common.NAME, common.NAME -> ALIAS, or common (NAME, ...). */
static void read_import(struct lark *l)
{
    struct grammar_source *s = &l->source;
    const size_t place = s->at;
    if (!grammar_source_take(s, "common"))
        grammar_source_fail(s, place, STATUS_UNSUPPORTED, "quire imports the module common only");
    skip_inline(s);
    if (grammar_source_take(s, ".")) {
        import_name(l, false);
        return;
    }
    if (!grammar_source_take(s, "(")) grammar_source_expected(s, "'.' or '('");
    do {
        skip_blanks(s);
        import_name(l, true);
        skip_blanks(s);
    } while (grammar_source_take(s, ","));
    if (!grammar_source_take(s, ")")) grammar_source_expected(s, "')'");
}

static void read_directive(struct lark *l)
{
    struct grammar_source *s = &l->source;
    const size_t place = s->at;
    grammar_source_take(s, "%");
    const size_t length = name_length(s, NULL);
    if (grammar_source_take(s, "import")) {
        skip_inline(s);
        read_import(l);
    } else if (grammar_source_take(s, "ignore")) {
        l->in_terminal = true;
        grammar_list_append(s, &l->ignored, read_alternatives(l));
    } else {
        grammar_source_fail(s, place, STATUS_UNSUPPORTED, "quire does not support '%s'",
                            show_text(s->text + place, length + 1).text);
    }
}

/* Texts that are ignored, any number; then the rule "start". */
static int32_t make_root(struct lark *l)
{
    struct grammar_source *s = &l->source;
    struct grammar_builder *b = s->builder;
    const grammar_node ignored = grammar_list_choice(s, &l->ignored);
    grammar_define(b, l->ignored_rule, grammar_repeat(b, ignored, 0, GRAMMAR_UNBOUNDED));
    const int32_t start = grammar_source_root(s, "start"), root = grammar_rule(b, NULL);
    if (s->status != STATUS_OK) return 0;
    const grammar_node parts[] = {grammar_reference(b, l->ignored_rule), grammar_reference(b, start)};
    grammar_define(b, root, grammar_sequence(b, parts, 2));
    return root;
}

enum status lark_parse(const char *text, size_t length, struct grammar_builder *b, int32_t *root, struct error *err)
{
    struct lark l = {.ignored_rule = grammar_rule(b, NULL)};
    struct grammar_source *s = &l.source;
    grammar_source_begin(s, text, length, b, err);
    while (skip_blanks(s), !grammar_source_at_end(s)) {
        if (grammar_source_peek(s, 0) == '%')
            read_directive(&l);
        else
            read_definition(&l);
    }
    *root = make_root(&l);
    grammar_source_end(s);
    return s->status;
}
