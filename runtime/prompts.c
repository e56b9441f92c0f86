#include "runtime/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "runtime/sampling_json.h"

enum status prompt_rules_make(const struct engine *e, const char *format, const struct sampling_flags *flags,
                              const struct template_flags *template, struct prompt_rules *out, struct error *err)
{
    const struct template_flags none = {0};
    *out = (struct prompt_rules){.tokenizer = engine_tokenizer(e),
                                 .vocab_size = engine_model_config(e)->spec.vocab_size,
                                 .num_ids = engine_num_ids(e),
                                 .max_n = engine_limits(e)->max_num_seqs};
    if (strcmp(format, "text") == 0) out->format = PROMPT_FORMAT_TEXT;
    if (strcmp(format, "jsonl") == 0) out->format = PROMPT_FORMAT_JSONL;
    engine_default_sampling(e, &out->defaults);
    enum status status = sampling_flags_apply(flags, &out->defaults, err);
    if (status == STATUS_OK) status = chat_setup_open(out->tokenizer, template ? template : &none, &out->chat, err);
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
    token_list_free(&p->tokens);
    sampling_params_free(&p->params);
    free(p->cache_salt);
    *p = (struct prompt){0};
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

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static size_t leading_blanks(const char *line, size_t length)
{
    size_t n = 0;
    while (n < length && is_blank(line[n])) n++;
    return n;
}

bool prompt_line_is_blank(const char *line, size_t length)
{
    return leading_blanks(line, length) == length;
}

/* ---- the prompt ---- */

static enum status need_tokenizer(const struct prompt_rules *rules, struct error *err)
{
    if (rules->tokenizer) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "without a tokenizer a prompt must be a list of token ids");
}

static enum status encode_text(const struct prompt_rules *rules, const char *text, size_t length, struct prompt *out,
                               struct error *err)
{
    enum status status = need_tokenizer(rules, err);
    if (status != STATUS_OK) return status;
    if (length == 0) return error_set(err, STATUS_INVALID, "the prompt is empty");
    return tokenizer_encode(rules->tokenizer, text, length, TOKENIZER_ADD_SPECIAL, &out->tokens, err);
}

static void read_ids(struct json_reader *r, const struct prompt_rules *rules, const char *key, const json_t *list,
                     struct prompt *out)
{
    char name[40];
    snprintf(name, sizeof name, "a token id in %s", key);
    if (json_array_size(list) == 0) json_reader_fail(r, STATUS_INVALID, "the prompt is empty");
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
                json_object_parse(json_string_value(text), json_string_length(text), JSON_ALLOW_NUL, NULL, &parsed,
                                  NULL);
            if (parsed) json_object_set_new(function, "arguments", parsed);
        }
    }
}

static void render_messages(struct json_reader *r, const struct prompt_rules *rules, const json_t *messages,
                            struct prompt *out)
{
    const struct chat_input input = {.messages = messages,
                                     .tools = json_reader_get(r, "tools"),
                                     .documents = json_reader_get(r, "documents"),
                                     .kwargs = json_reader_get(r, "chat_template_kwargs"),
                                     .add_generation_prompt = true};
    struct marked_text text = {0};
    r->status = need_tokenizer(rules, r->err);
    if (r->status != STATUS_OK) return;
    parse_arguments(messages);
    r->status = chat_setup_render(&rules->chat, input, &text, r->err);
    if (r->status == STATUS_OK) r->status = tokenizer_encode_marked(rules->tokenizer, &text, &out->tokens, r->err);
    out->is_chat = true;
    marked_text_free(&text);
}

static void read_prompt(struct json_reader *r, const struct prompt_rules *rules, struct prompt *out)
{
    const json_t *prompt = json_reader_get(r, "prompt"), *ids = json_reader_get(r, "prompt_token_ids");
    const json_t *messages = json_reader_get(r, "messages");
    const bool beside =
        json_reader_get(r, "tools") || json_reader_get(r, "documents") || json_reader_get(r, "chat_template_kwargs");
    if (!!prompt + !!ids + !!messages != 1)
        json_reader_fail(r, STATUS_INVALID, "one of prompt, prompt_token_ids and messages must be given, and only one");
    else if (beside && !messages)
        json_reader_fail(r, STATUS_INVALID, "tools, documents and chat_template_kwargs go with messages only");
    else if (messages)
        render_messages(r, rules, messages, out);
    else if (ids && !json_is_array(ids))
        json_reader_expected(r, "prompt_token_ids", "a list of token ids", ids);
    else if (ids || json_is_array(prompt))
        read_ids(r, rules, ids ? "prompt_token_ids" : "prompt", ids ? ids : prompt, out);
    else if (!json_is_string(prompt))
        json_reader_expected(r, "prompt", "a string or a list of token ids", prompt);
    else
        r->status = encode_text(rules, json_string_value(prompt), json_string_length(prompt), out, r->err);
}

