/* Lines of OpenAI's batch files (https://platform.openai.com/docs/api-reference/batch/request-input):
 *
 *   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [...]}}
 *
 * or "/v1/completions" with "prompt" in the body (openai_request.h). */
#ifndef QUIRE_RUNTIME_OPENAI_BATCH_H
#define QUIRE_RUNTIME_OPENAI_BATCH_H

#include "runtime/prompts/openai_request.h"

/* It has url and body. */
bool openai_batch_is_line(const json_t *line);

/* Reads the line's body as openai_request_read does. *out is overwritten, and `kind` is set also if the line is
 * refused: that of a url that is wrong is OPENAI_CHAT. */
enum status openai_batch_read(const json_t *line, const struct answer_format *tools, struct openai_request *out,
                              json_t **native, struct error *err);

#endif
