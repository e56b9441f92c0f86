/* Operators, methods, filters, tests and globals of templates give what jinja2 gives (data/jinja_filters.json, made by
 * scripts/make_jinja_filter_golden.py), and fail where it fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tokenizer/jinja/jinja.h"

enum { MAX_VARIABLES = 16 };

static enum status render(const json_t *test, bool marked, struct jinja_output *out, struct error *err)
{
    struct jinja_variable variables[MAX_VARIABLES];
    struct jinja_context context = {.variables = variables, .seconds = 60};
    const json_t *source = json_object_get(test, "template");
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(test, "variables"), name, value)
    {
        assert_true(context.num_variables < MAX_VARIABLES);
        variables[context.num_variables++] = (struct jinja_variable){.name = name, .value = value, .marked = marked};
    }
    struct jinja_template *template = NULL;
    enum status status = jinja_parse(json_string_value(source), json_string_length(source), &template, err);
    if (status == STATUS_OK) status = jinja_render(template, &context, out, err);
    jinja_template_free(template);
    return status;
}

/* Whether the case gives what is expected; says what it gives otherwise. */
static bool check(const json_t *test, bool marked)
{
    struct jinja_output out = {0};
    struct error err = {0};
    enum status status = render(test, marked, &out, &err);
    const json_t *expected = json_object_get(test, "expected");
    bool ok = expected
                  ? status == STATUS_OK && out.text.length == json_string_length(expected) &&
                        memcmp(out.text.data ? out.text.data : "", json_string_value(expected), out.text.length) == 0
                  : status == STATUS_INVALID;
    if (!ok)
        print_error("%s\n  gives   %s\n  but not %s\n", json_string_value(json_object_get(test, "template")),
                    status ? err.text : out.text.data,
                    json_string_value(expected ? expected : json_object_get(test, "error")));
    if (ok && status == STATUS_OK) assert_int_equal(out.marks.length, out.text.length);
    jinja_output_free(&out);
    return ok;
}

static void check_all(bool marked)
{
    json_error_t error;
    json_t *tests = json_load_file(QUIRE_TEST_DATA "/jinja_filters.json", JSON_ALLOW_NUL, &error);
    if (!tests) fail_msg("%s", error.text);
    assert_true(json_array_size(tests) > 1000);
    size_t wrong = 0;
    for (size_t i = 0; i < json_array_size(tests); i++) wrong += !check(json_array_get(tests, i), marked);
    json_decref(tests);
    assert_int_equal(wrong, 0);
}

static void test_equals_jinja2(void **state)
{
    (void)state;
    check_all(false);
}

/* Marks change no text. */
static void test_equals_jinja2_when_marked(void **state)
{
    (void)state;
    check_all(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_jinja2),
        cmocka_unit_test(test_equals_jinja2_when_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
