/* Dicts with the hash equality of Python: 1, 1.0 and True are the same key. */
#include <math.h>
#include <string.h>

#include "tokenizer/jinja/library.h"

struct jinja_value jinja_dict_new(struct jinja_run *run)
{
    struct jinja_dict *dict = jinja_alloc(run, sizeof *dict);
    if (!dict) return jinja_undefined(NULL);
    return (struct jinja_value){.kind = JINJA_DICT, .dict = dict};
}

/* --- hashing --- */

static uint64_t mix(uint64_t h)
{
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdULL;
    return h ^ h >> 33;
}

static uint64_t hash_bytes(const char *bytes, size_t length) /* FNV-1a */
{
    uint64_t h = 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)bytes[i]) * 0x100000001b3ULL;
    return h;
}

static uint64_t hash_double(double d)
{
    if (d >= -0x1p63 && d < 0x1p63 && d == floor(d)) return mix((uint64_t)(int64_t)d);
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return mix(bits);
}

/* The hash of a hashable value. Nesting is bounded: what a template nests deeper than JINJA_MAX_DEPTH gets no hash of
 * its own. A tuple that holds another one twice, and that another one ..., is small and has many elements: each is a
 * tick.
 */
static uint64_t hash_value(struct jinja_run *run, struct jinja_value v, int depth)
{
    switch (v.kind) {
    case JINJA_BOOL:
        return mix(v.boolean);
    case JINJA_INT:
        return mix((uint64_t)v.integer);
    case JINJA_FLOAT:
    case JINJA_BIG_INT:
        return hash_double(jinja_to_double(v));
    case JINJA_STRING:
        return mix(hash_bytes(v.string->bytes, v.string->length));
    case JINJA_TUPLE: {
        uint64_t h = v.list->count;
        for (size_t i = 0; i < v.list->count && depth < JINJA_MAX_DEPTH && jinja_tick(run); i++)
            h = mix(h * 31 + hash_value(run, v.list->items[i], depth + 1));
        return h;
    }
    case JINJA_OBJECT:
        return mix((uint64_t)(uintptr_t)v.object);
    default:
        return (uint64_t)v.kind;
    }
}

/* The type of what cannot be hashed in v; NULL: nothing (or a failure). */
static const char *unhashable(struct jinja_run *run, struct jinja_value v, int depth)
{
    if (v.kind == JINJA_LIST || v.kind == JINJA_DICT) return jinja_type_name(v);
    if (v.kind != JINJA_TUPLE || depth == JINJA_MAX_DEPTH) return NULL;
    for (size_t i = 0; i < v.list->count && jinja_tick(run); i++) {
        const char *name = unhashable(run, v.list->items[i], depth + 1);
        if (name) return name;
    }
    return NULL;
}

bool jinja_is_hashable(struct jinja_run *run, struct jinja_value v)
{
    return unhashable(run, v, 0) == NULL && !jinja_failed(run);
}

static bool check_hashable(struct jinja_run *run, struct jinja_value key)
{
    const char *name = unhashable(run, key, 0);
    if (name) jinja_fail(run, "unhashable type: '%s'", name);
    return !jinja_failed(run);
}

/* --- the index: a hash table of positions in `pairs`, plus 1; 0 is a free slot --- */

enum { SMALL = 8 }; /* up to so many pairs are searched without an index */

static bool same_key(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) return jinja_strings_equal(a.string, b.string);
    return jinja_equal(run, a, b);
}

/* The slot of the key, or the free one where it belongs. */
static uint32_t *find_slot(struct jinja_run *run, const struct jinja_dict *dict, struct jinja_value key)
{
    size_t mask = dict->index_size - 1;
    for (size_t i = hash_value(run, key, 0) & mask;; i = (i + 1) & mask) {
        uint32_t *slot = &dict->index[i];
        if (!*slot || same_key(run, dict->pairs[*slot - 1].key, key)) return slot;
        if (!jinja_tick(run)) return slot;
    }
}

static bool build_index(struct jinja_run *run, struct jinja_dict *dict)
{
    size_t size = dict->index_size ? dict->index_size * 2 : 4 * SMALL;
    uint32_t *index = jinja_alloc(run, size * sizeof *index);
    if (!index) return false;
    dict->index = index;
    dict->index_size = size;
    for (size_t i = 0; i < dict->count; i++) *find_slot(run, dict, dict->pairs[i].key) = (uint32_t)i + 1;
    return !jinja_failed(run);
}

static struct jinja_value *find(struct jinja_run *run, const struct jinja_dict *dict, struct jinja_value key)
{
    if (dict->index) {
        uint32_t at = *find_slot(run, dict, key);
        return at && !jinja_failed(run) ? &dict->pairs[at - 1].value : NULL;
    }
    for (size_t i = 0; i < dict->count; i++) {
        if (same_key(run, dict->pairs[i].key, key)) return &dict->pairs[i].value;
    }
    return NULL;
}

const struct jinja_value *jinja_dict_get(struct jinja_run *run, const struct jinja_dict *dict, struct jinja_value key)
{
    if (key.kind != JINJA_STRING && !check_hashable(run, key)) return NULL;
    return find(run, dict, key);
}

bool jinja_dict_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key, struct jinja_value value)
{
    if (!check_hashable(run, key)) return false;
    struct jinja_value *old = find(run, dict, key);
    if (old) {
        *old = value;
        return true;
    }
    if (!jinja_reserve_one(run, &dict->pairs, &dict->capacity, dict->count, sizeof *dict->pairs)) return false;
    dict->pairs[dict->count++] = (struct jinja_pair){key, value};
    if (dict->count > SMALL && dict->count * 2 > dict->index_size) return build_index(run, dict);
    if (dict->index) *find_slot(run, dict, key) = (uint32_t)dict->count;
    return !jinja_failed(run);
}
