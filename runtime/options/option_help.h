/* The help of a command, from its table of flags, and the flags that every command has beside its own. */
#ifndef QUIRE_RUNTIME_OPTION_HELP_H
#define QUIRE_RUNTIME_OPTION_HELP_H

#include "runtime/options/options.h"

/* Without targets: options_parse knows what each does. */
enum everywhere_flag { FLAG_CONFIG, FLAG_HELP, FLAG_HELP_ALL, NUM_EVERYWHERE_FLAGS };
extern const struct option_spec everywhere_flags[NUM_EVERYWHERE_FLAGS];

#endif
