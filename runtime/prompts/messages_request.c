#include "runtime/prompts/messages_request.h"

#include "runtime/prompts/chat_translation.h"

static const char *block_string(struct chat_translation *t, const json_t *block, const char *name)
{
    return translation_string(t, "messages", "block", block, name);
}

/* ---- messages ---- */

/* Texts become parts of a content. */
static void add_text(struct chat_translation *t, json_t *content, const json_t *block)
{
    translation_add(t, content, json_pack("{s:s,s:s}", "type", "text", "text", block_string(t, block, "text")));
}

/* A text, or blocks that are texts; NULL after a failure. */
static json_t *text_content(struct chat_translation *t, const char *name, const json_t *content)
{
    json_t *parts = json_is_array(content) ? json_array() : NULL;
    const json_t *block;
    size_t i;
    if (json_is_string(content)) return json_incref((json_t *)content);
    if (!parts) json_reader_expected(t->body, name, "a string or a list of blocks", content);
    json_array_foreach((json_t *)content, i, block)
    {
        if (!translation_is(block, "text"))
            json_reader_fail(t->body, STATUS_UNSUPPORTED, "%s: quire does not support a block of type %s here", name,
                             show_value(json_object_get(block, "type")).text);
        add_text(t, parts, block);
    }
    return parts;
}

/* What a tool has answered is a message of its own, before what the user says beside it. */
static void add_tool_result(struct chat_translation *t, const json_t *block)
{
    const json_t *content = json_object_get(block, "content");
    json_t *text =
        content && !json_is_null(content) ? text_content(t, "content of a tool_result", content) : json_string("");
    translation_add(t, t->messages,
                    json_pack("{s:s,s:s,s:o*}", "role", "tool", "tool_call_id", block_string(t, block, "tool_use_id"),
                              "content", text));
}

static void add_tool_use(struct chat_translation *t, json_t *calls, const json_t *block)
{
    struct text arguments = {0};
    const json_t *input = json_object_get(block, "input");
    if (!json_is_map(input)) {
        json_reader_fail(t->body, STATUS_INVALID,
                         "messages: input of a block of type tool_use must be an object, found %s",
                         input ? show_value(input).text : "nothing");
    } else if (json_append(&arguments, input, JSON_COMPACT)) {
        json_t *function = json_pack("{s:s,s:s%}", "name", block_string(t, block, "name"), "arguments", arguments.data,
                                     arguments.length);
        translation_add(
            t, calls,
            json_pack("{s:s,s:s,s:o}", "id", block_string(t, block, "id"), "type", "function", "function", function));
    }
    text_free(&arguments);
}

/* What the blocks of a message become. */
struct parts {
    json_t *content, *calls;
    struct text thoughts;
};

static void take_block(struct chat_translation *t, bool is_user, const json_t *block, struct parts *parts)
{
    const char *thought;
    if (translation_is(block, "text")) {
        add_text(t, parts->content, block);
    } else if (is_user && translation_is(block, "tool_result")) {
        add_tool_result(t, block);
    } else if (!is_user && translation_is(block, "tool_use")) {
        add_tool_use(t, parts->calls, block);
    } else if (!is_user && translation_is(block, "thinking")) {
        thought = block_string(t, block, "thinking");
        if (!text_append_string(&parts->thoughts, thought))
            json_reader_fail(t->body, STATUS_OUT_OF_MEMORY, "no memory for messages");
    } else {
        json_reader_fail(t->body, STATUS_UNSUPPORTED,
                         "messages: quire does not support a block of type %s in a message of %s",
                         show_value(json_object_get(block, "type")).text, is_user ? "the user" : "the assistant");
    }
}

static void add_parts(struct chat_translation *t, const char *role, const struct parts *parts)
{
    json_t *message = json_pack("{s:s}", "role", role);
    const bool has_calls = json_array_size(parts->calls) > 0;
    if (json_array_size(parts->content) > 0)
        translation_put(t, message, "content", json_incref(parts->content));
    else
        translation_put(t, message, "content", json_string(""));
    if (parts->thoughts.length > 0)
        translation_put(t, message, "reasoning_content", json_stringn(parts->thoughts.data, parts->thoughts.length));
    if (has_calls) translation_put(t, message, "tool_calls", json_incref(parts->calls));
    translation_add(t, t->messages, message);
}

