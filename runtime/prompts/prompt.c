#include "runtime/prompts/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "runtime/prompts/answer_formats.h"
#include "runtime/prompts/answer_parts.h"
#include "runtime/prompts/openai_batch.h"
#include "runtime/prompts/request_fields.h"
#include "runtime/prompts/sampling_json.h"

static bool is_given(const struct prompt_options *o, const char *field)
{
    return o->sampling_given >> (sampling_field_find(field) - sampling_fields) & 1;
}

static enum status set_chat(const struct prompt_options *o, struct prompt_rules *out, struct error *err)
{
    const struct chat_setup_options none = {0};
    enum status status = chat_setup_open(out->tokenizer, o->template ? o->template : &none, &out->chat, err);
    if (status == STATUS_OK && o->as_chat == 1 && !out->tokenizer)
        return error_set(err, STATUS_INVALID, "--chat needs a tokenizer");
    if (status == STATUS_OK && o->as_chat == 1) status = chat_setup_check(&out->chat, err);
    if (status != STATUS_OK || !o->system) return status;
    status = prompt_check_text(o->system, strlen(o->system), err);
    return status == STATUS_OK ? status : error_prefix(err, status, "--system");
}

/* A kind of formats, and the flag that names one. */
struct format_kind {
    const char *flag;
    const struct answer_format *(*find)(const char *name), *(*at)(int i), *(*of_template)(const char *source);
};

static enum status refuse_format(const struct format_kind *kind, const char *name, struct error *err)
{
    struct text names = {0};
    bool ok = true;
    for (int i = 0; ok && kind->at(i); i++) ok = text_printf(&names, ", %s", kind->at(i)->name);
    error_set(err, STATUS_INVALID, "%s must be one of auto, none%s, found '%s'", kind->flag,
              names.data ? names.data : "", show_string(name).text);
    text_free(&names);
    return STATUS_INVALID;
}

/* The format of a name; *always is whether all conversations' answers are read in it. */
static enum status choose_format(const struct format_kind *kind, const char *name, const char *template_source,
                                 const struct answer_format **out, bool *always, struct error *err)
{
    *always = name != NULL;
    *out = NULL;
    if (!name || strcmp(name, "auto") == 0)
        *out = template_source ? kind->of_template(template_source) : NULL;
    else if (strcmp(name, "none") != 0 && !(*out = kind->find(name)))
        return refuse_format(kind, name, err);
    return STATUS_OK;
}

static enum status choose_formats(const struct prompt_options *o, const char *template_source, struct prompt_rules *out,
                                  struct error *err)
{
    static const struct format_kind tools = {"--tool-call-parser", tool_format_find, tool_format_at,
                                             tool_format_of_template};
    static const struct format_kind reasoning = {"--reasoning-parser", reasoning_format_find, reasoning_format_at,
                                                 reasoning_format_of_template};
    const enum status status =
        choose_format(&tools, o->tool_parser, template_source, &out->tools, &out->parses_tools, err);
    if (status != STATUS_OK) return status;
    return choose_format(&reasoning, o->reasoning_parser, template_source, &out->reasoning, &out->parses_reasoning,
                         err);
}

enum status prompt_parsers_check(const struct prompt_options *options, struct error *err)
{
    struct prompt_rules ignored;
    return choose_formats(options, NULL, &ignored, err);
}

static enum status set_formats(const struct prompt_options *o, struct prompt_rules *out, struct error *err)
{
    const struct chat_setup_options none = {0};
    return choose_formats(o, chat_setup_source(out->tokenizer, o->template ? o->template : &none, true), out, err);
}

/* A form that the flags give is found wrong before any line is read; the constraint is in the cache then. */
static enum status check_structure(const struct prompt_rules *rules, struct error *err)
{
    struct constraint *constraint = NULL;
    if (!rules->structured) return STATUS_OK;
    const enum status status = structured_fields_constraint(rules->structured, rules->grammars, &constraint, err);
    constraint_free(constraint);
    return status;
}

