/* The Jinja interpreter: every construct against jinja2 (tests/scripts/make_jinja_golden.py), marks, limits and errors.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "tokenizer/jinja/jinja.h"

/* --- rendering --- */

static enum status render_in(const char *source, size_t length, const struct jinja_context *context,
                             struct jinja_output *out, struct error *err)
{
    struct jinja_template *t;
    const enum status status = jinja_parse(source, length, &t, err);
    if (status) {
        assert_null(t);
        return status;
    }
    const enum status rendered = jinja_render(t, context, out, err);
    jinja_template_free(t);
    return rendered;
}

static void assert_renders(const char *source, const struct jinja_context *context, const char *expected)
{
    struct jinja_output out = {0};
    struct error err = {""};
    if (render_in(source, strlen(source), context, &out, &err)) fail_msg("%s: %s", source, err.text);
    assert_int_equal(out.marks.length, out.text.length);
    if (out.text.length != strlen(expected) || memcmp(out.text.data, expected, out.text.length) != 0)
        fail_msg("%s: got \"%s\", expected \"%s\"", source, out.text.data, expected);
    jinja_output_free(&out);
}

static void assert_refused(const char *source, const struct jinja_context *context, const char *words)
{
    struct jinja_output out = {0};
    struct error err = {""};
    assert_int_equal(render_in(source, strlen(source), context, &out, &err), STATUS_INVALID);
    if (!strstr(err.text, words)) fail_msg("expected \"%s\", found: %s", words, err.text);
    jinja_output_free(&out);
}

static const struct jinja_context nothing; /* no variables, the default limits */
/* Has time enough for the limits of depth and memory to be reached on a slow machine, too. */
static const struct jinja_context patient = {.seconds = 60};

/* --- golden cases --- */

enum { MAX_VARIABLES = 32 };

static void check_case(const json_t *pair, const struct jinja_context *context)
{
    const json_t *source = json_array_get(pair, 0), *expected = json_array_get(pair, 1);
    struct jinja_output out = {0};
    struct error err = {""};
    const enum status status = render_in(json_string_value(source), json_string_length(source), context, &out, &err);
    if (json_is_null(expected)) {
        if (!status) fail_msg("%s: got \"%s\", expected an error", json_string_value(source), out.text.data);
        if (strncmp(err.text, "line ", 5) != 0) fail_msg("%s: no line in: %s", json_string_value(source), err.text);
    } else if (status) {
        fail_msg("%s: %s", json_string_value(source), err.text);
    } else if (out.text.length != json_string_length(expected) ||
               (out.text.length && memcmp(out.text.data, json_string_value(expected), out.text.length) != 0)) {
        fail_msg("%s: got \"%s\", expected \"%s\"", json_string_value(source), out.text.data,
                 json_string_value(expected));
    }
    jinja_output_free(&out);
}

static void test_golden(void **state)
{
    (void)state;
    struct error err;
    json_t *file;
    if (json_object_read(QUIRE_TEST_DATA "/jinja.json", &file, &err) != STATUS_OK) fail_msg("%s", err.text);
    struct jinja_variable variables[MAX_VARIABLES];
    struct jinja_context context = {.variables = variables, .seconds = 60};
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(file, "variables"), name, value)
    {
        assert_true(context.num_variables < MAX_VARIABLES);
        variables[context.num_variables++] = (struct jinja_variable){.name = name, .value = value};
    }
    size_t i;
    json_t *pair;
    json_array_foreach(json_object_get(file, "cases"), i, pair) check_case(pair, &context);
    assert_true(i >= 300);
    json_decref(file);
}

