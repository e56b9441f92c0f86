/* What happened in a run, in numbers: the summary, and what contiguous caches would have reserved. */
#include <stdio.h>

#include "base/json.h"
#include "model/kv_cache.h"
#include "runtime/drafts_report.h"
#include "runtime/options/command.h"
#include "runtime/profile/profile.h"
#include "runtime/profile/reservation.h"

static void report_swapped(struct report *r, const char *way, const char *label, const char *where, int64_t blocks,
                           int64_t states, const struct memory_profile *p)
{
    char key[48], note[96], with[32] = "";
    const int64_t bytes = blocks * p->block_bytes + states * p->slot_bytes;
    if (p->num_state_slots > 0) {
        snprintf(with, sizeof with, " and %lld states", (long long)states);
        snprintf(key, sizeof key, "num_swapped_%s_states", way);
        json_put_integer(r->json, key, states);
    }
    snprintf(note, sizeof note, "blocks%s %s, %.2f MiB", with, where, (double)bytes / (1024.0 * 1024.0));
    snprintf(key, sizeof key, "num_swapped_%s_blocks", way);
    report_amount(r, key, label, blocks, note);
    snprintf(key, sizeof key, "swapped_%s_bytes", way);
    json_put_integer(r->json, key, bytes);
}

static void report_step_tokens(struct report *r, int64_t most, const struct scheduler_stats *s)
{
    char note[64];
    snprintf(note, sizeof note, "at most %lld", (long long)most);
    report_number(r, "mean_tokens_per_step", "tokens a step", s->steps ? (double)s->tokens / (double)s->steps : 0,
                  note);
    report_integer(r, "max_tokens_per_step", NULL, most);
}

static void report_queues(struct report *r, const struct profile_run *run, const struct scheduler_stats *s)
{
    report_amount(r, "max_num_running", "most running", run->most_running, "requests after a step");
    report_integer(r, "max_num_waiting", "most waiting", run->most_waiting);
    report_integer(r, "max_num_swapped", "most swapped", run->most_swapped);
    report_integer(r, "num_preemptions", NULL, s->preemptions_recompute + s->preemptions_swap);
    report_amount(r, "num_preemptions_recompute", "preempted, recomputed", s->preemptions_recompute, "requests");
    report_amount(r, "num_preemptions_swap", "preempted, swapped", s->preemptions_swap, "");
}

static double hit_rate(const struct scheduler_stats *s)
{
    return s->prefix_queries ? (double)s->prefix_hits / (double)s->prefix_queries : 0;
}

static void report_cache(struct report *r, const struct profile_run *run, const struct scheduler_stats *s)
{
    const double used = run->peak_blocks ? run->peak_blocks_filled / run->peak_blocks : 0;
    report_integer(r, "peak_blocks", "most blocks in use", run->peak_blocks);
    json_put_real(r->json, "peak_blocks_filled", used);
    report_number(r, NULL, "filled", 100 * used, "% of their slots");
    report_amount(r, "peak_blocks_unshared", "unshared", run->peak_unshared,
                  "the same sequences, each with blocks of its own");
    report_integer(r, "prefix_cache_queries", NULL, s->prefix_queries);
    report_integer(r, "prefix_cache_hits", "tokens found in cache", s->prefix_hits);
    json_put_real(r->json, "prefix_cache_hit_rate", hit_rate(s));
    report_number(r, NULL, "hit rate", 100 * hit_rate(s), "% of the prompts' tokens");
    report_amount(r, "num_evictions", "evictions", s->evictions, "cached blocks taken for something else");
}

static void report_slots(struct report *r, const struct profile_run *run, const struct scheduler_stats *s)
{
    report_amount(r, "peak_state_slots", "most state slots in use", run->peak_slots, "held by sequences");
    report_amount(r, "snapshots_made", "snapshots", s->snapshots_made, "of states, left for later prompts");
    report_integer(r, "snapshot_hits", "prompts that went on from one", s->snapshot_hits);
    report_amount(r, "snapshots_evicted", "dropped", s->snapshots_evicted, "for want of a slot, or with a block");
}

