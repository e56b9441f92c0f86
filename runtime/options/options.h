/* Command-line flags, declared in tables: an entry gives the name, the type, the range, where the value goes and the
 * help text. A flag is written `--name value`, `--name=value`, `-m value` or `-mvalue`, a switch `--name` or
 * `--no-name`, `--name true`, `--name=false`. '_' may stand for '-' in a name, and a name may be cut short where no
 * other begins with the same letters. What follows `--` is no flag.
 *
 * A value comes from the first of these that has one: the flag, the environment variable QUIRE_NAME (capitals, '_' for
 * '-'; an empty one counts as not set), the file of --config (config_file.h), the default. */
#ifndef QUIRE_RUNTIME_OPTIONS_H
#define QUIRE_RUNTIME_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/array.h"
#include "base/status.h"

enum option_kind {
    OPTION_SWITCH,   /* bool: --name, --no-name */
    OPTION_TRISTATE, /* int: --name 1, --no-name 0; the default -1 leaves it to quire */
    OPTION_INT32,
    OPTION_UINT64,
    OPTION_DOUBLE,
    OPTION_STRING, /* const char *, into argv, the environment or the table */
    OPTION_CHOICE, /* const char *: one of the words of `argument`, as in "float32|float16" */
    OPTION_ENUM,   /* int32_t or an enum: values[i] for the word i of `argument` */
    OPTION_CUSTOM  /* parse(target, text, err); without `argument` the flag takes no value, and text is NULL */
};

struct option_spec {
    const char *name; /* without dashes: "max-model-len" */
    enum option_kind kind;
    void *target;            /* bool, int, int32_t, uint64_t, double or const char *; holds the default on entry */
    const char *argument;    /* how the value is written: "N", "PATH"; the words of OPTION_CHOICE and OPTION_ENUM */
    const char *help;        /* one sentence, the default included */
    const char *heading;     /* of the group that begins with this entry, or NULL */
    char letter;             /* 'm' for -m, or 0 */
    const char *letters;     /* "tp" for -tp, or NULL */
    bool common;             /* stands in the first help, --help; --help-all has every flag */
    double minimum, maximum; /* of numbers, inclusive; both 0: no bounds; maximum INFINITY: no upper bound */
    const int32_t *values;   /* OPTION_ENUM */
    enum status (*parse)(void *target, const char *text, struct error *err); /* the sentence says what was expected */
    bool not_empty;  /* OPTION_STRING, OPTION_CUSTOM with `argument`: "" is no value */
    bool repeats;    /* may be given several times, and adds to what was given before: a list in a file */
    uint64_t *given; /* if not NULL, given_bit is set in it when the flag is given, wherever */
    uint64_t given_bit;
    const char *note; /* OPTION_SWITCH: a sentence to say on stderr if it is on, or NULL */
};

/* Words that are no flags: names of files. Zero-initialise; `list` is to be freed. */
struct option_words {
    const char **list; /* [count] */
    size_t count, capacity;
};

enum option_source { OPTION_FROM_DEFAULT, OPTION_FROM_FILE, OPTION_FROM_ENVIRONMENT, OPTION_FROM_FLAG };

#define OPTIONS_MAX 128
#define OPTIONS_CONFIG_MAX (64 * 1024)
/* Zero-initialise all but `word`, `words` and `flags_of_all`. It must live as long as the values: they may point into
 * it. */
struct option_table {
    struct option_spec specs[OPTIONS_MAX];
    int count;
    const char **word;          /* gets the one word that is no flag; NULL: such a word is an error */
    struct option_words *words; /* gets all such words instead; or NULL */
    const char *flags_of_all;   /* lines with the flags of all commands (flag_lines.h); NULL: there are none */
    bool ignored;               /* the target of flags that change nothing */
    /* Set by options_parse. */
    bool help_all;                          /* --help-all: every flag; else the common ones, if any is marked */
    const char *config;                     /* the file of --config */
    enum option_source from[OPTIONS_MAX];   /* of each entry's value */
    char config_values[OPTIONS_CONFIG_MAX]; /* the texts of the file's values */
};
void option_table_add(struct option_table *table, const struct option_spec *specs, int count);

/* Parses argv[1..argc), then the environment. A bad flag or value, or a word too many, leaves a sentence that says what
 * it got, where, and what it takes, and for an unknown flag the nearest known one; the caller exits with status 2.
 * *help is set by --help (-h) and --help-all, and then nothing after it is looked at. */
enum status options_parse(struct option_table *table, int argc, char **argv, bool *help, struct error *err);
/* After that, unless help was asked for: reads the file of --config, if there is one, and says the notes of the
 * switches that are on. */
enum status options_read_config(struct option_table *table, struct error *err);
/* For a sentence about a value that is found wrong later: writes to label[size] where it comes from, "QUIRE_TOP_P" or
 * "quire.yaml: top-p". False for a flag of the command line, or a default: the sentence is clear without it. */
bool options_origin(const struct option_table *table, const char *name, char *label, size_t size);
/* Writes "usage: quire USAGE", the summary and the table to `out`, in the form that was asked for. */
void options_print_help(const struct option_table *table, const char *usage, const char *summary, FILE *out);
/* Appends the usage, the summary and every flag of the table as lines, for programs. False: memory ran out.
 *
 *     usage   TAB text
 *     summary TAB text
 *     heading TAB text                                      of the flags that follow
 *     flag    TAB name TAB letters TAB [no-] TAB value TAB help  letters, [no-] and value may be empty
 */
bool options_append_lines(const struct option_table *table, const char *usage, const char *summary, struct text *out);

#endif
