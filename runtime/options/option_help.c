#include "runtime/options/option_value.h"

#include <string.h>

#include "base/notice.h"

const struct option_spec everywhere_flags[NUM_EVERYWHERE_FLAGS] = {
    [FLAG_CONFIG] = {"config", OPTION_STRING, NULL, "FILE",
                     .help = "Read values of flags from a file: lines 'max-model-len: 4096' (flat YAML), or a JSON "
                             "object. A flag comes before QUIRE_MAX_MODEL_LEN in the environment, that before the "
                             "file.",
                     .not_empty = true},
    [FLAG_HELP] = {"help", OPTION_CUSTOM, .help = "Show the common flags and exit.", .letter = 'h'},
    [FLAG_HELP_ALL] = {"help-all", OPTION_CUSTOM, .help = "Show every flag and exit."},
};

enum { HELP_COLUMN = 34, MIN_WIDTH = 60, MAX_WIDTH = 100 };

/* Columns of the terminal, within bounds; the most where `out` is none. */
static int width_of(FILE *out)
{
    const int columns = notice_columns(out);
    return columns == 0 || columns > MAX_WIDTH ? MAX_WIDTH : columns < MIN_WIDTH ? MIN_WIDTH : columns;
}

/* How the value is written: "N", "auto|cpu"; "" for a flag without one. */
static const char *value_of(const struct option_spec *spec)
{
    return option_takes_value(spec) ? spec->argument : "";
}

static void print_spec(const struct option_spec *spec, FILE *out)
{
    int column = spec->letters  ? fprintf(out, "  -%s, ", spec->letters)
                 : spec->letter ? fprintf(out, "  -%c, ", spec->letter)
                                : fprintf(out, "      ");
    column += fprintf(out, "--%s%s", option_is_switch(spec) ? "[no-]" : "", spec->name);
    if (option_takes_value(spec)) column += fprintf(out, " %s", value_of(spec));
    if (column + 2 > HELP_COLUMN) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", HELP_COLUMN - column, "");
    notice_print_line(out, spec->help, HELP_COLUMN, width_of(out));
}

bool options_append_lines(const struct option_table *table, const char *usage, const char *summary, struct text *out)
{
    bool ok = text_printf(out, "usage\t%s\nsummary\t%s\n", usage, summary);
    for (int i = 0; ok && i < table->count + NUM_EVERYWHERE_FLAGS; i++) {
        const struct option_spec *spec = i < table->count ? &table->specs[i] : &everywhere_flags[i - table->count];
        const char *heading = i == table->count ? "Everywhere:" : spec->heading;
        const char *letters = spec->letters ? spec->letters : (const char[]){spec->letter, '\0'};
        ok = (!heading || text_printf(out, "heading\t%s\n", heading)) &&
             text_printf(out, "flag\t%s\t%s\t%s\t%s\t%s\n", spec->name, letters, option_is_switch(spec) ? "no-" : "",
                         value_of(spec), spec->help);
    }
    return ok;
}

static int count_common(const struct option_table *table)
{
    int count = 0;
    for (int i = 0; i < table->count; i++) count += table->specs[i].common;
    return count;
}

/* A heading stands before the first flag of its group that is shown. */
static void print_flags(const struct option_table *table, bool all, FILE *out)
{
    const char *heading = NULL;
    for (int i = 0; i < table->count; i++) {
        const struct option_spec *spec = &table->specs[i];
        if (spec->heading) heading = spec->heading;
        if (!all && !spec->common) continue;
        if (heading) fprintf(out, "%s%s\n", all ? "\n" : "", heading);
        heading = NULL;
        print_spec(spec, out);
    }
}

/* In the first help, the first sentence. */
static void print_summary(const char *summary, bool all, FILE *out)
{
    char text[1024];
    const char *end = strstr(summary, ". ");
    const int length = all || !end ? (int)strlen(summary) : (int)(end - summary) + 1;
    snprintf(text, sizeof text, "%.*s", length, summary);
    notice_print_line(out, text, 0, width_of(out));
}

void options_print_help(const struct option_table *table, const char *usage, const char *summary, FILE *out)
{
    const int common = count_common(table);
    const bool all = table->help_all || common == 0;
    fprintf(out, "usage: quire %s\n\n", usage);
    print_summary(summary, all, out);
    if (table->count == 0 || !table->specs[0].heading || !all) fputc('\n', out);
    print_flags(table, all, out);
    fputc('\n', out);
    if (all) {
        for (int i = 0; i < NUM_EVERYWHERE_FLAGS; i++) print_spec(&everywhere_flags[i], out);
        return;
    }
    fprintf(out,
            "These are %d of %d flags; --help-all shows them all. Each is also read from the environment\n"
            "(QUIRE_NAME) and from --config FILE. Exit status: 0 done, 1 failed, 2 wrong usage.\n",
            common, table->count + NUM_EVERYWHERE_FLAGS);
}
