/* What `quire generate` writes: one line, one JSON object, for each line that it read.
 *
 *   {"index": 0, "id": ..., "text": "...", "finish_reason": "stop", "prompt_tokens": 5, "cached_tokens": 0,
 *    "completion_tokens": 9}
 *
 * with "token_ids", "logprobs" and "prompt_logprobs" where they are asked for, with "score" after a beam search and
 * "cumulative_logprob" with best_of. With n > 1 "texts", "finish_reasons", "scores" and "cumulative_logprobs" are
 * lists, and so are the token_ids and logprobs of each answer. A line that failed gives {"index": ..., "id": ...,
 * "line": 7, "error": "line 7: ..."}. The index, which is the first key of every line (answer_line.h), counts the
 * prompts of the input from 0; "line" counts all lines of its file from 1, blank ones included. The id is the line's
 * own "id" or "custom_id", and absent where the line has none.
 *
 * A line of an OpenAI batch is answered as OpenAI does (openai_result.h). */
#ifndef QUIRE_RUNTIME_RESULTS_H
#define QUIRE_RUNTIME_RESULTS_H

#include "base/array.h"
#include "runtime/engine/engine.h"
#include "runtime/prompts.h"
#include "runtime/generate/result_queue.h"

struct result_rules {
    const struct tokenizer *tokenizer; /* for the texts of tokens in "logprobs"; may be NULL */
    const char *model_name;            /* for answers to lines of a batch */
    bool return_token_ids;
};

/* Where a prompt stands in the input. */
struct result_place {
    int64_t index, line; /* of all prompts, from 0; in its file, from 1 */
    const char *file;    /* NULL: there is only one; referred to */
};

/* One request's answers, gathered piece by piece. */
struct result {
    const struct result_rules *rules;
    struct result_place place;
    json_t *id; /* or NULL */
    struct openai_request openai;
    int32_t n;
    struct result_answer {
        struct text text;
        json_t *token_ids, *logprobs; /* lists, or NULL where not asked for */
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
    struct result_queue *queue;           /* told when the result is done; or NULL */
    struct result *previous, *next;       /* the queue's */
};

/* For the prompt at `place`; takes over prompt->id and prompt->openai. NULL when memory ran out. */
struct result *result_create(const struct result_rules *rules, struct result_place place, struct prompt *prompt);
void result_free(struct result *r); /* NULL is allowed */

/* An answer_function; `user` is the struct result. */
void result_deliver(void *user, const struct answer_piece *piece);
/* The line failed: the sentence of `why` becomes its result. */
void result_fail(struct result *r, const struct error *why);
int64_t result_output_tokens(const struct result *r);
int32_t result_num_cut(const struct result *r); /* its answers that max_tokens or max_model_len cut */

/* Parts of a line, NULL if memory ran out: bytes as text, which need not be UTF-8 (a token may be a part of a
 * character, an error may quote anything); an answer's text, and its finish reason. */
json_t *result_json_text(const char *bytes, size_t length);
json_t *result_answer_text(const struct result_answer *a);
json_t *result_answer_reason(const struct result_answer *a);

/* Puts the line, with its newline, in place of what *line held. */
enum status result_format(const struct result *r, struct text *line, struct error *err);

#endif
