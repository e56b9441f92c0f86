#include "base/json_value.h"

#include <string.h>

#include "base/utf8.h"
#include "base/visible.h"

/* The only key of an object that stands for a number: no text has it, because it is not UTF-8. */
static const char SPELLING[] = "\xff";

json_t *json_spelled_number(const char *spelling, size_t length)
{
    json_t *object = json_object();
    if (object && json_object_set_new_nocheck(object, SPELLING, json_stringn_nocheck(spelling, length)) == 0)
        return object;
    json_decref(object);
    return NULL;
}

const char *json_spelling(const json_t *value)
{
    return json_string_value(json_object_get(value, SPELLING));
}

bool json_is_whole(const json_t *value)
{
    const char *spelling = json_spelling(value);
    return json_is_integer(value) || (spelling && !strpbrk(spelling, ".eEIN"));
}

bool json_is_map(const json_t *value)
{
    return json_is_object(value) && !json_spelling(value);
}

bool json_is_text(const json_t *value)
{
    const char *text = json_string_value(value);
    const size_t length = json_string_length(value);
    return text && !memchr(text, '\0', length) && utf8_valid_prefix(text, length) == length;
}

bool json_is_word(const json_t *value, const char *word)
{
    return json_is_string(value) && strcmp(json_string_value(value), word) == 0;
}

