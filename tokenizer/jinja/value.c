/* What all values have: a type, a length, a truth. */
#include <stdlib.h>

#include "tokenizer/jinja/value.h"

const char *jinja_type_name(struct jinja_value v)
{
    static const char *const names[] = {"Undefined", "NoneType", "bool",  "int", "float", "int of more than 64 bits",
                                        "str",       "list",     "tuple", "dict"};
    return v.kind == JINJA_OBJECT ? v.object->type->name : names[v.kind];
}

bool jinja_length(struct jinja_value v, size_t *length)
{
    switch (v.kind) {
    case JINJA_UNDEFINED:
        *length = 0;
        return true;
    case JINJA_STRING:
        *length = v.string->count;
        return true;
    case JINJA_LIST:
    case JINJA_TUPLE:
        *length = v.list->count;
        return true;
    case JINJA_DICT:
        *length = v.dict->count;
        return true;
    case JINJA_OBJECT:
        if (v.object->type->length) *length = v.object->type->length(v.object);
        return v.object->type->length != NULL;
    default:
        return false;
    }
}

bool jinja_is_true(struct jinja_run *run, struct jinja_value v)
{
    size_t length;
    if (jinja_failed(run)) return false;
    switch (v.kind) {
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.boolean;
    case JINJA_INT:
        return v.integer != 0;
    case JINJA_FLOAT:
        return v.real != 0;
    default:
        return !jinja_length(v, &length) || length > 0;
    }
}

bool jinja_fail_undefined(struct jinja_run *run, struct jinja_value v)
{
    if (v.kind == JINJA_UNDEFINED) jinja_fail(run, "%s", v.missing ? v.missing : "an undefined value is used");
    return jinja_failed(run);
}

struct jinja_value jinja_wrong_type(struct jinja_run *run, const char *function, const char *expected,
                                    struct jinja_value v)
{
    if (!jinja_fail_undefined(run, v))
        jinja_fail(run, "%s must have %s, not %s", function, expected, jinja_type_name(v));
    return jinja_undefined(NULL);
}

/* --- numbers --- */

bool jinja_is_int(struct jinja_value v, int64_t *out)
{
    if (v.kind == JINJA_INT) *out = v.integer;
    if (v.kind == JINJA_BOOL) *out = v.boolean;
    return v.kind == JINJA_INT || v.kind == JINJA_BOOL;
}

bool jinja_is_number(struct jinja_value v)
{
    return v.kind == JINJA_INT || v.kind == JINJA_BOOL || v.kind == JINJA_FLOAT || v.kind == JINJA_BIG_INT;
}

double jinja_to_double(struct jinja_value number)
{
    return number.kind == JINJA_FLOAT     ? number.real
           : number.kind == JINJA_BOOL    ? number.boolean
           : number.kind == JINJA_BIG_INT ? strtod(number.string->bytes, NULL)
                                          : (double)number.integer;
}
