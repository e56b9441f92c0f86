/* Moving blocks of the cache, and the tables that name them. */
#include <string.h>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum {
    THREADS = 256,
    MAX_CACHES = 256,  /* of one launch, which may carry 4 KiB by value */
    MAX_PAIRS = 65535, /* of one launch: the grid's y */
    SWAP_CACHES = 64,
    SWAP_PAIRS = 256, /* by value as well */
    SWAP_GRID = 32
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

/* What a launch is given. */
struct swap_call {
    const void *sources[SWAP_CACHES];
    void *destinations[SWAP_CACHES];
    struct block_pair pairs[SWAP_PAIRS];
    int32_t num_caches, num_pairs;
    int64_t units; /* of a block */
};

/* The loads come from afar: all of a thread's are under way before the first is stored. */
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

/* Multiprocessors move what lies in pinned memory as fast as the bus does, block by block; the copy engines take some
 * 20 us for each block, however small it is. Few thread blocks, so that there is room for others beside them. */
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

void cuda_swap_blocks(struct backend *b, void *const *sources, void *const *destinations, int32_t num_caches,
                      int64_t block_bytes, const struct block_pair *pairs, int32_t num_pairs, backend_stream stream)
{
    struct swap_call call;
    cudaStream_t on = cuda_stream(b, stream);
    if (block_bytes <= 0) return;
    for (int32_t cache = 0; cache < num_caches; cache += call.num_caches) {
        call.num_caches = at_most(num_caches - cache, SWAP_CACHES);
        memcpy(call.sources, sources + cache, (size_t)call.num_caches * sizeof *sources);
        memcpy(call.destinations, destinations + cache, (size_t)call.num_caches * sizeof *destinations);
        for (int32_t pair = 0; pair < num_pairs; pair += call.num_pairs) {
            call.num_pairs = at_most(num_pairs - pair, SWAP_PAIRS);
            memcpy(call.pairs, pairs + pair, (size_t)call.num_pairs * sizeof *pairs);
            swap_launch(&call, block_bytes, on);
        }
    }
    cuda_check_launch(b, "swap_blocks");
}
