/* The sampling flags (--temperature, --top-p, --max-tokens, --stop, ...), made from the table of sampling fields. */
#ifndef QUIRE_RUNTIME_SAMPLING_FLAGS_H
#define QUIRE_RUNTIME_SAMPLING_FLAGS_H

#include "runtime/options/options.h"
#include "scheduler/sampling_params.h"

/* What the user set. The flags of a command are parsed before the model is open, whose own defaults they override, so
 * they are kept apart first. Before parsing, `params` holds the command's defaults, which the help shows; the rest is
 * zero. It must outlive the option table. */
struct sampling_flags {
    const struct option_table *table; /* that has the flags */
    struct sampling_params params;
    uint64_t given; /* bit i: sampling_fields[i] was given */
    struct {
        char name[32], help[256];
    } texts[NUM_SAMPLING_FIELDS]; /* of the flags; the option table refers to them */
};

/* Adds the flags that say how many answers are given, how they are searched for, and whether with log-probabilities
 * (the first NUM_ANSWER_FIELDS): only some commands have a place for them. `heading`: of the group that they begin. */
void sampling_flags_add_answers(struct option_table *table, struct sampling_flags *flags, const char *heading);
/* Adds the flags of all other fields but seed: --seed is the engine's, and every request draws random numbers of its
 * own from it. */
void sampling_flags_add(struct option_table *table, struct sampling_flags *flags);

/* After parsing: the ranges, with the token ids unchecked, because no model is open yet. */
enum status sampling_flags_check(const struct sampling_flags *flags, struct error *err);
/* Copies the fields that were given over those of *params. It fails only if memory runs out. */
enum status sampling_flags_apply(const struct sampling_flags *flags, struct sampling_params *params, struct error *err);
void sampling_flags_free(struct sampling_flags *flags); /* the lists that were parsed */

#endif
