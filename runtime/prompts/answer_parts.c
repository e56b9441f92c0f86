#include "runtime/prompts/answer_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "scheduler/sequence.h"

uint64_t tool_id_seed(const char *request_id, const struct token_list *prompt)
{
    uint64_t seed = 0;
    for (; *request_id; request_id++) seed = random_mix(seed + RANDOM_STEP + (unsigned char)*request_id);
    for (size_t i = 0; i < prompt->count; i++) seed = random_mix(seed + RANDOM_STEP + (uint32_t)prompt->ids[i]);
    return seed;
}

struct tool_id tool_id_make(uint64_t seed, int32_t answer, int32_t tool)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t bits = random_mix(seed + RANDOM_STEP * (uint64_t)(answer + 1));
    struct tool_id id = {""};
    bits = random_mix(bits + RANDOM_STEP * (uint64_t)(tool + 1));
    for (size_t i = 0; i + 1 < sizeof id.text; i++, bits /= sizeof digits - 1)
        id.text[i] = digits[bits % (sizeof digits - 1)];
    return id;
}

size_t answer_parts_length(const struct tokenizer *tokenizer, const struct answer_piece *piece)
{
    size_t length;
    if (piece->finish_reason != FINISH_STOP || piece->stop_reason || piece->num_tokens == 0) return piece->text_length;
    if (!tokenizer_is_special(tokenizer, piece->token_ids[0])) return piece->text_length;
    const char *end = tokenizer_token_bytes(tokenizer, piece->token_ids[0], true, &length);
    const bool ends =
        length <= piece->text_length && memcmp(piece->text + piece->text_length - length, end, length) == 0;
    return piece->text_length - (ends ? length : 0);
}

static void note_kind(void *user, const struct answer_part *part)
{
    *(enum answer_part_kind *)user = part->kind;
}

/* The parser tells: what would the next letter of the answer be? */
enum status answer_parts_in_reasoning(const struct answer_format *reasoning, const char *prompt, size_t start,
                                      size_t length, bool *out, struct error *err)
{
    const struct answer_parser_options options = {.reasoning = reasoning,
                                                  .in_reasoning = reasoning_is_open(reasoning, prompt, start)};
    enum answer_part_kind kind = PART_CONTENT;
    struct answer_parser *parser;
    *out = options.in_reasoning;
    if (start == length) return STATUS_OK;
    const enum status status = answer_parser_create(&options, note_kind, &kind, &parser, err);
    if (status != STATUS_OK) return status;
    const bool ok = answer_parser_add(parser, prompt + start, length - start) && answer_parser_add(parser, "x", 1) &&
                    answer_parser_finish(parser);
    answer_parser_free(parser);
    *out = kind == PART_REASONING;
    return ok ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the beginning of an answer");
}

/* ---- gathering ---- */

/* The call whose arguments are whole now. */
static bool end_call(struct answer_parts *p)
{
    json_t *call = json_array_get(p->calls, json_array_size(p->calls) - 1);
    json_t *arguments = json_stringn(p->arguments.data ? p->arguments.data : "", p->arguments.length);
    text_clear(&p->arguments);
    return json_object_set_new(json_object_get(call, "function"), "arguments", arguments) == 0;
}

static bool begin_call(struct answer_parts *p, const struct answer_part *part)
{
    const struct tool_id id = tool_id_make(p->seed, p->answer, part->tool);
    json_t *call = json_pack("{s:s, s:s, s:{s:s%, s:s}}", "id", part->id ? part->id : id.text, "type", "function",
                             "function", "name", part->text, part->length, "arguments", "");
    return call && json_array_append_new(p->calls, call) == 0;
}

static void keep_part(void *user, const struct answer_part *part)
{
    struct answer_parts *p = user;
    bool ok = true;
    switch (part->kind) {
    case PART_CONTENT:
        ok = text_append(&p->content, part->text, part->length);
        break;
    case PART_REASONING:
        ok = text_append(&p->reasoning, part->text, part->length);
        break;
    case PART_TOOL_CALL:
        ok = begin_call(p, part);
        break;
    case PART_TOOL_ARGUMENTS:
        ok = text_append(&p->arguments, part->text, part->length);
        break;
    case PART_TOOL_END:
        ok = end_call(p);
        break;
    }
    if (!ok) p->no_memory = true;
}

struct answer_parts *answer_parts_create(const struct answer_parser_options *options, uint64_t seed, int32_t answer)
{
    struct answer_parts *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    *p = (struct answer_parts){.seed = seed, .answer = answer, .calls = json_array()};
    if (p->calls && answer_parser_create(options, keep_part, p, &p->parser, NULL) == STATUS_OK) return p;
    answer_parts_free(p);
    return NULL;
}

void answer_parts_free(struct answer_parts *p)
{
    if (!p) return;
    answer_parser_free(p->parser);
    text_free(&p->content);
    text_free(&p->reasoning);
    text_free(&p->arguments);
    json_decref(p->calls);
    free(p);
}

bool answer_parts_take(struct answer_parts *p, const struct tokenizer *tokenizer, const struct answer_piece *piece)
{
    const size_t length = answer_parts_length(tokenizer, piece);
    bool ok = length == 0 || answer_parser_add(p->parser, piece->text, length);
    if (piece->finish_reason != FINISH_NONE) ok = ok && answer_parser_finish(p->parser);
    return ok && !p->no_memory;
}
