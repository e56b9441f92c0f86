/* The text of a grammar while it is read (gbnf.c, lark.c): the place of the reader, the names of its rules, and the
 * first failure, which sticks. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_GRAMMAR_SOURCE_H
#define QUIRE_TOKENIZER_GRAMMAR_GRAMMAR_SOURCE_H

#include <jansson.h>

#include "base/array.h"
#include "tokenizer/grammar/grammar.h"

enum { GRAMMAR_SOURCE_MAX_DEPTH = 200 }; /* of groups in groups */

/* A rule without a name of the builder's, so that several grammars can share a builder. */
struct grammar_name {
    int32_t rule;
    size_t place; /* where it stands first */
    bool is_defined;
};

struct grammar_source {
    const char *text;
    size_t length, at;
    struct grammar_builder *builder;
    int32_t depth; /* of the group that is being read */
    enum status status;
    struct error *err;
    json_t *name_indices;       /* name -> index in names */
    struct grammar_name *names; /* [num_names] */
    size_t num_names, names_capacity;
};

/* At the beginning of text[length]; fails if it is not UTF-8, or has a U+0000. Free with grammar_source_end. */
void grammar_source_begin(struct grammar_source *s, const char *text, size_t length, struct grammar_builder *b,
                          struct error *err);
void grammar_source_end(struct grammar_source *s);

/* Fails with "line L, column C: " of the byte `place`, and the formatted sentence. */
void grammar_source_fail(struct grammar_source *s, size_t place, enum status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void grammar_source_no_memory(struct grammar_source *s);
/* Fails with "expected EXPECTED, found ..." at the reader's place. */
void grammar_source_expected(struct grammar_source *s, const char *expected);

/* What follows; nothing does after a failure, so that loops end. */
char grammar_source_peek(const struct grammar_source *s, size_t ahead); /* '\0' at the end */
bool grammar_source_at_end(const struct grammar_source *s);
bool grammar_source_take(struct grammar_source *s, const char *word); /* goes behind the word, if it stands here */
uint32_t grammar_source_character(struct grammar_source *s);          /* reads a character; 0 at the end */
/* Reads what follows a backslash: the letter of `plain` stands for the character of `meaning`, and any of `itself` for
 * itself; x, u and U for the character of 2, 4 and 8 hexadecimal digits. */
struct grammar_escapes {
    const char *plain, *meaning, *itself;
};
uint32_t grammar_source_escape(struct grammar_source *s, const struct grammar_escapes *escapes);
int32_t grammar_source_count(struct grammar_source *s); /* a number without a sign */

/* Enters a group that begins at `place`, or fails; and leaves it. */
bool grammar_source_enter(struct grammar_source *s, size_t place);
void grammar_source_leave(struct grammar_source *s);

/* The entry of the name at `place`, new or not, until the next call; NULL after a failure. */
struct grammar_name *grammar_source_name(struct grammar_source *s, size_t place, size_t length);
grammar_node grammar_source_reference(struct grammar_source *s, size_t place, size_t length);
/* Defines the name, or fails if it has been defined. */
void grammar_source_define(struct grammar_source *s, size_t place, size_t length, grammar_node node);
/* The rule called `root`; fails if there is none, or if a name that occurs is not defined. */
int32_t grammar_source_root(struct grammar_source *s, const char *root);

/* Nodes that become a sequence or a choice. Zero-initialise. */
struct grammar_list {
    grammar_node *nodes; /* [count] */
    size_t count, capacity;
};
void grammar_list_append(struct grammar_source *s, struct grammar_list *list, grammar_node node);
/* The node, and frees the list. */
grammar_node grammar_list_sequence(struct grammar_source *s, struct grammar_list *list);
grammar_node grammar_list_choice(struct grammar_source *s, struct grammar_list *list);

#endif
