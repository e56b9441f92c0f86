/* Filters for web pages: striptags, urlencode and xmlattr. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

/* --- urlencode --- */

static bool build_quoted(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v, bool in_query)
{
    struct jinja_value text = jinja_str(run, v);
    if (text.kind != JINJA_STRING) return false;
    const struct jinja_string *s = text.string;
    for (size_t i = 0; i < s->length && jinja_tick(run); i++) {
        static const char hex[] = "0123456789ABCDEF";
        unsigned char c = (unsigned char)s->bytes[i];
        const char escape[] = {'%', hex[c >> 4], hex[c & 15]};
        bool marked = jinja_mark_at(s, i);
        if (c < 0x80 && (isalnum(c) || (c && strchr("_.-~", c)) || (c == '/' && !in_query))) {
            jinja_build_bytes(run, b, (char *)&c, 1, marked);
        } else if (c == ' ' && in_query) {
            jinja_build_bytes(run, b, "+", 1, marked);
        } else {
            jinja_build_bytes(run, b, escape, 3, marked);
        }
    }
    return !jinja_failed(run);
}

static struct jinja_value filter_urlencode(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_builder b = {0};
    if (c->self.kind == JINJA_STRING || c->self.kind == JINJA_NONE || jinja_is_number(c->self)) {
        build_quoted(run, &b, c->self, false);
        return jinja_build_end(run, &b);
    }
    if (c->self.kind == JINJA_DICT) c->self = jinja_dict_view(run, c->self.dict, JINJA_ITEMS);
    const struct jinja_list *list = jinja_iterate(run, c->self);
    for (size_t i = 0; list && i < list->count && jinja_tick(run); i++) {
        const struct jinja_list *pair = jinja_iterate(run, list->items[i]);
        if (pair && pair->count != 2) jinja_fail(run, "urlencode needs pairs of a key and a value");
        if (!pair || jinja_failed(run)) break;
        if (i) jinja_build_text(run, &b, "&");
        build_quoted(run, &b, pair->items[0], true);
        jinja_build_text(run, &b, "=");
        build_quoted(run, &b, pair->items[1], true);
    }
    return jinja_build_end(run, &b);
}

/* --- xmlattr --- */

static bool is_attribute_name(struct jinja_run *run, struct jinja_value key)
{
    const struct jinja_string *s = jinja_expect_string(run, "an attribute's name", key);
    for (size_t i = 0; s && i < s->length; i++) {
        if (s->bytes[i] && !strchr(" \t\n\r\f\v/>=", s->bytes[i])) continue;
        if (s->bytes[i]) jinja_fail(run, "Invalid character in attribute name");
    }
    return !jinja_failed(run);
}

static struct jinja_value filter_xmlattr(struct jinja_run *run, struct jinja_call *c)
{
    if (c->self.kind != JINJA_DICT) return jinja_wrong_type(run, "xmlattr", "a mapping", c->self);
    bool need_space = c->v[0].kind == JINJA_UNDEFINED || jinja_is_true(run, c->v[0]);
    struct jinja_builder b = {0};
    for (size_t i = 0; i < c->self.dict->count && jinja_tick(run); i++) {
        struct jinja_pair pair = c->self.dict->pairs[i];
        if (pair.value.kind == JINJA_NONE || pair.value.kind == JINJA_UNDEFINED) continue;
        if (!is_attribute_name(run, pair.key)) break;
        if (need_space) jinja_build_text(run, &b, " ");
        need_space = true;
        jinja_build_str(run, &b, jinja_escape(run, pair.key));
        jinja_build_text(run, &b, "=\"");
        jinja_build_str(run, &b, jinja_escape(run, pair.value));
        jinja_build_text(run, &b, "\"");
    }
    return jinja_build_end(run, &b);
}

/* --- striptags --- */

