/* Random requests of every kind under memory so tight that everything happens to them: they share prefixes, fork, are
 * computed again, swapped out and in, evicted and aborted, while eight threads add and abort. Each answer must be that
 * of the same request run alone with plenty of memory, and an aborted one the beginning of it.
 *
 *     test_end_to_end [--requests N] [--seed N]    N requests for each checkpoint and each kind of memory
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/random.h"
#include "kernels/philox.h"
#include "tests/support/run.h"
#include "tests/support/temp_folder.h"

#ifdef NDEBUG
static int num_requests = 200;
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static int num_requests = 60;
#else
static int num_requests = 120; /* the invariants are checked after every operation */
#endif
static uint64_t seed = 1;

enum {
    VOCABULARY = 320, /* of the checkpoints */
    BLOCK_SIZE = 8,
    MAX_MODEL_LEN = 96,
    MAX_PREFIX = 48,
    MAX_SUFFIX = 12,
    MAX_OUTPUT = 28,
    MAX_ANSWERS = 4,
    NUM_PREFIXES = 3,
    NUM_BLOCKS = 4, /* of which the prefixes are made */
    TOP_K = 16,
    SWAP_STATES = 8,
    NUM_THREADS = 8
};

/* ---- a model that no family has yet ---- */

static bool uneven; /* models are made so that their layers store K and V of several sizes */

enum status __real_model_config_load(const char *folder, const char *generation, const struct log *log,
                                     struct model_config *config, struct error *err);
enum status __wrap_model_config_load(const char *folder, const char *generation, const struct log *log,
                                     struct model_config *config, struct error *err);

/* Two of every three layers have a window. */
static void make_uneven(struct model_spec *spec)
{
    const struct layer_spec windowed = spec->layers[0], full = spec->layers[1];
    spec->num_layers = 6;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct attention_spec *a = &spec->layers[i].attention;
        spec->layers[i] = i % 3 == 2 ? full : windowed;
        if (i % 3 == 1) a->head_size = 80;
        if (i % 3 == 2) a->num_heads = 4, a->num_kv_heads = 2, a->head_size = a->rotary_dim = 128;
    }
}

/* The linker puts this in the place of model_config_load. Of the golden gemma3, which has two layers, it makes a model
 * of six that store 64, 80 and 256 elements of K for each token. Then blocks hold 4, 2 and 1 times block_size tokens.
 */
enum status __wrap_model_config_load(const char *folder, const char *generation, const struct log *log,
                                     struct model_config *config, struct error *err)
{
    const enum status status = __real_model_config_load(folder, generation, log, config, err);
    if (uneven && status == STATUS_OK) make_uneven(&config->spec);
    return status;
}

/* ---- the requests ---- */

enum kind { GREEDY, SAMPLED, SEVERAL, BEST_OF, BEAMS };
static const enum kind kinds[] = {GREEDY, GREEDY, GREEDY, SAMPLED, SAMPLED, SAMPLED, SEVERAL, SEVERAL, BEST_OF, BEAMS};

struct question {
    enum kind kind;
    int32_t ids[MAX_PREFIX + MAX_SUFFIX], length;
    struct sampling_params params;
    const char *salt;
    int32_t priority;
    int abort_after; /* so many tokens, counted as abort_later says; -1: never */
};

static int32_t between(struct random *r, int32_t low, int32_t high)
{
    return (int32_t)random_between(r, low, high);
}

/* Some of a prefix that others have too, and some tokens of its own. */
static void make_prompt(struct question *q, int32_t prefixes[NUM_PREFIXES][MAX_PREFIX], struct random *r)
{
    const int32_t *prefix = prefixes[between(r, 0, NUM_PREFIXES - 1)];
    const int32_t shared = between(r, 0, 3) == 0 ? between(r, 0, MAX_PREFIX) : MAX_PREFIX;
    const int32_t own = between(r, shared == 0, MAX_SUFFIX);
    memcpy(q->ids, prefix, (size_t)shared * sizeof *q->ids);
    for (int32_t i = 0; i < own; i++) q->ids[shared + i] = between(r, 0, VOCABULARY - 1);
    q->length = shared + own;
}

