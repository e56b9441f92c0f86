/* The answers of a request whose text must be one of a grammar (tokenizer/grammar/matcher.h): the place of each in it.
 * Masks say which tokens are drawn (step_masks.h), so that every token that comes here is allowed. */
#ifndef QUIRE_RUNTIME_CONSTRAINED_H
#define QUIRE_RUNTIME_CONSTRAINED_H

#include "scheduler/scheduler.h"
#include "tokenizer/grammar/matcher.h"

struct constrained_answer {
    struct matcher *matcher;
    int32_t num_tokens; /* accepted */
    bool has_ended;     /* no token may follow, or none is known to */
};

struct constrained {
    struct constraint *constraint; /* a reference */
    int32_t num_answers;           /* the request's sequences */
    struct constrained_answer answers[];
};

/* Keeps the constraint. at_start: as in struct engine_request. */
enum status constrained_create(struct constraint *constraint, int32_t num_answers, bool at_start,
                               struct constrained **out, struct error *err);
void constrained_free(struct constrained *c); /* NULL is allowed */

/* Whether the answer's text takes more tokens. */
enum constrained_result {
    CONSTRAINED_GOES_ON,
    CONSTRAINED_ENDS,    /* with this token: its text is whole, and no longer text begins with it */
    CONSTRAINED_DROPPED, /* it had ended before this token of a run */
    CONSTRAINED_FAILED   /* *err says why */
};
/* Takes the token of an event, in order. */
enum constrained_result constrained_take(struct constrained *c, const struct token_event *event, struct error *err);
/* The vocabulary has no token that may come next, though the text must not end here: *err says so. */
void constrained_dead_end(struct constrained_answer *a, struct error *err);

#endif
