/* route_experts: from the logits of the router to the plan of the experts.
 *
 * Few tokens: one block or cluster does everything (route.cuh). More tokens, three kernels: choose_kernel leaves the
 * experts in `tokens`, counted from the first that is here; in rows_kernel a block for each expert finds its
 * assignments, whose rows are those after the assignments of all lower experts, in their order; tokens_kernel turns
 * that round. No order depends on chance. Experts before the first are, as unsigned numbers, behind the last. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/experts/route.cuh"
#include "kernels/cuda/operations.h"

enum {
    CHOOSE_WARPS = 4,
    ROWS_WARPS = 32,
    TOKENS_THREADS = 256,
    MIN_CLUSTER_TOKENS = 16, /* that several blocks choose for, */
    BLOCK_TOKENS = 4         /* so many each: 8 blocks of ROUTE_FEW_TOKENS */
};

/* ---- few tokens ---- */

/* One block, or one cluster. */
static __global__ void __launch_bounds__(ROUTE_MAX_WARPS * 32, 1)
    route_few_kernel(const __grid_constant__ route_experts_args args, int room)
{
    extern __shared__ uint32_t shared[];
    let_next_start();
    route_few(args, shared, room);
}

/* ---- more tokens ---- */

/* Leaves the experts of each token, ascending, in plan.tokens: their numbers less first_own. Shared memory:
 * CHOOSE_WARPS tokens. */
static __global__ void __launch_bounds__(CHOOSE_WARPS * 32)
    choose_kernel(const __grid_constant__ route_experts_args args)
{
    extern __shared__ uint32_t shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.x * CHOOSE_WARPS;
    const int count = min((int)CHOOSE_WARPS, args.num_tokens - first), top_k = args.router.top_k;
    int place;
    let_next_start();
    clear_tokens(args.router, shared, CHOOSE_WARPS);
    __syncthreads();
    wait_for_previous();
    const int expert = choose_in_order(args, first, count, shared, CHOOSE_WARPS, &place);
    if (warp < count && lane < top_k)
        args.plan.tokens[(int64_t)(first + warp) * top_k + place] = expert - args.router.first_own;
}

/* Grid: x the expert. Its rows begin after the assignments of lower experts. Each warp has a stretch of the
 * assignments: it counts, and when the block knows all counts, it numbers those of the expert. */
static __global__ void __launch_bounds__(ROWS_WARPS * 32) rows_kernel(const expert_plan plan, int count)
{
    __shared__ int lower_of_warps[ROWS_WARPS], own_of_warps[ROWS_WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned expert = blockIdx.x, num_own = gridDim.x, *experts = (const unsigned *)plan.tokens;
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
    const int of_expert = __reduce_add_sync(~0u, own_of_warps[lane]);
    if (threadIdx.x == 0) plan.starts[expert] = start;
    if (threadIdx.x == 0 && expert == num_own - 1) plan.starts[num_own] = start + of_expert;
#pragma unroll 4
    for (int i = first; i < end; i += 32) {
        const bool is_own = i + lane < end && experts[i + lane] == expert;
        const uint32_t mask = __ballot_sync(~0u, is_own);
        if (is_own) plan.rows[i + lane] = row + __popc(mask & ((1u << lane) - 1));
        if (expert == 0 && i + lane < end && experts[i + lane] >= num_own) plan.rows[i + lane] = -1;
        row += __popc(mask);
    }
}

/* num_own 0: all experts are here. */
static __global__ void __launch_bounds__(TOKENS_THREADS)
    tokens_kernel(const expert_plan plan, int count, int top_k, int num_own)
{
    const int i = blockIdx.x * TOKENS_THREADS + threadIdx.x;
    let_next_start();
    wait_for_previous();
    if (i >= count) return;
    const int row = plan.rows[i];
    if (row >= 0) plan.tokens[row] = i / top_k;
    if (num_own > 0 && i >= plan.starts[num_own]) plan.tokens[i] = -1;
}

/* ---- the host's side ---- */

/* As many tokens at once as there is room for, and warps for all of them and for all experts. */
static void run_few(struct backend *b, const struct route_experts_args *args)
{
    const struct cuda_state *s = cuda_state(b);
    const int experts_warps = (int)cuda_div_up(args->router.num_experts, 32);
    const bool has_cluster = s->compute_capability >= 90 && args->num_tokens >= MIN_CLUSTER_TOKENS;
    const int blocks = has_cluster ? (int)cuda_div_up(args->num_tokens, BLOCK_TOKENS) : 1;
    int room = (int)cuda_div_up(args->num_tokens, blocks);
    while (room > 1 && route_few_words(*args, room) * (int)sizeof(uint32_t) > s->max_shared_bytes) room--;
    cuda_run_dependent(b, "route_experts", route_few_kernel,
                       {dim3((unsigned)blocks), 32 * (experts_warps > room ? experts_warps : room),
                        route_few_words(*args, room) * (int)sizeof(uint32_t), blocks},
                       *args, room);
}

static void run_many(struct backend *b, const struct route_experts_args *args)
{
    const struct cuda_state *s = cuda_use(b);
    const struct router_params *r = &args->router;
    const int32_t count = args->num_tokens * r->top_k;
    const dim3 chosen((unsigned)cuda_div_up(args->num_tokens, CHOOSE_WARPS)),
        all((unsigned)cuda_div_up(count, TOKENS_THREADS));
    const int chosen_bytes = routed_token_words(*r, CHOOSE_WARPS) * (int)sizeof(uint32_t);
    if (!cuda_allow_shared(b, "route_experts", choose_kernel, chosen_bytes)) return;
    cuda_launch_dependent(s, choose_kernel, {chosen, CHOOSE_WARPS * 32, chosen_bytes}, *args);
    cuda_launch_dependent(s, rows_kernel, {dim3((unsigned)router_num_own(r)), ROWS_WARPS * 32}, args->plan, (int)count);
    cuda_launch_dependent(s, tokens_kernel, {all, TOKENS_THREADS}, args->plan, (int)count, (int)r->top_k,
                          (int)r->num_own);
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
