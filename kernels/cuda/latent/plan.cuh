/* How the kernels of latent attention on tensor cores divide their work, and where they leave what is to be combined
 * (combine.cu).
 *
 * All heads read the same vectors, so heads and query tokens are rows of one matrix: row r of an entry is head r %
 * num_heads of token r / num_heads, as they follow one another in the query. A block computes a tile of ROWS rows and
 * reads the context in chunks of CHUNK tokens. A chunk in shared memory serves twice: as K, and its first `rank`
 * columns as V (as in FlashMLA: DeepSeek-AI, 2025). With P = softmax of S
 *
 *     S [ROWS x CHUNK] = Q K^T,    O [ROWS x rank] += P V.
 *
 * Decodes: entries of a run (base/batch.h) are one entry of several tokens here. The chunks of all tiles, one after the
 * other, are divided evenly between as many blocks as run at a time; the place of a tile costs as much as OVERHEAD
 * chunks beside its own. So a block computes the end of one tile, then whole ones, then the beginning of another, and
 * one long context fills the GPU as well as many short ones. All this follows on the device from the lengths of the
 * step: a graph is captured before they are known. Pieces of a tile leave their sums in the workspace, two places a
 * block, and are combined when all of them are there:
 *
 *     chunks      | tile 0                      | tile 1            | tile 2 | tile 3                       |
 *     blocks      | 0             | 1             | 2             | 3             | 4             | 5       |
 *     places        1               2           3   4                         7   8               10
 *
 * Prefills: an item of a block is a tile and all of its context, or if there are few tiles a part of it.
 *
 * L is the traits of a kernel: ROWS, CHUNK, OVERHEAD, and LEAST_SHARE, the fewest chunks of a block. */
#ifndef QUIRE_KERNELS_CUDA_LATENT_PLAN_CUH
#define QUIRE_KERNELS_CUDA_LATENT_PLAN_CUH

#include <type_traits>

#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/latent/latent.cuh"

enum { WARPS = 16, LANES = 32, THREADS = WARPS * LANES };
enum { MAX_ROPE = 64, MAX_ROWS = 64, MAX_RANK = 512, MAX_RUN = 1 + MAX_DRAFTS };

/* A tile's sums are combined of this many pieces; up to 1: there is nothing to combine. Piece 0 is in place `first`,
 * and piece i > 0 in place first + 2 i - 1. */
struct latent_tile {
    int32_t first, pieces;
    int32_t row, rows; /* of out */
};

struct latent_plan {
    int32_t blocks;      /* decodes: which share the chunks. Prefills: parts of each tile */
    int32_t entry_tiles; /* decodes: tiles of an entry of one token. Prefills: of an entry of max_query_len tokens */
    int32_t first_seq;   /* of prefills */
    int32_t stages;      /* of a ring whose size depends on the device */
    uint32_t *counters;  /* [blocks] of decodes: see attention_wgmma.cu. 0 between calls */
    struct latent_tile *tiles;
    float2 *stats;   /* [places][MAX_ROWS] maximum, sum */
    float *partials; /* [places][MAX_ROWS][RANK] */
};

/* What a block computes at a time: chunks [begin, end) of a tile. */
struct latent_piece {
    const int32_t *block_table;
    int32_t row, rows;           /* of query and out */
    int32_t first_end, head;     /* row 0 attends to tokens [0, first_end), and is this head */
    int32_t last_end;            /* no row attends to more tokens */
    int32_t begin, end, place;   /* place -1: this is the whole tile */
    int32_t first_block, pieces; /* decodes: of the tile, if this is not all of it */
};

/* ---- decodes ---- */

/* The entries of a run, of which this is the first, as one. rows 0: there is nothing to compute for this entry. */
struct latent_entry {
    int32_t rows, tiles, chunks; /* of a tile */
    int32_t first_token, seq_len, query_len;
};

