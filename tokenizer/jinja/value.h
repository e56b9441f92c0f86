/* Python's values, as far as templates see them, and one rendering (struct jinja_run) that owns their memory.
 *
 * All memory comes from the run. What no value refers to any more is found and freed while the evaluator goes from one
 * node to the next, never while a function of the library runs; so values are passed around freely. Nothing returns an
 * error: the first failure stays in the run, after which functions return undefined or false at once, and the evaluator
 * stops when it sees jinja_failed(). Semantics are those of Python 3.11 and jinja2 3.1; error texts follow theirs where
 * that helps the author of a template. */
#ifndef QUIRE_TOKENIZER_JINJA_VALUE_H
#define QUIRE_TOKENIZER_JINJA_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"
#include "tokenizer/jinja/jinja.h"

/* --- the run --- */

struct jinja_block; /* of memory; private to memory.c */
struct jinja_cell;
struct jinja_value;

struct jinja_run {
    const struct jinja_context *context;
    struct jinja_block *blocks, *large; /* blocks of many cells, and blocks of one cell each */
    char *hole, *hole_end;              /* what small cells are cut from */
    struct jinja_cell *holes;
    struct jinja_cell *waiting; /* reached, but not yet looked into */
    /* Calls jinja_reach for all values in use. NULL, as for a parser: nothing is freed before the end. */
    void (*reach_roots)(struct jinja_run *run);
    size_t bytes, max_bytes; /* in use, and the limit */
    size_t collect_at;       /* `bytes` at which cells that nothing reaches are freed */
    uint64_t collect_at_tick;
    double deadline;       /* on base/clock.h's clock: then the thread is asked how long it has computed */
    double began, seconds; /* on the thread's clock; the limit */
    uint64_t ticks;        /* counts calls of jinja_tick, so that the clock is read rarely */
    int depth;             /* of evaluation: jinja_enter and jinja_leave */
    int line, column;      /* of the node being evaluated, from 1; the evaluator sets them */
    enum status status;    /* of the first failure */
    struct error *err;
};

void jinja_run_begin(struct jinja_run *run, const struct jinja_context *context, struct error *err);
void jinja_run_end(struct jinja_run *run); /* frees all values */

