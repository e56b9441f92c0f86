/* JSON Schema (draft 2020-12) to a grammar: every text of the grammar is an instance of the schema. Properties come in
 * the schema's order, and those that it does not name behind them.
 *
 * Supported: true, false, type (one or a list), enum, const; properties, required, additionalProperties,
 * patternProperties, propertyNames (pattern, format, lengths, enum, const), minProperties, maxProperties; items,
 * prefixItems, minItems, maxItems; minLength, maxLength, pattern, format (date, time, date-time, duration, uuid, email,
 * hostname, ipv4, ipv6, uri; int8 to uint64 of integers, float and double); minimum, maximum, exclusiveMinimum,
 * exclusiveMaximum; multipleOf of few digits; anyOf; oneOf whose branches exclude each other; allOf; $ref within the
 * document ($defs, definitions, #, JSON pointers, $anchor), recursion included. Annotations (title, description,
 * default, examples, deprecated, readOnly, writeOnly, $comment, $schema, $vocabulary, $id of the root, content...,
 * OpenAPI's discriminator, example, externalDocs, xml, and x-...) say nothing of the instance.
 *
 * Everything else is refused, if an instance could depend on it: UNSUPPORTED, "#/properties/a/not: quire does not
 * support "not" in a schema". INVALID: what no schema may say ("#/properties/a/minLength must be an integer from 0 up,
 * found -1"). A schema that no instance satisfies has no text, which grammar_build tells.
 *
 * An instance has one spelling, but for white space: strings have the shortest escapes, integers neither fraction nor
 * exponent, and a number with bounds no exponent. The names of properties that the schema does not list may repeat, and
 * minProperties counts them as they are written: no grammar can tell that two names differ. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_JSON_SCHEMA_H
#define QUIRE_TOKENIZER_GRAMMAR_JSON_SCHEMA_H

#include <jansson.h>

#include "tokenizer/grammar/grammar.h"

struct json_schema_options {
    /* Up to 2 blanks, or a newline and an indentation, may stand behind [ { , and : and before ] and }, as in vLLM by
     * default. False: `", "` and `": "` as Python's json.dumps writes them, and no other. */
    bool any_whitespace;
    /* A schema with "properties" or "prefixItems" allows others only where it says additionalProperties,
     * patternProperties or items. */
    bool disable_additional_properties;
};

/* Adds the rules of the schema to the builder; *out is its node. */
enum status json_schema_node(const json_t *schema, const struct json_schema_options *options, struct grammar_builder *b,
                             grammar_node *out, struct error *err);
/* Any JSON object, as response_format {"type": "json_object"} wants it. */
enum status json_object_node(const struct json_schema_options *options, struct grammar_builder *b, grammar_node *out,
                             struct error *err);

#endif
