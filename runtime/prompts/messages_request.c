#include "runtime/prompts/messages_request.h"

#include <string.h>

#include "runtime/prompts/request_fields.h"

struct translation {
    struct json_reader *body;
    json_t *chat, *messages; /* `messages` is the chat's */
};

static void put(struct translation *t, json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, value) != 0)
        json_reader_fail(t->body, STATUS_OUT_OF_MEMORY, "no memory for %s", name);
}

static void copy(struct translation *t, const char *name, const json_t *value)
{
    put(t, t->chat, name, json_incref((json_t *)value));
}

static void add(struct translation *t, json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) != 0)
        json_reader_fail(t->body, STATUS_OUT_OF_MEMORY, "no memory for messages");
}

/* The string of a block; "" after a failure. */
static const char *block_string(struct translation *t, const json_t *block, const char *name)
{
    const json_t *value = json_object_get(block, name);
    if (json_is_string(value)) return json_string_value(value);
    json_reader_fail(t->body, STATUS_INVALID, "messages: %s of a block of type %s must be a string, found %s", name,
                     show_value(json_object_get(block, "type")).text, value ? show_value(value).text : "none");
    return "";
}

static bool is_block(const json_t *block, const char *type)
{
    return json_is_word(json_object_get(block, "type"), type);
}

/* ---- messages ---- */

/* Texts become parts of a content. */
static void add_text(struct translation *t, json_t *content, const json_t *block)
{
    add(t, content, json_pack("{s:s,s:s}", "type", "text", "text", block_string(t, block, "text")));
}

/* A text, or blocks that are texts; NULL after a failure. */
static json_t *text_content(struct translation *t, const char *name, const json_t *content)
{
    json_t *parts = json_is_array(content) ? json_array() : NULL;
    const json_t *block;
    size_t i;
    if (json_is_string(content)) return json_incref((json_t *)content);
    if (!parts) json_reader_expected(t->body, name, "a string or a list of blocks", content);
    json_array_foreach((json_t *)content, i, block)
    {
        if (!is_block(block, "text"))
            json_reader_fail(t->body, STATUS_UNSUPPORTED, "%s: quire does not support a block of type %s here", name,
                             show_value(json_object_get(block, "type")).text);
        add_text(t, parts, block);
    }
    return parts;
}

/* What a tool has answered is a message of its own, before what the user says beside it. */
static void add_tool_result(struct translation *t, const json_t *block)
{
    const json_t *content = json_object_get(block, "content");
    json_t *text =
        content && !json_is_null(content) ? text_content(t, "content of a tool_result", content) : json_string("");
    add(t, t->messages,
        json_pack("{s:s,s:s,s:o*}", "role", "tool", "tool_call_id", block_string(t, block, "tool_use_id"), "content",
                  text));
}

static void add_tool_use(struct translation *t, json_t *calls, const json_t *block)
{
    struct text arguments = {0};
    const json_t *input = json_object_get(block, "input");
    if (!json_is_map(input)) {
        json_reader_fail(t->body, STATUS_INVALID,
                         "messages: input of a block of type tool_use must be an object, found %s",
                         input ? show_value(input).text : "none");
    } else if (json_append(&arguments, input, JSON_COMPACT)) {
        json_t *function = json_pack("{s:s,s:s%}", "name", block_string(t, block, "name"), "arguments", arguments.data,
                                     arguments.length);
        add(t, calls,
            json_pack("{s:s,s:s,s:o}", "id", block_string(t, block, "id"), "type", "function", "function", function));
    }
    text_free(&arguments);
}

/* What the blocks of a message become. */
struct parts {
    json_t *content, *calls;
    struct text thoughts;
};

