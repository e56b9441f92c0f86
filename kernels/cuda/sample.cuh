/* What the passes of sampling share. Each pass has a row of logits to a block, to several, or to a cluster of blocks;
 * sample.cu says in which order they run and when. Semantics are those of kernels/cpu/sample.c. */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_CUH
#define QUIRE_KERNELS_CUDA_SAMPLE_CUH

#include <math_constants.h>

#include "kernels/cuda/state.cuh"

enum { SAMPLE_MAX_CHUNKS = 64 };

/* A token changed by processing, and its logit before. */
struct saved_logit {
    int32_t id;
    float logit;
};

/* What the passes tell each other about one row. */
struct sample_row_state {
    double log_total;  /* log of the sum of exp(raw logit) */
    float cut_value;   /* the draw is among tokens whose logit / temperature is above this, */
    int32_t cut_id;    /* or equal, and the id no higher than this */
    int32_t num_saved; /* of this row's saved logits */
};

struct sample_best {
    float value;
    int32_t id;
};

/* The workspace of one call, in row i of which lies what sample i needs. */
struct sample_scratch {
    uint32_t *arrivals;            /* [rows] zero between kernels */
    struct sample_row_state *rows; /* [rows] */
    struct sample_best *best;      /* [rows, SAMPLE_MAX_CHUNKS] */
    struct saved_logit *saved;     /* [rows, saved_stride] */
    int64_t saved_stride;
};

static __device__ __forceinline__ const struct sampling_state *sample_row(const struct sample_args &args, int i)
{
    return &args.states[args.state_indices[i]];
}

static __device__ __forceinline__ bool sample_is_random(const struct sample_args &args,
                                                        const struct sampling_state *row)
{
    return args.any_random && row->temperature >= 1e-5f;
}

static __device__ __forceinline__ bool sample_wants_logprobs(const struct sampling_state *row)
{
    return row->num_logprobs >= 0;
}

/* sample_process.cu: applies min_tokens, logit_bias and penalties in place. Saves the logits that they change for the
 * sequences that want logprobs; sample_restore puts these back. */
void sample_process(const struct cuda_state *s, const struct sample_args *args, const struct sample_scratch *scratch);
void sample_restore(const struct cuda_state *s, const struct sample_args *args, const struct sample_scratch *scratch);

/* sample_select.cu: finds what min_p, top_k and top_p leave, as rows[].cut_*. */
void sample_cut(const struct cuda_state *s, const struct sample_args *args, const struct sample_scratch *scratch);
/* From the raw logits: rows[].log_total, the most probable tokens, and ranks = 1. */
void sample_raw_statistics(const struct cuda_state *s, const struct sample_args *args,
                           const struct sample_scratch *scratch);

#endif
