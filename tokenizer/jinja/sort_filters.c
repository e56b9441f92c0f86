/* Filters that order, group and compare elements. */
#include <string.h>

#include "tokenizer/jinja/library.h"

/* --- sorting: a stable merge sort, so that a comparison that fails does no harm --- */

static bool merge(struct jinja_run *run, struct jinja_keyed *from, struct jinja_keyed *to, size_t left, size_t middle,
                  size_t right, bool reverse)
{
    size_t i = left, j = middle;
    for (size_t k = left; k < right; k++) {
        bool take_right = i == middle;
        if (i < middle && j < right) {
            if (!jinja_tick(run)) return false;
            int order = jinja_compare(run, from[j].key, from[i].key);
            take_right = reverse ? order == 1 : order == -1;
        }
        to[k] = take_right ? from[j++] : from[i++];
    }
    return true;
}

bool jinja_sort(struct jinja_run *run, struct jinja_keyed *elements, size_t count, bool reverse)
{
    struct jinja_keyed *from = elements, *to = jinja_alloc(run, (count + 1) * sizeof *to);
    if (!to) return false;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t left = 0; left < count; left += 2 * width) {
            size_t middle = left + width < count ? left + width : count;
            size_t right = left + 2 * width < count ? left + 2 * width : count;
            if (!merge(run, from, to, left, middle, right, reverse)) return false;
        }
        struct jinja_keyed *swap = from;
        from = to;
        to = swap;
    }
    if (from != elements) memcpy(elements, from, count * sizeof *from);
    return !jinja_failed(run);
}

struct jinja_keyed *jinja_pairs(struct jinja_run *run, const struct jinja_dict *dict)
{
    struct jinja_keyed *pairs = jinja_alloc(run, dict->count * sizeof *pairs);
    for (size_t i = 0; pairs && i < dict->count; i++)
        pairs[i] = (struct jinja_keyed){dict->pairs[i].key, dict->pairs[i].value};
    return pairs;
}

/* --- attributes --- */

static struct jinja_value lower(struct jinja_run *run, struct jinja_value v)
{
    if (v.kind != JINJA_STRING) return v;
    struct jinja_builder b = {0};
    jinja_build_lower(run, &b, v.string, 0, v.string->length);
    return jinja_build_end(run, &b);
}

static bool add_part(struct jinja_run *run, struct jinja_attribute *a, struct jinja_value part)
{
    if (a->count == sizeof a->parts / sizeof a->parts[0])
        return jinja_fail(run, "an attribute may have %zu parts", a->count);
    int64_t index;
    const bool is_index = part.kind == JINJA_STRING && jinja_is_index(part.string, &index);
    a->parts[a->count++] = is_index ? jinja_int(index) : part;
    return true;
}

bool jinja_attribute_parse(struct jinja_run *run, struct jinja_value name, struct jinja_attribute *out)
{
    *out = (struct jinja_attribute){0};
    if (jinja_failed(run)) return false;
    if (name.kind == JINJA_UNDEFINED || name.kind == JINJA_NONE) return true;
    if (name.kind != JINJA_STRING) return add_part(run, out, name);
    const struct jinja_string *s = name.string;
    for (size_t from = 0, to = 0; to <= s->length; to++) {
        if (to < s->length && s->bytes[to] != '.') continue;
        if (!add_part(run, out, jinja_substring(run, s, from, to))) return false;
        from = to + 1;
    }
    return !jinja_failed(run);
}

struct jinja_value jinja_attribute_get(struct jinja_run *run, const struct jinja_attribute *a, struct jinja_value item)
{
    for (size_t i = 0; i < a->count; i++) {
        item = jinja_get_item(run, item, a->parts[i]);
        if (item.kind == JINJA_UNDEFINED && a->absent.kind != JINJA_UNDEFINED) item = a->absent;
    }
    return a->ignore_case ? lower(run, item) : item;
}

/* The elements of `self` with their keys; *count is how many. NULL after a failure. */
static struct jinja_keyed *keyed_elements(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_attribute *a, size_t *count)
{
    const struct jinja_list *list = jinja_iterate(run, self);
    struct jinja_keyed *elements = list ? jinja_alloc(run, (list->count + 1) * sizeof *elements) : NULL;
    if (!elements) return NULL;
    *count = list->count;
    for (size_t i = 0; i < list->count && jinja_tick(run); i++)
        elements[i] = (struct jinja_keyed){jinja_attribute_get(run, a, list->items[i]), list->items[i]};
    return jinja_failed(run) ? NULL : elements;
}

static struct jinja_value items_of(struct jinja_run *run, const struct jinja_keyed *elements, size_t count)
{
    struct jinja_value list = jinja_list_new(run, JINJA_LIST);
    for (size_t i = 0; elements && i < count && jinja_tick(run); i++)
        jinja_list_append(run, list.list, elements[i].item);
    return list;
}

/* --- the filters --- */

/* The keys of `sort`: a list of the attributes that are named with commas between them. */
static struct jinja_value sort_key(struct jinja_run *run, struct jinja_value names, bool ignore_case,
                                   struct jinja_value item)
{
    struct jinja_value key = jinja_list_new(run, JINJA_LIST);
    const struct jinja_string *s = names.kind == JINJA_STRING ? names.string : NULL;
    for (size_t from = 0, to = 0; to <= (s ? s->length : 0) && jinja_tick(run); to++) {
        if (s && to < s->length && s->bytes[to] != ',') continue;
        struct jinja_attribute a;
        if (!jinja_attribute_parse(run, s ? jinja_substring(run, s, from, to) : names, &a)) break;
        a.ignore_case = ignore_case;
        jinja_list_append(run, key.list, jinja_attribute_get(run, &a, item));
        from = to + 1;
    }
    return key;
}