static void take_block(struct translation *t, bool is_user, const json_t *block, struct parts *parts)
{
    const char *thought;
    if (is_block(block, "text")) {
        add_text(t, parts->content, block);
    } else if (is_user && is_block(block, "tool_result")) {
        add_tool_result(t, block);
    } else if (!is_user && is_block(block, "tool_use")) {
        add_tool_use(t, parts->calls, block);
    } else if (!is_user && is_block(block, "thinking")) {
        thought = block_string(t, block, "thinking");
        if (!text_append_string(&parts->thoughts, thought))
            json_reader_fail(t->body, STATUS_OUT_OF_MEMORY, "no memory for messages");
    } else {
        json_reader_fail(t->body, STATUS_UNSUPPORTED,
                         "messages: quire does not support a block of type %s in a message of %s",
                         show_value(json_object_get(block, "type")).text, is_user ? "the user" : "the assistant");
    }
}

static void add_parts(struct translation *t, const char *role, const struct parts *parts)
{
    json_t *message = json_pack("{s:s}", "role", role);
    const bool has_calls = json_array_size(parts->calls) > 0;
    if (json_array_size(parts->content) > 0)
        put(t, message, "content", json_incref(parts->content));
    else
        put(t, message, "content", json_string(""));
    if (parts->thoughts.length > 0)
        put(t, message, "reasoning_content", json_stringn(parts->thoughts.data, parts->thoughts.length));
    if (has_calls) put(t, message, "tool_calls", json_incref(parts->calls));
    add(t, t->messages, message);
}

static void take_message(struct translation *t, const json_t *message)
{
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content"), *block;
    const bool is_user = json_is_word(role, "user");
    struct parts parts = {json_array(), json_array(), {0}};
    size_t i;
    if (!is_user && !json_is_word(role, "assistant"))
        json_reader_fail(t->body, STATUS_INVALID, "messages: role must be \"user\" or \"assistant\", found %s",
                         role ? show_value(role).text : "none");
    if (json_is_string(content))
        add(t, t->messages, json_pack("{s:O,s:O}", "role", role, "content", content));
    else if (!json_is_array(content))
        json_reader_fail(t->body, STATUS_INVALID, "messages: content must be a string or a list of blocks, found %s",
                         content ? show_value(content).text : "none");
    json_array_foreach((json_t *)content, i, block) take_block(t, is_user, block, &parts);
    const bool has_parts = json_array_size(parts.content) + json_array_size(parts.calls) + parts.thoughts.length > 0;
    if (t->body->status == STATUS_OK && json_is_array(content) && has_parts)
        add_parts(t, json_string_value(role), &parts);
    json_decref(parts.content);
    json_decref(parts.calls);
    text_free(&parts.thoughts);
}

static void read_messages(struct translation *t)
{
    const json_t *messages = json_reader_get(t->body, "messages"), *system = json_reader_get(t->body, "system"),
                 *message;
    size_t i;
    if (!json_is_array(messages)) json_reader_expected(t->body, "messages", "a list of messages", messages);
    if (system)
        add(t, t->messages, json_pack("{s:s,s:o*}", "role", "system", "content", text_content(t, "system", system)));
    json_array_foreach((json_t *)messages, i, message) take_message(t, message);
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    if (!json_is_word(json_object_get(last, "role"), "assistant")) return;
    put(t, t->chat, "continue_final_message", json_true());
    put(t, t->chat, "add_generation_prompt", json_false());
}

/* ---- the other fields ---- */

static void read_tools(struct translation *t)
{
    const json_t *tools = json_reader_get(t->body, "tools"), *tool;
    json_t *list = json_array();
    size_t i;
    if (tools && !json_is_array(tools)) json_reader_expected(t->body, "tools", "a list of tools", tools);
    json_array_foreach((json_t *)tools, i, tool)
    {
        const json_t *type = json_object_get(tool, "type"), *schema = json_object_get(tool, "input_schema");
        if (type && !json_is_null(type) && !json_is_word(type, "custom"))
            json_reader_fail(t->body, STATUS_UNSUPPORTED, "tools: quire has no tool of type %s", show_value(type).text);
        else if (!json_is_string(json_object_get(tool, "name")) || !json_is_map(schema))
            json_reader_fail(t->body, STATUS_INVALID, "tools: a tool must have a name and an input_schema, found %s",
                             show_value(tool).text);
        add(t, list,
            json_pack("{s:s,s:{s:O*,s:O*,s:O*}}", "type", "function", "function", "name", json_object_get(tool, "name"),
                      "description", json_object_get(tool, "description"), "parameters", schema));
    }
    if (tools) copy(t, "tools", list);
    json_decref(list);
}

