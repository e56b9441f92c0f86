#include "scheduler/block_manager.h"

#include <string.h>

/* ---- groups ---- */

static int32_t blocks_for(const struct block_manager *m, int32_t group, int32_t num_tokens)
{
    return batch_num_blocks(&m->limits, group, num_tokens);
}

static int32_t block_size_of(const struct block_manager *m, int32_t group)
{
    return batch_block_size(&m->limits, group);
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The first block of the group that a sequence with so many computed tokens still reads. */
static int32_t first_read(const struct block_manager *m, int32_t group, int32_t num_computed)
{
    return batch_first_block(&m->limits, group, num_computed);
}

/* A prefix is a block of block_size tokens longer than the one before. So there may be several prefixes for a block of
 * a group whose blocks are larger. */
static int32_t num_prefixes(const struct batch_limits *limits, int32_t num_blocks)
{
    const int64_t most = INT32_MAX / 2,
                  count = (int64_t)num_blocks * batch_largest_block_size(limits) / limits->block_size;
    return count < most || count == num_blocks ? (int32_t)count : (int32_t)most;
}

enum status block_manager_init(struct block_manager *m, int32_t num_blocks, const struct batch_limits *limits,
                               bool caching, struct error *err)
{
    *m = (struct block_manager){.limits = *limits, .caching = caching, .watermark = batch_watermark(num_blocks)};
    enum status status = block_pool_init(&m->pool, 1, num_blocks, err);
    if (status == STATUS_OK) status = block_pool_init(&m->host, m->pool.end, 0, err);
    if (status == STATUS_OK && caching)
        status =
            prefix_cache_init(&m->cache, num_prefixes(limits, num_blocks), limits->block_size, limits->num_groups, err);
    if (status == STATUS_OK) status = state_pool_init(&m->states, limits, caching ? &m->cache : NULL, err);
    if (status != STATUS_OK) block_manager_free(m);
    return status;
}

void block_manager_free(struct block_manager *m)
{
    block_pool_free(&m->pool);
    block_pool_free(&m->host);
    state_pool_free(&m->states);
    prefix_cache_free(&m->cache);
    *m = (struct block_manager){0};
}

/* ---- single blocks ---- */

static struct block_pool *pool_of(struct block_manager *m, int32_t block)
{
    return block < m->pool.end ? &m->pool : &m->host;
}

/* The block of this number, of the device or of the host. */
static struct block *block_of(const struct block_manager *m, int32_t block)
{
    return &(block < m->pool.end ? &m->pool : &m->host)->blocks[block];
}

static bool in_pool(const struct block_pool *pool, int32_t block)
{
    return block >= pool->first && block < pool->end;
}

/* The group of a block that the prefix has; -1: it does not have it. */
static int32_t group_in_prefix(const struct block_manager *m, int32_t block, int32_t prefix)
{
    if (!m->caching || prefix < 0 || prefix >= m->cache.capacity) return -1;
    for (int32_t g = 0; g < m->limits.num_groups; g++)
        if (prefix_cache_block(&m->cache, prefix, g) == block) return g;
    return -1;
}

/* Takes the block from the prefix that has it, and the snapshot with it. */
static void detach(struct block_manager *m, int32_t prefix, int32_t block)
{
    state_pool_drop_snapshot(&m->states, prefix);
    prefix_cache_detach(&m->cache, prefix, block);
}

/* The caller has made sure that enough blocks are free, so an error means that the pool is inconsistent. */
static enum status take_block(struct block_manager *m, struct block_pool *pool, int32_t *block, struct error *err)
{
    int32_t evicted;
    *block = block_pool_take(pool, &evicted);
    if (*block == BLOCK_NONE)
        return error_set(err, STATUS_INTERNAL,
                         "%d blocks are counted as free, but none can be taken (the free list begins with block %d)",
                         pool->num_free, pool->head);
    if (evicted == PREFIX_NONE) return STATUS_OK;
    if (group_in_prefix(m, *block, evicted) < 0)
        return error_set(err, STATUS_INTERNAL, "block %d is marked as cached, but is not in the prefix cache", *block);
    detach(m, evicted, *block);
    m->evictions++;
    return STATUS_OK;
}

static enum status release_block(struct block_manager *m, int32_t block, struct error *err)
{
    struct block_pool *pool = pool_of(m, block);
    const enum status status = block_pool_release(pool, block, err);
    if (status == STATUS_OK && pool == &m->pool && pool->blocks[block].ref_count == 0) m->gains++;
    return status;
}

static enum status too_few(const struct block_manager *m, int32_t needed, struct error *err)
{
    return error_set(err, STATUS_INTERNAL, "a sequence needs %d blocks, but %d are free", needed, m->pool.num_free);
}

/* Takes blocks until the table has `end` entries. */
static enum status extend_table(struct block_manager *m, struct block_table *table, int32_t end, struct error *err)
{
    enum status status = STATUS_OK;
    while (table->num_blocks < end && status == STATUS_OK) {
        status = take_block(m, &m->pool, &table->blocks[table->num_blocks], err);
        if (status == STATUS_OK) table->num_blocks++;
    }
    return status;
}

/* ---- admission ---- */

/* The tokens that a sequence needs blocks for when it starts. Other sequences of its request will start from the blocks
 * of the prompt, so it computes the prompt first. */
static int32_t first_tokens(const struct sequence *seq)
{
    return request_num_unfinished(seq->request) > 1 ? seq->prompt_len : seq->num_tokens;
}

/* What the prefix cache has of a sequence. */
struct hits {
    int32_t length;       /* of the longest prefix that can be shared, in units of block_size tokens */
    int32_t prefix;       /* that prefix; PREFIX_NONE if length is 0 */
    int32_t shared, idle; /* blocks to share, of all groups; of those, without a holder */
    /* With states: */
    int32_t state; /* the slot of the snapshot of that prefix */
    int32_t parting,
        parting_prefix; /* the longest prefix that could be shared if it had a snapshot; 0: there is none */
    bool pending;       /* a longer one than `length` has a snapshot soon */
};

/* The blocks of the group that a prefix of this length, in units of block_size tokens, fills. */
static int32_t blocks_of_prefix(const struct block_manager *m, int32_t group, int32_t length)
{
    return length >> m->limits.block_shifts[group];
}

/* The index of the group's block that ends with a prefix of this length; -1: it ends inside a block. */
static int32_t last_of_prefix(const struct block_manager *m, int32_t group, int32_t length)
{
    const int32_t count = blocks_of_prefix(m, group, length);
    return count << m->limits.block_shifts[group] == length ? count - 1 : -1;
}

/* Notes the blocks that end with a prefix of this length in the tables, and in run[] how many of each group follow one
 * another up to here. False if nothing longer can be shared: full attention lacks a block. */
static bool note_blocks(const struct block_manager *m, const struct sequence *seq, int32_t prefix, int32_t length,
                        int32_t *run)
{
    for (int32_t g = 0; g < m->limits.num_groups; g++) {
        const int32_t index = last_of_prefix(m, g, length);
        if (index < 0) continue;
        const int32_t block = prefix_cache_block(&m->cache, prefix, g);
        if (!block && m->limits.windows[g] == 0) return false;
        seq->tables[g].blocks[index] = block;
        run[g] = block ? run[g] + 1 : 0;
    }
    return true;
}

/* Whether a prefix of this length ends a block of each group, and each group has all the blocks that a sequence reads
 * which goes on after it. */
static bool can_share(const struct block_manager *m, int32_t length, const int32_t *run)
{
    for (int32_t g = 0; g < m->limits.num_groups; g++) {
        const int32_t last = last_of_prefix(m, g, length);
        if (last < 0 || run[g] < last + 1 - first_read(m, g, length * m->limits.block_size)) return false;
    }
    return true;
}

/* Whether the prefix of this length has a snapshot, where layers have states. Otherwise notes what it could be. */
static bool has_snapshot(const struct block_manager *m, int32_t prefix, int32_t length, struct hits *hits)
{
    if (!state_pool_is_used(&m->states)) return true;
    const int32_t snapshot = prefix_cache_snapshot(&m->cache, prefix);
    hits->pending = snapshot == SNAPSHOT_PENDING || (hits->pending && snapshot <= 0);
    hits->parting = snapshot > 0 ? 0 : length;
    hits->parting_prefix = prefix;
    if (snapshot > 0) hits->state = snapshot;
    return snapshot > 0;
}

/* Looks up the blocks of a sequence that holds none. The last token is left out, because its logits must be computed;
 * so are tokens whose logits prompt_logprobs lack. The sequence's tables, though empty, get the blocks of the hits:
 * entries first_read .. blocks_of_prefix - 1 are valid. */
static struct hits find_hits(const struct block_manager *m, const struct sequence *seq)
{
    struct hits hits = {.prefix = PREFIX_NONE};
    int32_t run[KV_MAX_GROUPS] = {0};
    const int32_t size = m->limits.block_size,
                  most = m->caching ? least(first_tokens(seq) - 1, request_most_cached(seq->request)) / size : 0;
    int32_t prefix = PREFIX_NONE;
    if (most > 0) prefix = prefix_cache_root(seq->request->cache_namespace, seq->request->cache_salt);
    for (int32_t i = 0; i < most; i++) {
        prefix = prefix_cache_find(&m->cache, prefix, seq->tokens + (size_t)i * (size_t)size);
        if (prefix == PREFIX_NONE || !note_blocks(m, seq, prefix, i + 1, run)) break;
        if (!can_share(m, i + 1, run) || !has_snapshot(m, prefix, i + 1, &hits)) continue;
        hits.length = i + 1;
        hits.prefix = prefix;
    }
    for (int32_t g = 0; g < m->limits.num_groups; g++)
        for (int32_t i = first_read(m, g, hits.length * size); i < blocks_of_prefix(m, g, hits.length); i++) {
            hits.shared++;
            hits.idle += m->pool.blocks[seq->tables[g].blocks[i]].ref_count == 0;
        }
    return hits;
}

static int32_t blocks_required(const struct block_manager *m, const struct request *request,
                               const struct sequence *first)
{
    int32_t required = batch_sequence_blocks(&m->limits, first->num_tokens);
    for (int32_t i = first->index + 1; i < request->num_sequences; i++) {
        const struct sequence *seq = &request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED || seq->num_tokens == seq->prompt_len) continue;
        for (int32_t g = 0; g < m->limits.num_groups; g++) {
            const int32_t own = blocks_for(m, g, seq->num_tokens) - seq->prompt_len / block_size_of(m, g);
            required += least(own, batch_group_blocks(&m->limits, g, seq->num_tokens));
        }
    }
    return required;
}

