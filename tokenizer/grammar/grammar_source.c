#include "tokenizer/grammar/grammar_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_value.h"
#include "base/utf8.h"

void grammar_source_begin(struct grammar_source *s, const char *text, size_t length, struct grammar_builder *b,
                          struct error *err)
{
    *s = (struct grammar_source){.text = text, .length = length, .builder = b, .err = err};
    const size_t valid = utf8_valid_prefix(text, length);
    const char *nul = memchr(text, '\0', valid);
    if (nul)
        grammar_source_fail(s, (size_t)(nul - text), STATUS_INVALID, "there is a U+0000 in the grammar");
    else if (valid < length)
        grammar_source_fail(s, valid, STATUS_INVALID, "the grammar is not UTF-8");
    if (!(s->name_indices = json_object())) grammar_source_no_memory(s);
}

void grammar_source_end(struct grammar_source *s)
{
    json_decref(s->name_indices);
    free(s->names);
}

/* ---- failures ---- */

static enum status fail_at(struct grammar_source *s, size_t place, enum status status, const char *sentence)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < place && i < s->length; i++) {
        if (s->text[i] == '\n') {
            line++;
            column = 1;
        } else if ((s->text[i] & 0xC0) != 0x80) {
            column++;
        }
    }
    return error_set(s->err, status, "line %zu, column %zu: %s", line, column, sentence);
}

void grammar_source_fail(struct grammar_source *s, size_t place, enum status status, const char *format, ...)
{
    char sentence[512];
    va_list args;
    if (s->status != STATUS_OK) return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    s->status = fail_at(s, place, status, sentence);
}

