/* Harmony, the form of gpt-oss (https://github.com/openai/harmony): an answer is messages, each with a header.
 *
 *     <|channel|>analysis<|message|>...<|end|>
 *     <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
 *
 * The answer begins inside the first header, behind "<|start|>assistant". */
#include <string.h>

#include "runtime/prompts/answer_parser_state.h"

static answer_step in_header, at_arguments;

enum { MAX_HEADER = 1024 };
static const char MESSAGE[] = "<|message|>", CHANNEL[] = "<|channel|>", FUNCTIONS[] = "functions.";
/* A message ends with one of the first three, or where the next begins. */
static const char *const ENDS[FORM_MAX_MARKS] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>", CHANNEL};
enum { NUM_ENDS = 3 };

/* Between two messages. Text that no header stands before is content. */
enum step harmony_step(struct answer_parser *p)
{
    static const char recipient[] = "to=";
    size_t at = p->start;
    bool may_match = false;
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    for (int i = 0; i < FORM_MAX_MARKS && ENDS[i]; i++) {
        const enum match found = answer_match(p, at, ENDS[i]);
        may_match = may_match || found == MATCH_MAYBE;
        if (found != MATCH_YES) continue;
        p->harmony.is_first = false;
        p->start = at + (i < NUM_ENDS ? strlen(ENDS[i]) : 0);
        p->mark_length = i < NUM_ENDS ? 0 : strlen(ENDS[i]);
        return answer_go(p, i < NUM_ENDS ? harmony_step : in_header, p->start);
    }
    const enum match found = p->harmony.is_first && !p->thought_is_open ? answer_match(p, at, recipient) : MATCH_NO;
    if (may_match || found == MATCH_MAYBE) return STEP_WAIT;
    p->harmony.is_first = false;
    if (found == MATCH_YES) p->start = at;
    p->mark_length = found == MATCH_YES ? strlen(recipient) : 0;
    return answer_go(p, found == MATCH_YES ? in_header : harmony_text_step, p->start);
}

/* The word behind `before` in held[begin..end), without `prefix`. */
static struct span find_word(const struct answer_parser *p, size_t begin, size_t end, const char *before)
{
    const char *data = p->held.data, *found = memmem(data + begin, end - begin, before, strlen(before));
    if (!found) return (struct span){0, 0};
    struct span word = {(size_t)(found - data) + strlen(before), 0};
    for (word.end = word.begin; word.end < end && !strchr(" \t\r\n<", data[word.end]);) word.end++;
    return word;
}

static bool word_is(const struct answer_parser *p, struct span word, const char *text)
{
    return word.end - word.begin == strlen(text) && memcmp(p->held.data + word.begin, text, strlen(text)) == 0;
}

static enum step in_header(struct answer_parser *p)
{
    const char *const marks[FORM_MAX_MARKS] = {MESSAGE};
    int which = 0;
    enum match found;
    const size_t end = answer_find(p, p->searched, marks, &which, &found);
    p->searched = end;
    if (end - p->start > MAX_HEADER) return answer_damaged(p);
    if (found != MATCH_YES) return p->ended ? answer_damaged(p) : STEP_WAIT;
    const struct span channel = find_word(p, p->start, end, CHANNEL), to = find_word(p, p->start, end, "to=");
    const size_t prefix = strlen(FUNCTIONS);
    const bool is_call = p->tools && to.end - to.begin > prefix &&
                         memcmp(p->held.data + to.begin, FUNCTIONS, prefix) == 0 &&
                         answer_keep_name(p, to.begin + prefix, to.end);
    p->harmony.is_reasoning = p->reasoning && word_is(p, channel, "analysis");
    p->start = end + strlen(MESSAGE);
    p->mark_length = 0;
    return answer_go(p, is_call ? at_arguments : harmony_text_step, p->start);
}

/* A call without arguments has none of an object, too. */
static enum step at_arguments(struct answer_parser *p)
{
    size_t at = p->start;
    if (!answer_skip_blanks(p, &at)) return STEP_WAIT;
    const enum match call = answer_match(p, at, "<|call|>");
    if (call == MATCH_MAYBE) return STEP_WAIT;
    const bool is_object = at < p->held.length && p->held.data[at] == '{';
    if (call == MATCH_NO && !is_object) {
        p->harmony.is_reasoning = false;
        return answer_go(p, harmony_text_step, p->start);
    }
    p->start = at;
    p->json = (struct json_call){.after = harmony_step};
    answer_begin_call(p, false);
    if (is_object) return answer_go(p, json_arguments_step, at);
    answer_give_arguments(p, "{}", 2);
    answer_end_call(p);
    return answer_go(p, harmony_step, at);
}

enum step harmony_text_step(struct answer_parser *p)
{
    int which = 0;
    enum match found;
    const size_t end = answer_find(p, p->start, ENDS, &which, &found);
    if (p->harmony.is_reasoning)
        answer_give(p, PART_REASONING, p->held.data + p->start, end - p->start);
    else
        answer_give_content(p, p->held.data + p->start, end - p->start);
    p->start = end;
    if (found != MATCH_YES) return STEP_WAIT;
    p->harmony.is_reasoning = false;
    return answer_go(p, harmony_step, end);
}
