/* all_gather, in passes (peers.cuh). A chunk is a range of all elements of x [rows, total], row by row. Each rank sends
 * those that it has to their places in the others' chunks, and then takes those that it has not, so none needs to know
 * which columns another has. */
#include "kernels/cuda/collective/peers.cuh"
#include "kernels/cuda/operations.h"

using namespace collective;

enum { CHUNK_FLOATS = CHUNK_BYTES / 4 };

struct gathered {
    float *x;
    int64_t stride;
    uint32_t elements, total, first, columns; /* elements: rows * total */

    /* Where element i is, and whether the rank had it from the start. */
    __device__ __forceinline__ float *place(uint32_t i, bool *mine) const
    {
        const uint32_t row = i / total, column = i % total;
        *mine = column >= first && column < first + columns;
        return x + row * stride + column;
    }
};

static __global__ void __launch_bounds__(THREADS)
    gather_kernel(const __grid_constant__ peers p, const __grid_constant__ gathered g, int per_chunk)
{
    let_next_start();
    wait_for_previous();
    uint32_t pass = own(p)->passes[blockIdx.x];
    const uint64_t step = (uint64_t)gridDim.x * per_chunk;
    for (uint64_t begin = (uint64_t)blockIdx.x * per_chunk; begin < g.elements; begin += step) {
        const int size = (int)min((uint64_t)per_chunk, g.elements - begin), set = ++pass % 2;
#pragma unroll 4
        for (int i = threadIdx.x; i < size; i += THREADS) {
            bool mine;
            const float *from = g.place((uint32_t)begin + i, &mine);
            if (!mine) continue;
            const float x = *from;
            for_each_other(p, [&](int k) { ((float *)p.of[k]->results[set][blockIdx.x])[i] = x; });
        }
        exchange(p, RESULTS_ARE_THERE, pass);
        const float *results = (const float *)own(p)->results[set][blockIdx.x];
#pragma unroll 4
        for (int i = threadIdx.x; i < size; i += THREADS) {
            bool mine;
            float *to = g.place((uint32_t)begin + i, &mine);
            if (!mine) *to = __ldcv(results + i);
        }
    }
    if (threadIdx.x == 0) own(p)->passes[blockIdx.x] = pass;
}

/* Elements are numbered in 32 bits, so very many rows take several kernels. */
void cuda_all_gather(struct backend *b, const struct all_gather_args *args)
{
    if (args->rows <= 0 || args->total <= 0) return;
    const struct cuda_state *s = cuda_use(b);
    const int64_t most_rows = ((int64_t)1 << 31) / args->total > 0 ? ((int64_t)1 << 31) / args->total : 1;
    for (int64_t row = 0; row < args->rows; row += most_rows) {
        const int64_t rows = args->rows - row < most_rows ? args->rows - row : most_rows;
        const gathered g = {args->x + row * args->stride, args->stride,          (uint32_t)(rows * args->total),
                            (uint32_t)args->total,        (uint32_t)args->first, (uint32_t)args->columns};
        const int64_t share = cuda_div_up(g.elements, s->group->max_blocks), least = THREADS, most = CHUNK_FLOATS;
        const int64_t per_chunk = share < least ? least : share < most ? share : most;
        cuda_launch_dependent(s, gather_kernel, {cuda_blocks_for(s, cuda_div_up(g.elements, per_chunk)), THREADS},
                              cuda_peers(s), g, (int)per_chunk);
    }
    cuda_check_launch(b, "all_gather");
}

bool cuda_load_all_gather(struct backend *b)
{
    struct cudaFuncAttributes attributes;
    return cuda_check(b, "all_gather", cudaFuncGetAttributes(&attributes, gather_kernel));
}
