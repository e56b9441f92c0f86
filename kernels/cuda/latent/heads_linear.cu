/* heads_linear: a matmul of each head, and the elements that are copied beside its results.
 *
 * 16-bit operands and few tokens: a block has FEATURES output features of a head, whose weights it reads as a whole,
 * while the kernel before it still runs, and up to TOKENS tokens. With features as rows and tokens as columns its warps
 * multiply on tensor cores, each 16 features and half of the columns of W, and add up through shared memory:
 *
 *     out^T [FEATURES x TOKENS] = W x^T
 *
 * W in shared memory is as in global memory, [FEATURES][in_features], or transposed [in_features][FEATURES], which
 * ldmatrix transposes; its rows are padded by 16 bytes, so that 8 of them lie in different banks.
 *
 * All else is computed by cuBLAS. */
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rotary.cuh"

enum { THREADS = 128, LANES = 32, FEATURES = 32, MANY_TOKENS = 256 };

/* ---- few tokens ---- */

/* Bytes from row to row in shared memory, of x and of W. */
static inline __host__ __device__ int32_t x_row_bytes(const struct heads_linear_args *args)
{
    return args->in_features * 2 + 16;
}
static inline __host__ __device__ int32_t weight_row_bytes(const struct heads_linear_args *args)
{
    return args->transposed ? FEATURES * 2 + 16 : args->in_features * 2 + 16;
}

static int32_t shared_bytes_of(const struct heads_linear_args *args, int32_t tokens)
{
    const int32_t weight = weight_row_bytes(args) * (args->transposed ? args->in_features : FEATURES);
    const int32_t operands = weight + tokens * x_row_bytes(args), sums = 2 * tokens * (FEATURES + 4) * 4;
    return operands > sums ? operands : sums;
}

/* Begins to copy features [first, first + FEATURES) of a head; those that do not exist become zeros. */
template <class T>
static __device__ __forceinline__ void copy_weight(const heads_linear_args &args, int32_t head, int32_t first,
                                                   uint32_t to)
{
    const int32_t row_pieces = args.transposed ? FEATURES / 8 : args.in_features / 8;
    const int32_t rows = args.transposed ? args.in_features : FEATURES, row_bytes = weight_row_bytes(&args);
    const T *weight = (const T *)args.weight + head * args.head_stride;
    for (int32_t i = threadIdx.x; i < rows * row_pieces; i += THREADS) {
        const int32_t row = i / row_pieces, column = (i - row * row_pieces) * 8;
        const bool there = first + (args.transposed ? column : row) < args.out_features;
        const int64_t from = args.transposed ? (int64_t)row * args.out_features + first + column
                                             : (int64_t)(first + row) * args.in_features + column;
        copy_async(to + row * row_bytes + column * 2, there ? weight + from : weight, there);
    }
}

/* Begins to copy tokens [first, first + tokens) of a head; those that do not exist become zeros. */
template <class T>
static __device__ __forceinline__ void copy_x(const heads_linear_args &args, int32_t head, int32_t first,
                                              int32_t tokens, uint32_t to)
{
    const int32_t pieces = args.in_features / 8;
    const T *x = (const T *)args.x + head * args.x_head_stride;
    for (int32_t i = threadIdx.x; i < tokens * pieces; i += THREADS) {
        const int32_t row = i / pieces, column = (i - row * pieces) * 8;
        const bool there = first + row < args.num_tokens;
        copy_async(to + row * x_row_bytes(&args) + column * 2, there ? x + (first + row) * args.x_stride + column : x,
                   there);
    }
}

/* The warp's 16 features of all tokens, over its half of the columns. */
template <class T, int TOKENS>
static __device__ __forceinline__ void multiply(const heads_linear_args &args, uint32_t weight, uint32_t x,
                                                float (&sums)[TOKENS / 8][4])
{
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, row = warp % 2 * 16, half = warp / 2;
    const int32_t steps = args.in_features / 16, last = half == 0 ? steps / 2 : steps;
    const int32_t w_row = weight_row_bytes(&args), x_row = x_row_bytes(&args);
    const uint32_t w = args.transposed ? weight + (lane / 16 * 8 + lane % 8) * w_row + (row + lane / 8 % 2 * 8) * 2
                                       : weight + (row + lane % 16) * w_row + lane / 16 * 16;
    const uint32_t from = x + (lane / 16 * 8 + lane % 8) * x_row + lane / 8 % 2 * 16;
    for (int32_t step = half == 0 ? 0 : steps / 2; step < last; step++) {
        uint32_t a[4], b[4];
        if (args.transposed)
            load_matrices_transposed(a, w + step * 16 * w_row);
        else
            load_matrices(a, w + step * 32);
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n += 2) {
            load_matrices(b, from + n * 8 * x_row + step * 32);
            multiply_add<T>(sums[n], a, b[0], b[1]);
            multiply_add<T>(sums[n + 1], a, b[2], b[3]);
        }
    }
}