static void make_ends_and_penalty(struct question *q, struct random *r)
{
    struct sampling_params *p = &q->params;
    p->max_tokens = between(r, 0, 3) == 0 ? between(r, 1, MAX_OUTPUT) : MAX_OUTPUT;
    p->ignore_eos = true;
    if (between(r, 0, 3) == 0)
        for (int i = 0; i < 4; i++) assert_true(sampling_params_add_stop_token_id(p, between(r, 0, VOCABULARY - 1)));
    else if (q->kind != BEAMS && between(r, 0, 2) == 0)
        assert_true(sampling_params_add_stop(p, (const char *[]){"e", "in", "a", "\n"}[between(r, 0, 3)]));
    if (q->kind != BEAMS && between(r, 0, 4) == 0) p->min_tokens = between(r, 0, p->max_tokens);
    if (q->kind != BEAMS && between(r, 0, 4) == 0) p->presence_penalty = 1;
}

static void make_question(struct question *q, int32_t prefixes[NUM_PREFIXES][MAX_PREFIX], struct random *r)
{
    struct sampling_params *p = &q->params;
    *q = (struct question){.kind = kinds[between(r, 0, sizeof kinds / sizeof *kinds - 1)]};
    make_prompt(q, prefixes, r);
    *p = sampling_params_default();
    p->temperature = q->kind == GREEDY ? 0 : 1;
    p->logprobs = q->kind == BEAMS ? -1 : SAMPLING_MAX_LOGPROBS;
    p->top_k = q->kind == GREEDY || q->kind == BEAMS ? 0 : TOP_K;
    p->has_seed = true;
    p->seed = random_bits(r);
    const int32_t sequences = between(r, 2, MAX_ANSWERS);
    if (q->kind == SEVERAL) p->n = sequences;
    if (q->kind == BEST_OF) p->best_of = sequences;
    if (q->kind == BEAMS) p->beam_width = sequences;
    if (q->kind == BEST_OF || q->kind == BEAMS) p->n = between(r, 1, sequences);
    make_ends_and_penalty(q, r);
    q->salt = (const char *[]){NULL, NULL, NULL, NULL, "a", "b"}[between(r, 0, 5)];
    q->priority = between(r, -2, 2);
    q->abort_after = between(r, 0, 6) == 0 ? between(r, 0, MAX_OUTPUT) : -1;
    if (between(r, 0, 4) == 0) p->prompt_logprobs = between(r, 0, 2);
}

/* A block of tokens stands in several prefixes, behind others: it must be found only where all before it is the same.
 */
static void make_prefix(int32_t prefix[MAX_PREFIX], int32_t blocks[NUM_BLOCKS][BLOCK_SIZE], struct random *r)
{
    for (int32_t k = 0; k < MAX_PREFIX; k += BLOCK_SIZE)
        memcpy(&prefix[k], blocks[between(r, 0, NUM_BLOCKS - 1)], sizeof blocks[0]);
}

static struct question *make_questions(uint64_t number)
{
    int32_t prefixes[NUM_PREFIXES][MAX_PREFIX], blocks[NUM_BLOCKS][BLOCK_SIZE];
    struct random r = {seed * 1000 + number};
    struct question *questions = calloc((size_t)num_requests, sizeof *questions);
    for (int i = 0; i < NUM_BLOCKS; i++)
        for (int k = 0; k < BLOCK_SIZE; k++) blocks[i][k] = between(&r, 0, VOCABULARY - 1);
    for (int i = 0; i < NUM_PREFIXES; i++) make_prefix(prefixes[i], blocks, &r);
    for (int i = 0; i < num_requests; i++) make_question(&questions[i], prefixes, &r);
    return questions;
}

static void free_questions(struct question *questions)
{
    for (int i = 0; i < num_requests; i++) sampling_params_free(&questions[i].params);
    free(questions);
}

/* ---- asking ---- */

/* A request, and what came of it. */
struct asked {
    const struct question *question;
    struct run_answer answers[MAX_ANSWERS];
    double prompt_logprob; /* of the whole prompt but its first token; 0: none came */
    struct crowd *crowd;
    atomic_int tokens;
    atomic_bool finished;
};

struct crowd {
    struct engine *engine;
    struct asked *asked; /* [num_requests] */
    bool priorities;
    int finished; /* counted on the thread that steps */
    atomic_int next, tokens;
    int64_t shared; /* most blocks saved by sharing at any step */
};

static bool is_ranked(const struct question *q)
{
    return q->kind == BEST_OF || q->kind == BEAMS;
}

static bool contains(const int32_t *ids, int32_t count, int32_t id)
{
    for (int32_t i = 0; i < count; i++)
        if (ids[i] == id) return true;
    return false;
}

