/* Answers with drafts are those of plain decoding, piece by piece: tokens, texts, ends, counts and log-probabilities.
 * The drafters know what plain decoding gave, and are right or wrong as the test wants. Their tokens go on where an
 * answer ends, so that runs go past stop strings, stop ids and max_tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "tests/support/run.h"
#include "tests/support/stored_copy.h"
#include "tests/support/temp_folder.h"

enum { VOCABULARY = 320, MAX_MODEL_LEN = 200, OUTPUT_TOKENS = 40, BEYOND = 12, MAX_ANSWERS = 3, MAX_REQUESTS = 26 };

/* ---- the requests ---- */

static struct sampling_params greedy(void)
{
    struct sampling_params p = sampling_params_default();
    p.temperature = 0;
    p.max_tokens = OUTPUT_TOKENS;
    p.ignore_eos = true;
    p.logprobs = 2;
    return p;
}

static struct sampling_params seeded(uint64_t seed)
{
    struct sampling_params p = greedy();
    p.temperature = 1;
    p.has_seed = true;
    p.seed = seed;
    return p;
}

static void stop_at(struct sampling_params *p, const char *a, const char *b)
{
    assert_true(sampling_params_add_stop(p, a));
    if (b) assert_true(sampling_params_add_stop(p, b));
}

static void stop_at_ids(struct sampling_params *p, int32_t step)
{
    for (int32_t id = step; id < VOCABULARY; id += step) assert_true(sampling_params_add_stop_token_id(p, id));
}

static void choose_penalties(struct sampling_params *p)
{
    p[0].repetition_penalty = 1.3;
    p[1].presence_penalty = 1;
    p[1].frequency_penalty = 0.5;
    for (int32_t id = 0; id < 60; id++)
        assert_true(sampling_params_add_logit_bias(&p[2], (struct logit_bias){id, id % 3 == 0 ? 4 : -4}));
    p[3].top_k = 20;
    p[3].top_p = 0.9;
    p[4].min_p = 0.05;
}

static void choose_ends(struct sampling_params *p)
{
    stop_at(&p[0], "e", NULL);
    stop_at(&p[1], "in", "\n"); /* often across two tokens */
    p[1].include_stop_str_in_output = true;
    stop_at(&p[2], "a", NULL);
    p[2].min_tokens = 15;
    stop_at_ids(&p[3], 40);
    stop_at_ids(&p[4], 10);
    p[4].min_tokens = 20;
    p[5].max_tokens = 1;
    p[6].max_tokens = 7;
    p[7].ignore_eos = false;
    p[7].max_tokens = MAX_MODEL_LEN;
}

static void choose_several(struct sampling_params *p)
{
    p[0].n = 3;
    p[1].n = 3;
    stop_at(&p[1], "e", NULL);
    p[2].best_of = 3;
    p[2].n = 2;
    p[3].best_of = 3;
    stop_at(&p[3], "e", "t");
    p[4].prompt_logprobs = 2;
    p[5] = greedy();
    p[5].beam_width = 3;
    p[5].n = 2;
    p[5].logprobs = -1;
}

/* Requests of every kind. Returns how many. */
static int32_t make_params(struct sampling_params params[MAX_REQUESTS])
{
    for (int32_t i = 0; i < MAX_REQUESTS; i++) params[i] = seeded((uint64_t)i + 100);
    params[0] = params[1] = greedy();
    params[1].logprobs = -1;
    choose_penalties(params + 2);
    choose_ends(params + 7);
    choose_several(params + 15);
    params[21] = greedy();
    params[21].repetition_penalty = 1.2;
    params[21].presence_penalty = 0.3;
    params[22] = greedy(); /* one token again and again, which every drafter foresees */
    assert_true(sampling_params_add_logit_bias(&params[22], (struct logit_bias){7, 100}));
    for (int32_t i = 23; i < 25; i++) { /* the same as text: "((((" */
        assert_true(sampling_params_add_logit_bias(&params[i], (struct logit_bias){7, 100}));
        params[i].best_of = 2;
        params[i].max_tokens = 6;
    }
    stop_at(&params[23], "(((((", NULL);
    stop_at(&params[24], "(", NULL);
    params[24].min_tokens = 3;
    return 25;
}

