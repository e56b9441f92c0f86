/* Log-probabilities of tokens as the text of JSON, in OpenAI's two forms and in vLLM's of a prompt. It is text at once
 * because it comes with every token of a stream. All functions append; false: memory ran out. */
#ifndef QUIRE_RUNTIME_LOGPROB_TEXT_H
#define QUIRE_RUNTIME_LOGPROB_TEXT_H

#include "runtime/engine/engine.h"
#include "runtime/prompts/api_text.h"

/* A token with its log-probability, and the most probable tokens. */
struct token_logprob {
    int32_t token, rank;
    float logprob;
    int32_t num_top;
    const int32_t *top_ids;    /* [num_top] */
    const float *top_logprobs; /* [num_top] */
};
struct token_logprob token_logprob_of_answer(const struct answer_piece *piece); /* piece->logprob is not NULL */
/* Of token `i` of the prompt, from 1: nothing comes before the first one, so it has no probability. */
struct token_logprob token_logprob_of_prompt(const struct answer_piece *piece, int32_t i);
/* JSON has no infinity; vLLM's server writes -9999 for the logarithm of 0. */
double logprob_value(float logprob);

/* What tokens are called: by their text, or "token_id:7" without a tokenizer, or where that was asked for. */
struct token_names {
    const struct tokenizer *tokenizer; /* or NULL */
    bool by_id;
};

/* Of chat: entries of "content", with commas between them, `list` being what there is of them. */
bool chat_logprob_append(struct text *list, struct token_names names, const struct token_logprob *t);

/* Of completions: what stands in the brackets of the four lists of the same names. */
struct completion_logprobs {
    struct text tokens, token_logprobs, top_logprobs, text_offset;
    int64_t offset; /* characters of the text before the next token */
};
/* The tokens that come next, ids[count], stand for `text`. What the tokenizer puts before a text is not in it: such
 * tokens have the offset 0. */
void completion_logprobs_start(struct completion_logprobs *l, struct token_names names, const int32_t *ids,
                               int32_t count, const char *text);
bool completion_logprob_append(struct completion_logprobs *l, struct token_names names, const struct token_logprob *t);
/* A token without a probability: the first of a prompt. */
bool completion_logprob_append_first(struct completion_logprobs *l, struct token_names names, int32_t token);
/* {"tokens": [...], ...}; empties the lists, and keeps the offset. */
bool completion_logprobs_write(struct completion_logprobs *l, struct text *out);
void completion_logprobs_free(struct completion_logprobs *l); /* safe on a zeroed struct */

/* piece->prompt_logprobs: [null, {"ID": {"logprob": -0.5, "rank": 2, "decoded_token": "text"}, ...}, ...] */
bool prompt_logprobs_write(struct text *out, struct token_names names, const struct answer_piece *piece);

#endif
