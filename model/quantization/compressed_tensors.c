/* compressed-tensors: groups of modules, each with a scheme. The document is the library of that name
 * (github.com/vllm-project/compressed-tensors: quant_config.py, quant_args.py, utils/match.py). */
#include <string.h>

#include "model/quantization/reader.h"

static bool is(const char *name, const char *expected)
{
    return strcasecmp(name, expected) == 0;
}

/* --- What is read beside the groups --- */

/* 2:4 sparsity, and rotations that are computed with the activations. */
static void check_additions(struct quantization_reader *q)
{
    const json_t *sparsity = json_reader_get(&q->json, "sparsity_config");
    const json_t *transforms = json_object_get(json_reader_get(&q->json, "transform_config"), "config_groups");
    const json_t *format = json_object_get(sparsity, "format");
    if (json_is_string(format) && !is(json_string_value(format), "dense"))
        quantization_refuse(q, "the sparse format \"%s\" of compressed-tensors",
                            show_string(json_string_value(format)).text);
    if (json_object_size(transforms) > 0) quantization_refuse(q, "a transform_config of compressed-tensors");
}

/* --- The scheme of a group --- */

/* Its own format, or that of all. */
static const char *read_format(struct quantization_reader *q, const char *of_all)
{
    static const char *const known[] = {"float-quantized", "int-quantized",        "naive-quantized",
                                        "pack-quantized",  "mxfp4-pack-quantized", "nvfp4-pack-quantized"};
    const char *format = json_reader_string(&q->json, "format", of_all);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is(format, known[i])) return known[i];
    quantization_refuse(q, "the format \"%s\" of compressed-tensors", show_string(format).text);
    return "";
}

/* How the file describes numbers: "int with 4 bits, symmetric". */
struct number_type {
    const char *name; /* "int", "float" */
    int32_t bits;
    bool symmetric;
};

static struct number_type read_numbers(struct quantization_reader *q)
{
    return (struct number_type){.name = json_reader_string(&q->json, "type", "int"),
                                .bits = json_reader_int(&q->json, "num_bits", 8, 1, 64),
                                .symmetric = json_reader_bool(&q->json, "symmetric", true)};
}

static void refuse_numbers(struct quantization_reader *q, const char *format, const struct number_type *t)
{
    quantization_refuse(q, "%s with %d bits, %s, in the format \"%s\" of compressed-tensors", show_string(t->name).text,
                        t->bits, t->symmetric ? "symmetric" : "asymmetric", format);
}

/* Which of them a format holds. */
static void set_format(struct quantization_reader *q, const char *format, const struct number_type *t,
                       struct weight_scheme *scheme)
{
    const bool packed = is(format, "pack-quantized"), is_int = is(t->name, "int"), is_float = is(t->name, "float");
    const bool eight = t->bits == 8 && t->symmetric;
    const bool mxfp4 = is(format, "mxfp4-pack-quantized"), nvfp4 = is(format, "nvfp4-pack-quantized");
    scheme->is_quantized = true;
    scheme->storage = mxfp4 ? STORED_MXFP4 : nvfp4 ? STORED_NVFP4 : packed ? STORED_PACKED : STORED_ROWS;
    scheme->has_zeros = !t->symmetric;
    if (t->bits == 4 && t->symmetric && is_float && (mxfp4 || nvfp4))
        scheme->format = WEIGHT_MXFP4;
    else if (mxfp4 || nvfp4)
        refuse_numbers(q, format, t);
    else if (eight && is_float && !packed && !is(format, "int-quantized"))
        scheme->format = WEIGHT_FP8;
    else if (eight && is_int && !is(format, "float-quantized"))
        scheme->format = WEIGHT_INT8;
    else if (t->bits == 4 && is_int && packed)
        scheme->format = WEIGHT_INT4;
    else
        refuse_numbers(q, format, t);
}

/* block_structure; older files have a string. */
static bool has_known_blocks(const struct quantization_reader *q)
{
    const json_t *size = json_reader_get(&q->json, "block_structure");
    return quantization_is_128_by_128(size) || json_is_word(size, "128x128");
}

/* NVFP4's groups are of a tensor that has a scale, too. */
static void read_fp4_groups(struct quantization_reader *q, const char *strategy, int32_t size,
                            struct weight_scheme *scheme)
{
    const bool nvfp4 = scheme->storage == STORED_NVFP4;
    scheme->group_size = nvfp4 ? 16 : 32;
    if (!is(strategy, nvfp4 ? "tensor_group" : "group") || size != scheme->group_size)
        quantization_refuse(q, "%s with strategy \"%s\" and group_size %d", nvfp4 ? "NVFP4" : "MXFP4",
                            show_string(strategy).text, size);
}

