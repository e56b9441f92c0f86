/* Answers that are taken apart (answer_parser.h): what all who do so share, and the parts of a whole answer. */
#ifndef QUIRE_RUNTIME_ANSWER_PARTS_H
#define QUIRE_RUNTIME_ANSWER_PARTS_H

#include <jansson.h>

#include "base/array.h"
#include "runtime/engine/engine.h"
#include "runtime/prompts/answer_parser.h"
#include "tokenizer/token_list.h"

/* The id of a call to which the model gives none: letters and digits, as many as Mistral's templates want. */
struct tool_id {
    char text[10];
};
/* Ids follow from this number, which differs between the requests of a conversation, whatever these are called: each
 * has another prompt. */
uint64_t tool_id_seed(const char *request_id, const struct token_list *prompt);
struct tool_id tool_id_make(uint64_t seed, int32_t answer, int32_t tool);

/* *out: whether an answer begins inside a thought whose prompt is prompt[length]; from `start` on that is the beginning
 * of the answer itself. OUT_OF_MEMORY is the only failure. */
enum status answer_parts_in_reasoning(const struct answer_format *reasoning, const char *prompt, size_t start,
                                      size_t length, bool *out, struct error *err);

/* Bytes of the piece's text for the parser. Special tokens are shown for its sake; the one that ends the answer is not
 * a part of it. */
size_t answer_parts_length(const struct tokenizer *tokenizer, const struct answer_piece *piece);

/* The parts of one answer, gathered piece by piece. */
struct answer_parts {
    struct answer_parser *parser;
    struct text content, reasoning;
    json_t *calls;         /* a list, as a message of OpenAI's has it in "tool_calls" */
    struct text arguments; /* of the call that is being written */
    uint64_t seed;
    int32_t answer;
    bool no_memory;
};
/* `seed` and `answer` are those of tool_id_make. NULL: memory ran out. */
struct answer_parts *answer_parts_create(const struct answer_parser_options *options, uint64_t seed, int32_t answer);
void answer_parts_free(struct answer_parts *p); /* NULL is allowed */
/* False: memory ran out. */
bool answer_parts_take(struct answer_parts *p, const struct tokenizer *tokenizer, const struct answer_piece *piece);

#endif
