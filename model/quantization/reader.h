/* Reading quantization_config: what the files of its formats share. */
#ifndef QUIRE_MODEL_QUANTIZATION_READER_H
#define QUIRE_MODEL_QUANTIZATION_READER_H

#include "base/json.h"
#include "model/tensors.h"

/* A matrix of the checkpoint, as lists of names in quantization_config speak of it. */
struct module {
    const struct tensor *tensor;
    struct tensor_name name; /* of the tensor, without ".weight" */
    bool matched;            /* by the pattern that modules_match had last */
    bool skipped;            /* a list of the file excludes it */
    uint8_t scheme;          /* of the spec's; 0, floats, until a format sets it */
    const char *target;      /* compressed-tensors: why it has that scheme */
};

struct quantization_reader {
    const char *key;         /* quantization_config or compression_config */
    struct json_reader json; /* of its object */
    struct model_spec *spec;
    struct tensor_table table;
    struct module *modules; /* [num_modules], embedding and lm_head among them */
    int32_t num_modules;
    /* A module is matched by its name with any of the first num_prefixes of tensor_prefixes: all of them in a
     * checkpoint of several modalities, whose lists name modules as the file or as some version of transformers does;
     * else NUM_TEXT_PREFIXES. */
    int num_prefixes;
};

/* How a name in a list matches a module, if it does not begin with "re:", which makes it a regular expression for the
 * beginning of the name, as Python's re.match. */
enum module_match {
    MATCH_NAME_OR_CLASS, /* its name or its class in PyTorch: "Linear", "Embedding" */
    MATCH_PARTS,         /* whole parts of its name: "lm_head", "model.layers.0", "mlp.down_proj" */
    MATCH_SUBSTRING,     /* any part of its name */
    MATCH_GLOB           /* as a shell's pattern for file names, or as MATCH_PARTS */
};

/* Makes q->json read an object within the one that it reads, until quantization_leave gets what this returns. */
struct json_reader quantization_enter(struct quantization_reader *q, const json_t *object, const char *prefix);
void quantization_leave(struct quantization_reader *q, const struct json_reader *outer);

/* Sets `matched` of every module. `key` names the list in messages. */
void modules_match(struct quantization_reader *q, const char *key, const char *pattern, enum module_match how);
/* Sets `skipped` of the modules that a name in the list of that key matches. Without the key there is nothing to do. */
void modules_skip(struct quantization_reader *q, const char *key, enum module_match how);

void modules_set_skipped(struct quantization_reader *q, bool skipped); /* of those that are matched */

/* Whether it is the array [128, 128]: the blocks of fp8 that kernels know. */
bool quantization_is_128_by_128(const json_t *size);

/* Fails with STATUS_UNSUPPORTED: "KEY: ", the formatted words, and what to use instead. */
void quantization_refuse(struct quantization_reader *q, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The index of a scheme among the spec's, where it is added if it is not there. */
uint8_t quantization_add(struct quantization_reader *q, const struct weight_scheme *scheme);

/* Gives all modules of layers that are not skipped this scheme. */
void quantization_set_layers(struct quantization_reader *q, const struct weight_scheme *scheme);
void quantization_set_lm_head(struct quantization_reader *q, const struct weight_scheme *scheme);

/* A value of quant_method: how the rest of the object is read. These set the scheme of each module; what is wrong with
 * a scheme for the shape of a matrix is checked after them. */
typedef void quantization_method(struct quantization_reader *q);
quantization_method auto_round_read, awq_read, compressed_tensors_read, fbgemm_fp8_read, fp8_read, gptq_read,
    modelopt_read, mxfp4_read;

#endif