/* Arithmetic that would need an integer of more than 64 bits is refused, not done in floats. */
static void test_big_integers(void **state)
{
    (void)state;
    static const char *const refused[] = {"big + 1",    "1 - big",    "big * 2.0",  "big / 2",
                                          "2 // big",   "big % 7",    "big ** 2",   "-big",
                                          "big|abs",    "big|round",  "'x' * big",  "[1, big]|sum",
                                          "range(big)", "big is odd", "'%d' % big", "'x'|indent(big)"};
    json_t *big, *larger;
    assert_int_equal(json_value_parse("100000000000000000000", 21, JSON_DECODE_ANY, NULL, &big, NULL), STATUS_OK);
    assert_int_equal(json_value_parse("100000000000000000002", 21, JSON_DECODE_ANY, NULL, &larger, NULL), STATUS_OK);
    const struct jinja_variable variables[] = {{"big", big, true, NULL}, {"larger", larger, true, NULL}};
    const struct jinja_context context = {.variables = variables, .num_variables = 2};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char source[64];
        snprintf(source, sizeof source, "{{ %s }}", refused[i]);
        assert_refused(source, &context, "int of more than 64 bits");
    }
    assert_renders("{{ big }}{{ big|tojson }}", &context, "100000000000000000000100000000000000000000");
    assert_renders("{{ big < larger }} {{ larger >= big }} {{ big is gt larger }} {{ [larger, big]|min == big }}",
                   &context, "True True False True");
    json_decref(big);
    json_decref(larger);
}

/* --- marks --- */

static bool not_roles(const char *key, const char *string, size_t length)
{
    (void)string, (void)length;
    return strcmp(key, "role") != 0;
}

/* Renders a template with the marked variable m; `expected` has marked text in square brackets. */
static void assert_marks(const char *source, const char *expected)
{
    json_t *m = json_pack("{s:s, s:s}", "role", "user", "content", " hi you ");
    const struct jinja_variable variable = {"m", m, true, not_roles};
    const struct jinja_context context = {.variables = &variable, .num_variables = 1};
    struct jinja_output out = {0};
    struct error err = {""};
    if (render_in(source, strlen(source), &context, &out, &err)) fail_msg("%s: %s", source, err.text);
    struct text shown = {0};
    for (size_t i = 0; i < out.text.length; i++) {
        const bool before = i > 0 && out.marks.data[i - 1], marked = out.marks.data[i];
        if (before != marked) text_append(&shown, marked ? "[" : "]", 1);
        text_append(&shown, out.text.data + i, 1);
    }
    if (out.text.length && out.marks.data[out.text.length - 1]) text_append(&shown, "]", 1);
    assert_string_equal(shown.data, expected);
    text_free(&shown);
    jinja_output_free(&out);
    json_decref(m);
}

static void test_marks(void **state)
{
    (void)state;
    assert_marks("<|{{ m.role }}|>{{ m.content }}<|end|>", "<|user|>[ hi you ]<|end|>");
    assert_marks("{{ '<' + m.content.strip() + '>' }}", "<[hi you]>");
    assert_marks("{% set x = '<' ~ m.content ~ '>' %}{{ x[:3] }}{{ x[-2:] }}", "<[ h ]>");
    assert_marks("{% set x %}a{{ m.content|trim }}b{% endset %}{{ x|upper }}", "A[HI YOU]B");
    assert_marks("{% macro f(x) %}({{ x }}){% endmacro %}{{ f(m.content|trim) }}", "([hi you])");
    assert_marks("{% for w in m.content.split() %}{{ w }},{% endfor %}", "[hi],[you],");
    assert_marks("{% filter replace('y', 'Y') %}<y>{{ m.content }}{% endfilter %}", "<Y>[ hi ]Y[ou ]");
    assert_marks("{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}{{ m.content }}{% endcall %}",
                 "<[ hi you ]>");
    assert_marks("{% generation %}a{{ m.content }}{% endgeneration %}", "a[ hi you ]");
    /* Strings that share their beginning, and go on with other marks. */
    assert_marks(
        "{% set a = 'x' ~ 'y' %}{% set b = a ~ m.content %}{% set c = a ~ 'z' %}{{ a }}{{ b }}{{ c }}{{ a ~ a }}",
        "xyxy[ hi you ]xyzxyxy");
    assert_marks(
        "{% set a = m.content ~ m.content %}{% set b = a ~ '.' %}{% set c = a ~ '.' ~ a %}{{ a }}|{{ b }}|{{ c }}",
        "[ hi you  hi you ]|[ hi you  hi you ].|[ hi you  hi you ].[ hi you  hi you ]");
    assert_marks("{% set a = 'x' ~ m.content %}{% set b = a ~ 1 %}{% set c %}{{ a }}{{ a ~ 2 }}{{ b }}{% endset %}{{ a "
                 "}}{{ c }}",
                 "x[ hi you ]x[ hi you ]x[ hi you ]2x[ hi you ]1");
}

