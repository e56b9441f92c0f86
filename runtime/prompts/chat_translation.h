/* What the translations of other APIs' bodies into those of /v1/chat/completions share. A failure goes to the body's
 * reader, and what follows it changes nothing that counts. */
#ifndef QUIRE_RUNTIME_CHAT_TRANSLATION_H
#define QUIRE_RUNTIME_CHAT_TRANSLATION_H

#include "base/json.h"

struct chat_translation {
    struct json_reader *body;
    json_t *chat, *messages; /* `messages` becomes the chat's at the end */
};

void chat_translation_begin(struct chat_translation *t, struct json_reader *body);
/* *chat is the caller's; NULL on failure. */
enum status chat_translation_end(struct chat_translation *t, json_t **chat);

/* These two take the value; NULL: memory ran out. */
void translation_put(struct chat_translation *t, json_t *object, const char *name, json_t *value);
void translation_add(struct chat_translation *t, json_t *list, json_t *value);
void translation_copy(struct chat_translation *t, const char *name, const json_t *value); /* into the chat */

/* Copies the fields of the body that chat has, too: model, stream and what quire's own form takes. `read` are those
 * that the translation reads or that have no effect, up to a NULL; every other field is refused by name. */
void translation_copy_fields(struct chat_translation *t, const char *const *read);

/* A member of `object` that must be a string, as in "messages: NAME of a block of type text must be a string"; "" after
 * a failure. `what` is "messages", `kind` "block". */
const char *translation_string(struct chat_translation *t, const char *what, const char *kind, const json_t *object,
                               const char *name);
/* A tool as chat has it: the names and descriptions of both other forms are in `tool` itself, its parameters under
 * `parameters`. And the tool_choice of that name. NULL: memory ran out. */
json_t *translation_tool(const json_t *tool, const char *parameters);
json_t *translation_tool_choice(const json_t *name);
bool translation_is(const json_t *object, const char *type); /* its "type" is this */

#endif