static void free_params(struct sampling_params *params, int32_t count)
{
    for (int32_t i = 0; i < count; i++) sampling_params_free(&params[i]);
}

/* ---- what is delivered ---- */

struct kept_piece {
    int32_t token, num_tokens, output_tokens, stop_token, rank, tops[2];
    float logprob;
    enum finish_reason finish;
    bool last, stopped, prompt_logprobs;
    size_t text_end; /* bytes of the answer's text so far */
};

struct kept_answer {
    struct kept_piece pieces[MAX_MODEL_LEN + 1];
    int32_t num_pieces, num_tokens;
    struct text text;
};

struct result {
    struct kept_answer answers[MAX_REQUESTS][MAX_ANSWERS];
    struct scheduler_stats stats;
    struct engine *engine;
    int32_t abort_after; /* tokens of an answer; 0: nothing is aborted */
    int32_t num_two;     /* calls of engine_step that left a step in flight */
};

struct receiver {
    struct result *result;
    int32_t request;
};

static void deliver(void *user, const struct answer_piece *piece)
{
    const struct receiver *r = user;
    struct kept_answer *a = &r->result->answers[r->request][piece->index];
    assert_true(a->num_pieces <= MAX_MODEL_LEN);
    assert_true(a->num_pieces == 0 || a->pieces[a->num_pieces - 1].finish == FINISH_NONE);
    text_append(&a->text, piece->text, piece->text_length);
    a->num_tokens += piece->num_tokens;
    assert_int_equal(piece->output_tokens, a->num_tokens);
    struct kept_piece *k = &a->pieces[a->num_pieces++];
    *k = (struct kept_piece){.token = piece->num_tokens > 0 ? piece->token_ids[0] : -1,
                             .num_tokens = piece->num_tokens,
                             .output_tokens = piece->output_tokens,
                             .stop_token = piece->stop_token,
                             .finish = piece->finish_reason,
                             .last = piece->request_finished,
                             .stopped = piece->stop_reason != NULL,
                             .prompt_logprobs = piece->prompt_logprobs != NULL,
                             .text_end = a->text.length};
    if (piece->logprob) {
        k->logprob = *piece->logprob;
        k->rank = *piece->rank;
        for (int32_t i = 0; i < piece->num_top && i < 2; i++) k->tops[i] = piece->top_ids[i];
    }
    if (r->result->abort_after > 0 && a->num_tokens == r->result->abort_after)
        engine_abort(r->result->engine, piece->request);
}

static void free_result(struct result *r)
{
    for (int32_t i = 0; i < MAX_REQUESTS; i++)
        for (int32_t j = 0; j < MAX_ANSWERS; j++) text_free(&r->answers[i][j].text);
    free(r);
}

/* ---- the drafters ---- */

enum manner { RIGHT, WRONG, MIXED, NUM_MANNERS };

struct oracle {
    struct drafter drafter;
    enum manner manner;
    const struct result *known; /* longer answers than those that are asked for, by sequence */
    int32_t num_requests;
    const struct result *result; /* of the run */
    int32_t num_finished;
};

/* The number of a request of the second round follows that of the last one of the first. */
static int32_t request_of(const struct oracle *o, const struct sequence *seq)
{
    return (int32_t)((seq->request->id - 1) % (uint64_t)o->num_requests);
}

/* The token that plain decoding gives the sequence at this output position; -1: it is not known. */
static int32_t known_token(const struct oracle *o, const struct sequence *seq, int32_t output)
{
    const struct kept_answer *a = &o->known->answers[request_of(o, seq)][seq->index];
    return output < a->num_tokens ? a->pieces[output].token : -1;
}

