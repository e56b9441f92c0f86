/* Block tables, and copies of the cache's blocks. */
#include <string.h>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum {
    THREADS = 256,
    MAX_CACHES = 256,  /* of one launch of copy_blocks: a kernel's arguments are limited to 4 KiB */
    MAX_PAIRS = 65535, /* of one launch of copy_blocks: the limit of the grid's y */
    SWAP_CACHES = 64,  /* of one launch of swap_blocks, whose pairs are arguments too */
    SWAP_PAIRS = 256,
    SWAP_GRID = 32
};

static __global__ void update_block_tables_kernel(int32_t *block_tables, int64_t stride, int64_t group_stride,
                                                  const struct block_table_delta *__restrict__ deltas, int num_deltas)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= num_deltas) return;
    const struct block_table_delta delta = deltas[i];
    block_tables[delta.group * group_stride + delta.state_index * stride + delta.index] = delta.block;
}

void cuda_update_block_tables(struct backend *b, const struct update_block_tables_args *args)
{
    if (args->num_deltas <= 0) return;
    update_block_tables_kernel<<<(unsigned)cuda_div_up(args->num_deltas, THREADS), THREADS, 0, cuda_stream(b, NULL)>>>(
        args->block_tables, args->block_table_stride, args->group_stride, args->deltas, args->num_deltas);
    cuda_check_launch(b, "update_block_tables");
}

struct cache_list {
    void *caches[MAX_CACHES];
};

/* Grid: x the cache, y the pair. A block of the cache is `units` U. */
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

/* One launch: `part` has at most MAX_CACHES caches and MAX_PAIRS pairs. */
static void copy_launch(const struct copy_blocks_args *part, cudaStream_t stream)
{
    struct cache_list list;
    bool vectors = part->block_bytes % 16 == 0;
    for (int32_t i = 0; i < part->num_caches; i++) {
        list.caches[i] = part->caches[i];
        vectors = vectors && cuda_is_aligned(part->caches[i]);
    }
    const dim3 grid(part->num_caches, part->num_pairs);
    if (vectors) {
        copy_blocks_kernel<uint4><<<grid, THREADS, 0, stream>>>(list, part->block_bytes / 16, part->pairs);
    } else {
        copy_blocks_kernel<uint8_t><<<grid, THREADS, 0, stream>>>(list, part->block_bytes, part->pairs);
    }
}

static int32_t at_most(int32_t count, int32_t limit)
{
    return count < limit ? count : limit;
}

void cuda_copy_blocks(struct backend *b, const struct copy_blocks_args *args)
{
    if (args->block_bytes <= 0) return;
    cudaStream_t stream = cuda_stream(b, NULL);
    for (int32_t first = 0; first < args->num_caches; first += MAX_CACHES)
        for (int32_t pair = 0; pair < args->num_pairs; pair += MAX_PAIRS) {
            const struct copy_blocks_args part = {.caches = args->caches + first,
                                                  .num_caches = at_most(args->num_caches - first, MAX_CACHES),
                                                  .block_bytes = args->block_bytes,
                                                  .pairs = args->pairs + pair,
                                                  .num_pairs = at_most(args->num_pairs - pair, MAX_PAIRS)};
            copy_launch(&part, stream);
        }
    cuda_check_launch(b, "copy_blocks");
}

/* The arguments of one launch of swap_blocks. */
struct swap_call {
    const void *sources[SWAP_CACHES];
    void *destinations[SWAP_CACHES];
    struct block_pair pairs[SWAP_PAIRS];
    int32_t num_caches, num_pairs;
    int64_t units; /* of a block */
};

/* One of the two addresses is in host memory, so a load takes long: a thread starts AT_ONCE loads before its first
 * store. */
template <class U> static __device__ __forceinline__ void swap_block(U *to, const U *from, int64_t units)
{
    enum { AT_ONCE = 8 };
    U values[AT_ONCE];
    for (int64_t first = threadIdx.x; first < units; first += AT_ONCE * THREADS) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i * THREADS < units) values[i] = from[first + i * THREADS];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i * THREADS < units) to[first + i * THREADS] = values[i];
    }
}

template <class U>
static __global__ void __launch_bounds__(THREADS) swap_blocks_kernel(const __grid_constant__ struct swap_call call)
{
    for (int i = blockIdx.x; i < call.num_caches * call.num_pairs; i += gridDim.x) {
        const int cache = i / call.num_pairs;
        const struct block_pair pair = call.pairs[i % call.num_pairs];
        swap_block((U *)call.destinations[cache] + pair.destination * call.units,
                   (const U *)call.sources[cache] + pair.source * call.units, call.units);
    }
}

/* A kernel copies to and from pinned memory at the speed of the bus; a copy engine needs about 20 us for each block,
 * however small the block is. The grid is small, so that kernels of other streams can run at the same time. */
static void swap_launch(struct swap_call *call, int64_t block_bytes, cudaStream_t stream)
{
    const int grid = at_most(call->num_caches * call->num_pairs, SWAP_GRID);
    bool vectors = block_bytes % 16 == 0;
    for (int32_t i = 0; i < call->num_caches; i++)
        vectors = vectors && cuda_is_aligned(call->sources[i]) && cuda_is_aligned(call->destinations[i]);
    call->units = vectors ? block_bytes / 16 : block_bytes;
    if (vectors) {
        swap_blocks_kernel<uint4><<<grid, THREADS, 0, stream>>>(*call);
    } else {
        swap_blocks_kernel<uint8_t><<<grid, THREADS, 0, stream>>>(*call);
    }
}

void cuda_swap_blocks(struct backend *b, const struct swap_blocks_args *args, backend_stream stream)
{
    struct swap_call call;
    cudaStream_t on = cuda_stream(b, stream);
    if (args->block_bytes <= 0) return;
    for (int32_t cache = 0; cache < args->num_caches; cache += call.num_caches) {
        call.num_caches = at_most(args->num_caches - cache, SWAP_CACHES);
        memcpy(call.sources, args->sources + cache, (size_t)call.num_caches * sizeof *call.sources);
        memcpy(call.destinations, args->destinations + cache, (size_t)call.num_caches * sizeof *call.destinations);
        for (int32_t pair = 0; pair < args->num_pairs; pair += call.num_pairs) {
            call.num_pairs = at_most(args->num_pairs - pair, SWAP_PAIRS);
            memcpy(call.pairs, args->pairs + pair, (size_t)call.num_pairs * sizeof *call.pairs);
            swap_launch(&call, args->block_bytes, on);
        }
    }
    cuda_check_launch(b, "swap_blocks");
}
