/* Collective operations of CPU ranks and of CUDA devices. Each rank has a thread, which knows what all ranks put in and
 * so what must come out, to the bit. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>

#include "base/random.h"
#include "kernels/backend.h"
#include "kernels/group_failure.h"
#include "kernels/ranks.h"
#include "tests/support/must.h"

enum {
    MAX_COUNT = 70000,
    MANY_TOKENS = 2100,
    MANY_SIZE = 4096,
    GUARD = 64,
    COLUMNS = 37,
    STRIDE = 50,
    REPLAYS = 3,
    VOCAB = 991,
    LOGITS = 997,
    MASK_WORDS = (VOCAB + 31) / 32,
    SAMPLES = 70
};

/* Of the device: what sampling needs beside logits. */
struct sampling {
    struct sampling_state states[SAMPLES]; /* zeros: greedy */
    int32_t numbers[4 * SAMPLES];          /* [4, SAMPLES] state indices, output positions, tokens, history */
    uint32_t masks[SAMPLES * MASK_WORDS];
};

struct rank {
    struct backend *b;
    int32_t number, num_ranks;
    char *device; /* [room_of] bytes of the device, and of the host */
    char *host, *expected;
    struct sampling *sampling;
    void *workspace;
    int64_t workspace_bytes;
    char wrong[160]; /* the first failure; "": none */
};

/* Of GPUs, whose fused operation has another way for many tokens, also for four matrices of these. */
static int64_t room_of(const struct backend *b)
{
    return b->discrete ? (int64_t)4 * MANY_TOKENS * MANY_SIZE * 2 : (MAX_COUNT + GUARD) * (int64_t)sizeof(float);
}

struct ranks {
    int32_t count;
    struct rank of[COLLECTIVE_MAX_RANKS];
};

/* ---- ranks and their threads ---- */

static bool prepare_memory(struct rank *r, struct error *err)
{
    const int64_t bytes = room_of(r->b);
    r->host = malloc((size_t)bytes);
    r->expected = malloc((size_t)bytes);
    if (r->b->memory_alloc(r->b, MEMORY_DEVICE, bytes, (void **)&r->device, err) != STATUS_OK) return false;
    const struct workspace_query query = {.max_num_tokens = SAMPLES,
                                          .max_num_seqs = SAMPLES,
                                          .max_model_len = 64,
                                          .num_heads = 1,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_in_features = 64,
                                          .vocab_size = VOCAB};
    void *sampling = NULL;
    enum status status = r->b->memory_alloc(r->b, MEMORY_DEVICE, sizeof *r->sampling, &sampling, err);
    r->sampling = sampling;
    r->workspace_bytes = r->b->workspace_bytes(r->b, &query);
    if (status == STATUS_OK) status = r->b->memory_alloc(r->b, MEMORY_DEVICE, r->workspace_bytes, &r->workspace, err);
    if (status == STATUS_OK) r->b->workspace_set(r->b, r->workspace, r->workspace_bytes);
    return status == STATUS_OK;
}

static bool open_ranks(struct ranks *ranks, const char *kind, int32_t count, struct group_failure *failure,
                       struct error *err)
{
    struct backend *backends[COLLECTIVE_MAX_RANKS] = {NULL};
    memset(ranks, 0, sizeof *ranks);
    for (int32_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, strcmp(kind, "cuda") == 0 ? "cuda:%d" : "cpu", i);
        if (backend_open(name, 1, &backends[i], err) != STATUS_OK) return false;
        backends[i]->failure = failure;
        ranks->of[i] = (struct rank){.b = backends[i], .number = i, .num_ranks = count};
        ranks->count++;
    }
    if (backend_group_open(backends, count, err) != STATUS_OK) return false;
    for (int32_t i = 0; i < count; i++)
        if (!prepare_memory(&ranks->of[i], err)) return false;
    return true;
}

static void close_ranks(struct ranks *ranks)
{
    for (int32_t i = 0; i < ranks->count; i++) {
        struct rank *r = &ranks->of[i];
        if (r->device) r->b->memory_free(r->b, MEMORY_DEVICE, r->device, room_of(r->b));
        if (r->workspace) r->b->workspace_set(r->b, NULL, 0);
        if (r->workspace) r->b->memory_free(r->b, MEMORY_DEVICE, r->workspace, r->workspace_bytes);
        if (r->sampling) r->b->memory_free(r->b, MEMORY_DEVICE, r->sampling, sizeof *r->sampling);
        free(r->host);
        free(r->expected);
    }
    for (int32_t i = 0; i < ranks->count; i++) ranks->of[i].b->destroy(ranks->of[i].b);
}

static void run_ranks(struct ranks *ranks, void *(*run)(void *))
{
    pthread_t threads[COLLECTIVE_MAX_RANKS];
    for (int32_t i = 0; i < ranks->count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, &ranks->of[i]), 0);
    for (int32_t i = 0; i < ranks->count; i++) pthread_join(threads[i], NULL);
    for (int32_t i = 0; i < ranks->count; i++)
        if (ranks->of[i].wrong[0]) fail_msg("rank %d of %d: %s", i, ranks->count, ranks->of[i].wrong);
}