static void propose(struct drafter *d, struct draft_query *queries, int32_t count)
{
    struct oracle *o = (struct oracle *)d;
    for (int32_t i = 0; i < count; i++) {
        struct draft_query *q = &queries[i];
        const int32_t output = q->seq->num_tokens - q->seq->prompt_len;
        struct random r = {q->seq->request->id * 1000003 + (uint64_t)(q->seq->index * 1009 + output)};
        const int32_t most = o->manner == MIXED ? (int32_t)random_between(&r, 0, q->most) : q->most;
        for (; q->num_drafts < most; q->num_drafts++) {
            const int32_t right = known_token(o, q->seq, output + q->num_drafts);
            const int32_t any = (int32_t)random_between(&r, 0, VOCABULARY - 1);
            const bool hit = o->manner == RIGHT || (o->manner == MIXED && random_between(&r, 0, 9) < 7);
            if (o->manner == WRONG && right < 0) break;
            q->drafts[q->num_drafts] = hit && right >= 0 ? right : o->manner == WRONG ? (right + 1) % VOCABULARY : any;
        }
    }
}

/* A sequence ends with the tokens that were delivered. */
static void finished(struct drafter *d, const struct sequence *seq)
{
    struct oracle *o = (struct oracle *)d;
    const struct kept_answer *a = &o->result->answers[request_of(o, seq)][seq->index];
    o->num_finished++;
    if (sampling_params_ranks(&seq->request->params)) return; /* in another order */
    assert_int_equal(seq->num_tokens - seq->prompt_len, a->num_tokens);
    for (int32_t i = 0; i < a->num_tokens; i++) assert_int_equal(seq->tokens[seq->prompt_len + i], a->pieces[i].token);
}

/* ---- a run ---- */

static struct engine_options options_of(const char *folder, const struct run_variant *v)
{
    static char path[512];
    struct engine_options o = run_variant_options(folder, MAX_MODEL_LEN, v, path, sizeof path);
    o.skip_tokenizer = false;
    return o;
}

/* Prompts 2 and 4 are the same, and 9 begins with the first 64 tokens of prompt 3. */
static struct run_prompt *make_prompts(void)
{
    static const int32_t lengths[MAX_REQUESTS] = {1, 7,  33, 70, 33, 15, 16, 17, 64, 100, 2,  48, 5,
                                                  9, 31, 32, 30, 8,  24, 12, 40, 3,  6,   11, 9,  4};
    struct run_prompt *prompts = run_random_prompts(lengths, MAX_REQUESTS, VOCABULARY, 7);
    memcpy((void *)prompts[4].ids, prompts[2].ids, 33 * sizeof(int32_t));
    memcpy((void *)prompts[9].ids, prompts[3].ids, 64 * sizeof(int32_t));
    return prompts;
}

/* Whether a step in flight computes the newest token of an answer. */
static bool is_in_flight(const struct result *r, const uint64_t *ids, const struct run_prompt *prompts, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const struct kept_answer *a = &r->answers[i][0];
        const bool runs = a->num_pieces > 0 && a->pieces[a->num_pieces - 1].finish == FINISH_NONE;
        if (runs && engine_num_computed(r->engine, ids[i]) >= prompts[i].length + a->num_tokens) return true;
    }
    return false;
}

static void run(struct result *out, const struct sampling_params *params, int32_t count)
{
    struct run_prompt *prompts = make_prompts();
    struct receiver receivers[MAX_REQUESTS];
    uint64_t ids[MAX_REQUESTS];
    struct error err = {""};
    for (int32_t i = 0; i < count; i++) {
        receivers[i] = (struct receiver){out, i};
        const struct engine_request request = {.prompt = prompts[i].ids,
                                               .prompt_len = prompts[i].length,
                                               .params = &params[i],
                                               .deliver = deliver,
                                               .user = &receivers[i]};
        if (engine_add(out->engine, &request, &ids[i], &err) != STATUS_OK) fail_msg("engine_add: %s", err.text);
    }
    for (bool worked; engine_has_work(out->engine);) {
        if (engine_step(out->engine, &worked, &err) != STATUS_OK) fail_msg("engine_step: %s", err.text);
        out->num_two += is_in_flight(out, ids, prompts, count);
    }
    engine_stats(out->engine, &out->stats);
    run_prompts_free(prompts, MAX_REQUESTS);
}

static struct result *result_create(struct engine *e)
{
    struct result *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->engine = e;
    return r;
}

static struct result *run_plain(const char *folder, const struct sampling_params *params, int32_t count)
{
    const struct run_variant plain = {"plain", 16, 16, 512, 0, false, 0, PREEMPTION_AUTO};
    struct engine_options o = options_of(folder, &plain);
    struct result *r = result_create(run_engine(&o));
    run(r, params, count);
    engine_destroy(r->engine);
    return r;
}

