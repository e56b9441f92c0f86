#include "runtime/generate/generate_options.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "runtime/input.h"
#include "runtime/options/engine_flags.h"

static void add_file_flags(struct option_table *table, struct generate_options *o)
{
    const struct option_spec files[] = {
        {"input", OPTION_CUSTOM, &o->input, "FILE",
         .help = "The prompts; -: standard input. gzip and zstd are unpacked. Given several times, the files are read "
                 "one after the other. Default: -.",
         .heading = "Files:", .letter = 'i', .common = true, .parse = input_list_add, .not_empty = true,
         .repeats = true},
        {"output", OPTION_STRING, &o->output, "FILE", .help = "Where the answers go; -: standard output. Default: -.",
         .letter = 'o', .common = true, .not_empty = true},
        {"overwrite", OPTION_SWITCH, &o->overwrite,
         .help = "Start anew, and replace an output file that is not empty once the first answer is there. Default: "
                 "off, go on with an output of the same input, model and parameters.",
         .common = true},
        {"ordered", OPTION_SWITCH, &o->ordered,
         .help = "Write the answers in the order of the input: early ones wait in OUTPUT.spool. Default: off.",
         .common = true},
        {"shard", OPTION_CUSTOM, &o->shard, "I/N",
         .help = "Answer part I of N of the prompts, 1 to N: parts are contiguous and differ by at most one prompt, "
                 "all input files counted together. quire merge puts the outputs together. Default: 1/1.",
         .parse = shard_parse},
        {"max-errors", OPTION_INT32, &o->max_errors, "N",
         .help =
             "Read no further once more than N lines have failed; what was read is answered. -1: never. Default: -1.",
         .minimum = -1, .maximum = INFINITY},
        {"format", OPTION_CHOICE, &o->format, PROMPT_FORMAT_CHOICES,
         .help = "What a line is. Default: auto, JSON if it begins with {, if a line before did, or if the file's name "
                 "ends with .json or .jsonl; else text."},
        {"dry-run", OPTION_SWITCH, &o->dry_run,
         .help = "Answer nothing: count prompts and tokens, name bad lines, and estimate the time. Default: off."},
        {"chat", OPTION_TRISTATE, &o->as_chat,
         .help = "Make each text a question to a chat model, through its chat template; a list of token ids stays as "
                 "it is. Default: off, and a warning if the model has a template."},
        {"system", OPTION_STRING, &o->system, "TEXT|@FILE",
         .help = "With --chat: the system message before each question. Default: none.", .letter = 's'},
    };
    option_table_add(table, files, (int)(sizeof files / sizeof files[0]));
}

static void add_answer_flags(struct option_table *table, struct generate_options *o)
{
    const struct option_spec specs[] = {
        {"return-token-ids", OPTION_SWITCH, &o->return_token_ids,
         .help = "Give the token ids of each answer. Default: off."},
        {"served-model-name", OPTION_STRING, &o->served_model_name, "NAME",
         .help = "\"model\" of the answers to lines of an OpenAI batch. Default: what --model says.",
         .not_empty = true},
        {"tool-call-parser", OPTION_STRING, &o->tool_parser, "NAME",
         .help = "Take calls of tools out of the answers to conversations with tools, written in this form; auto: the "
                 "form that the chat template is made for; none: leave them in the text. Default: auto for lines of an "
                 "OpenAI batch that have tools, else none.",
         .not_empty = true},
        {"reasoning-parser", OPTION_STRING, &o->reasoning_parser, "NAME",
         .help = "Take the model's reasoning out of the answers to conversations, written in this form; auto and none "
                 "as for --tool-call-parser. Default: auto for lines of an OpenAI batch that have tools, else none.",
         .not_empty = true},
        {"skip-tokenizer-init", OPTION_SWITCH, &o->engine.skip_tokenizer,
         .help = "Open no tokenizer: prompts are token ids, answers have no text. Default: off."},
        {"quiet", OPTION_SWITCH, &o->quiet, .help = "No progress and no summary on stderr. Default: off.",
         .letter = 'q', .common = true},
    };
    sampling_flags_add_answers(table, &o->sampling, "Answers:");
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
    structured_flags_add(table, &o->structured, "The form of answers:");
    trace_flag_add(table, &o->engine);
}

static void set_defaults(struct generate_options *o)
{
    *o = (struct generate_options){.engine = engine_options_default(),
                                   .log = {LOG_WARNING},
                                   .sampling.params = sampling_params_default(),
                                   .output = "-",
                                   .format = "auto",
                                   .as_chat = -1,
                                   .max_errors = -1};
    o->engine.log = &o->log;
}