/* What becomes of the logarithms of the most probable tokens before the choice: values[num_top]. */
static void process(const struct question *q, const struct answer_piece *piece, const struct run_answer *answer,
                    float *values)
{
    const struct sampling_params *p = &q->params;
    const int32_t position = answer->count - 1;
    for (int32_t i = 0; i < piece->num_top; i++) {
        const int32_t id = piece->top_ids[i];
        const bool repeated = contains(answer->tokens, position, id);
        values[i] = piece->top_logprobs[i] - (repeated ? (float)p->presence_penalty : 0.0f);
        if (position < p->min_tokens && contains(p->stop_token_ids, p->num_stop_token_ids, id)) values[i] = -INFINITY;
    }
}

static int32_t rank_of(const float *values, int32_t count, int32_t i)
{
    int32_t rank = 0;
    for (int32_t k = 0; k < count; k++) rank += values[k] > values[i] || (values[k] == values[i] && k < i);
    return rank;
}

/* A random number makes the choice: the token whose value and number are the largest in sum is drawn (backend.h). */
static float random_number(const struct question *q, const struct answer_piece *piece, int32_t position, int32_t id)
{
    uint32_t words[4];
    if (q->kind == GREEDY) return 0;
    philox4x32(q->params.seed, (uint32_t)piece->index, (uint32_t)position, (uint32_t)id / 4, words);
    return -logf(-logf(philox_uniform(words[id % 4])));
}

/* By how much the newest token of an answer won; the choice is made again here. A token that is drawn is one of the
 * TOP_K best, and by how much the last of these is ahead of the next counts, too. INFINITY: it might be one that the
 * piece does not name. Then no difference is forgiven. */
static float gap_of(const struct question *q, const struct answer_piece *piece, const struct run_answer *answer)
{
    const int32_t position = answer->count - 1, candidates = q->kind == GREEDY ? 2 : TOP_K;
    float values[SAMPLING_MAX_LOGPROBS], last = 0, next = 0, best = -INFINITY, second = -INFINITY;
    int32_t id = -1;
    process(q, piece, answer, values);
    for (int32_t i = 0; i < piece->num_top; i++) {
        const int32_t rank = rank_of(values, piece->num_top, i);
        if (rank == candidates - 1) last = values[i];
        if (rank == candidates) next = values[i];
        if (rank >= candidates) continue;
        const float value = values[i] + random_number(q, piece, position, piece->top_ids[i]);
        if (value > best) id = piece->top_ids[i];
        second = fmaxf(second, fminf(value, best));
        best = fmaxf(best, value);
    }
    const float others = piece->top_logprobs[piece->num_top - 1]; /* at most */
    if (last < others) return INFINITY;
    const float gap = q->kind == GREEDY ? best - second : fminf(best - second, last - fmaxf(next, others));
    if (gap > 1e-3f) assert_int_equal(id, piece->token_ids[0]);
    return gap;
}

static void take_prompt(struct asked *a, const struct prompt_logprobs *p)
{
    assert_true(a->prompt_logprob == 0 && p->num_tokens == a->question->length);
    for (int32_t t = 1; t < p->num_tokens; t++) a->prompt_logprob += (double)p->logprobs[t];
}

static void take_piece(void *user, const struct answer_piece *piece)
{
    struct asked *a = user;
    struct run_answer *answer = &a->answers[piece->index];
    run_answer_add(answer, piece);
    if (piece->prompt_logprobs) take_prompt(a, piece->prompt_logprobs);
    if (piece->num_tokens > 0 && !is_ranked(a->question))
        answer->gaps[answer->count - 1] = gap_of(a->question, piece, answer);
    atomic_fetch_add(&a->tokens, piece->num_tokens);
    atomic_fetch_add(&a->crowd->tokens, piece->num_tokens);
    if (!piece->request_finished) return;
    a->crowd->finished++;
    atomic_store(&a->finished, true);
}

static uint64_t ask(struct asked *a)
{
    const struct question *q = a->question;
    const struct engine_request request = {.prompt = q->ids,
                                           .prompt_len = q->length,
                                           .params = &q->params,
                                           .cache_salt = q->salt,
                                           .priority = a->crowd->priorities ? q->priority : 0,
                                           .deliver = take_piece,
                                           .user = a};
    struct error err = {""};
    uint64_t id;
    if (engine_add(a->crowd->engine, &request, &id, &err) == STATUS_OK) return id;
    print_error("engine_add: %s\n", err.text);
    abort();
}

/* Aborts the request when it has so many tokens, or, where its tokens come all at the end, when all requests together
 * have so many more. */
