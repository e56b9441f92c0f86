/* Reads tokenizer.json, the file of Hugging Face's tokenizers library, in one pass: the vocabulary and the merges,
 * which are nearly all of it, as flat arrays, and the rest as JSON. simdjson behind a C interface; no C++ exception
 * crosses it. */
#ifndef QUIRE_TOKENIZER_TOKENIZER_JSON_H
#define QUIRE_TOKENIZER_TOKENIZER_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct json_piece {
    uint32_t offset, length; /* bytes of tokenizer_json.strings */
    int32_t id;
    double score; /* of Unigram */
};
struct json_merge {
    uint32_t left, left_length, right, right_length; /* bytes of tokenizer_json.strings */
};

struct tokenizer_json {
    struct text strings;
    struct json_piece *vocab; /* [num_vocab] in the file's order */
    size_t num_vocab;
    bool is_unigram;           /* otherwise BPE */
    struct json_merge *merges; /* [num_merges] by rank; given as "left right" or as ["left", "right"] */
    size_t num_merges;
    bool merges_by_result; /* neighbouring merges that make the same piece have one rank (tiktoken.h) */
    json_t *rest;          /* the file's object without model.vocab and model.merges */
};

/* Errors name the file and what is wrong: not JSON, cut short, a vocabulary that is not an object of ids 0 to
 * TOKENIZER_CONFIG_MAX_ID - 1, two pieces of one id, a merge without two parts, for Unigram a vocabulary that is not
 * an array of pieces with scores. A model type other than BPE and Unigram is STATUS_UNSUPPORTED. Free with
 * tokenizer_json_free, also after a failure. */
enum status tokenizer_json_read(const char *path, struct tokenizer_json *out, struct error *err);
void tokenizer_json_free(struct tokenizer_json *file);

#ifdef __cplusplus
}
#endif

#endif