/* A gain is a block whose count falls to 0, or one that a prefix gets. A request lacks `missing` blocks: it waits for
 * as many gains. It does not wait for good: missing <= total - free, and each of those blocks is a gain once released.
 */
enum allocate_result block_manager_can_allocate(struct block_manager *m, struct request *request, int32_t *required)
{
    const struct sequence *first = request_first_unfinished(request);
    *required = blocks_required(m, request, first);
    const int32_t spare = block_pool_num_total(&m->pool) - *required;
    int32_t watermark = m->watermark;
    if (request->num_preemptions > 0 && spare < watermark) watermark = spare > 0 ? spare : 0;
    if (spare < watermark) return ALLOCATE_NEVER;
    if (m->gains < request->retry_gains) return ALLOCATE_LATER;
    int32_t missing = *required + watermark - m->pool.num_free;
    if (missing <= 0 && !state_pool_is_used(&m->states)) return ALLOCATE_OK;
    const struct hits hits = find_hits(m, first);
    if (hits.pending) return ALLOCATE_LATER;
    missing -= hits.shared - hits.idle;
    if (missing <= 0) return ALLOCATE_OK;
    request->retry_gains = m->gains + missing;
    return ALLOCATE_LATER;
}

/* Entries of the group's table once the sequence has started with this prefix. */
static int32_t first_entries(const struct block_manager *m, int32_t group, const struct sequence *seq,
                             const struct hits *hits)
{
    const int32_t all = first_tokens(seq), found = hits->length * m->limits.block_size;
    if (m->limits.windows[group] == 0 || all - found <= m->limits.max_num_tokens) return blocks_for(m, group, all);
    return blocks_for(m, group, found + m->limits.max_num_tokens);
}

