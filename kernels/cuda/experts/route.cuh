/* What the kernels share that choose the experts of tokens.
 *
 * A warp chooses the experts of a token. Lane l has the logits of experts l, l + 32, ..., KEYS of them. The choice of
 * an expert is a key, an unsigned number that is ordered as the choices are; 0 is one that was taken, or an expert that
 * does not exist. The largest key is taken top_k times, of equal ones that of the lower index.
 *
 * Of few tokens one block makes the plan. Each expert has a mask of its tokens; their counts become the starts, and the
 * row of an assignment is the start of its expert and the number of tokens in the mask before its own. */
#ifndef QUIRE_KERNELS_CUDA_EXPERTS_ROUTE_CUH
#define QUIRE_KERNELS_CUDA_EXPERTS_ROUTE_CUH

#include <type_traits>

#include "kernels/cuda/state.cuh"
#include "kernels/cuda/warp.cuh"

enum { ROUTE_FEW_TOKENS = 32, /* a bit of a mask each */ ROUTE_FEW_WARPS = 16 };

/* Ordered as the numbers are, above 0; NaN is -infinity, and -0 is 0. */
static __device__ __forceinline__ uint32_t key_of(float x)
{
    const uint32_t bits = __float_as_uint(isnan(x) ? -INFINITY : x + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
static __device__ __forceinline__ float choice_of(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* A lane's logits of a token, and what makes scores of them. */
template <int KEYS> struct token_scores {
    float logits[KEYS]; /* -infinity where there is no expert */
    float largest, sum; /* of the softmax */
};

template <int KEYS>
static __device__ __forceinline__ float score_of(const router_params &router, const token_scores<KEYS> &s, float logit)
{
    if (router.kind == ROUTER_SPARSEMIXER) return logit;
    return router.kind == ROUTER_SIGMOID ? 1 / (1 + expf(-logit)) : expf(logit - s.largest) / s.sum;
}

template <int KEYS>
static __device__ __forceinline__ token_scores<KEYS> scores_of(const route_experts_args &args, int token)
{
    const int lane = threadIdx.x % 32, count = args.router.num_experts;
    const int row = count + (args.base_gate ? 1 : 0);
    const float *logits = args.logits + (int64_t)token * row, cap = args.router.soft_cap;
    token_scores<KEYS> s = {{}, -INFINITY, 0};
    if (args.base_gate && lane == 0) args.base_gate[token] = logits[count];
#pragma unroll
    for (int i = 0; i < KEYS; i++) s.logits[i] = lane + 32 * i < count ? logits[lane + 32 * i] : -INFINITY;
    if (cap > 0)
#pragma unroll
        for (int i = 0; i < KEYS; i++) s.logits[i] = cap * tanhf(s.logits[i] / cap);
    if (args.router.kind != ROUTER_SOFTMAX) return s;
#pragma unroll
    for (int i = 0; i < KEYS; i++) s.largest = fmaxf(s.largest, s.logits[i]);
    s.largest = warp_max(s.largest);
#pragma unroll
    for (int i = 0; i < KEYS; i++)
        if (lane + 32 * i < count) s.sum += expf(s.logits[i] - s.largest);
    s.sum = warp_sum(s.sum);
    return s;
}

/* The index of the largest key of all lanes, of equal ones the lowest; its key becomes 0. */
template <int KEYS> static __device__ __forceinline__ int take_largest(uint32_t (&keys)[KEYS])
{
    const int lane = threadIdx.x % 32;
    uint32_t largest = 0, first = 0xffffffffu;
#pragma unroll
    for (int i = 0; i < KEYS; i++)
        if (keys[i] > largest) largest = keys[i], first = lane + 32 * i;
    const uint32_t most = __reduce_max_sync(~0u, largest);
    const uint32_t index = __reduce_min_sync(~0u, largest == most ? first : 0xffffffffu);
#pragma unroll
    for (int i = 0; i < KEYS; i++)
        if (index == lane + 32 * i) keys[i] = 0;
    return (int)index;
}

/* The value of a group: its largest choice, or the sum of its two largest. */
static __device__ __forceinline__ float group_value(const float *choices, int size, bool sums)
{
    float first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < size; i++) {
        const float x = choices[i];
        if (x > first) {
            second = first, first = x;
        } else if (x > second) {
            second = x;
        }
    }
    return sums && size > 1 ? first + second : first;
}

/* The experts of all groups but the best become the last choice. `choices`: [num_experts] in shared memory, of this
 * warp. */
template <int KEYS>
static __device__ __forceinline__ void leave_groups(const router_params &router, uint32_t (&keys)[KEYS], float *choices)
{
    const int lane = threadIdx.x % 32, size = router.num_experts / router.num_groups;
    uint32_t group_keys[KEYS];
#pragma unroll
    for (int i = 0; i < KEYS; i++)
        if (lane + 32 * i < router.num_experts) choices[lane + 32 * i] = choice_of(keys[i]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const int g = lane + 32 * i;
        group_keys[i] = g < router.num_groups ? key_of(group_value(choices + g * size, size, router.group_sums)) : 0;
    }
    __syncwarp();
    for (int i = 0; i < router.top_groups; i++) {
        const int best = take_largest(group_keys);
        for (int e = best * size + lane; e < (best + 1) * size; e += 32) choices[e] = NAN; /* a mark */
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const int e = lane + 32 * i;
        if (e < router.num_experts && !isnan(choices[e])) keys[i] = key_of(-INFINITY);
    }
}

/* The share of an expert in a softmax over those that are close to it, but for `without`. */
template <int KEYS>
static __device__ __forceinline__ float sparsemixer_share(const router_params &router, const token_scores<KEYS> &s,
                                                          float largest, int without)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const int e = threadIdx.x % 32 + 32 * i;
        const float x = s.logits[i];
        const bool is_far = (largest - x) / fmaxf(fabsf(x), largest) > 2 * router.jitter;
        if (e < router.num_experts && e != without && !is_far) sum += expf(x - largest);
    }
    return 1 / warp_sum(sum);
}

