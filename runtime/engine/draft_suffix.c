/* Earlier answers are a ring of tokens, with chains of places as in LZ77: a table leads from the hash of a few tokens
 * to the newest place behind such tokens, and each place to the one before it. There are chains for the last 8 tokens,
 * the last 4 and the last 2, because the newest places behind two common tokens are seldom those of the longest match.
 *
 *     position    begin                                         end
 *     tokens      9  4  7  5  -1   9  4  6  -1   9  4  7  8  -1
 *     2 tokens          ^----------------^-------------^             the chain of places behind 9 4
 *
 * A position counts all tokens that were ever added, modulo 2^32; its index in the ring is position & mask. -1 ends an
 * answer: it equals no token, so neither a match nor what follows it goes from one answer to another. There is always
 * one before `begin`, too: of the answer that was dropped or, if the ring is full, of the newest. */
#include <stdlib.h>

#include <xxhash.h>

#include "runtime/engine/draft_methods.h"

enum { MAX_VOTES = 64, MAX_VISITS = 64, MAX_HISTORY = 1 << 21, NUM_CHAINS = 3 };
static const int32_t chain_lengths[NUM_CHAINS] = {8, 4, 2};

/* Of the places behind tokens of one length. A place that is not live (history_has) ends its chain. */
struct chains {
    uint32_t *newest;   /* [capacity] by hash */
    uint32_t *previous; /* [capacity] the place before, with the same hash, by index in the ring */
};

struct history {
    int32_t *tokens; /* [capacity]; NULL: no answer is kept */
    struct chains chains[NUM_CHAINS];
    uint32_t *starts; /* [max_answers] a ring of the positions where answers begin */
    uint32_t mask;    /* capacity - 1; the capacity is a power of two */
    uint32_t begin, end;
    int32_t max_answers, oldest, num_answers;
};

struct suffix {
    struct drafter drafter;
    struct speculative_config config;
    struct history history;
};

/* The places of the longest match so far. */
struct votes {
    int32_t length, count;
    int32_t next[MAX_VOTES][MAX_DRAFTS]; /* [count] what follows each; after -1, anything */
};

static void votes_clear(struct votes *v) /* next is left as it is */
{
    v->length = 0;
    v->count = 0;
}

/* Counts a place with a match of `length`, behind which `left` tokens are known, at least one. */
static void votes_add(struct votes *v, int32_t length, const int32_t *text, uint32_t mask, uint32_t place, int32_t left)
{
    if (length < v->length) return;
    if (length > v->length) v->count = 0;
    v->length = length;
    if (v->count == MAX_VOTES) return;
    int32_t *next = v->next[v->count++];
    for (int32_t i = 0; i < MAX_DRAFTS; i++) next[i] = i < left ? text[(place + (uint32_t)i) & mask] : -1;
}

/* The draft `index`, and its share of the votes; -1: there is none. */
static int32_t votes_most(const struct votes *v, int32_t index, double *share)
{
    int32_t cast = 0, token = -1, most = 0;
    for (int32_t k = 0; k < v->count; k++) cast += v->next[k][index] >= 0;
    for (int32_t k = 0; k < v->count; k++) {
        const int32_t candidate = v->next[k][index];
        int32_t count = 0;
        if (candidate < 0) continue;
        for (int32_t other = k; other < v->count; other++) count += v->next[other][index] == candidate;
        if (count <= most) continue;
        most = count;
        token = candidate;
    }
    *share = cast ? (double)most / cast : 0;
    return token;
}

static void votes_keep(struct votes *v, int32_t index, int32_t token)
{
    int32_t kept = 0;
    for (int32_t k = 0; k < v->count; k++) {
        if (v->next[k][index] != token) continue;
        for (int32_t i = 0; i < MAX_DRAFTS; i++) v->next[kept][i] = v->next[k][i];
        kept++;
    }
    v->count = kept;
}

