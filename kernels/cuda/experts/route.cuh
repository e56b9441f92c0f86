/* What the kernels share that choose the experts of tokens.
 *
 * A block chooses for some tokens at a time, which each have the logits and the choices of all experts in shared
 * memory. The choice of an expert is a key, an unsigned number that is ordered as the choices are; 0 is one that was
 * taken. Each token has some warps, and lane l of warp w of `parts` sets the keys of experts l + 32 (w + parts i). Then
 * one warp of the token takes the largest key top_k times, of equal ones that of the lower index.
 *
 * The kernels run once through code that no cache holds, so loops over experts are not unrolled beyond what is needed.
 *
 * Of few tokens one block makes the plan; the blocks of a cluster share the choice of their experts. Each expert has a
 * mask of its tokens; their counts become the starts, and the
 * row of an assignment is the start of its expert and the number of tokens in the mask before its own. */
#ifndef QUIRE_KERNELS_CUDA_EXPERTS_ROUTE_CUH
#define QUIRE_KERNELS_CUDA_EXPERTS_ROUTE_CUH

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/state.cuh"
#include "kernels/cuda/warp.cuh"

enum {
    ROUTE_FEW_TOKENS = 32, /* a bit of a mask each */
    ROUTE_MAX_WARPS = 32,
    ROUTE_AT_ONCE = 8 /* experts that a lane has under way */
};

/* router_num_own on the device. */
static __device__ __forceinline__ int num_own_of(const router_params &router)
{
    return router.num_own > 0 ? router.num_own : router.num_experts;
}

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

/* What a token has in shared memory. */
struct routed_token {
    float *logits;        /* [num_experts] */
    uint32_t *keys;       /* [num_experts] */
    uint32_t *group_keys; /* [num_groups], if there are groups */
    int32_t *is_damaged;  /* whether a score is NaN */
};

/* Words of shared memory of `count` tokens at once. */
static __host__ __device__ __forceinline__ int routed_token_words(const router_params &router, int count)
{
    return count * (2 * router.num_experts + (router.num_groups > 1 ? router.num_groups : 0) + 1);
}

static __device__ __forceinline__ routed_token routed_token_at(const router_params &router, uint32_t *shared, int i,
                                                               int count)
{
    uint32_t *keys = shared + count * router.num_experts, *group_keys = keys + count * router.num_experts;
    const int groups = router.num_groups > 1 ? router.num_groups : 0;
    return {(float *)shared + i * router.num_experts, keys + i * router.num_experts, group_keys + i * groups,
            (int32_t *)group_keys + count * groups + i};
}

/* Of the softmax over a token's logits: the largest, and the sum. */
struct softmax_sums {
    float largest, sum;
};

static __device__ __forceinline__ float score_of(const router_params &router, const softmax_sums &s, float logit)
{
    if (router.kind == ROUTER_SPARSEMIXER) return logit;
    return router.kind == ROUTER_SIGMOID ? 1 / (1 + expf(-logit)) : expf(logit - s.largest) / s.sum;
}

/* Copies a token's logits. Several warps may do so at once: they write the same, and a lane reads afterwards what it
 * has written itself. */
static __device__ __forceinline__ softmax_sums load_logits(const route_experts_args &args, int token, float *to)
{
    const int lane = threadIdx.x % 32, count = args.router.num_experts;
    const int row = count + (args.base_gate ? 1 : 0);
    const float *logits = args.logits + (int64_t)token * row, cap = args.router.soft_cap;
    softmax_sums s = {-INFINITY, 0};
    if (args.base_gate && lane == 0) args.base_gate[token] = 1 / (1 + __expf(-logits[count]));
#pragma unroll 1
    for (int first = lane; first < count; first += 32 * ROUTE_AT_ONCE) {
        float own[ROUTE_AT_ONCE];
#pragma unroll
        for (int k = 0; k < ROUTE_AT_ONCE; k++) own[k] = first + 32 * k < count ? logits[first + 32 * k] : -INFINITY;
#pragma unroll
        for (int k = 0; k < ROUTE_AT_ONCE; k++) {
            s.largest = fmaxf(s.largest, own[k]);
            if (cap <= 0 && first + 32 * k < count) to[first + 32 * k] = own[k];
        }
    }
    if (cap > 0) {
        s.largest = -INFINITY;
#pragma unroll 1
        for (int e = lane; e < count; e += 32) {
            to[e] = cap * tanhf(logits[e] / cap);
            s.largest = fmaxf(s.largest, to[e]);
        }
    }
    if (args.router.kind != ROUTER_SOFTMAX) return s;
    s.largest = warp_max(s.largest);
#pragma unroll 4
    for (int e = lane; e < count; e += 32) s.sum += expf(to[e] - s.largest);
    s.sum = warp_sum(s.sum);
    return s;
}

