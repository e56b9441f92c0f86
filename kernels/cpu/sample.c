/* Sampling, in the order of vLLM's sampler: masks, raw log-probabilities, min_tokens, logit_bias, penalties,
 * temperature, min_p, top_k, top_p, and a draw by the Gumbel-max trick (Gumbel, 1954; Maddison et al., 2014).
 *
 * Where vLLM does not say: of equal values the lower id comes first, but top_k keeps all that equal the k-th. If a
 * logit is NaN after processing, or the largest is infinite, no token is sampled: the token id is -1. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/select.h"
#include "kernels/cpu/state.h"
#include "kernels/philox.h"

/* A Gumbel variate -log(-log(u)) of a 23-bit u in (0, 1) lies in (-2.9, 16.7), so a value that is further than this
 * below the largest cannot win the draw. */
static const float GUMBEL_REACH = 20.0f;

/* One thread's scratch. */
struct scratch {
    struct candidate *candidates; /* [vocab_size] */
    float *raw;                   /* [vocab_size] logits as the model gave them */
    int32_t *seen;                /* [vocab_size] occurrences, for the penalties */
};

static int64_t scratch_bytes(int64_t vocab_size)
{
    return cpu_align(vocab_size * (int64_t)(sizeof(struct candidate) + sizeof(float) + sizeof(int32_t)));
}

static struct scratch thread_scratch(const struct cpu_state *s, int64_t vocab_size, int thread)
{
    struct scratch scratch;
    assert((thread + 1) * scratch_bytes(vocab_size) <= s->workspace_bytes);
    scratch.candidates = (struct candidate *)(s->workspace + thread * scratch_bytes(vocab_size));
    scratch.raw = (float *)(scratch.candidates + vocab_size);
    scratch.seen = (int32_t *)(scratch.raw + vocab_size);
    return scratch;
}

static bool has_nan(const float *logits, int32_t count)
{
    int nan = 0;
    for (int32_t i = 0; i < count; i++) nan |= logits[i] != logits[i];
    return nan;
}

/* Whether a token can be sampled: no logit is NaN, and the largest is finite. maximum() ignores NaN. */
static bool can_sample(const struct cpu_kernels *kernels, const float *logits, int32_t count)
{
    return !has_nan(logits, count) && !isinf(kernels->maximum(logits, count));
}

/* The first of the largest values. */
static int32_t argmax(const float *x, int32_t count)
{
    float best = -INFINITY;
    int32_t id = 0;
    for (int32_t i = 0; i < count; i++)
        if (x[i] > best) best = x[i], id = i;
    return id;
}

/* Ids first .. end - 1 that the mask of sample i does not have become -infinity. */
static void apply_mask(const struct sample_args *args, int32_t i, int32_t first, int32_t end)
{
    float *logits = args->logits + i * args->logits_stride;
    if (!args->masks || args->mask_rows[i] < 0) return;
    const uint32_t *mask = args->masks + args->mask_rows[i] * args->mask_words;
    for (int32_t id = first, next; id < end; id = next) {
        const uint32_t word = mask[id / 32];
        next = id / 32 * 32 + 32 < end ? id / 32 * 32 + 32 : end;
        if (word == UINT32_MAX) continue;
        for (; id < next; id++) logits[id] = word >> id % 32 & 1 ? logits[id] : -INFINITY;
    }
}

static bool in_vocabulary(int32_t id, int32_t vocab_size)
{
    return id >= 0 && id < vocab_size;
}

static void apply_stop_ids(float *logits, int32_t vocab_size, const struct sampling_state *row, int32_t output)
{
    if (output >= row->min_tokens) return;
    for (int32_t i = 0; i < row->num_stop_ids; i++)
        if (in_vocabulary(row->stop_ids[i], vocab_size)) logits[row->stop_ids[i]] = -INFINITY;
}

static void apply_bias(float *logits, int32_t vocab_size, const struct sampling_state *row)
{
    for (int32_t i = 0; i < row->num_bias; i++)
        if (in_vocabulary(row->bias_ids[i], vocab_size)) logits[row->bias_ids[i]] += row->bias_values[i];
}

/* seen[id]: bit 0 is set once the token was found in the history; each time that it was output adds 2. */
static void apply_repetition(float *logits, int32_t vocab_size, const struct sampling_state *row,
                             const int32_t *history, int32_t output, int32_t *seen)
{
    for (int64_t i = 0; i < (int64_t)row->prompt_len + output; i++) {
        int32_t id = history[i];
        if (!in_vocabulary(id, vocab_size)) continue;
        if (!seen[id]) {
            float logit = logits[id], penalty = row->repetition_penalty;
            logits[id] = logit > 0 ? logit / penalty : logit * penalty;
            seen[id] = 1;
        }
        if (i >= row->prompt_len) seen[id] += 2;
    }
}

