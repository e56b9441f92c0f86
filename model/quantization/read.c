/* quantization_read: which format it is, what is refused, and the schemes that a format found for the modules. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "model/quantization.h"
#include "model/quantization/reader.h"

/* --- Formats --- */

static const struct method {
    const char *name; /* of quant_method */
    quantization_method *read;
} methods[] = {
    {"auto-round", auto_round_read},
    {"intel/auto-round", auto_round_read},
    {"awq", awq_read},
    {"compressed-tensors", compressed_tensors_read},
    {"fbgemm_fp8", fbgemm_fp8_read},
    {"fp8", fp8_read},
    {"gptq", gptq_read},
    {"modelopt", modelopt_read},
    {"mxfp4", mxfp4_read},
};

/* Values of quant_method that quire does not read, and what they stand for. */
static const struct refused_method {
    const char *name, *what;
} refused_methods[] = {
    {"aqlm", "AQLM"},
    {"bitnet", "BitNet"},
    {"eetq", "EETQ's int8"},
    {"exl2", "ExLlamaV2's format"},
    {"exl3", "ExLlamaV3's format"},
    {"fp_quant", "FP-Quant"},
    {"gguf", "GGUF"},
    {"higgs", "HIGGS"},
    {"hqq", "HQQ"},
    {"marlin", "Marlin's layout"},
    {"modelopt_fp4", "NVFP4"},
    {"nvfp4", "NVFP4"},
    {"quanto", "Quanto"},
    {"quark", "AMD Quark"},
    {"quip", "QuIP#"},
    {"sparseml", "SparseML"},
    {"spqr", "SpQR"},
    {"squeezellm", "SqueezeLLM"},
    {"torchao", "torchao"},
    {"vptq", "VPTQ"},
};

void quantization_refuse(struct quantization_reader *q, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    json_reader_fail(&q->json, STATUS_UNSUPPORTED,
                     "%s: %s is not read; use the model in bfloat16 or float16, which quire can quantize to fp8, "
                     "int8 or int4 while it loads it, or one that is quantized by AWQ or GPTQ with 4 bits, or with "
                     "fp8, int8, int4, mxfp4 or nvfp4 of compressed-tensors",
                     q->key, what);
}

struct json_reader quantization_enter(struct quantization_reader *q, const json_t *object, const char *prefix)
{
    const struct json_reader outer = q->json;
    q->json.object = object;
    q->json.prefix = prefix;
    return outer;
}

void quantization_leave(struct quantization_reader *q, const struct json_reader *outer)
{
    q->json.object = outer->object;
    q->json.prefix = outer->prefix;
}

bool quantization_is_128_by_128(const json_t *size)
{
    return json_array_size(size) == 2 && json_integer_value(json_array_get(size, 0)) == 128 &&
           json_integer_value(json_array_get(size, 1)) == 128;
}

static void refuse_bitsandbytes(struct quantization_reader *q)
{
    const char *type = json_reader_string(&q->json, "bnb_4bit_quant_type", "fp4");
    if (json_reader_bool(&q->json, "load_in_4bit", false))
        quantization_refuse(q, "bitsandbytes with 4 bits (%s)", show_string(type).text);
    else
        quantization_refuse(q, "bitsandbytes with 8 bits (LLM.int8())");
}

static void read_method(struct quantization_reader *q, const char *absent)
{
    const char *name = json_reader_string(&q->json, "quant_method", absent);
    if (!name) {
        json_reader_fail(&q->json, STATUS_INVALID, "%squant_method is missing: what format the weights have",
                         q->json.prefix);
        return;
    }
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (strcmp(name, methods[i].name) != 0) continue;
        methods[i].read(q);
        return;
    }
    if (strcmp(name, "bitsandbytes") == 0) refuse_bitsandbytes(q);
    for (size_t i = 0; i < sizeof refused_methods / sizeof *refused_methods; i++)
        if (strcmp(name, refused_methods[i].name) == 0) quantization_refuse(q, "%s", refused_methods[i].what);
    quantization_refuse(q, "quant_method \"%s\"", show_string(name).text); /* unless it was refused already */
}

