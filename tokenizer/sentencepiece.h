/* SentencePiece (Kudo and Richardson, 2018) behind a C interface, opened from a published tokenizer.model. No C++
 * exception crosses the interface. */
#ifndef QUIRE_TOKENIZER_SENTENCEPIECE_H
#define QUIRE_TOKENIZER_SENTENCEPIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sentencepiece_model; /* opaque (C++ has a namespace sentencepiece); safe to use from several threads once open */

/* User-defined pieces count as normal: the library reports them so, and they decode alike. */
enum piece_type { PIECE_NORMAL, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_BYTE, PIECE_UNUSED };

/* Fails with one sentence that names `path`: missing, empty, cut short, not a SentencePiece model. Nothing is printed
 * (the library's own messages are turned off, for the whole process). */
enum status sentencepiece_open(const char *path, struct sentencepiece_model **out, struct error *err);
void sentencepiece_close(struct sentencepiece_model *sp); /* NULL is allowed */

int32_t sentencepiece_size(const struct sentencepiece_model *sp);   /* pieces; ids are 0 .. size-1 */
int32_t sentencepiece_bos_id(const struct sentencepiece_model *sp); /* -1: the model has none */
int32_t sentencepiece_eos_id(const struct sentencepiece_model *sp);
int32_t sentencepiece_unk_id(const struct sentencepiece_model *sp);

/* Whether encoding puts a space before the text, and decoding removes it. */
bool sentencepiece_adds_dummy_prefix(const struct sentencepiece_model *sp);
/* Whether encoding reduces runs of spaces to one space, and decoding removes every leading space. */
bool sentencepiece_removes_extra_whitespaces(const struct sentencepiece_model *sp);

/* The piece as stored (U+2581 for a space), NUL-terminated, owned by sp. id must be in range. */
const char *sentencepiece_piece(const struct sentencepiece_model *sp, int32_t id, size_t *length);
enum piece_type sentencepiece_type(const struct sentencepiece_model *sp, int32_t id); /* id must be in range */
/* The id of a piece as stored; unk_id if there is none. */
int32_t sentencepiece_piece_to_id(const struct sentencepiece_model *sp, const char *piece);

enum { SENTENCEPIECE_MAX_TEXT = 1 << 29 }; /* bytes of one text: the library counts in int */

/* Text to ids, without bos or eos. text[length] is UTF-8 (the library replaces invalid bytes by U+FFFD) and may contain
 * NULs; no text gives a control piece. `continues`: the text continues an earlier one and gets no dummy prefix; the
 * first such call loads a second copy of the model that adds none. *ids gets [*count] ids; the caller frees it with
 * free(). */
enum status sentencepiece_encode(const struct sentencepiece_model *sp, const char *text, size_t length, bool continues,
                                 int32_t **ids, int32_t *count, struct error *err);
/* Ids to text. *text gets [*length] bytes and a NUL; the caller frees it with free(). */
enum status sentencepiece_decode(const struct sentencepiece_model *sp, const int32_t *ids, int32_t count, char **text,
                                 size_t *length, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
