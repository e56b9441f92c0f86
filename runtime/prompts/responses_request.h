/* OpenAI's newer form, the body of /v1/responses (https://platform.openai.com/docs/api-reference/responses), and its
 * responses.
 *
 *   taken       input (a text, or messages, function calls, their outputs and reasoning), instructions,
 *               max_output_tokens, temperature, top_p, stream, tools of type function, tool_choice,
 *               parallel_tool_calls, reasoning.effort, text.format, metadata; and the sampling fields of
 *               scheduler/sampling_params.h that the form has not, cache_salt, priority and chat_template_kwargs
 *   no effect   store, user, service_tier, safety_identifier, prompt_cache_key, prompt_cache_retention, stream_options,
 *               reasoning.summary, text.verbosity; truncation "disabled", background false, include of encrypted
 * reasoning
 *
 * quire keeps no responses: previous_response_id and conversation are refused, and so is every other field and kind of
 * input, by name. */
#ifndef QUIRE_RUNTIME_RESPONSES_REQUEST_H
#define QUIRE_RUNTIME_RESPONSES_REQUEST_H

#include "base/json.h"
#include "runtime/prompts/api_writer.h"

/* Makes of the body one of /v1/chat/completions, whose values are not checked. *chat is the caller's; NULL on failure.
 */
enum status responses_to_chat(struct json_reader *body, json_t **chat);
/* The fields of the body that a response repeats, with their defaults: an object that the caller owns. NULL: memory ran
 * out. */
json_t *responses_repeated(const json_t *body);

/* NULL: memory ran out. */
struct api_writer *responses_writer_create(const struct api_head *head);

#endif
