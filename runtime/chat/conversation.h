/* A conversation: its messages, and the token ids of the prompt for the next answer. Each turn renders all messages, as
 * the chat template may change the earlier ones; the prefix cache then has the K and V of all ids up to the first that
 * differs.
 *
 * The system messages are those that stand before all others (role "system" or "developer"). A turn is a message of the
 * user and all that follows it up to the next one. */
#ifndef QUIRE_RUNTIME_CONVERSATION_H
#define QUIRE_RUNTIME_CONVERSATION_H

#include "runtime/prompts/chat_setup.h"

struct conversation {
    const struct tokenizer *tokenizer;
    const struct chat_setup *setup;
    json_t *messages; /* a list; a message in it is never changed, because copies share it; asking makes a new list */
    struct token_list ids; /* the last prompt, and the answer as far as it is there */
    struct text answer;    /* the text of that answer */
    size_t rewritten;      /* ids of the turn before that the last prompt does not begin with */
};

/* `system`: the system message, or NULL. tokenizer and setup are referred to. False if memory ran out. */
bool conversation_init(struct conversation *c, const struct tokenizer *tokenizer, const struct chat_setup *setup,
                       const char *system);
/* Overwrites *to. False if memory ran out; *to may be freed all the same. */
bool conversation_copy(const struct conversation *from, struct conversation *to);
void conversation_free(struct conversation *c);
void conversation_clear(struct conversation *c); /* a new conversation with the same system messages */

/* ---- a turn ---- */

/* Adds a question: c->ids is then the prompt for its answer. On failure nothing changes. */
enum status conversation_ask(struct conversation *c, const char *text, size_t length, struct error *err);
/* Removes what follows the last question: c->ids is then again the prompt for its answer. There must be a question. On
 * failure nothing changes. */
enum status conversation_ask_again(struct conversation *c, struct error *err);
/* Of the prompt that was made last, and has no answer yet: chat_setup_lasting. */
size_t conversation_lasting(const struct conversation *c);
/* Adds tokens of the answer, or text; false when memory ran out. */
bool conversation_add_tokens(struct conversation *c, const int32_t *ids, size_t count);
bool conversation_add_text(struct conversation *c, const char *text, size_t length);
/* The answer is complete, or as complete as it gets. False when memory ran out. */
bool conversation_end(struct conversation *c);
/* Removes the last turn, if there is one. */
void conversation_undo(struct conversation *c);
/* Takes back a turn: `before` (a new reference) is c->messages as it was when the turn began. */
void conversation_restore(struct conversation *c, json_t *before);

/* ---- all messages ---- */

/* Takes `messages` (a new reference) in place of c->messages. INVALID if they are no conversation that the chat
 * template can render; then nothing changes. */
enum status conversation_replace(struct conversation *c, json_t *messages, struct error *err);
/* Sets the system message in place of those that there are; length 0: none. On failure nothing changes. */
enum status conversation_set_system(struct conversation *c, const char *text, size_t length, struct error *err);

/* The content of a message, and [*length]. NULL if there is no such message, or if it is not text. Valid until the
 * messages change. */
const char *conversation_system(const struct conversation *c, size_t *length);
const char *conversation_last_question(const struct conversation *c, size_t *length);

bool conversation_asks(const struct conversation *c); /* the last message is a question */
int32_t conversation_turns(const struct conversation *c);
/* Tokens of all messages: as many as were computed, or, if the messages have changed since, rendered again; 0 if the
 * template does not render them without a question. */
size_t conversation_tokens(const struct conversation *c);

/* ---- room ---- */

/* The prompt without the oldest turns. */
struct conversation_room {
    int32_t dropped, kept; /* turns before the last question */
    size_t tokens;         /* of the prompt then */
};
/* Finds the fewest turns to drop so that the prompt for the last question has at most `target` tokens, or, if that
 * question alone has more, all turns before it. */
enum status conversation_find_room(const struct conversation *c, size_t target, struct conversation_room *room,
                                   struct error *err);
/* Drops the oldest `turns`, and renders the prompt for the last question. On failure nothing changes. */
enum status conversation_drop(struct conversation *c, int32_t turns, struct error *err);

#endif
