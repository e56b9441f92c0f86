/* Names of devices that list GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/gpu_list.h"

static void test_lists(void **state)
{
    (void)state;
    assert_int_equal(gpu_list_count("cuda:0"), 1);
    assert_int_equal(gpu_list_at("cuda:0", 0), 0);
    assert_int_equal(gpu_list_count("cuda:7,0,12"), 3);
    assert_int_equal(gpu_list_at("cuda:7,0,12", 0), 7);
    assert_int_equal(gpu_list_at("cuda:7,0,12", 1), 0);
    assert_int_equal(gpu_list_at("cuda:7,0,12", 2), 12);
    assert_int_equal(gpu_list_count("cuda:2147483647"), 1);
}

static void test_other_names(void **state)
{
    (void)state;
    static const char *const names[] = {"",        "cpu",      "auto",    "cuda",     "cuda:",  "cuda:,",
                                        "cuda:1,", "cuda:,1",  "cuda:-1", "cuda: 1",  "cuda:x", "cuda:1,,2",
                                        "cuda:1x", "cuda:1;2", "CUDA:1",  "cuda:1 ,2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_int_equal(gpu_list_count(names[i]), 0);
    assert_int_equal(gpu_list_count("cuda:2147483648"), 0);
    assert_int_equal(gpu_list_count("cuda:0,99999999999999999999"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists), cmocka_unit_test(test_other_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
