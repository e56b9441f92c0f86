/* route_experts: from the logits of the router to the plan of the experts.
 *
 * Few tokens: one block does everything (route.cuh). More tokens, three kernels: choose_kernel leaves the experts in
 * `tokens`; in rows_kernel a block for each expert finds its assignments, whose rows are those after the assignments of
 * all lower experts, in their order; tokens_kernel turns that round. No order depends on chance.
 *
 * linear_route: few tokens, with the matmul that makes the logits. A warp has an expert and a token. The last block to
 * finish has all logits, and makes the plan. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/experts/few_experts.cuh"
#include "kernels/cuda/experts/route.cuh"
#include "kernels/cuda/operations.h"

enum {
    CHOOSE_WARPS = 4,
    ROWS_WARPS = 32,
    TOKENS_THREADS = 256,
    PIECE = 8,         /* elements of 16 bytes */
    STEP = 32 * PIECE, /* elements that a warp loads at once */
    AT_ONCE = 8,       /* loads under way */
};

/* ---- few tokens ---- */

/* One block. */
template <int KEYS>
static __global__ void __launch_bounds__(ROUTE_FEW_WARPS * 32)
    route_few_kernel(const __grid_constant__ route_experts_args args)
{
    extern __shared__ uint32_t shared[];
    let_next_start();
    wait_for_previous();
    route_few<KEYS>(args, shared);
}

struct linear_route_call {
    route_experts_args route;
    float *logits; /* route.logits */
    const void *x, *weights, *bias;
    int32_t in_features;
    uint32_t *num_done; /* blocks; 0 before and after */
};

/* A lane's pieces of a row from `first` on, AT_ONCE of them; zeros behind the end. */
template <class T>
static __device__ __forceinline__ void load_pieces(uint4 (&to)[AT_ONCE], const T *row, int first, int in_features)
{
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
        to[k] = first + k * STEP < in_features ? *(const uint4 *)(row + first + k * STEP) : uint4{};
}

/* The sum of the products of two rows, to all lanes. The weights' first pieces are loaded before x is there. */
template <class T> static __device__ __forceinline__ float multiply_row(const T *weights, const T *x, int in_features)
{
    const int lane = threadIdx.x % 32;
    uint4 w[AT_ONCE], in[AT_ONCE];
    float sum = 0;
    load_pieces(w, weights, lane * PIECE, in_features);
    wait_for_previous();
#pragma unroll 1
    for (int first = lane * PIECE; first < in_features; first += AT_ONCE * STEP) {
        load_pieces(in, x, first, in_features);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) add_products<T>(sum, w[k], in[k]);
        load_pieces(w, weights, first + AT_ONCE * STEP, in_features);
    }
    return warp_sum(sum);
}

/* Whether this is the last block that calls it; what all others wrote before can be read then. */
static __device__ __forceinline__ bool is_last_block(uint32_t *num_done)
{
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(num_done, 1) == gridDim.x * gridDim.y - 1;
        if (is_last) *num_done = 0;
        __threadfence();
    }
    __syncthreads();
    return is_last;
}

/* Grid: x ROUTE_FEW_WARPS experts, y the token. */
template <class T, int KEYS>
static __global__ void __launch_bounds__(ROUTE_FEW_WARPS * 32)
    linear_route_kernel(const __grid_constant__ linear_route_call call)
{
    extern __shared__ uint32_t shared[];
    const int count = call.route.router.num_experts, expert = blockIdx.x * ROUTE_FEW_WARPS + threadIdx.x / 32;
    const int64_t token = blockIdx.y, row = min(expert, count - 1);
    let_next_start();
    float logit = multiply_row((const T *)call.weights + row * call.in_features,
                               (const T *)call.x + token * call.in_features, call.in_features);
    if (call.bias) logit += to_float(((const T *)call.bias)[row]);
    if (threadIdx.x % 32 == 0 && expert < count) call.logits[token * count + expert] = logit;
    if (is_last_block(call.num_done)) route_few<KEYS>(call.route, shared);
}

/* ---- more tokens ---- */

/* Leaves the experts of each token, ascending, in plan.tokens. Shared memory: with groups, the choices of each warp
 * [num_experts]. */
