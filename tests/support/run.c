#include "tests/support/run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "kernels/backend.h"
#include "kernels/collective.h"
#include "runtime/commands.h"
#include "tests/support/must.h"

/* Rounding may change which of two logits is larger if they are closer than this. The tiny checkpoints' logits are of
 * size 1 to 10. */
static const float TIE = 5e-4f;

static const char *run_device = "cpu";

void run_set_device(const char *device)
{
    run_device = device;
}

static bool device_opens(void)
{
    struct backend *backend;
    struct error err;
    if (backend_open(run_device, 0, &backend, &err) != STATUS_OK) return false;
    backend->destroy(backend);
    return true;
}

const char *run_need_device(void)
{
    if (!device_opens()) {
        print_message("skipped: no CUDA device\n");
        skip();
    }
    return run_device;
}

int32_t run_max_ranks(void)
{
    if (strcmp(run_device, "cpu") == 0) return COLLECTIVE_MAX_RANKS;
    const int32_t gpus = backend_num_gpus();
    if (gpus < 2) {
        print_message("skipped: fewer than two CUDA devices\n");
        skip();
    }
    return gpus < COLLECTIVE_MAX_RANKS ? gpus : COLLECTIVE_MAX_RANKS;
}

struct backend *run_rank_device(const struct backend *first, int32_t rank)
{
    struct backend *backend;
    struct error err;
    char device[32] = "cpu";
    if (first->discrete) snprintf(device, sizeof device, "cuda:%d", rank);
    must(backend_open(device, 1, &backend, &err), &err);
    return backend;
}

bool run_has_isa(enum cpu_isa isa)
{
#ifdef __SANITIZE_THREAD__
    for (enum cpu_isa wider = isa + 1; wider < CPU_ISA_COUNT; wider++)
        if (cpu_isa_supported(wider)) return false;
#endif
    return cpu_isa_supported(isa);
}

struct engine_options run_options(const char *folder, char *path, size_t size)
{
    struct engine_options o = engine_options_default();
    if (strncmp(folder, "golden/", 7) != 0)
        snprintf(path, size, "%s", folder);
    else
        snprintf(path, size, "%s/%s", QUIRE_TEST_DATA, folder);
    o.model = path;
    o.device = run_need_device();
    o.dtype = "float32";
    o.gpu_memory_utilization = 0.2;
    o.skip_tokenizer = true;
    o.kv_cache_space = 0.01;
    o.swap_space = 0.01;
    o.max_num_seqs = 16;
    o.max_num_batched_tokens = 512;
    return o;
}

struct engine *run_engine(const struct engine_options *options)
{
    struct engine *e = NULL;
    struct error err = {""};
    if (engine_create(options, &e, &err) != STATUS_OK) fail_msg("engine_create: %s", err.text);
    return e;
}

struct engine_options run_variant_options(const char *folder, int32_t max_model_len, const struct run_variant *v,
                                          char *path, size_t size)
{
    struct engine_options o = run_options(folder, path, size);
    o.max_model_len = max_model_len;
    o.block_size = v->block_size;
    o.max_num_seqs = v->max_num_seqs;
    o.max_num_batched_tokens = v->max_num_batched_tokens;
    o.num_gpu_blocks_override = v->num_blocks;
    o.enable_prefix_caching = v->caching;
    o.async_scheduling = v->async;
    o.preemption_mode = v->preemption_mode;
    return o;
}

struct engine *run_variant_engine(const char *folder, int32_t max_model_len, const struct run_variant *v)
{
    char path[512];
    const struct engine_options o = run_variant_options(folder, max_model_len, v, path, sizeof path);
    return run_engine(&o);
}

void run_answer_open(struct run_answer *a, int32_t capacity)
{
    *a = (struct run_answer){.capacity = capacity};
    a->tokens = calloc((size_t)capacity, sizeof *a->tokens);
    a->gaps = calloc((size_t)capacity, sizeof *a->gaps);
}

void run_answer_free(struct run_answer *a)
{
    free(a->tokens);
    free(a->gaps);
    text_free(&a->text);
}

