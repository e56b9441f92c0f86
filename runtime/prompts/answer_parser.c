/* The parser of answers: what stands outside of calls, which is thoughts and content. */
#include "runtime/prompts/answer_parser.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/prompts/answer_parser_state.h"

static answer_step at_begin, at_label, in_thought, behind_thought;

/* Whether held[at] begins with one of the marks; *length is the mark's. */
static enum match match_any(const struct answer_parser *p, size_t at, const char *const *marks, size_t *length)
{
    enum match best = MATCH_NO;
    for (int i = 0; i < FORM_MAX_MARKS && marks[i] && best != MATCH_YES; i++) {
        const enum match found = answer_match(p, at, marks[i]);
        if (found == MATCH_YES) *length = strlen(marks[i]);
        if (found != MATCH_NO) best = found;
    }
    return best;
}

/* ---- thoughts ---- */

/* At the beginning of the answer: a thought may begin here, or has begun in the prompt. A mark that says so once more
 * is left out. */
static enum step at_begin(struct answer_parser *p)
{
    size_t at = p->start, length = 0;
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    const enum match found = match_any(p, at, p->reasoning->begins, &length);
    if (found == MATCH_MAYBE) return STEP_WAIT;
    if (found == MATCH_YES) p->start = at + length;
    if (found == MATCH_YES || p->thought_is_open) return answer_go(p, at_label, p->start);
    return answer_go(p, behind_thought, p->start);
}

static enum step at_label(struct answer_parser *p)
{
    const enum match found = p->reasoning->label ? answer_match(p, p->start, p->reasoning->label) : MATCH_NO;
    if (found == MATCH_MAYBE) return STEP_WAIT;
    if (found == MATCH_YES) p->start += strlen(p->reasoning->label);
    return answer_go(p, in_thought, p->start);
}

static enum step in_thought(struct answer_parser *p)
{
    const struct reasoning_form *form = p->reasoning;
    int which = 0, tool_mark = 0;
    enum match found, tool_found = MATCH_NO;
    const size_t end = answer_find(p, p->start, form->ends, &which, &found);
    size_t tool = p->held.length;
    if (form->ends_at_tools && p->tools) tool = answer_find(p, p->start, p->tools->begins, &tool_mark, &tool_found);
    const size_t first = tool < end ? tool : end;
    answer_give(p, PART_REASONING, p->held.data + p->start, first - p->start);
    p->start = first;
    if (tool < end) return tool_found == MATCH_YES ? answer_go(p, answer_content, first) : STEP_WAIT;
    if (found != MATCH_YES) return STEP_WAIT;
    p->start += strlen(form->ends[which]);
    return answer_go(p, behind_thought, p->start);
}

/* Some models put marks around what follows their thought. */
static enum step behind_thought(struct answer_parser *p)
{
    const char *mark = p->reasoning->answer_begin;
    size_t at = p->start;
    if (mark && !answer_skip_blanks(p, &at)) return STEP_WAIT;
    const enum match found = mark ? answer_match(p, at, mark) : MATCH_NO;
    if (found == MATCH_MAYBE) return STEP_WAIT;
    if (found == MATCH_YES) p->start = at + strlen(mark);
    return answer_go(p, answer_content, p->start);
}

/* ---- content ---- */

static enum step begin_calls(struct answer_parser *p, size_t at)
{
    switch (p->tools->syntax) {
    case SYNTAX_NAMED:
        return answer_go(p, named_calls_step, at);
    case SYNTAX_XML:
        return answer_go(p, xml_calls_step, at);
    case SYNTAX_LITERAL:
        return answer_go(p, literal_calls_step, at);
    default:
        return answer_go(p, json_calls_step, at);
    }
}

/* A call without a mark, at the beginning of the content. */
static bool is_bare_call(const struct answer_parser *p, size_t at)
{
    return p->tools->bare && !p->has_content && p->num_tools == 0 && at < p->held.length &&
           strchr(p->tools->bare, p->held.data[at]) != NULL;
}

