#include "runtime/prompts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/utf8.h"

enum status prompt_rules_make(const struct engine *e, const char *format, const struct sampling_flags *flags,
                              struct prompt_rules *out, struct error *err)
{
    *out = (struct prompt_rules){.tokenizer = engine_tokenizer(e),
                                 .vocab_size = engine_model_config(e)->spec.vocab_size,
                                 .max_n = engine_limits(e)->max_num_seqs};
    if (out->tokenizer) out->chat_format = chat_format_detect(tokenizer_chat_template(out->tokenizer));
    if (strcmp(format, "text") == 0) out->format = PROMPT_FORMAT_TEXT;
    if (strcmp(format, "jsonl") == 0) out->format = PROMPT_FORMAT_JSONL;
    engine_default_sampling(e, &out->defaults);
    sampling_flags_apply(flags, &out->defaults);
    /* --seed is the engine's: every request draws its own random numbers from it, so two equal lines differ. */
    out->defaults.has_seed = false;
    return sampling_params_check(&out->defaults, out->vocab_size, err);
}

void prompt_free(struct prompt *p)
{
    json_decref(p->id);
    token_list_free(&p->tokens);
    *p = (struct prompt){0};
}

size_t utf8_valid_prefix(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        int n = utf8_length(text + at, length - at);
        if (n <= 0) break;
        at += (size_t)n;
    }
    return at;
}

enum status prompt_check_text(const char *text, size_t length, struct error *err)
{
    const size_t valid = utf8_valid_prefix(text, length);
    const char *nul = memchr(text, '\0', valid);
    if (nul) return error_set(err, STATUS_INVALID, "byte %zu is NUL; is this text UTF-8?", (size_t)(nul - text) + 1);
    if (valid < length) return error_set(err, STATUS_INVALID, "byte %zu is not UTF-8", valid + 1);
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

/* ---- values of fields ---- */

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list", [JSON_STRING] = "a text", [JSON_INTEGER] = "a number",
        [JSON_REAL] = "a fraction",  [JSON_TRUE] = "true",    [JSON_FALSE] = "false",   [JSON_NULL] = "null",
    };
    return names[json_typeof(value)];
}

static enum status wrong_type(const char *field, const char *expected, const json_t *value, struct error *err)
{
    return error_set(err, STATUS_INVALID, "%s must be %s, and is %s", field, expected, type_name(value));
}

static enum status read_int32(const char *field, const json_t *value, int32_t *out, struct error *err)
{
    if (!json_is_integer(value)) return wrong_type(field, "a whole number", value, err);
    json_int_t number = json_integer_value(value);
    if (number < INT32_MIN || number > INT32_MAX) {
        return error_set(err, STATUS_INVALID, "%s is %lld, which is too large", field, (long long)number);
    }
    *out = (int32_t)number;
    return STATUS_OK;
}

static enum status read_double(const char *field, const json_t *value, double *out, struct error *err)
{
    if (!json_is_number(value)) return wrong_type(field, "a number", value, err);
    *out = json_number_value(value);
    return STATUS_OK;
}

static enum status read_bool(const char *field, const json_t *value, bool *out, struct error *err)
{
    if (!json_is_boolean(value)) return wrong_type(field, "true or false", value, err);
    *out = json_is_true(value);
    return STATUS_OK;
}

static enum status read_seed(const json_t *value, struct sampling_params *params, struct error *err)
{
    if (!json_is_integer(value)) return wrong_type("seed", "a whole number", value, err);
    if (json_integer_value(value) < 0) return error_set(err, STATUS_INVALID, "seed must not be negative");
    params->has_seed = true;
    params->seed = (uint64_t)json_integer_value(value);
    return STATUS_OK;
}