/* The table holds the blocks of the hits already. */
static enum status share_hits(struct block_manager *m, int32_t group, struct block_table *table, int32_t length,
                              struct error *err)
{
    enum status status = STATUS_OK;
    table->first = first_read(m, group, length * m->limits.block_size);
    table->num_blocks = blocks_of_prefix(m, group, length);
    memset(table->blocks, 0, (size_t)table->first * sizeof *table->blocks);
    for (int32_t i = table->first; i < table->num_blocks && status == STATUS_OK; i++)
        status = block_pool_share(&m->pool, table->blocks[i], block_size_of(m, group), err);
    return status;
}

static void set_prefix(struct block_manager *m, struct sequence *seq, int32_t prefix, int32_t num_hashed)
{
    if (m->caching) {
        prefix_cache_pin(&m->cache, prefix);
        prefix_cache_unpin(&m->cache, seq->prefix);
    }
    seq->prefix = prefix;
    seq->num_hashed = num_hashed;
}

enum status block_manager_allocate(struct block_manager *m, struct sequence *seq, struct error *err)
{
    const struct hits hits = find_hits(m, seq);
    const int32_t num_groups = m->limits.num_groups;
    int32_t taken = 0;
    for (int32_t g = 0; g < num_groups; g++)
        taken += first_entries(m, g, seq, &hits) - blocks_of_prefix(m, g, hits.length);
    if (m->pool.num_free - hits.idle < taken) return too_few(m, taken, err);
    enum status status = STATUS_OK;
    for (int32_t g = 0; g < num_groups && status == STATUS_OK; g++)
        status = share_hits(m, g, &seq->tables[g], hits.length, err);
    if (status != STATUS_OK) return status;
    set_prefix(m, seq, hits.prefix, hits.length);
    if (hits.state != STATE_SLOT_NONE) state_pool_start(&m->states, seq, hits.state);
    if (hits.parting > 0) state_pool_await(&m->states, seq, hits.parting_prefix, hits.parting * m->limits.block_size);
    seq->num_computed = hits.length * m->limits.block_size;
    seq->num_writable = 0;
    memset(seq->num_uploaded, 0, sizeof seq->num_uploaded);
    for (int32_t g = 0; g < num_groups && status == STATUS_OK; g++)
        status = extend_table(m, &seq->tables[g], first_entries(m, g, seq, &hits), err);
    return status;
}

