/* The responses of /v1/responses: a response, and the events that build it up
 * (https://platform.openai.com/docs/api-reference/responses-streaming). */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "runtime/prompts/responses_request.h"

/* An item of the output: parts of one kind, or of one call, that follow each other. */
enum item { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL };

static const struct {
    const char *prefix;               /* of ids */
    const char *delta, *done, *whole; /* events, and the field of the latter that has all */
    const char *part, *part_end;      /* a part of its content around the text; NULL: it has none */
} kinds[] = {
    [ITEM_REASONING] = {"rs", "reasoning_text.delta", "reasoning_text.done", "text",
                        "{\"type\":\"reasoning_text\",\"text\":\"", "\"}"},
    [ITEM_MESSAGE] = {"msg", "output_text.delta", "output_text.done", "text",
                      "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":\"", "\"}"},
    [ITEM_CALL] = {"fc", "function_call_arguments.delta", "function_call_arguments.done", "arguments", NULL, NULL},
};

struct responses_writer {
    struct api_writer base;
    struct api_head head;
    enum item item; /* that is open */
    int32_t index, tool;
    int64_t sequence;   /* of events */
    struct text output; /* the items before the open one */
    struct text text;   /* of the open one: what is inside its string */
    struct text call;   /* of an open call: ,"call_id":...,"name":... */
    enum finish_reason finish;
};

static void free_writer(struct api_writer *base)
{
    struct responses_writer *w = (struct responses_writer *)base;
    text_free(&w->output);
    text_free(&w->text);
    text_free(&w->call);
    free(w);
}

/* ---- items ---- */

static enum item item_of(const struct answer_part *part)
{
    if (part->kind == PART_CONTENT) return ITEM_MESSAGE;
    return part->kind == PART_REASONING ? ITEM_REASONING : ITEM_CALL;
}

/* "msg_ID_0": the response's id and the item's index. */
static bool write_item_id(const struct responses_writer *w, struct text *out)
{
    return text_append(out, "\"", 1) && text_append_string(out, kinds[w->item].prefix) && text_append(out, "_", 1) &&
           json_append_escaped(out, w->head.id, strlen(w->head.id)) && text_append(out, "_", 1) &&
           api_write_integer(out, w->index) && text_append(out, "\"", 1);
}

/* The open item, as it is now or, at its beginning, without content. */
static bool write_item(const struct responses_writer *w, const char *status, bool has_content, struct text *out)
{
    bool ok = text_append_string(out, "{\"id\":") && write_item_id(w, out) &&
              text_append_string(out, ",\"status\":\"") && text_append_string(out, status);
    if (w->item == ITEM_CALL)
        return ok && text_append_string(out, "\",\"type\":\"function_call\"") && api_write_text(out, &w->call) &&
               text_append_string(out, ",\"arguments\":\"") && (!has_content || api_write_text(out, &w->text)) &&
               text_append_string(out, "\"}");
    ok = ok && text_append_string(out, w->item == ITEM_MESSAGE
                                           ? "\",\"type\":\"message\",\"role\":\"assistant\",\"content\":["
                                           : "\",\"type\":\"reasoning\",\"summary\":[],\"content\":[");
    if (has_content)
        ok = ok && text_append_string(out, kinds[w->item].part) && api_write_text(out, &w->text) &&
             text_append_string(out, kinds[w->item].part_end);
    return ok && text_append_string(out, "]}");
}

static const char *item_status(const struct responses_writer *w)
{
    return w->finish == FINISH_LENGTH || w->finish == FINISH_ABORT ? "incomplete" : "completed";
}

static void begin_item(struct responses_writer *w, enum item item, const struct answer_part *part)
{
    w->item = item;
    w->tool = part->tool;
    text_clear(&w->text);
    text_clear(&w->call);
}

static bool keep_call(struct responses_writer *w, const struct answer_part *part)
{
    return text_append_string(&w->call, ",\"call_id\":") && api_write_string(&w->call, part->id, strlen(part->id)) &&
           text_append_string(&w->call, ",\"name\":") && api_write_string(&w->call, part->text, part->length);
}

/* The open item becomes one of the output. */
static bool keep_item(struct responses_writer *w, const char *status)
{
    const bool ok =
        (w->output.length == 0 || text_append(&w->output, ",", 1)) && write_item(w, status, true, &w->output);
    w->item = ITEM_NONE;
    w->index++;
    return ok;
}

