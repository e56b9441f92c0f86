/* GBNF, the grammars of llama.cpp (its grammars/README.md): rules "name ::= ...", literals, character classes,
 * alternatives, groups, * + ? {m,n}, comments, "." and rules over several lines; the root is "root". */
#ifndef QUIRE_TOKENIZER_GRAMMAR_GBNF_H
#define QUIRE_TOKENIZER_GRAMMAR_GBNF_H

#include "tokenizer/grammar/grammar.h"

/* INVALID, UNSUPPORTED: the sentence has line and column. *root is a rule of the builder. */
enum status gbnf_parse(const char *text, size_t length, struct grammar_builder *b, int32_t *root, struct error *err);

#endif
