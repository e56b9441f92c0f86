/* route_experts: from the logits of the router to the plan of the experts.
 *
 * A warp chooses the experts of a token. The choice of an expert is a key, an unsigned number that is ordered as the
 * choices are; 0 is one that was taken. The largest key is taken top_k times, of equal ones that of the lower index.
 *
 * Few tokens: one block does everything. Each expert has a mask of its tokens; their counts become the starts, and the
 * row of an assignment is the start of its expert and the number of tokens in the mask before its own.
 *
 * More tokens, three kernels: choose_kernel leaves the experts in `tokens`; in rows_kernel a block for each expert
 * finds its assignments, whose rows are those after the assignments of all lower experts, in their order; tokens_kernel
 * turns that round. No order depends on chance. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"
#include "kernels/cuda/warp.cuh"

enum {
    FEW_TOKENS = 32, /* a bit of a mask each */
    FEW_KEYS = 8192, /* of one block */
    CHOOSE_WARPS = 4,
    ROWS_WARPS = 32,
    TOKENS_THREADS = 256
};

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

/* The router's logits of a token, and what makes scores of them. */
struct token_scores {
    const float *logits; /* [num_experts] */
    router_params router;
    float largest, sum; /* of the softmax */
};

static __device__ __forceinline__ float logit_of(const token_scores &s, int expert)
{
    const float x = s.logits[expert];
    return s.router.soft_cap > 0 ? s.router.soft_cap * tanhf(x / s.router.soft_cap) : x;
}

static __device__ __forceinline__ float score_of(const token_scores &s, int expert)
{
    const float x = logit_of(s, expert);
    if (s.router.kind == ROUTER_SPARSEMIXER) return x;
    return s.router.kind == ROUTER_SIGMOID ? 1 / (1 + expf(-x)) : expf(x - s.largest) / s.sum;
}

static __device__ __forceinline__ token_scores scores_of(const route_experts_args &args, int token)
{
    const int lane = threadIdx.x % 32, count = args.router.num_experts;
    token_scores s = {args.logits + (int64_t)token * count, args.router, -INFINITY, 0};
    if (s.router.kind != ROUTER_SOFTMAX) return s;
    for (int e = lane; e < count; e += 32) s.largest = fmaxf(s.largest, logit_of(s, e));
    s.largest = warp_max(s.largest);
    for (int e = lane; e < count; e += 32) s.sum += expf(logit_of(s, e) - s.largest);
    s.sum = warp_sum(s.sum);
    return s;
}

/* The index of the largest of count keys, of equal ones the lowest; its key becomes 0. All lanes call. */
static __device__ __forceinline__ int take_largest(uint32_t *keys, int count)
{
    uint32_t largest = 0, first = 0xffffffffu;
    for (int i = threadIdx.x % 32; i < count; i += 32)
        if (keys[i] > largest) largest = keys[i], first = i;
    const uint32_t most = __reduce_max_sync(~0u, largest);
    const int index = (int)__reduce_min_sync(~0u, largest == most ? first : 0xffffffffu);
    if (threadIdx.x % 32 == 0) keys[index] = 0;
    __syncwarp();
    return index;
}

/* The experts of all groups but the best become the last choice. */
static __device__ __forceinline__ void leave_groups(const router_params &router, uint32_t *keys, uint32_t *group_keys)
{
    const int lane = threadIdx.x % 32, size = router.num_experts / router.num_groups;
    for (int g = lane; g < router.num_groups; g += 32) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = 0; i < size; i++) {
            const float x = choice_of(keys[g * size + i]);
            if (x > first) {
                second = first, first = x;
            } else if (x > second) {
                second = x;
            }
        }
        group_keys[g] = key_of(router.group_sums && size > 1 ? first + second : first);
    }
    __syncwarp();
    for (int i = 0; i < router.top_groups; i++) take_largest(group_keys, router.num_groups);
    for (int e = lane; e < router.num_experts; e += 32)
        if (group_keys[e / size] != 0) keys[e] = key_of(-INFINITY);
    __syncwarp();
}

/* An expert of a token, and its weight. */
struct chosen_expert {
    int expert;
    float weight;
};

/* The share of an expert in a softmax over those that are close to it, but for `without`. */
static __device__ __forceinline__ float sparsemixer_share(const token_scores &s, int expert, int without)
{
    const float largest = logit_of(s, expert);
    float sum = 0;
    for (int e = threadIdx.x % 32; e < s.router.num_experts; e += 32) {
        const float x = logit_of(s, e);
        const bool is_far = (largest - x) / fmaxf(fabsf(x), largest) > 2 * s.router.jitter;
        if (e != without && !is_far) sum += expf(x - largest);
    }
    return 1 / warp_sum(sum);
}

