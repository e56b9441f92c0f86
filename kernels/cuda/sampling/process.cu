/* What changes logits before a token is chosen: masks, then min_tokens, logit_bias, penalties, which see drafts as
 * output.
 *
 * A block takes CHUNK tokens of the vocabulary of one sample, and counts in shared memory how often each of them occurs
 * in the sequence's history. So no table of counts [num_samples, vocab_size] is needed, and each logit is changed by
 * one thread, in a fixed order. Reading the history once for each chunk costs less than one pass over the logits.
 *
 * What a mask changes is not saved: log-probabilities are of the logits that it leaves. */
#include "kernels/cuda/sampling/sample.cuh"

enum { CHUNK = 8192, THREADS = 256 };

/* One block's part of a sample. */
struct process_part {
    float *logits; /* of the sample */
    int32_t begin, end;
    uint32_t *changed;  /* [CHUNK / 32] a bit for each token: its logit was saved */
    int32_t *num_saved; /* NULL: nothing is saved */
    saved_logit *saved;
    int64_t max_saved;
};

static __device__ __forceinline__ bool is_in(const process_part &p, int32_t id)
{
    return id >= p.begin && id < p.end;
}

/* Called before a token's logit is changed. Only one thread at a time may have the same token. */
static __device__ void save(const process_part &p, int32_t id)
{
    const int at = id - p.begin;
    const uint32_t bit = 1u << at % 32;
    if (!p.num_saved || (atomicOr(&p.changed[at / 32], bit) & bit)) return;
    const int32_t i = atomicAdd(p.num_saved, 1);
    if (i < p.max_saved) p.saved[i] = {id, p.logits[id]};
}

static __device__ void forbid_stop_ids(const process_part &p, const sampling_state *state)
{
    for (int i = threadIdx.x; i < state->num_stop_ids; i += THREADS) {
        const int32_t id = state->stop_ids[i];
        bool first = is_in(p, id);
        for (int j = 0; j < i && first; j++) first = state->stop_ids[j] != id;
        if (!first) continue;
        save(p, id);
        p.logits[id] = -CUDART_INF_F;
    }
}

/* The thread that has a token's first bias adds all biases of that token, in their order. */
static __device__ void add_biases(const process_part &p, const sampling_state *state)
{
    for (int i = threadIdx.x; i < state->num_bias; i += THREADS) {
        const int32_t id = state->bias_ids[i];
        bool first = is_in(p, id);
        for (int j = 0; j < i && first; j++) first = state->bias_ids[j] != id;
        if (!first) continue;
        save(p, id);
        float logit = p.logits[id];
        for (int j = i; j < state->num_bias; j++)
            if (state->bias_ids[j] == id) logit += state->bias_values[j];
        p.logits[id] = logit;
    }
}

/* counts [CHUNK]: bit 0 if the token is in the prompt, plus 2 for each time that it was output. */
static __device__ void count_history(const process_part &p, const sampling_state *state, const int32_t *history,
                                     int32_t output, uint32_t *counts)
{
    for (int i = threadIdx.x; i < CHUNK; i += THREADS) counts[i] = 0;
    __syncthreads();
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < (int64_t)state->prompt_len + output; i += THREADS) {
        const int32_t id = history[i];
        if (!is_in(p, id)) continue;
        if (i < state->prompt_len)
            atomicOr(&counts[id - p.begin], 1);
        else
            atomicAdd(&counts[id - p.begin], 2);
    }
    __syncthreads();
}

/* Multiplications and additions are rounded separately, as on the CPU. */
static __device__ void apply_penalties(const process_part &p, const sampling_state *state, const uint32_t *counts)
{
    for (int32_t id = p.begin + threadIdx.x; id < p.end; id += THREADS) {
        const uint32_t count = counts[id - p.begin];
        if (count == 0) continue;
        save(p, id);
        float logit = p.logits[id];
        logit = logit > 0 ? __fdiv_rn(logit, state->repetition_penalty) : __fmul_rn(logit, state->repetition_penalty);
        if (count >= 2)
            logit = __fsub_rn(
                logit, __fadd_rn(__fmul_rn(state->frequency_penalty, (float)(count / 2)), state->presence_penalty));
        p.logits[id] = logit;
    }
}

