/* Command-line flags, declared as tables: one entry gives the name, the type, the range, where the value goes and the
 * help text. `--name value`, `--name=value`, switches as `--name` and `--no-name`, and an unambiguous beginning of a
 * name for the whole; `-m value`, `-mvalue`. Parsing is getopt_long's, so not from two threads at once. A name may have
 * several entries: the flag then sets the target of each, and the help shows the first. */
#ifndef QUIRE_RUNTIME_OPTIONS_H
#define QUIRE_RUNTIME_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/engine/engine.h"

enum option_kind {
    OPTION_SWITCH,   /* bool: --name, --no-name */
    OPTION_TRISTATE, /* int: --name 1, --no-name 0; -1 by default: left to quire */
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
    double minimum, maximum; /* of numbers, inclusive; both 0: any; maximum INFINITY: no upper bound */
    const char *choices;     /* OPTION_STRING: "float32|float16", or NULL */
    const char *argument;    /* for the help: "N", "PATH" */
    const char *help;        /* one sentence, the default included */
    enum status (*parse)(void *target, const char *text, struct error *err); /* its sentence: what was expected */
    const char *heading; /* of the group that begins with this entry, or NULL */
    uint64_t *given;     /* gets `given_bit` when the flag is there; or NULL */
    uint64_t given_bit;
};

#define OPTIONS_MAX 80
struct option_table {
    struct option_spec specs[OPTIONS_MAX];
    int count;
};
void option_table_add(struct option_table *table, const struct option_spec *specs, int count);

/* Parses argv[1..argc). A bad flag or value leaves a sentence that names the flag, what it got and what it takes, and
 * for an unknown flag the nearest known one; the caller exits with status 2. Words that are not flags are refused
 * unless `words` is given: then *num_words of them are put there, in order [at most max_words]. *help is set by --help
 * (-h), and then nothing after it is looked at. */
enum status options_parse(const struct option_table *table, int argc, char **argv, bool *help, const char **words,
                          int max_words, int *num_words, struct error *err);
/* "usage: quire COMMAND ..." and the table, to `out`. */
void options_print_help(const struct option_table *table, const char *usage, const char *summary, FILE *out);

/* The flags that every command has: the engine's (--model, --device, --dtype, --block-size, ...), --verbose. */
void options_add_engine(struct option_table *table, struct engine_options *options, struct log *log);
/* The sampling flags of one answer (--temperature, --top-p, --max-tokens, --stop, --seed, ...); --n and --logprobs are
 * for a command that has a place for them. Whoever applies them does so
 * over the model's defaults: `given` says which fields the user set. Set .params = sampling_params_default() (and what
 * the command has otherwise) before parsing; check the ranges with sampling_params_check(&flags.params, INT32_MAX)
 * after it. */
struct sampling_flags {
    struct sampling_params params;
    uint64_t given; /* 1 << enum sampling_field */
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

/* For OPTION_CUSTOM: a block size, to an int32_t. */
enum status options_parse_block_size(void *target, const char *text, struct error *err);

/* Where the shipped model lies: QUIRE_MODEL from the environment if it is set (whatever is there), else
 * ../share/quire/models/guide beside the executable, else models/guide of the source tree for a build folder. False if
 * none is there. */
bool options_default_model(char *path, size_t size);
/* Sets options->model to the shipped model, written to path[size], where --model was not given; fails with what to do
 * if there is none. `path` must outlive the options. */
enum status options_require_model(struct engine_options *options, char *path, size_t size, struct error *err);

#endif
