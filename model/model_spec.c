#include "model/model_spec.h"

#include <math.h>

bool weight_scheme_equal(const struct weight_scheme *a, const struct weight_scheme *b)
{
    return a->storage == b->storage && a->is_quantized == b->is_quantized && a->quantize == b->quantize &&
           a->dequantize == b->dequantize && a->format == b->format && a->group_size == b->group_size &&
           a->blocks == b->blocks && a->per_tensor == b->per_tensor && a->has_zeros == b->has_zeros &&
           a->zeros_less_one == b->zeros_less_one && a->ordered == b->ordered && a->quantize_x == b->quantize_x &&
           a->scale_dtype == b->scale_dtype;
}

float attention_alibi_slope(const struct attention_spec *a, int32_t head)
{
    const int32_t n = a->all_heads > 0 ? a->all_heads : a->num_heads;
    int32_t m = 1;
    while (m < n) m *= 2;
    const int32_t number = a->first_head + head + 1, even = 2 * number;
    const int32_t i = m == n ? number : even <= m ? even : even - m - 1;
    return a->alibi_multiplier * exp2f(-a->alibi_bias_max * (float)i / (float)m);
}

float recurrent_slope(const struct recurrent_spec *r, int32_t head)
{
    const int32_t n = r->all_heads > 0 ? r->all_heads : r->num_v_heads;
    return r->slope_factor * exp2f(-8 * (float)(r->first_head + head + 1) / (float)n);
}

int64_t layer_mixer_out_size(const struct layer_spec *layer)
{
    switch (layer->mixer) {
    case MIXER_ATTENTION:
        return attention_out_size(&layer->attention) +
               (layer->recurrent_beside ? recurrent_v_size(&layer->recurrent) : 0);
    case MIXER_RECURRENT:
        return recurrent_v_size(&layer->recurrent);
    case MIXER_CONV:
        return layer->conv.channels;
    case MIXER_LATENT:
        return latent_out_size(&layer->latent);
    default:
        return 0;
    }
}

int64_t layer_mixer_in_size(const struct layer_spec *layer)
{
    switch (layer->mixer) {
    case MIXER_ATTENTION:
        return attention_qkv_size(&layer->attention) +
               (layer->recurrent_beside ? recurrent_in_size(&layer->recurrent) : 0);
    case MIXER_RECURRENT:
        return recurrent_in_size(&layer->recurrent);
    case MIXER_CONV:
        return 3 * (int64_t)layer->conv.channels;
    case MIXER_LATENT:
        return latent_first_size(&layer->latent) + latent_vector_size(&layer->latent);
    default:
        return 0;
    }
}

static void take_larger(int32_t *largest, int32_t size)
{
    if (size > *largest) *largest = size;
}

/* Attention is that of one KV head, whose size is that of what is cached. */
static void take_latent(struct layer_sizes *largest, const struct latent_spec *l)
{
    if (l->num_heads == 0) return;
    take_larger(&largest->num_heads, l->num_heads);
    take_larger(&largest->num_kv_heads, 1);
    take_larger(&largest->head_size, latent_vector_size(l));
    take_larger(&largest->latent_rank, l->rank);
}

struct layer_sizes model_spec_largest(const struct model_spec *spec)
{
    struct layer_sizes largest = {0};
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_spec *l = &spec->layers[i];
        take_larger(&largest.num_heads, l->attention.num_heads);
        take_larger(&largest.num_kv_heads, l->attention.num_kv_heads);
        take_larger(&largest.head_size, l->attention.head_size);
        take_larger(&largest.head_size, attention_v_head_size(&l->attention));
        take_latent(&largest, &l->latent);
        take_larger(&largest.intermediate_size, l->mlp.intermediate_size);
        take_larger(&largest.num_experts, l->experts.router.num_experts);
        take_larger(&largest.top_k, l->experts.router.top_k);
        take_larger(&largest.expert_size, l->experts.intermediate_size);
        take_larger(&largest.expert_latent_size, l->experts.latent_size);
    }
    return largest;
}

size_t model_spec_num_experts(const struct model_spec *spec)
{
    size_t count = 0;
    for (int32_t i = 0; i < spec->num_layers; i++) count += (size_t)router_num_own(&spec->layers[i].experts.router);
    return count;
}

const char *model_spec_other_parts(const struct model_spec *spec)
{
    if (spec->has_vision) return spec->has_audio ? "vision and audio towers" : "vision tower";
    return spec->has_audio ? "audio tower" : "";
}