static enum status add_stop(const json_t *value, struct sampling_params *params, struct error *err)
{
    if (!json_is_string(value)) return wrong_type("stop", "a text or a list of texts", value, err);
    const char *text = json_string_value(value);
    size_t length = json_string_length(value);
    if (length == 0) return error_set(err, STATUS_INVALID, "stop holds an empty text");
    if (memchr(text, '\0', length)) return error_set(err, STATUS_INVALID, "stop holds the character U+0000");
    if (length >= SAMPLING_PARAMS_MAX_STOP_BYTES) {
        return error_set(err, STATUS_INVALID, "stop holds a text of %zu bytes; at most %d may be given", length,
                         SAMPLING_PARAMS_MAX_STOP_BYTES - 1);
    }
    if (params->num_stop == SAMPLING_PARAMS_MAX_STOP) {
        return error_set(err, STATUS_INVALID, "stop holds more than %d texts", SAMPLING_PARAMS_MAX_STOP);
    }
    memcpy(params->stop[params->num_stop++], text, length + 1);
    return STATUS_OK;
}

/* A line's own stop texts take the place of the flags', as every other field does. */
static enum status read_stop(const json_t *value, struct sampling_params *params, struct error *err)
{
    params->num_stop = 0;
    if (!json_is_array(value)) return add_stop(value, params, err);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < json_array_size(value) && status == STATUS_OK; i++) {
        status = add_stop(json_array_get(value, i), params, err);
    }
    return status;
}

static enum status read_stop_ids(const json_t *value, struct sampling_params *params, struct error *err)
{
    params->num_stop_token_ids = 0;
    if (!json_is_array(value)) return wrong_type("stop_token_ids", "a list of token ids", value, err);
    if (json_array_size(value) > SAMPLING_PARAMS_MAX_STOP_IDS) {
        return error_set(err, STATUS_INVALID, "stop_token_ids holds more than %d ids", SAMPLING_PARAMS_MAX_STOP_IDS);
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        int32_t *id = &params->stop_token_ids[params->num_stop_token_ids++];
        enum status status = read_int32("an id in stop_token_ids", json_array_get(value, i), id, err);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* A key of logit_bias: JSON has no other keys than texts. */
static bool read_key(const char *key, int32_t *id)
{
    char *end;
    long number = strtol(key, &end, 10);
    if (*key < '0' || *key > '9' || *end || number > INT32_MAX) return false;
    *id = (int32_t)number;
    return true;
}

static enum status read_logit_bias(json_t *value, struct sampling_params *params, struct error *err)
{
    params->num_logit_bias = 0;
    if (!json_is_object(value)) return wrong_type("logit_bias", "an object {\"id\": value}", value, err);
    if (json_object_size(value) > SAMPLING_PARAMS_MAX_BIAS) {
        return error_set(err, STATUS_INVALID, "logit_bias holds more than %d ids", SAMPLING_PARAMS_MAX_BIAS);
    }
    const char *key;
    json_t *bias;
    json_object_foreach(value, key, bias)
    {
        double number = 0;
        if (!read_key(key, &params->bias_ids[params->num_logit_bias])) {
            return error_set(err, STATUS_INVALID, "logit_bias has the key '%.40s', which is no token id", key);
        }
        enum status status = read_double("a value in logit_bias", bias, &number, err);
        if (status != STATUS_OK) return status;
        params->bias_values[params->num_logit_bias++] = (float)number;
    }
    return STATUS_OK;
}

/* ---- fields by name ---- */

enum field_kind { KIND_INT32, KIND_DOUBLE, KIND_BOOL, KIND_SEED, KIND_STOP, KIND_STOP_IDS, KIND_LOGIT_BIAS };

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset; /* in struct sampling_params, of the first three kinds */
};

static const struct field fields[] = {
    {"n", KIND_INT32, offsetof(struct sampling_params, n)},
    {"temperature", KIND_DOUBLE, offsetof(struct sampling_params, temperature)},
    {"top_p", KIND_DOUBLE, offsetof(struct sampling_params, top_p)},
    {"top_k", KIND_INT32, offsetof(struct sampling_params, top_k)},
    {"min_p", KIND_DOUBLE, offsetof(struct sampling_params, min_p)},
    {"repetition_penalty", KIND_DOUBLE, offsetof(struct sampling_params, repetition_penalty)},
    {"presence_penalty", KIND_DOUBLE, offsetof(struct sampling_params, presence_penalty)},
    {"frequency_penalty", KIND_DOUBLE, offsetof(struct sampling_params, frequency_penalty)},
    {"max_tokens", KIND_INT32, offsetof(struct sampling_params, max_tokens)},
    {"min_tokens", KIND_INT32, offsetof(struct sampling_params, min_tokens)},
    {"ignore_eos", KIND_BOOL, offsetof(struct sampling_params, ignore_eos)},
    {"logprobs", KIND_INT32, offsetof(struct sampling_params, logprobs)},
    {"skip_special_tokens", KIND_BOOL, offsetof(struct sampling_params, skip_special_tokens)},
    {"include_stop_str_in_output", KIND_BOOL, offsetof(struct sampling_params, include_stop_str_in_output)},
    {"seed", KIND_SEED, 0},
    {"stop", KIND_STOP, 0},
    {"stop_token_ids", KIND_STOP_IDS, 0},
    {"logit_bias", KIND_LOGIT_BIAS, 0},
};

static enum status read_field(const struct field *field, json_t *value, struct sampling_params *params,
                              struct error *err)
{
    char *at = (char *)params + field->offset;
    switch (field->kind) {
    case KIND_INT32:
        return read_int32(field->name, value, (int32_t *)at, err);
    case KIND_DOUBLE:
        return read_double(field->name, value, (double *)at, err);
    case KIND_BOOL:
        return read_bool(field->name, value, (bool *)at, err);
    case KIND_SEED:
        return read_seed(value, params, err);
    case KIND_STOP:
        return read_stop(value, params, err);
    case KIND_STOP_IDS:
        return read_stop_ids(value, params, err);
    case KIND_LOGIT_BIAS:
        return read_logit_bias(value, params, err);
    }
    return STATUS_OK;
}

static const struct field *find_field(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(fields[i].name, name) == 0) return &fields[i];
    }
    return NULL;
}

