#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "runtime/prompts/api.h"
#include "runtime/prompts/messages_request.h"
#include "runtime/prompts/responses_request.h"

enum { MAX_PROMPTS = 2048 }; /* of one request */

void api_request_free(struct api_request *r)
{
    for (int32_t i = 0; i < r->num_prompts; i++) prompt_free(&r->prompts[i]);
    free(r->prompts);
    json_decref(r->repeated);
    *r = (struct api_request){0};
}

/* ---- refusals ---- */

/* The field that a sentence is about: it begins with its name, or says that there is no such field. A field that may
 * have one value only is no field of the table; then the sentence goes on as json_reader_expected writes it. */
static void find_param(const char *sentence, char *out, size_t size)
{
    static const char unknown[] = "there is no field '", must_be[] = " must be ",
                      letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const bool is_unknown = strncmp(sentence, unknown, sizeof unknown - 1) == 0;
    if (is_unknown) sentence += sizeof unknown - 1;
    const size_t length = is_unknown ? strcspn(sentence, "'") : strspn(sentence, letters);
    snprintf(out, size, "%.*s", (int)(length < size ? length : size - 1), sentence);
    out[utf8_valid_prefix(out, strlen(out))] = '\0';
    const bool known = request_field_use(OPENAI_CHAT, out) != FIELD_UNKNOWN ||
                       request_field_use(OPENAI_COMPLETION, out) != FIELD_UNKNOWN ||
                       strncmp(sentence + length, must_be, sizeof must_be - 1) == 0;
    if (!is_unknown && !known) *out = '\0';
}

static int http_status_of(enum status status)
{
    if (status == STATUS_INVALID || status == STATUS_UNSUPPORTED) return 400;
    return status == STATUS_OUT_OF_MEMORY || status == STATUS_CANCELLED ? 503 : 500;
}

void api_refuse(const struct api_rules *rules, enum status status, const struct error *err, struct api_refusal *out)
{
    *out = (struct api_refusal){.http_status = http_status_of(status)};
    error_set(&out->error, status, "%s", error_sentence(err, rules->spell).text);
    if (out->http_status == 400) find_param(err->text, out->param, sizeof out->param);
}

static const char *type_of(int http_status)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"}, {429, "rate_limit_error"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == http_status) return types[i].type;
    return http_status < 500 ? "invalid_request_error" : "server_error";
}

static bool write_openai_error(const struct api_refusal *refusal, const struct text *message, struct text *out)
{
    const char *type = refusal->type ? refusal->type : type_of(refusal->http_status);
    const char *param = refusal->param[0] ? refusal->param : NULL;
    return text_append_string(out, "{\"error\":{\"message\":") &&
           api_write_string(out, message->data, message->length) && text_append_string(out, ",\"type\":") &&
           api_write_string(out, type, strlen(type)) && text_append_string(out, ",\"param\":") &&
           api_write_string(out, param, param ? strlen(param) : 0) && text_append_string(out, ",\"code\":") &&
           api_write_integer(out, refusal->http_status) && text_append_string(out, "}}");
}

bool api_refusal_write(enum api_form form, const struct api_refusal *refusal, struct text *out)
{
    struct text message = {0};
    bool ok =
        text_append(&message, "", 0) && utf8_append_valid(&message, refusal->error.text, strlen(refusal->error.text));
    if (form == API_MESSAGES)
        ok = ok && messages_error_write(refusal->http_status, &message, out);
    else
        ok = ok && write_openai_error(refusal, &message, out);
    text_free(&message);
    return ok;
}

/* ---- reading ---- */

static bool has_model(const struct api_rules *rules, const char *model)
{
    for (const char *const *name = rules->model_names; *name; name++)
        if (strcmp(*name, model) == 0) return true;
    return false;
}

/* Several prompts of a completion: a list of texts, or of lists of ids. */
static bool has_several(enum api_form form, const json_t *prompt)
{
    const json_t *first = json_array_get(prompt, 0);
    return form == API_COMPLETION && json_array_size(prompt) > 1 && (json_is_string(first) || json_is_array(first));
}