/* ---- appending ---- */

/* The first boundary of states after so many tokens, or there: behind it a sequence goes on in another slot. */
static int32_t next_boundary(const struct block_manager *m, int32_t num_tokens)
{
    const int32_t unit = m->states.boundary;
    return state_pool_is_used(&m->states) ? (num_tokens + unit - 1) / unit * unit : INT32_MAX;
}

/* The tokens that a sequence can compute before a table changes, once blocks for num_tokens are its own: those of these
 * blocks, as long as none leaves a window. With states, those up to the next boundary. */
static int32_t writable_tokens(const struct block_manager *m, const struct sequence *seq, int32_t num_tokens)
{
    int64_t count = INT32_MAX;
    for (int32_t g = 0; g < m->limits.num_groups; g++) {
        const int64_t size = block_size_of(m, g), all = blocks_for(m, g, num_tokens) * size;
        if (all < count) count = all;
        if (m->limits.windows[g] == 0) continue;
        const int64_t kept = batch_position_after(&m->limits, g, seq->tables[g].first);
        if (kept < count) count = kept;
    }
    return least((int32_t)count, next_boundary(m, num_tokens));
}

/* Blocks that the growth takes of one group, at their counts less their notes, which are the holders that go. */
static int32_t growth_cost(struct block_manager *m, int32_t group, const struct growth *growth)
{
    const struct block_table *t = &growth->seq->tables[group];
    const int32_t needed = blocks_for(m, group, growth->num_tokens), end = least(needed, t->num_blocks);
    int32_t cost = needed - end;
    for (int32_t i = growth->seq->num_computed / block_size_of(m, group); i < end; i++) {
        struct block *b = &m->pool.blocks[t->blocks[i]];
        if (b->ref_count - b->note == 1) continue;
        b->note++;
        cost++;
    }
    return cost;
}

/* Blocks that become free when those that have left the window are given back. */
static int32_t trim_gain(struct block_manager *m, int32_t group, const struct sequence *seq)
{
    const struct block_table *t = &seq->tables[group];
    int32_t gain = 0;
    for (int32_t i = t->first; i < first_read(m, group, seq->num_computed); i++) {
        struct block *b = &m->pool.blocks[t->blocks[i]];
        gain += ++b->note == b->ref_count;
    }
    return gain;
}

/* Zeros what the two noted. */
static void clear_notes(struct block_manager *m, int32_t group, const struct growth *growth)
{
    const struct block_table *t = &growth->seq->tables[group];
    const int32_t computed = growth->seq->num_computed,
                  end = least(blocks_for(m, group, growth->num_tokens), t->num_blocks);
    for (int32_t i = t->first; i < first_read(m, group, computed); i++) block_of(m, t->blocks[i])->note = 0;
    for (int32_t i = computed / block_size_of(m, group); i < end; i++) block_of(m, t->blocks[i])->note = 0;
}

int32_t block_manager_append_cost(struct block_manager *m, const struct growth *growths, int32_t count)
{
    int32_t cost = 0, most = 0, noted = count; /* the first growth of which something is noted */
    for (int32_t i = 0; i < count; i++) {
        if (growths[i].num_tokens <= growths[i].seq->num_writable) continue;
        noted = least(noted, i);
        for (int32_t g = 0; g < m->limits.num_groups; g++) cost -= trim_gain(m, g, growths[i].seq);
        for (int32_t g = 0; g < m->limits.num_groups; g++) cost += growth_cost(m, g, &growths[i]);
        if (cost > most) most = cost;
    }
    for (int32_t i = noted; i < count; i++)
        for (int32_t g = 0; g < m->limits.num_groups && growths[i].num_tokens > growths[i].seq->num_writable; g++)
            clear_notes(m, g, &growths[i]);
    return most;
}

/* Gives back the blocks that have left the window, the last one first. */
static enum status trim_table(struct block_manager *m, int32_t group, const struct sequence *seq, struct error *err)
{
    struct block_table *t = &seq->tables[group];
    const int32_t first = first_read(m, group, seq->num_computed);
    enum status status = STATUS_OK;
    for (int32_t i = first - 1; i >= t->first && status == STATUS_OK; i--) {
        status = release_block(m, t->blocks[i], err);
        t->blocks[i] = 0;
    }
    t->first = first;
    return status;
}

/* Replaces a block that others hold. It is copied if it has tokens of this sequence. */
static enum status copy_on_write(struct block_manager *m, int32_t group, struct sequence *seq, int32_t index,
                                 struct block_pair *copies, int32_t *num_copies, struct error *err)
{
    const int32_t old = seq->tables[group].blocks[index];
    int32_t new;
    const enum status status = take_block(m, &m->pool, &new, err);
    if (status != STATUS_OK) return status;
    m->pool.blocks[old].ref_count--; /* others hold it: it does not become free */
    seq->tables[group].blocks[index] = new;
    seq->num_uploaded[group] = least(seq->num_uploaded[group], index);
    if (index * block_size_of(m, group) >= seq->num_computed) return STATUS_OK;
    m->pool.blocks[new].filled = m->pool.blocks[old].filled;
    copies[(*num_copies)++] = (struct block_pair){old, new};
    return STATUS_OK;
}

