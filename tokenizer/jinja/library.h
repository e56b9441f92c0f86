/* What the files that implement value.h share. */
#ifndef QUIRE_TOKENIZER_JINJA_LIBRARY_H
#define QUIRE_TOKENIZER_JINJA_LIBRARY_H

#include "tokenizer/jinja/value.h"

/* --- tables of functions --- */

/* The function of this name in one of the tables, a list with a NULL at its end; NULL: in none. */
const struct jinja_function *jinja_find_function(const struct jinja_function *const *tables,
                                                 const struct jinja_string *name);

extern const struct jinja_function *const jinja_filters[], *const jinja_str_methods[];
/* The tables of single files. */
extern const struct jinja_function jinja_html_filters[], jinja_json_filters[], jinja_list_filters[],
    jinja_number_filters[], jinja_pprint_filters[], jinja_select_filters[], jinja_sort_filters[], jinja_text_filters[],
    jinja_wordwrap_filters[];
extern const struct jinja_function jinja_case_methods[], jinja_format_methods[], jinja_search_methods[],
    jinja_split_methods[], jinja_strip_methods[];

/* NULL: values of this kind have no such method. */
const struct jinja_function *jinja_find_method(enum jinja_kind kind, const struct jinja_string *name);
/* Calls a method of str(self), which there is. */
struct jinja_value jinja_call_str_method(struct jinja_run *run, const char *name, struct jinja_value self,
                                         const struct jinja_args *args);

/* --- strings --- */

/* Like jinja_substring, but never a copy. */
struct jinja_value jinja_view(struct jinja_run *run, const struct jinja_string *s, size_t from, size_t to);
static inline bool jinja_mark_at(const struct jinja_string *s, size_t byte)
{
    return s->marks ? s->marks[byte] : s->marked;
}
/* The byte behind the character that begins at byte `at`. */
static inline size_t jinja_character_end(const struct jinja_string *s, size_t at)
{
    do {
        at++;
    } while (at < s->length && ((unsigned char)s->bytes[at] & 0xC0) == 0x80);
    return at;
}
/* Where the character begins that ends at byte `end` > 0. */
static inline size_t jinja_character_start(const struct jinja_string *s, size_t end)
{
    do {
        end--;
    } while (((unsigned char)s->bytes[end] & 0xC0) == 0x80);
    return end;
}
bool jinja_string_is(const struct jinja_string *s, const char *text);
bool jinja_strings_equal(const struct jinja_string *a, const struct jinja_string *b);
/* Whether the string is a number of at most 9 digits, which an attribute or a field may be. */
bool jinja_is_index(const struct jinja_string *s, int64_t *out);
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
bool jinja_build_spaces(struct jinja_run *run, struct jinja_builder *b, int64_t count, bool marked);
bool jinja_build_character(struct jinja_run *run, struct jinja_builder *b, uint32_t c, bool marked);
/* `count` times the same string. */
bool jinja_build_repeated(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, int64_t count);
/* Lines as str.splitlines() gives them; NULL after a failure. */
const struct jinja_list *jinja_lines(struct jinja_run *run, const struct jinja_string *s, bool keep_ends);
/* Bytes from .. to of s in lower or in upper case. */
bool jinja_build_lower(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, size_t from,
                       size_t to);
bool jinja_build_upper(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, size_t from,
                       size_t to);
struct jinja_value jinja_as_markup(struct jinja_run *run, struct jinja_value string);
/* HTML's escapes, as markupsafe writes them, unless v is Markup already. A Markup string. */
struct jinja_value jinja_escape(struct jinja_run *run, struct jinja_value v);

/* --- arguments: these fail, naming `function` --- */

/* NULL after a failure: v is not a string. */
const struct jinja_string *jinja_expect_string(struct jinja_run *run, const char *function, struct jinja_value v);
/* The integer (or bool) v; `absent` if v is undefined or None. False after a failure. */
bool jinja_expect_int(struct jinja_run *run, const char *function, struct jinja_value v, int64_t absent, int64_t *out);

/* --- objects and containers --- */

/* An object that is a copy of `object`, whose first member is a struct jinja_object, of `size` bytes. */
struct jinja_value jinja_new_object(struct jinja_run *run, const void *object, size_t size);

struct jinja_value jinja_tuple(struct jinja_run *run, const struct jinja_value *items, size_t count);
/* Gives the items (a list value) once, one after another; true even if there are none. */
struct jinja_value jinja_generator(struct jinja_run *run, struct jinja_value items);
enum jinja_view { JINJA_KEYS, JINJA_VALUES, JINJA_ITEMS };
struct jinja_value jinja_dict_view(struct jinja_run *run, struct jinja_dict *dict, enum jinja_view view);
bool jinja_is_hashable(struct jinja_run *run, struct jinja_value v); /* false also after a failure */
/* The next element alone; a generator keeps the others. False: there is none (or a failure). */
bool jinja_first_element(struct jinja_run *run, struct jinja_value v, struct jinja_value *out);
/* start, start + step, ...: `count` indices; stop is where a range ends that is printed. */
struct jinja_slice_indices {
    int64_t start, stop, step, count;
};
struct jinja_value jinja_range(struct jinja_run *run, struct jinja_slice_indices indices);
bool jinja_is_range(struct jinja_value v);
struct jinja_value jinja_range_slice(struct jinja_run *run, struct jinja_value range, struct jinja_slice_indices slice);
struct jinja_keyed {
    struct jinja_value key, item;
};
/* The pairs of a dict, [dict->count]; NULL after a failure. */
struct jinja_keyed *jinja_pairs(struct jinja_run *run, const struct jinja_dict *dict);
/* Sorts stably by the keys, the largest first if `reverse`. False after a failure: a comparison is one. */
bool jinja_sort(struct jinja_run *run, struct jinja_keyed *elements, size_t count, bool reverse);

/* What Python's getattr finds; for what the sandbox refuses, an undefined value that says so. */
bool jinja_find_attribute(struct jinja_run *run, struct jinja_value object, const struct jinja_string *name,
                          struct jinja_value *out);
struct jinja_value jinja_no_item(struct jinja_run *run, struct jinja_value object, struct jinja_value key);

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

/* --- formatting --- */

enum { JINJA_FLOAT_TEXT = 32 };
void jinja_float_repr(double value, char out[JINJA_FLOAT_TEXT]); /* the shortest decimal that reads back as value */
/* text % args */
struct jinja_value jinja_percent_format(struct jinja_run *run, const struct jinja_string *text,
                                        struct jinja_value args);

#endif
