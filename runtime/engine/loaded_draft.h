/* The draft model of a loaded_model: a second checkpoint, planned and allocated beside the first, and shared between
 * the same ranks. Private to runtime/engine/ and tests. Functions do nothing where there is no draft model. */
#ifndef QUIRE_RUNTIME_ENGINE_LOADED_DRAFT_H
#define QUIRE_RUNTIME_ENGINE_LOADED_DRAFT_H

#include "runtime/engine/engine_options.h"
#include "runtime/engine/loaded_model_state.h"

/* Opens the checkpoint of options->speculative, if its method is a draft model, and refuses one of another vocabulary.
 * The target's config and tokenizer, if any, are known. */
enum status loaded_draft_open(const struct engine_options *o, struct loaded_model *l, struct error *err);
/* Sets the draft model's terms of a rank's profile, and adds to block_bytes the K and V that it keeps of a block.
 * `target` has the target's limits and types. */
enum status loaded_draft_plan(const struct engine_options *o, struct loaded_model *l, int32_t rank,
                              const struct model_options *target, struct error *err);
/* Creates the model, once the target's is there, and attaches it. */
enum status loaded_draft_create(const struct engine_options *o, struct loaded_model *l,
                                const struct model_options *target, struct error *err);
/* The drafter, once the models are there. NULL if there is no draft model. */
enum status loaded_draft_drafter(const struct engine_options *o, struct loaded_model *l, struct drafter **out,
                                 struct error *err);
/* The target's swap space has so many more blocks: makes room for as many of the draft model's. */
enum status loaded_draft_grow_swap_space(struct loaded_model *l, int32_t added, struct error *err);
void loaded_draft_close(struct loaded_model *l); /* before the target is destroyed */

/* What a rank of the target computes of the draft model: all of it where there is one rank. */
const struct model_spec *loaded_draft_spec(const struct loaded_model *l, int32_t rank);
struct model_weights *loaded_draft_weights(struct loaded_model *l, int32_t rank);

#endif
