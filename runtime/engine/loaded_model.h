/* From options to a loaded model: everything engine_create decides before there is an engine. */
#ifndef QUIRE_RUNTIME_ENGINE_LOAD_H
#define QUIRE_RUNTIME_ENGINE_LOAD_H

#include "kernels/backend.h"
#include "model/model.h"
#include "runtime/engine/engine.h"

struct loaded_model {
    struct backend *backend;
    struct model_config config;
    struct model_weights weights;
    struct model *model;
    struct tokenizer *tokenizer; /* NULL with skip_tokenizer */
    struct memory_profile profile;
    struct batch_limits limits;
};

/* backend_open; where 'auto' finds no GPU that it can use and this build has CUDA, a warning says why. */
enum status open_device(const char *device, int threads, const struct log *log, struct backend **out,
                        struct error *err);

/* Opens the device, the checkpoint and the tokenizer, plans the memory and allocates it. On failure nothing is left. */
enum status loaded_model_open(const struct engine_options *options, struct loaded_model *out, struct error *err);
void loaded_model_close(struct loaded_model *l); /* safe on a zeroed struct */

#endif