/* --- limits --- */

static void append_times(struct text *t, const char *string, int times)
{
    for (int i = 0; i < times; i++) assert_true(text_append_string(t, string));
}

/* What is nested, and how deep it may be: `before` n times, `middle`, `after` n times, between head and tail. */
static const struct nesting {
    const char *head, *before, *middle, *after, *tail;
    int deepest;
} nestings[] = {
    {"", "{% if 1 %}", "{{ 1 }}", "{% endif %}", "", 200},
    {"", "{% for x in [1] %}", "{{ x }}", "{% endfor %}", "", 200},
    {"", "{% filter upper %}", "x", "{% endfilter %}", "", 200},
    {"", "{% set x %}", "x", "{% endset %}", "", 200},
    {"", "{% macro m() %}", "x", "{% endmacro %}", "", 200},
    /* An expression is one deep by itself. */
    {"{{ ", "(", "1", ")", " }}", 199},
    {"{{ ", "[", "", "]", " }}", 200},
    {"{{ ", "{1: ", "1", "}", " }}", 199},
    {"{{ ", "not ", "1", "", " }}", 199},
    {"{{ ", "-", "1", "", " }}", 199},
    {"{{ 1", "", "", " + 1", " }}", 199},
    {"{{ 'x'", "", "", "|upper", " }}", 199},
    {"{{ x", "", "", " if 1", " }}", 199},
    {"{% set ", "(", "x", ")", " = 1 %}", 199},
    {"{{ 'x'|map(", "'map', ", "'upper'", "", ")|list }}", 199},
    {"{% macro m(n) %}{{ m(n[1:]) if n }}{% endmacro %}{{ m('", "", "", "x", "') }}", 199},
};

static enum status render_nested(const struct nesting *n, int depth, struct error *err)
{
    struct text t = {0};
    struct jinja_output out = {0};
    append_times(&t, n->head, 1);
    append_times(&t, n->before, depth);
    append_times(&t, n->middle, 1);
    append_times(&t, n->after, depth);
    append_times(&t, n->tail, 1);
    const enum status status = render_in(t.data, t.length, &patient, &out, err);
    jinja_output_free(&out);
    text_free(&t);
    return status;
}

/* Runs on a thread of its own, where cmocka cannot fail: what is wrong goes to *failure. */
static void *check_depths(void *failure)
{
    struct error *err = failure;
    for (size_t i = 0; i < sizeof nestings / sizeof *nestings; i++) {
        const struct nesting *n = &nestings[i];
        if (render_nested(n, n->deepest, err)) {
            error_prefix(err, STATUS_INVALID, n->before[0] ? n->before : n->after);
            return NULL;
        }
        const int too_deep[] = {n->deepest + 1, 20000};
        for (int k = 0; k < 2; k++) {
            if (render_nested(n, too_deep[k], err) == STATUS_INVALID && strstr(err->text, "nested more than 200"))
                continue;
            error_set(err, STATUS_INVALID, "%s%s, %d deep, is not refused for its depth", n->before, n->after,
                      too_deep[k]);
            return NULL;
        }
    }
    err->text[0] = '\0';
    return NULL;
}

/* A stack of 8 MiB is enough, for a sanitizer's frames too. */
static void test_depth(void **state)
{
    (void)state;
    pthread_attr_t attributes;
    pthread_t thread;
    struct error err = {""};
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 8 << 20), 0);
    assert_int_equal(pthread_create(&thread, &attributes, check_depths, &err), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    if (err.text[0]) fail_msg("%s", err.text);
}

