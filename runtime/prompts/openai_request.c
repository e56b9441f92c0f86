#include "runtime/prompts/openai_request.h"

#include <string.h>

#include "base/json.h"

void openai_request_free(struct openai_request *r)
{
    json_decref(r->model);
    json_decref(r->metadata);
    *r = (struct openai_request){0};
}

/* The body's reader, the line's kind, and the object that becomes quire's own. */
struct translation {
    struct json_reader *body;
    enum openai_kind kind;
    json_t *native;
};

static void put(struct translation *t, const char *name, json_t *value)
{
    if (json_object_set_new(t->native, name, value) != 0)
        json_reader_fail(t->body, STATUS_OUT_OF_MEMORY, "no memory for %s", name);
}

static void copy(struct translation *t, const char *name, const json_t *value)
{
    put(t, name, json_incref((json_t *)value));
}

/* Some fields ask for something that quire does not do, unless they have the value that asks for nothing. Any other
 * field is refused. */
static void refuse_value(struct translation *t, const char *name, const json_t *value)
{
    const struct {
        const char *name, *expected;
        bool asks_for_nothing;
    } known[] = {
        {"response_format", "{\"type\": \"text\"}: quire does not force a format",
         json_is_word(json_object_get(value, "type"), "text")},
        {"echo", "false: quire does not repeat the prompt", json_is_false(value)},
        {"suffix", "\"\": quire writes only behind the prompt", json_is_word(value, "")},
        {"modalities", "[\"text\"]", json_array_size(value) == 1 && json_is_word(json_array_get(value, 0), "text")}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        if (!known[i].asks_for_nothing) json_reader_expected(t->body, name, known[i].expected, value);
        return;
    }
    json_reader_fail(t->body, STATUS_INVALID, "there is no field '%s' for this url", show_string(name).text);
}

static void read_fields(struct translation *t)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)t->body->object, name, value)
    {
        const enum field_use use = request_field_use(t->kind, name);
        if (json_is_null(value)) continue;
        if (use == FIELD_TAKEN) copy(t, name, value);
        if (use == FIELD_UNKNOWN) refuse_value(t, name, value);
    }
}

/* Chat: logprobs is true or false, and top_logprobs says how many. Completions: logprobs is the number. */
static void read_logprobs(struct translation *t)
{
    const json_t *top = json_reader_get(t->body, "top_logprobs"), *wanted = json_reader_get(t->body, "logprobs");
    if (t->kind == OPENAI_COMPLETION) {
        if (top) refuse_value(t, "top_logprobs", top);
        if (wanted) copy(t, "logprobs", wanted);
        return;
    }
    const bool given = json_reader_bool(t->body, "logprobs", false);
    const int64_t count = json_reader_int64(t->body, "top_logprobs", 0, 0, INT64_MAX);
    if (count > 0 && !given) json_reader_fail(t->body, STATUS_INVALID, "top_logprobs needs logprobs to be true");
    if (given) put(t, "logprobs", json_integer(count));
}

static void read_tools(struct translation *t)
{
    const json_t *tools = json_reader_get(t->body, "tools"), *choice = json_reader_get(t->body, "tool_choice");
    if (t->kind == OPENAI_COMPLETION && (tools || choice)) refuse_value(t, tools ? "tools" : "tool_choice", choice);
    if (choice && !json_is_word(choice, "auto") && !json_is_word(choice, "none"))
        json_reader_expected(t->body, "tool_choice", "\"auto\" or \"none\": quire does not force a call", choice);
    if (tools && !json_is_word(choice, "none") && json_array_size(tools) + !json_is_array(tools) > 0)
        copy(t, "tools", tools);
}

/* A value for the template, as it would be in chat_template_kwargs, which counts if both are given. */
static void read_reasoning_effort(struct translation *t)
{
    static const char key[] = "reasoning_effort";
    const json_t *effort = json_reader_get(t->body, key), *own = json_reader_get(t->body, "chat_template_kwargs");
    if (!effort) return;
    if (t->kind == OPENAI_COMPLETION) refuse_value(t, key, effort);
    if (!json_is_string(effort)) json_reader_expected(t->body, key, "a string", effort);
    if (own && !json_is_map(own)) return; /* it is refused where it is checked */
    json_t *kwargs = json_pack("{s:O}", key, effort);
    if (kwargs && own) json_object_update(kwargs, (json_t *)own);
    put(t, "chat_template_kwargs", kwargs);
}

/* A text, token ids, or a list of one of these. */
static void read_prompt(struct translation *t)
{
    const json_t *prompt = json_reader_get(t->body, "prompt"), *first = json_array_get(prompt, 0);
    if (prompt && t->kind == OPENAI_CHAT) refuse_value(t, "prompt", prompt);
    const bool is_list = json_is_string(first) || json_is_array(first);
    if (is_list && json_array_size(prompt) > 1)
        json_reader_fail(t->body, STATUS_INVALID, "prompt holds %zu prompts; put each on a line of its own",
                         json_array_size(prompt));
    if (prompt) copy(t, "prompt", is_list ? first : prompt);
    if (!prompt && t->kind == OPENAI_COMPLETION) json_reader_fail(t->body, STATUS_INVALID, "prompt is missing");
    if (t->kind == OPENAI_CHAT && !json_reader_get(t->body, "messages"))
        json_reader_fail(t->body, STATUS_INVALID, "messages is missing");
}

/* max_completion_tokens has taken the place of max_tokens, and counts if both are given. */
static void read_max_tokens(struct translation *t)
{
    const json_t *most = json_reader_get(t->body, "max_completion_tokens");
    if (!most) most = json_reader_get(t->body, "max_tokens");
    if (most) copy(t, "max_tokens", most);
}

static void read_returned(struct json_reader *body, struct openai_request *out)
{
    const json_t *model = json_reader_get(body, "model"), *metadata = json_reader_get(body, "metadata");
    if (model && !json_is_string(model)) json_reader_expected(body, "model", "a string", model);
    if (metadata && !json_is_map(metadata)) json_reader_expected(body, "metadata", "an object", metadata);
    if (body->status != STATUS_OK) return;
    out->model = json_incref((json_t *)model);
    out->metadata = json_incref((json_t *)metadata);
}

enum status openai_request_read(struct json_reader *body, struct openai_request *out, json_t **native)
{
    struct translation t = {.body = body, .kind = out->kind, .native = json_object()};
    *native = NULL;
    if (!t.native) return error_set(body->err, STATUS_OUT_OF_MEMORY, "no memory for a line of a batch");
    read_returned(body, out);
    read_fields(&t);
    read_max_tokens(&t);
    read_logprobs(&t);
    read_tools(&t);
    read_reasoning_effort(&t);
    read_prompt(&t);
    if (body->status == STATUS_OK)
        *native = t.native;
    else
        json_decref(t.native);
    return body->status;
}
