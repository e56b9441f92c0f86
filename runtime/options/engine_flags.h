/* The flags that every command has: the engine's (--model, --device, --dtype, --block-size, ...) and --verbose. */
#ifndef QUIRE_RUNTIME_ENGINE_FLAGS_H
#define QUIRE_RUNTIME_ENGINE_FLAGS_H

#include "runtime/engine/engine.h"
#include "runtime/options/options.h"

/* The flags set fields of *options and *log, which hold the defaults. Warnings on that log name settings as flags. */
void engine_flags_add(struct option_table *table, struct engine_options *options, struct log *log);

/* For a command that runs one engine. INVALID: several were asked for; `why` ends the sentence. */
enum status engine_flags_check_one(const struct engine_options *options, const char *why, struct error *err);

/* Adds --trace, for a command that runs requests to their end. */
void trace_flag_add(struct option_table *table, struct engine_options *options);

extern const int32_t engine_flags_block_sizes[]; /* of OPTION_ENUM "8|16|32|64|128" */
/* For OPTION_CUSTOM: the name of a type or of a device, to a const char *. */
enum status engine_flags_parse_dtype(void *target, const char *text, struct error *err);
enum status engine_flags_parse_device(void *target, const char *text, struct error *err);

/* Adds --model, --revision and --trust-remote-code alone, for a command that runs no engine. `heading`: of the group
 * that begins with them. */
void model_flags_add(struct option_table *table, const char **model, const char **revision, const char *heading);

#endif
