#include "runtime/profile/memory_report.h"

#include <string.h>

#include "base/json.h"
#include "model/model.h"
#include "runtime/options/command.h"
#include "runtime/profile/bar.h"
#include "runtime/table.h"

static const double KIB = 1024.0, MIB = 1024.0 * 1024.0, GIB = 1024.0 * 1024.0 * 1024.0;

enum { BAR_WIDTH = 20 };

/* Rows of sizes. Of one rank they have a bar, as long as their part of its device's memory; else a column each. */
struct memory_table {
    struct table table;
    const struct memory_profile *ranks; /* [num_ranks] */
    int32_t num_ranks;
    bool utf8;
};

static void size_cells(struct memory_table *t, int64_t bytes)
{
    char bar[BAR_TEXT_SIZE];
    const int64_t whole = t->ranks[0].total;
    table_cell(&t->table, "%.4f", (double)bytes / GIB);
    if (t->num_ranks > 1) return;
    bar_text(bar, whole > 0 ? (double)bytes / (double)whole : 0, BAR_WIDTH, t->utf8);
    table_cell(&t->table, "%.2f", (double)bytes / MIB);
    table_cell(&t->table, "%s", bar);
}

/* `offset` is that of a term in struct memory_profile. */
static void memory_row(struct memory_table *t, const char *label, size_t offset, const char *note)
{
    table_cell(&t->table, "%s", label);
    for (int32_t r = 0; r < t->num_ranks; r++) size_cells(t, *(const int64_t *)((const char *)&t->ranks[r] + offset));
    table_cell(&t->table, "%s", note);
}

static void sum_row(struct memory_table *t, const char *label, int64_t (*sum)(const struct memory_profile *p),
                    const char *note)
{
    table_cell(&t->table, "%s", label);
    for (int32_t r = 0; r < t->num_ranks; r++) size_cells(t, sum(&t->ranks[r]));
    table_cell(&t->table, "%s", note);
}

int32_t memory_report_unwindowed_blocks(const struct batch_limits *limits)
{
    int32_t blocks = 0;
    for (int32_t g = 0; g < limits->num_groups; g++) blocks += batch_num_blocks(limits, g, limits->max_model_len);
    return blocks;
}

static int64_t report_sum(const struct memory_profile *p)
{
    return memory_profile_fixed(p) + p->kv_cache;
}

/* Which processes the others are; with several ranks, where. */
static void others_names(const struct memory_table *t, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (int32_t r = 0; r < t->num_ranks && length < size; r++) {
        const struct memory_profile *p = &t->ranks[r];
        if (p->others == 0 || !p->others_names[0]) continue;
        if (t->num_ranks > 1)
            length += (size_t)snprintf(text + length, size - length, "%s%s: ", length ? "; " : "", p->device);
        if (length < size) length += (size_t)snprintf(text + length, size - length, "%s", p->others_names);
    }
}

/* What a GPU holds beside what quire allocates. */
static void context_rows(struct memory_table *t)
{
    char names[512];
    bool unknown = false;
    for (int32_t r = 0; r < t->num_ranks; r++) unknown |= t->ranks[r].others_unknown;
    others_names(t, names, sizeof names);
    if (!unknown || t->num_ranks > 1) memory_row(t, "  held by others", offsetof(struct memory_profile, others), names);
    memory_row(t, unknown ? "  context, others" : "  CUDA context", offsetof(struct memory_profile, context),
               unknown ? "the CUDA context and other processes: not told apart here"
                       : "with the kernels loaded into it");
}

/* The memory in use by the device's own count, and by how much the report differs from it. */
static void device_row(struct memory_table *t)
{
    char note[256];
    size_t length = (size_t)snprintf(note, sizeof note, "in use; the sum of the above is ");
    for (int32_t r = 0; r < t->num_ranks && length < sizeof note; r++) {
        const struct memory_profile *p = &t->ranks[r];
        const double percent = 100 * ((double)report_sum(p) / (double)p->in_use - 1);
        length += (size_t)snprintf(note + length, sizeof note - length, "%s%.2f %% %s", r ? ", " : "",
                                   percent < 0 ? -percent : percent, percent < 0 ? "less" : "more");
    }
    memory_row(t, "device says", offsetof(struct memory_profile, in_use), note);
}

