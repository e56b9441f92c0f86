#include "runtime/prompts/api_text.h"

#include <string.h>

/* Writes what stands for the character in a JSON string, which cannot stand there itself: escape[6]. */
static size_t write_escape(unsigned char c, char *escape)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt", digits[] = "0123456789abcdef";
    const char *at = memchr(from, c, sizeof from - 1);
    escape[0] = '\\';
    if (at) {
        escape[1] = to[at - from];
        return 2;
    }
    memcpy(escape + 1, "u00", 3);
    escape[4] = digits[c >> 4];
    escape[5] = digits[c & 15];
    return 6;
}

bool api_write_escaped(struct text *out, const char *text, size_t length)
{
    enum { LONGEST = 6 };
    if (!text_reserve(out, out->length + LONGEST * length)) return false;
    char *to = out->data + out->length;
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            *to++ = text[i];
        else
            to += write_escape(c, to);
    }
    *to = '\0';
    out->length = (size_t)(to - out->data);
    return true;
}

bool api_write_string(struct text *out, const char *text, size_t length)
{
    if (!text) return text_append(out, "null", 4);
    return text_append(out, "\"", 1) && api_write_escaped(out, text, length) && text_append(out, "\"", 1);
}

bool api_write_text(struct text *out, const struct text *text)
{
    return text->length == 0 || text_append(out, text->data, text->length);
}

bool api_write_integer(struct text *out, int64_t value)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do *--at = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (value < 0) *--at = '-';
    return text_append(out, at, (size_t)(digits + sizeof digits - at));
}

bool api_write_ids(struct text *list, const int32_t *ids, size_t count)
{
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++)
        ok = (list->length == 0 || text_append(list, ",", 1)) && api_write_integer(list, ids[i]);
    return ok;
}