static void abort_later(struct asked *a, uint64_t id)
{
    const atomic_int *tokens = is_ranked(a->question) ? &a->crowd->tokens : &a->tokens;
    const int until = a->question->abort_after + (is_ranked(a->question) ? atomic_load(tokens) : 0);
    while (atomic_load(tokens) < until && !atomic_load(&a->finished))
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    engine_abort(a->crowd->engine, id);
}

static void *ask_and_abort(void *user)
{
    struct crowd *c = user;
    for (int i = atomic_fetch_add(&c->next, 1); i < num_requests; i = atomic_fetch_add(&c->next, 1)) {
        const uint64_t id = ask(&c->asked[i]);
        if (c->asked[i].question->abort_after >= 0) abort_later(&c->asked[i], id);
    }
    return NULL;
}

static void step(struct crowd *c)
{
    struct error err = {""};
    struct scheduler_stats stats;
    bool worked;
    engine_wait(c->engine);
    if (engine_step(c->engine, &worked, &err) != STATUS_OK) fail_msg("engine_step: %s", err.text);
    engine_stats(c->engine, &stats);
    const int64_t shared = engine_blocks_unshared(c->engine) - stats.blocks_in_use;
    if (shared > c->shared) c->shared = shared;
}

static struct crowd *crowd_open(const struct question *questions, const struct engine_options *options)
{
    struct crowd *c = calloc(1, sizeof *c);
    c->engine = run_engine(options);
    c->priorities = options->scheduling_policy == SCHEDULING_PRIORITY;
    c->asked = calloc((size_t)num_requests, sizeof *c->asked);
    for (int i = 0; i < num_requests; i++) {
        struct asked *a = &c->asked[i];
        a->question = &questions[i];
        a->crowd = c;
        for (int j = 0; j < MAX_ANSWERS; j++) run_answer_open(&a->answers[j], MAX_MODEL_LEN);
    }
    return c;
}

/* Everything ended once, in order, and gave back what it held. */
static void crowd_check(struct crowd *c)
{
    struct scheduler_stats stats;
    /* A stop string ends an answer while the next step, which names it, is in flight. */
    if (engine_has_work(c->engine)) step(c);
    engine_stats(c->engine, &stats);
    assert_true(stats.blocks_in_use == 0 && stats.host_blocks_in_use == 0);
    assert_false(engine_has_work(c->engine));
    for (int i = 0; i < num_requests; i++)
        for (int j = 0; j < c->asked[i].question->params.n; j++) {
            const struct run_answer *answer = &c->asked[i].answers[j];
            if (answer->finish == FINISH_ERROR) fail_msg("request %d: %s", i, answer->error);
            run_answer_check(answer);
        }
}

static void crowd_close(struct crowd *c)
{
    for (int i = 0; i < num_requests; i++)
        for (int j = 0; j < MAX_ANSWERS; j++) run_answer_free(&c->asked[i].answers[j]);
    free(c->asked);
    free(c);
}

/* One request after the other. */
static void run_alone(struct crowd *c)
{
    for (int i = 0; i < num_requests; i++) {
        ask(&c->asked[i]);
        while (c->finished == i) step(c);
    }
    crowd_check(c);
}

static void run_together(struct crowd *c)
{
    pthread_t threads[NUM_THREADS];
    for (int i = 0; i < NUM_THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, ask_and_abort, c), 0);
    while (c->finished < num_requests) step(c);
    for (int i = 0; i < NUM_THREADS; i++) pthread_join(threads[i], NULL);
    crowd_check(c);
}

/* ---- memory ---- */

/* Who drafts. */
enum guesses {
    NOBODY,
    GUESSER, /* below */
    NGRAM,
    SUFFIX,
    ITSELF, /* the model is its own draft model */
    OTHER   /* a draft model of other weights */
};

struct memory {
    const char *name;
    enum preemption_mode mode;
    bool caching;
    int async;
    enum scheduling_policy policy;
    int32_t batched_tokens, swap_blocks; /* of the model's K and V; with those of a draft model half as many */
    enum guesses guesses;
};

