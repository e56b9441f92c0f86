#include "runtime/options/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"

void option_table_add(struct option_table *table, const struct option_spec *specs, int count)
{
    for (int i = 0; i < count && table->count < OPTIONS_MAX; i++) table->specs[table->count++] = specs[i];
}

static bool is_switch(const struct option_spec *spec)
{
    return spec->kind == OPTION_SWITCH || spec->kind == OPTION_TRISTATE;
}

static bool takes_value(const struct option_spec *spec)
{
    return !is_switch(spec) && (spec->kind != OPTION_CUSTOM || spec->argument);
}

/* ---- values ---- */

static bool has_bounds(const struct option_spec *spec)
{
    return spec->minimum != 0 || spec->maximum != 0;
}

/* The sentence for a bad number: "expected a whole number from 1 to 8", with the flag's bounds if it has any. */
static enum status out_of_range(const struct option_spec *spec, const char *text, struct error *err)
{
    const bool whole = spec->kind != OPTION_DOUBLE;
    const double minimum = spec->minimum, maximum = spec->maximum;
    if (!has_bounds(spec)) {
        const char *number = spec->kind == OPTION_UINT64 ? "a whole number from 0 to 18446744073709551615"
                             : whole                     ? "a whole number that fits in 32 bits"
                                                         : "a number";
        return error_set(err, STATUS_INVALID, "--%s: expected %s, got '%s'", spec->name, number, text);
    }
    if (!whole && isinf(maximum))
        return error_set(err, STATUS_INVALID, "--%s: expected a number of at least %.15g, got '%s'", spec->name,
                         minimum, text);
    return error_set(err, STATUS_INVALID, "--%s: expected %s from %.15g to %.15g, got '%s'", spec->name,
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

static enum status set_int32(const struct option_spec *spec, const char *text, struct error *err)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!begins_number(text, true) || *end || errno || value < INT32_MIN || value > INT32_MAX ||
        !in_range(spec, (double)value)) {
        return out_of_range(spec, text, err);
    }
    *(int32_t *)spec->target = (int32_t)value;
    return STATUS_OK;
}

static enum status set_uint64(const struct option_spec *spec, const char *text, struct error *err)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!begins_number(text, false) || *end || errno || !in_range(spec, (double)value)) {
        return out_of_range(spec, text, err);
    }
    *(uint64_t *)spec->target = value;
    return STATUS_OK;
}

static enum status set_double(const struct option_spec *spec, const char *text, struct error *err)
{
    char *end;
    double value = strtod(text, &end);
    if (!begins_number(text, true) || end == text || *end || !isfinite(value) || !in_range(spec, value)) {
        return out_of_range(spec, text, err);
    }
    *(double *)spec->target = value;
    return STATUS_OK;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (const char *at = choices; *at;) {
        size_t n = strcspn(at, "|");
        if (n == length && memcmp(at, text, n) == 0) return true;
        at += n + (at[n] == '|');
    }
    return false;
}

static enum status value_missing(const struct option_spec *spec, struct error *err)
{
    return error_set(err, STATUS_INVALID, "--%s needs a value: --%s %s", spec->name, spec->name,
                     spec->choices ? spec->choices : spec->argument);
}

static enum status set_string(const struct option_spec *spec, const char *text, struct error *err)
{
    if (spec->not_empty && !*text) return value_missing(spec, err);
    if (spec->choices && !is_choice(spec->choices, text)) {
        return error_set(err, STATUS_INVALID, "--%s: expected %s, got '%s'", spec->name, spec->choices, text);
    }
    *(const char **)spec->target = text;
    return STATUS_OK;
}

static enum status set_custom(const struct option_spec *spec, const char *text, struct error *err)
{
    enum status status = spec->parse(spec->target, text, err);
    if (status == STATUS_OK) return status;
    char prefix[96];
    snprintf(prefix, sizeof prefix, "--%s", spec->name);
    return error_prefix(err, status, prefix);
}

static enum status set_value(const struct option_spec *spec, bool negated, const char *text, struct error *err)
{
    switch (spec->kind) {
    case OPTION_SWITCH:
        *(bool *)spec->target = !negated;
        return STATUS_OK;
    case OPTION_TRISTATE:
        *(int *)spec->target = !negated;
        return STATUS_OK;
    case OPTION_INT32:
        return set_int32(spec, text, err);
    case OPTION_UINT64:
        return set_uint64(spec, text, err);
    case OPTION_DOUBLE:
        return set_double(spec, text, err);
    case OPTION_STRING:
        return set_string(spec, text, err);
    case OPTION_CUSTOM:
        return set_custom(spec, text, err);
    }
    return STATUS_OK;
}

