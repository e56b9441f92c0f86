/* The bodies of requests to OpenAI's /v1/chat/completions and /v1/completions
 * (https://platform.openai.com/docs/api-reference). Their fields:
 *
 *   taken       messages or prompt, tools, n, temperature, top_p, max_tokens, max_completion_tokens, stop, seed,
 *               logit_bias, presence_penalty, frequency_penalty, logprobs, top_logprobs, best_of, reasoning_effort (as
 *               a value for the template); and, as vLLM's server takes them, the sampling fields that OpenAI does not
 *               have, documents, chat_template_kwargs, cache_salt and priority
 *   returned    model, metadata
 *   no effect   stream, stream_options, user, store, service_tier, safety_identifier, prompt_cache_key,
 *               parallel_tool_calls; response_format {"type": "text"}; tool_choice "auto"; modalities ["text"]; echo
 *               false; suffix ""
 *
 * tool_choice "none" leaves the tools out of the prompt, as the model must not call them. Every other field, and every
 * other value of these, is refused by name, because the answer would not be what it asks for. */
#ifndef QUIRE_RUNTIME_OPENAI_REQUEST_H
#define QUIRE_RUNTIME_OPENAI_REQUEST_H

#include "base/json.h"
#include "runtime/prompts/request_fields.h"

/* What the answer needs of the request. */
struct openai_request {
    enum openai_kind kind; /* OPENAI_NONE: it is none of OpenAI's */
    json_t *model;         /* a string, or NULL */
    json_t *metadata;      /* an object, or NULL */
};
void openai_request_free(struct openai_request *r); /* safe on a zeroed struct */

/* Makes of a body of out->kind an object with the fields of quire's own form (prompt.h), whose types are not checked,
 * and sets the rest of *out. *native is the caller's; NULL on failure. */
enum status openai_request_read(struct json_reader *body, struct openai_request *out, json_t **native);

#endif