static enum status grow_table(struct block_manager *m, int32_t group, struct sequence *seq, int32_t num_tokens,
                              struct block_pair *copies, int32_t *num_copies, struct error *err)
{
    struct block_table *t = &seq->tables[group];
    const int32_t needed = blocks_for(m, group, num_tokens), end = least(needed, t->num_blocks);
    enum status status = STATUS_OK;
    for (int32_t i = seq->num_computed / block_size_of(m, group); i < end && status == STATUS_OK; i++)
        if (m->pool.blocks[t->blocks[i]].ref_count > 1)
            status = copy_on_write(m, group, seq, i, copies, num_copies, err);
    return status == STATUS_OK ? extend_table(m, t, needed, err) : status;
}

enum status block_manager_append(struct block_manager *m, struct sequence *seq, int32_t num_tokens,
                                 struct block_pair *copies, int32_t *num_copies, struct error *err)
{
    if (num_tokens <= seq->num_writable) return STATUS_OK;
    const int32_t cost = block_manager_append_cost(m, &(struct growth){seq, num_tokens}, 1);
    if (cost > m->pool.num_free) return too_few(m, cost, err);
    enum status status = STATUS_OK;
    for (int32_t g = 0; g < m->limits.num_groups && status == STATUS_OK; g++) status = trim_table(m, g, seq, err);
    for (int32_t g = 0; g < m->limits.num_groups && status == STATUS_OK; g++)
        status = grow_table(m, g, seq, num_tokens, copies, num_copies, err);
    seq->num_writable = writable_tokens(m, seq, num_tokens);
    return status;
}

/* The last block first, as in a release. */
static enum status rollback_table(struct block_manager *m, int32_t group, struct sequence *seq, int32_t num_computed,
                                  struct error *err)
{
    struct block_table *t = &seq->tables[group];
    const int32_t size = block_size_of(m, group), kept = blocks_for(m, group, num_computed);
    enum status status = STATUS_OK;
    for (; t->num_blocks > kept && t->num_blocks > t->first && status == STATUS_OK; t->num_blocks--)
        status = release_block(m, t->blocks[t->num_blocks - 1], err);
    const int32_t filled = num_computed - (kept - 1) * size;
    if (filled < size && kept > t->first && status == STATUS_OK)
        status = block_pool_unfill(&m->pool, t->blocks[kept - 1], filled, err);
    seq->num_uploaded[group] = least(seq->num_uploaded[group], t->num_blocks);
    seq->num_writable = least(seq->num_writable, t->num_blocks * size);
    return status;
}

enum status block_manager_rollback(struct block_manager *m, struct sequence *seq, int32_t num_computed,
                                   struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t g = 0; g < m->limits.num_groups && status == STATUS_OK; g++)
        status = rollback_table(m, g, seq, num_computed, err);
    seq->num_computed = num_computed;
    seq->num_writable = least(seq->num_writable, next_boundary(m, num_computed));
    return status;
}

enum status block_manager_fork(struct block_manager *m, struct sequence *parent, struct sequence *child,
                               struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t g = 0; g < m->limits.num_groups && status == STATUS_OK; g++) {
        const struct block_table *from = &parent->tables[g];
        struct block_table *to = &child->tables[g];
        memcpy(to->blocks, from->blocks, (size_t)from->num_blocks * sizeof *to->blocks);
        to->num_blocks = from->num_blocks;
        to->first = from->first;
        for (int32_t i = to->first; i < to->num_blocks && status == STATUS_OK; i++)
            status = block_pool_share(pool_of(m, to->blocks[i]), to->blocks[i], block_size_of(m, g), err);
    }
    parent->num_writable = child->num_writable = 0;
    child->num_computed = parent->num_computed;
    child->num_cached = parent->num_cached;
    memset(child->num_uploaded, 0, sizeof child->num_uploaded);
    set_prefix(m, child, parent->prefix, parent->num_hashed);
    state_pool_fork(&m->states, parent, child);
    return status;
}

/* ---- the prefix cache ---- */

/* The prefix, of this length, gets the blocks that end with it, of the groups that it lacks. A block has one prefix for
 * good: one that it shares with a sibling may have it already. */
static void attach_blocks(struct block_manager *m, const struct sequence *seq, int32_t length, int32_t prefix)
{
    for (int32_t g = 0; g < m->limits.num_groups; g++) {
        const int32_t index = last_of_prefix(m, g, length), block = index < 0 ? 0 : seq->tables[g].blocks[index];
        if (!block || m->pool.blocks[block].prefix != PREFIX_NONE || prefix_cache_block(&m->cache, prefix, g)) continue;
        prefix_cache_attach(&m->cache, prefix, g, block);
        block_pool_set_prefix(&m->pool, block, prefix);
        m->gains++;
    }
}

