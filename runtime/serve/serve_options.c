#include "runtime/serve/serve_options.h"

#include <math.h>
#include <string.h>

#include "runtime/options/engine_flags.h"

static enum status add_key(void *target, const char *text, struct error *err)
{
    return api_keys_add(target, text, strlen(text), err);
}

static enum status add_name(void *target, const char *text, struct error *err)
{
    struct serve_options *o = target;
    if (o->names.count == SERVE_MAX_NAMES)
        return error_set(err, STATUS_INVALID, "at most %d names may be given", SERVE_MAX_NAMES);
    o->names.list[o->names.count++] = text;
    return STATUS_OK;
}

static void add_address_flags(struct option_table *table, struct serve_options *o)
{
    const struct option_spec specs[] = {
        {"host", OPTION_STRING, &o->host, "ADDRESS",
         .help = "Where to listen; 0.0.0.0 or ::, at all addresses. Default: 127.0.0.1.",
         .heading = "Server:", .common = true, .not_empty = true},
        {"port", OPTION_INT32, &o->port, "N", .help = "The port; 0: one that is free. Default: 8000.", .common = true,
         .minimum = 0, .maximum = 65535},
        {"uds", OPTION_STRING, &o->uds, "PATH",
         .help = "Listen on a Unix socket of this path, and on no port. Default: none.", .not_empty = true},
        {"api-key", OPTION_CUSTOM, &o->keys, "KEY",
         .help =
             "A key that clients must show; each that is given is one. Better in --api-key-file or the environment: "
             "a list of processes shows it. Default: none, everyone may ask.",
         .common = true, .parse = add_key, .not_empty = true, .repeats = true},
        {"api-key-file", OPTION_STRING, &o->api_key_file, "FILE", .help = "Keys, one a line. Default: none.",
         .common = true, .not_empty = true},
        {"ssl-certfile", OPTION_STRING, &o->certificate, "FILE",
         .help = "Speak TLS with the certificate of this PEM file. Default: no TLS.", .not_empty = true},
        {"ssl-keyfile", OPTION_STRING, &o->key, "FILE", .help = "The certificate's key, as PEM.", .not_empty = true},
        {"allowed-origins", OPTION_STRING, &o->allowed_origins, "LIST",
         .help = "Web pages of these origins may ask, https://a.example,https://b.example; or *, all. Default: none.",
         .not_empty = true},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

static void add_answer_flags(struct option_table *table, struct serve_options *o)
{
    const struct option_spec specs[] = {
        {"served-model-name", OPTION_CUSTOM, o, "NAME",
         .help =
             "The model's name for clients; given several times, each is one, and the first is in answers. Default: "
             "what --model says.",
         .heading = "Answers:", .common = true, .parse = add_name, .not_empty = true, .repeats = true},
        {"tool-call-parser", OPTION_STRING, &o->tool_parser, "NAME",
         .help = "How the model writes calls of tools, by vLLM's names; none: they stay text. Default: auto, by the "
                 "chat template.",
         .not_empty = true},
        {"enable-auto-tool-choice", OPTION_SWITCH, &table->ignored,
         .help = "Changes nothing: calls of tools are looked for wherever a request has tools."},
        {"reasoning-parser", OPTION_STRING, &o->reasoning_parser, "NAME",
         .help =
             "How the model writes what it thinks, by vLLM's names; none: it stays text. Default: auto, by the chat "
             "template.",
         .not_empty = true},
        {"return-token-ids", OPTION_SWITCH, &o->return_token_ids,
         .help = "Give the token ids of prompts and answers to all who ask. Default: off, to those who ask for them."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

static void add_limit_flags(struct option_table *table, struct serve_options *o)
{
    const struct option_spec specs[] = {
        {"max-waiting-requests", OPTION_INT32, &o->max_waiting, "N",
         .help = "Answers that may wait beside those that run (--max-num-seqs); more are refused, to be tried again "
                 "(status 429). Default: 1024.",
         .heading = "Limits:", .minimum = 0, .maximum = 1 << 24},
        {"max-connections", OPTION_INT32, &o->max_connections, "N",
         .help = "Connections that are served at once; more wait. Default: 8192.", .minimum = 1, .maximum = 1 << 20},
        {"max-body-size", OPTION_INT32, &o->max_body_mib, "MIB", .help = "Of a request's body. Default: 16.",
         .minimum = 1, .maximum = 1024},
        {"max-header-size", OPTION_INT32, &o->max_head_kib, "KIB",
         .help = "Of a request's path and headers. Default: 64.", .minimum = 1, .maximum = 1024},
        {"idle-timeout", OPTION_INT32, &o->idle_seconds, "SECONDS",
         .help = "A connection that brings and takes nothing for so long is closed, unless it waits for an answer. "
                 "Default: 75.",
         .minimum = 1, .maximum = 86400},
        {"shutdown-timeout", OPTION_INT32, &o->shutdown_seconds, "SECONDS",
         .help = "After SIGTERM or Ctrl-C requests that run may take so long until they are cut. Default: 30.",
         .minimum = 0, .maximum = 86400},
        {"enable-log-requests", OPTION_SWITCH, &o->request_log.enabled,
         .help =
             "Write a line on stderr for each request: its id, status, tokens and times, not what it says. Default: "
             "off."},
        {"max-log-len", OPTION_INT32, &o->request_log.body_bytes, "N",
         .help = "With --enable-log-requests: also write the first N bytes of its body. Default: 0.", .minimum = 0,
         .maximum = 1000},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

void serve_options_add(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct serve_options *o = options;
    *o = (struct serve_options){.engine = engine_options_default(),
                                .log = {LOG_WARNING},
                                .sampling.params = sampling_params_default(),
                                .host = "127.0.0.1",
                                .port = 8000,
                                .tool_parser = "auto",
                                .reasoning_parser = "auto",
                                .max_waiting = 1024,
                                .max_connections = 8192,
                                .max_body_mib = 16,
                                .max_head_kib = 64,
                                .idle_seconds = 75,
                                .shutdown_seconds = 30};
    o->engine.log = &o->log;
    table->word = &o->word;
    add_address_flags(table, o);
    engine_flags_add(table, &o->engine, &o->log);
    add_answer_flags(table, o);
    add_limit_flags(table, o);
    trace_flag_add(table, &o->engine);
    template_flags_add(table, &o->template, "Conversations:");
    sampling_flags_add(table, &o->sampling);
}

void serve_options_free(void *options)
{
    struct serve_options *o = options;
    sampling_flags_free(&o->sampling);
    template_flags_free(&o->template);
    api_keys_free(&o->keys);
}

static enum status check(const struct serve_options *o, struct error *err)
{
    if (!o->certificate != !o->key)
        return error_set(err, STATUS_INVALID, "--ssl-certfile and --ssl-keyfile go together");
    if (o->uds && o->certificate) return error_set(err, STATUS_INVALID, "a Unix socket (--uds) has no TLS");
    if (o->word && o->engine.model)
        return error_set(err, STATUS_INVALID, "the model is given twice, as %s and with --model", o->word);
    return STATUS_OK;
}

enum status serve_options_read(struct serve_options *o, struct error *err)
{
    enum status status = check(o, err);
    if (status == STATUS_OK) status = sampling_flags_check(&o->sampling, err);
    if (status == STATUS_OK) status = template_flags_check(&o->template, err);
    const struct prompt_options prompts = serve_prompt_options(o);
    if (status == STATUS_OK) status = prompt_parsers_check(&prompts, err);
    if (status == STATUS_OK && o->api_key_file) status = api_keys_read(&o->keys, o->api_key_file, err);
    if (status == STATUS_OK) status = template_flags_read(&o->template, err);
    if (o->word) o->engine.model = o->word;
    return status;
}

struct prompt_options serve_prompt_options(const struct serve_options *o)
{
    return (struct prompt_options){.format = "jsonl",
                                   .sampling = &o->sampling.params,
                                   .sampling_given = o->sampling.given,
                                   .template = &o->template,
                                   .tool_parser = o->tool_parser,
                                   .reasoning_parser = o->reasoning_parser};
}
