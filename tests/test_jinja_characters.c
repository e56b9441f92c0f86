/* Upper case and title case of every character, where they may be several: as Python has them (data/case_mappings.json,
 * made by scripts/make_jinja_character_tables.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tokenizer/jinja/characters.h"

static void check(uint32_t c, enum character_case wanted, const char *expected)
{
    uint32_t to[3];
    char text[16] = "";
    size_t length = 0;
    const int n = character_to_case(c, wanted, to);
    if (!expected) {
        if (n != 1) fail_msg("U+%04X becomes %d characters", (unsigned)c, n);
        return;
    }
    for (int i = 0; i < n; i++) length += utf8_write(to[i], text + length);
    text[length] = '\0';
    if (strcmp(text, expected) != 0) fail_msg("U+%04X becomes %s, not %s", (unsigned)c, text, expected);
}

static void test_every_character(void **state)
{
    (void)state;
    json_t *cases = json_load_file(QUIRE_TEST_DATA "/case_mappings.json", 0, NULL);
    size_t found = 0;
    assert_non_null(cases);
    for (uint32_t c = 1; c <= 0x10FFFF; c++) {
        char key[5] = "";
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        utf8_write(c, key);
        const json_t *both = json_object_get(cases, key);
        check(c, CHARACTER_UPPER, json_string_value(json_array_get(both, 0)));
        check(c, CHARACTER_TITLE, json_string_value(json_array_get(both, 1)));
        found += both != NULL;
    }
    assert_int_equal(found, json_object_size(cases));
    assert_true(found > 100);
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_character)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
