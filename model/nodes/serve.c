#include "model/nodes/serve.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "model/nodes/batch_message.h"
#include "model/nodes/nodes_state.h"

static const double LAST_WORDS_SECONDS = 2; /* that node 0 has to say why all end */

static const volatile sig_atomic_t never = 0; /* only node 0 cancels steps */

struct server {
    struct nodes *n;
    const struct model_rank *ranks[2]; /* of the target and of its drafter */
    int32_t count;
    struct model *models[2];
    struct batch batches[2];
};

/* A message that is being done. */
struct task {
    struct node_header header;
    const char *bytes;
    struct node_answer answer;
    bool answers; /* the call waits for an answer; its failure is reported there */
};

static enum status not_understood(const struct task *t, struct error *err)
{
    return error_set(err, STATUS_INTERNAL, "node 0 has sent a message %u of %llu bytes, which is not one",
                     t->header.message, (unsigned long long)t->header.bytes);
}

static enum status create(struct server *s, const struct task *t, struct error *err)
{
    const uint32_t i = t->header.model;
    struct node_create c;
    if (t->header.bytes != sizeof c || s->models[i] || !s->ranks[i]) return not_understood(t, err);
    memcpy(&c, t->bytes, sizeof c);
    c.options.nodes = s->n;
    c.options.cancel = c.can_cancel ? &never : NULL;
    nodes_set_id(s->n, c.id);
    for (int32_t r = 0; r < s->count && i == 0; r++) {
        struct backend *b = s->ranks[0][r].backend;
        if (b->preload) b->preload(b, c.options.dtype);
    }
    enum status status = batch_init(&s->batches[i], &c.options.limits, err);
    if (status == STATUS_OK) status = model_create_ranks(s->ranks[i], s->count, &c.options, &s->models[i], err);
    return status;
}

static enum status set_sampling_state(struct server *s, const struct task *t, struct error *err)
{
    int32_t numbers[2];
    struct sampling_state state;
    const size_t fixed = sizeof numbers + sizeof state;
    if (t->header.bytes < fixed) return not_understood(t, err);
    memcpy(numbers, t->bytes, sizeof numbers);
    memcpy(&state, t->bytes + sizeof numbers, sizeof state);
    const struct batch_limits *limits = &s->batches[0].limits;
    if (numbers[0] < 0 || numbers[0] >= limits->max_num_seqs || numbers[1] < 0 || numbers[1] > limits->max_model_len ||
        t->header.bytes != fixed + (size_t)numbers[1] * sizeof(int32_t))
        return not_understood(t, err);
    model_set_sampling_state(s->models[0], numbers[0], &state, (const int32_t *)(t->bytes + fixed), numbers[1]);
    return STATUS_OK;
}

static enum status submit(struct server *s, const struct task *t, struct error *err)
{
    const uint32_t i = t->header.model;
    if (!batch_message_read(t->bytes, t->header.bytes, &s->batches[i])) return not_understood(t, err);
    const enum status status = model_submit(s->models[i], &s->batches[i], err);
    return status == STATUS_CANCELLED ? STATUS_OK : status; /* it is on node 0, too */
}

static enum status memory(const struct server *s, struct node_answer *answer, struct error *err)
{
    answer->available = INT64_MAX;
    for (int32_t r = 0; r < s->count; r++) {
        struct backend *b = s->ranks[0][r].backend;
        int64_t available, total;
        const enum status status = b->memory_info(b, &available, &total, err);
        if (status != STATUS_OK) return status;
        if (available >= answer->available) continue;
        answer->available = available;
        answer->total = total;
    }
    return STATUS_OK;
}

/* The numbers of a call. */
static bool read_numbers(const struct task *t, int32_t *out, size_t count)
{
    if (t->header.bytes != count * sizeof *out) return false;
    memcpy(out, t->bytes, count * sizeof *out);
    return true;
}

static enum status with_number(struct server *s, struct task *t, struct error *err)
{
    struct model *m = s->models[t->header.model];
    int32_t number;
    if (!read_numbers(t, &number, 1)) return not_understood(t, err);
    if (t->header.message == NODE_SET_IDLE) {
        model_set_idle(m, number != 0);
        return STATUS_OK;
    }
    if (t->header.message == NODE_ALLOCATE_CACHE) return model_allocate_cache(m, number, err);
    if (t->header.message == NODE_GROW_BLOCKS) return model_grow_swap_space(m, number, &t->answer.added, err);
    return model_grow_host_slots(m, number, &t->answer.added, err);
}

static enum status take_drafts(struct server *s, const struct task *t, struct error *err)
{
    int32_t numbers[2];
    if (!s->models[1] || !read_numbers(t, numbers, 2)) return not_understood(t, err);
    model_take_drafts(s->models[0], numbers[0], s->models[1], numbers[1]);
    return STATUS_OK;
}

