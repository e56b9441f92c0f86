/* The responses of /v1/messages: a message, and the events that build it up
 * (https://docs.anthropic.com/en/docs/build-with-claude/streaming). */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_scan.h"
#include "runtime/prompts/messages_request.h"

/* A block of the content: parts of one kind, or of one call, that follow each other. */
enum content_block { CONTENT_NONE, CONTENT_TEXT, CONTENT_THINKING, CONTENT_TOOL_USE };

struct messages_writer {
    struct api_writer base;
    struct api_head head;
    enum content_block block; /* that is open */
    int32_t index, tool;
    struct text content;   /* of a response that is one object: the blocks before the open one, and its beginning */
    struct text arguments; /* ... of the call that is open */
    struct text finish;    /* "stop_reason":...,"stop_sequence":... */
};

static void free_writer(struct api_writer *base)
{
    struct messages_writer *w = (struct messages_writer *)base;
    text_free(&w->content);
    text_free(&w->arguments);
    text_free(&w->finish);
    free(w);
}

/* ---- what both forms have ---- */

static enum content_block block_of(const struct answer_part *part)
{
    if (part->kind == PART_CONTENT) return CONTENT_TEXT;
    return part->kind == PART_REASONING ? CONTENT_THINKING : CONTENT_TOOL_USE;
}

static bool write_head(const struct messages_writer *w, struct text *out)
{
    return text_append_string(out, "{\"id\":\"msg_") && json_append_escaped(out, w->head.id, strlen(w->head.id)) &&
           text_append_string(out, "\",\"type\":\"message\",\"role\":\"assistant\",\"model\":") &&
           api_write_string(out, w->head.model, strlen(w->head.model));
}

/* Tokens of the prompt that were not found in the cache are the input. */
static bool write_usage(struct text *out, const struct api_usage *usage)
{
    return text_append_string(out, "{\"input_tokens\":") &&
           api_write_integer(out, usage->prompt_tokens - usage->cached_tokens) &&
           text_append_string(out, ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":") &&
           api_write_integer(out, usage->cached_tokens) && text_append_string(out, ",\"output_tokens\":") &&
           api_write_integer(out, usage->completion_tokens) && text_append(out, "}", 1);
}

static bool keep_finish(struct messages_writer *w, const struct api_event *e)
{
    const char *stop = e->piece->stop_reason;
    const char *reason = e->piece->finish_reason == FINISH_LENGTH ? "max_tokens"
                         : e->has_tools                           ? "tool_use"
                         : stop                                   ? "stop_sequence"
                                                                  : "end_turn";
    return text_append_string(&w->finish, "\"stop_reason\":\"") && text_append_string(&w->finish, reason) &&
           text_append_string(&w->finish, "\",\"stop_sequence\":") &&
           api_write_string(&w->finish, stop, stop ? strlen(stop) : 0);
}

/* The beginning of a block, up to the inside of its text; a call's, up to its input. */
static bool write_block(struct text *out, enum content_block block, const struct answer_part *part)
{
    if (block == CONTENT_TEXT) return text_append_string(out, "{\"type\":\"text\",\"text\":\"");
    if (block == CONTENT_THINKING)
        return text_append_string(out, "{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":\"");
    return text_append_string(out, "{\"type\":\"tool_use\",\"id\":") &&
           api_write_string(out, part->id, strlen(part->id)) && text_append_string(out, ",\"name\":") &&
           api_write_string(out, part->text, part->length) && text_append_string(out, ",\"input\":");
}

/* ---- a stream ---- */

static bool begin_event(struct text *out, const char *type)
{
    return text_append_string(out, "event: ") && text_append_string(out, type) &&
           text_append_string(out, "\ndata: {\"type\":\"") && text_append_string(out, type) &&
           text_append(out, "\"", 1);
}

static bool begin_block_event(const struct messages_writer *w, struct text *out, const char *type)
{
    return begin_event(out, type) && text_append_string(out, ",\"index\":") && api_write_integer(out, w->index);
}

static bool send_start(const struct messages_writer *w, const struct api_usage *usage, struct text *out)
{
    return begin_event(out, "message_start") && text_append_string(out, ",\"message\":") && write_head(w, out) &&
           text_append_string(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":") &&
           write_usage(out, usage) && text_append_string(out, "}}\n\n");
}

static bool send_block_end(struct messages_writer *w, struct text *out)
{
    if (w->block == CONTENT_NONE) return true;
    const bool ok = begin_block_event(w, out, "content_block_stop") && text_append_string(out, "}\n\n");
    w->block = CONTENT_NONE;
    w->index++;
    return ok;
}

static bool send_block_start(struct messages_writer *w, enum content_block block, const struct answer_part *part,
                             struct text *out)
{
    const bool ok = send_block_end(w, out) && begin_block_event(w, out, "content_block_start") &&
                    text_append_string(out, ",\"content_block\":") && write_block(out, block, part) &&
                    text_append_string(out, block == CONTENT_TOOL_USE ? "{}}}\n\n" : "\"}}\n\n");
    w->block = block;
    w->tool = part->tool;
    return ok;
}

