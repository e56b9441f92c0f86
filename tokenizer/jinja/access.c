/* Attributes, items and calls. Methods are attributes, and str.format reads attributes: access.c, methods.c and
 * str_format.c are one recursive unit. */
#include <string.h>

#include "base/words.h"
#include "tokenizer/jinja/library.h"

/* --- what is missing --- */

static struct jinja_value end_missing(struct jinja_run *run, struct jinja_builder *b)
{
    char *sentence = jinja_alloc(run, b->length + 1);
    if (!sentence) return jinja_undefined(NULL);
    memcpy(sentence, b->buffer->bytes, b->length);
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .missing_is_cell = true, .missing = sentence};
}

struct jinja_value jinja_no_item(struct jinja_run *run, struct jinja_value object, struct jinja_value key)
{
    bool attribute = key.kind == JINJA_STRING;
    const char *quote = attribute ? "'" : "";
    struct jinja_builder b = {0};
    if (object.kind == JINJA_NONE) {
        jinja_build_printf(run, &b, "%sNone%s", quote, quote);
    } else {
        jinja_build_printf(run, &b, "%s%s object%s", quote, jinja_type_name(object), quote);
    }
    jinja_build_text(run, &b, attribute ? " has no attribute " : " has no element ");
    jinja_build_repr(run, &b, key);
    return end_missing(run, &b);
}

static struct jinja_value unsafe(struct jinja_run *run, struct jinja_value object, const struct jinja_string *name)
{
    struct jinja_builder b = {0};
    jinja_build_text(run, &b, "access to attribute '");
    jinja_build_string(run, &b, name);
    jinja_build_printf(run, &b, "' of '%s' object is unsafe.", jinja_type_name(object));
    return end_missing(run, &b);
}

static struct jinja_value unsupported(struct jinja_run *run, struct jinja_value object, const struct jinja_string *name)
{
    struct jinja_builder b = {0};
    jinja_build_printf(run, &b, "the method '%s.", jinja_type_name(object));
    jinja_build_string(run, &b, name);
    jinja_build_text(run, &b, "' is not supported in templates");
    return end_missing(run, &b);
}

/* --- attributes --- */

/* Methods that the sandbox keeps from templates, because they change the object. */
static bool is_unsafe(struct jinja_value object, const struct jinja_string *name)
{
    const char *const methods = object.kind == JINJA_LIST   ? "append clear pop reverse insert sort extend remove"
                                : object.kind == JINJA_DICT ? "clear pop popitem setdefault update"
                                                            : "";
    bool dunder =
        name->length >= 4 && memcmp(name->bytes, "__", 2) == 0 && memcmp(name->bytes + name->length - 2, "__", 2) == 0;
    return dunder || words_have_text(methods, name->bytes, name->length);
}

static bool is_unsupported(struct jinja_value object, const struct jinja_string *name)
{
    return object.kind == JINJA_STRING && words_have_text("encode translate maketrans", name->bytes, name->length);
}

static bool find_method(struct jinja_run *run, struct jinja_value object, const struct jinja_string *name,
                        struct jinja_value *out)
{
    const struct jinja_function *method = jinja_find_method(object.kind, name);
    if (method) *out = jinja_make_function(run, method, object);
    return method != NULL;
}

static bool find_named_item(const struct jinja_list *tuple, const struct jinja_string *name, struct jinja_value *out)
{
    for (size_t i = 0; tuple->names && i < tuple->count; i++) {
        if (!jinja_string_is(name, tuple->names[i])) continue;
        *out = tuple->items[i];
        return true;
    }
    return false;
}

bool jinja_find_attribute(struct jinja_run *run, struct jinja_value object, const struct jinja_string *name,
                          struct jinja_value *out)
{
    if (is_unsafe(object, name)) {
        *out = unsafe(run, object, name);
    } else if (is_unsupported(object, name)) {
        *out = unsupported(run, object, name);
    } else if (object.kind == JINJA_OBJECT) {
        const struct jinja_object_type *type = object.object->type;
        return type->get_attribute && type->get_attribute(run, object.object, name, out);
    } else {
        return find_method(run, object, name, out) ||
               (object.kind == JINJA_TUPLE && find_named_item(object.list, name, out));
    }
    return true;
}

/* --- items --- */

static bool find_list_item(const struct jinja_list *list, int64_t i, struct jinja_value *out)
{
    if (i < 0) i += (int64_t)list->count;
    if (i < 0 || i >= (int64_t)list->count) return false;
    *out = list->items[i];
    return true;
}

static bool find_character(struct jinja_run *run, const struct jinja_string *s, int64_t i, struct jinja_value *out)
{
    if (i < 0) i += (int64_t)s->count;
    if (i < 0 || i >= (int64_t)s->count) return false;
    const size_t from = jinja_byte_of(s, (size_t)i);
    *out = jinja_substring(run, s, from, jinja_character_end(s, from));
    return true;
}

static bool find_item(struct jinja_run *run, struct jinja_value object, struct jinja_value key, struct jinja_value *out)
{
    int64_t i;
    const struct jinja_value *value;
    switch (object.kind) {
    case JINJA_LIST:
    case JINJA_TUPLE:
        return jinja_is_int(key, &i) && find_list_item(object.list, i, out);
    case JINJA_STRING:
        return jinja_is_int(key, &i) && find_character(run, object.string, i, out);
    case JINJA_DICT:
        value = jinja_is_hashable(run, key) ? jinja_dict_get(run, object.dict, key) : NULL;
        if (value) *out = *value;
        return value != NULL;
    case JINJA_OBJECT:
        return object.object->type->get_item && object.object->type->get_item(run, object.object, key, out);
    default:
        return false;
    }
}

struct jinja_value jinja_get_attribute(struct jinja_run *run, struct jinja_value object,
                                       const struct jinja_string *name)
{
    if (jinja_failed(run) || jinja_fail_undefined(run, object)) return jinja_undefined(NULL);
    struct jinja_value key = {.kind = JINJA_STRING, .string = name}, found;
    if (jinja_find_attribute(run, object, name, &found) || find_item(run, object, key, &found)) return found;
    return jinja_no_item(run, object, key);
}

struct jinja_value jinja_get_item(struct jinja_run *run, struct jinja_value object, struct jinja_value key)
{
    if (jinja_failed(run) || jinja_fail_undefined(run, object)) return jinja_undefined(NULL);
    struct jinja_value found;
    if (find_item(run, object, key, &found)) return found;
    if (key.kind == JINJA_STRING && jinja_find_attribute(run, object, key.string, &found)) return found;
    return jinja_no_item(run, object, key);
}

/* --- calls --- */

struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value callee, const struct jinja_args *args)
{
    if (jinja_failed(run) || jinja_fail_undefined(run, callee)) return jinja_undefined(NULL);
    if (callee.kind == JINJA_OBJECT && callee.object->type->call)
        return callee.object->type->call(run, callee.object, args);
    return jinja_error(run, "'%s' object is not callable", jinja_type_name(callee));
}