/* Sets the keys of a part of a token's experts. */
static __device__ __forceinline__ void set_keys(const route_experts_args &args, const softmax_sums &s,
                                                const routed_token &to, int part, int parts)
{
    bool is_damaged = false;
#pragma unroll 1
    for (int e = threadIdx.x % 32 + 32 * part; e < args.router.num_experts; e += 32 * parts) {
        const float logit = to.logits[e], score = score_of(args.router, s, logit);
        const float choice = args.router.by_logits ? logit : score;
        is_damaged |= isnan(score);
        to.keys[e] = key_of(args.choice_bias ? choice + args.choice_bias[e] : choice);
    }
    if (is_damaged) *to.is_damaged = true;
}

/* By a warp: the index of the largest of `count` keys, of equal ones the lowest; its key becomes 0. Not all are 0. */
static __device__ __forceinline__ int take_largest(uint32_t *keys, int count)
{
    const int lane = threadIdx.x % 32;
    uint32_t largest = 0, first = 0xffffffffu;
#pragma unroll 1
    for (int begin = lane; begin < count; begin += 32 * ROUTE_AT_ONCE) {
        uint32_t own[ROUTE_AT_ONCE], index[ROUTE_AT_ONCE];
#pragma unroll
        for (int k = 0; k < ROUTE_AT_ONCE; k++) {
            index[k] = begin + 32 * k;
            own[k] = begin + 32 * k < count ? keys[begin + 32 * k] : 0;
        }
#pragma unroll
        for (int width = 1; width < ROUTE_AT_ONCE; width *= 2)
#pragma unroll
            for (int k = 0; k < ROUTE_AT_ONCE; k += 2 * width)
                if (own[k + width] > own[k]) own[k] = own[k + width], index[k] = index[k + width];
        if (own[0] > largest) largest = own[0], first = index[0];
    }
    const uint32_t most = __reduce_max_sync(~0u, largest);
    const uint32_t index = __reduce_min_sync(~0u, largest == most ? first : 0xffffffffu);
    if (lane == 0) keys[index] = 0;
    __syncwarp();
    return (int)index;
}

/* The value of a group: its largest choice, or the sum of its two largest. */
static __device__ __forceinline__ float group_value(const uint32_t *keys, int size, bool sums)
{
    float first = -INFINITY, second = -INFINITY;
#pragma unroll 1
    for (int i = 0; i < size; i++) {
        const float x = choice_of(keys[i]);
        if (x > first) {
            second = first, first = x;
        } else if (x > second) {
            second = x;
        }
    }
    return sums && size > 1 ? first + second : first;
}

/* By a warp: the experts of all groups but the best become the last choice. */
static __device__ __forceinline__ void leave_groups(const router_params &router, const routed_token &token)
{
    const int lane = threadIdx.x % 32, size = router.num_experts / router.num_groups;
#pragma unroll 1
    for (int g = lane; g < router.num_groups; g += 32)
        token.group_keys[g] = key_of(group_value(token.keys + g * size, size, router.group_sums));
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < router.top_groups; i++) take_largest(token.group_keys, router.num_groups);
#pragma unroll 1
    for (int e = lane; e < router.num_experts; e += 32)
        if (token.group_keys[e / size] != 0) token.keys[e] = key_of(-INFINITY); /* it was not taken */
    __syncwarp();
}