static void apply_frequency(float *logits, int32_t vocab_size, const struct sampling_state *row, const int32_t *history,
                            int32_t output, int32_t *seen)
{
    for (int64_t i = row->prompt_len; i < (int64_t)row->prompt_len + output; i++) {
        int32_t id = history[i];
        if (!in_vocabulary(id, vocab_size) || seen[id] < 2) continue;
        logits[id] -= row->frequency_penalty * (float)(seen[id] / 2) + row->presence_penalty;
        seen[id] = 1; /* once */
    }
}

static bool has_penalties(const struct sampling_state *row)
{
    return row->repetition_penalty != 1 || row->frequency_penalty != 0 || row->presence_penalty != 0;
}

static void process(float *logits, int32_t vocab_size, const struct sampling_state *row, const int32_t *history,
                    int32_t output, int32_t *seen)
{
    apply_stop_ids(logits, vocab_size, row, output);
    apply_bias(logits, vocab_size, row);
    if (!has_penalties(row)) return;
    memset(seen, 0, sizeof *seen * (size_t)vocab_size);
    apply_repetition(logits, vocab_size, row, history, output, seen);
    apply_frequency(logits, vocab_size, row, history, output, seen);
}

/* Fills candidates, by ascending id, with the tokens whose logit / temperature is at least `threshold`. Their masses
 * are left 0: only top_p needs them. */
static int64_t collect(struct candidate *candidates, const float *logits, int32_t vocab_size, float temperature,
                       float threshold)
{
    int64_t count = 0;
    for (int32_t i = 0; i < vocab_size; i++) {
        float value = logits[i] / temperature;
        if (!(value >= threshold)) continue;
        candidates[count++] = (struct candidate){value, 0, i};
    }
    return count;
}

/* Keeps the k largest, and those equal to the k-th. */
static int64_t apply_top_k(struct candidate *candidates, int64_t count, int64_t k)
{
    if (k <= 0 || k >= count) return count;
    candidates_select(candidates, count, k);
    float last = candidates[k - 1].value;
    int64_t kept = k;
    for (int64_t i = k; i < count; i++)
        if (candidates[i].value == last) {
            struct candidate tie = candidates[i];
            candidates[i] = candidates[kept];
            candidates[kept++] = tie;
        }
    return kept;
}

/* Keeps the fewest of the largest tokens that hold top_p of the mass. Most tokens are dropped before any sorting: all
 * tokens with less than (1 - top_p) / count of the mass hold less than 1 - top_p together, so none of them is kept. */
static int64_t apply_top_p(struct candidate *candidates, int64_t count, float top_p, float max)
{
    if (top_p >= 1) return count;
    double total = 0;
    for (int64_t i = 0; i < count; i++) {
        candidates[i].mass = expf(candidates[i].value - max);
        total += candidates[i].mass;
    }
    double least = (1 - (double)top_p) * total / (double)count;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (candidates[i].mass >= least) candidates[kept++] = candidates[i];
    return candidates_select_mass(candidates, kept, (double)top_p * total);
}

/* Whether the Gumbel variate of u may exceed d >= 0. Computes no logarithm, so that most tokens need none:
 * -log(-log(u)) > d means 1 - u <= -log(u) < exp(-d) <= 2^-n for n = floor(d / ln 2). */
static bool may_exceed(float u, float d)
{
    int n = (int)(d * 1.44269f);
    return n < 1 || n > 60 || (1 - u) * (float)((uint64_t)1 << n) < 1.0001f;
}

/* The token with the largest value + Gumbel noise. */
static int32_t draw(const struct candidate *candidates, int64_t count, const struct sampling_state *row, int32_t output,
                    float max)
{
    float best = -INFINITY;
    int32_t id = candidates[0].id;
    uint32_t words[4] = {0}, block = 0;
    philox4x32(row->seed, row->sequence_index, (uint32_t)output, block, words);
    for (int64_t i = 0; i < count; i++) {
        const struct candidate *c = &candidates[i];
        if (c->value < max - GUMBEL_REACH) continue;
        if (block != (uint32_t)c->id / 4) { /* four ids share a block of random words */
            block = (uint32_t)c->id / 4;
            philox4x32(row->seed, row->sequence_index, (uint32_t)output, block, words);
        }
        float u = philox_uniform(words[c->id % 4]);
        if (best > c->value && !may_exceed(u, best - c->value)) continue;
        float value = c->value - logf(-logf(u));
        if (value > best || (value == best && c->id < id)) best = value, id = c->id;
    }
    return id;
}

