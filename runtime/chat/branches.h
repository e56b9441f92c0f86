/* The branches of a chat: conversations with names, one of which goes on. A new branch is a copy of the list of
 * messages; the K and V of what it shares with others are found in the prefix cache, and so are blocks that both use.
 */
#ifndef QUIRE_RUNTIME_BRANCHES_H
#define QUIRE_RUNTIME_BRANCHES_H

#include "runtime/chat/conversation.h"

struct branch {
    char *name;
    struct conversation conversation;
    bool warned; /* that the conversation is nearly as long as it may be */
};

struct branches {
    struct branch *list; /* [count] */
    size_t count, capacity, current;
};

/* One branch of this name, which takes over the conversation. False if memory ran out; the conversation is then the
 * caller's. */
bool branches_init(struct branches *b, const char *name, const struct conversation *conversation);
void branches_free(struct branches *b); /* safe on a zeroed struct */

struct branch *branches_current(const struct branches *b);
struct branch *branches_find(const struct branches *b, const char *name); /* NULL: there is none */
/* Copies the current branch, and makes the copy the current one. No branch may have the name. False if memory ran out,
 * and then nothing changes. */
bool branches_add(struct branches *b, const char *name);
void branches_switch(struct branches *b, const struct branch *to);

#endif
