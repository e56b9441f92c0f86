/* What `quire generate` writes: one line, one JSON object, for each line that it read.
 *
 *   {"index": 0, "id": ..., "text": "...", "finish_reason": "stop", "prompt_tokens": 5, "cached_tokens": 0,
 *    "completion_tokens": 9}
 *
 * with "token_ids", "logprobs" and "prompt_logprobs" where they are asked for, with "score" after a beam search and
 * "cumulative_logprob" with best_of. With n > 1 "texts", "finish_reasons", "scores" and "cumulative_logprobs" are
 * lists, and so are the token_ids and logprobs of each answer. Where answers are taken apart, "text" is what is left of
 * them beside "reasoning", and "tool_calls", a list as a message of OpenAI's has it. A line that failed gives {"index":
 * ..., "id": ..., "line": 7, "error": "line 7: ..."}. The index, which is the first key of every line, counts the
 * prompts of the input from 0; "line" counts all lines of its file from 1, blank ones included. The id is the line's
 * own "id" or "custom_id", and absent where the line has none.
 *
 * A line of an OpenAI batch is answered as OpenAI does (openai_result.h). */
#ifndef QUIRE_RUNTIME_RESULT_LINE_H
#define QUIRE_RUNTIME_RESULT_LINE_H

#include "runtime/prompts/result.h"

/* Puts the line, with its newline, in place of what *line held. */
enum status result_format(const struct result *r, struct text *line, struct error *err);

#endif
