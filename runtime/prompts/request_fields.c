#include "runtime/prompts/request_fields.h"

#include <stddef.h>
#include <string.h>

#include "scheduler/sampling_params.h"

static const struct {
    const char *name;
    enum field_use use[3]; /* by enum openai_kind; what is left out is FIELD_UNKNOWN */
} fields[] = {
    /* quire's own, chat, completion */
    {"prompt", {FIELD_TAKEN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"prompt_token_ids", {FIELD_TAKEN}},
    {"messages", {FIELD_TAKEN, FIELD_TAKEN}},
    {"tools", {FIELD_TAKEN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"reasoning_effort", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"tool_choice", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"parallel_tool_calls", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"include_reasoning", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"documents", {FIELD_TAKEN, FIELD_TAKEN}},
    {"chat_template_kwargs", {FIELD_TAKEN, FIELD_TAKEN}},
    {"add_generation_prompt", {FIELD_TAKEN, FIELD_TAKEN}},
    {"continue_final_message", {FIELD_TAKEN, FIELD_TAKEN}},
    {"add_special_tokens", {FIELD_TAKEN, FIELD_TRANSLATED, FIELD_TAKEN}},
    {"id", {FIELD_TAKEN}},
    {"custom_id", {FIELD_TAKEN}},
    {"cache_salt", {FIELD_TAKEN, FIELD_TAKEN, FIELD_TAKEN}},
    {"priority", {FIELD_TAKEN, FIELD_TAKEN, FIELD_TAKEN}},
    {"response_format", {FIELD_TAKEN, FIELD_TAKEN, FIELD_TAKEN}},
    {"structured_outputs", {FIELD_TAKEN, FIELD_TAKEN, FIELD_TAKEN}},
    {"max_tokens", {FIELD_TAKEN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"max_completion_tokens", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"logprobs", {FIELD_TAKEN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"top_logprobs", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"model", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"metadata", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"echo", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"stream", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"stream_options", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"return_token_ids", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"return_tokens_as_token_ids", {FIELD_UNKNOWN, FIELD_TRANSLATED, FIELD_TRANSLATED}},
    {"user", {FIELD_UNKNOWN, FIELD_IGNORED, FIELD_IGNORED}},
    {"store", {FIELD_UNKNOWN, FIELD_IGNORED, FIELD_IGNORED}},
    {"service_tier", {FIELD_UNKNOWN, FIELD_IGNORED, FIELD_IGNORED}},
    {"safety_identifier", {FIELD_UNKNOWN, FIELD_IGNORED, FIELD_IGNORED}},
    {"prompt_cache_key", {FIELD_UNKNOWN, FIELD_IGNORED, FIELD_IGNORED}},
    {"prompt_cache_retention", {FIELD_UNKNOWN, FIELD_IGNORED, FIELD_IGNORED}},
};

enum field_use request_field_use(enum openai_kind kind, const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(name, fields[i].name) == 0) return fields[i].use[kind];
    return sampling_field_find(name) ? FIELD_TAKEN : FIELD_UNKNOWN;
}
