/* A growable list of token ids. Zero-initialise it; free with token_list_free. */
#ifndef QUIRE_TOKENIZER_TOKEN_LIST_H
#define QUIRE_TOKENIZER_TOKEN_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"

struct token_list {
    int32_t *ids; /* [count] */
    size_t count, capacity;
};

/* Appends ids[count]; false if memory ran out. */
static inline bool token_list_append(struct token_list *list, const int32_t *ids, size_t count)
{
    if (list->count + count > list->capacity &&
        !array_reserve(&list->ids, &list->capacity, list->count + count, sizeof *list->ids))
        return false;
    if (count) memcpy(list->ids + list->count, ids, count * sizeof *ids);
    list->count += count;
    return true;
}

static inline void token_list_free(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

/* Fails with the sentence of a tokenizer whose memory ran out. */
static inline enum status tokenizer_no_memory(struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory in the tokenizer");
}

#endif
