/* Command-line flags, declared in tables: an entry gives the name, the type, the range, where the value goes and the
 * help text. A flag is written `--name value`, `--name=value`, `-m value` or `-mvalue`, a switch `--name` or
 * `--no-name`. A name may be cut short where no other begins with the same letters. getopt_long parses the flags, so
 * only one thread may parse at a time. */
#ifndef QUIRE_RUNTIME_OPTIONS_H
#define QUIRE_RUNTIME_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

enum option_kind {
    OPTION_SWITCH,   /* bool: --name, --no-name */
    OPTION_TRISTATE, /* int: --name 1, --no-name 0; the default -1 leaves it to quire */
    OPTION_INT32,
    OPTION_UINT64,
    OPTION_DOUBLE,
    OPTION_STRING, /* const char *, into argv */
    OPTION_CUSTOM  /* parse(target, text, err); without `argument` the flag takes no value, and text is NULL */
};

struct option_spec {
    const char *name; /* without dashes: "max-model-len" */
    char letter;      /* 'm' for -m, or 0 */
    enum option_kind kind;
    void *target;            /* bool, int, int32_t, uint64_t, double or const char *; holds the default on entry */
    double minimum, maximum; /* of numbers, inclusive; both 0: no bounds; maximum INFINITY: no upper bound */
    const char *choices;     /* OPTION_STRING: "float32|float16", or NULL */
    bool not_empty;          /* OPTION_STRING, OPTION_CUSTOM with `argument`: "" is no value */
    const char *argument;    /* for the help: "N", "PATH" */
    const char *help;        /* one sentence, the default included */
    enum status (*parse)(void *target, const char *text, struct error *err); /* the sentence says what was expected */
    const char *heading; /* of the group that begins with this entry, or NULL */
    uint64_t *given;     /* if not NULL, given_bit is set in it when the flag is given */
    uint64_t given_bit;
};

/* Words that are no flags: names of files. */
struct option_words {
    const char **list; /* [count] room for argc of them; the caller's */
    int count;
};

#define OPTIONS_MAX 80
struct option_table {
    struct option_spec specs[OPTIONS_MAX];
    int count;
    const char **word;          /* gets the one word that is no flag; NULL: such a word is an error */
    struct option_words *words; /* gets all such words instead; or NULL */
};
void option_table_add(struct option_table *table, const struct option_spec *specs, int count);

/* Parses argv[1..argc). A bad flag or value, or a word too many, leaves a sentence that says what it got and
 * what it takes, and for an unknown flag the nearest known one; the caller exits with status 2. *help is set by --help
 * (-h), and then nothing after it is looked at. */
enum status options_parse(const struct option_table *table, int argc, char **argv, bool *help, struct error *err);
/* Writes "usage: quire USAGE", the summary and the table to `out`. */
void options_print_help(const struct option_table *table, const char *usage, const char *summary, FILE *out);

#endif