static enum status read_prompt(const struct api_rules *rules, enum api_form form, const json_t *body,
                               struct prompt *out, struct error *err)
{
    json_t *native = NULL;
    if (!prompt_init(rules->prompts, out)) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a request");
    struct json_reader r = json_reader(body, NULL, err);
    out->openai.kind = form == API_COMPLETION ? OPENAI_COMPLETION : OPENAI_CHAT;
    enum status status = openai_request_read(&r, rules->prompts->tools, &out->openai, &native);
    if (status == STATUS_OK) status = prompt_read_object(native, rules->prompts, out, err);
    json_decref(native);
    if (status == STATUS_OK && out->openai.stream && out->params.prompt_logprobs >= 0 &&
        !out->openai.implies_prompt_logprobs)
        return error_set(err, STATUS_INVALID, "prompt_logprobs are not a part of a stream: stream must be false");
    return status;
}

static enum status read_prompts(const struct api_rules *rules, enum api_form form, const json_t *body,
                                struct api_request *out, struct error *err)
{
    const json_t *list = json_object_get(body, "prompt");
    const size_t count = has_several(form, list) ? json_array_size(list) : 1;
    if (count > MAX_PROMPTS)
        return error_set(err, STATUS_INVALID, "prompt holds %zu prompts; at most %d are possible", count, MAX_PROMPTS);
    if (!(out->prompts = calloc(count, sizeof *out->prompts)))
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a request");
    if (count == 1) return read_prompt(rules, form, body, &out->prompts[out->num_prompts++], err);
    json_t *one = json_copy((json_t *)body);
    enum status status = one ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a request");
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        char place[48];
        json_object_set(one, "prompt", json_array_get(list, i));
        status = read_prompt(rules, form, one, &out->prompts[out->num_prompts++], err);
        snprintf(place, sizeof place, "prompt %zu of %zu", i + 1, count);
        if (status != STATUS_OK && i > 0) error_prefix(err, status, place);
    }
    json_decref(one);
    return status;
}

/* Reads the prompts of a body, once it has OpenAI's form. */
static enum status read_body(const struct api_rules *rules, enum api_form form, const json_t *body,
                             struct api_request *out, struct error *err)
{
    json_t *chat = NULL;
    if (form == API_CHAT || form == API_COMPLETION) return read_prompts(rules, form, body, out, err);
    struct json_reader r = json_reader(body, NULL, err);
    enum status status = form == API_MESSAGES ? messages_to_chat(&r, &chat) : responses_to_chat(&r, &chat);
    if (status == STATUS_OK && form == API_RESPONSES && !(out->repeated = responses_repeated(body)))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a request");
    if (status == STATUS_OK) status = read_prompts(rules, form, chat, out, err);
    json_decref(chat);
    return status;
}

bool api_request_read(const struct api_rules *rules, enum api_form form, const char *body, size_t length,
                      struct api_request *out, struct api_refusal *refusal)
{
    json_t *object = NULL;
    struct error err = {""};
    *out = (struct api_request){.form = form};
    enum status status = prompt_check_text(body, length, &err);
    if (status == STATUS_OK) status = json_object_parse(body, length, 0, "the body", &object, &err);
    const char *model = json_string_value(json_object_get(object, "model"));
    const bool other = model && !has_model(rules, model);
    if (other)
        status = error_set(&err, STATUS_INVALID, "model: there is no model '%s' here; there is '%s'",
                           show_string(model).text, rules->model_names[0]);
    if (status == STATUS_OK) status = read_body(rules, form, object, out, &err);
    json_decref(object);
    if (status == STATUS_OK) {
        out->n = out->prompts[0].params.n;
        return true;
    }
    api_refuse(rules, status, &err, refusal);
    if (other) refusal->http_status = 404;
    return false;
}
