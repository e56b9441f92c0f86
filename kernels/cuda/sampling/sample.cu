/* Sampling: the order of its passes, and the pass that chooses a token.
 *
 * A greedy batch needs one pass over the logits. So does a random one without cuts (min_p, top_k, top_p), by the
 * Gumbel-max trick: it takes the largest of logit / temperature + noise, where the noise is a function of the token's
 * id, so that several blocks can share the vocabulary in chunks. Cuts need a threshold first (select.cu), and
 * log-probabilities need statistics of the logits before they are processed. Masks are applied first of all. Nothing is
 * sorted.
 *
 * Only penalties read the history, so drafts are written there if a sequence may have any, before all passes.
 *
 * Of ranks that each have some of the logits, choose_kernel finds each one's best; all_gather brings these to all
 * ranks, and choose_rank_kernel takes the best of them.
 *
 * choose_kernel finds NaN and infinite logits, and writes token id -1 for such a sample. The passes before it run on
 * these logits too, but what they compute from them is not used. Where tokens are given, it writes those instead of the
 * best ones, and the passes for log-probabilities do the rest. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/sampling/sample.cuh"
#include "kernels/philox.h"

enum {
    THREADS = 256,
    MAX_SAMPLES = 4096, /* of one round of passes */
    SAVED_BYTES = 32 << 20
};

/* The Gumbel noise of a uniform number of 23 bits in (0, 1) is below this. */
#define MAX_NOISE 17.0f

/* The sample of one block, and how its token is chosen. */
struct choice {
    const float *logits;
    int32_t vocab_size, output, cut_id;
    float temperature, cut_value;
    float least; /* logits below this are cut; less than the exact threshold by more than rounding errors */
    uint64_t seed;
    uint32_t sequence;
    bool random;
};

static __device__ __forceinline__ bool is_better(float value, int32_t id, const sample_best &than)
{
    return value > than.value || (value == than.value && id < than.id);
}

/* Tokens 4 * quad .. 4 * quad + 3 share one block of Philox, which is computed only if one of them can still win. */
static __device__ __forceinline__ void draw_quad(const choice &c, const float (&logits)[4], int32_t quad,
                                                 sample_best &best)
{
    if (!(fmaxf(fmaxf(logits[0], logits[1]), fmaxf(logits[2], logits[3])) >= c.least)) return;
    float values[4];
    bool any = false;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float value = __fdiv_rn(logits[j], c.temperature);
        const bool kept = value > c.cut_value || (value == c.cut_value && 4 * quad + j <= c.cut_id);
        values[j] = kept && value + MAX_NOISE >= best.value ? value : -CUDART_INF_F;
        any |= values[j] > -CUDART_INF_F;
    }
    if (!any) return;
    uint32_t words[4];
    philox4x32(c.seed, c.sequence, (uint32_t)c.output, (uint32_t)quad, words);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (!(values[j] > -CUDART_INF_F)) continue;
        const float value = values[j] - logf(-logf(philox_uniform(words[j])));
        if (is_better(value, 4 * quad + j, best)) best = {value, 4 * quad + j};
    }
}

template <bool RANDOM>
static __device__ __forceinline__ void take_quad(const choice &c, const float (&logits)[4], int32_t quad,
                                                 sample_best &best)
{
    if (RANDOM) {
        draw_quad(c, logits, quad, best);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) /* ids only increase here, so a tie keeps the lower id */
            if (logits[j] > best.value) best = {logits[j], 4 * quad + j};
    }
}

static __device__ __forceinline__ bool has_nan(const float (&logits)[4])
{
    return isnan(logits[0]) | isnan(logits[1]) | isnan(logits[2]) | isnan(logits[3]);
}

/* The best token of quads [begin, end) that each thread finds. If one of its logits is NaN, the value is infinity,
 * which nothing beats and for which choose_kernel writes token id -1. Logits whose address does not allow 16-byte
 * reads, and the last ones, are read one by one. Past the end of the vocabulary -infinity is used, which is never
 * taken. */
