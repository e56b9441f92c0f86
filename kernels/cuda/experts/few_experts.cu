/* The matmuls of experts for few tokens: memory sets their speed, so each matrix is read once, where possible, and a
 * warp has many loads under way. The operands are converted to float32 in registers.
 *
 * experts_gate_up: a warp computes a gate and its up, or two features, for up to ROWS rows of an expert. Warps have
 * such items in turn.
 *
 * experts_down: a warp computes an output feature of a token, with all the token's experts, so nothing has to be added
 * later. Tokens that have an expert in common read its matrix at about the same time, and the second from the L2 cache.
 */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/experts/few_experts.cuh"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/state.cuh"
#include "kernels/cuda/warp.cuh"

enum {
    WARPS = FEW_EXPERTS_WARPS,
    PLACES = 2,        /* blocks on a multiprocessor */
    ROWS = 4,          /* of an expert at once */
    PIECE = 8,         /* elements of 16 bytes */
    STEP = 32 * PIECE, /* elements that a warp loads of a row at once */
    AT_ONCE = 8,       /* loads under way, of each of two rows */
};

/* sum += the products of eight elements. */
template <class T> static __device__ __forceinline__ void add_products(float &sum, const uint4 &a, const uint4 &b)
{
    const T *x = (const T *)&a, *y = (const T *)&b;
#pragma unroll
    for (int i = 0; i < PIECE; i++) sum += to_float(x[i]) * to_float(y[i]);
}

/* ---- gate and up ---- */

struct gate_up_call {
    gated_rows to;
    const void *x, *weights;
    int32_t num_rows, num_experts, in_features;
};

/* The products of a gate's and an up's row of weights with `count` rows of x, each of a lane's own pieces. */
template <class T>
static __device__ __forceinline__ void multiply_pair(float (&gates)[ROWS], float (&ups)[ROWS], const T *gate,
                                                     const T *up, const T *const (&x)[ROWS], int count, int in_features)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int first = lane * PIECE; first < in_features; first += AT_ONCE * STEP) {
        uint4 g[AT_ONCE], u[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const bool there = first + k * STEP < in_features;
            g[k] = there ? load_once(gate + first + k * STEP) : uint4{};
            u[k] = there ? load_once(up + first + k * STEP) : uint4{};
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r >= count || first + k * STEP >= in_features) continue;
                const uint4 in = *(const uint4 *)(x[r] + first + k * STEP);
                add_products<T>(gates[r], g[k], in);
                add_products<T>(ups[r], u[k], in);
            }
    }
}

/* Lane r finishes row r. */
template <class T>
static __device__ __forceinline__ void finish_pairs(const gate_up_call &call, const expert_rows &rows, int feature,
                                                    const float (&gates)[ROWS], const float (&ups)[ROWS])
{
    const int lane = threadIdx.x % 32;
    float gate = 0, up = 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float g = warp_sum(gates[r]), u = warp_sum(ups[r]);
        if (lane == r) gate = g, up = u;
    }
    if (lane < rows.count) finish_pair<T>(call.to, rows.expert, rows.first + lane, feature, gate, up);
}