/* Sets the keys of a token's experts. Returns whether a score is NaN. */
static __device__ __forceinline__ bool set_keys(const route_experts_args &args, const token_scores &s, uint32_t *keys)
{
    bool is_damaged = false;
    for (int e = threadIdx.x % 32; e < s.router.num_experts; e += 32) {
        const float score = score_of(s, e);
        is_damaged |= isnan(score);
        keys[e] = key_of(args.choice_bias ? score + args.choice_bias[e] : score);
    }
    return __any_sync(~0u, is_damaged);
}

/* Lane j < top_k gets the expert that was taken as the j-th. */
static __device__ __forceinline__ chosen_expert choose(const route_experts_args &args, int token, uint32_t *keys,
                                                       uint32_t *group_keys)
{
    const router_params &router = args.router;
    const int lane = threadIdx.x % 32;
    const token_scores s = scores_of(args, token);
    chosen_expert own = {0, 0};
    int before = -1;
    const bool is_damaged = set_keys(args, s, keys);
    __syncwarp();
    if (router.num_groups > 1) leave_groups(router, keys, group_keys);
    for (int j = 0; j < router.top_k; j++) {
        const int taken = take_largest(keys, router.num_experts);
        const float share = router.kind == ROUTER_SPARSEMIXER ? sparsemixer_share(s, taken, before) : 0;
        if (lane == j) own = {taken, share};
        before = taken;
    }
    if (lane < router.top_k && router.kind != ROUTER_SPARSEMIXER) own.weight = score_of(s, own.expert);
    const float sum = warp_sum(own.weight);
    if (router.normalize) own.weight /= sum + ROUTER_SMALLEST_SUM;
    own.weight = is_damaged ? NAN : own.weight * router.scaling;
    return own;
}

/* Chooses the experts of a token, and writes its weights in ascending order of expert. Lane j < top_k gets the j-th of
 * that order. */