/* The same requests without stop strings, each sequence in its own place, and longer: what drafters know. */
static struct result *run_longer(const char *folder, const struct sampling_params *params, int32_t count)
{
    struct sampling_params longer[MAX_REQUESTS] = {0};
    for (int32_t i = 0; i < count; i++) {
        assert_true(sampling_params_copy(&params[i], &longer[i]));
        longer[i].num_stop = 0;
        longer[i].max_tokens += BEYOND;
        if (longer[i].best_of > 0) longer[i].n = longer[i].best_of;
        longer[i].best_of = -1;
        longer[i].beam_width = 1;
        if (params[i].beam_width > 1) longer[i].n = 1;
    }
    struct result *r = run_plain(folder, longer, count);
    free_params(longer, count);
    return r;
}

/* ---- the same pieces ---- */

static void assert_same_answer(const struct kept_answer *a, const struct kept_answer *b, const char *what)
{
    for (int32_t i = 0; i < a->num_pieces && i < b->num_pieces; i++) {
        const struct kept_piece *p = &a->pieces[i], *q = &b->pieces[i];
        if (p->token != q->token || p->finish != q->finish || p->stop_token != q->stop_token ||
            p->stopped != q->stopped || p->text_end != q->text_end || p->prompt_logprobs != q->prompt_logprobs)
            fail_msg("%s, piece %d: token %d, finish %d, stop %d, text %zu; plainly: %d, %d, %d, %zu", what, i,
                     q->token, q->finish, q->stop_token, q->text_end, p->token, p->finish, p->stop_token, p->text_end);
        /* Far down, neighbours may change places. */
        if (fabsf(p->logprob - q->logprob) > 1e-3f || abs(p->rank - q->rank) > p->rank / 500 ||
            p->tops[0] != q->tops[0] || p->tops[1] != q->tops[1])
            fail_msg("%s, piece %d: logprob %g of rank %d; plainly: %g, %d", what, i, q->logprob, q->rank, p->logprob,
                     p->rank);
    }
    if (a->num_pieces != b->num_pieces) fail_msg("%s: %d pieces; plainly: %d", what, b->num_pieces, a->num_pieces);
    assert_int_equal(a->text.length, b->text.length);
    if (a->text.length > 0) assert_memory_equal(a->text.data, b->text.data, a->text.length);
}

static void assert_same(const struct result *a, const struct result *b, int32_t count, const char *what)
{
    char name[200];
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j < MAX_ANSWERS; j++) {
            snprintf(name, sizeof name, "%s, request %d, answer %d", what, i, j);
            assert_same_answer(&a->answers[i][j], &b->answers[i][j], name);
        }
}

/* ---- tests ---- */

struct models {
    struct temp_folder folder;
    struct sampling_params params[MAX_REQUESTS];
    int32_t count;
    struct result *plain, *longer;
};

static void make_answers(struct models *m)
{
    m->count = make_params(m->params);
    m->plain = run_plain(m->folder.path, m->params, m->count);
    m->longer = run_longer(m->folder.path, m->params, m->count);
}

static void free_answers(struct models *m)
{
    free_result(m->plain);
    free_result(m->longer);
    free_params(m->params, m->count);
}

/* The checkpoint with a tokenizer, for stop strings; the words of its ids are those of another model. */
static void open_model(struct models *m, const char *checkpoint)
{
    char from[512];
    run_need_device();
    snprintf(from, sizeof from, "%s/golden/%s", QUIRE_TEST_DATA, checkpoint);
    temp_folder_make(&m->folder);
    temp_folder_copy(&m->folder, from, "config.json");
    temp_folder_copy(&m->folder, from, "model.safetensors");
    temp_folder_copy(&m->folder, QUIRE_TEST_DATA "/tokenizers/gpt2", "tokenizer.json");
    temp_folder_copy(&m->folder, QUIRE_TEST_DATA "/tokenizers/gpt2", "tokenizer_config.json");
    make_answers(m);
    assert_int_equal(m->plain->answers[23][0].num_tokens, 5);
    assert_int_equal(m->plain->answers[24][0].num_tokens, 3);
}