/* --- Schemes of modules --- */

uint8_t quantization_add(struct quantization_reader *q, const struct weight_scheme *scheme)
{
    struct model_spec *spec = q->spec;
    for (int32_t i = 0; i < spec->num_schemes; i++)
        if (weight_scheme_equal(&spec->schemes[i], scheme)) return (uint8_t)i;
    if (spec->num_schemes == MODEL_MAX_SCHEMES) {
        quantization_refuse(q, "a mix of more than %d formats", MODEL_MAX_SCHEMES - 1);
        return 0;
    }
    spec->schemes[spec->num_schemes] = *scheme;
    return (uint8_t)spec->num_schemes++;
}

void quantization_set_layers(struct quantization_reader *q, const struct weight_scheme *scheme)
{
    const uint8_t index = quantization_add(q, scheme);
    for (int32_t i = 0; i < q->num_modules; i++)
        if (q->modules[i].tensor->layer >= 0 && !q->modules[i].skipped) q->modules[i].scheme = index;
}

void quantization_set_lm_head(struct quantization_reader *q, const struct weight_scheme *scheme)
{
    const uint8_t index = quantization_add(q, scheme);
    for (int32_t i = 0; i < q->num_modules; i++)
        if (q->modules[i].tensor->role == TENSOR_LM_HEAD) q->modules[i].scheme = index;
}

/* A matrix of n elements in words of 8 needs a multiple of 8. */
static void check_shape(struct quantization_reader *q, const struct module *m)
{
    const struct weight_scheme *s = &q->spec->schemes[m->scheme];
    const int64_t in = m->tensor->in_features, out = m->tensor->out_features;
    if (m->tensor->role == TENSOR_EMBEDDING)
        quantization_refuse(q, "a quantized embedding (%s)", m->name.text);
    else if (weight_is_packed(s->format) && s->group_size > 0 && in % s->group_size != 0)
        quantization_refuse(q, "%s: %s in groups of %d, which do not divide its %lld input features,", m->name.text,
                            s->format == WEIGHT_INT4 ? "int4" : "fp4", s->group_size, (long long)in);
    else if (s->storage != STORED_ROWS && in % 8 != 0)
        quantization_refuse(q, "%s: a packed matrix with %lld input features, no multiple of 8,", m->name.text,
                            (long long)in);
    else if ((s->storage == STORED_GPTQ || s->storage == STORED_AWQ) && out % 8 != 0)
        quantization_refuse(q, "%s: a packed matrix with %lld output features, no multiple of 8,", m->name.text,
                            (long long)out);
}

/* Of a layer, gate and up of all experts have one scheme, and down of all. They follow each other in the table. */
static void check_expert(struct quantization_reader *q, const struct module *m)
{
    const struct tensor *t = m->tensor;
    const uint8_t *schemes = q->spec->layers[t->layer].schemes;
    const enum tensor_role first = t->role == TENSOR_EXPERT_UP && t->part > 0 ? TENSOR_EXPERT_GATE : t->role;
    if ((t->expert > 0 || t->role != first) && m->scheme != schemes[first])
        quantization_refuse(q, "a mix of formats among the experts of a layer (%s)", m->name.text);
}

/* Programs that quantize matrices cut a tensor of all experts of a layer into them. */
static void name_experts(struct quantization_reader *q, const struct module *m)
{
    struct tensor_names *names = &q->spec->names;
    const bool cut = m->tensor->num_experts > 0 && q->spec->schemes[m->scheme].storage != STORED_MXFP4_BLOCKS;
    if (m->scheme == 0 || !cut || names->experts || !names->quantized_experts) return;
    names->experts = names->quantized_experts;
    names->expert_down = tensor_names_llama.expert_down;
}

/* The scheme of a matrix that memory has as floats. */
static void dequantize(struct quantization_reader *q, struct module *m)
{
    struct weight_scheme scheme = q->spec->schemes[m->scheme];
    scheme.is_quantized = scheme.quantize_x = false;
    scheme.dequantize = true;
    m->scheme = quantization_add(q, &scheme);
}