static inline bool jinja_failed(const struct jinja_run *run)
{
    return run->status != STATUS_OK;
}
/* Fails with "line L, column C: " and the formatted sentence, unless the run has failed already. Returns false. */
bool jinja_fail(struct jinja_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fails in the same way. Returns an undefined value. */
struct jinja_value jinja_error(struct jinja_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Memory for `size` bytes, zeroed and aligned for any type; NULL after a failure (the limit is one). */
void *jinja_alloc(struct jinja_run *run, size_t size);
/* Memory of jinja_alloc made larger: its first old_size bytes are kept, further ones may hold anything, and it may
 * move. Nothing else may refer to it. NULL after a failure. `memory` may be NULL. */
void *jinja_grow(struct jinja_run *run, void *memory, size_t old_size, size_t size);
/* Room for one more element behind the `count` of an array of jinja_alloc, or of none: *data is its pointer, whatever
 * the type. False after a failure. */
bool jinja_reserve_one(struct jinja_run *run, void *data, size_t *capacity, size_t count, size_t element_size);
/* Raises the limits of memory and time for `bytes` of variables. */
void jinja_run_allow(struct jinja_run *run, size_t bytes);
/* Called for each node, and for each element or character that a loop goes through: fails when the time is up. False
 * after a failure. What the C library does in one call (memmem, memcpy) is not counted: it is at most max_bytes long.
 */
bool jinja_tick(struct jinja_run *run);
/* One level deeper; fails beyond JINJA_MAX_DEPTH. Each enter that returned true is followed by a leave. */
bool jinja_enter(struct jinja_run *run);
void jinja_leave(struct jinja_run *run);

/* --- values --- */

enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT, /* int64: an operation that overflows fails */
    JINJA_FLOAT,
    JINJA_BIG_INT, /* an integer of JSON beyond int64: it is printed and compared, and arithmetic refuses it */
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_OBJECT /* anything else: namespace, loop, macro, function, bound method, cycler, ... */
};

struct jinja_value {
    enum jinja_kind kind;
    bool missing_is_cell; /* UNDEFINED: the run made the sentence; otherwise it outlives the run */
    union {
        const char *missing; /* UNDEFINED: the sentence that using it gives, such as "'x' is undefined"; NULL: none */
        bool boolean;
        int64_t integer;
        double real;
        const struct jinja_string *string; /* STRING; of BIG_INT, the digits with their sign, NUL-terminated */
        struct jinja_list *list;           /* LIST and TUPLE; shared by all values that refer to it, as in Python */
        struct jinja_dict *dict;
        struct jinja_object *object;
    };
};

/* Immutable UTF-8. What comes from JSON may hold halves of surrogate pairs, as three bytes each: characters as in
 * Python. */
struct jinja_string {
    const char *bytes; /* [length], not NUL-terminated */
    size_t length;
    size_t count;                /* of characters (code points) */
    const uint8_t *marks;        /* [length]; NULL: every byte has the mark `marked` */
    struct jinja_buffer *buffer; /* that bytes and marks are in; NULL: they outlive the run */
    bool is_cell;                /* the run may free it; false: it outlives the run, or lies in something else */
    bool marked;
    /* jinja2's Markup, which the filters escape and safe make: + escapes what it is added to. Methods and % give plain
     * strings. */
    bool is_markup;
};

struct jinja_list {
    struct jinja_value *items; /* [count]; another list may have the same, and more behind them */
    size_t count, capacity;
    const char *const *names; /* [count] of a named tuple's items, which groupby makes; NULL: none */
};

/* In the order of insertion. Any hashable value is a key; a JSON object's keys are strings. */
struct jinja_dict {
    struct jinja_pair {
        struct jinja_value key, value;
    } * pairs; /* [count] */
    size_t count, capacity;
    uint32_t *index; /* private to dict.c */
    size_t index_size;
};

struct jinja_keyword {
    struct jinja_value name; /* a string */
    struct jinja_value value;
};
struct jinja_args {
    const struct jinja_value *positional; /* [count] */
    size_t count;
    const struct jinja_keyword *keywords; /* [num_keywords] */
    size_t num_keywords;
};

struct jinja_builder;
struct jinja_call;

/* Kinds of objects. Any function may be NULL: then the object has no attributes, cannot be called, and so on. */
struct jinja_object_type {
    const char *name; /* what "'NAME' object has no attribute" says */
    /* False: there is no such attribute. */
    bool (*get_attribute)(struct jinja_run *run, struct jinja_object *self, const struct jinja_string *name,
                          struct jinja_value *out);
    bool (*set_attribute)(struct jinja_run *run, struct jinja_object *self, const struct jinja_string *name,
                          struct jinja_value value); /* {% set object.name = value %}: namespace alone has it */
    struct jinja_value (*call)(struct jinja_run *run, struct jinja_object *self, const struct jinja_args *args);
    /* What a loop over the object sees; NULL after a failure. A generator's elements are seen once. */
    const struct jinja_list *(*iterate)(struct jinja_run *run, struct jinja_object *self);
    size_t (*length)(struct jinja_object *self); /* len(object); an object of length 0 is false */
    /* object[key]. False: there is no such item. */
    bool (*get_item)(struct jinja_run *run, struct jinja_object *self, struct jinja_value key, struct jinja_value *out);
    bool (*build_repr)(struct jinja_run *run, struct jinja_builder *b, struct jinja_object *self); /* "<NAME object>" */
    /* Calls jinja_reach for the values, and jinja_reach_memory for the memory, that it refers to. */
    void (*reach)(struct jinja_run *run, struct jinja_object *self);
};
struct jinja_object { /* the first member of each object's own struct */
    const struct jinja_object_type *type;
};

/* A function without state, such as range; also the form of filters, tests and methods. */
struct jinja_function {
    const char *name; /* NULL ends a table */
    struct jinja_value (*call)(struct jinja_run *run, struct jinja_call *c);
    /* As in Python's "def f(self, PARAMETERS)": "a, b=" takes a value for a and perhaps one for b, also by keyword;
     * "a, b=, /" and "/" take no keywords. At most JINJA_MAX_PARAMETERS. NULL: `call` looks at the arguments itself. */
    const char *parameters;
    int variant;       /* for functions that differ in little */
    const char *title; /* what messages call it; NULL: its name */
};
enum { JINJA_MAX_PARAMETERS = 4 };
struct jinja_call {
    const char *title;
    int variant;
    struct jinja_value self; /* what stands before the bar, the dot or `is` */
    const struct jinja_args *args;
    struct jinja_value v[JINJA_MAX_PARAMETERS]; /* of the parameters; UNDEFINED: not given */
};
/* Calls the function: binds the arguments first. */
struct jinja_value jinja_apply(struct jinja_run *run, const struct jinja_function *function, struct jinja_value self,
                               const struct jinja_args *args);

/* --- what is alive: called by reach_roots, and by the reach of objects --- */

void jinja_reach(struct jinja_run *run, struct jinja_value v);
/* What jinja_alloc gave; NULL is allowed. False: it was reached before. */
bool jinja_reach_memory(const void *memory);
void jinja_reach_buffer(const struct jinja_buffer *buffer);
/* Frees what is not reached, if enough was made since the last time. Whoever calls it holds no value that the roots do
 * not reach. */
void jinja_collect(struct jinja_run *run);

/* --- making values --- */

static inline struct jinja_value jinja_undefined(const char *missing) /* which outlives the run */
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .missing = missing};
}
static inline struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_NONE};
}
static inline struct jinja_value jinja_bool(bool value)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .boolean = value};
}
static inline struct jinja_value jinja_int(int64_t value)
{
    return (struct jinja_value){.kind = JINJA_INT, .integer = value};
}
static inline struct jinja_value jinja_float(double value)
{
    return (struct jinja_value){.kind = JINJA_FLOAT, .real = value};
}
static inline struct jinja_value jinja_object(struct jinja_object *object)
{
    return (struct jinja_value){.kind = JINJA_OBJECT, .object = object};
}
/* An object that calls `function` with `self`. */
struct jinja_value jinja_make_function(struct jinja_run *run, const struct jinja_function *function,
                                       struct jinja_value self);
