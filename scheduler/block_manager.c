#include "scheduler/block_manager.h"

#include <stdlib.h>
#include <string.h>

static int32_t blocks_for(const struct block_manager *m, int32_t num_tokens)
{
    return (num_tokens + m->block_size - 1) / m->block_size;
}

enum status block_manager_init(struct block_manager *m, int32_t num_blocks, int32_t block_size, bool caching,
                               struct error *err)
{
    *m = (struct block_manager){.caching = caching, .block_size = block_size, .watermark = batch_watermark(num_blocks)};
    enum status status = block_pool_init(&m->pool, 1, num_blocks, err);
    if (status == STATUS_OK) status = block_pool_init(&m->host, m->pool.end, 0, err);
    if (status == STATUS_OK && caching) status = prefix_cache_init(&m->cache, num_blocks, block_size, err);
    if (status == STATUS_OK) {
        m->scratch = calloc((size_t)num_blocks + 1, sizeof *m->scratch);
        if (!m->scratch) status = error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the block manager");
    }
    if (status != STATUS_OK) block_manager_free(m);
    return status;
}

void block_manager_free(struct block_manager *m)
{
    block_pool_free(&m->pool);
    block_pool_free(&m->host);
    prefix_cache_free(&m->cache);
    free(m->scratch);
    *m = (struct block_manager){0};
}

static uint64_t empty_prefix(const struct sequence *seq)
{
    return seq->request->long_rope ? PREFIX_EMPTY_LONG : PREFIX_EMPTY;
}

/* Looks the sequence's full blocks up in the cache, up to the first miss; the last token is never looked up, because
 * its logits must be computed. Returns the number of hits; `table` (may be NULL) gets their blocks, *prefix_id the
 * prefix id of the last one, *idle the number of those that have no holder. */
static int32_t find_prefix(const struct block_manager *m, const struct sequence *seq, int32_t *table, int32_t *idle,
                           uint64_t *prefix_id)
{
    int32_t hits = 0, most = m->caching ? (seq->num_tokens - 1) / m->block_size : 0;
    *idle = 0;
    *prefix_id = empty_prefix(seq);
    for (; hits < most; hits++) {
        int32_t block = prefix_cache_find(&m->cache, *prefix_id, seq->tokens + (size_t)hits * (size_t)m->block_size,
                                          seq->request->extra_key, prefix_id);
        if (block == BLOCK_NONE) break;
        if (table) table[hits] = block;
        *idle += m->pool.blocks[block].ref_count == 0;
    }
    return hits;
}

static int32_t blocks_required(const struct block_manager *m, const struct request *request,
                               const struct sequence *first)
{
    int32_t required = blocks_for(m, first->num_tokens);
    if (!request->forked) return required;
    for (int32_t i = first->index + 1; i < request->num_sequences; i++) {
        const struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_FINISHED)
            required += blocks_for(m, seq->num_tokens) - seq->prompt_len / m->block_size;
    }
    return required;
}

enum allocate_result block_manager_can_allocate(const struct block_manager *m, const struct request *request,
                                                int32_t *required)
{
    const struct sequence *first = request_first_unfinished(request);
    *required = blocks_required(m, request, first);
    int32_t spare = block_pool_num_total(&m->pool) - *required;
    int32_t watermark = m->watermark;
    if (request->num_preemptions > 0 && spare < watermark) watermark = spare > 0 ? spare : 0;
    if (spare < watermark) return ALLOCATE_NEVER;
    /* Cache hits can only lower the need, so they are counted only if the request does not fit without them. */
    int32_t free_blocks = m->pool.num_free;
    if (free_blocks - *required >= watermark) return ALLOCATE_OK;
    int32_t idle;
    uint64_t prefix_id;
    int32_t hits = find_prefix(m, first, NULL, &idle, &prefix_id);
    return (free_blocks - idle) - (*required - hits) >= watermark ? ALLOCATE_OK : ALLOCATE_LATER;
}

/* The caller has made sure that enough blocks are free, so an error means that the pool is inconsistent. */
static enum status take_block(struct block_manager *m, struct block_pool *pool, int32_t *block, struct error *err)
{
    bool evicted;
    *block = block_pool_take(pool, &evicted);
    if (*block == BLOCK_NONE)
        return error_set(err, STATUS_INTERNAL,
                         "%d blocks are counted as free, but none can be taken (the free list "
                         "begins with block %d)",
                         pool->num_free, pool->head);
    if (!evicted) return STATUS_OK;
    if (!m->caching || prefix_cache_id(&m->cache, *block) == 0)
        return error_set(err, STATUS_INTERNAL, "block %d is marked as cached, but is not in the prefix cache", *block);
    prefix_cache_forget(&m->cache, *block);
    m->evictions++;
    return STATUS_OK;
}

