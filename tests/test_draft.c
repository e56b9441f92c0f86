/* Drafters on the host, beside the plainest code for what draft.h promises, on random texts of few different tokens.
 *
 *     build/release/test_draft --time     what a step of 32 sequences takes, in microseconds */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <malloc.h>
#include <math.h>

#include "base/clock.h"
#include "base/random.h"
#include "runtime/engine/draft.h"
#include "tests/support/must.h"

static struct drafter *create(const struct speculative_config *config, int32_t max_model_len)
{
    struct drafter *d = NULL;
    struct error err;
    must(drafter_create(config, max_model_len, &d, &err), &err);
    return d;
}

static struct speculative_config config_of(enum draft_method method)
{
    struct speculative_config config = speculative_config_default();
    config.method = method;
    return config;
}

/* ---- what draft.h promises, in the plainest code ---- */

struct text {
    int32_t n, prompt_len;
    int32_t *tokens; /* [n] owned, with nothing around them, so that AddressSanitizer sees what is read beyond */
};

static struct text text_of(const int32_t *tokens, int32_t n, int32_t prompt_len)
{
    struct text t = {n, prompt_len, malloc((size_t)n * sizeof *tokens)};
    assert_non_null(t.tokens);
    memcpy(t.tokens, tokens, (size_t)n * sizeof *tokens);
    return t;
}

/* The last `length` tokens of `t` stand before tokens[place]. */
static bool matches(const struct text *t, const int32_t *tokens, int32_t place, int32_t length)
{
    if (place < length || t->n < length) return false;
    for (int32_t i = 0; i < length; i++)
        if (tokens[place - length + i] != t->tokens[t->n - length + i]) return false;
    return true;
}

static void expect_ngram(const struct speculative_config *c, const struct text *t, struct draft_query *q)
{
    q->num_drafts = 0;
    for (int32_t length = c->prompt_lookup_max; length >= c->prompt_lookup_min; length--)
        for (int32_t place = 0; place < t->n; place++) {
            if (!matches(t, t->tokens, place, length)) continue;
            while (q->num_drafts < q->most && place < t->n) q->drafts[q->num_drafts++] = t->tokens[place++];
            return;
        }
}

enum { MAX_TEXT = 300, MAX_ANSWERS = 1000, MAX_VOTES = 64 };

struct vote {
    const struct text *text;
    int32_t place, length;
};

struct expected_votes {
    struct vote votes[MAX_TEXT];
    int32_t count;
};

static void add_votes(struct expected_votes *v, const struct text *t, const struct text *in, int32_t length,
                      int32_t most, int32_t limit)
{
    for (int32_t place = in->n - 1; place >= 0 && v->count < limit; place--) {
        if (!matches(t, in->tokens, place, length)) continue;
        struct vote *vote = &v->votes[v->count++];
        *vote = (struct vote){in, place, length};
        while (vote->length < most && matches(t, in->tokens, place, vote->length + 1)) vote->length++;
    }
}

/* Of the first of these lengths that occurs, the newest MAX_VOTES. */
static void add_answers_votes(struct expected_votes *v, const struct text *t, const struct text *answers,
                              int32_t num_answers, int32_t most)
{
    const int32_t lengths[] = {8, 4, 2};
    for (int32_t i = 0; i < 3 && v->count == 0; i++)
        for (int32_t a = num_answers - 1; lengths[i] <= most && a >= 0; a--)
            add_votes(v, t, &answers[a], lengths[i], most, MAX_VOTES);
}

/* Of those with the longest match, the first MAX_VOTES. */
static void keep_longest(struct expected_votes *v)
{
    int32_t longest = 0, kept = 0;
    for (int32_t i = 0; i < v->count; i++)
        if (v->votes[i].length > longest) longest = v->votes[i].length;
    for (int32_t i = 0; i < v->count && kept < MAX_VOTES; i++)
        if (v->votes[i].length == longest) v->votes[kept++] = v->votes[i];
    v->count = kept;
}

static int32_t voted(const struct vote *vote, int32_t draft)
{
    return vote->place + draft < vote->text->n ? vote->text->tokens[vote->place + draft] : -1;
}

static bool agrees(const struct vote *vote, const struct draft_query *q)
{
    for (int32_t i = 0; i < q->num_drafts; i++)
        if (voted(vote, i) != q->drafts[i]) return false;
    return voted(vote, q->num_drafts) >= 0;
}

