/* How kernels of several devices exchange data. Each rank has memory that all ranks write (Layout, below); a rank reads
 * only its own, because a write to another device is on its way while a read would wait for the way there and back.
 *
 * Few elements travel in *words*: 8 bytes of data with a number of 4 bytes after each half, which is that of the call.
 * A receiver looks at a word until both numbers are there; neither flags nor fences are needed (NCCL calls this LL). 8
 * bytes are written at once. There are two sets of words, for even and odd calls. A rank writes those of call n + 2
 * when its kernel of call n + 1 has ended; that one got words of each other rank's call n + 1, whose kernel began when
 * all of call n had been read there. Words have numbers of 32 bits: one that is not written for exactly 2^32 calls
 * would pass for a new one.
 *
 * Many elements travel in *passes* of a block, each with the blocks of the same number on the other devices: data is
 * written to the others, and then a signal, the number of the pass. There are two sets of chunks, for the same reason.
 *
 * A kernel that waits for data looks now and then whether the group has failed (kernels/group_failure.h). Then it waits
 * no longer, so that the device becomes idle and can be closed.
 *
 * The kernels count calls and passes in device memory, so they can be captured in a graph. They wait for the other
 * ranks' kernels, so all their blocks must run at a time: there are few of them (MAX_BLOCKS), and a kernel that starts
 * early (dependent.cuh) starts when all of them run. */
#ifndef QUIRE_KERNELS_CUDA_COLLECTIVE_PEERS_CUH
#define QUIRE_KERNELS_CUDA_COLLECTIVE_PEERS_CUH

#include "kernels/cuda/collective/communicators.h"
#include "kernels/cuda/dependent.cuh"

namespace collective
{

enum {
    MAX_RANKS = COLLECTIVE_MAX_RANKS,
    MAX_BLOCKS = 128,
    THREADS = 512,
    WORD_BYTES = 8,         /* of data in a word */
    WORDS = 256 << 10,      /* of all ranks in a call */
    CHUNK_BYTES = 64 << 10, /* of a block in a pass */
    ROWS_BYTES = 32 << 10,  /* of a block in a pass of rows, of all other ranks */
    ROWS_SETS = 4,
    LOOKS = 1024, /* at what a thread waits for, until it looks whether the group has failed */
    CHUNK_PIECES = CHUNK_BYTES / 16,
    ROWS_PIECES = ROWS_BYTES / 16
};

/* What signals are about. */
enum signal_kind { INPUTS_ARE_THERE, RESULTS_ARE_THERE, ROWS_ARE_THERE, NUM_SIGNALS };

/* Layout of a rank's memory. */
struct rank_memory {
    uint32_t signals[NUM_SIGNALS][MAX_BLOCKS][MAX_RANKS]; /* [..][block][sender] the last pass whose data is there */
    /* This rank's so far; a call counts in all of calls. */
    uint32_t passes[MAX_BLOCKS], calls[MAX_BLOCKS], row_passes[MAX_BLOCKS];
    uint4 words[2][WORDS];                     /* [call % 2]: sender by sender, equally many of each */
    uint4 inputs[2][MAX_BLOCKS][CHUNK_PIECES]; /* [pass % 2]: of this rank's slice, sender by sender */
    uint4 results[2][MAX_BLOCKS][CHUNK_PIECES];
    uint4 rows[ROWS_SETS][MAX_BLOCKS][ROWS_PIECES]; /* [pass % 4]: sender by sender, this rank left out */
};

struct peers {
    struct rank_memory *of[MAX_RANKS];
    const uint32_t *has_failed; /* in pinned host memory; not 0: the ranks wait for each other no longer */
    int rank, count;
};

static __device__ __forceinline__ rank_memory *own(const peers &p)
{
    return p.of[p.rank];
}

/* Called between two looks: whether the group has failed. Then what the kernel makes is of no use. */
static __device__ __forceinline__ bool is_in_vain(const peers &p, uint32_t *looks)
{
    uint32_t failed;
    if (++*looks % LOOKS) return false;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];\n" : "=r"(failed) : "l"(p.has_failed) : "memory");
    return failed != 0;
}

/* f(k) of each other rank. Ranks begin with different ones, so that not all write to one at a time. */
template <class Function> static __device__ __forceinline__ void for_each_other(const peers &p, Function f)
{
    for (int j = 1; j < p.count; j++) f(p.rank + j < p.count ? p.rank + j : p.rank + j - p.count);
}

/* ---- words ---- */

/* The number of this call, from 1. Call it after wait_for_previous. */
static __device__ __forceinline__ uint32_t begin_call(const peers &p)
{
    return own(p)->calls[blockIdx.x] + 1;
}

/* Every block counts the call for itself, and the first for the blocks that the kernel does not have. All threads of
 * the block have begun the call, and a __syncthreads was since. */
static __device__ __forceinline__ void end_call(const peers &p, uint32_t call)
{
    uint32_t *calls = own(p)->calls;
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
    if (blockIdx.x == 0)
        for (int i = gridDim.x + threadIdx.x; i < MAX_BLOCKS; i += blockDim.x) calls[i] = call;
}

