/* The pieces of a vocabulary, found by their text: a hash table. */
#ifndef QUIRE_TOKENIZER_PIECE_TABLE_H
#define QUIRE_TOKENIZER_PIECE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"

struct piece_table {
    struct text strings;      /* of all pieces */
    struct piece_slot *slots; /* [mask + 1], a power of two */
    size_t mask;
    size_t longest; /* bytes */
};

/* Makes room for `count` pieces of `bytes` bytes in all, less than 4 GiB. False if memory ran out. */
bool piece_table_init(struct piece_table *table, size_t count, size_t bytes);
void piece_table_free(struct piece_table *table); /* safe on a zeroed struct */

/* id >= 0. False if there is a piece of the same text already. Only as many may be added as there is room for. */
bool piece_table_add(struct piece_table *table, const char *text, size_t length, int32_t id);

/* Has the memory fetched that adding or finding a piece will look at first. */
void piece_table_prefetch(const struct piece_table *table, const char *text, size_t length);

/* The id of the piece text[length], or -1. */
int32_t piece_table_find(const struct piece_table *table, const char *text, size_t length);

#endif
