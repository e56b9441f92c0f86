/* The answer to a line of an OpenAI batch, as a line of OpenAI's output file
 * (https://platform.openai.com/docs/api-reference/batch/request-output) with quire's "index" before it:
 *
 *   {"index": 0, "id": "batch_req_0", "custom_id": "a", "response": {"status_code": 200, "request_id": "req_0",
 *    "body": {...}}, "error": null}
 *
 * The body is a chat.completion or a text_completion, with the request's metadata if it has any. A line that failed has
 * "response": null and "error": {"code": "invalid_request" or "server_error", "message", "line"}. The ids that OpenAI's
 * server makes up are made of the index, so that a run that is repeated gives the same. */
#ifndef QUIRE_RUNTIME_OPENAI_RESULT_H
#define QUIRE_RUNTIME_OPENAI_RESULT_H

#include "runtime/prompts/result.h"

/* Adds everything but the index to `line`. False: memory ran out. */
bool openai_result_fill(json_t *line, const struct result *r);

#endif
