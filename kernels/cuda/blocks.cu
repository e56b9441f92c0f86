/* Moving blocks of the cache, and the tables that name them. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum {
    THREADS = 256,
    MAX_CACHES =
        256, /* of one launch: their addresses go with it by value, 2 KiB of the 4 KiB that a launch may carry */
    MAX_PAIRS = 65535, /* of one launch: the grid's y */
    BATCH = 128        /* copies handed to the driver at once */
};

static __global__ void update_block_tables_kernel(int32_t *block_tables, int64_t stride,
                                                  const struct block_table_delta *__restrict__ deltas, int num_deltas)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= num_deltas) return;
    const struct block_table_delta delta = deltas[i];
    block_tables[delta.row * stride + delta.index] = delta.block;
}

void cuda_update_block_tables(struct backend *b, int32_t *block_tables, int64_t block_table_stride,
                              const struct block_table_delta *deltas, int32_t num_deltas, backend_stream stream)
{
    if (num_deltas <= 0) return;
    update_block_tables_kernel<<<(unsigned)cuda_div_up(num_deltas, THREADS), THREADS, 0, cuda_stream(b, stream)>>>(
        block_tables, block_table_stride, deltas, num_deltas);
    cuda_check_launch(b, "update_block_tables");
}

struct cache_list {
    void *caches[MAX_CACHES];
};

/* Grid: x the cache, y the pair. Blocks of `units` U. */
template <class U>
static __global__ void __launch_bounds__(THREADS)
    copy_blocks_kernel(const __grid_constant__ struct cache_list list, int64_t units,
                       const struct block_pair *__restrict__ pairs)
{
    const struct block_pair pair = pairs[blockIdx.y];
    U *cache = (U *)list.caches[blockIdx.x];
    const U *from = cache + pair.source * units;
    U *to = cache + pair.destination * units;
    for (int64_t i = threadIdx.x; i < units; i += THREADS) to[i] = from[i];
}

static void copy_in_caches(void *const *caches, int32_t num_caches, int64_t block_bytes, const struct block_pair *pairs,
                           int32_t num_pairs, cudaStream_t stream)
{
    struct cache_list list;
    bool vectors = block_bytes % 16 == 0;
    for (int32_t i = 0; i < num_caches; i++) {
        list.caches[i] = caches[i];
        vectors = vectors && cuda_is_aligned(caches[i]);
    }
    const dim3 grid(num_caches, num_pairs);
    if (vectors) {
        copy_blocks_kernel<uint4><<<grid, THREADS, 0, stream>>>(list, block_bytes / 16, pairs);
    } else {
        copy_blocks_kernel<uint8_t><<<grid, THREADS, 0, stream>>>(list, block_bytes, pairs);
    }
}

static int32_t at_most(int32_t count, int32_t limit)
{
    return count < limit ? count : limit;
}

void cuda_copy_blocks(struct backend *b, void *const *caches, int32_t num_caches, int64_t block_bytes,
                      const struct block_pair *pairs, int32_t num_pairs, backend_stream stream)
{
    if (block_bytes <= 0) return;
    cudaStream_t on = cuda_stream(b, stream);
    for (int32_t first = 0; first < num_caches; first += MAX_CACHES)
        for (int32_t pair = 0; pair < num_pairs; pair += MAX_PAIRS)
            copy_in_caches(caches + first, at_most(num_caches - first, MAX_CACHES), block_bytes, pairs + pair,
                           at_most(num_pairs - pair, MAX_PAIRS), on);
    cuda_check_launch(b, "copy_blocks");
}

/* Copies that wait to be handed to the driver together. */
struct copy_batch {
    struct backend *b;
    cudaStream_t stream;
    int count;
    void *destinations[BATCH], *sources[BATCH];
    size_t bytes[BATCH];
};

/* All in one call, where the driver (CUDA 12.8 and later) has it: a call for each costs more than its copy. */
static cudaError_t hand_over(struct copy_batch *batch)
{
    struct cudaMemcpyAttributes attributes = {};
    size_t first = 0;
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync(batch->destinations, (const void *const *)batch->sources, batch->bytes,
                                (size_t)batch->count, &attributes, &first, 1, batch->stream);
#else
    size_t failed;
    return cudaMemcpyBatchAsync(batch->destinations, batch->sources, batch->bytes, (size_t)batch->count, &attributes,
                                &first, 1, &failed, batch->stream);
#endif
}

static void flush(struct copy_batch *batch)
{
    if (batch->count == 0) return;
    cudaError_t error = hand_over(batch);
    if (error == cudaErrorNotSupported || error == cudaErrorCallRequiresNewerDriver) {
        cudaGetLastError();
        error = cudaSuccess;
        for (int i = 0; i < batch->count && error == cudaSuccess; i++)
            error = cudaMemcpyAsync(batch->destinations[i], batch->sources[i], batch->bytes[i], cudaMemcpyDefault,
                                    batch->stream);
    }
    cuda_check(batch->b, "swap_blocks", error);
    batch->count = 0;
}

/* How many of these pairs are next to each other on both sides. */
static int32_t run_of(const struct block_pair *pairs, int32_t count)
{
    int32_t n = 1;
    while (n < count && pairs[n].source == pairs[0].source + n && pairs[n].destination == pairs[0].destination + n) n++;
    return n;
}

void cuda_swap_blocks(struct backend *b, void *const *sources, void *const *destinations, int32_t num_caches,
                      int64_t block_bytes, const struct block_pair *pairs, int32_t num_pairs, backend_stream stream)
{
    struct copy_batch batch;
    batch.b = b;
    batch.stream = cuda_stream(b, stream);
    batch.count = 0;
    for (int32_t pair = 0, run; pair < num_pairs && block_bytes > 0; pair += run) {
        run = run_of(pairs + pair, num_pairs - pair);
        for (int32_t cache = 0; cache < num_caches; cache++) {
            batch.sources[batch.count] = (uint8_t *)sources[cache] + pairs[pair].source * block_bytes;
            batch.destinations[batch.count] = (uint8_t *)destinations[cache] + pairs[pair].destination * block_bytes;
            batch.bytes[batch.count++] = (size_t)(run * block_bytes);
            if (batch.count == BATCH) flush(&batch);
        }
    }
    flush(&batch);
}
