#include "runtime/prompts/api_writer.h"

#include <string.h>

#include "base/json.h"
#include "scheduler/sequence.h"

static const char *finish_name(const struct api_event *finish)
{
    const enum finish_reason reason = finish->piece->finish_reason;
    return reason == FINISH_STOP && finish->has_tools ? "tool_calls" : finish_reason_name(reason);
}

bool api_write_finish(struct text *out, const struct api_event *finish)
{
    const struct answer_piece *piece = finish->piece;
    const char *name = finish_name(finish), *stop = piece->stop_reason;
    const bool ok = text_append_string(out, ",\"finish_reason\":") &&
                    api_write_string(out, name, name ? strlen(name) : 0) &&
                    text_append_string(out, ",\"stop_reason\":");
    if (ok && !stop && piece->stop_token >= 0) return api_write_integer(out, piece->stop_token);
    return ok && api_write_string(out, stop, stop ? strlen(stop) : 0);
}

bool api_write_usage(struct text *out, const struct api_usage *u)
{
    return text_append_string(out, "{\"prompt_tokens\":") && api_write_integer(out, u->prompt_tokens) &&
           text_append_string(out, ",\"completion_tokens\":") && api_write_integer(out, u->completion_tokens) &&
           text_append_string(out, ",\"total_tokens\":") &&
           api_write_integer(out, (int64_t)u->prompt_tokens + u->completion_tokens) &&
           text_append_string(out, ",\"prompt_tokens_details\":{\"cached_tokens\":") &&
           api_write_integer(out, u->cached_tokens) &&
           text_append_string(out, "},\"completion_tokens_details\":{\"reasoning_tokens\":") &&
           api_write_integer(out, u->reasoning_tokens) && text_append_string(out, "}}");
}

bool api_write_head(struct text *out, const struct api_head *head, const char *prefix, const char *object)
{
    return text_append_string(out, "{\"id\":\"") && text_append_string(out, prefix) &&
           json_append_escaped(out, head->id, strlen(head->id)) && text_append_string(out, "\",\"object\":") &&
           api_write_string(out, object, strlen(object)) && text_append_string(out, ",\"created\":") &&
           api_write_integer(out, head->created) && text_append_string(out, ",\"model\":") &&
           api_write_string(out, head->model, strlen(head->model));
}

bool api_write_prompt(struct text *out, const struct api_head *head, const struct api_event *prompt)
{
    const struct token_names names = {head->tokenizer, head->names_tokens};
    const struct token_list *tokens = &prompt->prompt->tokens;
    struct text ids = {0};
    bool ok = true;
    if (prompt->piece->prompt_logprobs && !prompt->prompt->openai.implies_prompt_logprobs)
        ok = text_append_string(out, ",\"prompt_logprobs\":") && prompt_logprobs_write(out, names, prompt->piece);
    if (head->has_token_ids)
        ok = ok && api_write_ids(&ids, tokens->ids, tokens->count) &&
             text_append_string(out, ",\"prompt_token_ids\":[") && api_write_text(out, &ids) &&
             text_append(out, "]", 1);
    text_free(&ids);
    return ok;
}

bool api_write_object_end(struct text *out, const struct api_head *head, const struct api_usage *usage,
                          const struct text *prompt)
{
    bool ok = text_append_string(out, "],\"usage\":") && api_write_usage(out, usage);
    if (prompt) ok = ok && api_write_text(out, prompt);
    if (head->metadata)
        ok = ok && text_append_string(out, ",\"metadata\":") && json_append(out, head->metadata, JSON_COMPACT);
    return ok && text_append(out, "}", 1);
}

bool api_write_chunk_end(struct text *out, const struct api_head *head, const struct api_usage *usage,
                         const struct api_event *prompt)
{
    bool ok = text_append(out, "]", 1);
    if (head->continuous_usage)
        ok = ok && text_append_string(out, ",\"usage\":") && api_write_usage(out, usage);
    else if (head->include_usage)
        ok = ok && text_append_string(out, ",\"usage\":null");
    if (prompt) ok = ok && api_write_prompt(out, head, prompt);
    return ok && text_append(out, "}\n\n", 3);
}

bool api_write_stream_end(struct text *out, const struct api_head *head, const struct text *chunk,
                          const struct api_usage *usage)
{
    bool ok = true;
    if (head->include_usage)
        ok = api_write_text(out, chunk) && text_append_string(out, "],\"usage\":") && api_write_usage(out, usage) &&
             text_append(out, "}\n\n", 3);
    return ok && text_append_string(out, "data: [DONE]\n\n");
}

bool api_write_token_ids(struct text *out, const struct api_head *head, struct text *list)
{
    if (!head->has_token_ids) return true;
    const bool ok =
        text_append_string(out, ",\"token_ids\":[") && api_write_text(out, list) && text_append(out, "]", 1);
    text_clear(list);
    return ok;
}
