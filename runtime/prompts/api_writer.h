/* How the answers to a request of an API become the bytes of its response: a writer takes what happens to the answers
 * as events, and appends what can be sent. Each form of an API has a writer for a response that is one object, and one
 * for a stream of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html). */
#ifndef QUIRE_RUNTIME_API_WRITER_H
#define QUIRE_RUNTIME_API_WRITER_H

#include <jansson.h>

#include "base/array.h"
#include "runtime/engine/engine.h"
#include "runtime/prompts/answer_parser.h"

/* What is known of a response from its beginning. Strings outlive the writer. */
struct api_head {
    const char *id;    /* of the request, without the form's prefix ("chatcmpl-") */
    const char *model; /* as the request is answered for */
    int64_t created;   /* Unix time, seconds */
    bool stream;
    bool include_usage, continuous_usage; /* stream_options */
    bool has_logprobs;
    int32_t num_choices; /* of all prompts together: prompt p's answer i is choice p * n + i */
    const json_t *body;  /* the request */
};

struct api_usage {
    int32_t prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens;
};

enum api_event_kind {
    API_BEGIN,  /* once, first */
    API_PART,   /* of a choice */
    API_TOKEN,  /* of a choice, before the part that it makes: what was asked for beside text */
    API_FINISH, /* of a choice, its last */
    API_END,    /* once, last: usage of all */
    API_FAIL    /* once, last, instead of what is left: `error` */
};

struct api_event {
    enum api_event_kind kind;
    int32_t choice;
    const struct answer_part *part;   /* PART */
    const json_t *logprobs;           /* TOKEN: of its token, as a list of OpenAI's entries; or NULL */
    const struct answer_piece *piece; /* TOKEN, FINISH: what it came from */
    bool has_tools;                   /* FINISH: the answer is a call of tools */
    struct api_usage usage;           /* FINISH: of its prompt; END: of all */
    const struct error *error;        /* FAIL */
};

struct api_writer {
    /* Appends to *out what can be sent now. False: memory ran out. */
    bool (*take)(struct api_writer *w, const struct api_event *event, struct text *out);
    void (*free)(struct api_writer *w);
};
static inline void api_writer_free(struct api_writer *w)
{
    if (w) w->free(w);
}

/* OpenAI's "stop", "length", "tool_calls", "content_filter" (never), "error", "abort". */
const char *api_finish_reason(const struct api_event *event);
/* "data: OBJECT\n\n", with "event: NAME\n" before it unless name is NULL. Takes the object. False: memory ran out. */
bool api_write_event(struct text *out, const char *name, json_t *object);
/* Appends text[length], UTF-8, as the inside of a JSON string, without quotes. */
bool api_write_escaped(struct text *out, const char *text, size_t length);

enum status chat_writer_create(const struct api_head *head, struct api_writer **out, struct error *err);
enum status completion_writer_create(const struct api_head *head, struct api_writer **out, struct error *err);

#endif
