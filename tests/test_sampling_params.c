/* The ranges of sampling parameters: each bound, both sides of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "scheduler/sampling_params.h"
#include "scheduler/sequence.h"

static void accept(struct sampling_params p)
{
    struct error err;
    if (sampling_params_check(&p, 1000, &err) != STATUS_OK) fail_msg("refused: %s", err.text);
}

/* Refused, with a sentence that names the field. */
static void refuse(struct sampling_params p, const char *field)
{
    struct error err = {{0}};
    assert_int_equal(sampling_params_check(&p, 1000, &err), STATUS_INVALID);
    if (!strstr(err.text, field)) fail_msg("\"%s\" does not name %s", err.text, field);
}

/* The defaults with one field changed. */
#define ACCEPT(field, value)                                                                                           \
    do {                                                                                                               \
        struct sampling_params with = sampling_params_default();                                                       \
        with.field = (value);                                                                                          \
        accept(with);                                                                                                  \
    } while (0)
#define REFUSE(field, value)                                                                                           \
    do {                                                                                                               \
        struct sampling_params with = sampling_params_default();                                                       \
        with.field = (value);                                                                                          \
        refuse(with, #field);                                                                                          \
    } while (0)

static void test_defaults(void **state)
{
    (void)state;
    struct sampling_params p = sampling_params_default();
    accept(p);
    assert_int_equal(p.n, 1);
    assert_true(p.temperature == 1 && p.top_p == 1 && p.min_p == 0 && p.repetition_penalty == 1);
    assert_true(p.presence_penalty == 0 && p.frequency_penalty == 0);
    assert_int_equal(p.top_k, 0);
    assert_int_equal(p.max_tokens, 16);
    assert_int_equal(p.min_tokens, 0);
    assert_int_equal(p.logprobs, -1);
    assert_int_equal(p.prompt_logprobs, -1);
    assert_true(p.skip_special_tokens && !p.ignore_eos && !p.has_seed && !p.include_stop_str_in_output);
}

static void test_numbers(void **state)
{
    (void)state;
    ACCEPT(n, 100);
    REFUSE(n, 0);
    ACCEPT(temperature, 0);
    ACCEPT(temperature, 3.5);
    REFUSE(temperature, -0.1);
    REFUSE(temperature, (double)INFINITY);
    REFUSE(temperature, (double)NAN);
    ACCEPT(top_p, 0.001);
    REFUSE(top_p, 0);
    REFUSE(top_p, 1.01);
    REFUSE(top_p, (double)NAN);
    ACCEPT(top_k, -1);
    ACCEPT(top_k, 1);
    REFUSE(top_k, -2);
    ACCEPT(min_p, 1);
    REFUSE(min_p, -0.01);
    REFUSE(min_p, 1.01);
    ACCEPT(repetition_penalty, 0.01);
    REFUSE(repetition_penalty, 0);
    REFUSE(repetition_penalty, (double)NAN);
    ACCEPT(presence_penalty, -2);
    ACCEPT(presence_penalty, 2);
    REFUSE(presence_penalty, 2.1);
    REFUSE(frequency_penalty, -2.1);
    REFUSE(frequency_penalty, (double)NAN);
    ACCEPT(logprobs, 20);
    REFUSE(logprobs, 21);
    REFUSE(logprobs, -2);
    ACCEPT(prompt_logprobs, 0);
    ACCEPT(prompt_logprobs, 20);
    ACCEPT(prompt_logprobs, -1);
    REFUSE(prompt_logprobs, 21);
    REFUSE(prompt_logprobs, -2);
}

static void refuse_with(const struct sampling_params *p, const char *sentence)
{
    struct error err = {{0}};
    assert_int_equal(sampling_params_check(p, 1000, &err), STATUS_INVALID);
    if (!strstr(err.text, sentence)) fail_msg("'%s' instead of '%s'", err.text, sentence);
}

static void test_ranked_answers(void **state)
{
    (void)state;
    const struct sampling_params usual = sampling_params_default();
    struct sampling_params p = usual;
    const char *name;
    p.n = 4;
    p.beam_width = 4;
    p.temperature = 0; /* plays no part */
    accept(p);
    assert_int_equal(sampling_params_num_sequences(&p, &name), 4);
    p.n = 5;
    refuse_with(&p, "n is 5; it must be at most beam_width, which is 4");
    assert_true(sampling_params_ranks(&p));
    p = usual;
    assert_false(sampling_params_ranks(&p));
    p.n = 3;
    p.best_of = 2;
    refuse_with(&p, "n is 3; it must be at most best_of, which is 2");
    p.best_of = 3;
    accept(p);
    p.best_of = 9;
    assert_int_equal(sampling_params_num_sequences(&p, &name), 9);
    assert_string_equal(name, "best_of");
    p.n = 1;
    p.temperature = 0;
    refuse_with(&p, "best_of is 9 with temperature 0: greedy answers are all the same");
    REFUSE(beam_width, 33);
    REFUSE(beam_width, 0);
    REFUSE(best_of, 0);
    ACCEPT(length_penalty, -7.5);
    REFUSE(length_penalty, (double)NAN);

    struct sampling_params beams = usual;
    beams.beam_width = 2;
    p = beams, p.best_of = 2;
    refuse_with(&p, "best_of does not go with a beam search: it must be -1, or beam_width must be 1");
    p = beams, p.logprobs = 0;
    refuse_with(&p, "logprobs does not go with a beam search");
    p = beams, p.repetition_penalty = 1.1;
    refuse_with(&p, "repetition_penalty does not go with a beam search: it must be 1");
    p = beams, p.presence_penalty = 1;
    refuse_with(&p, "presence_penalty does not go");
    p = beams, p.frequency_penalty = 1;
    refuse_with(&p, "frequency_penalty does not go");
    p = beams;
    assert_true(sampling_params_add_stop(&p, "x"));
    refuse_with(&p, "stop does not go");
    sampling_params_free(&p);
    p = beams;
    assert_true(sampling_params_add_logit_bias(&p, (struct logit_bias){1, 1}));
    refuse_with(&p, "logit_bias does not go");
    sampling_params_free(&p);
}

/* Every bound of the table, and what is beyond it; the sentence says the range. */
static void test_table_bounds(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++) {
        const struct sampling_field *f = &sampling_fields[i];
        struct sampling_params p = sampling_params_default();
        double *number = (double *)((char *)&p + f->offset);
        int32_t *whole = (int32_t *)((char *)&p + f->offset);
        assert_true(strlen(f->help) > 10);
        assert_ptr_equal(sampling_field_find(f->name), f);
        if (f->type == SAMPLING_INT32) {
            p.min_tokens = 0;
            p.temperature = 1;
            *whole = (int32_t)f->minimum;
            accept(p);
            *whole = -1;
            if (f->minus_one) accept(p);
            *whole = (int32_t)f->minimum - (f->minus_one && f->minimum == 0 ? 2 : 1);
            refuse(p, f->name);
            *whole = isinf(f->maximum) ? INT32_MAX : (int32_t)f->maximum;
            if (strcmp(f->name, "min_tokens") == 0) p.max_tokens = -1;
            accept(p);
        } else if (f->type == SAMPLING_DOUBLE) {
            *number = isinf(f->minimum) ? -1e300 : f->minimum;
            f->above_minimum ? refuse(p, f->name) : accept(p);
            *number = isinf(f->minimum) ? -(double)INFINITY : nextafter(f->minimum, -10);
            refuse(p, f->name);
            *number = nextafter(f->maximum, 0);
            accept(p);
            *number = isinf(f->maximum) ? (double)INFINITY : nextafter(f->maximum, 1000);
            refuse(p, f->name);
        }
    }
    assert_null(sampling_field_find("top-p"));
    struct sampling_params p = sampling_params_default();
    struct error err;
    p.max_tokens = 0;
    assert_int_equal(sampling_params_check(&p, 1000, &err), STATUS_INVALID);
    assert_string_equal(err.text, "max_tokens is 0; it must be at least 1, or -1 (no limit)");
    p = sampling_params_default();
    p.top_p = 1.5;
    assert_int_equal(sampling_params_check(&p, 1000, &err), STATUS_INVALID);
    assert_string_equal(err.text, "top_p is 1.5; it must be above 0 and at most 1");
}

