#include "tests/support/scheduler_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "scheduler/scheduler_state.h"
#include "tests/support/slot_device.h"

#define EOS 1
#define FIRST_STOP 5
#define SECOND_STOP 9
#define MAX_BLOCKS 512 /* of the device and of the host */

enum place { PLACE_WAITING, PLACE_SWAPPED, PLACE_RUNNING, PLACE_ENDED };

/* A request and what the model knows of it, each by sequence. */
struct model_request {
    int32_t number;
    struct request *request;
    struct true_sequence truth[SCHEDULER_MODEL_MAX_N];
    int32_t alone_length[SCHEDULER_MODEL_MAX_N]; /* tokens with which it ends if it runs alone */
    enum finish_reason alone_reason[SCHEDULER_MODEL_MAX_N];
    int32_t computed[SCHEDULER_MODEL_MAX_N]; /* tokens that the batches had; the cached ones included */
    bool sampled[SCHEDULER_MODEL_MAX_N];     /* a beam that waits to be chosen */
    bool ended[SCHEDULER_MODEL_MAX_N];       /* by an operation */
    bool damaged[SCHEDULER_MODEL_MAX_N];     /* by a sample that could not be taken */
    bool stalled;                            /* it was preempted, and has got no token since */
    /* Before the step that is being scheduled. */
    enum place place;
    bool was_long, was_due, waited; /* waited: its other sequences waited for the prompt */
    int32_t held;                   /* distinct blocks */
    int32_t preemptions;
    enum sequence_status status[SCHEDULER_MODEL_MAX_N];
    int32_t pending[SCHEDULER_MODEL_MAX_N];
    int32_t found[SCHEDULER_MODEL_MAX_N]; /* full
blocks that the prefix cache could give it */
};

struct scheduler_model {
    struct scheduler_config config;
    struct scheduler *scheduler;
    struct slot_device device;
    struct batch batch;
    struct model_request *live[SCHEDULER_MODEL_MAX_REQUESTS]; /* [num_live] in order of arrival */
    int32_t num_live;
    int32_t host_grow, host_fails, host_calls;
    bool host_misuse;           /* more host blocks were asked for after a failure, or none */
    int32_t counts[MAX_BLOCKS]; /* holders of each block */
    int32_t held;               /* device blocks with a holder */
    int64_t evictions;          /* before the step that is being scheduled */
    bool unchecked;             /* see
scheduler_model_set_unchecked */
    struct scheduler_model_totals totals;
};

void scheduler_model_totals_add(struct scheduler_model_totals *to, const struct scheduler_model_totals *from)
{
    const size_t count = sizeof *to / sizeof(int64_t);
    int64_t *into = (int64_t *)to;
    const int64_t *values = (const int64_t *)from;
    for (size_t i = 0; i < count; i++) into[i] += values[i];
}

/* ---- configuration ---- */

static int32_t clamp(int32_t value, int32_t least, int32_t most)
{
    return value < least ? least : value > most ? most : value;
}

static enum status grow_host(void *user, int32_t *added, struct error *err)
{
    struct scheduler_model *m = user;
    m->host_misuse = m->host_misuse || m->totals.host_failures > 0 || *added < 1;
    if (++m->host_calls == m->host_fails) {
        m->totals.host_failures++;
        return error_set(err, STATUS_OUT_OF_MEMORY, "the model has no more host memory");
    }
    if (m->host_grow < *added) *added = m->host_grow;
    return STATUS_OK;
}

/* Prefix cache hashes: the fewer there are, the more prefixes share one. */
static uint64_t few_hashes(int32_t parent, const int32_t *tokens, int32_t count, uint64_t hashes)
{
    uint64_t hash = (uint64_t)parent;
    for (int32_t i = 0; i < count; i++) hash = random_mix(hash + (uint64_t)tokens[i]);
    return hash % hashes;
}

static uint64_t one_hash(int32_t parent, const int32_t *tokens, int32_t count)
{
    return few_hashes(parent, tokens, count, 1);
}

static uint64_t two_hashes(int32_t parent, const int32_t *tokens, int32_t count)
{
    return few_hashes(parent, tokens, count, 2);
}

static uint64_t five_hashes(int32_t parent, const int32_t *tokens, int32_t count)
{
    return few_hashes(parent, tokens, count, 5);
}

static struct scheduler_config config_of(const int32_t *v)
{
    struct scheduler_config c = {
        .limits = {.max_num_tokens = clamp(v[CONFIG_TOKENS], 1, 64),
                   .max_num_seqs = clamp(v[CONFIG_SEQS], 1, 12),
                   .max_model_len = clamp(v[CONFIG_LENGTH], 2, 64),
                   .block_size = clamp(v[CONFIG_SIZE], 1, 8),
                   .num_groups = clamp(v[CONFIG_GROUPS], 1, 4)},
        .num_blocks = clamp(v[CONFIG_BLOCKS], 1, MAX_BLOCKS / 2 - 1),
        .num_host_blocks = clamp(v[CONFIG_HOST], 0, MAX_BLOCKS / 2 - 1),
        .preemption_mode = (enum preemption_mode)clamp(v[CONFIG_MODE], PREEMPTION_AUTO, PREEMPTION_SWAP),
        .policy = (enum scheduling_policy)clamp(v[CONFIG_POLICY], SCHEDULING_FCFS, SCHEDULING_PRIORITY),
        .enable_prefix_caching = v[CONFIG_CACHING] != 0,
        .enable_chunked_prefill = v[CONFIG_CHUNKED] != 0,
        .rope_switch = clamp(v[CONFIG_ROPE], 0, 64),
    };
    for (int32_t g = 0; g < c.limits.num_groups; g++) c.limits.windows[g] = clamp(v[CONFIG_WINDOW + g], 0, 64);
    if (!c.enable_chunked_prefill && c.limits.max_num_tokens < c.limits.max_model_len)
        c.limits.max_num_tokens = c.limits.max_model_len;
    return c;
}

enum status scheduler_model_create(const struct operation *config, struct scheduler_model **out, struct error *err)
{
    struct scheduler_model *m = *out = calloc(1, sizeof *m);
    if (!m) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the model of the scheduler");
    m->config = config_of(config->values);
    m->host_grow = config->values[CONFIG_GROW];
    m->host_fails = config->values[CONFIG_FAILS];
    if (m->host_grow > 0) {
        m->config.grow_host_blocks = grow_host;
        m->config.user = m;
    }
    enum status status = scheduler_create(&m->config, &m->scheduler, err);
    if (status == STATUS_OK) status = batch_init(&m->batch, &m->config.limits, err);
    if (status == STATUS_OK)
        status = slot_device_init(&m->device, &m->config.limits, m->config.num_blocks, m->config.num_host_blocks,
                                  m->config.rope_switch, err);
    if (status != STATUS_OK) {
        scheduler_model_destroy(m);
        *out = NULL;
        return status;
    }
    const int32_t hashes = config->values[CONFIG_HASHES];
    if (m->config.enable_prefix_caching && hashes > 0)
        m->scheduler->blocks.cache.hash = hashes == 1 ? one_hash : hashes == 2 ? two_hashes : five_hashes;
    return STATUS_OK;
}

