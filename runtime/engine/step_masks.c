#include "runtime/engine/step_masks.h"

#include <assert.h>
#include <stdlib.h>

#include "base/pool.h"
#include "runtime/engine/job.h"

/* Samples first .. first + count - 1 are of one answer: one, or those of a run. */
struct masked_run {
    struct sequence *seq;
    struct constrained_answer *answer;
    int32_t first, count;
    int32_t num_accepted; /* drafts, on the matcher */
};

struct step_masks {
    int num_threads;
    bool has_begun;    /* the pool was opened, or could not be */
    struct pool *pool; /* NULL: the caller is the only thread */
    int32_t num_runs, num_rows;
    struct masked_run *runs;   /* [max_samples] */
    struct matcher **matchers; /* [max_samples] those of a round, and where their masks go */
    uint32_t **words;
};

enum status step_masks_create(int32_t max_samples, int num_threads, struct step_masks **out, struct error *err)
{
    const size_t count = (size_t)max_samples;
    struct step_masks *s = calloc(1, sizeof *s);
    *out = s;
    if (s) {
        s->num_threads = num_threads;
        s->runs = calloc(count, sizeof *s->runs);
        s->matchers = calloc(count, sizeof *s->matchers);
        s->words = calloc(count, sizeof *s->words);
        if (s->runs && s->matchers && s->words) return STATUS_OK;
    }
    step_masks_free(s);
    *out = NULL;
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the masks of %d samples", max_samples);
}

void step_masks_free(struct step_masks *s)
{
    if (!s) return;
    pool_close(s->pool);
    free(s->runs);
    free(s->matchers);
    free(s->words);
    free(s);
}

/* NULL: the sequence's tokens are free. */
static struct constrained_answer *answer_of(const struct sequence *seq)
{
    struct constrained *c = job_of(seq)->constrained;
    return c ? &c->answers[seq->index] : NULL;
}

bool step_masks_any(const struct batch *batch, struct sequence *const *sampled)
{
    for (int32_t i = 0; i < batch->num_samples; i++)
        if (sampled[i]->request->constrained) return true;
    return false;
}

/* Lists the answers that need masks; all samples have none at first. */
static void find_runs(struct step_masks *s, const struct batch *batch, struct sequence *const *sampled, int32_t *rows)
{
    s->num_runs = 0;
    for (int32_t i = 0, next; i < batch->num_samples; i = next) {
        struct sequence *seq = sampled[i];
        struct constrained_answer *answer = answer_of(seq);
        for (next = i; next < batch->num_samples && sampled[next] == seq; next++) rows[next] = -1;
        if (!answer || answer->has_ended || seq->status == SEQUENCE_FINISHED) continue;
        assert(answer->num_tokens == batch->output_positions[i]); /* all tokens before it are taken */
        s->runs[s->num_runs++] = (struct masked_run){.seq = seq, .answer = answer, .first = i, .count = next - i};
    }
}

/* Makes the masks of the runs' samples number `round`, of those whose drafts before it are all allowed. */
static int32_t make_masks(struct step_masks *s, int32_t round, const struct sample_masks *out)
{
    int32_t count = 0;
    for (int32_t k = 0; k < s->num_runs; k++) {
        const struct masked_run *run = &s->runs[k];
        if (run->count <= round || run->num_accepted < round) continue;
        s->matchers[count] = run->answer->matcher;
        s->words[count++] = out->words + (int64_t)s->num_rows * out->num_words;
        out->rows[run->first + round] = s->num_rows++;
    }
    if (count > 0) matcher_masks(s->matchers, s->words, count, s->pool);
    return count;
}

/* Takes the drafts behind these samples. One that is refused will not be drawn, so nothing behind it matters. */
static void accept_drafts(struct step_masks *s, int32_t round, const int32_t *drafts)
{
    for (int32_t k = 0; k < s->num_runs; k++) {
        struct masked_run *run = &s->runs[k];
        if (run->count > round + 1 && run->num_accepted == round)
            run->num_accepted += matcher_accept(run->answer->matcher, drafts[run->first + round + 1]);
    }
}

static bool is_empty(const uint32_t *mask, int32_t num_words)
{
    uint32_t any = 0;
    for (int32_t w = 0; w < num_words; w++) any |= mask[w];
    return any == 0;
}

/* A sample without any token has no mask: the answer ends before it is drawn, or it is used by nobody, because the
 * answer ends with the draft before it. */
static void find_dead_ends(const struct step_masks *s, const struct sample_masks *out, dead_end_function *dead_end,
                           void *user)
{
    for (int32_t k = 0; k < s->num_runs; k++) {
        const struct masked_run *run = &s->runs[k];
        for (int32_t i = run->first; i < run->first + run->count; i++) {
            const int32_t row = out->rows[i];
            if (row < 0 || !is_empty(out->words + (int64_t)row * out->num_words, out->num_words)) continue;
            out->rows[i] = -1;
            if (i == run->first) dead_end(user, run->seq);
        }
    }
}

int32_t step_masks_write(struct step_masks *s, const struct batch *batch, struct sequence *const *sampled,
                         const struct sample_masks *out, dead_end_function *dead_end, void *user)
{
    struct error ignored;
    if (!s->has_begun) pool_open(s->num_threads, &s->pool, &ignored);
    s->has_begun = true;
    s->num_rows = 0;
    find_runs(s, batch, sampled, out->rows);
    for (int32_t round = 0; make_masks(s, round, out) > 0; round++)
        if (batch->num_drafts > 0) accept_drafts(s, round, batch->sampled_drafts);
    for (int32_t k = 0; k < s->num_runs; k++)
        if (s->runs[k].num_accepted > 0) matcher_rollback(s->runs[k].answer->matcher, s->runs[k].num_accepted);
    find_dead_ends(s, out, dead_end, user);
    return s->num_rows;
}
