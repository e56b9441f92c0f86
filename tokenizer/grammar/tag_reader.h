/* Reading a structural tag (structural_tag.c): the fields of its formats, and sentences about their places. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_TAG_READER_H
#define QUIRE_TOKENIZER_GRAMMAR_TAG_READER_H

#include <jansson.h>

#include "tokenizer/grammar/free_text.h"
#include "tokenizer/grammar/json_schema.h"

/* Where a value stands in the tag: under a key or an index of another. */
struct tag_place {
    const struct tag_place *above; /* NULL: this is the tag */
    const char *key;               /* NULL: it is the element `index` */
    size_t index;
    int depth; /* of formats in formats */
};
struct tag_place tag_under(const struct tag_place *above, const char *key);
struct tag_place tag_element(const struct tag_place *above, size_t index);

struct tag_reader {
    const struct json_schema_options *options;
    struct grammar_builder *builder;
    const struct free_text_marks *end; /* of the innermost tag around; NULL: none */
    size_t num_searched;               /* bytes of the marks of all free texts */
    enum status status;                /* the first failure sticks */
    struct error *err;
};

void tag_fail(struct tag_reader *r, const struct tag_place *at, enum status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Takes the failure of another reader, whose sentence is in r->err. */
void tag_take_failure(struct tag_reader *r, const struct tag_place *at, enum status status);

bool tag_has(const json_t *object, const char *key); /* and it is not null */
/* The value of a field, which must be there: a string, or a list that is not empty. */
const char *tag_string(struct tag_reader *r, const json_t *object, const struct tag_place *at, const char *key);
const json_t *tag_list(struct tag_reader *r, const json_t *object, const struct tag_place *at, const char *key);
/* false if it is absent */
bool tag_bool(struct tag_reader *r, const json_t *object, const struct tag_place *at, const char *key);
/* Adds a string; the strings of a list that may be absent; those of `more`, which may be NULL. */
void tag_add_mark(struct tag_reader *r, const struct tag_place *at, const json_t *value, struct free_text_marks *marks);
void tag_marks(struct tag_reader *r, const json_t *object, const struct tag_place *at, const char *key,
               struct free_text_marks *marks);
void tag_add_marks(struct tag_reader *r, const struct tag_place *at, const struct free_text_marks *more,
                   struct free_text_marks *marks);
/* Fails if the format has a field that is neither "type" nor one of these words. */
void tag_check_fields(struct tag_reader *r, const json_t *format, const struct tag_place *at, const char *fields);

#endif
