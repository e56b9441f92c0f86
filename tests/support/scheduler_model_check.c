#include <string.h>

#include "tests/support/scheduler_model_state.h"

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Whether the prefix cache was never out of numbers, for want of which it may leave blocks out. */
static bool has_numbers(const struct scheduler_model *m)
{
    return m->config.enable_prefix_caching && m->scheduler->blocks.cache.num_unused > 0;
}

/* ---- after every operation ---- */

static enum status count_entries(struct scheduler_model *m, const struct model_request *r, const struct sequence *seq,
                                 int32_t group, struct error *err)
{
    const struct block_table *table = &seq->tables[group];
    const int32_t most = batch_max_blocks(&m->config.limits);
    const bool swapped = seq->status == SEQUENCE_SWAPPED;
    const struct block_pool *pool = swapped ? &m->scheduler->blocks.host : &m->scheduler->blocks.pool;
    if (table->num_blocks < 0 || table->num_blocks > most)
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d group %d has %d blocks, of %d at most",
                         r->number, seq->index, group, table->num_blocks, most);
    for (int32_t i = 0; i < table->num_blocks; i++) {
        const int32_t block = table->blocks[i];
        if (block == 0) continue;
        if (block < pool->first || block >= pool->end)
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d group %d: entry %d is block %d", r->number,
                             seq->index, group, i, block);
        if (m->counts[block]++ == 0 && !swapped) m->held++;
    }
    return STATUS_OK;
}

/* Counts the holders of each block from all tables. */
enum status model_count_holders(struct scheduler_model *m, struct error *err)
{
    enum status status = STATUS_OK;
    memset(m->counts, 0, sizeof m->counts);
    m->held = 0;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++)
            for (int32_t g = 0; g < m->config.limits.num_groups && status == STATUS_OK; g++)
                status = count_entries(m, m->live[i], &m->live[i]->request->sequences[j], g, err);
    return status;
}

static enum status check_table(struct scheduler_model *m, const struct model_request *r, const struct sequence *seq,
                               int32_t group, struct error *err)
{
    const struct block_table *table = &seq->tables[group];
    const int32_t size = batch_block_size(&m->config.limits, group);
    const int32_t computed = seq->num_computed;
    if ((computed + size - 1) / size > table->num_blocks)
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d group %d: %d tokens are computed, in %d blocks",
                         r->number, seq->index, group, computed, table->num_blocks);
    struct true_sequence scratch;
    const struct true_sequence *contents = model_contents(r, seq, &scratch);
    enum status status = STATUS_OK;
    for (int32_t p = model_first_read(m, group, computed), last; p < computed && status == STATUS_OK; p = last) {
        last = p - p % size + size < computed ? p - p % size + size : computed;
        status = slot_device_check(&m->device, contents, group, table->blocks[p / size], p, last, err);
    }
    return status;
}

/* The tokens that the scheduler knows are the true ones. */
enum status model_check_tokens(const struct model_request *r, const struct sequence *seq, struct error *err)
{
    const struct true_sequence *truth = &r->truth[seq->index];
    if (seq->num_tokens > truth->num_tokens)
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d has %d tokens; it ends with %d", r->number,
                         seq->index, seq->num_tokens, truth->num_tokens);
    for (int32_t i = 0; i < seq->num_tokens; i++)
        if (seq->tokens[i] != truth->tokens[i])
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d: token %d is %d instead of %d", r->number,
                             seq->index, i, seq->tokens[i], truth->tokens[i]);
    return STATUS_OK;
}

