/* Matmuls whose types differ (float32 activations with bfloat16 weights, for example), which cuBLAS does not have, and
 * those of row segments that no other kernel takes, of quantized weights as well. The operands are converted to float32
 * on the way into shared memory. This is correct for every case, but slow. */
#include "kernels/cuda/matmul/dequantize.cuh"
#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/matmul/tile.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum {
    TILE = 64,  /* a block computes TILE tokens x TILE output features */
    DEPTH = 16, /* input features at a time */
    SIDE = 16,  /* a block has SIDE x SIDE threads */
    EACH = 4,   /* a thread computes EACH x EACH elements */
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

/* A matrix [rows, columns] that is read in tiles: x or the weight. */
struct mixed_operand {
    const void *data;
    enum dtype dtype;
    int64_t stride, rows, columns;
};

struct mixed_call {
    mixed_operand x, weight;
    const int32_t *x_rows; /* NULL, or the row of x that a row of out is of */
    stored_weight stored;  /* with segments: the weight, if it is quantized */
    struct row_segments segments;
    const void *bias; /* may be NULL */
    enum dtype bias_dtype;
    void *out;
    int64_t out_stride;
    enum dtype out_dtype;
};

static __device__ __forceinline__ float load(const mixed_operand &matrix, int64_t row, int64_t column)
{
    return load(matrix.data, matrix.dtype, row * matrix.stride + column);
}

/* tile[c][r] = element(first + r, column + c) of a matrix, 0 from row `end` on and outside its columns. */
template <class Element>
static __device__ __forceinline__ void load_tile(float tile[DEPTH][PADDED], int64_t first, int64_t end, int64_t column,
                                                 int64_t columns, Element element)
{
    const int c = threadIdx.x % DEPTH;
    for (int r = threadIdx.x / DEPTH; r < TILE; r += SIDE * SIDE / DEPTH)
        tile[c][r] = first + r < end && column + c < columns ? element(first + r, column + c) : 0.0f;
}

/* Grid: x the tile of output features, y the tile of tokens. */
template <bool SEGMENTS>
static __global__ void __launch_bounds__(SIDE *SIDE, 5) linear_mixed_kernel(const __grid_constant__ mixed_call call)
{
    __shared__ float x_tile[DEPTH][PADDED], w_tile[DEPTH][PADDED];
    int64_t first_token = (int64_t)blockIdx.y * TILE, end_token = call.x.rows, first_row = 0;
    if constexpr (SEGMENTS) {
        tile_part part = {};
        find_segment<TILE>(part, call.segments, (int)call.weight.rows, blockIdx.y);
        first_token = part.first_token, end_token = first_token + part.num_tokens, first_row = part.first_row;
    }
    const int64_t first_feature = (int64_t)blockIdx.x * TILE;
    const int feature = threadIdx.x % SIDE, token = threadIdx.x / SIDE;
    float sums[EACH][EACH] = {};
    if (first_token >= end_token) return;
    for (int64_t column = 0; column < call.x.columns; column += DEPTH) {
        load_tile(x_tile, first_token, end_token, column, call.x.columns,
                  [&](int64_t row, int64_t i) { return load(call.x, call.x_rows ? call.x_rows[row] : row, i); });
        load_tile(w_tile, first_feature, call.weight.rows, column, call.x.columns, [&](int64_t row, int64_t i) {
            return SEGMENTS && call.stored.weight.data ? load_element(call.stored, first_row + row, i)
                                                       : load(call.weight, first_row + row, i);
        });
        __syncthreads();
#pragma unroll
        for (int c = 0; c < DEPTH; c++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sums[i][j] += x_tile[c][token + i * SIDE] * w_tile[c][feature + j * SIDE];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int64_t t = first_token + token + i * SIDE, o = first_feature + feature + j * SIDE;
            if (t >= end_token || o >= call.weight.rows) continue;
            const float bias = call.bias ? load(call.bias, call.bias_dtype, first_row + o) : 0.0f;
            store(call.out, call.out_dtype, t * call.out_stride + o, sums[i][j] + bias);
        }
}

static bool is_activation(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT32 || dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16;
}

void cuda_linear_mixed(struct backend *b, const struct linear_args *args)
{
    linear_mixed_rows(b, args, NULL);
}

void linear_mixed_rows(struct backend *b, const struct linear_args *args, const int32_t *x_rows)
{
    const struct weight *w = args->weight;
    const bool is_quantized = weight_is_quantized(w); /* only with segments */
    const enum dtype w_dtype = is_quantized ? DTYPE_FLOAT32 : weight_dtype(w);
    if (!is_activation(args->out_dtype) || !is_activation(args->dtype) || !is_activation(w_dtype) ||
        (w->bias && !is_activation(w->bias_dtype))) {
        cuda_fail(
            b, "linear: there is no kernel for activations of %s with weights of %s, a bias of %s and a result of %s",
            dtype_name(args->dtype), dtype_name(w_dtype), dtype_name(w->bias_dtype), dtype_name(args->out_dtype));
        return;
    }
    const mixed_call call = {{args->x, args->dtype, args->x_stride, args->num_tokens, w->in_features},
                             {w->data, w_dtype, w->in_features, w->out_features, w->in_features},
                             x_rows,
                             is_quantized ? stored_weight_of(w) : stored_weight(),
                             args->segments,
                             w->bias,
                             w->bias_dtype,
                             args->out,
                             args->out_stride,
                             args->out_dtype};
    const dim3 grid((unsigned)cuda_div_up(w->out_features, TILE),
                    token_tiles_of(&args->segments, args->num_tokens, TILE));
    auto *kernel = args->segments.count > 0 ? linear_mixed_kernel<true> : linear_mixed_kernel<false>;
    kernel<<<grid, SIDE * SIDE, 0, cuda_stream(b, NULL)>>>(call);
    cuda_check_launch(b, "linear");
}
