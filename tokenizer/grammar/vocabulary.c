#include "tokenizer/grammar/vocabulary_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tokenizer/grammar/trie.h"
#include "tokenizer/token_table.h"

enum { MAX_TOKEN = UINT16_MAX }; /* bytes; longer tokens are never allowed */

uint64_t vocabulary_class(uint8_t ascii)
{
    static const char *const groups[] = {"abcdef", "ghijklmnopqrstuvwxyz", "ABCDEF", "GHIJKLMNOPQRSTUVWXYZ",
                                         "0123456789"};
    static const char alone[] = "\t\n\r !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    enum { NUM_GROUPS = sizeof groups / sizeof *groups };
    if (ascii == 0) return UINT64_C(1) << (NUM_GROUPS + sizeof alone - 1);
    for (int i = 0; i < NUM_GROUPS; i++)
        if (strchr(groups[i], ascii)) return UINT64_C(1) << i;
    const char *found = strchr(alone, ascii);
    return UINT64_C(1) << (NUM_GROUPS + (found ? (size_t)(found - alone) : sizeof alone - 1));
}

bool vocabulary_is_stop(const struct vocabulary *v, int32_t id)
{
    for (int32_t i = 0; i < v->num_stop_ids; i++)
        if (v->stop_ids[i] == id) return true;
    return false;
}

static int compare_first(const void *key, const void *element)
{
    const int32_t id = *(const int32_t *)key, other = ((const struct first_token *)element)->id;
    return (id > other) - (id < other);
}

const char *vocabulary_bytes(const struct vocabulary *v, int32_t id, bool at_start, uint32_t *length)
{
    *length = 0;
    if (id < 0 || id >= v->num_ids || v->spellings[id].length == 0) return NULL;
    const struct first_token *first =
        at_start && v->num_first_tokens
            ? bsearch(&id, v->first_tokens, v->num_first_tokens, sizeof *v->first_tokens, compare_first)
            : NULL;
    if (first && !first->is_allowed) return NULL;
    *length = first ? first->length : v->spellings[id].length;
    return first ? v->first_bytes + first->offset : v->bytes + v->spellings[id].offset;
}

int32_t vocabulary_mask_words(const struct vocabulary *v)
{
    return v->mask_words;
}

/* ---- spellings ---- */

struct spelling {
    const struct token_table *table;
    struct text bytes, first;
    size_t first_capacity;
};

/* Appends the token's bytes inside a text (or at its start): detokenizer.c. */
static bool spell(struct text *out, const struct token_table *table, struct token token, bool at_start)
{
    const struct decoding_rules *rules = &table->rules;
    const char *bytes = table->bytes.data + token.offset;
    size_t skip = 0;
    if (rules->decoding == DECODE_SENTENCEPIECE) {
        if (at_start && rules->strips_first_space && (token.flags & TOKEN_LEADING_SPACE)) skip = 1;
        return text_append(out, bytes + skip, token.length - skip);
    }
    const bool is_text = rules->decoding != DECODE_BYTE_LEVEL && !(token.flags & TOKEN_BYTE);
    if (is_text && !at_start && rules->space_between && !text_append(out, " ", 1)) return false;
    const bool spaceless = is_text && at_start && rules->spaceless_first_token && !(token.flags & TOKEN_LITERAL_SPACE);
    while (at_start && skip < token.length && skip < rules->strip_spaces && bytes[skip] == ' ') skip++;
    for (size_t i = skip; i < token.length; i++)
        if (!(spaceless && bytes[i] == ' ') && !text_append(out, bytes + i, 1)) return false;
    return true;
}

/* A token whose bytes cannot be known from its place in the text alone is never allowed: SentencePiece drops the space
 * behind an added token, too. */
static bool is_allowed(const struct vocabulary *v, const struct token_table *table, int32_t id)
{
    const struct token token = token_table_get(table, id);
    if (token.length == 0 || token.length >= MAX_TOKEN || (token.flags & TOKEN_SPECIAL)) return false;
    return !vocabulary_is_stop(v, id) && !(table->rules.strips_first_space && (token.flags & TOKEN_ADDED));
}

/* A token of spaces that are all dropped may leave more to be dropped of the next one. */
static bool may_be_first(const struct token_table *table, struct token token, size_t first_length)
{
    const struct decoding_rules *rules = &table->rules;
    if (first_length > 0) return true;
    return rules->decoding == DECODE_SENTENCEPIECE ? !rules->strips_every_space : token.length >= rules->strip_spaces;
}

/* The bytes of a token, and those at the start if they differ. */
static bool spell_token(struct vocabulary *v, struct spelling *s, int32_t id, size_t *first_capacity)
{
    const struct token token = token_table_get(s->table, id);
    if (!is_allowed(v, s->table, id)) return true;
    const size_t offset = s->bytes.length, first = s->first.length;
    if (!spell(&s->bytes, s->table, token, false) || !spell(&s->first, s->table, token, true)) return false;
    const size_t length = s->bytes.length - offset, first_length = s->first.length - first;
    v->spellings[id] = (struct token_bytes){(uint32_t)offset, (uint32_t)length};
    if (length > v->longest) v->longest = (uint32_t)length;
    if (first_length == length && memcmp(s->bytes.data + offset, s->first.data + first, length) == 0) {
        s->first.length = first;
        return true;
    }
    if (!array_reserve(&v->first_tokens, first_capacity, v->num_first_tokens + 1, sizeof *v->first_tokens))
        return false;
    v->first_tokens[v->num_first_tokens++] =
        (struct first_token){id, (uint32_t)first, (uint32_t)first_length, may_be_first(s->table, token, first_length)};
    return true;
}

static bool spell_tokens(struct vocabulary *v, const struct token_table *table)
{
    struct spelling s = {.table = table};
    size_t first_capacity = 0;
    bool fits = text_append(&s.bytes, "", 0) && text_append(&s.first, "", 0);
    for (int32_t id = 0; id < v->num_ids && fits; id++) fits = spell_token(v, &s, id, &first_capacity);
    v->bytes = s.bytes.data;
    v->first_bytes = s.first.data;
    return fits;
}

enum status vocabulary_create(const struct token_table *tokens, int32_t num_ids, const int32_t *stop_ids,
                              int32_t num_stop_ids, struct vocabulary **out, struct error *err)
{
    *out = NULL;
    struct vocabulary *v = calloc(1, sizeof *v);
    if (!v) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the tokens of a grammar");
    v->num_ids = num_ids;
    v->mask_words = (num_ids + 31) / 32;
    v->num_stop_ids = num_stop_ids;
    v->stop_ids = malloc(((size_t)num_stop_ids + 1) * sizeof *v->stop_ids);
    v->spellings = calloc((size_t)num_ids + 1, sizeof *v->spellings);
    if (v->stop_ids && num_stop_ids) memcpy(v->stop_ids, stop_ids, (size_t)num_stop_ids * sizeof *stop_ids);
    if (!v->stop_ids || !v->spellings || !spell_tokens(v, tokens) || !trie_build(v, 1, SHORT_TOKEN, &v->short_tokens) ||
        !trie_build(v, SHORT_TOKEN + 1, UINT32_MAX, &v->long_tokens)) {
        vocabulary_free(v);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the tokens of a grammar");
    }
    *out = v;
    return STATUS_OK;
}

void vocabulary_free(struct vocabulary *v)
{
    if (!v) return;
    trie_free(&v->short_tokens);
    trie_free(&v->long_tokens);
    free(v->spellings);
    free(v->bytes);
    free(v->first_tokens);
    free(v->first_bytes);
    free(v->stop_ids);
    free(v);
}