/* Calls within calls multiply the depth of a template with that of its calls: both are as deep as they may be. */
static void test_depth_of_calls(void **state)
{
    (void)state;
    struct text t = {0};
    append_times(&t, "{% macro m(n) %}", 1);
    append_times(&t, "{% if 1 %}", 150);
    append_times(&t, "{{ ", 1);
    append_times(&t, "[", 150);
    append_times(&t, "m(n)", 1);
    append_times(&t, "]", 150);
    append_times(&t, " }}", 1);
    append_times(&t, "{% endif %}", 150);
    append_times(&t, "{% endmacro %}{{ m(1) }}", 1);
    assert_refused(t.data, &patient, "nested more than");
    text_free(&t);
    assert_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", &patient, "nested more than 200 levels");
    assert_refused("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", &patient, "nested more than 200 levels");
    assert_refused("{% macro m() %}{{ caller() }}{% call m() %}{% endcall %}{% endmacro %}{% call m() %}{% endcall %}",
                   &patient, "nested more than 200 levels");
}

static void test_time_and_memory(void **state)
{
    (void)state;
    const struct jinja_context short_time = {.seconds = 0.05}, small = {.max_bytes = 1 << 20};
    assert_refused("{% set r = range(1000)|list %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}"
                   "{% endfor %}{% endfor %}",
                   &short_time, "takes longer than 0.05 s");
    assert_refused("{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
                   &patient, "needs more than 64 MiB");
    assert_refused("{{ 'x' * 2000000 }}", &small, "memory");
    assert_refused("{% set x %}{% for i in range(99999) %}0123456789abcdef{% endfor %}{% endset %}", &small,
                   "needs more than 1 MiB");
    assert_renders("{{ ('x' * 2000000)|length }}", &nothing, "2000000");
}

/* Strings, lists and objects that nothing refers to take no memory; a string that is added to is not copied each time.
 */
static void test_dead_values(void **state)
{
    (void)state;
    assert_renders("{% for i in range(300) %}{% set x = ('a' * 1000) * 1000 %}{% endfor %}{{ x is defined }}", &patient,
                   "False");
    assert_renders("{% macro m(n) %}{{ ('a' * 1000) * 1000 }}{% endmacro %}{% for i in range(300) %}"
                   "{% if m(i)|length != 1000000 %}x{% endif %}{% endfor %}",
                   &patient, "");
    assert_renders("{% set ns = namespace() %}{% for i in range(99) %}{% set ns.l = range(99999)|list %}{% endfor %}"
                   "{{ ns.l|length }}",
                   &patient, "99999");
    assert_renders("{% set ns = namespace(l=none) %}{% for i in range(20000) %}{% set ns.l = [ns.l] %}{% endfor %}"
                   "{% for i in range(20000) %}{% set ns.l = ns.l[0] %}{% endfor %}{{ ns.l }}",
                   &patient, "None");
    assert_renders("{% set ns = namespace(l=[]) %}{% for i in range(50) %}{% for k in range(1000) %}"
                   "{% set ns.l = ns.l + [k] %}{% endfor %}{% endfor %}{{ ns.l|length }} {{ ns.l[-1] }}",
                   &patient, "50000 999");
    assert_renders("{% set a = [1] + [2] %}{% set b = a + [3] %}{% set c = a + [4] %}{{ a }}{{ b }}{{ c }}{{ b + b }}",
                   &patient, "[1, 2][1, 2, 3][1, 2, 4][1, 2, 3, 1, 2, 3]");
    static const char *const sums[] = {
        "{% set ns.t = ns.t + '01234567' %}",
        "{% set ns.t = ns.t ~ '0123' ~ '4567' %}",
        "{% set ns.t %}{{ ns.t }}01234567{% endset %}",
    };
    for (size_t i = 0; i < sizeof sums / sizeof *sums;
         i++) { /* 1.6 MB, which would be 160 GB if each sum were a copy */
        struct text t = {0};
        append_times(&t, "{% set ns = namespace(t='') %}{% for i in range(20) %}{% for k in range(10000) %}", 1);
        append_times(&t, sums[i], 1);
        append_times(&t, "{% endfor %}{% endfor %}{{ ns.t|length }} {{ ns.t[-9:] }}", 1);
        assert_renders(t.data, &patient, "1600000 701234567");
        text_free(&t);
    }
    assert_refused("{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
                   &patient, "needs more than 64 MiB");
}

