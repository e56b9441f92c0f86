/* From the text of a flag's value to the value; and the flags that every command has. */
#ifndef QUIRE_RUNTIME_OPTION_VALUE_H
#define QUIRE_RUNTIME_OPTION_VALUE_H

#include "runtime/options/options.h"

bool option_is_switch(const struct option_spec *spec);
bool option_takes_value(const struct option_spec *spec); /* on the command line */

/* Writes the value to spec->target and notes that it was given. `label` begins a sentence about it and says where it
 * comes from: "--block-size", "QUIRE_BLOCK_SIZE", "quire.yaml:3: block-size". */
enum status option_set(const struct option_spec *spec, const char *label, const char *text, struct error *err);
/* Sets a flag without a value, as it stands on the command line: --name, or --no-name if `negated`. */
enum status option_set_switch(const struct option_spec *spec, bool negated, struct error *err);
/* Sets any flag from an environment variable or a file, where one without a value on the command line has one all the
 * same: true, on, yes or 1, or their opposites; one that may be repeated (-vv), also how often. */
enum status option_set_anywhere(const struct option_spec *spec, const char *label, const char *text, struct error *err);

/* The sentence for a flag that stands there without its value. */
enum status option_value_missing(const struct option_spec *spec, const char *label, struct error *err);

/* The flags that every command has beside its own; without targets: options_parse knows what each does. */
enum everywhere_flag { FLAG_CONFIG, FLAG_HELP, FLAG_HELP_ALL, NUM_EVERYWHERE_FLAGS };
extern const struct option_spec everywhere_flags[NUM_EVERYWHERE_FLAGS];

#endif
