#include "model/kv_cache.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/kv_scale.h"
#include "model/layer_cache.h"

/* Tokens of a block of the layer. */
static int64_t layer_block_size(const struct kv_groups *groups, const struct batch_limits *limits, int32_t layer)
{
    return batch_block_size(limits, groups->group[layer]);
}

static int64_t tensor_block_bytes(const struct model_spec *spec, const struct kv_groups *groups,
                                  const struct batch_limits *limits, enum dtype dtype)
{
    int64_t most = 0;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_cache cache = layer_cache_of(&spec->layers[i]);
        const int64_t elements = layer_cache_room(&cache) * layer_block_size(groups, limits, i);
        if (elements > most) most = elements;
    }
    return most * dtype_size(dtype);
}

int64_t kv_cache_block_bytes(const struct model_spec *spec, const struct kv_groups *groups,
                             const struct batch_limits *limits, enum dtype dtype)
{
    return (int64_t)groups->num_sides * groups->num_tensors * tensor_block_bytes(spec, groups, limits, dtype);
}

int64_t kv_cache_unused_bytes(const struct model_spec *spec, const struct kv_groups *groups,
                              const struct batch_limits *limits, int32_t group, enum dtype dtype)
{
    const int64_t room = tensor_block_bytes(spec, groups, limits, dtype);
    int64_t unused = 0;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_cache cache = layer_cache_of(&spec->layers[i]);
        if (groups->group[i] == group && cache.kind != CACHE_SHARED && cache.kind != CACHE_NONE)
            unused +=
                groups->num_sides * room - layer_cache_token_bytes(&cache, dtype) * layer_block_size(groups, limits, i);
    }
    return unused;
}

int64_t kv_cache_token_bytes(const struct model_spec *spec, enum dtype dtype)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_cache cache = layer_cache_of(&spec->layers[i]);
        bytes += layer_cache_token_bytes(&cache, dtype);
    }
    return bytes;
}

enum status kv_cache_init(struct kv_cache *cache, const struct model_spec *spec, const struct batch_limits *limits,
                          enum dtype dtype, struct error *err)
{
    *cache = (struct kv_cache){.dtype = dtype};
    enum status status = kv_groups_assign(spec, limits, &cache->groups, err);
    if (status != STATUS_OK) return status;
    for (int32_t g = 0; g < limits->num_groups; g++) cache->block_sizes[g] = batch_block_size(limits, g);
    cache->num_tensors = cache->groups.num_sides * cache->groups.num_tensors;
    cache->tensor_block_bytes = tensor_block_bytes(spec, &cache->groups, limits, dtype);
    cache->block_bytes = cache->num_tensors * cache->tensor_block_bytes;
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

enum status kv_cache_allocate_scales(struct kv_cache *cache, struct arena *arena, const struct model_spec *spec,
                                     enum dtype dtype, struct error *err)
{
    const struct arena_request request = {PURPOSE_STATE, dtype_size(dtype) == 1 ? 2 * (int64_t)spec->num_layers : 0,
                                          sizeof *cache->scales, &cache->scales};
    return arena_alloc_all(arena, &request, 1, err);
}

static bool has_scales(const struct model_weights *weights, int32_t num_layers)
{
    for (int32_t i = 0; i < num_layers; i++)
        for (int j = 0; j < 2; j++)
            if (weights->layers[i].kv_scales[j] == 0) return false;
    return true;
}

/* Sets the scales to those of the checkpoint. */
static enum status take_scales(const struct model_weights *weights, int32_t num_layers, float *scales,
                               struct error *err)
{
    for (int32_t i = 0; i < num_layers; i++)
        for (int j = 0; j < 2; j++) {
            const float scale = weights->layers[i].kv_scales[j];
            scales[2 * i + j] = scale;
            if (scale > 0 && !isinf(scale)) continue;
            error_set(err, STATUS_INVALID,
                      "the checkpoint's scale of the cached %s of layer %d is %g, but must be a positive number",
                      j ? "values" : "keys", i, (double)scale);
            error_advise(err, ADVICE_SET, "kv_cache_dtype", "fp8_e5m2");
            error_advise(err, ADVICE_SET, "kv_cache_dtype", "auto");
            return STATUS_INVALID;
        }
    return STATUS_OK;
}

enum status kv_cache_set_scales(struct kv_cache *cache, struct backend *b, const struct model_weights *weights,
                                const struct model_spec *spec, struct error *err)
{
    const int32_t num_layers = spec->num_layers;
    const int64_t bytes = (int64_t)2 * num_layers * (int64_t)sizeof *cache->scales;
    const bool e4m3 = cache->dtype == DTYPE_FP8_E4M3, given = e4m3 && has_scales(weights, num_layers);
    if (!cache->scales) return STATUS_OK;
    float *scales = malloc((size_t)bytes);
    if (!scales) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    for (int32_t i = 0; i < 2 * num_layers; i++) scales[i] = e4m3 ? KV_SCALE_LEAST : 1;
    enum status status = given ? take_scales(weights, num_layers, scales, err) : STATUS_OK;
    for (int32_t i = 0; i < num_layers && (given || !e4m3); i++)
        if (spec->layers[i].mixer == MIXER_ATTENTION) scales[2 * i + 1] /= spec->layers[i].attention.v_multiplier;
    if (status == STATUS_OK) {
        b->copy(b, cache->scales, scales, bytes, NULL);
        status = b->stream_synchronize(b, NULL, err);
    }
    cache->measure_scales = e4m3 && !given;
    free(scales);
    return status;
}

void kv_cache_close(struct kv_cache *cache)
{
    free(cache->tensors);
    *cache = (struct kv_cache){0};
}
