/* What the kernels share that compute a matmul in tiles of output features with wgmma (linear_wgmma.cu,
 * linear_wgmma_quantized.cuh, linear_wgmma_4_bits.cuh): how many tiles and parts there are, how an operand lies in
 * shared memory and is copied there, and how a tile of sums becomes a part of out.
 *
 * An operand in shared memory has rows of 128 bytes, that is 64 input features, in the 128-byte swizzle: the 16-byte
 * pieces of a row are permuted by the row's number. The copy engine and wgmma both know this layout. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_TILE_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_TILE_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/matmul/tile.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"

enum {
    GROUP = 128, /* threads of a warpgroup, which has 64 rows of a tile */
    BOX_FEATURES = 64,
    BOX_ROW = 2 * BOX_FEATURES, /* bytes */
    MAX_SPLITS = 8,
    MIN_PART = 512,  /* input features */
    ALIGNMENT = 1024 /* of a box: the swizzle's period */
};

/* The parts of a tile are the blocks of a cluster. */
struct wgmma_call : tiled_matmul {
    CUtensorMap weight, x; /* in boxes of tile_rows (half as many with MATMUL_GATE) and of the tokens of a tile */
    bool eights;           /* eight 16-bit elements of a row of out can be moved as one */
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- the part of a block ---- */

/* N: the tokens of a tile. Tiles of the same output features follow each other, because they read the same weights; but
 * tiles of the same tokens do with row segments, because there is more of x than the L2 cache holds, and the weights of
 * a segment fit into it. */
template <int N> static __device__ __forceinline__ tile_part find_part(const tiled_matmul &call)
{
    const int index = blockIdx.x / call.splits;
    if (call.matmul.segments.count > 0) {
        const int tiles = gridDim.x / (call.token_tiles * call.splits);
        return find_part<N>(call, index % tiles, index / tiles, blockIdx.x % call.splits);
    }
    return find_part<N>(call, index / call.token_tiles, index % call.token_tiles, blockIdx.x % call.splits);
}

/* The rows of a tile that a thread has in each of its row blocks: this one and the one 8 behind it. */
template <int ROW_BLOCKS> static __device__ __forceinline__ int row_of_thread(int block)
{
    return (threadIdx.x / GROUP * ROW_BLOCKS + block) * 64 + threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
}

/* The row of the weight that a row of the tile is; one that exists. */
static __device__ __forceinline__ int weight_row(const tiled_matmul &call, const tile_part &part, int row)
{
    const int features = (int)call.matmul.out_features, half = call.tile_rows / 2;
    const int feature = call.matmul.result != MATMUL_GATE ? part.tile * call.tile_rows + row
                        : row < half                      ? part.tile * half + row
                                                          : features / 2 + part.tile * half + row - half;
    return part.first_row + min(feature, features - 1);
}

/* Waits for all blocks of the cluster, which do not use each other's shared memory after that. */
static __device__ __forceinline__ void leave_cluster(const tiled_matmul &call)
{
    if (call.splits == 1) return;
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
}

/* ---- the ring ---- */

/* Stages and their barriers: full[s] ends a phase when what was copied to stage s is there, empty[s] when it has been
 * multiplied. */
struct step_ring {
    uint8_t *data;
    uint64_t *full, *empty;
    int32_t stages, stage_bytes;
};

/* By one thread for each stage: so many threads arrive at its barriers. */
static __device__ __forceinline__ void init_stage(const step_ring &ring, int stage, int full, int empty)
{
    barrier_init(&ring.full[stage], full);
    barrier_init(&ring.empty[stage], empty);
}

/* Waits until a stage that is to be filled is free. */
static __device__ __forceinline__ void wait_until_free(const step_ring &ring, const ring_place &at)
{
    if (at.round > 0) barrier_wait(&ring.empty[at.stage], (at.round - 1) & 1);
}

/* What is copied of an operand: from `row` of its matrix on, and of a gated weight from second_row on. */
struct operand {
    const CUtensorMap *map;
    int row, second_row; /* second_row -1: none */
    int bytes;           /* of the box of either */
    int columns;         /* of the map, from a box to the next */
};

static __device__ __forceinline__ operand weights_of_tile(const wgmma_call &call, const tile_part &part, int row_bytes,
                                                          int columns)
{
    const int rows = box_rows(call), row = part.first_row + part.tile * rows;
    const int up_row = call.matmul.result == MATMUL_GATE ? (int)(call.matmul.out_features / 2) + row : -1;
    return {&call.weight, row, up_row, rows * row_bytes, columns};
}

static __device__ __forceinline__ operand tokens_of_tile(const wgmma_call &call, const tile_part &part, int bytes)
{
    return {&call.x, part.first_token, -1, bytes, BOX_FEATURES};
}

/* The bytes that copy_box copies. */
static __device__ __forceinline__ int box_bytes(const operand &o)
{
    return o.second_row < 0 ? o.bytes : 2 * o.bytes;
}

static __device__ __forceinline__ void copy_box(const operand &o, int box, uint8_t *to, uint64_t *full, uint64_t policy)
{
    box_copy_2d(to, o.map, box * o.columns, o.row, full, policy);
    if (o.second_row >= 0) box_copy_2d(to + o.bytes, o.map, box * o.columns, o.second_row, full, policy);
}

/* By one thread: copies an operand's BOXES boxes of each of the steps begin .. end - 1, which begin with `first` and go
 * round, to a stage of its own as soon as that is free: to `offset` and on, box_step bytes apart. */
template <int BOXES>
static __device__ __forceinline__ void copy_steps(const operand &o, const step_ring &ring, int begin, int end,
                                                  int first, int offset, int box_step, uint64_t policy)
{
    ring_place at = {0, 0};
#pragma unroll 1
    for (int i = begin; i < end; i++) {
        uint8_t *to = ring.data + at.stage * ring.stage_bytes + offset;
        uint64_t *full = &ring.full[at.stage];
        wait_until_free(ring, at);
        barrier_arrive_expect(full, BOXES * box_bytes(o));
#pragma unroll
        for (int box = 0; box < BOXES; box++) copy_box(o, first * BOXES + box, to + box * box_step, full, policy);
        if (++first == end) first = begin;
        ring_step(at, ring.stages);
    }
}

/* ---- the end of a tile ---- */

/* A barrier of the warpgroups that multiply. */
template <class L> static __device__ __forceinline__ void mma_warps_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(L::MMA_THREADS) : "memory");
}

