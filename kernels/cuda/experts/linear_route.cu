/* linear_route: the norm in front of a router, its matmul and route_experts, in one kernel for few tokens (compute
 * capability 9.0 and later).
 *
 * A block computes the logits of ROWS rows of the router. It copies these and the gains into shared memory while the
 * previous kernel still runs (dependent.cuh), and then all of x, which it norms itself: that costs less than a kernel
 * of its own. Block 0 stores the normed x, too. The block that finishes last makes the plan (route.cuh).
 *
 *     warp        0     1     2     3  |  4     5     6     7  |  8 ...
 *     row         0     1     2     3  |  0     1     2     3  |  0 ...
 *     tokens     0, 4  0, 4  0, 4  0, 4| 1, 5  1, 5  1, 5  1, 5| 2, 6 ...
 *
 * A lane adds up its products in the order of the input features, then come the sums over lanes, so the logits of a
 * token do not depend on how many there are. */
#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/experts/route.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/operations.h"

enum {
    MAX_TOKENS = 8,
    WARPS = 16,
    THREADS = 32 * WARPS, /* at least as many as experts */
    ROWS = 4,
    TOKEN_THREADS = THREADS / MAX_TOKENS, /* that copy and norm a token */
    PIECE = 8,                            /* elements */
    AT_ONCE = 4                           /* pieces of x that a thread has under way */
};

struct linear_route_call {
    struct route_experts_args route;
    struct norm_params norm; /* gain NULL: x is not normed */
    const void *x, *weight, *bias;
    void *normed;  /* with a norm: out */
    float *logits; /* [num_tokens, rows] */
    uint32_t *arrivals;
    int64_t x_stride, normed_stride;
    enum dtype bias_dtype;
    int rows, pieces; /* of the router; of a row */
};

/* What lies in dynamic shared memory before the plan is made. */
template <class T, class W> struct linear_route_parts {
    piece<T, PIECE> *x;       /* [num_tokens, pieces] */
    piece<W, PIECE> *weights; /* [ROWS, pieces] */
    uint8_t *gains;
};

template <class T, class W>
static __device__ __forceinline__ linear_route_parts<T, W> parts_of(const linear_route_call &c, uint32_t *shared)
{
    piece<T, PIECE> *x = (piece<T, PIECE> *)shared;
    piece<W, PIECE> *weights = (piece<W, PIECE> *)(x + c.route.num_tokens * c.pieces);
    return {x, weights, (uint8_t *)(weights + ROWS * c.pieces)};
}

/* Starts to copy a multiple of 16 bytes to shared memory. By all threads. */
static __device__ __forceinline__ void start_copy(void *to, const void *from, int bytes)
{
    const uint32_t address = shared_address(to);
#pragma unroll 4
    for (int at = threadIdx.x * 16; at < bytes; at += THREADS * 16)
        copy_async(address + at, (const uint8_t *)from + at, true);
}

/* Starts to copy what no earlier kernel writes: the block's rows of the router, and the gains. */
template <class T, class W>
static __device__ __forceinline__ void start_copies(const linear_route_call &c, const linear_route_parts<T, W> &parts)
{
    const int first = blockIdx.x * ROWS, gain_size = c.norm.gain_dtype == DTYPE_FLOAT32 ? 4 : 2;
    start_copy(parts.weights, (const piece<W, PIECE> *)c.weight + (int64_t)first * c.pieces,
               min((int)ROWS, c.rows - first) * c.pieces * (int)sizeof(piece<W, PIECE>));
    if (c.norm.gain) start_copy(parts.gains, c.norm.gain, c.pieces * PIECE * gain_size);
}

template <class T> static __device__ __forceinline__ float add_squares(float sum, const piece<T, PIECE> &x)
{
#pragma unroll
    for (int j = 0; j < PIECE; j++) sum += to_float(x.values[j]) * to_float(x.values[j]);
    return sum;
}

template <class T, class W>
static __device__ __forceinline__ float add_products(float sum, const piece<T, PIECE> &x, const piece<W, PIECE> &w)
{
#pragma unroll
    for (int j = 0; j < PIECE; j++) sum += to_float(x.values[j]) * to_float(w.values[j]);
    return sum;
}

