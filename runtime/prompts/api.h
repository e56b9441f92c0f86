/* Requests that come over a network, and their responses: from the bytes of a body to requests of the engine, and from
 * pieces of answers to bytes. It knows nothing of HTTP but status codes. Bodies of /v1/chat/completions and
 * /v1/completions are those of OpenAI batch lines (openai_request.h), and more: here stream, stream_options and several
 * prompts of one completion have their effect. Those of /v1/messages and
 * /v1/responses are translated (messages_request.h, responses_request.h). */
#ifndef QUIRE_RUNTIME_API_H
#define QUIRE_RUNTIME_API_H

#include "runtime/prompts/api_writer.h"
#include "runtime/prompts/prompt.h"

enum api_form { API_CHAT, API_COMPLETION, API_MESSAGES, API_RESPONSES };

/* What all requests of a server have in common. */
struct api_rules {
    struct prompt_rules *prompts;
    const char *const *model_names; /* ended by NULL: a request may name any of these, another is answered with 404; the
                                       first is the name in responses */
    bool return_token_ids;          /* of all requests */
    setting_speller *spell;         /* of the settings that an error advises; NULL: they are named as they are */
};

/* A request that was read. Prompt p's answer i is choice p * n + i of the response. */
struct api_request {
    enum api_form form;
    int32_t num_prompts, n;
    struct prompt *prompts; /* [num_prompts]; prompts[0].openai is that of all */
    json_t *repeated;       /* of /v1/responses: responses_repeated; else NULL */
};
void api_request_free(struct api_request *r); /* safe on a zeroed struct */

/* What a request is refused with. */
struct api_refusal {
    int http_status;  /* 400, 401, 404, 413, 429, 500, 503 */
    const char *type; /* NULL: "invalid_request_error", "server_error" or another of OpenAI's, by the status */
    char param[64];   /* the field, or "" */
    struct error error;
};
/* Fills it for a request that could not be read, or that the engine does not take. */
void api_refuse(const struct api_rules *rules, enum status status, const struct error *err, struct api_refusal *out);

/* Reads body[length]; true, or *refusal says why not. Any thread; the rules do not change. *out is overwritten; free it
 * either way. */
bool api_request_read(const struct api_rules *rules, enum api_form form, const char *body, size_t length,
                      struct api_request *out, struct api_refusal *refusal);
/* Appends the body of an error response, as the form has it: OpenAI's {"error": {"message", "type", "param", "code"}}.
 * False: memory ran out. */
bool api_refusal_write(enum api_form form, const struct api_refusal *refusal, struct text *out);

/* The response to a request. One thread at a time. */
struct api_response;
/* `id` is that of the request, without OpenAI's prefix; it is copied. Refers to the request. */
enum status api_response_create(const struct api_rules *rules, const struct api_request *request, const char *id,
                                struct api_response **out, struct error *err);
void api_response_free(struct api_response *r); /* NULL is allowed */
/* Takes a piece of the answers to prompt `prompt`; appends to *out what can be sent now. In a response that is one
 * object that is nothing until all answers have ended. A piece after the whole response is ignored: an error of one
 * answer ends all. False: memory ran out, and the response cannot go on. */
bool api_response_take(struct api_response *r, int32_t prompt, const struct answer_piece *piece, struct text *out);
/* Ends it with an error, instead of what is left. Nothing happens if it is whole. */
bool api_response_fail(struct api_response *r, const struct api_refusal *refusal, struct text *out);
bool api_response_is_whole(const struct api_response *r); /* all has been appended */
/* 200; else it is an error and must be sent as such: known once *out is not empty. */
int api_response_status(const struct api_response *r);
bool api_response_is_stream(const struct api_response *r); /* text/event-stream; else application/json */
struct api_usage api_response_usage(const struct api_response *r);

#endif
