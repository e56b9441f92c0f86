/* Lines of OpenAI's batch files (https://platform.openai.com/docs/api-reference/batch/request-input):
 *
 *   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [...]}}
 *
 * or "/v1/completions" with "prompt" in the body. The fields of the body:
 *
 *   taken       messages or prompt, tools, n, temperature, top_p, max_tokens, max_completion_tokens, stop, seed,
 *               logit_bias, presence_penalty, frequency_penalty, logprobs, top_logprobs, best_of; and, as vLLM's server
 *               takes them, the sampling fields that OpenAI does not have, documents, chat_template_kwargs, cache_salt
 *               and priority
 *   returned    model, metadata
 *   no effect   stream, stream_options, user, store, service_tier, safety_identifier, prompt_cache_key,
 *               parallel_tool_calls; response_format {"type": "text"}; tool_choice "auto"; modalities ["text"]; echo
 *               false; suffix ""
 *
 * tool_choice "none" leaves the tools out of the prompt, as the model must not call them. Every other field, and every
 * other value of these, is refused by name, because the answer would not be what it asks for. */
#ifndef QUIRE_RUNTIME_OPENAI_BATCH_H
#define QUIRE_RUNTIME_OPENAI_BATCH_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"
#include "runtime/prompts/request_fields.h"

/* What the answer needs of the line. */
struct openai_request {
    enum openai_kind kind; /* OPENAI_NONE: the line is not of a batch */
    json_t *model;         /* a string, or NULL */
    json_t *metadata;      /* an object, or NULL */
};
void openai_request_free(struct openai_request *r); /* safe on a zeroed struct */

/* It has url and body. */
bool openai_batch_is_line(const json_t *line);

/* Fills *out, and makes of the body an object with the fields that quire's own lines have (prompt.h), but no id; their
 * types are not checked. *native is the caller's; NULL on failure. *out is overwritten, and `kind` is set also if the
 * line is refused: that of a url that is wrong is OPENAI_CHAT. */
enum status openai_batch_read(const json_t *line, struct openai_request *out, json_t **native, struct error *err);

#endif
