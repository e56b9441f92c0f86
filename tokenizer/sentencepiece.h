/* SentencePiece (Kudo and Richardson, 2018) behind a C interface: the one place where C++ is spoken, and no exception
 * leaves it. Opened from a published tokenizer.model. */
#ifndef QUIRE_TOKENIZER_SENTENCEPIECE_H
#define QUIRE_TOKENIZER_SENTENCEPIECE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sentencepiece; /* opaque; safe to use from several threads once open */

enum piece_type { PIECE_NORMAL, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER_DEFINED, PIECE_BYTE, PIECE_UNUSED };

enum status sentencepiece_open(const char *path, struct sentencepiece **out, struct error *err);
void sentencepiece_close(struct sentencepiece *sp); /* NULL is allowed */

int32_t sentencepiece_size(const struct sentencepiece *sp);   /* pieces; ids are 0 .. size-1 */
int32_t sentencepiece_bos_id(const struct sentencepiece *sp); /* -1: the model has none */
int32_t sentencepiece_eos_id(const struct sentencepiece *sp);
int32_t sentencepiece_unk_id(const struct sentencepiece *sp);
int32_t sentencepiece_pad_id(const struct sentencepiece *sp);

/* The piece as stored (U+2581 for a space), NUL-terminated, owned by sp. id must be in range. */
const char *sentencepiece_piece(const struct sentencepiece *sp, int32_t id, size_t *length);
enum piece_type sentencepiece_type(const struct sentencepiece *sp, int32_t id);
int32_t sentencepiece_piece_to_id(const struct sentencepiece *sp, const char *piece); /* unk_id if there is none */

/* Text to ids, without bos or eos. text[length] is UTF-8 (invalid bytes become U+FFFD, as the library does) and may
 * hold NULs. *ids is allocated with malloc, the caller frees it; [*count]. */
enum status sentencepiece_encode(const struct sentencepiece *sp, const char *text, size_t length, int32_t **ids,
                                 int32_t *count, struct error *err);
/* Ids to text. *text is allocated with malloc, NUL-terminated, [*length] bytes; the caller frees it. */
enum status sentencepiece_decode(const struct sentencepiece *sp, const int32_t *ids, int32_t count, char **text,
                                 size_t *length, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
