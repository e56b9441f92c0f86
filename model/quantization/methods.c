/* The formats that give all matrices of the layers one scheme: fp8 and its relatives, MXFP4, GPTQ, AWQ and AutoRound.
 */
#include <string.h>

#include "model/quantization/reader.h"

static bool one_of(const char *name, const char *a, const char *b)
{
    return strcmp(name, a) == 0 || strcmp(name, b) == 0;
}

/* --- fp8 --- */

/* weight_block_size; false: the file has none. */
static bool read_blocks(struct quantization_reader *q)
{
    const json_t *size = json_reader_get(&q->json, "weight_block_size");
    if (!size) return false;
    if (!quantization_is_128_by_128(size))
        quantization_refuse(q, "fp8 with a weight_block_size of %s, other than [128,128],", show_value(size).text);
    return true;
}

/* vLLM's, AutoFP8's and transformers': a scale for each matrix, or for each block. lm_head is never fp8. */
void fp8_read(struct quantization_reader *q)
{
    const char *format = json_reader_string(&q->json, "fmt", "e4m3");
    const char *activations = json_reader_string(&q->json, "activation_scheme", "dynamic");
    const bool blocks = read_blocks(q);
    const struct weight_scheme scheme = {.is_quantized = true,
                                         .format = WEIGHT_FP8,
                                         .group_size = blocks ? 128 : 0,
                                         .blocks = blocks,
                                         .per_tensor = !blocks,
                                         .quantize_x = true};
    if (!one_of(format, "e4m3", "float8_e4m3fn")) quantization_refuse(q, "fp8 of fmt \"%s\"", show_string(format).text);
    if (!one_of(activations, "dynamic", "static"))
        quantization_refuse(q, "fp8 with activation_scheme \"%s\"", show_string(activations).text);
    modules_skip(q, "ignored_layers", MATCH_PARTS);
    modules_skip(q, "modules_to_not_convert", MATCH_PARTS);
    quantization_set_layers(q, &scheme);
}

/* A scale for each output feature. */
void fbgemm_fp8_read(struct quantization_reader *q)
{
    const struct weight_scheme scheme = {.is_quantized = true, .format = WEIGHT_FP8, .quantize_x = true};
    modules_skip(q, "modules_to_not_convert", MATCH_PARTS);
    quantization_set_layers(q, &scheme);
}

/* NVIDIA's ModelOpt, of which FP8 has a scale for each matrix. */
void modelopt_read(struct quantization_reader *q)
{
    const struct weight_scheme scheme = {
        .is_quantized = true, .format = WEIGHT_FP8, .per_tensor = true, .quantize_x = true};
    const char *algorithm = json_reader_string(&q->json, "quant_algo", "unknown");
    if (strcmp(algorithm, "FP8") != 0) quantization_refuse(q, "%s of ModelOpt", show_string(algorithm).text);
    modules_skip(q, "ignore", MATCH_GLOB);
    modules_skip(q, "exclude_modules", MATCH_GLOB);
    quantization_set_layers(q, &scheme);
}

/* --- MXFP4 --- */

/* gpt-oss: the experts, which are in one tensor for a layer. */
void mxfp4_read(struct quantization_reader *q)
{
    const struct weight_scheme scheme = {
        .storage = STORED_MXFP4_BLOCKS, .is_quantized = true, .format = WEIGHT_MXFP4, .group_size = 32};
    bool any = false;
    modules_skip(q, "modules_to_not_convert", MATCH_GLOB);
    for (int32_t i = 0; i < q->num_modules; i++) {
        const struct tensor *t = q->modules[i].tensor;
        if (t->num_experts == 0 || !t->merged_in_file || q->modules[i].skipped) continue;
        q->modules[i].scheme = quantization_add(q, &scheme);
        any = true;
    }
    if (!any) quantization_refuse(q, "MXFP4 of other matrices than all experts of a layer in one tensor");
}

/* --- int4 --- */

static void check_bits(struct quantization_reader *q, const char *method)
{
    const int32_t bits = json_reader_int(&q->json, "bits", json_reader_int(&q->json, "w_bit", 4, 1, 64), 1, 64);
    if (bits != 4) quantization_refuse(q, "%s with %d bits", method, bits);
}