static __device__ __forceinline__ bool continues(const latent_attention_args &args, int32_t i)
{
    return i > 0 && i < args.num_decodes && args.state_indices[i] == args.state_indices[i - 1] &&
           args.seq_lens[i] == args.seq_lens[i - 1] + 1 && args.query_start[i + 1] == args.query_start[i] + 1 &&
           args.query_start[i] == args.query_start[i - 1] + 1;
}

template <class L> static __device__ __forceinline__ latent_entry entry_of(const latent_attention_args &args, int32_t i)
{
    latent_entry e = {};
    if (i >= args.num_decodes) return e;
    e.first_token = args.query_start[i];
    e.query_len = args.query_start[i + 1] - e.first_token;
    e.seq_len = args.seq_lens[i];
    if (args.max_run_len > 1 && e.query_len > 0) {
        uint32_t next = 0;
#pragma unroll
        for (int k = 0; k <= MAX_RUN; k++) next |= (uint32_t)continues(args, i + k) << k;
        const int32_t more = __ffs(~(next >> 1)) - 1;
        e.query_len = next & 1 ? 0 : e.query_len + more;
        e.seq_len += more;
    }
    e.rows = e.query_len * args.num_heads;
    e.tiles = (e.rows + L::ROWS - 1) / L::ROWS;
    e.chunks = max((e.seq_len + L::CHUNK - 1) / L::CHUNK, 1);
    return e;
}

template <class L> static __device__ __forceinline__ int32_t cost_of(const latent_entry &e)
{
    return e.tiles * (e.chunks + L::OVERHEAD);
}

/* Tile `tile` of an entry, whose place among all chunks begins at `start`. */
static __device__ __forceinline__ latent_piece tile_of(const latent_attention_args &args, const latent_entry &e,
                                                       int32_t i, int32_t tile, int32_t tile_rows)
{
    const int32_t first = tile * tile_rows, rows = min(tile_rows, e.rows - first), token = first / args.num_heads;
    latent_piece piece = {};
    piece.block_table = args.block_tables + args.state_indices[i] * args.block_table_stride;
    piece.row = e.first_token * args.num_heads + first;
    piece.rows = rows;
    piece.head = first - token * args.num_heads;
    piece.first_end = e.seq_len - e.query_len + token + 1;
    piece.last_end = piece.first_end + (piece.head + rows - 1) / args.num_heads;
    piece.end = e.chunks;
    piece.place = -1;
    return piece;
}

/* The sum of x over the threads before this one, and in *all over the block. */
static __device__ __forceinline__ int32_t sum_before(int32_t x, int32_t *all)
{
    __shared__ int32_t sums[WARPS];
    const int32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    int32_t through = x, before = 0, total = 0;
    for (int step = 1; step < LANES; step *= 2) {
        const int32_t other = __shfl_up_sync(~0u, through, step);
        if (lane >= step) through += other;
    }
    __syncthreads(); /* the last call's sums are not needed any more */
    if (lane == LANES - 1) sums[warp] = through;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        if (w < warp) before += sums[w];
        total += sums[w];
    }
    *all = total;
    return before + through - x;
}

/* Where a block begins: in an entry, whose chunks begin at `start`. */
struct latent_begin {
    int32_t entry, start, share;
};

template <class L>
static __device__ __forceinline__ latent_begin find_begin(const latent_attention_args &args, const latent_plan &plan)
{
    __shared__ latent_begin found;
    int32_t total = 0, cost = 0, start = 0;
    for (int32_t from = 0; from < args.num_decodes; from += THREADS) {
        int32_t all;
        cost = cost_of<L>(entry_of<L>(args, from + threadIdx.x));
        start = total + sum_before(cost, &all);
        total += all;
    }
    const int32_t share = max((total + plan.blocks - 1) / plan.blocks, (int32_t)L::LEAST_SHARE);
    const int32_t begin = blockIdx.x * share;
    if (begin >= total && threadIdx.x == 0) found = {args.num_decodes, total, share};
    for (int32_t from = 0, before = 0; from < args.num_decodes && before <= begin; from += THREADS) {
        const int32_t i = from + threadIdx.x;
        if (args.num_decodes > THREADS) { /* otherwise these are the ones above */
            int32_t all;
            cost = cost_of<L>(entry_of<L>(args, i));
            start = before + sum_before(cost, &all);
            before += all;
        }
        if (start <= begin && begin < start + cost) found = {i, start, share};
    }
    __syncthreads();
    return found;
}

