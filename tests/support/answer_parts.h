/* The parts of an answer (runtime/prompts/answer_parser.h) as text, for tests: "R(thought)C(content)", and for a call
 * "[f" or "[f#id", a blank, its arguments, and "]". Pieces of a part are joined. */
#ifndef QUIRE_TESTS_SUPPORT_ANSWER_PARTS_H
#define QUIRE_TESTS_SUPPORT_ANSWER_PARTS_H

#include "base/array.h"
#include "base/random.h"
#include "runtime/prompts/answer_parser.h"

struct parts {
    struct text shown, content, arguments; /* content: all of it; arguments: of the last call */
    int kind;                              /* of the last part; -1: none */
    int32_t num_tools;
    bool in_call, calls_are_whole; /* the arguments of every call are JSON */
};
void parts_free(struct parts *p);

struct form {
    const char *tools, *reasoning; /* names; NULL: none */
    const json_t *tool_list;
    bool in_reasoning;
};
/* The tools "weather" and "clock". */
json_t *answer_tool_list(void);

/* A parser that fills *parts, and checks the order of what it gets. */
struct answer_parser *open_parser(const struct form *form, struct parts *parts);
/* Gives it text. */
void add_piece(struct answer_parser *parser, const char *text, size_t length);
/* Ends and frees it. */
void close_parser(struct answer_parser *parser, struct parts *parts);

/* An answer in pieces of `size` bytes; 0: of random sizes. */
void parse_answer(const struct form *form, const char *text, size_t length, size_t size, struct random *random,
                  struct parts *parts);
/* The parts are the expected ones for every way to cut the text in two, and for pieces of all sizes. */
void check_pieces(const struct form *form, const char *text, const char *expected, struct random *random);

/* An answer, and what it is. */
struct example {
    const char *tools, *reasoning;
    const char *text, *parts;
};
extern const struct example answer_examples[]; /* [num_answer_examples]; some of every form */
extern const int num_answer_examples;

#endif