/* The marks that end content. */
static void content_marks(const struct answer_parser *p, const char *marks[FORM_MAX_MARKS])
{
    int count = 0;
    for (int i = 0; p->tools && i < FORM_MAX_MARKS && p->tools->begins[i]; i++) marks[count++] = p->tools->begins[i];
    if (p->reasoning && p->reasoning->answer_end && count < FORM_MAX_MARKS) marks[count++] = p->reasoning->answer_end;
    if (count < FORM_MAX_MARKS) marks[count] = NULL;
}

enum step answer_content(struct answer_parser *p)
{
    const char *marks[FORM_MAX_MARKS];
    enum match found;
    int which = 0;
    content_marks(p, marks);
    if (p->tools && p->tools->bare && !p->has_content && p->num_tools == 0) {
        size_t at = p->start;
        if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
        answer_give_content(p, p->held.data + p->start, at - p->start);
        p->start = at;
        p->is_bare = is_bare_call(p, at);
        if (p->is_bare) return begin_calls(p, at);
    }
    const size_t end = answer_find(p, p->start, marks, &which, &found);
    answer_give_content(p, p->held.data + p->start, end - p->start);
    p->start = end;
    if (found != MATCH_YES) return STEP_WAIT;
    const size_t length = strlen(marks[which]);
    if (p->reasoning && marks[which] == p->reasoning->answer_end) {
        p->start += length;
        return answer_go(p, answer_content, p->start);
    }
    p->mark_length = length;
    p->is_bare = false;
    return begin_calls(p, end + length);
}

enum step answer_after_calls(struct answer_parser *p)
{
    size_t at = p->start, length = 0;
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    const enum match found = match_any(p, at, p->tools->ends, &length);
    if (found == MATCH_MAYBE) return STEP_WAIT;
    if (found == MATCH_YES) p->start = at + length;
    return answer_go(p, p->text_step, p->start);
}

/* ---- the parser ---- */

enum status answer_parser_create(const struct answer_parser_options *options, answer_part_function *function,
                                 void *user, struct answer_parser **out, struct error *err)
{
    struct answer_parser *p = *out = calloc(1, sizeof *p);
    if (!p || !text_reserve(&p->held, 1)) {
        free(p);
        *out = NULL;
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the parser of an answer");
    }
    p->function = function;
    p->user = user;
    p->tools = (const struct tool_form *)options->tools;
    p->reasoning = (const struct reasoning_form *)options->reasoning;
    p->tool_list = options->tool_list;
    p->thought_is_open = options->in_reasoning && p->reasoning;
    const bool harmony = (p->tools && p->tools->syntax == SYNTAX_HARMONY) || (p->reasoning && p->reasoning->is_harmony);
    p->harmony.is_reasoning = p->thought_is_open;
    p->harmony.is_first = true;
    p->text_step = harmony ? harmony_text_step : answer_content;
    p->step = harmony ? harmony_step : p->reasoning ? at_begin : answer_content;
    return STATUS_OK;
}

void answer_parser_free(struct answer_parser *p)
{
    if (!p) return;
    text_free(&p->held);
    text_free(&p->blanks);
    text_free(&p->name);
    text_free(&p->id);
    text_free(&p->out);
    free(p);
}

static bool run(struct answer_parser *p)
{
    while (!p->failed && p->step(p) == STEP_ON) continue;
    return !p->failed;
}

bool answer_parser_add(struct answer_parser *p, const char *text, size_t length)
{
    if (p->failed || length == 0) return !p->failed;
    if (p->start == p->held.length) {
        text_clear(&p->held);
        p->start = p->at = p->searched = 0;
    }
    if (!text_append(&p->held, text, length)) p->failed = true;
    return run(p);
}

bool answer_parser_finish(struct answer_parser *p)
{
    p->ended = true;
    if (!run(p)) return false;
    if (p->in_call) answer_end_call(p);
    if (p->num_tools == 0) answer_give(p, PART_CONTENT, p->blanks.data, p->blanks.length);
    text_clear(&p->blanks);
    return true;
}

int32_t answer_parser_num_tools(const struct answer_parser *p)
{
    return p->num_tools;
}