/* Notes of all tiles what they are combined of. */
template <class L>
static __device__ __forceinline__ void note_tiles(const latent_attention_args &args, const latent_plan &plan,
                                                  int32_t share)
{
    int32_t before = 0;
    for (int32_t i = threadIdx.x; i < args.num_decodes * plan.entry_tiles; i += THREADS) plan.tiles[i].pieces = 0;
    for (int32_t from = 0; from < args.num_decodes; from += THREADS) {
        int32_t all;
        const int32_t i = from + threadIdx.x;
        const latent_entry e = entry_of<L>(args, i);
        const int32_t start = before + sum_before(cost_of<L>(e), &all);
        for (int32_t t = 0; t < e.tiles; t++) {
            const int32_t at = start + t * (e.chunks + L::OVERHEAD) + L::OVERHEAD, row = t * L::ROWS;
            const int32_t first = at / share, last = (at + e.chunks - 1) / share;
            plan.tiles[i * plan.entry_tiles + t] = {2 * first + 1, last - first + 1,
                                                    e.first_token * args.num_heads + row,
                                                    min((int32_t)L::ROWS, e.rows - row)};
        }
        before += all;
    }
}

/* Calls f with the pieces of a decode's block, which begins there. */
template <class L, class Function>
static __device__ __forceinline__ void each_piece(const latent_attention_args &args, const latent_begin &begin,
                                                  Function f)
{
    const int32_t end = (blockIdx.x + 1) * begin.share;
    int32_t at = blockIdx.x * begin.share, start = begin.start;
    for (int32_t i = begin.entry; i < args.num_decodes && start < end; i++) {
        const latent_entry e = entry_of<L>(args, i);
        const int32_t cost = e.chunks + L::OVERHEAD;
        for (int32_t t = (at - start) / cost; t < e.tiles && start + t * cost < end; t++) {
            const int32_t first = start + t * cost + L::OVERHEAD;
            latent_piece piece = tile_of(args, e, i, t, L::ROWS);
            piece.begin = max(at - first, 0);
            piece.end = min(end - first, e.chunks);
            if (piece.begin > 0 || piece.end < e.chunks) {
                piece.place = 2 * blockIdx.x + (piece.begin == 0);
                piece.first_block = first / begin.share;
                piece.pieces = (first + e.chunks - 1) / begin.share - piece.first_block + 1;
            }
            if (piece.begin < piece.end) f(piece);
        }
        start += cost_of<L>(e);
        at = max(at, start);
    }
}

/* Items of prefills: parts of tiles, the last tiles of prompts, which have the most work, first. */
static inline __host__ __device__ int32_t prefill_items(const latent_attention_args &args, const latent_plan &plan)
{
    return plan.entry_tiles * (args.num_seqs - plan.first_seq) * plan.blocks;
}

/* The piece of an item; false: there is none. */
template <class L>
static __device__ __forceinline__ bool prefill_piece(const latent_attention_args &args, const latent_plan &plan,
                                                     int32_t item, latent_piece &piece)
{
    const int32_t entries = args.num_seqs - plan.first_seq, parts = plan.blocks, index = item / parts;
    const int32_t part = item - index * parts, tile = plan.entry_tiles - 1 - index / entries;
    const int32_t i = plan.first_seq + index % entries;
    latent_entry e = {};
    e.first_token = args.query_start[i];
    e.query_len = args.query_start[i + 1] - e.first_token;
    e.seq_len = args.seq_lens[i];
    e.rows = e.query_len * args.num_heads;
    if (tile * L::ROWS >= e.rows) {
        if (parts > 1 && part == 0 && threadIdx.x == 0) plan.tiles[index].pieces = 0;
        return false;
    }
    piece = tile_of(args, e, i, tile, L::ROWS);
    const int32_t chunks = (piece.last_end + L::CHUNK - 1) / L::CHUNK;
    piece.begin = (int64_t)chunks * part / parts, piece.end = (int64_t)chunks * (part + 1) / parts;
    if (parts > 1) {
        const int32_t first = 2 * parts * index + 1;
        piece.place = part == 0 ? first : first + 2 * part - 1;
        if (part == 0 && threadIdx.x == 0) plan.tiles[index] = {first, parts, piece.row, piece.rows};
    }
    return true;
}

