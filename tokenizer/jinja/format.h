/* Python's format specifications: [[fill]align][sign][#][0][width][grouping][.precision][type]. */
#ifndef QUIRE_TOKENIZER_JINJA_FORMAT_H
#define QUIRE_TOKENIZER_JINJA_FORMAT_H

#include "tokenizer/jinja/library.h"

struct jinja_format {
    uint32_t fill;
    bool fill_marked; /* the mark of the specification's first byte, if it names no fill */
    char align;       /* one of "<>=^"; 0: the type's own */
    char sign;        /* one of "+- " */
    bool alternate;
    int64_t width;
    char grouping;     /* ',' or '_'; 0: none */
    int64_t precision; /* -1: none */
    char type;         /* 0: none */
};

/* Appends v as format(v, spec) gives it. */
bool jinja_build_format(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v,
                        const struct jinja_string *spec);
/* The parts of it: v is an int or bool, a float (type 0 is not %'s), a string. */
bool jinja_build_int_format(struct jinja_run *run, struct jinja_builder *b, int64_t value,
                            const struct jinja_format *f);
bool jinja_build_float_format(struct jinja_run *run, struct jinja_builder *b, double value,
                              const struct jinja_format *f);
bool jinja_build_string_format(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s,
                               const struct jinja_format *f);
/* ascii(v): repr(v) with escapes for what is not ASCII. */
bool jinja_build_ascii(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v);

#endif