void scheduler_model_destroy(struct scheduler_model *m)
{
    if (!m) return;
    for (int32_t i = 0; i < m->num_live; i++) {
        request_destroy(m->live[i]->request);
        free(m->live[i]);
    }
    scheduler_destroy(m->scheduler);
    slot_device_free(&m->device);
    batch_free(&m->batch);
    free(m);
}

/* ---- requests ---- */

int32_t scheduler_model_in_flight(const struct scheduler_model *m)
{
    return scheduler_in_flight(m->scheduler);
}

int32_t scheduler_model_num_requests(const struct scheduler_model *m)
{
    return m->num_live;
}

int32_t scheduler_model_request(const struct scheduler_model *m, int32_t index)
{
    return m->live[index]->number;
}

static struct model_request *find_request(const struct scheduler_model *m, int32_t number)
{
    for (int32_t i = 0; i < m->num_live; i++)
        if (m->live[i]->number == number) return m->live[i];
    return NULL;
}

static struct model_request *model_of(const struct scheduler_model *m, const struct request *request)
{
    for (int32_t i = 0; i < m->num_live; i++)
        if (m->live[i]->request == request) return m->live[i];
    return NULL;
}

static enum place place_of(const struct request *request)
{
    if (request_finished(request)) return PLACE_ENDED;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        if (request->sequences[i].status == SEQUENCE_RUNNING) return PLACE_RUNNING;
        if (request->sequences[i].status == SEQUENCE_SWAPPED) return PLACE_SWAPPED;
    }
    return PLACE_WAITING;
}

static bool beams_are_due(const struct model_request *r)
{
    bool due = r->request->beams && !request_finished(r->request);
    for (int32_t i = 0; i < r->request->num_sequences; i++)
        due = due && (r->sampled[i] || r->request->sequences[i].status == SEQUENCE_FINISHED);
    return due;
}

bool scheduler_model_beams_are_due(const struct scheduler_model *m, int32_t number)
{
    const struct model_request *r = find_request(m, number);
    return r && beams_are_due(r);
}

/* a runs before b. */
static bool precedes(const struct scheduler_model *m, const struct request *a, const struct request *b)
{
    if (m->config.policy == SCHEDULING_PRIORITY && a->priority != b->priority) return a->priority < b->priority;
    return a->arrival < b->arrival;
}

/* ---- add ---- */

static int32_t prompt_token(int32_t text, int32_t position)
{
    return (int32_t)(random_mix((uint64_t)(text * 1000 + position)) % TRUE_VOCAB);
}

static bool stops(const struct request *request, int32_t token)
{
    bool stop = !request->params.ignore_eos && token == EOS;
    for (int32_t i = 0; i < request->params.num_stop_token_ids; i++)
        stop = stop || token == request->params.stop_token_ids[i];
    return stop;
}

/* Runs the sequence alone, on a plain array. */
static void run_alone(struct model_request *r, int32_t index, int32_t max_model_len)
{
    struct true_sequence *truth = &r->truth[index];
    const struct sampling_params *p = &r->request->params;
    for (int32_t n = truth->prompt_len + 1;; n++) {
        const int32_t token = true_sequence_token(truth, n - 1), output = n - truth->prompt_len;
        const bool stop = output >= p->min_tokens && stops(r->request, token);
        if (!stop && output != p->max_tokens && n < max_model_len) continue;
        r->alone_length[index] = n;
        r->alone_reason[index] = stop ? FINISH_STOP : FINISH_LENGTH;
        return;
    }
}

static struct sampling_params params_of(const int32_t *v)
{
    struct sampling_params params = sampling_params_default();
    params.n = clamp(v[ADD_N], 1, SCHEDULER_MODEL_MAX_N);
    params.max_tokens = v[ADD_MAX] <= 0 ? -1 : v[ADD_MAX];
    params.min_tokens = params.max_tokens < 0 ? 0 : clamp(v[ADD_MIN], 0, params.max_tokens);
    params.ignore_eos = v[ADD_EOS] == 0;
    params.num_stop_token_ids = v[ADD_EOS] > 1 ? 2 : 0;
    params.stop_token_ids[0] = FIRST_STOP;
    params.stop_token_ids[1] = SECOND_STOP;
    params.seed = (uint64_t)v[ADD_SEED];
    return params;
}

static enum status set_request(struct request *request, const int32_t *v, struct error *err)
{
    static const char *const salts[] = {NULL, "a", "ab", "another salt"};
    const char *salt = salts[clamp(v[ADD_SALT], 0, 3)];
    request->eos_token_ids[0] = EOS;
    request->num_eos = 1;
    request->priority = v[ADD_PRIORITY];
    request->beams = v[ADD_BEAMS] != 0;
    if (!salt) return STATUS_OK;
    const size_t size = strlen(salt) + 1;
    request->cache_salt = malloc(size);
    if (!request->cache_salt) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a salt");
    memcpy(request->cache_salt, salt, size);
    return STATUS_OK;
}

static enum status make_request(struct scheduler_model *m, struct model_request *r, const int32_t *v, struct error *err)
{
    const struct sampling_params params = params_of(v);
    const int32_t length = clamp(v[ADD_LENGTH], 1, m->config.limits.max_model_len);
    int32_t prompt[TRUE_MAX_TOKENS];
    for (int32_t i = 0; i < length; i++)
        prompt[i] = i < v[ADD_SHARED] ? prompt_token(v[ADD_BASE], i) : prompt_token(100 + v[ADD_REQUEST], i);
    enum status status = request_create(&params, prompt, length, &m->config.limits, &r->request, err);
    if (status == STATUS_OK) status = set_request(r->request, v, err);
    if (status != STATUS_OK) return status;
    r->number = v[ADD_REQUEST];
    for (int32_t i = 0; i < params.n; i++) {
        true_sequence_init(&r->truth[i], r->number, i, params.seed, clamp(v[ADD_SALT], 0, 3));
        for (int32_t t = 0; t < length; t++) true_sequence_append(&r->truth[i], prompt[t]);
        r->truth[i].prompt_len = length;
        r->truth[i].chosen = r->request->beams;
        if (!r->request->beams) run_alone(r, i, m->config.limits.max_model_len);
    }
    return STATUS_OK;
}

static enum status add(struct scheduler_model *m, const int32_t *v, struct error *err)
{
    if (m->num_live == SCHEDULER_MODEL_MAX_REQUESTS || find_request(m, v[ADD_REQUEST])) return STATUS_OK;
    struct model_request *r = calloc(1, sizeof *r);
    if (!r) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a request");
    enum status status = make_request(m, r, v, err);
    if (status != STATUS_OK) {
        request_destroy(r->request);
        free(r);
        return status;
    }
    m->live[m->num_live++] = r;
    m->totals.requests++;
    scheduler_add(m->scheduler, r->request);
    return STATUS_OK;
}

/* ---- what must be true after every operation ---- */

/* The positions that the sequence's next query reads in this group begin here. */
static int32_t first_read(const struct scheduler_model *m, int32_t group, int32_t position)
{
    const int32_t window = m->config.limits.windows[group];
    return window == 0 || position < window ? 0 : position - window + 1;
}

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
static enum status count_holders(struct scheduler_model *m, struct error *err)
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
    const int32_t size = m->config.limits.block_size;
    const int32_t computed = seq->num_computed;
    if ((computed + size - 1) / size > table->num_blocks)
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d group %d: %d tokens are computed, in %d blocks",
                         r->number, seq->index, group, computed, table->num_blocks);
    enum status status = STATUS_OK;
    for (int32_t p = first_read(m, group, computed), last; p < computed && status == STATUS_OK; p = last) {
        last = p - p % size + size < computed ? p - p % size + size : computed;
        status = slot_device_check(&m->device, &r->truth[seq->index], group, table->blocks[p / size], p, last, err);
    }
    return status;
}

