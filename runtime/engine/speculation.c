#include "runtime/engine/speculation.h"

#include <stdlib.h>

/* A draft is given if it, and those before it, are accepted with this probability at least: what it costs is another
 * entry of the step and, where the device makes it, a pass of the drafter's model. */
static const double WORTH_ON_HOST = 0.15, WORTH_ON_DEVICE = 0.3;
/* Each draft that was checked moves its sequence's estimate by this share of the way to 1 or 0. So it follows a text
 * that begins or ceases to repeat within a few drafts. */
static const double SHARE = 0.25;
/* The estimate begins with what is usual: the share of all drafts that were accepted, of which the newest count most,
 * and of a few that are taken for granted before there are others. So a drafter that was never right is not given the
 * benefit of the doubt for each new sequence again. */
static const double FIRST_ACCEPTANCE = 0.7, USUAL_SHARE = 0.02;
enum { NUM_GRANTED = 2 };
/* Steps between two tries of a sequence whose drafts were never right. Where tries are costly and drafts are seldom
 * right in any sequence, it is up to so many times as long, but one sequence is tried after LONGEST_WAIT steps. */
enum { LONGEST_WAIT = 64, LONGEST_OF_ALL = 8 };

/* Most drafts of a step of any limits: the memory of their logits is planned. */
enum { MOST_DRAFTS = 256 };

/* What is known of the sequence that has a state index. */
struct pace {
    uint64_t request;  /* its id; 0: there was no sequence yet */
    int32_t index;     /* which of the request's */
    int64_t since;     /* the step in which it was tried last, or came */
    double acceptance; /* estimate: the probability that a draft is accepted if those before it are */
    bool any_accepted; /* any of its drafts */
    /* The last run. */
    int64_t step; /* 0: there was none */
    int32_t num_drafts;
    int32_t num_tokens; /* of the sequence, before it */
};

struct speculation {
    struct speculation_limits limits;
    struct drafter *drafter;
    double worth, usual;
    int64_t num_checked;          /* drafts */
    int64_t step;                 /* of the last call of speculation_propose, from 2 */
    int64_t last_try;             /* the step with the last drafts */
    bool runs_in_flight;          /* the last step has drafts, unless it was collected */
    struct pace *paces;           /* [max_num_seqs] by state index */
    struct draftable *draftables; /* [max_num_seqs] scratch */
    struct draft_query *queries;  /* [max_num_seqs] scratch */
};

/* ---- limits ---- */

/* A decode step of a dense model reads all weights once, whatever its entries: a GPU's tensor cores have time for some
 * 64 of them meanwhile, a CPU's vector units for about 8. */
int32_t speculation_free_entries(bool discrete)
{
    return discrete ? 64 : 8;
}

int32_t speculation_most_drafts(const struct speculation_limits *l)
{
    const int64_t all = (int64_t)l->max_num_seqs * l->num_speculative_tokens;
    int32_t most = l->fixed ? MOST_DRAFTS : l->free_entries - 1; /* one entry is no draft */
    if (most > l->max_num_tokens - 1) most = l->max_num_tokens - 1;
    return all < most ? (int32_t)all : most;
}

/* ---- life ---- */

enum status speculation_create(const struct speculation_limits *limits, struct drafter *drafter,
                               struct speculation **out, struct error *err)
{
    const size_t count = (size_t)limits->max_num_seqs;
    struct speculation *s = calloc(1, sizeof *s);
    *out = s;
    if (s) {
        s->limits = *limits;
        s->drafter = drafter;
        s->worth = drafter->draft ? WORTH_ON_DEVICE : WORTH_ON_HOST;
        s->usual = FIRST_ACCEPTANCE;
        s->step = 1;
        s->paces = calloc(count, sizeof *s->paces);
        s->draftables = calloc(count, sizeof *s->draftables);
        s->queries = calloc(count, sizeof *s->queries);
        if (s->paces && s->draftables && s->queries) return STATUS_OK;
    }
    speculation_destroy(s);
    *out = NULL;
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the drafts of %d sequences",
                     limits->max_num_seqs);
}

void speculation_destroy(struct speculation *s)
{
    if (!s) return;
    free(s->paces);
    free(s->draftables);
    free(s->queries);
    free(s);
}

/* ---- how many drafts ---- */