static enum status check_sequence(struct scheduler_model *m, const struct model_request *r, const struct sequence *seq,
                                  struct error *err)
{
    const bool holds = model_has_place(seq) || seq->status == SEQUENCE_SWAPPED;
    enum status status = model_check_tokens(r, seq, err);
    if (status == STATUS_OK && seq->status == SEQUENCE_RUNNING && !model_has_place(seq) && !model_awaits_its_end(seq))
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d runs without a place on the device", r->number,
                         seq->index);
    if (status == STATUS_OK && seq->status == SEQUENCE_SWAPPED && seq->num_hashed > 0)
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d has %d host blocks in the prefix cache",
                         r->number, seq->index, seq->num_hashed);
    for (int32_t g = 0; g < m->config.limits.num_groups && status == STATUS_OK; g++) {
        if (!holds && seq->tables[g].num_blocks > 0)
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d does not run, and holds %d blocks",
                             r->number, seq->index, seq->tables[g].num_blocks);
        if (holds) status = check_table(m, r, seq, g, err);
    }
    if (status == STATUS_OK && model_has_place(seq) && seq->num_computed != r->computed[seq->index])
        status = error_set(err, STATUS_INTERNAL, "request %d sequence %d: %d tokens are computed, but batches had %d",
                           r->number, seq->index, seq->num_computed, r->computed[seq->index]);
    return status;
}

static enum status check_counts(const struct scheduler_model *m, const struct block_pool *pool, struct error *err)
{
    for (int32_t i = pool->first; i < pool->end; i++)
        if (pool->blocks[i].ref_count != m->counts[i])
            return error_set(err, STATUS_INTERNAL, "block %d has the count %d, but %d table entries name it", i,
                             pool->blocks[i].ref_count, m->counts[i]);
    return STATUS_OK;
}

/* A block that can be found is full of one prefix's tokens, also after its last holder has gone. */
static enum status check_cached(const struct scheduler_model *m, struct error *err)
{
    const struct block_manager *b = &m->scheduler->blocks;
    const int32_t unit = m->config.limits.block_size;
    for (int32_t i = b->pool.first; i < b->pool.end; i++) {
        const int32_t prefix = b->pool.blocks[i].prefix;
        if (prefix == PREFIX_NONE) continue;
        const struct slot *slots = &m->device.slots[(int64_t)i * m->device.stride];
        const int32_t size = batch_block_size(&m->config.limits, slots->group);
        const int32_t *tokens = b->cache.tokens + (size_t)prefix * (size_t)unit; /* the last of the block's */
        for (int32_t t = 0; t < size; t++)
            if (slots[t].position != slots[0].position + t || slots[0].position % size != 0 ||
                (t >= size - unit && slots[t].token != tokens[t - size + unit]) || slots[t].group != slots[0].group)
                return error_set(err, STATUS_INTERNAL,
                                 "block %d can be found by prefix %d, but its slot %d holds position %d, token %d", i,
                                 prefix, t, slots[t].position, slots[t].token);
        if (prefix_cache_block(&b->cache, prefix, slots[0].group) != i)
            return error_set(err, STATUS_INTERNAL, "block %d is not the block of its prefix %d", i, prefix);
    }
    return STATUS_OK;
}

/* Follows the sequence's known tokens through the prefix cache. The blocks on the way hold its tokens. *found gets the
 * number of leading tokens that the sequence could start with; more of them may be there behind a gap. */
enum status model_check_found(const struct scheduler_model *m, const struct model_request *r,
                              const struct sequence *seq, int32_t *found, struct error *err)
{
    const struct block_manager *b = &m->scheduler->blocks;
    const struct batch_limits *limits = &m->config.limits;
    const int32_t unit = limits->block_size, largest = batch_largest_block_size(limits);
    struct true_sequence truth;
    if (found) *found = 0;
    if (!b->caching || seq->status == SEQUENCE_FINISHED) return STATUS_OK;
    const struct true_sequence *is = &r->truth[seq->index];
    if (is->cache_namespace != seq->request->cache_namespace) { /* it will start in the other one */
        truth = *is;
        truth.cache_namespace = seq->request->cache_namespace;
        is = &truth;
    }
    int32_t first_tokens = request_num_unfinished(seq->request) > 1 ? seq->prompt_len : seq->num_tokens;
    if (r->scored < seq->prompt_len && r->scored < first_tokens) first_tokens = r->scored;
    int32_t prefix = prefix_cache_root(seq->request->cache_namespace, seq->request->cache_salt);
    bool whole = true;
    enum status status = STATUS_OK;
    for (int32_t end = unit; end <= seq->num_tokens && status == STATUS_OK; end += unit) {
        prefix = prefix_cache_find(&b->cache, prefix, seq->tokens + end - unit);
        if (prefix == PREFIX_NONE) break;
        for (int32_t g = 0; g < limits->num_groups && status == STATUS_OK; g++) {
            const int32_t size = batch_block_size(limits, g), block = prefix_cache_block(&b->cache, prefix, g);
            whole = whole && (block != 0 || end % size != 0);
            if (block) status = slot_device_check(&m->device, is, g, block, end - size, end, err);
        }
        bool usable = true;
        if (status == STATUS_OK) status = model_check_snapshot(m, is, prefix, end, &usable, err);
        if (found && whole && usable && end < first_tokens && end % largest == 0) *found = end;
    }
    return status == STATUS_OK ? status : error_prefix(err, status, "a block of the prefix cache");
}