/* The test for every number of ranks that there is. */
static void for_ranks(void *(*run)(void *))
{
    static const int32_t counts[] = {2, 3, 4, 8};
    static const char *const kinds[] = {"cpu", "cuda"};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 4; i++) {
            struct ranks ranks;
            struct error err;
            const bool open = open_ranks(&ranks, kinds[k], counts[i], NULL, &err);
            if (open) run_ranks(&ranks, run);
            close_ranks(&ranks);
            if (!open && k == 0) fail_msg("%s", err.text);
            if (!open && i == 0) print_message("skipped: fewer than two CUDA devices (%s)\n", err.text);
            if (!open) break;
        }
    }
}

static void upload(struct rank *r, int64_t bytes)
{
    r->b->copy(r->b, r->device, r->host, bytes, NULL);
}

/* Compares what the device has with what is expected. */
static bool check(struct rank *r, int64_t bytes, const char *what, int64_t size)
{
    struct error err;
    memset(r->host, 0x77, (size_t)bytes);
    r->b->copy(r->b, r->host, r->device, bytes, NULL);
    if (r->b->stream_synchronize(r->b, NULL, &err) != STATUS_OK) {
        snprintf(r->wrong, sizeof r->wrong, "%.150s", err.text);
        return false;
    }
    for (int64_t i = 0; i < bytes; i++) {
        if (r->host[i] == r->expected[i]) continue;
        snprintf(r->wrong, sizeof r->wrong, "%s of %lld: byte %lld differs", what, (long long)size, (long long)i);
        return false;
    }
    return true;
}

/* ---- all_reduce ---- */

/* What a rank puts in: of different magnitudes, so that another order of addition has other bits. */
static float input(int32_t rank, int64_t call, int64_t i)
{
    const uint64_t bits = random_mix((uint64_t)(call * 1000003 + i) * RANDOM_STEP + (uint64_t)rank);
    return ((float)(bits >> 40) / (float)(1 << 23) - 1) * (float)(1 << (bits & 7));
}

/* Makes the rank's input on the host, and what the sum is. What follows x must stay. */
static int64_t prepare(struct rank *r, int64_t call, int64_t count, enum dtype dtype)
{
    for (int64_t i = 0; i < count; i++) {
        float sum = 0;
        for (int32_t k = 0; k < r->num_ranks; k++) {
            dtype_store(r->host, dtype, i, input(k, call, i));
            const float x = dtype_load(r->host, dtype, i);
            sum = k == 0 ? x : sum + x;
        }
        dtype_store(r->host, dtype, i, input(r->number, call, i));
        dtype_store(r->expected, dtype, i, sum);
    }
    const int64_t bytes = count * dtype_size(dtype);
    memset(r->host + bytes, 0x5a, GUARD);
    memset(r->expected + bytes, 0x5a, GUARD);
    return bytes + GUARD;
}

static void *reduce(void *rank)
{
    static const int64_t counts[] = {0, 1, 3, 7, 8, 511, 513, 2880, 4096, 4097, 32768, 65537, MAX_COUNT};
    static const enum dtype dtypes[] = {DTYPE_FLOAT32, DTYPE_BFLOAT16, DTYPE_FLOAT16};
    struct rank *r = rank;
    for (int i = 0; i < 13 * 3; i++) {
        const struct all_reduce_args args = {.x = r->device, .count = counts[i / 3], .dtype = dtypes[i % 3]};
        const int64_t bytes = prepare(r, i, args.count, args.dtype);
        upload(r, bytes);
        r->b->all_reduce(r->b, &args);
        if (!check(r, bytes, "all_reduce", args.count)) break;
    }
    return NULL;
}

static void all_reduce_adds_in_the_order_of_ranks(void **state)
{
    (void)state;
    for_ranks(reduce);
}

/* Nothing waits between the calls. Each has a part of the memory, and they differ in size. */
static void *reduce_often(void *rank)
{
    enum { CALLS = 175, PART = MAX_COUNT / CALLS, ROUNDS = 2 };
    struct rank *r = rank;
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t bytes = prepare(r, round, MAX_COUNT, DTYPE_FLOAT32);
        for (int64_t i = 0; i < MAX_COUNT; i++)
            if (i % PART > i / PART % 5 * (PART / 5))
                dtype_store(r->expected, DTYPE_FLOAT32, i, input(r->number, round, i));
        upload(r, bytes);
        for (int64_t call = 0; call < CALLS; call++)
            r->b->all_reduce(r->b, &(struct all_reduce_args){.x = r->device + call * PART * 4,
                                                             .count = 1 + call % 5 * (PART / 5),
                                                             .dtype = DTYPE_FLOAT32});
        if (!check(r, bytes, "many all_reduces", CALLS)) break;
    }
    return NULL;
}

static void calls_may_follow_each_other(void **state)
{
    (void)state;
    for_ranks(reduce_often);
}