/* The tokens that the scheduler knows are the true ones. */
static enum status check_tokens(const struct model_request *r, const struct sequence *seq, struct error *err)
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

/* A running sequence whose last token is pending has given its place on. */
static bool has_place(const struct sequence *seq)
{
    return seq->status == SEQUENCE_RUNNING && seq->state_index >= 0;
}

static bool awaits_its_end(const struct sequence *seq)
{
    return seq->status == SEQUENCE_RUNNING && seq->num_pending > 0 &&
           seq->num_tokens + seq->num_pending >= seq->token_capacity;
}

static enum status check_sequence(struct scheduler_model *m, const struct model_request *r, const struct sequence *seq,
                                  struct error *err)
{
    const bool holds = has_place(seq) || seq->status == SEQUENCE_SWAPPED;
    enum status status = check_tokens(r, seq, err);
    if (status == STATUS_OK && seq->status == SEQUENCE_RUNNING && !has_place(seq) && !awaits_its_end(seq))
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d runs without a place on the device", r->number,
                         seq->index);
    for (int32_t g = 0; g < m->config.limits.num_groups && status == STATUS_OK; g++) {
        if (!holds && seq->tables[g].num_blocks > 0)
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d does not run, and holds %d blocks",
                             r->number, seq->index, seq->tables[g].num_blocks);
        if (holds) status = check_table(m, r, seq, g, err);
    }
    if (status == STATUS_OK && has_place(seq) && seq->num_computed != r->computed[seq->index])
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
    const int32_t size = m->config.limits.block_size;
    for (int32_t i = b->pool.first; i < b->pool.end; i++) {
        const int32_t prefix = b->pool.blocks[i].prefix;
        if (prefix == PREFIX_NONE) continue;
        const struct slot *slots = &m->device.slots[(int64_t)i * size];
        const int32_t *tokens = b->cache.tokens + (size_t)prefix * (size_t)size;
        for (int32_t t = 0; t < size; t++)
            if (slots[t].position != slots[0].position + t || slots[0].position % size != 0 ||
                slots[t].token != tokens[t] || slots[t].group != slots[0].group)
                return error_set(err, STATUS_INTERNAL,
                                 "block %d can be found by prefix %d, but its slot %d holds position %d, token %d", i,
                                 prefix, t, slots[t].position, slots[t].token);
        if (prefix_cache_block(&b->cache, prefix, slots[0].group) != i)
            return error_set(err, STATUS_INTERNAL, "block %d is not the block of its prefix %d", i, prefix);
    }
    return STATUS_OK;
}

/* Follows the sequence's known tokens through the prefix cache. The blocks on the way hold its tokens. *found gets the
 * number of leading blocks that the sequence could start with; more of them may be there behind a gap. */
static enum status check_found(const struct scheduler_model *m, const struct model_request *r,
                               const struct sequence *seq, int32_t *found, struct error *err)
{
    const struct block_manager *b = &m->scheduler->blocks;
    const struct batch_limits *limits = &m->config.limits;
    const int32_t size = limits->block_size;
    struct true_sequence truth = {.request = 0};
    if (found) *found = 0;
    if (!b->caching || seq->status == SEQUENCE_FINISHED) return STATUS_OK;
    const struct true_sequence *is = &r->truth[seq->index];
    if (is->is_long != seq->request->long_rope) { /* it will start as the other kind */
        truth = *is;
        truth.is_long = seq->request->long_rope;
        is = &truth;
    }
    const int32_t first_tokens = request_num_unfinished(seq->request) > 1 ? seq->prompt_len : seq->num_tokens;
    int32_t prefix = prefix_cache_root(&b->cache, seq->request->long_rope, seq->request->cache_salt);
    bool whole = true;
    enum status status = STATUS_OK;
    for (int32_t i = 0; (i + 1) * size <= seq->num_tokens && prefix != PREFIX_NONE && status == STATUS_OK; i++) {
        prefix = prefix_cache_find(&b->cache, prefix, seq->tokens + (size_t)i * (size_t)size);
        for (int32_t g = 0; prefix != PREFIX_NONE && g < limits->num_groups && status == STATUS_OK; g++) {
            const int32_t block = prefix_cache_block(&b->cache, prefix, g);
            whole = whole && block != 0;
            if (block) status = slot_device_check(&m->device, is, g, block, i * size, (i + 1) * size, err);
        }
        if (found && whole && prefix != PREFIX_NONE && (i + 1) * size < first_tokens) *found = i + 1;
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
    for (int32_t i = 0; i < m->num_live; i++) places[place_of(m->live[i]->request)]++;
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

static enum status check_all(struct scheduler_model *m, struct error *err)
{
    enum status status = scheduler_check(m->scheduler, err);
    if (status == STATUS_OK) status = count_holders(m, err);
    for (int32_t i = 0; i < m->num_live; i++) {
        const struct model_request *r = m->live[i];
        for (int32_t j = 0; j < r->request->num_sequences && status == STATUS_OK; j++)
            status = check_sequence(m, r, &r->request->sequences[j], err);
        if (status == STATUS_OK) status = check_found(m, r, &r->request->sequences[0], NULL, err);
    }
    if (status == STATUS_OK) status = check_counts(m, &m->scheduler->blocks.pool, err);
    if (status == STATUS_OK) status = check_counts(m, &m->scheduler->blocks.host, err);
    if (status == STATUS_OK && m->config.enable_prefix_caching) status = check_cached(m, err);
    if (status == STATUS_OK) status = check_stats(m, err);
    return status;
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
    if (strlen(request->error->text) > 20 && request->num_sequences > m->config.limits.max_num_seqs) return STATUS_OK;
    if (strlen(request->error->text) > 20 &&
        most_blocks_alone(m, request) - spare > m->config.num_blocks - batch_watermark(m->config.num_blocks))
        return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "request %d failed without need: \"%s\"", r->number, request->error->text);
}

static enum status check_end(struct scheduler_model *m, struct model_request *r, int32_t index, struct error *err)
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

static enum status take_ended(struct scheduler_model *m, struct error *err)
{
    enum status status = STATUS_OK;
    for (struct request *request; status == STATUS_OK && (request = scheduler_next_finished(m->scheduler));) {
        struct model_request *r = model_of(m, request);
        if (!r) return error_set(err, STATUS_INTERNAL, "a request was handed back twice");
        for (int32_t i = 0; i < request->num_sequences && status == STATUS_OK; i++) {
            status = check_tokens(r, &request->sequences[i], err);
            if (status == STATUS_OK) status = check_end(m, r, i, err);
        }
        int32_t at = 0;
        while (m->live[at] != r) at++;
        memmove(&m->live[at], &m->live[at + 1], (size_t)(--m->num_live - at) * sizeof *m->live);
        request_destroy(request);
        free(r);
    }
    return status;
}

/* ---- schedule ---- */

/* Blocks that the request holds, a shared one counted once. */
static int32_t num_distinct(const struct scheduler_model *m, const struct request *request)
{
    bool seen[MAX_BLOCKS] = {true}; /* the null block does not count */
    int32_t count = 0;
    for (int32_t i = 0; i < request->num_sequences; i++)
        for (int32_t g = 0; g < m->config.limits.num_groups; g++) {
            const struct block_table *table = &request->sequences[i].tables[g];
            for (int32_t k = 0; k < table->num_blocks; k++) {
                count += !seen[table->blocks[k]];
                seen[table->blocks[k]] = true;
            }
        }
    return count;
}

static enum status remember(struct scheduler_model *m, struct error *err)
{
    enum status status = m->unchecked ? count_holders(m, err) : STATUS_OK;
    m->evictions = m->scheduler->blocks.evictions;
    for (int32_t i = 0; i < m->num_live; i++) {
        struct model_request *r = m->live[i];
        r->place = place_of(r->request);
        r->was_long = r->request->long_rope;
        r->was_due = beams_are_due(r);
        r->waited = r->request->leader != NULL;
        r->held = num_distinct(m, r->request);
        r->preemptions = r->request->num_preemptions;
        for (int32_t j = 0; j < r->request->num_sequences && status == STATUS_OK; j++) {
            r->status[j] = r->request->sequences[j].status;
            r->pending[j] = r->request->sequences[j].num_pending;
            status = check_found(m, r, &r->request->sequences[j], &r->found[j], err);
        }
    }
    return status;
}

/* The host's part of a start: the sequence's state reaches the device. */
static enum status start(struct scheduler_model *m, const struct sequence *seq, struct error *err)
{
    struct model_request *r = model_of(m, seq->request);
    if (!r || seq->status != SEQUENCE_RUNNING || seq->state_index < 0 ||
        seq->state_index >= m->config.limits.max_num_seqs)
        return error_set(err, STATUS_INTERNAL, "a sequence that does not run, or has state index %d, was started",
                         seq->state_index);
    m->totals.crossings += r->truth[seq->index].is_long != seq->request->long_rope;
    r->truth[seq->index].is_long = seq->request->long_rope;
    m->device.states[seq->state_index] = &r->truth[seq->index];
    return STATUS_OK;
}

/* What running sequences hold, and keep, is not written again. */
static void keep_slots(struct scheduler_model *m, const struct schedule *schedule)
{
    const int32_t size = m->config.limits.block_size;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++) {
            const struct sequence *seq = &m->live[i]->request->sequences[j];
            bool kept = m->live[i]->status[j] == SEQUENCE_RUNNING && has_place(seq);
            for (int32_t k = 0; k < schedule->num_admitted; k++) kept = kept && schedule->admitted[k] != seq;
            const int32_t computed = m->live[i]->computed[j];
            for (int32_t g = 0; kept && g < m->config.limits.num_groups; g++)
                for (int32_t p = first_read(m, g, computed); p < computed; p++)
                    slot_device_keep(&m->device, (int64_t)seq->tables[g].blocks[p / size] * size + p % size);
        }
}

