#include "model/kv_cache.h"

#include <stdlib.h>

static int64_t tensor_block_bytes(const struct model_spec *spec, int32_t block_size, enum dtype dtype)
{
    return (int64_t)block_size * spec->num_kv_heads * spec->head_size * dtype_size(dtype);
}

int64_t kv_cache_block_bytes(const struct model_spec *spec, const struct kv_groups *groups, int32_t block_size,
                             enum dtype dtype)
{
    return 2 * groups->num_tensors * tensor_block_bytes(spec, block_size, dtype);
}

int64_t kv_cache_token_bytes(const struct model_spec *spec, enum dtype dtype)
{
    return 2 * spec->num_layers * tensor_block_bytes(spec, 1, dtype);
}

enum status kv_cache_init(struct kv_cache *cache, const struct model_spec *spec, const struct batch_limits *limits,
                          enum dtype dtype, struct error *err)
{
    *cache = (struct kv_cache){
        .block_size = limits->block_size,
        .dtype = dtype,
        .tensor_block_bytes = tensor_block_bytes(spec, limits->block_size, dtype),
    };
    enum status status = kv_groups_assign(spec, limits, &cache->groups, err);
    if (status != STATUS_OK) return status;
    cache->num_tensors = 2 * cache->groups.num_tensors;
    cache->block_bytes = kv_cache_block_bytes(spec, &cache->groups, limits->block_size, dtype);
    cache->tensors = calloc((size_t)cache->num_tensors, sizeof *cache->tensors);
    return cache->tensors ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
}

enum status kv_cache_allocate(struct kv_cache *cache, struct arena *arena, int32_t num_blocks, struct error *err)
{
    const int64_t bytes = cache->tensor_block_bytes * ((int64_t)num_blocks + 1);
    for (int32_t i = 0; i < cache->num_tensors; i++) {
        enum status status = arena_alloc(arena, PURPOSE_KV_CACHE, bytes, &cache->tensors[i], err);
        if (status != STATUS_OK) return status;
    }
    cache->num_blocks = num_blocks;
    return STATUS_OK;
}

void kv_cache_close(struct kv_cache *cache)
{
    free(cache->tensors);
    *cache = (struct kv_cache){0};
}