/* Grid: x the chunk, y the sample. A warp reads one word of the mask, for its 32 logits. */
static __global__ void __launch_bounds__(THREADS) mask_kernel(sample_args args)
{
    const int32_t row = args.mask_rows[blockIdx.y];
    if (row < 0) return;
    const uint32_t *mask = args.masks + row * args.mask_words;
    float *logits = args.logits + blockIdx.y * args.logits_stride;
    const int32_t begin = args.share.first + blockIdx.x * CHUNK;
    const int32_t end = min(begin + CHUNK, args.share.first + sample_num_logits(args));
#pragma unroll 8
    for (int32_t id = begin + threadIdx.x; id < end; id += THREADS)
        if (!(mask[id / 32] >> id % 32 & 1)) logits[id] = -CUDART_INF_F;
}

/* A thread a sample. */
static __global__ void __launch_bounds__(THREADS) place_drafts_kernel(sample_args args)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= args.num_samples || args.drafts[i] < 0) return;
    const int32_t state_index = args.state_indices[i];
    args.history[state_index * args.history_stride + args.states[state_index].prompt_len + args.output_positions[i] -
                 1] = args.drafts[i];
}

/* Grid: x the chunk, y the sample. */
static __global__ void __launch_bounds__(THREADS) process_kernel(sample_args args, sample_scratch scratch)
{
    __shared__ uint32_t counts[CHUNK], changed[CHUNK / 32];
    const int i = blockIdx.y;
    const sampling_state *state = sample_state_of(args, i);
    const int32_t output = args.output_positions[i];
    const bool penalties =
        state->repetition_penalty != 1 || state->frequency_penalty != 0 || state->presence_penalty != 0;
    const bool stops = output < state->min_tokens && state->num_stop_ids > 0;
    if (!penalties && !stops && state->num_bias <= 0) return;
    const bool keep = args.any_logprobs && sample_num_logprobs(args, state) >= 0;
    const int32_t begin = blockIdx.x * CHUNK;
    const process_part p = {args.logits + i * args.logits_stride,
                            begin,
                            args.vocab_size - begin < CHUNK ? args.vocab_size : begin + CHUNK,
                            changed,
                            keep ? &scratch.results[i].num_saved : NULL,
                            scratch.saved + i * scratch.saved_stride,
                            scratch.saved_stride};
    for (int j = threadIdx.x; j < CHUNK / 32; j += THREADS) changed[j] = 0;
    __syncthreads();
    if (stops) forbid_stop_ids(p, state);
    __syncthreads();
    add_biases(p, state);
    if (!penalties) return;
    count_history(p, state, args.history + args.state_indices[i] * args.history_stride, output, counts);
    apply_penalties(p, state, counts);
}

static __global__ void __launch_bounds__(THREADS) restore_kernel(sample_args args, sample_scratch scratch)
{
    const int i = blockIdx.x;
    if (sample_num_logprobs(args, sample_state_of(args, i)) < 0) return;
    const int64_t count = scratch.results[i].num_saved;
    const saved_logit *saved = scratch.saved + i * scratch.saved_stride;
    float *logits = args.logits + i * args.logits_stride;
    for (int64_t j = threadIdx.x; j < count && j < scratch.saved_stride; j += THREADS)
        logits[saved[j].id] = saved[j].logit;
}

void sample_mask(const struct cuda_state *s, const struct sample_args *args)
{
    const dim3 grid((unsigned)cuda_div_up(sample_num_logits(*args), CHUNK), args->num_samples);
    if (grid.x > 0) mask_kernel<<<grid, THREADS, 0, s->stream>>>(*args);
}

void sample_place_drafts(const struct cuda_state *s, const struct sample_args *args)
{
    const unsigned blocks = (unsigned)cuda_div_up(args->num_samples, THREADS);
    place_drafts_kernel<<<blocks, THREADS, 0, s->stream>>>(*args);
}

void sample_process(const struct cuda_state *s, const struct sample_args *args, const struct sample_scratch *scratch)
{
    const dim3 grid((unsigned)cuda_div_up(args->vocab_size, CHUNK), args->num_samples);
    process_kernel<<<grid, THREADS, 0, s->stream>>>(*args, *scratch);
}

void sample_restore(const struct cuda_state *s, const struct sample_args *args, const struct sample_scratch *scratch)
{
    restore_kernel<<<args->num_samples, THREADS, 0, s->stream>>>(*args, *scratch);
}