/* The sequence of a state index of this batch. */
static struct model_request *request_of_state(const struct scheduler_model *m, int32_t state_index, int32_t *index)
{
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++)
            if (&m->live[i]->truth[j] == m->device.states[state_index]) {
                *index = j;
                return m->live[i];
            }
    return NULL;
}

static bool is_admitted(const struct schedule *schedule, const struct sequence *seq)
{
    for (int32_t i = 0; i < schedule->num_admitted; i++)
        if (schedule->admitted[i] == seq) return true;
    return false;
}

/* A sequence of the batch goes on where the batches before left it; one that starts from the queue may have found
 * blocks in the prefix cache, but always computes its last token. */
static enum status check_progress(struct scheduler_model *m, const struct schedule *schedule, int32_t i,
                                  struct error *err)
{
    int32_t index;
    struct model_request *r = request_of_state(m, m->batch.state_indices[i], &index);
    if (!r) return error_set(err, STATUS_INTERNAL, "sequence %d of the batch has no request", i);
    const struct sequence *seq = &r->request->sequences[index];
    const int32_t query = m->batch.query_start[i + 1] - m->batch.query_start[i],
                  start_at = m->batch.seq_lens[i] - query;
    const bool requeued = r->status[index] == SEQUENCE_WAITING || r->preemptions != r->request->num_preemptions;
    const bool fresh = requeued && is_admitted(schedule, seq);
    if (seq->status != SEQUENCE_RUNNING || seq->state_index != m->batch.state_indices[i])
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d does not run, and is computed", r->number,
                         index);
    if (!fresh && start_at != r->computed[index])
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d: token %d is computed after %d", r->number,
                         index, start_at, r->computed[index]);
    if (fresh && r->was_long == r->request->long_rope && m->evictions == m->scheduler->blocks.evictions &&
        start_at < r->found[index] * m->config.limits.block_size)
        return error_set(err, STATUS_INTERNAL,
                         "request %d sequence %d starts at token %d, but %d blocks could be found", r->number, index,
                         start_at, r->found[index]);
    m->totals.hits += fresh && start_at > 0;
    r->computed[index] = m->batch.seq_lens[i];
    return STATUS_OK;
}