/* Copies the thread's pieces of its token; the sum of their squares. */
template <class T>
static __device__ __forceinline__ float copy_token(piece<T, PIECE> *to, const piece<T, PIECE> *from, int first,
                                                   int pieces)
{
    float sum = 0;
#pragma unroll 1
    for (int begin = first; begin < pieces; begin += AT_ONCE * TOKEN_THREADS) {
        piece<T, PIECE> x[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (begin + k * TOKEN_THREADS < pieces) x[k] = from[begin + k * TOKEN_THREADS];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (begin + k * TOKEN_THREADS < pieces) {
                to[begin + k * TOKEN_THREADS] = x[k];
                sum = add_squares(sum, x[k]);
            }
    }
    return sum;
}

/* Norms the thread's pieces of its token in shared memory, and in block 0 stores them to `out`. */
template <class T>
static __device__ __forceinline__ void norm_token(const linear_route_call &c, piece<T, PIECE> *x, const uint8_t *gains,
                                                  piece<T, PIECE> *out, int first, float factor)
{
    const enum dtype gain_dtype = c.norm.gain_dtype;
#pragma unroll 2
    for (int i = first; i < c.pieces; i += TOKEN_THREADS) {
        piece<T, PIECE> normed = x[i];
        apply_gains(normed, factor, load_gains<PIECE>(gains, gain_dtype, i), gain_dtype);
        x[i] = normed;
        if (blockIdx.x == 0) out[i] = normed;
    }
}

/* Copies x, once the previous kernel has ended, and norms it. Then all copies have arrived. sums: [WARPS] scratch. */
template <class T>
static __device__ __forceinline__ void load_x(const linear_route_call &c, piece<T, PIECE> *x, const uint8_t *gains,
                                              float *sums)
{
    constexpr int TOKEN_WARPS = TOKEN_THREADS / 32;
    const int token = threadIdx.x / TOKEN_THREADS, first = threadIdx.x % TOKEN_THREADS;
    const bool there = token < c.route.num_tokens;
    piece<T, PIECE> *own = x + token * c.pieces, *out = (piece<T, PIECE> *)((T *)c.normed + token * c.normed_stride);
    float sum = 0;
    wait_for_previous();
    if (there) sum = copy_token(own, (const piece<T, PIECE> *)((const T *)c.x + token * c.x_stride), first, c.pieces);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    copy_async_wait_all();
    __syncthreads();
    if (!c.norm.gain) return;
    sum = 0;
#pragma unroll
    for (int w = 0; w < TOKEN_WARPS; w++) sum += sums[token * TOKEN_WARPS + w];
    const float factor = rsqrtf(sum / (float)(c.pieces * PIECE) + c.norm.eps);
    if (there) norm_token(c, own, gains, out, first, factor);
    __syncthreads();
}

/* The product of a token and a row. By a warp. */
template <class T, class W>
static __device__ __forceinline__ float multiply(const piece<T, PIECE> *x, const piece<W, PIECE> *row, int pieces)
{
    float sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x % 32; i < pieces; i += 32) sum = add_products(sum, x[i], row[i]);
    return warp_sum(sum);
}

static __device__ __forceinline__ float bias_of(const linear_route_call &c, int row)
{
    if (!c.bias) return 0;
    if (c.bias_dtype == DTYPE_FLOAT32) return ((const float *)c.bias)[row];
    return c.bias_dtype == DTYPE_FLOAT16 ? to_float(((const __half *)c.bias)[row])
                                         : to_float(((const __nv_bfloat16 *)c.bias)[row]);
}

/* Whether all other blocks have arrived before. Then what they wrote can be read, and *arrivals is zero again. */
static __device__ __forceinline__ bool arrives_last(uint32_t *arrivals, int *is_last)
{
    const uint32_t last = gridDim.x - 1;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *is_last = atomicInc(arrivals, last) == last;
    __syncthreads();
    __threadfence();
    return *is_last;
}

/* Dynamic shared memory: linear_route_parts, and then what route_few needs. T: the type of x. W: that of the router. */
template <class T, class W>
static __global__ void __launch_bounds__(THREADS, 2) linear_route_kernel(const __grid_constant__ linear_route_call c)
{
    extern __shared__ __align__(16) uint32_t shared[];
    __shared__ float sums[WARPS];
    __shared__ int is_last;
    const int warp = threadIdx.x / 32, row = blockIdx.x * ROWS + warp % ROWS;
    const linear_route_parts<T, W> parts = parts_of<T, W>(c, shared);
    let_next_start();
    start_copies(c, parts);
    const float bias = row < c.rows ? bias_of(c, row) : 0;
    load_x(c, parts.x, parts.gains, sums);
    for (int token = warp / ROWS; row < c.rows && token < c.route.num_tokens; token += WARPS / ROWS) {
        const float sum = multiply(parts.x + token * c.pieces, parts.weights + warp % ROWS * c.pieces, c.pieces);
        if (threadIdx.x % 32 == 0) c.logits[token * c.rows + row] = sum + bias;
    }
    if (arrives_last(c.arrivals, &is_last)) route_few(c.route, shared, c.route.num_tokens);
}

