/* What an engine is made of. Private to engine.c and deliver.c. */
#ifndef QUIRE_RUNTIME_ENGINE_STATE_H
#define QUIRE_RUNTIME_ENGINE_STATE_H

#include <pthread.h>

#include "runtime/engine/grammars.h"
#include "runtime/engine/job.h"
#include "runtime/engine/loaded_model_state.h"
#include "runtime/engine/speculation.h"
#include "runtime/engine/step_masks.h"

struct engine {
    struct engine_options options;
    struct loaded_model *loaded;
    struct engine_info info;
    struct scheduler *scheduler;
    pthread_mutex_t schedule_lock; /* the scheduler is used under it, so that other threads can ask for statistics */
    struct batch batch;
    struct schedule schedule; /* of the batch */
    struct grammars *grammars;
    struct step_masks *masks;
    struct token_event *events; /* [batch_max_entries] those of a step that are delivered, where some are constrained */
    int32_t num_constrained;    /* jobs that the scheduler has and whose answers have a grammar */
    bool is_unsampled;          /* the newest step draws once the steps before it are collected */
    struct drafter *drafter;    /* the engine's own or options.drafter; NULL: nothing drafts */
    struct speculation *speculation; /* NULL: nothing drafts */
    int max_in_flight;               /* steps that are submitted before one is collected */
    struct inbox inbox;              /* has all jobs that are not finished */
    char *text_buffer;               /* of the answers' texts; NULL without a tokenizer */
    struct trace *trace;             /* NULL: none */
    bool damage_said;                /* a warning has said that logits are NaN */
};

/* ---- deliver.c ---- */

/* Gives the token of an event, or why there is none, to its answer. */
void engine_deliver(struct engine *e, const struct token_event *event, const struct sample_output *samples);
/* Delivers what is left of the requests that have ended, and frees them. False: none has. */
bool engine_finish_jobs(struct engine *e);

#endif