/* Blocks outside the window are given back, and no more are held than the tokens need. */
static enum status check_blocks_held(struct scheduler_model *m, int32_t i, struct error *err)
{
    int32_t index;
    const struct model_request *r = request_of_state(m, m->batch.state_indices[i], &index);
    const struct sequence *seq = &r->request->sequences[index];
    const struct batch_limits *limits = &m->config.limits;
    const int32_t end = m->batch.seq_lens[i], first = end - (m->batch.query_start[i + 1] - m->batch.query_start[i]);
    const int32_t known = seq->num_tokens > end ? seq->num_tokens : end, size = limits->block_size;
    for (int32_t g = 0; g < limits->num_groups; g++) {
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

/* Siblings that start with the leader's last prompt token have computed what it has. */
static void note_forks(struct scheduler_model *m, const struct schedule *schedule)
{
    for (int32_t i = 0; i < schedule->num_admitted; i++) {
        const struct sequence *seq = schedule->admitted[i];
        struct model_request *r = model_of(m, seq->request);
        bool in_batch = false;
        for (int32_t k = 0; k < m->batch.num_seqs; k++)
            in_batch = in_batch || m->batch.state_indices[k] == seq->state_index;
        if (in_batch) continue;
        m->totals.forks++;
        r->computed[seq->index] = seq->num_computed; /* check_table reads it back */
    }
}

static enum status submit(struct scheduler_model *m, const struct schedule *schedule, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < schedule->num_admitted && status == STATUS_OK; i++)
        status = start(m, schedule->admitted[i], err);
    if (status != STATUS_OK) return status;
    keep_slots(m, schedule);
    status = slot_device_submit(&m->device, &m->batch, err);
    for (int32_t i = 0; i < m->batch.num_seqs && status == STATUS_OK; i++) {
        status = check_progress(m, schedule, i, err);
        if (status == STATUS_OK) status = check_blocks_held(m, i, err);
    }
    if (status == STATUS_OK) note_forks(m, schedule);
    m->totals.steps++;
    m->totals.copies += m->batch.num_copies;
    m->totals.swapped_in += m->batch.num_swap_in;
    return status;
}

/* ---- policy ---- */

struct moves {
    int32_t preempted, started, swapped_in, failed, stayed;
};

/* It may run again already, if the step found nothing else to run. */
static bool was_preempted(const struct model_request *r)
{
    const bool crossed = r->request->long_rope && !r->was_long; /* not for want of blocks */
    return r->place == PLACE_RUNNING && place_of(r->request) != PLACE_ENDED && !crossed &&
           r->preemptions != r->request->num_preemptions;
}

/* It ran before the step and runs after it, and did not start again in it. */
static bool stayed(const struct model_request *r)
{
    return r->place == PLACE_RUNNING && place_of(r->request) == PLACE_RUNNING &&
           r->preemptions == r->request->num_preemptions;
}

static struct moves count_moves(const struct scheduler_model *m)
{
    struct moves moves = {0};
    for (int32_t i = 0; i < m->num_live; i++) {
        const struct model_request *r = m->live[i];
        const enum place place = place_of(r->request);
        moves.preempted += was_preempted(r);
        moves.failed += r->place == PLACE_RUNNING && place == PLACE_ENDED;
        moves.started += r->place == PLACE_WAITING && place == PLACE_RUNNING;
        moves.swapped_in += r->place == PLACE_SWAPPED && place == PLACE_RUNNING;
        moves.stayed += stayed(r);
    }
    return moves;
}

/* Of two requests in the queue, the one that precedes starts first; of two that run, it is preempted last, unless the
 * other got no token since it was preempted itself. `first` precedes all that ran before the step. */
static enum status check_order(const struct scheduler_model *m, const struct model_request *first,
                               const struct model_request *a, const struct model_request *b, struct error *err)
{
    const enum place place_a = place_of(a->request), place_b = place_of(b->request);
    const bool chosen = was_preempted(a) && stayed(b);
    if (chosen && !b->stalled && precedes(m, a->request, b->request))
        return error_set(err, STATUS_INTERNAL, "request %d was preempted, and not %d, which comes after it", a->number,
                         b->number);
    if (chosen && a->stalled && !b->stalled && b != first)
        return error_set(err, STATUS_INTERNAL, "request %d was preempted again without a token, and %d was not",
                         a->number, b->number);
    if (place_a == PLACE_RUNNING && a->place != PLACE_RUNNING && a->place == place_b &&
        precedes(m, b->request, a->request))
        return error_set(err, STATUS_INTERNAL, "request %d started before %d, which comes before it", a->number,
                         b->number);
    return STATUS_OK;
}

static const struct model_request *first_that_ran(const struct scheduler_model *m)
{
    const struct model_request *first = NULL;
    for (int32_t i = 0; i < m->num_live; i++)
        if (m->live[i]->place == PLACE_RUNNING && (!first || precedes(m, m->live[i]->request, first->request)))
            first = m->live[i];
    return first;
}

/* Swapped or recomputed, as the mode and the number of its sequences say. Several requests at once may fill swap space,
 * whose free blocks before the step are host_free. */
static enum status check_preemption(const struct scheduler_model *m, const struct model_request *r, int32_t preempted,
                                    int32_t host_free, struct error *err)
{
    const bool swapped = place_of(r->request) == PLACE_SWAPPED, several = request_num_unfinished(r->request) > 1;
    const enum preemption_mode mode = m->config.preemption_mode;
    const bool may = mode == PREEMPTION_SWAP || (mode == PREEMPTION_AUTO && several);
    const struct model_request *first = first_that_ran(m);
    int32_t index;
    bool first_runs = false;
    if (swapped && (!may || r->waited))
        return error_set(err, STATUS_INTERNAL, "request %d was swapped, not recomputed", r->number);
    for (int32_t i = 0; i < m->batch.num_seqs; i++)
        first_runs = first_runs || request_of_state(m, m->batch.state_indices[i], &index) == first;
    if (place_of(r->request) == PLACE_WAITING && may && !r->waited && !r->request->beams && preempted == 1 &&
        m->totals.host_failures == 0 && m->config.rope_switch == 0 && first_runs && host_free >= r->held)
        return error_set(err, STATUS_INTERNAL, "request %d, with %d blocks, was recomputed; %d host blocks were free",
                         r->number, r->held, host_free);
    return STATUS_OK;
}

static enum status check_victims(struct scheduler_model *m, int32_t preempted, struct error *err)
{
    enum status status = STATUS_OK;
    int32_t host_free = m->config.num_host_blocks;
    for (int32_t b = m->config.num_blocks + 1; b < MAX_BLOCKS; b++) host_free -= m->counts[b] > 0;
    for (int32_t i = 0; i < m->num_live && status == STATUS_OK; i++) {
        if (!was_preempted(m->live[i])) continue;
        status = check_preemption(m, m->live[i], preempted, host_free, err);
        m->live[i]->stalled = true;
        *(place_of(m->live[i]->request) == PLACE_SWAPPED ? &m->totals.swapped : &m->totals.recomputed) += 1;
    }
    return status;
}

static enum status check_moves(struct scheduler_model *m, struct error *err)
{
    const struct moves moves = count_moves(m);
    const struct model_request *first = first_that_ran(m);
    int32_t swapped = 0;
    for (int32_t i = 0; i < m->num_live; i++) swapped += place_of(m->live[i]->request) == PLACE_SWAPPED;
    if (moves.preempted > 0 && moves.stayed > 0 && moves.started + moves.swapped_in > 0)
        return error_set(err, STATUS_INTERNAL, "a step that preempted %d requests started %d and swapped %d in",
                         moves.preempted, moves.started, moves.swapped_in);
    if (moves.started > 0 && swapped > 0)
        return error_set(err, STATUS_INTERNAL, "%d requests started while %d are swapped", moves.started, swapped);
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->num_live && status == STATUS_OK; j++)
            if (i != j) status = check_order(m, first, m->live[i], m->live[j], err);
    return status == STATUS_OK ? check_victims(m, moves.preempted, err) : status;
}

static int32_t free_blocks(const struct scheduler_model *m)
{
    struct scheduler_stats stats;
    scheduler_get_stats(m->scheduler, &stats);
    return stats.blocks_free + stats.blocks_cached;
}

static int32_t free_places(const struct scheduler_model *m)
{
    int32_t places = m->config.limits.max_num_seqs;
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++)
            places -= m->live[i]->request->sequences[j].state_index >= 0;
    return places;
}

static const struct model_request *head_of(const struct scheduler_model *m, enum place place)
{
    const struct model_request *head = NULL;
    for (int32_t i = 0; i < m->num_live; i++)
        if (place_of(m->live[i]->request) == place && (!head || precedes(m, m->live[i]->request, head->request)))
            head = m->live[i];
    return head;
}

/* The most blocks with which the request can start: without hits. */
static int32_t most_to_start(const struct scheduler_model *m, const struct model_request *r)
{
    int32_t blocks = 0;
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const struct sequence *seq = &r->request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED) continue;
        if (seq != request_first_unfinished(r->request) && seq->num_tokens == seq->prompt_len) continue;
        blocks += batch_sequence_blocks(&m->config.limits, seq->num_tokens);
    }
    return blocks;
}

static int32_t most_to_return(const struct scheduler_model *m, const struct model_request *r)
{
    int32_t blocks = num_distinct(m, r->request);
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const struct sequence *seq = &r->request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED) continue;
        blocks += m->config.limits.num_groups;
        if (seq->num_tokens - seq->num_computed > 1)
            blocks += batch_sequence_blocks(&m->config.limits, seq->num_tokens);
    }
    return blocks;
}

