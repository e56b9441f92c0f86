#include "runtime/generate/dry_run.h"

#include "base/clock.h"

enum { ANSWER_TOKENS = 16 };
static const double MOST_SECONDS = 4; /* a run is begun only if, twice as long as the last, it ends before this */

struct trial {
    int64_t num_begun, num_running; /* answers */
    int64_t prompt_tokens, output_tokens;
    double last_begun; /* when the last answer began: clock_seconds() */
};

static void deliver(void *user, const struct answer_piece *piece)
{
    struct trial *t = user;
    t->output_tokens += piece->num_tokens;
    if (piece->output_tokens == 1 && piece->num_tokens == 1) {
        t->prompt_tokens += piece->prompt_tokens - piece->cached_tokens;
        t->last_begun = clock_seconds();
        t->num_begun++;
    }
    if (piece->request_finished) t->num_running--;
}

static enum status add(struct engine_pool *p, const struct prompt *prompt, struct trial *trial, struct error *err)
{
    struct sampling_params params = sampling_params_default();
    params.max_tokens = ANSWER_TOKENS;
    params.ignore_eos = true;
    const struct engine_request request = {.prompt = prompt->tokens.ids,
                                           .prompt_len = (int32_t)prompt->tokens.count,
                                           .params = &params,
                                           .deliver = deliver,
                                           .user = trial};
    const enum status status = engine_pool_add(p, &request, NULL, err);
    if (status == STATUS_OK) trial->num_running++;
    return status == STATUS_INVALID ? STATUS_OK : status;
}

/* Before the last answer begins, prompts are read; after it, answers are written. */
static enum status run_together(struct engine_pool *p, const struct prompt *prompts, size_t count, struct speed *out,
                                struct error *err)
{
    struct trial trial = {0};
    enum status status = STATUS_OK;
    bool worked;
    engine_pool_reset_prefix_cache(p);
    const double start = clock_seconds();
    for (size_t i = 0; i < count && status == STATUS_OK; i++) status = add(p, &prompts[i], &trial, err);
    while (status == STATUS_OK && engine_pool_has_work(p)) status = engine_pool_step(p, &worked, err);
    const double end = clock_seconds();
    const int64_t later = trial.output_tokens - trial.num_begun;
    *out = (struct speed){.num_prompts = (size_t)trial.num_begun};
    if (trial.last_begun > start) out->prompt_tokens = (double)trial.prompt_tokens / (trial.last_begun - start);
    if (later > 0 && end > trial.last_begun) out->output_tokens = (double)later / (end - trial.last_begun);
    return status;
}

enum status speed_trial(struct engine_pool *p, const struct prompt *prompts, size_t count, struct speed *out,
                        struct error *err)
{
    const double start = clock_seconds();
    *out = (struct speed){0};
    for (size_t n = 1; count > 0; n = 2 * n < count ? 2 * n : count) {
        const double begun = clock_seconds();
        const enum status status = run_together(p, prompts, n, out, err);
        const double now = clock_seconds();
        if (status != STATUS_OK) return status;
        if (n == count || now - start + 2 * (now - begun) > MOST_SECONDS) break;
    }
    return STATUS_OK;
}
