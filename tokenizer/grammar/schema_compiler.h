/* What the files of the compiler of JSON Schema share.
 *
 * What an instance must satisfy at a place is a conjunction: a list of schemas, all of which hold. A schema with allOf
 * or $ref adds others to the conjunction that it is in; the conjunction of a property has that property's schema of
 * every member. So allOf needs no merging of JSON, and the rules of the grammar are as many as there are conjunctions.
 * anyOf and oneOf become a choice between the conjunctions with one branch more. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_SCHEMA_COMPILER_H
#define QUIRE_TOKENIZER_GRAMMAR_SCHEMA_COMPILER_H

#include <jansson.h>

#include "tokenizer/grammar/decimal.h"
#include "tokenizer/grammar/json_nodes.h"
#include "tokenizer/grammar/json_schema.h"

/* A schema of the document that is an object; there is one for each. */
struct schema {
    const json_t *json;
    const char *path; /* "#/properties/a" */
};

struct member {
    const struct schema *schema;
    bool any_chosen, one_chosen; /* a branch of anyOf, of oneOf, is in the conjunction */
};

struct conjunction {
    struct member *members; /* [count], no schema twice */
    size_t count, capacity;
    bool never; /* one of the schemas is false */
};

/* Types of instances. A number that is an integer has the bit of TYPE_INTEGER, others that of TYPE_FRACTION. */
enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    ALL_TYPES = 127
};

enum { SCHEMA_MAX_WORK = 1 << 24 }; /* of automata, for one document */

struct schema_block; /* of memory that lives as long as the compiler */
struct schema_rule;

/* Initialise it with options, root, left and err; the nodes are needed only where nodes are made. */
struct schema_compiler {
    const struct json_schema_options *options;
    const json_t *root;
    struct json_nodes nodes;
    enum status status; /* the first failure; what comes after it does nothing */
    struct error *err;

    struct schema **schemas; /* [schema_table_size] by the hash of their JSON; NULL: free */
    size_t num_schemas, schema_table_size;
    struct schema_language { /* of a pattern or a format */
        const void *key;
        struct regular *language;
        grammar_node node; /* its strings in quotes; -1: not made yet */
    } * languages;
    size_t num_languages, language_capacity;
    struct schema_rule *rules; /* [num_rules] of conjunctions, in the order in which they were first wanted */
    size_t num_rules, rule_capacity;
    int32_t *rule_table; /* [rule_table_size] of rules by the hash of their conjunctions, -1: free */
    size_t rule_table_size;
    struct schema_block *blocks;
    size_t num_bytes; /* of all blocks */
    size_t work;      /* conjunctions that were made */
    size_t left;      /* work that automata may still take (regular_parse_within) */
};

/* schema_compiler.c */
void schema_compiler_free(struct schema_compiler *c);        /* what it holds, but for the nodes */
void *schema_alloc(struct schema_compiler *c, size_t bytes); /* zero; NULL: it has failed */
void schema_fail(struct schema_compiler *c, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void schema_out_of_memory(struct schema_compiler *c);

/* schema_keywords.c: fails if the schema has a keyword that quire does not support, or one with a wrong value. */
void schema_check_keywords(struct schema_compiler *c, const struct schema *s);

/* schema_conjunction.c. In all of these `json` is a schema of the document, and `path` its place. */
void conjunction_add(struct schema_compiler *c, struct conjunction *out, const json_t *json, const char *path);
/* Adds the schema parent[key], or parent[key][name], or parent[key][index], if there is one. */
void conjunction_add_keyword(struct schema_compiler *c, struct conjunction *out, const struct schema *parent,
                             const char *key);
void conjunction_add_named(struct schema_compiler *c, struct conjunction *out, const struct schema *parent,
                           const char *key, const char *name);
void conjunction_add_indexed(struct schema_compiler *c, struct conjunction *out, const struct schema *parent,
                             const char *key, size_t index);
struct conjunction conjunction_copy(struct schema_compiler *c, const struct conjunction *from);
/* A copy with branch `index` of members[i]'s anyOf or oneOf (`key`), which counts as chosen. */
struct conjunction conjunction_choose(struct schema_compiler *c, const struct conjunction *from, size_t i,
                                      const char *key, size_t index);
/* The first member with an anyOf or oneOf of which no branch is chosen yet; *key is it. False: there is none. */
bool conjunction_pending(const struct conjunction *j, size_t *i, const char **key);
/* What holds for the property of this name, for element `index`, and for names. */
struct conjunction conjunction_property(struct schema_compiler *c, const struct conjunction *j, const char *name);
struct conjunction conjunction_element(struct schema_compiler *c, const struct conjunction *j, size_t index);
struct conjunction conjunction_names(struct schema_compiler *c, const struct conjunction *j);
unsigned conjunction_types(const struct conjunction *j); /* bits of TYPE_... that `type` allows */
/* The most and least of the counts that the keywords name; most: -1 if there is none. */
void conjunction_counts(const struct conjunction *j, const char *least_key, const char *most_key, int64_t *least,
                        int64_t *most);
bool conjunction_requires(const struct conjunction *j, const char *name);

/* schema_language.c. Sets *out to the language of strings or numbers that the keywords of the conjunction leave, NULL
 * if they say nothing of them; without bounds of lengths. The caller frees it. */
void schema_string_language(struct schema_compiler *c, const struct conjunction *j, struct regular **out);
void schema_number_language(struct schema_compiler *c, const struct conjunction *j, bool integers,
                            struct regular **out);
/* The language that is all that the conjunction says of strings, if one pattern or format does; NULL: there are none,
 * or several, or bounds of lengths. It belongs to the compiler. */
struct schema_language *schema_single_language(struct schema_compiler *c, const struct conjunction *j);
/* Takes from *language, unless it is NULL, the strings whose lengths are out of bounds. */
void schema_lengths_of_language(struct schema_compiler *c, const struct conjunction *j, struct regular **language);
/* regular_intersection, which fails if it cannot be made, or takes more than is left of c->left. */
struct regular *schema_intersection(struct schema_compiler *c, const struct regular *a, const struct regular *b,
                                    const char *path);
/* The names that have a pattern; it belongs to the compiler. NULL: it has failed. */
const struct regular *schema_pattern(struct schema_compiler *c, const char *pattern, size_t length, const char *path);
/* The language of names that are strings of the conjunction, with the bounds of lengths; NULL: any. The caller frees
 * it. */
void schema_names_language(struct schema_compiler *c, const struct conjunction *j, struct regular **out);

/* schema_satisfy.c */
bool schema_accepts(struct schema_compiler *c, const struct conjunction *j, const json_t *value);
/* It is certain that no instance satisfies the conjunction. */
bool schema_is_empty(struct schema_compiler *c, const struct conjunction *j, int depth);
/* The values of enum and const that satisfy the conjunction; NULL if it has neither keyword. The caller frees it. */
json_t *schema_values(struct schema_compiler *c, const struct conjunction *j);
bool json_instances_equal(const json_t *a, const json_t *b); /* 1 and 1.0 are */

/* schema_compiler.c: the node of a conjunction. */
grammar_node schema_node(struct schema_compiler *c, const struct conjunction *j);
/* `part` least to most times; most -1: any number. Fails if grammar_repeat does not take so many. */
grammar_node schema_repeat(struct schema_compiler *c, const struct conjunction *j, grammar_node part, int64_t least,
                           int64_t most);
/* schema_object.c, schema_array.c */
grammar_node schema_object_node(struct schema_compiler *c, const struct conjunction *j);
grammar_node schema_array_node(struct schema_compiler *c, const struct conjunction *j);

#endif
