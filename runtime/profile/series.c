#include "runtime/profile/series.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/json_value.h"
#include "base/plural.h"

enum status series_add(struct series *s, const struct scheduler_stats *stats, double seconds, struct error *err)
{
    if (!array_reserve(&s->rows, &s->capacity, s->count + 1, sizeof *s->rows))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the report of %zu step%s", s->count + 1,
                         plural((int64_t)s->count + 1));
    const int64_t preemptions = stats->preemptions_recompute + stats->preemptions_swap;
    s->rows[s->count++] = (struct series_row){
        .step = stats->steps,
        .seconds = seconds,
        .num_running = stats->num_running,
        .num_waiting = stats->num_waiting,
        .num_swapped = stats->num_swapped,
        .blocks_in_use = stats->blocks_in_use,
        .blocks_cached = stats->blocks_cached,
        .blocks_free = stats->blocks_free,
        .slots_in_use = stats->state_slots_in_use,
        .slots_cached = stats->state_slots_cached,
        .num_tokens = stats->tokens - s->tokens,
        .num_preemptions = preemptions - s->preemptions,
        .hit_rate = stats->prefix_queries ? (double)stats->prefix_hits / (double)stats->prefix_queries : 0,
    };
    s->num_blocks = stats->blocks_total;
    s->num_slots = stats->state_slots_total;
    s->tokens = stats->tokens;
    s->preemptions = preemptions;
    return STATUS_OK;
}

void series_free(struct series *s)
{
    free(s->rows);
    *s = (struct series){0};
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static void merge_row(struct series_row *into, const struct series_row *row)
{
    struct series_row out = row->blocks_in_use > into->blocks_in_use ? *row : *into;
    out.num_running = larger(into->num_running, row->num_running);
    out.num_waiting = larger(into->num_waiting, row->num_waiting);
    out.num_swapped = larger(into->num_swapped, row->num_swapped);
    out.num_tokens = into->num_tokens + row->num_tokens;
    out.num_preemptions = into->num_preemptions + row->num_preemptions;
    *into = out;
}

size_t series_thin(const struct series *s, struct series_row *out, size_t most)
{
    const size_t count = s->count < most ? s->count : most;
    for (size_t part = 0; part < count; part++) {
        const size_t begin = part * s->count / count, end = (part + 1) * s->count / count;
        out[part] = s->rows[begin];
        for (size_t i = begin + 1; i < end; i++) merge_row(&out[part], &s->rows[i]);
    }
    return count;
}

void series_print_head(FILE *out)
{
    fprintf(out, "%8s %8s %8s %8s %8s %8s %8s %8s %8s\n", "step", "running", "waiting", "swapped", "tokens", "in use",
            "cached", "free", "hits");
}

void series_print_row(const struct series_row *row, FILE *out)
{
    fprintf(out, "%8lld %8d %8d %8d %8lld %8d %8d %8d %7.1f%%\n", (long long)row->step, row->num_running,
            row->num_waiting, row->num_swapped, (long long)row->num_tokens, row->blocks_in_use, row->blocks_cached,
            row->blocks_free, 100 * row->hit_rate);
}

bool series_write_csv(const struct series *s, FILE *out)
{
    fputs("step,seconds,num_running,num_waiting,num_swapped,num_tokens,blocks_in_use,blocks_cached,blocks_free,"
          "num_preemptions,prefix_cache_hit_rate,state_slots_in_use,state_slots_cached\n",
          out);
    for (size_t i = 0; i < s->count; i++) {
        const struct series_row *row = &s->rows[i];
        fprintf(out, "%lld,%.6f,%d,%d,%d,%lld,%d,%d,%d,%lld,%.6f,%d,%d\n", (long long)row->step, row->seconds,
                row->num_running, row->num_waiting, row->num_swapped, (long long)row->num_tokens, row->blocks_in_use,
                row->blocks_cached, row->blocks_free, (long long)row->num_preemptions, row->hit_rate, row->slots_in_use,
                row->slots_cached);
    }
    return !ferror(out);
}

json_t *series_json(const struct series *s)
{
    json_t *steps = json_array();
    for (size_t i = 0; i < s->count; i++) {
        const struct series_row *row = &s->rows[i];
        json_t *step =
            json_pack("{s:I, s:f, s:i, s:i, s:i, s:I, s:i, s:i, s:i, s:I, s:f}", "step", (json_int_t)row->step,
                      "seconds", row->seconds, "num_running", row->num_running, "num_waiting", row->num_waiting,
                      "num_swapped", row->num_swapped, "num_tokens", (json_int_t)row->num_tokens, "blocks_in_use",
                      row->blocks_in_use, "blocks_cached", row->blocks_cached, "blocks_free", row->blocks_free,
                      "num_preemptions", (json_int_t)row->num_preemptions, "prefix_cache_hit_rate", row->hit_rate);
        if (s->num_slots > 0) {
            json_put_integer(step, "state_slots_in_use", row->slots_in_use);
            json_put_integer(step, "state_slots_cached", row->slots_cached);
        }
        if (json_array_append_new(steps, step) == 0) continue;
        json_decref(steps);
        return NULL;
    }
    return steps;
}
