/* A request as the engine holds it: the scheduler's request, and where its answers go. */
#ifndef QUIRE_RUNTIME_JOB_H
#define QUIRE_RUNTIME_JOB_H

#include "kernels/backend.h"
#include "runtime/engine/answer_text.h"
#include "runtime/engine/constrained.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/inbox.h"
#include "runtime/engine/late_answers.h"
#include "runtime/engine/trace.h"

struct job {
    struct inbox_entry entry; /* has the id */
    struct request *request;  /* owned */
    answer_function *deliver;
    void *user;
    struct answer {
        struct answer_text text;
        int32_t num_tokens; /* delivered as they came; its sequence may have more by then, of the same run */
        bool done;          /* its last piece was delivered */
    } * answers;            /* [num_answers] */
    int32_t num_answers, num_done;
    struct late_answers *late;       /* NULL: the answers are delivered as they come */
    struct constrained *constrained; /* NULL: their texts are free */
    double added;                    /* trace_now */
    struct trace_request trace;
};

/* The request was checked (request_check). text_buffer: of all answers; NULL without a tokenizer. */
enum status job_create(const struct loaded_model *l, char *text_buffer, const struct engine_request *r,
                       struct job **out, struct error *err);
void job_free(void *job); /* NULL is allowed */

/* How the sequence is sampled. seed: of the engine, where the request has none. */
void job_sampling_state(const struct sequence *seq, uint64_t seed, struct sampling_state *state);

static inline struct job *job_of(const struct sequence *seq)
{
    return seq->request->user;
}

enum { JOB_MAX_EOS = sizeof((struct request *)0)->eos_token_ids / sizeof(int32_t) };
/* The end-of-sequence ids, ids[JOB_MAX_EOS]: those of the checkpoint, or the tokenizer's if the checkpoint names none.
 * Returns how many. */
int32_t job_eos_ids(const struct loaded_model *l, int32_t *ids);

#endif
