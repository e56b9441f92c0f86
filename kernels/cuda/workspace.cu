/* The workspace: a region for each operation that needs scratch memory. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

enum { ALIGNMENT = 256 };

static int64_t aligned(int64_t bytes)
{
    return cuda_div_up(bytes, ALIGNMENT) * ALIGNMENT;
}

int64_t cuda_workspace_bytes(struct backend *b, const struct workspace_query *query)
{
    struct cuda_state *s = cuda_state(b);
    s->regions[CUDA_USER_CUBLAS].bytes = CUBLAS_WORKSPACE_BYTES;
    s->regions[CUDA_USER_LINEAR].bytes = cuda_linear_workspace(s, query);
    s->regions[CUDA_USER_DEQUANTIZE].bytes = cuda_dequantize_workspace(s, query);
    s->regions[CUDA_USER_ATTENTION].bytes = cuda_attention_workspace(s, query);
    s->regions[CUDA_USER_LATENT].bytes = cuda_latent_workspace(s, query);
    s->regions[CUDA_USER_RECURRENCE].bytes = cuda_recurrence_workspace(query);
    s->regions[CUDA_USER_CHUNKS].bytes = cuda_chunks_workspace(query);
    s->regions[CUDA_USER_SAMPLE].bytes = cuda_sample_workspace(s, query);
    int64_t total = ALIGNMENT; /* the caller's memory may be aligned to less */
    for (int i = 0; i < CUDA_NUM_USERS; i++) total += aligned(s->regions[i].bytes);
    return total;
}

void cuda_workspace_set(struct backend *b, void *workspace, int64_t bytes)
{
    struct cuda_state *s = cuda_state(b);
    int64_t start = aligned((int64_t)(uintptr_t)workspace) - (int64_t)(uintptr_t)workspace, needed = start;
    for (int i = 0; i < CUDA_NUM_USERS; i++) needed += aligned(s->regions[i].bytes);
    bool fits = workspace && needed <= bytes;
    if (workspace && !fits)
        cuda_fail(b, "workspace_set was given %lld bytes, but the last workspace_bytes asked for %lld",
                  (long long)bytes, (long long)needed);
    if (fits) cuda_fill(b, workspace, 0, bytes);
    uint8_t *next = (uint8_t *)workspace + start;
    for (int i = 0; i < CUDA_NUM_USERS; i++) {
        s->regions[i].data = fits && s->regions[i].bytes > 0 ? next : NULL;
        next += aligned(s->regions[i].bytes);
    }
    const struct cuda_region *cublas = &s->regions[CUDA_USER_CUBLAS];
    cublas_set_workspace(s->cublas, cublas->data, cublas->data ? cublas->bytes : 0);
}
