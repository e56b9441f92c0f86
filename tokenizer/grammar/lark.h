/* Lark's grammars (https://lark-parser.readthedocs.io, "Grammar Reference"), as far as vLLM takes them: rules and
 * terminals, literals with the flag i, regular expressions /.../ as regular.h has them, alternatives, groups,
 * [optional],
 * * + ? ~n ~n..m, %ignore, %import of the terminals of `common`, ranges "a".."z", aliases and priorities (which change
 * nothing). The root is "start". Templates, %declare, %override, %extend, other modules, and the flags m, l and x
 * of regular expressions are refused.
 *
 * A text is matched by the rules without a lexer's choice of the longest terminal, so that a text may have readings
 * that Lark's lexer does not find. Newlines say nothing: a definition ends where the next begins. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_LARK_H
#define QUIRE_TOKENIZER_GRAMMAR_LARK_H

#include "tokenizer/grammar/grammar.h"

/* INVALID, UNSUPPORTED: the sentence has line and column. *root is a rule of the builder. */
enum status lark_parse(const char *text, size_t length, struct grammar_builder *b, int32_t *root, struct error *err);

#endif
