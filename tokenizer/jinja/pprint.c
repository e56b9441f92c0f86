/* The filter pprint: Python's pprint.pformat, whose lines have 80 columns. */
#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

enum { WIDTH = 80 };

/* `indent`: the column at which v begins; `allowance`: columns that what closes it takes; level 1: nothing is around
 * v. */
static bool print(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v, int64_t indent,
                  int64_t allowance, int level);

static struct jinja_value repr(struct jinja_run *run, struct jinja_value v)
{
    struct jinja_builder b = {0};
    jinja_build_repr(run, &b, v);
    return jinja_build_end(run, &b);
}

/* v with the keys of its dicts in order, as far as they can be ordered. */
static struct jinja_value sorted(struct jinja_run *run, struct jinja_value v)
{
    if ((v.kind != JINJA_DICT && v.kind != JINJA_LIST && v.kind != JINJA_TUPLE) || !jinja_enter(run)) return v;
    struct jinja_value out = v.kind == JINJA_DICT ? jinja_dict_new(run) : jinja_list_new(run, v.kind);
    if (v.kind == JINJA_DICT) {
        bool strings = true;
        struct jinja_keyed *pairs = jinja_pairs(run, v.dict);
        for (size_t i = 0; pairs && i < v.dict->count; i++) strings = strings && pairs[i].key.kind == JINJA_STRING;
        if (pairs && strings) jinja_sort(run, pairs, v.dict->count, false);
        for (size_t i = 0; i < v.dict->count && jinja_tick(run); i++)
            jinja_dict_set(run, out.dict, pairs[i].key, sorted(run, pairs[i].item));
    } else {
        for (size_t i = 0; i < v.list->count && jinja_tick(run); i++)
            jinja_list_append(run, out.list, sorted(run, v.list->items[i]));
    }
    jinja_leave(run);
    return out;
}

static bool new_line(struct jinja_run *run, struct jinja_builder *b, int64_t indent)
{
    jinja_build_text(run, b, "\n");
    return jinja_build_spaces(run, b, indent, false);
}

static void print_list(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v, int64_t indent,
                       int64_t allowance, int level)
{
    const char *close = v.kind == JINJA_LIST ? "]" : v.list->count == 1 ? ",)" : ")";
    jinja_build_text(run, b, v.kind == JINJA_LIST ? "[" : "(");
    allowance += close[1] ? 2 : 1;
    for (size_t i = 0; i < v.list->count && jinja_tick(run); i++) {
        bool last = i + 1 == v.list->count;
        print(run, b, v.list->items[i], indent + 1, last ? allowance : 1, level);
        if (last) break;
        jinja_build_text(run, b, ",");
        new_line(run, b, indent + 1);
    }
    jinja_build_text(run, b, close);
}

static void print_dict(struct jinja_run *run, struct jinja_builder *b, const struct jinja_dict *dict, int64_t indent,
                       int64_t allowance, int level)
{
    jinja_build_text(run, b, "{");
    for (size_t i = 0; i < dict->count && jinja_tick(run); i++) {
        bool last = i + 1 == dict->count;
        struct jinja_value key = repr(run, dict->pairs[i].key);
        if (jinja_failed(run)) return;
        jinja_build_string(run, b, key.string);
        jinja_build_text(run, b, ": ");
        print(run, b, dict->pairs[i].value, indent + 3 + (int64_t)key.string->count, last ? allowance + 1 : 1, level);
        if (last) break;
        jinja_build_text(run, b, ",");
        new_line(run, b, indent + 1);
    }
    jinja_build_text(run, b, "}");
}

/* --- long strings: pieces of lines, in quotes of their own --- */

/* The end of the word at byte `at` and of the white space behind it. */
static size_t end_of_word(const struct jinja_string *s, size_t at)
{
    bool in_space = false;
    for (size_t next = at; next < s->length; at = next) {
        bool space = character_is_space(utf8_next(s->bytes + next, &next));
        if (in_space && !space) return at;
        in_space = space;
    }
    return s->length;
}

static struct jinja_value repr_of_range(struct jinja_run *run, const struct jinja_string *s, size_t from, size_t to)
{
    return repr(run, jinja_substring(run, s, from, to));
}

static void add_pieces(struct jinja_run *run, struct jinja_list *pieces, const struct jinja_string *line, int64_t width,
                       int64_t last_width)
{
    size_t from = 0, to = 0;
    while (to < line->length && jinja_tick(run)) {
        size_t end = end_of_word(line, to);
        struct jinja_value longer = repr_of_range(run, line, from, end);
        if (jinja_failed(run)) return;
        if ((int64_t)longer.string->count > (end == line->length ? last_width : width)) {
            if (to > from) jinja_list_append(run, pieces, repr_of_range(run, line, from, to));
            from = to;
        }
        to = end;
    }
    if (to > from) jinja_list_append(run, pieces, repr_of_range(run, line, from, to));
}

static void print_string(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v, int64_t indent,
                         int64_t allowance, int level)
{
    struct jinja_value pieces = jinja_list_new(run, JINJA_LIST);
    const struct jinja_list *lines = jinja_lines(run, v.string, true);
    bool outermost = level == 1;
    indent += outermost;
    allowance += outermost;
    for (size_t i = 0; !jinja_failed(run) && i < lines->count; i++) {
        int64_t width = WIDTH - indent, last_width = i + 1 == lines->count ? width - allowance : width;
        struct jinja_value whole = repr(run, lines->items[i]);
        if (jinja_failed(run)) return;
        if ((int64_t)whole.string->count <= last_width) {
            jinja_list_append(run, pieces.list, whole);
        } else {
            add_pieces(run, pieces.list, lines->items[i].string, width, last_width);
        }
    }
    if (jinja_failed(run)) return;
    bool parentheses = outermost && pieces.list->count > 1;
    if (parentheses) jinja_build_text(run, b, "(");
    for (size_t i = 0; i < pieces.list->count; i++) {
        if (i) new_line(run, b, indent);
        jinja_build_string(run, b, pieces.list->items[i].string);
    }
    if (parentheses) jinja_build_text(run, b, ")");
}

static bool print(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v, int64_t indent,
                  int64_t allowance, int level)
{
    struct jinja_value text = repr(run, v);
    if (text.kind != JINJA_STRING || !jinja_enter(run)) return false;
    bool is_long = (int64_t)text.string->count > WIDTH - indent - allowance;
    if (is_long && v.kind == JINJA_DICT && v.dict->count) {
        print_dict(run, b, v.dict, indent, allowance, level + 1);
    } else if (is_long && (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) && v.list->count) {
        print_list(run, b, v, indent, allowance, level + 1);
    } else if (is_long && v.kind == JINJA_STRING && v.string->length && !v.string->is_markup) {
        print_string(run, b, v, indent, allowance, level + 1);
    } else {
        jinja_build_string(run, b, text.string);
    }
    jinja_leave(run);
    return !jinja_failed(run);
}

static struct jinja_value filter_pprint(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_builder b = {0};
    print(run, &b, sorted(run, c->self), 0, 0, 0);
    return jinja_build_end(run, &b);
}

const struct jinja_function jinja_pprint_filters[] = {{"pprint", filter_pprint, "/"}, {NULL}};
