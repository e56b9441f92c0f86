/* What the files that implement value.h share. */
#ifndef QUIRE_TOKENIZER_JINJA_LIBRARY_H
#define QUIRE_TOKENIZER_JINJA_LIBRARY_H

#include "tokenizer/jinja/value.h"

void jinja_memory_free(struct jinja_run *run);

/* --- tables of functions --- */

struct jinja_named {
    const char *name;
    jinja_function function;
};
/* NULL: not in the table. */
const struct jinja_named *jinja_find_named(const struct jinja_named *table, size_t count,
                                           const struct jinja_string *name);

extern const struct jinja_named jinja_str_methods[], jinja_list_methods[], jinja_tuple_methods[], jinja_dict_methods[],
    jinja_int_methods[], jinja_float_methods[];
extern const size_t jinja_num_str_methods, jinja_num_list_methods, jinja_num_tuple_methods, jinja_num_dict_methods,
    jinja_num_int_methods, jinja_num_float_methods;

/* --- strings --- */

/* Like jinja_substring, but never a copy. */
struct jinja_value jinja_view(struct jinja_run *run, const struct jinja_string *s, size_t from, size_t to);
static inline bool jinja_mark_at(const struct jinja_string *s, size_t byte)
{
    return s->marks ? s->marks[byte] : s->marked;
}
bool jinja_string_is(const struct jinja_string *s, const char *text);
bool jinja_strings_equal(const struct jinja_string *a, const struct jinja_string *b);
/* The byte at which character `index` begins; s->length for index s->count. */
size_t jinja_byte_of(const struct jinja_string *s, size_t index);
/* The first place at which `needle` lies between the bytes `from` and `to`; SIZE_MAX: nowhere. */
size_t jinja_find_bytes(const struct jinja_string *s, size_t from, size_t to, const struct jinja_string *needle);
/* The last place. SIZE_MAX also after a failure: this may take long. */
size_t jinja_find_last_bytes(struct jinja_run *run, const struct jinja_string *s, size_t from, size_t to,
                             const struct jinja_string *needle);
/* Whether `text` lies at byte `at`. */
bool jinja_has_bytes_at(const struct jinja_string *s, size_t at, const struct jinja_string *text);
bool jinja_build_range(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, size_t from,
                       size_t to);
bool jinja_build_text(struct jinja_run *run, struct jinja_builder *b, const char *text); /* unmarked */
bool jinja_build_printf(struct jinja_run *run, struct jinja_builder *b, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool jinja_build_character(struct jinja_run *run, struct jinja_builder *b, uint32_t c, bool marked);
/* `count` times the same string. */
bool jinja_build_repeated(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, int64_t count);
struct jinja_value jinja_as_markup(struct jinja_run *run, struct jinja_value string);
/* HTML's escapes, as markupsafe writes them, unless v is Markup already. A Markup string. */
struct jinja_value jinja_escape(struct jinja_run *run, struct jinja_value v);

/* --- arguments: these fail, naming `function` --- */

/* Like jinja_bind, for a function that takes no keywords. */
bool jinja_bind_positional(struct jinja_run *run, const char *function, const struct jinja_args *args, size_t max,
                           size_t num_required, struct jinja_value *values);
/* NULL after a failure: v is not a string. */
const struct jinja_string *jinja_expect_string(struct jinja_run *run, const char *function, struct jinja_value v);
/* The integer (or bool) v; `absent` if v is undefined or None. False after a failure. */
bool jinja_expect_int(struct jinja_run *run, const char *function, struct jinja_value v, int64_t absent, int64_t *out);
/* Whether v is a number; bools are. */
bool jinja_is_number(struct jinja_value v);
bool jinja_is_int(struct jinja_value v, int64_t *out); /* an int or a bool */
double jinja_to_double(struct jinja_value number);
/* Fails: "FUNCTION() must have EXPECTED, not TYPE"; or, for an undefined v, with its own sentence. Returns undefined.
 */
struct jinja_value jinja_wrong_type(struct jinja_run *run, const char *function, const char *expected,
                                    struct jinja_value v);

/* --- containers --- */

struct jinja_value jinja_tuple(struct jinja_run *run, const struct jinja_value *items, size_t count);
/* Gives the items (a list value) once, one after another; true even if there are none. */
struct jinja_value jinja_generator(struct jinja_run *run, struct jinja_value items);
enum jinja_view { JINJA_KEYS, JINJA_VALUES, JINJA_ITEMS };
struct jinja_value jinja_dict_view(struct jinja_run *run, struct jinja_dict *dict, enum jinja_view view);
bool jinja_is_hashable(struct jinja_run *run, struct jinja_value v); /* false also after a failure */
/* The next element alone; a generator keeps the others. False: there is none (or a failure). */
bool jinja_first_element(struct jinja_run *run, struct jinja_value v, struct jinja_value *out);
/* len(v); false: v has none. */
bool jinja_length(struct jinja_value v, size_t *length);
/* start, start + step, ...: `count` indices; stop is where a range ends that is printed. */
struct jinja_slice_indices {
    int64_t start, stop, step, count;
};
struct jinja_value jinja_range(struct jinja_run *run, struct jinja_slice_indices indices);
/* False: a bound is not an int, or (a failure) the step is 0. */
bool jinja_slice_indices(struct jinja_run *run, struct jinja_value start, struct jinja_value stop,
                         struct jinja_value step, size_t length, struct jinja_slice_indices *out);
bool jinja_is_range(struct jinja_value v);
struct jinja_value jinja_range_slice(struct jinja_run *run, struct jinja_value range, struct jinja_slice_indices slice);
struct jinja_keyed {
    struct jinja_value key, item;
};
/* Sorts stably by the keys, the largest first if `reverse`. False after a failure: a comparison is one. */
bool jinja_sort(struct jinja_run *run, struct jinja_keyed *elements, size_t count, bool reverse);

/* What Python's getattr finds; for what the sandbox refuses, an undefined value that says so. */
bool jinja_find_attribute(struct jinja_run *run, struct jinja_value object, const struct jinja_string *name,
                          struct jinja_value *out);
struct jinja_value jinja_no_item(struct jinja_run *run, struct jinja_value object, struct jinja_value key);

/* --- formatting --- */

enum { JINJA_FLOAT_TEXT = 32 };
void jinja_float_repr(double value, char out[JINJA_FLOAT_TEXT]); /* the shortest decimal that reads back as value */
/* text % args */
struct jinja_value jinja_percent_format(struct jinja_run *run, const struct jinja_string *text,
                                        struct jinja_value args);

#endif