/* The next draft and its share; -1: no place votes. */
static int32_t next_draft(const struct expected_votes *v, const struct draft_query *q, double *share)
{
    int32_t token = -1, most = 0, cast = 0;
    for (int32_t i = 0; i < v->count; i++) {
        int32_t count = 0;
        if (!agrees(&v->votes[i], q)) continue;
        cast++;
        for (int32_t k = 0; k < v->count; k++)
            count +=
                agrees(&v->votes[k], q) && voted(&v->votes[k], q->num_drafts) == voted(&v->votes[i], q->num_drafts);
        if (count > most) token = voted(&v->votes[i], q->num_drafts);
        if (count > most) most = count;
    }
    *share = cast ? (double)most / cast : 0;
    return token;
}

/* The drafts of these votes; the sum of their probabilities. */
static double expect_votes(const struct speculative_config *c, struct expected_votes *v, struct draft_query *q)
{
    double probability = 1, expected = 0, share;
    keep_longest(v);
    q->num_drafts = 0;
    while (v->count && q->num_drafts < q->most) {
        const int32_t token = next_draft(v, q, &share);
        probability *= share;
        if (q->num_drafts + 1 > floor(c->suffix_decoding_max_spec_factor * v->votes[0].length)) break;
        if (token < 0 || probability < c->suffix_decoding_min_token_prob) break;
        expected += probability;
        q->drafts[q->num_drafts++] = token;
    }
    return expected;
}

static void expect_suffix(const struct speculative_config *c, const struct text *t, const struct text *answers,
                          int32_t num_answers, struct draft_query *q)
{
    static struct expected_votes v;
    const int32_t depth = c->suffix_decoding_max_tree_depth;
    struct draft_query other = *q;
    v.count = 0;
    add_votes(&v, t, t, 1, depth, INT32_MAX);
    const double expected = expect_votes(c, &v, q);
    v.count = 0;
    add_answers_votes(&v, t, answers, num_answers, depth);
    if (expect_votes(c, &v, &other) > expected) *q = other;
}

/* ---- against that ---- */

/* Tokens at random, and passages that stood before. */
static struct text random_text(struct random *r, int32_t n, int32_t vocabulary)
{
    int32_t tokens[MAX_TEXT];
    for (int32_t i = 0; i < n;) {
        const bool old = i > 0 && random_between(r, 0, 1);
        const int32_t distance = old ? (int32_t)random_between(r, 1, i) : 0;
        for (int64_t left = random_between(r, 1, 30); left > 0 && i < n; left--, i++)
            tokens[i] = old ? tokens[i - distance] : (int32_t)random_between(r, 0, vocabulary - 1);
    }
    return text_of(tokens, n, (int32_t)random_between(r, 1, n));
}

static int32_t random_vocabulary(struct random *r)
{
    return (int32_t)random_between(r, 0, 3) ? (int32_t)random_between(r, 1, 9) : 10000;
}

static void assert_same(const struct draft_query *got, const struct draft_query *expected)
{
    assert_int_equal(got->num_drafts, expected->num_drafts);
    assert_memory_equal(got->drafts, expected->drafts, (size_t)expected->num_drafts * sizeof *expected->drafts);
}

static void propose_one(struct drafter *d, const struct text *t, struct draft_query *q)
{
    const struct sequence seq = {.tokens = t->tokens, .num_tokens = t->n, .prompt_len = t->prompt_len};
    q->seq = &seq;
    d->propose(d, q, 1);
}

static void finish(struct drafter *d, const struct text *t)
{
    const struct sequence seq = {.tokens = t->tokens, .num_tokens = t->n, .prompt_len = t->prompt_len};
    d->finished(d, &seq);
}

static void test_ngram(void **state)
{
    (void)state;
    struct random r = {1};
    int64_t drafts = 0, nothing = 0;
    for (int i = 0; i < 8000; i++) {
        struct speculative_config config = config_of(DRAFT_NGRAM);
        config.prompt_lookup_min = (int32_t)random_between(&r, 1, 6);
        config.prompt_lookup_max = config.prompt_lookup_min + (int32_t)random_between(&r, 0, 6);
        struct drafter *d = create(&config, MAX_TEXT);
        struct text t = random_text(&r, (int32_t)random_between(&r, 1, MAX_TEXT), random_vocabulary(&r));
        struct draft_query got = {.most = (int32_t)random_between(&r, 1, MAX_DRAFTS)}, expected = got;
        propose_one(d, &t, &got);
        expect_ngram(&config, &t, &expected);
        assert_same(&got, &expected);
        drafts += got.num_drafts;
        nothing += got.num_drafts == 0;
        free(t.tokens);
        drafter_destroy(d);
    }
    assert_true(drafts > 8000 && nothing > 1000);
}

