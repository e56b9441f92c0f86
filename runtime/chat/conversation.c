#include "runtime/chat/conversation.h"

#include <string.h>

static bool add_message(json_t *messages, const char *role, const char *content, size_t length)
{
    json_t *message = json_pack("{s:s, s:s%}", "role", role, "content", content, length);
    return message && json_array_append_new(messages, message) == 0;
}

bool conversation_clear(struct conversation *c)
{
    c->ids.count = c->answer.length = c->rewritten = 0;
    json_decref(c->messages);
    c->messages = json_array();
    return c->messages && (!c->system || add_message(c->messages, "system", c->system, strlen(c->system)));
}

bool conversation_init(struct conversation *c, const struct tokenizer *tokenizer, const struct chat_setup *setup,
                       const char *system)
{
    *c = (struct conversation){.tokenizer = tokenizer, .setup = setup, .system = system};
    return conversation_clear(c);
}

void conversation_free(struct conversation *c)
{
    token_list_free(&c->ids);
    text_free(&c->answer);
    json_decref(c->messages);
    *c = (struct conversation){0};
}

/* Renders the messages, and makes the result the prompt. */
static enum status render(struct conversation *c, struct error *err)
{
    const struct chat_input input = {.messages = c->messages, .add_generation_prompt = true};
    struct marked_text text = {0};
    struct token_list ids = {0};
    enum status status = chat_setup_render(c->setup, input, &text, err);
    if (status == STATUS_OK) status = tokenizer_encode_marked(c->tokenizer, &text, &ids, err);
    marked_text_free(&text);
    if (status != STATUS_OK) {
        token_list_free(&ids);
        return status;
    }
    size_t same = 0;
    while (same < ids.count && same < c->ids.count && ids.ids[same] == c->ids.ids[same]) same++;
    c->rewritten = c->ids.count - same;
    token_list_free(&c->ids);
    c->ids = ids;
    c->answer.length = 0;
    return STATUS_OK;
}

static void drop_last(struct conversation *c)
{
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

enum status conversation_ask(struct conversation *c, const char *text, size_t length, struct error *err)
{
    if (!add_message(c->messages, "user", text, length))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a conversation");
    enum status status = render(c, err);
    if (status != STATUS_OK) drop_last(c);
    return status;
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
    return add_message(c->messages, "assistant", c->answer.length ? c->answer.data : "", c->answer.length);
}

void conversation_undo(struct conversation *c)
{
    drop_last(c);
    c->ids.count = c->answer.length = 0;
}
