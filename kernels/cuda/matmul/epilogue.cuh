/* The epilogue of a matmul: what becomes of its sums. All kernels of this folder that multiply end with it, but for
 * linear_mixed, whose types may be any.
 *
 *     y   = round(sum + bias)                  to the type of out
 *     out = y                                  MATMUL_STORE
 *     out = round(out + y)                     MATMUL_ADD
 *     out = round(gate(gate, up))              MATMUL_GATE: gate and up are both such a y
 *     out = round(activation(y))               MATMUL_ACTIVATE
 *
 * A sum is complete: the kernel has added its parts, and multiplied it by scales that belong to a whole row of the
 * weight or to a token. T is the type of the matmul (struct matmul: dtype), Out that of out, which is float instead of
 * T only with MATMUL_STORE.
 *
 * A thread has N neighbouring elements of a row of out at a time, and does this:
 *
 *     load_biases          any time, also before the previous kernel has ended
 *     load_before          once the previous kernel has ended, and before the sums are there, so that they do not wait
 *     finish_sums, finish_gated      with the sums, each as often as there are tokens
 *
 * Nothing that is loaded is converted before a finish, because that would wait for the load. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_EPILOGUE_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_EPILOGUE_CUH

#include <type_traits>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/matmul/matmul.h"

/* Neighbouring elements of a row of out. */
template <class Out> struct out_run {
    Out *to;     /* the first */
    int count;   /* how many of the N of a thread exist */
    bool as_one; /* all N exist, and lie so that one access can move them */
};

/* The biases of N output features, zeros where there are none; with MATMUL_GATE those of N gates and of their ups. */
template <class T, int N> struct biases {
    piece<T, N> own, up;
};

template <class T, int N> static __device__ __forceinline__ piece<T, N> load_run(const out_run<const T> &run)
{
    piece<T, N> x = {};
    if (run.as_one) return *(const piece<T, N> *)run.to;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < run.count) x.values[i] = run.to[i];
    return x;
}

template <class T, int N>
static __device__ __forceinline__ void store_run(const out_run<T> &run, const piece<T, N> &values)
{
    if (run.as_one) {
        *(piece<T, N> *)run.to = values;
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < run.count) run.to[i] = values.values[i];
}

/* Loads the biases of N output features from `feature` on, of which `count` exist. With MATMUL_GATE `feature` is one of
 * the gates. */
template <class T, int N>
static __device__ __forceinline__ biases<T, N> load_biases(const matmul &m, int64_t feature, int count)
{
    const out_run<const T> own = {(const T *)m.bias + feature, count, false};
    biases<T, N> out = {};
    if (!m.bias) return out;
    out.own = load_run<T, N>(own);
    if (m.result == MATMUL_GATE) out.up = load_run<T, N>({own.to + m.out_features / 2, count, false});
    return out;
}

/* Loads what MATMUL_ADD adds to. Other results need nothing. */
template <class T, int N, class Out>
static __device__ __forceinline__ piece<T, N> load_before(const matmul &m, const out_run<Out> &run)
{
    if constexpr (std::is_same_v<T, Out>)
        if (m.result == MATMUL_ADD) return load_run<T, N>({run.to, run.count, run.as_one});
    return {};
}

/* ---- the three steps ---- */

template <class Out, class T, int N>
static __device__ __forceinline__ piece<Out, N> round_sums(const piece<float, N> &sums, const piece<T, N> &bias)
{
    piece<Out, N> y;
#pragma unroll
    for (int i = 0; i < N; i++) y.values[i] = from_float<Out>(sums.values[i] + to_float(bias.values[i]));
    return y;
}

/* Sums that have been rounded already, with their bias, stay as they are. */
template <class T, int N>
static __device__ __forceinline__ piece<T, N> round_sums(const piece<T, N> &y, const piece<T, N> &)
{
    return y;
}

template <class T, int N>
static __device__ __forceinline__ piece<T, N> add_rounded(const piece<T, N> &before, const piece<T, N> &y)
{
    piece<T, N> out;
#pragma unroll
    for (int i = 0; i < N; i++) out.values[i] = from_float<T>(to_float(before.values[i]) + to_float(y.values[i]));
    return out;
}

