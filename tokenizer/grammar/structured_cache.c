#include "tokenizer/grammar/structured.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/array.h"

enum { NUM_BUCKETS = 1024 };

struct entry {
    struct text key;
    uint64_t hash;
    struct constraint *constraint; /* NULL: a thread makes it */
    struct entry *next;            /* in its bucket */
    struct entry *newer, *older;   /* of those that have a constraint, in the order of their last use */
};

struct structured_cache {
    const struct vocabulary *vocabulary;
    size_t max_bytes;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t made;  /* a thread has made a constraint, or failed to */
    struct entry *buckets[NUM_BUCKETS];
    struct entry *newest, *oldest;
};

enum status structured_cache_create(const struct vocabulary *v, size_t max_bytes, struct structured_cache **out,
                                    struct error *err)
{
    struct structured_cache *c = calloc(1, sizeof *c);
    *out = c;
    if (!c) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the cache of grammars");
    c->vocabulary = v;
    c->max_bytes = max_bytes;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->made, NULL);
    return STATUS_OK;
}

/* ---- entries; the caller holds the lock ---- */

static void free_entry(struct entry *e)
{
    constraint_free(e->constraint);
    text_free(&e->key);
    free(e);
}

static struct entry *find(const struct structured_cache *c, const struct text *key, uint64_t hash)
{
    for (struct entry *e = c->buckets[hash % NUM_BUCKETS]; e; e = e->next)
        if (e->hash == hash && e->key.length == key->length && memcmp(e->key.data, key->data, key->length) == 0)
            return e;
    return NULL;
}

static void unlink_entry(struct structured_cache *c, struct entry *e)
{
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
}

static void link_newest(struct structured_cache *c, struct entry *e)
{
    e->newer = NULL;
    e->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
}

static void take_out(struct structured_cache *c, struct entry *e)
{
    struct entry **at = &c->buckets[e->hash % NUM_BUCKETS];
    while (*at != e) at = &(*at)->next;
    *at = e->next;
}

/* Drops the oldest while all hold more than max_bytes; the newest stays. Masks that are found make constraints larger,
 * so their sizes are asked for anew. */
static void drop_oldest(struct structured_cache *c)
{
    size_t total = 0;
    for (const struct entry *e = c->newest; e; e = e->older) total += constraint_bytes(e->constraint);
    while (total > c->max_bytes && c->oldest != c->newest) {
        struct entry *e = c->oldest;
        const size_t bytes = constraint_bytes(e->constraint);
        total -= bytes < total ? bytes : total;
        unlink_entry(c, e);
        take_out(c, e);
        free_entry(e);
    }
}

void structured_cache_free(struct structured_cache *c)
{
    if (!c) return;
    for (struct entry *e = c->newest, *older; e; e = older) {
        older = e->older;
        free_entry(e);
    }
    pthread_cond_destroy(&c->made);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- getting one ---- */

static bool write_bytes(struct text *out, char mark, const void *bytes, size_t length)
{
    return text_append(out, &mark, 1) && text_append(out, (const char *)&length, sizeof length) &&
           text_append(out, bytes, length);
}

static bool write_list(const char *const *list, struct text *out)
{
    bool ok = text_append(out, ".", 1);
    for (; ok && list && *list; list++) ok = write_bytes(out, ':', *list, strlen(*list));
    return ok;
}

/* Writes the value so that no other is written alike. JSON would do, but takes ten times as long. The parser bounds how
 * deep values are. */
static bool write_value(const json_t *value, struct text *out)
{
    const json_int_t integer = json_integer_value(value);
    const double real = json_real_value(value);
    const char type = (char)('a' + (int)json_typeof(value));
    const char *key;
    json_t *part;
    size_t i, count;
    bool ok;
    switch (json_typeof(value)) {
    case JSON_STRING:
        return write_bytes(out, type, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
        return write_bytes(out, type, &integer, sizeof integer);
    case JSON_REAL:
        return write_bytes(out, type, &real, sizeof real);
    case JSON_ARRAY:
        count = json_array_size(value);
        ok = write_bytes(out, type, &count, sizeof count);
        json_array_foreach(value, i, part) ok = ok && write_value(part, out);
        return ok;
    case JSON_OBJECT:
        count = json_object_size(value);
        ok = write_bytes(out, type, &count, sizeof count);
        json_object_foreach((json_t *)value, key, part) ok =
            ok && write_bytes(out, ':', key, strlen(key)) && write_value(part, out);
        return ok;
    default:
        return text_append(out, &type, 1);
    }
}

static bool write_key(const struct structured *s, struct text *out)
{
    return text_printf(out, "%s %d %d %d", structured_kind_name(s->kind), s->disable_any_whitespace,
                       s->disable_additional_properties, s->thought.is_open) &&
           write_list(s->thought.begins, out) && write_list(s->thought.ends, out) && write_value(s->value, out);
}

static enum status make(const struct structured_cache *c, const struct structured *s, struct constraint **out,
                        struct error *err)
{
    struct grammar *grammar = NULL;
    enum status status = structured_grammar(s, &grammar, err);
    if (status == STATUS_OK) status = constraint_create(grammar, c->vocabulary, out, err);
    grammar_free(grammar);
    return status;
}

/* The entry of the key. *is_new: it was not there, and the caller makes its constraint; else it is there. NULL: memory
 * ran out. The key is taken. */
static struct entry *find_or_add(struct structured_cache *c, struct text *key, bool *is_new)
{
    const uint64_t hash = XXH3_64bits(key->data, key->length);
    struct entry *e;
    *is_new = false;
    while ((e = find(c, key, hash)) && !e->constraint) pthread_cond_wait(&c->made, &c->lock);
    if (e) return e;
    if (!(e = calloc(1, sizeof *e))) return NULL;
    e->key = *key;
    e->hash = hash;
    e->next = c->buckets[hash % NUM_BUCKETS];
    c->buckets[hash % NUM_BUCKETS] = e;
    *key = (struct text){0};
    *is_new = true;
    return e;
}

/* Makes the constraint of a new entry without the lock, so that others can be had meanwhile. */
static enum status fill(struct structured_cache *c, struct entry *e, const struct structured *s, struct error *err)
{
    struct constraint *made = NULL;
    pthread_mutex_unlock(&c->lock);
    const enum status status = make(c, s, &made, err);
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->made);
    e->constraint = made;
    if (status == STATUS_OK) return status;
    take_out(c, e);
    free_entry(e);
    return status;
}

enum status structured_cache_get(struct structured_cache *c, const struct structured *s, struct constraint **out,
                                 struct error *err)
{
    struct text key = {0};
    bool is_new = false;
    enum status status = STATUS_OK;
    *out = NULL;
    if (!write_key(s, &key)) {
        text_free(&key);
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
    }
    pthread_mutex_lock(&c->lock);
    struct entry *e = find_or_add(c, &key, &is_new);
    if (!e) status = error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
    if (is_new) status = fill(c, e, s, err);
    if (status == STATUS_OK) {
        *out = constraint_keep(e->constraint);
        if (!is_new) unlink_entry(c, e);
        link_newest(c, e);
        if (is_new) drop_oldest(c);
    }
    pthread_mutex_unlock(&c->lock);
    text_free(&key);
    return status;
}
