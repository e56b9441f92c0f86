#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tests/support/scheduler_model_state.h"

#define EOS 1
#define FIRST_STOP 5
#define SECOND_STOP 9

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

struct model_request *model_find(const struct scheduler_model *m, int32_t number)
{
    for (int32_t i = 0; i < m->num_live; i++)
        if (m->live[i]->number == number) return m->live[i];
    return NULL;
}

struct model_request *model_of(const struct scheduler_model *m, const struct request *request)
{
    for (int32_t i = 0; i < m->num_live; i++)
        if (m->live[i]->request == request) return m->live[i];
    return NULL;
}

enum place model_place(const struct request *request)
{
    if (request_finished(request)) return PLACE_ENDED;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        if (request->sequences[i].status == SEQUENCE_RUNNING) return PLACE_RUNNING;
        if (request->sequences[i].status == SEQUENCE_SWAPPED) return PLACE_SWAPPED;
    }
    return PLACE_WAITING;
}

bool model_beams_are_due(const struct model_request *r)
{
    bool due = r->request->beams && !request_finished(r->request);
    for (int32_t i = 0; i < r->request->num_sequences; i++)
        due = due && (r->sampled[i] || r->request->sequences[i].status == SEQUENCE_FINISHED);
    return due;
}

bool scheduler_model_beams_are_due(const struct scheduler_model *m, int32_t number)
{
    const struct model_request *r = model_find(m, number);
    return r && model_beams_are_due(r);
}

/* a runs before b. */
bool model_precedes(const struct scheduler_model *m, const struct request *a, const struct request *b)
{
    if (m->config.policy == SCHEDULING_PRIORITY && a->priority != b->priority) return a->priority < b->priority;
    return a->arrival < b->arrival;
}

/* A running sequence whose last token is pending has given its place on. */
bool model_has_place(const struct sequence *seq)
{
    return seq->status == SEQUENCE_RUNNING && seq->state_index >= 0;
}

bool model_awaits_its_end(const struct sequence *seq)
{
    return seq->status == SEQUENCE_RUNNING && seq->num_pending > 0 &&
           seq->num_tokens + seq->num_pending >= seq->token_capacity && !seq->request->beams;
}

/* The positions that the sequence's next query reads in this group begin here. */
int32_t model_first_read(const struct scheduler_model *m, int32_t group, int32_t position)
{
    const int32_t window = m->config.limits.windows[group];
    if (window == 0 || position < window) return 0;
    return m->config.limits.chunked[group] ? position / window * window : position - window + 1;
}

/* Blocks that the request holds, a shared one counted once. */
int32_t model_num_distinct(const struct scheduler_model *m, const struct request *request)
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

/* The sequence of a state index of this batch. */
struct model_request *model_of_state(const struct scheduler_model *m, int32_t state_index, int32_t *index)
{
    for (int32_t i = 0; i < m->num_live; i++)
        for (int32_t j = 0; j < m->live[i]->request->num_sequences; j++)
            if (&m->live[i]->truth[j] == m->device.states[state_index]) {
                *index = j;
                return m->live[i];
            }
    return NULL;
}

bool model_is_admitted(const struct schedule *schedule, const struct sequence *seq)
{
    for (int32_t i = 0; i < schedule->num_admitted; i++)
        if (schedule->admitted[i] == seq) return true;
    return false;
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
    static int32_t stop_ids[] = {FIRST_STOP, SECOND_STOP};
    struct sampling_params params = sampling_params_default();
    params.n = model_clamp(v[ADD_N], 1, SCHEDULER_MODEL_MAX_N);
    params.max_tokens = v[ADD_MAX] <= 0 ? -1 : v[ADD_MAX];
    params.min_tokens = params.max_tokens < 0 ? 0 : model_clamp(v[ADD_MIN], 0, params.max_tokens);
    params.ignore_eos = v[ADD_EOS] == 0;
    params.num_stop_token_ids = v[ADD_EOS] > 1 ? 2 : 0;
    params.stop_token_ids = stop_ids;
    params.seed = (uint64_t)v[ADD_SEED];
    params.prompt_logprobs = model_clamp(v[ADD_LOGPROBS], 0, SLOT_DEVICE_TOPS + 1) - 1;
    return params;
}

enum { NUM_SALTS = 6, LONG_SALT = 20000 }; /* bytes: more chunks of a block than the prefix cache has numbers */

/* Where the prefix cache's hashes are few, so are those of salts. */
static enum status set_salt(const struct scheduler_model *m, struct request *request, int32_t number, struct error *err)
{
    static const char *const salts[] = {"a", "ab", "another salt"};
    char text[LONG_SALT + 1] = {0};
    memset(text, 's', LONG_SALT);
    text[LONG_SALT - 1] = (char)('a' + number);
    request->cache_salt = cache_salt_create(number <= 3 ? salts[number - 1] : text);
    if (!request->cache_salt) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a salt");
    if (m->num_hashes > 0) request->cache_salt->hash %= (uint64_t)m->num_hashes;
    return STATUS_OK;
}

static enum status make_request(struct scheduler_model *m, struct model_request *r, const int32_t *v, struct error *err)
{
    const struct sampling_params params = params_of(v);
    const int32_t length = model_clamp(v[ADD_LENGTH], 1, m->config.limits.max_model_len);
    int32_t prompt[TRUE_MAX_TOKENS];
    for (int32_t i = 0; i < length; i++)
        prompt[i] = i < v[ADD_SHARED] ? prompt_token(v[ADD_BASE], i) : prompt_token(100 + v[ADD_REQUEST], i);
    enum status status = request_create(&params, prompt, length, &m->config.limits, &r->request, err);
    const int32_t salt = model_clamp(v[ADD_SALT], 0, NUM_SALTS - 1);
    if (status == STATUS_OK && salt > 0) status = set_salt(m, r->request, salt, err);
    if (status != STATUS_OK) return status;
    r->request->eos_token_ids[0] = EOS;
    r->request->num_eos = 1;
    r->request->priority = v[ADD_PRIORITY];
    r->request->beams = v[ADD_BEAMS] != 0;
    r->request->state_boundary = model_clamp(v[ADD_STATE], 0, length);
    r->number = v[ADD_REQUEST];
    r->scored = params.prompt_logprobs < 0 ? length : 1;
    for (int32_t i = 0; i < params.n; i++) {
        true_sequence_init(&r->truth[i], r->number, i, params.seed, salt);
        for (int32_t t = 0; t < length; t++) true_sequence_append(&r->truth[i], prompt[t]);
        r->truth[i].prompt_len = length;
        r->truth[i].chosen = r->request->beams;
        if (!r->request->beams) run_alone(r, i, m->config.limits.max_model_len);
    }
    return STATUS_OK;
}

enum status model_add(struct scheduler_model *m, const int32_t *v, struct error *err)
{
    if (m->num_live == SCHEDULER_MODEL_MAX_REQUESTS || model_find(m, v[ADD_REQUEST])) return STATUS_OK;
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
