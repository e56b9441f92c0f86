#include <stdlib.h>
#include <string.h>

#include "runtime/engine/draft_methods.h"

struct ngram {
    struct drafter drafter;
    int32_t min, max;
};

static void ngram_propose_one(const struct ngram *d, struct draft_query *q)
{
    const int32_t *tokens = q->seq->tokens, n = q->seq->num_tokens;
    int32_t longest = d->min - 1, found = n;
    /* A match is not longer than what stands before its place, so a place after it has room for a longer one. */
    for (int32_t place = longest + 1; place < n && longest < d->max; place++) {
        place = draft_place_from(tokens, n, place, longest + 1);
        if (place == n) break;
        const int32_t length =
            draft_match_length(tokens, UINT32_MAX, (uint32_t)place, tokens + n, draft_min(place, d->max));
        if (length <= longest) continue;
        longest = length;
        found = place;
    }
    q->num_drafts = draft_min(q->most, n - found);
    memcpy(q->drafts, tokens + found, (size_t)q->num_drafts * sizeof *tokens);
}

static void ngram_propose(struct drafter *drafter, struct draft_query *queries, int32_t count)
{
    for (int32_t i = 0; i < count; i++) ngram_propose_one((const struct ngram *)drafter, &queries[i]);
}

static void ngram_destroy(struct drafter *drafter)
{
    free(drafter);
}

enum status draft_ngram_create(const struct speculative_config *config, struct drafter **out, struct error *err)
{
    struct ngram *d = malloc(sizeof *d);
    if (!d) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the drafter ngram");
    *d = (struct ngram){
        .drafter = {.name = draft_method_name(DRAFT_NGRAM), .propose = ngram_propose, .destroy = ngram_destroy},
        .min = config->prompt_lookup_min,
        .max = config->prompt_lookup_max};
    *out = &d->drafter;
    return STATUS_OK;
}