/* Every byte of the scalars is 1, and every list has an entry. */
static struct sampling_params all_set(void)
{
    struct sampling_params p;
    memset(&p, 1, sizeof p);
    p.num_stop_token_ids = p.num_logit_bias = p.num_stop = 0;
    p.stop_token_ids = NULL;
    p.logit_bias = NULL;
    p.stop = NULL;
    for (int32_t i = 0; i < 3; i++) {
        const char text[] = {(char)('a' + i), '\0'};
        assert_true(sampling_params_add_stop_token_id(&p, 10 + i));
        assert_true(sampling_params_add_logit_bias(&p, (struct logit_bias){20 + i, 0.5f + (float)i}));
        assert_true(sampling_params_add_stop(&p, text));
    }
    return p;
}

/* The lists of all_set, in memory of their own. */
static void check_lists(const struct sampling_params *p, const struct sampling_params *from)
{
    assert_true(p->num_stop_token_ids == 3 && p->num_logit_bias == 3 && p->num_stop == 3);
    for (int32_t i = 0; i < 3; i++) {
        const char text[] = {(char)('a' + i), '\0'};
        assert_int_equal(p->stop_token_ids[i], 10 + i);
        assert_int_equal(p->logit_bias[i].token, 20 + i);
        assert_true(p->logit_bias[i].value == 0.5f + (float)i);
        assert_string_equal(p->stop[i], text);
    }
    assert_true(p->stop_token_ids != from->stop_token_ids && p->logit_bias != from->logit_bias);
    assert_ptr_not_equal(p->stop, from->stop);
}

