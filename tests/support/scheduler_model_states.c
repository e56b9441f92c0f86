#include "tests/support/scheduler_model_state.h"

int64_t model_num_evictions(const struct scheduler_model *m)
{
    return m->scheduler->blocks.evictions + m->scheduler->blocks.states.evicted;
}

/* Each sequence holds two at most, and drafts of two steps theirs, when each takes another. */
bool model_has_ample_states(const struct scheduler_model *m)
{
    const struct batch_limits *limits = &m->config.limits;
    return limits->num_state_slots == 0 ||
           limits->num_state_slots >= 3 * limits->max_num_seqs + 3 * limits->max_num_drafts;
}

int32_t model_num_states(struct model_request *const *requests, int32_t count)
{
    int32_t seen[SCHEDULER_MODEL_MAX_REQUESTS * SCHEDULER_MODEL_MAX_N], num_seen = 0;
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j < requests[i]->request->num_sequences; j++) {
            const int32_t state = requests[i]->request->sequences[j].state;
            bool is_seen = state == STATE_SLOT_NONE;
            for (int32_t k = 0; k < num_seen && !is_seen; k++) is_seen = seen[k] == state;
            if (!is_seen) seen[num_seen++] = state;
        }
    return num_seen;
}

/* A swapped sequence has its state on the host, and keeps nothing for its end. */
static enum status check_swapped(const struct scheduler_model *m, const struct model_request *r,
                                 const struct sequence *seq, struct error *err)
{
    if (seq->boundary > 0 || seq->parting > 0 || (seq->state > 0 && seq->state <= m->config.limits.num_state_slots))
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d, which is swapped, has state slot %d", r->number,
                         seq->index, seq->state);
    return slot_device_check_state(&m->device, &r->truth[seq->index], seq->state, seq->num_computed, err);
}

/* What it goes on from, and what it keeps for its end. */
static enum status check_sequence(struct scheduler_model *m, const struct model_request *r, const struct sequence *seq,
                                  struct error *err)
{
    struct true_sequence scratch;
    const struct true_sequence *contents = model_contents(r, seq, &scratch);
    enum status status =
        slot_device_check_state(&m->device, contents, seq->state, seq->num_computed - r->drafts[seq->index].count, err);
    if (status == STATUS_OK)
        status = slot_device_check_state(&m->device, contents, seq->boundary_state, seq->boundary, err);
    m->totals.kept += seq->boundary > 0;
    return status;
}

enum status model_check_states(struct scheduler_model *m, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < m->num_live && m->config.limits.num_state_slots > 0; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences && status == STATUS_OK; j++) {
            const struct sequence *seq = &m->live[i]->request->sequences[j];
            if (model_has_place(seq))
                status = check_sequence(m, m->live[i], seq, err);
            else if (seq->status == SEQUENCE_SWAPPED)
                status = check_swapped(m, m->live[i], seq, err);
        }
    struct scheduler_stats s;
    scheduler_get_stats(m->scheduler, &s);
    if (status != STATUS_OK || (s.state_slots_total == m->config.limits.num_state_slots && s.snapshots >= 0 &&
                                s.state_slots_in_use <= s.state_slots_total))
        return status;
    return error_set(err, STATUS_INTERNAL, "of %d state slots %d are said to be in use, and %d snapshots",
                     s.state_slots_total, s.state_slots_in_use, s.snapshots);
}

enum status model_check_snapshot(const struct scheduler_model *m, const struct true_sequence *seq, int32_t prefix,
                                 int32_t num_tokens, bool *usable, struct error *err)
{
    if (m->config.limits.num_state_slots == 0) return STATUS_OK;
    const int32_t slot = prefix_cache_snapshot(&m->scheduler->blocks.cache, prefix);
    *usable = slot > 0;
    return *usable ? slot_device_check_state(&m->device, seq, slot, num_tokens, err) : STATUS_OK;
}

/* Whether the prefix has a snapshot, or gets one by the step that was scheduled last. */
static bool has_snapshot(const struct scheduler_model *m, int32_t prefix)
{
    const struct state_pool *states = &m->scheduler->blocks.states;
    bool arrives = false;
    for (int32_t i = 0; i < states->num_arrivals; i++) arrives = arrives || states->arrivals[i].prefix == prefix;
    return arrives || prefix_cache_snapshot(&m->scheduler->blocks.cache, prefix) > 0;
}

enum status model_check_cut(struct scheduler_model *m, const struct model_request *r, const struct sequence *seq,
                            int32_t start, int32_t end, struct error *err)
{
    const int32_t unit = batch_largest_block_size(&m->config.limits);
    const struct request *request = seq->request;
    const int32_t known = seq == request->leader ? seq->prompt_len : seq->num_tokens;
    const bool led = request->num_sequences > 1 && end == seq->prompt_len; /* or began anew: what it knew is unclear */
    const int32_t interval = (m->config.state_interval + unit - 1) / unit * unit;
    const bool is_run = r->drafts[seq->index].count > 0;
    if (m->config.limits.num_state_slots == 0 || !m->config.enable_prefix_caching || is_run || led) return STATUS_OK;
    for (int32_t at = start / unit * unit + unit; at <= end && at < known && end - start > 1; at += unit) {
        const bool wanted = at == (known - 1) / unit * unit || at == r->request->state_boundary / unit * unit ||
                            (interval > 0 && at % interval == 0);
        if (wanted && at < end)
            return error_set(err, STATUS_INTERNAL,
                             "request %d sequence %d: tokens %d to %d are computed in one step, over the boundary %d",
                             r->number, seq->index, start, end - 1, at);
        const bool is_due =
            seq->num_hashed * m->config.limits.block_size == end && m->evictions == model_num_evictions(m);
        if (wanted && is_due && !has_snapshot(m, seq->prefix))
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d leaves no snapshot after %d tokens",
                             r->number, seq->index, at);
        m->totals.cuts += wanted;
    }
    return STATUS_OK;
}

bool model_awaits_snapshot(const struct scheduler_model *m, const struct model_request *r)
{
    const struct prefix_cache *cache = &m->scheduler->blocks.cache;
    const struct sequence *seq = request_first_unfinished(r->request);
    const int32_t unit = m->config.limits.block_size;
    if (m->config.limits.num_state_slots == 0 || !m->config.enable_prefix_caching) return false;
    bool pending = false, whole = true; /* whole: all blocks up to here are there, so that a snapshot is of use */
    int32_t prefix = prefix_cache_root(seq->request->cache_namespace, seq->request->cache_salt);
    for (int32_t end = unit; end < seq->num_tokens; end += unit) {
        prefix = prefix_cache_find(cache, prefix, seq->tokens + end - unit);
        if (prefix == PREFIX_NONE) break;
        const int32_t snapshot = prefix_cache_snapshot(cache, prefix);
        for (int32_t g = 0; g < m->config.limits.num_groups; g++)
            whole =
                whole && (prefix_cache_block(cache, prefix, g) || end % batch_block_size(&m->config.limits, g) != 0);
        pending = snapshot == SNAPSHOT_PENDING || (pending && !(snapshot > 0 && whole));
    }
    return pending;
}
