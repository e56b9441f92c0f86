/* What is known of an input before it is run: whether it can be read twice, how many prompts it has, and what it holds.
 * An empty list is standard input. */
#ifndef QUIRE_RUNTIME_INPUT_FACTS_H
#define QUIRE_RUNTIME_INPUT_FACTS_H

#include "runtime/generate/fingerprint.h"
#include "runtime/inputs.h"

bool input_facts_are_files(const struct input_list *list); /* all inputs are regular files */

/* The contents of all files, standard input from where it stands. */
enum status input_facts_hash(const struct input_list *list, struct fingerprint *out, struct error *err);

/* Counts the prompts of files. Where the input cannot be read any further, one more stands for the rest: the run gets
 * there, says why, and is never complete. Standard input is left where it was. */
enum status input_facts_count(const struct input_list *list, int64_t *count, struct error *err);

#endif