/* Each field copies its own members and nothing else; all of them together copy everything. */
static void test_copying_fields(void **state)
{
    (void)state;
    struct sampling_params from = all_set(), all;
    memset(&all, 0, sizeof all);
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++) {
        struct sampling_params one;
        size_t changed = 0;
        memset(&one, 0, sizeof one);
        assert_true(sampling_field_copy(&sampling_fields[i], &from, &one));
        for (size_t k = 0; k < sizeof one; k++) {
            const bool set = ((char *)&one)[k] != 0;
            changed += set;
            if (set) assert_int_equal(((char *)&all)[k], 0); /* no two fields share a byte */
        }
        assert_true(changed > 0);
        sampling_params_free(&one);
        assert_true(sampling_field_copy(&sampling_fields[i], &from, &all));
    }
    check_lists(&all, &from);
    size_t missing = 0;
    for (size_t k = 0; k < offsetof(struct sampling_params, num_stop_token_ids); k++) missing += ((char *)&all)[k] == 0;
    assert_true(missing < 16); /* padding */
    sampling_params_free(&all);
    sampling_params_free(&from);
}

/* A copy outlives what it was made from, and a field that is copied takes the place of the one that was there. */
static void test_copies_own_their_lists(void **state)
{
    (void)state;
    struct sampling_params from = all_set(), copy, none = sampling_params_default();
    assert_true(sampling_params_copy(&from, &copy));
    assert_true(copy.top_p == from.top_p && copy.seed == from.seed && copy.n == from.n);
    check_lists(&copy, &from);
    assert_true(sampling_params_add_stop(&from, "more"));
    from.stop[0][0] = 'z';
    from.stop_token_ids[0] = -1;
    from.logit_bias[0].token = -1;
    check_lists(&copy, &from);
    assert_true(sampling_field_copy(sampling_field_find("stop"), &from, &copy));
    assert_int_equal(copy.num_stop, 4);
    assert_string_equal(copy.stop[0], "z");
    sampling_params_free(&from);
    assert_true(from.num_stop == 0 && !from.stop && from.num_logit_bias == 0 && from.num_stop_token_ids == 0);
    assert_string_equal(copy.stop[3], "more");
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++)
        assert_true(sampling_field_copy(&sampling_fields[i], &none, &copy)); /* empty lists, too */
    assert_true(copy.num_stop == 0 && !copy.stop && !copy.stop_token_ids && !copy.logit_bias);
    assert_true(sampling_params_copy(&none, &copy));
    assert_true(!copy.stop && !copy.stop_token_ids && !copy.logit_bias);
}

