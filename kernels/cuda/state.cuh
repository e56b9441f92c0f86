/* What the files of the CUDA backend share: its state, how an operation reports a failure, and the step from a run-time
 * dtype to a type.
 *
 * An operation is a host function that calls cuda_use(b), launches kernels on the main stream, and then calls
 * cuda_check_launch(b, "its name"). It neither allocates nor synchronizes, so that a graph can capture it. */
#ifndef QUIRE_KERNELS_CUDA_STATE_CUH
#define QUIRE_KERNELS_CUDA_STATE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <pthread.h>

#include "kernels/backend.h"
#include "kernels/cuda/cublas.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/host_device.h"

/* A part of the workspace. Each operation has its own part: calls on one stream follow each other, so what a call
 * leaves there is still there at the next call of the same operation (a counter that every call resets to zero, for
 * example). */
struct cuda_region {
    uint8_t *data; /* aligned to 256 bytes; NULL: no workspace was set */
    int64_t bytes;
};

enum cuda_user {
    CUDA_USER_CUBLAS,
    CUDA_USER_LINEAR,
    CUDA_USER_DEQUANTIZE, /* rows of one weight, or x of one matmul in another order: nothing is kept there */
    CUDA_USER_ATTENTION,
    CUDA_USER_LATENT,
    CUDA_USER_RECURRENCE, /* counters of decodes */
    CUDA_USER_CHUNKS,     /* of recurrences: nothing is kept there */
    CUDA_USER_SAMPLE,
    CUDA_NUM_USERS
};

/* A thread of preload.cu. */
struct cuda_loader {
    pthread_t thread;
    bool running; /* or not joined yet */
    int device;
    enum dtype dtype, out_dtype;
};
enum { CUDA_NUM_LOADERS = 2 };

struct cuda_state {
    struct backend backend;
    char name[32];         /* "cuda:0" */
    char description[320]; /* backend.description */
    char others[256];      /* backend.others */
    int device;
    cudaStream_t stream; /* the main stream */
    struct cublas *cublas;
    struct cublas_lt *cublas_lt; /* NULL: there is none */

    /* What the kernels that run on this device were compiled for, which may be less than the device can do. */
    int compute_capability; /* 90: 9.0 */
    bool has_wgmma;         /* compiled for 90a: the kernels that use wgmma.cuh are not empty */
    int num_sms;
    int max_shared_bytes; /* dynamic shared memory of one block, after cudaFuncSetAttribute */

    /* The parts of the workspace: sizes from the last workspace_bytes, addresses from workspace_set, which sets all of
     * it to zero. */
    struct cuda_region regions[CUDA_NUM_USERS];

    struct cuda_loader loaders[CUDA_NUM_LOADERS];

    /* Matmuls that wait to be launched as one kernel (matmul/matmul_chain.cu), before whatever else the main stream
     * is given. Compute capability below 9.0. */
    struct matmul_chain *chain;
    bool has_chain;

    /* collective/peers.cuh */
    struct cuda_group *group; /* NULL: none */
    int rank;

    pthread_mutex_t failure_lock;
    char failure[512];   /* the first operation that failed, as a sentence; "": none */
    int fail_allocation; /* backend_cuda_fail_allocation's countdown */
};

static inline struct cuda_state *cuda_state(struct backend *b)
{
    return (struct cuda_state *)b->state;
}

/* Launches the matmuls that wait for it. */
void cuda_launch_chain(struct backend *b);

/* Makes the backend's device the calling thread's current device; the CUDA runtime keeps one for each thread. */
static inline void cuda_set_device(struct backend *b)
{
    cudaSetDevice(cuda_state(b)->device);
}

/* Makes the device current, and then the main stream can be given work. Only for the thread that calls the operations,
 * because the matmuls that wait are its own; other threads use cuda_set_device and streams of their own. */
static inline struct cuda_state *cuda_use(struct backend *b)
{
    struct cuda_state *s = cuda_state(b);
    cuda_set_device(b);
    if (s->has_chain) cuda_launch_chain(b);
    return s;
}

/* cuda_use, for the CUDA stream that a handle stands for. Streams other than the main one wait for its work by events
 * alone, so the matmuls need not be launched, and any thread may use them. */
static inline cudaStream_t cuda_stream(struct backend *b, backend_stream stream)
{
    if (!stream) return cuda_use(b)->stream;
    cuda_set_device(b);
    return (cudaStream_t)stream;
}

/* Records that an operation failed, unless one did before. Every later stream_synchronize and event_synchronize returns
 * this sentence. */
void cuda_fail(struct backend *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* cuda_fail("`operation` failed on the GPU: ...") unless `error` is cudaSuccess; returns whether it is. */
bool cuda_check(struct backend *b, const char *operation, cudaError_t error);

/* Checks the kernel launches since the last check. */
static inline bool cuda_check_launch(struct backend *b, const char *operation)
{
    return cuda_check(b, operation, cudaGetLastError());
}

/* Counts down to the allocation that is to fail (backend_cuda_fail_allocation); true: it is this one. */
static inline bool cuda_allocation_fails(struct backend *b)
{
    struct cuda_state *s = cuda_state(b);
    return s->fail_allocation > 0 && __atomic_sub_fetch(&s->fail_allocation, 1, __ATOMIC_RELAXED) == 0;
}

/* Calls f with a value of the type of `dtype`, which is one of the three types of activations. f is a generic lambda:
 *     cuda_dispatch(b, "act_and_mul", dtype, [&](auto zero) { using T = decltype(zero); ... }); */
template <class Function>
static inline void cuda_dispatch(struct backend *b, const char *operation, enum dtype dtype, Function f)
{
    switch (dtype) {
    case DTYPE_FLOAT32:
        f(0.0f);
        break;
    case DTYPE_FLOAT16:
        f(__half());
        break;
    case DTYPE_BFLOAT16:
        f(__nv_bfloat16());
        break;
    default:
        cuda_fail(b, "%s: there is no kernel for %s", operation, dtype_name(dtype));
    }
}

/* The same of the type of a cache, which may be fp8. */
template <class Function>
static inline void cuda_dispatch_cache(struct backend *b, const char *operation, enum dtype dtype, Function f)
{
    switch (dtype) {
    case DTYPE_FP8_E4M3:
        f(__nv_fp8_e4m3());
        break;
    case DTYPE_FP8_E5M2:
        f(__nv_fp8_e5m2());
        break;
    default:
        cuda_dispatch(b, operation, dtype, f);
    }
}

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}
static __device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}
static __device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

/* from_float<T>(x), rounded to nearest even. */
template <class T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __half from_float<__half>(float x)
{
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* N elements of T that are moved as one: 16 bytes at best. */
template <class T, int N> struct alignas(sizeof(T) * N) piece {
    T values[N];
};

/* The address of something in shared memory, in the form that PTX instructions take. */
static __device__ __forceinline__ uint32_t shared_address(const void *data)
{
    return (uint32_t)__cvta_generic_to_shared(data);
}

/* Threads of a block for `work` items, one item a thread and at most `most` threads: whole warps. */
static inline int cuda_threads_for(int64_t work, int most)
{
    return work >= most ? most : (int)cuda_div_up(work > 0 ? work : 1, 32) * 32;
}

#endif
