/* The scheduler's state. Private to scheduler.c (the policy), scheduler_layout.c (from choices to a batch),
 * scheduler_check.c (the invariants) and tests. */
#ifndef QUIRE_SCHEDULER_SCHEDULER_STATE_H
#define QUIRE_SCHEDULER_SCHEDULER_STATE_H

#include "scheduler/request_queue.h"
#include "scheduler/scheduler.h"

#define SCHEDULER_MAX_STEPS 2 /* in flight */

/* A submitted step: the sequences that it names, and the sequence that each of its samples belongs to. */
struct step {
    struct sequence **named;   /* [num_named] including siblings that only take a sample */
    struct sequence **sampled; /* [num_sampled] by sample */
    int32_t num_named, num_sampled;
};

/* What the step being scheduled computes of one sequence. */
struct choice {
    struct sequence *seq;
    int32_t start, count; /* tokens of the sequence */
    bool samples;         /* its last token's logits are wanted */
    bool forks;           /* its waiting siblings sample from the same logits */
};

struct scheduler {
    struct scheduler_config config;
    struct block_manager blocks;
    bool host_failed; /* the last attempt to allocate more host blocks failed */
    /* Each in order of arrival: the tail of `running` is the youngest, and a preempted request becomes the head of
     * `waiting` or `swapped`. */
    struct request_queue waiting, swapped, running, ended;
    uint64_t next_arrival;

    int32_t *free_state_indices; /* [num_free_state_indices] a stack */
    int32_t num_free_state_indices;

    struct step steps[SCHEDULER_MAX_STEPS]; /* a ring */
    int32_t oldest, in_flight;

    /* The step that is being scheduled. */
    struct choice *choices; /* [num_choices] */
    struct sequence **admitted;
    int32_t num_choices, num_admitted;
    int32_t budget; /* tokens left */

    struct token_event *events;
    struct sequence **holders; /* scratch of scheduler_check */
    int64_t prefix_queries, prefix_hits, preemptions, num_steps, num_tokens;
    int64_t blocks_swapped_out, blocks_swapped_in;
    bool unsound;           /* an internal inconsistency was found: nothing is scheduled or collected any more */
    struct error violation; /* the first one, if unsound */
};

/* Fills the batch from s->choices, and adds the step to those in flight. */
void scheduler_lay_out(struct scheduler *s, struct batch *batch);

#endif
