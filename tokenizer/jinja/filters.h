/* The filters, and what those of lists share with the tests and globals. */
#ifndef QUIRE_TOKENIZER_JINJA_FILTERS_H
#define QUIRE_TOKENIZER_JINJA_FILTERS_H

#include "tokenizer/jinja/library.h"

typedef struct jinja_value jinja_filter(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args);

/* text_filters.c */
jinja_filter jinja_filter_capitalize, jinja_filter_center, jinja_filter_escape, jinja_filter_forceescape,
    jinja_filter_format, jinja_filter_indent, jinja_filter_lower, jinja_filter_replace, jinja_filter_safe,
    jinja_filter_string, jinja_filter_title, jinja_filter_trim, jinja_filter_truncate, jinja_filter_upper,
    jinja_filter_wordcount;
/* wordwrap.c */
jinja_filter jinja_filter_wordwrap;
/* html_filters.c */
jinja_filter jinja_filter_striptags, jinja_filter_urlencode, jinja_filter_xmlattr;
/* number_filters.c */
jinja_filter jinja_filter_abs, jinja_filter_filesizeformat, jinja_filter_float, jinja_filter_int, jinja_filter_round;
/* list_filters.c */
jinja_filter jinja_filter_batch, jinja_filter_first, jinja_filter_items, jinja_filter_join, jinja_filter_last,
    jinja_filter_length, jinja_filter_list, jinja_filter_reverse, jinja_filter_slice, jinja_filter_sum;
/* sort_filters.c */
jinja_filter jinja_filter_dictsort, jinja_filter_groupby, jinja_filter_max, jinja_filter_min, jinja_filter_sort,
    jinja_filter_unique;
/* select_filters.c */
jinja_filter jinja_filter_attr, jinja_filter_default, jinja_filter_map, jinja_filter_reject, jinja_filter_rejectattr,
    jinja_filter_select, jinja_filter_selectattr;
/* json.c, pprint.c */
jinja_filter jinja_filter_tojson, jinja_filter_pprint;

extern const struct jinja_named jinja_filters[];
extern const size_t jinja_num_filters;

/* An attribute as filters name it: "name", "a.b.0" or 0. */
struct jinja_attribute {
    struct jinja_value parts[16]; /* [count] keys, one after another; none: the item itself */
    size_t count;
    struct jinja_value absent; /* what stands for an undefined part; UNDEFINED: nothing */
    bool ignore_case;          /* strings are compared in lower case */
};
/* `name` is a string, an integer, None or undefined. False after a failure. */
bool jinja_attribute_parse(struct jinja_run *run, struct jinja_value name, struct jinja_attribute *out);
struct jinja_value jinja_attribute_get(struct jinja_run *run, const struct jinja_attribute *a, struct jinja_value item);

#endif
