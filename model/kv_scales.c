#include "model/kv_scales.h"

#include <stdio.h>

/* What follows the name of a layer's attention for K and for V: of compressed-tensors and AutoFP8; of NVIDIA's
 * ModelOpt, for separate and for merged projections; of vLLM itself; of AMD's Quark; and one scale for both. The list
 * is that of vLLM's maybe_remap_kv_scale_name. */
static const char *const names[][2] = {{"k_scale", "v_scale"},
                                       {"k_proj.k_scale", "v_proj.v_scale"},
                                       {"qkv_proj.k_scale", "qkv_proj.v_scale"},
                                       {"attn.k_scale", "attn.v_scale"},
                                       {"k_proj.output_scale", "v_proj.output_scale"},
                                       {"kv_scale", "kv_scale"}};
enum { NUM_NAMES = sizeof names / sizeof *names };

/* Sets *scale if the file has the tensor. */
static enum status read_scale(const struct tensor_file *file, const char *name, bool *used, float *scale,
                              struct error *err)
{
    const struct stored_tensor *found = tensor_file_find(file, name);
    float stored = 0; /* of any dtype */
    enum dtype dtype;
    if (!found || element_type_to_dtype(found->dtype, &dtype) != 0 || dtype_size(dtype) == 1 ||
        found->bytes != (uint64_t)dtype_size(dtype))
        return STATUS_OK;
    enum status status = tensor_file_read(file, found->data, found->bytes, &stored, err);
    *scale = dtype_load(&stored, dtype, 0);
    used[tensor_file_index(file, found)] = true;
    return status;
}

enum status kv_scales_find(struct model_weights *w, const struct model_spec *spec, bool *used, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < spec->num_layers; i++)
        for (int n = 0; n < NUM_NAMES; n++)
            for (int j = 0; j < 2 && status == STATUS_OK; j++) {
                char name[96];
                snprintf(name, sizeof name, "%s.%d.%s.%s", spec->names.layers, i, spec->names.attention, names[n][j]);
                status = read_scale(w->file, name, used, &w->layers[i].kv_scales[j], err);
            }
    return status;
}
