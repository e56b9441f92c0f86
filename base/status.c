#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
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

static void append(struct sentence *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(struct sentence *s, const char *format, ...)
{
    const size_t length = strlen(s->text);
    va_list args;
    va_start(args, format);
    vsnprintf(s->text + length, sizeof s->text - length, format, args);
    va_end(args);
}

/* Settings with the same verb share it, and values of the same setting share that. */
static void append_advice(struct sentence *s, const struct error *err, int i, setting_speller *spell)
{
    static const char *const verbs[] = {
        [ADVICE_RAISE] = "raise", [ADVICE_LOWER] = "lower", [ADVICE_SET] = "set", [ADVICE_LOWERED] = "lowered"};
    const struct advice *a = &err->advice[i];
    const bool first = i == 0, last = i + 1 == err->num_advice;
    const bool same_verb = !first && a[-1].kind == a->kind, more = !last && a[1].kind == a->kind;
    const bool same_setting = same_verb && a->value[0] && strcmp(a[-1].setting, a->setting) == 0;
    const char *between = a->kind == ADVICE_LOWERED ? " and " : same_verb ? " or " : ", or ";
    char name[64];
    snprintf(name, sizeof name, "%s", a->setting);
    if (spell) spell(a->setting, name, sizeof name);
    append(s, "%s", first ? ": " : same_verb && more ? ", " : between);
    if (!same_verb) append(s, "%s ", verbs[a->kind]);
    if (!same_setting) append(s, "%s", name);
    if (a->value[0]) append(s, same_setting ? "%s" : " to %s", a->value);
}

struct sentence error_sentence(const struct error *err, setting_speller *spell)
{
    struct sentence s = {""};
    append(&s, "%s", err->text);
    for (int i = 0; i < err->num_advice; i++) append_advice(&s, err, i, spell);
    return s;
}
