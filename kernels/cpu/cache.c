/* Writes to the KV cache, copies of its blocks, and changes to block tables. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/cpu/state.h"
#include "kernels/kv_scale.h"

enum { MAX_ELEMENTS = CPU_PIECE }; /* of a head at once; a multiple of 16, so that no 16 bytes of K are split */

/* Up to MAX_ELEMENTS elements as the cache stores them: in place and bit for bit if the types are the same, else
 * converted into `stored`. For an fp8 cache they are divided by the scale and clamped. */
static const void *convert(const struct cpu_kernels *kernels, void *stored, const void *in, enum dtype dtype,
                           enum dtype cache_dtype, float scale, int64_t count)
{
    if (dtype == cache_dtype) return in;
    float piece[MAX_ELEMENTS];
    kernels->to_float(piece, in, dtype, count);
    for (int64_t i = 0; i < count && dtype_size(cache_dtype) == 1; i++) piece[i] /= scale;
    kernels->from_float(stored, piece, cache_dtype, count);
    return stored;
}

/* K: pieces of 16 bytes, 16 * block_size bytes apart. */
static void store_keys(uint8_t *out, const uint8_t *in, int64_t count, int64_t element, int64_t block_size)
{
    for (int64_t i = 0; i < count * element; i += 16) memcpy(out + i * block_size, in + i, 16);
}

/* V: single elements, block_size elements apart. */
static void store_values(uint8_t *out, const uint8_t *in, int64_t count, int64_t element, int64_t block_size)
{
    for (int64_t i = 0; i < count; i++) {
        uint8_t *to = out + i * block_size * element;
        const uint8_t *from = in + i * element;
        if (element == 4) {
            memcpy(to, from, 4);
        } else if (element == 2) {
            memcpy(to, from, 2);
        } else {
            *to = *from;
        }
    }
}

static void cache_token(const struct cpu_state *s, const void *cache_args, int64_t t, int thread)
{
    (void)thread;
    const struct reshape_and_cache_args *args = cache_args;
    const struct cpu_kernels *kernels = s->kernels;
    const int64_t slot = args->slot_mapping[t];
    if (slot < 0) return;
    int64_t head_size = args->head_size, v_head_size = args->v_head_size, block_size = args->block_size;
    int64_t element = dtype_size(args->cache_dtype);
    int64_t block = slot / block_size, offset = slot % block_size;
    const float k_scale = element == 1 ? args->kv_scales[0] : 1, v_scale = element == 1 ? args->kv_scales[1] : 1;
    uint8_t stored[MAX_ELEMENTS * sizeof(float)];
    for (int64_t h = 0; h < args->num_kv_heads; h++) {
        int64_t k_head = block * args->block_stride + h * head_size * block_size;
        int64_t v_head = block * args->block_stride + h * v_head_size * block_size;
        uint8_t *k = (uint8_t *)args->k_cache + k_head * element + offset * 16;
        uint8_t *v = (uint8_t *)args->v_cache + (v_head + offset) * element;
        for (int64_t d = 0; d < head_size; d += MAX_ELEMENTS) {
            int64_t n = min_i64(MAX_ELEMENTS, head_size - d), from = t * args->kv_stride + h * head_size + d;
            const void *key = cpu_element(args->key, args->dtype, from);
            key = convert(kernels, stored, key, args->dtype, args->cache_dtype, k_scale, n);
            store_keys(k + d * block_size * element, key, n, element, block_size);
        }
        for (int64_t d = 0; d < v_head_size; d += MAX_ELEMENTS) {
            int64_t n = min_i64(MAX_ELEMENTS, v_head_size - d), from = t * args->kv_stride + h * v_head_size + d;
            const void *value = cpu_element(args->value, args->dtype, from);
            value = convert(kernels, stored, value, args->dtype, args->cache_dtype, v_scale, n);
            store_values(v + d * block_size * element, value, n, element, block_size);
        }
    }
}

void cpu_reshape_and_cache(struct backend *b, const struct reshape_and_cache_args *args)
{
    cpu_for(cpu_state(b), args->num_tokens * args->kv_stride, args->num_tokens, cache_token, args);
}

/* Copies `size` elements of a token to the cache. */
static void store_latent(const struct cpu_kernels *kernels, const struct latent_cache_args *args, int64_t index,
                         const void *in, int64_t size, float scale)
{
    uint8_t stored[MAX_ELEMENTS * sizeof(float)];
    for (int64_t i = 0; i < size; i += MAX_ELEMENTS) {
        const int64_t n = min_i64(MAX_ELEMENTS, size - i);
        const void *from =
            convert(kernels, stored, cpu_element(in, args->dtype, i), args->dtype, args->cache_dtype, scale, n);
        memcpy(cpu_element_out(args->cache, args->cache_dtype, index + i), from,
               (size_t)(n * dtype_size(args->cache_dtype)));
    }
}

