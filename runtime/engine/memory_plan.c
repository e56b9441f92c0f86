#include "runtime/engine/memory_plan.h"

#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "model/kv_cache.h"
#include "model/state_cache.h"
#include "runtime/engine/loaded_draft.h"
#include "runtime/engine/loaded_ranks.h"
#include "scheduler/state_pool.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* The driver allocates memory for captured graphs itself, and how much is known only after they are captured. The plan
 * reserves this estimate, which is generous, so that they fit beside the blocks; the report shows what they took. */
static const int64_t GRAPH_RESERVE = 128 << 20;

/* Tokens of a step where nobody asks for another number; on the CPU fewer, if these take long, but so many that a
 * matmul reads its weights for many tokens. */
enum { STEP_TOKENS = 8192, CPU_STEP_MIN_TOKENS = 128 };
/* Operations a second of one thread in a matmul: what AVX2 does at least; AVX-512 does two to four times as many
 * (kernels/MEASURED.md). */
static const double CPU_THREAD_SPEED = 50e9;

/* ---- the device ---- */

/* What an earlier plan on this device found out about it. */
static void device_as_before(struct memory_profile *p, const struct memory_profile *before)
{
    p->total = before->total;
    p->available = before->available;
    p->others = before->others;
    p->others_unknown = before->others_unknown;
    p->context = before->context;
    memcpy(p->others_names, before->others_names, sizeof p->others_names);
}

/* Weights that are still to be made or packed take their part of what is free, if it is enough for them; those that are
 * there are quire's own. Ranks share what is left. */
static enum status host_facts(struct loaded_model *l, int32_t rank, struct error *err)
{
    struct memory_profile *p = loaded_rank_profile(l, rank);
    int64_t free_bytes, to_come = l->dummy_to_come, own = 0;
    enum status status = loaded_rank_memory(l, rank, &free_bytes, &p->total, err);
    if (status != STATUS_OK) return status;
    for (int32_t r = 0; r < loaded_num_ranks(l); r++) {
        to_come += model_weights_to_pack(loaded_rank_weights(l, r));
        own += loaded_rank_weights(l, r)->memory_bytes;
    }
    p->available = (free_bytes - (to_come <= free_bytes ? to_come : 0)) / loaded_num_ranks(l);
    p->others = p->total - free_bytes - own;
    if (p->others < 0) p->others = 0;
    return STATUS_OK;
}

/* What other processes and quire's CUDA context hold, by the device's own count. If the device cannot tell these two
 * apart, all of it is counted as the context. */
static enum status gpu_facts(struct loaded_model *l, int32_t rank, struct error *err)
{
    struct memory_profile *p = loaded_rank_profile(l, rank);
    const struct backend *b = loaded_rank_backend(l, rank);
    int64_t available;
    enum status status = loaded_rank_memory(l, rank, &available, &p->total, err);
    if (status != STATUS_OK) return status;
    const int64_t held = p->total - available;
    p->others_unknown = b->others_bytes < 0 || b->others_bytes > held;
    p->others = p->others_unknown ? 0 : b->others_bytes;
    p->context = held - p->others;
    snprintf(p->others_names, sizeof p->others_names, "%s", b->others);
    return STATUS_OK;
}

static enum status plan_device(const struct engine_options *o, struct loaded_model *l, int32_t rank, struct error *err)
{
    const struct backend *b = loaded_rank_backend(l, rank);
    struct memory_profile *p = loaded_rank_profile(l, rank);
    p->discrete = b->discrete;
    snprintf(p->device, sizeof p->device, "%s", b->name);
    if (l->before) {
        device_as_before(p, l->before->rank_profiles ? &l->before->rank_profiles[rank] : &l->before->profile);
        return STATUS_OK;
    }
    const enum status status = p->discrete ? gpu_facts(l, rank, err) : host_facts(l, rank, err);
    if (status == STATUS_OK && !p->discrete && o->host_share > 1) p->available /= o->host_share;
    return status;
}

enum status memory_plan_device(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t r = 0; r < loaded_num_ranks(l) && status == STATUS_OK; r++) status = plan_device(o, l, r, err);
    if (l->rank_profiles) l->profile = l->rank_profiles[0];
    return status;
}

/* ---- the terms ---- */

/* A plan in the making. */
struct planner {
    const struct engine_options *asked; /* what is not set there may be chosen */
    struct engine_options now;          /* with a value for everything */
    struct loaded_model *l;
    struct model_options *model_options;
};