static int32_t sample_random(const struct cpu_kernels *kernels, const float *logits, int32_t vocab_size,
                             const struct sampling_state *row, int32_t output, struct candidate *candidates)
{
    float max = kernels->maximum(logits, vocab_size) / row->temperature;
    if (isinf(max)) return argmax(logits, vocab_size); /* the division overflowed */
    bool cut = row->top_k > 0 || row->top_p < 1;
    float threshold = cut ? -INFINITY : max - GUMBEL_REACH;
    if (row->min_p > 0) threshold = fmaxf(threshold, max + logf(row->min_p));
    if (threshold == -INFINITY) threshold = -FLT_MAX; /* tokens at -infinity are never drawn */
    int64_t count = collect(candidates, logits, vocab_size, row->temperature, threshold);
    count = apply_top_k(candidates, count, row->top_k);
    count = apply_top_p(candidates, count, row->top_p, max);
    return draw(candidates, count, row, output, max);
}

/* log(sum(exp(x))), with the sum in double. */
static double log_sum_exp(const float *x, int32_t count, float max)
{
    double sum = 0;
    for (int32_t i = 0; i < count; i++) sum += expf(x[i] - max);
    return max + log(sum);
}

/* Inserts into ids and values [count], which are sorted with the best first; the last one is dropped. */
static void insert(int32_t *ids, float *values, int32_t count, int32_t id, float value)
{
    int32_t at = count - 1;
    for (; at > 0 && value > values[at - 1]; at--) {
        ids[at] = ids[at - 1];
        values[at] = values[at - 1];
    }
    ids[at] = id;
    values[at] = value;
}

static void top_logprobs(const float *raw, int32_t vocab_size, double total, int32_t count, int32_t *ids, float *values)
{
    for (int32_t i = 0; i < count; i++) ids[i] = -1, values[i] = -INFINITY;
    for (int32_t i = 0; i < vocab_size; i++) {
        float value = raw[i];
        bool free_place = ids[count - 1] < 0;
        if (value > values[count - 1]) {
            insert(ids, values, count, i, value);
        } else if (free_place) { /* -infinity, while there is room: after all others */
            int32_t at = 0;
            while (ids[at] >= 0) at++;
            ids[at] = i;
        }
    }
    for (int32_t i = 0; i < count; i++) values[i] = values[i] == -INFINITY ? -INFINITY : (float)(values[i] - total);
}

static void write_logprobs(const struct cpu_kernels *kernels, const struct sample_args *args, int32_t i,
                           const float *raw, int32_t num_logprobs)
{
    int32_t token = args->token_ids[i], vocab_size = args->vocab_size, higher = 0;
    float sampled = token < vocab_size ? raw[token] : -INFINITY; /* a target may be an id of padding */
    double total = log_sum_exp(raw, vocab_size, kernels->maximum(raw, vocab_size));
    for (int32_t j = 0; j < vocab_size; j++) higher += raw[j] > sampled;
    args->logprobs[i] = sampled == -INFINITY ? -INFINITY : (float)(sampled - total);
    args->ranks[i] = 1 + higher;
    if (num_logprobs > args->top_stride) num_logprobs = args->top_stride;
    if (num_logprobs > vocab_size) num_logprobs = vocab_size;
    if (num_logprobs > 0)
        top_logprobs(raw, vocab_size, total, num_logprobs, args->top_ids + (int64_t)i * args->top_stride,
                     args->top_logprobs + (int64_t)i * args->top_stride);
}

/* The place of the token that sample i draws. */
static int32_t *place_in_history(const struct sample_args *args, int32_t i)
{
    const int32_t state = args->state_indices[i];
    return args->history + state * args->history_stride + args->states[state].prompt_len + args->output_positions[i];
}

static void sample_one(const struct cpu_state *s, const struct sample_args *args, int32_t i, int thread)
{
    const struct sampling_state *row = &args->states[args->state_indices[i]];
    int32_t output = args->output_positions[i], vocab_size = args->vocab_size;
    const int32_t *history = args->history + args->state_indices[i] * args->history_stride;
    float *logits = args->logits + i * args->logits_stride;
    struct scratch scratch = thread_scratch(s, vocab_size, thread);
    bool logprobs = args->any_logprobs && row->num_logprobs >= 0;
    const float *raw = logits;
    apply_mask(args, i, 0, vocab_size);
    if (logprobs && args->any_processing) {
        memcpy(scratch.raw, logits, sizeof *logits * (size_t)vocab_size);
        raw = scratch.raw;
    }
    if (args->any_processing) process(logits, vocab_size, row, history, output, scratch.seen);
    if (!can_sample(s->kernels, logits, vocab_size)) {
        args->token_ids[i] = -1;
        return;
    }
    bool random = args->any_random && row->temperature >= 1e-5f;
    args->token_ids[i] = random ? sample_random(s->kernels, logits, vocab_size, row, output, scratch.candidates)
                                : argmax(logits, vocab_size);
    if (logprobs) write_logprobs(s->kernels, args, i, raw, row->num_logprobs);
}

