/* Text of any kind in which marks are looked for, such as the one that ends a thought or begins a call of a tool. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_FREE_TEXT_H
#define QUIRE_TOKENIZER_GRAMMAR_FREE_TEXT_H

#include "tokenizer/grammar/grammar.h"

enum {
    FREE_TEXT_MAX_MARKS = 64,
    FREE_TEXT_MAX_BYTES = 4096 /* of all marks together */
};

/* Strings in UTF-8, none of them empty. */
struct free_text_marks {
    const char *list[FREE_TEXT_MAX_MARKS]; /* [count] */
    int32_t count;
};

/* *out: the texts of whole characters in which no mark occurs; with which >= 0 those that end with mark `which`, and in
 * which no mark ends before. */
enum { FREE_TEXT_NO_MARK = -1 };
enum status free_text_node(const struct free_text_marks *marks, int32_t which, struct grammar_builder *b,
                           grammar_node *out, struct error *err);

#endif
