#include "runtime/prompts/openai_result.h"

#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

static bool append_response(struct text *line, const struct result *r)
{
    if (r->error) return text_append_string(line, "null");
    return text_printf(line, "{\"status_code\": %d, \"request_id\": \"req_%lld\", \"body\": ",
                       api_response_status(r->response), (long long)r->place.index) &&
           api_write_text(line, &r->body) && text_append(line, "}", 1);
}

/* The sentence may quote anything. */
static bool append_error(struct text *line, const struct result *r)
{
    struct text message = {0};
    if (!r->error) return text_append_string(line, "null");
    const bool ok =
        utf8_append_valid(&message, r->error, strlen(r->error)) &&
        text_printf(line, "{\"code\": \"%s\", \"message\": ", r->refused ? "invalid_request" : "server_error") &&
        api_write_string(line, message.data, message.length) &&
        text_printf(line, ", \"line\": %lld}", (long long)r->place.line);
    text_free(&message);
    return ok;
}

bool openai_result_append(struct text *line, const struct result *r)
{
    const long long index = (long long)r->place.index;
    const bool ok = text_printf(line, "{\"index\": %lld, \"id\": \"batch_req_%lld\", \"custom_id\": ", index, index);
    return ok && (r->prompt.id ? json_append(line, r->prompt.id, 0) : text_append_string(line, "null")) &&
           text_append_string(line, ", \"response\": ") && append_response(line, r) &&
           text_append_string(line, ", \"error\": ") && append_error(line, r) && text_append(line, "}", 1);
}