/* 0: a group of all input features. */
static int32_t read_group_size(struct quantization_reader *q)
{
    const int32_t old_name = json_reader_int(&q->json, "q_group_size", 128, -1, 1 << 20);
    const int32_t size = json_reader_int(&q->json, "group_size", old_name, -1, 1 << 20);
    if (size > 0 && size % 8 != 0) quantization_refuse(q, "a group_size of %d, no multiple of 8,", size);
    return size > 0 ? size : 0;
}

/* GPTQModel's rules for single modules. One that begins with "-:" keeps them in floats. */
static void read_dynamic_rules(struct quantization_reader *q)
{
    const json_t *rules = json_reader_get(&q->json, "dynamic");
    const char *pattern;
    json_t *rule;
    if (rules && !json_is_map(rules)) json_reader_expected(&q->json, "dynamic", "an object", rules);
    json_object_foreach((json_t *)rules, pattern, rule)
    {
        char regexp[256];
        const bool skips = strncmp(pattern, "-:", 2) == 0;
        if (!skips || snprintf(regexp, sizeof regexp, "re:%s", pattern + 2) >= (int)sizeof regexp) {
            quantization_refuse(q, "GPTQ with a rule for \"%s\" in \"dynamic\"", show_string(pattern).text);
            return;
        }
        modules_match(q, "dynamic", regexp, MATCH_PARTS);
        modules_set_skipped(q, true);
    }
}

/* modules_in_block_to_quantize: an array of arrays of names; the modules that it does not name stay in floats. */
static void read_module_list(struct quantization_reader *q)
{
    static const char key[] = "modules_in_block_to_quantize";
    const json_t *lists = json_reader_get(&q->json, key);
    bool is_list = json_array_size(lists) > 0;
    if (!lists) return;
    for (int32_t i = 0; i < q->num_modules; i++) q->modules[i].skipped = q->modules[i].tensor->layer >= 0;
    for (size_t l = 0; l < json_array_size(lists); l++) {
        const json_t *list = json_array_get(lists, l);
        is_list = is_list && json_is_array(list);
        for (size_t n = 0; n < json_array_size(list); n++) {
            const char *name = json_string_value(json_array_get(list, n));
            is_list = is_list && name;
            modules_match(q, key, name ? name : "", MATCH_PARTS);
            modules_set_skipped(q, false);
        }
    }
    if (!is_list) json_reader_expected(&q->json, key, "an array of arrays of names", lists);
}

/* Layouts other than that of AutoGPTQ, and what GPTQModel can add to a model. */
static void check_gptq_layout(struct quantization_reader *q, const char *layout)
{
    static const char *const additions[] = {"adapter", "rotation"};
    if (!one_of(layout, "gptq", "gptq_v2"))
        quantization_refuse(q, "GPTQ in the layout \"%s\"", show_string(layout).text);
    if (json_reader_bool(&q->json, "is_marlin_format", false)) quantization_refuse(q, "GPTQ in Marlin's layout");
    if (strcmp(json_reader_string(&q->json, "pack_dtype", "int32"), "int32") != 0)
        quantization_refuse(q, "GPTQ with a pack_dtype other than int32");
    for (size_t i = 0; i < sizeof additions / sizeof *additions; i++)
        if (json_reader_get(&q->json, additions[i])) quantization_refuse(q, "GPTQ with \"%s\"", additions[i]);
}

/* Symmetric quantization stores its zero, which is 8, too. */
static struct weight_scheme gptq_scheme(int32_t group_size, bool sym, bool less_one, bool desc_act)
{
    return (struct weight_scheme){.storage = STORED_GPTQ,
                                  .is_quantized = true,
                                  .format = WEIGHT_INT4,
                                  .group_size = group_size,
                                  .has_zeros = !sym,
                                  .zeros_less_one = less_one,
                                  .ordered = desc_act && group_size > 0};
}

void gptq_read(struct quantization_reader *q)
{
    const char *format = json_reader_string(&q->json, "format", "gptq"); /* the newer name */
    const char *layout = json_reader_string(&q->json, "checkpoint_format", format);
    const bool desc_act = json_reader_bool(&q->json, "desc_act", false);
    const bool sym = json_reader_bool(&q->json, "sym", true);
    const struct weight_scheme scheme = gptq_scheme(read_group_size(q), sym, strcmp(layout, "gptq") == 0, desc_act);
    check_bits(q, "GPTQ");
    check_gptq_layout(q, layout);
    read_module_list(q);
    read_dynamic_rules(q);
    quantization_set_layers(q, &scheme);
    if (json_reader_bool(&q->json, "lm_head", false)) quantization_set_lm_head(q, &scheme);
}