template <int KEYS>
static __global__ void __launch_bounds__(CHOOSE_WARPS * 32)
    choose_kernel(const __grid_constant__ route_experts_args args)
{
    extern __shared__ uint32_t shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, token = blockIdx.x * CHOOSE_WARPS + warp;
    const int top_k = args.router.top_k;
    int place;
    let_next_start();
    wait_for_previous();
    if (token >= args.num_tokens) return;
    const int expert = choose_in_order<KEYS>(args, token, (float *)shared + warp * args.router.num_experts, &place);
    if (lane < top_k) args.plan.tokens[(int64_t)token * top_k + place] = expert;
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

static void run_few(struct backend *b, const struct route_experts_args *args)
{
    const int warps = args->num_tokens < ROUTE_FEW_WARPS ? args->num_tokens : ROUTE_FEW_WARPS;
    const int words = route_few_words(*args, warps);
    route_dispatch(args->router.num_experts, [&](auto keys) {
        cuda_run_dependent(b, "route_experts", route_few_kernel<decltype(keys)::value>,
                           {dim3(1), warps * 32, words * (int)sizeof(uint32_t)}, *args);
    });
}

static void run_many(struct backend *b, const struct route_experts_args *args)
{
    const struct cuda_state *s = cuda_use(b);
    const struct router_params *r = &args->router;
    const int32_t count = args->num_tokens * r->top_k;
    const int choices = r->num_groups > 1 ? CHOOSE_WARPS * r->num_experts * (int)sizeof(float) : 0;
    const dim3 chosen((unsigned)cuda_div_up(args->num_tokens, CHOOSE_WARPS)),
        all((unsigned)cuda_div_up(count, TOKENS_THREADS));
    route_dispatch(r->num_experts, [&](auto keys) {
        cuda_launch_dependent(s, choose_kernel<decltype(keys)::value>, {chosen, CHOOSE_WARPS * 32, choices}, *args);
    });
    cuda_launch_dependent(s, rows_kernel, {dim3((unsigned)r->num_experts), ROWS_WARPS * 32}, args->plan, (int)count);
    cuda_launch_dependent(s, tokens_kernel, {all, TOKENS_THREADS}, args->plan, (int)count, (int)r->top_k);
    cuda_check_launch(b, "route_experts");
}

void cuda_route_experts(struct backend *b, const struct route_experts_args *args)
{
    if (args->num_tokens <= 0) return;
    if (args->num_tokens <= ROUTE_FEW_TOKENS) {
        run_few(b, args);
    } else {
        run_many(b, args);
    }
}

int64_t cuda_route_workspace(void)
{
    return sizeof(uint32_t);
}

bool cuda_linear_route(struct backend *b, const struct linear_route_args *args)
{
    const struct linear_args *l = &args->linear;
    const struct weight *w = l->weight;
    uint32_t *num_done = (uint32_t *)cuda_state(b)->regions[CUDA_USER_ROUTE].data;
    const bool takes = num_done && l->num_tokens <= ROUTE_FEW_TOKENS && l->dtype != DTYPE_FLOAT32 &&
                       w->format == weight_format_of(l->dtype) && (!w->bias || w->bias_dtype == l->dtype) &&
                       w->in_features % PIECE == 0 && w->in_features <= INT32_MAX / 2 && cuda_is_aligned(w->data) &&
                       cuda_is_aligned(l->x);
    if (!takes || l->num_tokens <= 0) return false;
    const struct linear_route_call call = {args->route, (float *)l->out,         l->x,    w->data,
                                           w->bias,     (int32_t)w->in_features, num_done};
    const int shared = route_few_words(args->route, ROUTE_FEW_WARPS) * (int)sizeof(uint32_t);
    const cuda_launch launch = {dim3((unsigned)cuda_div_up(w->out_features, ROUTE_FEW_WARPS), l->num_tokens),
                                ROUTE_FEW_WARPS * 32, shared};
    route_dispatch(args->route.router.num_experts, [&](auto keys) {
        constexpr int KEYS = decltype(keys)::value;
        cuda_run_dependent(b, "linear_route",
                           l->dtype == DTYPE_FLOAT16 ? linear_route_kernel<__half, KEYS>
                                                     : linear_route_kernel<__nv_bfloat16, KEYS>,
                           launch, call);
    });
    return true;
}
