/* Which experts the tokens of a benchmark go to: the plan is one, and as even, or uneven, as it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/bench/routing.h"

enum { EXPERTS = 128, TOP_K = 8, TOKENS = 2048, A = TOKENS * TOP_K };

struct arrays {
    int32_t starts[EXPERTS + 1], tokens[A], rows[A];
    float weights[A];
};

static struct arrays arrays;

static int32_t expert_of(int32_t row)
{
    int32_t e = 0;
    while (arrays.starts[e + 1] <= row) e++;
    return e;
}

static void write(const struct bench_routing *r)
{
    memset(&arrays, 0xff, sizeof arrays);
    bench_routing_write(r, &(struct expert_plan){arrays.starts, arrays.tokens, arrays.rows, arrays.weights});
}

/* Every token has top_k rows of different experts, ascending; each row is of one token, and the rows of an expert are
 * in the order of the tokens. */
static void check_plan(const struct bench_routing *r)
{
    const int32_t rows = r->num_tokens * r->top_k;
    assert_int_equal(arrays.starts[0], 0);
    assert_int_equal(arrays.starts[r->num_experts], rows);
    for (int32_t i = 0; i < rows; i++) {
        const int32_t row = arrays.rows[i];
        assert_true(row >= 0 && row < rows && arrays.tokens[row] == i / r->top_k);
        assert_true(arrays.weights[i] * (float)r->top_k == 1);
        if (i % r->top_k > 0) assert_true(expert_of(arrays.rows[i - 1]) < expert_of(row));
    }
    for (int32_t row = 1; row < rows; row++)
        if (expert_of(row - 1) == expert_of(row)) assert_true(arrays.tokens[row - 1] < arrays.tokens[row]);
}

static void test_even(void **state)
{
    (void)state;
    struct bench_routing r = {EXPERTS, TOP_K, TOKENS, 3, false};
    write(&r);
    check_plan(&r);
    assert_int_equal(bench_routing_experts(&r), EXPERTS);
    for (int32_t e = 0; e < EXPERTS; e++) {
        const int32_t count = arrays.starts[e + 1] - arrays.starts[e];
        assert_true(count > A / EXPERTS / 2 && count < A / EXPERTS * 3 / 2);
    }
    r.num_tokens = 1;
    write(&r);
    check_plan(&r);
    assert_int_equal(bench_routing_experts(&r), TOP_K);
    const int32_t first = expert_of(0), second = expert_of(1);
    r.number = 4;
    write(&r);
    assert_true(expert_of(0) != first || expert_of(1) != second);
    r.top_k = r.num_experts = 8;
    write(&r);
    check_plan(&r);
}

static void test_same(void **state)
{
    (void)state;
    for (int32_t number = 0; number < 20; number++) { /* the last experts and the first, too */
        const struct bench_routing r = {EXPERTS - 1, TOP_K, 100, number, true};
        write(&r);
        check_plan(&r);
        assert_int_equal(bench_routing_experts(&r), TOP_K);
        const int32_t expert = number * TOP_K % (EXPERTS - 1);
        assert_int_equal(arrays.starts[expert + 1] - arrays.starts[expert], 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_even), cmocka_unit_test(test_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
