#include "runtime/prompts/responses_request.h"

#include <string.h>

#include "runtime/prompts/chat_translation.h"

static const char *item_string(struct chat_translation *t, const json_t *item, const char *name)
{
    return translation_string(t, "input", "part", item, name);
}

/* ---- input ---- */

/* The texts of a content, which is a text or a list of parts of these types. */
static json_t *text_content(struct chat_translation *t, const json_t *content, const char *const *types)
{
    json_t *parts = json_is_array(content) ? json_array() : NULL;
    const json_t *part;
    size_t i;
    if (json_is_string(content)) return json_incref((json_t *)content);
    if (!parts)
        json_reader_fail(t->body, STATUS_INVALID, "input: content must be a string or a list of parts, found %s",
                         content ? show_value(content).text : "nothing");
    json_array_foreach((json_t *)content, i, part)
    {
        const char *const *type = types;
        while (*type && !translation_is(part, *type)) type++;
        if (!*type)
            json_reader_fail(t->body, STATUS_UNSUPPORTED, "input: quire does not support a part of type %s",
                             show_value(json_object_get(part, "type")).text);
        translation_add(t, parts, json_pack("{s:s,s:s}", "type", "text", "text", item_string(t, part, "text")));
    }
    return parts;
}

/* The message that calls and reasoning belong to: the last one, if it is the assistant's and has no text yet or
 * `after_text`; else a new one. */
static json_t *assistant_message(struct chat_translation *t, bool after_text)
{
    json_t *last = json_array_get(t->messages, json_array_size(t->messages) - 1);
    const bool is_assistant = json_is_word(json_object_get(last, "role"), "assistant");
    if (is_assistant && (after_text || json_is_word(json_object_get(last, "content"), ""))) return last;
    translation_add(t, t->messages, json_pack("{s:s,s:s}", "role", "assistant", "content", ""));
    return json_array_get(t->messages, json_array_size(t->messages) - 1);
}

static void take_message(struct chat_translation *t, const json_t *item)
{
    static const char *const types[] = {"input_text", "output_text", "text", NULL};
    static const char *const roles[][2] = {
        {"user", "user"}, {"assistant", "assistant"}, {"system", "system"}, {"developer", "system"}};
    const json_t *role = json_object_get(item, "role");
    json_t *content = text_content(t, json_object_get(item, "content"), types);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (!json_is_word(role, roles[i][0])) continue;
        json_t *message = strcmp(roles[i][1], "assistant") == 0 ? assistant_message(t, false) : NULL;
        if (message)
            translation_put(t, message, "content", content);
        else
            translation_add(t, t->messages, json_pack("{s:s,s:o*}", "role", roles[i][1], "content", content));
        return;
    }
    json_decref(content);
    json_reader_fail(t->body, STATUS_INVALID,
                     "input: role must be \"user\", \"assistant\", \"system\" or \"developer\", found %s",
                     role ? show_value(role).text : "nothing");
}

static void take_call(struct chat_translation *t, const json_t *item)
{
    json_t *message = assistant_message(t, true), *calls = json_object_get(message, "tool_calls");
    if (!calls) {
        translation_put(t, message, "tool_calls", json_array());
        calls = json_object_get(message, "tool_calls");
    }
    translation_add(t, calls,
                    json_pack("{s:s,s:s,s:{s:s,s:s}}", "id", item_string(t, item, "call_id"), "type", "function",
                              "function", "name", item_string(t, item, "name"), "arguments",
                              item_string(t, item, "arguments")));
}

static void take_output(struct chat_translation *t, const json_t *item)
{
    static const char *const types[] = {"input_text", NULL};
    json_t *content = text_content(t, json_object_get(item, "output"), types);
    translation_add(t, t->messages,
                    json_pack("{s:s,s:s,s:o*}", "role", "tool", "tool_call_id", item_string(t, item, "call_id"),
                              "content", content));
}

/* Reasoning stands before what it led to, in parts; what is encrypted says nothing here. */
static void take_reasoning(struct chat_translation *t, const json_t *item)
{
    const json_t *part;
    struct text thoughts = {0};
    size_t i;
    json_array_foreach(json_object_get(item, "content"), i, part)
    {
        if (!text_append_string(&thoughts, item_string(t, part, "text")))
            json_reader_fail(t->body, STATUS_OUT_OF_MEMORY, "no memory for a request");
    }
    if (thoughts.length > 0) {
        translation_add(t, t->messages, json_pack("{s:s,s:s}", "role", "assistant", "content", ""));
        translation_put(t, json_array_get(t->messages, json_array_size(t->messages) - 1), "reasoning_content",
                        json_stringn(thoughts.data, thoughts.length));
    }
    text_free(&thoughts);
}

static void take_item(struct chat_translation *t, const json_t *item)
{
    const json_t *type = json_object_get(item, "type");
    if (!type || translation_is(item, "message"))
        take_message(t, item);
    else if (translation_is(item, "function_call"))
        take_call(t, item);
    else if (translation_is(item, "function_call_output"))
        take_output(t, item);
    else if (translation_is(item, "reasoning"))
        take_reasoning(t, item);
    else
        json_reader_fail(t->body, STATUS_UNSUPPORTED, "input: quire does not support an item of type %s",
                         show_value(type).text);
}

static void read_input(struct chat_translation *t)
{
    const char *instructions = json_reader_string(t->body, "instructions", NULL);
    const json_t *input = json_reader_get(t->body, "input"), *item;
    size_t i;
    if (instructions)
        translation_add(t, t->messages, json_pack("{s:s,s:s}", "role", "system", "content", instructions));
    if (json_is_string(input))
        translation_add(t, t->messages, json_pack("{s:s,s:O}", "role", "user", "content", input));
    else if (!json_is_array(input))
        json_reader_expected(t->body, "input", "a string or a list of items", input);
    json_array_foreach((json_t *)input, i, item) take_item(t, item);
}

