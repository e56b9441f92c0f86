#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/loaded_model_state.h"
#include "runtime/engine/plan.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

bool plan_succeeds(const struct engine_options *o, const struct loaded_model *l)
{
    struct memory_profile profile;
    struct batch_limits limits;
    struct error ignored;
    return plan_again(o, l, l->config.spec.dtype, &profile, &limits, &ignored) == STATUS_OK;
}

/* ---- numbers ---- */

/* A setting that is a number of units of 10^-decimals. */
struct number {
    const char *name;
    size_t offset; /* of the field: an int32_t, or a double if there are decimals */
    int decimals;
    double most;
    bool lower, raise;    /* which may help */
    bool blocks;          /* may decide how many blocks there are (memory_profile_blocks_setting) */
    bool zero_is_a_value; /* and not what stands for a choice of the plan */
};

#define FIELD(name) #name, offsetof(struct engine_options, name)
static const struct number numbers[] = {
    {FIELD(max_model_len), 0, INT32_MAX, true, false},
    {FIELD(max_num_batched_tokens), 0, INT32_MAX, true, true},
    {FIELD(max_num_seqs), 0, INT32_MAX, true, false},
    {FIELD(num_gpu_blocks_override), 0, INT32_MAX - 1, true, true, true},
    {FIELD(kv_cache_space), 3, 1 << 20, true, true, true},
    {FIELD(kv_cache_space), 6, 1, true, false, true}, /* less than a thousandth */
    {FIELD(gpu_memory_utilization), 2, 1, false, true, true},
    {FIELD(swap_space), 3, 1 << 20, false, true, .zero_is_a_value = true},
    {FIELD(cpu_offload_experts), 0, MODEL_MAX_LAYERS, false, true, .zero_is_a_value = true},
};
#undef FIELD
enum { NUM_NUMBERS = sizeof numbers / sizeof *numbers };

static double get(const struct engine_options *o, const struct number *n)
{
    const void *field = (const char *)o + n->offset;
    return n->decimals > 0 ? *(const double *)field : *(const int32_t *)field;
}

static struct engine_options with(const struct engine_options *o, const struct number *n, double value)
{
    struct engine_options changed = *o;
    void *field = (char *)&changed + n->offset;
    if (n->decimals > 0)
        *(double *)field = value;
    else
        *(int32_t *)field = (int32_t)value;
    return changed;
}

struct trial {
    const struct engine_options *o;
    const struct loaded_model *l;
    const struct number *n;
    char value[32]; /* as the advice has it */
};

/* Whether so many units work, which are left in t->value. */
static bool works(struct trial *t, int64_t units)
{
    snprintf(t->value, sizeof t->value, "%.*f", t->n->decimals, (double)units / pow(10, t->n->decimals));
    const struct engine_options changed = with(t->o, t->n, strtod(t->value, NULL));
    return plan_succeeds(&changed, t->l);
}

/* The units nearest to `from` that work; 0: none were found. They lie between the first power of two times `from` that
 * works and the one before it. */
static int64_t nearest(struct trial *t, int64_t from, bool lower)
{
    const int64_t most = (int64_t)(t->n->most * pow(10, t->n->decimals));
    int64_t bad = from, good = from;
    do {
        bad = good;
        good = lower ? good / 2 : good == 0 ? 1 : 2 * good < most ? 2 * good : most;
    } while (good != bad && good > 0 && !works(t, good));
    if (good == bad || good == 0) return 0;
    while (llabs(good - bad) > 1) {
        const int64_t middle = bad + (good - bad) / 2;
        *(works(t, middle) ? &good : &bad) = middle;
    }
    return good;
}

/* Whether the setting decides how many blocks there are. */
static bool decides_blocks(const struct number *n, const struct memory_profile *p)
{
    return n->blocks && strcmp(n->name, memory_profile_blocks_setting(p)) == 0;
}

