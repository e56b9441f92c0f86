/* The columns of x in the order of a weight's. A block puts a token into shared memory, normed if need be, and reads it
 * from there in the other order. It has several tokens one after the other, because the order is as much to read as a
 * token is: a thread keeps its part of it, up to KEPT pieces, and reads that while the previous kernel still runs. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/gains.cuh"
#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/warp.cuh"

enum { THREADS = 32 * INPUT_ORDER_WARPS, EACH = INPUT_ORDER_PIECE, KEPT = 4, BLOCKS_OF_SM = 3 };

template <class T> struct input_order_call {
    T *out; /* [num_tokens, size] */
    const T *x;
    int64_t x_stride;
    const int32_t *order;
    const void *gain; /* NULL: no norm */
    enum dtype gain_dtype;
    float eps;
    int32_t num_tokens, size;
};

/* A token to shared memory. */
template <class T>
static __device__ __forceinline__ void load_row(piece<T, EACH> *row, const input_order_call<T> &call, int token,
                                                struct warp_sums *sums)
{
    const piece<T, EACH> *from = (const piece<T, EACH> *)(call.x + token * call.x_stride);
    const int pieces = call.size / EACH;
    float sum = 0;
    for (int i = threadIdx.x; i < pieces; i += THREADS) {
        const piece<T, EACH> p = from[i];
#pragma unroll
        for (int j = 0; j < EACH; j++) sum += to_float(p.values[j]) * to_float(p.values[j]);
        row[i] = p;
    }
    if (!call.gain) return;
    const float factor = rsqrtf(block_sum(sum, sums) / (float)call.size + call.eps);
    for (int i = threadIdx.x; i < pieces; i += THREADS)
        apply_gains(row[i], factor, load_gains<EACH>(call.gain, call.gain_dtype, i), call.gain_dtype);
}

template <class T>
static __device__ __forceinline__ piece<T, EACH> gather_piece(const T *row, const piece<int32_t, EACH> &order)
{
    piece<T, EACH> out;
#pragma unroll
    for (int j = 0; j < EACH; j++) out.values[j] = row[order.values[j]];
    return out;
}

template <class T>
static __global__ void __launch_bounds__(THREADS) input_order_kernel(const __grid_constant__ input_order_call<T> call)
{
    extern __shared__ uint4 shared_row[];
    __shared__ struct warp_sums sums;
    const int pieces = call.size / EACH;
    const piece<int32_t, EACH> *order = (const piece<int32_t, EACH> *)call.order;
    piece<int32_t, EACH> kept[KEPT];
    let_next_start();
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if ((int)threadIdx.x + k * THREADS < pieces) kept[k] = order[threadIdx.x + k * THREADS];
    wait_for_previous();
    for (int token = blockIdx.x; token < call.num_tokens; token += gridDim.x) {
        piece<T, EACH> *to = (piece<T, EACH> *)(call.out + (int64_t)token * call.size);
        load_row((piece<T, EACH> *)shared_row, call, token, &sums);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            const int i = threadIdx.x + k * THREADS;
            if (i < pieces) to[i] = gather_piece((const T *)shared_row, kept[k]);
        }
        for (int i = threadIdx.x + KEPT * THREADS; i < pieces; i += THREADS)
            to[i] = gather_piece((const T *)shared_row, order[i]);
        __syncthreads(); /* before the next token is written over this one */
    }
}

template <class T> static void launch(struct backend *b, const char *operation, const struct matmul *m, void *out)
{
    const struct cuda_state *s = cuda_use(b);
    const input_order_call<T> call = {(T *)out,       (const T *)m->x, m->x_stride,
                                      m->input_order, m->gain,         m->gain_is_float ? DTYPE_FLOAT32 : m->dtype,
                                      m->eps,         m->num_tokens,   (int32_t)m->in_features};
    const int bytes = (int)(m->in_features * sizeof(T)), most = BLOCKS_OF_SM * s->num_sms;
    const dim3 grid(m->num_tokens < most ? m->num_tokens : most);
    cuda_run_dependent(b, operation, input_order_kernel<T>, {grid, THREADS, bytes}, call);
}

void input_order_gather(struct backend *b, const char *operation, const struct matmul *m, void *out)
{
    matmul_dispatch(m, [&](auto zero) { launch<decltype(zero)>(b, operation, m, out); });
}
