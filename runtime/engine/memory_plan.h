/* Where the memory of a model goes. On the CPU the blocks of the KV cache get a budget of bytes. On a GPU everything
 * else is planned first, and the blocks get what is left of the GPU's share.
 *
 * The plan is made before the weights are read, by an arena that only counts, so that a device which is too small is
 * refused at once. */
#ifndef QUIRE_RUNTIME_MEMORY_PLAN_H
#define QUIRE_RUNTIME_MEMORY_PLAN_H

#include "runtime/engine/loaded_model.h"

/* Needs l->backend, l->config and l->weights. Settles l->limits, max_model_len among them (what was asked for, or as
 * much of the model's as the blocks hold), and the terms of l->profile; *model_options gets the types and the limits.
 * Allocates nothing. */
enum status memory_plan(const struct engine_options *o, struct loaded_model *l, struct model_options *model_options,
                        struct error *err);

/* Creates l->model and allocates what was planned. On a GPU the terms of l->profile that only the device knows become
 * what it says: the context, the blocks that fit, the graphs. */
enum status memory_allocate(const struct engine_options *o, struct loaded_model *l,
                            const struct model_options *model_options, struct error *err);

#endif
