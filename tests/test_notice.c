/* Notices are broken between words where a line of the terminal ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/notice.h"
#include "tests/support/program.h"
#include "tests/support/pty.h"

static void test_wrap(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int column, indent, columns;
        const char *wrapped;
    } cases[] = {
        {"", 0, 0, 10, ""},
        {"one two three", 0, 0, 13, "one two three"},
        {"one two three", 0, 0, 12, "one two\nthree"},
        {"one two three four\n", 0, 0, 9, "one two\nthree\nfour\n"},
        {"one two\nthree four", 0, 0, 10, "one two\nthree four"},
        {"a  b   c", 0, 0, 4, "a  b\nc"},
        {"  indented by two", 0, 0, 12, "  indented\nby two"},
        {"longer-than-a-line x longer-than-a-line", 0, 0, 8, "longer-than-a-line\nx\nlonger-than-a-line"},
        {"one two three", 6, 6, 13, "one two\n      three"},
        {"one two", 4, 2, 8, "one\n  two"},
        {"[Y/n] ", 0, 0, 6, "[Y/n] "},
        {"\xE4\xB8\xAD\xE6\x96\x87 ab", 0, 0, 6, "\xE4\xB8\xAD\xE6\x96\x87\nab"}, /* two columns a character */
        {"\xC3\xA9\xC3\xA9 ab", 0, 0, 5, "\xC3\xA9\xC3\xA9 ab"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text out = {0};
        assert_true(text_append(&out, "", 0));
        assert_true(notice_wrap(&out, cases[i].text, cases[i].column, cases[i].indent, cases[i].columns));
        if (strcmp(out.data, cases[i].wrapped) != 0)
            fail_msg("'%s' in %d: '%s'", cases[i].text, cases[i].columns, out.data);
        text_free(&out);
    }
}

/* Lines are broken on a terminal, but not on a pipe; what controls a terminal is shown. */
static void test_terminal(void **state)
{
    (void)state;
    static const char command[] =
        "stty cols 30; " QUIRE_EXECUTABLE " 'zzzzzzz\x1b'; " QUIRE_EXECUTABLE " tokenize --host x; exit 7";
    struct program p;
    struct pty terminal;
    pty_start(&terminal, (const char *[]){"/bin/sh", "-c", command, NULL});
    pty_expect(&terminal,
               "quire: there is no command\r\n'zzzzzzz\xE2\x90\x9B'; quire --help lists\r\nthe commands\r\n");
    pty_expect(&terminal, "quire tokenize: there is no\r\nflag --host: it is one of\r\nquire serve\r\n");
    assert_int_equal(pty_finish(&terminal), 7);
    program_run(&p, (const char *[]){QUIRE_EXECUTABLE, "tokenize", "--host", "x", NULL}, NULL);
    assert_ptr_equal(strchr(p.err.data, '\n'), p.err.data + p.err.length - 1);
    program_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