/* The prefix cache can no longer find the block. */
static void forget(struct block_manager *m, int32_t block)
{
    detach(m, m->pool.blocks[block].prefix, block);
    block_pool_set_prefix(&m->pool, block, PREFIX_NONE);
}

/* Makes a number of the prefix cache free by forgetting the oldest cached block, if that does it. */
static bool make_number(struct block_manager *m)
{
    const int32_t oldest = m->pool.oldest;
    if (oldest == BLOCK_NONE || !prefix_cache_has_one_reference(&m->cache, m->pool.blocks[oldest].prefix)) return false;
    forget(m, oldest);
    return true;
}

static int32_t insert_prefix(struct block_manager *m, int32_t parent, const int32_t *tokens)
{
    const int32_t prefix = prefix_cache_insert(&m->cache, parent, tokens);
    return prefix == PREFIX_NONE && make_number(m) ? prefix_cache_insert(&m->cache, parent, tokens) : prefix;
}

/* A cache without room ends the loop: the blocks enter it at a later call, or never. */
void block_manager_enter_blocks(struct block_manager *m, struct sequence *seq)
{
    const int32_t size = m->limits.block_size, known = least(seq->num_computed, seq->num_tokens);
    const struct request *request = seq->request;
    if (seq->num_hashed == 0) set_prefix(m, seq, prefix_cache_root(request->cache_namespace, request->cache_salt), 0);
    while ((seq->num_hashed + 1) * size <= known) {
        const int32_t length = seq->num_hashed + 1;
        const int32_t prefix = insert_prefix(m, seq->prefix, seq->tokens + (size_t)seq->num_hashed * (size_t)size);
        if (prefix == PREFIX_NONE) break;
        set_prefix(m, seq, prefix, length);
        attach_blocks(m, seq, length, prefix);
    }
    if (seq->num_hashed == 0) set_prefix(m, seq, PREFIX_NONE, 0);
}

void block_manager_forget(struct block_manager *m, struct sequence *seq, int32_t token)
{
    state_pool_forget(&m->states, seq);
    for (int32_t g = 0; m->caching && g < m->limits.num_groups; g++) {
        const struct block_table *table = &seq->tables[g];
        for (int32_t i = token / block_size_of(m, g); i < table->num_blocks; i++)
            if (i >= table->first && m->pool.blocks[table->blocks[i]].prefix != PREFIX_NONE)
                forget(m, table->blocks[i]);
    }
}

void block_manager_reset_cache(struct block_manager *m)
{
    for (int32_t i = 1; m->caching && i < m->pool.end; i++)
        if (m->pool.blocks[i].prefix != PREFIX_NONE) forget(m, i);
}

/* ---- swapping ---- */

enum status block_manager_grow_host(struct block_manager *m, int32_t num_blocks, struct error *err)
{
    return block_pool_grow(&m->host, num_blocks, err);
}

/* Counts the blocks of the sequence that are still read and have no note. It notes them, or forgets them. */
static int32_t note_sequence(struct block_manager *m, const struct sequence *seq, bool note)
{
    int32_t count = 0;
    for (int32_t g = 0; g < m->limits.num_groups; g++)
        for (int32_t i = first_read(m, g, seq->num_computed); i < seq->tables[g].num_blocks; i++) {
            struct block *b = block_of(m, seq->tables[g].blocks[i]);
            count += b->note == 0;
            b->note = note;
        }
    return count;
}

/* Blocks that the request's sequences hold and still read, a shared one counted once. */
static int32_t num_distinct(struct block_manager *m, const struct request *request)
{
    int32_t count = 0;
    for (int32_t i = 0; i < request->num_sequences; i++) count += note_sequence(m, &request->sequences[i], true);
    for (int32_t i = 0; i < request->num_sequences; i++) note_sequence(m, &request->sequences[i], false);
    return count;
}

int32_t block_manager_swap_out_cost(struct block_manager *m, const struct request *request)
{
    return num_distinct(m, request);
}

/* Blocks that a sequence may take of a group once it is back: one to grow into or, if it was preempted before it had
 * computed all its tokens, those that it lacks and one for a copy-on-write. */
static int32_t spare_blocks(const struct block_manager *m, const struct sequence *seq, int32_t group)
{
    const int32_t missing = blocks_for(m, group, seq->num_tokens) - seq->tables[group].num_blocks;
    if (missing <= 0 || seq->num_tokens - seq->num_computed <= 1) return 1;
    return least(missing + 1, batch_group_blocks(&m->limits, group, seq->num_tokens));
}

