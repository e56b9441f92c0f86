#include "scheduler/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "base/plural.h"

const char *finish_reason_name(enum finish_reason reason)
{
    switch (reason) {
    case FINISH_STOP:
        return "stop";
    case FINISH_LENGTH:
        return "length";
    case FINISH_ABORT:
        return "abort";
    case FINISH_ERROR:
        return "error";
    case FINISH_NONE:
        break;
    }
    return NULL;
}

_Static_assert(sizeof(struct sequence) % CACHE_LINE == 0, "each sequence begins a cache line");

/* The tables of all groups and their entries, in one allocation. */
static struct block_table *create_tables(const struct batch_limits *limits, int32_t capacity)
{
    const size_t groups = (size_t)limits->num_groups;
    size_t entries = 0;
    for (int32_t g = 0; g < limits->num_groups; g++) entries += (size_t)batch_num_blocks(limits, g, capacity);
    struct block_table *tables = calloc(1, groups * sizeof *tables + entries * sizeof *tables->blocks);
    if (!tables) return NULL;
    int32_t *blocks = (int32_t *)(tables + groups);
    for (int32_t g = 0; g < limits->num_groups; g++) {
        tables[g].blocks = blocks;
        blocks += batch_num_blocks(limits, g, capacity);
    }
    return tables;
}

static bool sequence_init(struct sequence *seq, struct request *request, int32_t index, const int32_t *prompt,
                          int32_t prompt_len, int32_t capacity, const struct batch_limits *limits)
{
    *seq = (struct sequence){.request = request, .index = index, .stop_token = -1, .state_index = -1, .last_step = -1};
    seq->num_tokens = seq->prompt_len = prompt_len;
    seq->token_capacity = capacity;
    seq->tables = create_tables(limits, capacity);
    /* One more than the capacity: see request_create. */
    seq->tokens = malloc(((size_t)capacity + 1) * sizeof *seq->tokens);
    if (!seq->tokens || !seq->tables) return false;
    memcpy(seq->tokens, prompt, (size_t)prompt_len * sizeof *prompt);
    return true;
}

/* The struct and its arrays, in one allocation. */
static struct prompt_logprobs *create_prompt_logprobs(int32_t num_tokens, int32_t num_top)
{
    const size_t tokens = (size_t)num_tokens, tops = tokens * (size_t)num_top;
    struct prompt_logprobs *p;
    p = calloc(1, sizeof *p + tokens * (sizeof *p->logprobs + sizeof *p->ranks) +
                      tops * (sizeof *p->top_ids + sizeof *p->top_logprobs));
    if (!p) return NULL;
    *p = (struct prompt_logprobs){.num_tokens = num_tokens, .num_top = num_top, .num_submitted = 1};
    p->logprobs = (float *)(p + 1);
    p->ranks = (int32_t *)(p->logprobs + tokens);
    p->top_ids = p->ranks + tokens;
    p->top_logprobs = (float *)(p->top_ids + tops);
    return p;
}

enum status request_create(const struct sampling_params *params, const int32_t *prompt, int32_t prompt_len,
                           const struct batch_limits *limits, struct request **out, struct error *err)
{
    *out = NULL;
    if (prompt_len < 1 || prompt_len > limits->max_model_len)
        return error_set(err, STATUS_INVALID, "the prompt has %d tokens; it must have 1 to max_model_len, which is %d",
                         prompt_len, limits->max_model_len);
    int32_t capacity = limits->max_model_len;
    if (params->max_tokens != -1 && params->max_tokens < capacity - prompt_len)
        capacity = prompt_len + params->max_tokens;

    const char *name;
    const int32_t num_sequences = sampling_params_num_sequences(params, &name);
    const size_t bytes = sizeof(struct request) + (size_t)num_sequences * sizeof(struct sequence);
    void *memory = NULL;
    bool ok = posix_memalign(&memory, CACHE_LINE, bytes) == 0;
    struct request *request = ok ? memset(memory, 0, bytes) : NULL;
    if (ok) {
        request->sequences = (struct sequence *)(request + 1);
        request->num_sequences = num_sequences;
        ok = sampling_params_copy(params, &request->params);
        if (ok && params->prompt_logprobs >= 0)
            ok = (request->prompt_logprobs = create_prompt_logprobs(prompt_len, params->prompt_logprobs)) != NULL;
    }
    for (int32_t i = 0; ok && i < num_sequences; i++)
        ok = sequence_init(&request->sequences[i], request, i, prompt, prompt_len, capacity, limits);
    if (!ok) {
        request_destroy(request);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a request of %d sequence%s of %d token%s",
                         num_sequences, plural(num_sequences), capacity, plural(capacity));
    }
    *out = request;
    return STATUS_OK;
}

void request_destroy(struct request *request)
{
    if (!request) return;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        free(request->sequences[i].tokens);
        free(request->sequences[i].tables);
    }
    sampling_params_free(&request->params);
    free(request->prompt_logprobs);
    cache_salt_release(request->cache_salt);
    free(request->error);
    free(request);
}

int32_t request_most_cached(const struct request *request)
{
    const struct prompt_logprobs *p = request->prompt_logprobs;
    return p && p->num_submitted < p->num_tokens ? p->num_submitted - 1 : INT32_MAX;
}

struct error *request_error(struct request *request)
{
    if (!request->error) request->error = calloc(1, sizeof *request->error);
    return request->error;
}

struct sequence *request_first_unfinished(const struct request *request)
{
    for (int32_t i = 0; i < request->num_sequences; i++)
        if (request->sequences[i].status != SEQUENCE_FINISHED) return &request->sequences[i];
    return NULL;
}

int32_t request_num_unfinished(const struct request *request)
{
    int32_t count = 0;
    for (int32_t i = 0; i < request->num_sequences; i++) count += request->sequences[i].status != SEQUENCE_FINISHED;
    return count;
}

bool request_finished(const struct request *request)
{
    return request_first_unfinished(request) == NULL;
}
