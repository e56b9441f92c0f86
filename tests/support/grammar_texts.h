/* Tests of what writes grammars: a grammar's source, texts that it must have and texts that it must not. The program is
 * linked with plain_grammar (plain_grammar.h). */
#ifndef QUIRE_TESTS_SUPPORT_GRAMMAR_TEXTS_H
#define QUIRE_TESTS_SUPPORT_GRAMMAR_TEXTS_H

#include "tokenizer/grammar/grammar.h"

struct grammar_texts {
    const char *source;
    const char *yes[8], *no[8]; /* each ends with NULL */
};
/* Fails the test at the first text on which the grammar and the lists do not agree. */
void grammar_texts_check(const struct grammar *g, const struct grammar_texts *texts);

/* gbnf_parse or lark_parse. */
typedef enum status grammar_parser(const char *text, size_t length, struct grammar_builder *b, int32_t *root,
                                   struct error *err);
/* The grammar of a source that must be right. Free it with grammar_free. */
struct grammar *grammar_texts_parse(grammar_parser *parse, const char *source);
/* The source must be refused with this sentence. */
void grammar_texts_refuse(grammar_parser *parse, const char *source, const char *sentence);

#endif
