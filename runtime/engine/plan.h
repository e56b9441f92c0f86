/* The plan of a loaded model: the types of its activations and its cache, and where its memory goes (memory_plan.h). */
#ifndef QUIRE_RUNTIME_PLAN_H
#define QUIRE_RUNTIME_PLAN_H

#include "model/model.h"
#include "runtime/engine/loaded_model.h"

int32_t plan_num_ids(const struct loaded_model *l); /* num_ids of struct engine_info */

/* Plans `l` and fills *model_options for it. An error gets no advice (plan_advice.h). */
enum status plan_make(const struct engine_options *options, struct loaded_model *l, struct model_options *model_options,
                      struct error *err);

/* Gives what loaded_model_plan would for other options or another type of weights, on the same device with the same
 * memory free as when base was planned. Nothing is asked, read or allocated on the device. Fills *profile and *limits
 * as far as the plan came, also if it fails: OUT_OF_MEMORY, the model with one request does not fit; INVALID, the
 * options contradict each other or the model. */
enum status plan_again(const struct engine_options *options, const struct loaded_model *base, enum dtype weights_dtype,
                       struct memory_profile *profile, struct batch_limits *limits, struct error *err);

#endif