static const struct memory memories[] = {
    {"either", PREEMPTION_AUTO, true, 1, SCHEDULING_FCFS, 40, 24},
    {"swapped, by priority", PREEMPTION_SWAP, true, 0, SCHEDULING_PRIORITY, 20, 12},
    {"swapped, no cache, in flight", PREEMPTION_SWAP, false, 1, SCHEDULING_FCFS, 64, 40},
    {"computed again, by priority, in flight", PREEMPTION_RECOMPUTE, true, 1, SCHEDULING_PRIORITY, 17, 24},
    {"drafts, either, by priority", PREEMPTION_AUTO, true, 0, SCHEDULING_PRIORITY, 40, 24, GUESSER},
    {"drafts, swapped, no cache, in flight", PREEMPTION_SWAP, false, 1, SCHEDULING_FCFS, 64, 40, GUESSER},
    {"ngram, computed again", PREEMPTION_RECOMPUTE, true, 0, SCHEDULING_FCFS, 40, 24, NGRAM},
    {"suffix, swapped, by priority", PREEMPTION_SWAP, true, 0, SCHEDULING_PRIORITY, 24, 24, SUFFIX},
    {"its own draft model, by priority", PREEMPTION_AUTO, true, 0, SCHEDULING_PRIORITY, 40, 48, ITSELF},
    {"its own draft model, swapped, in flight", PREEMPTION_SWAP, false, 1, SCHEDULING_FCFS, 64, 80, ITSELF},
    {"another draft model, swapped", PREEMPTION_SWAP, true, 0, SCHEDULING_FCFS, 40, 48, OTHER},
};

/* Drafts what the request's answers were when it ran alone, with a wrong token now and then. */
struct guesser {
    struct drafter drafter;
    const struct crowd *alone;
};

/* Seeds are distinct. */
static const struct asked *find_asked(const struct crowd *c, const struct sequence *seq)
{
    const struct asked *a = c->asked;
    while (a->question->params.seed != seq->request->params.seed) a++;
    return a;
}

static void guess(struct drafter *drafter, struct draft_query *queries, int32_t count)
{
    const struct guesser *g = (const struct guesser *)drafter;
    for (int32_t i = 0; i < count; i++) {
        struct draft_query *q = &queries[i];
        const struct asked *a = find_asked(g->alone, q->seq);
        const struct run_answer *answer = &a->answers[q->seq->index];
        const int32_t output = q->seq->num_tokens - q->seq->prompt_len;
        struct random r = {a->question->params.seed + (uint64_t)(q->seq->index * MAX_MODEL_LEN + output)};
        for (; q->num_drafts < q->most; q->num_drafts++) {
            const bool knows = output + q->num_drafts < answer->count && between(&r, 0, 4) > 0;
            q->drafts[q->num_drafts] = knows ? answer->tokens[output + q->num_drafts] : between(&r, 0, VOCABULARY - 1);
        }
    }
}

/* Two steps are in flight while no sequence wants drafts, which is never if their number is fixed. */
static void choose_drafter(struct engine_options *o, enum guesses guesses, const char *other)
{
    static const enum draft_method methods[] = {
        [NGRAM] = DRAFT_NGRAM, [SUFFIX] = DRAFT_SUFFIX, [ITSELF] = DRAFT_MODEL, [OTHER] = DRAFT_MODEL};
    const char *folder = guesses == OTHER ? other : guesses == ITSELF ? o->model : "";
    o->fixed_drafts = o->async_scheduling == 0;
    o->speculative = speculative_config_default();
    o->speculative.method = guesses <= GUESSER ? DRAFT_NONE : methods[guesses];
    o->speculative.prompt_lookup_min = 1;
    snprintf(o->speculative.model, sizeof o->speculative.model, "%s", folder);
}

/* What a block and a state slot take. */
struct sizes {
    int64_t block, slot;
};

/* m is NULL: there is plenty of memory. */
static struct engine_options make_options(const char *folder, const struct memory *m, int32_t num_blocks,
                                          struct sizes bytes)
{
    static char path[512];
    struct engine_options o = run_options(folder, path, sizeof path);
    o.skip_tokenizer = false;
    o.max_model_len = MAX_MODEL_LEN;
    o.block_size = BLOCK_SIZE;
    o.enable_prefix_caching = false;
    o.async_scheduling = 0;
    if (uneven) o.load_format = LOAD_FORMAT_DUMMY;
    if (!m) return o;
    o.enable_prefix_caching = m->caching;
    o.async_scheduling = m->async;
    o.preemption_mode = m->mode;
    o.scheduling_policy = m->policy;
    o.max_num_batched_tokens = m->batched_tokens;
    o.num_gpu_blocks_override = num_blocks;
    o.swap_space = (double)(m->swap_blocks * bytes.block + SWAP_STATES * bytes.slot) / (double)(1 << 30);
    return o;
}

