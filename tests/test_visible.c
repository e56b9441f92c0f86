/* Text made fit for a terminal: every character that could drive one is replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "base/visible.h"

static void check(const char *text, size_t length, const char *expected)
{
    struct text out = {0};
    assert_true(visible_append(&out, text, length));
    assert_int_equal(out.length, strlen(expected));
    assert_memory_equal(out.length ? out.data : "", expected, out.length);
    text_free(&out);
}

static void test_controls_become_symbols(void **state)
{
    (void)state;
    check("a\tb\nc", 5, "a\tb\nc");
    check("\x1b]52;c;aGk=\a", 12, "␛]52;c;aGk=␇");
    check("\0\r\x7f", 3, "␀␍␡");
    check("\xc2\x9b", 2, "\uFFFD"); /* CSI in one character */
    check("ab\u202Edc", strlen("ab\u202Edc"), "ab\uFFFDdc");
    check("", 0, "");
}

static void test_text_of_people_stays(void **state)
{
    (void)state;
    const char *const texts[] = {"Grüße, 世界", "👩‍👩‍👧", "שלום", "a\u200Bb", "e\u0301"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check(texts[i], strlen(texts[i]), texts[i]);
}

static void test_bytes_that_are_no_characters(void **state)
{
    (void)state;
    check("a\xff\xc3", 3, "a\uFFFD\uFFFD");
    check("\x9b", 1, "\uFFFD"); /* CSI in Latin 1 */
}

/* No character that is left is a control or changes the direction of what follows. */
static void test_every_character(void **state)
{
    (void)state;
    int replaced = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        const uint32_t shown = visible_character(c);
        if (shown != c) replaced++;
        assert_true(shown == '\n' || shown == '\t' ||
                    (shown >= 0x20 && shown != 0x7F && !(shown >= 0x80 && shown < 0xA0)));
        assert_int_equal(visible_character(shown), shown);
    }
    assert_int_equal(replaced, 32 - 2 + 1 + 32 + 3 + 7 + 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_controls_become_symbols),
        cmocka_unit_test(test_text_of_people_stays),
        cmocka_unit_test(test_bytes_that_are_no_characters),
        cmocka_unit_test(test_every_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