/* What fails in other sequences is likely to fail in one that had no draft right yet. */
static double acceptance_of(const struct speculation *s, const struct pace *pace)
{
    return pace->any_accepted || pace->acceptance < s->usual ? pace->acceptance : s->usual;
}

/* Steps from one try to the next: 0 if drafts are worth it in every step. A sequence that has lacked drafts for long
 * costs a drafter's model all its tokens meanwhile, so where no sequence's drafts are right, few are tried at all. */
static double wait_of(const struct speculation *s, double acceptance)
{
    const double wait = s->worth / acceptance, times = s->worth / s->usual;
    if (wait < 1 || times < 1 || !s->drafter->draft) return wait;
    return wait * (times < LONGEST_OF_ALL ? times : LONGEST_OF_ALL);
}

/* The step in which the sequence is tried next, if no drafts are checked meanwhile. A pass of a drafter's model costs
 * as much for one sequence as for many, so those that wait about as long are tried in the same step. */
static int64_t next_try(const struct speculation *s, const struct pace *pace)
{
    const int64_t wait = (int64_t)wait_of(s, acceptance_of(s, pace));
    int64_t grid = 1;
    if (wait == 0 || !s->drafter->draft) return pace->since + wait;
    while (2 * grid <= wait && grid < LONGEST_WAIT) grid *= 2;
    return (pace->since + wait) / grid * grid;
}

/* `step` is the next one of the sequence. */
static struct pace *pace_of(struct speculation *s, const struct sequence *seq, int64_t step)
{
    struct pace *pace = &s->paces[seq->state_index];
    if (pace->request == seq->request->id && pace->index == seq->index) return pace;
    *pace = (struct pace){.request = seq->request->id, .index = seq->index, .since = step, .acceptance = s->usual};
    return pace;
}

static void move(const struct speculation *s, double *estimate, double share, bool accepted)
{
    *estimate += share * (accepted - *estimate);
    if (*estimate < s->worth / LONGEST_WAIT) *estimate = s->worth / LONGEST_WAIT;
}

static void move_usual(struct speculation *s, bool accepted)
{
    const double share = 1.0 / (double)(NUM_GRANTED + ++s->num_checked);
    move(s, &s->usual, share > USUAL_SHARE ? share : USUAL_SHARE, accepted);
}

/* Learns what became of the drafts of the last step. Those behind one that is rejected tell nothing. */
static void learn(struct speculation *s, struct pace *pace, const struct sequence *seq)
{
    const int32_t accepted = seq->num_tokens - pace->num_tokens - 1;
    if (pace->step != s->step - 1) return;
    for (int32_t i = 0; i < pace->num_drafts && i <= accepted; i++) {
        move(s, &pace->acceptance, SHARE, i < accepted);
        pace->any_accepted |= i < accepted;
        move_usual(s, i < accepted);
    }
    if (accepted < pace->num_drafts) pace->since = s->step;
}

/* How many drafts are worth it: 0 while the sequence waits, then one to try it again. */
static int32_t num_wanted(const struct speculation *s, const struct pace *pace, int64_t step)
{
    const int32_t most = s->limits.num_speculative_tokens;
    const double acceptance = acceptance_of(s, pace);
    int32_t wanted = 0;
    if (s->limits.fixed) return most;
    if (step < next_try(s, pace)) return 0;
    for (double p = acceptance; wanted < most && p >= s->worth; p *= acceptance) wanted++;
    return wanted > 0 ? wanted : 1;
}

/* Whether no sequence has been tried for so long that one is tried before its time. */
static bool is_overdue(const struct speculation *s, int64_t step)
{
    return step - s->last_try >= LONGEST_WAIT;
}

/* Drafts of a step with so many running sequences, of all of them. Each sequence has room for its own token. */
static int32_t budget(const struct speculation *s, int32_t num_running)
{
    const struct speculation_limits *l = &s->limits;
    const bool free_first = !l->fixed && l->free_entries < l->max_num_tokens;
    const int32_t rest = (free_first ? l->free_entries : l->max_num_tokens) - num_running;
    return rest < l->max_num_drafts ? rest : l->max_num_drafts;
}

/* Takes the last drafts of the longest runs away until the rest is within the budget, those of the lowest rank first: a
 * first draft is likelier to be accepted than a second one. */
