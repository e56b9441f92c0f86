/* The few facts of a tokenizer.model that the SentencePiece library does not tell, read from the file's protobuf wire
 * format (sentencepiece_model.proto), and the checks that it does not make before it trusts a file. */
#ifndef QUIRE_TOKENIZER_MODEL_PROTO_H
#define QUIRE_TOKENIZER_MODEL_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct model_facts {
    size_t num_pieces;
    bool add_dummy_prefix;         /* a space is put before the text when it is encoded, and taken off when decoded */
    bool remove_extra_whitespaces; /* runs of spaces become one; all leading spaces go */
};

/* Reads the facts of data[size]; `path` is for the error sentence. Fails on what is not a whole SentencePiece model: an
 * empty file, text (a Git LFS pointer is named), a message cut short, a piece that is empty or holds a NUL; and, as
 * unsupported, on a model with denormalization rules, which decoding token by token cannot apply. */
enum status model_facts_read(const char *path, const uint8_t *data, size_t size, struct model_facts *out,
                             struct error *err);

#ifdef __cplusplus
}
#endif

#endif
