/* What `quire generate` was asked to do: its flags. */
#ifndef QUIRE_RUNTIME_GENERATE_OPTIONS_H
#define QUIRE_RUNTIME_GENERATE_OPTIONS_H

#include "runtime/options/command.h"
#include "runtime/generate/journal.h"
#include "runtime/generate/shard.h"
#include "runtime/inputs.h"
#include "runtime/options/sampling_flags.h"
#include "runtime/options/structured_flags.h"
#include "runtime/options/template_flags.h"
#include "runtime/prompts/prompt.h"

struct generate_options {
    struct engine_options engine;
    struct log log;
    struct sampling_flags sampling;
    struct chat_setup_options template;
    struct structured_flags structured;
    struct input_list input;
    const char *word, *output, *format;
    const char *system; /* as it is given, and then its text */
    struct text system_text;
    const char *served_model_name;              /* or NULL */
    const char *tool_parser, *reasoning_parser; /* or NULL */
    const char *model_name;                     /* of the answers to lines of a batch: that, or what --model says */
    struct shard shard;                         /* count 0: none */
    int32_t max_errors;                         /* -1: no limit */
    int as_chat;
    bool dry_run, overwrite, ordered, return_token_ids, quiet;
};

/* `add` and `free` of the command (runtime/command.h); *options is a struct generate_options. */
void generate_options_add(const struct command *c, struct option_table *table, void *options);
void generate_options_free(void *options);

/* After parsing: takes the word beside the flags to the inputs, and reads --system. */
enum status generate_options_read(struct generate_options *o, struct error *err);

struct prompt_options generate_prompt_options(const struct generate_options *o);

/* Puts down everything that answers follow from but the input and the model's files. */
enum status generate_describe_parameters(const struct generate_options *o, struct journal *j, struct error *err);

#endif
