/* The bodies of requests to OpenAI's /v1/chat/completions and /v1/completions
 * (https://platform.openai.com/docs/api-reference). Their fields:
 *
 *   taken       messages or prompt, tools, tool_choice, parallel_tool_calls, response_format, n, temperature, top_p,
 *               max_tokens, max_completion_tokens, stop, seed, logit_bias, presence_penalty, frequency_penalty,
 *               logprobs, top_logprobs, best_of, echo, reasoning_effort (as a value for the template); and, as vLLM's
 *               server takes them, structured_outputs, the sampling fields that OpenAI does not have, documents,
 *               chat_template_kwargs, add_generation_prompt, continue_final_message, add_special_tokens, cache_salt,
 *               priority, include_reasoning, return_token_ids and return_tokens_as_token_ids
 *   returned    model, metadata
 *   served      stream and stream_options: how a server sends its response (api.h); a line of a batch is not changed
 *   no effect   user, store, service_tier, safety_identifier, prompt_cache_key, prompt_cache_retention; modalities
 *               ["text"]; suffix ""; use_beam_search false
 *
 * tool_choice "none" leaves the tools out of the prompt, as the model must not call them. Every other field, and every
 * other value of these, is refused by name, because the answer would not be what it asks for. */
#ifndef QUIRE_RUNTIME_OPENAI_REQUEST_H
#define QUIRE_RUNTIME_OPENAI_REQUEST_H

#include "base/json.h"
#include "runtime/prompts/answer_parser.h"
#include "runtime/prompts/request_fields.h"

/* What the answer needs of the request. */
struct openai_request {
    enum openai_kind kind; /* OPENAI_NONE: it is none of OpenAI's */
    json_t *model;         /* a string, or NULL */
    json_t *metadata;      /* an object, or NULL */
    bool stream, include_usage, continuous_usage;
    bool echo;                    /* the text begins with the prompt */
    bool only_echo;               /* ... and that is all of it: max_tokens is 0 */
    bool implies_prompt_logprobs; /* they are computed for the echo, and not asked for by themselves */
    bool one_call;                /* parallel_tool_calls is false: of several calls of tools the first counts */
    bool hides_reasoning;         /* include_reasoning is false */
    bool return_token_ids;        /* the ids of the prompt and of the answers */
    bool names_tokens;            /* return_tokens_as_token_ids: in log-probabilities a token is "token_id:7" */
};
void openai_request_free(struct openai_request *r); /* safe on a zeroed struct */

/* Makes of a body of out->kind an object with the fields of quire's own form (prompt.h), whose types are not checked,
 * and sets the rest of *out. `tools` is how the model calls tools, or NULL. *native is the caller's; NULL on failure.
 */
enum status openai_request_read(struct json_reader *body, const struct answer_format *tools, struct openai_request *out,
                                json_t **native);

#endif
