/* Schemes in words. */
#include <stdio.h>
#include <string.h>

#include "model/quantization.h"
#include "model/tensors.h"

/* Appends to the words, which are cut where there is no room. */
static void append(struct quantization_words *words, const char *text)
{
    const size_t length = strlen(words->text);
    snprintf(words->text + length, sizeof words->text - length, "%s", text);
}

struct quantization_words weight_scheme_words(const struct weight_scheme *s)
{
    static const char *const formats[] = {
        [WEIGHT_FP8] = "fp8", [WEIGHT_INT8] = "int8", [WEIGHT_INT4] = "int4", [WEIGHT_MXFP4] = "mxfp4"};
    static const char *const storages[] = {
        [STORED_ROWS] = "",        [STORED_PACKED] = ", compressed-tensors", [STORED_GPTQ] = ", GPTQ",
        [STORED_AWQ] = ", AWQ",    [STORED_MXFP4] = ", compressed-tensors",  [STORED_NVFP4] = ", compressed-tensors",
        [STORED_MXFP4_BLOCKS] = ""};
    struct quantization_words words = {"not quantized"};
    char scales[32] = "per channel";
    if (!s->is_quantized) return words;
    if (s->per_tensor) snprintf(scales, sizeof scales, "per tensor");
    if (s->group_size > 0) snprintf(scales, sizeof scales, "groups of %d", s->group_size);
    if (s->blocks) snprintf(scales, sizeof scales, "%d x %d blocks", s->group_size, s->group_size);
    snprintf(words.text, sizeof words.text, "%s, %s%s", s->storage == STORED_NVFP4 ? "nvfp4" : formats[s->format],
             scales, storages[s->storage]);
    if (s->has_zeros && s->storage != STORED_AWQ) append(&words, ", asymmetric");
    if (s->ordered) append(&words, ", desc_act");
    if (s->quantize_x) append(&words, ", activations too (W8A8)");
    if (s->quantize) append(&words, ", quantized while loading");
    return words;
}

struct quantization_words quantization_words(const struct model_spec *spec)
{
    bool used[MODEL_MAX_SCHEMES] = {false};
    struct quantization_words words = {""};
    used[spec->lm_head_scheme] = true;
    for (int32_t i = 0; i < spec->num_layers; i++)
        for (int role = 0; role < NUM_TENSOR_ROLES; role++) used[spec->layers[i].schemes[role]] = true;
    for (int32_t i = 1; i < spec->num_schemes; i++) {
        if (!used[i] || spec->schemes[i].dequantize) continue;
        append(&words, words.text[0] ? "; " : "");
        append(&words, weight_scheme_words(&spec->schemes[i]).text);
    }
    return words;
}