/* What lies in host memory for a GPU. */
static void host_rows(struct memory_table *t)
{
    const struct memory_profile *p = &t->ranks[0];
    char note[96];
    if (p->host)
        memory_row(t, "pinned on the host", offsetof(struct memory_profile, host), "what goes in and out of a step");
    if (p->host_embeddings)
        memory_row(t, "embeddings on the host", offsetof(struct memory_profile, host_embeddings),
                   "pinned; the GPU reads a row of them for a token");
    if (p->host_experts == 0) return;
    snprintf(note, sizeof note, "of the first %d layer%s, computed by the CPU; a token reads %.2f MiB",
             p->host_expert_layers, plural(p->host_expert_layers), (double)p->host_token_bytes / MIB);
    memory_row(t, "experts on the host", offsetof(struct memory_profile, host_experts), note);
}

static void draft_rows(struct memory_table *t)
{
    const struct memory_profile *p = &t->ranks[0];
    const double cache = (double)(p->num_blocks * p->draft_block_bytes) / MIB;
    char note[96];
    if (t->num_ranks > 1)
        snprintf(note, sizeof note, "of the KV cache it has %.2f MiB", cache);
    else
        snprintf(note, sizeof note, "weights %.2f MiB; of the KV cache it has %.2f MiB", (double)p->draft_weights / MIB,
                 cache);
    sum_row(t, "  draft model", memory_profile_draft, note);
    if (t->num_ranks > 1)
        memory_row(t, "    weights", offsetof(struct memory_profile, draft_weights), "of the draft model");
}

static void states_row(struct memory_table *t, int32_t sequences)
{
    const struct memory_profile *p = &t->ranks[0];
    char note[96];
    snprintf(note, sizeof note, "%d for %d sequence%s, %d for snapshots, of %.2f MiB each",
             p->num_state_slots - p->num_snapshot_slots, sequences, plural(sequences), p->num_snapshot_slots,
             (double)p->slot_bytes / MIB);
    memory_row(t, "  state slots", offsetof(struct memory_profile, state_slots), note);
}

static void heading(struct memory_table *t)
{
    const struct memory_profile *p = &t->ranks[0];
    if (t->num_ranks == 1) {
        table_cell(&t->table, "memory of %s", p->device);
        table_cell(&t->table, "GiB");
        table_cell(&t->table, "MiB");
        for (int i = 0; i < 2; i++) table_cell(&t->table, "%s", "");
        return;
    }
    table_cell(&t->table, "memory, GiB");
    for (int32_t r = 0; r < t->num_ranks; r++)
        if (p->discrete)
            table_cell(&t->table, "%s", t->ranks[r].device);
        else
            table_cell(&t->table, "rank %d", r);
    table_cell(&t->table, "%s", "");
}

static void swap_row(struct memory_table *t)
{
    const struct memory_profile *p = &t->ranks[0];
    char note[96], slots[32] = "";
    if (p->num_host_slots > 0)
        snprintf(slots, sizeof slots, " and %d state%s", p->num_host_slots, plural(p->num_host_slots));
    snprintf(note, sizeof note, "on the host, %d block%s%s; allocated as it is needed", p->num_host_blocks,
             plural(p->num_host_blocks), slots);
    sum_row(t, "swap space", memory_profile_swap_space, note);
}

/* What is said beside the sizes is the same for all ranks, unless it names a device. */
static void memory_rows(struct memory_table *t, const struct batch_limits *limits, const char *weights_note)
{
    const struct memory_profile *p = &t->ranks[0];
    const bool gpu = p->discrete;
    char note[96];
    heading(t);
    memory_row(t, "total", offsetof(struct memory_profile, total), "");
    if (!gpu) memory_row(t, "held by others", offsetof(struct memory_profile, others), "");
    snprintf(note, sizeof note, gpu ? "%.2f of the total" : "the sum of what follows", p->utilization);
    memory_row(t, gpu ? "to be used" : "for quire", offsetof(struct memory_profile, budget), note);
    if (gpu) context_rows(t);
    memory_row(t, "  weights", offsetof(struct memory_profile, weights), weights_note);
    if (p->experts) memory_row(t, "    experts", offsetof(struct memory_profile, experts), "of the weights");
    snprintf(note, sizeof note, "of the largest step, %d tokens", limits->max_num_tokens);
    memory_row(t, "  activations", offsetof(struct memory_profile, activations), note);
    memory_row(t, "  workspace", offsetof(struct memory_profile, workspace), "");
    if (p->draft_weights) draft_rows(t);
    if (p->graphs) memory_row(t, "  graphs", offsetof(struct memory_profile, graphs), "captured decode steps");
    memory_row(t, "  state", offsetof(struct memory_profile, state), "block tables, sampling, inputs and outputs");
    if (p->state_slots > 0) states_row(t, limits->max_num_seqs);
    snprintf(note, sizeof note, "%d block%s%s", p->num_blocks, plural(p->num_blocks),
             p->num_blocks_override ? ", as asked for" : "");
    memory_row(t, "  KV cache", offsetof(struct memory_profile, kv_cache), note);
    if (p->in_use) device_row(t);
    swap_row(t);
    if (gpu) host_rows(t);
}