enum allocate_result block_manager_can_swap_in(struct block_manager *m, const struct request *request)
{
    int32_t required = num_distinct(m, request);
    for (int32_t i = 0; i < request->num_sequences; i++)
        for (int32_t g = 0; g < m->limits.num_groups && request->sequences[i].status != SEQUENCE_FINISHED; g++)
            required += spare_blocks(m, &request->sequences[i], g);
    if (block_pool_num_total(&m->pool) - required < m->watermark) return ALLOCATE_NEVER;
    return m->pool.num_free - required >= m->watermark ? ALLOCATE_OK : ALLOCATE_LATER;
}

/* Blocks on their way from one pool to the other: the note of each is its new one. */
struct move {
    struct block_pool *from, *to;
    struct block_pair *pairs;
    int32_t *num_pairs;
};

/* Chooses where the sequence's blocks go. Pairs are in the order of the table, so that neighbouring blocks are copied
 * together. */
static enum status choose_places(struct block_manager *m, int32_t group, const struct block_table *t,
                                 const struct move *move, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = t->first; i < t->num_blocks && status == STATUS_OK; i++) {
        const int32_t block = t->blocks[i];
        if (!in_pool(move->from, block)) continue;
        int32_t place = block_of(m, block)->note;
        if (place) {
            status = block_pool_share(move->to, place, block_size_of(m, group), err);
            continue;
        }
        status = take_block(m, move->to, &place, err);
        if (status != STATUS_OK) return status;
        block_of(m, block)->note = place;
        move->to->blocks[place].filled = move->from->blocks[block].filled;
        move->pairs[(*move->num_pairs)++] = (struct block_pair){block, place};
    }
    return status;
}

/* The last block first, as in a release. */
static enum status move_table(struct block_manager *m, const struct block_table *t, const struct move *move,
                              struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = t->num_blocks - 1; i >= t->first && status == STATUS_OK; i--) {
        const int32_t block = t->blocks[i];
        if (!in_pool(move->from, block)) continue;
        t->blocks[i] = block_of(m, block)->note;
        status = release_block(m, block, err);
    }
    return status;
}

static enum status move_blocks(struct block_manager *m, struct request *request, const struct move *move,
                               struct error *err)
{
    const int32_t first = *move->num_pairs;
    struct sequence *seqs = request->sequences;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < request->num_sequences; i++)
        for (int32_t g = 0; g < m->limits.num_groups && status == STATUS_OK; g++)
            status = choose_places(m, g, &seqs[i].tables[g], move, err);
    for (int32_t i = 0; i < request->num_sequences; i++)
        for (int32_t g = 0; g < m->limits.num_groups && status == STATUS_OK; g++)
            status = move_table(m, &seqs[i].tables[g], move, err);
    for (int32_t i = first; i < *move->num_pairs; i++) { /* a block that is free by now has no note */
        struct block *b = &move->from->blocks[move->pairs[i].source];
        if (b->ref_count > 0) b->note = 0;
    }
    for (int32_t i = 0; i < request->num_sequences; i++) {
        set_prefix(m, &seqs[i], PREFIX_NONE, 0);
        seqs[i].num_writable = 0;
        memset(seqs[i].num_uploaded, 0, sizeof seqs[i].num_uploaded);
    }
    return status;
}

/* Blocks that have left their window are not moved: they could become free in the very step that brings them back. */
enum status block_manager_swap_out(struct block_manager *m, struct request *request, struct block_pair *pairs,
                                   int32_t *num_pairs, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < request->num_sequences; i++)
        for (int32_t g = 0; g < m->limits.num_groups && status == STATUS_OK; g++)
            status = trim_table(m, g, &request->sequences[i], err);
    if (status != STATUS_OK) return status;
    return move_blocks(m, request, &(struct move){&m->pool, &m->host, pairs, num_pairs}, err);
}

/* Replaces the host blocks of a sequence that is about to return by the device blocks of the same tokens, where the
 * prefix cache finds them. */
static enum status share_found(struct block_manager *m, struct sequence *seq, struct error *err)
{
    const int32_t size = m->limits.block_size, full = least(seq->num_computed, seq->num_tokens) / size;
    int32_t prefix = PREFIX_NONE;
    if (m->caching) prefix = prefix_cache_root(seq->request->cache_namespace, seq->request->cache_salt);
    for (int32_t i = 0; i < full && prefix != PREFIX_NONE; i++) {
        prefix = prefix_cache_find(&m->cache, prefix, seq->tokens + (size_t)i * (size_t)size);
        for (int32_t g = 0; g < m->limits.num_groups && prefix != PREFIX_NONE; g++) {
            const int32_t index = last_of_prefix(m, g, i + 1), block = index < 0 ? 0 : seq->tables[g].blocks[index];
            const int32_t found = prefix_cache_block(&m->cache, prefix, g);
            if (!block || !found) continue;
            enum status status = block_pool_share(&m->pool, found, block_size_of(m, g), err);
            if (status == STATUS_OK) status = release_block(m, block, err);
            if (status != STATUS_OK) return status;
            seq->tables[g].blocks[index] = found;
        }
    }
    return STATUS_OK;
}

