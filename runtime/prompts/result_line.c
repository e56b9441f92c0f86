#include "runtime/prompts/result_line.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "runtime/prompts/openai_result.h"

static json_t *answer_token_ids(const struct result_answer *a)
{
    return json_incref(a->token_ids);
}

static json_t *answer_logprobs(const struct result_answer *a)
{
    return json_incref(a->logprobs);
}

static json_t *answer_reasoning(const struct result_answer *a)
{
    const struct text *text = &a->parts->reasoning;
    return json_stringn(text->data ? text->data : "", text->length);
}

static json_t *answer_calls(const struct result_answer *a)
{
    return json_incref(a->parts->calls);
}

/* Sets `one` to the only answer's value, or `several` to the list of all answers' values. */
static bool set_values(json_t *object, const struct result *r, const char *one, const char *several,
                       json_t *(*value)(const struct result_answer *))
{
    if (r->n == 1) return json_object_set_new(object, one, value(&r->answers[0])) == 0;
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int32_t i = 0; ok && i < r->n; i++) ok = json_array_append_new(list, value(&r->answers[i])) == 0;
    if (ok) return json_object_set_new(object, several, list) == 0;
    json_decref(list);
    return false;
}

static bool set_answers(json_t *object, const struct result *r)
{
    const struct result_answer *first = &r->answers[0];
    const bool has_reasoning = first->parts && r->prompt.parts.reasoning;
    const bool has_tools = first->parts && r->prompt.parts.tools;
    char scores[32];
    snprintf(scores, sizeof scores, "%ss", r->score_name ? r->score_name : "");
    return set_values(object, r, "text", "texts", result_answer_text) &&
           (!has_reasoning || set_values(object, r, "reasoning", "reasoning", answer_reasoning)) &&
           (!has_tools || set_values(object, r, "tool_calls", "tool_calls", answer_calls)) &&
           set_values(object, r, "finish_reason", "finish_reasons", result_answer_reason) &&
           json_object_set_new(object, "prompt_tokens", json_integer(r->prompt_tokens)) == 0 &&
           json_object_set_new(object, "cached_tokens", json_integer(r->cached_tokens)) == 0 &&
           json_object_set_new(object, "completion_tokens", json_integer(result_output_tokens(r))) == 0 &&
           (!r->prompt_logprobs || json_object_set(object, "prompt_logprobs", r->prompt_logprobs) == 0) &&
           (!r->score_name || set_values(object, r, r->score_name, scores, result_answer_score)) &&
           (!first->token_ids || set_values(object, r, "token_ids", "token_ids", answer_token_ids)) &&
           (!first->logprobs || set_values(object, r, "logprobs", "logprobs", answer_logprobs));
}

static json_t *result_json(const struct result *r)
{
    json_t *object = json_object();
    bool ok = object && json_object_set_new(object, "index", json_integer(r->place.index)) == 0;
    if (ok && r->prompt.id) ok = json_object_set(object, "id", r->prompt.id) == 0;
    if (ok && r->error)
        ok = json_object_set_new(object, "line", json_integer(r->place.line)) == 0 &&
             json_object_set_new(object, "error", result_json_text(r->error, strlen(r->error))) == 0;
    else if (ok)
        ok = set_answers(object, r);
    if (ok) return object;
    json_decref(object);
    return NULL;
}

static bool append_own(struct text *line, const struct result *r)
{
    const size_t style = JSON_REAL_PRECISION(9); /* 9 digits tell every float32 apart */
    json_t *object = result_json(r);
    const bool ok = object && json_append(line, object, style);
    json_decref(object);
    return ok;
}

enum status result_format(const struct result *r, struct text *line, struct error *err)
{
    text_clear(line);
    if ((r->prompt.openai.kind ? openai_result_append(line, r) : append_own(line, r)) && text_append_string(line, "\n"))
        return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the answer to line %lld", (long long)r->place.line);
}
