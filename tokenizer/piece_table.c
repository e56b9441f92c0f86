#include "tokenizer/piece_table.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Open addressing with linear probing. A slot has a part of the hash, so that strings are compared only if they are
 * probably equal. */
struct piece_slot {
    uint32_t hash, offset, length; /* bytes of piece_table.strings */
    int32_t id;                    /* -1: the slot is empty */
};

bool piece_table_init(struct piece_table *table, size_t count, size_t bytes)
{
    size_t slots = 8;
    while (slots < count + count / 2) slots *= 2;
    *table = (struct piece_table){.mask = slots - 1};
    table->slots = table_new(slots * sizeof *table->slots); /* ids are -1 */
    return table->slots && text_reserve(&table->strings, bytes);
}

void piece_table_free(struct piece_table *table)
{
    text_free(&table->strings);
    free(table->slots);
    *table = (struct piece_table){0};
}

/* The slot of text[length], or the empty one where it belongs. */
static struct piece_slot *find_slot(const struct piece_table *table, const char *text, size_t length, uint64_t hash)
{
    for (size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        struct piece_slot *slot = &table->slots[i];
        if (slot->id < 0) return slot;
        if (slot->hash == (uint32_t)(hash >> 32) && slot->length == length &&
            memcmp(table->strings.data + slot->offset, text, length) == 0)
            return slot;
    }
}

void piece_table_prefetch(const struct piece_table *table, const char *text, size_t length)
{
    __builtin_prefetch(&table->slots[XXH3_64bits(text, length) & table->mask]);
}

bool piece_table_add(struct piece_table *table, const char *text, size_t length, int32_t id)
{
    const uint64_t hash = XXH3_64bits(text, length);
    struct piece_slot *slot = find_slot(table, text, length, hash);
    if (slot->id >= 0) return false;
    *slot = (struct piece_slot){(uint32_t)(hash >> 32), (uint32_t)table->strings.length, (uint32_t)length, id};
    text_append(&table->strings, text, length); /* there is room */
    if (length > table->longest) table->longest = length;
    return true;
}

int32_t piece_table_find(const struct piece_table *table, const char *text, size_t length)
{
    if (length > table->longest) return -1;
    return find_slot(table, text, length, XXH3_64bits(text, length))->id;
}
