/* A few channels of a short convolution, in a thread's registers. */
#ifndef QUIRE_KERNELS_CUDA_RECURRENCE_SHORT_CONV_CUH
#define QUIRE_KERNELS_CUDA_RECURRENCE_SHORT_CONV_CUH

#include "kernels/cuda/recurrence/batch.cuh"

enum { CONV_ANY_WIDTH = 16 }; /* of kernels that take all widths up to that */

template <class T, int N> static inline bool conv_input_is_aligned(const void *x)
{
    return (uintptr_t)x % (N * sizeof(T)) == 0;
}

/* A token's elements of the channels. */
template <class T, int N> struct conv_inputs {
    piece<T, N> x, input_gate, output_gate;
};

template <class T, int N>
static __device__ __forceinline__ piece<T, N> load_conv_row(const void *rows, const struct short_conv_args &args,
                                                            int32_t first, int64_t token)
{
    return *(const piece<T, N> *)((const T *)rows + token * args.x_stride + first);
}

template <class T, int N>
static __device__ __forceinline__ conv_inputs<T, N> load_conv_inputs(const struct short_conv_args &args, int32_t first,
                                                                     int64_t token)
{
    conv_inputs<T, N> in;
    in.x = load_conv_row<T, N>(args.x, args, first, token);
    if (args.input_gate) in.input_gate = load_conv_row<T, N>(args.input_gate, args, first, token);
    if (args.output_gate) in.output_gate = load_conv_row<T, N>(args.output_gate, args, first, token);
    return in;
}

template <class T> static __device__ __forceinline__ float silu(float x)
{
    return x / (1 + exponential<T>(-x));
}

/* Channels `first` .. first + N - 1. WIDTH is the width, or CONV_ANY_WIDTH: then the oldest weights and tokens of the
 * window are zero. */
template <class T, int N, int WIDTH> struct conv_channels {
    float weights[N][WIDTH], bias[N], window[N][WIDTH - 1]; /* the oldest first */

    __device__ __forceinline__ void load_weights(const struct short_conv_args &args, int32_t first)
    {
        const int width = WIDTH == CONV_ANY_WIDTH ? args.width : WIDTH;
        const T *from = (const T *)args.weight + (int64_t)first * width;
#pragma unroll
        for (int c = 0; c < N; c++) {
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                const int from_end = WIDTH - j;
                weights[c][j] = from_end <= width ? to_float(from[c * width + width - from_end]) : 0;
            }
            bias[c] = args.bias ? to_float(((const T *)args.bias)[first + c]) : 0;
        }
    }

    __device__ __forceinline__ void load_state(const struct short_conv_args &args, int32_t first, int32_t slot)
    {
        const int last = (WIDTH == CONV_ANY_WIDTH ? args.width : WIDTH) - 1;
        const float *from = args.states + slot * args.state_stride + (int64_t)first * last;
#pragma unroll
        for (int c = 0; c < N; c++)
#pragma unroll
            for (int j = 0; j < WIDTH - 1; j++) {
                const int from_end = WIDTH - 1 - j;
                window[c][j] = slot != STATE_SLOT_NONE && from_end <= last ? from[c * last + last - from_end] : 0;
            }
    }

    __device__ __forceinline__ void store_state(const struct short_conv_args &args, int32_t first, int32_t slot) const
    {
        const int last = (WIDTH == CONV_ANY_WIDTH ? args.width : WIDTH) - 1;
        float *to = args.states + slot * args.state_stride + (int64_t)first * last;
        if (slot == STATE_SLOT_NONE) return;
#pragma unroll
        for (int c = 0; c < N; c++)
#pragma unroll
            for (int j = 0; j < WIDTH - 1; j++) {
                const int from_end = WIDTH - 1 - j;
                if (from_end <= last) to[c * last + last - from_end] = window[c][j];
            }
    }

    static __device__ __forceinline__ float input(const struct short_conv_args &args, const conv_inputs<T, N> &in,
                                                  int c)
    {
        const float x = to_float(in.x.values[c]);
        return args.input_gate ? to_float(from_float<T>(x * to_float(in.input_gate.values[c]))) : x;
    }

    /* u becomes the newest token of the window of channel c. */
    __device__ __forceinline__ void push(int c, float u)
    {
#pragma unroll
        for (int j = 0; j + 1 < WIDTH - 1; j++) window[c][j] = window[c][j + 1];
        window[c][WIDTH - 2] = u;
    }

    /* What the convolution is before its output gate, of all channels. */
    __device__ __forceinline__ void step(const struct short_conv_args &args, const conv_inputs<T, N> &in, float out[N])
    {
#pragma unroll
        for (int c = 0; c < N; c++) {
            const float u = input(args, in, c);
            float y = bias[c];
#pragma unroll
            for (int j = 0; j < WIDTH - 1; j++) y += weights[c][j] * window[c][j];
            y += weights[c][WIDTH - 1] * u;
            push(c, u);
            out[c] = args.silu ? silu<T>(y) : y;
        }
    }

    __device__ __forceinline__ void token(const struct short_conv_args &args, int32_t first, int64_t token,
                                          const conv_inputs<T, N> &in)
    {
        float y[N];
        piece<T, N> out;
        step(args, in, y);
#pragma unroll
        for (int c = 0; c < N; c++)
            out.values[c] = from_float<T>(args.output_gate ? y[c] * to_float(in.output_gate.values[c]) : y[c]);
        *(piece<T, N> *)((T *)args.out + token * args.channels + first) = out;
    }

    /* The window after the tokens [start, end). */
    __device__ __forceinline__ void advance(const struct short_conv_args &args, int32_t first, int32_t start,
                                            int32_t end)
    {
        const int last = (WIDTH == CONV_ANY_WIDTH ? args.width : WIDTH) - 1;
        for (int32_t t = end - last > start ? end - last : start; t < end; t++) {
            const conv_inputs<T, N> in = load_conv_inputs<T, N>(args, first, t);
#pragma unroll
            for (int c = 0; c < N; c++) push(c, input(args, in, c));
        }
    }

    /* The window before a token which has at least as many before it in its entry. */
    __device__ __forceinline__ void load_window(const struct short_conv_args &args, int32_t first, int32_t token)
    {
#pragma unroll
        for (int c = 0; c < N; c++)
#pragma unroll
            for (int j = 0; j < WIDTH - 1; j++) window[c][j] = 0;
        advance(args, first, token - (WIDTH - 1), token);
    }
};

#endif
