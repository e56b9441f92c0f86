/* Recurrences in chunks of tokens, on tensor cores (Yang et al., 2024, and Dao and Gu, 2024): what the kernels share.
 *
 * Let S be the state before a chunk, g_i the sum of the logarithms of the decays of its tokens up to i, and n its last
 * token. With q and k as they are to be (normed, scaled) the results and the state after the chunk are
 *
 *     out_i = exp(g_i) S q_i + sum over j <= i of exp(g_i - g_j) (q_i k_j) u_j  =  exp(g_i) S q_i + scores u
 *     S     = exp(g_n) S + sum over i of exp(g_n - g_i) u_i k_i^T
 *
 *     DELTA    u_i = beta_i (v_i - exp(g_i) S k_i - sum over j < i of exp(g_i - g_j) (k_i k_j) u_j)
 *                  = inverse (beta (v - exp(g) S k)),  inverse = (I + L)^-1,  L_ij = beta_i exp(g_i - g_j) (k_i k_j)
 *     others   u_i = v_i, and beta_j is a factor of the columns of scores and of the last sum
 *
 * chunk_prepare.cu computes what does not need S, for all chunks at a time: inverse, scores, and the factors of tokens.
 * chunk_states.cu goes from chunk to chunk. q and k are multiplied as they lie in memory: what norms and scales them is
 * in the factors. Operands of the tensor cores are rounded to the type of the activations, S and all sums are float32.
 *
 * The workspace has room for some chunks, so a batch is computed in rounds. Entry i has the chunks from
 * query_start[i] / CHUNK + i on; some numbers between the chunks of two entries are of none. */
#ifndef QUIRE_KERNELS_CUDA_RECURRENCE_CHUNKS_CUH
#define QUIRE_KERNELS_CUDA_RECURRENCE_CHUNKS_CUH

#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/recurrence/recurrence.cuh"

enum { CHUNK = 64 };

/* What a token's products are multiplied by. */
struct chunk_factors {
    float read[CHUNK];  /* of S k: exp(g_i), and what norms k */
    float query[CHUNK]; /* of S q: exp(g_i), and what norms and scales q */
    float beta[CHUNK];
    float write[CHUNK]; /* of u k^T: exp(g_n - g_i), what norms k, and beta unless DELTA */
    float decay[4];     /* of S: exp(g_n), and padding */
};

/* What is prepared of a chunk and a head of v. Blocks of 16 x 16 above the diagonal are not written. */
struct alignas(16) chunk_work {
    uint16_t inverse[CHUNK * CHUNK], scores[CHUNK * CHUNK]; /* [token][token] of the type of the activations */
    struct chunk_factors factors;
};

/* A round. */
struct chunk_call {
    struct recurrence_call of;
    struct chunk_work *work; /* [count, num_v_heads] */
    const float *carried;    /* [num_v_heads, v_size, k_size] the state of the entry that the last round cut */
    float *carries;          /* the same, of this round */
    int32_t first, count;    /* chunks */
    bool has_two_stages;     /* of chunk_states.cu: the next chunk is on its way while one is computed */
};

/* The chunks of an entry in all, from `first` on. */
struct entry_chunks {
    int32_t first, count;
};

static __device__ __forceinline__ entry_chunks chunks_of_entry(const struct state_batch &batch, int32_t entry)
{
    const int32_t begin = batch.query_start[entry], num_tokens = batch.query_start[entry + 1] - begin;
    return {begin / CHUNK + entry, (num_tokens + CHUNK - 1) / CHUNK};
}

/* Where an element of a tile [CHUNK][COLUMNS] of 16-bit elements lies, in bytes; columns are multiples of 8. Pieces of
 * 8 elements change places, so that the same piece of 8 rows lies in all banks. */
template <int COLUMNS> static __device__ __forceinline__ uint32_t tile_offset(int row, int column)
{
    return (uint32_t)(row * COLUMNS + ((column / 8) ^ (row % 8)) * 8) * 2;
}

/* Copies `count` rows of `size` elements to a tile of zeros. */
template <int COLUMNS, int THREADS, class T>
static __device__ __forceinline__ void load_tile(uint16_t *to, const T *from, int64_t stride, int count, int32_t size)
{
    const uint32_t address = shared_address(to);
    for (int i = threadIdx.x; i < CHUNK * COLUMNS / 8; i += THREADS) {
        const int row = i / (COLUMNS / 8), column = i % (COLUMNS / 8) * 8;
        const bool reads = row < count && column < size;
        copy_async(address + tile_offset<COLUMNS>(row, column), from + (reads ? row * stride + column : 0), reads);
    }
}

/* Rows 16 p .. + 15 and columns 16 s .. + 15 of a tile, as B of two products whose n are the rows: the first takes
 * out[0] and out[1]. */
template <int COLUMNS>
static __device__ __forceinline__ void load_rows_as_b(uint32_t out[4], uint32_t tile, int p, int s, int lane)
{
    load_matrices(out, tile + tile_offset<COLUMNS>(16 * p + lane / 16 * 8 + lane % 8, 16 * s + lane / 8 % 2 * 8));
}

/* Calls f with the columns that the tiles of q and k have, as a constant. */
template <class Function> static inline void chunk_columns(int32_t k_size, Function f)
{
    if (k_size <= 64)
        f(std::integral_constant<int, 64>());
    else if (k_size <= 128)
        f(std::integral_constant<int, 128>());
    else
        f(std::integral_constant<int, 256>());
}

/* Calls f with zero of the type, and the kind as a constant: of those that are computed in chunks. */
template <class Function> static inline void chunk_kinds(const struct recurrence_call &call, Function f)
{
    const enum recurrence_kind kind = call.params.kind;
    if (call.args.dtype == DTYPE_FLOAT16)
        f(__half(), std::integral_constant<enum recurrence_kind, RECURRENCE_DELTA>());
    else if (kind == RECURRENCE_DELTA)
        f(__nv_bfloat16(), std::integral_constant<enum recurrence_kind, RECURRENCE_DELTA>());
    else if (kind == RECURRENCE_SSD)
        f(__nv_bfloat16(), std::integral_constant<enum recurrence_kind, RECURRENCE_SSD>());
    else
        f(__nv_bfloat16(), std::integral_constant<enum recurrence_kind, RECURRENCE_FIXED>());
}

/* The bytes of shared memory that the kernels need; chunk_states.cu's with one stage. */
int cuda_chunk_prepare_shared(int32_t k_size);
int cuda_chunk_states_shared(int32_t k_size);
/* The kernels of a round; false: cuda_fail was called. */
bool cuda_chunk_prepare(struct backend *b, const struct chunk_call &call);
bool cuda_chunk_states(struct backend *b, struct chunk_call &call);

#endif