/* ---- the other fields ---- */

static void read_tools(struct chat_translation *t)
{
    const json_t *tools = json_reader_get(t->body, "tools"), *choice = json_reader_get(t->body, "tool_choice"), *tool;
    const json_t *name = json_object_get(choice, "name");
    json_t *list = json_array();
    size_t i;
    if (tools && !json_is_array(tools)) json_reader_expected(t->body, "tools", "a list of tools", tools);
    json_array_foreach((json_t *)tools, i, tool)
    {
        if (!translation_is(tool, "function"))
            json_reader_fail(t->body, STATUS_UNSUPPORTED, "tools: quire has no tool of type %s",
                             show_value(json_object_get(tool, "type")).text);
        translation_add(t, list, translation_tool(tool, "parameters"));
    }
    if (tools) translation_copy(t, "tools", list);
    json_decref(list);
    if (translation_is(choice, "function") && name)
        translation_put(t, t->chat, "tool_choice", translation_tool_choice(name));
    else if (choice)
        translation_copy(t, "tool_choice", choice);
}

/* text.format: as chat's response_format has it, but without an object of its own for a schema. */
static void read_format(struct chat_translation *t)
{
    const json_t *text = json_reader_get(t->body, "text"), *format = json_object_get(text, "format");
    if (text && !json_is_map(text)) json_reader_expected(t->body, "text", "an object", text);
    if (!format || json_is_null(format)) return;
    if (!translation_is(format, "json_schema")) {
        translation_copy(t, "response_format", format);
        return;
    }
    json_t *schema = json_copy((json_t *)format);
    json_object_del(schema, "type");
    translation_put(t, t->chat, "response_format",
                    json_pack("{s:s,s:o*}", "type", "json_schema", "json_schema", schema));
}

static void read_reasoning(struct chat_translation *t)
{
    const json_t *reasoning = json_reader_get(t->body, "reasoning"), *effort = json_object_get(reasoning, "effort");
    if (reasoning && !json_is_map(reasoning)) json_reader_expected(t->body, "reasoning", "an object", reasoning);
    if (effort && !json_is_null(effort)) translation_copy(t, "reasoning_effort", effort);
}

/* Fields that ask for nothing with one value, and with others for what quire does not do. */
static void check_values(struct chat_translation *t)
{
    const json_t *include = json_reader_get(t->body, "include"), *truncation = json_reader_get(t->body, "truncation"),
                 *background = json_reader_get(t->body, "background"), *wanted;
    size_t i;
    if (truncation && !json_is_word(truncation, "disabled"))
        json_reader_expected(t->body, "truncation", "\"disabled\": quire leaves nothing out of a prompt", truncation);
    if (background && !json_is_false(background))
        json_reader_expected(t->body, "background", "false: quire keeps no responses", background);
    json_array_foreach((json_t *)include, i, wanted)
    {
        if (!json_is_word(wanted, "reasoning.encrypted_content"))
            json_reader_fail(t->body, STATUS_UNSUPPORTED, "include: quire does not give %s", show_value(wanted).text);
    }
}

enum status responses_to_chat(struct json_reader *body, json_t **chat)
{
    static const char *const read[] = {"input",
                                       "instructions",
                                       "max_output_tokens",
                                       "tools",
                                       "tool_choice",
                                       "parallel_tool_calls",
                                       "reasoning",
                                       "text",
                                       "include",
                                       "truncation",
                                       "background",
                                       "store",
                                       "user",
                                       "service_tier",
                                       "safety_identifier",
                                       "prompt_cache_key",
                                       "metadata",
                                       "stream_options",
                                       "prompt_cache_retention",
                                       NULL};
    const json_t *most = json_reader_get(body, "max_output_tokens"),
                 *parallel = json_reader_get(body, "parallel_tool_calls"),
                 *metadata = json_reader_get(body, "metadata");
    struct chat_translation t;
    chat_translation_begin(&t, body);
    translation_copy_fields(&t, read);
    if (most) translation_copy(&t, "max_tokens", most);
    if (parallel) translation_copy(&t, "parallel_tool_calls", parallel);
    if (metadata) translation_copy(&t, "metadata", metadata);
    read_input(&t);
    read_tools(&t);
    read_format(&t);
    read_reasoning(&t);
    check_values(&t);
    return chat_translation_end(&t, chat);
}

json_t *responses_repeated(const json_t *body)
{
    static const char *const fields[] = {
        "instructions", "max_output_tokens", "metadata", "reasoning", "temperature", "text", "top_p", "user"};
    json_t *o = json_pack("{s:n,s:b,s:b,s:s,s:[],s:s,s:b}", "previous_response_id", "store", 0, "background", 0,
                          "truncation", "disabled", "tools", "tool_choice", "auto", "parallel_tool_calls", 1);
    for (size_t i = 0; o && i < sizeof fields / sizeof *fields; i++) {
        json_t *value = json_object_get(body, fields[i]);
        json_object_set_new(o, fields[i], value ? json_incref(value) : json_null());
    }
    static const char *const given[] = {"tools", "tool_choice", "parallel_tool_calls"};
    for (size_t i = 0; o && i < sizeof given / sizeof *given; i++) {
        json_t *value = json_object_get(body, given[i]);
        if (value && !json_is_null(value)) json_object_set(o, given[i], value);
    }
    return o;
}