/* The most blocks that the request would have taken in this step. */
static int32_t most_growth(const struct scheduler_model *m, const struct model_request *r)
{
    int32_t blocks = 0;
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const struct sequence *seq = &r->request->sequences[i];
        const int32_t left = seq->num_tokens - r->computed[i], size = m->config.limits.block_size;
        if (seq->status != SEQUENCE_FINISHED) blocks += ((left > 1 ? (left + size - 1) / size : 0) + 1);
    }
    return blocks * m->config.limits.num_groups;
}

/* Nobody is preempted whose blocks and growth would still have found room after the step. (Of several, the first may
 * have had too few blocks to be enough, and the last so many that the first could have stayed.) */
static enum status check_need(const struct scheduler_model *m, struct error *err)
{
    const struct moves moves = count_moves(m);
    if (moves.preempted != 1 || moves.failed > 0) return STATUS_OK; /* what failed had to make room first */
    for (int32_t g = 0; g < m->config.limits.num_groups; g++)
        if (m->config.limits.windows[g] > 0) return STATUS_OK; /* blocks became free when the step had gone on */
    for (int32_t i = 0; i < m->num_live; i++) {
        const struct model_request *r = m->live[i];
        if (!was_preempted(r) || place_of(r->request) == PLACE_RUNNING || free_blocks(m) < r->held + most_growth(m, r))
            continue;
        return error_set(err, STATUS_INTERNAL,
                         "request %d was preempted for want of blocks, but %d are free; it held %d", r->number,
                         free_blocks(m), r->held);
    }
    return STATUS_OK;
}

/* What starts leaves the watermark free. A request that was preempted may have grown past that. */
static enum status check_watermark(const struct scheduler_model *m, struct error *err)
{
    const struct moves moves = count_moves(m);
    bool preempted = false;
    for (int32_t i = 0; i < m->num_live; i++)
        preempted = preempted || (m->live[i]->place != PLACE_SWAPPED && m->live[i]->request->num_preemptions > 0);
    if (moves.started + moves.swapped_in == 0 || preempted || free_blocks(m) >= batch_watermark(m->config.num_blocks))
        return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "%d requests started and %d came back, and left %d blocks free of %d",
                     moves.started, moves.swapped_in, free_blocks(m), m->config.num_blocks);
}

/* A sequence whose last token was pending before this step does not keep its place in it. */
static enum status check_places(const struct scheduler_model *m, const struct model_request *r, struct error *err)
{
    if (m->batch.num_tokens >= m->config.limits.max_num_tokens || r->request->beams) return STATUS_OK;
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const struct sequence *seq = &r->request->sequences[i];
        if (has_place(seq) && awaits_its_end(seq) && r->pending[i] > 0 &&
            seq->num_tokens + r->pending[i] >= seq->token_capacity)
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d keeps its place; its last token is pending",
                             r->number, i);
    }
    return STATUS_OK;
}

/* Nobody waits who fits: the
place of a request that has ended goes to the next. */
static enum status check_nobody_waits(const struct scheduler_model *m, struct error *err)
{
    const int32_t budget = m->config.limits.max_num_tokens - m->batch.num_tokens;
    const int32_t spare = free_blocks(m) - batch_watermark(m->config.num_blocks), places = free_places(m);
    const struct model_request *r = head_of(m, PLACE_SWAPPED);
    if (budget <= 0 || count_moves(m).preempted > 0) return STATUS_OK;
    if (r) {
        if (beams_are_due(r) || (m->config.rope_switch > 0 && !r->request->long_rope)) return STATUS_OK;
        if (most_to_return(m, r) > spare || request_num_unfinished(r->request) > places) return STATUS_OK;
        return error_set(err, STATUS_INTERNAL, "request %d stays swapped, though it fits", r->number);
    }
    r = head_of(m, PLACE_WAITING);
    if (!r || beams_are_due(r) || most_to_start(m, r) > spare || request_num_unfinished(r->request) > places)
        return STATUS_OK;
    if (!m->config.enable_chunked_prefill && request_first_unfinished(r->request)->num_tokens > budget)
        return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "request %d waits, though it fits: %d blocks of %d are free", r->number,
                     free_blocks(m), m->config.num_blocks);
}

/* A running sequence with a token to compute is not passed over while the step has room. */
static enum status check_nobody_is_passed_over(const struct scheduler_model *m, const struct schedule *schedule,
                                               const struct model_request *r, struct error *err)
{
    const int32_t budget = m->config.limits.max_num_tokens - m->batch.num_tokens, most = m->config.rope_switch;
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const struct sequence *seq = &r->request->sequences[i];
        const int32_t known = seq->num_tokens + seq->num_pending;
        const int32_t left = (most > 0 && !r->request->long_rope && known > most ? most : known) - seq->num_computed;
        if (seq->status != SEQUENCE_RUNNING || left <= 0 || is_admitted(schedule, seq)) continue;
        if ((r->request->beams && (r->sampled[i] || seq->num_pending > 0)) || awaits_its_end(seq)) continue;
        bool in_batch = false;
        for (int32_t k = 0; k < m->batch.num_seqs; k++)
            in_batch = in_batch || m->batch.state_indices[k] == seq->state_index;
        if (in_batch || budget <= 0 || (!m->config.enable_chunked_prefill && left > budget)) continue;
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d has %d tokens to compute and is passed over",
                         r->number, i, left);
    }
    return STATUS_OK;
}

/* With no step in flight and nothing scheduled, only beams that are not chosen may keep requests. */
static enum status check_rest(const struct scheduler_model *m, struct error *err)
{
    for (int32_t i = 0; i < m->num_live; i++)
        if (m->live[i]->was_due) return STATUS_OK;
    for (int32_t i = 0; i < m->num_live; i++)
        if (place_of(m->live[i]->request) != PLACE_ENDED)
            return error_set(err, STATUS_INTERNAL, "request %d is left, but nothing is scheduled", m->live[i]->number);
    return STATUS_OK;
}

static enum status check_policy(struct scheduler_model *m, const struct schedule *schedule, struct error *err)
{
    const enum schedule_result result = schedule->result;
    if (result == SCHEDULE_COLLECT_FIRST) {
        m->totals.collect_first++;
        const struct moves moves = count_moves(m);
        if (scheduler_in_flight(m->scheduler) > 0 && moves.preempted + moves.started + moves.swapped_in == 0)
            return STATUS_OK;
        return error_set(err, STATUS_INTERNAL,
                         "a step that is to be collected first changed something, or there is none");
    }
    enum status status = check_moves(m, err);
    if (status == STATUS_OK && m->host_misuse)
        status = error_set(err, STATUS_INTERNAL, "more host blocks were asked for after a failure");
    if (status == STATUS_OK) status = check_need(m, err);
    if (status == STATUS_OK) status = check_watermark(m, err);
    for (int32_t i = 0; i < m->num_live && status == STATUS_OK; i++) status = check_places(m, m->live[i], err);
    if (status == STATUS_OK) status = check_nobody_waits(m, err);
    const bool preempted = count_moves(m).preempted > 0;
    for (int32_t i = 0; i < m->num_live && status == STATUS_OK && !preempted; i++)
        status = check_nobody_is_passed_over(m, schedule, m->live[i], err);
    if (status == STATUS_OK && result == SCHEDULE_EMPTY && scheduler_in_flight(m->scheduler) == 0)
        status = check_rest(m, err);
    return status;
}