/* Fills q with drafts. Returns the sum of their probabilities: how many of them are expected to be right. */
static double votes_follow(struct votes *v, const struct speculative_config *config, struct draft_query *q)
{
    const double allowed = config->suffix_decoding_max_spec_factor * v->length;
    const int32_t most = allowed < q->most ? (int32_t)allowed : q->most;
    double probability = 1, expected = 0, share;
    for (q->num_drafts = 0; q->num_drafts < most; q->num_drafts++) {
        const int32_t token = votes_most(v, q->num_drafts, &share);
        probability *= share;
        if (token < 0 || probability < config->suffix_decoding_min_token_prob) break;
        expected += probability;
        q->drafts[q->num_drafts] = token;
        votes_keep(v, q->num_drafts, token);
    }
    return expected;
}

/* ---- earlier answers ---- */

static void history_free(struct history *h)
{
    free(h->tokens);
    free(h->starts);
    for (int32_t i = 0; i < NUM_CHAINS; i++) {
        free(h->chains[i].newest);
        free(h->chains[i].previous);
    }
}

/* false: out of memory; free it. calloc's pages take no memory before they are used. */
static bool history_init(struct history *h, int32_t max_answers, int32_t max_model_len)
{
    const int64_t wanted = (int64_t)max_answers * ((int64_t)max_model_len + 2); /* the last token, and -1 */
    uint32_t capacity = 2;
    while (capacity < wanted && capacity < MAX_HISTORY) capacity *= 2;
    *h = (struct history){.mask = capacity - 1};
    h->max_answers = draft_min(max_answers, (int32_t)capacity);
    if (max_answers == 0) return true;
    h->tokens = calloc(capacity, sizeof *h->tokens);
    h->starts = calloc((size_t)h->max_answers, sizeof *h->starts);
    bool ok = h->tokens && h->starts;
    for (int32_t i = 0; i < NUM_CHAINS; i++) {
        h->chains[i].newest = calloc(capacity, sizeof *h->chains[i].newest);
        h->chains[i].previous = calloc(capacity, sizeof *h->chains[i].previous);
        ok = ok && h->chains[i].newest && h->chains[i].previous;
    }
    if (ok) h->tokens[h->mask] = -1;
    return ok;
}

/* Whether the place is one of an answer that is kept: not the first token, and not the end. */
static bool history_has(const struct history *h, uint32_t place)
{
    const uint32_t age = h->end - place;
    return age > 0 && age < h->end - h->begin;
}

static void history_drop_oldest(struct history *h)
{
    h->oldest = (h->oldest + 1) % h->max_answers;
    h->begin = --h->num_answers ? h->starts[h->oldest] : h->end;
}

/* The index in chains.newest of the `length` tokens before `end`. */
static uint32_t history_hash(const struct history *h, const int32_t *end, int32_t length)
{
    return (uint32_t)XXH3_64bits(end - length, (size_t)length * sizeof *end) & h->mask;
}

static void history_add(struct history *h, const int32_t *tokens, int32_t n)
{
    if (n > (int32_t)h->mask) {
        tokens += n - (int32_t)h->mask;
        n = (int32_t)h->mask;
    }
    while (h->num_answers == h->max_answers || h->end - h->begin + (uint32_t)n > h->mask) history_drop_oldest(h);
    h->starts[(h->oldest + h->num_answers++) % h->max_answers] = h->end;
    for (int32_t i = 0; i < n; i++, h->end++) {
        h->tokens[h->end & h->mask] = tokens[i];
        for (int32_t c = 0; c < NUM_CHAINS; c++) {
            if (i < chain_lengths[c]) continue;
            uint32_t *newest = &h->chains[c].newest[history_hash(h, tokens + i, chain_lengths[c])];
            h->chains[c].previous[h->end & h->mask] = *newest;
            *newest = h->end;
        }
    }
    h->tokens[h->end++ & h->mask] = -1;
}

