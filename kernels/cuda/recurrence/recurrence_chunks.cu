/* recurrence of prefills in chunks: which calls, and their rounds. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/recurrence/chunks.cuh"

/* A round's work is to stay in the L2 cache. Entries of fewer tokens are computed token by token in less time. */
enum { ROUND_CHUNKS = 64, LEAST_TOKENS = 32 };

static int64_t bytes_of_chunk(int32_t num_heads)
{
    return num_heads * (int64_t)sizeof(struct chunk_work);
}

/* Both copies of the state that a round hands on. */
static int64_t bytes_of_states(int64_t state_size)
{
    return cuda_div_up(2 * state_size * (int64_t)sizeof(float), 256) * 256;
}

int64_t cuda_chunks_workspace(const struct workspace_query *query)
{
    const int64_t most = query->max_num_tokens / CHUNK + (int64_t)query->max_num_seqs;
    const int64_t chunks = most < ROUND_CHUNKS ? most : ROUND_CHUNKS;
    if (query->num_recurrent_heads == 0) return 0;
    return bytes_of_states(query->recurrent_state_size) + chunks * bytes_of_chunk(query->num_recurrent_heads);
}

static bool is_aligned(const struct recurrence_args &args)
{
    const uintptr_t rows = (uintptr_t)args.q | (uintptr_t)args.k | (uintptr_t)args.v | (uintptr_t)args.out;
    return rows % 16 == 0 && args.qkv_stride % 8 == 0;
}

/* Numbers of a state may be too large for float16 where k has any length. */
static bool takes(const struct cuda_state *s, const struct recurrence_call &call)
{
    const struct recurrence_params &params = call.params;
    const bool is_short = call.args.dtype == DTYPE_BFLOAT16 ||
                          (call.args.dtype == DTYPE_FLOAT16 && params.norm_qk && params.kind == RECURRENCE_DELTA);
    return is_short && params.kind != RECURRENCE_DELTA_CHANNELS && call.args.batch.max_query_len >= LEAST_TOKENS &&
           is_aligned(call.args) && cuda_chunk_prepare_shared(params.k_size) <= s->max_shared_bytes &&
           cuda_chunk_states_shared(params.k_size) <= s->max_shared_bytes;
}

bool cuda_recur_chunks(struct backend *b, const struct recurrence_call &call)
{
    const struct cuda_state *s = cuda_state(b);
    const struct recurrence_params &params = call.params;
    const struct state_batch &batch = call.args.batch;
    const struct cuda_region *region = &s->regions[CUDA_USER_CHUNKS];
    const int64_t state_size = (int64_t)params.num_v_heads * params.v_size * params.k_size;
    const int64_t work = region->bytes - bytes_of_states(state_size);
    const int32_t room = region->data && work > 0 ? (int32_t)(work / bytes_of_chunk(params.num_v_heads)) : 0;
    const int32_t num_chunks = batch.num_tokens / CHUNK + batch.num_seqs;
    if (room == 0 || !takes(s, call)) return false;
    for (int32_t first = 0, round = 0; first < num_chunks; first += room, round++) {
        float *states[2] = {(float *)region->data, (float *)region->data + state_size};
        struct chunk_call part = {call,
                                  (struct chunk_work *)(region->data + bytes_of_states(state_size)),
                                  states[round % 2],
                                  states[1 - round % 2],
                                  first,
                                  num_chunks - first < room ? num_chunks - first : room,
                                  false};
        if (!cuda_chunk_prepare(b, part) || !cuda_chunk_states(b, part)) break;
    }
    return true;
}