/* Many thousand requests may wait. */
static void test_a_plain_request_is_small(void **state)
{
    (void)state;
    assert_true(sizeof(struct request) + sizeof(struct sequence) < 1024);
}

static void test_greedy_has_one_answer(void **state)
{
    (void)state;
    struct sampling_params p = sampling_params_default();
    p.temperature = 0;
    accept(p);
    p.n = 2;
    refuse(p, "temperature");
}

static void test_lengths(void **state)
{
    (void)state;
    ACCEPT(max_tokens, 1);
    ACCEPT(max_tokens, -1);
    REFUSE(max_tokens, 0);
    REFUSE(max_tokens, -2);
    ACCEPT(min_tokens, 16);
    REFUSE(min_tokens, 17);
    REFUSE(min_tokens, -1);
    struct sampling_params p = sampling_params_default();
    p.max_tokens = -1;
    p.min_tokens = 5000;
    accept(p);
}

static void test_lists(void **state)
{
    (void)state;
    struct sampling_params p = sampling_params_default();
    char text[SAMPLING_PARAMS_MAX_STOP_BYTES];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_true(sampling_params_add_stop_token_id(&p, 999));
    assert_true(sampling_params_add_logit_bias(&p, (struct logit_bias){0, -100}));
    assert_true(sampling_params_add_stop(&p, text));
    assert_string_equal(p.stop[0], text);
    accept(p);

    p.stop_token_ids[0] = 1000;
    refuse(p, "stop_token_ids names token 1000; this model's tokens are 0 to 999");
    p.stop_token_ids[0] = 999;
    p.logit_bias[0].token = -1;
    refuse(p, "logit_bias names token -1; this model's tokens are 0 to 999");
    p.logit_bias[0] = (struct logit_bias){0, 100.5f};
    refuse(p, "logit_bias");
    p.logit_bias[0].value = NAN;
    refuse(p, "logit_bias");
    p.logit_bias[0].value = 100;
    accept(p);
    p.stop[0][0] = '\0';
    refuse(p, "stop has an empty string at index 0");
    memset(p.stop[0], 'x', sizeof p.stop[0]);
    refuse(p, "stop string 0 is longer than 255 bytes");
    sampling_params_free(&p);
}

static void test_counts(void **state)
{
    (void)state;
    struct sampling_params p = sampling_params_default();
    for (int i = 0; i < SAMPLING_PARAMS_MAX_STOP_IDS; i++) assert_true(sampling_params_add_stop_token_id(&p, i));
    for (int i = 0; i < SAMPLING_PARAMS_MAX_BIAS; i++)
        assert_true(sampling_params_add_logit_bias(&p, (struct logit_bias){i, 1}));
    for (int i = 0; i < SAMPLING_PARAMS_MAX_STOP; i++) assert_true(sampling_params_add_stop(&p, "x"));
    accept(p);
    assert_true(sampling_params_add_stop_token_id(&p, 0));
    refuse(p, "stop_token_ids has 65 entries; at most 64 are possible");
    p.num_stop_token_ids--;
    assert_true(sampling_params_add_logit_bias(&p, (struct logit_bias){0, 1}));
    refuse(p, "logit_bias has 301 entries; at most 300 are possible");
    p.num_logit_bias--;
    assert_true(sampling_params_add_stop(&p, "x"));
    refuse(p, "stop has 17 entries; at most 16 are possible");
    p.num_stop = -1;
    refuse(p, "stop");
    sampling_params_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_greedy_has_one_answer),
        cmocka_unit_test(test_ranked_answers),
        cmocka_unit_test(test_table_bounds),
        cmocka_unit_test(test_copying_fields),
        cmocka_unit_test(test_copies_own_their_lists),
        cmocka_unit_test(test_a_plain_request_is_small),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