/* It was as tight as it should be: all of this happened. */
static void check_paths(struct crowd *c, const struct memory *m)
{
    struct scheduler_stats s;
    engine_stats(c->engine, &s);
    print_message("%-40s %5lld steps, %lld computed again, %lld swapped (%lld blocks out, %lld in), %lld evicted, "
                  "%lld of %lld tokens cached, %lld blocks shared\n",
                  m->name, (long long)s.steps, (long long)s.preemptions_recompute, (long long)s.preemptions_swap,
                  (long long)s.blocks_swapped_out, (long long)s.blocks_swapped_in, (long long)s.evictions,
                  (long long)s.prefix_hits, (long long)s.prefix_queries, (long long)c->shared);
    assert_true(c->shared > 0);
    assert_true((s.prefix_hits > 0) == m->caching && (s.evictions > 0) == m->caching);
    if (m->guesses == NOBODY || m->mode != PREEMPTION_AUTO) { /* right drafts leave little to preempt */
        assert_true((s.blocks_swapped_out > 0) == (m->mode != PREEMPTION_RECOMPUTE));
        assert_true((s.blocks_swapped_in > 0) == (m->mode != PREEMPTION_RECOMPUTE));
        assert_true((s.states_swapped_in > 0) == (m->mode != PREEMPTION_RECOMPUTE && s.state_slots_total > 0));
        assert_true(s.preemptions_recompute > 0 || m->mode == PREEMPTION_SWAP);
    }
    if (m->guesses != NOBODY)
        print_message("%-40s %5lld of %lld drafts accepted\n", "", (long long)s.drafts_accepted, (long long)s.drafts);
    assert_true((s.drafts_accepted > 0) == (m->guesses != NOBODY));
    if (m->guesses == ITSELF)
        assert_true(s.drafts_accepted * 2 > s.drafts); /* where memory is short it lacks tokens */
    else
        assert_true((s.drafts_accepted < s.drafts) == (m->guesses != NOBODY));
}

/* ---- the same answers ---- */

struct counts {
    int compared, cut, by[FINISH_ERROR + 1], stop_strings, partial; /* partial: aborted, with some tokens */
};

/* Which answer is the better of two, or which beam goes on, may be as near a tie as which token is the largest. */
static bool is_near_tie(const struct question *q, const struct run_answer *alone, const struct run_answer *together)
{
    return is_ranked(q) && fabs(alone->score - together->score) <= 1e-4 * fabs(alone->score);
}

/* An aborted request may have none. */
static void compare_prompts(const struct asked *alone, const struct asked *together, const char *what)
{
    const double a = alone->prompt_logprob, b = together->prompt_logprob;
    const struct question *q = alone->question;
    assert_true((a != 0) == (q->params.prompt_logprobs >= 0 && q->length > 1));
    if (b == 0 && q->abort_after >= 0) return;
    if (!(fabs(a - b) <= 1e-4 * fabs(a))) fail_msg("%s: the prompt's log-probability is %g, not %g", what, b, a);
}

static void compare(const struct asked *alone, const struct asked *together, int32_t j, const char *what,
                    struct counts *counts)
{
    const struct question *q = alone->question;
    const struct run_answer *b = &together->answers[j];
    struct run_answer a = alone->answers[j];
    int32_t k;
    if (b->finish == FINISH_ABORT && b->count < a.count) a.count = b->count;
    const enum run_match match = run_answer_match(&a, b, &k);
    counts->compared++;
    counts->by[b->finish]++;
    counts->stop_strings += b->stop_reason[0] != '\0';
    counts->partial += b->finish == FINISH_ABORT && b->count > 0;
    if (match == RUN_CUT || (match == RUN_DIFFERENT && is_near_tie(q, &a, b)))
        counts->cut++;
    else if (match == RUN_DIFFERENT)
        fail_msg("%s: request %d of kind %d (%d prompt tokens), answer %d differs at output token %d of %d (%d "
                 "against %d; gap %g)",
                 what, (int)(together - together->crowd->asked), q->kind, q->length, j, k, a.count,
                 k < a.count ? a.tokens[k] : -1, k < b->count ? b->tokens[k] : -1, k < a.count ? a.gaps[k] : 0.0f);
    else if (b->finish != FINISH_ABORT) {
        assert_int_equal(b->finish, a.finish);
        assert_int_equal(b->stop_token, a.stop_token);
        assert_string_equal(b->stop_reason, a.stop_reason);
        assert_int_equal(b->text.length, a.text.length);
        if (a.text.length > 0) assert_memory_equal(b->text.data, a.text.data, a.text.length);
    }
}