static struct weight_scheme awq_scheme(int32_t group_size)
{
    return (struct weight_scheme){.storage = STORED_AWQ,
                                  .is_quantized = true,
                                  .format = WEIGHT_INT4,
                                  .group_size = group_size,
                                  .has_zeros = true};
}

/* Zero points are stored whether or not zero_point says so. */
void awq_read(struct quantization_reader *q)
{
    const char *format = json_reader_string(&q->json, "checkpoint_format", "gemm");
    const char *version = json_reader_string(&q->json, "version", format);
    const struct weight_scheme scheme = awq_scheme(read_group_size(q));
    check_bits(q, "AWQ");
    if (strcasecmp(version, "gemm") != 0) quantization_refuse(q, "AWQ in the layout \"%s\"", show_string(version).text);
    modules_skip(q, "modules_to_not_convert", MATCH_SUBSTRING);
    quantization_set_layers(q, &scheme);
}

/* --- AutoRound, which stores as GPTQ or AWQ do --- */

static struct weight_scheme read_auto_round_scheme(struct quantization_reader *q)
{
    const char *backend = json_reader_string(&q->json, "backend", "auto_round:auto_gptq"); /* the older name */
    const char *packing = json_reader_string(&q->json, "packing_format", backend);
    const int32_t group_size = read_group_size(q);
    const bool sym = json_reader_bool(&q->json, "sym", true);
    if (strcmp(packing, "auto_round:auto_awq") == 0) return awq_scheme(group_size);
    if (strcmp(packing, "auto_round:auto_gptq") != 0 && !one_of(packing, "auto_round", "auto_round:gptqmodel"))
        quantization_refuse(q, "AutoRound packed as \"%s\"", show_string(packing).text);
    return gptq_scheme(group_size, sym, strcmp(packing, "auto_round:auto_gptq") == 0, false);
}

/* extra_config: modules whose settings differ. They may stay in floats, with 16 bits or more; lm_head, which is left in
 * floats otherwise, may have the settings of the others. */
static void read_extra_config(struct quantization_reader *q, const struct weight_scheme *scheme)
{
    const json_t *modules = json_reader_get(&q->json, "extra_config");
    const bool sym = json_reader_bool(&q->json, "sym", true);
    const char *name;
    json_t *settings;
    if (modules && !json_is_map(modules)) json_reader_expected(&q->json, "extra_config", "an object", modules);
    json_object_foreach((json_t *)modules, name, settings)
    {
        if (!json_is_map(settings)) json_reader_expected(&q->json, name, "an object in extra_config", settings);
        const struct json_reader outer = quantization_enter(q, settings, "extra_config: ");
        const int32_t bits = json_reader_int(&q->json, "bits", 4, 1, 64);
        const int32_t group_size = json_reader_int(&q->json, "group_size", scheme->group_size, -1, 1 << 20);
        const bool own_sym = json_reader_bool(&q->json, "sym", sym);
        quantization_leave(q, &outer);
        modules_match(q, "extra_config", name, MATCH_NAME_OR_CLASS);
        const bool same = bits == 4 && (group_size > 0 ? group_size : 0) == scheme->group_size && own_sym == sym;
        if (bits < 16 && !same) quantization_refuse(q, "AutoRound with other settings for %s", show_string(name).text);
        modules_set_skipped(q, !same);
        if (same && strcmp(name, "lm_head") == 0) quantization_set_lm_head(q, scheme);
    }
}

void auto_round_read(struct quantization_reader *q)
{
    const struct weight_scheme scheme = read_auto_round_scheme(q);
    const char *data_type = json_reader_string(&q->json, "data_type", "int");
    const char *blocks = json_reader_string(&q->json, "block_name_to_quantize", q->spec->names.layers);
    check_bits(q, "AutoRound");
    if (strcmp(data_type, "int") != 0)
        quantization_refuse(q, "AutoRound with data_type \"%s\"", show_string(data_type).text);
    if (strcmp(blocks, q->spec->names.layers) != 0)
        quantization_refuse(q, "AutoRound of the blocks \"%s\" only", show_string(blocks).text);
    read_extra_config(q, &scheme);
    quantization_set_layers(q, &scheme);
}
