#include "runtime/prompts/openai_request.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

void openai_request_free(struct openai_request *r)
{
    json_decref(r->model);
    json_decref(r->metadata);
    *r = (struct openai_request){0};
}

/* The body's reader, what the answer needs of it, and the object that becomes quire's own. */
struct translation {
    struct json_reader *body;
    const struct answer_format *tools;
    struct openai_request *out;
    json_t *native;
};

static bool is_chat(const struct translation *t)
{
    return t->out->kind == OPENAI_CHAT;
}

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
        {"echo", "false: only a completion repeats its prompt", json_is_false(value)},
        {"add_special_tokens", "false: the chat template writes them", json_is_false(value)},
        {"use_beam_search", "false: a beam search is asked for with beam_width", json_is_false(value)},
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
        const enum field_use use = request_field_use(t->out->kind, name);
        if (json_is_null(value)) continue;
        if (use == FIELD_TAKEN) copy(t, name, value);
        if (use == FIELD_UNKNOWN) refuse_value(t, name, value);
    }
}

/* Chat: logprobs is true or false, and top_logprobs says how many. Completions: logprobs is the number. */
static void read_logprobs(struct translation *t)
{
    const json_t *top = json_reader_get(t->body, "top_logprobs"), *wanted = json_reader_get(t->body, "logprobs");
    if (!is_chat(t)) {
        if (top) refuse_value(t, "top_logprobs", top);
        if (wanted) copy(t, "logprobs", wanted);
        return;
    }
    const bool given = json_reader_bool(t->body, "logprobs", false);
    const int64_t count = json_reader_int64(t->body, "top_logprobs", 0, 0, INT64_MAX);
    if (count > 0 && !given) json_reader_fail(t->body, STATUS_INVALID, "top_logprobs needs logprobs to be true");
    if (given) put(t, "logprobs", json_integer(count));
}

static bool has_tool(const json_t *tools, const char *name)
{
    const json_t *tool;
    size_t i;
    json_array_foreach((json_t *)tools, i, tool)
    {
        if (json_is_word(json_object_get(json_object_get(tool, "function"), "name"), name)) return true;
    }
    return false;
}

/* tool_choice "required", or {"type": "function", "function": {"name": NAME}}: the answer's form is forced. */
static void force_tools(struct translation *t, const json_t *tools, const json_t *choice)
{
    static const char expected[] = "\"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": "
                                   "{\"name\": ...}}";
    const char *name = json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    json_t *form = NULL;
    if (!name && !json_is_word(choice, "required"))
        json_reader_expected(t->body, "tool_choice", expected, choice);
    else if (json_array_size(tools) == 0 || (name && !has_tool(tools, name)))
        json_reader_fail(t->body, STATUS_INVALID, "tool_choice asks for a call of %s, but tools has none%s",
                         name ? show_string(name).text : "a tool", name ? " of this name" : "");
    else if (json_reader_get(t->body, "structured_outputs"))
        json_reader_fail(t->body, STATUS_INVALID, "tool_choice and structured_outputs both give the answer's form");
    else if (!t->tools)
        json_reader_fail(
            t->body, STATUS_UNSUPPORTED,
            "tool_choice must be \"auto\" or \"none\": it is not known in which form this model calls tools");
    else if (t->body->status == STATUS_OK)
        t->body->status = tool_format_force(t->tools, tools, name, &form, t->body->err);
    if (form) put(t, "structured_outputs", json_pack("{s:o}", "structural_tag", form));
}

static void read_tools(struct translation *t)
{
    const json_t *tools = json_reader_get(t->body, "tools"), *choice = json_reader_get(t->body, "tool_choice");
    const json_t *parallel = json_reader_get(t->body, "parallel_tool_calls");
    if (!is_chat(t)) {
        if (tools) refuse_value(t, "tools", tools);
        if (choice) refuse_value(t, "tool_choice", choice);
        if (parallel) refuse_value(t, "parallel_tool_calls", parallel);
        return;
    }
    t->out->one_call = !json_reader_bool(t->body, "parallel_tool_calls", true);
    if (json_is_word(choice, "none")) return;
    if (choice && !json_is_word(choice, "auto")) force_tools(t, tools, choice);
    if (tools && json_array_size(tools) + !json_is_array(tools) > 0) copy(t, "tools", tools);
}

