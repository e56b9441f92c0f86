#include "runtime/prompts/chat_translation.h"

#include <string.h>

#include "runtime/prompts/request_fields.h"

void chat_translation_begin(struct chat_translation *t, struct json_reader *body)
{
    *t = (struct chat_translation){.body = body, .chat = json_object(), .messages = json_array()};
    if (!t->chat || !t->messages) json_reader_fail(body, STATUS_OUT_OF_MEMORY, "no memory for a request");
}

enum status chat_translation_end(struct chat_translation *t, json_t **chat)
{
    translation_copy(t, "messages", t->messages);
    json_decref(t->messages);
    *chat = t->body->status == STATUS_OK ? t->chat : NULL;
    if (!*chat) json_decref(t->chat);
    return t->body->status;
}

void translation_put(struct chat_translation *t, json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, value) != 0)
        json_reader_fail(t->body, STATUS_OUT_OF_MEMORY, "no memory for %s", name);
}

void translation_add(struct chat_translation *t, json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) != 0)
        json_reader_fail(t->body, STATUS_OUT_OF_MEMORY, "no memory for a request");
}

void translation_copy(struct chat_translation *t, const char *name, const json_t *value)
{
    translation_put(t, t->chat, name, json_incref((json_t *)value));
}

static bool is_among(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0) return true;
    return false;
}

void translation_copy_fields(struct chat_translation *t, const char *const *read)
{
    static const char *const common[] = {"model", "stream", NULL};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)t->body->object, name, value)
    {
        if (json_is_null(value) || is_among(name, read)) continue;
        if (is_among(name, common) || request_field_use(OPENAI_CHAT, name) == FIELD_TAKEN)
            translation_copy(t, name, value);
        else
            json_reader_fail(t->body, STATUS_INVALID, "there is no field '%s' for this url", show_string(name).text);
    }
}

const char *translation_string(struct chat_translation *t, const char *what, const char *kind, const json_t *object,
                               const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (json_is_string(value)) return json_string_value(value);
    json_reader_fail(t->body, STATUS_INVALID, "%s: %s of a %s of type %s must be a string, found %s", what, name, kind,
                     show_value(json_object_get(object, "type")).text, value ? show_value(value).text : "nothing");
    return "";
}

json_t *translation_tool(const json_t *tool, const char *parameters)
{
    return json_pack("{s:s,s:{s:O*,s:O*,s:O*}}", "type", "function", "function", "name", json_object_get(tool, "name"),
                     "description", json_object_get(tool, "description"), "parameters",
                     json_object_get(tool, parameters));
}

json_t *translation_tool_choice(const json_t *name)
{
    return json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", name);
}

bool translation_is(const json_t *object, const char *type)
{
    return json_is_word(json_object_get(object, "type"), type);
}