static void compare_all(const struct crowd *alone, const struct crowd *together, const char *what)
{
    struct counts counts = {0};
    for (int i = 0; i < num_requests; i++) {
        const struct question *q = alone->asked[i].question;
        compare_prompts(&alone->asked[i], &together->asked[i], what);
        for (int32_t j = 0; j < q->params.n; j++) compare(&alone->asked[i], &together->asked[i], j, what, &counts);
        for (int32_t j = 0; j < q->params.n && q->abort_after < 0; j++)
            assert_int_not_equal(together->asked[i].answers[j].finish, FINISH_ABORT);
    }
    print_message("%-40s %5d answers: %d ended by length, %d at a stop string, %d at a stop id, %d aborted (%d with "
                  "tokens), %d cut at a near tie\n",
                  "", counts.compared, counts.by[FINISH_LENGTH], counts.stop_strings,
                  counts.by[FINISH_STOP] - counts.stop_strings, counts.by[FINISH_ABORT], counts.partial, counts.cut);
    assert_true(counts.by[FINISH_LENGTH] > 0 && counts.stop_strings > 0 && counts.partial > 0);
    assert_true(counts.by[FINISH_STOP] > counts.stop_strings);
    if (counts.cut > 1 + counts.compared / 100)
        fail_msg("%s: %d of %d answers were cut at a near tie: too many to call them the same", what, counts.cut,
                 counts.compared);
}

/* The checkpoint with a tokenizer, for stop strings; the words of its ids are those of another model. */
static void make_folder(struct temp_folder *folder, const char *checkpoint)
{
    char from[512];
    snprintf(from, sizeof from, "%s/golden/%s", QUIRE_TEST_DATA, checkpoint);
    temp_folder_make(folder);
    temp_folder_copy(folder, from, "config.json");
    temp_folder_copy(folder, from, "model.safetensors");
    temp_folder_copy(folder, QUIRE_TEST_DATA "/tokenizers/gpt2", "tokenizer.json");
    temp_folder_copy(folder, QUIRE_TEST_DATA "/tokenizers/gpt2", "tokenizer_config.json");
}

/* The engine's drafters run on its thread: where a sanitizer looks for races, and takes ten times as long, the rows
 * with given drafts show as much. */
#ifdef __SANITIZE_THREAD__
static const bool own_drafters = false;
#else
static const bool own_drafters = true;
#endif

/* Whether the next model runs with a kind of memory. With a sanitizer the first takes every kind; of the others, whose
 * engine is the same, each takes every third, and they take turns. */
static bool is_taken(int model, size_t memory)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return model == 0 || (memory + (size_t)model) % 3 == 0;
#else
    (void)model, (void)memory;
    return true;
#endif
}

/* `other` is a checkpoint of the same vocabulary. NULL: the engine's own drafters are left out. */
static void together_as_alone(const char *checkpoint, const char *other, int32_t num_blocks)
{
    static int num_models;
    run_need_device();
    const int model = num_models++;
    struct temp_folder folder;
    char other_folder[512];
    make_folder(&folder, checkpoint);
    snprintf(other_folder, sizeof other_folder, "%s/golden/%s", QUIRE_TEST_DATA, other ? other : "");
    struct question *questions = make_questions((uint64_t)num_blocks);
    struct engine_options o = make_options(folder.path, NULL, 0, (struct sizes){0, 0});
    struct crowd *alone = crowd_open(questions, &o);
    struct guesser guesser = {.drafter = {.name = "guesser", .propose = guess}, .alone = alone};
    run_alone(alone);
    const struct memory_profile *memory = engine_info(alone->engine)->memory;
    const struct sizes bytes = {memory->block_bytes, memory->slot_bytes};
    engine_destroy(alone->engine); /* one engine at a time: each counts on its share of a GPU */
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++) {
        if ((!other || !own_drafters) && memories[i].guesses > GUESSER) continue;
        if (!is_taken(model, i)) continue;
        o = make_options(folder.path, &memories[i], num_blocks, bytes);
        choose_drafter(&o, memories[i].guesses, other_folder);
        if (memories[i].guesses == GUESSER) o.drafter = &guesser.drafter;
        struct crowd *together = crowd_open(questions, &o);
        run_together(together);
        check_paths(together, &memories[i]);
        engine_destroy(together->engine);
        compare_all(alone, together, memories[i].name);
        crowd_close(together);
    }
    crowd_close(alone);
    free_questions(questions);
    temp_folder_remove(&folder);
}

static void test_full_attention(void **state)
{
    (void)state;
    together_as_alone("mha", "gqa", 30);
}

static void test_windows(void **state)
{
    (void)state;
    together_as_alone("sliding", NULL, 28);
}

static void test_windows_and_full_attention(void **state)
{
    (void)state;
    together_as_alone("gemma3", "gemma2", 56);
}

