/* Objects that more than one part makes: functions, generators, ranges and the views of a dict. */
#include <inttypes.h>
#include <string.h>

#include "tokenizer/jinja/library.h"

struct jinja_value jinja_new_object(struct jinja_run *run, const void *object, size_t size)
{
    void *copy = jinja_alloc(run, size);
    return copy ? jinja_object(memcpy(copy, object, size)) : jinja_undefined(NULL);
}

/* --- functions, and methods bound to their object --- */

struct function {
    struct jinja_object base;
    const struct jinja_function *function;
    struct jinja_value self;
};

static struct jinja_value call_function(struct jinja_run *run, struct jinja_object *self, const struct jinja_args *args)
{
    const struct function *f = (const struct function *)self;
    return jinja_apply(run, f->function, f->self, args);
}

static bool build_function(struct jinja_run *run, struct jinja_builder *b, struct jinja_object *self)
{
    return jinja_build_printf(run, b, "<function %s>", ((const struct function *)self)->function->name);
}

static void reach_function(struct jinja_run *run, struct jinja_object *self)
{
    jinja_reach(run, ((const struct function *)self)->self);
}

static const struct jinja_object_type function_type = {
    .name = "function", .call = call_function, .build_repr = build_function, .reach = reach_function};

struct jinja_value jinja_make_function(struct jinja_run *run, const struct jinja_function *function,
                                       struct jinja_value self)
{
    const struct function object = {{&function_type}, function, self};
    return jinja_new_object(run, &object, sizeof object);
}

/* --- generators: what filters such as map give. Their items are known at once, but seen only once --- */

struct generator {
    struct jinja_object base;
    struct jinja_value items; /* a list */
    size_t next;              /* the first that was not seen */
};

static const struct jinja_list *iterate_generator(struct jinja_run *run, struct jinja_object *self)
{
    struct generator *g = (struct generator *)self;
    const struct jinja_list *items = g->items.list;
    size_t i = g->next;
    g->next = items->count;
    if (i == 0) return items;
    struct jinja_value rest = jinja_list_new(run, JINJA_LIST);
    while (i < items->count && jinja_tick(run)) jinja_list_append(run, rest.list, items->items[i++]);
    return jinja_failed(run) ? NULL : rest.list;
}

static void reach_generator(struct jinja_run *run, struct jinja_object *self)
{
    jinja_reach(run, ((const struct generator *)self)->items);
}

static const struct jinja_object_type generator_type = {
    .name = "generator", .iterate = iterate_generator, .reach = reach_generator};

struct jinja_value jinja_generator(struct jinja_run *run, struct jinja_value items)
{
    const struct generator object = {{&generator_type}, items, 0};
    if (items.kind != JINJA_LIST) return jinja_undefined(NULL);
    return jinja_new_object(run, &object, sizeof object);
}

bool jinja_first_element(struct jinja_run *run, struct jinja_value v, struct jinja_value *out)
{
    if (v.kind == JINJA_STRING && v.string->count && !jinja_failed(run)) {
        *out = jinja_substring(run, v.string, 0, jinja_byte_of(v.string, 1));
        return true;
    }
    struct generator *g = v.kind == JINJA_OBJECT && v.object->type == &generator_type ? (void *)v.object : NULL;
    const struct jinja_list *list = g ? g->items.list : jinja_iterate(run, v);
    const size_t first = g ? g->next : 0;
    if (!list || list->count <= first || jinja_failed(run)) return false;
    *out = list->items[first];
    if (g) g->next++;
    return true;
}

/* --- range --- */

struct range {
    struct jinja_object base;
    int64_t start, stop, step, count;
};

static struct jinja_value range_element(const struct range *r, int64_t i)
{
    return jinja_int(r->start + i * r->step);
}

static const struct jinja_list *iterate_range(struct jinja_run *run, struct jinja_object *self)
{
    const struct range *r = (const struct range *)self;
    struct jinja_list *list = jinja_alloc(run, sizeof *list);
    struct jinja_value *items = jinja_alloc(run, ((size_t)r->count + 1) * sizeof *items);
    if (!list || !items) return NULL;
    for (int64_t i = 0; i < r->count; i++) items[i] = range_element(r, i);
    *list = (struct jinja_list){.items = items, .count = (size_t)r->count};
    return list;
}

static size_t range_length(struct jinja_object *self)
{
    return (size_t)((const struct range *)self)->count;
}

static bool range_item(struct jinja_run *run, struct jinja_object *self, struct jinja_value key,
                       struct jinja_value *out)
{
    (void)run;
    const struct range *r = (const struct range *)self;
    int64_t i;
    if (!jinja_is_int(key, &i)) return false;
    if (i < 0) i += r->count;
    if (i < 0 || i >= r->count) return false;
    *out = range_element(r, i);
    return true;
}

static bool build_range(struct jinja_run *run, struct jinja_builder *b, struct jinja_object *self)
{
    const struct range *r = (const struct range *)self;
    jinja_build_printf(run, b, "range(%" PRId64 ", %" PRId64, r->start, r->stop);
    if (r->step != 1) jinja_build_printf(run, b, ", %" PRId64, r->step);
    return jinja_build_text(run, b, ")");
}