static struct speculative_config random_suffix_config(struct random *r)
{
    const double factors[] = {0, 0.5, 1, 1, 1, 2, 10}, probabilities[] = {0, 0.1, 0.1, 0.1, 1.0 / 3, 0.5, 1};
    struct speculative_config config = config_of(DRAFT_SUFFIX);
    config.suffix_decoding_max_tree_depth = (int32_t)random_between(r, 1, 24);
    config.suffix_decoding_max_spec_factor = factors[random_between(r, 0, 6)];
    config.suffix_decoding_min_token_prob = probabilities[random_between(r, 0, 6)];
    return config;
}

/* The answer as it is kept. */
static struct text kept_answer(const struct text *t, int32_t depth)
{
    const int32_t context = t->prompt_len < depth ? t->prompt_len : depth, start = t->prompt_len - context;
    return text_of(t->tokens + start, t->n - start, context);
}

/* One drafter: answers end, and sequences are drafted for in between. Few tokens are kept if few answers are, so that
 * no chain of places is longer than what is looked at. */
static int64_t compare_suffix(struct random *r, int32_t max_answers, int32_t max_text, int steps)
{
    struct speculative_config config = random_suffix_config(r);
    struct text answers[MAX_ANSWERS];
    int32_t num_answers = 0;
    int64_t drafts = 0;
    const int32_t vocabulary = random_vocabulary(r);
    config.suffix_decoding_max_cached_requests = max_answers;
    struct drafter *d = create(&config, max_text);
    for (int i = 0; i < steps; i++) {
        struct text t = random_text(r, (int32_t)random_between(r, 1, max_text), vocabulary);
        struct draft_query got = {.most = (int32_t)random_between(r, 1, MAX_DRAFTS)}, expected = got;
        const int32_t kept = num_answers < max_answers ? num_answers : max_answers;
        propose_one(d, &t, &got);
        expect_suffix(&config, &t, answers + num_answers - kept, kept, &expected);
        assert_same(&got, &expected);
        drafts += got.num_drafts;
        finish(d, &t);
        if (t.n > t.prompt_len) answers[num_answers++] = kept_answer(&t, config.suffix_decoding_max_tree_depth);
        free(t.tokens);
    }
    while (num_answers) free(answers[--num_answers].tokens);
    drafter_destroy(d);
    return drafts;
}

static void test_suffix(void **state)
{
    (void)state;
    struct random r = {2};
    int64_t drafts = 0;
    for (int i = 0; i < 200; i++) drafts += compare_suffix(&r, (int32_t)random_between(&r, 0, 3), 20, 50);
    assert_true(drafts > 5000);
    drafts = 0;
    for (int i = 0; i < 30; i++) drafts += compare_suffix(&r, MAX_ANSWERS, MAX_TEXT, 30);
    for (int i = 0; i < 200; i++) drafts += compare_suffix(&r, 0, MAX_TEXT, 20);
    assert_true(drafts > 1000);
}

