/* A conversation: its messages, and the token ids of the prompt for the next answer. Each turn renders all messages, as
 * the chat template may change the earlier ones; the prefix cache then has the K and V of all ids up to the first that
 * differs. */
#ifndef QUIRE_RUNTIME_CONVERSATION_H
#define QUIRE_RUNTIME_CONVERSATION_H

#include "runtime/chat_setup.h"

struct conversation {
    const struct tokenizer *tokenizer;
    const struct chat_setup *setup;
    const char *system; /* system message, or NULL */
    json_t *messages;
    struct token_list ids; /* the last prompt, and the answer as far as it is there */
    struct text answer;    /* the text of that answer */
    size_t rewritten;      /* ids of the turn before that the last prompt does not begin with */
};

/* tokenizer, setup and system are referred to. False if memory ran out. */
bool conversation_init(struct conversation *c, const struct tokenizer *tokenizer, const struct chat_setup *setup,
                       const char *system);
void conversation_free(struct conversation *c);
bool conversation_clear(struct conversation *c); /* a new conversation with the same system message */

/* Adds a question: c->ids is then the prompt for its answer. On failure nothing changes. */
enum status conversation_ask(struct conversation *c, const char *text, size_t length, struct error *err);
/* Adds tokens of the answer, or text; false when memory ran out. */
bool conversation_add_tokens(struct conversation *c, const int32_t *ids, size_t count);
bool conversation_add_text(struct conversation *c, const char *text, size_t length);
/* The answer is complete, or as complete as it gets. False when memory ran out. */
bool conversation_end(struct conversation *c);
/* Removes the last question and its answer. */
void conversation_undo(struct conversation *c);

#endif