static enum status extend_table(struct block_manager *m, struct sequence *seq, int32_t num_blocks, struct error *err)
{
    enum status status = STATUS_OK;
    while (seq->num_blocks < num_blocks && status == STATUS_OK) {
        status = take_block(m, &m->pool, &seq->block_table[seq->num_blocks], err);
        if (status == STATUS_OK) seq->num_blocks++;
    }
    return status;
}

/* Puts blocks that others hold, or that the prefix cache found, into the first `count` entries of the table. */
static enum status share_blocks(struct block_manager *m, const int32_t *blocks, int32_t count, struct sequence *seq,
                                struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < count && status == STATUS_OK; i++) {
        seq->block_table[i] = blocks[i];
        if (blocks[i]) status = block_pool_share(&m->pool, blocks[i], err);
    }
    return status;
}

static enum status too_few(const struct block_manager *m, int32_t needed, struct error *err)
{
    return error_set(err, STATUS_INTERNAL, "a sequence needs %d blocks, but %d are free", needed, m->pool.num_free);
}

enum status block_manager_allocate(struct block_manager *m, struct sequence *seq, struct error *err)
{
    int32_t idle, needed = blocks_for(m, seq->num_tokens);
    uint64_t prefix_id;
    int32_t hits = find_prefix(m, seq, seq->block_table, &idle, &prefix_id);
    if (m->pool.num_free - idle < needed - hits) return too_few(m, needed, err);
    enum status status = share_blocks(m, seq->block_table, hits, seq, err);
    if (status != STATUS_OK) return status;
    seq->num_blocks = seq->num_hashed = hits;
    seq->prefix_id = prefix_id;
    seq->num_computed = hits * m->block_size;
    seq->num_uploaded = 0;
    return extend_table(m, seq, needed, err);
}

enum status block_manager_reserve(struct block_manager *m, struct sequence *seq, int32_t num_shared, struct error *err)
{
    int32_t needed = blocks_for(m, seq->num_tokens);
    if (m->pool.num_free < needed - num_shared) return too_few(m, needed - num_shared, err);
    memset(seq->block_table, 0, (size_t)num_shared * sizeof *seq->block_table);
    seq->num_blocks = num_shared;
    seq->num_uploaded = seq->num_hashed = seq->num_computed = 0;
    seq->prefix_id = empty_prefix(seq);
    return extend_table(m, seq, needed, err);
}

enum status block_manager_share(struct block_manager *m, const struct sequence *from, struct sequence *seq,
                                int32_t num_shared, struct error *err)
{
    seq->num_computed = num_shared * m->block_size;
    return share_blocks(m, from->block_table, num_shared, seq, err);
}

enum status block_manager_fork(struct block_manager *m, const struct sequence *parent, struct sequence *child,
                               struct error *err)
{
    child->num_blocks = parent->num_blocks;
    child->num_uploaded = 0;
    child->num_computed = parent->num_computed;
    child->num_cached = parent->num_cached;
    child->num_hashed = parent->num_hashed;
    child->prefix_id = parent->prefix_id;
    return share_blocks(m, parent->block_table, parent->num_blocks, child, err);
}

/* Whether the next token would be written to a block with other holders. */
static bool next_write_is_shared(const struct block_manager *m, const struct sequence *seq)
{
    int32_t index = seq->num_computed / m->block_size;
    return index < seq->num_blocks && m->pool.blocks[seq->block_table[index]].ref_count > 1;
}

int32_t block_manager_append_cost(const struct block_manager *m, const struct sequence *seq, int32_t num_tokens)
{
    int32_t missing = blocks_for(m, num_tokens) - seq->num_blocks;
    return (missing > 0 ? missing : 0) + (next_write_is_shared(m, seq) ? 1 : 0);
}

static enum status copy_on_write(struct block_manager *m, struct sequence *seq, struct block_pair *copy,
                                 struct error *err)
{
    int32_t index = seq->num_computed / m->block_size;
    copy->source = seq->block_table[index];
    enum status status = take_block(m, &m->pool, &copy->destination, err);
    if (status != STATUS_OK) return status;
    m->pool.blocks[copy->destination].filled = m->pool.blocks[copy->source].filled;
    m->pool.blocks[copy->source].ref_count--; /* others hold it: it does not become free */
    seq->block_table[index] = copy->destination;
    if (seq->num_uploaded > index) seq->num_uploaded = index;
    return STATUS_OK;
}