static void test_examples(void **state)
{
    (void)state;
    struct speculative_config config = config_of(DRAFT_NGRAM);
    config.prompt_lookup_min = 2;
    struct drafter *d = create(&config, 100);
    struct draft_query q = {.most = 4};
    propose_one(d, &(struct text){6, 6, (int32_t[]){1, 2, 3, 4, 2, 3}}, &q);
    assert_int_equal(q.num_drafts, 3);
    assert_memory_equal(q.drafts, ((int32_t[]){4, 2, 3}), 12);
    propose_one(d, &(struct text){8, 8, (int32_t[]){2, 3, 5, 2, 3, 6, 2, 3}}, &q); /* the first */
    assert_int_equal(q.drafts[0], 5);
    propose_one(d, &(struct text){2, 2, (int32_t[]){2, 2}}, &q);
    assert_int_equal(q.num_drafts, 0);
    drafter_destroy(d);

    config = config_of(DRAFT_SUFFIX);
    d = create(&config, 100);
    propose_one(d, &(struct text){8, 8, (int32_t[]){2, 3, 5, 2, 3, 6, 2, 3}}, &q); /* the newest; a match of two */
    assert_int_equal(q.num_drafts, 2);
    assert_memory_equal(q.drafts, ((int32_t[]){6, 2}), 8);
    propose_one(d, &(struct text){5, 5, (int32_t[]){2, 6, 3, 9, 2}}, &q); /* a match of one */
    assert_int_equal(q.num_drafts, 1);
    assert_int_equal(q.drafts[0], 6);
    finish(d, &(struct text){6, 2, (int32_t[]){4, 2, 3, 5, 8, 2}});
    propose_one(d, &(struct text){8, 8, (int32_t[]){2, 3, 5, 2, 3, 6, 2, 3}}, &q); /* 1/2 + 1/2 against 1 + 1 */
    assert_int_equal(q.num_drafts, 2);
    assert_memory_equal(q.drafts, ((int32_t[]){5, 8}), 8);
    propose_one(d, &(struct text){6, 6, (int32_t[]){2, 3, 6, 7, 2, 3}}, &q); /* equal sums */
    assert_memory_equal(q.drafts, ((int32_t[]){6, 7}), 8);
    propose_one(d, &(struct text){2, 2, (int32_t[]){8, 2}}, &q); /* what ends an answer is followed by nothing */
    assert_int_equal(q.num_drafts, 0);
    propose_one(d, &(struct text){1, 1, (int32_t[]){5}}, &q);
    assert_int_equal(q.num_drafts, 0);
    drafter_destroy(d);
}

/* A batch gets what its sequences get one by one, from another drafter that saw the same. */
static void test_batch(void **state)
{
    (void)state;
    enum { NUM_SEQS = 32 };
    for (enum draft_method method = DRAFT_NGRAM; method <= DRAFT_SUFFIX; method++) {
        struct random r = {3};
        struct speculative_config config = config_of(method);
        config.prompt_lookup_min = 1;
        struct drafter *a = create(&config, MAX_TEXT), *b = create(&config, MAX_TEXT);
        assert_string_equal(a->name, draft_method_name(method));
        struct text texts[NUM_SEQS];
        struct sequence seqs[NUM_SEQS];
        struct draft_query queries[NUM_SEQS];
        for (int i = 0; i < NUM_SEQS; i++) {
            texts[i] = random_text(&r, (int32_t)random_between(&r, 1, MAX_TEXT), 5);
            seqs[i] = (struct sequence){.tokens = texts[i].tokens, .num_tokens = texts[i].n, .prompt_len = 1};
            queries[i] = (struct draft_query){.seq = &seqs[i], .most = MAX_DRAFTS};
            if (a->finished) a->finished(a, &seqs[i]);
            if (b->finished) b->finished(b, &seqs[i]);
        }
        a->propose(a, queries, NUM_SEQS);
        for (int i = 0; i < NUM_SEQS; i++) {
            struct draft_query alone = {.most = MAX_DRAFTS};
            propose_one(b, &texts[i], &alone);
            assert_same(&queries[i], &alone);
            free(texts[i].tokens);
        }
        drafter_destroy(a);
        drafter_destroy(b);
    }
    drafter_destroy(NULL);
}

/* ---- bounds ---- */

/* An answer of tokens that no other has: `n` from `first` on, behind a prompt of one. */
static struct text unique_answer(int32_t first, int32_t n)
{
    struct text t = {n, 1, malloc((size_t)n * sizeof(int32_t))};
    assert_non_null(t.tokens);
    for (int32_t i = 0; i < n; i++) t.tokens[i] = first + i;
    return t;
}

/* Whether what follows the tokens `first` and first + 1 is known. */
static bool knows(struct drafter *d, int32_t first)
{
    struct draft_query q = {.most = 1};
    propose_one(d, &(struct text){2, 1, (int32_t[]){first, first + 1}}, &q);
    assert_true(q.num_drafts == 0 || q.drafts[0] == first + 2);
    return q.num_drafts == 1;
}

/* Adds `count` answers of n tokens each, of which `kept` are to be kept, the newest. */
static void check_kept(struct drafter *d, int32_t count, int32_t n, int32_t kept)
{
    for (int32_t i = 0; i < count; i++) {
        struct text t = unique_answer(i * n, n);
        finish(d, &t);
        free(t.tokens);
    }
    for (int32_t i = 0; i < count; i++) {
        assert_int_equal(knows(d, i * n), i >= count - kept);
        assert_int_equal(knows(d, i * n + n - 3), i >= count - kept);
        assert_false(knows(d, i * n + n - 2));
    }
}

