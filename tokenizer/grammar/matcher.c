#include "tokenizer/grammar/matcher.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/pool.h"
#include "tokenizer/grammar/masks.h"

enum {
    HISTORY = MATCHER_MAX_ROLLBACK + 1,
    FULL_BYTES = 64 << 20 /* of what a constraint has found: with more it begins anew */
};

struct constraint {
    struct grammar *grammar;
    const struct vocabulary *vocabulary;
    pthread_mutex_t lock;
    struct pushdown *pushdown; /* what is used from now on: another one if it is full. With the lock held */
    atomic_int references;
};

struct matcher {
    struct constraint *constraint;
    struct pushdown *pushdown;     /* that its places belong to */
    struct place *places[HISTORY]; /* of the last tokens: places[num_tokens % HISTORY] is where it is */
    int64_t num_tokens;
    bool at_start;
    bool is_ended; /* the last token was a stop token */
    bool failed;
};

/* ---- constraints ---- */

enum status constraint_create(struct grammar *g, const struct vocabulary *v, struct constraint **out, struct error *err)
{
    *out = NULL;
    struct constraint *c = calloc(1, sizeof *c);
    struct pushdown *p = c ? pushdown_create(g, FULL_BYTES) : NULL;
    if (!p) {
        free(c);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the masks of a grammar");
    }
    c->grammar = grammar_keep(g);
    c->vocabulary = v;
    c->pushdown = p;
    pthread_mutex_init(&c->lock, NULL);
    c->references = 1;
    *out = c;
    return STATUS_OK;
}

struct constraint *constraint_keep(struct constraint *c)
{
    atomic_fetch_add(&c->references, 1);
    return c;
}

void constraint_free(struct constraint *c)
{
    if (!c || atomic_fetch_sub(&c->references, 1) > 1) return;
    pushdown_free(c->pushdown);
    pthread_mutex_destroy(&c->lock);
    grammar_free(c->grammar);
    free(c);
}

/* The pushdown to be used from now on, with a reference. If it is full there is another one; if there is no memory for
 * that, it is used on. */
static struct pushdown *take_pushdown(struct constraint *c)
{
    pthread_mutex_lock(&c->lock);
    if (pushdown_is_full(c->pushdown)) {
        struct pushdown *made = pushdown_create(c->grammar, FULL_BYTES);
        if (made) pushdown_free(c->pushdown);
        if (made) c->pushdown = made;
    }
    struct pushdown *taken = pushdown_keep(c->pushdown);
    pthread_mutex_unlock(&c->lock);
    return taken;
}

size_t constraint_bytes(struct constraint *c)
{
    pthread_mutex_lock(&c->lock);
    const size_t bytes = sizeof *c + pushdown_bytes(c->pushdown);
    pthread_mutex_unlock(&c->lock);
    return bytes;
}

/* ---- matchers ---- */

enum status matcher_create(struct constraint *c, bool at_start, struct matcher **out, struct error *err)
{
    struct matcher *m = *out = calloc(1, sizeof *m);
    if (!m) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the state of an answer");
    m->constraint = constraint_keep(c);
    m->pushdown = take_pushdown(c);
    m->places[0] = pushdown_start(m->pushdown);
    m->at_start = at_start;
    return STATUS_OK;
}

void matcher_free(struct matcher *m)
{
    if (!m) return;
    pushdown_free(m->pushdown);
    constraint_free(m->constraint);
    free(m);
}

static struct place *place_of(const struct matcher *m)
{
    return m->places[m->num_tokens % HISTORY];
}

static bool is_first(const struct matcher *m)
{
    return m->at_start && m->num_tokens == 0;
}

static void append(struct matcher *m, struct place *at)
{
    m->num_tokens++;
    m->places[m->num_tokens % HISTORY] = at;
}

/* If its pushdown is full the matcher goes over to another one. */
static void renew(struct matcher *m)
{
    if (m->failed || !pushdown_is_full(m->pushdown)) return;
    struct pushdown *taken = take_pushdown(m->constraint);
    const int64_t first = m->num_tokens < MATCHER_MAX_ROLLBACK ? 0 : m->num_tokens - MATCHER_MAX_ROLLBACK;
    struct place *places[HISTORY];
    const size_t count = (size_t)(m->num_tokens - first + 1);
    for (size_t i = 0; i < count; i++) places[i] = m->places[(first + (int64_t)i) % HISTORY];
    if (taken != m->pushdown && !pushdown_copy(taken, m->pushdown, places, count)) m->failed = true;
    for (size_t i = 0; i < count && !m->failed; i++) m->places[(first + (int64_t)i) % HISTORY] = places[i];
    pushdown_free(m->failed ? taken : m->pushdown);
    if (!m->failed) m->pushdown = taken;
}

