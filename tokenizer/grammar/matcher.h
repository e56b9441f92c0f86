/* Which tokens may come next in an answer that must be a text of a grammar.
 *
 * A constraint joins a grammar and a vocabulary, and keeps the masks that it has found: any thread may use it, and the
 * answers of a process that have the same grammar share one. A matcher is the place of one answer in it; one thread at
 * a time uses it.
 *
 * Tokens are taken by the bytes that they add to the answer's text (tokenizer_token_bytes). Special tokens, ids without
 * bytes and ids that are no token are never allowed, but for the stop tokens, which are allowed exactly where the text
 * may end. A token may end inside a character. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_MATCHER_H
#define QUIRE_TOKENIZER_GRAMMAR_MATCHER_H

#include "base/array.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/token_table.h"

/* The tokens of a tokenizer, ordered for the search of masks. It never changes. */
struct vocabulary;
/* Ids 0 .. num_ids - 1 of tokenizer_tokens; ids that are not in the table are never allowed. `stop_ids` [num_stop_ids]:
 * they end an answer. */
enum status vocabulary_create(const struct token_table *tokens, int32_t num_ids, const int32_t *stop_ids,
                              int32_t num_stop_ids, struct vocabulary **out, struct error *err);
void vocabulary_free(struct vocabulary *v); /* NULL is allowed */
/* 32-bit words of a mask: bit i % 32 of word i / 32 says whether token i is allowed. */
int32_t vocabulary_mask_words(const struct vocabulary *v);

struct constraint;
/* Keeps the grammar; the vocabulary outlives it. The caller has one reference. */
enum status constraint_create(struct grammar *g, const struct vocabulary *v, struct constraint **out,
                              struct error *err);
struct constraint *constraint_keep(struct constraint *c);
void constraint_free(struct constraint *c); /* one reference less; NULL is allowed */
/* Bytes of memory that it holds now. */
size_t constraint_bytes(struct constraint *c);

struct pool;

struct matcher;
/* At the beginning of the text. at_start: the answer begins a text (detokenizer_init), so the space that the tokenizer
 * puts before a first word is no part of it: a first token may add nothing but that. */
enum status matcher_create(struct constraint *c, bool at_start, struct matcher **out, struct error *err);
void matcher_free(struct matcher *m); /* NULL is allowed */

/* Goes on behind the token. False: it is not allowed here, and nothing has changed; or memory ran out
 * (matcher_failed). A stop token is allowed where the text may end, and nothing may follow it. */
bool matcher_accept(struct matcher *m, int32_t token);
/* Takes the last `count` accepted tokens back, at most MATCHER_MAX_ROLLBACK. */
enum { MATCHER_MAX_ROLLBACK = 16 };
void matcher_rollback(struct matcher *m, int32_t count);

bool matcher_may_end(const struct matcher *m);  /* the text so far is one of the grammar */
bool matcher_must_end(const struct matcher *m); /* ... and no longer text begins with it */
bool matcher_failed(const struct matcher *m);   /* memory ran out, so that what follows is not known */

/* Writes the mask of what may come next, [vocabulary_mask_words]. Found before: a copy; else it is computed here. */
void matcher_mask(struct matcher *m, uint32_t *words);
/* matcher_mask of matchers [count], which differ. Masks that were not found before are computed by the threads of the
 * pool; NULL: by the caller alone. */
void matcher_masks(struct matcher *const *matchers, uint32_t *const *words, int32_t count, struct pool *pool);

/* Appends to *out the bytes that every text of the grammar has next, none if there is a choice or the text may end,
 * at most `most`. */
enum status matcher_forced(struct matcher *m, size_t most, struct text *out, struct error *err);

#endif
