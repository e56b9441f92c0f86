/* What answers follow from, as hashes (XXH3, 128 bits): whether two runs read the same prompts and the same model. */
#ifndef QUIRE_RUNTIME_FINGERPRINT_H
#define QUIRE_RUNTIME_FINGERPRINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"

struct fingerprint {
    char text[33]; /* hexadecimal */
};

/* Hashes the raw bytes of regular files, in this order: their contents, and not their names. Each is read from where
 * its descriptor stands, which stays as it is. `sizes` are the bytes that are read of each: what a file has behind them
 * plays no part. */
enum status fingerprint_files(const int *fds, const uint64_t *sizes, int count, struct fingerprint *out,
                              struct error *err);
/* The bytes of a file from where its descriptor stands. IO: it cannot be read so. */
enum status fingerprint_size(int fd, uint64_t *size, struct error *err);

/* Hashes the file of that name. */
enum status fingerprint_path(const char *path, struct fingerprint *out, struct error *err);
/* Hashes a text, as a file that holds it. */
enum status fingerprint_text(const struct text *text, struct fingerprint *out, struct error *err);

/* Hashes the files of a checkpoint folder from which answers follow: names and contents of the configuration, the
 * tokenizer and the chat template. Weights would take minutes to read: of them it hashes name, size, the header of the
 * safetensors file and pages here and there, so that one fine-tuning is told from another. Dates play no part: a copy
 * is the same model. */
enum status fingerprint_model(const char *folder, bool with_weights, struct fingerprint *out, struct error *err);

#endif
