/* /v1/chat/completions: chat.completion, and chat.completion.chunk. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "runtime/prompts/api_writer.h"

/* What is known of a choice, as JSON. In a stream only what was not sent yet: lists for the next chunk. */
struct chat_choice {
    struct text logprobs, token_ids;       /* entries of lists */
    struct text content, reasoning, calls; /* insides of strings; entries of the list tool_calls */
    struct text finish;                    /* api_write_finish */
};

struct chat_writer {
    struct api_writer base;
    struct api_head head;
    struct text chunk;           /* a stream's: the beginning of each chunk, up to its choices */
    struct text prompt;          /* api_write_prompt */
    struct chat_choice *choices; /* [head.num_choices] */
};

static void free_writer(struct api_writer *base)
{
    struct chat_writer *w = (struct chat_writer *)base;
    for (int32_t i = 0; w->choices && i < w->head.num_choices; i++) {
        struct chat_choice *c = &w->choices[i];
        text_free(&c->logprobs);
        text_free(&c->token_ids);
        text_free(&c->content);
        text_free(&c->reasoning);
        text_free(&c->calls);
        text_free(&c->finish);
    }
    free(w->choices);
    text_free(&w->chunk);
    text_free(&w->prompt);
    free(w);
}

/* ,"logprobs":...,"token_ids":... */
static bool write_tokens(struct chat_writer *w, struct chat_choice *c, struct text *out)
{
    bool ok;
    if (w->head.has_logprobs)
        ok = text_append_string(out, ",\"logprobs\":{\"content\":[") && api_write_text(out, &c->logprobs) &&
             text_append_string(out, "],\"refusal\":null}");
    else
        ok = text_append_string(out, ",\"logprobs\":null");
    text_clear(&c->logprobs);
    return ok && api_write_token_ids(out, &w->head, &c->token_ids);
}

static bool take_token(struct chat_writer *w, const struct api_event *e)
{
    struct chat_choice *c = &w->choices[e->choice];
    bool ok = true;
    if (w->head.has_token_ids) ok = api_write_ids(&c->token_ids, e->piece->token_ids, (size_t)e->piece->num_tokens);
    if (!w->head.has_logprobs || !e->piece->logprob) return ok;
    const struct token_logprob t = token_logprob_of_answer(e->piece);
    const struct token_names names = {w->head.tokenizer, w->head.names_tokens};
    return ok && chat_logprob_append(&c->logprobs, names, &t);
}

/* The members of a call, up to the inside of its arguments. */
static bool write_call(struct text *out, const struct answer_part *part)
{
    return text_append_string(out, "\"id\":") && api_write_string(out, part->id, strlen(part->id)) &&
           text_append_string(out, ",\"type\":\"function\",\"function\":{\"name\":") &&
           api_write_string(out, part->text, part->length) && text_append_string(out, ",\"arguments\":\"");
}

/* ---- a stream ---- */

static bool begin_chunk(struct chat_writer *w, int32_t choice, struct text *out)
{
    return api_write_text(out, &w->chunk) && text_append_string(out, "{\"index\":") && api_write_integer(out, choice) &&
           text_append_string(out, ",\"delta\":{");
}

/* From the end of the delta on. */
static bool end_chunk(struct chat_writer *w, const struct api_event *e, struct text *out)
{
    bool ok = text_append(out, "}", 1) && write_tokens(w, &w->choices[e->choice], out);
    if (e->kind == API_FINISH)
        ok = ok && api_write_finish(out, e);
    else
        ok = ok && text_append_string(out, API_NOT_FINISHED);
    return ok && text_append(out, "}", 1) && api_write_chunk_end(out, &w->head, &e->usage, NULL);
}

/* The first chunk of a choice: the role; of choice 0 what was asked for of the prompt, too. */
static bool send_role(struct chat_writer *w, const struct api_event *e, int32_t choice, struct text *out)
{
    return begin_chunk(w, choice, out) &&
           text_append_string(out, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null" API_NOT_FINISHED "}") &&
           api_write_chunk_end(out, &w->head, &e->usage, choice == 0 ? e : NULL);
}

/* Under both of its names: vLLM's, and the one that it had before. */
static bool send_reasoning(struct text *out, const struct answer_part *part)
{
    bool ok = text_append_string(out, "\"reasoning\":\"");
    const size_t start = out->length;
    ok = ok && json_append_escaped(out, part->text, part->length);
    const size_t length = out->length - start;
    return ok && text_append_string(out, "\",\"reasoning_content\":\"") &&
           text_reserve(out, out->length + length + 1) && text_append(out, out->data + start, length) &&
           text_append(out, "\"", 1);
}

static bool send_tool_part(struct text *out, const struct answer_part *part)
{
    bool ok = text_append_string(out, "\"tool_calls\":[{\"index\":") && api_write_integer(out, part->tool);
    if (part->kind == PART_TOOL_CALL)
        ok = ok && text_append(out, ",", 1) && write_call(out, part);
    else
        ok = ok && text_append_string(out, ",\"function\":{\"arguments\":\"") &&
             json_append_escaped(out, part->text, part->length);
    return ok && text_append_string(out, "\"}}]");
}

