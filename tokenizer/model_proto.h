/* Facts about a tokenizer.model that the SentencePiece library does not give, read from the file's protobuf wire format
 * (sentencepiece_model.proto), and checks of the file that the library does not make. */
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
    bool add_dummy_prefix;         /* encoding puts a space before the text, decoding removes it */
    bool remove_extra_whitespaces; /* encoding reduces runs of spaces to one and removes leading spaces */
};

/* Reads the facts of data[size]; `path` is for error messages. Fails if the data is not a whole SentencePiece model: an
 * empty file, text (Git LFS pointers are recognised), a message cut short, a piece that is empty or contains a NUL.
 * STATUS_UNSUPPORTED for a model with denormalization rules, which decoding token by token cannot apply. */
enum status model_facts_read(const char *path, const uint8_t *data, size_t size, struct model_facts *out,
                             struct error *err);

#ifdef __cplusplus
}
#endif

#endif