/* Sets the keys of a token's experts. Returns whether a score is NaN. */
template <int KEYS>
static __device__ __forceinline__ bool set_keys(const route_experts_args &args, const token_scores<KEYS> &s,
                                                uint32_t (&keys)[KEYS])
{
    bool is_damaged = false;
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const int e = threadIdx.x % 32 + 32 * i;
        keys[i] = 0;
        if (e >= args.router.num_experts) continue;
        const float score = score_of(args.router, s, s.logits[i]);
        is_damaged |= isnan(score);
        const float choice = args.router.by_logits ? s.logits[i] : score;
        keys[i] = key_of(args.choice_bias ? choice + args.choice_bias[e] : choice);
    }
    return __any_sync(~0u, is_damaged);
}

/* The logit of an expert, to all lanes. */
template <int KEYS> static __device__ __forceinline__ float logit_of(const token_scores<KEYS> &s, int expert)
{
    float x = 0;
#pragma unroll
    for (int i = 0; i < KEYS; i++)
        if (expert / 32 == i) x = s.logits[i];
    return __shfl_sync(~0u, x, expert % 32);
}

/* An expert of a token, and its weight. */
struct chosen_expert {
    int expert;
    float weight;
};

/* Lane j < top_k gets the expert that was taken as the j-th. */
template <int KEYS>
static __device__ __forceinline__ chosen_expert choose(const route_experts_args &args, int token, float *choices)
{
    const router_params &router = args.router;
    const int lane = threadIdx.x % 32;
    const token_scores<KEYS> s = scores_of<KEYS>(args, token);
    uint32_t keys[KEYS];
    chosen_expert own = {0, 0};
    int before = -1;
    const bool is_damaged = set_keys(args, s, keys);
    if (router.num_groups > 1) leave_groups(router, keys, choices);
    for (int j = 0; j < router.top_k; j++) {
        const int taken = take_largest(keys);
        float weight = logit_of(s, taken);
        if (router.kind == ROUTER_SPARSEMIXER) weight = sparsemixer_share(router, s, weight, before);
        if (lane == j) own = {taken, weight};
        before = taken;
    }
    if (router.kind != ROUTER_SPARSEMIXER) own.weight = lane < router.top_k ? score_of(router, s, own.weight) : 0;
    if (router.normalize) own.weight /= warp_sum(own.weight) + ROUTER_SMALLEST_SUM;
    own.weight = is_damaged ? NAN : own.weight * router.scaling;
    return own;
}