/* A graph of two all_reduces, whose input is copied there before each replay. */
static void *replay(void *rank)
{
    static const int64_t counts[] = {4096, MAX_COUNT};
    struct rank *r = rank;
    for (int i = 0; i < 2 && r->b->capture_begin; i++) {
        const struct all_reduce_args args = {.x = r->device, .count = counts[i], .dtype = DTYPE_BFLOAT16};
        struct error err;
        backend_graph graph = NULL;
        bool right = r->b->capture_begin(r->b, &err) == STATUS_OK;
        if (right) r->b->all_reduce(r->b, &args);
        right = right && r->b->capture_end(r->b, &graph, &err) == STATUS_OK;
        if (!right) snprintf(r->wrong, sizeof r->wrong, "%.150s", err.text);
        for (int k = 0; k < REPLAYS && right; k++) {
            const int64_t bytes = prepare(r, k, args.count, args.dtype);
            upload(r, bytes);
            r->b->graph_launch(r->b, graph);
            right = check(r, bytes, "a graph's all_reduce", args.count);
        }
        if (graph) r->b->graph_destroy(r->b, graph);
        if (!right) break;
    }
    return NULL;
}

static void graphs_can_be_replayed(void **state)
{
    (void)state;
    for_ranks(replay);
}

/* ---- NCCL ---- */

/* Of two ranks there is one order of addition, so NCCL's bits are those of the group's kernels. */
static void nccl_adds_two_ranks_alike(void **state)
{
    struct ranks ranks;
    struct backend *backends[2];
    struct error err;
    (void)state;
    const bool open = open_ranks(&ranks, "cuda", 2, NULL, &err);
    for (int i = 0; i < 2 && open; i++) backends[i] = ranks.of[i].b;
    const bool has_nccl = open && backend_group_set_nccl_from(backends, 1, &err) == STATUS_OK;
    if (has_nccl) {
        run_ranks(&ranks, reduce);
        run_ranks(&ranks, reduce_often);
        run_ranks(&ranks, replay);
    }
    close_ranks(&ranks);
    if (!has_nccl) print_message("skipped: %s (%s)\n", open ? "no NCCL" : "fewer than two CUDA devices", err.text);
}

