/* What the passes of sampling share. "Sample i" is the i-th of a call's num_samples; its logits are row i. A pass gives
 * each sample to one block, to several, or to a cluster of blocks; sample.cu says which passes run, and in which order.
 * Semantics are those of kernels/cpu/sample.c. */
#ifndef QUIRE_KERNELS_CUDA_SAMPLING_SAMPLE_CUH
#define QUIRE_KERNELS_CUDA_SAMPLING_SAMPLE_CUH

#include <math_constants.h>

#include "kernels/cuda/state.cuh"

enum { SAMPLE_MAX_CHUNKS = 64 };

/* A token whose logit processing changed, and the logit before. */
struct saved_logit {
    int32_t id;
    float logit;
};

/* What the passes tell each other about one sample. */
struct sample_result {
    double log_total; /* log of the sum of exp(raw logit) */
    /* The draw is among the tokens with logit / temperature above cut_value, or equal to it and an id up to cut_id. */
    float cut_value;
    int32_t cut_id;
    int32_t num_saved; /* saved logits */
};

struct sample_best {
    float value;
    int32_t id;
};

/* The workspace of one call. */
struct sample_scratch {
    uint32_t *arrivals;            /* [num_samples] zero between kernels */
    struct sample_result *results; /* [num_samples] */
    struct sample_best *best;      /* [num_samples, SAMPLE_MAX_CHUNKS] */
    float2 *of_ranks;              /* [num_samples, share.num_ranks] the best of each rank's: value and id */
    struct saved_logit *saved;     /* [num_samples, saved_stride] */
    int64_t saved_stride;
};

/* The sampling state of the sequence that sample i belongs to; NULL: tokens are given, and none is drawn. */
static __device__ __forceinline__ const struct sampling_state *sample_state_of(const struct sample_args &args, int i)
{
    return args.targets ? NULL : &args.states[args.state_indices[i]];
}

static __device__ __forceinline__ bool sample_is_random(const struct sample_args &args,
                                                        const struct sampling_state *state)
{
    return args.any_random && state->temperature >= 1e-5f;
}

/* -1: no log-probabilities; 0: the token's; k: and those of the k most probable. */
static __device__ __forceinline__ int32_t sample_num_logprobs(const struct sample_args &args,
                                                              const struct sampling_state *state)
{
    return state ? state->num_logprobs : args.top_stride;
}

/* The logits of a sample that are there, from share.first on. */
static __host__ __device__ __forceinline__ int32_t sample_num_logits(const struct sample_args &args)
{
    return args.share.num_ranks > 0 ? args.share.count : args.vocab_size;
}

/* process.cu: the logits of ids that a sample's mask does not have become -infinity. */
void sample_mask(const struct cuda_state *s, const struct sample_args *args);
/* Writes the drafts of all samples of a call to the history, where sample_process reads them. Draws take
 * their places later: until one is not its draft, they are the same. */
void sample_place_drafts(const struct cuda_state *s, const struct sample_args *args);
/* Applies min_tokens, logit_bias and penalties in place. Saves the logits that they change for the
 * sequences that want logprobs; sample_restore puts these back. */
void sample_process(const struct cuda_state *s, const struct sample_args *args, const struct sample_scratch *scratch);
void sample_restore(const struct cuda_state *s, const struct sample_args *args, const struct sample_scratch *scratch);

/* select.cu: finds what min_p, top_k and top_p leave, as results[].cut_*. */
void sample_cut(const struct cuda_state *s, const struct sample_args *args, const struct sample_scratch *scratch);
/* Finds, from the raw logits, results[].log_total, the most probable tokens, and ranks = 1. */
void sample_raw_statistics(const struct cuda_state *s, const struct sample_args *args,
                           const struct sample_scratch *scratch);

#endif