enum status block_manager_append(struct block_manager *m, struct sequence *seq, int32_t num_tokens,
                                 struct block_pair *copy, struct error *err)
{
    copy->source = copy->destination = BLOCK_NONE;
    int32_t cost = block_manager_append_cost(m, seq, num_tokens);
    if (cost > m->pool.num_free) return too_few(m, cost, err);
    enum status status = STATUS_OK;
    if (next_write_is_shared(m, seq)) status = copy_on_write(m, seq, copy, err);
    return status == STATUS_OK ? extend_table(m, seq, blocks_for(m, num_tokens), err) : status;
}

/* The prefix id of a full block that follows the sequence's hashed blocks. A block shared with a sibling may have one
 * already; otherwise the block enters the cache, unless another block is there with the same identity. */
static uint64_t identify(struct block_manager *m, const struct sequence *seq, int32_t index)
{
    int32_t block = seq->block_table[index];
    uint64_t own = prefix_cache_id(&m->cache, block);
    if (own) return own;
    bool inserted;
    uint64_t id =
        prefix_cache_insert(&m->cache, block, seq->prefix_id, seq->tokens + (size_t)index * (size_t)m->block_size,
                            seq->request->extra_key, &inserted);
    if (inserted) block_pool_set_cached(&m->pool, block, true);
    return id;
}

void block_manager_hash(struct block_manager *m, struct sequence *seq)
{
    if (!m->caching) return;
    int32_t known = seq->num_computed < seq->num_tokens ? seq->num_computed : seq->num_tokens;
    for (; (seq->num_hashed + 1) * m->block_size <= known; seq->num_hashed++)
        seq->prefix_id = identify(m, seq, seq->num_hashed);
}

/* ---- swapping ---- */

enum status block_manager_grow_host(struct block_manager *m, int32_t num_blocks, struct error *err)
{
    int32_t *scratch = realloc(m->scratch, ((size_t)m->host.end + (size_t)num_blocks) * sizeof *scratch);
    if (!scratch) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the block manager");
    m->scratch = scratch;
    return block_pool_grow(&m->host, num_blocks, err);
}

/* Blocks of this pool that the request's sequences hold, a shared one counted once. */
static int32_t num_distinct(const struct block_pool *pool, const struct request *request)
{
    int32_t count = 0;
    for (const struct sequence *seq = request->sequences; seq < request->sequences + request->num_sequences; seq++)
        for (int32_t i = 0; i < seq->num_blocks; i++) {
            struct block *b = &pool->blocks[seq->block_table[i]];
            count += b->moved_to == 0;
            b->moved_to = BLOCK_NONE; /* counted */
        }
    for (const struct sequence *seq = request->sequences; seq < request->sequences + request->num_sequences; seq++)
        for (int32_t i = 0; i < seq->num_blocks; i++) pool->blocks[seq->block_table[i]].moved_to = 0;
    return count;
}

int32_t block_manager_swap_out_cost(const struct block_manager *m, const struct request *request)
{
    return num_distinct(&m->pool, request);
}

enum allocate_result block_manager_can_swap_in(const struct block_manager *m, const struct request *request)
{
    int32_t required = num_distinct(&m->host, request) + request_num_unfinished(request);
    if (block_pool_num_total(&m->pool) - required < m->watermark) return ALLOCATE_NEVER;
    return m->pool.num_free - required >= m->watermark ? ALLOCATE_OK : ALLOCATE_LATER;
}

/* Chooses where each of the sequence's blocks goes. Pairs are in the order of the table, so that neighbouring blocks
 * are copied together. */
static enum status choose_places(struct block_manager *m, const struct sequence *seq, struct block_pool *from,
                                 struct block_pool *to, struct block_pair *pairs, int32_t *num_pairs, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < seq->num_blocks && status == STATUS_OK; i++) {
        struct block *b = &from->blocks[seq->block_table[i]];
        int32_t place = b->moved_to;
        if (place) {
            status = block_pool_share(to, place, err);
            continue;
        }
        status = take_block(m, to, &place, err);
        if (status != STATUS_OK) return status;
        b->moved_to = place;
        to->blocks[place].filled = b->filled;
        pairs[(*num_pairs)++] = (struct block_pair){seq->block_table[i], place};
    }
    return status;
}