static bool is_other_field(const char *name)
{
    static const char *const names[] = {"prompt", "prompt_token_ids", "messages", "id", "custom_id"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

static enum status read_sampling(json_t *object, struct sampling_params *params, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const struct field *field = find_field(name);
        if (!field && !is_other_field(name)) {
            return error_set(err, STATUS_INVALID, "there is no field '%.80s'", name);
        }
        if (!field || json_is_null(value)) continue;
        enum status status = read_field(field, value, params, err);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
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
    return tokenizer_encode(rules->tokenizer, text, length, TOKENIZER_ADD_BOS, &out->tokens, err);
}

static enum status read_ids(const char *field, const json_t *list, struct prompt *out, struct error *err)
{
    char name[40];
    snprintf(name, sizeof name, "a token id in %s", field);
    if (json_array_size(list) == 0) return error_set(err, STATUS_INVALID, "the prompt is empty");
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t id;
        enum status status = read_int32(name, json_array_get(list, i), &id, err);
        if (status != STATUS_OK) return status;
        if (!token_list_append(&out->tokens, &id, 1)) {
            return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for %zu token ids", json_array_size(list));
        }
    }
    return STATUS_OK;
}

static enum status read_message(json_t *value, size_t number, struct chat_message *out, struct error *err)
{
    if (!json_is_object(value)) return wrong_type("a message", "an object", value, err);
    const json_t *role = json_object_get(value, "role"), *content = json_object_get(value, "content");
    if (!json_is_string(role) || !json_is_string(content) || json_object_size(value) != 2) {
        return error_set(err, STATUS_INVALID, "message %zu must have the texts \"role\" and \"content\", nothing else",
                         number);
    }
    *out = (struct chat_message){json_string_value(role), json_string_value(content), json_string_length(content)};
    return STATUS_OK;
}

static enum status render_messages(const struct prompt_rules *rules, json_t *list, struct prompt *out,
                                   struct error *err)
{
    enum status status = need_tokenizer(rules, err);
    if (status != STATUS_OK) return status;
    if (!json_is_array(list)) return wrong_type("messages", "a list of messages", list, err);
    size_t count = json_array_size(list);
    if (count == 0) return error_set(err, STATUS_INVALID, "messages is empty");
    struct chat_message *messages = calloc(count, sizeof *messages);
    if (!messages) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for %zu messages", count);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        status = read_message(json_array_get(list, i), i + 1, &messages[i], err);
    }
    if (status == STATUS_OK) {
        status = chat_render(rules->tokenizer, rules->chat_format, messages, count, true, &out->tokens, err);
    }
    out->is_chat = true;
    free(messages);
    return status;
}

