/* The copying warpgroup of latent attention with wgmma: Q of a piece, and chunks of the context. */
#ifndef QUIRE_KERNELS_CUDA_LATENT_WGMMA_COPY_CUH
#define QUIRE_KERNELS_CUDA_LATENT_WGMMA_COPY_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/latent/wgmma_traits.cuh"

#ifdef ATTENTION_HAVE_WGMMA

/* Brings the beginning of the block's first piece to the L2 cache. The tokens of this step may not be there yet, but
 * what is written later reaches the L2 cache, too. */
template <class L>
static __device__ __forceinline__ void prefetch_first(const latent_attention_args &args, const latent_begin &begin)
{
    if (begin.entry >= args.num_decodes || threadIdx.x >= L::AHEAD * L::CHUNK) return;
    const latent_entry e = entry_of<L>(args, begin.entry);
    const int32_t at = blockIdx.x * begin.share - begin.start, cost = e.chunks + L::OVERHEAD;
    const int32_t chunk = max(at % cost - L::OVERHEAD, 0), token = chunk * L::CHUNK + threadIdx.x;
    const int32_t size = args.rank + args.rope, log_block_size = __ffs(args.block_size) - 1;
    if (token >= min(e.seq_len, (chunk + begin.share) * L::CHUNK)) return;
    const int32_t *table = args.block_tables + args.state_indices[begin.entry] * args.block_table_stride;
    const int64_t from =
        table[token >> log_block_size] * args.block_stride + (token & (args.block_size - 1)) * (int64_t)size;
    bulk_prefetch((const uint8_t *)args.cache + from * L::ELEMENT, size * L::ELEMENT);
}

/* A thread copies 16 bytes of each panel, of every 16th row. */
template <class L>
static __device__ __forceinline__ void copy_rows(const latent_attention_args &args, const latent_piece &piece,
                                                 uint32_t q)
{
    const int32_t thread = threadIdx.x % GROUP_THREADS, column = thread % 8, size = args.rank + args.rope;
    const bool has_last = column * 8 < args.rope;
    const typename L::T *query = (const typename L::T *)args.query + (int64_t)piece.row * size + column * 8;
#pragma unroll
    for (int j = 0; j < L::ROWS / 16; j++) {
        const int32_t row = j * 16 + thread / 8;
        const bool there = row < piece.rows;
        const typename L::T *from = there ? query + row * size : query;
#pragma unroll
        for (int p = 0; p < L::PANELS; p++)
            copy_async(q + p * L::PANEL_BYTES + swizzled_place(row, column), from + p * 64,
                       there && (p < L::PANELS - 1 || has_last));
    }
}

/* The tokens of a thread: every fourth of its warp's 16. A half of a chunk is copied by two warps. */
enum { TOKEN_STEP = 4, THREAD_TOKENS = 16 / TOKEN_STEP };

static __device__ __forceinline__ int32_t token_of(int32_t j)
{
    return threadIdx.x % GROUP_THREADS / LANES * 16 + j * TOKEN_STEP + threadIdx.x % LANES / 8;
}

/* The blocks of the thread's tokens of the chunk from token `start` on. */
static __device__ __forceinline__ void look_up_blocks(const latent_piece &piece, int32_t log_block_size, int32_t start,
                                                      int32_t (&blocks)[THREAD_TOKENS])
{
#pragma unroll
    for (int j = 0; j < THREAD_TOKENS; j++) {
        const int32_t token = start + token_of(j);
        blocks[j] = token < piece.last_end ? piece.block_table[token >> log_block_size] : 0;
    }
}

