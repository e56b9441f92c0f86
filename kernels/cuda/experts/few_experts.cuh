/* What the kernels of experts share. */
#ifndef QUIRE_KERNELS_CUDA_EXPERTS_FEW_EXPERTS_CUH
#define QUIRE_KERNELS_CUDA_EXPERTS_FEW_EXPERTS_CUH

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/experts/few_experts.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/state.cuh"

enum {
    FEW_EXPERTS_WARPS = 8, /* of a block */
    FEW_EXPERTS_MAX_TOKENS = 16,
    FEW_EXPERTS_MAX_TOP_K = 16
};

/* Rows first .. first + count - 1 of the plan, which have the same expert. count 0: another warp has them, or the plan
 * has fewer rows. */
struct expert_rows {
    int expert, first, count;
};

/* Of the rows of an expert, row 0, MOST, 2 * MOST ... lead up to MOST rows. A row's expert is the last whose start is
 * not beyond the row. All lanes of a warp call, and load some of the starts at once. */
template <int MOST>
static __device__ __forceinline__ expert_rows rows_led_by(const int32_t *starts, int num_experts, int row)
{
    constexpr int AT_ONCE = 8;
    int before = 0, begin = 0, end = 0x7fffffff;
    for (int first = threadIdx.x % 32; first <= num_experts; first += 32 * AT_ONCE) {
        int own[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) own[k] = first + 32 * k <= num_experts ? starts[first + 32 * k] : 0x7fffffff;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            before += own[k] <= row;
            if (own[k] <= row) begin = max(begin, own[k]);
            if (own[k] > row) end = min(end, own[k]);
        }
    }
    before = __reduce_add_sync(~0u, before);
    begin = __reduce_max_sync(~0u, begin);
    end = __reduce_min_sync(~0u, end);
    return {before - 1, row, before <= num_experts && (row - begin) % MOST == 0 ? min(MOST, end - row) : 0};
}

/* The weight of a row of the plan; of what is behind its rows, 0. */
static __device__ __forceinline__ float weight_of_row(const expert_plan &plan, int row, int top_k)
{
    const int64_t first = (int64_t)plan.tokens[row] * top_k;
    int i = 0;
    if (first < 0) return 0;
    while (i < top_k - 1 && plan.rows[first + i] != row) i++;
    return plan.weights[first + i];
}

/* Where experts_gate_up puts its results, and what these need beside the sums. Output features `feature` and pairs +
 * `feature` of an expert are computed together: a gate and its up or, without gates, two features. */
struct gated_rows {
    void *out;        /* [num_rows, pairs], without gates [num_rows, 2 * pairs] */
    const void *bias; /* [num_experts, 2 * pairs], or NULL */
    expert_plan plan;
    gate_params gate;
    int32_t pairs, top_k;
    bool weights_first;
};

/* Writes the results of a row, whose expert is given, and a pair of features. */
template <class T>
static __device__ __forceinline__ void finish_pair(const gated_rows &to, int expert, int row, int feature, float first,
                                                   float second)
{
    if (to.weights_first) {
        const float weight = weight_of_row(to.plan, row, to.top_k);
        first *= weight, second *= weight;
    }
    if (to.bias) {
        const T *bias = (const T *)to.bias + (int64_t)expert * 2 * to.pairs + feature;
        first += to_float(bias[0]), second += to_float(bias[to.pairs]);
    }
    first = to_float(from_float<T>(first)), second = to_float(from_float<T>(second));
    if (to.gate.kind != GATE_NONE) {
        ((T *)to.out)[(int64_t)row * to.pairs + feature] = from_float<T>(gate_value<T>(to.gate, first, second));
        return;
    }
    T *out = (T *)to.out + (int64_t)row * 2 * to.pairs + feature;
    out[0] = from_float<T>(activate_plain<T>(to.gate.activation, first));
    out[to.pairs] = from_float<T>(activate_plain<T>(to.gate.activation, second));
}

/* 16 bytes that are read once: they need not stay in the L1 cache. */
static __device__ __forceinline__ uint4 load_once(const void *p)
{
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
}

static inline gated_rows gated_rows_of(const struct experts_gate_up_args *args)
{
    const struct weight *w = args->gate_up.weights;
    return {args->out,          w->bias, args->plan, args->gate, (int32_t)(w->out_features / 2), args->top_k,
            args->weights_first};
}

/* So many blocks, at most as many as fit on the device, `places` on a multiprocessor. */
static inline cuda_launch few_experts_launch(const struct cuda_state *s, int64_t places, int64_t blocks)
{
    const int64_t most = places * s->num_sms;
    return {dim3((unsigned)(blocks < most ? blocks : most)), FEW_EXPERTS_WARPS * 32};
}

#endif