/* The lesser of 4 GiB and, on the CPU, a part of what is free. */
static double usual_space(const struct memory_profile *p, int part)
{
    const double share = (double)p->available / part;
    return p->discrete || 4 * GIB < share ? 4 * GIB : share;
}

/* The terms that need no count: types, and what was asked for. */
static void plan_fixed(const struct planner *w, struct memory_profile *p)
{
    const struct engine_options *o = w->asked;
    p->dtype = w->model_options->dtype;
    p->cache_dtype = w->model_options->cache_dtype;
    p->num_blocks_override = o->num_gpu_blocks_override;
    p->graphs = w->l->backend->capture_begin && !o->enforce_eager ? GRAPH_RESERVE : 0;
    p->swap_space = (int64_t)(o->swap_space >= 0 ? o->swap_space * GIB : usual_space(p, 8));
    p->utilization = p->discrete ? o->gpu_memory_utilization : 0;
    p->budget = (int64_t)((double)p->total * p->utilization);
}

/* Without chunked prefill, a step whose tokens nobody limited has room for the longest prompt. */
static int32_t step_tokens(const struct planner *w)
{
    const int32_t max_model_len = w->l->limits.max_model_len, tokens = w->now.max_num_batched_tokens;
    const bool whole = !w->asked->enable_chunked_prefill && w->asked->max_num_batched_tokens == 0;
    return whole && tokens < max_model_len ? max_model_len : tokens;
}

static enum status check_step(const struct planner *w, struct error *err)
{
    const int32_t tokens = step_tokens(w), max_model_len = w->l->limits.max_model_len;
    if (tokens < w->now.max_num_seqs)
        return error_set(err, STATUS_INVALID,
                         "a step of at most %d token%s has no room for %d sequences, each of which takes at least one",
                         tokens, plural(tokens), w->now.max_num_seqs);
    if (w->now.enable_chunked_prefill || tokens >= max_model_len) return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "without chunked prefill a prompt is computed in one step, but a step has at most %d token%s and "
                     "a prompt up to %d",
                     tokens, plural(tokens), max_model_len);
}

struct speculation_limits memory_plan_speculation(const struct engine_options *o, const struct loaded_model *l)
{
    struct speculation_limits s = {.max_num_tokens = l->limits.max_num_tokens,
                                   .max_num_seqs = l->limits.max_num_seqs,
                                   .free_entries = speculation_free_entries(l->backend->discrete),
                                   .num_speculative_tokens = engine_options_num_drafts(o),
                                   .fixed = o->fixed_drafts};
    s.max_num_drafts = speculation_most_drafts(&s);
    return s;
}

static enum status choose_limits(const struct planner *w, int32_t num_snapshots, struct error *err)
{
    struct batch_limits *limits = &w->l->limits;
    const enum status status = check_step(w, err);
    if (status != STATUS_OK) return status;
    /* No step can have more tokens than all sequences have together. */
    const int64_t tokens = step_tokens(w), all = (int64_t)w->now.max_num_seqs * limits->max_model_len;
    *limits = (struct batch_limits){
        .max_num_tokens = (int32_t)(tokens < all ? tokens : all),
        .max_num_seqs = w->now.max_num_seqs,
        .max_model_len = limits->max_model_len,
        .block_size = w->now.block_size,
    };
    limits->max_num_drafts = memory_plan_speculation(w->asked, w->l).max_num_drafts;
    if (state_cache_slot_bytes(&w->l->config.spec) > 0)
        limits->num_state_slots = state_pool_min_slots(limits) + num_snapshots;
    kv_groups_choose(loaded_spec(w->l), limits);
    return STATUS_OK;
}

/* A stage may have no layer that caches K and V, or none that has a state. A byte stands for them, so that counts
 * follow from it as from others. */
static int64_t at_least_one(int64_t bytes, bool is_counted)
{
    return bytes == 0 && is_counted ? 1 : bytes;
}

/* The bytes of a block follow from the layers of the groups, and which groups there are from max_model_len. */
static enum status plan_groups(struct loaded_model *l, int32_t rank, enum dtype cache_dtype, struct error *err)
{
    struct memory_profile *p = loaded_rank_profile(l, rank);
    const struct model_spec *spec = loaded_rank_spec(l, rank);
    struct kv_groups groups;
    enum status status = kv_groups_assign(spec, &l->limits, &groups, err);
    if (status != STATUS_OK) return status;
    memcpy(p->group_layers, groups.num_layers, sizeof p->group_layers);
    p->block_bytes = at_least_one(kv_cache_block_bytes(spec, &groups, &l->limits, cache_dtype), l->num_stages > 1);
    for (int32_t g = 0; g < groups.count; g++)
        p->group_unused[g] = kv_cache_unused_bytes(spec, &groups, &l->limits, g, cache_dtype);
    return STATUS_OK;
}