static bool send_part(struct chat_writer *w, const struct api_event *e, struct text *out)
{
    const struct answer_part *part = e->part;
    if (part->kind == PART_TOOL_END) return true;
    bool ok = begin_chunk(w, e->choice, out);
    if (part->kind == PART_CONTENT)
        ok = ok && text_append_string(out, "\"content\":") && api_write_string(out, part->text, part->length);
    else
        ok = ok && (part->kind == PART_REASONING ? send_reasoning(out, part) : send_tool_part(out, part));
    return ok && end_chunk(w, e, out);
}

static bool stream_event(struct api_writer *base, const struct api_event *e, struct text *out)
{
    struct chat_writer *w = (struct chat_writer *)base;
    bool ok = true;
    switch (e->kind) {
    case API_BEGIN:
        return text_append_string(&w->chunk, "data: ") &&
               api_write_head(&w->chunk, &w->head, "chatcmpl-", "chat.completion.chunk") &&
               text_append_string(&w->chunk, ",\"choices\":[");
    case API_PROMPT:
        for (int32_t i = 0; ok && i < e->num_choices; i++) ok = send_role(w, e, e->choice + i, out);
        return ok;
    case API_TOKEN:
        return take_token(w, e);
    case API_PART:
        return send_part(w, e, out);
    case API_FINISH:
        return begin_chunk(w, e->choice, out) && end_chunk(w, e, out);
    case API_END:
        return api_write_stream_end(out, &w->head, &w->chunk, &e->usage);
    }
    return ok;
}

/* ---- one object ---- */

static bool keep_part(struct chat_choice *c, const struct answer_part *part)
{
    struct text *calls = &c->calls;
    switch (part->kind) {
    case PART_CONTENT:
        return json_append_escaped(&c->content, part->text, part->length);
    case PART_REASONING:
        return json_append_escaped(&c->reasoning, part->text, part->length);
    case PART_TOOL_CALL:
        return text_append_string(calls, calls->length ? ",{" : "{") && write_call(calls, part);
    case PART_TOOL_ARGUMENTS:
        return json_append_escaped(calls, part->text, part->length);
    case PART_TOOL_END:
        return text_append_string(calls, "\"}}");
    }
    return true;
}

/* ,"NAME":"TEXT" where there is a text. */
static bool write_field(struct text *out, const char *name, const struct text *text)
{
    return text->length == 0 ||
           (text_append_string(out, ",\"") && text_append_string(out, name) && text_append_string(out, "\":\"") &&
            api_write_text(out, text) && text_append(out, "\"", 1));
}

static bool write_message(struct text *out, const struct chat_choice *c)
{
    bool ok = text_append_string(out, ",\"message\":{\"role\":\"assistant\"");
    if (c->content.length == 0)
        ok = ok && text_append_string(out, c->calls.length ? ",\"content\":null" : ",\"content\":\"\"");
    ok = ok && write_field(out, "content", &c->content) && text_append_string(out, ",\"refusal\":null") &&
         write_field(out, "reasoning", &c->reasoning) && write_field(out, "reasoning_content", &c->reasoning);
    if (c->calls.length > 0)
        ok = ok && text_append_string(out, ",\"tool_calls\":[") && api_write_text(out, &c->calls) &&
             text_append(out, "]", 1);
    return ok && text_append(out, "}", 1);
}

static bool write_choice(struct chat_writer *w, int32_t index, struct text *out)
{
    struct chat_choice *c = &w->choices[index];
    return text_append_string(out, index ? ",{\"index\":" : "{\"index\":") && api_write_integer(out, index) &&
           write_message(out, c) && write_tokens(w, c, out) && api_write_text(out, &c->finish) &&
           text_append(out, "}", 1);
}

static bool write_object(struct chat_writer *w, const struct api_usage *usage, struct text *out)
{
    bool ok =
        api_write_head(out, &w->head, "chatcmpl-", "chat.completion") && text_append_string(out, ",\"choices\":[");
    for (int32_t i = 0; ok && i < w->head.num_choices; i++) ok = write_choice(w, i, out);
    return ok && api_write_object_end(out, &w->head, usage, &w->prompt);
}

static bool object_event(struct api_writer *base, const struct api_event *e, struct text *out)
{
    struct chat_writer *w = (struct chat_writer *)base;
    switch (e->kind) {
    case API_BEGIN:
        return true;
    case API_PROMPT:
        return api_write_prompt(&w->prompt, &w->head, e);
    case API_TOKEN:
        return take_token(w, e);
    case API_PART:
        return keep_part(&w->choices[e->choice], e->part);
    case API_FINISH:
        return api_write_finish(&w->choices[e->choice].finish, e);
    case API_END:
        return write_object(w, &e->usage, out);
    }
    return true;
}

struct api_writer *chat_writer_create(const struct api_head *head)
{
    struct chat_writer *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->base = (struct api_writer){head->stream ? stream_event : object_event, free_writer};
    w->head = *head;
    w->choices = calloc((size_t)head->num_choices, sizeof *w->choices);
    if (w->choices) return &w->base;
    free_writer(&w->base);
    return NULL;
}
