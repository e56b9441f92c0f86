/* What all steps of a parser of answers use: marks, blanks and names in the held text, and giving parts. */
#include <string.h>

#include "base/json_value.h"
#include "base/utf8.h"
#include "runtime/prompts/answer_parser_state.h"

enum match answer_match(const struct answer_parser *p, size_t at, const char *mark)
{
    const size_t length = strlen(mark), left = p->held.length - at;
    if (left >= length) return memcmp(p->held.data + at, mark, length) == 0 ? MATCH_YES : MATCH_NO;
    if (p->ended || (left > 0 && memcmp(p->held.data + at, mark, left) != 0)) return MATCH_NO;
    return MATCH_MAYBE;
}

bool answer_skip_blanks(const struct answer_parser *p, size_t *at)
{
    const size_t most = *at + ANSWER_MAX_BLANKS;
    while (*at < p->held.length && *at < most && json_is_blank(p->held.data[*at])) (*at)++;
    return *at < p->held.length || *at == most || p->ended;
}

size_t answer_find(const struct answer_parser *p, size_t from, const char *const *marks, int *which, enum match *found)
{
    for (size_t at = from; at < p->held.length; at++) {
        for (int i = 0; i < FORM_MAX_MARKS && marks[i]; i++) {
            if (p->held.data[at] != marks[i][0]) continue;
            *found = answer_match(p, at, marks[i]);
            *which = i;
            if (*found != MATCH_NO) return at;
        }
    }
    *found = MATCH_NO;
    return p->held.length;
}

enum step answer_go(struct answer_parser *p, answer_step *step, size_t at)
{
    p->step = step;
    p->at = p->searched = at;
    return STEP_ON;
}

/* ---- parts ---- */

void answer_give(struct answer_parser *p, enum answer_part_kind kind, const char *text, size_t length)
{
    const bool of_tool = kind >= PART_TOOL_CALL;
    const struct answer_part part = {.kind = kind,
                                     .tool = of_tool ? p->num_tools - 1 : 0,
                                     .text = text,
                                     .length = length,
                                     .id = kind == PART_TOOL_CALL && p->id.length > 0 ? p->id.data : NULL};
    if (length > 0 || kind == PART_TOOL_END) p->function(p->user, &part);
}

void answer_give_arguments(struct answer_parser *p, const char *text, size_t length)
{
    answer_give(p, PART_TOOL_ARGUMENTS, text, length);
}

void answer_give_content(struct answer_parser *p, const char *text, size_t length)
{
    size_t blanks = 0;
    while (!p->has_content && blanks < length && json_is_blank(text[blanks])) blanks++;
    if (blanks > 0 && !text_append(&p->blanks, text, blanks)) p->failed = true;
    if (blanks == length) return;
    p->has_content = true;
    answer_give(p, PART_CONTENT, p->blanks.data, p->blanks.length);
    text_clear(&p->blanks);
    answer_give(p, PART_CONTENT, text + blanks, length - blanks);
}

void answer_begin_call(struct answer_parser *p, bool has_id)
{
    text_clear(&p->blanks);
    if (!has_id) text_clear(&p->id);
    p->has_content = false;
    p->in_call = true;
    p->num_tools++;
    answer_give(p, PART_TOOL_CALL, p->name.data, p->name.length);
}

void answer_end_call(struct answer_parser *p)
{
    p->in_call = false;
    p->mark_length = 0;
    answer_give(p, PART_TOOL_END, NULL, 0);
}

enum step answer_damaged(struct answer_parser *p)
{
    if (p->in_call) {
        answer_end_call(p);
        p->start = p->at;
        return answer_go(p, answer_after_calls, p->at);
    }
    const size_t left = p->held.length - p->start, length = p->mark_length ? p->mark_length : left > 0;
    answer_give_content(p, p->held.data + p->start, length);
    p->start += length;
    p->mark_length = 0;
    return answer_go(p, p->text_step, p->start);
}

/* ---- tools ---- */

/* It is visible text in one piece, without what stands around names. */
bool answer_is_name(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f || strchr("\"'<>{}[]()|`,;=", name[i])) return false;
    return length > 0 && length <= ANSWER_MAX_NAME && utf8_valid_prefix(name, length) == length;
}

bool answer_keep_name(struct answer_parser *p, size_t begin, size_t end)
{
    while (begin < end && json_is_blank(p->held.data[begin])) begin++;
    while (begin < end && json_is_blank(p->held.data[end - 1])) end--;
    text_clear(&p->name);
    if (!text_append(&p->name, p->held.data + begin, end - begin)) p->failed = true;
    return !p->failed && answer_is_name(p->held.data + begin, end - begin);
}

bool answer_may_be_name(const struct answer_parser *p, size_t begin, size_t end)
{
    while (begin < end && json_is_blank(p->held.data[begin])) begin++;
    while (begin < end && !json_is_blank(p->held.data[begin])) begin++;
    while (begin < end && json_is_blank(p->held.data[begin])) begin++;
    return begin == end;
}

const json_t *answer_tool_find(const json_t *tool_list, const char *name, size_t length)
{
    for (size_t i = 0; i < json_array_size(tool_list); i++) {
        const json_t *entry = json_array_get(tool_list, i), *function = json_object_get(entry, "function");
        const json_t *tool = function ? function : entry, *found = json_object_get(tool, "name");
        if (json_string_length(found) == length && length && memcmp(json_string_value(found), name, length) == 0)
            return tool;
    }
    return NULL;
}

const json_t *answer_tool_schema(const json_t *tool)
{
    const json_t *schema = json_object_get(tool, "parameters");
    if (!schema) schema = json_object_get(tool, "input_schema");
    return json_is_map(schema) ? schema : NULL;
}