static enum status check_stats(const struct scheduler_model *m, struct error *err)
{
    struct scheduler_stats s;
    scheduler_get_stats(m->scheduler, &s);
    int32_t cached = 0, places[PLACE_ENDED + 1] = {0};
    for (int32_t i = 1; i <= m->config.num_blocks; i++)
        cached += m->counts[i] == 0 && m->scheduler->blocks.pool.blocks[i].prefix != PREFIX_NONE;
    for (int32_t i = 0; i < m->num_live; i++) places[model_place(m->live[i]->request)]++;
    if (s.blocks_total != m->config.num_blocks || s.blocks_in_use != m->held || s.blocks_cached != cached ||
        s.blocks_free != m->config.num_blocks - m->held - cached)
        return error_set(err, STATUS_INTERNAL,
                         "of %d blocks %d are said to be in use, %d cached and %d free; %d and %d are", s.blocks_total,
                         s.blocks_in_use, s.blocks_cached, s.blocks_free, m->held, cached);
    if (s.num_running != places[PLACE_RUNNING] || s.num_waiting != places[PLACE_WAITING] ||
        s.num_swapped != places[PLACE_SWAPPED])
        return error_set(err, STATUS_INTERNAL,
                         "%d requests are said to run, %d to wait and %d to be swapped; %d, %d, %d do", s.num_running,
                         s.num_waiting, s.num_swapped, places[PLACE_RUNNING], places[PLACE_WAITING],
                         places[PLACE_SWAPPED]);
    return STATUS_OK;
}

/* Blocks that a sequence alone held before the operation, and that are cached after it, were given back last one first:
 * the end of a prefix is evicted before its beginning. Those that left a window went before the others. */
static enum status check_order(const struct model_request *r, int32_t index, int32_t group,
                               const struct scheduler_model *m, const int32_t *ranks, struct error *err)
{
    const struct model_table *table = &r->tables[index][group];
    int32_t after = 0;
    for (int32_t i = table->count - 1; i >= 0; i--) {
        const int32_t block = table->blocks[i], rank = block <= m->config.num_blocks ? ranks[block] : 0;
        if (i + 1 == table->first) after = 0;
        if (rank == 0 || m->counts_before[block] != 1) continue;
        if (rank < after)
            return error_set(err, STATUS_INTERNAL,
                             "request %d sequence %d group %d: its block %d (%d) is to be evicted before those that "
                             "follow it",
                             r->number, index, group, i, block);
        after = rank;
    }
    return STATUS_OK;
}

/* Cached blocks are given up in the order in which they were given back, after all that were never taken. */
static enum status check_evictions(const struct scheduler_model *m, struct error *err)
{
    const struct block_pool *pool = &m->scheduler->blocks.pool;
    int32_t ranks[MAX_BLOCKS] = {0}, rank = 0;
    if (m->scheduler->blocks.evictions > 0 && pool->untaken < pool->end)
        return error_set(err, STATUS_INTERNAL, "a block was evicted, and block %d was never taken", pool->untaken);
    for (int32_t b = pool->oldest; b != BLOCK_NONE; b = pool->blocks[b].next) ranks[b] = ++rank;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++)
            for (int32_t g = 0; g < m->config.limits.num_groups && status == STATUS_OK; g++)
                status = check_order(m->live[i], j, g, m, ranks, err);
    return status;
}

