/* The answers to one prompt, gathered piece by piece: text, and lists of JSON of what else was asked for; or, for lines
 * of an OpenAI batch, the response that a server would send. What is written of them is in result_line.h, and in
 * openai_result.h for such lines. */
#ifndef QUIRE_RUNTIME_RESULT_H
#define QUIRE_RUNTIME_RESULT_H

#include "base/array.h"
#include "runtime/engine/engine.h"
#include "runtime/prompts/answer_parts.h"
#include "runtime/prompts/api.h"
#include "runtime/prompts/prompt.h"

/* Where a prompt stands in the input. */
struct result_place {
    int64_t index, line; /* of all prompts, from 0; in its file, from 1 */
    const char *file;    /* NULL: there is only one; referred to */
};

/* One request's answers, gathered piece by piece. */
struct result {
    const struct api_rules *rules;
    struct result_place place;
    struct prompt prompt; /* what is needed of it: id, openai, parts, echo, and counts of params */
    int32_t n;
    /* Of a line of a batch; else NULL. */
    struct api_request asked; /* of `prompt`, which it does not own */
    struct api_response *response;
    struct text body;
    struct result_answer {
        struct text text;
        json_t *token_ids, *logprobs; /* lists, or NULL where not asked for */
        struct answer_parts *parts;   /* takes the text apart; NULL: it stays whole */
        enum finish_reason finish_reason;
        int32_t output_tokens;
        double score;
    } * answers;                          /* [n] */
    const char *score_name;               /* "score" of a beam search, "cumulative_logprob" of best_of, or NULL */
    json_t *prompt_logprobs;              /* a list, or NULL where not asked for */
    int32_t prompt_len;                   /* known from the start */
    int32_t prompt_tokens, cached_tokens; /* known from the first piece on */
    char *error;                          /* why the line failed, with its place, or NULL */
    bool refused;                         /* ... because of what the line asks for: it never became a request */
    bool done;                            /* nothing more will come */
    bool aborted;                         /* ended by engine_abort: there is nothing to write */
    bool no_memory;                       /* a part of an answer was lost: the run must end */
    uint64_t request;                     /* the engine's id; 0: the line never became a request */
    void (*when_done)(struct result *);   /* called once, when `done` is set; or NULL */
    struct result_queue *queue;           /* where the result waits to be written, and its neighbours there */
    struct result *previous, *next;
};

/* For the prompt at `place`; takes over prompt->id, openai, parts and echo. NULL when memory ran out. */
struct result *result_create(const struct api_rules *rules, struct result_place place, struct prompt *prompt);
void result_free(struct result *r); /* NULL is allowed */

/* An answer_function; `user` is the struct result. */
void result_deliver(void *user, const struct answer_piece *piece);
/* The line failed: the sentence of `why` becomes its result. */
void result_fail(struct result *r, const struct error *why);
int64_t result_output_tokens(const struct result *r);
int32_t result_num_cut(const struct result *r); /* its answers that max_tokens or max_model_len cut */

/* Parts of a line, NULL if memory ran out: bytes as text, which need not be UTF-8 (a token may be a part of a
 * character, an error may quote anything); an answer's text, finish reason and score. */
json_t *result_json_text(const char *bytes, size_t length);
json_t *result_answer_text(const struct result_answer *a);
json_t *result_answer_reason(const struct result_answer *a);
json_t *result_answer_score(const struct result_answer *a);

#endif