static void test_answers_kept(void **state)
{
    (void)state;
    const int32_t kept[] = {0, 1, 7, 1000};
    for (int i = 0; i < 4; i++) {
        struct speculative_config config = config_of(DRAFT_SUFFIX);
        config.suffix_decoding_max_cached_requests = kept[i];
        struct drafter *d = create(&config, 64);
        const size_t before = mallinfo2().uordblks;
        check_kept(d, 5000, 20, kept[i]);
        assert_int_equal(mallinfo2().uordblks, before);
        drafter_destroy(d);
    }
}

/* Of places whose match is of equal length, the newest 64 vote: 32 for each of two tokens here, and the newest decides.
 * One place less or more would decide for the other. */
static void test_votes(void **state)
{
    (void)state;
    enum { NUM_PLACES = 65, SIZE = 4 * NUM_PLACES + 3, A = 1, B, X, Y, UNIQUE };
    const struct speculative_config config = config_of(DRAFT_SUFFIX);
    int32_t tokens[SIZE];
    for (int32_t i = 0; i <= NUM_PLACES; i++) {
        const int32_t newer = NUM_PLACES - 1 - i;
        const int32_t place[] = {UNIQUE + i, A, B, newer < 31 || newer == 63 ? X : Y};
        memcpy(tokens + 4 * i, place, (i < NUM_PLACES ? 4 : 3) * sizeof *place);
    }
    for (int32_t answer = 0; answer < 2; answer++) {
        struct drafter *d = create(&config, SIZE);
        const struct text t = {SIZE, 1, tokens};
        struct draft_query q = {.most = 1};
        if (answer) finish(d, &(struct text){SIZE - 3, 1, tokens});
        propose_one(d, answer ? &(struct text){2, 1, (int32_t[]){A, B}} : &t, &q);
        assert_int_equal(q.num_drafts, 1);
        assert_int_equal(q.drafts[0], X);
        drafter_destroy(d);
    }
}

/* 2^21 tokens in all, one behind each answer included. */
static void test_tokens_kept(void **state)
{
    (void)state;
    struct speculative_config config = config_of(DRAFT_SUFFIX);
    struct drafter *d = create(&config, 1 << 22);
    check_kept(d, 19, (1 << 18) - 1, 8);
    check_kept(d, 10, 1 << 18, 7);
    check_kept(d, 5, (1 << 21) / 3, 2);
    check_kept(d, 1, (1 << 21) - 1, 1);
    struct text t = unique_answer(0, 1 << 21); /* longer than all that is kept */
    finish(d, &t);
    free(t.tokens);
    assert_false(knows(d, 0));
    assert_true(knows(d, 1));
    t = unique_answer(0, (1 << 21) + 100);
    finish(d, &t);
    free(t.tokens);
    assert_false(knows(d, 100));
    assert_true(knows(d, 101));
    assert_true(knows(d, (1 << 21) + 97));
    assert_false(knows(d, 9 << 18)); /* of the answers before it, nothing is left */
    drafter_destroy(d);
}

/* Of one token, of nothing but one token, and prompts without an answer. */
static void test_tiny(void **state)
{
    (void)state;
    const int32_t same[MAX_TEXT] = {0};
    for (enum draft_method method = DRAFT_NGRAM; method <= DRAFT_SUFFIX; method++) {
        const struct speculative_config config = config_of(method);
        struct drafter *d = create(&config, MAX_TEXT);
        for (int32_t n = 1; n < MAX_TEXT; n++) {
            struct text t = text_of(same, n, n);
            struct draft_query q = {.most = MAX_DRAFTS};
            propose_one(d, &t, &q);
            if (n > 40) assert_int_equal(q.num_drafts, MAX_DRAFTS);
            if (n == 1) assert_int_equal(q.num_drafts, 0);
            if (d->finished) finish(d, &t);
            free(t.tokens);
        }
        drafter_destroy(d);
    }
}

static void refused(struct speculative_config config, const char *sentence)
{
    struct drafter *d = NULL;
    struct error err;
    assert_int_equal(drafter_create(&config, 100, &d, &err), STATUS_INVALID);
    assert_string_equal(err.text, sentence);
    assert_null(d);
}

