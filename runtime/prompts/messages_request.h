/* Anthropic's form of a conversation, the body of /v1/messages (https://docs.anthropic.com/en/api/messages), and its
 * responses.
 *
 *   taken       messages, system, max_tokens, temperature, top_p, top_k, stop_sequences, stream, tools, tool_choice,
 *               thinking (as enable_thinking, a value for the template); and the sampling fields of
 *               scheduler/sampling_params.h that the form has not, cache_salt, priority, chat_template_kwargs,
 *               response_format and structured_outputs
 *   no effect   metadata, service_tier, cache_control of a block, the signature of a thought
 *
 * Blocks of a message may be text, thinking, tool_use and tool_result. Any other block (image, document, what a server
 * of Anthropic's runs) and any other field is refused by name. A last message of the assistant is gone on with. */
#ifndef QUIRE_RUNTIME_MESSAGES_REQUEST_H
#define QUIRE_RUNTIME_MESSAGES_REQUEST_H

#include "base/json.h"
#include "runtime/prompts/api_writer.h"

/* Makes of the body one of /v1/chat/completions, whose values are not checked. *chat is the caller's; NULL on failure.
 */
enum status messages_to_chat(struct json_reader *body, json_t **chat);

/* {"type": "error", "error": {"type", "message"}}. False: memory ran out. */
bool messages_error_write(int http_status, const struct text *message, struct text *out);

/* NULL: memory ran out. */
struct api_writer *messages_writer_create(const struct api_head *head);

#endif
