/* Rows picked out of a table: of the embedding by token id, of the hidden states by token. These kernels are launched
 * normally, not as dependents: the embedding is the first kernel of a step (see dependent.cuh). */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"

enum { MAX_THREADS = 256 };

/* Which rows: one block for each of num_ids. An id below 0 stands for last_sampled[-id - 1]. If that is -1, because no
 * token could be sampled, row 0 is read and the result is not used. */
struct row_ids {
    const int32_t *ids, *last_sampled;
    int32_t num_ids;
};

static __device__ int64_t row_of(const row_ids &rows)
{
    const int32_t id = rows.ids[blockIdx.x];
    return id >= 0 ? id : max(rows.last_sampled[-(int64_t)id - 1], 0);
}

/* A row is `units` U, where U is as wide as the rows' size and addresses allow. */
template <class U>
static __global__ void copy_rows_kernel(U *out, const U *__restrict__ table, row_ids rows, int64_t units)
{
    let_next_start();
    const U *row = table + row_of(rows) * units;
    for (int64_t i = threadIdx.x; i < units; i += blockDim.x) out[blockIdx.x * units + i] = row[i];
}

/* Rows of a second table, by position, that are added; table NULL: none. */
template <class Table> struct added_rows {
    const Table *table;
    const int32_t *positions;
    int32_t offset;
};

template <class T, class Table>
static __global__ void convert_rows_kernel(T *out, const Table *__restrict__ table, row_ids rows, int64_t size,
                                           float multiplier, const added_rows<Table> added)
{
    let_next_start();
    const Table *row = table + row_of(rows) * size;
    const Table *position = added.table ? added.table + (added.positions[blockIdx.x] + added.offset) * size : NULL;
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
        const float value = multiplier * to_float(row[i]);
        out[blockIdx.x * size + i] = from_float<T>(position ? value + to_float(position[i]) : value);
    }
}

static void copy_rows(struct backend *b, void *out, const void *table, const row_ids &rows, int64_t row_bytes)
{
    cudaStream_t stream = cuda_stream(b, NULL);
    if (row_bytes % 16 == 0 && cuda_is_aligned(out) && cuda_is_aligned(table)) {
        copy_rows_kernel<<<rows.num_ids, cuda_threads_for(row_bytes / 16, MAX_THREADS), 0, stream>>>(
            (uint4 *)out, (const uint4 *)table, rows, row_bytes / 16);
    } else { /* no type is smaller than 2 bytes */
        copy_rows_kernel<<<rows.num_ids, cuda_threads_for(row_bytes / 2, MAX_THREADS), 0, stream>>>(
            (uint16_t *)out, (const uint16_t *)table, rows, row_bytes / 2);
    }
}

static void convert_rows(struct backend *b, const struct embedding_args *args, const row_ids &rows)
{
    const int64_t size = args->table->in_features;
    cudaStream_t stream = cuda_stream(b, NULL);
    cuda_dispatch(b, "embedding", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        cuda_dispatch(b, "embedding", weight_dtype(args->table), [&](auto table_zero) {
            using Table = decltype(table_zero);
            added_rows<Table> added = {NULL, args->positions, args->position_offset};
            if (args->position_table) added.table = (const Table *)args->position_table->data;
            convert_rows_kernel<<<rows.num_ids, cuda_threads_for(size, MAX_THREADS), 0, stream>>>(
                (T *)args->out, (const Table *)args->table->data, rows, size, args->multiplier, added);
        });
    });
}

void cuda_embedding(struct backend *b, const struct embedding_args *args)
{
    const row_ids rows = {args->ids, args->last_sampled, args->num_tokens};
    if (args->num_tokens <= 0) return;
    if (weight_dtype(args->table) == args->dtype && args->multiplier == 1 && !args->position_table) {
        copy_rows(b, args->out, args->table->data, rows, args->table->in_features * dtype_size(args->dtype));
    } else {
        convert_rows(b, args, rows);
    }
    cuda_check_launch(b, "embedding");
}

void cuda_gather_rows(struct backend *b, const struct gather_rows_args *args)
{
    const row_ids rows = {args->indices, NULL, args->num_indices};
    if (args->num_indices <= 0) return;
    copy_rows(b, args->out, args->x, rows, (int64_t)args->size * dtype_size(args->dtype));
    cuda_check_launch(b, "gather_rows");
}