static enum status call_model(struct server *s, struct task *t, struct error *err)
{
    struct model *m = s->models[t->header.model];
    struct sample_output ignored;
    if (!m) return not_understood(t, err);
    switch ((enum node_message)t->header.message) {
    case NODE_ALLOCATE_CACHE:
    case NODE_GROW_BLOCKS:
    case NODE_GROW_SLOTS:
    case NODE_SET_IDLE:
        return with_number(s, t, err);
    case NODE_RELEASE_CACHE:
        model_release_cache(m);
        return STATUS_OK;
    case NODE_CAPTURE:
        return model_capture(m, err);
    case NODE_WAIT_FOR_WEIGHTS:
        return model_wait_for_weights(m, err);
    case NODE_SAMPLING_STATE:
        return set_sampling_state(s, t, err);
    case NODE_SUBMIT:
        return submit(s, t, err);
    case NODE_COLLECT:
        return model_collect(m, &ignored, err);
    case NODE_ATTACH:
        if (!s->models[1]) return not_understood(t, err);
        model_attach(s->models[1], s->models[0]);
        return STATUS_OK;
    case NODE_TAKE_DRAFTS:
        return take_drafts(s, t, err);
    default:
        return not_understood(t, err);
    }
}

/* Whether node 0 waits for what became of it. */
static bool is_answered(enum node_message message)
{
    return message == NODE_CREATE || message == NODE_ALLOCATE_CACHE || message == NODE_GROW_BLOCKS ||
           message == NODE_GROW_SLOTS || message == NODE_CAPTURE || message == NODE_WAIT_FOR_WEIGHTS ||
           message == NODE_MEMORY;
}

static enum status send_answer(struct server *s, struct task *t, enum status status, const struct error *why,
                               struct error *err)
{
    struct nodes *n = s->n;
    t->answer.status = status;
    if (!node_message_begin(n, NODE_ANSWER, t->header.model) ||
        !text_append(&n->message, (const char *)&t->answer, sizeof t->answer) ||
        (status != STATUS_OK && !text_append_string(&n->message, why->text)))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for an answer to node 0");
    const enum socket_result result = node_message_send(n, 0, clock_seconds() + n->options.timeout);
    return result == SOCKET_OK ? STATUS_OK : node_failure(n, 0, result, err);
}

static enum status do_task(struct server *s, struct task *t, struct error *err)
{
    struct error why = {""};
    enum status status;
    if (t->header.model > 1) return not_understood(t, err);
    if (t->header.message == NODE_CREATE)
        status = create(s, t, &why);
    else if (t->header.message == NODE_MEMORY)
        status = memory(s, &t->answer, &why);
    else
        status = call_model(s, t, &why);
    if (group_has_failed(s->n->failure)) return group_failure_get(s->n->failure, err);
    if (is_answered((enum node_message)t->header.message)) return send_answer(s, t, status, &why, err);
    if (status != STATUS_OK && err) *err = why;
    return status;
}

/* After a failure that another node may have caused: node 0 may have said why, behind what was not done any more. */
static enum status last_words(struct server *s, enum status status, struct error *err)
{
    const double end = clock_seconds() + LAST_WORDS_SECONDS;
    struct node_header header;
    while (node_message_receive(s->n, 0, end, &header) == SOCKET_OK) {
        if (header.message == NODE_END) return STATUS_OK;
        if (header.message == NODE_FAILED) return error_set(err, STATUS_IO, "%s", s->n->message.data);
    }
    return status;
}

static enum status serve(struct server *s, struct error *err)
{
    for (;;) {
        struct task t = {0};
        const enum socket_result result = node_message_receive(s->n, 0, INFINITY, &t.header);
        if (result != SOCKET_OK) return node_failure(s->n, 0, result, err);
        t.bytes = s->n->message.data;
        if (t.header.message == NODE_END) return STATUS_OK;
        if (t.header.message == NODE_FAILED) return error_set(err, STATUS_IO, "%s", t.bytes);
        const enum status status = do_task(s, &t, err);
        if (status == STATUS_OK) continue;
        return group_has_failed(s->n->failure) ? last_words(s, status, err) : status;
    }
}

enum status nodes_serve(struct nodes *n, const struct model_rank *ranks, const struct model_rank *drafter_ranks,
                        int32_t count, struct error *err)
{
    struct server s = {.n = n, .ranks = {ranks, drafter_ranks}, .count = count};
    const enum status status = serve(&s, err);
    if (status != STATUS_OK) group_fail(n->failure, status, err->text);
    for (int i = 1; i >= 0; i--) {
        model_destroy(s.models[i]);
        batch_free(&s.batches[i]);
    }
    return status;
}
