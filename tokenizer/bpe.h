/* Byte-pair encoding (Sennrich et al., 2016) of words, with the options of tokenizers' BPE model: unk_token, fuse_unk,
 * byte_fallback, ignore_merges, continuing_subword_prefix, end_of_word_suffix; dropout is refused. Never quadratic: a
 * word of n bytes takes O(n log n). */
#ifndef QUIRE_TOKENIZER_BPE_H
#define QUIRE_TOKENIZER_BPE_H

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_list.h"
#include "tokenizer/tokenizer_json.h"

struct bpe;

/* `byte_level`: pieces are written in ByteLevel's characters, and found by the bytes that these stand for. The file may
 * be freed afterwards. Errors name `path` and the merge or piece: a merge whose parts or result are not in the
 * vocabulary, an option of the wrong type. */
enum status bpe_open(const struct tokenizer_json *file, bool byte_level, const char *path, struct bpe **out,
                     struct error *err);
void bpe_close(struct bpe *b); /* NULL is allowed */

/* The id of the piece of exactly these bytes, or -1. With byte_level, a piece that has other characters than
 * ByteLevel's (an added token) is found by its spelling. */
int32_t bpe_piece_id(const struct bpe *b, const char *bytes, size_t length);

/* Appends the ids of all words, in order; after a failure *out is as it was. Fails if memory ran out, or on a character
 * that needs an unk_token which is not in the vocabulary. Thread-safe. */
enum status bpe_encode(const struct bpe *b, const struct words *words, struct token_list *out, struct error *err);

#endif
