#include "tokenizer/grammar/loops.h"

#define IS_KNOWN (UINT64_C(1) << 63) /* beside the classes */

/* Characters of several bytes: which first bytes they have, and which second ones where these are fewer. */
struct lead_range {
    uint8_t first, last, low, high;
    int length;
};
static const struct lead_range leads[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3},
    {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
enum { NUM_LEADS = sizeof leads / sizeof *leads };

/* Whether `left` bytes, the first from low to high and the others any continuation, lead to `next`. */
static bool all_lead(struct pushdown *p, struct place *at, uint8_t low, uint8_t high, int left,
                     const struct place *next)
{
    if (left == 0) return at == next;
    struct place *last = NULL;
    for (int byte = low; byte <= high; byte++) {
        struct place *reached = pushdown_step(p, at, (uint8_t)byte);
        if (!reached || place_is_dead(reached)) return false;
        if (reached != last && !all_lead(p, reached, 0x80, 0xBF, left - 1, next)) return false;
        last = reached;
    }
    return true;
}

static bool lead_leads(struct pushdown *p, struct place *at, const struct lead_range *lead, const struct place *next)
{
    struct place *last = NULL;
    for (int byte = lead->first; byte <= lead->last; byte++) {
        struct place *reached = pushdown_step(p, at, (uint8_t)byte);
        if (!reached || place_is_dead(reached)) return false;
        if (reached != last && !all_lead(p, reached, lead->low, lead->high, lead->length - 1, next)) return false;
        last = reached;
    }
    return true;
}

/* The classes all of whose characters lead from `at` to `next`. */
static uint64_t find_classes(struct pushdown *p, struct place *at, const struct place *next)
{
    static const uint64_t classes_of_length[] = {0, 0, CLASS_TWO_BYTES, CLASS_THREE_BYTES, CLASS_FOUR_BYTES};
    uint64_t some = 0, missing = 0;
    for (int byte = 0; byte < 0x80; byte++) {
        const uint64_t class = vocabulary_class((uint8_t)byte);
        some |= class;
        if (!(missing & class) && pushdown_step(p, at, (uint8_t)byte) != next) missing |= class;
    }
    for (int i = 0; i < NUM_LEADS; i++) {
        const uint64_t class = classes_of_length[leads[i].length];
        some |= class;
        if (!(missing & class) && !lead_leads(p, at, &leads[i], next)) missing |= class;
    }
    return some & ~missing;
}

/* A place where one of the common characters leads; NULL: none does. */
static struct place *likely_next(struct pushdown *p, struct place *at)
{
    static const char common[] = "a0 A";
    for (const char *c = common; *c; c++) {
        struct place *next = pushdown_step(p, at, (uint8_t)*c);
        if (next && !place_is_dead(next)) return next;
    }
    return NULL;
}

/* Where the characters of the classes that are asked for most likely lead; NULL: nowhere. */
static struct place *next_of(struct pushdown *p, struct place *at)
{
    struct place *next = atomic_load_explicit(&at->loop_next, memory_order_acquire);
    if (next) return next;
    next = likely_next(p, at);
    if (next) atomic_store_explicit(&at->loop_next, next, memory_order_release);
    return next;
}

static uint64_t classes_of(struct pushdown *p, struct place *at, const struct place *next)
{
    uint64_t classes = atomic_load_explicit(&at->loop_classes, memory_order_relaxed);
    if (classes) return classes;
    classes = IS_KNOWN | find_classes(p, at, next);
    atomic_store_explicit(&at->loop_classes, classes, memory_order_relaxed);
    return classes;
}

const struct loops no_loops = {{0}};

static struct loops *make_loops(struct pushdown *p, struct place *at)
{
    struct loops *made = pushdown_allocate(p, sizeof *made);
    if (!made) return NULL;
    *made = no_loops;
    uint64_t classes = ~IS_KNOWN;
    struct place *last = at;
    for (int n = 1; n < LOOP_LENGTHS && classes; n++) {
        struct place *next = next_of(p, last);
        classes &= next ? classes_of(p, last, next) : 0;
        made->classes[n] = classes;
        if (n == 1 && next == at) made->classes[LOOP_LENGTHS] = classes;
        if (next) last = next;
    }
    return made;
}

const struct loops *loops_find(struct pushdown *p, struct place *at, bool circles_only)
{
    struct loops *loops = atomic_load_explicit(&at->loops, memory_order_acquire);
    if (loops) return loops;
    struct place *next = next_of(p, at);
    if (!next || (next != at && circles_only)) return &no_loops;
    loops = make_loops(p, at);
    if (!loops) return &no_loops;
    atomic_store_explicit(&at->loops, loops, memory_order_release);
    return loops;
}