/* A value for the template, as it would be in chat_template_kwargs, which counts if both are given. */
static void read_reasoning_effort(struct translation *t)
{
    static const char key[] = "reasoning_effort";
    const json_t *effort = json_reader_get(t->body, key), *own = json_reader_get(t->body, "chat_template_kwargs");
    if (!effort) return;
    if (!is_chat(t)) refuse_value(t, key, effort);
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
    if (prompt && is_chat(t)) refuse_value(t, "prompt", prompt);
    const bool is_list = json_is_string(first) || json_is_array(first);
    if (is_list && json_array_size(prompt) > 1)
        json_reader_fail(t->body, STATUS_INVALID, "prompt holds %zu prompts; put each on a line of its own",
                         json_array_size(prompt));
    if (prompt) copy(t, "prompt", is_list ? first : prompt);
    if (!prompt && !is_chat(t)) json_reader_fail(t->body, STATUS_INVALID, "prompt is missing");
    if (is_chat(t) && !json_reader_get(t->body, "messages"))
        json_reader_fail(t->body, STATUS_INVALID, "messages is missing");
}

/* max_completion_tokens has taken the place of max_tokens, and counts if both are given. A completion of no tokens is
 * computed as one of one token, which is not shown. */
static void read_max_tokens(struct translation *t)
{
    const json_t *most = json_reader_get(t->body, "max_completion_tokens");
    if (!most) most = json_reader_get(t->body, "max_tokens");
    if (most && t->out->echo && json_is_integer(most) && json_integer_value(most) == 0) {
        t->out->only_echo = true;
        put(t, "max_tokens", json_integer(1));
    } else if (most) {
        copy(t, "max_tokens", most);
    }
}

/* With log-probabilities those of the prompt are wanted, too. */
static void read_echo(struct translation *t)
{
    const json_t *echo = json_reader_get(t->body, "echo"), *logprobs = json_reader_get(t->body, "logprobs");
    if (echo && is_chat(t)) {
        refuse_value(t, "echo", echo);
        return;
    }
    t->out->echo = json_reader_bool(t->body, "echo", false);
    t->out->implies_prompt_logprobs = t->out->echo && logprobs && !json_reader_get(t->body, "prompt_logprobs");
    if (t->out->implies_prompt_logprobs) copy(t, "prompt_logprobs", logprobs);
}

static void read_stream(struct translation *t)
{
    const json_t *options = json_reader_get(t->body, "stream_options");
    char prefix[64];
    t->out->stream = json_reader_bool(t->body, "stream", false);
    if (!options) return;
    if (!json_is_map(options)) json_reader_expected(t->body, "stream_options", "an object", options);
    if (!t->out->stream) json_reader_fail(t->body, STATUS_INVALID, "stream_options needs stream to be true");
    snprintf(prefix, sizeof prefix, "%sstream_options.", t->body->prefix);
    struct json_reader r = *t->body;
    r.object = options;
    r.prefix = prefix;
    t->out->include_usage = json_reader_bool(&r, "include_usage", false);
    t->out->continuous_usage = json_reader_bool(&r, "continuous_usage_stats", false);
    t->body->status = r.status;
}

/* What changes the form of the answer, and not the answer. */
static void read_form(struct translation *t)
{
    struct json_reader *body = t->body;
    struct openai_request *out = t->out;
    const json_t *include = json_reader_get(body, "include_reasoning"), *special;
    if (include && !is_chat(t)) refuse_value(t, "include_reasoning", include);
    if (is_chat(t) && (special = json_reader_get(body, "add_special_tokens")) != NULL)
        refuse_value(t, "add_special_tokens", special);
    out->hides_reasoning = !json_reader_bool(body, "include_reasoning", true);
    out->return_token_ids = json_reader_bool(body, "return_token_ids", false);
    out->names_tokens = json_reader_bool(body, "return_tokens_as_token_ids", false);
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

enum status openai_request_read(struct json_reader *body, const struct answer_format *tools, struct openai_request *out,
                                json_t **native)
{
    struct translation t = {.body = body, .tools = tools, .out = out, .native = json_object()};
    *native = NULL;
    if (!t.native) return error_set(body->err, STATUS_OUT_OF_MEMORY, "no memory for a request");
    read_returned(body, out);
    read_fields(&t);
    read_echo(&t);
    read_max_tokens(&t);
    read_logprobs(&t);
    read_tools(&t);
    read_stream(&t);
    read_form(&t);
    read_reasoning_effort(&t);
    read_prompt(&t);
    if (body->status == STATUS_OK)
        *native = t.native;
    else
        json_decref(t.native);
    return body->status;
}