template <bool RANDOM> static __device__ sample_best best_of_quads(const choice &c, int32_t begin, int32_t end)
{
    sample_best best = {-CUDART_INF_F, 0};
    bool nan = false;
    const int32_t whole = (uintptr_t)c.logits % 16 == 0 ? min(end, c.vocab_size / 4) : begin;
    int32_t quad = begin + threadIdx.x;
#pragma unroll(RANDOM ? 1 : 4)
    for (; quad < whole; quad += THREADS) {
        const float4 v = ((const float4 *)c.logits)[quad];
        const float logits[4] = {v.x, v.y, v.z, v.w};
        nan |= has_nan(logits);
        take_quad<RANDOM>(c, logits, quad, best);
    }
    for (; quad < end; quad += THREADS) {
        float logits[4];
#pragma unroll
        for (int j = 0; j < 4; j++) logits[j] = 4 * quad + j < c.vocab_size ? c.logits[4 * quad + j] : -CUDART_INF_F;
        nan |= has_nan(logits);
        take_quad<RANDOM>(c, logits, quad, best);
    }
    return nan ? sample_best{CUDART_INF_F, -1} : best;
}

static __device__ __forceinline__ sample_best best_of_warp(sample_best best)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        const float value = __shfl_xor_sync(~0u, best.value, offset);
        const int32_t id = __shfl_xor_sync(~0u, best.id, offset);
        if (is_better(value, id, best)) best = {value, id};
    }
    return best;
}

/* The best of the block's eight warps; valid in warp 0. */
static __device__ __forceinline__ sample_best best_of_block(sample_best best, sample_best *of_warps)
{
    best = best_of_warp(best);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = best;
    __syncthreads();
    return best_of_warp(of_warps[threadIdx.x % (THREADS / 32)]);
}

static __device__ __forceinline__ choice choice_of(const sample_args &args, const sample_scratch &scratch, int i)
{
    const sampling_state *state = sample_state_of(args, i);
    choice c = {};
    c.logits = args.logits + i * args.logits_stride + args.share.first;
    c.vocab_size = sample_num_logits(args);
    c.random = sample_is_random(args, state);
    if (c.random) {
        c.output = args.output_positions[i];
        c.temperature = state->temperature;
        c.seed = state->seed;
        c.sequence = state->sequence_index;
        c.cut_value = scratch.results[i].cut_value;
        c.cut_id = scratch.results[i].cut_id;
        const float cut = c.cut_value * c.temperature;
        c.least = cut - 1e-6f * fabsf(cut) - 1e-37f;
    }
    return c;
}

static __device__ void write_token(const sample_args &args, int i, const sample_best &best)
{
    const bool no_token = isinf(best.value); /* a NaN or infinite logit, or none above -infinity */
    args.token_ids[i] = no_token ? -1 : args.targets ? args.targets[i] : best.id;
    if (no_token || args.targets) return;
    const int32_t state_index = args.state_indices[i];
    args.history[state_index * args.history_stride + args.states[state_index].prompt_len + args.output_positions[i]] =
        best.id;
}

/* Grid: x the chunk of the vocabulary, y the sample. The last of a sample's blocks to finish chooses among the best
 * of all chunks. */
static __global__ void __launch_bounds__(THREADS)
    choose_kernel(sample_args args, sample_scratch scratch, int32_t quads_of_chunk)
{
    __shared__ sample_best of_warps[THREADS / 32];
    const int i = blockIdx.y, chunks = gridDim.x;
    const choice c = choice_of(args, scratch, i);
    const int32_t quads = (c.vocab_size + 3) / 4, begin = blockIdx.x * quads_of_chunk;
    const int32_t end = min(quads, begin + quads_of_chunk);
    const sample_best found = c.random ? best_of_quads<true>(c, begin, end) : best_of_quads<false>(c, begin, end);
    sample_best best = best_of_block(found, of_warps);
    if (threadIdx.x >= 32) return;
    if (chunks > 1) {
        sample_best *of_chunks = scratch.best + i * SAMPLE_MAX_CHUNKS;
        bool last = false;
        if (threadIdx.x == 0) {
            of_chunks[blockIdx.x] = best;
            __threadfence();
            last = atomicInc(&scratch.arrivals[i], chunks - 1) == (uint32_t)chunks - 1;
        }
        if (!__shfl_sync(~0u, last, 0)) return;
        __threadfence();
        for (int j = threadIdx.x; j < chunks; j += 32) {
            const sample_best other = {__ldcg(&of_chunks[j].value), __ldcg(&of_chunks[j].id)};
            if (is_better(other.value, other.id, best)) best = other;
        }
        best = best_of_warp(best);
    }
    if (threadIdx.x > 0) return;
    if (args.share.num_ranks > 0) /* float32 has the ids of a vocabulary */
        scratch.of_ranks[i * args.share.num_ranks + args.share.rank] =
            make_float2(best.value, (float)(args.share.first + best.id));
    else
        write_token(args, i, best);
}