/* And experts, and queries scaled by position. */
static void test_chunks_and_full_attention(void **state)
{
    (void)state;
    together_as_alone("llama4", NULL, 84);
}

static void test_recurrent_layers(void **state)
{
    (void)state;
    together_as_alone("qwen3_next", NULL, 30);
}

static void test_layers_of_several_sizes(void **state)
{
    (void)state;
    uneven = true;
    together_as_alone("gemma3", NULL, 56);
    uneven = false;
}

/* ---- other sizes of blocks ---- */

enum { LONG_PROMPTS = 10, LONG_PREFIX = 140, LONG_MODEL_LEN = 220 };

/* The first is the reference: each request in one step, and plenty of memory. */
static const struct run_variant block_sizes[] = {
    {"alone", 16, 1, 512, 0, false, 0, PREEMPTION_AUTO},
    {"8", 8, 8, 40, 100, true, 1, PREEMPTION_RECOMPUTE},
    {"16, swapped", 16, 8, 64, 60, false, 1, PREEMPTION_SWAP},
    {"32, swapped", 32, 8, 512, 34, true, 0, PREEMPTION_SWAP},
    {"64", 64, 8, 30, 24, true, 1, PREEMPTION_RECOMPUTE}, /* the largest blocks hold 128 tokens */
};

static void run_blocks(const char *folder, const struct run_variant *v, const struct run_prompt *prompts,
                       struct run *out)
{
    struct sampling_params params = sampling_params_default();
    struct scheduler_stats stats;
    char path[512];
    struct engine_options o = run_options(folder, path, sizeof path);
    params.temperature = 0;
    params.logprobs = 2;
    params.max_tokens = 60;
    params.ignore_eos = true;
    o.load_format = LOAD_FORMAT_DUMMY;
    o.max_model_len = LONG_MODEL_LEN;
    o.block_size = v->block_size;
    o.max_num_seqs = v->max_num_seqs;
    o.max_num_batched_tokens = v->max_num_batched_tokens;
    o.num_gpu_blocks_override = v->num_blocks;
    o.enable_prefix_caching = v->caching;
    o.async_scheduling = v->async;
    o.preemption_mode = v->preemption_mode;
    struct engine *e = run_engine(&o);
    run_prompts(e, prompts, LONG_PROMPTS, &params, out);
    engine_stats(e, &stats);
    print_message("blocks of %-12s %lld computed again, %lld swapped, %lld tokens cached\n", v->name,
                  (long long)stats.preemptions_recompute, (long long)stats.preemptions_swap,
                  (long long)stats.prefix_hits);
    assert_true((stats.prefix_hits > 0) == v->caching);
    if (v->num_blocks > 0)
        assert_true((v->preemption_mode == PREEMPTION_SWAP ? stats.blocks_swapped_in : stats.preemptions_recompute) >
                    0);
    engine_destroy(e);
}

static void test_block_sizes(void **state)
{
    (void)state;
    run_need_device();
    struct temp_folder folder;
    struct run alone, other;
    int32_t lengths[LONG_PROMPTS];
    make_folder(&folder, "gemma3");
    for (int32_t i = 0; i < LONG_PROMPTS; i++) lengths[i] = LONG_PREFIX + 2 * i;
    struct run_prompt *prompts = run_random_prompts(lengths, LONG_PROMPTS, VOCABULARY, seed);
    for (int32_t i = 1; i < LONG_PROMPTS; i++) /* every other one begins as the first does */
        if (i % 2 == 0) memcpy((int32_t *)prompts[i].ids, prompts[0].ids, LONG_PREFIX * sizeof *prompts[i].ids);
    uneven = true;
    run_blocks(folder.path, &block_sizes[0], prompts, &alone);
    for (size_t i = 1; i < sizeof block_sizes / sizeof *block_sizes; i++) {
        run_blocks(folder.path, &block_sizes[i], prompts, &other);
        assert_in_range(run_assert_same(&alone, &other, block_sizes[i].name), 0, 1);
        run_free(&other);
    }
    uneven = false;
    run_free(&alone);
    run_prompts_free(prompts, LONG_PROMPTS);
    temp_folder_remove(&folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_attention),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_windows_and_full_attention),
        cmocka_unit_test(test_chunks_and_full_attention),
        cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_layers_of_several_sizes),
        cmocka_unit_test(test_block_sizes),
    };
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--requests") == 0) num_requests = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--seed") == 0) seed = strtoull(argv[i + 1], NULL, 10);
    }
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    run_set_device("cuda");
    return failed + cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
