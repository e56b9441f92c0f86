/* What `quire serve` was asked to do: its flags. */
#ifndef QUIRE_RUNTIME_SERVE_OPTIONS_H
#define QUIRE_RUNTIME_SERVE_OPTIONS_H

#include "runtime/options/command.h"
#include "runtime/options/sampling_flags.h"
#include "runtime/options/template_flags.h"
#include "runtime/prompts/prompt.h"
#include "runtime/serve/api_keys.h"
#include "runtime/serve/request_log.h"

enum { SERVE_MAX_NAMES = 16 };

struct serve_options {
    struct engine_options engine;
    struct log log;
    struct sampling_flags sampling;
    struct chat_setup_options template;
    const char *word; /* the model, beside the flags */
    /* Where it listens. */
    const char *host, *uds;
    int32_t port;
    const char *certificate, *key, *allowed_origins;
    /* Who may ask. */
    struct api_keys keys;
    const char *api_key_file;
    /* What it answers as: names ended by NULL. */
    struct {
        const char *list[SERVE_MAX_NAMES + 1];
        int count;
    } names;
    const char *tool_parser, *reasoning_parser;
    bool return_token_ids;
    /* Limits. */
    int32_t max_waiting, max_connections, max_body_mib, max_head_kib, idle_seconds, shutdown_seconds;
    struct request_log request_log;
};

/* `add` and `free` of the command (runtime/command.h); *options is a struct serve_options. */
void serve_options_add(const struct command *c, struct option_table *table, void *options);
void serve_options_free(void *options);
/* After parsing: flags that do not fit together; reads the files that they name. */
enum status serve_options_read(struct serve_options *o, struct error *err);

struct prompt_options serve_prompt_options(const struct serve_options *o);

#endif