static void store_schemes(struct quantization_reader *q)
{
    for (int32_t i = 0; i < q->num_modules; i++) {
        struct module *m = &q->modules[i];
        if (m->scheme != 0) check_shape(q, m);
        if (m->scheme != 0 && tensor_is_dequantized(m->tensor)) dequantize(q, m);
        if (m->tensor->num_experts > 0) check_expert(q, m);
        name_experts(q, m);
        if (m->tensor->role == TENSOR_LM_HEAD)
            q->spec->lm_head_scheme = m->scheme;
        else if (m->tensor->layer >= 0)
            q->spec->layers[m->tensor->layer].schemes[m->tensor->role] = m->scheme;
    }
}

/* --- The file --- */

static enum status list_modules(struct quantization_reader *q, struct error *err)
{
    enum status status = tensor_table_make(q->spec, q->spec->tie_word_embeddings, &q->table, err);
    if (status != STATUS_OK) return status;
    q->modules = calloc((size_t)q->table.count, sizeof *q->modules);
    if (!q->modules) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the table of tensors");
    for (int32_t i = 0; i < q->table.count; i++) {
        const struct tensor *t = &q->table.tensors[i];
        if (!tensor_may_be_quantized(t) && !tensor_is_dequantized(t)) continue;
        struct module *m = &q->modules[q->num_modules++];
        m->tensor = t;
        m->name = tensor_name_ending(t, "");
    }
    return STATUS_OK;
}

static void read_object(struct json_reader *r, const char *key, const char *absent, struct model_spec *spec)
{
    const json_t *object = json_reader_get(r, key);
    char prefix[32];
    if (!json_is_map(object)) {
        json_reader_expected(r, key, "an object", object);
        return;
    }
    snprintf(prefix, sizeof prefix, "%s.", key);
    struct quantization_reader q = {.key = key,
                                    .json = json_reader(object, r->source, r->err),
                                    .spec = spec,
                                    .num_prefixes =
                                        spec->has_vision || spec->has_audio ? NUM_TENSOR_PREFIXES : NUM_TEXT_PREFIXES};
    q.json.prefix = prefix;
    q.json.status = list_modules(&q, r->err);
    if (q.json.status == STATUS_OK) read_method(&q, absent);
    if (q.json.status == STATUS_OK) store_schemes(&q);
    free(q.modules);
    tensor_table_free(&q.table);
    r->status = q.json.status;
}

static bool is_given(const struct json_reader *r, const char *key)
{
    const json_t *value = json_reader_get(r, key);
    return value && !json_is_false(value) && !(json_is_object(value) && json_object_size(value) == 0);
}

/* quant_algo is null where only the KV cache is quantized. */
void quantization_read_modelopt(struct json_reader *r, struct model_spec *spec)
{
    const json_t *algorithm = json_object_get(json_reader_get(r, "quantization"), "quant_algo");
    if (algorithm && !json_is_null(algorithm)) read_object(r, "quantization", "modelopt", spec);
}

/* MLX writes what it needs under "quantization", in newer versions under quantization_config as well. */
static bool refuse_mlx(struct json_reader *r)
{
    struct quantization_reader q = {.key = "quantization", .json = *r};
    const json_t *bits = json_object_get(json_reader_get(r, q.key), "bits");
    if (!bits) return false;
    quantization_refuse(&q, "MLX with %s bits", show_value(bits).text);
    r->status = q.json.status;
    return true;
}

void quantization_read(struct json_reader *r, struct model_spec *spec)
{
    spec->schemes[0] = (struct weight_scheme){.storage = STORED_ROWS};
    spec->num_schemes = 1;
    if (r->status != STATUS_OK) return;
    if (refuse_mlx(r)) return;
    if (is_given(r, "quantization_config"))
        read_object(r, "quantization_config", NULL, spec);
    else if (is_given(r, "compression_config"))
        read_object(r, "compression_config", "compressed-tensors", spec);
}