bool json_is_off(const json_t *value)
{
    return json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

enum status json_check_characters(const char *name, const char *text, size_t length, struct error *err)
{
    for (size_t at = 0; (at += utf8_valid_prefix(text + at, length - at)) < length; at++) {
        const unsigned char first = (unsigned char)text[at];
        if (first != 0xED && first != 0xC0) continue;
        const unsigned code = utf8_next(text + at, &at);
        return error_set(err, STATUS_INVALID, "%s holds \\u%04x, which is %s", name, code,
                         code ? "half of a surrogate pair and no character" : "no character of a key");
    }
    return STATUS_OK;
}

/* ---- text ----
 *
 * jansson writes a value, unless the value holds what jansson has no form for: spelled numbers, and strings that are
 * not UTF-8 because they hold halves of surrogate pairs, or as keys U+0000. */

static int append(const char *bytes, size_t count, void *out)
{
    return text_append(out, bytes, count) ? 0 : -1;
}

static bool append_value(struct text *out, const json_t *value, size_t flags, int depth);

/* Writes valid pieces of the string as jansson does, and what lies between them as it was spelled. */
static bool append_string(struct text *out, const char *string, size_t length, size_t flags)
{
    bool ok = text_append_string(out, "\"");
    for (size_t at = 0; at < length && ok;) {
        const size_t valid = utf8_valid_prefix(string + at, length - at);
        json_t *piece = json_stringn(string + at, valid);
        const size_t quote = out->length;
        ok = piece && json_dump_callback(piece, append, out, flags) == 0;
        json_decref(piece);
        if (!ok) break;
        memmove(out->data + quote, out->data + quote + 1, out->length - quote - 1);
        out->length -= 2;
        at += valid;
        if (at < length) ok = text_printf(out, "\\u%04x", (unsigned)utf8_next(string + at, &at));
    }
    return ok && text_append_string(out, "\"");
}

static bool new_line(struct text *out, size_t flags, int depth)
{
    const int indent = (int)(flags & JSON_MAX_INDENT);
    return !indent || text_printf(out, "\n%*s", indent * depth, "");
}

/* What stands before the next element or member of an object or array. */
static bool append_separator(struct text *out, bool is_first, size_t flags, int depth)
{
    const bool blank = !is_first && !(flags & (JSON_COMPACT | JSON_MAX_INDENT));
    return (is_first || text_append_string(out, blank ? ", " : ",")) && new_line(out, flags, depth);
}

static bool append_members(struct text *out, const json_t *object, size_t flags, int depth)
{
    const char *key;
    json_t *value;
    bool ok = text_append_string(out, "{"), first = true;
    json_object_foreach((json_t *)object, key, value)
    {
        ok = ok && append_separator(out, first, flags, depth) && append_string(out, key, strlen(key), flags) &&
             text_append_string(out, flags & JSON_COMPACT ? ":" : ": ") && append_value(out, value, flags, depth);
        first = false;
    }
    return ok && (first || new_line(out, flags, depth - 1)) && text_append_string(out, "}");
}

static bool append_elements(struct text *out, const json_t *array, size_t flags, int depth)
{
    bool ok = text_append_string(out, "[");
    for (size_t i = 0; i < json_array_size(array) && ok; i++)
        ok = append_separator(out, i == 0, flags, depth) && append_value(out, json_array_get(array, i), flags, depth);
    return ok && (json_array_size(array) == 0 || new_line(out, flags, depth - 1)) && text_append_string(out, "]");
}

/* Does what json_append does, for a value that lies `depth` levels deep. `flags` holds JSON_ENCODE_ANY. */
static bool append_value(struct text *out, const json_t *value, size_t flags, int depth)
{
    const char *spelling = json_spelling(value);
    if (spelling) return text_append_string(out, spelling);
    if (json_is_object(value)) return append_members(out, value, flags, depth + 1);
    if (json_is_array(value)) return append_elements(out, value, flags, depth + 1);
    if (json_is_string(value)) return append_string(out, json_string_value(value), json_string_length(value), flags);
    return json_dump_callback(value, append, out, flags) == 0;
}

/* jansson writes a part of a key that is not UTF-8 and does not say so; of such strings it does. */
static bool has_plain_keys(const json_t *value)
{
    const char *key;
    json_t *member;
    bool plain = true;
    json_object_foreach((json_t *)value, key, member)
    {
        plain = plain && utf8_valid_prefix(key, strlen(key)) == strlen(key) && has_plain_keys(member);
    }
    for (size_t i = 0; i < json_array_size(value) && plain; i++) plain = has_plain_keys(json_array_get(value, i));
    return plain;
}

bool json_append(struct text *out, const json_t *value, size_t flags)
{
    const size_t before = out->length;
    const bool plain = has_plain_keys(value);
    if (plain && json_dump_callback(value, append, out, flags | JSON_ENCODE_ANY) == 0) return true;
    out->length = before;
    return append_value(out, value, flags | JSON_ENCODE_ANY, 0);
}

bool json_append_escaped(struct text *out, const char *text, size_t length)
{
    static const char letters[] = "btn.fr"; /* of \b, which is 8, to \r */
    size_t plain = 0;
    bool ok = true;
    for (size_t i = 0; i < length && ok; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        ok = text_append(out, text + plain, i - plain);
        plain = i + 1;
        if (c >= 0x20)
            ok = ok && text_append(out, (char[]){'\\', (char)c}, 2);
        else if (c >= '\b' && c <= '\r' && c != '\v')
            ok = ok && text_append(out, (char[]){'\\', letters[c - '\b']}, 2);
        else
            ok = ok && text_printf(out, "\\u%04x", c);
    }
    return ok && text_append(out, text + plain, length - plain);
}

bool json_print(const json_t *value, size_t flags, FILE *out)
{
    struct text text = {0};
    const bool ok = value && json_append(&text, value, flags) && visible_write(out, text.data, text.length) &&
                    putc('\n', out) != EOF;
    text_free(&text);
    return ok;
}

void json_put_integer(json_t *object, const char *key, int64_t value)
{
    json_object_set_new(object, key, json_integer(value));
}

void json_put_real(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, json_real(value));
}

void json_put_string(json_t *object, const char *key, const char *value)
{
    json_object_set_new(object, key, value ? json_string(value) : json_null());
}

/* ---- messages ---- */

struct shown show_text(const char *text, size_t length)
{
    struct shown shown = {""};
    const size_t room = sizeof shown.text - 1;
    const bool cut = length > room;
    if (cut) {
        length = room - 3;
        while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80) length--; /* not inside a character */
    }
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        shown.text[i] = c < 0x20 || c == 0x7f ? '?' : text[i];
    }
    memcpy(shown.text + length, cut ? "..." : "", cut ? 4 : 1);
    return shown;
}

struct shown show_string(const char *string)
{
    if (!string) string = "";
    return show_text(string, strnlen(string, sizeof(struct shown)));
}

struct shown show_value(const json_t *value)
{
    struct text text = {0};
    struct shown shown = {""};
    if (value && json_append(&text, value, JSON_COMPACT | JSON_REAL_PRECISION(9)))
        shown = show_text(text.data, text.length);
    text_free(&text);
    return shown;
}
