/* What the fuzzers share. Each fuzz_NAME.c is a program whose main gives LLVMFuzzerTestOneInput one input after
 * another: libFuzzer's main with the preset "fuzz", otherwise that of replay.c. An input that breaks a promise aborts.
 */
#ifndef QUIRE_TESTS_FUZZ_FUZZ_H
#define QUIRE_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts with the sentence if `right` is false. */
void fuzz_require(bool right, const char *sentence);

/* Bytes of an input. */
struct fuzz_part {
    const char *bytes; /* [length], not NUL-terminated */
    size_t length;
};
/* The bytes up to the next `separator`, or all that are left; *rest goes on behind it. */
struct fuzz_part fuzz_split(struct fuzz_part *rest, char separator);
/* The bytes as a NUL-terminated string, which ends at their first NUL. The caller frees it. */
char *fuzz_string(struct fuzz_part part);

/* Opens a folder with `file` as the file `name`, which is tokenizer.json or tokenizer.model, and encodes and decodes
 * `text` and every token with the tokenizer, if it is one. */
void fuzz_tokenizer_file(const char *name, struct fuzz_part file, struct fuzz_part text);
/* Encodes and decodes with an open tokenizer. */
void fuzz_tokenizer(const struct tokenizer *t, struct fuzz_part text);

/* A tokenizer.json with some special tokens; never changes. */
extern const char fuzz_tokenizer_json[];
/* The tokenizer of that file; opened once, and open until the program ends. */
const struct tokenizer *fuzz_shared_tokenizer(void);

/* Stops the fuzzer unless the error has a sentence, in UTF-8. */
void fuzz_require_sentence(const struct error *err);

#endif
