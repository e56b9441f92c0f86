/* A scheduler and its device of slots, for the unit tests of the scheduler. Whatever fails, fails the test. */
#ifndef QUIRE_TESTS_SUPPORT_SCHEDULER_WORLD_H
#define QUIRE_TESTS_SUPPORT_SCHEDULER_WORLD_H

#include "scheduler/scheduler.h"
#include "tests/support/slot_device.h"

struct world {
    struct scheduler_config config;
    struct scheduler *scheduler;
    struct slot_device device;
    struct true_sequence *truth; /* [max_num_seqs] by state index */
    struct batch batch;
    struct schedule schedule; /* of the step that was scheduled last */
    const struct token_event *events;
    int32_t num_events;
    const int32_t *device_drafts;  /* of the step that is scheduled next; NULL: none */
    int64_t copies, collect_first; /* seen so far */
};

void world_open(struct world *w, struct scheduler_config config);
/* Frees all but the requests. */
void world_free(struct world *w);
struct scheduler_stats world_stats(const struct world *w);

/* Of n answers that end by length, with a fixed seed. */
struct sampling_params world_params(int32_t n, int32_t max_tokens);
struct request *world_add_prompt(struct world *w, const struct sampling_params *params, const int32_t *prompt,
                                 int32_t length);
/* The prompt first, first + 1, ... (modulo TRUE_VOCAB - 2, without the tokens 0 and 1). */
struct request *world_add_counted(struct world *w, const struct sampling_params *params, int32_t first, int32_t length);

/* The sequence on plain arrays, of these tokens. */
void world_true_sequence(struct true_sequence *truth, const struct sequence *seq, const int32_t *tokens,
                         int32_t num_tokens);
/* Tells the device of a sequence that starts to run, or of a beam's tokens. */
void world_tell_device(struct world *w, const struct sequence *seq);

/* Submits the step to the device, if there is one. */
enum schedule_result world_schedule(struct world *w);
void world_collect(struct world *w);
enum schedule_result world_step(struct world *w);

#endif
