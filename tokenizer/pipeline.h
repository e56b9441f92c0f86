/* The way from text to ids that a tokenizer.json describes: normalize, split into words, encode each word. Added tokens
 * are found in the text before it is normalized, or after (ADDED_TOKEN_NORMALIZED). */
#ifndef QUIRE_TOKENIZER_PIPELINE_H
#define QUIRE_TOKENIZER_PIPELINE_H

#include "tokenizer/added_tokens.h"
#include "tokenizer/marked_text.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_table.h"
#include "tokenizer/tokenizer_json.h"

struct pipeline;

/* Builds the pipeline of a file, which may be freed afterwards, and the table of its pieces, which is referred to.
 * Errors name `path`. */
enum status pipeline_open(const struct tokenizer_json *file, const char *path, struct pipeline **out,
                          struct token_table *table, struct error *err);
void pipeline_close(struct pipeline *p); /* NULL is allowed */

/* Sets a token of the table to what the decoder makes of `piece`. A special one is no longer found in words by
 * Unigram. False if memory ran out. */
bool pipeline_set_piece(struct pipeline *p, struct token_table *table, int32_t id, const char *piece, size_t length,
                        uint32_t token_flags);
/* The id of the vocabulary's piece with this text, or -1. */
int32_t pipeline_piece_id(const struct pipeline *p, const char *text, size_t length);
/* Adds a token that is found in normalized text, and whose own text is normalized, too. pipeline_sort_added makes those
 * that were added ready. */
enum status pipeline_add_token(struct pipeline *p, struct token_table *table, int32_t id, const char *text,
                               size_t length, unsigned flags, uint32_t token_flags, struct error *err);
void pipeline_sort_added(struct pipeline *p);

/* What a call of tokenizer_encode needs again and again. Zero-initialise it; free with pipeline_scratch_free. */
struct pipeline_scratch {
    struct marked_text normalized;
    struct words words;
};
void pipeline_scratch_free(struct pipeline_scratch *s);

/* Appends the ids of text[length], in which the other added tokens have been found. marks and special: struct
 * added_search. `first`: the text begins the input. */
enum status pipeline_encode(const struct pipeline *p, const struct added_search *text, bool first,
                            struct pipeline_scratch *s, struct token_list *out, struct error *err);

#endif
