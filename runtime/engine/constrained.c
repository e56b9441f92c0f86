#include "runtime/engine/constrained.h"

#include <stdlib.h>

enum status constrained_create(struct constraint *constraint, int32_t num_answers, bool at_start,
                               struct constrained **out, struct error *err)
{
    struct constrained *c = calloc(1, sizeof *c + (size_t)num_answers * sizeof *c->answers);
    enum status status = STATUS_OK;
    *out = NULL;
    if (!c) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a request");
    c->constraint = constraint_keep(constraint);
    for (; c->num_answers < num_answers && status == STATUS_OK; c->num_answers++)
        status = matcher_create(constraint, at_start, &c->answers[c->num_answers].matcher, err);
    if (status == STATUS_OK)
        *out = c;
    else
        constrained_free(c);
    return status;
}

void constrained_free(struct constrained *c)
{
    if (!c) return;
    for (int32_t i = 0; i < c->num_answers; i++) matcher_free(c->answers[i].matcher);
    constraint_free(c->constraint);
    free(c);
}

/* The end of a sequence, which the grammar allows where the text may end, ends the answer also with ignore_eos. */
static bool ends_sequence(const struct request *request, int32_t token)
{
    for (int32_t i = 0; i < request->num_eos; i++)
        if (request->eos_token_ids[i] == token) return true;
    return false;
}

static enum constrained_result fail(struct constrained_answer *a, struct error *err)
{
    a->has_ended = true;
    if (matcher_failed(a->matcher))
        error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the grammar of an answer");
    else
        error_set(err, STATUS_INTERNAL, "internal error, please report it: a token was drawn that its grammar refuses");
    return CONSTRAINED_FAILED;
}

enum constrained_result constrained_take(struct constrained *c, const struct token_event *event, struct error *err)
{
    struct constrained_answer *a = &c->answers[event->seq->index];
    if (a->has_ended) return CONSTRAINED_DROPPED;
    a->num_tokens++;
    if (event->finish_reason == FINISH_STOP || ends_sequence(event->seq->request, event->token)) {
        a->has_ended = true; /* a stop token adds no text */
        return CONSTRAINED_ENDS;
    }
    if (!matcher_accept(a->matcher, event->token)) return fail(a, err);
    a->has_ended = matcher_must_end(a->matcher);
    return a->has_ended ? CONSTRAINED_ENDS : CONSTRAINED_GOES_ON;
}

void constrained_dead_end(struct constrained_answer *a, struct error *err)
{
    a->has_ended = true;
    error_set(err, STATUS_INVALID,
              "no token of the vocabulary goes on with the answer as its grammar wants; change the "
              "grammar where only certain characters may come next");
}