static void latent_token(const struct cpu_state *s, const void *cache_args, int64_t t, int thread)
{
    (void)thread;
    const struct latent_cache_args *args = cache_args;
    const int64_t slot = args->slot_mapping[t], size = args->rank + args->rope;
    if (slot < 0) return;
    const int64_t index = slot / args->block_size * args->block_stride + slot % args->block_size * size;
    const float scale = dtype_size(args->cache_dtype) == 1 ? args->kv_scales[0] : 1;
    store_latent(s->kernels, args, index, cpu_element(args->latent, args->dtype, t * args->latent_stride), args->rank,
                 scale);
    store_latent(s->kernels, args, index + args->rank,
                 cpu_element(args->rotated, args->dtype, t * args->rotated_stride), args->rope, scale);
}

void cpu_latent_cache(struct backend *b, const struct latent_cache_args *args)
{
    cpu_for(cpu_state(b), (int64_t)args->num_tokens * (args->rank + args->rope), args->num_tokens, latent_token, args);
}

/* The largest magnitude of the count finite elements at in[index]. */
static float largest_of(const struct cpu_kernels *kernels, const void *in, enum dtype dtype, int64_t index,
                        int64_t count)
{
    float largest = 0, piece[MAX_ELEMENTS];
    for (int64_t first = 0; first < count; first += MAX_ELEMENTS) {
        const int64_t n = min_i64(MAX_ELEMENTS, count - first);
        kernels->to_float(piece, cpu_element(in, dtype, index + first), dtype, n);
        for (int64_t i = 0; i < n; i++)
            if (isfinite(piece[i])) largest = fmaxf(largest, fabsf(piece[i]));
    }
    return largest;
}

/* The largest magnitudes of K and V so far. */
struct measurement {
    const struct reshape_and_cache_args *args;
    _Atomic(float) *largest; /* [2] */
};

static void raise_to(_Atomic(float) *largest, float value)
{
    float seen = atomic_load(largest);
    while (value > seen && !atomic_compare_exchange_weak(largest, &seen, value)) continue;
}

static void measure_token(const struct cpu_state *s, const void *measurement, int64_t t, int thread)
{
    (void)thread;
    const struct measurement *m = measurement;
    const struct reshape_and_cache_args *args = m->args;
    const int64_t index = t * args->kv_stride, heads = args->num_kv_heads;
    if (args->slot_mapping[t] < 0) return;
    raise_to(&m->largest[0], largest_of(s->kernels, args->key, args->dtype, index, heads * args->head_size));
    raise_to(&m->largest[1], largest_of(s->kernels, args->value, args->dtype, index, heads * args->v_head_size));
}

void cpu_calculate_kv_scales(struct backend *b, const struct reshape_and_cache_args *args)
{
    const int64_t size = (int64_t)args->num_kv_heads * (args->head_size + args->v_head_size);
    _Atomic(float) largest[2] = {0, 0};
    const struct measurement measurement = {.args = args, .largest = largest};
    cpu_for(cpu_state(b), args->num_tokens * size, args->num_tokens, measure_token, &measurement);
    for (int i = 0; i < 2; i++) args->kv_scales[i] = fmaxf(args->kv_scales[i], kv_scale_for(largest[i]));
}

void cpu_update_block_tables(struct backend *b, const struct update_block_tables_args *args)
{
    (void)b;
    for (int32_t i = 0; i < args->num_deltas; i++) {
        const struct block_table_delta *delta = &args->deltas[i];
        args->block_tables[delta->group * args->group_stride + delta->state_index * args->block_table_stride +
                           delta->index] = delta->block;
    }
}

static void move_block(const struct cpu_state *s, const void *swap_args, int64_t i, int thread)
{
    (void)s, (void)thread;
    const struct swap_blocks_args *args = swap_args;
    const struct block_pair *pair = &args->pairs[i / args->num_caches];
    const int64_t cache = i % args->num_caches, bytes = args->block_bytes;
    memcpy((uint8_t *)args->destinations[cache] + pair->destination * bytes,
           (const uint8_t *)args->sources[cache] + pair->source * bytes, (size_t)bytes);
}

void cpu_swap_blocks(struct backend *b, const struct swap_blocks_args *args, backend_stream stream)
{
    (void)stream;
    const int64_t moves = (int64_t)args->num_caches * args->num_pairs;
    cpu_for(cpu_state(b), moves * args->block_bytes / 4, moves, move_block, args);
}

void cpu_copy_blocks(struct backend *b, const struct copy_blocks_args *args)
{
    const struct swap_blocks_args inside = {.sources = args->caches,
                                            .destinations = args->caches,
                                            .num_caches = args->num_caches,
                                            .block_bytes = args->block_bytes,
                                            .pairs = args->pairs,
                                            .num_pairs = args->num_pairs};
    cpu_swap_blocks(b, &inside, NULL);
}