static void close_model(struct models *m)
{
    free_answers(m);
    temp_folder_remove(&m->folder);
}

static int32_t num_sequences(const struct models *m)
{
    int32_t count = 0;
    const char *name;
    for (int32_t i = 0; i < m->count; i++) count += sampling_params_num_sequences(&m->params[i], &name);
    return count;
}

static void check_manner(const struct models *m, const struct run_variant *s, enum manner manner, bool fixed)
{
    static const char *const names[] = {"right", "wrong", "mixed"};
    struct engine_options o = options_of(m->folder.path, s);
    struct oracle oracle = {.drafter = {.name = names[manner], .propose = propose, .finished = finished},
                            .manner = manner,
                            .known = m->longer,
                            .num_requests = m->count};
    o.drafter = &oracle.drafter;
    o.fixed_drafts = fixed;
    struct engine *e = run_engine(&o);
    assert_string_equal(engine_info(e)->drafter, names[manner]);
    for (int32_t round = 1; round <= 2; round++) { /* the second finds prompts in the cache */
        char what[100];
        struct result *r = result_create(e);
        oracle.result = r;
        run(r, m->params, m->count);
        snprintf(what, sizeof what, "%s, %s drafts, round %d", s->name, names[manner], round);
        assert_same(m->plain, r, m->count, what);
        assert_int_equal(oracle.num_finished, round * num_sequences(m));
        assert_true(r->stats.runs > 0 && r->stats.drafts >= r->stats.runs);
        if (manner == RIGHT) assert_true(r->stats.drafts_accepted * 10 > r->stats.drafts * 9);
        if (manner == WRONG) assert_int_equal(r->stats.drafts_accepted, 0);
        if (manner == MIXED) assert_in_range(r->stats.drafts_accepted, 1, r->stats.drafts - 1);
        if (s->async <= 0) assert_int_equal(r->num_two, 0);
        if (s->async > 0 && manner == WRONG && !fixed) assert_true(r->num_two > 0);
        if (s->num_blocks > 0) assert_true(r->stats.preemptions_recompute + r->stats.preemptions_swap > 0);
        if (s->preemption_mode == PREEMPTION_SWAP) assert_true(r->stats.preemptions_swap > 0);
        free_result(r);
    }
    engine_destroy(e);
}

static const struct run_variant settings[] = {
    {"batched", 16, 16, 512, 0, true, 0, PREEMPTION_AUTO},
    {"no cache", 32, 16, 512, 0, false, 1, PREEMPTION_AUTO},
    {"few sequences, chunks of 20", 8, 4, 20, 0, true, 0, PREEMPTION_AUTO},
    {"computed again", 8, 16, 512, 40, true, 0, PREEMPTION_RECOMPUTE},
    {"computed again, no cache, chunks of 40", 8, 16, 40, 40, false, 0, PREEMPTION_RECOMPUTE},
    {"swapped", 8, 16, 512, 40, true, 0, PREEMPTION_SWAP},
    {"swapped, no cache, chunks of 40", 8, 16, 40, 40, false, 0, PREEMPTION_SWAP},
};

/* How the engine drafts itself. */
struct drafting {
    enum draft_method method;
    const char *folder; /* of draft_model */
    int32_t num_tokens;
    bool fixed;
};

/* Returns how many drafts of a hundred were accepted. */
static double check_drafting(const struct models *m, const struct drafting *d, const struct run_variant *s)
{
    struct engine_options o = options_of(m->folder.path, s);
    char what[100];
    o.speculative.method = d->method;
    o.speculative.prompt_lookup_min = 1;
    if (d->folder) snprintf(o.speculative.model, sizeof o.speculative.model, "%s", d->folder);
    o.speculative.num_speculative_tokens = d->num_tokens;
    o.fixed_drafts = d->fixed;
    snprintf(what, sizeof what, "%s, %s, %d%s tokens", s->name, draft_method_name(d->method), d->num_tokens,
             d->fixed ? " fixed" : "");
    struct result *r = result_create(run_engine(&o));
    assert_string_equal(engine_info(r->engine)->drafter,
                        d->method == DRAFT_MTP ? "head" : draft_method_name(d->method));
    run(r, m->params, m->count);
    assert_same(m->plain, r, m->count, what);
    assert_true(r->stats.runs > 0);
    const double share = 100.0 * (double)r->stats.drafts_accepted / (double)r->stats.drafts;
    engine_destroy(r->engine);
    free_result(r);
    return share;
}

