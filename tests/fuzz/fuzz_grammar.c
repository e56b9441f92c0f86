/* A grammar in GBNF and in Lark's form. What is read can be built; what is refused has a place. */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tokenizer/grammar/gbnf.h"
#include "tokenizer/grammar/lark.h"

typedef enum status parser(const char *text, size_t length, struct grammar_builder *b, int32_t *root,
                           struct error *err);

static void check(parser *parse, const char *text, size_t length)
{
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *g = NULL;
    struct error err = {""};
    int32_t root = -1;
    if (parse(text, length, b, &root, &err) != STATUS_OK) {
        fuzz_require_sentence(&err);
        fuzz_require(strncmp(err.text, "line ", 5) == 0, "an error of a grammar without its line");
    } else {
        fuzz_require(grammar_is_defined(b, root), "a root that is not defined");
        if (grammar_build(b, root, &g, &err) != STATUS_OK) fuzz_require_sentence(&err);
    }
    grammar_free(g);
    grammar_builder_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(gbnf_parse, (const char *)data, size);
    check(lark_parse, (const char *)data, size);
    return 0;
}
