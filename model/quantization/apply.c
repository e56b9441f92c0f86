/* quantization_apply: floats that are to be quantized while they are loaded. */
#include <string.h>

#include "model/quantization.h"
#include "model/tensors.h"

static const struct format {
    const char *name;
    enum weight_format format;
} formats[] = {{"fp8", WEIGHT_FP8}, {"int8", WEIGHT_INT8}, {"int4", WEIGHT_INT4}};
enum { NUM_FORMATS = sizeof formats / sizeof *formats };

/* --- Checkpoints that are quantized --- */

static bool is_named(const struct weight_scheme *s, const char *name)
{
    if (strcmp(name, "awq") == 0) return s->storage == STORED_AWQ;
    if (strcmp(name, "gptq") == 0) return s->storage == STORED_GPTQ;
    if (strcmp(name, "compressed-tensors") == 0)
        return s->storage != STORED_AWQ && s->storage != STORED_GPTQ && s->storage != STORED_MXFP4_BLOCKS;
    for (int i = 0; i < NUM_FORMATS; i++)
        if (strcmp(name, formats[i].name) == 0) return s->format == formats[i].format;
    return false;
}

static enum status check_same(const struct model_spec *spec, const char *name, struct error *err)
{
    bool same = true;
    for (int32_t i = 1; i < spec->num_schemes; i++) same = same && is_named(&spec->schemes[i], name);
    if (same) return STATUS_OK;
    error_set(err, STATUS_INVALID, "quantization is \"%s\", but the checkpoint is quantized already (%s)", name,
              quantization_words(spec).text);
    error_advise(err, ADVICE_SET, "quantization", "none");
    return STATUS_INVALID;
}

/* --- Checkpoints of floats --- */

/* The largest group that divides the input features; 0: none does. */
static int32_t int4_group_size(int64_t in_features)
{
    for (int32_t size = 128; size >= 32; size /= 2)
        if (in_features % size == 0) return size;
    return 0;
}

static struct weight_scheme scheme_of(enum weight_format format, int64_t in_features)
{
    struct weight_scheme s = {.is_quantized = true, .quantize = true, .format = format};
    if (format == WEIGHT_INT4) {
        s.group_size = int4_group_size(in_features);
        s.has_zeros = true;
        s.scale_dtype = DTYPE_FLOAT16;
        s.is_quantized = s.group_size > 0;
    } else {
        s.quantize_x = true;
    }
    return s;
}

/* Of experts, vLLM and transformers read integers in words of 32 bits alone (pack-quantized), without zero points and
 * with one scheme for all matrices. transformers computes with them in the type of the scales. */
static struct weight_scheme scheme_of_experts(enum weight_format format, int64_t hidden_size, int64_t expert_size,
                                              enum dtype dtype)
{
    const struct weight_scheme gate_up = scheme_of(format, hidden_size), down = scheme_of(format, expert_size);
    struct weight_scheme s = gate_up.group_size < down.group_size ? gate_up : down;
    if (format == WEIGHT_FP8) return s;
    s.has_zeros = s.quantize_x = false;
    s.scale_dtype = dtype;
    s.is_quantized = format == WEIGHT_INT4 ? s.group_size > 0 : hidden_size % 4 == 0 && expert_size % 4 == 0;
    return s;
}

static uint8_t add_scheme(struct model_spec *spec, const struct weight_scheme *scheme)
{
    if (!scheme->is_quantized) return 0;
    for (int32_t i = 1; i < spec->num_schemes; i++)
        if (weight_scheme_equal(&spec->schemes[i], scheme)) return (uint8_t)i;
    spec->schemes[spec->num_schemes] = *scheme;
    return (uint8_t)spec->num_schemes++;
}

static enum status set_format(struct model_spec *spec, enum weight_format format, struct error *err)
{
    struct tensor_table table;
    enum status status = tensor_table_make(spec, true, &table, err);
    for (int32_t i = 0; i < table.count; i++) {
        const struct tensor *t = &table.tensors[i];
        if (!tensor_may_be_quantized(t) || t->layer < 0) continue;
        struct layer_spec *layer = &spec->layers[t->layer];
        struct weight_scheme scheme =
            t->merged == MERGED_EXPERTS
                ? scheme_of_experts(format, spec->hidden_size, layer->experts.intermediate_size, spec->dtype)
                : scheme_of(format, t->in_features);
        /* One of these families is Llama 4, whose q and k vLLM permutes, but not their zero points. */
        if (spec->names.quantized_experts) scheme.has_zeros = false;
        layer->schemes[t->role] = add_scheme(spec, &scheme);
    }
    tensor_table_free(&table);
    return status;
}

enum status quantization_apply(struct model_spec *spec, const char *name, struct error *err)
{
    if (!name || strcmp(name, "none") == 0) return STATUS_OK;
    if (spec->num_schemes > 1) return check_same(spec, name, err);
    for (int i = 0; i < NUM_FORMATS; i++)
        if (strcmp(name, formats[i].name) == 0) return set_format(spec, formats[i].format, err);
    error_set(err, STATUS_INVALID,
              "quantization is \"%s\", but the checkpoint is not quantized; quire quantizes to fp8, int8 or int4",
              name);
    return STATUS_INVALID;
}

void quantization_remove(struct model_spec *spec)
{
    spec->num_schemes = 1;
    spec->lm_head_scheme = 0;
    for (int32_t i = 0; i < spec->num_layers; i++) memset(spec->layers[i].schemes, 0, sizeof spec->layers[i].schemes);
}