enum status prompt_rules_make(const struct engine_info *engine, const struct prompt_options *o,
                              struct prompt_rules *out, struct error *err)
{
    const struct model_config *config = engine->config;
    const bool of_model = config->generation.max_new_tokens >= 0;
    *out = (struct prompt_rules){.tokenizer = engine->tokenizer,
                                 .as_chat = o->as_chat == 1,
                                 .system = o->system,
                                 .warn_of_text = o->as_chat < 0,
                                 .model_name = o->model_name,
                                 .defaults = engine->default_sampling,
                                 .structured = o->structured,
                                 .grammars = engine->grammars,
                                 .max_tokens_given = of_model || is_given(o, "max_tokens"),
                                 .vocab_size = config->spec.vocab_size,
                                 .num_ids = engine->num_ids,
                                 .has_states = engine->limits->num_state_slots > 0,
                                 .max_n = engine->limits->max_num_seqs};
    if (strcmp(o->format, "text") == 0) out->format = PROMPT_FORMAT_TEXT;
    if (strcmp(o->format, "jsonl") == 0) out->format = PROMPT_FORMAT_JSONL;
    if (!sampling_fields_copy(o->sampling_given, o->sampling, &out->defaults))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the sampling fields");
    enum status status = set_chat(o, out, err);
    if (status == STATUS_OK) status = set_formats(o, out, err);
    if (status == STATUS_OK) status = check_structure(out, err);
    return status ? status : sampling_params_check(&out->defaults, out->num_ids, err);
}

void prompt_rules_free(struct prompt_rules *rules)
{
    chat_setup_close(&rules->chat);
    sampling_params_free(&rules->defaults);
}

void prompt_free(struct prompt *p)
{
    json_decref(p->id);
    openai_request_free(&p->openai);
    json_decref(p->echo);
    json_decref((json_t *)p->parts.tool_list);
    token_list_free(&p->tokens);
    sampling_params_free(&p->params);
    free(p->cache_salt);
    constraint_free(p->constraint);
    *p = (struct prompt){0};
}

enum status prompt_request(const struct prompt *p, struct engine_request *out, struct error *err)
{
    if (p->tokens.count > INT32_MAX) return error_set(err, STATUS_INVALID, "the prompt is too long");
    *out = (struct engine_request){.prompt = p->tokens.ids,
                                   .prompt_len = (int32_t)p->tokens.count,
                                   .num_lasting = (int32_t)p->num_lasting,
                                   .params = &p->params,
                                   .cache_salt = p->cache_salt,
                                   .priority = p->priority,
                                   .constraint = p->constraint,
                                   .at_start = p->is_chat};
    return STATUS_OK;
}

enum status prompt_check_text(const char *text, size_t length, struct error *err)
{
    const size_t valid = utf8_valid_prefix(text, length);
    const char *nul = memchr(text, '\0', valid);
    if (nul) return error_set(err, STATUS_INVALID, "byte %zu is NUL; is this text UTF-8?", (size_t)(nul - text) + 1);
    if (valid < length)
        return error_set(err, STATUS_INVALID,
                         "byte %zu is not UTF-8; convert the text to UTF-8, with iconv for example", valid + 1);
    return STATUS_OK;
}

bool prompt_line_is_blank(const char *line, size_t length)
{
    return json_leading_blanks(line, length) == length;
}

/* ---- the form of answers ---- */

/* Holds the answers to a form, before which they may have the thought that is taken apart from them. A thought whose
 * marks are special tokens has no place in a grammar. */
static enum status constrain(const struct prompt_rules *rules, const struct structured_fields *fields,
                             struct prompt *out, struct error *err)
{
    struct structured_fields whole = *fields;
    const struct answer_format *reasoning = out->parts.reasoning;
    if (reasoning && !reasoning_format_is_special(reasoning, rules->tokenizer)) {
        const struct reasoning_form *form = (const struct reasoning_form *)reasoning;
        whole.structured.thought = (struct structured_thought){form->begins, form->ends, out->parts.in_reasoning};
    }
    return structured_fields_constraint(&whole, rules->grammars, &out->constraint, err);
}

/* ---- the prompt ---- */

static enum status need_tokenizer(const struct prompt_rules *rules, struct error *err)
{
    if (rules->tokenizer) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "without a tokenizer a prompt must be a list of token ids");
}

static void read_ids(struct json_reader *r, const struct prompt_rules *rules, const char *key, const json_t *list,
                     struct prompt *out)
{
    char name[40];
    snprintf(name, sizeof name, "a token id in %s", key);
    if (json_array_size(list) == 0) json_reader_fail(r, STATUS_INVALID, "the prompt is empty");
    if (json_is_string(json_array_get(list, 0)) || json_is_array(json_array_get(list, 0)))
        json_reader_fail(r, STATUS_INVALID, "%s is a list of prompts; put each on a line of its own", key);
    for (size_t i = 0; i < json_array_size(list) && r->status == STATUS_OK; i++) {
        const int32_t id = (int32_t)json_reader_to_int64(r, name, json_array_get(list, i), 0, rules->vocab_size - 1);
        if (!token_list_append(&out->tokens, &id, 1))
            json_reader_fail(r, STATUS_OUT_OF_MEMORY, "no memory for %zu token ids", json_array_size(list));
    }
}

