/* Requests that come over a network, and their responses: from the bytes of a body to requests of the engine, and from
 * pieces of answers to bytes. It knows nothing of HTTP but status codes. Bodies of /v1/chat/completions and
 * /v1/completions are those of OpenAI batch lines (openai_request.h), and more: here stream, stream_options, echo, n
 * with several prompts, tool_choice, response_format and structured_outputs have their effect. */
#ifndef QUIRE_RUNTIME_API_H
#define QUIRE_RUNTIME_API_H

#include "runtime/prompts/api_writer.h"
#include "runtime/prompts/prompt.h"

enum api_form { API_CHAT, API_COMPLETION, API_MESSAGES, API_RESPONSES };

/* What all requests of a server have in common. */
struct api_rules {
    struct prompt_rules *prompts;
    const char *model_name;               /* another is answered with 404 */
    const struct answer_format *tools, *reasoning; /* how the model writes them; NULL: not at all */
    bool return_token_ids;
    setting_speller *spell;
};

/* A request that was read. */
struct api_request {
    enum api_form form;
    json_t *body; /* as it came */
    int32_t num_prompts, n;
    struct prompt *prompts; /* [num_prompts] */
    bool stream, include_usage, continuous_usage, echo;
    bool looks_for_tools; /* it has tools, and tool_choice is not "none" */
    const json_t *tools;  /* of the body */
};
void api_request_free(struct api_request *r); /* safe on a zeroed struct */

/* What a request is refused with. */
struct api_refusal {
    int http_status;   /* 400, 401, 404, 413, 429, 500, 503 */
    const char *type;  /* "invalid_request_error", "NotFoundError", ... as vLLM has them */
    char param[64];    /* the field, or "" */
    struct error error;
};

/* Reads body[length]; true, or *refusal says why not. Any thread; the rules do not change. *out is overwritten; free it either way. */
bool api_request_read(const struct api_rules *rules, enum api_form form, const char *body, size_t length,
                      struct api_request *out, struct api_refusal *refusal);
/* Appends the body of an error response, as the form has it. */
bool api_refusal_write(enum api_form form, const struct api_refusal *refusal, struct text *out);

/* The response to a request. One thread at a time. */
struct api_response;
enum status api_response_create(const struct api_rules *rules, struct api_request *request, const char *id,
                                struct api_response **out, struct error *err); /* refers to the request */
void api_response_free(struct api_response *r); /* NULL is allowed */
/* Takes a piece of the answers to prompt p; appends to *out what can be sent now. In a response that is one object that
 * is nothing until all answers have ended. False: memory ran out. */
bool api_response_take(struct api_response *r, int32_t prompt, const struct answer_piece *piece, struct text *out);
bool api_response_is_whole(const struct api_response *r); /* all has been appended */
/* 200; else it is an error and must be sent as such: known once *out is not empty. */
int api_response_status(const struct api_response *r);
struct api_usage api_response_usage(const struct api_response *r);

#endif
