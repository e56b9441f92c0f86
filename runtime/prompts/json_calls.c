/* Calls whose arguments are JSON: as objects, {"name": "f", "arguments": {}}, or behind a name.
 *
 * Arguments are given as the model writes them, byte by byte, and only while they can be JSON. An object may have its
 * members in any order: the call is held back until its name is known and its arguments have begun. */
#include <string.h>

#include "base/json_parse.h"
#include "base/json_value.h"
#include "runtime/prompts/answer_parser_state.h"

static answer_step in_object, behind_object, in_list, at_marked_call, behind_arguments;

/* ---- arguments ---- */

enum step json_arguments_step(struct answer_parser *p)
{
    const size_t begin = p->at;
    enum json_scan_result result = JSON_SCAN_MORE;
    while (p->at < p->held.length && result == JSON_SCAN_MORE)
        result = json_scan_add(&p->json.scan, p->held.data[p->at++]);
    if (result == JSON_SCAN_WRONG) p->at--;
    answer_give_arguments(p, p->held.data + begin, p->at - begin);
    p->start = p->at;
    if (result == JSON_SCAN_END) {
        answer_end_call(p);
        return answer_go(p, p->json.after, p->at);
    }
    return result == JSON_SCAN_MORE && !p->ended ? STEP_WAIT : answer_damaged(p);
}

/* ---- the members of an object ---- */

/* Keeps a string, which stands in held with its quotes. */
static bool decode(struct answer_parser *p, struct span span, struct text *out)
{
    json_t *value = NULL;
    text_clear(out);
    const enum status status =
        json_value_parse(p->held.data + span.begin, span.end - span.begin, JSON_DECODE_ANY, NULL, &value, NULL);
    const bool ok = status == STATUS_OK && json_is_text(value);
    if (status == STATUS_OUT_OF_MEMORY) p->failed = true;
    if (ok && !text_append(out, json_string_value(value), json_string_length(value))) p->failed = true;
    json_decref(value);
    return ok && !p->failed;
}

static bool key_is(const struct answer_parser *p, const char *const *names)
{
    const struct span key = p->json.key;
    for (; *names; names++)
        if (strlen(*names) == key.end - key.begin && memcmp(p->held.data + key.begin, *names, strlen(*names)) == 0)
            return true;
    return false;
}

/* A key has ended: what its value will be. */
static void find_field(struct answer_parser *p)
{
    static const char *const names[] = {"name", "tool_name", NULL};
    static const char *const arguments[] = {"arguments", "parameters", NULL};
    static const char *const ids[] = {"id", "tool_call_id", NULL};
    p->json.field = p->tools->name_is_key  ? FIELD_ARGUMENTS
                    : key_is(p, names)     ? FIELD_NAME
                    : key_is(p, arguments) ? FIELD_ARGUMENTS
                    : key_is(p, ids)       ? FIELD_ID
                                           : FIELD_OTHER;
    if (p->tools->name_is_key) p->json.name = (struct span){p->json.key.begin - 1, p->json.key.end + 1};
}

/* Keeps the name and the id. A call without a mark must be one of a known tool. */
static bool decode_name(struct answer_parser *p)
{
    const struct json_call *call = &p->json;
    if (call->name.end == 0 || !decode(p, call->name, &p->name)) return false;
    if (!answer_is_name(p->name.data, p->name.length)) return false;
    if (p->is_bare && p->tool_list && !answer_tool_find(p->tool_list, p->name.data, p->name.length)) return false;
    if (call->id.end == 0 || !decode(p, call->id, &p->id)) text_clear(&p->id);
    return true;
}

/* Begins the call if its name is known and its arguments are an object. False: it can be no call. */
static bool begin_if_known(struct answer_parser *p)
{
    struct json_call *call = &p->json;
    if (p->in_call || call->name.end == 0 || call->arguments.begin == 0) return true;
    if (p->held.data[call->arguments.begin] != '{') return true;
    if (!decode_name(p)) return false;
    answer_begin_call(p, p->id.length > 0);
    call->given = call->arguments.begin;
    return true;
}

/* The value of a member has begun at held[at]. */
static bool begin_member(struct answer_parser *p, size_t at)
{
    struct json_call *call = &p->json;
    call->value = at;
    if (call->field != FIELD_ARGUMENTS) return true;
    if (call->arguments.begin) return false; /* twice */
    call->arguments = (struct span){at, 0};
    return strchr("{\"n", p->held.data[at]) && begin_if_known(p);
}

/* The value of a member has ended before held[end]. */
static bool end_member(struct answer_parser *p, size_t end)
{
    struct json_call *call = &p->json;
    const struct span value = {call->value, end};
    if (call->field == FIELD_NAME && !p->in_call) call->name = value;
    if (call->field == FIELD_ID) call->id = value;
    if (call->field == FIELD_ARGUMENTS) call->arguments.end = end;
    call->field = FIELD_OTHER;
    return begin_if_known(p);
}