/* OpenAI's clients write the arguments of a tool call as a string of JSON; templates expect an object. Replaces each
 * such string, as vLLM does. */
static void parse_arguments(const json_t *messages)
{
    const json_t *message, *call;
    size_t i, k;
    json_array_foreach((json_t *)messages, i, message)
    {
        json_array_foreach(json_object_get(message, "tool_calls"), k, call)
        {
            json_t *function = json_object_get(call, "function"), *text = json_object_get(function, "arguments");
            json_t *parsed = NULL;
            if (json_is_string(text))
                json_object_parse(json_string_value(text), json_string_length(text), 0, NULL, &parsed, NULL);
            if (parsed) json_object_set_new(function, "arguments", parsed);
        }
    }
}

/* How a conversation is rendered beside what is in it. */
struct ending {
    bool goes_on;           /* with the text of the last message */
    bool generation_prompt; /* where the answer begins is written */
};

static enum status encode_chat(const struct prompt_rules *rules, struct chat_input input, struct ending ending,
                               struct prompt *out, struct error *err)
{
    struct marked_text text = {0};
    enum status status = need_tokenizer(rules, err);
    input.add_generation_prompt = ending.generation_prompt;
    if (status == STATUS_OK)
        status = ending.goes_on ? chat_setup_render_unfinished(&rules->chat, input, &text, err)
                                : chat_setup_render(&rules->chat, input, &text, err);
    if (status == STATUS_OK) status = tokenizer_encode_marked(rules->tokenizer, &text, &out->tokens, err);
    if (status == STATUS_OK && rules->has_states)
        out->num_lasting = chat_setup_lasting(&rules->chat, rules->tokenizer, input, &out->tokens);
    if (status == STATUS_OK && out->parts.reasoning)
        status = answer_parts_in_reasoning(out->parts.reasoning, text.text.data, chat_setup_answer_start(&text),
                                           text.text.length, &out->parts.in_reasoning, err);
    marked_text_free(&text);
    return status;
}

/* The conversation of the system message, if there is one, and a question. */
static enum status encode_question(const struct prompt_rules *rules, const char *text, size_t length,
                                   struct prompt *out, struct error *err)
{
    json_t *messages = json_array(), *question = chat_message("user", text, length);
    bool ok = messages && question;
    if (ok && rules->system)
        ok = json_array_append_new(messages, chat_message("system", rules->system, strlen(rules->system))) == 0;
    ok = ok && json_array_append(messages, question) == 0;
    const struct chat_input input = {.messages = messages};
    const enum status status = ok ? encode_chat(rules, input, (struct ending){.generation_prompt = true}, out, err)
                                  : error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a conversation");
    json_decref(question);
    json_decref(messages);
    return status;
}

/* out->is_chat says whether the text is a question; `flags` are the tokenizer's. */
static enum status encode_text(const struct prompt_rules *rules, const char *text, size_t length, unsigned flags,
                               struct prompt *out, struct error *err)
{
    enum status status = need_tokenizer(rules, err);
    if (status != STATUS_OK) return status;
    if (length == 0) return error_set(err, STATUS_INVALID, "the prompt is empty");
    if ((status = json_check_characters("the prompt", text, length, err)) != STATUS_OK) return status;
    if (out->is_chat) return encode_question(rules, text, length, out, err);
    out->is_text = true;
    return tokenizer_encode(rules->tokenizer, text, length, flags, &out->tokens, err);
}

static void read_messages(struct json_reader *r, const struct prompt_rules *rules, struct chat_input chat,
                          struct prompt *out)
{
    const bool goes_on = json_reader_bool(r, "continue_final_message", false);
    const struct ending ending = {goes_on, json_reader_bool(r, "add_generation_prompt", !goes_on)};
    if (ending.goes_on && ending.generation_prompt)
        json_reader_fail(r, STATUS_INVALID, "continue_final_message and add_generation_prompt are both true");
    if (r->status != STATUS_OK) return;
    parse_arguments(chat.messages);
    r->status = encode_chat(rules, chat, ending, out, r->err);
}