/* Refers to bytes[length], valid UTF-8 that nothing frees as long as the run lasts. */
struct jinja_value jinja_string_of(struct jinja_run *run, const char *bytes, size_t length, bool marked);
struct jinja_value jinja_string_copy(struct jinja_run *run, const char *bytes, size_t length, bool marked);
struct jinja_value jinja_literal(struct jinja_run *run, const char *text); /* NUL-terminated, unmarked */
/* Bytes from .. to of s, with their marks. */
struct jinja_value jinja_substring(struct jinja_run *run, const struct jinja_string *s, size_t from, size_t to);
struct jinja_value jinja_list_new(struct jinja_run *run, enum jinja_kind list_or_tuple);
bool jinja_list_append(struct jinja_run *run, struct jinja_list *list, struct jinja_value item);
struct jinja_value jinja_dict_new(struct jinja_run *run);
bool jinja_dict_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key, struct jinja_value value);
const struct jinja_value *jinja_dict_get(struct jinja_run *run, const struct jinja_dict *dict, struct jinja_value key);
struct jinja_value jinja_from_json(struct jinja_run *run, const struct jinja_variable *variable);

/* Memory for bytes and marks. Strings share it: one that ends where the buffer ends may grow into the room behind it,
 * so that a template which adds to a string again and again copies little. */
struct jinja_buffer {
    uint8_t *marks; /* [capacity]; NULL as long as all bytes have the same mark */
    size_t length, capacity;
    bool shared; /* a string refers to it: its bytes stay where they are */
    char bytes[];
};

/* A string being put together, with its marks. Zero-initialise it; the memory is the run's. */
struct jinja_builder {
    struct jinja_buffer *buffer; /* NULL: empty */
    size_t length;               /* of the bytes, which are the first of the buffer */
    bool marked;                 /* the mark of all bytes, as long as the buffer has no marks */
    struct {
        size_t length, count; /* the first `length` bytes have `count` characters */
    } counted;
};
bool jinja_build_string(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s);
bool jinja_build_bytes(struct jinja_run *run, struct jinja_builder *b, const char *bytes, size_t length, bool marked);
struct jinja_value jinja_build_end(struct jinja_run *run, struct jinja_builder *b);

/* --- operations: what the operators of the language do --- */

