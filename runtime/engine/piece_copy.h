/* A copy of a piece of an answer, which outlives the callback. It is one allocation. */
#ifndef QUIRE_RUNTIME_PIECE_COPY_H
#define QUIRE_RUNTIME_PIECE_COPY_H

#include "runtime/engine/engine.h"

struct piece_copy {
    struct piece_copy *next; /* in a list of the owner */
    void *user;              /* the owner's */
    struct answer_piece piece;
};

/* NULL: no memory. Free it with free. */
struct piece_copy *piece_copy_create(const struct answer_piece *piece, void *user);

#endif
