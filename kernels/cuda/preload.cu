/* What takes long to load, loaded in threads while the rest of the start goes on. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum { SIZE = 1024 }; /* any that is no special case */

/* A product for nothing: the first one of each pair of types makes cuBLAS load a library of kernels. What fails here
 * fails again, and is reported, where a product is needed. */
static void *load_product(void *loader)
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
        cublas_product(cublas, out, SIZE, l->out_dtype, x, SIZE, w, l->dtype, SIZE, SIZE, SIZE, false, stream);
        cudaStreamSynchronize(stream);
    }
    cudaFree(memory);
    if (stream) cudaStreamDestroy(stream);
    cublas_close(cublas);
    return NULL;
}

void cuda_load_ahead(struct backend *b, enum dtype dtype)
{
    struct cuda_state *s = cuda_state(b);
    cuda_load_wait(s);
    const enum dtype out_dtypes[CUDA_NUM_LOADERS] = {dtype, DTYPE_FLOAT32}; /* of layers, of logits */
    for (int i = 0; i < CUDA_NUM_LOADERS; i++) {
        struct cuda_loader *l = &s->loaders[i];
        l->device = s->device;
        l->dtype = dtype;
        l->out_dtype = out_dtypes[i];
        l->running = pthread_create(&l->thread, NULL, load_product, l) == 0;
    }
}

void cuda_load_wait(struct cuda_state *s)
{
    for (int i = 0; i < CUDA_NUM_LOADERS; i++) {
        if (s->loaders[i].running) pthread_join(s->loaders[i].thread, NULL);
        s->loaders[i].running = false;
    }
}
