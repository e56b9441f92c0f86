/* The Unigram model (Kudo, 2018) of tokenizers: of all ways to cut a word into pieces the one with the highest sum of
 * scores (Viterbi's algorithm), and of equal ones the one whose last piece is longest. A character that is no piece has
 * the lowest score less 10. A run of such characters and of the unknown piece becomes the piece of the same text, or
 * bytes (byte_fallback, if the vocabulary has them all), or one unknown piece. A word of n bytes takes 16 n bytes of
 * memory, and O(n) time for pieces of bounded length. */
#ifndef QUIRE_TOKENIZER_UNIGRAM_H
#define QUIRE_TOKENIZER_UNIGRAM_H

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_list.h"
#include "tokenizer/tokenizer_json.h"

struct unigram;

/* `byte_level`, which bpe.h explains, is refused. The file may be freed afterwards. Of several pieces of one text the
 * last counts. Close *out, also after a failure. Errors name `path` and the option: of the wrong type, or an unk_id
 * that is not in the vocabulary. */
enum status unigram_open(const struct tokenizer_json *file, bool byte_level, const char *path, struct unigram **out,
                         struct error *err);
void unigram_close(struct unigram *u); /* NULL is allowed */

/* The id of the piece of exactly these bytes, or -1. */
int32_t unigram_piece_id(const struct unigram *u, const char *bytes, size_t length);

/* Words are no longer cut into this piece, which must be longer than a character; no effect if there is none. */
void unigram_hide(struct unigram *u, int32_t id);

/* Appends the ids of all words, in order; after a failure *out is as it was. Fails if memory ran out, or on a character
 * that is no piece if there is no unk_id. Thread-safe. */
enum status unigram_encode(const struct unigram *u, const struct words *words, struct token_list *out,
                           struct error *err);

#endif