static void score_one(const struct cpu_state *s, const struct sample_args *args, int32_t i)
{
    const float *logits = args->logits + i * args->logits_stride;
    const bool sound = can_sample(s->kernels, logits, args->vocab_size);
    args->token_ids[i] = sound ? args->targets[i] : -1;
    if (sound) write_logprobs(s->kernels, args, i, logits, args->top_stride);
}

static void sample_or_score(const struct cpu_state *s, const void *sample_args, int64_t i, int thread)
{
    const struct sample_args *args = sample_args;
    if (args->targets) {
        score_one(s, args, (int32_t)i);
    } else {
        sample_one(s, args, (int32_t)i, thread);
    }
}

/* ---- samples of a group ---- */

enum { SHARED_AT_ONCE = 64 /* samples */ };

/* What a rank tells of a sample. float32 has the ids of a vocabulary. */
struct share_best {
    float value; /* infinity: one of the rank's logits is NaN or infinite */
    float id;
};

struct shared_samples {
    const struct sample_args *args;
    int32_t first, count;
    struct share_best *best; /* [count, num_ranks] */
};

static void find_best(const struct cpu_state *s, const void *shared_samples, int64_t i, int thread)
{
    const struct shared_samples *shared = shared_samples;
    const struct sample_share *share = &shared->args->share;
    const float *logits = shared->args->logits + (shared->first + i) * shared->args->logits_stride + share->first;
    struct share_best *best = &shared->best[i * share->num_ranks + share->rank];
    (void)thread;
    *best = (struct share_best){-INFINITY, 0};
    if (share->count == 0) return;
    apply_mask(shared->args, shared->first + (int32_t)i, share->first, share->first + share->count);
    best->value = has_nan(logits, share->count) ? INFINITY : s->kernels->maximum(logits, share->count);
    best->id = (float)(share->first + argmax(logits, share->count));
}

/* Of equal values the lower rank's comes first, whose ids are lower. */
static int32_t choose_best(const struct share_best *best, int32_t num_ranks)
{
    int32_t first = 0;
    for (int32_t r = 1; r < num_ranks; r++)
        if (best[r].value > best[first].value) first = r;
    return isinf(best[first].value) ? -1 : (int32_t)best[first].id;
}

static void sample_shared(struct backend *b, const struct sample_args *args)
{
    const int32_t num_ranks = args->share.num_ranks;
    struct share_best best[SHARED_AT_ONCE * COLLECTIVE_MAX_RANKS] = {{0, 0}}; /* a group that pauses gathers nothing */
    for (int32_t first = 0; first < args->num_samples; first += SHARED_AT_ONCE) {
        const int32_t left = args->num_samples - first, count = left < SHARED_AT_ONCE ? left : SHARED_AT_ONCE;
        const struct shared_samples shared = {args, first, count, best};
        cpu_for(cpu_state(b), (int64_t)count * args->share.count, count, find_best, &shared);
        b->all_gather(b, &(struct all_gather_args){.x = &best[0].value,
                                                   .rows = count,
                                                   .stride = 2 * num_ranks,
                                                   .total = 2 * num_ranks,
                                                   .first = 2 * args->share.rank,
                                                   .columns = 2});
        for (int32_t i = 0; i < count; i++) args->token_ids[first + i] = choose_best(best + i * num_ranks, num_ranks);
    }
}

void cpu_sample(struct backend *b, const struct sample_args *args)
{
    const int64_t work = (int64_t)args->num_samples * args->vocab_size;
    for (int32_t i = 0; args->drafts && i < args->num_samples; i++)
        if (args->drafts[i] >= 0) place_in_history(args, i)[-1] = args->drafts[i];
    if (args->share.num_ranks > 0)
        sample_shared(b, args);
    else
        cpu_for(cpu_state(b), work, args->num_samples, sample_or_score, args);
    /* Not in the loop above: another thread may read the draft that is in the place of a token. */
    for (int32_t i = 0; !args->targets && i < args->num_samples; i++)
        if (args->token_ids[i] >= 0) *place_in_history(args, i) = args->token_ids[i];
}

int64_t cpu_sample_workspace(const struct cpu_state *s, const struct workspace_query *query)
{
    return s->threads * scratch_bytes(query->vocab_size);
}
