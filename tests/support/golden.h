/* What transformers computes with the checkpoints in tests/data/golden and tests/data/quantized, as
 * tests/scripts/make_golden.py and make_quantized_golden.py wrote it down. */
#ifndef QUIRE_TESTS_SUPPORT_GOLDEN_H
#define QUIRE_TESTS_SUPPORT_GOLDEN_H

#include <stdint.h>

#include "base/status.h"

/* The folders' names, one or more for each family. */
extern const char *const golden_checkpoints[];
extern const int golden_num_checkpoints;

/* Ways to round the input of a quantized matrix to 8 bits: with a scale for each token, for each 128 of its features,
 * or for each 32. */
enum x_rounding { X_INT8_TOKEN, X_FP8_TOKEN, X_FP8_GROUP, X_INT8_GROUP, NUM_X_ROUNDINGS };

struct golden_case {
    int32_t *prompt; /* [num_prompt] token ids */
    int32_t num_prompt;
    int32_t *positions; /* [num_positions] of the prompt, whose logits are given */
    int32_t num_positions;
    const float *logits; /* [num_positions, vocab_size] computed in float32 */
    int32_t *greedy;     /* [num_greedy] the tokens that follow the prompt */
    float *gaps;         /* [num_greedy] highest logit - second highest, at each of those steps */
    int32_t num_greedy;
};

struct golden {
    struct golden_case *cases; /* [num_cases] prompts of length 1, 7, 33, 100 */
    int32_t num_cases;
    int32_t vocab_size;
    float *logits;                    /* of all cases */
    double bfloat16_error;            /* of transformers' logits in bfloat16, over all cases together */
    double x_errors[NUM_X_ROUNDINGS]; /* the same if only the inputs of quantized matrices are rounded; 0: not known */
};

/* Reads folder/golden.json and folder/golden.bin. Free with golden_free. */
enum status golden_load(const char *folder, struct golden *golden, struct error *err);
void golden_free(struct golden *golden); /* safe on a zeroed struct */

#endif