/* A thread copies 16 bytes of each panel of its tokens of the chunk from token `start` on. */
template <class L>
static __device__ __forceinline__ void copy_chunk(const latent_attention_args &args, int32_t start, int32_t end,
                                                  const int32_t (&blocks)[THREAD_TOKENS], uint32_t to)
{
    const int32_t column = threadIdx.x % 8, size = args.rank + args.rope;
    const bool has_last = column * 8 < args.rope;
    const typename L::T *cache = (const typename L::T *)args.cache + column * 8;
#pragma unroll
    for (int j = 0; j < THREAD_TOKENS; j++) {
        const int32_t row = token_of(j), token = start + row;
        const bool there = token < end;
        const typename L::T *from = cache + blocks[j] * args.block_stride + (token & (args.block_size - 1)) * size;
#pragma unroll
        for (int p = 0; p < L::PANELS; p++)
            copy_async(to + p * L::PANEL_BYTES + swizzled_place(row, column), from + p * 64,
                       there && (p < L::PANELS - 1 || has_last));
    }
}

/* The copying warpgroup's part of a piece. */
template <class L>
static __device__ __forceinline__ void copy_piece(const latent_attention_args &args, const latent_piece &piece,
                                                  latent_shared<L> &shared, uint32_t memory, latent_progress &at)
{
    const int32_t half = threadIdx.x % GROUP_THREADS / (GROUP_THREADS / HALVES);
    const int32_t log_block_size = __ffs(args.block_size) - 1;
    int32_t blocks[THREAD_TOKENS];
    look_up_blocks(piece, log_block_size, piece.begin * L::CHUNK, blocks);
    barrier_wait(&shared.query_empty, at.pieces++ % 2 ^ 1);
    copy_rows<L>(args, piece, memory);
    barrier_arrive_copied(&shared.query_full);
    for (int32_t i = piece.begin; i < piece.end; i++) {
        barrier_wait(&shared.empty[at.ring.stage][half], at.ring.round % 2 ^ 1);
        copy_chunk<L>(args, i * L::CHUNK, piece.last_end, blocks,
                      memory + L::CHUNKS_AT + at.ring.stage * L::CHUNK_BYTES);
        barrier_arrive_copied(&shared.full[at.ring.stage]);
        if (i + 1 < piece.end) look_up_blocks(piece, log_block_size, (i + 1) * L::CHUNK, blocks);
        ring_step(at.ring, L::STAGES);
    }
}

/* ---- copies of fp8 ---- */

/* A thread copies 16 bytes of each panel of a token of each half of a chunk, to places of its own, and converts them
 * later: so it waits for no other thread. */
struct raw_copies {
    int32_t next; /* chunk */
    int32_t stage;
    int32_t blocks[HALVES]; /* of the thread's tokens of that chunk */
};

static __device__ __forceinline__ int32_t raw_token_of(int32_t half)
{
    return half * 32 + threadIdx.x % GROUP_THREADS / 4;
}

template <class L>
static __device__ __forceinline__ void look_up_raw_blocks(const latent_attention_args &args, const latent_piece &piece,
                                                          raw_copies &copies)
{
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        const int32_t token = copies.next * L::CHUNK + raw_token_of(h);
        const bool there = copies.next < piece.end && token < piece.last_end;
        copies.blocks[h] = there ? piece.block_table[token >> (__ffs(args.block_size) - 1)] : 0;
    }
}

/* Begins to copy the next chunk, if there is one. raw: the thread's places. */
template <class L>
static __device__ __forceinline__ void copy_raw(const latent_attention_args &args, const latent_piece &piece,
                                                uint32_t raw, raw_copies &copies)
{
    const int32_t column = threadIdx.x % 4 * 16, size = args.rank + args.rope;
    const uint8_t *cache = (const uint8_t *)args.cache + column;
    if (copies.next < piece.end) {
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            const int32_t token = copies.next * L::CHUNK + raw_token_of(h);
            const bool there = token < piece.last_end;
            const uint8_t *from = cache + copies.blocks[h] * args.block_stride + (token & (args.block_size - 1)) * size;
            const uint32_t to = raw + copies.stage * L::RAW_BYTES + h * L::PANELS * GROUP_THREADS * 16;
#pragma unroll
            for (int p = 0; p < L::PANELS; p++)
                copy_async(to + p * GROUP_THREADS * 16, from + p * 64,
                           there && (p < L::PANELS - 1 || column < args.rope));
        }
    }
    copies.next++;
    if (++copies.stage == L::RAW_STAGES) copies.stage = 0;
    look_up_raw_blocks<L>(args, piece, copies);
    copy_async_commit();
}

