/* Writing the KV cache, moving its blocks, and the tables that name them. */
#include <string.h>

#include "kernels/cpu/fp8.h"
#include "kernels/cpu/state.h"

/* One element of the cache. What is stored in an fp8 cache was divided by a scale, and is clamped to its range. */
static void store(void *cache, enum dtype cache_dtype, int64_t i, float value)
{
    if (dtype_size(cache_dtype) == 1) {
        ((uint8_t *)cache)[i] = float_to_fp8(value, cache_dtype);
    } else {
        dtype_store(cache, cache_dtype, i, value);
    }
}

/* The rows that hold values of the cache's own type are moved as they are, whatever bits they have. */
static void store_raw(void *cache, const void *in, int64_t to, int64_t from, int size)
{
    memcpy((uint8_t *)cache + to * size, (const uint8_t *)in + from * size, (size_t)size);
}

static void cache_token(const struct reshape_and_cache_args *args, int64_t t, int64_t slot)
{
    int64_t head_size = args->head_size, block_size = args->block_size, x = 16 / dtype_size(args->cache_dtype);
    int64_t block = slot / block_size, offset = slot % block_size;
    bool fp8 = dtype_size(args->cache_dtype) == 1, raw = args->cache_dtype == args->dtype;
    float k_inverse = fp8 ? 1.0f / args->k_scale : 1.0f, v_inverse = fp8 ? 1.0f / args->v_scale : 1.0f;
    for (int64_t h = 0; h < args->num_kv_heads; h++) {
        int64_t head = (block * args->num_kv_heads + h) * head_size * block_size;
        for (int64_t d = 0; d < head_size; d++) {
            int64_t from = t * args->kv_stride + h * head_size + d;
            int64_t k_to = head + (d / x * block_size + offset) * x + d % x, v_to = head + d * block_size + offset;
            if (raw) {
                store_raw(args->k_cache, args->key, k_to, from, dtype_size(args->dtype));
                store_raw(args->v_cache, args->value, v_to, from, dtype_size(args->dtype));
            } else {
                store(args->k_cache, args->cache_dtype, k_to, dtype_load(args->key, args->dtype, from) * k_inverse);
                store(args->v_cache, args->cache_dtype, v_to, dtype_load(args->value, args->dtype, from) * v_inverse);
            }
        }
    }
}

void cpu_reshape_and_cache(struct backend *b, const struct reshape_and_cache_args *args, backend_stream stream)
{
    (void)stream;
    const struct cpu_state *s = cpu_state(b);
    int64_t work = 2 * (int64_t)args->num_tokens * args->num_kv_heads * args->head_size;
#pragma omp parallel for num_threads(cpu_threads_for(s, work))
    for (int32_t t = 0; t < args->num_tokens; t++)
        if (args->slot_mapping[t] >= 0) cache_token(args, t, args->slot_mapping[t]);
}

void cpu_update_block_tables(struct backend *b, int32_t *block_tables, int64_t block_table_stride,
                             const struct block_table_delta *deltas, int32_t num_deltas, backend_stream stream)
{
    (void)b, (void)stream;
    for (int32_t i = 0; i < num_deltas; i++)
        block_tables[deltas[i].row * block_table_stride + deltas[i].index] = deltas[i].block;
}

static void move_blocks(const struct cpu_state *s, void *const *sources, void *const *destinations, int32_t num_caches,
                        int64_t block_bytes, const struct block_pair *pairs, int32_t num_pairs)
{
    int64_t moves = (int64_t)num_caches * num_pairs;
#pragma omp parallel for num_threads(cpu_threads_for(s, moves *block_bytes / 4))
    for (int64_t i = 0; i < moves; i++) {
        const struct block_pair *pair = &pairs[i / num_caches];
        int32_t cache = (int32_t)(i % num_caches);
        memcpy((uint8_t *)destinations[cache] + pair->destination * block_bytes,
               (const uint8_t *)sources[cache] + pair->source * block_bytes, (size_t)block_bytes);
    }
}

void cpu_copy_blocks(struct backend *b, void *const *caches, int32_t num_caches, int64_t block_bytes,
                     const struct block_pair *pairs, int32_t num_pairs, backend_stream stream)
{
    (void)stream;
    move_blocks(cpu_state(b), caches, caches, num_caches, block_bytes, pairs, num_pairs);
}

void cpu_swap_blocks(struct backend *b, void *const *sources, void *const *destinations, int32_t num_caches,
                     int64_t block_bytes, const struct block_pair *pairs, int32_t num_pairs, backend_stream stream)
{
    (void)stream;
    move_blocks(cpu_state(b), sources, destinations, num_caches, block_bytes, pairs, num_pairs);
}