void generate_options_add(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct generate_options *o = options;
    set_defaults(o);
    table->word = &o->word;
    add_file_flags(table, o);
    engine_flags_add(table, &o->engine, &o->log);
    add_answer_flags(table, o);
    template_flags_add(table, &o->template, "Conversations:");
    sampling_flags_add(table, &o->sampling);
}

void generate_options_free(void *options)
{
    struct generate_options *o = options;
    sampling_flags_free(&o->sampling);
    template_flags_free(&o->template);
    structured_flags_free(&o->structured);
    input_list_free(&o->input);
    text_free(&o->system_text);
}

enum status generate_options_read(struct generate_options *o, struct error *err)
{
    enum status status = STATUS_OK;
    if (o->word) status = input_list_add_word(&o->input, o->word, err);
    if (status != STATUS_OK || !o->system) return status;
    if (strcmp(o->system, "-") == 0) return error_set(err, STATUS_INVALID, "--system takes a text, or @FILE");
    status = input_read_message(o->system, &o->system_text, err);
    o->system = o->system_text.length ? o->system_text.data : "";
    return status == STATUS_OK ? status : error_prefix(err, status, "--system");
}

struct prompt_options generate_prompt_options(const struct generate_options *o)
{
    return (struct prompt_options){.format = o->format,
                                   .sampling = &o->sampling.params,
                                   .sampling_given = o->sampling.given,
                                   .template = &o->template,
                                   .as_chat = o->as_chat,
                                   .system = o->system,
                                   .tool_parser = o->tool_parser,
                                   .reasoning_parser = o->reasoning_parser,
                                   .model_name = o->model_name,
                                   .structured = &o->structured.fields};
}

static enum status describe_structure(const struct structured_fields *fields, struct journal *j, struct error *err)
{
    struct fingerprint value;
    struct text text = {0};
    if (fields->structured.kind == STRUCTURED_NONE) return STATUS_OK;
    const bool ok = json_append(&text, fields->structured.value, JSON_COMPACT | JSON_ENCODE_ANY);
    const enum status status =
        ok ? fingerprint_text(&text, &value, err) : error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a journal");
    if (status == STATUS_OK) journal_put_string(j, fields->place, value.text);
    text_free(&text);
    return status;
}

/* If the value names another folder, the contents of its file count. */
static enum status describe_generation_config(const char *value, struct journal *j, struct error *err)
{
    char path[PATH_MAX];
    struct fingerprint file = {""};
    enum status status = STATUS_OK;
    if (strcmp(value, "auto") != 0 && strcmp(value, "vllm") != 0) {
        if (!path_join(path, sizeof path, value, "generation_config.json"))
            return error_set(err, STATUS_INVALID, "%s: the path is too long", value);
        status = fingerprint_path(path, &file, err);
        value = file.text;
    }
    journal_put_string(j, "--generation-config", value);
    return status;
}

enum status generate_describe_parameters(const struct generate_options *o, struct journal *j, struct error *err)
{
    struct fingerprint template;
    journal_put_sampling(j, &o->sampling);
    journal_put_string(j, "--dtype", o->engine.dtype);
    journal_put_string(j, "--quantization", o->engine.quantization);
    journal_put_string(j, "--kv-cache-dtype", o->engine.kv_cache_dtype);
    journal_put_integer(j, "--max-model-len", o->engine.max_model_len);
    journal_put_integer(j, "--seed", (int64_t)o->engine.seed);
    journal_put_string(j, "--format", o->format);
    journal_put_switch(j, "--chat", o->as_chat == 1);
    journal_put_string(j, "--system", o->system);
    journal_put_string(j, "--chat-template-kwargs", o->template.kwargs);
    journal_put_switch(j, "--allow-special-in-messages", o->template.allow_special);
    journal_put_switch(j, "--load-format dummy", o->engine.load_format == LOAD_FORMAT_DUMMY);
    journal_put_switch(j, "--scheduling-policy priority", o->engine.scheduling_policy == SCHEDULING_PRIORITY);
    journal_put_switch(j, "--skip-tokenizer-init", o->engine.skip_tokenizer);
    journal_put_switch(j, "--return-token-ids", o->return_token_ids);
    journal_put_string(j, "--served-model-name", o->served_model_name);
    journal_put_string(j, "--tool-call-parser", o->tool_parser);
    journal_put_string(j, "--reasoning-parser", o->reasoning_parser);
    enum status status = describe_generation_config(o->engine.generation_config, j, err);
    if (status == STATUS_OK) status = describe_structure(&o->structured.fields, j, err);
    if (status != STATUS_OK || !o->template.file) return status;
    status = fingerprint_text(&o->template.source, &template, err);
    journal_put_string(j, "--chat-template", template.text);
    return status;
}