bool matcher_accept(struct matcher *m, int32_t token)
{
    const struct vocabulary *v = m->constraint->vocabulary;
    renew(m);
    struct place *at = place_of(m);
    if (m->is_ended || m->failed) return false;
    if (vocabulary_is_stop(v, token)) {
        m->is_ended = at->may_end;
        if (at->may_end) append(m, at);
        return m->is_ended;
    }
    uint32_t length;
    const char *bytes = vocabulary_bytes(v, token, is_first(m), &length);
    if (!bytes || (length == 0 && at->num_configurations == 0)) return false;
    for (uint32_t i = 0; i < length; i++) {
        at = pushdown_step(m->pushdown, at, (uint8_t)bytes[i]);
        if (!at) m->failed = true;
        if (!at || place_is_dead(at)) return false;
    }
    append(m, at);
    return true;
}

void matcher_rollback(struct matcher *m, int32_t count)
{
    if (count > 0) m->is_ended = false;
    m->num_tokens -= count;
}

bool matcher_may_end(const struct matcher *m)
{
    return place_of(m)->may_end;
}

bool matcher_must_end(const struct matcher *m)
{
    return place_of(m)->may_end && place_of(m)->num_configurations == 0;
}

bool matcher_failed(const struct matcher *m)
{
    return m->failed;
}

/* ---- masks ---- */

/* The mask of the next token, if it was found before. */
static struct mask *known_mask(const struct matcher *m)
{
    struct mask *_Atomic *kept = is_first(m) ? pushdown_first_mask(m->pushdown) : &place_of(m)->mask;
    return atomic_load_explicit(kept, memory_order_acquire);
}

static struct mask *find_mask(struct matcher *m)
{
    struct mask *mask = known_mask(m);
    if (mask) return mask;
    renew(m);
    if (m->failed) return NULL;
    return is_first(m) ? masks_find_first(m->pushdown, m->constraint->vocabulary)
                       : masks_find(m->pushdown, m->constraint->vocabulary, place_of(m));
}

void matcher_mask(struct matcher *m, uint32_t *words)
{
    const struct vocabulary *v = m->constraint->vocabulary;
    const struct mask *mask = m->is_ended || m->failed ? NULL : find_mask(m);
    if (!mask) {
        if (!m->is_ended) m->failed = true;
        memset(words, 0, (size_t)v->mask_words * sizeof *words);
        return;
    }
    mask_write(mask, v, words);
    if (!place_of(m)->may_end) return;
    for (int32_t i = 0; i < v->num_stop_ids; i++) mask_set(words, v->stop_ids[i]);
}

struct mask_list {
    struct matcher *const *matchers;
    uint32_t *const *words;
    int32_t *missing; /* indices of masks that were not found before */
};

static void write_missing(void *context, int64_t index, int thread)
{
    const struct mask_list *list = context;
    const int32_t i = list->missing[index];
    (void)thread;
    matcher_mask(list->matchers[i], list->words[i]);
}

void matcher_masks(struct matcher *const *matchers, uint32_t *const *words, int32_t count, struct pool *pool)
{
    struct mask_list list = {matchers, words, malloc(((size_t)count + 1) * sizeof *list.missing)};
    int32_t num_missing = 0;
    for (int32_t i = 0; i < count; i++) {
        if (!list.missing || matchers[i]->is_ended || known_mask(matchers[i]))
            matcher_mask(matchers[i], words[i]);
        else
            list.missing[num_missing++] = i;
    }
    pool_run(pool, pool_threads(pool), num_missing, write_missing, &list);
    free(list.missing);
}

/* ---- forced text ---- */

/* The only byte that leads on; -1: the text may end, or several do. */
static int only_byte(const struct grammar *g, const struct place *at)
{
    const struct automaton *a = &g->automaton;
    int only = -1;
    if (at->may_end) return -1;
    for (int32_t i = 0; i < at->num_configurations; i++) {
        const struct automaton_state *state = &a->states[at->configurations[i].state];
        for (int32_t e = state[0].first_edge; e < state[1].first_edge; e++) {
            if (a->edges[e].first != a->edges[e].last || (only >= 0 && only != a->edges[e].first)) return -1;
            only = a->edges[e].first;
        }
    }
    return only;
}

enum status matcher_forced(struct matcher *m, size_t most, struct text *out, struct error *err)
{
    struct place *at = place_of(m);
    for (size_t i = 0; i < most && at && !m->is_ended && !m->failed; i++) {
        const int byte = only_byte(m->constraint->grammar, at);
        if (byte < 0) return STATUS_OK;
        const char text = (char)byte;
        at = pushdown_step(m->pushdown, at, (uint8_t)byte);
        if (!at || !text_append(out, &text, 1))
            return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the text that a grammar forces");
    }
    return STATUS_OK;
}