static void read_prompt(struct json_reader *r, const struct prompt_rules *rules, struct prompt *out)
{
    const json_t *prompt = json_reader_get(r, "prompt"), *ids = json_reader_get(r, "prompt_token_ids");
    const struct chat_input chat = chat_setup_input(r->object);
    const bool adds_special = json_reader_bool(r, "add_special_tokens", true);
    if (!!prompt + !!ids + !!chat.messages != 1)
        json_reader_fail(r, STATUS_INVALID, "one of prompt, prompt_token_ids and messages must be given, and only one");
    else if ((chat.tools || chat.documents || chat.kwargs) && !chat.messages)
        json_reader_fail(r, STATUS_INVALID, "tools, documents and chat_template_kwargs go with messages only");
    else if (chat.messages)
        read_messages(r, rules, chat, out);
    else if (ids && !json_is_array(ids))
        json_reader_expected(r, "prompt_token_ids", "a list of token ids", ids);
    else if (ids || json_is_array(prompt))
        read_ids(r, rules, ids ? "prompt_token_ids" : "prompt", ids ? ids : prompt, out);
    else if (!json_is_string(prompt))
        json_reader_expected(r, "prompt", "a string or a list of token ids", prompt);
    else
        r->status = encode_text(rules, json_string_value(prompt), json_string_length(prompt),
                                adds_special ? TOKENIZER_ADD_SPECIAL : 0, out, r->err);
}

/* The prompt as a text: as it was given, or what its ids stand for. */
static void read_echo(struct json_reader *r, const struct prompt_rules *rules, struct prompt *out)
{
    const json_t *prompt = json_reader_get(r, "prompt");
    struct text text = {0};
    if (json_is_string(prompt)) {
        out->echo = json_incref((json_t *)prompt);
    } else if ((r->status = need_tokenizer(rules, r->err)) == STATUS_OK) {
        r->status = tokenizer_decode(rules->tokenizer, out->tokens.ids, out->tokens.count, true, &text, r->err);
        out->echo = json_stringn_nocheck(text.data ? text.data : "", text.length);
    }
    text_free(&text);
}

/* ---- a line ---- */

static void read_id(struct json_reader *r, struct prompt *out)
{
    const json_t *id = json_reader_get(r, "id"), *custom = json_reader_get(r, "custom_id");
    const char *key = custom ? "custom_id" : "id";
    if (id && custom) json_reader_fail(r, STATUS_INVALID, "id and custom_id are both given; one is enough");
    if (custom) id = custom;
    if (id && !json_is_string(id) && !json_is_whole(id)) json_reader_expected(r, key, "a string or an integer", id);
    if (r->status == STATUS_OK) out->id = json_incref((json_t *)id);
}

static void read_cache_salt(struct json_reader *r, struct prompt *out)
{
    const json_t *salt = json_reader_get(r, "cache_salt");
    if (!salt) return;
    const char *text = json_reader_string(r, "cache_salt", "");
    if (r->status != STATUS_OK) return;
    if (!*text)
        json_reader_fail(r, STATUS_INVALID, "cache_salt is empty");
    else if (!(out->cache_salt = strdup(text)))
        json_reader_fail(r, STATUS_OUT_OF_MEMORY, "no memory for cache_salt");
}

/* A line that says which form its answers have says it in place of the rules. */
static void read_structure(struct json_reader *r, const struct prompt_rules *rules, struct prompt *out)
{
    struct structured_fields fields;
    const bool is_given = structured_json_read(r, &fields);
    const struct structured_fields *chosen = is_given ? &fields : rules->structured;
    if (r->status == STATUS_OK && chosen) r->status = constrain(rules, chosen, out, r->err);
}

/* A field of an unknown name is refused: a misspelt one would be ignored silently. */
static void check_names(struct json_reader *r)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)r->object, name, value)
    {
        if (request_field_use(OPENAI_NONE, name) == FIELD_UNKNOWN)
            json_reader_fail(r, STATUS_INVALID,
                             "there is no field '%s'; sampling fields are named as the flags are, with '_'",
                             show_string(name).text);
    }
}

static enum status check_params(const struct prompt_rules *rules, const struct sampling_params *params,
                                struct error *err)
{
    const char *name;
    const int32_t num_sequences = sampling_params_num_sequences(params, &name);
    if (num_sequences > rules->max_n) {
        return error_set(err, STATUS_INVALID,
                         "%s is %d, but --max-num-seqs lets %d sequences run at once: lower the one or raise the other",
                         name, num_sequences, rules->max_n);
    }
    return sampling_params_check(params, rules->num_ids, err);
}