/* Whether the groups g and h are alike in all that is said of them. */
static bool are_alike(const struct memory_profile *p, const struct batch_limits *limits, int32_t g, int32_t h)
{
    return limits->windows[g] == limits->windows[h] && limits->chunked[g] == limits->chunked[h] &&
           limits->block_shifts[g] == limits->block_shifts[h] && p->group_layers[g] == p->group_layers[h];
}

bool memory_report_groups(struct text *out, const struct memory_profile *p, const struct batch_limits *limits)
{
    bool ok = true;
    for (int32_t g = 0, same; g < limits->num_groups && ok; g += same) {
        const int32_t window = limits->windows[g];
        for (same = 1; g + same < limits->num_groups && are_alike(p, limits, g, g + same);) same++;
        ok = text_printf(out, "%s%d of %d layer%s, ", g ? "; " : "", same, p->group_layers[g],
                         plural(p->group_layers[g])) &&
             (window ? text_printf(out, "%s %d", limits->chunked[g] ? "chunks of" : "window", window)
                     : text_append_string(out, "no window")) &&
             (limits->block_shifts[g] == 0 || text_printf(out, ", %d tokens in a block", batch_block_size(limits, g)));
    }
    return ok;
}

static void number_row(struct table *t, const char *label, int64_t number, const char *note)
{
    table_cell(t, "%s", label);
    table_cell(t, "%lld", (long long)number);
    table_cell(t, "%s", note);
}

/* The part of its blocks that a group leaves empty, of the group that leaves the largest; no row if it is none. */
static void unused_row(struct table *t, const struct memory_profile *p, const struct batch_limits *limits)
{
    int32_t worst = 0;
    for (int32_t g = 1; g < limits->num_groups; g++)
        if (p->group_unused[g] > p->group_unused[worst]) worst = g;
    if (p->group_unused[worst] == 0) return;
    table_cell(t, "unused of a block");
    table_cell(t, "%.1f %%", 100 * (double)p->group_unused[worst] / (double)p->block_bytes);
    table_cell(t, "at most, where %d tokens of a layer do not fill it", batch_block_size(limits, worst));
}

static void block_rows(struct table *t, const struct engine_info *info)
{
    const struct memory_profile *p = info->memory;
    const struct batch_limits *limits = info->limits;
    const int32_t held = batch_sequence_blocks(limits, limits->max_model_len), /* at most, by a request */
        all = memory_report_unwindowed_blocks(limits);
    char bytes[128], made_for[64] = "", windows[64] = "";
    struct text groups = {0};
    snprintf(bytes, sizeof bytes, "%.6g KiB%s: K and V of %d tokens in every layer%s, %s", (double)p->block_bytes / KIB,
             info->num_ranks > 1 ? " in each rank" : "", limits->block_size,
             limits->num_groups > 1 ? " of a group" : "", dtype_name(p->cache_dtype));
    if (limits->max_model_len < p->model_max_len)
        snprintf(made_for, sizeof made_for, "the model was made for %d", p->model_max_len);
    if (held < all) snprintf(windows, sizeof windows, "at most; without windows %d", all);
    number_row(t, "bytes of a block", p->block_bytes, bytes);
    number_row(t, "KV cache groups", limits->num_groups, memory_report_groups(&groups, p, limits) ? groups.data : "");
    unused_row(t, p, limits);
    number_row(t, "blocks", p->num_blocks, "");
    number_row(t, "tokens", memory_profile_tokens(p, limits), "");
    number_row(t, "max_model_len", limits->max_model_len, made_for);
    number_row(t, "max_num_seqs", limits->max_num_seqs, "");
    number_row(t, "blocks of a request", held, windows);
    table_cell(t, "requests that fit");
    table_cell(t, "%.2f", memory_profile_concurrency(p, limits));
    table_cell(t, "of max_model_len tokens each, nothing shared");
    text_free(&groups);
}