/* The bounds grow with the variables: 20,000 messages and a message of 20 MB are rendered. */
static void test_long_conversations(void **state)
{
    (void)state;
    static const char source[] =
        "{% set ns = namespace(t='') %}{% for m in messages %}{% set c = '<' ~ m.content|trim ~ '>' %}"
        "{% set ns.t = ns.t + c|replace('<', '[') %}{% endfor %}{{ ns.t }}";
    for (int round = 0; round < 2; round++) {
        const size_t count = round ? 1 : 20000, size = round ? 20000000 : 1200;
        struct text content = {0};
        json_t *messages = json_array();
        append_times(&content, "0123456789", size / 10);
        for (size_t i = 0; i < count; i++)
            json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", content.data));
        const struct jinja_variable variable = {"messages", messages, true, not_roles};
        const struct jinja_context context = {.variables = &variable, .num_variables = 1, .seconds = 60};
        struct jinja_output out = {0};
        struct error err = {""};
        if (render_in(source, strlen(source), &context, &out, &err)) fail_msg("%s", err.text);
        assert_int_equal(out.text.length, count * (size + 2));
        for (size_t i = 0; i < count; i++) {
            const size_t at = i * (size + 2);
            assert_memory_equal(out.text.data + at + 1, content.data, size);
            assert_int_equal(out.text.data[at], '[');
            assert_int_equal(out.text.data[at + size + 1], '>');
            assert_int_equal(out.marks.data[at], 0);
            assert_null(memchr(out.marks.data + at + 1, 0, size));
            assert_int_equal(out.marks.data[at + size + 1], 0);
        }
        jinja_output_free(&out);
        json_decref(messages);
        text_free(&content);
    }
}

/* What would take hours if only statements and elements were counted: a value that is small but has 2^100 elements, a
 * search that compares half of the string everywhere, arguments that are compared with each other. */
static void test_slow_operations(void **state)
{
    (void)state;
    static const char doubled[] = "{% set ns = namespace(t=1) %}{% for i in range(100) %}{% set ns.t = (ns.t, ns.t) %}"
                                  "{% endfor %}";
    static const char *const slow[] = {
        "{{ ns.t in {} }}",
        "{{ {}[ns.t] }}",
        "{{ {ns.t: 1} }}",
        "{{ [ns.t]|unique|list }}",
        "{{ ns.t is filter }}",
        "{{ ns.t|tojson }}",
        "{% set h = 'a' * 1000000 %}{{ (h * 2).rfind(h ~ 'b') }}",
        "{% set h = 'a' * 1000000 %}{{ (h * 2).rsplit(h ~ 'b') }}",
        "{% set h = 'a' * 1000000 %}{{ (h * 2).rpartition(h ~ 'b') }}",
        "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{{ s.isalpha() }}{% endfor %}",
        "{% macro m() %}{{ kwargs }}{% endmacro %}{% set ns.d = {} %}{% for i in range(300) %}"
        "{% set ns.d = dict(ns.d, **{'k' ~ i: i}) %}{% endfor %}{% for i in range(9999) %}{{ m(**ns.d) }}{% endfor %}",
    };
    const struct jinja_context short_time = {.seconds = 0.05};
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        struct text t = {0};
        append_times(&t, doubled, 1);
        append_times(&t, slow[i], 1);
        assert_refused(t.data, &short_time, "takes longer than 0.05 s");
        text_free(&t);
    }
}