/* A conversation: messages, or a text that the rules make a question. A text of /v1/completions stays as it is. */
static bool is_conversation(const struct json_reader *r, const struct prompt_rules *rules, const struct prompt *out)
{
    if (json_reader_get(r, "messages")) return true;
    return rules->as_chat && out->openai.kind == OPENAI_NONE && json_is_string(json_reader_get(r, "prompt"));
}

/* max_tokens, where neither the line nor the rules give it. */
static void free_length(const struct prompt_rules *rules, struct prompt *out)
{
    if (out->is_chat && !rules->max_tokens_given) out->params.max_tokens = -1;
}

/* Whether and how answers are taken apart. The marks of a format may be special tokens, which then must be shown. */
static void read_parts(struct json_reader *r, const struct prompt_rules *rules, struct prompt *out)
{
    const json_t *tools = json_reader_get(r, "tools");
    const bool of_batch = out->openai.kind == OPENAI_CHAT && json_array_size(tools) > 0;
    struct answer_parser_options *parts = &out->parts;
    if (!out->is_chat || !rules->tokenizer) return;
    if (json_array_size(tools) > 0 && (rules->parses_tools || of_batch)) {
        parts->tools = rules->tools;
        parts->tool_list = json_incref((json_t *)tools);
    }
    if (rules->parses_reasoning || of_batch) parts->reasoning = rules->reasoning;
    const bool special = (parts->tools && tool_format_is_special(parts->tools, rules->tokenizer)) ||
                         (parts->reasoning && reasoning_format_is_special(parts->reasoning, rules->tokenizer));
    if (special && !json_reader_get(r, "skip_special_tokens")) out->params.skip_special_tokens = false;
}

enum status prompt_read_object(const json_t *object, const struct prompt_rules *rules, struct prompt *out,
                               struct error *err)
{
    struct json_reader r = json_reader(object, NULL, err);
    check_names(&r);
    read_cache_salt(&r, out);
    out->priority = json_reader_int(&r, "priority", 0, INT32_MIN, INT32_MAX);
    out->is_chat = is_conversation(&r, rules, out);
    free_length(rules, out);
    sampling_json_read(&r, &out->params);
    read_parts(&r, rules, out);
    if (r.status == STATUS_OK) r.status = check_params(rules, &out->params, err);
    if (r.status == STATUS_OK) read_prompt(&r, rules, out);
    if (r.status == STATUS_OK) read_structure(&r, rules, out);
    if (r.status == STATUS_OK && out->openai.echo) read_echo(&r, rules, out);
    return r.status;
}

static enum status parse_json(const struct prompt_rules *rules, const char *line, size_t length, struct prompt *out,
                              struct error *err)
{
    json_t *object, *native = NULL;
    enum status status = json_object_parse(line, length, 0, NULL, &object, err);
    if (status != STATUS_OK) return status;
    const bool of_batch = openai_batch_is_line(object);
    struct json_reader r = json_reader(object, NULL, err);
    read_id(&r, out);
    if (of_batch)
        status = openai_batch_read(object, rules->tools, &out->openai, &native, r.status == STATUS_OK ? err : NULL);
    if (r.status != STATUS_OK) status = r.status;
    if (status == STATUS_OK) status = prompt_read_object(native ? native : object, rules, out, err);
    json_decref(native);
    json_decref(object);
    return status;
}

bool prompt_line_is_object(const char *line, size_t length)
{
    const size_t blanks = json_leading_blanks(line, length);
    return blanks < length && line[blanks] == '{';
}

bool prompt_init(const struct prompt_rules *rules, struct prompt *out)
{
    *out = (struct prompt){0};
    return sampling_params_copy(&rules->defaults, &out->params);
}

enum status prompt_parse(const struct prompt_rules *rules, const char *line, size_t length, struct prompt *out,
                         struct error *err)
{
    if (!prompt_init(rules, out)) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the sampling fields");
    enum status status = prompt_check_text(line, length, err);
    if (status != STATUS_OK) return status;
    const bool looks_json = prompt_line_is_object(line, length);
    if (rules->format == PROMPT_FORMAT_JSONL || (rules->format == PROMPT_FORMAT_AUTO && looks_json)) {
        return parse_json(rules, line, length, out, err);
    }
    out->is_chat = rules->as_chat;
    free_length(rules, out);
    status = encode_text(rules, line, length, TOKENIZER_ADD_SPECIAL, out, err);
    return status == STATUS_OK && rules->structured ? constrain(rules, rules->structured, out, err) : status;
}
