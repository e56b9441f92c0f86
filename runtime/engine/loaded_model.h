/* A model without an engine, for commands that report and do not run: outlined, described, planned or loaded. What it
 * is made of is in loaded_model_state.h; callers read what loaded_model_info gives.
 */
#ifndef QUIRE_RUNTIME_LOADED_MODEL_H
#define QUIRE_RUNTIME_LOADED_MODEL_H

#include "kernels/backend.h"
#include "runtime/engine/engine.h"

/* Reads config.json, generation_config.json and the tokenizer, for request_check. The limits are what they would be
 * where memory is no matter. Of loaded_model_info only the config, the tokenizer, the ids, the default sampling,
 * memory->model_max_len, and the limits but max_num_tokens are set. On failure *out is NULL, as for the next
 * function. */
enum status loaded_model_outline(const struct engine_options *options, struct loaded_model **out, struct error *err);

/* Opens the device and config.json, and of the weights only the headers, without a tokenizer. If there are no weights
 * to read, they have the shapes and the type of config.json alone; *weights_error gets the reason, or "" if they are to
 * be dummy weights or were found. Then the next functions may be called. */
enum status loaded_model_describe(const struct engine_options *options, struct loaded_model **out,
                                  struct error *weights_error, struct error *err);
/* The ids of answers follow from the tokenizer, so it comes before a plan. */
enum status loaded_model_open_tokenizer(const struct engine_options *options, struct loaded_model *l,
                                        struct error *err);
/* Plans the memory as an engine would; allocates nothing. With leave_out_dummy, dummy weights that leave no room for
 * the rest on the CPU are no failure: the plan is made without them. */
enum status loaded_model_plan(const struct engine_options *options, struct loaded_model *l, bool leave_out_dummy,
                              struct error *err);
/* Makes the dummy weights if they are asked for, plans the memory and allocates it. After a failure only
 * loaded_model_close may follow. */
enum status loaded_model_load(const struct engine_options *options, struct loaded_model *l, struct error *err);
void loaded_model_close(struct loaded_model *l); /* NULL is allowed */

/* start_seconds is 0, and so is decode_weight_bytes unless the model is loaded. The pointers are valid until
 * loaded_model_close; what they point to is filled by the functions above. */
struct engine_info loaded_model_info(const struct engine_options *options, const struct loaded_model *l);

/* backend_open and backend_choose_isa. If device is "auto", the build has CUDA and no GPU can be used, a warning says
 * why. */
enum status open_device(const char *device, int threads, const char *cpu_isa, const struct log *log,
                        struct backend **out, struct error *err);

/* What a node other than the first (options->node_rank) does in place of a command: opens its ranks, and computes what
 * node 0 asks for, until that ends. */
enum status loaded_model_serve(const struct engine_options *options, struct error *err);

/* What engine_add refuses of a request, as far as it can be known before it runs; `o` are the options that the model
 * was loaded with. `l` may be an outline. */
enum status request_check(const struct engine_options *o, const struct loaded_model *l, const struct engine_request *r,
                          struct error *err);

#endif
