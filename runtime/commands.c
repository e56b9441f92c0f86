#include "runtime/commands.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/visible.h"

static void append(struct sentence *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(struct sentence *s, const char *format, ...)
{
    const size_t length = strlen(s->text);
    va_list args;
    va_start(args, format);
    vsnprintf(s->text + length, sizeof s->text - length, format, args);
    va_end(args);
}

/* "max_model_len" is --max-model-len. */
static void append_flag(struct sentence *s, const char *setting)
{
    append(s, "--");
    for (; *setting; setting++) append(s, "%c", *setting == '_' ? '-' : *setting);
}

struct sentence command_sentence(const struct error *err)
{
    static const char *const verbs[] = {[ADVICE_RAISE] = "raise", [ADVICE_LOWER] = "lower", [ADVICE_SET] = "set"};
    struct sentence s = {""};
    append(&s, "%s", err->text);
    for (int i = 0; i < err->num_advice; i++) {
        const struct advice *a = &err->advice[i];
        const bool first = i == 0, last = i + 1 == err->num_advice;
        const bool same_verb = !first && a[-1].kind == a->kind;
        const bool more = !last && a[1].kind == a->kind;
        append(&s, "%s", first ? ": " : same_verb && more ? ", " : same_verb ? " or " : ", or ");
        if (!same_verb) append(&s, "%s ", verbs[a->kind]);
        append_flag(&s, a->setting);
        if (a->value[0]) append(&s, " to %s", a->value);
    }
    return s;
}

const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

struct grouped grouped(int64_t number)
{
    struct grouped g = {""};
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)number);
    size_t at = 0;
    for (int i = 0; i < length; i++) {
        if (i > (number < 0) && (length - i) % 3 == 0) g.text[at++] = ',';
        g.text[at++] = digits[i];
    }
    return g;
}

int command_fail(const char *command, const struct error *err, int exit_status)
{
    visible_printf(stderr, "quire %s: %s\n", command, command_sentence(err).text);
    return exit_status;
}
