/* What is drawn with drafts has the model's distribution: the triples of tokens behind a prompt, of eight tokens that a
 * bias leaves, against the probabilities that prompt_logprobs gives (Pearson's chi-square). The second token and the
 * third are those of a run.
 *
 *     test_draft_distribution [--draws N]    N tokens with each drafter; 1000000 takes minutes */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/run.h"

enum { IDS = 8, TRIPLE = 3, CELLS = IDS * IDS * IDS, PROMPT = 16, CROWD = 256 };

static int num_draws = 30000;

static const int32_t ids[IDS] = {3, 40, 77, 114, 151, 188, 225, 262};
static const int32_t prompt[PROMPT] = {3, 40, 77, 114, 151, 188, 225, 262, 114, 262, 188, 40, 225, 3, 151, 77};

static int32_t id_at(int32_t cell, int32_t place)
{
    return ids[place == 0 ? cell / (IDS * IDS) : place == 1 ? cell / IDS % IDS : cell % IDS];
}

/* ---- what the model says ---- */

struct log_probability {
    double of[TRIPLE];
};

static void take_log_probability(void *user, const struct answer_piece *piece)
{
    struct log_probability *p = user;
    for (int32_t i = 0; i < TRIPLE && piece->prompt_logprobs; i++)
        p->of[i] = (double)piece->prompt_logprobs->logprobs[PROMPT + i];
}

static void finish(struct engine *e)
{
    struct error err = {""};
    for (bool worked; engine_has_work(e);)
        if (engine_step(e, &worked, &err) != STATUS_OK) fail_msg("engine_step: %s", err.text);
}

static void add(struct engine *e, const struct engine_request *request)
{
    struct error err = {""};
    if (engine_add(e, request, NULL, &err) != STATUS_OK) fail_msg("engine_add: %s", err.text);
}

/* exp(p[cell].of[place]), of the eight that `first` begins, `stride` apart. */
static double share(const struct log_probability *p, int32_t cell, int32_t place, int32_t first, int32_t stride)
{
    double sum = 0;
    for (int32_t i = 0; i < IDS; i++) sum += exp(p[first + i * stride].of[place]);
    return exp(p[cell].of[place]) / sum;
}

/* Fills probabilities[CELLS]. */
static void find_probabilities(const struct engine_options *o, double *probabilities)
{
    static struct log_probability found[CELLS];
    struct sampling_params params = sampling_params_default();
    params.max_tokens = 1;
    params.prompt_logprobs = 0;
    struct engine *e = run_engine(o);
    for (int32_t cell = 0; cell < CELLS; cell++) {
        int32_t tokens[PROMPT + TRIPLE];
        memcpy(tokens, prompt, sizeof prompt);
        for (int32_t i = 0; i < TRIPLE; i++) tokens[PROMPT + i] = id_at(cell, i);
        add(e, &(struct engine_request){.prompt = tokens,
                                        .prompt_len = PROMPT + TRIPLE,
                                        .params = &params,
                                        .deliver = take_log_probability,
                                        .user = &found[cell]});
    }
    finish(e);
    engine_destroy(e);
    for (int32_t cell = 0; cell < CELLS; cell++) {
        const int32_t last = cell % IDS, pair = cell % (IDS * IDS);
        probabilities[cell] = share(found, cell, 0, pair, IDS * IDS) * share(found, cell, 1, cell - pair + last, IDS) *
                              share(found, cell, 2, cell - last, 1);
    }
}

/* ---- what is drawn ---- */

struct drawn {
    int32_t cell, count;
};

static void take_token(void *user, const struct answer_piece *piece)
{
    struct drawn *d = user;
    for (int32_t i = 0; i < piece->num_tokens; i++) {
        int32_t k = 0;
        while (k < IDS && ids[k] != piece->token_ids[i]) k++;
        assert_in_range(k, 0, IDS - 1);
        d->cell = d->cell * IDS + k;
        d->count++;
    }
}