static struct jinja_value filter_sort(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_attribute itself = {0};
    size_t count;
    bool ignore_case = !jinja_is_true(run, c->v[1]);
    struct jinja_keyed *elements = keyed_elements(run, c->self, &itself, &count);
    for (size_t i = 0; elements && i < count && !jinja_failed(run); i++)
        elements[i].key = sort_key(run, c->v[2], ignore_case, elements[i].item);
    if (!elements || !jinja_sort(run, elements, count, jinja_is_true(run, c->v[0]))) return jinja_undefined(NULL);
    return items_of(run, elements, count);
}

static struct jinja_value filter_dictsort(struct jinja_run *run, struct jinja_call *c)
{
    bool by_value = c->v[1].kind == JINJA_STRING && jinja_string_is(c->v[1].string, "value");
    if (c->v[1].kind != JINJA_UNDEFINED && !by_value &&
        !(c->v[1].kind == JINJA_STRING && jinja_string_is(c->v[1].string, "key")))
        jinja_fail(run, "You can only sort by either \"key\" or \"value\"");
    if (c->self.kind != JINJA_DICT) return jinja_wrong_type(run, "dictsort", "a mapping", c->self);
    size_t count = c->self.dict->count;
    struct jinja_keyed *elements = jinja_alloc(run, (count + 1) * sizeof *elements);
    bool ignore_case = !jinja_is_true(run, c->v[0]);
    for (size_t i = 0; elements && i < count && jinja_tick(run); i++) {
        struct jinja_value both[] = {c->self.dict->pairs[i].key, c->self.dict->pairs[i].value}, key = both[by_value];
        elements[i] = (struct jinja_keyed){ignore_case ? lower(run, key) : key, jinja_tuple(run, both, 2)};
    }
    if (!elements || jinja_failed(run) || !jinja_sort(run, elements, count, jinja_is_true(run, c->v[2])))
        return jinja_undefined(NULL);
    return items_of(run, elements, count);
}

static struct jinja_value filter_unique(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_attribute a;
    size_t count;
    if (!jinja_attribute_parse(run, c->v[1], &a)) return jinja_undefined(NULL);
    a.ignore_case = !jinja_is_true(run, c->v[0]);
    const struct jinja_keyed *elements = keyed_elements(run, c->self, &a, &count);
    struct jinja_value seen = jinja_dict_new(run), out = jinja_list_new(run, JINJA_LIST);
    for (size_t i = 0; elements && i < count && jinja_tick(run); i++) {
        if (jinja_dict_get(run, seen.dict, elements[i].key)) continue;
        jinja_dict_set(run, seen.dict, elements[i].key, jinja_none());
        jinja_list_append(run, out.list, elements[i].item);
    }
    return jinja_generator(run, out);
}

/* An element is the new extreme if its order to the last one is `variant`. */
static struct jinja_value filter_extreme(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_attribute a;
    size_t count, best = 0;
    if (!jinja_attribute_parse(run, c->v[1], &a)) return jinja_undefined(NULL);
    a.ignore_case = !jinja_is_true(run, c->v[0]);
    const struct jinja_keyed *elements = keyed_elements(run, c->self, &a, &count);
    if (!elements || count == 0) return jinja_undefined("No aggregated item, sequence was empty.");
    for (size_t i = 1; i < count && jinja_tick(run); i++) {
        if (jinja_compare(run, elements[i].key, elements[best].key) == c->variant) best = i;
    }
    return elements[best].item;
}

static struct jinja_value filter_groupby(struct jinja_run *run, struct jinja_call *c)
{
    static const char *const parts[] = {"grouper", "list"};
    struct jinja_attribute a;
    size_t count, end;
    if (!jinja_attribute_parse(run, c->v[0], &a)) return jinja_undefined(NULL);
    a.ignore_case = !jinja_is_true(run, c->v[2]);
    if (c->v[1].kind != JINJA_NONE) a.absent = c->v[1];
    struct jinja_keyed *elements = keyed_elements(run, c->self, &a, &count);
    if (!elements || !jinja_sort(run, elements, count, false)) return jinja_undefined(NULL);
    a.ignore_case = false; /* a group is called as its first element is */
    struct jinja_value groups = jinja_list_new(run, JINJA_LIST);
    for (size_t from = 0; from < count && jinja_tick(run); from = end) {
        for (end = from + 1; end < count && jinja_equal(run, elements[from].key, elements[end].key);) end++;
        struct jinja_value both[] = {jinja_attribute_get(run, &a, elements[from].item),
                                     items_of(run, elements + from, end - from)};
        struct jinja_value group = jinja_tuple(run, both, 2);
        if (jinja_failed(run)) break;
        group.list->names = parts;
        jinja_list_append(run, groups.list, group);
    }
    return groups;
}

const struct jinja_function jinja_sort_filters[] = {
    {"dictsort", filter_dictsort, "case_sensitive=, by=, reverse="},
    {"groupby", filter_groupby, "attribute, default=, case_sensitive="},
    {"max", filter_extreme, "case_sensitive=, attribute=", 1},
    {"min", filter_extreme, "case_sensitive=, attribute=", -1},
    {"sort", filter_sort, "reverse=, case_sensitive=, attribute="},
    {"unique", filter_unique, "case_sensitive=, attribute="},
    {NULL},
};