/* Adds up both halves, which every warp leaves in `shared`, and stores the block's results. */
template <class T, int TOKENS>
static __device__ __forceinline__ void store(const heads_linear_args &args, int32_t head, int32_t first,
                                             int32_t first_token, const float (&sums)[TOKENS / 8][4], float *shared)
{
    constexpr int STRIDE = FEATURES + 4;
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    float *to = shared + warp / 2 * TOKENS * STRIDE + warp % 2 * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < TOKENS / 8; n++)
        for (int e = 0; e < 4; e++) to[(n * 8 + lane % 4 * 2 + e % 2) * STRIDE + e / 2 * 8] = sums[n][e];
    __syncthreads();
    for (int32_t i = threadIdx.x; i < TOKENS * FEATURES / 8; i += THREADS) {
        const int32_t token = i / (FEATURES / 8), feature = i % (FEATURES / 8) * 8;
        const float *low = shared + token * STRIDE + feature, *high = low + TOKENS * STRIDE;
        if (first_token + token >= args.num_tokens || first + feature >= args.out_features) continue;
        uint32_t pairs[4];
#pragma unroll
        for (int k = 0; k < 4; k++) pairs[k] = pack_pair<T>(low[2 * k] + high[2 * k], low[2 * k + 1] + high[2 * k + 1]);
        *(uint4 *)((T *)args.out + (first_token + token) * args.out_stride + head * args.out_head_stride + first +
                   feature) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

/* Elements column .. column + N - 1 of what is copied of a token's head, where `from` has it. */
template <class T, int N>
static __device__ __forceinline__ piece<T, N> rest_piece(const heads_linear_args &args, const T *from, int64_t token,
                                                         int column)
{
    if (!args.cos_sin) return *(const piece<T, N> *)(from + column);
    const float *cos = args.cos_sin + (int64_t)args.positions[token] * args.num_copied;
    return rotated_piece<T, N>(from, column, args.num_copied / 2, cos, cos + args.num_copied / 2, args.interleaved);
}

/* What is copied of some tokens of a head, 16 bytes at a time. */
template <class T, int TOKENS>
static __device__ __forceinline__ void copy_rest(const heads_linear_args &args, int32_t head, int32_t first_token)
{
    const int32_t pieces = args.num_copied / 8;
    for (int32_t i = threadIdx.x; i < TOKENS * pieces; i += THREADS) {
        const int64_t token = first_token + i / pieces, column = i % pieces * 8;
        if (token >= args.num_tokens) break;
        const T *from = (const T *)args.x + token * args.x_stride + head * args.x_head_stride + args.in_features;
        T *to = (T *)args.out + token * args.out_stride + head * args.out_head_stride + args.out_features + column;
        *(piece<T, 8> *)to = rest_piece<T, 8>(args, from, token, column);
    }
}

/* Grid: x FEATURES output features, y heads, z TOKENS tokens. */
template <class T, int TOKENS>
static __global__ void __launch_bounds__(THREADS)
    heads_linear_kernel(const __grid_constant__ struct heads_linear_args args)
{
    extern __shared__ __align__(128) uint8_t memory[];
    const int32_t first = blockIdx.x * FEATURES, head = blockIdx.y, token = blockIdx.z * TOKENS;
    const uint32_t x = shared_address(memory), weight = x + TOKENS * x_row_bytes(&args);
    float sums[TOKENS / 8][4] = {};
    let_next_start();
    copy_weight<T>(args, head, first, weight);
    wait_for_previous();
    copy_x<T>(args, head, token, TOKENS, x);
    if (blockIdx.x == 0 && args.num_copied > 0) copy_rest<T, TOKENS>(args, head, token);
    copy_async_wait_all();
    __syncthreads();
    multiply<T, TOKENS>(args, weight, x, sums);
    __syncthreads();
    store<T, TOKENS>(args, head, first, token, sums, (float *)memory);
}

template <class T, int TOKENS> static void launch_few(struct backend *b, const struct heads_linear_args *args)
{
    const dim3 grid((unsigned)cuda_div_up(args->out_features, FEATURES), (unsigned)args->num_heads,
                    (unsigned)cuda_div_up(args->num_tokens, TOKENS));
    cuda_run_dependent(b, "heads_linear", heads_linear_kernel<T, TOKENS>,
                       {grid, THREADS, shared_bytes_of(args, TOKENS)}, *args);
}

enum { FEW_TOKENS = 16, SOME_TOKENS = 64 };

static bool is_for_tensor_cores(struct backend *b, const struct heads_linear_args *args)
{
    const int64_t strides = args->out_stride | args->out_head_stride | args->x_stride | args->x_head_stride;
    const int64_t sizes = args->in_features | args->out_features;
    const int32_t tokens = args->num_tokens <= FEW_TOKENS ? FEW_TOKENS : SOME_TOKENS;
    return args->dtype != DTYPE_FLOAT32 && args->num_tokens <= MANY_TOKENS && sizes % 16 == 0 &&
           (strides | args->head_stride | args->num_copied / 2) % 8 == 0 && cuda_is_aligned(args->x) &&
           cuda_is_aligned(args->weight) && cuda_is_aligned(args->out) &&
           shared_bytes_of(args, tokens) <= cuda_state(b)->max_shared_bytes;
}

template <class T> static void launch(struct backend *b, const struct heads_linear_args *args)
{
    if (args->num_tokens <= FEW_TOKENS)
        launch_few<T, FEW_TOKENS>(b, args);
    else
        launch_few<T, SOME_TOKENS>(b, args);
}

/* ---- everything else ---- */

/* A thread copies an element. */
template <class T>
static __global__ void __launch_bounds__(THREADS) copy_rest_kernel(const __grid_constant__ heads_linear_args args)
{
    const int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = index / args.num_copied;
    const int64_t i = index - row * args.num_copied, token = row / args.num_heads, head = row - token * args.num_heads;
    let_next_start();
    wait_for_previous();
    if (token >= args.num_tokens) return;
    const T *from = (const T *)args.x + token * args.x_stride + head * args.x_head_stride + args.in_features;
    T *to = (T *)args.out + token * args.out_stride + head * args.out_head_stride + args.out_features + i;
    *(piece<T, 1> *)to = rest_piece<T, 1>(args, from, token, (int)i);
}

static void copy_rest_of(struct backend *b, const struct heads_linear_args *args)
{
    const int64_t count = (int64_t)args->num_tokens * args->num_heads * args->num_copied;
    const dim3 grid((unsigned)cuda_div_up(count, THREADS));
    cuda_dispatch(b, "heads_linear", args->dtype, [&](auto zero) {
        cuda_launch_dependent(cuda_use(b), copy_rest_kernel<decltype(zero)>, {grid, THREADS}, *args);
    });
    cuda_check_launch(b, "heads_linear");
}

static void multiply_by_cublas(struct backend *b, const struct heads_linear_args *args)
{
    const struct cuda_state *s = cuda_use(b);
    const struct cublas_matmul matmul = {.out = args->out,
                                         .out_stride = args->out_stride,
                                         .out_dtype = args->dtype,
                                         .x = args->x,
                                         .x_stride = args->x_stride,
                                         .weight = args->weight,
                                         .dtype = args->dtype,
                                         .num_tokens = args->num_tokens,
                                         .out_features = args->out_features,
                                         .in_features = args->in_features};
    const struct cublas_batch batch = {.count = args->num_heads,
                                       .out_stride = args->out_head_stride,
                                       .x_stride = args->x_head_stride,
                                       .weight_stride = args->head_stride,
                                       .transposed = args->transposed};
    const char *failure = cublas_run_batch(s->cublas, &matmul, &batch, s->stream);
    if (failure) cuda_fail(b, "heads_linear: cuBLAS reports %s", failure);
    if (args->num_copied > 0) copy_rest_of(b, args);
}

void cuda_heads_linear(struct backend *b, const struct heads_linear_args *args)
{
    if (args->num_tokens <= 0) return;
    if (args->weight_dtype != args->dtype)
        cuda_fail(b, "heads_linear: there is no kernel for weights of %s and activations of %s",
                  dtype_name(args->weight_dtype), dtype_name(args->dtype));
    else if (!is_for_tensor_cores(b, args))
        multiply_by_cublas(b, args);
    else if (args->dtype == DTYPE_FLOAT16)
        launch<__half>(b, args);
    else
        launch<__nv_bfloat16>(b, args);
}
