/* Lists and tuples. */
#include "tokenizer/jinja/library.h"

struct jinja_value jinja_list_new(struct jinja_run *run, enum jinja_kind list_or_tuple)
{
    struct jinja_list *list = jinja_alloc(run, sizeof *list);
    if (!list) return jinja_undefined(NULL);
    return (struct jinja_value){.kind = list_or_tuple, .list = list};
}

bool jinja_list_append(struct jinja_run *run, struct jinja_list *list, struct jinja_value item)
{
    if (!jinja_reserve_one(run, &list->items, &list->capacity, list->count, sizeof *list->items)) return false;
    list->items[list->count++] = item;
    return true;
}

struct jinja_value jinja_tuple(struct jinja_run *run, const struct jinja_value *items, size_t count)
{
    struct jinja_value tuple = jinja_list_new(run, JINJA_TUPLE);
    if (tuple.kind != JINJA_TUPLE) return tuple;
    for (size_t i = 0; i < count; i++) {
        if (!jinja_list_append(run, tuple.list, items[i])) return jinja_undefined(NULL);
    }
    return tuple;
}
