/* Matrix products of types that are not all alike (float32 activations with bfloat16 weights, say), for which cuBLAS
 * has nothing: converted on the way into shared memory, multiplied in float32. A way out, not a fast one. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum {
    TILE = 64,  /* tokens and weight rows of a block */
    DEPTH = 16, /* columns at a time */
    SIDE = 16,  /* threads of a block are SIDE x SIDE */
    EACH = 4,   /* of both, for a thread */
    PADDED = TILE + 1
};

static __device__ __forceinline__ float load(const void *data, enum dtype dtype, int64_t i)
{
    if (dtype == DTYPE_FLOAT32) return ((const float *)data)[i];
    if (dtype == DTYPE_FLOAT16) return __half2float(((const __half *)data)[i]);
    return __bfloat162float(((const __nv_bfloat16 *)data)[i]);
}

static __device__ __forceinline__ void store(void *data, enum dtype dtype, int64_t i, float value)
{
    if (dtype == DTYPE_FLOAT32)
        ((float *)data)[i] = value;
    else if (dtype == DTYPE_FLOAT16)
        ((__half *)data)[i] = __float2half_rn(value);
    else
        ((__nv_bfloat16 *)data)[i] = __float2bfloat16_rn(value);
}

/* tile[c][r] = matrix[first + r][column + c], 0 outside. */
static __device__ __forceinline__ void load_tile(float tile[DEPTH][PADDED], const void *matrix, enum dtype dtype,
                                                 int64_t stride, int64_t first, int64_t rows, int64_t column,
                                                 int64_t columns)
{
    const int c = threadIdx.x % DEPTH;
    for (int r = threadIdx.x / DEPTH; r < TILE; r += SIDE * SIDE / DEPTH)
        tile[c][r] =
            first + r < rows && column + c < columns ? load(matrix, dtype, (first + r) * stride + column + c) : 0.0f;
}

/* Grid: x the tile of weight rows, y the tile of tokens. */
static __global__ void __launch_bounds__(SIDE *SIDE)
    linear_mixed_kernel(void *out, int64_t out_stride, enum dtype out_dtype, const void *x, int64_t x_stride,
                        enum dtype dtype, int64_t num_tokens, struct weight w)
{
    __shared__ float x_tile[DEPTH][PADDED], w_tile[DEPTH][PADDED];
    const int64_t first_token = (int64_t)blockIdx.y * TILE, first_row = (int64_t)blockIdx.x * TILE;
    const int row = threadIdx.x % SIDE, token = threadIdx.x / SIDE;
    float sums[EACH][EACH] = {};
    for (int64_t column = 0; column < w.in_features; column += DEPTH) {
        load_tile(x_tile, x, dtype, x_stride, first_token, num_tokens, column, w.in_features);
        load_tile(w_tile, w.data, w.dtype, w.in_features, first_row, w.out_features, column, w.in_features);
        __syncthreads();
#pragma unroll
        for (int c = 0; c < DEPTH; c++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) sums[i][j] += x_tile[c][token + i * SIDE] * w_tile[c][row + j * SIDE];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int64_t t = first_token + token + i * SIDE, r = first_row + row + j * SIDE;
            if (t >= num_tokens || r >= w.out_features) continue;
            store(out, out_dtype, t * out_stride + r, sums[i][j] + (w.bias ? load(w.bias, w.dtype, r) : 0.0f));
        }
}

static bool is_activation(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT32 || dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16;
}

void cuda_linear_mixed(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, const void *x,
                       int64_t x_stride, enum dtype dtype, int32_t num_tokens, const struct weight *w,
                       backend_stream stream)
{
    if (!is_activation(out_dtype) || !is_activation(dtype) || !is_activation(w->dtype)) {
        cuda_fail(b, "linear: there is no kernel for %s with weights of %s to %s", dtype_name(dtype),
                  dtype_name(w->dtype), dtype_name(out_dtype));
        return;
    }
    const dim3 grid((unsigned)cuda_div_up(w->out_features, TILE), (unsigned)cuda_div_up(num_tokens, TILE));
    linear_mixed_kernel<<<grid, SIDE * SIDE, 0, cuda_stream(b, stream)>>>(out, out_stride, out_dtype, x, x_stride,
                                                                          dtype, num_tokens, *w);
    cuda_check_launch(b, "linear");
}