/* Which elements share a scale. */
static void read_strategy(struct quantization_reader *q, struct weight_scheme *scheme)
{
    const int32_t size = json_reader_int(&q->json, "group_size", 0, -1, 1 << 20);
    const char *implied = size == 0 ? "tensor" : size > 0 ? "group" : "channel";
    const char *strategy = json_reader_string(&q->json, "strategy", implied);
    if (scheme->format == WEIGHT_MXFP4) {
        read_fp4_groups(q, strategy, size, scheme);
    } else if (is(strategy, "group") && size > 0 && size % 8 == 0) {
        scheme->group_size = size;
    } else if (is(strategy, "block") && scheme->format == WEIGHT_FP8 && has_known_blocks(q)) {
        scheme->blocks = true;
        scheme->group_size = 128;
    } else if (is(strategy, "tensor") && scheme->storage == STORED_ROWS) {
        scheme->per_tensor = true;
    } else if (!is(strategy, "channel")) {
        quantization_refuse(q, "strategy \"%s\" of compressed-tensors with group_size %d and block_structure %s",
                            show_string(strategy).text, size,
                            show_value(json_reader_get(&q->json, "block_structure")).text);
    }
}

/* actorder "group", once called "dynamic": a column's group is in weight_g_idx. "weight" only steered the calibration.
 */
static void read_order(struct quantization_reader *q, struct weight_scheme *scheme)
{
    const json_t *value = json_reader_get(&q->json, "actorder");
    const char *usual = json_is_true(value) ? "group" : "weight";
    const char *order = json_is_boolean(value) ? usual : json_reader_string(&q->json, "actorder", usual);
    if (is(order, "weight") || is(order, "static")) return;
    if (!is(order, "group") && !is(order, "dynamic"))
        quantization_refuse(q, "actorder \"%s\" of compressed-tensors", show_string(order).text);
    if (scheme->storage != STORED_PACKED) quantization_refuse(q, "actorder of weights that are not packed");
    scheme->ordered = scheme->group_size > 0;
}

/* Activations of another type than the weights', or with zero points, are computed in floats. */
static bool read_activations(struct quantization_reader *q, const struct number_type *weights)
{
    const json_t *object = json_reader_get(&q->json, "input_activations");
    if (!object) return false;
    if (!json_is_map(object)) json_reader_expected(&q->json, "input_activations", "an object", object);
    const struct json_reader outer = quantization_enter(q, object, "config_groups: input_activations.");
    const struct number_type t = read_numbers(q);
    quantization_leave(q, &outer);
    return t.bits == 8 && weights->bits == 8 && t.symmetric && is(t.name, weights->name);
}

/* 0: the matrices of the group are floats. */
static uint8_t read_scheme(struct quantization_reader *q, const char *format_of_all)
{
    const json_t *weights = json_reader_get(&q->json, "weights");
    if (!weights) return 0;
    if (!json_is_map(weights)) json_reader_expected(&q->json, "weights", "an object", weights);
    struct weight_scheme scheme = {STORED_ROWS};
    const char *format = read_format(q, format_of_all);
    const struct json_reader outer = quantization_enter(q, weights, "config_groups: weights.");
    const struct number_type numbers = read_numbers(q);
    set_format(q, format, &numbers, &scheme);
    read_strategy(q, &scheme);
    read_order(q, &scheme);
    quantization_leave(q, &outer);
    scheme.quantize_x = read_activations(q, &numbers);
    return quantization_add(q, &scheme);
}

/* --- Which modules are in a group --- */

/* A name goes before an expression, and both before a class; among expressions, the first of the alphabet. */
static int rank(const char *target)
{
    return strncmp(target, "re:", 3) == 0 ? 1 : strchr(target, '.') || strcmp(target, "lm_head") == 0 ? 0 : 2;
}

static bool goes_before(const char *target, const char *other)
{
    if (!other || rank(target) != rank(other)) return !other || rank(target) < rank(other);
    return strcmp(target, other) < 0;
}

/* The modules for which this is the best target get the scheme. */
static void set_target(struct quantization_reader *q, const char *target, uint8_t scheme)
{
    modules_match(q, "targets", target, MATCH_NAME_OR_CLASS);
    for (int32_t i = 0; i < q->num_modules; i++) {
        struct module *m = &q->modules[i];
        if (!m->matched || m->skipped || !goes_before(target, m->target)) continue;
        m->scheme = scheme;
        m->target = target;
    }
}

static void read_group(struct quantization_reader *q, const json_t *group, const char *format_of_all)
{
    const struct json_reader outer = quantization_enter(q, group, "config_groups: ");
    const uint8_t scheme = read_scheme(q, format_of_all);
    const json_t *targets = json_reader_get(&q->json, "targets");
    bool is_list = json_is_array(targets);
    for (size_t n = 0; n < json_array_size(targets) && is_list; n++) {
        const char *target = json_string_value(json_array_get(targets, n));
        is_list = target != NULL;
        if (is_list) set_target(q, target, scheme);
    }
    if (!is_list) json_reader_expected(&q->json, "targets", "an array of names", targets);
    quantization_leave(q, &outer);
}

void compressed_tensors_read(struct quantization_reader *q)
{
    const json_t *groups = json_reader_get(&q->json, "config_groups");
    const char *format = json_reader_string(&q->json, "format", "mixed-precision");
    const char *name;
    json_t *group;
    check_additions(q);
    if (!json_is_map(groups)) json_reader_expected(&q->json, "config_groups", "an object", groups);
    modules_skip(q, "ignore", MATCH_NAME_OR_CLASS);
    json_object_foreach((json_t *)groups, name, group)
    {
        if (json_is_map(group))
            read_group(q, group, format);
        else
            json_reader_expected(&q->json, name, "an object in config_groups", group);
    }
}
