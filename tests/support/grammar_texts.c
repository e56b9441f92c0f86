#include "tests/support/grammar_texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/plain_grammar.h"

void grammar_texts_check(const struct grammar *g, const struct grammar_texts *texts)
{
    for (int i = 0; i < 8 && texts->yes[i]; i++)
        if (!plain_grammar_matches(g, texts->yes[i], strlen(texts->yes[i])))
            fail_msg("%s\nhas not: %s", texts->source, texts->yes[i]);
    for (int i = 0; i < 8 && texts->no[i]; i++)
        if (plain_grammar_matches(g, texts->no[i], strlen(texts->no[i])))
            fail_msg("%s\nhas: %s", texts->source, texts->no[i]);
}

struct grammar *grammar_texts_parse(grammar_parser *parse, const char *source)
{
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *g = NULL;
    struct error err = {""};
    int32_t root = -1;
    if (parse(source, strlen(source), b, &root, &err) != STATUS_OK) fail_msg("%s\n%s", source, err.text);
    if (grammar_build(b, root, &g, &err) != STATUS_OK) fail_msg("%s\n%s", source, err.text);
    grammar_builder_free(b);
    return g;
}

void grammar_texts_refuse(grammar_parser *parse, const char *source, const char *sentence)
{
    struct grammar_builder *b = grammar_builder_create();
    struct error err = {""};
    int32_t root = -1;
    if (parse(source, strlen(source), b, &root, &err) == STATUS_OK) fail_msg("accepted: %s", source);
    assert_string_equal(err.text, sentence);
    grammar_builder_free(b);
}