/* The value that began at `value` has ended with the byte at held[at], or before it. */
static bool value_has_ended(const struct json_call *call, enum json_scan_state before, int depth, bool was_number)
{
    if (was_number) return call->scan.state <= JSON_SCAN_AFTER;
    return call->scan.state == JSON_SCAN_AFTER && call->scan.depth == 1 && (before != JSON_SCAN_AFTER || depth > 1);
}

/* Looks at what the byte at held[at] has done to the scan, whose state was `before`, at `depth`. */
static bool follow(struct answer_parser *p, size_t at, enum json_scan_state before, int depth)
{
    struct json_call *call = &p->json;
    const enum json_scan_state now = call->scan.state;
    if (depth > 1 && call->scan.depth > 1) return true;
    if (depth == 1 && before <= JSON_SCAN_KEY && now == JSON_SCAN_STRING && call->scan.is_key)
        call->key = (struct span){at + 1, 0};
    if (depth == 1 && before == JSON_SCAN_STRING && now == JSON_SCAN_COLON) {
        call->key.end = at;
        find_field(p);
    }
    if (depth == 1 && before == JSON_SCAN_VALUE && now != JSON_SCAN_VALUE) return begin_member(p, at);
    const bool was_number = depth == 1 && before >= JSON_SCAN_MINUS && before <= JSON_SCAN_POWER;
    if (!call->value || !value_has_ended(call, before, depth, was_number)) return true;
    const bool ok = end_member(p, was_number ? at : at + 1);
    call->value = 0;
    return ok;
}

/* ---- objects ---- */

static void give_new_arguments(struct answer_parser *p)
{
    struct json_call *call = &p->json;
    if (!p->in_call || !call->given) return;
    const size_t end = call->arguments.end ? call->arguments.end : p->at;
    answer_give_arguments(p, p->held.data + call->given, end - call->given);
    call->given = end;
}

/* The object is whole. Its arguments may be missing, null, or JSON in a string. */
static bool finish_object(struct answer_parser *p)
{
    struct json_call *call = &p->json;
    if (p->in_call) return true;
    if (call->arguments.begin == 0 && p->is_bare) return false;
    const bool in_string = call->arguments.begin && p->held.data[call->arguments.begin] == '"';
    if (in_string &&
        (!decode(p, call->arguments, &p->out) || !json_scan_whole(p->out.data, p->out.length) || p->out.data[0] != '{'))
        return false;
    if (!decode_name(p)) return false;
    answer_begin_call(p, p->id.length > 0);
    answer_give_arguments(p, in_string ? p->out.data : "{}", in_string ? p->out.length : 2);
    return true;
}

static enum step begin_object(struct answer_parser *p, size_t at)
{
    p->json = (struct json_call){.value = 0};
    return answer_go(p, in_object, at);
}

static enum step in_object(struct answer_parser *p)
{
    struct json_call *call = &p->json;
    enum json_scan_result result = JSON_SCAN_MORE;
    while (p->at < p->held.length && result == JSON_SCAN_MORE) {
        const enum json_scan_state before = call->scan.state;
        const int depth = call->scan.depth;
        result = json_scan_add(&call->scan, p->held.data[p->at]);
        if (result != JSON_SCAN_WRONG && !follow(p, p->at, before, depth)) result = JSON_SCAN_WRONG;
        if (!p->in_call && p->at - p->start > ANSWER_MAX_UNCERTAIN) result = JSON_SCAN_WRONG;
        if (result != JSON_SCAN_WRONG) p->at++;
    }
    give_new_arguments(p);
    if (result == JSON_SCAN_END && finish_object(p)) {
        answer_end_call(p);
        p->start = p->at;
        return answer_go(p, p->in_list ? in_list : behind_object, p->at);
    }
    return result == JSON_SCAN_MORE && !p->ended ? STEP_WAIT : answer_damaged(p);
}

/* Behind an object that stands in no list: another may follow. */
static enum step behind_object(struct answer_parser *p)
{
    size_t at = p->start;
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    if (p->tools->separator) {
        const enum match found = answer_match(p, at, p->tools->separator);
        if (found == MATCH_YES) at += strlen(p->tools->separator);
        if (found == MATCH_MAYBE || !answer_skip_blanks(p, &at)) return STEP_WAIT;
    }
    const bool another = at < p->held.length && p->held.data[at] == '{';
    return another ? begin_object(p, at) : answer_go(p, answer_after_calls, p->start);
}