/* Writes a thread's sums of a row block, each times the scale of its row, over the rings. */
template <class L, int N>
static __device__ __forceinline__ void leave_sums(float *shared_sums, const float (&sums)[N / 2], int row,
                                                  const float (&scales)[2])
{
    const int token = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        shared_sums[(i / 4 * 8 + token + i % 2) * L::SUMS_ROW + row + i % 4 / 2 * 8] = sums[i] * scales[i % 4 / 2];
}

/* Once each thread has put its sums into the shared memory of its block: adds the sums of the parts, and writes the
 * tile. By all threads that multiply. */
template <class T, class L>
static __device__ __forceinline__ void finish_tile(const tiled_matmul &call, const tile_part &part, const float *sums)
{
    if (call.splits > 1) {
        __syncwarp();
        cluster_arrive();
        cluster_wait();
    } else {
        mma_warps_sync<L>();
    }
    wait_for_previous();
    if (call.matmul.result == MATMUL_GATE) {
        write_tile<T, L, T, true, 4, L::TOKENS_AT_ONCE / 2>(call, part, sums, L::SUMS_ROW, call.splits, call.fours);
    } else if (call.matmul.out_is_float) {
        write_tile<T, L, float, false, 4, L::TOKENS_AT_ONCE>(call, part, sums, L::SUMS_ROW, call.splits, call.fours);
    } else {
        write_tile<T, L, T, false, 4, L::TOKENS_AT_ONCE>(call, part, sums, L::SUMS_ROW, call.splits, call.fours);
    }
}

/* ---- the end of a tile that is not split, with 16-bit results ---- */

/* From a token to the next, in elements of T: padded, so that the tokens of a warp are in different banks. */
template <class L> static constexpr int RESULTS_ROW = L::ROWS + 8;

static __device__ __forceinline__ bool is_whole_tile(const wgmma_call &call)
{
    return call.eights && call.splits == 1;
}

/* Four matrices [8 output features][8 tokens] of T, of which a lane has two tokens of feature lane / 4. Lane 8 i + t
 * has the address of the 8 features of token t of matrix i. */
static __device__ __forceinline__ void store_transposed(uint32_t address, const uint32_t (&pairs)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address),
                 "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                 : "memory");
}

/* Writes a thread's results of a row block over the rings: its sums times the scales of its rows, with their biases,
 * rounded as write_tile does it. */
