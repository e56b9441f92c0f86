/* Calls as Python writes them, [f(a=1, b="x"), g()], and as Gemma does, call:f{a:1}. */
#include "runtime/prompts/answer_parser_state.h"

static answer_step before_name, in_name, in_arguments;

/* A call begins here, with its name, or all calls have ended. */
static enum step before_name(struct answer_parser *p)
{
    const bool is_first = p->at > p->start; /* what stands before the calls was not given */
    size_t at = p->at;
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    const char c = at < p->held.length ? p->held.data[at] : '\0';
    if (!is_first && p->in_list && c == ']') {
        p->start = at + 1;
        return answer_go(p, answer_after_calls, at + 1);
    }
    if (!is_first && c == ',') {
        at++;
        if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    } else if (!is_first && (p->in_list || c == '<' || p->tools->quote)) {
        return p->in_list ? answer_damaged(p) : answer_go(p, answer_after_calls, p->start);
    }
    return answer_go(p, in_name, at);
}

static enum step in_name(struct answer_parser *p)
{
    const char *const ends[FORM_MAX_MARKS] = {p->tools->quote ? "{" : "("};
    int which = 0;
    enum match found;
    const size_t end = answer_find(p, p->at, ends, &which, &found);
    if (end - p->at > ANSWER_MAX_NAME) return answer_damaged(p);
    if (found != MATCH_YES && !p->ended && answer_may_be_name(p, p->at, end)) return STEP_WAIT;
    if (found != MATCH_YES || !answer_keep_name(p, p->at, end)) return answer_damaged(p);
    if (p->is_bare && p->tool_list && !answer_tool_find(p->tool_list, p->name.data, p->name.length))
        return answer_damaged(p);
    text_clear(&p->out);
    if (p->tools->quote)
        literal_init(&p->literal, p->tools->quote, &p->out);
    else
        literal_init_call(&p->literal, &p->out);
    return answer_go(p, in_arguments, p->tools->quote ? end : end + 1);
}

/* The call is certain when its first argument has a key, or it has none. */
static enum step in_arguments(struct answer_parser *p)
{
    enum literal_result result = LITERAL_MORE;
    while (p->at < p->held.length && result == LITERAL_MORE) {
        result = literal_add(&p->literal, p->held.data[p->at]);
        if (!p->in_call && p->at - p->start > ANSWER_MAX_UNCERTAIN) result = LITERAL_WRONG;
        if (result != LITERAL_WRONG) p->at++;
        if (!p->in_call && result != LITERAL_WRONG && (p->literal.num_keys > 0 || result == LITERAL_END))
            answer_begin_call(p, false);
    }
    if (p->literal.failed) p->failed = true;
    if (p->in_call) {
        answer_give_arguments(p, p->out.data, p->out.length);
        text_clear(&p->out);
        p->start = p->at;
    }
    if (result == LITERAL_END) {
        answer_end_call(p);
        return answer_go(p, before_name, p->at);
    }
    return result == LITERAL_MORE && !p->ended ? STEP_WAIT : answer_damaged(p);
}

enum step literal_calls_step(struct answer_parser *p)
{
    size_t at = p->at;
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    p->in_list = !p->tools->quote && at < p->held.length && p->held.data[at] == '[';
    if (p->in_list) at++;
    if (at == p->start) return answer_damaged(p); /* nothing has begun calls */
    return answer_go(p, before_name, at);
}
