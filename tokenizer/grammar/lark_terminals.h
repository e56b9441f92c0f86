/* The terminals that a grammar of Lark may import: those of its module `common`. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_LARK_TERMINALS_H
#define QUIRE_TOKENIZER_GRAMMAR_LARK_TERMINALS_H

#include <stddef.h>

/* The regular expression (regular.h) of a terminal; NULL: there is none of this name. */
const char *lark_terminal(const char *name, size_t length);

#endif