/* Fails if v is undefined, with its own sentence. True after any failure. */
bool jinja_fail_undefined(struct jinja_run *run, struct jinja_value v);
/* Whether v is a number; bools are. */
bool jinja_is_number(struct jinja_value v);
bool jinja_is_int(struct jinja_value v, int64_t *out); /* an int or a bool */
double jinja_to_double(struct jinja_value number);
/* Fails: "FUNCTION must have EXPECTED, not TYPE"; or, for an undefined v, with its own sentence. Returns undefined. */
struct jinja_value jinja_wrong_type(struct jinja_run *run, const char *function, const char *expected,
                                    struct jinja_value v);
/* len(v); false: v has none. */
bool jinja_length(struct jinja_value v, size_t *length);
const char *jinja_type_name(struct jinja_value v); /* Python's: "str", "int", "dict", "jinja2's Undefined", ... */
bool jinja_is_true(struct jinja_run *run, struct jinja_value v);
bool jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b); /* 1 == 1.0 == True */
/* -1, 0 or 1; fails for values that Python does not order. 2: one of them is NaN. */
int jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b);
enum jinja_comparison {
    JINJA_EQUAL,
    JINJA_NOT_EQUAL,
    JINJA_LESS,
    JINJA_LESS_EQUAL,
    JINJA_GREATER,
    JINJA_GREATER_EQUAL,
    JINJA_IN,
    JINJA_NOT_IN
};
bool jinja_compares(struct jinja_run *run, enum jinja_comparison comparison, struct jinja_value a,
                    struct jinja_value b); /* a == b and so on; an order is false beside NaN */

enum jinja_operator {
    JINJA_ADD,
    JINJA_SUBTRACT,
    JINJA_MULTIPLY,
    JINJA_DIVIDE,
    JINJA_FLOOR_DIVIDE,
    JINJA_MODULO, /* of a string: Python's % formatting */
    JINJA_POWER
};
struct jinja_value jinja_arithmetic(struct jinja_run *run, enum jinja_operator op, struct jinja_value a,
                                    struct jinja_value b);
struct jinja_value jinja_negate(struct jinja_run *run, struct jinja_value v, bool plus); /* -v, or +v */
struct jinja_value jinja_concatenate(struct jinja_run *run, const struct jinja_value *items, size_t count); /* a ~ b */

/* object.name: an attribute or method, else an item. object[key]: an item, else an attribute. Undefined if there is
 * neither; fails on an undefined object. As in the sandbox, attributes named "__...__" are undefined, and the methods
 * that change a list or dict are refused. */
struct jinja_value jinja_get_attribute(struct jinja_run *run, struct jinja_value object,
                                       const struct jinja_string *name);
struct jinja_value jinja_get_item(struct jinja_run *run, struct jinja_value object, struct jinja_value key);
/* object[start:stop:step]; NONE stands for a bound that is not given. */
struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value object, struct jinja_value start,
                               struct jinja_value stop, struct jinja_value step);
struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value callee, const struct jinja_args *args);
/* The elements that a loop over v sees: items of a list, keys of a dict, characters of a string. NULL after a failure:
 * v cannot be iterated. The list may be v's own. */
const struct jinja_list *jinja_iterate(struct jinja_run *run, struct jinja_value v);

/* str(v) and repr(v) as Python writes them; marks of the strings within are kept. What {{ v }} prints is str(v), and
 * nothing for an undefined v. */
bool jinja_build_str(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v);
bool jinja_build_repr(struct jinja_run *run, struct jinja_builder *b, struct jinja_value v);
struct jinja_value jinja_str(struct jinja_run *run, struct jinja_value v);

/* --- filters, tests and globals (jinja2's, and those of transformers) --- */

/* NULL: there is no filter or test of this name. A test returns JINJA_BOOL. */
const struct jinja_function *jinja_find_filter(const struct jinja_string *name);
const struct jinja_function *jinja_find_test(const struct jinja_string *name);
/* range, dict, namespace, joiner, cycler, raise_exception, strftime_now. False: there is no such global. */
bool jinja_find_global(struct jinja_run *run, const struct jinja_string *name, struct jinja_value *out);

/* Binds arguments to parameters (struct jinja_function), as Python does: values[i] gets the argument for the i-th, or
 * UNDEFINED if it is not given. Fails ("FUNCTION() got ...") for arguments too many, unknown or given twice, and if one
 * is missing. */
bool jinja_bind(struct jinja_run *run, const char *function, const char *parameters, const struct jinja_args *args,
                struct jinja_value *values);

#endif
