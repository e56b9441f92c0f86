/* jinja/value.h: the marks of strings through methods, operators and filters; keys of dicts; limits. What the values
 * look like is compared with jinja2 in test_jinja_filters.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tokenizer/jinja/value.h"

struct fixture {
    struct jinja_context context;
    struct jinja_run run;
    struct error err;
};

static struct jinja_run *begin(struct fixture *f)
{
    f->context = (struct jinja_context){.now = 0};
    jinja_run_begin(&f->run, &f->context, &f->err);
    return &f->run;
}

static struct jinja_value text(struct jinja_run *run, const char *bytes, bool marked)
{
    return jinja_string_of(run, bytes, strlen(bytes), marked);
}

/* "plain" and "MARKED" in one string: capitals are marked. */
static struct jinja_value marked_capitals(struct jinja_run *run, const char *bytes)
{
    struct jinja_builder b = {0};
    for (const char *p = bytes; *p; p++) jinja_build_bytes(run, &b, p, 1, *p >= 'A' && *p <= 'Z');
    return jinja_build_end(run, &b);
}

/* marks: one character for each byte, 'M' for a marked one. */
static void assert_string(struct jinja_run *run, struct jinja_value v, const char *bytes, const char *marks)
{
    if (jinja_failed(run)) fail_msg("%s", run->err->text);
    assert_int_equal(v.kind, JINJA_STRING);
    assert_int_equal(v.string->length, strlen(bytes));
    assert_memory_equal(v.string->bytes, bytes, strlen(bytes));
    for (size_t i = 0; i < v.string->length; i++) {
        bool marked = v.string->marks ? v.string->marks[i] : v.string->marked;
        if (marked != (marks[i] == 'M')) fail_msg("byte %zu of '%s' has the wrong mark", i, bytes);
    }
}

static struct jinja_value call_method(struct jinja_run *run, struct jinja_value self, const char *name,
                                      const struct jinja_value *args, size_t count)
{
    struct jinja_value method = jinja_get_attribute(run, self, jinja_literal(run, name).string);
    return jinja_call(run, method, &(struct jinja_args){.positional = args, .count = count});
}

static struct jinja_value filter(struct jinja_run *run, struct jinja_value self, const char *name,
                                 const struct jinja_value *args, size_t count)
{
    const struct jinja_function *function = jinja_find_filter(jinja_literal(run, name).string);
    assert_non_null(function);
    return jinja_apply(run, function, self, &(struct jinja_args){.positional = args, .count = count});
}

static void test_marks_of_operators(void **state)
{
    (void)state;
    struct fixture f;
    struct jinja_run *run = begin(&f);
    struct jinja_value plain = text(run, "ab", false), marked = text(run, "CD", true), none = jinja_none();
    assert_string(run, jinja_arithmetic(run, JINJA_ADD, plain, marked), "abCD", "--MM");
    assert_string(run, jinja_arithmetic(run, JINJA_MULTIPLY, marked, jinja_int(2)), "CDCD", "MMMM");
    struct jinja_value both[] = {marked, jinja_int(5), plain};
    assert_string(run, jinja_concatenate(run, both, 3), "CD5ab", "MM---");
    struct jinja_value mixed = marked_capitals(run, "aBcD");
    assert_string(run, jinja_slice(run, mixed, none, none, jinja_int(-1)), "DcBa", "M-M-");
    assert_string(run, jinja_slice(run, mixed, jinja_int(1), jinja_int(3), none), "Bc", "M-");
    assert_string(run, jinja_get_item(run, mixed, jinja_int(-1)), "D", "M");
    struct jinja_value tuple = jinja_list_new(run, JINJA_TUPLE);
    jinja_list_append(run, tuple.list, mixed);
    assert_string(run, jinja_arithmetic(run, JINJA_MODULO, text(run, "<%7s>", false), tuple), "<   aBcD>", "-----M-M-");
    jinja_run_end(run);
}

static void test_marks_of_methods(void **state)
{
    (void)state;
    struct fixture f;
    struct jinja_run *run = begin(&f);
    struct jinja_value mixed = marked_capitals(run, "aB-cD"), dash = text(run, "-", false), two = text(run, "XY", true);
    assert_string(run, call_method(run, mixed, "lower", NULL, 0), "ab-cd", "-M--M");
    assert_string(run, call_method(run, text(run, "\u00df", true), "upper", NULL, 0), "SS", "MM");
    assert_string(run, call_method(run, mixed, "replace", (struct jinja_value[]){dash, two}, 2), "aBXYcD", "-MMM-M");
    struct jinja_value parts = call_method(run, mixed, "split", &dash, 1);
    assert_string(run, parts.list->items[1], "cD", "-M");
    assert_string(run, call_method(run, dash, "join", &parts, 1), "aB-cD", "-M--M");
    assert_string(run, call_method(run, text(run, "{:*>3}{}", false), "format", (struct jinja_value[]){two, mixed}, 2),
                  "*XYaB-cD", "-MM-M--M");
    assert_string(run, call_method(run, two, "center", (struct jinja_value[]){jinja_int(4), dash}, 2), "-XY-", "-MM-");
    jinja_run_end(run);
}

