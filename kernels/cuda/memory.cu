/* Device memory and pinned host memory, and copies between any two kinds of memory. */
#include <stdio.h>

#include "kernels/cuda/collective/peers.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

enum status cuda_memory_info(struct backend *b, int64_t *free_bytes, int64_t *total_bytes, struct error *err)
{
    size_t available = 0, total = 0;
    struct cuda_state *s = cuda_use(b);
    cuda_preload_wait(s);
    if (s->group) communicators_wait(&s->group->communicators);
    cudaError_t error = cudaMemGetInfo(&available, &total);
    if (error != cudaSuccess)
        return error_set(err, STATUS_INTERNAL, "%s does not say how much memory it has: %s", b->name,
                         cudaGetErrorString(error));
    *free_bytes = (int64_t)available;
    *total_bytes = (int64_t)total;
    return STATUS_OK;
}

static enum status refused(struct backend *b, enum memory_kind kind, int64_t bytes, cudaError_t error,
                           struct error *err)
{
    size_t available = 0, total = 0;
    cudaGetLastError(); /* clears it: later checks must not report it again */
    enum status status = error == cudaErrorMemoryAllocation ? STATUS_OUT_OF_MEMORY : STATUS_INTERNAL;
    if (kind == MEMORY_HOST_PINNED)
        return error_set(err, status, "cannot allocate %.3f GiB of pinned host memory for %s: %s", (double)bytes / GIB,
                         b->name, cudaGetErrorString(error));
    cudaMemGetInfo(&available, &total);
    return error_set(err, status, "cannot allocate %.3f GiB on %s, where %.3f GiB of %.3f GiB are free: %s",
                     (double)bytes / GIB, b->name, (double)available / GIB, (double)total / GIB,
                     cudaGetErrorString(error));
}

enum status cuda_memory_alloc(struct backend *b, enum memory_kind kind, int64_t bytes, void **out, struct error *err)
{
    *out = NULL;
    if (bytes < 0) return error_set(err, STATUS_INVALID, "an allocation of %lld bytes was asked for", (long long)bytes);
    size_t size = bytes > 0 ? (size_t)bytes : 1; /* an empty allocation has an address of its own too */
    cudaStream_t main_stream = cuda_stream(b, NULL);
    void *data = NULL;
    cudaError_t error = cudaErrorMemoryAllocation;
    if (!cuda_allocation_fails(b))
        error = kind == MEMORY_DEVICE ? cudaMalloc(&data, size) : cudaHostAlloc(&data, size, cudaHostAllocPortable);
    if (error != cudaSuccess) return refused(b, kind, bytes, error, err);
    if (kind == MEMORY_DEVICE) error = cudaMemsetAsync(data, 0, size, main_stream);
    if (error != cudaSuccess) {
        cuda_memory_free(b, kind, data, bytes);
        return refused(b, kind, bytes, error, err);
    }
    *out = data;
    return STATUS_OK;
}

void cuda_memory_free(struct backend *b, enum memory_kind kind, void *data, int64_t bytes)
{
    (void)bytes;
    if (!data) return;
    cuda_use(b);
    cuda_check(b, "memory_free", kind == MEMORY_DEVICE ? cudaFree(data) : cudaFreeHost(data));
}

void cuda_copy(struct backend *b, void *destination, const void *source, int64_t bytes, backend_stream stream)
{
    if (bytes <= 0) return;
    cuda_check(b, "copy",
               cudaMemcpyAsync(destination, source, (size_t)bytes, cudaMemcpyDefault, cuda_stream(b, stream)));
}

void cuda_fill(struct backend *b, void *destination, int byte, int64_t bytes)
{
    if (bytes <= 0) return;
    cuda_check(b, "fill", cudaMemsetAsync(destination, byte, (size_t)bytes, cuda_stream(b, NULL)));
}