bool memory_report_print(const struct engine_info *info, const char *weights_note)
{
    char columns[256] = "lrrll";
    struct memory_table memory = {{.columns = columns}, info->rank_memory, info->num_ranks, locale_is_utf8()};
    struct table blocks = {.columns = "lrl"};
    if (info->num_ranks > 1) {
        const size_t count = (size_t)info->num_ranks;
        memset(columns + 1, 'r', count);
        memcpy(columns + 1 + count, "l", 2);
    }
    memory_rows(&memory, info->limits, weights_note);
    block_rows(&blocks, info);
    bool ok = table_print(&memory.table, stdout);
    putchar('\n');
    ok = table_print(&blocks, stdout) && ok;
    table_free(&memory.table);
    table_free(&blocks);
    return ok;
}

static void set_memory(json_t *json, const struct memory_profile *p)
{
    const bool gpu = p->discrete;
    json_put_integer(json, "total_memory", p->total);
    json_object_set_new(json, "others_memory", p->others_unknown ? json_null() : json_integer(p->others));
    json_object_set_new(json, "context_memory", p->others_unknown ? json_null() : json_integer(p->context));
    if (gpu) json_put_integer(json, "context_and_others_memory", p->context + p->others);
    json_put_real(json, "gpu_memory_utilization", p->utilization);
    json_put_integer(json, "budget_memory", p->budget);
    json_put_integer(json, "weights_memory", p->weights);
    json_put_integer(json, "experts_memory", p->experts);
    json_put_integer(json, "host_expert_layers", p->host_expert_layers);
    json_put_integer(json, "host_experts_memory", p->host_experts);
    json_put_integer(json, "host_bytes_per_token", p->host_token_bytes);
    json_put_integer(json, "host_embeddings_memory", p->host_embeddings);
    json_put_integer(json, "activation_memory", p->activations);
    json_put_integer(json, "workspace_memory", p->workspace);
    json_put_integer(json, "graph_memory", p->graphs);
    json_put_integer(json, "state_memory", p->state);
    if (p->state_slots > 0) {
        json_put_integer(json, "state_slots_memory", p->state_slots);
        json_put_integer(json, "state_slot_bytes", p->slot_bytes);
        json_put_integer(json, "num_state_slots", p->num_state_slots);
        json_put_integer(json, "num_snapshot_slots", p->num_snapshot_slots);
        json_put_integer(json, "num_cpu_state_slots", p->num_host_slots);
    }
    json_put_integer(json, "draft_model_memory", memory_profile_draft(p));
    json_put_integer(json, "draft_model_weights", p->draft_weights);
    json_put_integer(json, "draft_model_kv_cache_memory", p->num_blocks * p->draft_block_bytes);
    json_put_integer(json, "kv_cache_memory", p->kv_cache);
    json_put_integer(json, "available_kv_cache_memory", p->kv_budget);
    json_put_integer(json, "pinned_host_memory", gpu ? p->host : 0); /* on the CPU it is a part of the state */
    /* on the host, allocated as it is needed */
    json_put_integer(json, "swap_space_memory", memory_profile_swap_space(p));
    if (p->in_use == 0) return;
    json_put_integer(json, "reported_memory", report_sum(p));
    json_put_integer(json, "device_memory_in_use", p->in_use);
}

/* The groups in the order of their numbers. */
static json_t *groups_json(const struct memory_profile *p, const struct batch_limits *limits)
{
    json_t *groups = json_array();
    for (int32_t g = 0; g < limits->num_groups; g++) {
        json_t *group = json_object();
        json_put_integer(group, "num_layers", p->group_layers[g]);
        const int32_t window = limits->chunked[g] ? 0 : limits->windows[g];
        json_object_set_new(group, "sliding_window", window ? json_integer(window) : json_null());
        if (limits->chunked[g]) json_put_integer(group, "attention_chunk_size", limits->windows[g]);
        if (limits->block_shifts[g] > 0) json_put_integer(group, "block_size", batch_block_size(limits, g));
        if (p->group_unused[g] > 0) json_put_integer(group, "unused_block_bytes", p->group_unused[g]);
        json_put_integer(group, "max_request_blocks", batch_group_blocks(limits, g, limits->max_model_len));
        json_array_append_new(groups, group);
    }
    return groups;
}