/* Whether the part belongs to another item than the one that is open. */
static bool is_new_item(const struct responses_writer *w, const struct answer_part *part)
{
    return item_of(part) != w->item || (w->item == ITEM_CALL && part->tool != w->tool);
}

/* ---- the response ---- */

static bool write_usage(struct text *out, const struct api_usage *usage)
{
    return text_append_string(out, "{\"input_tokens\":") && api_write_integer(out, usage->prompt_tokens) &&
           text_append_string(out, ",\"input_tokens_details\":{\"cached_tokens\":") &&
           api_write_integer(out, usage->cached_tokens) && text_append_string(out, "},\"output_tokens\":") &&
           api_write_integer(out, usage->completion_tokens) &&
           text_append_string(out, ",\"output_tokens_details\":{\"reasoning_tokens\":") &&
           api_write_integer(out, usage->reasoning_tokens) && text_append_string(out, "},\"total_tokens\":") &&
           api_write_integer(out, (int64_t)usage->prompt_tokens + usage->completion_tokens) && text_append(out, "}", 1);
}

/* What the request said, as members of the response. */
static bool write_repeated(const struct responses_writer *w, struct text *out)
{
    struct text object = {0};
    const bool ok = json_append(&object, w->head.repeated, JSON_COMPACT) && text_append(out, ",", 1) &&
                    text_append(out, object.data + 1, object.length - 1); /* with the closing brace */
    text_free(&object);
    return ok;
}

/* usage NULL: it has only begun. */
static bool write_response(const struct responses_writer *w, const struct api_usage *usage, struct text *out)
{
    const bool cut = usage && strcmp(item_status(w), "incomplete") == 0;
    bool ok = text_append_string(out, "{\"id\":\"resp_") && json_append_escaped(out, w->head.id, strlen(w->head.id)) &&
              text_append_string(out, "\",\"object\":\"response\",\"created_at\":") &&
              api_write_integer(out, w->head.created) && text_append_string(out, ",\"status\":\"") &&
              text_append_string(out, usage ? item_status(w) : "in_progress") &&
              text_append_string(out, "\",\"error\":null,\"incomplete_details\":") &&
              text_append_string(out, cut ? "{\"reason\":\"max_output_tokens\"}" : "null") &&
              text_append_string(out, ",\"model\":") && api_write_string(out, w->head.model, strlen(w->head.model)) &&
              text_append_string(out, ",\"output\":[") && api_write_text(out, &w->output) &&
              text_append_string(out, "],\"usage\":");
    ok = ok && (usage ? write_usage(out, usage) : text_append_string(out, "null"));
    return ok && write_repeated(w, out);
}

/* ---- a stream ---- */

/* event: response.TYPE, and its object up to what is particular to it. */
static bool begin_event(struct responses_writer *w, const char *type, struct text *out)
{
    return text_append_string(out, "event: response.") && text_append_string(out, type) &&
           text_append_string(out, "\ndata: {\"type\":\"response.") && text_append_string(out, type) &&
           text_append_string(out, "\",\"sequence_number\":") && api_write_integer(out, w->sequence++);
}

static bool send_response(struct responses_writer *w, const char *type, const struct api_usage *usage, struct text *out)
{
    return begin_event(w, type, out) && text_append_string(out, ",\"response\":") && write_response(w, usage, out) &&
           text_append_string(out, "}\n\n");
}

/* An event of the open item; `content`: its place in the item is named, too. */
static bool begin_item_event(struct responses_writer *w, const char *type, bool content, struct text *out)
{
    return begin_event(w, type, out) && text_append_string(out, ",\"output_index\":") &&
           api_write_integer(out, w->index) && text_append_string(out, ",\"item_id\":") && write_item_id(w, out) &&
           (!content || text_append_string(out, ",\"content_index\":0"));
}

static bool send_item(struct responses_writer *w, const char *type, const char *status, bool has_content,
                      struct text *out)
{
    return begin_event(w, type, out) && text_append_string(out, ",\"output_index\":") &&
           api_write_integer(out, w->index) && text_append_string(out, ",\"item\":") &&
           write_item(w, status, has_content, out) && text_append_string(out, "}\n\n");
}