static void a_cpu_has_no_nccl(void **state)
{
    struct backend *b;
    struct error err;
    (void)state;
    must(backend_open("cpu", 1, &b, &err), &err);
    assert_int_equal(backend_group_set_nccl_from(&b, 0, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "'cpu' does nothing through NCCL");
    b->destroy(b);
}

/* ---- all_gather ---- */

/* Columns that are not the same for all ranks; the second rank has none of `total` 3. */
static int64_t first_column(int32_t rank, int32_t num_ranks, int64_t total)
{
    return rank == num_ranks ? total : total < num_ranks * 2 ? (rank > 0 ? total : 0) : total * rank / num_ranks;
}

static void *gather(void *rank)
{
    static const int64_t totals[] = {COLUMNS, 3, 16, STRIDE};
    struct rank *r = rank;
    for (int call = 0; call < 60; call++) {
        const int64_t rows = call % 7, total = totals[call % 4];
        struct all_gather_args args = {.x = (float *)r->device, .rows = rows, .stride = STRIDE, .total = total};
        args.first = first_column(r->number, r->num_ranks, total);
        args.columns = first_column(r->number + 1, r->num_ranks, total) - args.first;
        for (int64_t i = 0; i < rows * STRIDE; i++) {
            const int64_t column = i % STRIDE;
            const bool mine = column >= args.first && column < args.first + args.columns;
            dtype_store(r->expected, DTYPE_FLOAT32, i, column < total ? input(0, call, i) : -1);
            dtype_store(r->host, DTYPE_FLOAT32, i, mine ? input(0, call, i) : -1);
        }
        upload(r, rows * STRIDE * (int64_t)sizeof(float));
        r->b->all_gather(r->b, &args);
        if (!check(r, rows * STRIDE * (int64_t)sizeof(float), "all_gather", total)) break;
    }
    return NULL;
}

static void all_gather_takes_uneven_columns(void **state)
{
    (void)state;
    for_ranks(gather);
}

/* ---- sampling ---- */

/* Whether the mask of sample i has the id: those of calls from 6 on have three ids of four. */
static bool mask_has(int call, int32_t i, int32_t id)
{
    return call < 6 || random_mix((uint64_t)(call * 7000003 + i * VOCAB + id)) % 4 > 0;
}

/* Logits of which only the rank's own ids are there; other ranks' are so large that they would win. In some samples the
 * best one is there twice, and in some there is no best. */
static void prepare_samples(struct rank *r, int call, const struct sample_share *share, int32_t *expected)
{
    float *logits = (float *)r->host;
    for (int32_t i = 0; i < SAMPLES; i++) {
        float *row = logits + i * LOGITS, best = -INFINITY;
        for (int32_t j = 0; j < VOCAB; j++) {
            row[j] = (float)(int)(random_mix((uint64_t)(call * 1000003 + i * VOCAB + j)) % 200);
            if (i % 7 == 1 && j == VOCAB - 1 - i && mask_has(call, i, j)) row[j] = call % 2 ? NAN : INFINITY;
            if (i % 7 == 2) row[j] = -INFINITY;
        }
        expected[i] = (i % 7 == 1 && mask_has(call, i, VOCAB - 1 - i)) || i % 7 == 2 ? -1 : 0;
        for (int32_t j = 0; j < VOCAB && expected[i] >= 0; j++)
            if (mask_has(call, i, j) && row[j] > best) best = row[j], expected[i] = j;
        for (int32_t j = 0; j < LOGITS; j++)
            if (j < share->first || j >= share->first + share->count) row[j] = 1e9f;
    }
}

static bool check_samples(struct rank *r, const int32_t *tokens, const int32_t *history, const int32_t *expected)
{
    int32_t got[2][SAMPLES];
    struct error err;
    r->b->copy(r->b, got[0], tokens, sizeof got[0], NULL);
    r->b->copy(r->b, got[1], history, sizeof got[1], NULL);
    must(r->b->stream_synchronize(r->b, NULL, &err), &err);
    for (int32_t i = 0; i < SAMPLES; i++) {
        const int32_t written = expected[i] < 0 ? -7 : expected[i];
        if (got[0][i] == expected[i] && got[1][i] == written) continue;
        snprintf(r->wrong, sizeof r->wrong, "sample %d: token %d, and %d in the history, for %d", i, got[0][i],
                 got[1][i], expected[i]);
        return false;
    }
    return true;
}

/* A call of sample on the rank's memory. */
static struct sample_args share_args(const struct rank *r, int call)
{
    int32_t *numbers = r->sampling->numbers;
    const bool alone = call % 3 == 2; /* the first rank has all ids */
    const int64_t first = alone ? (r->number > 0) * VOCAB : first_column(r->number, r->num_ranks, VOCAB);
    const int64_t end = alone ? VOCAB : first_column(r->number + 1, r->num_ranks, VOCAB);
    return (struct sample_args){.logits = (float *)r->device,
                                .logits_stride = LOGITS,
                                .num_samples = SAMPLES,
                                .vocab_size = VOCAB,
                                .states = r->sampling->states,
                                .state_indices = numbers,
                                .output_positions = numbers + SAMPLES,
                                .token_ids = numbers + 2 * SAMPLES,
                                .history = numbers + 3 * SAMPLES,
                                .history_stride = 1,
                                .masks = call < 6 ? NULL : r->sampling->masks,
                                .mask_words = MASK_WORDS,
                                .mask_rows = numbers, /* as state indices */
                                .share = {r->number, r->num_ranks, (int32_t)first, (int32_t)(end - first)}};
}

static void upload_samples(struct rank *r, int call)
{
    int32_t host[4 * SAMPLES];
    uint32_t masks[SAMPLES * MASK_WORDS] = {0};
    for (int32_t i = 0; i < SAMPLES; i++)
        for (int32_t id = 0; id < VOCAB; id++)
            masks[i * MASK_WORDS + id / 32] |= (uint32_t)mask_has(call, i, id) << id % 32;
    r->b->copy(r->b, r->sampling->masks, masks, sizeof masks, NULL);
    upload(r, SAMPLES * LOGITS * (int64_t)sizeof(float));
    for (int32_t i = 0; i < 4 * SAMPLES; i++) host[i] = i < SAMPLES ? i : i < 2 * SAMPLES ? 0 : -7;
    r->b->copy(r->b, r->sampling->numbers, host, sizeof host, NULL);
}

static void *sample_shares(void *rank)
{
    struct rank *r = rank;
    int32_t expected[SAMPLES];
    for (int call = 0; call < 12; call++) {
        const struct sample_args args = share_args(r, call);
        prepare_samples(r, call, &args.share, expected);
        upload_samples(r, call);

        r->b->sample(r->b, &args);
        if (!check_samples(r, args.token_ids, args.history, expected)) break;
    }
    return NULL;
}

/* A group that pauses draws tokens, though not those of all logits. */
static void *sample_alone(void *rank)
{
    struct rank *r = rank;
    struct group_operations kept;
    struct error err;
    const struct sample_args args = share_args(r, 0);
    int32_t tokens[SAMPLES], ignored[SAMPLES];
    prepare_samples(r, 0, &args.share, ignored);
    upload_samples(r, 0);
    backend_group_pause(r->b, &kept);
    r->b->sample(r->b, &args);
    r->b->copy(r->b, tokens, args.token_ids, sizeof tokens, NULL);
    must(r->b->stream_synchronize(r->b, NULL, &err), &err);
    backend_group_resume(r->b, &kept);
    for (int32_t i = 0; i < SAMPLES; i++)
        if (tokens[i] < -1 || tokens[i] >= VOCAB)
            snprintf(r->wrong, sizeof r->wrong, "sample %d of a group that pauses is %d", i, tokens[i]);
    return NULL;
}

static void ranks_sample_from_their_own_logits(void **state)
{
    (void)state;
    for_ranks(sample_alone);
    for_ranks(sample_shares);
}

/* ---- agree ---- */

static void *agree_often(void *rank)
{
    struct rank *r = rank;
    for (int call = 0; call < 500 && r->b->agree; call++) {
        const bool said = random_mix((uint64_t)call) % 2;
        if (r->b->agree(r->b, r->number == 0 ? said : !said) == said) continue;
        snprintf(r->wrong, sizeof r->wrong, "agree number %d is not what rank 0 says", call);
        break;
    }
    return NULL;
}

static void all_say_what_rank_0_says(void **state)
{
    (void)state;
    for_ranks(agree_often);
}

/* ---- all_reduce_add_norm ---- */

/* Residual, x, out and gains behind each other in the rank's memory: with one operation, and with the two that it
 * replaces. group_size 0: the norm is written as it is; else in 8 bits, with scales behind all else. */
struct fused_case {
    int32_t size, tokens, group_size;
};

static void put_fused_inputs(struct rank *r, const struct fused_case *c, int call)
{
    const int64_t elements = (int64_t)c->size * c->tokens;
    char *put_in = malloc((size_t)(8 * elements));
    struct error err;
    assert_non_null(put_in);
    for (int64_t i = 0; i < 4 * elements; i++) /* only x differs */
        dtype_store(put_in, DTYPE_BFLOAT16, i, input(i / elements == 1 ? r->number : 0, call, i));
    r->b->copy(r->b, r->device, put_in, 8 * elements, NULL);
    must(r->b->stream_synchronize(r->b, NULL, &err), &err);
    free(put_in);
}

/* Element i of what the norm has written. */
static float normed(const struct fused_case *c, const char *memory, int64_t i)
{
    const int64_t bytes = 2 * (int64_t)c->size * c->tokens, token = i / c->size, column = i % c->size;
    if (c->group_size == 0) return dtype_load(memory + 2 * bytes, DTYPE_BFLOAT16, i);
    const float *scales = (const float *)(memory + 4 * bytes);
    return dtype_load(memory + 2 * bytes, DTYPE_FP8_E4M3, i) *
           scales[column / c->group_size * quantized_rows_padded(c->tokens) + token];
}

static void check_normed(struct rank *r, const struct fused_case *c)
{
    const float tolerance = c->group_size > 0 ? 0.07f : 1e-2f; /* one step of rounding */
    for (int64_t i = 0; i < (int64_t)c->size * c->tokens && !r->wrong[0]; i++) {
        const float is = normed(c, r->host, i), expected = normed(c, r->expected, i);
        const float error = is - expected, limit = tolerance * (expected < 0 ? -expected : expected) + 1e-3f;
        if (!(error <= limit && -error <= limit))
            snprintf(r->wrong, sizeof r->wrong, "all_reduce_add_norm of %d tokens of %d, groups of %d: %g for %g",
                     c->tokens, c->size, c->group_size, (double)is, (double)expected);
    }
}

static void fuse_and_compare(struct rank *r, const struct fused_case *c, int call)
{
    const int64_t bytes = 2 * (int64_t)c->size * c->tokens;
    const int64_t groups = c->group_size > 0 ? c->size / c->group_size : 0;
    const int64_t all = 4 * bytes + groups * quantized_rows_padded(c->tokens) * (int64_t)sizeof(float);
    const struct quantized_rows rows = {r->device + 2 * bytes, (float *)(r->device + 4 * bytes), c->group_size};
    const struct fused_add_rms_norm_args args = {
        .residual = r->device,
        .x = r->device + bytes,
        .out = r->device + 2 * bytes,
        .quantized = groups > 0 ? &rows : NULL,
        .norm = {.gain = r->device + 3 * bytes, .gain_dtype = DTYPE_BFLOAT16, .eps = 1e-5f},
        .multiplier = 1,
        .sum_multiplier = 1,
        .num_tokens = c->tokens,
        .size = c->size,
        .dtype = DTYPE_BFLOAT16};
    put_fused_inputs(r, c, call);
    r->b->all_reduce(r->b, &(struct all_reduce_args){.x = r->device + bytes, .count = bytes / 2, .dtype = args.dtype});
    r->b->fused_add_rms_norm(r->b, &args);
    r->b->copy(r->b, r->expected, r->device, all, NULL);
    put_fused_inputs(r, c, call);
    if (!r->b->all_reduce_add_norm(r->b, &args))
        snprintf(r->wrong, sizeof r->wrong, "all_reduce_add_norm does not take %d tokens of %d", c->tokens, c->size);
    else if (check(r, bytes, "the residual of all_reduce_add_norm", c->size)) {
        struct error err;
        r->b->copy(r->b, r->host, r->device, all, NULL);
        must(r->b->stream_synchronize(r->b, NULL, &err), &err);
        check_normed(r, c);
    }
}

static void *reduce_and_norm(void *rank)
{
    static const int32_t sizes[] = {MANY_SIZE, 2880, 64, 8192, 5120}, counts[] = {1, 2, 33, 300};
    struct rank *r = rank;
    for (int call = 0; call < 40 && r->b->all_reduce_add_norm && !r->wrong[0]; call++) {
        const int32_t size = sizes[call % 5];
        const int32_t group_size = call < 20 || size % 128 ? 0 : call % 8 < 4 ? size : 128;
        fuse_and_compare(r, &(struct fused_case){size, counts[call % 4], group_size}, call);
    }
    if (r->b->all_reduce_add_norm && !r->wrong[0])
        fuse_and_compare(r, &(struct fused_case){MANY_SIZE, MANY_TOKENS, 0}, 40);
    return NULL;
}

static void the_fused_operation_does_the_same(void **state)
{
    (void)state;
    for_ranks(reduce_and_norm);
}

/* ---- all_norm ---- */

/* In a rank's memory: rows of x, of gates, gains and room for sums. A row has the elements of both norms, and a gap. */
enum { NORM_TOKENS = 70, FEW_TOKENS = 5, ROW = 160, GATES = NORM_TOKENS * ROW, GAINS = 2 * GATES, SUMS = GAINS + ROW };

struct norm_case {
    int32_t sizes[ALL_NORM_MAX]; /* the second 0: one norm */
    int32_t num_groups;
    enum dtype dtype, gain_dtype;
    bool gate, gate_first, sigmoid, round_norm;
};

/* What a rank has of x, of gates and of gains, as the device has it. */
static double norm_input(const struct norm_case *c, int32_t rank, int32_t first, int32_t i)
{
    uint32_t bits = 0;
    const enum dtype dtype = first == GAINS ? c->gain_dtype : c->dtype;
    dtype_store(&bits, dtype, 0, input(rank, first, i) / (first == GATES ? 32 : 1));
    return (double)dtype_load(&bits, dtype, 0);
}

static double gate_of(const struct norm_case *c, int32_t rank, int32_t i)
{
    const double gate = norm_input(c, rank, GATES, i), sigmoid = 1 / (1 + exp(-gate));
    return !c->gate ? 1 : c->sigmoid ? sigmoid : gate * sigmoid;
}

/* What the norm of elements [begin, begin + size) of a token divides by. */
static double root_mean_square(const struct norm_case *c, const struct rank *r, int32_t token, int32_t begin,
                               int32_t size)
{
    const int32_t of_group = r->num_ranks / c->num_groups, first_rank = r->number / of_group * of_group;
    double sum = 0;
    for (int32_t k = first_rank; k < first_rank + of_group; k++)
        for (int32_t i = token * ROW + begin; i < token * ROW + begin + size; i++) {
            const double x = norm_input(c, k, 0, i) * (c->gate_first ? gate_of(c, k, i) : 1);
            sum += x * x;
        }
    return sqrt(sum / (of_group * size) + 1e-5);
}

static void put_norm_inputs(struct rank *r, const struct norm_case *c)
{
    const int32_t element = dtype_size(c->dtype);
    for (int32_t i = 0; i < GATES; i++) {
        dtype_store(r->host, c->dtype, i, (float)norm_input(c, r->number, 0, i));
        dtype_store(r->host + GATES * element, c->dtype, i, (float)norm_input(c, r->number, GATES, i));
    }
    for (int32_t i = 0; i < ROW; i++)
        dtype_store(r->host + GAINS * 4, c->gain_dtype, i, (float)norm_input(c, r->number, GAINS, i));
    upload(r, SUMS * 4);
}

static void all_norm_of(struct rank *r, const struct norm_case *c, int32_t num_tokens)
{
    struct all_norm_args args = {.num_tokens = num_tokens,
                                 .rank = r->number,
                                 .num_ranks = r->num_ranks,
                                 .squares = (float *)(r->device + SUMS * 4),
                                 .dtype = c->dtype};
    int32_t begin = 0;
    for (; args.num_norms < ALL_NORM_MAX && c->sizes[args.num_norms] > 0; args.num_norms++) {
        const int32_t element = dtype_size(c->dtype);
        char *gate = r->device + (GATES + begin) * element;
        args.norms[args.num_norms] =
            (struct all_norm){.x = r->device + begin * element,
                              .stride = ROW,
                              .size = c->sizes[args.num_norms],
                              .num_groups = c->num_groups,
                              .gain = r->device + GAINS * 4 + begin * dtype_size(c->gain_dtype),
                              .gain_dtype = c->gain_dtype,
                              .eps = 1e-5f,
                              .gate = c->gate ? gate : NULL,
                              .gate_stride = ROW,
                              .gate_first = c->gate_first,
                              .sigmoid = c->sigmoid,
                              .round_norm = c->round_norm};
        begin += c->sizes[args.num_norms];
    }
    r->b->all_norm(r->b, &args);
}

/* The row of a token that the device has, against the arithmetic in float64. */
static void check_norms(struct rank *r, const struct norm_case *c, int32_t token, int number)
{
    const double limit = c->dtype == DTYPE_FLOAT32 ? 1e-5 : c->dtype == DTYPE_FLOAT16 ? 3e-3 : 2e-2;
    double roots[2] = {root_mean_square(c, r, token, 0, c->sizes[0]), 1};
    if (c->sizes[1] > 0) roots[1] = root_mean_square(c, r, token, c->sizes[0], c->sizes[1]);
    for (int32_t i = 0; i < ROW && !r->wrong[0]; i++) {
        const int32_t at = token * ROW + i;
        const double is = (double)dtype_load(r->host, c->dtype, at);
        double expected = norm_input(c, r->number, 0, at);
        if (i < c->sizes[0] + c->sizes[1])
            expected *= gate_of(c, r->number, at) * norm_input(c, r->number, GAINS, i) / roots[i >= c->sizes[0]];
        if (!(fabs(is - expected) <= limit * (fabs(expected) + 1e-3)))
            snprintf(r->wrong, sizeof r->wrong, "all_norm, case %d: token %d, element %d: %g for %g", number, token, i,
                     is, expected);
    }
}

/* All tokens; and the first ones, which another kernel may compute, to the same bits. */
static void *norm_over_ranks(void *rank)
{
    struct rank *r = rank;
    const int32_t halves = r->num_ranks % 2 == 0 ? 2 : 1;
    const struct norm_case cases[] = {
        {{96, 32}, 1, DTYPE_FLOAT32, DTYPE_FLOAT32, .gate = false},
        {{64, 64}, 1, DTYPE_BFLOAT16, DTYPE_BFLOAT16, .gate = false},
        {{41, 7}, 1, DTYPE_BFLOAT16, DTYPE_FLOAT32, .gate = false},
        {{160, 0}, 1, DTYPE_FLOAT16, DTYPE_FLOAT16, .gate = true, .gate_first = true},
        {{128, 0}, halves, DTYPE_BFLOAT16, DTYPE_FLOAT32, .gate = true, .gate_first = true},
        {{33, 0}, halves, DTYPE_FLOAT32, DTYPE_BFLOAT16, .gate = true, .sigmoid = true},
        {{128, 0}, 1, DTYPE_BFLOAT16, DTYPE_FLOAT32, .gate = true, .round_norm = true},
    };
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases) && !r->wrong[0]; i++) {
        const struct norm_case *c = &cases[i];
        const int64_t few = FEW_TOKENS * ROW * dtype_size(c->dtype), all = GATES * (int64_t)dtype_size(c->dtype);
        struct error err;
        put_norm_inputs(r, c);
        all_norm_of(r, c, NORM_TOKENS);
        r->b->copy(r->b, r->host, r->device, all, NULL);
        must(r->b->stream_synchronize(r->b, NULL, &err), &err);
        for (int32_t token = 0; token < NORM_TOKENS; token++) check_norms(r, c, token, i);
        memcpy(r->expected, r->host, (size_t)few);
        put_norm_inputs(r, c);
        all_norm_of(r, c, FEW_TOKENS);
        if (!r->wrong[0]) check(r, few, "all_norm of few tokens, case", i);
    }
    return NULL;
}

