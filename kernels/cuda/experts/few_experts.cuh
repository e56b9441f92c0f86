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

/* Rows first .. first + count - 1 of the plan, which have the same expert. count 0: another warp has them. */
struct expert_rows {
    int expert, first, count;
};

/* Of the rows of an expert, row 0, MOST, 2 * MOST ... lead up to MOST rows. A row's expert is the last whose start is
 * not beyond the row. All lanes of a warp call, and load some of the starts at once. */
template <int MOST>
static __device__ __forceinline__ expert_rows rows_led_by(const int32_t *starts, int num_experts, int row)
{
    int before = 0, begin = 0, end = 0x7fffffff;
    for (int i = threadIdx.x % 32; i <= num_experts; i += 32) {
        const int start = starts[i];
        if (start <= row) {
            before++;
            begin = max(begin, start);
        } else {
            end = min(end, start);
        }
    }
    before = __reduce_add_sync(~0u, before);
    begin = __reduce_max_sync(~0u, begin);
    end = __reduce_min_sync(~0u, end);
    return {before - 1, row, (row - begin) % MOST == 0 ? min(MOST, end - row) : 0};
}

/* The weight of a row of the plan. */
static __device__ __forceinline__ float weight_of_row(const expert_plan &plan, int row, int top_k)
{
    const int64_t first = (int64_t)plan.tokens[row] * top_k;
    int i = 0;
    while (i < top_k - 1 && plan.rows[first + i] != row) i++;
    return plan.weights[first + i];
}

/* Where experts_gate_up puts its results, and what these need beside the sums. */
struct gated_rows {
    void *out;        /* [num_rows, size] */
    const void *bias; /* [num_experts, 2 * size], or NULL */
    expert_plan plan;
    gate_params gate;
    int32_t size, top_k;
    bool weights_first;
};

/* Writes the result of a row, whose expert is given, and a feature. */
template <class T>
static __device__ __forceinline__ void finish_gate(const gated_rows &to, int expert, int row, int feature, float gate,
                                                   float up)
{
    if (to.weights_first) {
        const float weight = weight_of_row(to.plan, row, to.top_k);
        gate *= weight, up *= weight;
    }
    if (to.bias) {
        const T *bias = (const T *)to.bias + (int64_t)expert * 2 * to.size + feature;
        gate += to_float(bias[0]), up += to_float(bias[to.size]);
    }
    const T g = from_float<T>(gate), u = from_float<T>(up);
    ((T *)to.out)[(int64_t)row * to.size + feature] = from_float<T>(gate_value<T>(to.gate, to_float(g), to_float(u)));
}

/* What the gate of the base multiplies it by. */
static __device__ __forceinline__ float gate_factor(float x)
{
    return 1 / (1 + __expf(-x));
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
    return {args->out,   args->gate_up.weights->bias, args->plan, args->gate, args->size,
            args->top_k, args->weights_first};
}

/* So many blocks, at most as many as fit on the device, `places` on a multiprocessor. */
static inline cuda_launch few_experts_launch(const struct cuda_state *s, int64_t places, int64_t blocks)
{
    const int64_t most = places * s->num_sms;
    return {dim3((unsigned)(blocks < most ? blocks : most)), FEW_EXPERTS_WARPS * 32};
}

#endif