/* The prefix cache forgets a block only if it is taken for other contents. */
static enum status check_forgotten(const struct scheduler_model *m, struct error *err)
{
    const struct block_pool *pool = &m->scheduler->blocks.pool;
    for (int32_t b = pool->first; b < pool->end && has_numbers(m); b++)
        if (m->findable_before[b] && pool->blocks[b].prefix == PREFIX_NONE && m->counts[b] == 0)
            return error_set(err, STATUS_INTERNAL, "block %d was forgotten, but not taken", b);
    return STATUS_OK;
}

enum status model_remember_blocks(struct scheduler_model *m, struct error *err)
{
    const struct block_pool *pool = &m->scheduler->blocks.pool;
    const enum status status = model_count_holders(m, err);
    memcpy(m->counts_before, m->counts, sizeof m->counts);
    for (int32_t b = pool->first; b < pool->end; b++) m->findable_before[b] = pool->blocks[b].prefix != PREFIX_NONE;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++)
            for (int32_t g = 0; g < m->config.limits.num_groups; g++) {
                const struct sequence *seq = &m->live[i]->request->sequences[j];
                struct model_table *table = &m->live[i]->tables[j][g];
                table->count = seq->tables[g].num_blocks;
                table->first = batch_first_block(&m->config.limits, g, seq->num_computed);
                memcpy(table->blocks, seq->tables[g].blocks, (size_t)table->count * sizeof *table->blocks);
            }
    return status;
}

enum status model_check(struct scheduler_model *m, bool forgets, struct error *err)
{
    enum status status = scheduler_check(m->scheduler, err);
    if (status == STATUS_OK) status = model_count_holders(m, err);
    for (int32_t i = 0; i < m->num_live; i++) {
        const struct model_request *r = m->live[i];
        for (int32_t j = 0; j < r->request->num_sequences && status == STATUS_OK; j++)
            status = check_sequence(m, r, &r->request->sequences[j], err);
        if (status == STATUS_OK) status = model_check_found(m, r, &r->request->sequences[0], NULL, err);
    }
    if (status == STATUS_OK) status = check_counts(m, &m->scheduler->blocks.pool, err);
    if (status == STATUS_OK) status = check_counts(m, &m->scheduler->blocks.host, err);
    if (status == STATUS_OK && m->config.enable_prefix_caching) status = check_cached(m, err);
    if (status == STATUS_OK) status = check_stats(m, err);
    if (status == STATUS_OK) status = model_check_states(m, err);
    if (forgets) return status; /* what was cached in the operation may be cached again */
    if (status == STATUS_OK) status = check_evictions(m, err);
    if (status == STATUS_OK) status = check_forgotten(m, err);
    return status;
}

/* ---- after a step ---- */

/* A sequence of the batch goes on where the batches before left it; one that starts from the queue may have found
 * blocks in the prefix cache, but always computes its last token. */
