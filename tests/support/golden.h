/* What transformers computes with the checkpoints in tests/data/golden, as tests/scripts/make_golden.py wrote it down.
 */
#ifndef QUIRE_TESTS_SUPPORT_GOLDEN_H
#define QUIRE_TESTS_SUPPORT_GOLDEN_H

#include <stdint.h>

#include "base/status.h"

/* The folders' names, one or more for each family. */
extern const char *const golden_checkpoints[];
extern const int golden_num_checkpoints;

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
    float *logits;         /* of all cases */
    double bfloat16_error; /* of transformers' logits in bfloat16, over all cases together */
};

/* Reads folder/golden.json and folder/golden.bin. Free with golden_free. */
enum status golden_load(const char *folder, struct golden *golden, struct error *err);
void golden_free(struct golden *golden); /* safe on a zeroed struct */

#endif
