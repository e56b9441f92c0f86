/* JSON Schema (draft 2020-12) to a grammar: every text of the grammar is an instance of the schema; white space is
 * none, or as `any_whitespace` says; properties come in the schema's order.
 *
 * Supported: true, false, type (one or a list), enum, const; properties, required, additionalProperties,
 * patternProperties, propertyNames by pattern, minProperties and maxProperties where no property is optional or all are
 * additional; items, prefixItems, minItems, maxItems; minLength, maxLength, pattern, format (date, time, date-time,
 * duration, uuid, email, hostname, ipv4, ipv6, uri); minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf of integers
 * where the automaton is small; anyOf; oneOf whose branches exclude each other; allOf by merging; $ref within the
 * document ($defs, definitions, #, JSON pointers, $anchor), recursion included. Annotations (title, description,
 * default, examples, deprecated, readOnly, writeOnly, $comment, $schema, $id of the root) say nothing of the instance.
 *
 * Everything else is refused: UNSUPPORTED, "#/properties/a/not: quire does not support \"not\" in a schema". INVALID: what no schema may say
 * ("#/properties/a/minLength must be an integer from 0 up, found -1"), or a schema that no instance satisfies. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_JSON_SCHEMA_H
#define QUIRE_TOKENIZER_GRAMMAR_JSON_SCHEMA_H

#include <jansson.h>

#include "tokenizer/grammar/grammar.h"

struct json_schema_options {
    bool any_whitespace; /* up to a few blanks or a newline with its indentation may stand between tokens of JSON, as in
                            vLLM by default; false: `", "` and `": "` as Python's json.dumps writes them, and no other */
};

/* Adds the rules of the schema to the builder; *out is its node. Numbers are as JSON writes them, integers without a
 * fraction or an exponent. */
enum status json_schema_node(const json_t *schema, const struct json_schema_options *options,
                             struct grammar_builder *b, grammar_node *out, struct error *err);
/* Any JSON object, as response_format {"type": "json_object"} wants it. */
grammar_node json_object_node(const struct json_schema_options *options, struct grammar_builder *b);

#endif