/* ---- unknown flags ---- */

enum { NAME_MAX_LENGTH = EDIT_DISTANCE_MAX_LENGTH };

struct suggestion {
    const char *name; /* NULL: no flag is near */
    int distance;     /* of the best so far: a better one must be below it */
    bool negated;
};

static void consider(struct suggestion *best, const char *typed, const char *known, bool negated)
{
    int distance = edit_distance(typed, known);
    if (distance < best->distance) *best = (struct suggestion){known, distance, negated};
}

/* The flag that `name` most likely meant. */
static struct suggestion nearest_flag(const struct option_table *table, const char *name)
{
    struct suggestion best = {NULL, edit_distance_near(name) + 1, false};
    bool negated = strncmp(name, "no-", 3) == 0;
    for (int i = 0; i < table->count; i++) {
        const struct option_spec *spec = &table->specs[i];
        if (negated && is_switch(spec)) consider(&best, name + 3, spec->name, true);
        consider(&best, name, spec->name, false);
    }
    return best;
}

/* `word` as typed: "--name" or "--name=value". Either no flag begins with that name, or several do. */
static enum status unknown_flag(const struct option_table *table, const char *word, struct error *err)
{
    char name[NAME_MAX_LENGTH + 1];
    size_t length = strcspn(word, "=") - 2;
    snprintf(name, sizeof name, "%.*s", (int)(length < NAME_MAX_LENGTH ? length : NAME_MAX_LENGTH), word + 2);
    const char *first = NULL, *second = NULL;
    for (int i = 0; i < table->count && length < NAME_MAX_LENGTH; i++) {
        const char *known = table->specs[i].name;
        if (strncmp(known, name, length) != 0) continue;
        if (first) second = known;
        if (!first) first = known;
    }
    if (second) {
        return error_set(err, STATUS_INVALID, "--%s could mean --%s or --%s; write the whole name", name, first,
                         second);
    }
    for (char *at = name; *at; at++) {
        if (*at == '_') *at = '-';
    }
    struct suggestion nearest = nearest_flag(table, name);
    if (!nearest.name) {
        return error_set(err, STATUS_INVALID, "there is no flag %.*s; --help lists the flags", (int)length + 2, word);
    }
    return error_set(err, STATUS_INVALID, "there is no flag %.*s; did you mean --%s%s? --help lists the flags",
                     (int)length + 2, word, nearest.negated ? "no-" : "", nearest.name);
}

/* ---- getopt_long ---- */

enum { CODE_HELP = 'h', CODE_FIRST = 256, MAX_LONG = 2 * OPTIONS_MAX + 2 };

/* The tables of getopt_long. The code of a flag is CODE_FIRST + 2 * its index in the table, + 1 for --no-. */
struct getopt_tables {
    struct option longs[MAX_LONG];
    char negated_names[OPTIONS_MAX][NAME_MAX_LENGTH];
    char letters[3 + 2 * OPTIONS_MAX + 1];
};

static void build_tables(const struct option_table *table, struct getopt_tables *out)
{
    int n = 0;
    size_t letter = 0;
    /* '-': a word that is no flag comes as code 1; ':': a missing value comes as code ':'. */
    out->letters[letter++] = '-';
    out->letters[letter++] = ':';
    out->letters[letter++] = CODE_HELP;
    out->longs[n++] = (struct option){"help", no_argument, NULL, CODE_HELP};
    for (int i = 0; i < table->count; i++) {
        const struct option_spec *spec = &table->specs[i];
        int has_value = takes_value(spec) ? required_argument : no_argument;
        out->longs[n++] = (struct option){spec->name, has_value, NULL, CODE_FIRST + 2 * i};
        if (spec->letter) {
            out->letters[letter++] = spec->letter;
            if (has_value == required_argument) out->letters[letter++] = ':';
        }
        if (is_switch(spec)) {
            snprintf(out->negated_names[i], NAME_MAX_LENGTH, "no-%s", spec->name);
            out->longs[n++] = (struct option){out->negated_names[i], no_argument, NULL, CODE_FIRST + 2 * i + 1};
        }
    }
    out->letters[letter] = '\0';
    out->longs[n] = (struct option){0};
}