static bool send_content_part(struct responses_writer *w, const char *type, bool has_text, struct text *out)
{
    return !kinds[w->item].part ||
           (begin_item_event(w, type, true, out) && text_append_string(out, ",\"part\":") &&
            text_append_string(out, kinds[w->item].part) && (!has_text || api_write_text(out, &w->text)) &&
            text_append_string(out, kinds[w->item].part_end) && text_append_string(out, "}\n\n"));
}

static bool send_item_end(struct responses_writer *w, const char *status, struct text *out)
{
    if (w->item == ITEM_NONE) return true;
    return begin_item_event(w, kinds[w->item].done, kinds[w->item].part != NULL, out) &&
           text_append_string(out, w->item == ITEM_MESSAGE ? ",\"logprobs\":[],\"" : ",\"") &&
           text_append_string(out, kinds[w->item].whole) && text_append_string(out, "\":\"") &&
           api_write_text(out, &w->text) && text_append_string(out, "\"}\n\n") &&
           send_content_part(w, "content_part.done", true, out) &&
           send_item(w, "output_item.done", status, true, out) && keep_item(w, status);
}

static bool send_item_start(struct responses_writer *w, const struct answer_part *part, struct text *out)
{
    bool ok = send_item_end(w, "completed", out);
    begin_item(w, item_of(part), part);
    if (part->kind == PART_TOOL_CALL) ok = ok && keep_call(w, part);
    return ok && send_item(w, "output_item.added", "in_progress", false, out) &&
           send_content_part(w, "content_part.added", false, out);
}

static bool send_part(struct responses_writer *w, const struct answer_part *part, struct text *out)
{
    if (part->kind == PART_TOOL_END) return send_item_end(w, "completed", out);
    bool ok = !is_new_item(w, part) || send_item_start(w, part, out);
    if (part->kind == PART_TOOL_CALL) return ok;
    const size_t before = w->text.length;
    ok = ok && json_append_escaped(&w->text, part->text, part->length) &&
         begin_item_event(w, kinds[w->item].delta, kinds[w->item].part != NULL, out) &&
         text_append_string(out, w->item == ITEM_MESSAGE ? ",\"logprobs\":[],\"delta\":\"" : ",\"delta\":\"");
    return ok && (w->text.length == before || text_append(out, w->text.data + before, w->text.length - before)) &&
           text_append_string(out, "\"}\n\n");
}

static bool stream_event(struct api_writer *base, const struct api_event *e, struct text *out)
{
    struct responses_writer *w = (struct responses_writer *)base;
    switch (e->kind) {
    case API_PROMPT:
        return send_response(w, "created", NULL, out) && send_response(w, "in_progress", NULL, out);
    case API_PART:
        return send_part(w, e->part, out);
    case API_FINISH:
        w->finish = e->piece->finish_reason;
        return send_item_end(w, item_status(w), out);
    case API_END:
        return send_response(w, item_status(w), &e->usage, out);
    case API_BEGIN:
    case API_TOKEN:
        return true;
    }
    return true;
}

/* ---- one object ---- */

static bool take_part(struct responses_writer *w, const struct answer_part *part)
{
    bool ok = true;
    if (part->kind == PART_TOOL_END) return w->item == ITEM_NONE || keep_item(w, "completed");
    if (is_new_item(w, part)) {
        if (w->item != ITEM_NONE) ok = keep_item(w, "completed");
        begin_item(w, item_of(part), part);
    }
    if (part->kind == PART_TOOL_CALL) return ok && keep_call(w, part);
    return ok && json_append_escaped(&w->text, part->text, part->length);
}

static bool object_event(struct api_writer *base, const struct api_event *e, struct text *out)
{
    struct responses_writer *w = (struct responses_writer *)base;
    switch (e->kind) {
    case API_PART:
        return take_part(w, e->part);
    case API_FINISH:
        w->finish = e->piece->finish_reason;
        return w->item == ITEM_NONE || keep_item(w, item_status(w));
    case API_END:
        return write_response(w, &e->usage, out);
    case API_BEGIN:
    case API_PROMPT:
    case API_TOKEN:
        return true;
    }
    return true;
}

struct api_writer *responses_writer_create(const struct api_head *head)
{
    struct responses_writer *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->base = (struct api_writer){head->stream ? stream_event : object_event, free_writer};
    w->head = *head;
    return &w->base;
}