/* A thread takes the best of all ranks. Of equal values the lower rank's comes first, whose ids are lower. */
static __global__ void __launch_bounds__(THREADS) choose_rank_kernel(sample_args args, sample_scratch scratch)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= args.num_samples) return;
    const float2 *of_ranks = scratch.of_ranks + i * args.share.num_ranks;
    float2 best = of_ranks[0];
    for (int r = 1; r < args.share.num_ranks; r++)
        if (of_ranks[r].x > best.x) best = of_ranks[r];
    write_token(args, i, {best.x, (int32_t)best.y});
}

/* The sampled or given token's log-probability, and its rank: the number of more probable tokens is added to ranks,
 * which sample_raw_statistics has set to 1. The grid is that of choose_kernel. */
static __global__ void __launch_bounds__(THREADS)
    rank_kernel(sample_args args, sample_scratch scratch, int32_t quads_of_chunk)
{
    const int i = blockIdx.y;
    const int32_t token = args.token_ids[i];
    if (sample_num_logprobs(args, sample_state_of(args, i)) < 0 || token < 0) return;
    const float *logits = args.logits + i * args.logits_stride;
    const float sampled = token < args.vocab_size ? logits[token] : -CUDART_INF_F;
    const int64_t begin = 4 * (int64_t)blockIdx.x * quads_of_chunk, end = begin + 4 * (int64_t)quads_of_chunk;
    int higher = 0;
#pragma unroll 8
    for (int64_t j = begin + threadIdx.x; j < end; j += THREADS)
        if (j < args.vocab_size) higher += logits[j] > sampled;
    higher = __reduce_add_sync(~0u, higher);
    if (threadIdx.x % 32 == 0 && higher > 0) atomicAdd(&args.ranks[i], higher);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        args.logprobs[i] = sampled == -CUDART_INF_F ? sampled : (float)(sampled - scratch.results[i].log_total);
}

/* At least one, so that a rank without logits says so. */
static int64_t quads_of(const struct sample_args *args)
{
    const int64_t quads = cuda_div_up(sample_num_logits(*args), 4);
    return quads > 0 ? quads : 1;
}

/* The size of a chunk: enough chunks for all multiprocessors, and at least one quad for every thread. */
static int32_t quads_of_chunk(const struct cuda_state *s, const struct sample_args *args)
{
    const int64_t quads = quads_of(args), wanted = cuda_div_up(16 * s->num_sms, args->num_samples);
    const int64_t most = SAMPLE_MAX_CHUNKS, chunks = wanted < most ? wanted : most;
    return (int32_t)(cuda_div_up(cuda_div_up(quads, chunks), THREADS) * THREADS);
}

/* The most tokens whose logits processing can change for one sample. */
static int64_t most_saved(int64_t vocab_size, int64_t history)
{
    const int64_t most = history + SAMPLING_MAX_BIAS + SAMPLING_MAX_STOP_IDS;
    return most < vocab_size ? most : vocab_size;
}

static int64_t saved_bytes(int64_t num_samples, int64_t most)
{
    const int64_t least = most * (int64_t)sizeof(struct saved_logit); /* of one sample */
    const int64_t enough = SAVED_BYTES > least ? (int64_t)SAVED_BYTES : least;
    return num_samples * least < enough ? num_samples * least : enough;
}

/* arrivals have the same place in every call, because they must stay zero. */
static struct sample_scratch cut_workspace(const struct cuda_region *region, int64_t num_samples)
{
    struct sample_scratch scratch = {};
    scratch.arrivals = (uint32_t *)region->data;
    scratch.results = (struct sample_result *)(scratch.arrivals + MAX_SAMPLES);
    scratch.best = (struct sample_best *)(scratch.results + num_samples);
    scratch.of_ranks = (float2 *)(scratch.best + num_samples * SAMPLE_MAX_CHUNKS);
    scratch.saved = (struct saved_logit *)(scratch.of_ranks + num_samples * COLLECTIVE_MAX_RANKS);
    return scratch;
}

