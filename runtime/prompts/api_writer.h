/* How the answers to a request of an API become the bytes of its response: a writer takes what happens to the answers
 * as events, and appends what can be sent. Each form of an API has a writer, for a response that is one object and for
 * a stream of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html). */
#ifndef QUIRE_RUNTIME_API_WRITER_H
#define QUIRE_RUNTIME_API_WRITER_H

#include "base/array.h"
#include "runtime/engine/engine.h"
#include "runtime/prompts/answer_parser.h"
#include "runtime/prompts/logprob_text.h"
#include "runtime/prompts/prompt.h"

/* What is known of a response from its beginning. What the pointers point to outlives the writer. */
struct api_head {
    const char *id;                    /* of the request, without the form's prefix ("chatcmpl-") */
    const char *model;                 /* as the request is answered for */
    int64_t created;                   /* Unix time, seconds */
    const json_t *metadata;            /* that the response gives back, or NULL */
    const json_t *repeated;            /* struct api_request */
    const struct tokenizer *tokenizer; /* or NULL */
    bool stream;
    bool include_usage, continuous_usage; /* stream_options */
    bool has_logprobs, has_token_ids;     /* they were asked for */
    bool names_tokens;                    /* struct openai_request */
    bool echo, only_echo;
    int32_t num_choices; /* of all prompts together: prompt p's answer i is choice p * n + i */
};

struct api_usage {
    int32_t prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens;
};

enum api_event_kind {
    API_BEGIN,  /* once, first */
    API_PROMPT, /* of each prompt, before what comes of its choices */
    API_TOKEN,  /* of a choice, before the parts that it makes: what was asked for beside text */
    API_PART,   /* of a choice */
    API_FINISH, /* of a choice, its last */
    API_END     /* once, last */
};

struct api_event {
    enum api_event_kind kind;
    int32_t choice;                   /* PROMPT: the first of its num_choices */
    int32_t num_choices;              /* PROMPT */
    const struct prompt *prompt;      /* PROMPT */
    const struct answer_part *part;   /* PART; a call of a tool has an id */
    const struct answer_piece *piece; /* PROMPT, TOKEN, FINISH: what it came from */
    bool has_tools;                   /* FINISH: the answer is a call of tools */
    struct api_usage usage;           /* of all answers so far */
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

/* NULL: memory ran out. */
struct api_writer *chat_writer_create(const struct api_head *head);
struct api_writer *completion_writer_create(const struct api_head *head);

/* ---- what writers share; false: memory ran out ---- */

/* ,"finish_reason":...,"stop_reason":... of a choice: OpenAI's "stop", "length", "tool_calls", or vLLM's "abort"; and
 * null, the stop string, or the stop token's id. */
bool api_write_finish(struct text *out, const struct api_event *finish);
#define API_NOT_FINISHED ",\"finish_reason\":null"
/* {"prompt_tokens":...} */
bool api_write_usage(struct text *out, const struct api_usage *usage);
/* {"id":...,"object":OBJECT,"created":...,"model":... without the closing brace; `prefix` is the id's. */
bool api_write_head(struct text *out, const struct api_head *head, const char *prefix, const char *object);
/* What follows the choices of a response that is one object, from their "]" on: the usage, `prompt` (api_write_prompt;
 * NULL: nothing) and the metadata. */
bool api_write_object_end(struct text *out, const struct api_head *head, const struct api_usage *usage,
                          const struct text *prompt);
/* What follows the choices of a chunk of a stream, from their "]" to the end of the event; with api_write_prompt of
 * `prompt`, unless that is NULL. */
bool api_write_chunk_end(struct text *out, const struct api_head *head, const struct api_usage *usage,
                         const struct api_event *prompt);
/* The end of a stream: what `chunk`, the beginning of all chunks, begins, without choices and with the usage, where
 * that is wanted; and OpenAI's last event. */
bool api_write_stream_end(struct text *out, const struct api_head *head, const struct text *chunk,
                          const struct api_usage *usage);
/* ,"token_ids":[...] where they were asked for; empties the list. */
bool api_write_token_ids(struct text *out, const struct api_head *head, struct text *list);
/* ,"prompt_logprobs":...,"prompt_token_ids":[...], as far as they were asked for. */
bool api_write_prompt(struct text *out, const struct api_head *head, const struct api_event *prompt);

#endif