/* Calls f with the pieces of a prefill's block. Every other round goes through the blocks in reverse, so that no block
 * gets the longest tile of each round. */
template <class L, class Function>
static __device__ __forceinline__ void each_prefill_piece(const latent_attention_args &args, const latent_plan &plan,
                                                          Function f)
{
    const int32_t items = prefill_items(args, plan), blocks = gridDim.x;
    for (int32_t round = 0, start = 0; start < items; round++, start += blocks) {
        const int32_t item = start + (round % 2 ? blocks - 1 - (int32_t)blockIdx.x : (int32_t)blockIdx.x);
        latent_piece piece;
        if (item < items && prefill_piece<L>(args, plan, item, piece)) f(piece);
    }
}

/* ---- launches ---- */

static inline int32_t min_int(int64_t a, int64_t b)
{
    return (int32_t)(a < b ? a : b);
}

/* A call, before its types are known. */
struct latent_launch {
    struct backend *b;
    const struct latent_attention_args *args;
    struct latent_plan plan;
};

/* Calls f(zero of the type of activations, whether the cache has 8 bits, rank), of which the last two are constants. */
template <class Function> static inline auto latent_dispatch(const struct latent_attention_args *args, Function f)
{
    const bool fp8 = dtype_size(args->cache_dtype) == 1;
    auto with_cache = [&](auto zero, auto is_fp8) {
        return args->rank == 512 ? f(zero, is_fp8, std::integral_constant<int, 512>())
                                 : f(zero, is_fp8, std::integral_constant<int, 256>());
    };
    auto with_type = [&](auto zero) {
        return fp8 ? with_cache(zero, std::true_type()) : with_cache(zero, std::false_type());
    };
    return args->dtype == DTYPE_FLOAT16 ? with_type(__half()) : with_type(__nv_bfloat16());
}

/* Completes the plan of the decodes; returns the number of tiles that may have to be combined. */
template <class L> static int64_t plan_decodes(struct latent_launch *l)
{
    l->plan.entry_tiles = (int32_t)cuda_div_up(l->args->num_heads, L::ROWS);
    l->plan.blocks = cuda_state(l->b)->num_sms;
    return l->args->max_seq_len > L::CHUNK ? (int64_t)l->args->num_decodes * l->plan.entry_tiles : 0;
}

/* Completes the plan of the prefills, and returns the same. A tile is divided between blocks as long as there are
 * multiprocessors for all of them. */
template <class L> static int64_t plan_prefills(struct latent_launch *l)
{
    const struct latent_attention_args *args = l->args;
    const int32_t entries = args->num_seqs - args->num_decodes;
    l->plan.first_seq = args->num_decodes;
    l->plan.entry_tiles = (int32_t)cuda_div_up((int64_t)args->max_query_len * args->num_heads, L::ROWS);
    const int64_t tiles = (int64_t)l->plan.entry_tiles * entries, chunks = cuda_div_up(args->max_seq_len, L::CHUNK);
    l->plan.blocks = min_int(cuda_state(l->b)->num_sms / tiles, cuda_div_up(chunks, 2));
    if (l->plan.blocks < 1) l->plan.blocks = 1;
    return l->plan.blocks > 1 ? tiles : 0;
}

/* attention_wgmma.cu: on Hopper. False: this GPU, or this call, is none that it computes. */
bool cuda_latent_wgmma(struct latent_launch *l);

/* combine.cu: combines the pieces of that many tiles, of up to tile_rows rows. */
void cuda_latent_combine(const struct latent_launch *l, int64_t tiles, int32_t tile_rows);

#endif