/* Chooses the experts of a token, and writes its weights in ascending order of expert. Lane j < top_k gets the expert
 * that was taken as the j-th, and *place, where it stands in that order. */
template <int KEYS>
static __device__ __forceinline__ int choose_in_order(const route_experts_args &args, int token, float *choices,
                                                      int *place)
{
    const int lane = threadIdx.x % 32, top_k = args.router.top_k;
    const chosen_expert own = choose<KEYS>(args, token, choices);
    *place = 0;
    for (int j = 0; j < top_k; j++) *place += __shfl_sync(~0u, own.expert, j) < own.expert;
    if (lane < top_k) {
        const float scale = args.expert_scales ? args.expert_scales[own.expert] : 1.0f;
        args.plan.weights[(int64_t)token * top_k + *place] = own.weight * scale;
    }
    return own.expert;
}

/* ---- few tokens ---- */

/* By the first warp: the starts, of the counts of tokens in the masks. */
static __device__ __forceinline__ void sum_counts(const uint32_t *masks, int32_t *starts, int num_experts)
{
    const int lane = threadIdx.x, each = (num_experts + 31) / 32, first = lane * each;
    int own = 0;
    for (int i = 0; i < each; i++)
        if (first + i < num_experts) own += __popc(masks[first + i]);
    int before = own;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(~0u, before, offset);
        if (lane >= offset) before += other;
    }
    before -= own;
    for (int i = 0; i < each && first + i < num_experts; i++) {
        starts[first + i] = before;
        before += __popc(masks[first + i]);
    }
    if (lane == 31) starts[num_experts] = before;
}

/* Words of shared memory that route_few needs: masks [num_experts], starts [num_experts + 1], the experts of tokens
 * [num_tokens, top_k], and, with groups, the choices of each warp [num_experts]. */
static __host__ __device__ __forceinline__ int route_few_words(const route_experts_args &args, int warps)
{
    const router_params &r = args.router;
    return 2 * r.num_experts + 1 + args.num_tokens * r.top_k + (r.num_groups > 1 ? warps * r.num_experts : 0);
}

/* By all threads of one block: the plan of up to ROUTE_FEW_TOKENS tokens, which the warps choose for in turn. */
template <int KEYS> static __device__ __forceinline__ void route_few(const route_experts_args &args, uint32_t *shared)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const int experts = args.router.num_experts, top_k = args.router.top_k;
    uint32_t *masks = shared;
    int32_t *starts = (int32_t *)(masks + experts), *chosen = starts + experts + 1;
    float *choices = (float *)(chosen + args.num_tokens * top_k) + warp * experts;
    for (int e = threadIdx.x; e < experts; e += blockDim.x) masks[e] = 0;
    __syncthreads();
    for (int token = warp; token < args.num_tokens; token += warps) {
        int place;
        const int expert = choose_in_order<KEYS>(args, token, choices, &place);
        if (lane >= top_k) continue;
        chosen[token * top_k + place] = expert;
        atomicOr(&masks[expert], 1u << token);
    }
    __syncthreads();
    if (warp == 0) sum_counts(masks, starts, experts);
    __syncthreads();
    for (int e = threadIdx.x; e <= experts; e += blockDim.x) args.plan.starts[e] = starts[e];
    for (int i = threadIdx.x; i < args.num_tokens * top_k; i += blockDim.x) {
        const int token = i / top_k, row = starts[chosen[i]] + __popc(masks[chosen[i]] & ((1u << token) - 1));
        args.plan.rows[i] = row;
        args.plan.tokens[row] = token;
    }
}

/* Calls f with how many logits a lane has, as a constant. */
template <class Function> static inline void route_dispatch(int32_t num_experts, Function f)
{
    if (num_experts <= 32) {
        f(std::integral_constant<int, 1>());
    } else if (num_experts <= 64) {
        f(std::integral_constant<int, 2>());
    } else if (num_experts <= 128) {
        f(std::integral_constant<int, 4>());
    } else if (num_experts <= 256) {
        f(std::integral_constant<int, 8>());
    } else if (num_experts <= 512) {
        f(std::integral_constant<int, 16>());
    } else {
        f(std::integral_constant<int, 32>());
    }
}

#endif