/* Converts what the thread has copied of a half of a chunk. raw: the first of its places. */
template <class L, bool E5M2>
static __device__ __forceinline__ void convert_half(uint32_t raw, uint32_t chunk, int32_t half)
{
    constexpr int BATCH = 3;
    const int32_t row = raw_token_of(half), column = threadIdx.x % 4 * 2;
    const uint32_t low = chunk + swizzled_place(row, column), high = chunk + swizzled_place(row, column + 1);
#pragma unroll
    for (int first = 0; first < L::PANELS; first += BATCH) {
        uint4 x[BATCH];
#pragma unroll
        for (int p = first; p < first + BATCH && p < L::PANELS; p++)
            x[p - first] = load_piece(raw + p * GROUP_THREADS * 16);
#pragma unroll
        for (int p = first; p < first + BATCH && p < L::PANELS; p++) {
            const uint4 piece = x[p - first];
            store_piece(low + p * L::PANEL_BYTES, convert_piece<typename L::T, E5M2>(piece.x, piece.y));
            store_piece(high + p * L::PANEL_BYTES, convert_piece<typename L::T, E5M2>(piece.z, piece.w));
        }
    }
}

template <class L, bool E5M2>
static __device__ __forceinline__ void convert_piece_chunks(const latent_attention_args &args,
                                                            const latent_piece &piece, latent_shared<L> &shared,
                                                            uint32_t memory, raw_copies &copies, latent_progress &at)
{
    const uint32_t raw = memory + L::RAW_AT + threadIdx.x % GROUP_THREADS * 16;
    int32_t stage = 0;
    for (int32_t i = piece.begin; i < piece.end; i++) {
        const uint32_t chunk = memory + L::CHUNKS_AT + at.ring.stage * L::CHUNK_BYTES;
        copy_async_wait<L::RAW_STAGES - 1>();
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            barrier_wait(&shared.empty[at.ring.stage][h], at.ring.round % 2 ^ 1);
            convert_half<L, E5M2>(raw + stage * L::RAW_BYTES + h * L::PANELS * GROUP_THREADS * 16, chunk, h);
        }
        async_proxy_fence();
        barrier_arrive(&shared.full[at.ring.stage]);
        copy_raw<L>(args, piece, raw, copies);
        if (++stage == L::RAW_STAGES) stage = 0;
        ring_step(at.ring, L::STAGES);
    }
}

/* The copying warpgroup's part of a piece of an fp8 cache. */
template <class L>
static __device__ __forceinline__ void convert_piece_of(const latent_attention_args &args, const latent_piece &piece,
                                                        latent_shared<L> &shared, uint32_t memory, latent_progress &at)
{
    const uint32_t raw = memory + L::RAW_AT + threadIdx.x % GROUP_THREADS * 16;
    raw_copies copies = {piece.begin};
    look_up_raw_blocks<L>(args, piece, copies);
    barrier_wait(&shared.query_empty, at.pieces++ % 2 ^ 1);
    copy_rows<L>(args, piece, memory);
    barrier_arrive_copied(&shared.query_full);
#pragma unroll 1
    for (int i = 0; i < L::RAW_STAGES; i++) copy_raw<L>(args, piece, raw, copies);
    if (args.cache_dtype == DTYPE_FP8_E5M2)
        convert_piece_chunks<L, true>(args, piece, shared, memory, copies, at);
    else
        convert_piece_chunks<L, false>(args, piece, shared, memory, copies, at);
}

#endif
#endif