/* Adds to counts[CELLS]. */
static void draw(struct engine *e, struct sampling_params *params, int32_t num_triples, int64_t *counts)
{
    struct drawn drawn[CROWD];
    params->seed = 0;
    while (num_triples > 0) {
        const int32_t crowd = num_triples < CROWD ? num_triples : CROWD;
        memset(drawn, 0, sizeof drawn);
        for (int32_t i = 0; i < crowd; i++) {
            params->seed++;
            add(e, &(struct engine_request){.prompt = prompt,
                                            .prompt_len = PROMPT,
                                            .params = params,
                                            .deliver = take_token,
                                            .user = &drawn[i]});
        }
        finish(e);
        for (int32_t i = 0; i < crowd; i++) {
            assert_int_equal(drawn[i].count, TRIPLE);
            counts[drawn[i].cell]++;
        }
        num_triples -= crowd;
    }
}

/* ---- chi-square ---- */

/* How probable a statistic as large as this is (Wilson and Hilferty, 1931). */
static double p_value(double statistic, double degrees)
{
    const double k = 2 / (9 * degrees);
    return 0.5 * erfc((cbrt(statistic / degrees) - (1 - k)) / sqrt(2 * k));
}

/* Cells of which fewer than 5 are expected are one. */
static double compare(const int64_t *counts, const double *probabilities, int64_t num_triples, const char *what)
{
    double statistic = 0, rest = 0, found = 0, degrees = -1;
    for (int32_t cell = 0; cell < CELLS; cell++) {
        const double expected = probabilities[cell] * (double)num_triples, difference = (double)counts[cell] - expected;
        if (expected < 5) {
            rest += expected;
            found += (double)counts[cell];
            continue;
        }
        statistic += difference * difference / expected;
        degrees++;
    }
    if (rest > 0) {
        statistic += (found - rest) * (found - rest) / rest;
        degrees++;
    }
    const double p = p_value(statistic, degrees);
    print_message("%s: %lld tokens, chi-square %.1f with %g degrees of freedom, p = %.3f\n", what,
                  (long long)num_triples * TRIPLE, statistic, degrees, p);
    return p;
}

static void check(enum draft_method method, const char *checkpoint)
{
    static double probabilities[CELLS];
    int64_t counts[CELLS] = {0};
    char path[512];
    struct scheduler_stats stats;
    struct sampling_params params = sampling_params_default();
    struct engine_options o = run_options("golden/mha", path, sizeof path);
    o.max_model_len = PROMPT + 2 * TRIPLE;
    o.max_num_seqs = 64;
    find_probabilities(&o, probabilities);
    params.temperature = 1;
    params.has_seed = true;
    params.max_tokens = TRIPLE;
    params.ignore_eos = true;
    for (int i = 0; i < IDS; i++)
        assert_true(sampling_params_add_logit_bias(&params, (struct logit_bias){ids[i], 100}));
    o.fixed_drafts = true;
    o.speculative.method = method;
    o.speculative.prompt_lookup_min = 1;
    if (checkpoint)
        snprintf(o.speculative.model, sizeof o.speculative.model, "%s/golden/%s", QUIRE_TEST_DATA, checkpoint);
    struct engine *e = run_engine(&o);
    draw(e, &params, num_draws / TRIPLE, counts);
    engine_stats(e, &stats);
    engine_destroy(e);
    sampling_params_free(&params);
    print_message("%lld of %lld drafts accepted; ", (long long)stats.drafts_accepted, (long long)stats.drafts);
    assert_true(compare(counts, probabilities, num_draws / TRIPLE, draft_method_name(method)) > 1e-4);
    if (method != DRAFT_NONE) assert_in_range(stats.drafts_accepted, 1, stats.drafts - 1);
}

static void test_plain(void **state)
{
    (void)state;
    check(DRAFT_NONE, NULL);
}

static void test_ngram(void **state)
{
    (void)state;
    check(DRAFT_NGRAM, NULL);
}

/* A draft model of other weights. */
static void test_draft_model(void **state)
{
    (void)state;
    check(DRAFT_MODEL, "gqa");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_ngram),
        cmocka_unit_test(test_draft_model),
    };
    if (argc == 3 && strcmp(argv[1], "--draws") == 0) num_draws = atoi(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
