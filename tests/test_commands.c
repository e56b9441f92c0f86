/* The sentence of an error as the command line shows it: its advice becomes flags. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/commands.h"

static void test_without_advice(void **state)
{
    (void)state;
    struct error err;
    error_set(&err, STATUS_IO, "cannot read %s", "x");
    assert_string_equal(command_sentence(&err).text, "cannot read x");
}

static void test_one_setting(void **state)
{
    (void)state;
    struct error err;
    error_set(&err, STATUS_INVALID, "too long");
    error_advise(&err, ADVICE_RAISE, "max_model_len", "%d", 512);
    assert_string_equal(command_sentence(&err).text, "too long: raise --max-model-len to 512");
}

/* Settings with the same verb share it; a value follows its setting. */
static void test_several_settings(void **state)
{
    (void)state;
    struct error err;
    error_set(&err, STATUS_INVALID, "too small");
    error_advise(&err, ADVICE_LOWER, "max_model_len", "%d", 64);
    error_advise(&err, ADVICE_RAISE, "kv_cache_space", "%.3f", 0.25);
    assert_string_equal(command_sentence(&err).text,
                        "too small: lower --max-model-len to 64, or raise --kv-cache-space to 0.250");
    error_set(&err, STATUS_INVALID, "too small");
    error_advise(&err, ADVICE_RAISE, "num_gpu_blocks_override", NULL);
    error_advise(&err, ADVICE_RAISE, "kv_cache_space", NULL);
    error_advise(&err, ADVICE_RAISE, "gpu_memory_utilization", NULL);
    error_advise(&err, ADVICE_SET, "dtype", "bfloat16");
    assert_string_equal(command_sentence(&err).text,
                        "too small: raise --num-gpu-blocks-override, --kv-cache-space or --gpu-memory-utilization, or "
                        "set --dtype to bfloat16");
    error_set(&err, STATUS_INVALID, "damaged"); /* two values of one setting */
    error_advise(&err, ADVICE_SET, "dtype", "bfloat16");
    error_advise(&err, ADVICE_SET, "dtype", "float32");
    assert_string_equal(command_sentence(&err).text, "damaged: set --dtype to bfloat16 or float32");
}

/* A warning says what was lowered. A program that has no flags names fields. */
static void test_lowered(void **state)
{
    (void)state;
    struct error warning;
    error_set(&warning, STATUS_OK, "memory is short");
    error_advise(&warning, ADVICE_LOWERED, "max_model_len", "%d", 48);
    error_advise(&warning, ADVICE_LOWERED, "max_num_batched_tokens", "%d", 64);
    error_advise(&warning, ADVICE_LOWERED, "max_num_seqs", "%d", 4);
    assert_string_equal(command_sentence(&warning).text,
                        "memory is short: lowered --max-model-len to 48, --max-num-batched-tokens to 64 and "
                        "--max-num-seqs to 4");
    assert_string_equal(error_sentence(&warning, NULL).text,
                        "memory is short: lowered max_model_len to 48, max_num_batched_tokens to 64 and max_num_seqs "
                        "to 4");
}

/* A prefix keeps the advice, a new sentence drops it, and more than there is room for is left out. */
static void test_advice_belongs_to_its_sentence(void **state)
{
    (void)state;
    struct error err;
    error_set(&err, STATUS_INVALID, "too long");
    error_advise(&err, ADVICE_LOWER, "max_num_seqs", NULL);
    error_prefix(&err, STATUS_INVALID, "line 7");
    assert_string_equal(command_sentence(&err).text, "line 7: too long: lower --max-num-seqs");
    for (int i = 0; i < 2 * ERROR_MAX_ADVICE; i++) error_advise(&err, ADVICE_LOWER, "max_num_seqs", NULL);
    assert_int_equal(err.num_advice, ERROR_MAX_ADVICE);
    error_set(&err, STATUS_INVALID, "another");
    assert_string_equal(command_sentence(&err).text, "another");
    error_advise(NULL, ADVICE_LOWER, "max_num_seqs", NULL); /* as error_set, for a caller that wants no sentence */
}

/* The longest sentence with the longest advice is not cut. */
static void test_long_sentence(void **state)
{
    (void)state;
    struct error err;
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    error_set(&err, STATUS_INVALID, "%s", text);
    for (int i = 0; i < ERROR_MAX_ADVICE; i++)
        error_advise(&err, i % 2 ? ADVICE_LOWER : ADVICE_RAISE, "num_gpu_blocks_override", "%s", text);
    const struct sentence s = command_sentence(&err);
    assert_true(strlen(s.text) > sizeof err.text + 100);
    assert_true(strlen(s.text) < sizeof s.text - 1);
}

static void test_plural(void **state)
{
    (void)state;
    assert_string_equal(plural(0), "s");
    assert_string_equal(plural(1), "");
    assert_string_equal(plural(2), "s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_advice),
        cmocka_unit_test(test_one_setting),
        cmocka_unit_test(test_several_settings),
        cmocka_unit_test(test_lowered),
        cmocka_unit_test(test_advice_belongs_to_its_sentence),
        cmocka_unit_test(test_long_sentence),
        cmocka_unit_test(test_plural),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