static void take_message(struct chat_translation *t, const json_t *message)
{
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content"), *block;
    const bool is_user = json_is_word(role, "user");
    struct parts parts = {json_array(), json_array(), {0}};
    size_t i;
    if (!is_user && !json_is_word(role, "assistant"))
        json_reader_fail(t->body, STATUS_INVALID, "messages: role must be \"user\" or \"assistant\", found %s",
                         role ? show_value(role).text : "nothing");
    if (json_is_string(content))
        translation_add(t, t->messages, json_pack("{s:O,s:O}", "role", role, "content", content));
    else if (!json_is_array(content))
        json_reader_fail(t->body, STATUS_INVALID, "messages: content must be a string or a list of blocks, found %s",
                         content ? show_value(content).text : "nothing");
    json_array_foreach((json_t *)content, i, block) take_block(t, is_user, block, &parts);
    const bool has_parts = json_array_size(parts.content) + json_array_size(parts.calls) + parts.thoughts.length > 0;
    if (t->body->status == STATUS_OK && json_is_array(content) && has_parts)
        add_parts(t, json_string_value(role), &parts);
    json_decref(parts.content);
    json_decref(parts.calls);
    text_free(&parts.thoughts);
}

static void read_messages(struct chat_translation *t)
{
    const json_t *messages = json_reader_get(t->body, "messages"), *system = json_reader_get(t->body, "system"),
                 *message;
    size_t i;
    if (!json_is_array(messages)) json_reader_expected(t->body, "messages", "a list of messages", messages);
    if (system)
        translation_add(t, t->messages,
                        json_pack("{s:s,s:o*}", "role", "system", "content", text_content(t, "system", system)));
    json_array_foreach((json_t *)messages, i, message) take_message(t, message);
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    if (!json_is_word(json_object_get(last, "role"), "assistant")) return;
    translation_put(t, t->chat, "continue_final_message", json_true());
    translation_put(t, t->chat, "add_generation_prompt", json_false());
}

/* ---- the other fields ---- */

static void read_tools(struct chat_translation *t)
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
        translation_add(t, list, translation_tool(tool, "input_schema"));
    }
    if (tools) translation_copy(t, "tools", list);
    json_decref(list);
}

static void read_tool_choice(struct chat_translation *t)
{
    const json_t *choice = json_reader_get(t->body, "tool_choice"), *name = json_object_get(choice, "name");
    if (!choice) return;
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        translation_put(t, t->chat, "parallel_tool_calls", json_false());
    if (translation_is(choice, "auto") || translation_is(choice, "none"))
        translation_copy(t, "tool_choice", json_object_get(choice, "type"));
    else if (translation_is(choice, "any"))
        translation_put(t, t->chat, "tool_choice", json_string("required"));
    else if (translation_is(choice, "tool") && json_is_string(name))
        translation_put(t, t->chat, "tool_choice", translation_tool_choice(name));
    else
        json_reader_expected(t->body, "tool_choice",
                             "an object whose type is \"auto\", \"any\", \"none\" or, with a name, \"tool\"", choice);
}

static void read_thinking(struct chat_translation *t)
{
    const json_t *thinking = json_reader_get(t->body, "thinking"),
                 *own = json_reader_get(t->body, "chat_template_kwargs");
    if (!thinking) return;
    if (!translation_is(thinking, "enabled") && !translation_is(thinking, "disabled") &&
        !translation_is(thinking, "adaptive"))
        json_reader_expected(t->body, "thinking", "an object whose type is \"enabled\", \"disabled\" or \"adaptive\"",
                             thinking);
    if (own && !json_is_map(own)) return; /* it is refused where it is checked */
    json_t *kwargs = json_pack("{s:b}", "enable_thinking", !translation_is(thinking, "disabled"));
    if (kwargs && own) json_object_update(kwargs, (json_t *)own);
    translation_put(t, t->chat, "chat_template_kwargs", kwargs);
}

enum status messages_to_chat(struct json_reader *body, json_t **chat)
{
    static const char *const read[] = {"messages",    "system",   "max_tokens", "stop_sequences", "tools",
                                       "tool_choice", "thinking", "metadata",   "service_tier",   NULL};
    const json_t *stop = json_reader_get(body, "stop_sequences"), *most = json_reader_get(body, "max_tokens");
    struct chat_translation t;
    chat_translation_begin(&t, body);
    translation_copy_fields(&t, read);
    if (stop) translation_copy(&t, "stop", stop);
    if (most)
        translation_copy(&t, "max_tokens", most);
    else
        json_reader_fail(body, STATUS_INVALID, "max_tokens is missing");
    read_messages(&t);
    read_tools(&t);
    read_tool_choice(&t);
    read_thinking(&t);
    return chat_translation_end(&t, chat);
}
