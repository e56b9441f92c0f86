/* Rows picked out of a table: of the embedding by token id, of the hidden states by token. These kernels are launched
 * normally, not as dependents: the embedding is the first kernel of a step (see dependent.cuh). */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"

enum { MAX_THREADS = 256 };

/* Which rows: one block for each of num_ids; ids NULL: 0, 1, 2, ... An id below 0 stands for last_sampled[-id - 1] or,
 * if that is NULL, for no row. If no token could be sampled, and the last one is -1, row 0 is read and the result is
 * not used. */
struct row_ids {
    const int32_t *ids, *last_sampled;
    int32_t num_ids;
};

static __device__ int64_t row_of(const row_ids &rows)
{
    const int32_t id = rows.ids ? rows.ids[blockIdx.x] : (int32_t)blockIdx.x;
    return id >= 0 || !rows.last_sampled ? id : max(rows.last_sampled[-(int64_t)id - 1], 0);
}

/* Bytes of a row, and from row to row. */
struct row_sizes {
    int64_t row, out_stride, table_stride;
};

/* Sizes are in U, which is as wide as sizes and addresses allow. */
template <class U>
static __global__ void copy_rows_kernel(U *out, const U *__restrict__ table, row_ids rows, row_sizes sizes)
{
    let_next_start();
    const int64_t from = row_of(rows);
    if (from < 0) return;
    for (int64_t i = threadIdx.x; i < sizes.row; i += blockDim.x)
        out[blockIdx.x * sizes.out_stride + i] = table[from * sizes.table_stride + i];
}

/* Of a table that has the rows of some ids only: the first id, and how many. */
struct ids_there {
    int64_t first, count;
};

/* Rows of a second table, by position, that are added; table NULL: none. */
template <class Table> struct added_rows {
    const Table *table;
    const int32_t *positions;
    int32_t offset;
};

template <class T, class Table>
static __global__ void convert_rows_kernel(T *out, const Table *__restrict__ table, row_ids rows, ids_there there,
                                           int64_t size, float multiplier, const added_rows<Table> added)
{
    let_next_start();
    const int64_t at = row_of(rows) - there.first;
    const bool is_there = at >= 0 && at < there.count;
    const Table *row = table + at * size;
    const Table *position = added.table ? added.table + (added.positions[blockIdx.x] + added.offset) * size : NULL;
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
        const float value = is_there ? multiplier * to_float(row[i]) : 0;
        out[blockIdx.x * size + i] = from_float<T>(position ? value + to_float(position[i]) : value);
    }
}

template <class U>
static void copy_units(struct backend *b, void *out, const void *table, const row_ids &rows, const row_sizes &bytes)
{
    const int64_t size = sizeof(U);
    const row_sizes units = {bytes.row / size, bytes.out_stride / size, bytes.table_stride / size};
    copy_rows_kernel<<<rows.num_ids, cuda_threads_for(units.row, MAX_THREADS), 0, cuda_stream(b, NULL)>>>(
        (U *)out, (const U *)table, rows, units);
}

static void copy_rows(struct backend *b, void *out, const void *table, const row_ids &rows, const row_sizes &bytes)
{
    const bool wide = (bytes.row | bytes.out_stride | bytes.table_stride) % 16 == 0;
    if (wide && cuda_is_aligned(out) && cuda_is_aligned(table)) {
        copy_units<uint4>(b, out, table, rows, bytes);
    } else { /* no type is smaller than 2 bytes */
        copy_units<uint16_t>(b, out, table, rows, bytes);
    }
}

static void convert_rows(struct backend *b, const struct embedding_args *args, const row_ids &rows)
{
    const int64_t size = args->table->in_features;
    const ids_there there = {args->first_id, args->table->out_features};
    cudaStream_t stream = cuda_stream(b, NULL);
    cuda_dispatch(b, "embedding", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        cuda_dispatch(b, "embedding", weight_dtype(args->table), [&](auto table_zero) {
            using Table = decltype(table_zero);
            added_rows<Table> added = {NULL, args->positions, args->position_offset};
            if (args->position_table) added.table = (const Table *)args->position_table->data;
            convert_rows_kernel<<<rows.num_ids, cuda_threads_for(size, MAX_THREADS), 0, stream>>>(
                (T *)args->out, (const Table *)args->table->data, rows, there, size, args->multiplier, added);
        });
    });
}

void cuda_embedding(struct backend *b, const struct embedding_args *args)
{
    const row_ids rows = {args->ids, args->last_sampled, args->num_tokens};
    if (args->num_tokens <= 0) return;
    if (weight_dtype(args->table) == args->dtype && args->multiplier == 1 && !args->position_table && !args->is_part) {
        const int64_t bytes = args->table->in_features * dtype_size(args->dtype);
        copy_rows(b, args->out, args->table->data, rows, {bytes, bytes, bytes});
    } else {
        convert_rows(b, args, rows);
    }
    cuda_check_launch(b, "embedding");
}

void cuda_gather_rows(struct backend *b, const struct gather_rows_args *args)
{
    const row_ids rows = {args->indices, NULL, args->num_indices};
    if (args->num_indices <= 0) return;
    const int64_t size = dtype_size(args->dtype);
    copy_rows(b, args->out, args->x, rows, {args->size * size, args->out_stride * size, args->x_stride * size});
    cuda_check_launch(b, "gather_rows");
}