/* What blocks and snapshots may take on the CPU, if the other terms leave it. */
static int64_t cpu_budget(const struct engine_options *o, const struct memory_profile *p)
{
    return (int64_t)(o->kv_cache_space > 0 ? o->kv_cache_space * GIB : usual_space(p, 4));
}

static void count_blocks(const struct engine_options *o, struct memory_profile *p)
{
    const int64_t left = memory_profile_left(p), cpu_blocks = cpu_budget(o, p) - memory_profile_snapshots(p);
    const int64_t most = p->discrete ? INT64_MAX : cpu_blocks > 0 ? cpu_blocks : 0;
    p->kv_budget = left > 0 ? left : 0;
    if (most < p->kv_budget || (!p->discrete && o->kv_cache_space > 0)) p->kv_budget = most;
    memory_profile_count_blocks(p);
}

void memory_plan_count_blocks(const struct engine_options *o, struct loaded_model *l)
{
    const int32_t num_ranks = loaded_num_ranks(l);
    for (int32_t r = 0; r < num_ranks; r++) count_blocks(o, loaded_rank_profile(l, r));
    l->shortest_rank = memory_profile_agree(loaded_rank_profile(l, 0), num_ranks);
    for (int32_t r = 0; r < num_ranks; r++) {
        struct memory_profile *p = loaded_rank_profile(l, r);
        if (!p->discrete) p->budget = memory_profile_fixed(p) - p->others + p->kv_cache;
    }
    if (l->rank_profiles) l->profile = l->rank_profiles[l->shortest_rank];
}

/* The terms of a rank. */
static enum status plan_rank(const struct planner *w, int32_t rank, int32_t num_snapshots, struct error *err)
{
    struct loaded_model *l = w->l;
    struct memory_profile *p = loaded_rank_profile(l, rank);
    const struct model_spec *spec = loaded_rank_spec(l, rank);
    const struct model_weights *weights = loaded_rank_weights(l, rank);
    int64_t bytes[NUM_PURPOSES];
    enum status status = plan_groups(l, rank, w->model_options->cache_dtype, err);
    if (status != STATUS_OK) return status;
    w->model_options->drafter_spec = l->draft.is_open ? loaded_draft_spec(l, rank) : NULL;
    w->model_options->drafter_weights = l->draft.is_open ? loaded_draft_weights(l, rank) : NULL;
    status = model_plan(loaded_rank_backend(l, rank), spec, weights, w->model_options, bytes, err);
    if (status != STATUS_OK) return status;
    p->weights = bytes[PURPOSE_WEIGHTS];
    const struct model_expert_bytes experts = model_expert_bytes(spec, weights, w->model_options);
    p->experts = experts.counted;
    p->host_expert_layers = weights->host_expert_layers;
    p->host_experts = experts.on_host;
    p->host_token_bytes = experts.token_on_host;
    p->host_embeddings = bytes[PURPOSE_HOST_WEIGHTS];
    p->num_state_slots = l->limits.num_state_slots;
    p->num_snapshot_slots = num_snapshots;
    p->slot_bytes = at_least_one(state_cache_slot_bytes(spec), p->num_state_slots > 0);
    p->state_slots = bytes[PURPOSE_STATE_SLOTS];
    p->activations = bytes[PURPOSE_ACTIVATIONS];
    p->workspace = bytes[PURPOSE_WORKSPACE];
    p->host = bytes[PURPOSE_HOST_STAGING];
    status = loaded_draft_plan(w->asked, l, rank, w->model_options, err);
    if (status != STATUS_OK) return status;
    p->state = bytes[PURPOSE_STATE] + p->block_bytes + (p->discrete ? 0 : p->host + batch_bytes(&l->limits));
    return STATUS_OK;
}

/* The terms that follow from the values of w->now and from l->limits.max_model_len, with so many slots for snapshots.
 */