/* One loop, behind a call: most matmuls have no activation. */
template <class T, int N>
static __device__ __noinline__ piece<T, N> activate_rounded(enum activation activation, const piece<T, N> y)
{
    piece<T, N> out;
#pragma unroll
    for (int i = 0; i < N; i++) out.values[i] = from_float<T>(activate_plain<T>(activation, to_float(y.values[i])));
    return out;
}

/* Gates with a limit, or of a kind of their own. */
template <class T, int N>
static __device__ __noinline__ piece<T, N> gate_rounded_special(const gate_params params, const piece<T, N> gate,
                                                                const piece<T, N> up)
{
    piece<T, N> out;
#pragma unroll
    for (int i = 0; i < N; i++)
        out.values[i] = from_float<T>(gate_value<T>(params, to_float(gate.values[i]), to_float(up.values[i])));
    return out;
}

/* The exact GELU is long and behind a branch. One branch for all elements, not one for each, lets the compiler compute
 * those of another activation side by side. */
template <class T, int N>
static __device__ __forceinline__ piece<T, N> gate_rounded(const gate_params &params, const piece<T, N> &gate,
                                                           const piece<T, N> &up)
{
    const enum activation activation = params.activation;
    auto gate_all = [&](enum activation a) {
        piece<T, N> out;
#pragma unroll
        for (int i = 0; i < N; i++)
            out.values[i] = from_float<T>(activate<T>(a, to_float(gate.values[i])) * to_float(up.values[i]));
        return out;
    };
    if (gate_is_special(params)) return gate_rounded_special<T, N>(params, gate, up);
    return N > 1 && activation == ACTIVATION_GELU ? gate_all(ACTIVATION_GELU) : gate_all(activation);
}

/* ---- all of it ---- */

/* Finishes N elements of any result but MATMUL_GATE. */
template <class T, class Out, class Y, int N>
static __device__ __forceinline__ void finish_sums(const matmul &m, const out_run<Out> &run, const piece<Y, N> &sums,
                                                   const biases<T, N> &bias, const piece<T, N> &before)
{
    piece<Out, N> y = round_sums<Out>(sums, bias.own);
    if constexpr (std::is_same_v<T, Out>) {
        if (m.result == MATMUL_ADD) y = add_rounded(before, y);
        if (m.result == MATMUL_ACTIVATE) y = activate_rounded(m.gate.activation, y);
    }
    store_run(run, y);
}

/* Finishes N elements of MATMUL_GATE. */
template <class T, class Y, int N>
static __device__ __forceinline__ void finish_gated(const matmul &m, const out_run<T> &run, const piece<Y, N> &gates,
                                                    const piece<Y, N> &ups, const biases<T, N> &bias)
{
    store_run(run, gate_rounded(m.gate, round_sums<T>(gates, bias.own), round_sums<T>(ups, bias.up)));
}

/* ---- one element ---- */

/* An element of out that a thread finishes, and what it loads for that. */
template <class T> struct out_element {
    int64_t at; /* in out */
    biases<T, 1> bias;
    piece<T, 1> before;
};

/* The element of a token and an output feature, with MATMUL_GATE one of the gates. Its `before` is not loaded yet. */
template <class T>
static __device__ __forceinline__ out_element<T> out_element_of(const matmul &m, int token, int64_t feature)
{
    return {token * m.out_stride + feature, load_biases<T, 1>(m, feature, 1), {}};
}

template <class T> static __device__ __forceinline__ void load_before(const matmul &m, out_element<T> &element)
{
    element.before = load_before<T, 1>(m, out_run<T>{(T *)m.out + element.at, 1, false});
}

/* Finishes an element of any result. sum() and up_sum() return the sums; up_sum is called only with MATMUL_GATE. */
template <class T, class Sum, class UpSum>
static __device__ __forceinline__ void finish_element(const matmul &m, const out_element<T> &element, Sum sum,
                                                      UpSum up_sum)
{
    const out_run<T> run = {(T *)m.out + element.at, 1, false};
    const piece<float, 1> y = {sum()};
    if (m.result == MATMUL_GATE) {
        finish_gated(m, run, y, piece<float, 1>{up_sum()}, element.bias);
    } else if (m.out_is_float) {
        finish_sums<T>(m, out_run<float>{(float *)m.out + element.at, 1, false}, y, element.bias, element.before);
    } else {
        finish_sums<T>(m, run, y, element.bias, element.before);
    }
}

#endif