static void all_norm_is_that_of_all_ranks_elements(void **state)
{
    (void)state;
    for_ranks(norm_over_ranks);
}

/* ---- gather_columns ---- */

/* In a rank's memory: what it puts in, and in the second half what it gets; behind them an order, and room for floats.
 */
enum { GATHER_HALF = 8192, GATHER_ORDER = 16384, GATHER_ALL = 16640 };

static void *gather_in_order(void *rank)
{
    static const int64_t totals[] = {COLUMNS, 64, 211};
    static const enum dtype dtypes[] = {DTYPE_FLOAT32, DTYPE_BFLOAT16, DTYPE_FLOAT16};
    struct rank *r = rank;
    for (int call = 0; call < 36 && !r->wrong[0]; call++) {
        const enum dtype dtype = dtypes[call % 3];
        const int64_t element = dtype_size(dtype), total = totals[call / 3 % 3], size = total - call % 5;
        const int32_t tokens = call % 4 * 11;
        struct gather_columns_args args = {.out = r->device + GATHER_HALF * 4,
                                           .x = r->device,
                                           .order = (const int32_t *)(r->device + GATHER_ORDER * 4),
                                           .all = (float *)(r->device + GATHER_ALL * 4),
                                           .total = total,
                                           .size = size,
                                           .num_tokens = tokens,
                                           .dtype = dtype};
        args.first = first_column(r->number, r->num_ranks, total);
        args.columns = first_column(r->number + 1, r->num_ranks, total) - args.first;
        for (int64_t i = 0; i < tokens * args.columns; i++)
            dtype_store(r->host, dtype, i, input(0, call, i / args.columns * total + args.first + i % args.columns));
        for (int64_t i = 0; i < size; i++) ((int32_t *)r->host)[GATHER_ORDER + i] = (int32_t)((i * 17 + 5) % total);
        upload(r, GATHER_ALL * 4);
        for (int64_t i = 0; i < tokens * size; i++)
            dtype_store(r->expected, dtype, i, input(0, call, i / size * total + (i % size * 17 + 5) % total));
        r->b->gather_columns(r->b, &args);
        r->b->copy(r->b, r->device, args.out, tokens * size * element, NULL);
        check(r, tokens * size * element, "gather_columns", total);
    }
    return NULL;
}