static enum status plan_with_snapshots(const struct planner *w, int32_t num_snapshots, struct error *err)
{
    struct loaded_model *l = w->l;
    enum status status = choose_limits(w, num_snapshots, err);
    if (status != STATUS_OK) return status;
    w->model_options->limits = l->limits;
    w->model_options->num_passes = l->draft.is_open ? w->asked->speculative.num_speculative_tokens : 0;
    for (int32_t r = 0; r < loaded_num_ranks(l) && status == STATUS_OK; r++)
        status = plan_rank(w, r, num_snapshots, err);
    if (status == STATUS_OK) memory_plan_count_blocks(w->asked, l);
    return status;
}

/* Snapshots and blocks are evicted alike if a slot is there for each snapshot of what the blocks hold. A cached prompt
 * has one every state_interval tokens and one at its end: of many of all lengths, one for half as many tokens. */
static int32_t snapshots_of_rank(const struct planner *w, const struct memory_profile *p)
{
    const struct batch_limits *limits = &w->l->limits;
    if (p->num_state_slots == 0 || !w->asked->enable_prefix_caching) return 0;
    const int32_t interval = w->asked->state_interval > 0 ? w->asked->state_interval : ENGINE_STATE_INTERVAL;
    const int32_t wanted = memory_choose_snapshots(p, limits, interval / 2 > 0 ? interval / 2 : 1);
    if (w->asked->max_model_len == 0 || p->num_blocks_override > 0) return wanted;
    /* A request of the length that was asked for comes first. */
    const int64_t needed = memory_blocks_needed(limits, limits->max_model_len) * p->block_bytes;
    const int64_t room = p->kv_budget > needed ? (p->kv_budget - needed) / p->slot_bytes : 0;
    return wanted < room ? wanted : (int32_t)room;
}

/* All stages have as many: what the states of one leave room for. */
static int32_t choose_snapshots(const struct planner *w)
{
    int32_t least = INT32_MAX;
    if (!w->l->stages) return snapshots_of_rank(w, &w->l->profile);
    for (int32_t r = 0; r < w->l->num_ranks; r++) {
        const int32_t wanted = snapshots_of_rank(w, &w->l->rank_profiles[r]);
        if (wanted < least) least = wanted;
    }
    return least;
}

/* The terms that follow from the values of w->now and from l->limits.max_model_len. */
static enum status plan_terms(const struct planner *w, struct error *err)
{
    const enum status status = plan_with_snapshots(w, 0, err);
    const int32_t snapshots = status == STATUS_OK ? choose_snapshots(w) : 0;
    return snapshots > 0 ? plan_with_snapshots(w, snapshots, err) : status;
}

/* ---- values that nobody set ---- */

static bool fits(const struct planner *w)
{
    return memory_profile_fits(&w->l->profile, &w->l->limits);
}

/* Lowers max_model_len to the longest that fits, in whole blocks, or leaves it where none does. A longer one needs more
 * memory for blocks and leaves less for them (its block tables are larger), so a binary search finds it. */
static enum status plan_shorter(const struct planner *w, struct error *err)
{
    struct batch_limits *limits = &w->l->limits;
    const int32_t longest = limits->max_model_len, block_size = limits->block_size;
    int32_t good = 0, bad = batch_max_blocks(limits);
    while (bad - good > 1) {
        const int32_t middle = good + (bad - good) / 2;
        limits->max_model_len = middle * block_size;
        enum status status = plan_terms(w, err);
        if (status != STATUS_OK) return status;
        *(fits(w) ? &good : &bad) = middle;
    }
    limits->max_model_len = good > 0 ? good * block_size : longest;
    return plan_terms(w, err);
}

/* The terms, with the longest max_model_len that fits if nobody set one. */
static enum status plan_longest(const struct planner *w, struct error *err)
{
    w->l->limits.max_model_len = w->now.max_model_len;
    const enum status status = plan_terms(w, err);
    return status != STATUS_OK || w->asked->max_model_len > 0 || fits(w) ? status : plan_shorter(w, err);
}

/* The terms on the CPU, with a max_model_len that nobody set no longer than the blocks hold where the other terms are
 * no matter. */
static enum status plan_for_blocks(const struct planner *w, struct error *err)
{
    const struct memory_profile *p = &w->l->profile;
    struct batch_limits *limits = &w->l->limits;
    limits->max_model_len = w->now.max_model_len;
    const enum status status = plan_terms(w, err);
    if (status != STATUS_OK || w->asked->max_model_len > 0) return status;
    const int64_t blocks = p->num_blocks_override > 0
                               ? p->num_blocks_override
                               : (cpu_budget(w->asked, p) - memory_profile_snapshots(p)) / p->block_bytes;
    const int32_t longest = memory_longest_request(limits, blocks < INT32_MAX ? (int32_t)blocks : INT32_MAX);
    if (longest == 0 || longest >= limits->max_model_len) return STATUS_OK;
    limits->max_model_len = longest;
    return plan_terms(w, err);
}