static void read_tool_choice(struct translation *t)
{
    const json_t *choice = json_reader_get(t->body, "tool_choice"), *name = json_object_get(choice, "name");
    if (!choice) return;
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        put(t, t->chat, "parallel_tool_calls", json_false());
    if (is_block(choice, "auto") || is_block(choice, "none"))
        copy(t, "tool_choice", json_object_get(choice, "type"));
    else if (is_block(choice, "any"))
        put(t, t->chat, "tool_choice", json_string("required"));
    else if (is_block(choice, "tool") && json_is_string(name))
        put(t, t->chat, "tool_choice", json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", name));
    else
        json_reader_expected(t->body, "tool_choice",
                             "an object whose type is \"auto\", \"any\", \"none\" or, with a name, \"tool\"", choice);
}

static void read_thinking(struct translation *t)
{
    const json_t *thinking = json_reader_get(t->body, "thinking"),
                 *own = json_reader_get(t->body, "chat_template_kwargs");
    if (!thinking) return;
    if (!is_block(thinking, "enabled") && !is_block(thinking, "disabled") && !is_block(thinking, "adaptive"))
        json_reader_expected(t->body, "thinking", "an object whose type is \"enabled\", \"disabled\" or \"adaptive\"",
                             thinking);
    if (own && !json_is_map(own)) return; /* it is refused where it is checked */
    json_t *kwargs = json_pack("{s:b}", "enable_thinking", !is_block(thinking, "disabled"));
    if (kwargs && own) json_object_update(kwargs, (json_t *)own);
    put(t, t->chat, "chat_template_kwargs", kwargs);
}

/* Fields that are not read above: those that are chat's, too, and those that change nothing. */
static void read_field(struct translation *t, const char *name, const json_t *value)
{
    static const char *const read[] = {"messages",    "system",   "stop_sequences", "tools",
                                       "tool_choice", "thinking", "metadata",       "service_tier"};
    static const char *const chats[] = {"model", "max_tokens", "stream"};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        if (strcmp(name, read[i]) == 0) return;
    bool is_chats = request_field_use(OPENAI_CHAT, name) == FIELD_TAKEN;
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++) is_chats = is_chats || strcmp(name, chats[i]) == 0;
    if (is_chats)
        copy(t, name, value);
    else
        json_reader_fail(t->body, STATUS_INVALID, "there is no field '%s' for this url", show_string(name).text);
}

static void read_fields(struct translation *t)
{
    const json_t *stop = json_reader_get(t->body, "stop_sequences");
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)t->body->object, name, value)
    {
        if (!json_is_null(value)) read_field(t, name, value);
    }
    if (stop) copy(t, "stop", stop);
    if (!json_reader_get(t->body, "max_tokens")) json_reader_fail(t->body, STATUS_INVALID, "max_tokens is missing");
}

enum status messages_to_chat(struct json_reader *body, json_t **chat)
{
    struct translation t = {.body = body, .chat = json_object(), .messages = json_array()};
    *chat = NULL;
    if (!t.chat || !t.messages) json_reader_fail(body, STATUS_OUT_OF_MEMORY, "no memory for a request");
    read_fields(&t);
    read_messages(&t);
    read_tools(&t);
    read_tool_choice(&t);
    read_thinking(&t);
    copy(&t, "messages", t.messages);
    json_decref(t.messages);
    if (body->status == STATUS_OK)
        *chat = t.chat;
    else
        json_decref(t.chat);
    return body->status;
}