/* What 64 bits do not hold is an error, or cut where it is no part of the result. */
static void test_large_integers(void **state)
{
    (void)state;
    assert_refused("{{ 9223372036854775807|round(-1) }}", &nothing, "too large for 64 bits");
    assert_refused("{{ 9223372036854775807|round(-19) }}", &nothing, "too large for 64 bits");
    assert_renders("{{ 8600000000000000000|round(-18) }} {{ -9223372036854775807|round(-20) }}", &nothing,
                   "9000000000000000000 0");
    assert_refused("{{ 'x'|truncate(-9223372036854775807 - 1) }}", &nothing, "expected length >= 3");
    assert_refused("{{ '%*d' % (-9223372036854775807 - 1, 5) }}", &nothing, "width or precision");
    assert_renders("{{ '%*d|%*d' % (-3, 5, 3, 6) }}", &nothing, "5  |  6");
    assert_renders("{{ range(5, 9223372036854775807, 9223372036854775806)[::]|list }}", &nothing, "[5]");
    assert_renders("{{ range(0, 10, 3)[1::9223372036854775807]|list }}", &nothing, "[3]");
}

/* --- errors --- */

static void test_places(void **state)
{
    (void)state;
    static const struct {
        const char *source, *words;
    } cases[] = {
        {"a\n {{ 1 + }}", "line 2, column 9: expected an expression, found }}"},
        {"é {{ x.y }}", "line 1, column 7: 'x' is undefined"},
        {"{{ 1 }}\n\n{{ 'a' + 1 }}", "line 3, column 8: "},
        {"{% if 1 %}\n{% for x in [1] %}{% endif %}", "line 2, column 22: unexpected tag {% endif %}"},
        {"x\n{% if 1 %}\ny", "line 2, column 4: {% if %} has no {% endif %}"},
        {"{% for x in [] %}{% else %}", "line 1, column 4: {% for %} has no {% endfor %}"},
        {"{% break %}", "line 1, column 4: {% break %} stands outside of a loop"},
        {"\n{# ", "line 2, column 1: this comment has no end"},
        {"{% raw %} {{ ", "{% raw %} has no {% endraw %}"},
        {"{{ 'abc }}", "line 1, column 4: this string has no closing quote"},
        {"{{ (1] }}", "line 1, column 6: unexpected ']', expected ')'"},
        {"{{ a $ b }}", "line 1, column 6: unexpected character '$'"},
        {"{{ 9223372036854775808 }}", "line 1, column 4: the integer 9223372036854775808 is too large"},
        {"\r\n{{ 1|nope }}", "line 2, column 6: there is no filter \"nope\""},
        {"{{ 1 is nope }}", "line 1, column 6: there is no test \"nope\""},
        {"{% if 1 %}{{ 1|nope }}{% endif %}", "line 1, column 16: there is no filter \"nope\""},
        {"{% include 'a' %}", "line 1, column 4: {% include %} is not supported"},
        {"{% import 'a' as b %}", "{% import %} is not supported"},
        {"{% from 'a' import b %}", "{% from %} is not supported"},
        {"{% extends 'a' %}", "{% extends %} is not supported"},
        {"{% block a %}{% endblock %}", "{% block %} is not supported"},
        {"{% autoescape true %}{% endautoescape %}", "line 1, column 15: only {% autoescape false %} is supported"},
        {"{% do [].append(1) %}", "line 1, column 4: unexpected tag {% do %}"},
        {"{{ 'a'.find() }}", "find() takes at least 1 argument, found 0"},
        {"{{ 'a'.find(1, 2, 3, 4) }}", "find() takes at most 3 arguments, found 4"},
        {"{{ 'a'.find(sub='a') }}", "find() takes no keyword arguments"},
        {"{{ 'a'|replace('b') }}", "replace() is missing its argument 'new'"},
        {"{{ 'a'|replace('b', old='c') }}", "replace() got multiple values for argument 'old'"},
        {"{{ 'a'|replace('b', 'c', most=1) }}", "replace() got an unexpected keyword argument 'most'"},
        {"{{ [1]|count(1) }}", "length() takes at most 0 arguments, found 1"},
        {"{{ 1 is odd(2) }}", "the test() takes at most 0 arguments, found 1"},
        {"{{ 1 is divisibleby }}", "divisibleby() is missing its argument 'num'"},
        {"{{ ''.isprintable(x=1) }}", "isprintable() takes no keyword arguments"},
        {"{% set x.y = 1 %}", "line 1, column 9: cannot assign attribute on non-namespace object"},
        {"{% set n = namespace() %}{% set n, n.x = (1, 2) %}", "line 1, column 37: cannot assign attribute"},
        {"{% for a, b in [[1]] %}{% endfor %}", "not enough values to unpack (expected 2, got 1)"},
        {"{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}", "macro 'm' takes not more than 1 argument(s)"},
        {"{% macro m(a) %}{{ 1/0 }}{% endmacro %}\n{{ m(1) }}", "line 1, column 21: "},
        {"{{ 'a' if 0 }}{{ ('a' if 0).x }}", "the inline if-expression on line 1 evaluated to false"},
        {" {{ raise_exception('Roles must alternate') }}", "line 1, column 20: Roles must alternate"},
        {"{{ raise_exception('long ' * 600 ~ 'to the end') }}", "long to the end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_refused(cases[i].source, &nothing, cases[i].words);
    struct error err = {""};
    struct jinja_output out = {0};
    assert_int_equal(render_in("\n\xc3\xa9\xc3(", 5, &nothing, &out, &err), STATUS_INVALID);
    assert_string_equal(err.text, "line 2, column 2: the template is not valid UTF-8");
}

/* --- what a template loops over --- */

static bool loops_over_content(const char *source)
{
    struct jinja_template *t;
    struct error err = {""};
    if (jinja_parse(source, strlen(source), &t, &err)) fail_msg("%s: %s", source, err.text);
    const bool found = jinja_template_loops_over(t, "content");
    jinja_template_free(t);
    return found;
}

static void test_loops_over(void **state)
{
    (void)state;
    static const char *const yes[] = {
        "{% for p in content %}{% endfor %}",
        "{% for p in m.content %}{% endfor %}",
        "{% for p in m['content'] %}{% endfor %}",
        "{% for p in m['content'][1:] | list | reverse %}{% endfor %}",
        "{% for p in m.content or [] %}{% endfor %}",
        "{% for p in (m.content if m.content is not string else [m.content]) %}{% endfor %}",
        "{% macro f(m) %}{% if m %}{% for p in m.content %}{% endfor %}{% endif %}{% endmacro %}",
        "{% for m in messages %}{% else %}{% for p in m.content %}{% endfor %}{% endfor %}",
        "{% if a %}{% elif b %}{% for p in m.content %}{% endfor %}{% endif %}",
        "{% set x %}{% filter upper %}{% for p in m.content %}{% endfor %}{% endfilter %}{% endset %}",
        "{% call f() %}{% generation %}{% for p in m.content %}{% endfor %}{% endgeneration %}{% endcall %}",
    };
    static const char *const no[] = {
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for p in content.parts %}{% endfor %}",
        "{% for p in parts[content] %}{% endfor %}",
        "{% for content in messages %}{% endfor %}",
        "{% for p in contents %}{% endfor %}",
        "{% for p in m.x if m.content %}{% endfor %}",
        "{% for p in ([] if m.content else [1]) %}{% endfor %}",
        "{# {% for p in content %}{% endfor %} #}{% raw %}{% for p in content %}{% endraw %}",
    };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!loops_over_content(yes[i])) fail_msg("no loop over content is found in: %s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (loops_over_content(no[i])) fail_msg("a loop over content is found in: %s", no[i]);
    jinja_template_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),         cmocka_unit_test(test_big_integers),
        cmocka_unit_test(test_marks),          cmocka_unit_test(test_depth),
        cmocka_unit_test(test_depth_of_calls), cmocka_unit_test(test_time_and_memory),
        cmocka_unit_test(test_dead_values),    cmocka_unit_test(test_long_conversations),
        cmocka_unit_test(test_places),         cmocka_unit_test(test_loops_over),
        cmocka_unit_test(test_large_integers), cmocka_unit_test(test_slow_operations),
    };
    return cmocka_run_group_tests_name("jinja", tests, NULL, NULL);
}
