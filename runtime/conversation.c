#include "runtime/conversation.h"

#include <string.h>

void conversation_init(struct conversation *c, const struct tokenizer *tokenizer, const char *system)
{
    *c = (struct conversation){.tokenizer = tokenizer, .system = system};
    c->format = chat_format_detect(tokenizer_chat_template(tokenizer));
}

void conversation_free(struct conversation *c)
{
    token_list_free(&c->ids);
}

void conversation_clear(struct conversation *c)
{
    c->ids.count = c->before = 0;
    c->answer_ended = c->ended_before = false;
}

static enum status first_turn(struct conversation *c, const struct chat_message *user, struct error *err)
{
    if (!c->system) return chat_render(c->tokenizer, c->format, user, 1, true, &c->ids, err);
    const struct chat_message messages[] = {{"system", c->system, strlen(c->system)}, *user};
    return chat_render(c->tokenizer, c->format, messages, 2, true, &c->ids, err);
}

enum status conversation_ask(struct conversation *c, const char *text, size_t length, struct error *err)
{
    const struct chat_message user = {"user", text, length};
    size_t before = c->ids.count;
    enum status status = before == 0 ? first_turn(c, &user, err)
                                     : chat_render_turn(c->tokenizer, c->format, &user, c->answer_ended, &c->ids, err);
    if (status != STATUS_OK) return status;
    c->before = before;
    c->ended_before = c->answer_ended;
    c->answer_ended = false;
    return STATUS_OK;
}

bool conversation_add(struct conversation *c, int32_t token)
{
    return token_list_append(&c->ids, &token, 1);
}

void conversation_end(struct conversation *c, bool ended)
{
    c->answer_ended = ended;
}

void conversation_undo(struct conversation *c)
{
    c->ids.count = c->before;
    c->answer_ended = c->ended_before;
}