static enum status schedule_step(struct scheduler_model *m, enum schedule_result *result, struct error *err)
{
    struct schedule schedule;
    enum status status = remember(m, err);
    if (status == STATUS_OK) status = scheduler_schedule(m->scheduler, &m->batch, &schedule, err);
    if (status != STATUS_OK) return status;
    *result = schedule.result;
    if (schedule.result == SCHEDULE_BATCH)
        status = submit(m, &schedule, err);
    else if (schedule.num_admitted > 0 || m->batch.num_tokens > 0)
        status = error_set(err, STATUS_INTERNAL, "%d sequences start without a batch", schedule.num_admitted);
    return status == STATUS_OK ? check_policy(m, &schedule, err) : status;
}

/* ---- collect, and ends from outside ---- */

static enum status take_event(struct scheduler_model *m, const struct token_event *event,
                              const struct sample_output *samples, struct error *err)
{
    struct model_request *r = model_of(m, event->seq->request);
    if (!r || event->sample < 0 || event->sample >= samples->num_samples ||
        event->token != samples->token_ids[event->sample])
        return error_set(err, STATUS_INTERNAL, "an event is of no request or has another token than its sample");
    const int32_t index = event->seq->index;
    if (event->token < 0) {
        r->damaged[index] = true;
        if (event->seq->finish_reason == FINISH_ERROR) return STATUS_OK;
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d has no token, and goes on", r->number, index);
    }
    r->sampled[index] = r->request->beams;
    r->stalled = false;
    return STATUS_OK;
}

static enum status collect(struct scheduler_model *m, int32_t damaged, struct error *err)
{
    if (scheduler_in_flight(m->scheduler) == 0) return STATUS_OK;
    int32_t tokens[64], num_events;
    const struct token_event *events;
    struct sample_output samples = slot_device_collect(&m->device);
    memcpy(tokens, samples.token_ids, (size_t)samples.num_samples * sizeof *tokens);
    if (damaged > 0 && samples.num_samples > 0) tokens[(damaged - 1) % samples.num_samples] = -1;
    samples.token_ids = tokens;
    enum status status = scheduler_collect(m->scheduler, &samples, &events, &num_events, err);
    for (int32_t i = 0; i < num_events && status == STATUS_OK; i++) status = take_event(m, &events[i], &samples, err);
    return status;
}

static void abort_request(struct scheduler_model *m, int32_t number)
{
    struct model_request *r = find_request(m, number);
    if (!r) return;
    for (int32_t i = 0; i < r->request->num_sequences; i++)
        if (r->request->sequences[i].status != SEQUENCE_FINISHED) r->ended[i] = true;
    scheduler_abort(m->scheduler, r->request);
}

static void finish_sequence(struct scheduler_model *m, int32_t number, int32_t index)
{
    struct model_request *r = find_request(m, number);
    if (!r) return;
    index = clamp(index, 0, r->request->num_sequences - 1);
    if (r->request->sequences[index].status != SEQUENCE_FINISHED) r->ended[index] = true;
    scheduler_finish(m->scheduler, &r->request->sequences[index], FINISH_STOP);
}

/* Choice 0: every beam goes on; others: beams die and are forked as the number says. */
static void choose_beams(struct scheduler_model *m, int32_t number, int32_t choice)
{
    struct model_request *r = find_request(m, number);
    if (!r || !beams_are_due(r)) return;
    const int32_t n = r->request->num_sequences;
    struct beam beams[SCHEDULER_MODEL_MAX_N];
    struct true_sequence truth[SCHEDULER_MODEL_MAX_N];
    int32_t alive[SCHEDULER_MODEL_MAX_N], num_alive = 0;
    for (int32_t i = 0; i < n; i++)
        if (r->request->sequences[i].status != SEQUENCE_FINISHED) alive[num_alive++] = i;
    struct random random = {.state = (uint64_t)choice};
    for (int32_t i = 0; i < n; i++) {
        const int32_t other = alive[random_between(&random, 0, num_alive - 1)];
        beams[i] = (struct beam){.parent = choice == 0 ? i : other,
                                 .token = (int32_t)random_between(&random, 0, TRUE_VOCAB - 1)};
        truth[i] = r->truth[i];
    }
    scheduler_set_beams(m->scheduler, r->request, beams);
    m->totals.beams++;
    for (int32_t k = 0; k < num_alive; k++) {
        const int32_t i = alive[k];
        struct sequence *seq = &r->request->sequences[i];
        r->truth[i] = truth[beams[i].parent];
        r->truth[i].index = i;
        true_sequence_append(&r->truth[i], beams[i].token);
        r->sampled[i] = false;
        r->computed[i] = seq->num_computed; /* check_table reads it back */
    }
    for (int32_t k = 0; k < num_alive; k++)
        if (r->request->sequences[alive[k]].num_tokens >= r->request->sequences[alive[k]].token_capacity) {
            r->ended[alive[k]] = true;
            scheduler_finish(m->scheduler, &r->request->sequences[alive[k]], FINISH_LENGTH);
        }
}

static enum status reset(struct scheduler_model *m, struct error *err)
{
    if (m->unchecked && count_holders(m, err) != STATUS_OK) return STATUS_INTERNAL;
    if (m->held > 0 || scheduler_in_flight(m->scheduler) > 0) return STATUS_OK;
    for (int32_t i = 0; i < m->num_live; i++)
        if (place_of(m->live[i]->request) == PLACE_SWAPPED) return STATUS_OK;
    scheduler_reset_prefix_cache(m->scheduler);
    struct scheduler_stats stats;
    scheduler_get_stats(m->scheduler, &stats);
    if (stats.blocks_cached == 0) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "%d blocks are cached after the reset", stats.blocks_cached);
}

/* ---- operations ---- */

enum status scheduler_model_apply(struct scheduler_model *m, const struct operation *operation, struct error *err)
{
    const int32_t *v = operation->values;
    enum schedule_result result;
    enum status status = STATUS_OK;
    m->totals.operations++;
    switch (operation->kind) {
    case OPERATION_ADD:
        status = add(m, v, err);
        break;
    case OPERATION_ABORT:
        abort_request(m, v[FINISH_REQUEST]);
        break;
    case OPERATION_FINISH:
        finish_sequence(m, v[FINISH_REQUEST], v[FINISH_SEQUENCE]);
        break;
    case OPERATION_SCHEDULE:
        status = schedule_step(m, &result, err);
        break;
    case OPERATION_COLLECT:
        status = collect(m, v[COLLECT_DAMAGED], err);
        break;
    case OPERATION_BEAMS:
        choose_beams(m, v[BEAMS_REQUEST], v[BEAMS_CHOICE]);
        break;
    case OPERATION_RESET:
        status = reset(m, err);
        break;
    case OPERATION_CONFIG:
    case NUM_OPERATION_KINDS:
        break;
    }
    if (status == STATUS_OK && !m->unchecked) status = check_all(m, err);
    return status == STATUS_OK ? take_ended(m, err) : status;
}

void scheduler_model_set_unchecked(struct scheduler_model *m, bool unchecked)
{
    m->unchecked = unchecked;
}