/* The draft model is the target once more, so that it is right. */
static void check_method(const struct models *m, enum draft_method method, const struct run_variant *s)
{
    const struct drafting d = {method, m->folder.path, 4, false};
    const double share = check_drafting(m, &d, s);
    /* With little memory or small chunks it lacks tokens now and then, and guesses badly. */
    assert_true(share > (method != DRAFT_MODEL ? 0 : s->num_blocks > 0 ? 50 : 95));
}

/* A sanitizer sees enough in the settings with little memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool thorough = false;
#else
static const bool thorough = true;
#endif

/* Of the models that are not the first, those where most happens. */
static void check_model(const char *checkpoint, bool all, int32_t num_groups)
{
    struct models m = {0};
    open_model(&m, checkpoint);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct run_variant s = settings[i];
        if (!all && s.num_blocks == 0) continue;
        s.num_blocks *= num_groups;
        check_method(&m, DRAFT_MODEL, &s);
        for (enum manner manner = 0; manner < NUM_MANNERS; manner++)
            if (all || manner == MIXED) check_manner(&m, &s, manner, true);
    }
    check_manner(&m, &settings[0], RIGHT, false);
    close_model(&m);
}

static void test_full_attention(void **state)
{
    (void)state;
    check_model("mha", thorough, 1);
}

static void test_windows(void **state)
{
    (void)state;
    check_model("sliding", false, 1);
}

static void test_two_groups(void **state)
{
    (void)state;
    check_model("gemma3", false, 2);
}

/* Sequences cross longrope's switch, which ends runs. */
static void test_longrope(void **state)
{
    (void)state;
    check_model("phi3", false, 1);
}

static void test_methods(void **state)
{
    (void)state;
    struct models m = {0};
    open_model(&m, "mha");
    for (enum draft_method method = DRAFT_NONE + 1; method <= DRAFT_MODEL; method++) {
        if (method == DRAFT_GRAMMAR) continue; /* only of answers with one */
        check_method(&m, method, &settings[0]);
        check_method(&m, method, &settings[4]);
    }
    close_model(&m);
}

/* ---- two steps in flight ---- */

static const char *golden_folder(const char *checkpoint)
{
    static char folder[512];
    snprintf(folder, sizeof folder, "%s/golden/%s", QUIRE_TEST_DATA, checkpoint);
    return folder;
}

/* Where no sequence wants drafts, in a step with too many sequences and where all wait, two steps are in flight. */
static void check_two_in_flight(const char *checkpoint, const char *other, int32_t num_groups)
{
    struct models m = {0};
    open_model(&m, checkpoint);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i += thorough ? 1 : 2) {
        struct run_variant s = settings[i];
        s.async = 1;
        s.num_blocks *= num_groups;
        for (enum manner manner = 0; manner < NUM_MANNERS; manner++)
            if (thorough || manner == MIXED) check_manner(&m, &s, manner, false);
        check_manner(&m, &s, MIXED, true);
        check_drafting(&m, &(struct drafting){DRAFT_SUFFIX, NULL, 4, false}, &s);
        check_drafting(&m, &(struct drafting){DRAFT_MODEL, golden_folder(other), 2, false}, &s);
        const double share = check_drafting(&m, &(struct drafting){DRAFT_MODEL, m.folder.path, 3, false}, &s);
        s.async = 0;
        const double one = check_drafting(&m, &(struct drafting){DRAFT_MODEL, m.folder.path, 3, false}, &s);
        assert_true(share > one - 2); /* it catches up all the same */
    }
    close_model(&m);
}

static void test_two_in_flight(void **state)
{
    (void)state;
    check_two_in_flight("mha", "gqa", 1);
}

static void test_two_in_flight_of_two_groups(void **state)
{
    (void)state;
    check_two_in_flight("gemma3", "gemma2", 2);
}

/* ---- draft models ---- */

