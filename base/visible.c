#include "base/visible.h"

#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

#include "base/utf8.h"

uint32_t visible_character(uint32_t c)
{
    const uint32_t replacement = 0xFFFD;
    if (c == '\n' || c == '\t') return c;
    if (c < 0x20) return 0x2400 + c;
    if (c == 0x7F) return 0x2421;
    if (c >= 0x80 && c < 0xA0) return replacement;
    if (c == 0x61C || c == 0x200E || c == 0x200F) return replacement; /* marks */
    if (c >= 0x2028 && c <= 0x202E) return replacement;               /* separators, embeddings and overrides */
    if (c >= 0x2066 && c <= 0x2069) return replacement;               /* isolates */
    return c;
}

bool visible_append(struct text *out, const char *text, size_t length)
{
    bool ok = text_reserve(out, out->length + length);
    for (size_t i = 0; ok && i < length;) {
        uint32_t character;
        char bytes[4];
        i += utf8_decode(text + i, length - i, &character);
        ok = text_append(out, bytes, utf8_write(visible_character(character), bytes));
    }
    return ok;
}

bool visible_write(FILE *stream, const char *text, size_t length)
{
    if (!isatty(fileno(stream))) return fwrite(text, 1, length, stream) == length;
    struct text shown = {0};
    bool ok = visible_append(&shown, text, length);
    if (!ok) errno = ENOMEM;
    ok = ok && fwrite(shown.data, 1, shown.length, stream) == shown.length;
    text_free(&shown);
    return ok;
}

bool visible_printf(FILE *stream, const char *format, ...)
{
    struct text text = {0};
    va_list args;
    va_start(args, format);
    bool ok = text_vprintf(&text, format, args);
    va_end(args);
    if (!ok) errno = ENOMEM;
    ok = ok && visible_write(stream, text.data, text.length);
    text_free(&text);
    return ok;
}