/* The last block first, as in a release. */
static enum status move_table(struct sequence *seq, struct block_pool *from, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = seq->num_blocks - 1; i >= 0 && status == STATUS_OK; i--) {
        int32_t block = seq->block_table[i];
        seq->block_table[i] = from->blocks[block].moved_to;
        status = block_pool_release(from, block, err);
    }
    seq->num_uploaded = seq->num_hashed = 0;
    seq->prefix_id = empty_prefix(seq);
    return status;
}

static enum status move_blocks(struct block_manager *m, struct request *request, struct block_pool *from,
                               struct block_pool *to, struct block_pair *pairs, int32_t *num_pairs, struct error *err)
{
    int32_t first = *num_pairs;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < request->num_sequences && status == STATUS_OK; i++)
        status = choose_places(m, &request->sequences[i], from, to, pairs, num_pairs, err);
    for (int32_t i = 0; i < request->num_sequences && status == STATUS_OK; i++)
        status = move_table(&request->sequences[i], from, err);
    for (int32_t i = first; i < *num_pairs; i++) from->blocks[pairs[i].source].moved_to = 0;
    return status;
}

enum status block_manager_swap_out(struct block_manager *m, struct request *request, struct block_pair *pairs,
                                   int32_t *num_pairs, struct error *err)
{
    return move_blocks(m, request, &m->pool, &m->host, pairs, num_pairs, err);
}

enum status block_manager_swap_in(struct block_manager *m, struct request *request, struct block_pair *pairs,
                                  int32_t *num_pairs, struct error *err)
{
    return move_blocks(m, request, &m->host, &m->pool, pairs, num_pairs, err);
}

/* ---- release and checks ---- */

enum status block_manager_release(struct block_manager *m, struct sequence *seq, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = seq->num_blocks - 1; i >= 0; i--) {
        int32_t block = seq->block_table[i];
        if (!block) continue;
        struct block_pool *pool = block < m->pool.end ? &m->pool : &m->host;
        struct error *first = status == STATUS_OK ? err : NULL;
        enum status released = block_pool_release(pool, block, first);
        if (status == STATUS_OK) status = released;
    }
    seq->num_blocks = seq->num_uploaded = seq->num_hashed = 0;
    seq->prefix_id = PREFIX_EMPTY;
    return status;
}

void block_manager_reset_cache(struct block_manager *m)
{
    for (int32_t i = 1; m->caching && i < m->pool.end; i++) {
        if (!m->pool.blocks[i].cached) continue;
        prefix_cache_forget(&m->cache, i);
        block_pool_set_cached(&m->pool, i, false);
    }
}

static enum status check_counts(const struct block_manager *m, const struct block_pool *pool, struct error *err)
{
    for (int32_t i = pool->first; i < pool->end; i++) {
        const struct block *b = &pool->blocks[i];
        if (b->ref_count != m->scratch[i])
            return error_set(err, STATUS_INTERNAL, "block %d has the count %d, but %d table entries name it", i,
                             b->ref_count, m->scratch[i]);
        if (b->cached != (m->caching && pool == &m->pool && prefix_cache_id(&m->cache, i) != 0))
            return error_set(err, STATUS_INTERNAL, "block %d: the pool and the prefix cache disagree", i);
        if (b->cached && b->filled != m->block_size)
            return error_set(err, STATUS_INTERNAL, "block %d can be found, but %d of its %d slots are written", i,
                             b->filled, m->block_size);
    }
    return STATUS_OK;
}

enum status block_manager_check(const struct block_manager *m, struct sequence *const *seqs, int32_t num_seqs,
                                struct error *err)
{
    const int32_t end = m->host.end;
    enum status status = block_pool_check(&m->pool, err);
    if (status == STATUS_OK) status = block_pool_check(&m->host, err);
    if (status != STATUS_OK) return status;
    memset(m->scratch, 0, (size_t)end * sizeof *m->scratch);
    for (int32_t i = 0; i < num_seqs; i++)
        for (int32_t j = 0; j < seqs[i]->num_blocks; j++) {
            int32_t block = seqs[i]->block_table[j];
            if (block < 0 || block >= end)
                return error_set(err, STATUS_INTERNAL, "entry %d of a block table is %d", j, block);
            m->scratch[block]++;
        }
    status = check_counts(m, &m->pool, err);
    return status == STATUS_OK ? check_counts(m, &m->host, err) : status;
}
