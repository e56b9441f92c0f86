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
            *number = f->minimum;
            f->above_minimum ? refuse(p, f->name) : accept(p);
            *number = nextafter(f->minimum, -10);
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

/* Each field copies its own members and nothing else; all of them together copy everything. */
static void test_copying_fields(void **state)
{
    (void)state;
    struct sampling_params from, all;
    memset(&from, 1, sizeof from);
    memset(&all, 0, sizeof all);
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++) {
        struct sampling_params one;
        size_t changed = 0;
        memset(&one, 0, sizeof one);
        sampling_field_copy(&sampling_fields[i], &from, &one);
        for (size_t k = 0; k < sizeof one; k++) {
            const bool set = ((char *)&one)[k] != 0;
            changed += set;
            if (set) assert_int_equal(((char *)&all)[k], 0); /* no two fields share a byte */
        }
        assert_true(changed > 0);
        sampling_field_copy(&sampling_fields[i], &from, &all);
    }
    size_t missing = 0;
    for (size_t k = 0; k < sizeof all; k++) missing += ((char *)&all)[k] == 0;
    assert_true(missing < 16); /* padding */
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
    p.num_stop_token_ids = 1;
    p.stop_token_ids[0] = 999;
    p.num_logit_bias = 1;
    p.bias_values[0] = -100;
    p.num_stop = 1;
    memset(p.stop[0], 'x', SAMPLING_PARAMS_MAX_STOP_BYTES - 1);
    accept(p);

    struct sampling_params q = p;
    q.stop_token_ids[0] = 1000;
    refuse(q, "stop_token_ids");
    q = p;
    q.bias_ids[0] = -1;
    refuse(q, "logit_bias");
    q = p;
    q.bias_values[0] = 100.5f;
    refuse(q, "logit_bias");
    q.bias_values[0] = NAN;
    refuse(q, "logit_bias");
    q = p;
    q.stop[0][0] = '\0';
    refuse(q, "stop");
    memset(q.stop[0], 'x', SAMPLING_PARAMS_MAX_STOP_BYTES);
    refuse(q, "stop");
}

static void test_counts(void **state)
{
    (void)state;
    struct sampling_params p = sampling_params_default();
    p.num_stop_token_ids = SAMPLING_PARAMS_MAX_STOP_IDS + 1;
    refuse(p, "stop_token_ids");
    p = sampling_params_default();
    p.num_logit_bias = SAMPLING_PARAMS_MAX_BIAS + 1;
    refuse(p, "logit_bias");
    p = sampling_params_default();
    p.num_stop = -1;
    refuse(p, "stop");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_greedy_has_one_answer),
        cmocka_unit_test(test_table_bounds),
        cmocka_unit_test(test_copying_fields),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
