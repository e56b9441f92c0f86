/* The memory plan again with one setting changed: what block size, types, memory and limits would give. Nothing is
 * allocated or read, so that a row takes about a millisecond. */
#ifndef QUIRE_RUNTIME_WHAT_IF_H
#define QUIRE_RUNTIME_WHAT_IF_H

#include <jansson.h>

#include "runtime/engine/engine.h"

enum { WHAT_IF_MAX = 48 };

struct what_if {
    const char *option; /* the field of struct engine_options, or "weights_dtype" */
    const char *flag;   /* the flag that sets it, or words where there is none */
    char value[24];
    double number; /* the value, where it is a number; else NaN */
    struct memory_profile profile;
    struct batch_limits limits;
    bool fits; /* false: the model with one request of max_model_len does not */
};

struct what_ifs {
    struct what_if rows[WHAT_IF_MAX];
    int count;
};

/* `base` was planned with `o`: its memory and limits are what the rows change. Settings that the options or the model
 * contradict get no row. */
void what_ifs_make(const struct engine_options *o, const struct engine_info *base, struct what_ifs *out);

/* Prints them as a table on stdout, after a row of `base`. False if it could not be written. */
bool what_ifs_print(const struct what_ifs *rows, const struct engine_info *base);
/* An array of objects: option, value, fits, and where it fits the fields of the memory report by the same names; NULL
 * if memory ran out. */
json_t *what_ifs_json(const struct what_ifs *rows);

#endif