enum status scheduler_model_finish(struct scheduler_model *m, struct error *err)
{
    enum status status = STATUS_OK;
    const int32_t most = 20000; /* nobody starves */
    for (int32_t i = 0; scheduler_has_work(m->scheduler) && status == STATUS_OK; i++) {
        if (i == most) return error_set(err, STATUS_INTERNAL, "requests are left after %d steps", most);
        for (int32_t k = m->num_live - 1; k >= 0 && status == STATUS_OK; k--) {
            struct operation beams = operation_of(OPERATION_BEAMS);
            beams.values[BEAMS_REQUEST] = m->live[k]->number;
            beams.values[BEAMS_CHOICE] = i;
            if (beams_are_due(m->live[k])) status = scheduler_model_apply(m, &beams, err);
        }
        const struct operation schedule = operation_of(OPERATION_SCHEDULE), take = operation_of(OPERATION_COLLECT);
        if (status == STATUS_OK) status = scheduler_model_apply(m, &schedule, err);
        if (status == STATUS_OK) status = scheduler_model_apply(m, &take, err);
    }
    if (status == STATUS_OK && (m->num_live > 0 || m->held > 0))
        status = error_set(err, STATUS_INTERNAL, "%d requests and %d blocks are left at the end", m->num_live, m->held);
    if (status == STATUS_OK && block_pool_num_in_use(&m->scheduler->blocks.host) > 0)
        status = error_set(err, STATUS_INTERNAL, "host blocks are held at the end");
    return status;
}

const struct scheduler_model_totals *scheduler_model_get_totals(struct scheduler_model *m)
{
    m->totals.evictions = m->scheduler->blocks.evictions;
    return &m->totals;
}

/* ---- the state ---- */

struct digest {
    uint64_t hash;
};

static void put(struct digest *d, int64_t value)
{
    d->hash = random_mix(d->hash * RANDOM_STEP + (uint64_t)value);
}

static void put_pool(struct digest *d, const struct block_pool *pool)
{
    put(d, pool->untaken);
    put(d, pool->end);
    for (int32_t i = pool->first; i < pool->untaken; i++) {
        const struct block *b = &pool->blocks[i];
        put(d, b->ref_count);
        put(d, b->prefix != PREFIX_NONE);
        put(d, b->ref_count > 0 ? b->filled : 0);
    }
    for (int32_t i = pool->head; i != BLOCK_NONE; i = pool->blocks[i].next) put(d, i);
}

/* What the blocks that can be found hold. Of blocks in use the tables say it. */
static void put_cached(struct digest *d, const struct scheduler_model *m)
{
    const int32_t size = m->config.limits.block_size;
    const struct block_pool *pool = &m->scheduler->blocks.pool;
    for (int32_t i = pool->first; i < pool->untaken; i++) {
        if (pool->blocks[i].prefix == PREFIX_NONE) continue;
        const struct slot *last = &m->device.slots[(int64_t)i * size + size - 1];
        put(d, (int64_t)last->context);
        put(d, last->group);
    }
}

static void put_sequence(struct digest *d, const struct scheduler_model *m, const struct model_request *r,
                         const struct sequence *seq)
{
    const int64_t values[] = {seq->status,
                              seq->finish_reason,
                              seq->num_tokens,
                              seq->num_pending,
                              seq->pending_sample,
                              seq->num_computed,
                              seq->num_hashed,
                              seq->prefix != PREFIX_NONE,
                              seq->state_index,
                              seq->num_writable,
                              clamp((int32_t)(m->scheduler->num_steps - seq->last_step), 0, 3),
                              r->sampled[seq->index],
                              r->ended[seq->index],
                              clamp((int32_t)(m->scheduler->num_steps - seq->first_step), 0, 2)};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) put(d, values[i]);
    put(d, (int64_t)r->truth[seq->index].contexts[seq->num_tokens]);
    for (int32_t g = 0; g < m->config.limits.num_groups; g++) {
        const struct block_table *table = &seq->tables[g];
        put(d, table->num_blocks);
        put(d, table->first);
        put(d, seq->num_uploaded[g]);
        for (int32_t i = 0; i < table->num_blocks; i++) put(d, table->blocks[i]);
    }
}

static void put_request(struct digest *d, const struct scheduler_model *m, const struct model_request *r)
{
    const struct request *request = r->request;
    const int64_t retry = request->retry_gains - m->scheduler->blocks.gains;
    put(d, r->number);
    put(d, place_of(request));
    put(d, request->long_rope | request->aborted << 1 | request->stalled << 2);
    put(d, request->leader ? request->leader->index : -1);
    put(d, request->num_preemptions > 0);
    put(d, retry > 0 ? retry : 0);
    for (int32_t i = 0; i < request->num_sequences; i++) put_sequence(d, m, r, &request->sequences[i]);
}

/* Requests are in order of arrival, and their numbers say the rest of their ranks. */
uint64_t scheduler_model_state(const struct scheduler_model *m)
{
    const struct scheduler *s = m->scheduler;
    struct digest d = {.hash = 1};
    for (int32_t i = 0; i < m->num_live; i++) put_request(&d, m, m->live[i]);
    for (int32_t i = 0; i < s->in_flight; i++) {
        const struct step *step = &s->steps[(s->oldest + i) % SCHEDULER_MAX_STEPS];
        put(&d, step->num_sampled);
        for (int32_t k = 0; k < step->num_sampled; k++) {
            put(&d, model_of(m, step->sampled[k]->request)->number);
            put(&d, step->sampled[k]->index);
        }
    }
    put_pool(&d, &s->blocks.pool);
    put_pool(&d, &s->blocks.host);
    put_cached(&d, m);
    for (int32_t i = 0; i < s->num_free_state_indices; i++) put(&d, s->free_state_indices[i]);
    put(&d, s->host_failed);
    put(&d, m->host_calls);
    return d.hash;
}

/* ---- for people ---- */

void scheduler_model_print(const struct scheduler_model *m, FILE *out)
{
    static const char *const places[] = {"waiting", "swapped", "running", "ended"};
    static const char *const states[] = {"waiting", "running", "swapped", "finished"};
    struct scheduler_stats stats;
    scheduler_get_stats(m->scheduler, &stats);
    fprintf(out, "    %d steps in flight; blocks: %d in use, %d cached, %d free; %d of the host in use\n",
            scheduler_in_flight(m->scheduler), stats.blocks_in_use, stats.blocks_cached, stats.blocks_free,
            stats.host_blocks_in_use);
    for (int32_t i = 0; i < m->num_live; i++) {
        const struct request *request = m->live[i]->request;
        fprintf(out, "    request %d: %s%s%s\n", m->live[i]->number, places[place_of(request)],
                beams_are_due(m->live[i]) ? ", beams are due" : "", m->live[i]->stalled ? ", no token yet since" : "");
        for (int32_t j = 0; j < request->num_sequences; j++) {
            const struct sequence *seq = &request->sequences[j];
            fprintf(out, "        %s, %d tokens and %d pending of %d, %d computed; tables", states[seq->status],
                    seq->num_tokens, seq->num_pending, seq->token_capacity, seq->num_computed);
            for (int32_t g = 0; g < m->config.limits.num_groups; g++) {
                fprintf(out, " [");
                for (int32_t b = 0; b < seq->tables[g].num_blocks; b++) fprintf(out, " %d", seq->tables[g].blocks[b]);
                fprintf(out, " ]");
            }
            fputc('\n', out);
        }
    }
}
