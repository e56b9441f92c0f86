#include "runtime/engine/draft_grammar.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/job.h"

enum {
    CONTEXT_TOKENS = 4, /* of the sequence, before the text: with them it is encoded as it is there */
    BYTES_OF_DRAFT = 12 /* more than most tokens have */
};

struct grammar_drafter {
    struct drafter drafter;
    struct drafter *other;
    bool owned;
    const struct tokenizer *tokenizer;
    struct text text; /* scratch: the context and the text behind it */
    struct token_list ids;
};

static size_t num_bytes(const struct grammar_drafter *d, int32_t id)
{
    size_t length;
    tokenizer_token_bytes(d->tokenizer, id, false, &length);
    return length;
}

/* Puts the last tokens of the sequence into d->text. False: memory ran out. */
static bool write_context(struct grammar_drafter *d, const struct sequence *seq)
{
    int32_t first = seq->num_tokens;
    d->text.length = 0;
    while (first > 0 && seq->num_tokens - first < CONTEXT_TOKENS && num_bytes(d, seq->tokens[first - 1]) > 0) first--;
    for (; first < seq->num_tokens; first++) {
        size_t length;
        const char *bytes = tokenizer_token_bytes(d->tokenizer, seq->tokens[first], false, &length);
        if (!text_append(&d->text, bytes, length)) return false;
    }
    return true;
}

/* Encodes d->text, and returns which of its ids is the first behind `context` bytes. There is none if a token spans
 * that place: then it is the number of ids. */
static size_t encode(struct grammar_drafter *d, size_t context)
{
    struct error ignored;
    size_t bytes = 0, at = 0;
    d->ids.count = 0;
    if (tokenizer_encode(d->tokenizer, d->text.data, d->text.length, 0, &d->ids, &ignored) != STATUS_OK) return 0;
    for (size_t i = 0; i < d->ids.count; i++) bytes += num_bytes(d, d->ids.ids[i]);
    if (bytes < d->text.length) return d->ids.count;
    const size_t end = context > 0 ? bytes - d->text.length + context : 0; /* with the space of a dummy prefix */
    for (bytes = 0; at < d->ids.count && bytes < end; at++) bytes += num_bytes(d, d->ids.ids[at]);
    return bytes == end ? at : d->ids.count;
}

/* The tokens of the only text that may come next. One that the text's end may have cut is left out. */
static void draft_only_text(struct grammar_drafter *d, struct matcher *m, struct draft_query *q)
{
    const size_t most = (size_t)q->most * BYTES_OF_DRAFT;
    struct error ignored;
    q->num_drafts = 0;
    if (!write_context(d, q->seq)) return;
    const size_t context = d->text.length;
    if (matcher_forced(m, most, &d->text, &ignored) != STATUS_OK || d->text.length == context) return;
    size_t at = encode(d, context), end = d->ids.count;
    if (end > at && d->text.length - context == most) end--;
    while (at < end && q->num_drafts < q->most) q->drafts[q->num_drafts++] = d->ids.ids[at++];
}

/* Leaves out the first draft that the grammar refuses, and those behind it. */
static void cut_refused(struct matcher *m, struct draft_query *q)
{
    int32_t accepted = 0;
    while (accepted < q->num_drafts && matcher_accept(m, q->drafts[accepted])) accepted++;
    if (accepted > 0) matcher_rollback(m, accepted);
    q->num_drafts = accepted;
}

static void grammar_propose(struct drafter *drafter, struct draft_query *queries, int32_t count)
{
    struct grammar_drafter *d = (struct grammar_drafter *)drafter;
    if (d->other) d->other->propose(d->other, queries, count);
    for (int32_t i = 0; i < count; i++) {
        struct constrained *c = job_of(queries[i].seq)->constrained;
        if (!d->other) queries[i].num_drafts = 0;
        struct draft_query only = queries[i];
        if (!c) continue;
        struct matcher *m = c->answers[queries[i].seq->index].matcher;
        draft_only_text(d, m, &only);
        cut_refused(m, &only);
        cut_refused(m, &queries[i]);
        if (only.num_drafts > 0) queries[i] = only;
    }
}

static void grammar_finished(struct drafter *drafter, const struct sequence *seq)
{
    struct grammar_drafter *d = (struct grammar_drafter *)drafter;
    if (d->other && d->other->finished) d->other->finished(d->other, seq);
}

static void grammar_destroy(struct drafter *drafter)
{
    struct grammar_drafter *d = (struct grammar_drafter *)drafter;
    if (d->owned) drafter_destroy(d->other);
    text_free(&d->text);
    token_list_free(&d->ids);
    free(d);
}

enum status draft_grammar_create(struct drafter *other, bool owned, const struct tokenizer *tokenizer,
                                 struct drafter **out, struct error *err)
{
    struct grammar_drafter *d = calloc(1, sizeof *d);
    const char *name = other ? other->name : draft_method_name(DRAFT_GRAMMAR);
    if (!d) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the drafter %s", name);
    d->drafter = (struct drafter){.name = name,
                                  .propose = grammar_propose,
                                  .finished = grammar_finished,
                                  .destroy = grammar_destroy,
                                  .only_constrained = !other};
    d->other = other;
    d->owned = owned;
    d->tokenizer = tokenizer;
    *out = &d->drafter;
    return STATUS_OK;
}
