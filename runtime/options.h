/* Command-line flags, declared as tables: one entry gives the name, the type, the range, where the value goes and the
 * help text. `--name value`, `--name=value`, switches as `--name` and `--no-name`. Parsing is getopt_long's. */
#ifndef QUIRE_RUNTIME_OPTIONS_H
#define QUIRE_RUNTIME_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/engine.h"

enum option_kind {
    OPTION_SWITCH, /* bool: --name, --no-name */
    OPTION_INT32,
    OPTION_UINT64,
    OPTION_DOUBLE,
    OPTION_STRING, /* const char *, into argv */
    OPTION_CUSTOM  /* parse(target, text, err) */
};

struct option_spec {
    const char *name; /* without dashes: "max-model-len" */
    char letter;      /* 'm' for -m, or 0 */
    enum option_kind kind;
    void *target;            /* bool, int32_t, uint64_t, double or const char *; holds the default on entry */
    double minimum, maximum; /* of numbers, inclusive; both 0: any */
    const char *choices;     /* OPTION_STRING: "float32|float16", or NULL */
    const char *argument;    /* for the help: "N", "PATH" */
    const char *help;        /* one sentence, the default included */
    enum status (*parse)(void *target, const char *text, struct error *err);
    const char *heading; /* of the group that begins with this entry, or NULL */
};

#define OPTIONS_MAX 80
struct option_table {
    struct option_spec specs[OPTIONS_MAX];
    int count;
};
void option_table_add(struct option_table *table, const struct option_spec *specs, int count);

/* Parses argv[1..argc). A bad flag or value leaves a sentence that names the flag, what it got and what it takes;
 * the caller exits with status 2. Words that are not flags are refused unless `words` is given: then *num_words of them
 * are put there, in order [at most max_words]. *help is set by --help. */
enum status options_parse(const struct option_table *table, int argc, char **argv, bool *help, const char **words,
                          int max_words, int *num_words, struct error *err);
/* "usage: quire COMMAND ..." and the table, to `out`. */
void options_print_help(const struct option_table *table, const char *usage, const char *summary, FILE *out);

/* The flags that every command has: the engine's (--model, --device, --dtype, --block-size, ...), --verbose. */
void options_add_engine(struct option_table *table, struct engine_options *options, struct log *log);
/* The sampling flags (--temperature, --top-p, --max-tokens, --stop, --seed, --n, ...). Whoever applies them does so
 * over the model's defaults: given[] says which fields the user set. */
struct sampling_flags {
    struct sampling_params params;
    uint64_t given; /* bit by enum below */
};
enum sampling_field {
    FIELD_N,
    FIELD_TEMPERATURE,
    FIELD_TOP_P,
    FIELD_TOP_K,
    FIELD_MIN_P,
    FIELD_REPETITION_PENALTY,
    FIELD_PRESENCE_PENALTY,
    FIELD_FREQUENCY_PENALTY,
    FIELD_MAX_TOKENS,
    FIELD_MIN_TOKENS,
    FIELD_IGNORE_EOS,
    FIELD_SEED,
    FIELD_LOGPROBS,
    FIELD_STOP,
    FIELD_STOP_TOKEN_IDS,
    FIELD_LOGIT_BIAS,
    FIELD_SKIP_SPECIAL_TOKENS,
    FIELD_INCLUDE_STOP_STR
};
void options_add_sampling(struct option_table *table, struct sampling_flags *flags);
/* Copies the given fields of flags over *params. */
void sampling_flags_apply(const struct sampling_flags *flags, struct sampling_params *params);

/* Where the shipped model lies: ../share/quire/models/guide beside the executable, models/guide of the source tree for
 * a build folder, or QUIRE_MODEL from the environment. False if none is there. */
bool options_default_model(char *path, size_t size);

#endif