void profile_summary(struct report *r, const struct profile_run *run, const struct engine_info *info)
{
    const struct scheduler_stats *s = &run->stats;
    report_integer(r, "num_prompts", "prompts", (int64_t)run->count);
    report_integer(r, "num_failed", NULL, run->num_errors);
    report_integer(r, "num_bad_lines", run->num_bad_lines ? "lines that are no prompt" : NULL, run->num_bad_lines);
    report_integer(r, "num_steps", "steps", s->steps);
    report_integer(r, "num_tokens", "tokens computed", s->tokens);
    report_step_tokens(r, run->most_step_tokens, s);
    report_integer(r, "num_output_tokens", "tokens of answers", run->output_tokens);
    report_queues(r, run, s);
    report_swapped(r, "out", "swapped out", "to the host", s->blocks_swapped_out, s->states_swapped_out, info->memory);
    report_swapped(r, "in", "swapped in", "and back", s->blocks_swapped_in, s->states_swapped_in, info->memory);
    report_cache(r, run, s);
    if (s->state_slots_total > 0) report_slots(r, run, s);
    if (info->drafter) drafts_report(r, s);
    report_number(r, "max_itl_ms", "longest time between tokens", 1e3 * samples_percentile(&run->gaps, 100), "ms");
    report_milliseconds(r, "itl", "time between tokens", &run->gaps);
}

/* ---- contiguous caches ---- */

enum { NUM_LAYOUTS = 3 };

struct layouts {
    struct reservation r[NUM_LAYOUTS];
    char names[NUM_LAYOUTS][48];
    int64_t pool_bytes;
};

static struct layouts lay_out(const struct profile_run *run, const struct engine *e)
{
    const struct memory_profile *p = engine_info(e)->memory;
    const struct batch_limits *limits = engine_info(e)->limits;
    const int64_t token_bytes = kv_cache_token_bytes(&engine_info(e)->config->spec, p->cache_dtype);
    struct layouts out = {.pool_bytes = p->kv_cache};
    out.r[0] = reserve_maximum(run->lengths, run->num_lengths, limits->max_model_len, token_bytes, p->kv_cache);
    out.r[1] = reserve_powers(run->lengths, run->num_lengths, token_bytes, p->kv_cache);
    out.r[2] = reserve_blocks(run->lengths, run->num_lengths, limits, p->block_bytes, p->num_blocks);
    snprintf(out.names[0], sizeof out.names[0], "pieces of %d tokens", limits->max_model_len);
    snprintf(out.names[1], sizeof out.names[1], "powers of two");
    snprintf(out.names[2], sizeof out.names[2], "blocks of %d tokens", limits->block_size);
    return out;
}

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

bool reservations_print(const struct profile_run *run, const struct engine *e)
{
    const double mib = 1024.0 * 1024.0;
    const struct layouts layouts = lay_out(run, e);
    struct table t = {.columns = "lrrrrr"};
    table_row(&t, "the same sequences in", "MiB reserved", "filled", "internal waste", "external waste", "at once");
    for (int i = 0; i < NUM_LAYOUTS; i++) {
        const struct reservation *r = &layouts.r[i];
        table_cell(&t, "%s", layouts.names[i]);
        table_cell(&t, "%.2f", (double)r->reserved / mib);
        table_cell(&t, "%.1f %%", percent(r->used, r->reserved));
        table_cell(&t, "%.2f MiB", (double)(r->reserved - r->used) / mib);
        table_cell(&t, "%.2f MiB", (double)r->external_waste / mib);
        table_cell(&t, "%lld", (long long)r->at_once);
    }
    const bool ok = table_print(&t, stdout);
    table_free(&t);
    return ok;
}

json_t *reservations_json(const struct profile_run *run, const struct engine *e)
{
    static const char *const keys[] = {"max_model_len", "power_of_two", "blocks"};
    const struct layouts layouts = lay_out(run, e);
    json_t *array = json_array();
    for (int i = 0; i < NUM_LAYOUTS; i++) {
        const struct reservation *r = &layouts.r[i];
        json_t *json = json_object();
        json_put_string(json, "layout", keys[i]);
        json_put_integer(json, "reserved_bytes", r->reserved);
        json_put_integer(json, "used_bytes", r->used);
        json_put_integer(json, "internal_waste_bytes", r->reserved - r->used);
        json_put_integer(json, "external_waste_bytes", r->external_waste);
        json_put_integer(json, "max_sequences", r->at_once);
        json_array_append_new(array, json);
    }
    return array;
}