void run_answer_add(struct run_answer *a, const struct answer_piece *piece)
{
    if (a->finish != FINISH_NONE) a->pieces_after_end++;
    for (int32_t i = 0; i < piece->num_tokens && a->count < a->capacity; i++) {
        a->tokens[a->count] = piece->token_ids[i];
        a->gaps[a->count] = piece->num_top >= 2 ? piece->top_logprobs[0] - piece->top_logprobs[1] : 1e9f;
        a->count++;
    }
    text_append(&a->text, piece->text, piece->text_length);
    a->finish = piece->finish_reason;
    if (piece->error) snprintf(a->error, sizeof a->error, "%s", command_sentence(piece->error).text);
    if (piece->stop_reason) snprintf(a->stop_reason, sizeof a->stop_reason, "%s", piece->stop_reason);
    if (piece->score) a->score = *piece->score;
    a->stop_token = piece->stop_token;
    a->prompt_tokens = piece->prompt_tokens;
    a->cached_tokens = piece->cached_tokens;
    a->output_tokens = piece->output_tokens;
}

static void deliver(void *user, const struct answer_piece *piece)
{
    run_answer_add((struct run_answer *)user + piece->index, piece);
}

void run_answer_check(const struct run_answer *a)
{
    assert_int_not_equal(a->finish, FINISH_NONE);
    assert_int_equal(a->pieces_after_end, 0);
    assert_int_equal(a->output_tokens, a->count);
}

/* The params of prompt i are params[i * step]. */
static void run_all(struct engine *e, const struct run_prompt *prompts, int32_t num_prompts,
                    const struct sampling_params *params, int32_t step, struct run *out)
{
    const int32_t capacity = engine_info(e)->limits->max_model_len;
    int32_t n = 1;
    assert_true(num_prompts > 0);
    for (int32_t i = 0; i < num_prompts; i++) n = params[i * step].n > n ? params[i * step].n : n;
    *out = (struct run){.num_prompts = num_prompts, .n = n};
    out->answers = calloc((size_t)(uint32_t)num_prompts * (uint32_t)n, sizeof *out->answers);
    for (int32_t i = 0; i < num_prompts * n; i++) run_answer_open(&out->answers[i], capacity);
    struct error err = {""};
    for (int32_t i = 0; i < num_prompts; i++) {
        const struct engine_request request = {.prompt = prompts[i].ids,
                                               .prompt_len = prompts[i].length,
                                               .params = &params[i * step],
                                               .deliver = deliver,
                                               .user = &out->answers[i * n]};
        if (engine_add(e, &request, NULL, &err) != STATUS_OK) fail_msg("engine_add: %s", err.text);
    }
    while (engine_has_work(e)) {
        bool worked;
        if (engine_step(e, &worked, &err) != STATUS_OK) fail_msg("engine_step: %s", err.text);
        if (!worked && engine_has_work(e)) fail_msg("the engine has work but does nothing");
    }
    for (int32_t i = 0; i < num_prompts; i++)
        for (int32_t j = 0; j < params[i * step].n; j++) run_answer_check(&out->answers[i * n + j]);
    struct scheduler_stats stats;
    engine_stats(e, &stats);
    assert_int_equal(stats.blocks_in_use, 0);
}

void run_requests(struct engine *e, const struct run_prompt *prompts, int32_t num_prompts,
                  const struct sampling_params *params, struct run *out)
{
    run_all(e, prompts, num_prompts, params, 1, out);
}

void run_prompts(struct engine *e, const struct run_prompt *prompts, int32_t num_prompts,
                 const struct sampling_params *params, struct run *out)
{
    run_all(e, prompts, num_prompts, params, 0, out);
}

void run_free(struct run *run)
{
    for (int32_t i = 0; i < run->num_prompts * run->n; i++) run_answer_free(&run->answers[i]);
    free(run->answers);
    *run = (struct run){0};
}

struct run_prompt *run_random_prompts(const int32_t *lengths, int32_t count, int32_t vocab_size, uint64_t seed)
{
    struct run_prompt *prompts = calloc((size_t)count, sizeof *prompts);
    struct random random = {seed};
    for (int32_t i = 0; i < count; i++) {
        int32_t *ids = malloc((size_t)lengths[i] * sizeof *ids);
        for (int32_t j = 0; j < lengths[i]; j++) ids[j] = (int32_t)random_between(&random, 0, vocab_size - 1);
        prompts[i] = (struct run_prompt){ids, lengths[i]};
    }
    return prompts;
}

void run_prompts_free(struct run_prompt *prompts, int32_t count)
{
    for (int32_t i = 0; i < count; i++) free((void *)prompts[i].ids);
    free(prompts);
}