static const struct {
    int32_t num_tokens;
    bool fixed;
} numbers[] = {{1, true}, {3, true}, {7, true}, {1, false}, {3, false}, {7, false}};
enum { NUM_NUMBERS = sizeof numbers / sizeof *numbers };

/* All of them where the model is the target's own, and a few otherwise. With plenty of memory the share of drafts that
 * is accepted is at least `least`, and nowhere is it more than `most`. Where memory is short it is smaller: the prefix
 * cache has blocks with tokens that the draft model lacks, and what has left a window it cannot compute any more. */
static void check_draft_model(const struct models *m, const char *folder, double least, double most, int32_t num_groups)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct run_variant s = settings[i];
        s.num_blocks *= num_groups;
        for (size_t k = 0; k < NUM_NUMBERS; k++) {
            const struct drafting d = {DRAFT_MODEL, folder, numbers[k].num_tokens, numbers[k].fixed};
            if (!thorough && k != 2) continue;
            if (k != 2 && (most == 100 ? i > 0 && k != i % NUM_NUMBERS : i > 0 || k != 4)) continue;
            const double share = check_drafting(m, &d, &s);
            if (share > most || share < (s.num_blocks == 0 ? least : 0.75 * least))
                fail_msg("%s: %g %% of the drafts were accepted", s.name, share);
        }
    }
}

static void check_draft_models(const char *checkpoint, const char *const *drafts, int32_t num_groups)
{
    struct models m = {0};
    open_model(&m, checkpoint);
    check_draft_model(&m, m.folder.path, 100, 100, num_groups);
    check_draft_model(&m, golden_folder(drafts[0]), 0, 50, num_groups);
    for (int i = 1; drafts[i] && thorough; i++) check_draft_model(&m, golden_folder(drafts[i]), 0, 50, num_groups);
    close_model(&m);
}

static void test_draft_models(void **state)
{
    (void)state;
    check_draft_models("mha", (const char *const[]){"gqa", "gemma3", "phi3", NULL}, 1);
}

static void test_draft_models_of_two_groups(void **state)
{
    (void)state;
    check_draft_models("gemma3", (const char *const[]){"gemma2", "mha", NULL}, 2);
}

/* A checkpoint without longrope whose windows have another size than it was made for. */
static void make_wide_windows(struct temp_folder *folder, const char *checkpoint, const char *window)
{
    char path[600];
    struct text config = {0};
    struct error err = {""};
    static const char key[] = "\"sliding_window\": ";
    temp_folder_make(folder);
    temp_folder_copy(folder, golden_folder(checkpoint), "model.safetensors");
    snprintf(path, sizeof path, "%s/config.json", golden_folder(checkpoint));
    if (file_read(path, &config, &err) != STATUS_OK) fail_msg("%s", err.text);
    char *at = strstr(config.data, key);
    assert_non_null(at);
    memcpy(at + strlen(key), window, strlen(window)); /* of as many digits */
    temp_folder_write_string(folder, "config.json", config.data);
    text_free(&config);
}

/* The target's positions jump where a sequence becomes long, and the draft model's do, or do not. */
static void test_draft_models_of_longrope(void **state)
{
    (void)state;
    struct models m = {0};
    struct temp_folder other;
    open_model(&m, "phi3");
    make_wide_windows(&other, "sliding", "40");
    check_draft_model(&m, m.folder.path, 100, 100, 1);
    check_draft_model(&m, other.path, 0, 50, 1);
    temp_folder_remove(&other);
    close_model(&m);
}

/* ---- heads ---- */

/* Gives the checkpoint in the folder a head's tensors. */
static void add_head(const struct temp_folder *folder, const char *head, const char *prefix)
{
    char from[512];
    struct stored_copy copy = {{0}};
    snprintf(from, sizeof from, "%s/heads/%s", QUIRE_TEST_DATA, head);
    stored_copy_add(&copy, folder->path, "", NULL);
    stored_copy_add(&copy, from, prefix, NULL);
    stored_copy_write(&copy, folder);
}