static const struct option_spec *spec_of_code(const struct option_table *table, int code)
{
    if (code >= CODE_FIRST) return &table->specs[(code - CODE_FIRST) / 2];
    for (int i = 0; i < table->count; i++) {
        if (table->specs[i].letter == code) return &table->specs[i];
    }
    return NULL;
}

/* getopt_long returned '?' or ':'; optopt and the word at which it stopped tell why. */
static enum status refused(const struct option_table *table, int code, const char *word, struct error *err)
{
    const struct option_spec *spec = optopt ? spec_of_code(table, optopt) : NULL;
    if (code == ':' && spec) return value_missing(spec, err);
    if (spec || optopt == CODE_HELP) {
        return error_set(err, STATUS_INVALID, "--%s%s takes no value, but was written %s",
                         optopt >= CODE_FIRST && (optopt & 1) ? "no-" : "", spec ? spec->name : "help", word);
    }
    if (optopt) return error_set(err, STATUS_INVALID, "there is no flag -%c; --help lists the flags", optopt);
    return unknown_flag(table, word, err);
}

static enum status take_word(const struct option_table *table, const char *word, struct error *err)
{
    if (table->word && *table->word)
        return error_set(err, STATUS_INVALID, "'%s' is a word too many; put a text of several words in quotes", word);
    if (table->word) {
        *table->word = word;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "'%s' is not a flag; flags begin with --, and --help lists them", word);
}

enum status options_parse(const struct option_table *table, int argc, char **argv, bool *help, struct error *err)
{
    struct getopt_tables tables;
    build_tables(table, &tables);
    *help = false;
    optind = 0; /* glibc: begin a new scan */
    opterr = 0;
    for (;;) {
        optopt = 0;
        const int code = getopt_long(argc, argv, tables.letters, tables.longs, NULL);
        if (code == -1) break;
        if (code == 1) {
            const enum status taken = take_word(table, optarg, err);
            if (taken != STATUS_OK) return taken;
            continue;
        }
        if (code == '?' || code == ':') return refused(table, code, argv[optind - 1], err);
        if (code == CODE_HELP) {
            *help = true;
            return STATUS_OK;
        }
        const struct option_spec *spec = spec_of_code(table, code);
        const enum status status = set_value(spec, code >= CODE_FIRST && (code & 1), optarg, err);
        if (status != STATUS_OK) return status;
        if (spec->given) *spec->given |= spec->given_bit;
    }
    enum status status = STATUS_OK;
    for (; optind < argc && status == STATUS_OK; optind++) /* what follows "--" */
        status = take_word(table, argv[optind], err);
    return status;
}

/* ---- help ---- */

enum { HELP_COLUMN = 34, HELP_WIDTH = 100 };

/* Prints `text`, which begins at `column`, wrapped with a hanging indent of `indent`. */
static void print_wrapped(const char *text, int column, int indent, FILE *out)
{
    while (*text) {
        size_t length = strcspn(text, " ");
        if (column > indent && column + 1 + (int)length > HELP_WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, length, out);
        column += (int)length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_spec(const struct option_spec *spec, FILE *out)
{
    int column = spec->letter ? fprintf(out, "  -%c, ", spec->letter) : fprintf(out, "      ");
    column += fprintf(out, "--%s%s", is_switch(spec) ? "[no-]" : "", spec->name);
    if (takes_value(spec)) column += fprintf(out, " %s", spec->choices ? spec->choices : spec->argument);
    if (column + 2 > HELP_COLUMN) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", HELP_COLUMN - column, "");
    print_wrapped(spec->help, HELP_COLUMN, HELP_COLUMN, out);
}

void options_print_help(const struct option_table *table, const char *usage, const char *summary, FILE *out)
{
    static const struct option_spec help = {
        .name = "help", .letter = 'h', .kind = OPTION_CUSTOM, .help = "Show this text and exit."};
    fprintf(out, "usage: quire %s\n\n", usage);
    print_wrapped(summary, 0, 0, out);
    if (table->count == 0 || !table->specs[0].heading) fputc('\n', out);
    for (int i = 0; i < table->count; i++) {
        const struct option_spec *spec = &table->specs[i];
        if (spec->heading) fprintf(out, "\n%s\n", spec->heading);
        print_spec(spec, out);
    }
    fputc('\n', out);
    print_spec(&help, out);
}
