/* usage: schema   reads lines {"schema": ..., "texts": [...], "draw": N, "any_whitespace": false} and writes for each a
 * line: {"error": "..."}, or {"accepted": [true, ...], "drawn": ["...", ...], "size": N}: whether each text is in the
 * grammar of the schema, N texts that were drawn from it, and how many nodes and states it has. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json_parse.h"
#include "base/json_value.h"
#include "tests/support/plain_grammar.h"
#include "tokenizer/grammar/json_schema.h"

enum { DRAWN_LENGTH = 300 };

static enum status make_grammar(const json_t *line, struct grammar **out, struct error *err)
{
    struct grammar_builder *b = grammar_builder_create();
    const struct json_schema_options options = {.any_whitespace = json_is_true(json_object_get(line, "any_whitespace")),
                                                .disable_additional_properties =
                                                    json_is_true(json_object_get(line, "closed"))};
    const int32_t root = grammar_rule(b, "root");
    grammar_node node;
    enum status status = json_schema_node(json_object_get(line, "schema"), &options, b, &node, err);
    grammar_define(b, root, node);
    if (!status) status = grammar_build(b, root, out, err);
    grammar_builder_free(b);
    return status;
}

static json_t *answer(const json_t *line, struct random *random)
{
    struct error err = {""};
    struct grammar *g = NULL;
    if (make_grammar(line, &g, &err)) return json_pack("{s:s}", "error", err.text);
    json_t *accepted = json_array(), *drawn = json_array();
    const json_t *text;
    struct text one = {0};
    size_t i;
    json_array_foreach(json_object_get(line, "texts"), i, text) json_array_append_new(
        accepted, json_boolean(plain_grammar_matches(g, json_string_value(text), json_string_length(text))));
    for (json_int_t k = json_integer_value(json_object_get(line, "draw")); k > 0; k--) {
        plain_grammar_draw(g, random, DRAWN_LENGTH, &one);
        json_array_append_new(drawn, json_stringn(one.data, one.length));
    }
    json_t *out =
        json_pack("{s:o,s:o,s:I}", "accepted", accepted, "drawn", drawn, "size", (json_int_t)plain_grammar_size(g));
    text_free(&one);
    grammar_free(g);
    return out;
}

int main(void)
{
    struct random random = {1};
    char *text = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&text, &capacity, stdin)) > 0) {
        struct error err = {""};
        json_t *line;
        if (json_value_parse(text, (size_t)length, 0, NULL, &line, &err)) {
            fprintf(stderr, "schema: %s\n", err.text);
            return 1;
        }
        json_t *out = answer(line, &random);
        json_print(out, JSON_COMPACT, stdout);
        fflush(stdout);
        json_decref(out);
        json_decref(line);
    }
    free(text);
    return 0;
}
