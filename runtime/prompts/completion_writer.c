/* /v1/completions: text_completion, whole and in chunks. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "runtime/prompts/api_writer.h"

/* What is known of a choice, as JSON. In a stream only what was not sent yet: lists for the next chunk. */
struct completion_choice {
    struct completion_logprobs logprobs;
    struct text token_ids;
    struct text text;   /* the inside of a string */
    struct text prompt; /* api_write_prompt */
    struct text finish; /* api_write_finish */
};

struct completion_writer {
    struct api_writer base;
    struct api_head head;
    struct text chunk;                 /* a stream's: the beginning of each chunk, up to its choices */
    struct completion_choice *choices; /* [head.num_choices] */
};

static void free_writer(struct api_writer *base)
{
    struct completion_writer *w = (struct completion_writer *)base;
    for (int32_t i = 0; w->choices && i < w->head.num_choices; i++) {
        struct completion_choice *c = &w->choices[i];
        completion_logprobs_free(&c->logprobs);
        text_free(&c->token_ids);
        text_free(&c->text);
        text_free(&c->prompt);
        text_free(&c->finish);
    }
    free(w->choices);
    text_free(&w->chunk);
    free(w);
}

static struct token_names names_of(const struct completion_writer *w)
{
    return (struct token_names){w->head.tokenizer, w->head.names_tokens};
}

/* ,"logprobs":...,"token_ids":... */
static bool write_tokens(struct completion_writer *w, struct completion_choice *c, struct text *out)
{
    const bool ok =
        text_append_string(out, ",\"logprobs\":") &&
        (w->head.has_logprobs ? completion_logprobs_write(&c->logprobs, out) : text_append_string(out, "null"));
    return ok && api_write_token_ids(out, &w->head, &c->token_ids);
}

static bool take_token(struct completion_writer *w, const struct api_event *e)
{
    struct completion_choice *c = &w->choices[e->choice];
    bool ok = true;
    if (w->head.has_token_ids) ok = api_write_ids(&c->token_ids, e->piece->token_ids, (size_t)e->piece->num_tokens);
    if (!w->head.has_logprobs || !e->piece->logprob) return ok;
    const struct token_logprob t = token_logprob_of_answer(e->piece);
    return ok && completion_logprob_append(&c->logprobs, names_of(w), &t);
}

/* The prompt's tokens, before those of the answer. */
static bool echo_logprobs(struct completion_writer *w, const struct api_event *e, struct completion_choice *c)
{
    const struct prompt_logprobs *p = e->piece->prompt_logprobs;
    if (!w->head.has_logprobs || !p) return true;
    completion_logprobs_start(&c->logprobs, names_of(w), e->piece->prompt_ids, p->num_tokens,
                              json_string_value(e->prompt->echo));
    bool ok = completion_logprob_append_first(&c->logprobs, names_of(w), e->piece->prompt_ids[0]);
    for (int32_t i = 1; ok && i < p->num_tokens; i++) {
        const struct token_logprob t = token_logprob_of_prompt(e->piece, i);
        ok = completion_logprob_append(&c->logprobs, names_of(w), &t);
    }
    return ok;
}

/* ---- a stream ---- */

static bool begin_chunk(struct completion_writer *w, int32_t choice, struct text *out)
{
    return api_write_text(out, &w->chunk) && text_append_string(out, "{\"index\":") && api_write_integer(out, choice) &&
           text_append_string(out, ",\"text\":");
}

/* From the end of the text on. */
static bool end_chunk(struct completion_writer *w, int32_t choice, const struct api_event *e, struct text *out)
{
    struct completion_choice *c = &w->choices[choice];
    bool ok = write_tokens(w, c, out);
    if (e->kind == API_FINISH)
        ok = ok && api_write_finish(out, e);
    else
        ok = ok && text_append_string(out, API_NOT_FINISHED);
    ok = ok && api_write_text(out, &c->prompt) && text_append(out, "}", 1) &&
         api_write_chunk_end(out, &w->head, &e->usage, NULL);
    text_clear(&c->prompt);
    return ok;
}