/* Whether less than the usual step is called for: on the CPU where it takes more than half of what is free, or what
 * was asked for the blocks does not fit beside it; on a GPU where no room for a request is left. */
static bool is_tight(const struct planner *w)
{
    const struct memory_profile *p = &w->l->profile;
    if (p->discrete) return !fits(w);
    const bool asked = w->asked->kv_cache_space > 0 || w->asked->num_gpu_blocks_override > 0;
    const int64_t step = memory_profile_step_memory(p);
    return step > p->available / 2 || (asked && step > p->available - p->kv_cache);
}

/* Halves the tokens or the sequences of a step, whichever saves more and nobody set. False: neither saves anything. */
static bool halve_step(struct planner *w)
{
    const struct engine_options before = w->now;
    struct engine_options best = before;
    int64_t least = memory_profile_step_memory(&w->l->profile);
    struct error ignored;
    for (int i = 0; i < 2; i++) {
        w->now = before;
        int32_t *value = i == 0 ? &w->now.max_num_batched_tokens : &w->now.max_num_seqs;
        const int32_t asked = i == 0 ? w->asked->max_num_batched_tokens : w->asked->max_num_seqs;
        *value /= 2;
        if (asked > 0 || w->now.max_num_seqs < 1 || w->now.max_num_batched_tokens < w->now.max_num_seqs) continue;
        if (plan_terms(w, &ignored) != STATUS_OK) continue;
        const int64_t bytes = memory_profile_step_memory(&w->l->profile);
        if (bytes >= least) continue;
        least = bytes;
        best = w->now;
    }
    w->now = best;
    return best.max_num_batched_tokens != before.max_num_batched_tokens || best.max_num_seqs != before.max_num_seqs;
}

/* Whether the slots of sequences take more than blocks and snapshots may. */
static bool slots_outweigh(const struct planner *w)
{
    const struct memory_profile *p = &w->l->profile;
    const int64_t cache = p->discrete ? memory_profile_cache_budget(p) : cpu_budget(w->asked, p);
    return memory_profile_sequence_slots(p) > cache;
}

/* Where states are large, lowers max_num_seqs, if nobody set it, to the most sequences whose slots leave half of the
 * memory to the cache. */
static enum status lower_seqs_for_states(struct planner *w, struct error *err)
{
    w->l->limits.max_model_len = w->now.max_model_len;
    w->l->lowered_for_states = false;
    enum status status = plan_terms(w, err);
    if (status != STATUS_OK || w->asked->max_num_seqs > 0 || !slots_outweigh(w)) return status;
    int32_t good = 1, bad = w->now.max_num_seqs;
    while (bad - good > 1 && status == STATUS_OK) {
        const int32_t middle = good + (bad - good) / 2;
        w->now.max_num_seqs = middle;
        status = plan_terms(w, err);
        *(slots_outweigh(w) ? &bad : &good) = middle;
    }
    w->now.max_num_seqs = good > 8 ? good / 8 * 8 : good;
    w->l->lowered_for_states = true;
    return status;
}

int32_t memory_plan_usual_seqs(const struct engine_options *o)
{
    const int32_t tokens = o->max_num_batched_tokens;
    return o->max_num_seqs > 0 ? o->max_num_seqs : tokens > 0 && tokens < 256 ? tokens : 256;
}

/* Multiplications and additions of a token in the layers' matrices, as far as the CPU does them. */
static double token_operations(const struct loaded_model *l)
{
    const struct tensor_table *table = &l->weights.table;
    double elements = 0;
    for (int32_t i = 0; i < table->count; i++) {
        const struct tensor *t = &table->tensors[i];
        if (t->kind != TENSOR_MATRIX || t->layer < 0) continue;
        if (l->backend->discrete && !model_weights_stays_on_host(&l->weights, t)) continue;
        if (t->expert < l->config.spec.layers[t->layer].experts.router.top_k || t->num_experts == 0)
            elements += (double)tensor_elements(t);
    }
    return 2 * elements;
}

/* Chooses as many tokens as the CPU computes in about a second, by an estimate that is the same in every run. */
static int32_t cpu_step_tokens(const struct planner *w)
{
    const double most = engine_options_threads(w->asked) * CPU_THREAD_SPEED / token_operations(w->l);
    int32_t tokens = CPU_STEP_MIN_TOKENS;
    while (tokens < STEP_TOKENS && 2 * tokens <= most) tokens *= 2;
    return tokens;
}

