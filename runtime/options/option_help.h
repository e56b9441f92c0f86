/* The help of a command, from its table of flags, and the flags that every command has beside its own. */
#ifndef QUIRE_RUNTIME_OPTION_HELP_H
#define QUIRE_RUNTIME_OPTION_HELP_H

#include "runtime/options/options.h"

/* Without targets: options_parse knows what each does. */
enum everywhere_flag { FLAG_CONFIG, FLAG_HELP, FLAG_HELP_ALL, NUM_EVERYWHERE_FLAGS };
extern const struct option_spec everywhere_flags[NUM_EVERYWHERE_FLAGS];

/* options_print_help writes the lines of OPTION_HELP_TABLE as
 *
 *     usage   TAB text
 *     summary TAB text
 *     heading TAB text                                      of the flags that follow
 *     flag    TAB name TAB letters TAB [no-] TAB value TAB help  letters, [no-] and value may be empty
 */

#endif