/* Item i is pair i % pairs of the rows that row i / pairs leads. */
template <class T>
static __global__ void __launch_bounds__(WARPS * 32, PLACES) gate_up_kernel(const __grid_constant__ gate_up_call call)
{
    const int items = call.num_rows * call.to.pairs, in = call.in_features;
    let_next_start();
    wait_for_previous();
    for (int item = blockIdx.x * WARPS + threadIdx.x / 32; item < items; item += gridDim.x * WARPS) {
        const int feature = item % call.to.pairs;
        const expert_rows rows = rows_led_by<ROWS>(call.to.plan.starts, call.num_experts, item / call.to.pairs);
        if (rows.count == 0) continue;
        const T *gate = (const T *)call.weights + ((int64_t)rows.expert * 2 * call.to.pairs + feature) * in;
        const T *x[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            x[r] = (const T *)call.x + (int64_t)call.to.plan.tokens[rows.first + min(r, rows.count - 1)] * in;
        float gates[ROWS] = {}, ups[ROWS] = {};
        multiply_pair(gates, ups, gate, gate + (int64_t)call.to.pairs * in, x, rows.count, in);
        finish_pairs<T>(call, rows, feature, gates, ups);
    }
}

/* ---- down ---- */

struct down_call {
    void *out;
    const void *x, *weights, *bias, *base;
    const float *base_gate;
    expert_plan plan;
    int32_t num_tokens, num_experts, top_k, size, out_features;
    bool weights_first;
};

/* What lane j < top_k has of the token's expert j. row -1: that is not here. */
struct token_expert {
    int row, expert;
    float weight;
};

static __device__ __forceinline__ token_expert find_expert(const down_call &call, int token)
{
    const int lane = threadIdx.x % 32, at = token * call.top_k + lane;
    token_expert own = {0, 0, 0};
    if (lane < call.top_k) {
        own.row = call.plan.rows[at];
        own.weight = call.weights_first ? 1.0f : call.plan.weights[at];
    }
    for (int first = 0; first <= call.num_experts; first += 32) {
        const int i = first + lane, start = i <= call.num_experts ? call.plan.starts[i] : 0x7fffffff;
        for (int j = 0; j < call.top_k; j++) {
            const int before = __popc(__ballot_sync(~0u, start <= __shfl_sync(~0u, own.row, j)));
            if (lane == j) own.expert += before;
        }
    }
    own.expert--;
    return own;
}

/* The sum over a lane's pieces of all the token's experts, times their weights. AT_ONCE pieces are loaded at once;
 * those of an expert follow each other. */
template <class T>
static __device__ __forceinline__ float multiply_experts(const down_call &call, const token_expert &own, int feature)
{
    const int lane = threadIdx.x % 32, steps = (call.size + STEP - 1) / STEP, pieces = call.top_k * steps;
    float sum = 0;
#pragma unroll 1
    for (int first = 0; first < pieces; first += AT_ONCE) {
        uint4 w[AT_ONCE], x[AT_ONCE];
        float weights[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int j = min((first + k) / steps, call.top_k - 1), i = (first + k) % steps * STEP + lane * PIECE;
            const int expert = __shfl_sync(~0u, own.expert, j), row = __shfl_sync(~0u, own.row, j);
            const bool there = first + k < pieces && i < call.size && row >= 0;
            weights[k] = __shfl_sync(~0u, own.weight, j);
            w[k] = x[k] = uint4{};
            if (!there) continue;
            w[k] = load_once((const T *)call.weights + ((int64_t)expert * call.out_features + feature) * call.size + i);
            x[k] = *(const uint4 *)((const T *)call.x + (int64_t)row * call.size + i);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            float part = 0;
            add_products<T>(part, w[k], x[k]);
            sum += weights[k] * part;
        }
    }
    return sum;
}

template <class T>
static __device__ __forceinline__ float bias_of_experts(const down_call &call, const token_expert &own, int feature)
{
    const T *bias = (const T *)call.bias;
    const bool there = bias && (int)(threadIdx.x % 32) < call.top_k && own.row >= 0;
    return there ? own.weight * to_float(bias[(int64_t)own.expert * call.out_features + feature]) : 0.0f;
}

/* Item i is output feature i / (WARPS * num_tokens) * WARPS + i % WARPS of token i / WARPS % num_tokens. */
template <class T>
static __global__ void __launch_bounds__(WARPS * 32, PLACES) down_kernel(const __grid_constant__ down_call call)
{
    const int warp = threadIdx.x / 32, groups = (call.out_features + WARPS - 1) / WARPS * call.num_tokens;
    let_next_start();
    wait_for_previous();
    for (int group = blockIdx.x; group < groups; group += gridDim.x) {
        const int token = group % call.num_tokens, feature = group / call.num_tokens * WARPS + warp;
        if (feature >= call.out_features) continue;
        const token_expert own = find_expert(call, token);
        const int64_t at = (int64_t)token * call.out_features + feature;
        float sum = warp_sum(multiply_experts<T>(call, own, feature) + bias_of_experts<T>(call, own, feature));
        if (threadIdx.x % 32 != 0) continue;
        if (call.base) sum += to_float(((const T *)call.base)[at]) * (call.base_gate ? call.base_gate[token] : 1.0f);
        ((T *)call.out)[at] = from_float<T>(sum);
    }
}

/* ---- the host's side ---- */

/* Floats of x's type, in rows of whole pieces; on Hopper few_experts_mma.cu and linear_wgmma are faster. */
static bool takes(struct backend *b, const struct weight *w, enum dtype dtype, int32_t num_tokens, int32_t top_k,
                  const void *x)
{
    return !cuda_state(b)->has_wgmma && num_tokens <= FEW_EXPERTS_MAX_TOKENS && top_k <= FEW_EXPERTS_MAX_TOP_K &&
           (dtype == DTYPE_BFLOAT16 || dtype == DTYPE_FLOAT16) && w->format == weight_format_of(dtype) &&
           (!w->bias || w->bias_dtype == dtype) && w->in_features % PIECE == 0 &&
           w->in_features < INT32_MAX / FEW_EXPERTS_MAX_TOKENS / FEW_EXPERTS_MAX_TOP_K && cuda_is_aligned(w->data) &&
           cuda_is_aligned(x);
}

bool few_experts_gate_up(struct backend *b, const struct experts_gate_up_args *args)
{
    const struct weight *w = args->gate_up.weights;
    const int32_t rows = args->num_tokens * args->top_k;
    if (!takes(b, w, args->dtype, args->num_tokens, args->top_k, args->x) || w->out_features % 2) return false;
    const struct cuda_state *s = cuda_use(b);
    const gate_up_call call = {gated_rows_of(args), args->x, w->data, rows, args->num_experts, (int32_t)w->in_features};
    const cuda_launch launch = few_experts_launch(s, PLACES, cuda_div_up(rows * w->out_features / 2, WARPS));
    cuda_launch_dependent(s, args->dtype == DTYPE_FLOAT16 ? gate_up_kernel<__half> : gate_up_kernel<__nv_bfloat16>,
                          launch, call);
    cuda_check_launch(b, "experts_gate_up");
    return true;
}

bool few_experts_down(struct backend *b, const struct experts_down_args *args)
{
    const struct weight *w = args->down.weights;
    if (!takes(b, w, args->dtype, args->num_tokens, args->top_k, args->x)) return false;
    const struct cuda_state *s = cuda_use(b);
    const down_call call = {args->out,          args->x,         w->data,    w->bias,
                            args->base,         args->base_gate, args->plan, args->num_tokens,
                            args->num_experts,  args->top_k,     args->size, (int32_t)w->out_features,
                            args->weights_first};
    const cuda_launch launch = few_experts_launch(s, PLACES, cuda_div_up(w->out_features, WARPS) * args->num_tokens);
    cuda_launch_dependent(s, args->dtype == DTYPE_FLOAT16 ? down_kernel<__half> : down_kernel<__nv_bfloat16>, launch,
                          call);
    cuda_check_launch(b, "experts_down");
    return true;
}
