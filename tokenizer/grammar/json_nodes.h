/* JSON's texts as nodes of a grammar: white space, strings, numbers, any value, and given values. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_JSON_NODES_H
#define QUIRE_TOKENIZER_GRAMMAR_JSON_NODES_H

#include "tokenizer/grammar/json_schema.h"
#include "tokenizer/grammar/regular.h"

struct json_nodes {
    struct grammar_builder *b;
    /* What stands behind [ and {, before ] and }, behind "," and behind ":", the last two with the comma or colon. */
    grammar_node space, comma, colon;
    grammar_node quote, character; /* of a string */
    grammar_node string, integer, number, boolean, null;
    int32_t value; /* the rule of any value */
    bool failed;   /* there was no memory for a text or a value */
};
/* False: no memory. */
bool json_nodes_make(struct json_nodes *n, const struct json_schema_options *options, struct grammar_builder *b);

grammar_node json_string_node(const struct json_nodes *n, grammar_node characters); /* in quotes */
grammar_node json_optional_node(const struct json_nodes *n, grammar_node part);
/* [ elements ] or { members }; `inside` may be empty. */
grammar_node json_brackets_node(const struct json_nodes *n, const char *brackets, grammar_node inside);
/* Any number of `part`s, least to most (or GRAMMAR_UNBOUNDED), with commas between them. */
grammar_node json_list_node(const struct json_nodes *n, grammar_node part, int32_t least, int32_t most);
grammar_node json_member_node(const struct json_nodes *n, grammar_node name,
                              grammar_node value); /* the name in quotes */
/* This text, in quotes. */
grammar_node json_text_node(struct json_nodes *n, const char *text, size_t length);
/* This value. */
grammar_node json_value_node(struct json_nodes *n, const json_t *value);

#endif
