/* The flags on drafts: --speculative-config, and the two short forms for what most use of it. */
#ifndef QUIRE_RUNTIME_SPECULATION_FLAGS_H
#define QUIRE_RUNTIME_SPECULATION_FLAGS_H

#include "runtime/engine/engine_options.h"
#include "runtime/options/options.h"

/* They set options->speculative, which holds the defaults. A short form comes before the JSON of --speculative-config,
 * wherever either stands. */
void speculation_flags_add(struct option_table *table, struct engine_options *options);

#endif
