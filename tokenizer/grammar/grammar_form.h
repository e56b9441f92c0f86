/* Texts that describe texts: grammars in either form, and regular expressions. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_GRAMMAR_FORM_H
#define QUIRE_TOKENIZER_GRAMMAR_GRAMMAR_FORM_H

#include "tokenizer/grammar/grammar.h"

/* GBNF if a line of it begins with "NAME ::=", else Lark. *out: the texts of its root. */
enum status grammar_form_node(const char *text, size_t length, struct grammar_builder *b, grammar_node *out,
                              struct error *err);
/* *out: the texts that match the regular expression (regular.h) as a whole. */
enum status grammar_pattern_node(const char *pattern, size_t length, struct grammar_builder *b, grammar_node *out,
                                 struct error *err);

#endif
