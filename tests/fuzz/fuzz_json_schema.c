/* Schemas. A text that is drawn from the grammar of a schema is JSON, is in the grammar, and is an instance. */
#include <string.h>

#include "base/json_parse.h"
#include "base/json_value.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/plain_grammar.h"
#include "tokenizer/grammar/schema_compiler.h"

enum { MAX_SIZE = 1 << 12 /* of a grammar that is compared */, DRAWN_LENGTH = 100, MAX_DRAWN = 1000 };

static bool is_instance(const json_t *schema, const struct json_schema_options *options, const json_t *value)
{
    struct error err = {""};
    struct schema_compiler c = {.options = options, .root = schema, .left = SCHEMA_MAX_WORK, .err = &err};
    struct conjunction root = {0};
    conjunction_add(&c, &root, schema, "#");
    const bool accepted = schema_accepts(&c, &root, value) || c.status; /* a limit, which counts more work here */
    schema_compiler_free(&c);
    return accepted;
}

static void compare(const struct grammar *g, const json_t *schema, const struct json_schema_options *options)
{
    struct text drawn = {0};
    struct random random = {1};
    for (int i = 0; i < 3; i++) {
        struct error err = {""};
        json_t *value = NULL;
        plain_grammar_draw(g, &random, DRAWN_LENGTH, &drawn);
        if (drawn.length > MAX_DRAWN) break;
        fuzz_require(plain_grammar_matches(g, drawn.data, drawn.length), "what was drawn is not in the grammar");
        json_value_parse(drawn.data, drawn.length, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL, &value, &err);
        /* The names of others may repeat. */
        fuzz_require(value || strstr(err.text, "is there twice"), err.text);
        fuzz_require(!value || is_instance(schema, options, value), drawn.data);
        json_decref(value);
    }
    text_free(&drawn);
}

static void compile(const json_t *schema, const struct json_schema_options *options)
{
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *g = NULL;
    struct error err = {""};
    const int32_t root = grammar_rule(b, "root");
    grammar_node node;
    enum status status = json_schema_node(schema, options, b, &node, &err);
    grammar_define(b, root, node);
    if (!status) status = grammar_build(b, root, &g, &err);
    if (status) fuzz_require_sentence(&err);
    if (g && plain_grammar_size(g) <= MAX_SIZE) compare(g, schema, options);
    grammar_free(g);
    grammar_builder_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *schema;
    struct error err = {""};
    if (json_value_parse((const char *)data, size, JSON_DECODE_ANY, NULL, &schema, &err)) return 0;
    compile(schema, &(struct json_schema_options){false});
    compile(schema, &(struct json_schema_options){.any_whitespace = true, .disable_additional_properties = true});
    json_decref(schema);
    return 0;
}