static void cut(struct draft_query *queries, int32_t count, int32_t most)
{
    int32_t total = 0;
    for (int32_t i = 0; i < count; i++) total += queries[i].num_drafts;
    for (int32_t length = MAX_DRAFTS; total > most; length--)
        for (int32_t i = count - 1; i >= 0 && total > most; i--) {
            if (queries[i].num_drafts < length) continue;
            queries[i].num_drafts--;
            total--;
        }
}

/* What a drafter on the device guesses the host does not know, so it can make no masks for what follows. */
static bool takes_drafts(const struct drafter *d, const struct request *request)
{
    return request->constrained ? !d->draft : !d->only_constrained;
}

/* Leaves those of `draftables` that take drafts, and returns how many. */
static int32_t keep_takers(struct speculation *s, int32_t count)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < count; i++)
        if (takes_drafts(s->drafter, s->draftables[i].seq->request)) s->draftables[kept++] = s->draftables[i];
    return kept;
}

static void ask_for(struct speculation *s, int32_t place, struct draftable d, int32_t wanted)
{
    s->draftables[place] = d;
    s->queries[place] = (struct draft_query){.seq = d.seq, .most = wanted < d.most ? wanted : d.most};
}

/* Fills `queries`, and the same places of `draftables`, with the sequences that want drafts in the next step. If none
 * is due, but one should be tried, it is the one that would be tried first. */
static int32_t choose_sequences(struct speculation *s, int32_t count)
{
    int32_t asked = 0, first = 0;
    int64_t earliest = INT64_MAX;
    for (int32_t i = 0; i < count; i++) {
        const struct pace *pace = pace_of(s, s->draftables[i].seq, s->step);
        const int32_t wanted = num_wanted(s, pace, s->step);
        if (next_try(s, pace) < earliest) {
            earliest = next_try(s, pace);
            first = i;
        }
        if (wanted > 0) ask_for(s, asked++, s->draftables[i], wanted);
    }
    if (asked == 0 && count > 0 && is_overdue(s, s->step)) ask_for(s, asked++, s->draftables[first], 1);
    return asked;
}

void speculation_propose(struct speculation *s, struct scheduler *scheduler)
{
    s->step++;
    if (scheduler_in_flight(scheduler) > 0) return;
    const int32_t running = scheduler_draftables(scheduler, s->draftables), most = budget(s, running);
    if (most <= 0) return;
    const int32_t count = keep_takers(s, running);
    for (int32_t i = 0; i < count; i++) learn(s, pace_of(s, s->draftables[i].seq, s->step), s->draftables[i].seq);
    const int32_t asked = choose_sequences(s, count);
    if (asked == 0) return;
    s->drafter->propose(s->drafter, s->queries, asked);
    cut(s->queries, asked, most);
    for (int32_t i = 0; i < asked; i++) {
        const struct draft_query *q = &s->queries[i];
        const int32_t *drafts = s->drafter->draft ? NULL : q->drafts;
        if (q->num_drafts > 0) scheduler_set_drafts(scheduler, s->draftables[i].seq, drafts, q->num_drafts);
    }
}

void speculation_scheduled(struct speculation *s, const struct schedule *schedule)
{
    s->runs_in_flight = schedule->num_runs > 0;
    if (schedule->num_runs > 0) s->last_try = s->step;
    for (int32_t i = 0; i < schedule->num_runs; i++) {
        const struct sequence *seq = schedule->runs[i].seq;
        struct pace *pace = &s->paces[seq->state_index];
        pace->step = s->step;
        pace->num_drafts = seq->num_drafts;
        pace->num_tokens = seq->num_tokens;
    }
}

bool speculation_wants_drafts(struct speculation *s, const struct scheduler *scheduler)
{
    const int64_t next = s->step + 1;
    if (s->runs_in_flight) return true;
    const int32_t running = scheduler_draftables_later(scheduler, s->draftables);
    if (running == 0 || budget(s, running) <= 0) return false;
    const int32_t count = keep_takers(s, running);
    if (count == 0) return false;
    for (int32_t i = 0; i < count; i++)
        if (num_wanted(s, pace_of(s, s->draftables[i].seq, next), next) > 0) return true;
    return is_overdue(s, next);
}