/* Adds the places of one chain. Others may have the same hash. */
static void history_follow(const struct history *h, int32_t chain, const int32_t *end, int32_t most, struct votes *v)
{
    const struct chains *chains = &h->chains[chain];
    uint32_t place = chains->newest[history_hash(h, end, chain_lengths[chain])];
    for (int32_t visits = 0; visits < MAX_VISITS && history_has(h, place); visits++) {
        const int32_t length = draft_match_length(h->tokens, h->mask, place, end, most);
        if (length >= chain_lengths[chain]) votes_add(v, length, h->tokens, h->mask, place, MAX_DRAFTS);
        place = chains->previous[place & h->mask];
    }
}

static void history_search(const struct history *h, const int32_t *end, int32_t most, struct votes *v)
{
    for (int32_t c = 0; c < NUM_CHAINS && h->num_answers; c++) {
        if (chain_lengths[c] <= most) history_follow(h, c, end, most, v);
        if (v->length >= chain_lengths[c]) return; /* shorter chains have no match of so many tokens */
    }
}

/* ---- the drafter ---- */

/* Newest first. When no more votes are counted for matches of a length, only longer ones matter. */
static void search_sequence(const int32_t *tokens, int32_t n, int32_t most, struct votes *v)
{
    int32_t place = n, wanted = 1;
    while (wanted <= most && (place = draft_place_before(tokens, n, place, wanted)) > 0) {
        const int32_t length =
            draft_match_length(tokens, UINT32_MAX, (uint32_t)place, tokens + n, draft_min(place, most));
        votes_add(v, length, tokens, UINT32_MAX, (uint32_t)place, n - place);
        wanted = v->length + (v->count == MAX_VOTES);
    }
}

static void suffix_propose_one(const struct suffix *d, struct draft_query *q)
{
    const int32_t *tokens = q->seq->tokens, n = q->seq->num_tokens;
    const int32_t most = draft_min(d->config.suffix_decoding_max_tree_depth, n);
    struct draft_query of_answers = *q;
    struct votes votes;
    votes_clear(&votes);
    search_sequence(tokens, n, most, &votes);
    const double expected = votes_follow(&votes, &d->config, q);
    votes_clear(&votes);
    history_search(&d->history, tokens + n, most, &votes);
    if (votes_follow(&votes, &d->config, &of_answers) > expected) *q = of_answers;
}

static void suffix_propose(struct drafter *drafter, struct draft_query *queries, int32_t count)
{
    for (int32_t i = 0; i < count; i++) suffix_propose_one((const struct suffix *)drafter, &queries[i]);
}

static void suffix_finished(struct drafter *drafter, const struct sequence *seq)
{
    struct suffix *d = (struct suffix *)drafter;
    const int32_t context = draft_min(seq->prompt_len, d->config.suffix_decoding_max_tree_depth);
    if (!d->history.tokens || seq->num_tokens == seq->prompt_len) return;
    history_add(&d->history, seq->tokens + seq->prompt_len - context, seq->num_tokens - seq->prompt_len + context);
}

static void suffix_destroy(struct drafter *drafter)
{
    history_free(&((struct suffix *)drafter)->history);
    free(drafter);
}

enum status draft_suffix_create(const struct speculative_config *config, int32_t max_model_len, struct drafter **out,
                                struct error *err)
{
    struct suffix *d = malloc(sizeof *d);
    if (d) {
        *d = (struct suffix){.drafter = {.name = draft_method_name(DRAFT_SUFFIX),
                                         .propose = suffix_propose,
                                         .finished = suffix_finished,
                                         .destroy = suffix_destroy},
                             .config = *config};
        if (history_init(&d->history, config->suffix_decoding_max_cached_requests, max_model_len)) {
            *out = &d->drafter;
            return STATUS_OK;
        }
        suffix_destroy(&d->drafter);
    }
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the drafter suffix");
}
