#include "runtime/prompts/openai_batch.h"

#include <string.h>

#include "base/json.h"

bool openai_batch_is_line(const json_t *line)
{
    return json_object_get(line, "url") && json_object_get(line, "body");
}

static void check_envelope(struct json_reader *r)
{
    const json_t *id = json_object_get(r->object, "custom_id"), *method = json_reader_get(r, "method");
    const json_t *body = json_object_get(r->object, "body");
    const char *name;
    json_t *value;
    if (!id)
        json_reader_fail(r, STATUS_INVALID, "custom_id is missing, by which the answer to a line of a batch is found");
    if (!json_is_string(id)) json_reader_expected(r, "custom_id", "a string", id);
    if (method && !json_is_word(method, "POST")) json_reader_expected(r, "method", "\"POST\"", method);
    if (!json_is_map(body)) json_reader_expected(r, "body", "an object", body);
    json_object_foreach((json_t *)r->object, name, value)
    {
        if (strcmp(name, "custom_id") && strcmp(name, "method") && strcmp(name, "url") && strcmp(name, "body"))
            json_reader_fail(r, STATUS_INVALID, "there is no field '%s' beside custom_id, method, url and body",
                             show_string(name).text);
    }
}

static enum openai_kind read_url(struct json_reader *r)
{
    const json_t *url = json_object_get(r->object, "url");
    if (json_is_word(url, "/v1/completions")) return OPENAI_COMPLETION;
    if (!json_is_word(url, "/v1/chat/completions"))
        json_reader_expected(r, "url", "\"/v1/chat/completions\" or \"/v1/completions\"", url);
    return OPENAI_CHAT;
}

enum status openai_batch_read(const json_t *line, const struct answer_format *tools, struct openai_request *out,
                              json_t **native, struct error *err)
{
    struct json_reader r = json_reader(line, NULL, err);
    *out = (struct openai_request){.kind = read_url(&r)};
    *native = NULL;
    check_envelope(&r);
    if (r.status != STATUS_OK) return r.status;
    struct json_reader body = json_reader(json_object_get(line, "body"), NULL, err);
    body.prefix = "body.";
    return openai_request_read(&body, tools, out, native);
}
