/* The members that objects of a conjunction may have. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_SCHEMA_MEMBERS_H
#define QUIRE_TOKENIZER_GRAMMAR_SCHEMA_MEMBERS_H

#include "tokenizer/grammar/schema_compiler.h"

struct schema_property {
    const char *name;
    grammar_node member; /* the name, and a value */
    bool required;
};

struct schema_members {
    struct schema_property *properties; /* [count], in the schema's order, and then those that are only required */
    size_t count, capacity;
    bool has_others;     /* properties that the schema does not name are allowed */
    grammar_node others; /* one of them */
    bool never;          /* a required property cannot be */
};

/* The arrays belong to the compiler. */
struct schema_members schema_find_members(struct schema_compiler *c, const struct conjunction *j);

#endif
