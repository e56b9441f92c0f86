/* Lists of words (base/words.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/words.h"

static void test_whole_words(void **state)
{
    (void)state;
    const char *const words = "rms_norm norm a";
    assert_true(words_have(words, "rms_norm"));
    assert_true(words_have(words, "norm"));
    assert_true(words_have(words, "a"));
    assert_true(words_have_text(words, "norms", 4));
    static const char *const others[] = {"", " ", "rms", "nor", "norm a", "b", "rms_norm ", NULL};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(words_have(words, others[i]));
    assert_false(words_have(NULL, "a"));
    assert_false(words_have("", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