static void columns_are_gathered_in_an_order(void **state)
{
    (void)state;
    for_ranks(gather_in_order);
}

/* ---- failures ---- */

/* Rank 0 waits for rank 1, which fails instead of calling the operation. */
static void *wait_or_fail(void *rank)
{
    struct rank *r = rank;
    struct error err;
    if (r->number == 1) {
        usleep(20000);
        group_fail(r->b->failure, STATUS_IO, "rank 1 has left");
        return NULL;
    }
    for (int i = 0; i < 3; i++) /* in words, in passes, and after the failure */
        r->b->all_reduce(
            r->b, &(struct all_reduce_args){.x = r->device, .count = i == 0 ? 8 : MAX_COUNT, .dtype = DTYPE_FLOAT32});
    if (r->b->stream_synchronize(r->b, NULL, &err) != STATUS_IO || strcmp(err.text, "rank 1 has left") != 0)
        snprintf(r->wrong, sizeof r->wrong, "the failure of rank 1 is not reported");
    return NULL;
}

/* Closing the ranks waits for what their devices do. */
static void a_rank_that_fails_holds_nobody_up(void **state)
{
    static const char *const kinds[] = {"cpu", "cuda", "cuda, NCCL"};
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct group_failure *failure = group_failure_create();
        struct ranks ranks;
        struct error err;
        assert_non_null(failure);
        bool open = open_ranks(&ranks, k == 0 ? "cpu" : "cuda", 2, failure, &err);
        struct backend *const backends[] = {ranks.of[0].b, ranks.of[1].b};
        if (k == 2 && open) open = backend_group_set_nccl_from(backends, 1, &err) == STATUS_OK;
        if (open) run_ranks(&ranks, wait_or_fail);
        close_ranks(&ranks);
        group_failure_free(failure);
        if (!open && k == 0) fail_msg("%s", err.text);
        if (!open) print_message("skipped: %s: %s\n", kinds[k], err.text);
    }
}

