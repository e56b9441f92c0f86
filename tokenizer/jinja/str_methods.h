/* The methods of strings, for the table of methods and for the filters that share their work. `self` is a string. */
#ifndef QUIRE_TOKENIZER_JINJA_STR_METHODS_H
#define QUIRE_TOKENIZER_JINJA_STR_METHODS_H

#include "tokenizer/jinja/library.h"

typedef struct jinja_value jinja_method(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args);

/* str_case.c */
jinja_method jinja_str_upper, jinja_str_lower, jinja_str_title, jinja_str_capitalize, jinja_str_swapcase,
    jinja_str_casefold;
jinja_method jinja_str_isalpha, jinja_str_isdecimal, jinja_str_isdigit, jinja_str_isnumeric, jinja_str_isalnum,
    jinja_str_isspace, jinja_str_islower, jinja_str_isupper, jinja_str_istitle, jinja_str_isidentifier,
    jinja_str_isprintable, jinja_str_isascii;
bool jinja_build_lower(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, size_t from,
                       size_t to);
bool jinja_build_upper(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, size_t from,
                       size_t to);

/* str_split.c */
jinja_method jinja_str_split, jinja_str_rsplit, jinja_str_splitlines, jinja_str_partition, jinja_str_rpartition;
/* Lines as str.splitlines() gives them; NULL after a failure. */
const struct jinja_list *jinja_lines(struct jinja_run *run, const struct jinja_string *s);

/* str_strip.c */
jinja_method jinja_str_strip, jinja_str_lstrip, jinja_str_rstrip, jinja_str_removeprefix, jinja_str_removesuffix;
jinja_method jinja_str_center, jinja_str_ljust, jinja_str_rjust, jinja_str_zfill, jinja_str_expandtabs;

/* str_search.c */
jinja_method jinja_str_find, jinja_str_rfind, jinja_str_index, jinja_str_rindex, jinja_str_count, jinja_str_startswith,
    jinja_str_endswith, jinja_str_replace, jinja_str_join;

/* str_format.c */
jinja_method jinja_str_format, jinja_str_format_map;

#endif
