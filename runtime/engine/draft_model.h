/* Drafts by a second model of the same vocabulary (Leviathan et al., 2023; Chen et al., 2023), on the target's device.
 *
 * It computes what the target computes, under the same block numbers and before it: in each step the prompts, and for a
 * run the tokens that it lacks. From their logits it draws the first draft, and each further pass draws the next. It
 * draws with the random numbers that the target draws with, from its own logits. The target's batch names the drafts,
 * and the host learns them when the target's step is collected. In steps without drafts it computes prompts alone, and
 * what it lacks then with the next drafts.
 *
 *     pass 0     last known token(s) of each run, prompts   ->  draft 0
 *     pass 1     draft 0                                    ->  draft 1
 *     target     last known token, draft 0, draft 1         ->  three tokens to compare them with
 *
 * Or by a head (struct head_spec), which reads what the target found of its last step's tokens. Its place for a token
 * is that of the token before, so its pass 0 computes the target's last step again, one token further, as far as its
 * tokens were accepted:
 *
 *     target     tokens 7, 8, 9 of a sequence of which 7 and 8 stay, and a new token 9 was drawn
 *     pass 0     places 7 and 8: states of 7 and 8, tokens 8 and 9    ->  draft 10
 *     pass 1     place 9: its own state of place 8, draft 10          ->  draft 11
 *
 * The target keeps the states of its last step alone. So a head computes places after each step, with drafts or
 * without, and must know the step's tokens for it: with a head one step is in flight. */
#ifndef QUIRE_RUNTIME_ENGINE_DRAFT_MODEL_H
#define QUIRE_RUNTIME_ENGINE_DRAFT_MODEL_H

#include "model/model.h"
#include "runtime/engine/draft.h"

struct draft_model_parts {
    struct model *target, *model; /* the caller's; attached (model_attach), of the same limits */
    struct batch_limits limits;
    bool is_head;           /* the model reads the target's states */
    int32_t num_passes;     /* most drafts of a run */
    int32_t vocab_size;     /* of the model, which takes an id from here on for 0 */
    int32_t position_shift; /* what the target's positions have in cache namespace 1, and the draft model's have not; 0:
                               both have it */
};

enum status draft_model_create(const struct draft_model_parts *parts, struct drafter **out, struct error *err);

#endif
