#include "runtime/chat/conversation.h"

#include <string.h>

static enum status out_of_memory(struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a conversation");
}

/* ---- lists of messages ---- */

static bool has_role(const json_t *message, const char *role)
{
    const char *found = json_string_value(json_object_get(message, "role"));
    return found && strcmp(found, role) == 0;
}

static size_t count_system(const json_t *messages)
{
    size_t count = 0;
    for (const json_t *m; (m = json_array_get(messages, count)); count++)
        if (!has_role(m, "system") && !has_role(m, "developer")) break;
    return count;
}

static int32_t count_turns(const json_t *messages)
{
    int32_t turns = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) turns += has_role(json_array_get(messages, i), "user");
    return turns;
}

/* The index of the last question; the number of messages if there is none. */
static size_t last_question(const json_t *messages)
{
    for (size_t i = json_array_size(messages); i > 0; i--)
        if (has_role(json_array_get(messages, i - 1), "user")) return i - 1;
    return json_array_size(messages);
}

static bool ends_with_question(const json_t *messages)
{
    return last_question(messages) + 1 == json_array_size(messages);
}

static void truncate(json_t *messages, size_t count)
{
    while (json_array_size(messages) > count) json_array_remove(messages, json_array_size(messages) - 1);
}

/* A new list of the system messages and of what follows the oldest `turns`; NULL: memory ran out. */
static json_t *without_oldest(const json_t *messages, int32_t turns)
{
    json_t *list = json_array();
    const size_t system = count_system(messages);
    int32_t seen = 0;
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        seen += has_role(message, "user");
        if (i < system || seen > turns) ok = json_array_append(list, message) == 0;
    }
    if (ok) return list;
    json_decref(list);
    return NULL;
}

static const char *content_of(const json_t *message, size_t *length)
{
    const json_t *content = json_object_get(message, "content");
    *length = json_string_length(content);
    return json_string_value(content);
}

/* ---- one conversation ---- */

static void take_messages(struct conversation *c, json_t *messages)
{
    json_decref(c->messages);
    c->messages = messages;
}

static void forget_prompt(struct conversation *c)
{
    c->ids.count = c->answer.length = c->rewritten = 0;
}

void conversation_clear(struct conversation *c)
{
    truncate(c->messages, count_system(c->messages));
    forget_prompt(c);
}

bool conversation_init(struct conversation *c, const struct tokenizer *tokenizer, const struct chat_setup *setup,
                       const char *system)
{
    *c = (struct conversation){.tokenizer = tokenizer, .setup = setup, .messages = json_array()};
    if (!c->messages) return false;
    return !system || json_array_append_new(c->messages, chat_message("system", system, strlen(system))) == 0;
}

bool conversation_copy(const struct conversation *from, struct conversation *to)
{
    *to = (struct conversation){.tokenizer = from->tokenizer, .setup = from->setup};
    to->messages = json_copy(from->messages);
    if (!to->messages) return false;
    return from->ids.count == 0 || token_list_append(&to->ids, from->ids.ids, from->ids.count);
}

void conversation_free(struct conversation *c)
{
    token_list_free(&c->ids);
    text_free(&c->answer);
    json_decref(c->messages);
    *c = (struct conversation){0};
}

/* ---- rendering ---- */

static enum status encode(const struct conversation *c, const json_t *messages, bool add_generation_prompt,
                          struct token_list *ids, struct error *err)
{
    const struct chat_input input = {.messages = messages, .add_generation_prompt = add_generation_prompt};
    *ids = (struct token_list){0};
    const enum status status = chat_setup_encode(c->setup, c->tokenizer, input, ids, err);
    if (status != STATUS_OK) token_list_free(ids);
    return status;
}

/* Makes `messages` (a new reference; NULL: memory ran out) the conversation, and their rendering the prompt. On failure
 * nothing changes. */
static enum status make_prompt(struct conversation *c, json_t *messages, struct error *err)
{
    struct token_list ids;
    if (!messages) return out_of_memory(err);
    enum status status = encode(c, messages, true, &ids, err);
    if (status != STATUS_OK) {
        json_decref(messages);
        return status;
    }
    size_t same = 0;
    while (same < ids.count && same < c->ids.count && ids.ids[same] == c->ids.ids[same]) same++;
    c->rewritten = c->ids.count - same;
    token_list_free(&c->ids);
    c->ids = ids;
    c->answer.length = 0;
    take_messages(c, messages);
    return STATUS_OK;
}

/* ---- a turn ---- */

enum status conversation_ask(struct conversation *c, const char *text, size_t length, struct error *err)
{
    json_t *messages = json_copy(c->messages);
    if (!messages || json_array_append_new(messages, chat_message("user", text, length)) != 0) {
        json_decref(messages);
        return out_of_memory(err);
    }
    return make_prompt(c, messages, err);
}