/* Where rank `of` receives the words of a sender. */
static __device__ __forceinline__ uint4 *words_of(const peers &p, int of, uint32_t call, int sender)
{
    return p.of[of]->words[call % 2] + sender * (WORDS / p.count);
}

static __device__ __forceinline__ void send(const peers &p, uint32_t call, int word, uint2 data)
{
    for_each_other(p, [&](int k) {
        asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};\n" ::"l"(words_of(p, k, call, p.rank) + word),
                     "r"(data.x), "r"(call), "r"(data.y)
                     : "memory");
    });
}

static __device__ __forceinline__ uint4 look_at(const uint4 *word)
{
    uint4 w;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                 : "l"(word)
                 : "memory");
    return w;
}

static __device__ __forceinline__ bool is_there(const uint4 &w, uint32_t call)
{
    return w.y == call && w.w == call;
}

static __device__ __forceinline__ uint2 receive(const peers &p, uint32_t call, int sender, int word)
{
    const uint4 *from = words_of(p, p.rank, call, sender) + word;
    uint32_t looks = 0;
    uint4 w = look_at(from);
    while (!is_there(w, call) && !is_in_vain(p, &looks)) w = look_at(from);
    return make_uint2(w.x, w.z);
}

/* This word and the next one. */
static __device__ __forceinline__ uint4 receive_two(const peers &p, uint32_t call, int sender, int word)
{
    const uint4 *from = words_of(p, p.rank, call, sender) + word;
    uint32_t looks = 0;
    uint4 w[2];
    do {
        w[0] = look_at(from);
        w[1] = look_at(from + 1);
    } while ((!is_there(w[0], call) || !is_there(w[1], call)) && !is_in_vain(p, &looks));
    return make_uint4(w[0].x, w[0].z, w[1].x, w[1].z);
}

/* ---- passes ---- */

/* Tells the others that the block has written its data of the pass. */
static __device__ __forceinline__ void signal(const peers &p, enum signal_kind kind, uint32_t pass)
{
    __syncthreads();
    const int k = threadIdx.x;
    if (k < p.count && k != p.rank)
        asm volatile("st.release.sys.global.u32 [%0], %1;\n" ::"l"(&p.of[k]->signals[kind][blockIdx.x][p.rank]),
                     "r"(pass)
                     : "memory");
}

/* Waits until the others' data of the pass is here. */
static __device__ __forceinline__ void wait_for_signals(const peers &p, enum signal_kind kind, uint32_t pass)
{
    const int k = threadIdx.x;
    if (k < p.count && k != p.rank) {
        uint32_t there, looks = 0;
        do {
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];\n"
                         : "=r"(there)
                         : "l"(&own(p)->signals[kind][blockIdx.x][k])
                         : "memory");
        } while ((int32_t)(there - pass) < 0 && !is_in_vain(p, &looks));
    }
    __syncthreads();
}

static __device__ __forceinline__ void exchange(const peers &p, enum signal_kind kind, uint32_t pass)
{
    signal(p, kind, pass);
    wait_for_signals(p, kind, pass);
}

} // namespace collective

/* What a process's ranks have in common. The last member frees it. In a group of several processes, communicators are
 * all that they have. */
struct cuda_group {
    int32_t num_ranks, members; /* of this process */
    int32_t max_blocks;         /* of a kernel: MAX_BLOCKS, or as many as the smallest device has processors */
    struct collective::rank_memory *memories[collective::MAX_RANKS];
    uint32_t *has_failed;          /* pinned */
    struct group_failure *failure; /* whose listener sets it; NULL: nobody tells */
    struct communicators communicators;
};
void cuda_group_free(struct cuda_group *g);

/* What a kernel of the group needs. The kernel may wait for other ranks, which may not wait for it to make their
 * communicators, so these are made by then. */
static inline collective::peers cuda_peers(const struct cuda_state *s)
{
    collective::peers p = {};
    communicators_wait(&s->group->communicators);
    for (int i = 0; i < s->group->num_ranks; i++) p.of[i] = s->group->memories[i];
    p.has_failed = s->group->has_failed;
    p.rank = s->rank;
    p.count = s->group->num_ranks;
    return p;
}

/* Blocks for so many chunks. */
static inline dim3 cuda_blocks_for(const struct cuda_state *s, int64_t chunks)
{
    const int64_t most = s->group->max_blocks;
    return dim3((unsigned)(chunks < most ? chunks : most));
}

/* The bytes of x that are sent in words; of more ranks less, because each sends all of it to all others. */
static inline int64_t cuda_most_in_words(const struct cuda_state *s)
{
    const int64_t ranks = s->group->num_ranks;
    return (int64_t)collective::WORDS * collective::WORD_BYTES / (ranks * (ranks - 1));
}

/* Loads the kernels of a file on the current device: what is loaded while another rank's kernel waits might wait for
 * that kernel. */
bool cuda_load_all_reduce(struct backend *b);
bool cuda_load_all_gather(struct backend *b);
bool cuda_load_all_reduce_add_norm(struct backend *b);
bool cuda_load_all_norm(struct backend *b);
bool cuda_load_gather_columns(struct backend *b);

#endif
