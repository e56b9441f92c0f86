/* What is known of an input before it is run: whether it can be read twice, how many prompts it has, and what it holds.
 * An empty list is standard input. */
#ifndef QUIRE_RUNTIME_INPUT_FACTS_H
#define QUIRE_RUNTIME_INPUT_FACTS_H

#include <jansson.h>

#include "runtime/fingerprint.h"
#include "runtime/inputs.h"

bool input_facts_are_files(const struct input_list *list); /* all inputs are regular files */

/* The contents of all files, standard input from where it stands. *sizes is a list of the bytes of each, the caller's;
 * NULL on failure. */
enum status input_facts_hash(const struct input_list *list, struct fingerprint *out, json_t **sizes, struct error *err);

/* Whether the input has grown at its end since it had the fingerprint `before` and those sizes: behind the same files
 * there are others, or behind the last of them, which is not packed, are further lines. */
enum status input_facts_grown(const struct input_list *list, const struct fingerprint *before, const json_t *sizes,
                              bool *grown, struct error *err);

/* Counts the prompts of files. Where the input cannot be read any further, one more stands for the rest: the run gets
 * there, says why, and is never complete. Standard input is left where it was. */
enum status input_facts_count(const struct input_list *list, int64_t *count, struct error *err);

#endif
