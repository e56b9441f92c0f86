/* A conversation as token ids: what was asked and answered so far, as the model saw it. A turn only appends ids, so the
 * prefix cache has everything before it. */
#ifndef QUIRE_RUNTIME_CONVERSATION_H
#define QUIRE_RUNTIME_CONVERSATION_H

#include "tokenizer/chat_template.h"

struct conversation {
    const struct tokenizer *tokenizer;
    enum chat_format format;
    const char *system;    /* system message, or NULL */
    struct token_list ids; /* prompts and answers */
    bool answer_ended;     /* the last answer's end marker is among the ids */
    size_t before;         /* ids before the last question */
    bool ended_before;     /* answer_ended then */
};

/* tokenizer and system are referred to. */
void conversation_init(struct conversation *c, const struct tokenizer *tokenizer, const char *system);
void conversation_free(struct conversation *c);
void conversation_clear(struct conversation *c); /* a new conversation with the same system message */

/* Adds a question: c->ids is then the prompt for its answer. On failure nothing changes. */
enum status conversation_ask(struct conversation *c, const char *text, size_t length, struct error *err);
/* Adds a token of the answer; false when memory ran out. */
bool conversation_add(struct conversation *c, int32_t token);
/* The answer is complete. `ended`: its last token is the model's own end marker. */
void conversation_end(struct conversation *c, bool ended);
/* Removes the last question and its answer. */
void conversation_undo(struct conversation *c);

#endif