/* What was asked for of the prompt goes with a chunk of its own, if it is echoed, else with the first one. */
static bool stream_prompt(struct completion_writer *w, const struct api_event *e, struct text *out)
{
    const json_t *echo = e->prompt->echo;
    bool ok = true;
    for (int32_t i = e->choice; ok && i < e->choice + e->num_choices; i++) {
        struct completion_choice *c = &w->choices[i];
        ok = api_write_prompt(&c->prompt, &w->head, e);
        if (w->head.echo)
            ok = ok && echo_logprobs(w, e, c) && begin_chunk(w, i, out) &&
                 api_write_string(out, json_string_value(echo), json_string_length(echo)) && end_chunk(w, i, e, out);
    }
    return ok;
}

static bool stream_event(struct api_writer *base, const struct api_event *e, struct text *out)
{
    struct completion_writer *w = (struct completion_writer *)base;
    switch (e->kind) {
    case API_BEGIN:
        return text_append_string(&w->chunk, "data: ") &&
               api_write_head(&w->chunk, &w->head, "cmpl-", "text_completion") &&
               text_append_string(&w->chunk, ",\"choices\":[");
    case API_PROMPT:
        return stream_prompt(w, e, out);
    case API_TOKEN:
        return take_token(w, e);
    case API_PART:
        return begin_chunk(w, e->choice, out) && api_write_string(out, e->part->text, e->part->length) &&
               end_chunk(w, e->choice, e, out);
    case API_FINISH:
        return begin_chunk(w, e->choice, out) && text_append(out, "\"\"", 2) && end_chunk(w, e->choice, e, out);
    case API_END:
        return api_write_stream_end(out, &w->head, &w->chunk, &e->usage);
    }
    return true;
}

/* ---- one object ---- */

static bool keep_prompt(struct completion_writer *w, const struct api_event *e)
{
    const json_t *echo = e->prompt->echo;
    bool ok = true;
    for (int32_t i = e->choice; ok && i < e->choice + e->num_choices; i++) {
        struct completion_choice *c = &w->choices[i];
        ok = api_write_prompt(&c->prompt, &w->head, e);
        if (w->head.echo)
            ok = ok && echo_logprobs(w, e, c) &&
                 json_append_escaped(&c->text, json_string_value(echo), json_string_length(echo));
    }
    return ok;
}

static bool write_choice(struct completion_writer *w, int32_t index, struct text *out)
{
    struct completion_choice *c = &w->choices[index];
    return text_append_string(out, index ? ",{\"index\":" : "{\"index\":") && api_write_integer(out, index) &&
           text_append_string(out, ",\"text\":\"") && api_write_text(out, &c->text) && text_append(out, "\"", 1) &&
           write_tokens(w, c, out) && api_write_text(out, &c->finish) && api_write_text(out, &c->prompt) &&
           text_append(out, "}", 1);
}

static bool write_object(struct completion_writer *w, const struct api_usage *usage, struct text *out)
{
    bool ok = api_write_head(out, &w->head, "cmpl-", "text_completion") && text_append_string(out, ",\"choices\":[");
    for (int32_t i = 0; ok && i < w->head.num_choices; i++) ok = write_choice(w, i, out);
    return ok && api_write_object_end(out, &w->head, usage, NULL);
}

static bool object_event(struct api_writer *base, const struct api_event *e, struct text *out)
{
    struct completion_writer *w = (struct completion_writer *)base;
    switch (e->kind) {
    case API_BEGIN:
        return true;
    case API_PROMPT:
        return keep_prompt(w, e);
    case API_TOKEN:
        return take_token(w, e);
    case API_PART:
        return json_append_escaped(&w->choices[e->choice].text, e->part->text, e->part->length);
    case API_FINISH:
        return api_write_finish(&w->choices[e->choice].finish, e);
    case API_END:
        return write_object(w, &e->usage, out);
    }
    return true;
}

struct api_writer *completion_writer_create(const struct api_head *head)
{
    struct completion_writer *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->base = (struct api_writer){head->stream ? stream_event : object_event, free_writer};
    w->head = *head;
    w->choices = calloc((size_t)head->num_choices, sizeof *w->choices);
    if (w->choices) return &w->base;
    free_writer(&w->base);
    return NULL;
}
