/* Lark's grammars (https://lark-parser.readthedocs.io, "Grammar Reference"), as far as vLLM takes them: rules and
 * terminals, literals with the flag i, regular expressions /.../, alternatives, groups, [optional], * + ? ~n..m,
 * %ignore, %import common.NAME of the usual names, ranges "a".."z", aliases and priorities (which change nothing). The root is "start". Terminals are
 * regular languages; a text is matched by the rules without a lexer's choice of the longest terminal. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_LARK_H
#define QUIRE_TOKENIZER_GRAMMAR_LARK_H

#include "tokenizer/grammar/grammar.h"

/* INVALID, UNSUPPORTED: the sentence has line and column. *root is a rule of the builder. */
enum status lark_parse(const char *text, size_t length, struct grammar_builder *b, int32_t *root, struct error *err);

#endif