/* The text without what stands between `open` and the next `close`. */
static struct jinja_value remove_between(struct jinja_run *run, const struct jinja_string *s, const char *open,
                                         const char *close)
{
    struct jinja_string first = {.bytes = open, .length = strlen(open)},
                        last = {.bytes = close, .length = strlen(close)};
    struct jinja_builder b = {0};
    size_t done = 0, from, to;
    while (jinja_tick(run) && (from = jinja_find_bytes(s, done, s->length, &first)) != SIZE_MAX &&
           (to = jinja_find_bytes(s, from, s->length, &last)) != SIZE_MAX) {
        jinja_build_range(run, &b, s, done, from);
        done = to + last.length;
    }
    jinja_build_range(run, &b, s, done, s->length);
    return jinja_build_end(run, &b);
}

/* The character that "&name;" or "&#number;" at byte `at` stands for, whose end is *end; an ampersand that no semicolon
 * follows stands for itself. 0: the character is not known. */
static uint32_t character_reference(const struct jinja_string *s, size_t at, size_t *end)
{
    static const struct {
        const char *name;
        uint32_t character;
    } known[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}, {"nbsp", 0xA0}};
    size_t semicolon = at + 1 + (at + 1 < s->length && s->bytes[at + 1] == '#');
    while (semicolon < s->length && isalnum((unsigned char)s->bytes[semicolon])) semicolon++;
    *end = at + 1;
    if (semicolon == s->length || s->bytes[semicolon] != ';' || semicolon == at + 1) return '&';
    char name[12] = {0};
    size_t length = semicolon - at - 1;
    if (length >= sizeof name) return 0;
    memcpy(name, s->bytes + at + 1, length);
    *end = semicolon + 1;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i].name) == 0) return known[i].character;
    }
    bool hex = name[0] == '#' && (name[1] == 'x' || name[1] == 'X');
    const char *digits = name + (hex ? 2 : 1);
    bool is_number =
        name[0] == '#' && *digits && !digits[strspn(digits, hex ? "0123456789abcdefABCDEF" : "0123456789")];
    unsigned long c = is_number ? strtoul(digits, NULL, hex ? 16 : 10) : 0;
    bool is_text = c >= ' ' && (c < 0x7F || c >= 0xA0) && c <= 0x10FFFF && (c < 0xD800 || c >= 0xE000);
    return is_text || c == '\n' || c == '\t' ? (uint32_t)c : 0;
}

static struct jinja_value unescape(struct jinja_run *run, const struct jinja_string *s)
{
    struct jinja_builder b = {0};
    for (size_t at = 0, end; at < s->length && jinja_tick(run); at = end) {
        const char *found = memchr(s->bytes + at, '&', s->length - at);
        end = found ? (size_t)(found - s->bytes) : s->length;
        jinja_build_range(run, &b, s, at, end);
        if (!found) break;
        size_t start = end;
        uint32_t c = character_reference(s, start, &end);
        if (!c)
            jinja_fail(run,
                       "striptags knows only numbers, &amp; &lt; &gt; &quot; &apos; and &nbsp; after an ampersand");
        jinja_build_character(run, &b, c, jinja_mark_at(s, start));
    }
    return jinja_build_end(run, &b);
}

/* One space for any white space, and none at the ends. A space has the mark of the character before it. */
static struct jinja_value collapse_spaces(struct jinja_run *run, struct jinja_value text)
{
    struct jinja_value words = jinja_call_str_method(run, "split", text, &(struct jinja_args){0});
    struct jinja_builder b = {0};
    for (size_t i = 0; jinja_tick(run) && i < words.list->count; i++) {
        if (i) jinja_build_bytes(run, &b, " ", 1, jinja_mark_at(words.list->items[i].string, 0));
        jinja_build_string(run, &b, words.list->items[i].string);
    }
    return jinja_build_end(run, &b);
}

static struct jinja_value filter_striptags(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_value text = jinja_str(run, c->self);
    if (!jinja_failed(run)) text = remove_between(run, text.string, "<!--", "-->");
    if (!jinja_failed(run)) text = remove_between(run, text.string, "<", ">");
    if (!jinja_failed(run)) text = collapse_spaces(run, text);
    return jinja_failed(run) ? jinja_undefined(NULL) : unescape(run, text.string);
}

const struct jinja_function jinja_html_filters[] = {
    {"striptags", filter_striptags, "/"},
    {"urlencode", filter_urlencode, "/"},
    {"xmlattr", filter_xmlattr, "autospace="},
    {NULL},
};