template <class T, int N, class L>
static __device__ __forceinline__ void share_results(const float (&sums)[N / 2], const wgmma_call &call,
                                                     const tile_part &part, int row, const float (&scales)[2],
                                                     T *results)
{
    const int lane = threadIdx.x % 32, token = lane / 16 * 8 + lane % 8;
    const int piece_row = row - lane / 4 + lane / 8 % 2 * 8;
    const uint32_t to = shared_address(results + token * RESULTS_ROW<L> + piece_row);
    T bias[2] = {};
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (call.matmul.bias) bias[i] = ((const T *)call.matmul.bias)[weight_row(call, part, row + 8 * i)];
#pragma unroll
    for (int i = 0; i < N / 2; i += 8) {
        uint32_t pairs[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const piece<float, 2> y = {__fmul_rn(sums[i + 2 * j], scales[j % 2]),
                                       __fmul_rn(sums[i + 2 * j + 1], scales[j % 2])};
            const piece<T, 2> rounded = round_sums<T>(y, piece<T, 2>{bias[j % 2], bias[j % 2]});
            pairs[j] = *(const uint32_t *)&rounded;
        }
        store_transposed(to + i * 2 * RESULTS_ROW<L> * (int)sizeof(T), pairs);
    }
}

/* By all threads that multiply, once they have shared their results. */
template <class T, class L>
static __device__ __forceinline__ void finish_whole_tile(const wgmma_call &call, const tile_part &part,
                                                         const T *results)
{
    mma_warps_sync<L>();
    wait_for_previous();
    if (call.matmul.result == MATMUL_GATE) {
        write_tile<T, L, T, true, 8, 4>(call, part, results, RESULTS_ROW<L>, 1, true);
    } else {
        write_tile<T, L, T, false, 8, 4>(call, part, results, RESULTS_ROW<L>, 1, true);
    }
}

#endif

/* ---- the host's side ---- */

/* A map of a matrix [rows, in_features] whose rows are `stride` apart, in boxes of 64 input features. */
static inline bool map_matrix(CUtensorMap *out, const void *data, int64_t rows, int64_t in_features, int64_t stride,
                              int32_t box_rows)
{
    const struct tensor_map_args args = {data,
                                         2,
                                         {in_features, rows},
                                         {stride},
                                         {BOX_FEATURES, box_rows},
                                         CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B};
    return tensor_map_encode(out, &args);
}

static inline void set_matmul(struct wgmma_call *call, const struct matmul *m)
{
    const int64_t features = m->result == MATMUL_GATE ? m->out_features / 2 : m->out_features;
    call->matmul = *m;
    call->fours = features % 4 == 0 && m->out_stride % 4 == 0 && cuda_is_aligned(m->out);
    call->eights = !m->out_is_float && features % 8 == 0 && m->out_stride % 8 == 0 && cuda_is_aligned(m->out);
}

/* The parts of each of so many tiles: as many as leave room for the next kernel's blocks; two where that many blocks
 * find room, if prefers_two. */
static inline int32_t splits_of(int64_t places, int64_t tiles, int64_t in_features, bool prefers_two)
{
    int64_t splits = places * 3 / 4 / tiles;
    if (prefers_two && splits < 2 && 2 * tiles <= places) splits = 2; /* clusters of two always find room */
    if (splits > in_features / MIN_PART) splits = in_features / MIN_PART;
    return splits > MAX_SPLITS ? MAX_SPLITS : splits < 1 ? 1 : (int32_t)splits;
}

/* Few tiles are split. Many tiles have a size at which the last round of blocks has as much to do as the others. */
template <class L>
static void plan_tiles(const struct cuda_state *s, struct tiled_matmul *call, int64_t step, bool prefers_two)
{
    const struct matmul *m = &call->matmul;
    const int64_t places = (int64_t)L::PLACES * s->num_sms, tiles = cuda_div_up(m->out_features, L::ROWS);
    const int64_t even = cuda_div_up(m->out_features, cuda_div_up(tiles, places) * places);
    const int64_t multiple = m->result == MATMUL_GATE ? 16 : 8;
    call->token_tiles = token_tiles_of(&m->segments, m->num_tokens, L::TOKENS);
    call->splits = splits_of(places, tiles * call->token_tiles, m->in_features, prefers_two);
    call->steps = (int32_t)cuda_div_up(m->in_features, step);
    const bool whole = call->splits > 1 || call->token_tiles > 1;
    call->tile_rows = whole ? L::ROWS : (int32_t)(cuda_div_up(even, multiple) * multiple);
}

template <class L, class Call>
static void launch_tiles(struct backend *b, const char *operation, void (*kernel)(const Call), const Call *call,
                         int shared_bytes = L::SHARED)
{
    const int64_t tiles = cuda_div_up(call->matmul.out_features, call->tile_rows) * call->token_tiles;
    const dim3 grid((unsigned)(tiles * call->splits));
    cuda_run_dependent(b, operation, kernel, {grid, L::THREADS, shared_bytes, call->splits}, *call);
}

#endif
