/* What a vocabulary is made of: their bytes, and tries of them. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_VOCABULARY_STATE_H
#define QUIRE_TOKENIZER_GRAMMAR_VOCABULARY_STATE_H

#include "tokenizer/grammar/matcher.h"

/* The classes of characters, as bits. Each ASCII character that is no letter, digit or control character has its own.
 */
#define CLASS_TWO_BYTES (UINT64_C(1) << 44) /* characters of two bytes in UTF-8 */
#define CLASS_THREE_BYTES (UINT64_C(1) << 45)
#define CLASS_FOUR_BYTES (UINT64_C(1) << 46)
#define CLASS_BROKEN (UINT64_C(1) << 47) /* bytes that begin no character */
uint64_t vocabulary_class(uint8_t ascii);

/* Nodes are in depth-first order: those below a node follow it, up to `end`, and its tokens and theirs are
 * tokens[first_token .. nodes[end].first_token). */
struct trie_node {
    uint64_t classes; /* of the characters that begin with its byte, and of all below; the last may be cut short */
    uint32_t end, first_token;
    uint16_t depth;          /* bytes of its text */
    uint8_t byte;            /* the last one */
    uint8_t most_characters; /* of such a text; 255: or more */
};

/* A token whose bytes differ at the start of a text. */
struct first_token {
    int32_t id;
    uint32_t offset, length; /* of first_bytes; none: all of it is dropped */
    bool is_allowed;         /* what is dropped of the next token does not depend on it */
};

/* Tokens by their bytes. */
struct trie {
    struct trie_node *nodes; /* [num_nodes + 1] the first is the root */
    uint32_t num_nodes;
    int32_t *tokens; /* [num_tokens] */
    uint32_t num_tokens;
    /* The masks of the tokens of large nodes and below. */
    uint32_t *large_nodes; /* [num_large] ascending */
    uint32_t *large_masks; /* [num_large, mask_words] */
    uint32_t num_large;
};

enum { SHORT_TOKEN = 24 }; /* bytes; few tokens are longer */

struct vocabulary {
    struct trie short_tokens, long_tokens;
    struct token_bytes {
        uint32_t offset, length;
    } * spellings; /* [num_ids] of bytes; length 0: never allowed */
    char *bytes;
    struct first_token *first_tokens; /* [num_first_tokens] by id */
    uint32_t num_first_tokens;
    char *first_bytes;
    int32_t *stop_ids;
    int32_t num_stop_ids;
    int32_t num_ids, mask_words;
    uint32_t longest; /* bytes of a token */
};

bool vocabulary_is_stop(const struct vocabulary *v, int32_t id);
/* The bytes that a token adds to a text; with `at_start` one that it begins, and then perhaps none. NULL: it is never
 * allowed. */
const char *vocabulary_bytes(const struct vocabulary *v, int32_t id, bool at_start, uint32_t *length);

static inline void mask_set(uint32_t *words, int32_t id)
{
    words[id / 32] |= UINT32_C(1) << (id % 32);
}

#endif