/* ---- a line ---- */

static void read_id(struct json_reader *r, struct prompt *out)
{
    const json_t *id = json_reader_get(r, "id"), *custom = json_reader_get(r, "custom_id");
    const char *key = custom ? "custom_id" : "id";
    if (id && custom) json_reader_fail(r, STATUS_INVALID, "id and custom_id are both given; one is enough");
    if (custom) id = custom;
    if (id && !json_is_string(id) && !json_is_integer(id)) json_reader_expected(r, key, "a string or an integer", id);
    if (r->status == STATUS_OK) out->id = json_incref((json_t *)id);
}

static void read_cache_salt(struct json_reader *r, struct prompt *out)
{
    const json_t *salt = json_reader_get(r, "cache_salt");
    if (!salt) return;
    const char *text = json_string_value(salt);
    if (!text)
        json_reader_expected(r, "cache_salt", "a string", salt);
    else if (strlen(text) < json_string_length(salt))
        json_reader_fail(r, STATUS_INVALID, "cache_salt holds the character U+0000");
    else if (!*text)
        json_reader_fail(r, STATUS_INVALID, "cache_salt is empty");
    else if (!(out->cache_salt = strdup(text)))
        json_reader_fail(r, STATUS_OUT_OF_MEMORY, "no memory for cache_salt");
}

/* A field of an unknown name is refused: a misspelt one would be ignored silently. */
static void check_names(struct json_reader *r)
{
    static const char *const others[] = {
        "prompt",    "prompt_token_ids",     "messages",   "id",      "custom_id", "tools",
        "documents", "chat_template_kwargs", "cache_salt", "priority"};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)r->object, name, value)
    {
        bool known = sampling_field_find(name) != NULL;
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) known = known || strcmp(others[i], name) == 0;
        if (!known)
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

static enum status parse_json(const struct prompt_rules *rules, const char *line, size_t length, struct prompt *out,
                              struct error *err)
{
    json_t *object;
    enum status status = json_object_parse(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL, &object, err);
    if (status != STATUS_OK) return status;
    struct json_reader r = json_reader(object, NULL, err);
    read_id(&r, out);
    check_names(&r);
    read_cache_salt(&r, out);
    out->priority = json_reader_int(&r, "priority", 0, INT32_MIN, INT32_MAX);
    sampling_json_read(&r, &out->params);
    if (r.status == STATUS_OK) r.status = check_params(rules, &out->params, err);
    if (r.status == STATUS_OK) read_prompt(&r, rules, out);
    json_decref(object);
    return r.status;
}

enum status prompt_parse(const struct prompt_rules *rules, const char *line, size_t length, struct prompt *out,
                         struct error *err)
{
    *out = (struct prompt){0};
    if (!sampling_params_copy(&rules->defaults, &out->params))
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the sampling fields");
    enum status status = prompt_check_text(line, length, err);
    if (status != STATUS_OK) return status;
    size_t blanks = leading_blanks(line, length);
    bool looks_json = blanks < length && line[blanks] == '{';
    if (rules->format == PROMPT_FORMAT_JSONL || (rules->format == PROMPT_FORMAT_AUTO && looks_json)) {
        return parse_json(rules, line, length, out, err);
    }
    return encode_text(rules, line, length, out, err);
}

enum status prompt_read(const struct prompt_rules *rules, enum line_result kind, const char *line, size_t length,
                        struct prompt *out, struct error *err)
{
    if (kind == LINE_READY) return prompt_parse(rules, line, length, out, err);
    *out = (struct prompt){.params = sampling_params_default()};
    return error_set(err, STATUS_INVALID, "the line is longer than %u bytes", LINE_READER_MAX_LINE);
}
