/* The plan of a loaded model: the types of its activations and its cache, and where its memory goes (memory_plan.h). */
#ifndef QUIRE_RUNTIME_PLAN_H
#define QUIRE_RUNTIME_PLAN_H

#include "model/model.h"
#include "runtime/engine/loaded_model.h"

int32_t plan_num_ids(const struct loaded_model *l); /* num_ids of struct engine_info */

/* Of how many layers the experts stay in host memory while a GPU computes the rest; of several ranks none. */
int32_t plan_host_expert_layers(const struct engine_options *o, const struct loaded_model *l);

/* Says of the weights of this process's ranks what lies on the host. */
void plan_places(const struct engine_options *o, struct loaded_model *l);

/* UNSUPPORTED: a head size does not suit a KV cache of this type. */
enum status plan_check_head_sizes(const struct model_spec *spec, enum dtype cache_dtype, struct error *err);

/* Plans `l` and fills *model_options for it. An error gets no advice (see below). */
enum status plan_make(const struct engine_options *options, struct loaded_model *l, struct model_options *model_options,
                      struct error *err);

/* Gives what loaded_model_plan would for other options or another type of weights, on the same device with the same
 * memory free as when base was planned. Nothing is asked, read or allocated on the device. Fills *profile and *limits
 * as far as the plan came, also if it fails: OUT_OF_MEMORY, the model with one request does not fit; INVALID, the
 * options contradict each other or the model. */
enum status plan_again(const struct engine_options *options, const struct loaded_model *base, enum dtype weights_dtype,
                       struct memory_profile *profile, struct batch_limits *limits, struct error *err);

/* ---- advice (plan_advice.c) ----
 *
 * It is found by trial: the plan is made again with one setting changed, and what makes it succeed is advised. So every
 * advice helps alone, and where no single setting helps there is none. */

/* Adds advice to *err, the error of a plan with these options. l->profile knows the device (memory_plan_device). On the
 * CPU an advised run needs not quite all that was free, because that changes from one run to the next. */
void plan_advise(const struct engine_options *o, const struct loaded_model *l, struct error *err);

/* Advises on an error of a system that gave less memory than planned, so that nobody knows how much less would do: to
 * lower each setting that takes memory and of which a half would still make a plan. */
void plan_advise_less(const struct engine_options *o, const struct loaded_model *l, struct error *err);

/* Whether the options would make a plan on the device of `l`. */
bool plan_succeeds(const struct engine_options *o, const struct loaded_model *l);

#endif