static int64_t fixed_bytes(int64_t num_samples)
{
    return MAX_SAMPLES * (int64_t)sizeof(uint32_t) +
           num_samples * (int64_t)(sizeof(struct sample_result) + SAMPLE_MAX_CHUNKS * sizeof(struct sample_best) +
                                   COLLECTIVE_MAX_RANKS * sizeof(float2));
}

int64_t cuda_sample_workspace(const struct cuda_state *s, const struct workspace_query *query)
{
    (void)s;
    const int64_t samples = query->max_num_seqs < MAX_SAMPLES ? query->max_num_seqs : MAX_SAMPLES;
    return fixed_bytes(samples) + saved_bytes(samples, most_saved(query->vocab_size, query->max_model_len));
}

static void choose_among_ranks(struct backend *b, const struct sample_args *args, const struct sample_scratch *scratch)
{
    const int64_t columns = 2 * (int64_t)args->share.num_ranks;
    const struct all_gather_args gather = {.x = (float *)scratch->of_ranks,
                                           .rows = args->num_samples,
                                           .stride = columns,
                                           .total = columns,
                                           .first = 2 * (int64_t)args->share.rank,
                                           .columns = 2};
    b->all_gather(b, &gather);
    choose_rank_kernel<<<(unsigned)cuda_div_up(args->num_samples, THREADS), THREADS, 0, cuda_state(b)->stream>>>(
        *args, *scratch);
}

/* Runs all passes over the logits of a call. */
static void run_passes(struct backend *b, const struct sample_args *args, const struct sample_scratch *scratch)
{
    const struct cuda_state *s = cuda_use(b);
    const int32_t quads = quads_of_chunk(s, args);
    const dim3 grid((unsigned)cuda_div_up(quads_of(args), quads), args->num_samples);
    if (args->masks) sample_mask(s, args);
    if (args->any_logprobs) sample_raw_statistics(s, args, scratch);
    if (args->any_processing) sample_process(s, args, scratch);
    if (args->any_random) sample_cut(s, args, scratch);
    choose_kernel<<<grid, THREADS, 0, s->stream>>>(*args, *scratch, quads);
    if (args->share.num_ranks > 0) choose_among_ranks(b, args, scratch);
    if (args->any_logprobs && args->any_processing) sample_restore(s, args, scratch);
    if (args->any_logprobs) rank_kernel<<<grid, THREADS, 0, s->stream>>>(*args, *scratch, quads);
    cuda_check_launch(b, "sample");
}

/* The samples [first, first + count) of a call. */
static struct sample_args samples_of(const struct sample_args *args, int64_t first, int64_t count)
{
    struct sample_args part = *args;
    part.num_samples = (int32_t)count;
    part.logits += first * args->logits_stride;
    if (part.targets) {
        part.targets += first;
    } else {
        part.state_indices += first;
        part.output_positions += first;
    }
    if (part.masks) part.mask_rows += first;
    part.token_ids += first;
    part.logprobs += first;
    part.ranks += first;
    part.top_ids += first * args->top_stride;
    part.top_logprobs += first * args->top_stride;
    return part;
}

/* Takes all samples together, unless logits have to be saved: then it takes as many as the workspace has room for at a
 * time. */
void cuda_sample(struct backend *b, const struct sample_args *args)
{
    const struct cuda_region *region = &cuda_state(b)->regions[CUDA_USER_SAMPLE];
    const int64_t most = most_saved(args->vocab_size, args->history_stride);
    const int64_t saved = most * (int64_t)sizeof(struct saved_logit); /* bytes of one sample */
    int64_t samples = args->num_samples < MAX_SAMPLES ? args->num_samples : MAX_SAMPLES;
    if (samples <= 0 || args->vocab_size <= 0) return;
    const int64_t room = region->data ? region->bytes - fixed_bytes(samples) : -1;
    if (args->any_logprobs && args->any_processing && samples * saved > room) samples = room / saved;
    if (room < 0 || samples <= 0) {
        cuda_fail(b, "sample: the workspace is too small for %d samples of %d tokens", args->num_samples,
                  args->vocab_size);
        return;
    }
    struct sample_scratch scratch = cut_workspace(region, samples);
    scratch.saved_stride = most;
    if (args->drafts && args->any_processing) sample_place_drafts(cuda_use(b), args);
    for (int64_t first = 0; first < args->num_samples; first += samples) {
        const int64_t left = args->num_samples - first;
        const struct sample_args part = samples_of(args, first, left < samples ? left : samples);
        run_passes(b, &part, &scratch);
    }
}
