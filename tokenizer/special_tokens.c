#include "tokenizer/special_tokens.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *left, const void *right)
{
    const struct special_token *a = left, *b = right;
    unsigned char x = (unsigned char)a->text[0], y = (unsigned char)b->text[0];
    if (x != y) return x < y ? -1 : 1;
    if (a->length != b->length) return a->length > b->length ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static bool is_matched(const struct token *token)
{
    return (token->flags & TOKEN_MATCHED) && token->length > 0;
}

static void index_first_bytes(struct special_tokens *specials)
{
    size_t i = 0;
    for (int byte = 0; byte <= 256; byte++) {
        while (i < specials->count && (unsigned char)specials->items[i].text[0] < byte) i++;
        specials->first[byte] = (uint32_t)i;
    }
}

bool special_tokens_build(struct special_tokens *specials, const struct token_table *table)
{
    *specials = (struct special_tokens){0};
    size_t count = 0;
    for (int32_t id = 0; id < table->count; id++) count += is_matched(&table->tokens[id]);
    specials->items = malloc((count + 1) * sizeof *specials->items);
    if (!specials->items) return false;
    for (int32_t id = 0; id < table->count; id++) {
        const struct token *token = &table->tokens[id];
        if (!is_matched(token)) continue;
        specials->items[specials->count++] =
            (struct special_token){table->bytes.data + token->offset, token->length, id};
    }
    qsort(specials->items, count, sizeof *specials->items, compare);
    index_first_bytes(specials);
    return true;
}

void special_tokens_free(struct special_tokens *specials)
{
    free(specials->items);
    *specials = (struct special_tokens){0};
}

const struct special_token *special_tokens_find(const struct special_tokens *specials, const char *text, size_t length)
{
    if (length == 0) return NULL;
    unsigned char byte = (unsigned char)text[0];
    for (uint32_t i = specials->first[byte]; i < specials->first[byte + 1]; i++) {
        const struct special_token *item = &specials->items[i];
        if (item->length == length && memcmp(item->text, text, length) == 0) return item;
    }
    return NULL;
}

const struct special_token *special_tokens_search(const struct special_tokens *specials, const char *text,
                                                  size_t length, size_t from, size_t *at)
{
    for (size_t i = from; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        for (uint32_t k = specials->first[byte]; k < specials->first[byte + 1]; k++) {
            const struct special_token *item = &specials->items[k];
            if (item->length > length - i || memcmp(item->text, text + i, item->length) != 0) continue;
            *at = i;
            return item;
        }
    }
    return NULL;
}
