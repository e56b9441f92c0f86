/* Opening a model: from options to everything that engine_create needs before there is an engine. */
#ifndef QUIRE_RUNTIME_LOADED_MODEL_H
#define QUIRE_RUNTIME_LOADED_MODEL_H

#include "kernels/backend.h"
#include "model/model.h"
#include "runtime/engine/engine.h"

/* A device with a model on it. The struct owns what it points to; the parts refer to each other (the model to the
 * weights, both to the backend), so it must not be copied and is freed as a whole. */
struct loaded_model {
    struct backend *backend;
    struct model_config config;
    struct model_weights weights;
    struct model *model;
    struct tokenizer *tokenizer; /* NULL with skip_tokenizer */
    struct memory_profile profile;
    struct batch_limits limits;
    bool lowered_tokens, lowered_seqs; /* by the plan, because memory is short: limits has fewer than usual */
    /* For plans of what is not loaded. */
    int64_t dummy_to_come; /* bytes of dummy weights that the plan must leave room for on the CPU; 0: none */
    const struct memory_profile *before; /* an earlier plan on this device: what it found out about the device is taken
                                            from there; NULL: the device is asked */
};

/* Answers have the ids 0 .. n - 1: those of the tokenizer, because checkpoints pad the model's vocabulary to a round
 * number; without a tokenizer all of the model's. An id below the tokenizer's size that is no token can be sampled. */
int32_t loaded_model_num_ids(const struct loaded_model *l);
/* engine_default_sampling; reads the config only. */
void loaded_model_default_sampling(const struct loaded_model *l, struct sampling_params *params);

/* Reads config.json, and makes of it what options->quantization asks for. */
enum status loaded_model_read_config(const struct engine_options *options, struct model_config *config,
                                     struct error *err);

/* Opens the device, the checkpoint and the tokenizer, plans the memory and allocates it. On failure nothing is left. */
enum status loaded_model_open(const struct engine_options *options, struct loaded_model *out, struct error *err);
/* As loaded_model_open, in two parts. The first opens the device and config.json, and of the weights only the headers,
 * without a tokenizer. If there are no weights to read, out->weights has the shapes and the type of config.json alone;
 * *weights_error gets the reason, or "" if they are to be dummy weights or were found. The second makes the dummy
 * weights, plans the memory and allocates it. On failure nothing is left. */
enum status loaded_model_describe(const struct engine_options *options, struct loaded_model *out,
                                  struct error *weights_error, struct error *err);
enum status loaded_model_load(const struct engine_options *options, struct loaded_model *l, struct error *err);
/* A part of loaded_model_load: chooses the types and plans the memory. Needs l->backend, l->config,
 * l->tokenizer if there is one, and l->weights, of which only the table, the types and `bytes` are read. Fills
 * l->profile, l->limits and *model_options; allocates nothing. */
enum status loaded_model_plan(const struct engine_options *options, struct loaded_model *l,
                              struct model_options *model_options, struct error *err);
/* What loaded_model_plan would give for other options or another type of weights, on the same device with the same
 * memory free as when base->profile was made. Nothing is asked, read or allocated on the device. Fills *profile and
 * *limits as far as the plan came, also if it fails: OUT_OF_MEMORY, the model with one request does not fit; INVALID,
 * the options contradict each other or the model. */
enum status loaded_model_plan_again(const struct engine_options *options, const struct loaded_model *base,
                                    enum dtype weights_dtype, struct memory_profile *profile,
                                    struct batch_limits *limits, struct error *err);
/* IO: a file of weights was changed since it was opened. */
enum status loaded_model_check_files(const struct loaded_model *l, struct error *err);
void loaded_model_close(struct loaded_model *l); /* safe on a zeroed struct */

/* backend_open and backend_choose_isa. If device is "auto", the build has CUDA and no GPU can be used, a warning says
 * why. */
enum status open_device(const char *device, int threads, const char *cpu_isa, const struct log *log,
                        struct backend **out, struct error *err);

#endif
