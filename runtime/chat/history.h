/* The messages of earlier sessions, and of those that run at the same time. The file is locked, read again and replaced
 * for each message, so that no session loses another's. libedit's format: a message a line, encoded by vis(3). */
#ifndef QUIRE_RUNTIME_HISTORY_H
#define QUIRE_RUNTIME_HISTORY_H

#include <histedit.h>

#include "base/array.h"

enum {
    HISTORY_MESSAGES = 1000,           /* older ones are dropped */
    HISTORY_MAX_BYTES = 64 * 1024 - 1, /* a longer message is not kept */
};

struct message_history {
    History *entries; /* libedit's, for its search; NULL: there is no history */
    struct text path; /* of the file; empty: kept for the run only */
};

/* `name` as in line_editor_options. */
void history_open(struct message_history *h, const char *name);
void history_close(struct message_history *h);
/* Adds a message as the newest; an equal one goes. */
void history_add(struct message_history *h, const char *message);
/* The message that is the n-th newest, from 1; NULL: there are not so many. Valid until one is added. */
const char *history_get(const struct message_history *h, int n);

#endif