static bool send_part(struct messages_writer *w, const struct answer_part *part, struct text *out)
{
    static const char *const deltas[] = {[CONTENT_TEXT] = "\"text_delta\",\"text\":",
                                         [CONTENT_THINKING] = "\"thinking_delta\",\"thinking\":",
                                         [CONTENT_TOOL_USE] = "\"input_json_delta\",\"partial_json\":"};
    const enum content_block block = block_of(part);
    bool ok = true;
    if (part->kind == PART_TOOL_END) return send_block_end(w, out);
    if (block != w->block || (block == CONTENT_TOOL_USE && part->tool != w->tool))
        ok = send_block_start(w, block, part, out);
    if (part->kind == PART_TOOL_CALL) return ok;
    return ok && begin_block_event(w, out, "content_block_delta") && text_append_string(out, ",\"delta\":{\"type\":") &&
           text_append_string(out, deltas[block]) && api_write_string(out, part->text, part->length) &&
           text_append_string(out, "}}\n\n");
}

static bool send_end(struct messages_writer *w, const struct api_usage *usage, struct text *out)
{
    return send_block_end(w, out) && begin_event(out, "message_delta") && text_append_string(out, ",\"delta\":{") &&
           api_write_text(out, &w->finish) && text_append_string(out, "},\"usage\":") && write_usage(out, usage) &&
           text_append_string(out, "}\n\n") && begin_event(out, "message_stop") && text_append_string(out, "}\n\n");
}

static bool stream_event(struct api_writer *base, const struct api_event *e, struct text *out)
{
    struct messages_writer *w = (struct messages_writer *)base;
    switch (e->kind) {
    case API_PROMPT:
        return send_start(w, &e->usage, out);
    case API_PART:
        return send_part(w, e->part, out);
    case API_FINISH:
        return keep_finish(w, e);
    case API_END:
        return send_end(w, &e->usage, out);
    case API_BEGIN:
    case API_TOKEN:
        return true;
    }
    return true;
}

/* ---- one object ---- */

/* A call that was cut off has no input that is JSON. */
static bool end_block(struct messages_writer *w)
{
    struct text *arguments = &w->arguments;
    bool ok = true;
    if (w->block == CONTENT_NONE) return true;
    if (w->block != CONTENT_TOOL_USE)
        ok = text_append(&w->content, "\"", 1);
    else if (arguments->length > 0 && json_scan_whole(arguments->data, arguments->length))
        ok = api_write_text(&w->content, arguments);
    else
        ok = text_append(&w->content, "{}", 2);
    text_clear(arguments);
    w->block = CONTENT_NONE;
    return ok && text_append(&w->content, "}", 1);
}

static bool begin_block(struct messages_writer *w, enum content_block block, const struct answer_part *part)
{
    const bool ok = end_block(w) && (w->content.length == 0 || text_append(&w->content, ",", 1)) &&
                    write_block(&w->content, block, part);
    w->block = block;
    w->tool = part->tool;
    return ok;
}

static bool keep_part(struct messages_writer *w, const struct answer_part *part)
{
    const enum content_block block = block_of(part);
    bool ok = true;
    if (part->kind == PART_TOOL_END) return end_block(w);
    if (block != w->block || (block == CONTENT_TOOL_USE && part->tool != w->tool)) ok = begin_block(w, block, part);
    if (part->kind == PART_TOOL_CALL) return ok;
    if (block == CONTENT_TOOL_USE) return ok && text_append(&w->arguments, part->text, part->length);
    return ok && json_append_escaped(&w->content, part->text, part->length);
}

static bool write_message(struct messages_writer *w, const struct api_usage *usage, struct text *out)
{
    return end_block(w) && write_head(w, out) && text_append_string(out, ",\"content\":[") &&
           api_write_text(out, &w->content) && text_append_string(out, "],") && api_write_text(out, &w->finish) &&
           text_append_string(out, ",\"usage\":") && write_usage(out, usage) && text_append(out, "}", 1);
}

static bool object_event(struct api_writer *base, const struct api_event *e, struct text *out)
{
    struct messages_writer *w = (struct messages_writer *)base;
    switch (e->kind) {
    case API_PART:
        return keep_part(w, e->part);
    case API_FINISH:
        return keep_finish(w, e);
    case API_END:
        return write_message(w, &e->usage, out);
    case API_BEGIN:
    case API_PROMPT:
    case API_TOKEN:
        return true;
    }
    return true;
}

/* ---- errors ---- */

bool messages_error_write(int http_status, const struct text *message, struct text *out)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
                 {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"}};
    const char *type = http_status < 500 ? "invalid_request_error" : "api_error";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == http_status) type = types[i].type;
    return text_append_string(out, "{\"type\":\"error\",\"error\":{\"type\":\"") && text_append_string(out, type) &&
           text_append_string(out, "\",\"message\":") && api_write_string(out, message->data, message->length) &&
           text_append_string(out, "}}");
}

struct api_writer *messages_writer_create(const struct api_head *head)
{
    struct messages_writer *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->base = (struct api_writer){head->stream ? stream_event : object_event, free_writer};
    w->head = *head;
    return &w->base;
}
