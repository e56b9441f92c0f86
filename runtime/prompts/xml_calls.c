/* Calls with a mark for each argument:
 *
 *     <function=f><parameter=key>value</parameter></function>
 *
 * A string is given as it comes; a value of another type when it is whole, because its end says what it is. */
#include <string.h>

#include "base/json_value.h"
#include "runtime/prompts/answer_parser_state.h"
#include "runtime/prompts/tool_value.h"

static answer_step before_key, in_key, before_value, in_string, in_value;

/* ---- calls ---- */

enum step xml_calls_step(struct answer_parser *p)
{
    const char *mark = p->tools->marks.call;
    const size_t length = strlen(mark);
    size_t at = p->at;
    /* The mark that was found may be the call's. */
    if (p->at > p->start && p->mark_length == length && memcmp(p->held.data + p->start, mark, length) == 0)
        return answer_go(p, xml_call_name_step, p->at);
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    const enum match found = answer_match(p, at, mark);
    if (found == MATCH_MAYBE) return STEP_WAIT;
    if (found == MATCH_YES) return answer_go(p, xml_call_name_step, at + length);
    return p->at > p->start ? answer_damaged(p) : answer_go(p, answer_after_calls, p->start);
}

enum step xml_call_name_step(struct answer_parser *p)
{
    const struct call_marks *marks = &p->tools->marks;
    const char *const open_ends[FORM_MAX_MARKS] = {"\n", marks->key, marks->call_end};
    const bool is_open = !marks->name_end[0];
    size_t begin = p->at;
    int which = 0;
    enum match found;
    if (is_open && !answer_skip_blanks(p, &begin)) return STEP_WAIT;
    const size_t end = answer_find(p, begin, is_open ? open_ends : marks->name_end, &which, &found);
    if (end - begin > ANSWER_MAX_NAME) return answer_damaged(p);
    if (found != MATCH_YES && !p->ended && answer_may_be_name(p, begin, end)) return STEP_WAIT;
    if (found != MATCH_YES || !answer_keep_name(p, begin, end)) return answer_damaged(p);
    const json_t *tool = answer_tool_find(p->tool_list, p->name.data, p->name.length);
    p->xml = (struct xml_call){.schema = answer_tool_schema(tool)};
    return answer_go(p, before_key, is_open ? end : end + strlen(marks->name_end[which]));
}

/* ---- arguments ---- */

/* At a key, or at the call's end. A call is certain when the first of these stands behind its name. */
static enum step before_key(struct answer_parser *p)
{
    const struct call_marks *marks = &p->tools->marks;
    size_t at = p->at;
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    const enum match key = answer_match(p, at, marks->key), end = answer_match(p, at, marks->call_end);
    if (key != MATCH_YES && end != MATCH_YES)
        return key == MATCH_MAYBE || end == MATCH_MAYBE ? STEP_WAIT : answer_damaged(p);
    if (!p->in_call) answer_begin_call(p, false);
    if (key == MATCH_YES) return answer_go(p, in_key, at + strlen(marks->key));
    const char *closing = p->xml.has_keys ? "}" : "{}";
    answer_give_arguments(p, closing, strlen(closing));
    answer_end_call(p);
    p->start = at + strlen(marks->call_end);
    return answer_go(p, xml_calls_step, p->start);
}

/* Gives `, "key": `, with the brace of the object before the first, and the quote of a string behind it. */
static void give_key(struct answer_parser *p)
{
    text_clear(&p->out);
    if (!text_append_string(&p->out, p->xml.has_keys ? ", \"" : "{\"") ||
        !json_append_escaped(&p->out, p->name.data, p->name.length) ||
        !text_append_string(&p->out, p->xml.types == TOOL_STRING ? "\": \"" : "\": "))
        p->failed = true;
    answer_give_arguments(p, p->out.data, p->out.length);
    p->xml.has_keys = true;
}

static enum step in_key(struct answer_parser *p)
{
    const struct call_marks *marks = &p->tools->marks;
    const char *const ends[FORM_MAX_MARKS] = {marks->key_end, marks->string_key_end};
    int which = 0;
    enum match found;
    const size_t end = answer_find(p, p->at, ends, &which, &found);
    if (end - p->at > ANSWER_MAX_NAME) return answer_damaged(p);
    if (found != MATCH_YES) return p->ended ? answer_damaged(p) : STEP_WAIT;
    if (!answer_keep_name(p, p->at, end)) return answer_damaged(p);
    p->xml.types = tool_value_types(p->xml.schema, tool_property(p->xml.schema, p->name.data, p->name.length));
    if (p->xml.types == 0 && !p->tools->guesses) p->xml.types = TOOL_STRING;
    if (which == 1) p->xml.types = TOOL_STRING;
    return answer_go(p, before_value, end + strlen(ends[which]));
}

static enum step before_value(struct answer_parser *p)
{
    const char *mark = p->tools->marks.value;
    size_t at = p->at;
    if (mark) {
        if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
        const enum match found = answer_match(p, at, mark);
        if (found == MATCH_MAYBE) return STEP_WAIT;
        if (found == MATCH_NO) return answer_damaged(p);
        at += strlen(mark);
    }
    if (p->tools->trims && at == p->held.length && !p->ended) return STEP_WAIT;
    if (p->tools->trims && at < p->held.length && p->held.data[at] == '\n') at++;
    give_key(p);
    p->start = at;
    return answer_go(p, p->xml.types == TOOL_STRING ? in_string : in_value, at);
}

static enum step in_string(struct answer_parser *p)
{
    const char *const ends[FORM_MAX_MARKS] = {p->tools->marks.value_end};
    int which = 0;
    enum match found;
    const size_t end = answer_find(p, p->start, ends, &which, &found);
    /* The last newline is given when it is known that the value goes on. */
    const bool newline = p->tools->trims && end > p->start && p->held.data[end - 1] == '\n';
    const size_t given = end - (newline && (found == MATCH_YES || !p->ended));
    text_clear(&p->out);
    if (!json_append_escaped(&p->out, p->held.data + p->start, given - p->start)) p->failed = true;
    answer_give_arguments(p, p->out.data, p->out.length);
    p->start = p->at = given;
    if (found != MATCH_YES) return p->ended ? answer_damaged(p) : STEP_WAIT;
    answer_give_arguments(p, "\"", 1);
    p->start = end + strlen(ends[0]);
    return answer_go(p, before_key, p->start);
}

static enum step in_value(struct answer_parser *p)
{
    const char *const ends[FORM_MAX_MARKS] = {p->tools->marks.value_end};
    int which = 0;
    enum match found;
    const size_t end = answer_find(p, p->searched, ends, &which, &found);
    p->searched = end;
    if (found != MATCH_YES) return p->ended ? answer_damaged(p) : STEP_WAIT;
    const bool newline = p->tools->trims && end > p->start && p->held.data[end - 1] == '\n';
    text_clear(&p->out);
    if (!tool_value_append(&p->out, p->xml.types, p->held.data + p->start, end - newline - p->start)) p->failed = true;
    answer_give_arguments(p, p->out.data, p->out.length);
    p->start = end + strlen(ends[0]);
    return answer_go(p, before_key, p->start);
}