static void test_marks_of_filters(void **state)
{
    (void)state;
    struct fixture f;
    struct jinja_run *run = begin(&f);
    struct jinja_value list = jinja_list_new(run, JINJA_LIST), marked = text(run, "A\n", true);
    jinja_list_append(run, list.list, marked);
    jinja_list_append(run, list.list, jinja_int(1));
    assert_string(run, filter(run, list, "tojson", NULL, 0), "[\"A\\n\", 1]", "--MMM-----");
    assert_string(run, filter(run, list, "string", NULL, 0), "['A\\n', 1]", "--MMM-----");
    assert_string(run, filter(run, list, "join", &(struct jinja_value){0}, 0), "A\n1", "MM-");
    assert_string(run, filter(run, text(run, "A\nB", true), "indent", &(struct jinja_value){0}, 0), "A\n    B",
                  "MM----M");
    assert_string(run, filter(run, text(run, "<", true), "escape", NULL, 0), "&lt;", "MMMM");
    assert_string(run,
                  filter(run, text(run, "a b c d", true), "truncate",
                         (struct jinja_value[]){jinja_int(4), jinja_bool(false), text(run, "..", false), jinja_int(0)},
                         4),
                  "a..", "M--");
    assert_string(run, filter(run, marked_capitals(run, "aB cD"), "title", NULL, 0), "Ab Cd", "-M--M");
    jinja_run_end(run);
}

static bool is_message(const char *key, const char *string, size_t length)
{
    (void)string;
    (void)length;
    return strcmp(key, "role") != 0;
}

static void test_marks_of_json(void **state)
{
    (void)state;
    struct fixture f;
    struct jinja_run *run = begin(&f);
    json_t *json = json_loads("{\"role\": \"user\", \"content\": [\"x\"]}", 0, NULL);
    struct jinja_variable variable = {.name = "m", .value = json, .marked = true, .is_marked = is_message};
    struct jinja_value dict = jinja_from_json(run, &variable);
    assert_string(run, filter(run, dict, "tojson", NULL, 0), "{\"role\": \"user\", \"content\": [\"x\"]}",
                  "--MMMM------------MMMMMMM-----M---");
    jinja_run_end(run);
    json_decref(json);
}

static void test_equal_keys(void **state)
{
    (void)state;
    struct fixture f;
    struct jinja_run *run = begin(&f);
    struct jinja_dict *dict = jinja_dict_new(run).dict;
    for (int64_t i = 0; i < 1000; i++) assert_true(jinja_dict_set(run, dict, jinja_int(i), jinja_int(2 * i)));
    assert_true(jinja_dict_set(run, dict, jinja_bool(true), jinja_literal(run, "one")));
    assert_int_equal(dict->count, 1000);
    assert_int_equal(jinja_dict_get(run, dict, jinja_float(999))->integer, 1998);
    assert_int_equal(jinja_dict_get(run, dict, jinja_float(1))->kind, JINJA_STRING);
    assert_int_equal(dict->pairs[1].key.kind, JINJA_INT);
    assert_null(jinja_dict_get(run, dict, jinja_float(0.5)));
    assert_null(jinja_dict_get(run, dict, jinja_literal(run, "1")));
    assert_false(jinja_failed(run));
    assert_null(jinja_dict_get(run, dict, jinja_list_new(run, JINJA_LIST)));
    assert_string_equal(f.err.text, "line 1, column 1: unhashable type: 'list'");
    jinja_run_end(run);
}

/* Each of these fails, and does not take the memory or the time. */
static void test_limits(void **state)
{
    (void)state;
    struct fixture f;
    struct jinja_run *run = begin(&f);
    jinja_arithmetic(run, JINJA_MULTIPLY, jinja_literal(run, "abc"), jinja_int(INT64_MAX));
    assert_true(jinja_failed(run));
    jinja_run_end(run);

    run = begin(&f);
    struct jinja_value list = jinja_list_new(run, JINJA_LIST);
    jinja_list_append(run, list.list, jinja_int(1));
    jinja_arithmetic(run, JINJA_MULTIPLY, list, jinja_int(INT64_MAX));
    assert_true(jinja_failed(run));
    jinja_run_end(run);

    run = begin(&f);
    struct jinja_value nested = jinja_list_new(run, JINJA_LIST), other = jinja_list_new(run, JINJA_LIST);
    jinja_list_append(run, nested.list, nested); /* as a namespace may hold itself */
    jinja_list_append(run, other.list, other);
    filter(run, nested, "tojson", NULL, 0);
    assert_true(jinja_failed(run));
    jinja_run_end(run);

    run = begin(&f);
    nested = jinja_list_new(run, JINJA_LIST);
    jinja_list_append(run, nested.list, nested);
    other = jinja_list_new(run, JINJA_LIST);
    jinja_list_append(run, other.list, other);
    assert_false(jinja_equal(run, nested, other));
    assert_true(jinja_failed(run));
    jinja_run_end(run);
}

static void test_strftime_now(void **state)
{
    (void)state;
    struct fixture f;
    struct jinja_run *run = begin(&f);
    f.context.now = 1721952000; /* 2024-07-26 */
    struct jinja_value function, format = text(run, "%d %b %Y%%%f%Z", false);
    assert_true(jinja_find_global(run, jinja_literal(run, "strftime_now").string, &function));
    struct jinja_value now = jinja_call(run, function, &(struct jinja_args){.positional = &format, .count = 1});
    assert_string(run, jinja_slice(run, now, jinja_int(2), jinja_none(), jinja_none()), " Jul 2024%000000",
                  "----------------");
    jinja_run_end(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks_of_operators), cmocka_unit_test(test_marks_of_methods),
        cmocka_unit_test(test_marks_of_filters),   cmocka_unit_test(test_marks_of_json),
        cmocka_unit_test(test_equal_keys),         cmocka_unit_test(test_limits),
        cmocka_unit_test(test_strftime_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