/* The share of an expert in a softmax over those that are close to it, but for `without`. */
static __device__ __forceinline__ float sparsemixer_share(const router_params &router, const float *logits,
                                                          float largest, int without)
{
    float sum = 0;
#pragma unroll 1
    for (int e = threadIdx.x % 32; e < router.num_experts; e += 32) {
        const float x = logits[e];
        const bool is_far = (largest - x) / fmaxf(fabsf(x), largest) > 2 * router.jitter;
        if (e != without && !is_far) sum += expf(x - largest);
    }
    return 1 / warp_sum(sum);
}

/* An expert of a token, and its weight. */
struct chosen_expert {
    int expert;
    float weight;
};

/* By a warp. Lane j < top_k gets the expert that was taken as the j-th. */
static __device__ __forceinline__ chosen_expert choose(const router_params &router, const softmax_sums &s,
                                                       const routed_token &token)
{
    const int lane = threadIdx.x % 32;
    chosen_expert own = {0, 0};
    int before = -1;
    if (router.num_groups > 1) leave_groups(router, token);
#pragma unroll 1
    for (int j = 0; j < router.top_k; j++) {
        const int taken = take_largest(token.keys, router.num_experts);
        if (lane == j) own.expert = taken;
        if (router.kind != ROUTER_SPARSEMIXER) continue;
        const float share = sparsemixer_share(router, token.logits, token.logits[taken], before);
        if (lane == j) own.weight = share;
        before = taken;
    }
    if (router.kind != ROUTER_SPARSEMIXER)
        own.weight = lane < router.top_k ? score_of(router, s, token.logits[own.expert]) : 0;
    if (router.normalize) own.weight /= warp_sum(own.weight) + ROUTER_SMALLEST_SUM;
    own.weight = *token.is_damaged ? NAN : own.weight * router.scaling;
    return own;
}

/* By a block: chooses the experts of tokens first .. first + count - 1, and writes their weights in ascending order of
 * expert. There are at least as many warps as tokens, and room in `shared` for `room` tokens, none of which is damaged
 * (clear_tokens). Warp w < count has token first + w: its lane j < top_k gets the expert that was taken as the j-th,
 * and *place, where it stands in that order. */
static __device__ __forceinline__ int choose_in_order(const route_experts_args &args, int first, int count,
                                                      uint32_t *shared, int room, int *place)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, top_k = args.router.top_k;
    const int parts = blockDim.x / 32 / count, part = warp / count, token = first + warp % count;
    const routed_token own_token = routed_token_at(args.router, shared, warp % count, room);
    softmax_sums s = {};
    *place = 0;
    if (part < parts) {
        s = load_logits(args, token, own_token.logits);
        set_keys(args, s, own_token, part, parts);
    }
    __syncthreads();
    if (part > 0) return 0;
    const chosen_expert own = choose(args.router, s, own_token);
#pragma unroll 4
    for (int j = 0; j < top_k; j++) *place += __shfl_sync(~0u, own.expert, j) < own.expert;
    if (lane < top_k) {
        const float scale = args.expert_scales ? args.expert_scales[own.expert] : 1.0f;
        args.plan.weights[(int64_t)token * top_k + *place] = own.weight * scale;
    }
    return own.expert;
}

/* By a block, before choose_in_order. */
static __device__ __forceinline__ void clear_tokens(const router_params &router, uint32_t *shared, int room)
{
    for (int i = threadIdx.x; i < room; i += blockDim.x) *routed_token_at(router, shared, i, room).is_damaged = false;
}

/* ---- few tokens ---- */

/* By a block of at least as many threads as experts: the starts, of the counts of tokens in the masks. */
static __device__ __forceinline__ void sum_counts(const uint32_t *masks, int32_t *starts, int32_t *of_warps,
                                                  int num_experts)
{
    const int expert = threadIdx.x, warp = expert / 32, lane = expert % 32;
    const int own = expert < num_experts ? __popc(masks[expert]) : 0;
    int sum = own;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(~0u, sum, offset);
        if (lane >= offset) sum += other;
    }
    if (lane == 31) of_warps[warp] = sum;
    __syncthreads();
    sum += __reduce_add_sync(~0u, lane < warp ? of_warps[lane] : 0);
    if (expert < num_experts) starts[expert] = sum - own;
    if (expert == num_experts - 1) starts[num_experts] = sum;
}