void grammar_source_no_memory(struct grammar_source *s)
{
    if (s->status == STATUS_OK) s->status = error_set(s->err, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
}

void grammar_source_expected(struct grammar_source *s, const char *expected)
{
    const size_t rest = s->length - s->at;
    const char *newline = memchr(s->text + s->at, '\n', rest);
    size_t shown = newline ? (size_t)(newline - s->text) - s->at : rest;
    if (shown > 20) shown = 20;
    while (shown < rest && (s->text[s->at + shown] & 0xC0) == 0x80) shown++; /* the rest of a character */
    if (rest == 0)
        grammar_source_fail(s, s->at, STATUS_INVALID, "expected %s, but the grammar ends", expected);
    else if (shown == 0)
        grammar_source_fail(s, s->at, STATUS_INVALID, "expected %s, but the line ends", expected);
    else
        grammar_source_fail(s, s->at, STATUS_INVALID, "expected %s, found '%s'", expected,
                            show_text(s->text + s->at, shown).text);
}

/* ---- characters ---- */

bool grammar_source_at_end(const struct grammar_source *s)
{
    return s->status != STATUS_OK || s->at >= s->length;
}

char grammar_source_peek(const struct grammar_source *s, size_t ahead)
{
    return s->status == STATUS_OK && s->length - s->at > ahead ? s->text[s->at + ahead] : '\0';
}

bool grammar_source_take(struct grammar_source *s, const char *word)
{
    const size_t length = strlen(word);
    if (s->status != STATUS_OK || s->length - s->at < length || memcmp(s->text + s->at, word, length) != 0)
        return false;
    s->at += length;
    return true;
}

uint32_t grammar_source_character(struct grammar_source *s)
{
    return grammar_source_at_end(s) ? 0 : utf8_next(s->text + s->at, &s->at);
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static uint32_t read_hexadecimal(struct grammar_source *s, int num_digits)
{
    const size_t place = s->at;
    uint32_t value = 0;
    for (int i = 0; i < num_digits; i++, s->at++) {
        const int digit = digit_value(grammar_source_peek(s, 0));
        if (digit < 0) {
            grammar_source_fail(s, place, STATUS_INVALID, "expected %d hexadecimal digits", num_digits);
            return 0;
        }
        value = value << 4 | (uint32_t)digit;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        grammar_source_fail(s, place, STATUS_INVALID, "there is no character U+%04X", (unsigned)value);
    return value;
}

uint32_t grammar_source_escape(struct grammar_source *s, const struct grammar_escapes *escapes)
{
    const size_t place = s->at;
    const char c = grammar_source_peek(s, 0);
    const char *found = c ? strchr(escapes->plain, c) : NULL;
    grammar_source_character(s);
    if (found) return (unsigned char)escapes->meaning[found - escapes->plain];
    if (c && strchr(escapes->itself, c)) return (unsigned char)c;
    if (c == 'x' || c == 'u' || c == 'U') return read_hexadecimal(s, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    grammar_source_fail(s, place, STATUS_INVALID, "there is no escape \\%s",
                        show_text(s->text + place, s->at - place).text);
    return 0;
}

int32_t grammar_source_count(struct grammar_source *s)
{
    const size_t place = s->at;
    int64_t value = 0;
    if (digit_value(grammar_source_peek(s, 0)) < 0 || digit_value(grammar_source_peek(s, 0)) > 9) {
        grammar_source_expected(s, "a number");
        return 0;
    }
    for (char c; (c = grammar_source_peek(s, 0)) >= '0' && c <= '9'; s->at++) {
        value = value * 10 + (c - '0');
        if (value > INT32_MAX) grammar_source_fail(s, place, STATUS_UNSUPPORTED, "a count is above %d", INT32_MAX);
    }
    return (int32_t)value;
}

bool grammar_source_enter(struct grammar_source *s, size_t place)
{
    if (++s->depth > GRAMMAR_SOURCE_MAX_DEPTH)
        grammar_source_fail(s, place, STATUS_UNSUPPORTED, "groups are nested more than %d deep",
                            GRAMMAR_SOURCE_MAX_DEPTH);
    return s->status == STATUS_OK;
}

void grammar_source_leave(struct grammar_source *s)
{
    s->depth--;
}

/* ---- names ---- */

struct grammar_name *grammar_source_name(struct grammar_source *s, size_t place, size_t length)
{
    if (s->status != STATUS_OK) return NULL;
    const json_t *found = json_object_getn(s->name_indices, s->text + place, length);
    if (found) return &s->names[json_integer_value(found)];
    if (!array_reserve(&s->names, &s->names_capacity, s->num_names + 1, sizeof *s->names) ||
        json_object_setn_new(s->name_indices, s->text + place, length, json_integer((json_int_t)s->num_names)) != 0) {
        grammar_source_no_memory(s);
        return NULL;
    }
    struct grammar_name *name = &s->names[s->num_names++];
    *name = (struct grammar_name){.rule = grammar_rule(s->builder, NULL), .place = place};
    return name;
}

grammar_node grammar_source_reference(struct grammar_source *s, size_t place, size_t length)
{
    const struct grammar_name *name = grammar_source_name(s, place, length);
    return name ? grammar_reference(s->builder, name->rule) : grammar_never(s->builder);
}

void grammar_source_define(struct grammar_source *s, size_t place, size_t length, grammar_node node)
{
    struct grammar_name *name = grammar_source_name(s, place, length);
    if (!name) return;
    if (name->is_defined)
        grammar_source_fail(s, place, STATUS_INVALID, "'%s' is defined twice", show_text(s->text + place, length).text);
    else
        grammar_define(s->builder, name->rule, node);
    name->is_defined = true;
}

int32_t grammar_source_root(struct grammar_source *s, const char *root)
{
    if (s->status != STATUS_OK) return 0;
    const char *key;
    json_t *index;
    json_object_foreach(s->name_indices, key, index)
    {
        const struct grammar_name *name = &s->names[json_integer_value(index)];
        if (!name->is_defined)
            grammar_source_fail(s, name->place, STATUS_INVALID, "'%s' is not defined", show_string(key).text);
    }
    const json_t *found = json_object_get(s->name_indices, root);
    if (!found)
        grammar_source_fail(s, s->length, STATUS_INVALID, "there is no rule '%s', with which the text begins", root);
    return found ? s->names[json_integer_value(found)].rule : 0;
}

/* ---- lists of nodes ---- */

void grammar_list_append(struct grammar_source *s, struct grammar_list *list, grammar_node node)
{
    if (array_reserve(&list->nodes, &list->capacity, list->count + 1, sizeof *list->nodes))
        list->nodes[list->count++] = node;
    else
        grammar_source_no_memory(s);
}

grammar_node grammar_list_sequence(struct grammar_source *s, struct grammar_list *list)
{
    const grammar_node node = grammar_sequence(s->builder, list->nodes, (int32_t)list->count);
    free(list->nodes);
    *list = (struct grammar_list){0};
    return node;
}

grammar_node grammar_list_choice(struct grammar_source *s, struct grammar_list *list)
{
    const grammar_node node = grammar_choice(s->builder, list->nodes, (int32_t)list->count);
    free(list->nodes);
    *list = (struct grammar_list){0};
    return node;
}