enum status block_manager_swap_in(struct block_manager *m, struct request *request, struct block_pair *pairs,
                                  int32_t *num_pairs, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < request->num_sequences && status == STATUS_OK; i++)
        if (request->sequences[i].status != SEQUENCE_FINISHED) status = share_found(m, &request->sequences[i], err);
    if (status != STATUS_OK) return status;
    return move_blocks(m, request, &(struct move){&m->host, &m->pool, pairs, num_pairs}, err);
}

/* ---- release and checks ---- */

enum status block_manager_release(struct block_manager *m, struct sequence *seq, struct error *err)
{
    enum status status = STATUS_OK;
    int32_t last = 0; /* in units of limits.block_size, as i */
    state_pool_release(&m->states, seq);
    for (int32_t g = 0; g < m->limits.num_groups; g++) {
        const int32_t end = seq->tables[g].num_blocks << m->limits.block_shifts[g];
        if (end > last) last = end;
    }
    for (int32_t i = last - 1; i >= 0; i--)
        for (int32_t g = 0; g < m->limits.num_groups; g++) {
            const struct block_table *t = &seq->tables[g];
            const int32_t index = i >> m->limits.block_shifts[g];
            if (index < t->first || index >= t->num_blocks || index << m->limits.block_shifts[g] != i) continue;
            const enum status released = release_block(m, t->blocks[index], status == STATUS_OK ? err : NULL);
            if (status == STATUS_OK) status = released;
        }
    for (int32_t g = 0; g < m->limits.num_groups; g++) seq->tables[g].num_blocks = seq->tables[g].first = 0;
    memset(seq->num_uploaded, 0, sizeof seq->num_uploaded);
    seq->num_computed = seq->num_writable = 0;
    set_prefix(m, seq, PREFIX_NONE, 0);
    return status;
}

static enum status check_counts(const struct block_manager *m, const struct block_pool *pool, struct error *err)
{
    for (int32_t i = pool->first; i < pool->end; i++) {
        const struct block *b = &pool->blocks[i];
        if (b->ref_count > 0 && b->ref_count != b->note)
            return error_set(err, STATUS_INTERNAL, "block %d has the count %d, but %d table entries name it", i,
                             b->ref_count, b->note);
        if (b->prefix == PREFIX_NONE) continue;
        const int32_t group = pool == &m->pool ? group_in_prefix(m, i, b->prefix) : -1;
        if (group < 0) return error_set(err, STATUS_INTERNAL, "block %d: the pool and the prefix cache disagree", i);
        if (b->ref_count > 0 && b->filled != block_size_of(m, group))
            return error_set(err, STATUS_INTERNAL, "block %d can be found, but %d of its %d slots are written", i,
                             b->filled, block_size_of(m, group));
    }
    return STATUS_OK;
}

/* Counts the entries that name each block, in its note. */
static enum status count_entries(const struct block_manager *m, const struct sequence *seq, struct error *err)
{
    for (int32_t g = 0; g < m->limits.num_groups; g++)
        for (int32_t i = 0; i < seq->tables[g].num_blocks; i++) {
            const int32_t block = seq->tables[g].blocks[i];
            if (block < 0 || block >= m->host.end || (block == 0) != (i < seq->tables[g].first))
                return error_set(err, STATUS_INTERNAL, "entry %d of a block table, whose window begins at %d, is %d", i,
                                 seq->tables[g].first, block);
            if (block == 0) continue;
            struct block *b = block_of(m, block);
            if (b->ref_count <= 0)
                return error_set(err, STATUS_INTERNAL, "a table entry names block %d, which is free", block);
            b->note++;
        }
    return STATUS_OK;
}

static void clear_pool_notes(const struct block_pool *pool)
{
    for (int32_t i = pool->first; i < pool->end; i++)
        if (pool->blocks[i].ref_count > 0) pool->blocks[i].note = 0;
}

static enum status count_requests(const struct block_manager *m, const struct request *first, struct error *err)
{
    enum status status = STATUS_OK;
    for (const struct request *r = first; r; r = r->next)
        for (int32_t i = 0; i < r->num_sequences && status == STATUS_OK; i++)
            status = count_entries(m, &r->sequences[i], err);
    return status;
}

enum status block_manager_check(const struct block_manager *m, const struct request *running,
                                const struct request *swapped, struct error *err)
{
    enum status status = block_pool_check(&m->pool, err);
    if (status == STATUS_OK) status = block_pool_check(&m->host, err);
    if (status == STATUS_OK && m->caching) status = prefix_cache_check(&m->cache, err);
    if (status == STATUS_OK) status = state_pool_check(&m->states, err);
    if (status == STATUS_OK) status = count_requests(m, running, err);
    if (status == STATUS_OK) status = count_requests(m, swapped, err);
    if (status == STATUS_OK) status = check_counts(m, &m->pool, err);
    if (status == STATUS_OK) status = check_counts(m, &m->host, err);
    clear_pool_notes(&m->pool);
    clear_pool_notes(&m->host);
    return status;
}
