#include "tokenizer/grammar/matcher.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/pool.h"
#include "tokenizer/grammar/masks.h"

enum { HISTORY = MATCHER_MAX_ROLLBACK + 1 };

struct constraint {
    struct grammar *grammar;
    const struct vocabulary *vocabulary;
    struct pushdown *pushdown;
    struct mask *_Atomic first; /* masks_find_first; NULL: not sought yet */
    atomic_int references;
};

struct matcher {
    struct constraint *constraint;
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
    struct pushdown *p = c ? pushdown_create(g) : NULL;
    if (!p) {
        free(c);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the masks of a grammar");
    }
    c->grammar = grammar_keep(g);
    c->vocabulary = v;
    c->pushdown = p;
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
    grammar_free(c->grammar);
    free(c);
}

size_t constraint_bytes(struct constraint *c)
{
    return sizeof *c + pushdown_bytes(c->pushdown);
}

/* ---- matchers ---- */

enum status matcher_create(struct constraint *c, bool at_start, struct matcher **out, struct error *err)
{
    struct matcher *m = *out = calloc(1, sizeof *m);
    if (!m) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the state of an answer");
    m->constraint = constraint_keep(c);
    m->places[0] = pushdown_start(c->pushdown);
    m->at_start = at_start;
    return STATUS_OK;
}

void matcher_free(struct matcher *m)
{
    if (!m) return;
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

bool matcher_accept(struct matcher *m, int32_t token)
{
    const struct vocabulary *v = m->constraint->vocabulary;
    struct place *at = place_of(m);
    if (m->is_ended || m->failed) return false;
    if (vocabulary_is_stop(v, token)) {
        m->is_ended = at->may_end;
        if (at->may_end) append(m, at);
        return m->is_ended;
    }
    uint32_t length;
    const char *bytes = vocabulary_bytes(v, token, is_first(m), &length);
    for (uint32_t i = 0; i < length; i++) {
        at = pushdown_step(m->constraint->pushdown, at, (uint8_t)bytes[i]);
        if (!at) m->failed = true;
        if (!at || place_is_dead(at)) return false;
    }
    if (length) append(m, at);
    return length > 0;
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
    struct mask *_Atomic *kept = is_first(m) ? &m->constraint->first : &place_of(m)->mask;
    return atomic_load_explicit(kept, memory_order_acquire);
}

static struct mask *find_mask(struct matcher *m)
{
    struct constraint *c = m->constraint;
    struct mask *mask = known_mask(m);
    if (mask) return mask;
    if (!is_first(m)) return masks_find(c->pushdown, c->vocabulary, place_of(m));
    mask = masks_find_first(c->pushdown, c->vocabulary);
    if (mask) atomic_store_explicit(&c->first, mask, memory_order_release);
    return mask;
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
        at = pushdown_step(m->constraint->pushdown, at, (uint8_t)byte);
        if (!at || !text_append(out, &text, 1))
            return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the text that a grammar forces");
    }
    return STATUS_OK;
}
