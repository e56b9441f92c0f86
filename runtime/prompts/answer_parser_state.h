/* What a parser of answers is made of. The parser is a machine that reads text which it holds back: a step either goes
 * on, or waits for more text. A step decides by the bytes alone, and waits where another byte could change its mind, so
 * that the parts do not depend on the pieces in which the text comes.
 *
 *       given already       what the machine has read       not read
 *     ----------------- start --------------------------- at -------- held.length
 *
 * Until a call's name is certain nothing of the call is given: if it is damaged, the bytes from `start` on are content.
 */
#ifndef QUIRE_RUNTIME_ANSWER_PARSER_STATE_H
#define QUIRE_RUNTIME_ANSWER_PARSER_STATE_H

#include "base/array.h"
#include "base/json_scan.h"
#include "runtime/prompts/answer_formats.h"
#include "runtime/prompts/literal.h"

enum {
    ANSWER_MAX_NAME = 256,        /* bytes of a tool's name or an argument's, with what stands around it */
    ANSWER_MAX_UNCERTAIN = 32768, /* bytes of a call whose name is not known */
    ANSWER_MAX_BLANKS = 1024      /* in one place of a call, or around marks */
};

enum step { STEP_ON, STEP_WAIT };
typedef enum step answer_step(struct answer_parser *p);

/* A part of the held bytes; begin 0 and end 0: none. */
struct span {
    size_t begin, end;
};

struct json_call {
    struct json_scan scan;
    enum { FIELD_OTHER, FIELD_NAME, FIELD_ARGUMENTS, FIELD_ID } field;
    struct span key, name, id, arguments;
    size_t value;       /* where the value of the field begins */
    size_t given;       /* up to here the arguments were given */
    answer_step *after; /* of json_arguments_step: goes on behind them */
};

struct xml_call {
    const json_t *schema; /* of the tool's arguments */
    unsigned types;       /* of the value, as in tool_value.h */
    bool has_keys;
};

struct harmony_message {
    bool is_reasoning; /* its text */
    bool is_first;     /* nothing of the answer was read */
};

struct answer_parser {
    answer_part_function *function;
    void *user;
    const struct tool_form *tools;
    const struct reasoning_form *reasoning;
    const json_t *tool_list;

    struct text held;
    size_t start, at;
    size_t searched;      /* held[at .. searched) holds none of the marks that the step looks for */
    bool thought_is_open; /* by the prompt */
    bool ended;           /* no more text comes */
    bool failed;          /* memory ran out */
    answer_step *step;
    answer_step *text_step; /* outside of calls */

    struct text blanks; /* before content; dropped before a call */
    bool has_content;   /* something other than blanks was given since the beginning or the last call */
    int32_t num_tools;
    bool is_bare;       /* no mark stands before the calls */
    bool in_call;       /* its name was given and its end was not */
    size_t mark_length; /* of the mark at `start`, which becomes content if the call is damaged */

    bool in_list;              /* of calls */
    struct text name, id, out; /* room for what is being made */
    struct json_call json;
    struct xml_call xml;
    struct literal literal;
    struct harmony_message harmony;
};

/* ---- what all steps use (answer_text.c) ---- */

enum match { MATCH_NO, MATCH_YES, MATCH_MAYBE }; /* MAYBE: the text ends inside the mark, and more may come */
/* Whether the mark stands at held[at]. */
enum match answer_match(const struct answer_parser *p, size_t at, const char *mark);
/* Moves *at behind at most ANSWER_MAX_BLANKS blanks. False: the text ends there, and more may come. */
bool answer_skip_blanks(const struct answer_parser *p, size_t *at);
/* Where the first of the marks stands at or behind `from`: MATCH_YES, and *which; MATCH_MAYBE: one may begin there;
 * MATCH_NO: the length of the text. */
size_t answer_find(const struct answer_parser *p, size_t from, const char *const *marks, int *which, enum match *found);

/* Goes on with `step` at held[at]; what was read is given or dropped. */
enum step answer_go(struct answer_parser *p, answer_step *step, size_t at);
/* Gives a part of the current call, or of the text outside. */
void answer_give(struct answer_parser *p, enum answer_part_kind kind, const char *text, size_t length);
void answer_give_arguments(struct answer_parser *p, const char *text, size_t length);
/* Blanks before content wait until it is known whether a call follows. */
void answer_give_content(struct answer_parser *p, const char *text, size_t length);
/* Gives `name` of the parser as the name of a new call; `id`: the parser's id is its id. */
void answer_begin_call(struct answer_parser *p, bool has_id);
void answer_end_call(struct answer_parser *p);
/* What stands at `at` fits nothing: ends the call, or makes content of the mark that began it. */
enum step answer_damaged(struct answer_parser *p);

/* Whether it can be the name of a tool. */
bool answer_is_name(const char *name, size_t length);
/* Keeps held[begin..end) without blanks around it as `name`. False: it is no name. */
bool answer_keep_name(struct answer_parser *p, size_t begin, size_t end);
/* Whether held[begin..end) and more can be one: it holds no blank behind the first other byte. */
bool answer_may_be_name(const struct answer_parser *p, size_t begin, size_t end);
/* The tool of this name in "tools", as the object that has its "name"; NULL: none. */
const json_t *answer_tool_find(const json_t *tool_list, const char *name, size_t length);
/* The schema of its arguments; NULL: none. */
const json_t *answer_tool_schema(const json_t *tool);

/* ---- the steps that others go on with ---- */

answer_step answer_content, harmony_text_step, answer_after_calls;
/* The first step behind the mark of each syntax. `at` is behind the mark. */
answer_step json_calls_step, named_calls_step, xml_calls_step, literal_calls_step, harmony_step;
/* Behind the mark that stands before a name. */
answer_step named_call_name_step, xml_call_name_step;
/* At the '{' of arguments whose call has begun; goes on with `json.after` at their end. */
answer_step json_arguments_step;

#endif
