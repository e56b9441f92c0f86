/* x of few_experts_mma.cu for FP8 weights: rows of float16 in shared memory, a warp's.
 *
 * A float16 is taken as it is. A bfloat16 is divided by a power of two of its row, which takes the largest element of
 * what is there to 2^15 or more. float16 has more significant bits, so this is exact, but for elements that are 2^29
 * times smaller than that largest one, of which up to 2^-30 of that is lost.
 *
 * There is room for 16 quads (of 64 input features) of one row, 8 of two, and so on. Each quarter of that is 32 pieces
 * of 8 elements, one of each lane, so that a warp loads all of them at once. Behind each row is room that puts the next
 * one into other banks. */
#ifndef QUIRE_KERNELS_CUDA_EXPERTS_FEW_EXPERTS_X_CUH
#define QUIRE_KERNELS_CUDA_EXPERTS_FEW_EXPERTS_X_CUH

#include <type_traits>

#include "kernels/cuda/state.cuh"

enum {
    FEW_EXPERTS_X_ROWS = 8, /* at most */
    HALF_ROW_PIECES = 8,    /* of a quad */
    HALF_ROWS_PIECES = 128, /* of all rows */
    HALF_ROWS_AT_ONCE = HALF_ROWS_PIECES / 32,
    HALF_LARGEST = 30 /* the exponent, with its bias, of a float16 of 2^15 or more */
};

/* A lane's row of x. Lanes beyond `count` read the last one, and their results are not used. */
template <class T> struct rows_of_x {
    const T *rows;
    int32_t own; /* the elements before it */
    int count;
};

struct half_rows {
    uint4 pieces[HALF_ROWS_PIECES + FEW_EXPERTS_X_ROWS];
    float scales[FEW_EXPERTS_X_ROWS];
};

/* Quads of so many rows that there is room for, as a power of two. */
static __device__ __forceinline__ int half_rows_log2(int rows)
{
    return rows == 1 ? 4 : rows == 2 ? 3 : rows <= 4 ? 2 : 1;
}
static __device__ __forceinline__ int half_rows_quads(int rows)
{
    return 1 << half_rows_log2(rows);
}

/* The largest, of each row, of the sizes of all bfloat16 of a lane's pieces: in each half of a word those of a piece.
 */
static __device__ __forceinline__ void find_largest(uint32_t (&largest)[HALF_ROWS_AT_ONCE / 2],
                                                    const uint4 (&words)[HALF_ROWS_AT_ONCE], int pieces)
{
    constexpr uint32_t SIZE = 0x7fff7fff;
#pragma unroll
    for (int k = 0; k < HALF_ROWS_AT_ONCE / 2; k++) {
        uint32_t two[2];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const uint4 &w = words[2 * k + n];
            two[n] = __vimax3_s16x2(__vimax3_s16x2(w.x & SIZE, w.y & SIZE, w.z & SIZE), w.w & SIZE, 0);
        }
        largest[k] = __vmaxs2(__byte_perm(two[0], two[1], 0x5410), __byte_perm(two[0], two[1], 0x7632));
    }
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        if (offset >= pieces) break;
#pragma unroll
        for (int k = 0; k < HALF_ROWS_AT_ONCE / 2; k++)
            largest[k] = __vmaxs2(largest[k], __shfl_xor_sync(~0u, largest[k], offset));
    }
    if (pieces > 32)
#pragma unroll
        for (int k = 0; k < HALF_ROWS_AT_ONCE / 2; k++)
            largest[k] = __vmaxs2(largest[k], __byte_perm(largest[k], 0, 0x1032));
    if (pieces > 64) largest[0] = largest[1] = __vmaxs2(largest[0], largest[1]);
}

/* Eight bfloat16 as float16, where a bfloat16 with this exponent becomes one of HALF_LARGEST. */
static __device__ __forceinline__ uint4 to_halves(uint4 words, uint32_t exponent)
{
    const uint32_t minus = ((HALF_LARGEST - exponent) << 7 & 0xffff) * 0x10001;
    uint32_t *w = (uint32_t *)&words;
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = __viaddmax_s16x2(w[i] & 0x7fff7fff, minus, 0) << 3 | (w[i] & 0x80008000);
    return words;
}

/* By what the elements were divided: NaN if the largest one is NaN or an infinity. */
static __device__ __forceinline__ float half_scale(uint32_t exponent)
{
    return __uint_as_float(exponent == 255 ? 0x7fc00000 : (exponent - 15) << 23);
}

/* Makes the rows from quads [first, first + quads) of x, where quads <= half_rows_quads. All lanes call. */
template <class T>
static __device__ __forceinline__ void make_half_rows(half_rows &to, const rows_of_x<T> &x, int first, int quads)
{
    const int lane = threadIdx.x % 32, shift = half_rows_log2(x.count) + 3, pieces = 1 << shift;
    uint4 words[HALF_ROWS_AT_ONCE];
    uint32_t largest[HALF_ROWS_AT_ONCE / 2];
#pragma unroll
    for (int k = 0; k < HALF_ROWS_AT_ONCE; k++) {
        const int row = (32 * k + lane) >> shift, piece = (32 * k + lane) & (pieces - 1);
        const T *from = x.rows + __shfl_sync(~0u, x.own, 4 * row);
        words[k] = make_uint4(0, 0, 0, 0);
        if (row < x.count && piece < HALF_ROW_PIECES * quads)
            words[k] = ((const uint4 *)from)[HALF_ROW_PIECES * first + piece];
    }
    if (!std::is_same_v<T, __half>) find_largest(largest, words, pieces);
    __syncwarp(); /* no lane reads the rows before */
#pragma unroll
    for (int k = 0; k < HALF_ROWS_AT_ONCE; k++) {
        const int row = (32 * k + lane) >> shift, piece = (32 * k + lane) & (pieces - 1);
        if (((32 * k) >> shift) >= x.count || ((32 * k) & (pieces - 1)) >= HALF_ROW_PIECES * quads) continue;
        if (!std::is_same_v<T, __half>) {
            const uint32_t exponent = max(largest[k / 2] >> (k % 2 * 16 + 7) & 0xff, (uint32_t)HALF_LARGEST);
            words[k] = to_halves(words[k], exponent);
            if (piece == 0) to.scales[row] = half_scale(exponent);
        }
        to.pieces[row * (pieces + 1) + piece] = words[k];
    }
}

/* The float16 of a row. */
static __device__ __forceinline__ const uint8_t *half_row(const half_rows &rows, int row, int count)
{
    return (const uint8_t *)(rows.pieces + row * ((HALF_ROW_PIECES << half_rows_log2(count)) + 1));
}

/* What the mma's sums of a lane, by its row `n` of two of x, are multiplied by. */
template <class T> static __device__ __forceinline__ float half_row_scale(const half_rows &rows, int n, int count)
{
    return std::is_same_v<T, __half> ? 1.0f : rows.scales[min(2 * (int)(threadIdx.x % 4) + n, count - 1)];
}

#endif