/* ---- the host's side ---- */

static bool takes_norm(const struct rms_norm_args *norm, const struct linear_args *linear)
{
    return norm->norm.gain && norm->norm.type == NORM_RMS && !norm->quantized && norm->out == linear->x &&
           norm->x != norm->out && norm->size == linear->weight->in_features && norm->out_stride == linear->x_stride &&
           norm->x_stride % PIECE == 0 && cuda_is_aligned(norm->x) && gains_are_aligned<PIECE>(&norm->norm);
}

static bool takes_linear(const struct linear_args *linear, const struct route_experts_args *route)
{
    const struct weight *w = linear->weight;
    return linear->num_tokens >= 1 && linear->num_tokens <= MAX_TOKENS && linear->dtype != DTYPE_FLOAT32 &&
           (w->format == WEIGHT_FLOAT32 || w->format == weight_format_of(linear->dtype)) &&
           w->out_features == router_row(route) && w->in_features % PIECE == 0 && linear->x_stride % PIECE == 0 &&
           linear->out == route->logits && linear->out_stride == w->out_features &&
           linear->out_dtype == DTYPE_FLOAT32 && !linear->quantized_x && linear->segments.count == 0 &&
           cuda_is_aligned(linear->x) && cuda_is_aligned(w->data);
}

/* The larger of linear_route_parts and what the plan needs. */
static int64_t shared_bytes(const struct linear_route_args *args)
{
    const struct weight *w = args->linear.weight;
    const int64_t x = args->linear.num_tokens * w->in_features * dtype_size(args->linear.dtype);
    const int64_t gains = args->norm ? w->in_features * dtype_size(args->norm->norm.gain_dtype) : 0;
    const int64_t parts = x + ROWS * w->in_features * dtype_size(weight_dtype(w)) + gains;
    const int64_t route = route_few_words(args->route, args->linear.num_tokens) * (int64_t)sizeof(uint32_t);
    return parts > route ? parts : route;
}

static linear_route_call call_of(const struct cuda_state *s, const struct linear_route_args *args)
{
    const struct linear_args *linear = &args->linear;
    const struct rms_norm_args *norm = args->norm;
    linear_route_call c = {};
    c.route = args->route;
    if (norm) c.norm = norm->norm;
    c.x = norm ? norm->x : linear->x;
    c.x_stride = norm ? norm->x_stride : linear->x_stride;
    c.normed = (void *)linear->x;
    c.normed_stride = linear->x_stride;
    c.weight = linear->weight->data;
    c.bias = linear->weight->bias;
    c.bias_dtype = linear->weight->bias_dtype;
    c.logits = (float *)linear->out;
    c.arrivals = (uint32_t *)s->regions[CUDA_USER_ROUTER].data;
    c.rows = (int)linear->weight->out_features;
    c.pieces = (int)(linear->weight->in_features / PIECE);
    return c;
}

template <class T, class W> static void run(struct backend *b, const struct linear_route_args *args)
{
    const linear_route_call c = call_of(cuda_state(b), args);
    cuda_run_dependent(b, "linear_route", linear_route_kernel<T, W>,
                       {dim3((unsigned)cuda_div_up(c.rows, ROWS)), THREADS, (int)shared_bytes(args)}, c);
}

bool cuda_linear_route(struct backend *b, const struct linear_route_args *args)
{
    const struct cuda_state *s = cuda_state(b);
    enum { NOT_DYNAMIC = 1024 };
    if (s->compute_capability < 90 || !s->regions[CUDA_USER_ROUTER].data || args->route.router.num_experts > THREADS ||
        !takes_linear(&args->linear, &args->route) || (args->norm && !takes_norm(args->norm, &args->linear)) ||
        shared_bytes(args) > s->max_shared_bytes - NOT_DYNAMIC)
        return false;
    const bool is_float = args->linear.weight->format == WEIGHT_FLOAT32;
    if (args->linear.dtype == DTYPE_FLOAT16)
        is_float ? run<__half, float>(b, args) : run<__half, __half>(b, args);
    else
        is_float ? run<__nv_bfloat16, float>(b, args) : run<__nv_bfloat16, __nv_bfloat16>(b, args);
    return true;
}

int64_t cuda_linear_route_workspace(void)
{
    return sizeof(uint32_t);
}
