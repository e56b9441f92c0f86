/* The masks of a step: what the samples of answers with a grammar may be.
 *
 * They follow from all tokens before a sample. Those that an earlier step in flight draws are known once it is
 * collected, and the device computes the forward pass of this one meanwhile. A draft counts as drawn for the samples
 * behind it, because they are used only if it is. */
#ifndef QUIRE_RUNTIME_STEP_MASKS_H
#define QUIRE_RUNTIME_STEP_MASKS_H

#include "model/model.h"
#include "scheduler/scheduler.h"

struct step_masks;

/* max_samples: of a step (batch_max_entries). The threads are started for the first masks. */
enum status step_masks_create(int32_t max_samples, int num_threads, struct step_masks **out, struct error *err);
void step_masks_free(struct step_masks *s); /* NULL is allowed */

/* Whether a sample of the step has a mask. sampled: struct schedule has it. */
bool step_masks_any(const struct batch *batch, struct sequence *const *sampled);

/* Called for a sequence that no token of the vocabulary may follow. */
typedef void dead_end_function(void *user, struct sequence *seq);

/* Writes the masks of a step whose earlier tokens have all been taken (constrained_take). Returns how many rows of
 * out->words are used. */
int32_t step_masks_write(struct step_masks *s, const struct batch *batch, struct sequence *const *sampled,
                         const struct sample_masks *out, dead_end_function *dead_end, void *user);

#endif
