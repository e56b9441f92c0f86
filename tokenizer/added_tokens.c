#include "tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

bool added_tokens_add(struct added_tokens *a, const char *text, size_t length, int32_t id, unsigned flags)
{
    const size_t offset = a->text.length;
    if (!array_reserve(&a->items, &a->capacity, a->count + 1, sizeof *a->items)) return false;
    if (!text_append(&a->text, text, length)) return false;
    a->items[a->count++] = (struct added_token){offset, length, id, flags};
    return true;
}

void added_tokens_free(struct added_tokens *a)
{
    free(a->items);
    text_free(&a->text);
    *a = (struct added_tokens){0};
}

/* --- in order --- */

static int compare_bytes(const char *a, size_t a_length, const char *b, size_t b_length)
{
    const int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    if (order) return order;
    return a_length < b_length ? -1 : a_length > b_length;
}

/* By bytes, a prefix before what it is a prefix of; equal texts in the order in which they were added. */
static int compare(const void *left, const void *right, void *user)
{
    const struct added_token *a = left, *b = right;
    const char *text = user;
    const int order = compare_bytes(text + a->offset, a->length, text + b->offset, b->length);
    return order ? order : a->offset < b->offset ? -1 : 1;
}

static unsigned char first_byte(const struct added_tokens *a, size_t item)
{
    return (unsigned char)a->text.data[a->items[item].offset];
}

static void drop_duplicates(struct added_tokens *a)
{
    size_t kept = 0;
    for (size_t i = 0; i < a->count; i++) {
        const struct added_token *item = &a->items[i], *next = item + 1;
        const char *text = a->text.data;
        if (i + 1 < a->count &&
            compare_bytes(text + item->offset, item->length, text + next->offset, next->length) == 0)
            continue;
        a->items[kept++] = *item;
    }
    a->count = kept;
}

void added_tokens_sort(struct added_tokens *a)
{
    if (a->count) qsort_r(a->items, a->count, sizeof *a->items, compare, a->text.data);
    drop_duplicates(a);
    size_t i = 0;
    for (int byte = 0; byte <= 256; byte++) {
        while (i < a->count && first_byte(a, i) < byte) i++;
        a->first[byte] = (uint32_t)i;
    }
}

const struct added_token *added_tokens_find(const struct added_tokens *a, const char *text, size_t length)
{
    size_t low = 0, high = a->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const struct added_token *item = &a->items[middle];
        const int order = compare_bytes(a->text.data + item->offset, item->length, text, length);
        if (order == 0) return item;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* --- in a text --- */

/* The byte of an item at `depth`, -1 where it has ended: so an item that ends sorts first. */
static int byte_at(const struct added_tokens *a, size_t item, size_t depth)
{
    const struct added_token *token = &a->items[item];
    return depth < token->length ? (unsigned char)a->text.data[token->offset + depth] : -1;
}

/* The first of items low .. high whose byte at `depth` is `byte` or more. */
static size_t lower_bound(const struct added_tokens *a, size_t low, size_t high, size_t depth, int byte)
{
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (byte_at(a, middle, depth) < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token at the start of text[length], or NULL. low .. high are the items that share the first `depth` bytes
 * with the text. */
static const struct added_token *longest_at(const struct added_tokens *a, const char *text, size_t length)
{
    const struct added_token *longest = NULL;
    size_t low = a->first[(unsigned char)*text], high = a->first[(unsigned char)*text + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (a->items[low].length == depth) longest = &a->items[low++];
        if (depth == length) break;
        const int byte = (unsigned char)text[depth];
        low = lower_bound(a, low, high, depth, byte);
        high = lower_bound(a, low, high, depth, byte + 1);
    }
    return longest;
}

/* The character that ends at text + at, and in *length its bytes. */
static uint32_t character_before(const char *text, size_t at, size_t *length)
{
    uint32_t character;
    *length = 1;
    while (*length < at && *length < 4 && ((unsigned char)text[at - *length] & 0xC0) == 0x80) ++*length;
    utf8_decode(text + at - *length, *length, &character);
    return character;
}

/* \w of Unicode (UTS 18): letters, marks, decimal digits, connectors, and the joiners. */
static bool is_word(uint32_t c)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    if ((k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC) return true;
    /* The rest of Alphabetic is circled and squared letters. */
    return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

static bool stands_alone(const struct added_search *s, size_t from, size_t to)
{
    size_t bytes;
    uint32_t after;
    if (from > 0 && is_word(character_before(s->text, from, &bytes))) return false;
    if (to == s->length) return true;
    utf8_decode(s->text + to, s->length - to, &after);
    return !is_word(after);
}

static bool may_match(const struct added_search *s, const struct added_token *token, size_t at)
{
    if (token->flags & ADDED_TOKEN_SPECIAL) {
        if (!s->special) return false;
        if (s->marks && memchr(s->marks + at, 1, token->length)) return false;
    }
    return !(token->flags & ADDED_TOKEN_SINGLE_WORD) || stands_alone(s, at, at + token->length);
}

static size_t spaces_end(const struct added_search *s, size_t at)
{
    while (at < s->length) {
        uint32_t character;
        const size_t bytes = utf8_decode(s->text + at, s->length - at, &character);
        if (!unicode_is_white_space(character)) break;
        at += bytes;
    }
    return at;
}

/* No white space is looked at twice, even where every token takes it along and is white space itself. */
static void take_spaces(struct added_search *s, const struct added_token *token, struct added_match *match)
{
    size_t bytes;
    if (token->flags & ADDED_TOKEN_LSTRIP) {
        while (match->from > s->last_end && unicode_is_white_space(character_before(s->text, match->from, &bytes)))
            match->from -= bytes;
        if (match->from < s->last_end) match->from = s->last_end;
    }
    if (token->flags & ADDED_TOKEN_RSTRIP) {
        if (match->to >= s->spaces_end) s->spaces_end = spaces_end(s, match->to);
        match->to = s->spaces_end;
    }
}

bool added_tokens_next(const struct added_tokens *a, struct added_search *search, struct added_match *out)
{
    if (a->count == 0) return false;
    for (size_t i = search->at; i < search->length;) {
        const struct added_token *token = longest_at(a, search->text + i, search->length - i);
        if (!token) {
            i++;
            continue;
        }
        const size_t at = i;
        i += token->length; /* text that spells a token which may not match here is not searched again */
        if (!may_match(search, token, at)) continue;
        search->at = i;
        *out = (struct added_match){at, at + token->length, token->id};
        take_spaces(search, token, out);
        if (out->from >= out->to) continue; /* the match before has taken all of it as white space */
        search->last_end = out->to;
        return true;
    }
    search->at = search->length;
    return false;
}
