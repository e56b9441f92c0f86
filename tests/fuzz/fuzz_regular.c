/* Regular expressions. The first line of the input is one; the rest is a text. The two ways to ask whether the text
 * matches agree, and what the grammar draws matches. */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/support/plain_grammar.h"
#include "tokenizer/grammar/regular.h"

enum { MAX_SIZE = 1 << 16 /* of a grammar that is compared */, MAX_TEXT = 200 };

static void compare(const struct regular *r, struct fuzz_part text)
{
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *g;
    struct text drawn = {0};
    struct random random = {text.length};
    const int32_t root = grammar_rule(b, "root");
    grammar_node node;
    if (!regular_node(r, REGULAR_PLAIN, b, &node)) {
        grammar_builder_free(b);
        return;
    }
    grammar_define(b, root, node);
    fuzz_require((grammar_build(b, root, &g, NULL) == STATUS_OK) == !regular_is_empty(r), "one of the two is empty");
    if (g && plain_grammar_size(g) <= MAX_SIZE && text.length <= MAX_TEXT) {
        const bool found = regular_matches(r, text.bytes, text.length);
        fuzz_require(plain_grammar_matches(g, text.bytes, text.length) == found, "one of the two matches");
        plain_grammar_draw(g, &random, MAX_TEXT, &drawn);
        fuzz_require(regular_matches(r, drawn.data, drawn.length), "what was drawn does not match");
    }
    text_free(&drawn);
    grammar_free(g);
    grammar_builder_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_part text = {(const char *)data, size};
    const struct fuzz_part pattern = fuzz_split(&text, '\n');
    for (int search = 0; search < 2; search++) {
        struct error err = {""};
        struct regular *r;
        const enum status status = regular_parse(pattern.bytes, pattern.length, search, &r, &err);
        fuzz_require((status == STATUS_OK) == (r != NULL), "a status without its result");
        if (!r) fuzz_require_sentence(&err);
        if (r) compare(r, text);
        regular_free(r);
    }
    return 0;
}
