#include "runtime/options/option_value.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool option_is_switch(const struct option_spec *spec)
{
    return spec->kind == OPTION_SWITCH || spec->kind == OPTION_TRISTATE;
}

bool option_takes_value(const struct option_spec *spec)
{
    return !option_is_switch(spec) && (spec->kind != OPTION_CUSTOM || spec->argument);
}

static bool has_bounds(const struct option_spec *spec)
{
    return spec->minimum != 0 || spec->maximum != 0;
}

/* The sentence for a bad number: "expected a whole number from 1 to 8", with the flag's bounds if it has any. */
static enum status out_of_range(const struct option_spec *spec, const char *label, const char *text, struct error *err)
{
    const bool whole = spec->kind != OPTION_DOUBLE;
    const double minimum = spec->minimum, maximum = spec->maximum;
    if (!has_bounds(spec)) {
        const char *number = spec->kind == OPTION_UINT64 ? "a whole number from 0 to 18446744073709551615"
                             : whole                     ? "a whole number that fits in 32 bits"
                                                         : "a number";
        return error_set(err, STATUS_INVALID, "%s: expected %s, got '%s'", label, number, text);
    }
    if (!whole && isinf(maximum))
        return error_set(err, STATUS_INVALID, "%s: expected a number of at least %.15g, got '%s'", label, minimum,
                         text);
    return error_set(err, STATUS_INVALID, "%s: expected %s from %.15g to %.15g, got '%s'", label,
                     whole ? "a whole number" : "a number", minimum, isinf(maximum) ? INT32_MAX : maximum, text);
}

static bool in_range(const struct option_spec *spec, double value)
{
    return !has_bounds(spec) || (value >= spec->minimum && value <= spec->maximum);
}

/* strtol accepts leading blanks, and strtoull even a minus sign; a flag's value may have neither. */
static bool begins_number(const char *text, bool is_signed)
{
    if (is_signed && *text == '-') text++;
    return (*text >= '0' && *text <= '9') || *text == '.';
}

static enum status set_int32(const struct option_spec *spec, const char *label, const char *text, struct error *err)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!begins_number(text, true) || *end || errno || value < INT32_MIN || value > INT32_MAX ||
        !in_range(spec, (double)value)) {
        return out_of_range(spec, label, text, err);
    }
    *(int32_t *)spec->target = (int32_t)value;
    return STATUS_OK;
}

static enum status set_uint64(const struct option_spec *spec, const char *label, const char *text, struct error *err)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!begins_number(text, false) || *end || errno || !in_range(spec, (double)value)) {
        return out_of_range(spec, label, text, err);
    }
    *(uint64_t *)spec->target = value;
    return STATUS_OK;
}

static enum status set_double(const struct option_spec *spec, const char *label, const char *text, struct error *err)
{
    char *end;
    double value = strtod(text, &end);
    if (!begins_number(text, true) || end == text || *end || !isfinite(value) || !in_range(spec, value)) {
        return out_of_range(spec, label, text, err);
    }
    *(double *)spec->target = value;
    return STATUS_OK;
}

/* The place of `text` among words as in "float32|float16"; -1: it is none of them. */
static int place_among(const char *words, const char *text)
{
    const size_t length = strlen(text);
    for (int place = 0; *words; place++) {
        const size_t n = strcspn(words, "|");
        if (n == length && memcmp(words, text, n) == 0) return place;
        words += n + (words[n] == '|');
    }
    return -1;
}

enum status option_value_missing(const struct option_spec *spec, const char *label, struct error *err)
{
    return error_set(err, STATUS_INVALID, "%s needs a value: --%s %s", label, spec->name, spec->argument);
}

static enum status set_word(const struct option_spec *spec, const char *label, const char *text, struct error *err)
{
    const int place = place_among(spec->argument, text);
    if (place < 0) return error_set(err, STATUS_INVALID, "%s: expected %s, got '%s'", label, spec->argument, text);
    if (spec->kind == OPTION_ENUM)
        *(int32_t *)spec->target = spec->values[place];
    else
        *(const char **)spec->target = text;
    return STATUS_OK;
}

static enum status set_string(const struct option_spec *spec, const char *label, const char *text, struct error *err)
{
    if (spec->not_empty && !*text) return option_value_missing(spec, label, err);
    *(const char **)spec->target = text;
    return STATUS_OK;
}

static enum status set_custom(const struct option_spec *spec, const char *label, const char *text, struct error *err)
{
    if (spec->not_empty && !*text) return option_value_missing(spec, label, err);
    enum status status = spec->parse(spec->target, text, err);
    return status == STATUS_OK ? status : error_prefix(err, status, label);
}

static enum status set_value(const struct option_spec *spec, const char *label, const char *text, struct error *err)
{
    static enum status (*const setters[])(const struct option_spec *, const char *, const char *, struct error *) = {
        [OPTION_INT32] = set_int32,   [OPTION_UINT64] = set_uint64, [OPTION_DOUBLE] = set_double,
        [OPTION_STRING] = set_string, [OPTION_CHOICE] = set_word,   [OPTION_ENUM] = set_word,
        [OPTION_CUSTOM] = set_custom};
    return option_is_switch(spec) ? STATUS_INTERNAL : setters[spec->kind](spec, label, text, err);
}

enum status option_set(const struct option_spec *spec, const char *label, const char *text, struct error *err)
{
    const enum status status = set_value(spec, label, text, err);
    if (status == STATUS_OK && spec->given) *spec->given |= spec->given_bit;
    return status;
}

enum status option_set_switch(const struct option_spec *spec, bool negated, struct error *err)
{
    char label[96];
    snprintf(label, sizeof label, "--%s", spec->name);
    if (!option_is_switch(spec)) return option_set(spec, label, NULL, err);
    if (spec->kind == OPTION_SWITCH) *(bool *)spec->target = !negated;
    if (spec->kind == OPTION_TRISTATE) *(int *)spec->target = !negated;
    if (spec->given) *spec->given |= spec->given_bit;
    return STATUS_OK;
}

/* 1 for true, 0 for false, -1 for neither. */
static int truth_of(const char *text)
{
    static const char *const yes[] = {"true", "on", "yes", "1"}, *const no[] = {"false", "off", "no", "0"};
    for (int i = 0; i < 4; i++) {
        if (strcasecmp(text, yes[i]) == 0) return 1;
        if (strcasecmp(text, no[i]) == 0) return 0;
    }
    return -1;
}

enum status option_set_anywhere(const struct option_spec *spec, const char *label, const char *text, struct error *err)
{
    if (option_takes_value(spec)) return option_set(spec, label, text, err);
    const int truth = truth_of(text);
    if (truth >= 0 && option_is_switch(spec)) return option_set_switch(spec, !truth, err);
    int times = truth;
    if (spec->kind == OPTION_CUSTOM && text[0] >= '2' && text[0] <= '9' && !text[1]) times = text[0] - '0';
    if (times < 0) return error_set(err, STATUS_INVALID, "%s: expected true or false, got '%s'", label, text);
    enum status status = STATUS_OK;
    for (int i = 0; i < times && status == STATUS_OK; i++) status = option_set(spec, label, NULL, err);
    return status;
}
