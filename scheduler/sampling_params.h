/* How a request is sampled and when it ends. Names, ranges and defaults are those of vLLM's SamplingParams. */
#ifndef QUIRE_SCHEDULER_SAMPLING_PARAMS_H
#define QUIRE_SCHEDULER_SAMPLING_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define SAMPLING_PARAMS_MAX_BIAS 300
#define SAMPLING_PARAMS_MAX_STOP_IDS 64
#define SAMPLING_PARAMS_MAX_STOP 16        /* stop strings */
#define SAMPLING_PARAMS_MAX_STOP_BYTES 256 /* of one stop string */

struct sampling_params {
    int32_t n;                                  /* >= 1: answers from one prompt */
    double temperature;                         /* >= 0; 0 is greedy */
    double top_p;                               /* (0, 1] */
    int32_t top_k;                              /* 0 or -1: off; else >= 1 */
    double min_p;                               /* [0, 1] */
    double repetition_penalty;                  /* > 0 */
    double presence_penalty, frequency_penalty; /* [-2, 2] */
    int32_t max_tokens;                         /* >= 1; -1: until max_model_len */
    int32_t min_tokens;                         /* >= 0, <= max_tokens */
    bool ignore_eos;
    bool has_seed;
    uint64_t seed;            /* same seed, same text, whatever the batch; without has_seed the engine picks one */
    int32_t logprobs;         /* -1: none; 0 .. 20: of the sampled token and so many of the most probable */
    bool skip_special_tokens; /* true: special tokens give no text */
    bool include_stop_str_in_output; /* false: the text ends before the stop string */

    int32_t num_stop_token_ids;
    int32_t stop_token_ids[SAMPLING_PARAMS_MAX_STOP_IDS];
    int32_t num_logit_bias;
    int32_t bias_ids[SAMPLING_PARAMS_MAX_BIAS];
    float bias_values[SAMPLING_PARAMS_MAX_BIAS]; /* [-100, 100] */
    int32_t num_stop;
    char stop[SAMPLING_PARAMS_MAX_STOP][SAMPLING_PARAMS_MAX_STOP_BYTES]; /* NUL-terminated UTF-8, not empty */
};

/* vLLM's defaults, max_tokens 16 among them. */
struct sampling_params sampling_params_default(void);

/* Checks every range; the sentence names the field, the value and the range. vocab_size bounds the token ids. */
enum status sampling_params_check(const struct sampling_params *params, int32_t vocab_size, struct error *err);

#endif
