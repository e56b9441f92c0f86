#include "runtime/prompts/openai_result.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* The id of one of the things that OpenAI's server numbers. */
struct made_id {
    char text[48];
};

static struct made_id make_id(const char *prefix, const struct result *r)
{
    struct made_id id;
    snprintf(id.text, sizeof id.text, "%s%lld", prefix, (long long)r->place.index);
    return id;
}

/* ---- log-probabilities: from the list that result.c gathers ---- */

/* The text of a token; without a tokenizer its number, as vLLM writes it. */
static json_t *token_text(const json_t *token)
{
    const json_t *text = json_object_get(token, "token");
    if (text) return json_incref((json_t *)text);
    return json_sprintf("token_id:%lld", (long long)json_integer_value(json_object_get(token, "token_id")));
}

static json_t *token_logprob(const json_t *token)
{
    return json_incref(json_object_get(token, "logprob"));
}

/* A token may be a part of a character, which its text cannot show. */
static json_t *token_bytes(const struct tokenizer *tokenizer, const json_t *token)
{
    const json_int_t id = json_integer_value(json_object_get(token, "token_id"));
    json_t *list = json_array();
    size_t length = 0;
    if (!tokenizer || id >= tokenizer_size(tokenizer)) {
        json_decref(list);
        return json_null();
    }
    const char *bytes = tokenizer_token_bytes(tokenizer, (int32_t)id, true, &length);
    for (size_t i = 0; i < length && list; i++) json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    return list;
}

/* {"token", "logprob", "bytes"} */
static json_t *chat_token(const struct tokenizer *tokenizer, const json_t *token)
{
    return json_pack("{s:o, s:o, s:o}", "token", token_text(token), "logprob", token_logprob(token), "bytes",
                     token_bytes(tokenizer, token));
}

static json_t *chat_logprobs(const struct tokenizer *tokenizer, const json_t *list)
{
    json_t *content = json_array();
    size_t i, k;
    const json_t *entry, *candidate;
    json_array_foreach((json_t *)list, i, entry)
    {
        json_t *token = chat_token(tokenizer, entry), *top = json_array();
        json_array_foreach(json_object_get(entry, "top"), k, candidate)
            json_array_append_new(top, chat_token(tokenizer, candidate));
        json_object_set_new(token, "top_logprobs", top);
        if (json_array_append_new(content, token) != 0) return NULL;
    }
    return json_pack("{s:o}", "content", content);
}

static size_t count_characters(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* {"text": logprob} of the most probable tokens; null where none are asked for. */
static json_t *completion_top(const json_t *candidates)
{
    if (json_array_size(candidates) == 0) return json_null();
    json_t *top = json_object();
    const json_t *candidate;
    size_t i;
    json_array_foreach((json_t *)candidates, i, candidate)
    {
        json_t *text = token_text(candidate);
        json_object_set_new(top, json_string_value(text), token_logprob(candidate));
        json_decref(text);
    }
    return top;
}

static json_t *completion_logprobs(const json_t *list)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array(), *offsets = json_array();
    const json_t *entry;
    size_t i, offset = 0;
    json_array_foreach((json_t *)list, i, entry)
    {
        json_t *text = token_text(entry);
        json_array_append_new(offsets, json_integer((json_int_t)offset));
        offset += count_characters(json_string_value(text), json_string_length(text));
        json_array_append_new(tokens, text);
        json_array_append_new(logprobs, token_logprob(entry));
        json_array_append_new(tops, completion_top(json_object_get(entry, "top")));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs, "top_logprobs", tops,
                     "text_offset", offsets);
}

/* ---- the body ---- */

static json_t *answer_logprobs(const struct result *r, const struct result_answer *a)
{
    if (!a->logprobs) return json_null();
    return r->openai.kind == OPENAI_CHAT ? chat_logprobs(r->rules->tokenizer, a->logprobs)
                                         : completion_logprobs(a->logprobs);
}

static json_t *choice_json(const struct result *r, int32_t index)
{
    const struct result_answer *a = &r->answers[index];
    json_t *choice = json_pack("{s:i}", "index", (int)index);
    bool ok = choice != NULL;
    if (ok && r->openai.kind == OPENAI_CHAT)
        ok = json_object_set_new(
                 choice, "message",
                 json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", result_answer_text(a), "refusal")) == 0;
    else if (ok)
        ok = json_object_set_new(choice, "text", result_answer_text(a)) == 0;
    ok = ok && json_object_set_new(choice, "logprobs", answer_logprobs(r, a)) == 0 &&
         json_object_set_new(choice, "finish_reason", result_answer_reason(a)) == 0 &&
         (!a->token_ids || json_object_set(choice, "token_ids", a->token_ids) == 0);
    if (ok) return choice;
    json_decref(choice);
    return NULL;
}

static json_t *usage_json(const struct result *r)
{
    const json_int_t output = result_output_tokens(r);
    return json_pack("{s:i, s:I, s:I, s:{s:i}}", "prompt_tokens", (int)r->prompt_tokens, "completion_tokens", output,
                     "total_tokens", r->prompt_tokens + output, "prompt_tokens_details", "cached_tokens",
                     (int)r->cached_tokens);
}

static json_t *body_json(const struct result *r)
{
    const bool chat = r->openai.kind == OPENAI_CHAT;
    json_t *choices = json_array();
    bool ok = choices != NULL;
    for (int32_t i = 0; ok && i < r->n; i++) ok = json_array_append_new(choices, choice_json(r, i)) == 0;
    json_t *body =
        json_pack("{s:s, s:s, s:I, s:s, s:o, s:o}", "id", make_id(chat ? "chatcmpl-" : "cmpl-", r).text, "object",
                  chat ? "chat.completion" : "text_completion", "created", (json_int_t)time(NULL), "model",
                  r->rules->model_name ? r->rules->model_name : "", "choices", choices, "usage", usage_json(r));
    if (ok && body && r->openai.metadata) ok = json_object_set(body, "metadata", r->openai.metadata) == 0;
    if (ok && body) return body;
    json_decref(body);
    return NULL;
}

/* ---- the line ---- */

static json_t *response_json(const struct result *r)
{
    if (r->error) return json_null();
    return json_pack("{s:i, s:s, s:o}", "status_code", 200, "request_id", make_id("req_", r).text, "body",
                     body_json(r));
}

static json_t *error_json(const struct result *r)
{
    if (!r->error) return json_null();
    json_t *message = result_json_text(r->error, strlen(r->error));
    return json_pack("{s:s, s:o, s:I}", "code", r->refused ? "invalid_request" : "server_error", "message", message,
                     "line", (json_int_t)r->place.line);
}

bool openai_result_fill(json_t *line, const struct result *r)
{
    return json_object_set_new(line, "id", json_string(make_id("batch_req_", r).text)) == 0 &&
           json_object_set_new(line, "custom_id", r->id ? json_incref(r->id) : json_null()) == 0 &&
           json_object_set_new(line, "response", response_json(r)) == 0 &&
           json_object_set_new(line, "error", error_json(r)) == 0;
}