enum status model_check_progress(struct scheduler_model *m, const struct schedule *schedule, int32_t i,
                                 struct error *err)
{
    int32_t index;
    struct model_request *r = model_of_state(m, m->batch.state_indices[i], &index);
    if (!r) return error_set(err, STATUS_INTERNAL, "sequence %d of the batch has no request", i);
    const struct sequence *seq = &r->request->sequences[index];
    const int32_t query = m->batch.query_start[i + 1] - m->batch.query_start[i],
                  start_at = m->batch.seq_lens[i] - query;
    const bool requeued = r->status[index] == SEQUENCE_WAITING || r->preemptions != r->request->num_preemptions;
    const bool fresh = requeued && model_is_admitted(schedule, seq);
    if (schedule->sequences[i] != seq)
        return error_set(err, STATUS_INTERNAL, "entry %d of the batch is said to be of another sequence", i);
    if (seq->status != SEQUENCE_RUNNING || seq->state_index != m->batch.state_indices[i])
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d does not run, and is computed", r->number,
                         index);
    /* One that was preempted goes on with what it had, even if the end of a sibling makes the choice due. */
    if (r->was_due && r->place != PLACE_RUNNING)
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d is computed before its beams are chosen",
                         r->number, index);
    if (!fresh && start_at != r->computed[index])
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d: token %d is computed after %d", r->number,
                         index, start_at, r->computed[index]);
    if (fresh && r->namespace_before == r->request->cache_namespace && m->evictions == model_num_evictions(m) &&
        start_at < r->found[index])
        return error_set(err, STATUS_INTERNAL,
                         "request %d sequence %d starts at token %d, but %d tokens could be found", r->number, index,
                         start_at, r->found[index]);
    const int32_t full = least(seq->num_computed, seq->num_tokens) / m->config.limits.block_size;
    if (has_numbers(m) && seq->num_hashed != full)
        return error_set(err, STATUS_INTERNAL,
                         "request %d sequence %d has %d full blocks, of which %d are in the prefix cache", r->number,
                         index, full, seq->num_hashed);
    if (model_check_cut(m, r, seq, start_at, start_at + query, err) != STATUS_OK) return STATUS_INTERNAL;
    m->totals.hits += fresh && start_at > 0;
    m->totals.recovered += fresh && start_at > 0 && seq->state != STATE_SLOT_NONE && r->request->num_preemptions > 0;
    m->totals.mixed_hits += fresh && start_at > 0 && model_is_mixed(m);
    r->computed[index] = m->batch.seq_lens[i];
    return STATUS_OK;
}

enum status model_check_targets(struct scheduler_model *m, int32_t i, struct error *err)
{
    int32_t index, count = 0;
    struct model_request *r = model_of_state(m, m->batch.state_indices[i], &index);
    const int32_t length = r->request->sequences[index].prompt_len, most = m->batch.seq_lens[i] + 1;
    const int32_t begin = m->batch.query_start[i], end = m->batch.query_start[i + 1];
    const int32_t first_row = m->batch.seq_lens[i] - (end - begin) + 1;
    const int32_t scored = most < length ? most : length;
    for (int32_t t = 0; t < m->batch.num_targets; t++) {
        const int32_t at = m->batch.target_indices[t];
        if (at < begin || at >= end) continue;
        if (first_row + at - begin != r->scored + count++)
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d: target %d follows %d", r->number, index,
                             first_row + at - begin, r->scored + count - 2);
    }
    m->totals.targets += count;
    if (scored > r->scored ? r->scored + count != scored : count > 0)
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d: %d targets after %d, at token %d", r->number,
                         index, count, r->scored, most - 1);
    r->scored += count;
    return STATUS_OK;
}

enum status model_check_prompt_logprobs(const struct model_request *r, struct error *err)
{
    const struct prompt_logprobs *p = r->request->prompt_logprobs;
    bool any = false, damaged = false;
    if (!p) return STATUS_OK;
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        any = any || r->request->sequences[i].num_tokens > p->num_tokens;
        damaged = damaged || r->damaged[i];
    }
    for (int32_t t = 1; any && !damaged && t < p->num_tokens; t++) {
        bool right = p->ranks[t] == t && p->logprobs[t] == (float)t;
        for (int32_t k = 0; k < p->num_top; k++) right = right && p->top_ids[t * p->num_top + k] == t + k;
        if (!right)
            return error_set(err, STATUS_INTERNAL, "request %d: row %d of prompt_logprobs is row %d", r->number, t,
                             p->ranks[t]);
    }
    return STATUS_OK;
}

