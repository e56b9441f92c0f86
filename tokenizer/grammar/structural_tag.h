/* Structural tags, as XGrammar defines them (its docs, "Structural Tag") and vLLM takes them: text that is free, but
 * for regions that have a form, such as calls of tools. A tag is a tree of formats:
 *
 *   const_string, json_schema (style "json"), grammar, regex, any_text;  sequence, or, optional, plus, star, repeat;
 *   tag, triggered_tags, tags_with_separator, dispatch
 *
 * Inside a tag, any_text and what else has no end of its own goes on to the first of the tag's `end` strings. Formats
 * of single tokens, the other styles, any_order and max_tokens are refused. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_STRUCTURAL_TAG_H
#define QUIRE_TOKENIZER_GRAMMAR_STRUCTURAL_TAG_H

#include "tokenizer/grammar/json_schema.h"

/* Adds the rules of {"type": "structural_tag", "format": {...}} or of {"structures": [{"begin", "schema", "end"}, ...],
 * "triggers": [...]} to the builder; *out is its node. INVALID, UNSUPPORTED: the sentence begins with the place in the
 * tag, "format.elements[1].content: ...". */
enum status structural_tag_node(const json_t *tag, const struct json_schema_options *options, struct grammar_builder *b,
                                grammar_node *out, struct error *err);

#endif