/* The value of a field, if it is there and not null. */
static json_t *given(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

static enum status read_prompt(const struct prompt_rules *rules, json_t *object, struct prompt *out, struct error *err)
{
    json_t *prompt = given(object, "prompt"), *ids = given(object, "prompt_token_ids");
    json_t *messages = given(object, "messages");
    if (!!prompt + !!ids + !!messages != 1) {
        return error_set(err, STATUS_INVALID,
                         "one of prompt, prompt_token_ids and messages must be given, and only one");
    }
    if (messages) return render_messages(rules, messages, out, err);
    if (ids && !json_is_array(ids)) return wrong_type("prompt_token_ids", "a list of token ids", ids, err);
    if (ids) return read_ids("prompt_token_ids", ids, out, err);
    if (json_is_array(prompt)) return read_ids("prompt", prompt, out, err);
    if (!json_is_string(prompt)) return wrong_type("prompt", "a text or a list of token ids", prompt, err);
    return encode_text(rules, json_string_value(prompt), json_string_length(prompt), out, err);
}

static enum status read_id(const json_t *object, struct prompt *out, struct error *err)
{
    json_t *id = given(object, "id"), *custom = given(object, "custom_id");
    if (id && custom) return error_set(err, STATUS_INVALID, "id and custom_id are both given; one is enough");
    if (custom) id = custom;
    if (!id) return STATUS_OK;
    if (!json_is_string(id) && !json_is_integer(id)) {
        return wrong_type(custom ? "custom_id" : "id", "a text or a whole number", id, err);
    }
    out->id = json_incref(id);
    return STATUS_OK;
}

static enum status check_params(const struct prompt_rules *rules, const struct sampling_params *params,
                                struct error *err)
{
    if (params->n > rules->max_n) {
        return error_set(err, STATUS_INVALID, "n is %d, but --max-num-seqs lets %d sequences run at once", params->n,
                         rules->max_n);
    }
    return sampling_params_check(params, rules->vocab_size, err);
}

static enum status parse_json(const struct prompt_rules *rules, const char *line, size_t length, struct prompt *out,
                              struct error *err)
{
    json_error_t why;
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!object) {
        return error_set(err, STATUS_INVALID, "malformed JSON at byte %d: %s", why.position > 0 ? why.position : 1,
                         why.text);
    }
    enum status status = STATUS_OK;
    if (!json_is_object(object)) status = wrong_type("a line", "a JSON object", object, err);
    if (status == STATUS_OK) status = read_id(object, out, err);
    if (status == STATUS_OK) status = read_sampling(object, &out->params, err);
    if (status == STATUS_OK) status = check_params(rules, &out->params, err);
    if (status == STATUS_OK) status = read_prompt(rules, object, out, err);
    json_decref(object);
    return status;
}

enum status prompt_parse(const struct prompt_rules *rules, const char *line, size_t length, struct prompt *out,
                         struct error *err)
{
    *out = (struct prompt){.params = rules->defaults};
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
    *out = (struct prompt){.params = rules->defaults};
    return error_set(err, STATUS_INVALID, "the line is longer than %u bytes", LINE_READER_MAX_LINE);
}