static const struct jinja_object_type range_type = {.name = "range",
                                                    .iterate = iterate_range,
                                                    .length = range_length,
                                                    .get_item = range_item,
                                                    .build_repr = build_range};

bool jinja_is_range(struct jinja_value v)
{
    return v.kind == JINJA_OBJECT && v.object->type == &range_type;
}

struct jinja_value jinja_range(struct jinja_run *run, struct jinja_slice_indices indices)
{
    const struct range object = {{&range_type}, indices.start, indices.stop, indices.step, indices.count};
    return jinja_new_object(run, &object, sizeof object);
}

/* a * b + c. What lies outside of 64 bits, which the end or step of a slice may do, becomes the nearest integer. */
static int64_t multiply_add(int64_t a, int64_t b, int64_t c)
{
    const __int128 sum = (__int128)a * b + c;
    return sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
}

struct jinja_value jinja_range_slice(struct jinja_run *run, struct jinja_value range, struct jinja_slice_indices slice)
{
    const struct range *r = (const struct range *)range.object;
    return jinja_range(run, (struct jinja_slice_indices){.start = multiply_add(slice.start, r->step, r->start),
                                                         .stop = multiply_add(slice.stop, r->step, r->start),
                                                         .step = multiply_add(slice.step, r->step, 0),
                                                         .count = slice.count});
}

/* --- views of a dict: what its methods keys, values and items give --- */

struct view {
    struct jinja_object base;
    struct jinja_dict *dict;
    enum jinja_view view;
};

static const struct jinja_list *iterate_view(struct jinja_run *run, struct jinja_object *self)
{
    const struct view *v = (const struct view *)self;
    struct jinja_value list = jinja_list_new(run, JINJA_LIST);
    for (size_t i = 0; i < v->dict->count && !jinja_failed(run); i++) {
        const struct jinja_pair *pair = &v->dict->pairs[i];
        struct jinja_value both[] = {pair->key, pair->value};
        jinja_list_append(run, list.list, v->view == JINJA_ITEMS ? jinja_tuple(run, both, 2) : both[v->view]);
    }
    return jinja_failed(run) ? NULL : list.list;
}

static size_t view_length(struct jinja_object *self)
{
    return ((const struct view *)self)->dict->count;
}

static bool build_view(struct jinja_run *run, struct jinja_builder *b, struct jinja_object *self)
{
    const struct jinja_list *list = iterate_view(run, self);
    if (!list) return false;
    jinja_build_printf(run, b, "%s(", self->type->name);
    jinja_build_repr(run, b, (struct jinja_value){.kind = JINJA_LIST, .list = (struct jinja_list *)list});
    return jinja_build_text(run, b, ")");
}

static void reach_view(struct jinja_run *run, struct jinja_object *self)
{
    jinja_reach(run, (struct jinja_value){.kind = JINJA_DICT, .dict = ((const struct view *)self)->dict});
}

#define VIEW_TYPE(type_name)                                                                                           \
    {                                                                                                                  \
        .name = type_name, .iterate = iterate_view, .length = view_length, .build_repr = build_view,                   \
        .reach = reach_view                                                                                            \
    }
static const struct jinja_object_type view_types[] = {
    [JINJA_KEYS] = VIEW_TYPE("dict_keys"),
    [JINJA_VALUES] = VIEW_TYPE("dict_values"),
    [JINJA_ITEMS] = VIEW_TYPE("dict_items"),
};

struct jinja_value jinja_dict_view(struct jinja_run *run, struct jinja_dict *dict, enum jinja_view view)
{
    const struct view object = {{&view_types[view]}, dict, view};
    return jinja_new_object(run, &object, sizeof object);
}

/* --- what a loop sees --- */

static const struct jinja_list *characters_of(struct jinja_run *run, const struct jinja_string *s)
{
    struct jinja_value list = jinja_list_new(run, JINJA_LIST);
    for (size_t from = 0; from < s->length && jinja_tick(run);) {
        const size_t to = jinja_character_end(s, from);
        jinja_list_append(run, list.list, jinja_view(run, s, from, to));
        from = to;
    }
    return jinja_failed(run) ? NULL : list.list;
}

const struct jinja_list *jinja_iterate(struct jinja_run *run, struct jinja_value v)
{
    if (jinja_failed(run)) return NULL;
    switch (v.kind) {
    case JINJA_UNDEFINED:
        return jinja_list_new(run, JINJA_LIST).list;
    case JINJA_STRING:
        return characters_of(run, v.string);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v.list;
    case JINJA_DICT:
        v = jinja_dict_view(run, v.dict, JINJA_KEYS);
        return jinja_failed(run) ? NULL : v.object->type->iterate(run, v.object);
    case JINJA_OBJECT:
        if (v.object->type->iterate) return v.object->type->iterate(run, v.object);
        break;
    default:
        break;
    }
    jinja_fail(run, "'%s' object is not iterable", jinja_type_name(v));
    return NULL;
}
