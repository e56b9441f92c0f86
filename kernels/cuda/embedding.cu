/* Rows picked out of a table: of the embedding by token id, of the hidden states by row number. Launched as no one's
 * dependents: the embedding is the first of a step (see dependent.cuh). */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"

enum { MAX_THREADS = 256 };

/* One block a row. Ids below 0 name a row of the last step's samples. */
static __device__ int64_t row_of(const int32_t *ids, const int32_t *last_sampled)
{
    int32_t id = ids[blockIdx.x];
    return id >= 0 ? id : last_sampled[-(int64_t)id - 1];
}

/* Rows of `units` U, which is whatever divides them and their addresses. */
template <class U>
static __global__ void copy_rows_kernel(U *out, const U *__restrict__ table, const int32_t *__restrict__ ids,
                                        const int32_t *__restrict__ last_sampled, int64_t units)
{
    let_next_start();
    const U *row = table + row_of(ids, last_sampled) * units;
    for (int64_t i = threadIdx.x; i < units; i += blockDim.x) out[blockIdx.x * units + i] = row[i];
}

template <class T, class Table>
static __global__ void convert_rows_kernel(T *out, const Table *__restrict__ table, const int32_t *__restrict__ ids,
                                           const int32_t *__restrict__ last_sampled, int64_t columns)
{
    let_next_start();
    const Table *row = table + row_of(ids, last_sampled) * columns;
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x)
        out[blockIdx.x * columns + i] = from_float<T>(to_float(row[i]));
}

static int threads_for(int64_t work)
{
    return work >= MAX_THREADS ? MAX_THREADS : (int)cuda_div_up(work > 0 ? work : 1, 32) * 32;
}

static void copy_rows(void *out, const void *table, const int32_t *ids, const int32_t *last_sampled, int32_t num_rows,
                      int64_t row_bytes, cudaStream_t stream)
{
    if (row_bytes % 16 == 0 && cuda_is_aligned(out) && cuda_is_aligned(table)) {
        copy_rows_kernel<<<num_rows, threads_for(row_bytes / 16), 0, stream>>>((uint4 *)out, (const uint4 *)table, ids,
                                                                               last_sampled, row_bytes / 16);
    } else { /* every type is of 2 bytes at least */
        copy_rows_kernel<<<num_rows, threads_for(row_bytes / 2), 0, stream>>>((uint16_t *)out, (const uint16_t *)table,
                                                                              ids, last_sampled, row_bytes / 2);
    }
}

void cuda_embedding(struct backend *b, void *out, const int32_t *ids, const int32_t *last_sampled, int32_t num_tokens,
                    const struct weight *table, enum dtype dtype, backend_stream stream)
{
    if (num_tokens <= 0) return;
    cudaStream_t on = cuda_stream(b, stream);
    if (table->dtype == dtype) {
        copy_rows(out, table->data, ids, last_sampled, num_tokens, table->in_features * dtype_size(dtype), on);
    } else {
        cuda_dispatch(b, "embedding", dtype, [&](auto zero) {
            using T = decltype(zero);
            cuda_dispatch(b, "embedding", table->dtype, [&](auto table_zero) {
                using Table = decltype(table_zero);
                convert_rows_kernel<<<num_tokens, threads_for(table->in_features), 0, on>>>(
                    (T *)out, (const Table *)table->data, ids, last_sampled, table->in_features);
            });
        });
    }
    cuda_check_launch(b, "embedding");
}

void cuda_gather_rows(struct backend *b, void *out, const void *x, const int32_t *rows, int32_t num_rows, int32_t size,
                      enum dtype dtype, backend_stream stream)
{
    if (num_rows <= 0) return;
    copy_rows(out, x, rows, NULL, num_rows, (int64_t)size * dtype_size(dtype), cuda_stream(b, stream));
    cuda_check_launch(b, "gather_rows");
}