/* Words of shared memory that route_few needs: masks [num_experts], starts [num_experts + 1], the sums of warps, the
 * experts of tokens [num_tokens, top_k], and `room` tokens. Of masks and starts those of experts that are here are
 * used.
 */
static __host__ __device__ __forceinline__ int route_few_words(const route_experts_args &args, int room)
{
    const router_params &r = args.router;
    return 2 * r.num_experts + 1 + ROUTE_MAX_WARPS + args.num_tokens * r.top_k + routed_token_words(r, room);
}

/* By block 0 of a cluster, if there is one, once all have chosen: copies what the others chose, counted from the first
 * expert that is here, and sets the masks. */
static __device__ __forceinline__ void collect_chosen(const route_experts_args &args, int32_t *chosen, uint32_t *masks)
{
    const int blocks = cluster_size(), count = args.num_tokens, top_k = args.router.top_k;
    const int num_own = num_own_of(args.router);
    for (int i = threadIdx.x; i < count * top_k; i += blockDim.x) {
        const int token = i / top_k, rank = ((token + 1) * blocks - 1) / count;
        int expert = rank > 0 ? __float_as_int(cluster_load(cluster_address(chosen + i, rank))) : chosen[i];
        expert -= args.router.first_own;
        if ((unsigned)expert < (unsigned)num_own) atomicOr(&masks[expert], 1u << token);
        chosen[i] = expert;
    }
}

/* By all threads of a block, at least as many as experts: the plan of up to ROUTE_FEW_TOKENS tokens, `room` of which
 * are chosen for at once. Each block of a cluster chooses for a share of the tokens. */
static __device__ __forceinline__ void route_few(const route_experts_args &args, uint32_t *shared, int room)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = cluster_rank(), blocks = cluster_size();
    const int experts = args.router.num_experts, num_own = num_own_of(args.router), top_k = args.router.top_k;
    const int begin = args.num_tokens * rank / blocks, end = args.num_tokens * (rank + 1) / blocks;
    uint32_t *masks = shared;
    int32_t *starts = (int32_t *)(masks + experts), *of_warps = starts + experts + 1;
    int32_t *chosen = of_warps + ROUTE_MAX_WARPS;
    uint32_t *tokens = (uint32_t *)chosen + args.num_tokens * top_k;
    for (int e = threadIdx.x; e < experts; e += blockDim.x) masks[e] = 0;
#pragma unroll 1
    for (int first = begin; first < end; first += room) {
        const int count = min(room, end - first);
        clear_tokens(args.router, tokens, room);
        __syncthreads();
        if (first == begin) wait_for_previous();
        int place;
        const int expert = choose_in_order(args, first, count, tokens, room, &place);
        if (warp < count && lane < top_k) chosen[(first + warp) * top_k + place] = expert;
        __syncthreads();
    }
    if (blocks > 1) cluster_arrive(), cluster_wait();
    if (rank == 0) collect_chosen(args, chosen, masks);
    __syncthreads();
    if (blocks > 1) cluster_arrive(), cluster_wait(); /* nobody reads another block's shared memory any more */
    if (rank > 0) return;
    sum_counts(masks, starts, of_warps, num_own);
    __syncthreads();
    for (int e = threadIdx.x; e <= num_own; e += blockDim.x) args.plan.starts[e] = starts[e];
    for (int i = threadIdx.x; i < args.num_tokens * top_k; i += blockDim.x) {
        const bool is_own = (unsigned)chosen[i] < (unsigned)num_own;
        const int token = i / top_k, own = is_own ? chosen[i] : 0;
        const int row = is_own ? starts[own] + __popc(masks[own] & ((1u << token) - 1)) : -1;
        args.plan.rows[i] = row;
        if (is_own) args.plan.tokens[row] = token;
        if (i >= starts[num_own]) args.plan.tokens[i] = -1;
    }
}

#endif
