/* The plainest grammars: a second implementation of tokenizer/grammar/grammar.h that keeps the nodes as they were
 * given, recognizes a text by trying everything, and draws texts at random. A program that is linked with the --wrap
 * options of CMakeLists.txt's plain_grammar gets it in place of quire's own. */
#ifndef QUIRE_TESTS_SUPPORT_PLAIN_GRAMMAR_H
#define QUIRE_TESTS_SUPPORT_PLAIN_GRAMMAR_H

#include "base/array.h"
#include "base/random.h"
#include "tokenizer/grammar/grammar.h"

/* The text is one of the grammar. Rules may not be recursive on the left. */
bool plain_grammar_matches(const struct grammar *g, const char *text, size_t length);
/* Draws a text of the grammar Repetitions and recursions end once the text has about `length` bytes. */
void plain_grammar_draw(const struct grammar *g, struct random *random, size_t length, struct text *out);
/* Nodes and states of automata: what the grammar takes. */
size_t plain_grammar_size(const struct grammar *g);

#endif
