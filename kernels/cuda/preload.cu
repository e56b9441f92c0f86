/* cuBLAS loads a library of kernels at the first matmul of each pair of types, which takes about 100 ms. Threads do
 * that here while the rest of the start-up goes on. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum { SIZE = 1024 }; /* large enough that cuBLAS takes its general kernels */

/* A matmul whose result is not used. Errors are ignored here: if one persists, the model's first matmul reports
 * it. */
static void *load_matmul(void *loader)
{
    const struct cuda_loader *l = (const struct cuda_loader *)loader;
    const int64_t matrix_bytes = SIZE * SIZE * (int64_t)sizeof(float);
    const int64_t bytes = CUBLAS_WORKSPACE_BYTES + 3 * matrix_bytes;
    struct cublas *cublas = NULL;
    struct error ignored;
    uint8_t *memory = NULL;
    cudaStream_t stream = NULL;
    if (cudaSetDevice(l->device) == cudaSuccess && cublas_open(&cublas, &ignored) == STATUS_OK &&
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
        cudaMalloc(&memory, bytes) == cudaSuccess && cudaMemsetAsync(memory, 0, bytes, stream) == cudaSuccess) {
        uint8_t *x = memory + CUBLAS_WORKSPACE_BYTES, *w = x + matrix_bytes, *out = w + matrix_bytes;
        cublas_set_workspace(cublas, memory, CUBLAS_WORKSPACE_BYTES);
        const struct cublas_matmul matmul = {out, SIZE, l->out_dtype, x, SIZE, w, l->dtype, SIZE, SIZE, SIZE, false};
        cublas_run(cublas, &matmul, stream);
        cudaStreamSynchronize(stream);
    }
    cudaFree(memory);
    if (stream) cudaStreamDestroy(stream);
    cublas_close(cublas);
    return NULL;
}

void cuda_preload(struct backend *b, enum dtype dtype)
{
    struct cuda_state *s = cuda_state(b);
    cuda_preload_wait(s);
    const enum dtype out_dtypes[CUDA_NUM_LOADERS] = {dtype, DTYPE_FLOAT32}; /* of the layers, of the logits */
    for (int i = 0; i < CUDA_NUM_LOADERS; i++) {
        struct cuda_loader *l = &s->loaders[i];
        l->device = s->device;
        l->dtype = dtype;
        l->out_dtype = out_dtypes[i];
        l->running = pthread_create(&l->thread, NULL, load_matmul, l) == 0;
    }
}

void cuda_preload_wait(struct cuda_state *s)
{
    for (int i = 0; i < CUDA_NUM_LOADERS; i++) {
        if (s->loaders[i].running) pthread_join(s->loaders[i].thread, NULL);
        s->loaders[i].running = false;
    }
}