/* The units that the failed plan had; -1: the setting is of no use here, or the plan chose it and has tried less. */
static int64_t units_now(const struct trial *t, bool lower)
{
    const struct memory_profile *p = &t->l->profile;
    double value = get(t->o, t->n);
    if (t->n->blocks && !decides_blocks(t->n, p)) return -1;
    if (value < 0 || (value == 0 && !t->n->zero_is_a_value)) {
        if (lower || !t->n->blocks) return -1;
        value = (double)memory_profile_cache_budget(p) / GIB;
    }
    return (int64_t)(value * pow(10, t->n->decimals) + 0.5);
}

static bool is_advised(const struct error *err, const char *name)
{
    for (int i = 0; i < err->num_advice; i++)
        if (strcmp(err->advice[i].setting, name) == 0) return true;
    return false;
}

static void advise_number(struct trial *t, bool lower, struct error *err)
{
    const int64_t now = units_now(t, lower);
    if (now < 0 || is_advised(err, t->n->name)) return;
    const int64_t units = nearest(t, now, lower);
    if (units == 0) return;
    works(t, units);
    error_advise(err, lower ? ADVICE_LOWER : ADVICE_RAISE, t->n->name, "%s", t->value);
}

/* ---- words ---- */

/* The first is the one that changes answers least. */
static void advise_cache_dtype(const struct engine_options *o, const struct loaded_model *l, struct error *err)
{
    static const char *const names[] = {"auto", "float32", "float16", "fp8"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !is_advised(err, "kv_cache_dtype"); i++) {
        struct engine_options changed = *o;
        changed.kv_cache_dtype = names[i];
        if (plan_succeeds(&changed, l)) error_advise(err, ADVICE_SET, "kv_cache_dtype", "%s", names[i]);
    }
}

static void advise_recompute(const struct engine_options *o, const struct loaded_model *l, struct error *err)
{
    struct engine_options changed = *o;
    changed.preemption_mode = PREEMPTION_RECOMPUTE;
    if (o->preemption_mode == PREEMPTION_SWAP && plan_succeeds(&changed, l))
        error_advise(err, ADVICE_SET, "preemption_mode", "recompute");
}

void plan_advise(const struct engine_options *o, const struct loaded_model *l, struct error *err)
{
    struct loaded_model with_less = *l; /* borrows what l owns */
    struct memory_profile ranks[COLLECTIVE_MAX_RANKS];
    with_less.profile.available -= l->profile.available / 16;
    if (l->rank_profiles) with_less.rank_profiles = ranks;
    for (int32_t r = 0; l->rank_profiles && r < l->num_ranks; r++) {
        ranks[r] = l->rank_profiles[r];
        ranks[r].available -= ranks[r].available / 16;
    }
    for (int lower = 1; lower >= 0; lower--)
        for (int i = 0; i < NUM_NUMBERS; i++) {
            struct trial t = {.o = o, .l = &with_less, .n = &numbers[i]};
            if (lower ? numbers[i].lower : numbers[i].raise) advise_number(&t, lower, err);
        }
    advise_recompute(o, &with_less, err);
    if (err->num_advice == 0) advise_cache_dtype(o, &with_less, err);
}

/* The value that the plan chose or was asked for, if the setting takes memory; 0: it takes none here. */
static double value_in_force(const struct number *n, const struct loaded_model *l)
{
    const struct memory_profile *p = &l->profile;
    if (strcmp(n->name, "max_model_len") == 0) return l->limits.max_model_len;
    if (strcmp(n->name, "max_num_batched_tokens") == 0) return l->limits.max_num_tokens;
    if (strcmp(n->name, "max_num_seqs") == 0) return l->limits.max_num_seqs;
    if (!decides_blocks(n, p)) return 0;
    return p->num_blocks_override > 0 ? p->num_blocks
           : p->discrete              ? p->utilization
                                      : (double)memory_profile_cache_budget(p) / GIB;
}

void plan_advise_less(const struct engine_options *o, const struct loaded_model *l, struct error *err)
{
    for (int i = 0; i < NUM_NUMBERS; i++) {
        const double now = value_in_force(&numbers[i], l);
        const struct engine_options half = with(o, &numbers[i], now / 2);
        if (get(&half, &numbers[i]) > 0 && !is_advised(err, numbers[i].name) && plan_succeeds(&half, l))
            error_advise(err, ADVICE_LOWER, numbers[i].name, NULL);
    }
}
