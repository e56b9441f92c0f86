/* Which matrices of a model are quantized, and how: as config.json's quantization_config says, or as they are to be
 * quantized while they are loaded. Both fill the schemes of a struct model_spec, of its layers and of its lm_head.
 *
 * Read are the formats of vLLM and transformers: fp8 (and fbgemm_fp8, modelopt's FP8), compressed-tensors, gptq, awq
 * and auto-round. Embeddings, norms and biases are never quantized. Quantized activations are not honoured as the file
 * describes them, static scales among them: weights are computed as they are stored, and activations in floats or with
 * scales of their own (struct weight: quantize_x), which is at least as exact. */
#ifndef QUIRE_MODEL_QUANTIZATION_H
#define QUIRE_MODEL_QUANTIZATION_H

#include "base/json.h"
#include "model/model_spec.h"

/* Reads quantization_config, or compression_config, its older name, of config.json into *spec, which is complete but
 * for its schemes. Without either, all matrices are floats.
 *
 * STATUS_UNSUPPORTED: a format that quire does not read, by name, with what to use instead. STATUS_INVALID: wrong
 * types, a list of names that is none. STATUS_OUT_OF_MEMORY. */
void quantization_read(struct json_reader *r, struct model_spec *spec);

/* Reads the object "quantization" of hf_quant_config.json, which ModelOpt writes, as quantization_read does. */
void quantization_read_modelopt(struct json_reader *r, struct model_spec *spec);

/* Makes the matrices of all layers those of format `name`, to be quantized while they are loaded: "fp8" and "int8" have
 * a scale for each output feature, and activations may be quantized, too; "int4" has groups of 128 input features, or
 * of 64 or 32 where 128 do not divide them, and leaves a matrix in floats where 32 do not. lm_head stays in floats.
 * NULL and "none" change nothing.
 *
 * If the checkpoint is quantized already, `name` may be what it is: the format, or gptq, awq or compressed-tensors.
 * INVALID: another name; the checkpoint is something else. */
enum status quantization_apply(struct model_spec *spec, const char *name, struct error *err);

/* A matrix of a checkpoint that is to be stored quantized. */
struct quantized_module {
    const char *name; /* of its floats, which ends in ".weight" */
    uint8_t scheme;   /* of the spec's: 0, it stays in floats */
};
/* The quantization_config of compressed-tensors by which others, and quantization_read, know matrices that were
 * quantized by a spec that quantization_apply has changed. `modules`: all of the files that may be linear layers; what
 * is none of them must be no linear layer. NULL: memory ran out. */
json_t *quantization_config_of(const struct model_spec *spec, const struct quantized_module *modules, size_t count);

/* Makes all matrices floats again, as if nothing was said of quantization: for the sizes that they would have. */
void quantization_remove(struct model_spec *spec);

struct quantization_words {
    char text[256];
};
/* "int4, groups of 128, AWQ", "fp8, per channel, activations too (W8A8)", "not quantized". */
struct quantization_words weight_scheme_words(const struct weight_scheme *scheme);
/* The words of each scheme of a model's matrices, once, "; " between them. "" if none is quantized. */
struct quantization_words quantization_words(const struct model_spec *spec);

#endif
