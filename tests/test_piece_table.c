/* piece_table.h: the table of a large vocabulary, and an empty piece. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tokenizer/piece_table.h"

enum { PIECES = 170000 }; /* the table takes 4 MiB, so that it is laid out for huge pages */

static size_t spell(int32_t id, char out[16])
{
    return (size_t)snprintf(out, 16, "%x", (unsigned)id * 2654435761u);
}

static void test_large(void **state)
{
    (void)state;
    struct piece_table table;
    char text[16];
    assert_true(piece_table_init(&table, PIECES, PIECES * sizeof text));
    for (int32_t id = 0; id < PIECES; id++) assert_true(piece_table_add(&table, text, spell(id, text), id));
    for (int32_t id = 0; id < PIECES; id++) {
        piece_table_prefetch(&table, text, spell(id, text));
        assert_int_equal(piece_table_find(&table, text, spell(id, text)), id);
    }
    for (int32_t id = PIECES; id < 2 * PIECES; id++)
        assert_int_equal(piece_table_find(&table, text, spell(id, text)), -1);
    assert_false(piece_table_add(&table, text, spell(7, text), PIECES));
    piece_table_free(&table);
}

static void test_empty(void **state)
{
    (void)state;
    struct piece_table table;
    assert_true(piece_table_init(&table, 1, 0));
    assert_int_equal(piece_table_find(&table, "", 0), -1);
    assert_true(piece_table_add(&table, "", 0, 5));
    assert_int_equal(piece_table_find(&table, "", 0), 5);
    assert_int_equal(piece_table_find(&table, "a", 1), -1);
    piece_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