/* The config.json with a key more. */
static void add_key(const struct temp_folder *folder, const char *key)
{
    char path[600];
    struct text config = {0}, changed = {0};
    struct error err = {""};
    snprintf(path, sizeof path, "%s/config.json", folder->path);
    if (file_read(path, &config, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_true(text_printf(&changed, "{%s,%s", key, config.data + 1));
    temp_folder_write_string(folder, "config.json", changed.data);
    text_free(&config);
    text_free(&changed);
}

/* A head of random weights drafts what is hardly ever right. */
static void check_head(const char *checkpoint, const char *head, const char *prefix)
{
    struct models m = {0};
    open_model(&m, checkpoint);
    add_head(&m.folder, head, prefix);
    add_key(&m.folder, "\"num_nextn_predict_layers\":1");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const struct drafting d = {DRAFT_MTP, NULL, 3, true};
        if (thorough || i % 3 == 0) check_drafting(&m, &d, &settings[i]);
    }
    close_model(&m);
}

/* A target whose states are kept for each draft of a run, and a head with K and V. */
static void test_head_of_recurrent_layers(void **state)
{
    (void)state;
    check_head("qwen3_next", "mtp_qwen3_next", "mtp.");
}

/* Both keep latents. */
static void test_head_of_latent_attention(void **state)
{
    (void)state;
    check_head("glm4_moe_lite", "mtp_glm4_moe_lite", "model.layers.2.");
}

/* With a draft model that was made for it. */
static void test_guide(void **state)
{
    (void)state;
    struct models m = {0};
    run_need_device();
    snprintf(m.folder.path, sizeof m.folder.path, "%s", QUIRE_GUIDE);
    make_answers(&m);
    const struct drafting d = {DRAFT_MODEL, QUIRE_GUIDE "/draft", MAX_DRAFTS, true};
    assert_true(check_drafting(&m, &d, &settings[0]) > 1);
    assert_true(check_drafting(&m, &d, &settings[6]) > 1);
    free_answers(&m);
}

/* A request is aborted while a run is delivered: what the run yielded comes before the end. */
static void test_abort_inside_a_run(void **state)
{
    (void)state;
    struct models m = {0};
    open_model(&m, "mha");
    struct engine_options o = options_of(m.folder.path, &settings[0]);
    struct oracle oracle = {.drafter = {.name = "right", .propose = propose, .finished = finished},
                            .known = m.longer,
                            .num_requests = m.count};
    o.drafter = &oracle.drafter;
    o.fixed_drafts = true;
    struct result *r = result_create(run_engine(&o));
    r->abort_after = 5;
    oracle.result = r;
    run(r, m.params, 3);
    for (int32_t i = 0; i < 3; i++) {
        const struct kept_answer *a = &r->answers[i][0];
        assert_in_range(a->num_tokens, 6, 5 + MAX_DRAFTS);
        assert_int_equal(a->num_pieces, a->num_tokens + 1);
        assert_int_equal(a->pieces[a->num_pieces - 1].finish, FINISH_ABORT);
        for (int32_t k = 0; k < a->num_tokens; k++)
            assert_int_equal(a->pieces[k].token, m.plain->answers[i][0].pieces[k].token);
    }
    engine_destroy(r->engine);
    free_result(r);
    close_model(&m);
}

/* A step of one token has no room for a draft. */
static void test_no_room(void **state)
{
    (void)state;
    struct models m = {0};
    const struct run_variant narrow = {"one token", 16, 1, 1, 0, false, 0, PREEMPTION_AUTO};
    open_model(&m, "mha");
    struct engine_options o = options_of(m.folder.path, &narrow);
    o.speculative.method = DRAFT_NGRAM;
    struct result *r = result_create(run_engine(&o));
    assert_null(engine_info(r->engine)->drafter);
    run(r, m.params, 3);
    assert_same(m.plain, r, 3, "one token");
    engine_destroy(r->engine);
    free_result(r);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_attention),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_two_groups),
        cmocka_unit_test(test_longrope),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_abort_inside_a_run),
        cmocka_unit_test(test_two_in_flight),
        cmocka_unit_test(test_two_in_flight_of_two_groups),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_draft_models),
        cmocka_unit_test(test_draft_models_of_two_groups),
        cmocka_unit_test(test_draft_models_of_longrope),
        cmocka_unit_test(test_head_of_recurrent_layers),
        cmocka_unit_test(test_head_of_latent_attention),
        cmocka_unit_test(test_guide),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
