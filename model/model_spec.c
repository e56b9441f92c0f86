#include "model/model_spec.h"

static void take_larger(int32_t *largest, int32_t size)
{
    if (size > *largest) *largest = size;
}

struct layer_sizes model_spec_largest(const struct model_spec *spec)
{
    struct layer_sizes largest = {0};
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_spec *l = &spec->layers[i];
        take_larger(&largest.num_heads, l->attention.num_heads);
        take_larger(&largest.num_kv_heads, l->attention.num_kv_heads);
        take_larger(&largest.head_size, l->attention.head_size);
        take_larger(&largest.intermediate_size, l->mlp.intermediate_size);
    }
    return largest;
}
