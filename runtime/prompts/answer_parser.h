/* The parts of an answer: models write their reasoning and their calls of tools as text, each family in a form of its
 * own; here the text becomes parts as it comes, whatever pieces it comes in.
 *
 *     <think>Look it up.</think>Wait. <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
 *
 *     REASONING "Look it up."   CONTENT "Wait. "   TOOL_CALL 0 "f"   TOOL_ARGUMENTS 0 {"a": 1}   TOOL_END 0
 *
 * Arguments are a JSON object as text, which grows like any other text: where the form is not JSON (XML, pythonic),
 * values become JSON by the types of the tool's schema, as in vLLM. What is damaged is content, as the model wrote it.
 * Once a call's name is given the call cannot be taken back: where it is damaged or cut off, its arguments end there as
 * JSON that is not whole, and what follows is content. Blanks alone before or between calls are left out.
 *
 * The forms stand in the tables of tool_formats.c and reasoning_formats.c and nowhere else; they follow vLLM's parsers
 * of the same names. */
#ifndef QUIRE_RUNTIME_ANSWER_PARSER_H
#define QUIRE_RUNTIME_ANSWER_PARSER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

enum answer_part_kind { PART_REASONING, PART_CONTENT, PART_TOOL_CALL, PART_TOOL_ARGUMENTS, PART_TOOL_END };

struct answer_part {
    enum answer_part_kind kind;
    int32_t tool;     /* of tool parts: which call of the answer, from 0 */
    const char *text; /* [length] of TOOL_CALL: the tool's name; of TOOL_END: none. Valid during the call only */
    size_t length;
    const char *id; /* of TOOL_CALL: the id that the model gave the call (Mistral, Kimi); NULL: it gives none */
};
typedef void answer_part_function(void *user, const struct answer_part *part);

/* A form of reasoning, or of tool calls. */
struct answer_format {
    const char *name;        /* "hermes", "deepseek_r1": vLLM's value of --tool-call-parser or --reasoning-parser */
    const char *description; /* for the help: which models write it */
};
/* NULL: there is none of this name. Names of vLLM for the same form, such as "qwen3" and "deepseek_r1", give one form,
 * whose name is the first. */
const struct answer_format *tool_format_find(const char *name);
const struct answer_format *reasoning_format_find(const char *name);
/* The i-th of the table, or NULL. */
const struct answer_format *tool_format_at(int i);
const struct answer_format *reasoning_format_at(int i);
/* Those that the source of a chat template is made for; NULL: it has no tools, or no reasoning. */
const struct answer_format *tool_format_of_template(const char *source);
const struct answer_format *reasoning_format_of_template(const char *source);

/* Whether special tokens of the tokenizer are among its marks, so that they must be shown. */
bool tool_format_is_special(const struct answer_format *tools, const struct tokenizer *t);
bool reasoning_format_is_special(const struct answer_format *reasoning, const struct tokenizer *t);

struct answer_parser_options {
    const struct answer_format *tools, *reasoning; /* NULL: none is looked for */
    const json_t *tool_list; /* the request's "tools": types of arguments, names; NULL: none. Outlives the parser */
    bool in_reasoning;       /* the prompt ends inside a thought, so the answer begins there */
};
/* Whether a prompt that ends with prompt_end[length] leaves the answer inside a thought: its last text, but for blanks,
 * is a mark that begins one. */
bool reasoning_is_open(const struct answer_format *reasoning, const char *prompt_end, size_t length);

struct answer_parser;
enum status answer_parser_create(const struct answer_parser_options *options, answer_part_function *function,
                                 void *user, struct answer_parser **out, struct error *err);
void answer_parser_free(struct answer_parser *p); /* NULL is allowed */
/* Takes text[length]; calls the function for what is certain. False: memory ran out. */
bool answer_parser_add(struct answer_parser *p, const char *text, size_t length);
/* The answer has ended: what was held back is given. */
bool answer_parser_finish(struct answer_parser *p);
int32_t answer_parser_num_tools(const struct answer_parser *p);

/* What an answer must be, so that it is calls: the value of a structural tag (structured.h), for tool_choice "required"
 * (name NULL: one call or more) or of one tool (one call). The caller owns it. INVALID: there is no tool, or none of
 * this name. */
enum status tool_format_force(const struct answer_format *tools, const json_t *tool_list, const char *name,
                              json_t **out, struct error *err);

#endif
