/* What happens to a head of query or key in registers: the norm over the head (QK norm) and rotary position embedding
 * (Su et al., RoFormer, 2021). rotary_embedding and decode_attention use the same functions on the same split of a head
 * between lanes, so that they compute the same bits. */
#ifndef QUIRE_KERNELS_CUDA_ROTARY_CUH
#define QUIRE_KERNELS_CUDA_ROTARY_CUH

#include "kernels/cuda/gains.cuh"

/* Rotates the pairs (left[j], right[j]), each by its own angle. */
template <class T, int N>
static __device__ __forceinline__ void rotate(piece<T, N> &left, piece<T, N> &right, const float *cos, const float *sin)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float l = to_float(left.values[j]), r = to_float(right.values[j]);
        left.values[j] = from_float<T>(fmaf(l, cos[j], -(r * sin[j])));
        right.values[j] = from_float<T>(fmaf(r, cos[j], l * sin[j]));
    }
}

/* Rotates the pairs (x[2 j], x[2 j + 1]), where x is left followed by right. */
template <class T, int N>
static __device__ __forceinline__ void rotate_neighbours(piece<T, N> &left, piece<T, N> &right, const float *cos,
                                                         const float *sin)
{
    piece<T, N> first, second;
#pragma unroll
    for (int j = 0; j < 2 * N; j++)
        (j % 2 ? second : first).values[j / 2] = j < N ? left.values[j] : right.values[j - N];
    rotate(first, second, cos, sin);
#pragma unroll
    for (int j = 0; j < 2 * N; j++)
        (j < N ? left.values[j] : right.values[j - N]) = (j % 2 ? second : first).values[j / 2];
}

/* Rotates the N pairs of two pieces that belong together. */
template <class T, int N>
static __device__ __forceinline__ void rotate_pieces(piece<T, N> &left, piece<T, N> &right, const float *cos,
                                                     const float *sin, bool interleaved)
{
    if (interleaved) {
        rotate_neighbours(left, right, cos, sin);
    } else {
        rotate(left, right, cos, sin);
    }
}

/* Elements i .. i + N - 1 of a head after the rotation of 2 * half elements, which x has before it. i and half are
 * multiples of N, which is 1 or even. */
template <class T, int N>
static __device__ __forceinline__ piece<T, N> rotated_piece(const T *x, int i, int half, const float *cos,
                                                            const float *sin, bool interleaved)
{
    const bool second = !interleaved && i >= half;
    const int first_pair = interleaved ? i / 2 : second ? i - half : i;
    const int partner = interleaved ? (N == 1 ? i ^ 1 : i) : second ? i - half : i + half;
    const piece<T, N> own = *(const piece<T, N> *)(x + i), other = *(const piece<T, N> *)(x + partner);
    piece<T, N> out;
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int pair = first_pair + (interleaved ? j / 2 : j);
        const bool is_right = second || (interleaved && (i + j) % 2);
        const float beside = to_float(other.values[interleaved ? (j ^ 1) % N : j]) * sin[pair];
        out.values[j] = from_float<T>(fmaf(to_float(own.values[j]), cos[pair], is_right ? beside : -beside));
    }
    return out;
}

/* How the pieces of a head, of N elements each, are shared out between lanes: i gets pieces left(i) and right(i), which
 * are the elements of N pairs if i < rotated. right(i) may be `pieces`: there is none. */
struct head_split {
    int pieces, rotated; /* head_size / N, rotary_dim / 2 / N */
    bool interleaved;

    __device__ __forceinline__ int count() const { return (pieces + 1) / 2; }
    __device__ __forceinline__ int left(int i) const { return interleaved ? 2 * i : i < rotated ? i : rotated + i; }
    __device__ __forceinline__ int right(int i) const
    {
        return interleaved ? 2 * i + 1 : i < rotated ? rotated + i : count() + i;
    }
};

/* sum + x[0]^2 + x[1]^2 + ..., added up in this order. */
template <class T, int N> static __device__ __forceinline__ float add_squares(float sum, const piece<T, N> &x)
{
#pragma unroll
    for (int j = 0; j < N; j++) sum = fmaf(to_float(x.values[j]), to_float(x.values[j]), sum);
    return sum;
}

/* The sum over `lanes` neighbouring lanes, a power of two, that share a head; sum is this lane's. All lanes of the warp
 * must call it. */
static __device__ __forceinline__ float head_sum(float sum, int lanes)
{
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    return sum;
}

/* 1 / sqrt(mean(x^2) + eps) of such a head. */
static __device__ __forceinline__ float head_norm_factor(float sum, int lanes, int head_size, float eps)
{
    return rsqrtf(head_sum(sum, lanes) / (float)head_size + eps);
}

#endif
