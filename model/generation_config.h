/* generation_config.json: what its authors recommend for sampling. It decides nothing that an answer cannot do without,
 * so a bad value in it is warned of, and ignored. */
#ifndef QUIRE_MODEL_GENERATION_CONFIG_H
#define QUIRE_MODEL_GENERATION_CONFIG_H

#include "base/json.h"

/* A field that the file does not give is NaN or -1. */
struct generation_config {
    bool present, do_sample_given, do_sample;
    double temperature, top_p, min_p, repetition_penalty; /* in the ranges of vLLM's SamplingParams */
    int32_t top_k, max_new_tokens;                        /* top_k 0: off */
};

/* What stands for no file. */
struct generation_config generation_config_none(void);

/* Fills *out. A warning names the keys that would change answers and that quire does not use. max_length: the most
 * tokens of a sequence, as model_spec_max_length gives it. */
void generation_config_read(struct json_reader *r, int32_t max_length, struct generation_config *out);

/* Undoes a failure of the reader, whose sentence becomes a warning. */
void generation_config_forgive(struct json_reader *r);

#endif