static void set_blocks(json_t *json, const struct memory_profile *p, const struct batch_limits *limits)
{
    json_put_integer(json, "block_bytes", p->block_bytes);
    json_put_integer(json, "block_size", limits->block_size);
    json_put_integer(json, "num_gpu_blocks", p->num_blocks);
    json_put_integer(json, "num_cpu_blocks", p->num_host_blocks);
    json_put_integer(json, "num_gpu_blocks_override", p->num_blocks_override);
    json_put_integer(json, "kv_cache_tokens", memory_profile_tokens(p, limits));
    json_put_integer(json, "max_num_batched_tokens", limits->max_num_tokens);
    json_put_integer(json, "max_num_seqs", limits->max_num_seqs);
    json_put_integer(json, "max_model_len", limits->max_model_len);
    json_put_integer(json, "model_max_len", p->model_max_len);
    json_object_set_new(json, "kv_groups", groups_json(p, limits));
    json_put_integer(json, "max_request_blocks", batch_sequence_blocks(limits, limits->max_model_len));
    json_put_integer(json, "max_request_blocks_without_windows", memory_report_unwindowed_blocks(limits));
    json_put_real(json, "max_concurrency", memory_profile_concurrency(p, limits));
}

/* An object for each rank. */
static json_t *ranks_json(const struct engine_info *info)
{
    json_t *ranks = json_array();
    for (int32_t r = 0; r < info->num_ranks; r++) {
        json_t *rank = json_object();
        json_put_string(rank, "device", info->rank_memory[r].device);
        set_memory(rank, &info->rank_memory[r]);
        json_array_append_new(ranks, rank);
    }
    return ranks;
}

void memory_report_add(json_t *json, const struct engine_info *info)
{
    const struct memory_profile *p = info->memory;
    const struct batch_limits *limits = info->limits;
    json_put_string(json, "device", p->device);
    json_put_string(json, "dtype", dtype_name(p->dtype));
    json_put_string(json, "kv_cache_dtype", dtype_name(p->cache_dtype));
    set_memory(json, p);
    set_blocks(json, p, limits);
    if (info->num_ranks > 1) json_object_set_new(json, "ranks", ranks_json(info));
}

/* ---- reserved and resident ---- */

static const struct residence_kind {
    enum memory_purpose purpose;
    const char *label, *key;
} residence_kinds[] = {
    {PURPOSE_WEIGHTS, "weights", "weights_memory"},
    {PURPOSE_ACTIVATIONS, "activations", "activation_memory"},
    {PURPOSE_WORKSPACE, "workspace", "workspace_memory"},
    {PURPOSE_STATE, "state", "state_memory"},
    {PURPOSE_STATE_SLOTS, "state slots", "state_slots_memory"},
    {PURPOSE_KV_CACHE, "KV cache", "kv_cache_memory"},
    {PURPOSE_SWAP_SPACE, "swap space", "swap_space_memory"},
};
enum { NUM_KINDS = sizeof residence_kinds / sizeof *residence_kinds };

static void residence_row(struct table *t, const char *label, const struct model_residence *r, bool utf8)
{
    char bar[BAR_TEXT_SIZE] = "";
    table_cell(t, "%s", label);
    table_cell(t, "%.2f", (double)r->reserved / MIB);
    if (r->resident < 0) {
        table_cell(t, "not told");
    } else {
        table_cell(t, "%.2f", (double)r->resident / MIB);
        bar_text(bar, r->reserved ? (double)r->resident / (double)r->reserved : 0, BAR_WIDTH, utf8);
    }
    table_cell(t, "%s", bar);
}

bool residence_print(const struct engine *e)
{
    struct model_residence all[NUM_PURPOSES];
    struct table t = {.columns = "lrrl"};
    const bool utf8 = locale_is_utf8();
    engine_residence(e, all);
    table_row(&t, "host memory, MiB", "reserved", "resident", "");
    for (int i = 0; i < NUM_KINDS; i++) {
        const struct residence_kind *kind = &residence_kinds[i];
        if (all[kind->purpose].reserved > 0) residence_row(&t, kind->label, &all[kind->purpose], utf8);
    }
    const bool ok = table_print(&t, stdout);
    table_free(&t);
    return ok;
}

json_t *residence_json(const struct engine *e)
{
    struct model_residence all[NUM_PURPOSES];
    json_t *json = json_object();
    engine_residence(e, all);
    for (int i = 0; i < NUM_KINDS; i++) {
        const struct model_residence *r = &all[residence_kinds[i].purpose];
        json_t *kind = json_object();
        json_put_integer(kind, "reserved", r->reserved);
        json_object_set_new(kind, "resident", r->resident < 0 ? json_null() : json_integer(r->resident));
        json_object_set_new(json, residence_kinds[i].key, kind);
    }
    return json;
}