static enum step in_list(struct answer_parser *p)
{
    const bool is_first = p->at > p->start; /* the list's bracket was not given */
    size_t at = p->at;
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    const char c = at < p->held.length ? p->held.data[at] : '\0';
    if (!is_first && c == ']') {
        p->start = at + 1;
        return answer_go(p, answer_after_calls, at + 1);
    }
    if (!is_first && c == ',') {
        at++;
        if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    } else if (!is_first) {
        return answer_damaged(p);
    }
    return at < p->held.length && p->held.data[at] == '{' ? begin_object(p, at) : answer_damaged(p);
}

enum step json_calls_step(struct answer_parser *p)
{
    size_t at = p->at;
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    const char c = at < p->held.length ? p->held.data[at] : '\0';
    p->in_list = c == '[';
    if (c == '[') return answer_go(p, in_list, at + 1);
    if (c == '{') return begin_object(p, at);
    return p->tools->may_be_named ? answer_go(p, named_call_name_step, p->at) : answer_damaged(p);
}

/* ---- behind a name ---- */

/* "functions.f:0" is the id, and f the name. */
static bool split_id(struct answer_parser *p, size_t begin, size_t end)
{
    static const char prefix[] = "functions.";
    if (!answer_keep_name(p, begin, end)) return false;
    struct text *name = &p->name;
    text_clear(&p->id);
    if (!text_append(&p->id, name->data, name->length)) p->failed = true;
    const char *first = strncmp(name->data, prefix, strlen(prefix)) == 0 ? name->data + strlen(prefix) : name->data;
    const char *colon = strrchr(first, ':');
    const size_t length = colon ? (size_t)(colon - first) : strlen(first);
    memmove(name->data, first, length);
    name->data[length] = '\0';
    name->length = length;
    return length > 0;
}

/* At the mark before the next name of several, or at the end of all. */
enum step named_calls_step(struct answer_parser *p)
{
    const char *mark = p->tools->marks.call;
    size_t at = p->at;
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    const enum match found = answer_match(p, at, mark);
    if (found == MATCH_MAYBE) return STEP_WAIT;
    if (found == MATCH_YES) return answer_go(p, named_call_name_step, at + strlen(mark));
    return p->at > p->start ? answer_damaged(p) : answer_go(p, answer_after_calls, p->start);
}

enum step named_call_name_step(struct answer_parser *p)
{
    int which = 0;
    enum match found;
    const size_t end = answer_find(p, p->at, p->tools->marks.name_end, &which, &found);
    if (end - p->at > ANSWER_MAX_NAME) return answer_damaged(p);
    if (found != MATCH_YES && !p->ended && answer_may_be_name(p, p->at, end)) return STEP_WAIT;
    if (found != MATCH_YES) return answer_damaged(p);
    text_clear(&p->id);
    if (!(p->tools->has_id ? split_id(p, p->at, end) : answer_keep_name(p, p->at, end))) return answer_damaged(p);
    return answer_go(p, at_marked_call, end);
}

/* At a mark behind the name: the call's id may come first. */
static enum step at_marked_call(struct answer_parser *p)
{
    static const char id_mark[] = "[CALL_ID]";
    const char *const *marks = p->tools->marks.name_end;
    size_t at = p->at;
    if (answer_match(p, at, id_mark) == MATCH_YES) {
        int which = 0;
        enum match found;
        const size_t begin = at + strlen(id_mark), end = answer_find(p, begin, marks, &which, &found);
        if (end - begin > ANSWER_MAX_NAME) return answer_damaged(p);
        if (found != MATCH_YES) return p->ended ? answer_damaged(p) : STEP_WAIT;
        text_clear(&p->id);
        if (!text_append(&p->id, p->held.data + begin, end - begin)) p->failed = true;
        if (!answer_is_name(p->id.data, p->id.length)) return answer_damaged(p);
        at = end;
    }
    for (int i = 0; i < FORM_MAX_MARKS && marks[i]; i++)
        if (marks[i][0] != '{' && answer_match(p, at, marks[i]) == MATCH_YES) at += strlen(marks[i]);
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    if (at == p->held.length || p->held.data[at] != '{') return answer_damaged(p);
    p->start = at;
    p->json = (struct json_call){.after = behind_arguments};
    answer_begin_call(p, p->id.length > 0);
    return answer_go(p, json_arguments_step, at);
}

static enum step behind_arguments(struct answer_parser *p)
{
    const char *mark = p->tools->marks.call_end;
    size_t at = p->start;
    if (!mark) return answer_go(p, answer_after_calls, p->start);
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    const enum match found = answer_match(p, at, mark);
    if (found == MATCH_MAYBE) return STEP_WAIT;
    if (found == MATCH_YES) p->start = at + strlen(mark);
    return answer_go(p, found == MATCH_YES ? named_calls_step : answer_after_calls, p->start);
}