/* ---- several nodes ---- */

/* Two nodes, each with a thread of this process: all of their operations are NCCL's. */
struct joining {
    struct rank *rank;
    const struct group_nodes *nodes;
};

static void *join_group(void *joining)
{
    struct joining *j = joining;
    struct rank *r = j->rank;
    struct error err;
    if (backend_group_join(&r->b, 1, j->nodes, &err) != STATUS_OK)
        snprintf(r->wrong, sizeof r->wrong, "%.150s", err.text);
    return NULL;
}

/* Opens two ranks, each of which is a node of its own, that share the failure. */
static bool open_nodes(struct ranks *ranks, struct group_failure *failure, struct error *err)
{
    struct group_nodes nodes[2];
    struct joining joining[2];
    pthread_t threads[2];
    memset(ranks, 0, sizeof *ranks);
    for (int32_t i = 0; i < 2; i++) {
        char name[32];
        struct rank *r = &ranks->of[i];
        snprintf(name, sizeof name, "cuda:%d", i);
        *r = (struct rank){.number = i, .num_ranks = 2};
        if (backend_open(name, 1, &r->b, err) != STATUS_OK) return false;
        ranks->count++;
        r->b->failure = failure;
        if (!prepare_memory(r, err)) return false;
    }
    if (backend_group_make_id(ranks->of[0].b, nodes[0].id, err) != STATUS_OK) return false;
    for (int32_t i = 0; i < 2; i++) {
        memcpy(nodes[i].id, nodes[0].id, sizeof nodes[i].id);
        nodes[i].node = i, nodes[i].num_nodes = 2, nodes[i].num_ranks = 2, nodes[i].timeout = 60;
        joining[i] = (struct joining){&ranks->of[i], &nodes[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, join_group, &joining[i]), 0);
    }
    for (int32_t i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int32_t i = 0; i < 2; i++)
        if (ranks->of[i].wrong[0]) fail_msg("%s", ranks->of[i].wrong);
    return true;
}