static void test_refused(void **state)
{
    (void)state;
    struct speculative_config c = config_of(DRAFT_NGRAM);
    c.num_speculative_tokens = 8;
    refused(c, "num_speculative_tokens is 8, but must be from 1 to 7");
    c = config_of(DRAFT_NGRAM);
    c.prompt_lookup_min = 0;
    refused(c, "prompt_lookup_min is 0 and prompt_lookup_max 5, but both must be at least 1");
    c.prompt_lookup_min = 6;
    refused(c, "prompt_lookup_max is 5, but must be at least prompt_lookup_min, 6");
    c = config_of(DRAFT_SUFFIX);
    c.suffix_decoding_max_tree_depth = 0;
    refused(c, "suffix_decoding_max_tree_depth is 0, but must be at least 1");
    c = config_of(DRAFT_SUFFIX);
    c.suffix_decoding_max_cached_requests = -1;
    refused(c, "suffix_decoding_max_cached_requests is -1, but must not be negative");
    c = config_of(DRAFT_SUFFIX);
    c.suffix_decoding_max_spec_factor = -1;
    refused(c, "suffix_decoding_max_spec_factor is -1, but must not be negative");
    c = config_of(DRAFT_SUFFIX);
    c.suffix_decoding_min_token_prob = 1.5;
    refused(c, "suffix_decoding_min_token_prob is 1.5, but must be from 0 to 1");
    struct error err;
    c = config_of(DRAFT_NONE);
    must(speculative_config_check(&c, &err), &err);
}

/* ---- time ---- */

/* Tokens as often as words are (Zipf), in passages a half of which stood before. */
static void write_text(struct random *r, int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n;) {
        int32_t length = (int32_t)random_between(r, 1, 20);
        const bool old = i > 1000 && random_between(r, 0, 1);
        const int32_t from = old ? (int32_t)random_between(r, 0, i - 100) : 0;
        for (; length > 0 && i < n; length--, i++)
            tokens[i] = old ? tokens[from + length] : (int32_t)exp(random_uniform(r) * log(100000));
    }
}

static void time_method(enum draft_method method, int32_t n, int32_t num_answers)
{
    enum { NUM_SEQS = 32, STEPS = 200, ANSWER = 400 };
    struct random r = {4};
    const struct speculative_config config = config_of(method);
    struct drafter *d = create(&config, n);
    struct sequence seqs[NUM_SEQS];
    struct draft_query queries[NUM_SEQS];
    int32_t *answers =
        malloc(((size_t)num_answers * ANSWER + (size_t)NUM_SEQS * (size_t)(n + STEPS)) * sizeof *answers);
    int32_t *tokens = answers + num_answers * ANSWER;
    assert_non_null(answers);
    write_text(&r, answers, num_answers * ANSWER + NUM_SEQS * (n + STEPS));
    const double start = clock_thread_seconds();
    for (int32_t i = 0; i < num_answers; i++) {
        const struct sequence answer = {.tokens = answers + i * ANSWER, .num_tokens = ANSWER, .prompt_len = 24};
        d->finished(d, &answer);
    }
    const double kept = clock_thread_seconds();
    int64_t drafts = 0;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < NUM_SEQS; i++) {
            seqs[i] = (struct sequence){.tokens = tokens + i * (n + STEPS), .num_tokens = n + step, .prompt_len = 1};
            queries[i] = (struct draft_query){.seq = &seqs[i], .most = MAX_DRAFTS};
        }
        d->propose(d, queries, NUM_SEQS);
        for (int i = 0; i < NUM_SEQS; i++) drafts += queries[i].num_drafts;
    }
    const double end = clock_thread_seconds();
    printf("%-6s  %6d tokens  %5d answers  %7.1f us a step  %4.1f us an answer  %.2f drafts\n", d->name, n, num_answers,
           (end - kept) / STEPS * 1e6, num_answers ? (kept - start) / num_answers * 1e6 : 0,
           (double)drafts / STEPS / NUM_SEQS);
    free(answers);
    drafter_destroy(d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ngram),       cmocka_unit_test(test_suffix), cmocka_unit_test(test_examples),
        cmocka_unit_test(test_batch),       cmocka_unit_test(test_tiny),   cmocka_unit_test(test_answers_kept),
        cmocka_unit_test(test_tokens_kept), cmocka_unit_test(test_votes),  cmocka_unit_test(test_refused),
    };
    if (argc < 2 || strcmp(argv[1], "--time") != 0) return cmocka_run_group_tests(tests, NULL, NULL);
    for (int32_t n = 500; n <= 32000; n *= 8) {
        time_method(DRAFT_NGRAM, n, 0);
        time_method(DRAFT_SUFFIX, n, 0);
        time_method(DRAFT_SUFFIX, n, 5000);
    }
    return 0;
}
