#include "model/state_cache.h"

struct layer_state layer_state_sizes(const struct model_spec *spec, int32_t layer)
{
    const struct layer_spec *l = &spec->layers[layer];
    const struct recurrent_spec *r = &l->recurrent;
    if (l->mixer == MIXER_CONV)
        return (struct layer_state){.conv_stride = (int64_t)l->conv.channels * (l->conv.width - 1)};
    if (!layer_is_recurrent(l)) return (struct layer_state){0};
    return (struct layer_state){.conv_stride = recurrent_channels(r) * (r->conv_width - 1),
                                .matrix_stride = recurrent_v_size(r) * r->k_head_size};
}

int64_t state_cache_slot_bytes(const struct model_spec *spec)
{
    int64_t elements = 0;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_state state = layer_state_sizes(spec, i);
        elements += state.conv_stride + state.matrix_stride;
    }
    return elements * (int64_t)sizeof(float);
}

enum status state_cache_allocate(struct state_cache *cache, struct arena *arena, const struct model_spec *spec,
                                 int32_t num_slots, struct error *err)
{
    enum status status = STATUS_OK;
    cache->num_slots = num_slots;
    cache->slot_bytes = state_cache_slot_bytes(spec);
    for (int32_t i = 0; i < spec->num_layers && status == STATUS_OK && num_slots > 0; i++) {
        struct layer_state *state = &cache->layers[i];
        *state = layer_state_sizes(spec, i);
        const int64_t slots = (int64_t)num_slots + 1;
        const struct arena_request requests[] = {
            {PURPOSE_STATE_SLOTS, slots * state->conv_stride, sizeof(float), &state->conv},
            {PURPOSE_STATE_SLOTS, slots * state->matrix_stride, sizeof(float), &state->matrix},
        };
        status = arena_alloc_all(arena, requests, sizeof requests / sizeof *requests, err);
    }
    return status;
}
