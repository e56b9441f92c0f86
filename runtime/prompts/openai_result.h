/* The answer to a line of an OpenAI batch, as a line of OpenAI's output file
 * (https://platform.openai.com/docs/api-reference/batch/request-output) with quire's "index" before it:
 *
 *   {"index": 0, "id": "batch_req_0", "custom_id": "a", "response": {"status_code": 200, "request_id": "req_0",
 *    "body": {...}}, "error": null}
 *
 * The body is what a server would send (api.h), with the request's metadata if it has any. A line that failed has
 * "response": null and "error": {"code": "invalid_request" or "server_error", "message", "line"}. The ids that OpenAI's
 * server makes up are made of the index, so that a run that is repeated gives the same. */
#ifndef QUIRE_RUNTIME_OPENAI_RESULT_H
#define QUIRE_RUNTIME_OPENAI_RESULT_H

#include "runtime/prompts/result.h"

/* Appends the line without its newline. False: memory ran out. */
bool openai_result_append(struct text *line, const struct result *r);

#endif