enum run_match run_answer_match(const struct run_answer *reference, const struct run_answer *other, int32_t *at)
{
    int32_t k = 0;
    while (k < reference->count && k < other->count && reference->tokens[k] == other->tokens[k]) k++;
    *at = k;
    if (k == reference->count && k == other->count) return RUN_SAME;
    return k < reference->count && reference->gaps[k] < TIE ? RUN_CUT : RUN_DIFFERENT;
}

int run_assert_same(const struct run *reference, const struct run *other, const char *what)
{
    int cut = 0;
    int32_t k;
    assert_int_equal(reference->num_prompts * reference->n, other->num_prompts * other->n);
    for (int32_t i = 0; i < reference->num_prompts * reference->n; i++) {
        const struct run_answer *a = &reference->answers[i], *b = &other->answers[i];
        const enum run_match match = run_answer_match(a, b, &k);
        cut += match == RUN_CUT;
        if (match != RUN_DIFFERENT) continue;
        fail_msg("%s: answer %d differs at output token %d of %d (%d against %d; gap %g)", what, i, k, a->count,
                 k < a->count ? a->tokens[k] : -1, k < b->count ? b->tokens[k] : -1, k < a->count ? a->gaps[k] : 0.0f);
    }
    return cut;
}

/* ---- requests of all kinds ---- */

enum { NUM_MIXED = 9 };

const struct run_variant run_plenty = {
    "plenty", .block_size = 16, .max_num_seqs = 16, .max_num_batched_tokens = 64, .caching = true, .async = -1};
const struct run_variant run_scarce = {
    "scarce",         .block_size = 16, .max_num_seqs = 8, .max_num_batched_tokens = 24,
    .num_blocks = 17, .caching = true,  .async = -1,       .preemption_mode = PREEMPTION_SWAP};

static struct run_prompt *mixed_prompts(int32_t vocab_size)
{
    static const int32_t lengths[NUM_MIXED] = {1, 7, 33, 40, 44, 2, 17, 16, 31};
    struct run_prompt *prompts = run_random_prompts(lengths, NUM_MIXED, vocab_size, 5);
    memcpy((int32_t *)prompts[4].ids, prompts[3].ids, (size_t)lengths[3] * sizeof *prompts[3].ids);
    return prompts;
}

static void mixed_params(struct sampling_params params[NUM_MIXED])
{
    for (int i = 0; i < NUM_MIXED; i++) {
        params[i] = sampling_params_default();
        params[i].ignore_eos = true;
        params[i].max_tokens = 24;
        params[i].temperature = i % 3 == 1 ? 0.8f : 0;
        params[i].seed = 100 + (uint64_t)i;
        if (i % 3 == 1) params[i].n = 2;
        if (i == 5) params[i].repetition_penalty = 1.3f;
        if (i == 6) params[i].prompt_logprobs = 1;
        if (i == 8) params[i].beam_width = 3, params[i].n = 3;
    }
}

void run_mixed(const struct engine_options *options, struct run *run, struct scheduler_stats *stats)
{
    struct sampling_params params[NUM_MIXED];
    struct engine *e = run_engine(options);
    struct run_prompt *prompts = mixed_prompts(engine_info(e)->num_ids);
    mixed_params(params);
    run_requests(e, prompts, NUM_MIXED, params, run);
    engine_stats(e, stats);
    run_prompts_free(prompts, NUM_MIXED);
    engine_destroy(e);
}

static void stop_at_once(void *flag, const struct answer_piece *piece)
{
    (void)piece;
    *(volatile sig_atomic_t *)flag = 1;
}

void run_cancelled(const struct engine_options *options)
{
    volatile sig_atomic_t cancel = 0;
    struct engine_options own = *options;
    own.cancel = &cancel;
    struct engine *e = run_engine(&own);
    struct run_prompt *prompts = mixed_prompts(engine_info(e)->num_ids);
    struct sampling_params params = sampling_params_default();
    const struct engine_request request = {.prompt = prompts[3].ids,
                                           .prompt_len = prompts[3].length,
                                           .params = &params,
                                           .deliver = stop_at_once,
                                           .user = (void *)&cancel};
    struct error err;
    params.ignore_eos = true;
    params.max_tokens = 100;
    for (int i = 0; i < 3; i++) {
        cancel = 0;
        must(engine_add(e, &request, NULL, &err), &err);
        for (bool worked = true; engine_has_work(e) && worked;) must(engine_step(e, &worked, &err), &err);
        assert_int_equal(cancel, 1);
        assert_false(engine_has_work(e));
    }
    run_prompts_free(prompts, NUM_MIXED);
    engine_destroy(e);
}
