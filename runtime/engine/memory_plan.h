/* Where the memory of a model goes. On the CPU the blocks of the KV cache get a budget of bytes. On a GPU everything
 * else is planned first, and the blocks get what is left of the GPU's share.
 *
 * The plan is made before the weights are read, by an arena that only counts, so that a device which is too small is
 * refused at once. */
#ifndef QUIRE_RUNTIME_MEMORY_PLAN_H
#define QUIRE_RUNTIME_MEMORY_PLAN_H

#include "runtime/engine/loaded_model_state.h"
#include "runtime/engine/speculation.h"

/* Asks the devices what is free, for the profiles of all ranks, or takes it from l->before. */
enum status memory_plan_device(const struct engine_options *o, struct loaded_model *l, struct error *err);

/* max_num_seqs where memory is no matter. */
int32_t memory_plan_usual_seqs(const struct engine_options *o);

/* How many drafts a step of l->limits may have; max_num_drafts is 0 where nothing drafts. */
struct speculation_limits memory_plan_speculation(const struct engine_options *o, const struct loaded_model *l);

/* Needs memory_plan_device, l->config and l->weights. Settles l->limits, max_model_len among them (what was asked for,
 * or as much of the model's as the blocks hold), and the terms of all ranks' profiles; *model_options, which has the
 * types, gets the limits. Where memory is short, what options leave open becomes smaller: max_num_batched_tokens,
 * max_num_seqs and max_model_len, and the space of the blocks. Allocates nothing. */
enum status memory_plan(const struct engine_options *o, struct loaded_model *l, struct model_options *model_options,
                        struct error *err);

/* A part of the plan: the blocks that the other terms of the profiles leave room for. On a GPU they get what the others
 * leave of the budget; on the CPU the budget is the sum, and the blocks get what was asked for, or the lesser of 4 GiB
 * and a quarter of what is free, as far as the others leave it. All ranks have as many as the one with room for the
 * fewest, whose profile l->profile becomes. */
void memory_plan_count_blocks(const struct engine_options *o, struct loaded_model *l);

/* Creates l->model and allocates what was planned. On a GPU the terms of the profiles that only the device knows become
 * what it says: the context, the blocks that fit, the graphs. */
enum status memory_allocate(const struct engine_options *o, struct loaded_model *l,
                            const struct model_options *model_options, struct error *err);

#endif