static void nodes_with_gpus(void **state)
{
    void *(*const tests[])(void *) = {reduce, reduce_often, replay, gather, wait_or_fail};
    struct group_failure *failure = group_failure_create();
    struct ranks ranks;
    struct error err;
    (void)state;
    assert_non_null(failure);
    const bool open = open_nodes(&ranks, failure, &err);
    for (int i = 0; i < 5 && open; i++) run_ranks(&ranks, tests[i]);
    close_ranks(&ranks);
    group_failure_free(failure);
    if (!open) print_message("skipped: %s\n", err.text);
}

/* ---- groups ---- */

static void refuses_what_is_no_group(void **state)
{
    struct backend *b[COLLECTIVE_MAX_RANKS + 1];
    struct error err;
    (void)state;
    for (int i = 0; i <= COLLECTIVE_MAX_RANKS; i++) must(backend_open("cpu", 1, &b[i], &err), &err);
    assert_int_equal(backend_group_open(b, 0, &err), STATUS_INVALID);
    assert_int_equal(backend_group_open(b, COLLECTIVE_MAX_RANKS + 1, &err), STATUS_INVALID);
    assert_string_equal(err.text, "a group of 9 ranks was asked for: it may have 1 to 8");
    must(backend_group_open(b, 1, &err), &err);
    assert_null(b[0]->all_reduce);
    must(backend_group_open(b, 2, &err), &err);
    assert_int_equal(backend_group_open(b + 1, 2, &err), STATUS_INVALID);
    assert_string_equal(err.text, "'cpu' is in a group already");
    for (int i = 0; i <= COLLECTIVE_MAX_RANKS; i++) b[i]->destroy(b[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_adds_in_the_order_of_ranks),
        cmocka_unit_test(calls_may_follow_each_other),
        cmocka_unit_test(graphs_can_be_replayed),
        cmocka_unit_test(nccl_adds_two_ranks_alike),
        cmocka_unit_test(a_cpu_has_no_nccl),
        cmocka_unit_test(all_gather_takes_uneven_columns),
        cmocka_unit_test(ranks_sample_from_their_own_logits),
        cmocka_unit_test(all_say_what_rank_0_says),
        cmocka_unit_test(the_fused_operation_does_the_same),
        cmocka_unit_test(columns_are_gathered_in_an_order),
        cmocka_unit_test(all_norm_is_that_of_all_ranks_elements),
        cmocka_unit_test(a_rank_that_fails_holds_nobody_up),
        cmocka_unit_test(nodes_with_gpus),
        cmocka_unit_test(refuses_what_is_no_group),
    };
    backend_expect_ranks();
    return cmocka_run_group_tests_name("kernels_collective", tests, NULL, NULL);
}