/* The values where memory is no matter. */
static void choose_usual(struct planner *w)
{
    struct engine_options *o = &w->now;
    const bool gpu = w->l->backend->discrete && w->l->weights.host_expert_layers == 0;
    const bool usual = gpu || !o->enable_chunked_prefill;
    const int32_t tokens = usual ? STEP_TOKENS : cpu_step_tokens(w);
    if (o->max_model_len == 0) o->max_model_len = w->l->profile.model_max_len;
    o->max_num_seqs = memory_plan_usual_seqs(o);
    if (o->max_num_batched_tokens == 0) o->max_num_batched_tokens = tokens > o->max_num_seqs ? tokens : o->max_num_seqs;
}

/* The last resort: the least step. If that does not fit either, the plan stays as it was. */
static enum status try_least(struct planner *w, struct error *err)
{
    const struct engine_options before = w->now;
    if (w->asked->max_num_seqs == 0) w->now.max_num_seqs = 1;
    if (w->asked->max_num_batched_tokens == 0) w->now.max_num_batched_tokens = w->now.max_num_seqs;
    const enum status status = plan_longest(w, err);
    if (status != STATUS_OK || fits(w)) return status;
    w->now = before;
    return plan_longest(w, err);
}

/* Which values memory made smaller than usual. */
static void note_lowered(struct loaded_model *l, const struct engine_options *usual, const struct engine_options *now)
{
    l->lowered_tokens = now->max_num_batched_tokens < usual->max_num_batched_tokens;
    l->lowered_seqs = now->max_num_seqs < usual->max_num_seqs;
}

static enum status plan_values(struct planner *w, struct error *err)
{
    choose_usual(w);
    const struct engine_options usual = w->now;
    const bool discrete = w->l->profile.discrete;
    enum status status = lower_seqs_for_states(w, err);
    if (status != STATUS_OK) return status;
    do {
        status = discrete ? plan_longest(w, err) : plan_for_blocks(w, err);
    } while (status == STATUS_OK && is_tight(w) && halve_step(w));
    if (status == STATUS_OK) status = plan_longest(w, err);
    if (status == STATUS_OK && !fits(w)) status = try_least(w, err);
    note_lowered(w->l, &usual, &w->now);
    return status;
}

/* ---- the whole plan ---- */

static enum status check_swap_space(const struct engine_options *o, const struct memory_profile *p, struct error *err)
{
    if (o->preemption_mode != PREEMPTION_SWAP) return STATUS_OK;
    if (p->num_host_slots == 0 && p->num_state_slots > 0)
        return error_set(err, STATUS_INVALID,
                         "preempted requests are to be swapped to host memory, but half of the swap space of %g GiB, "
                         "which is for states of recurrent layers, does not hold one of %.3f MiB",
                         (double)p->swap_space / GIB, (double)p->slot_bytes / (1 << 20));
    if (p->swap_space >= p->block_bytes) return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "preempted requests are to be swapped to host memory, but the swap space of %g GiB does not hold "
                     "one block of %.3f MiB",
                     (double)p->swap_space / GIB, (double)p->block_bytes / (1 << 20));
}

static enum status check_length(const struct engine_options *o, struct memory_profile *p, struct error *err)
{
    if (o->max_model_len <= p->model_max_len) return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "max_model_len is %d, but the model was made for %d tokens at most (see %s/config.json)",
                     o->max_model_len, p->model_max_len, o->model);
}

enum status memory_plan(const struct engine_options *o, struct loaded_model *l, struct model_options *model_options,
                        struct error *err)
{
    struct planner w = {.asked = o, .now = *o, .l = l, .model_options = model_options};
    for (int32_t r = 0; r < loaded_num_ranks(l); r++) {
        loaded_rank_profile(l, r)->model_max_len = model_spec_max_length(&l->config.spec);
        plan_fixed(&w, loaded_rank_profile(l, r));
    }
    if (l->rank_profiles) l->profile = l->rank_profiles[0];
    enum status status = check_length(o, &l->profile, err);
    if (status == STATUS_OK) status = plan_values(&w, err);
    if (status == STATUS_OK) status = check_swap_space(o, &l->profile, err);
    return status == STATUS_OK ? memory_profile_check(&l->profile, &l->limits, err) : status;
}