/* Blocks outside the window are given back, and no more are held than the tokens need. */
enum status model_check_blocks_held(struct scheduler_model *m, int32_t i, struct error *err)
{
    int32_t index;
    const struct run_entries run = slot_device_entries(&m->batch, i);
    if (i + 1 < run.end) return STATUS_OK; /* the last entry of a run stands for all */
    const struct model_request *r = model_of_state(m, m->batch.state_indices[i], &index);
    const struct sequence *seq = &r->request->sequences[index];
    const struct batch_limits *limits = &m->config.limits;
    const int32_t end = m->batch.seq_lens[i];
    const int32_t first = end - (m->batch.query_start[run.end] - m->batch.query_start[run.first]);
    const int32_t known = seq->num_tokens > end ? seq->num_tokens : end;
    for (int32_t g = 0; g < limits->num_groups; g++) {
        const int32_t size = batch_block_size(limits, g);
        const struct block_table *table = &seq->tables[g];
        const int32_t left = batch_first_block(limits, g, first);
        int32_t held = 0;
        for (int32_t b = 0; b < table->num_blocks; b++) held += table->blocks[b] != 0;
        for (int32_t b = 0; b < left && b < table->num_blocks; b++)
            if (table->blocks[b] != 0)
                return error_set(err, STATUS_INTERNAL,
                                 "request %d sequence %d group %d keeps its block %d, outside the window of token %d",
                                 r->number, index, g, b, first);
        m->totals.window_blocks += left;
        if (held > batch_group_blocks(limits, g, known) || table->num_blocks > (known + size - 1) / size)
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d group %d holds %d blocks for %d tokens",
                             r->number, index, g, held, known);
        if (end == first + 1 && limits->windows[g] > 0 && seq->num_tokens <= end &&
            held > (limits->windows[g] + size - 1) / size + 1)
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d group %d decodes with %d blocks, window %d",
                             r->number, index, g, held, limits->windows[g]);
    }
    return STATUS_OK;
}

/* ---- ends ---- */

/* Blocks that the request needs at most if it runs alone, with room to grow by one token. */
static int32_t most_blocks_alone(const struct scheduler_model *m, const struct request *request)
{
    int32_t blocks = 0;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        const struct sequence *seq = &request->sequences[i];
        blocks += batch_sequence_blocks(&m->config.limits, seq->num_tokens + 1) + m->config.limits.num_groups;
    }
    return blocks;
}

/* A request may fail only if the pool could not hold it alone. */
static enum status check_error(const struct scheduler_model *m, const struct model_request *r, struct error *err)
{
    const struct request *request = r->request;
    const int32_t spare = request->num_sequences == 1 ? m->config.limits.num_groups : 0;
    const int32_t kept_free = request->num_preemptions > 0 ? 0 : m->watermark; /* it may have grown into it */
    if (strlen(request->error->text) > 20 && request->num_sequences > m->config.limits.max_num_seqs) return STATUS_OK;
    if (strlen(request->error->text) > 20 && most_blocks_alone(m, request) - spare > m->config.num_blocks - kept_free)
        return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "request %d failed without need: \"%s\"", r->number, request->error->text);
}

enum status model_check_end(struct scheduler_model *m, struct model_request *r, int32_t index, struct error *err)
{
    const struct sequence *seq = &r->request->sequences[index];
    switch (seq->finish_reason) {
    case FINISH_ABORT:
        m->totals.aborts++;
        if (r->ended[index]) return STATUS_OK;
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d ended with abort, but was not aborted",
                         r->number, index);
    case FINISH_ERROR:
        m->totals.errors++;
        return r->damaged[index] ? STATUS_OK : check_error(m, r, err);
    case FINISH_STOP:
    case FINISH_LENGTH:
        *(seq->finish_reason == FINISH_STOP ? &m->totals.stops : &m->totals.lengths) += 1;
        if (r->ended[index] ||
            (seq->finish_reason == r->alone_reason[index] && seq->num_tokens == r->alone_length[index]))
            return STATUS_OK;
        break;
    case FINISH_NONE:
        break;
    }
    return error_set(
        err, STATUS_INTERNAL, "request %d sequence %d ended with %s and %d tokens; alone, with %s and %d", r->number,
        index, seq->finish_reason == FINISH_NONE ? "none" : finish_reason_name(seq->finish_reason), seq->num_tokens,
        r->alone_reason[index] == FINISH_STOP ? "stop" : "length", r->alone_length[index]);
}
