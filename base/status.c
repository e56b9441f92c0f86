#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* vsnprintf cuts at a byte; step back so that no half character is left. */
static void trim_half_character(char *text, size_t capacity)
{
    size_t n = strlen(text);
    if (n + 1 < capacity) return;
    while (n > 0 && ((unsigned char)text[n - 1] & 0xC0) == 0x80) n--;
    if (n > 0 && ((unsigned char)text[n - 1] & 0x80)) n--;
    text[n] = '\0';
}

enum status error_set(struct error *err, enum status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        trim_half_character(err->text, sizeof err->text);
        err->num_advice = 0;
    }
    return status;
}

void error_advise(struct error *err, enum advice_kind kind, const char *setting, const char *format, ...)
{
    if (!err || err->num_advice == ERROR_MAX_ADVICE) return;
    struct advice *advice = &err->advice[err->num_advice++];
    *advice = (struct advice){.kind = kind, .setting = setting};
    if (!format) return;
    va_list args;
    va_start(args, format);
    vsnprintf(advice->value, sizeof advice->value, format, args);
    va_end(args);
}

enum status error_prefix(struct error *err, enum status status, const char *prefix)
{
    if (err) {
        const struct error inner = *err;
        error_set(err, status, "%s: %s", prefix, inner.text);
        err->num_advice = inner.num_advice;
    }
    return status;
}
