#include "tests/support/scheduler_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

void world_open(struct world *w, struct scheduler_config config)
{
    struct error err = {{0}};
    *w = (struct world){.config = config};
    if (scheduler_create(&config, &w->scheduler, &err) != STATUS_OK ||
        batch_init(&w->batch, &config.limits, &err) != STATUS_OK ||
        slot_device_init(&w->device, &config, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    w->truth = calloc((size_t)config.limits.max_num_seqs, sizeof *w->truth);
    assert_non_null(w->truth);
}

void world_free(struct world *w)
{
    scheduler_destroy(w->scheduler);
    slot_device_free(&w->device);
    batch_free(&w->batch);
    free(w->truth);
}

struct scheduler_stats world_stats(const struct world *w)
{
    struct scheduler_stats stats;
    scheduler_get_stats(w->scheduler, &stats);
    assert_int_equal(stats.blocks_total, stats.blocks_in_use + stats.blocks_cached + stats.blocks_free);
    return stats;
}

/* ---- requests ---- */

struct sampling_params world_params(int32_t n, int32_t max_tokens)
{
    struct sampling_params params = sampling_params_default();
    params.n = n;
    params.max_tokens = max_tokens;
    params.ignore_eos = true;
    params.seed = 7;
    return params;
}

struct request *world_add_prompt(struct world *w, const struct sampling_params *params, const int32_t *prompt,
                                 int32_t length)
{
    struct error err;
    struct request *request;
    if (request_create(params, prompt, length, &w->config.limits, &request, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    scheduler_add(w->scheduler, request);
    return request;
}

struct request *world_add_counted(struct world *w, const struct sampling_params *params, int32_t first, int32_t length)
{
    int32_t prompt[TRUE_MAX_TOKENS];
    for (int32_t i = 0; i < length; i++) prompt[i] = 2 + (first + i) % (TRUE_VOCAB - 2);
    return world_add_prompt(w, params, prompt, length);
}

void world_true_sequence(struct true_sequence *truth, const struct sequence *seq, const int32_t *tokens,
                         int32_t num_tokens)
{
    const struct request *request = seq->request;
    true_sequence_init(truth, (int32_t)request->arrival, seq->index, request->params.seed, (int32_t)request->id);
    for (int32_t i = 0; i < num_tokens; i++) true_sequence_append(truth, tokens[i]);
    truth->prompt_len = seq->prompt_len;
    truth->cache_namespace = request->cache_namespace;
    truth->chosen = request->beams;
}

void world_tell_device(struct world *w, const struct sequence *seq)
{
    struct true_sequence *truth = &w->truth[seq->state_index];
    world_true_sequence(truth, seq, seq->tokens, seq->num_tokens);
    w->device.states[seq->state_index] = truth;
}

/* ---- a step ---- */

enum schedule_result world_schedule(struct world *w)
{
    struct error err;
    const struct schedule *schedule = &w->schedule;
    if (scheduler_schedule(w->scheduler, &w->batch, &w->schedule, &err) != STATUS_OK) fail_msg("%s", err.text);
    for (int32_t i = 0; i < schedule->num_admitted; i++) world_tell_device(w, schedule->admitted[i]);
    if (w->device_drafts) slot_device_set_drafts(&w->device, &w->batch, w->device_drafts);
    w->device_drafts = NULL;
    w->collect_first += schedule->result == SCHEDULE_COLLECT_FIRST;
    if (schedule->result != SCHEDULE_BATCH) {
        assert_int_equal(schedule->num_admitted, 0);
        return schedule->result;
    }
    w->copies += w->batch.num_copies;
    if (slot_device_submit(&w->device, &w->batch, &err) != STATUS_OK) fail_msg("%s", err.text);
    return schedule->result;
}

void world_collect(struct world *w)
{
    struct error err;
    const struct sample_output samples = slot_device_collect(&w->device);
    if (scheduler_collect(w->scheduler, &samples, &w->events, &w->num_events, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

enum schedule_result world_step(struct world *w)
{
    const enum schedule_result result = world_schedule(w);
    if (result == SCHEDULE_BATCH) world_collect(w);
    return result;
}
