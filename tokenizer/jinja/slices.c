/* Slices of strings, lists, tuples and ranges. */
#include "tokenizer/jinja/library.h"

/* A bound, or `absent` for NONE; counted from the end if it is negative, and between lowest and highest. */
static bool slice_bound(struct jinja_value v, int64_t length, int64_t absent, bool backwards, int64_t *out)
{
    int64_t bound;
    *out = absent;
    if (v.kind == JINJA_NONE) return true;
    if (!jinja_is_int(v, &bound)) return false;
    const int64_t lowest = backwards ? -1 : 0, highest = backwards ? length - 1 : length;
    if (bound < 0) bound += length;
    *out = bound < lowest ? lowest : bound > highest ? highest : bound;
    return true;
}

/* False: a bound is not an int, or (a failure) the step is 0. */
static bool slice_indices(struct jinja_run *run, struct jinja_value start, struct jinja_value stop,
                          struct jinja_value step, size_t length, struct jinja_slice_indices *out)
{
    int64_t n = (int64_t)length;
    out->step = 1;
    if (step.kind != JINJA_NONE && !jinja_is_int(step, &out->step)) return false;
    if (out->step == 0) return jinja_fail(run, "slice step cannot be zero");
    if (out->step < -INT64_MAX) out->step = -INT64_MAX;
    bool backwards = out->step < 0;
    if (!slice_bound(start, n, backwards ? n - 1 : 0, backwards, &out->start) ||
        !slice_bound(stop, n, backwards ? -1 : n, backwards, &out->stop))
        return false;
    int64_t span = backwards ? out->start - out->stop : out->stop - out->start;
    int64_t stride = backwards ? -out->step : out->step;
    out->count = span <= 0 ? 0 : (span - 1) / stride + 1;
    return true;
}

static struct jinja_value slice_string(struct jinja_run *run, const struct jinja_string *s,
                                       struct jinja_slice_indices slice)
{
    if (slice.count == 0) return jinja_literal(run, "");
    if (slice.step == 1) {
        size_t from = jinja_byte_of(s, (size_t)slice.start);
        struct jinja_string rest = {.bytes = s->bytes + from, .length = s->length - from};
        rest.count = s->count - (size_t)slice.start;
        return jinja_substring(run, s, from, from + jinja_byte_of(&rest, (size_t)slice.count));
    }
    size_t *begins = jinja_alloc(run, (s->count + 1) * sizeof *begins); /* of each character */
    if (!begins) return jinja_undefined(NULL);
    for (size_t byte = 0, i = 0; byte < s->length; byte++) {
        if (((unsigned char)s->bytes[byte] & 0xC0) != 0x80) begins[i++] = byte;
    }
    begins[s->count] = s->length;
    struct jinja_builder b = {0};
    for (int64_t i = 0; i < slice.count && jinja_tick(run); i++) {
        int64_t at = slice.start + i * slice.step;
        jinja_build_range(run, &b, s, begins[at], begins[at + 1]);
    }
    return jinja_build_end(run, &b);
}

static struct jinja_value slice_list(struct jinja_run *run, struct jinja_value v, struct jinja_slice_indices slice)
{
    struct jinja_value out = jinja_list_new(run, v.kind);
    for (int64_t i = 0; i < slice.count && jinja_tick(run); i++)
        jinja_list_append(run, out.list, v.list->items[slice.start + i * slice.step]);
    return out;
}

struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value object, struct jinja_value start,
                               struct jinja_value stop, struct jinja_value step)
{
    if (jinja_failed(run) || jinja_fail_undefined(run, object)) return jinja_undefined(NULL);
    size_t length;
    struct jinja_slice_indices slice;
    bool sliceable = object.kind == JINJA_STRING || object.kind == JINJA_LIST || object.kind == JINJA_TUPLE ||
                     jinja_is_range(object);
    if (!sliceable) jinja_fail(run, "'%s' object cannot be sliced", jinja_type_name(object));
    if (!sliceable || !jinja_length(object, &length)) return jinja_undefined(NULL);
    if (!slice_indices(run, start, stop, step, length, &slice))
        return jinja_error(run, "the bounds of a slice must be integers");
    if (object.kind == JINJA_STRING) return slice_string(run, object.string, slice);
    return object.kind == JINJA_OBJECT ? jinja_range_slice(run, object, slice) : slice_list(run, object, slice);
}