enum status conversation_ask_again(struct conversation *c, struct error *err)
{
    json_t *messages = json_copy(c->messages);
    if (messages) truncate(messages, last_question(messages) + 1);
    return make_prompt(c, messages, err);
}

size_t conversation_lasting(const struct conversation *c)
{
    return chat_setup_lasting(c->setup, c->tokenizer, (struct chat_input){.messages = c->messages}, &c->ids);
}

bool conversation_add_tokens(struct conversation *c, const int32_t *ids, size_t count)
{
    return token_list_append(&c->ids, ids, count);
}

bool conversation_add_text(struct conversation *c, const char *text, size_t length)
{
    return text_append(&c->answer, text, length);
}

bool conversation_end(struct conversation *c)
{
    const char *answer = c->answer.length ? c->answer.data : "";
    return json_array_append_new(c->messages, chat_message("assistant", answer, c->answer.length)) == 0;
}

void conversation_undo(struct conversation *c)
{
    truncate(c->messages, last_question(c->messages));
    forget_prompt(c);
}

void conversation_restore(struct conversation *c, json_t *before)
{
    take_messages(c, before);
    forget_prompt(c);
}

/* ---- all messages ---- */

enum status conversation_replace(struct conversation *c, json_t *messages, struct error *err)
{
    struct token_list ids;
    enum status status = encode(c, messages, ends_with_question(messages), &ids, err);
    if (status != STATUS_OK) {
        json_decref(messages);
        return status;
    }
    token_list_free(&ids);
    take_messages(c, messages);
    forget_prompt(c);
    return STATUS_OK;
}

/* Whether the template takes a question after these messages, some of which may be unusual for it. */
static enum status try_question(const struct conversation *c, const json_t *messages, struct error *err)
{
    struct token_list ids;
    json_t *list = json_copy((json_t *)messages);
    enum status status = STATUS_OK;
    if (list && !ends_with_question(list)) json_array_append_new(list, chat_message("user", "", 0));
    status = list ? encode(c, list, true, &ids, err) : out_of_memory(err);
    if (status == STATUS_OK) token_list_free(&ids);
    json_decref(list);
    return status;
}

enum status conversation_set_system(struct conversation *c, const char *text, size_t length, struct error *err)
{
    json_t *messages = json_copy(c->messages);
    bool ok = messages != NULL;
    while (ok && count_system(messages) > 0) ok = json_array_remove(messages, 0) == 0;
    if (ok && length) ok = json_array_insert_new(messages, 0, chat_message("system", text, length)) == 0;
    const enum status status = ok ? try_question(c, messages, err) : out_of_memory(err);
    if (status != STATUS_OK) {
        json_decref(messages);
        return status;
    }
    take_messages(c, messages);
    forget_prompt(c);
    return STATUS_OK;
}

const char *conversation_system(const struct conversation *c, size_t *length)
{
    return content_of(count_system(c->messages) ? json_array_get(c->messages, 0) : NULL, length);
}

const char *conversation_last_question(const struct conversation *c, size_t *length)
{
    return content_of(json_array_get(c->messages, last_question(c->messages)), length);
}

bool conversation_asks(const struct conversation *c)
{
    return ends_with_question(c->messages);
}

int32_t conversation_turns(const struct conversation *c)
{
    return count_turns(c->messages);
}

size_t conversation_tokens(const struct conversation *c)
{
    struct token_list ids;
    struct error err;
    if (c->ids.count > 0 || count_turns(c->messages) == 0) return c->ids.count;
    if (encode(c, c->messages, false, &ids, &err) != STATUS_OK) return 0;
    const size_t count = ids.count;
    token_list_free(&ids);
    return count;
}

/* ---- room ---- */

static enum status count_without(const struct conversation *c, int32_t turns, size_t *tokens, struct error *err)
{
    struct token_list ids;
    json_t *messages = without_oldest(c->messages, turns);
    const enum status status = messages ? encode(c, messages, true, &ids, err) : out_of_memory(err);
    json_decref(messages);
    if (status != STATUS_OK) return status;
    *tokens = ids.count;
    token_list_free(&ids);
    return STATUS_OK;
}

enum status conversation_find_room(const struct conversation *c, size_t target, struct conversation_room *room,
                                   struct error *err)
{
    const int32_t earlier = count_turns(c->messages) - 1;
    int32_t low = 0, high = earlier;
    enum status status = STATUS_OK;
    while (low < high && status == STATUS_OK) { /* fewer than `low` are too few; `high` are enough, or all */
        const int32_t middle = low + (high - low) / 2;
        size_t tokens = 0;
        status = count_without(c, middle, &tokens, err);
        if (tokens <= target)
            high = middle;
        else
            low = middle + 1;
    }
    *room = (struct conversation_room){.dropped = high, .kept = earlier - high};
    return status == STATUS_OK ? count_without(c, high, &room->tokens, err) : status;
}

enum status conversation_drop(struct conversation *c, int32_t turns, struct error *err)
{
    return make_prompt(c, without_oldest(c->messages, turns), err);
}