static __device__ __forceinline__ int choose_in_order(const route_experts_args &args, int token, uint32_t *keys,
                                                      uint32_t *group_keys)
{
    const int lane = threadIdx.x % 32, top_k = args.router.top_k;
    const chosen_expert own = choose(args, token, keys, group_keys);
    int place = 0, expert = 0;
    for (int j = 0; j < top_k; j++) {
        const int other = __shfl_sync(~0u, own.expert, j);
        place += other < own.expert;
    }
    for (int j = 0; j < top_k; j++) {
        const int at = __shfl_sync(~0u, place, j), other = __shfl_sync(~0u, own.expert, j);
        if (lane == at) expert = other;
    }
    if (lane < top_k) {
        const float scale = args.expert_scales ? args.expert_scales[own.expert] : 1.0f;
        args.plan.weights[(int64_t)token * top_k + place] = own.weight * scale;
    }
    return expert;
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

/* One block, a warp a token. Shared memory: keys [tokens, num_experts], group keys [tokens, num_groups], masks and
 * starts [num_experts + 1]. */
static __global__ void __launch_bounds__(FEW_TOKENS * 32)
    route_few_kernel(const __grid_constant__ route_experts_args args)
{
    extern __shared__ uint32_t shared[];
    const int token = threadIdx.x / 32, lane = threadIdx.x % 32, experts = args.router.num_experts;
    const int groups = args.router.num_groups, top_k = args.router.top_k;
    uint32_t *group_keys = shared + args.num_tokens * experts, *masks = group_keys + args.num_tokens * groups;
    int32_t *starts = (int32_t *)(masks + experts);
    let_next_start();
    for (int e = threadIdx.x; e < experts; e += blockDim.x) masks[e] = 0;
    wait_for_previous();
    __syncthreads();
    const int expert = choose_in_order(args, token, shared + token * experts, group_keys + token * groups);
    if (lane < top_k) atomicOr(&masks[expert], 1u << token);
    __syncthreads();
    if (token == 0) sum_counts(masks, starts, experts);
    __syncthreads();
    for (int e = threadIdx.x; e <= experts; e += blockDim.x) args.plan.starts[e] = starts[e];
    if (lane >= top_k) return;
    const int row = starts[expert] + __popc(masks[expert] & ((1u << token) - 1));
    args.plan.rows[token * top_k + lane] = row;
    args.plan.tokens[row] = token;
}

/* ---- more tokens ---- */

/* Leaves the experts of each token, ascending, in plan.tokens. */
static __global__ void __launch_bounds__(CHOOSE_WARPS * 32)
    choose_kernel(const __grid_constant__ route_experts_args args)
{
    extern __shared__ uint32_t shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, token = blockIdx.x * CHOOSE_WARPS + warp;
    const int each = args.router.num_experts + args.router.num_groups, top_k = args.router.top_k;
    uint32_t *keys = shared + warp * each;
    let_next_start();
    wait_for_previous();
    if (token >= args.num_tokens) return;
    const int expert = choose_in_order(args, token, keys, keys + args.router.num_experts);
    if (lane < top_k) args.plan.tokens[(int64_t)token * top_k + lane] = expert;
}

/* Grid: x the expert. Its rows begin after the assignments of lower experts. Each warp has a stretch of the
 * assignments: it counts, and when the block knows all counts, it numbers those of the expert. */
static __global__ void __launch_bounds__(ROWS_WARPS * 32) rows_kernel(const expert_plan plan, int count)
{
    __shared__ int lower_of_warps[ROWS_WARPS], own_of_warps[ROWS_WARPS];
    const int expert = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, *experts = plan.tokens;
    const int stretch = (count + ROWS_WARPS * 32 - 1) / (ROWS_WARPS * 32) * 32;
    const int first = warp * stretch, end = min(first + stretch, count);
    int lower = 0, own = 0;
    let_next_start();
    wait_for_previous();
#pragma unroll 8
    for (int i = first + lane; i < end; i += 32) {
        lower += experts[i] < expert;
        own += experts[i] == expert;
    }
    lower = __reduce_add_sync(~0u, lower);
    own = __reduce_add_sync(~0u, own);
    if (lane == 0) lower_of_warps[warp] = lower, own_of_warps[warp] = own;
    __syncthreads();
    const int start = __reduce_add_sync(~0u, lower_of_warps[lane]);
    int row = start + __reduce_add_sync(~0u, lane < warp ? own_of_warps[lane] : 0);
    if (threadIdx.x == 0) plan.starts[expert] = start;
    if (threadIdx.x == 0 && expert == gridDim.x - 1) plan.starts[gridDim.x] = count;
#pragma unroll 4
    for (int i = first; i < end; i += 32) {
        const bool is_own = i + lane < end && experts[i + lane] == expert;
        const uint32_t mask = __ballot_sync(~0u, is_own);
        if (is_own) plan.rows[i + lane] = row + __popc(mask & ((1u << lane) - 1));
        row += __popc(mask);
    }
}

static __global__ void __launch_bounds__(TOKENS_THREADS) tokens_kernel(const expert_plan plan, int count, int top_k)
{
    const int i = blockIdx.x * TOKENS_THREADS + threadIdx.x;
    let_next_start();
    wait_for_previous();
    if (i < count) plan.tokens[plan.rows[i]] = i / top_k;
}

/* ---- the host's side ---- */

static void route_few(struct backend *b, const struct route_experts_args *args)
{
    const struct router_params *r = &args->router;
    const int words = args->num_tokens * (r->num_experts + r->num_groups) + 2 * r->num_experts + 1;
    cuda_run_dependent(b, "route_experts", route_few_kernel,
                       {dim3(1), args->num_tokens * 32, words * (int)sizeof(uint32_t)}, *args);
}

static void route_many(struct backend *b, const struct route_experts_args *args)
{
    const struct cuda_state *s = cuda_use(b);
    const struct router_params *r = &args->router;
    const int32_t count = args->num_tokens * r->top_k;
    const int keys = CHOOSE_WARPS * (r->num_experts + r->num_groups) * (int)sizeof(uint32_t);
    const dim3 chosen((unsigned)cuda_div_up(args->num_tokens, CHOOSE_WARPS)),
        all((unsigned)cuda_div_up(count, TOKENS_THREADS));
    cuda_launch_dependent(s, choose_kernel, {chosen, CHOOSE_WARPS * 32, keys}, *args);
    cuda_launch_dependent(s, rows_kernel, {dim3((unsigned)r->num_experts), ROWS_WARPS * 32}, args->plan, (int)count);
    cuda_launch_dependent(s, tokens_kernel, {all, TOKENS_THREADS}, args->plan, (int)count, (int)r->top_k);
    cuda_check_launch(b, "route_experts");
}

void cuda_route_experts(struct backend *b, const struct route_experts_args *args)
{
    if (args->num_tokens <= 0) return;
    if (args->num_tokens <= FEW_TOKENS && args->num_tokens * args->router.num_experts <= FEW_KEYS) {
        route_few(b, args);
    } else {
        route_many(b, args);
    }
}
