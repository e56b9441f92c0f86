/* A grammar as text, in whichever of the two forms it is written. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_GRAMMAR_FORM_H
#define QUIRE_TOKENIZER_GRAMMAR_GRAMMAR_FORM_H

#include "tokenizer/grammar/grammar.h"

/* GBNF if a line of it begins with "NAME ::=", else Lark. *out: the texts of its root. */
enum status grammar_form_node(const char *text, size_t length, struct grammar_builder *b, grammar_node *out,
                              struct error *err);

#endif
