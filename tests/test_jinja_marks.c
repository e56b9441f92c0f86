/* Marks: whatever a template does with a marked string, the bytes that come from it stay marked, and no others become
 * so. Each filter, each method of strings and each other way to make text is tried.
 *
 * The message is made of characters that no template here has: q, w, <, |, > and é. Of the output, these in either case
 * must be marked, and what only the templates have (z, *, ~) must not. A character that is neither, such as a space or
 * quote, may be made by the interpreter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tokenizer/jinja/library.h"

static const char message[] = "<|Qw \xc3\xa9|>\tqW qq\r\nw  w.";

/* m: the message; d: {message: message}; l: [{"k": message}, {"k": message + message}] */
static const char *const templates[] = {
    /* printing and operators */
    "{{ m }}z{{ m }}{{ d }}{{ l }}",
    "{{ 'z' + m + '*' ~ m ~ 1 }}{{ m * 3 }}{{ 2 * m }}{{ [m] * 2 + [m] }}",
    "{{ m[0] }}{{ m[-3:] }}{{ m[::-1] }}{{ m[2:9:2] }}{{ ('z' ~ m ~ 'z')[::-2] }}",
    "{{ m if m else 'z' }}{{ m or 'z' }}{{ 'z' and m }}{{ (m, m) }}{{ {m: m}[m] }}{{ d[m] }}{{ l[0].k }}",
    "{{ '%s*%r*%a*%9s*%-40s*%.3s*%c' % (m, m, m, m[1], m, m, m[1]) }}{{ 'z%(k)s' % l[0] }}{{ m % () }}",
    "{% for c in m %}{{ c }}z{% endfor %}{% for k, v in d.items() %}{{ k }}z{{ v }}{% endfor %}",
    "{% for x in [m, m ~ 'z'] %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle(m, 'z') }}{% endfor %}",
    "{% for x in [[m]] recursive %}{{ loop(x) if x is not string else x }}z{% endfor %}",
    "{% set x %}z{{ m }}{% endset %}{{ x }}{% set y | upper %}z{{ m }}{% endset %}{{ y }}",
    "{% set ns = namespace(a=m) %}{% set ns.b = ns.a ~ 'z' %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}",
    "{% macro f(a, b=m) %}z{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(m) }}{{ f(m, m, m, k=m, **d) }}",
    "{% macro f() %}z{{ caller(m) }}{% endmacro %}{% call(x) f() %}{{ x }}*{{ m }}{% endcall %}",
    "{% filter replace('z', '*') %}z{{ m }}{% endfilter %}{% generation %}z{{ m }}{% endgeneration %}",
    "{% with x = m %}{{ x }}{% endwith %}{% set a, b = [m, 'z'] %}{{ a }}{{ b }}{% set c, e = m[:2] %}{{ c }}{{ e }}",
    "{{ cycler(m, 'z').next() }}{{ cycler(m).current }}{{ cycler(m).items }}{% set j = joiner(m) %}{{ j() }}{{ j() }}",
    "{{ dict(d, k=m) }}{{ dict([(m, m)]) }}{{ strftime_now(m) }}{{ [m].copy() }}{{ (m,).index(m) }}{{ d.get(m) }}",
    "{{ d.keys() }}{{ d.values() }}{{ d.items()|list }}{{ d.copy() }}{{ d.get(1, m) }}",
    /* methods */
    "{{ m.capitalize() }}{{ m.casefold() }}{{ m.center(40, '*') }}{{ 'z'.center(40, m[1]) }}{{ m.center(40) }}",
    "{{ m.expandtabs() }}{{ m.expandtabs(3) }}{{ m.count('z') }}{{ m.endswith('z') }}{{ m.find('z') }}",
    "{{ '{}{:*>40}{!r}{!a}{:.2}{k}'.format(m, m, m, m, m, k=m) }}{{ m.format() }}{{ ('{:' ~ m[1] ~ '>9}').format(1) }}",
    "{{ 'z{k}{k!r}'.format_map(l[0]) }}{{ '{0[k]}'.format(l[0]) }}{{ m.index('.') }}{{ m.isalnum() }}{{ m.isalpha() }}",
    "{{ m.isascii() }}{{ m.isdecimal() }}{{ m.isdigit() }}{{ m.isidentifier() }}{{ m.islower() }}{{ m.isnumeric() }}",
    "{{ m.isprintable() }}{{ m.isspace() }}{{ m.istitle() }}{{ m.isupper() }}{{ m.join(['z', '*', m]) }}",
    "{{ 'z'.join([m, m]) }}{{ 'zz'.join(m) }}{{ m.ljust(40, '*') }}{{ 'z'.ljust(9, m[1]) }}{{ m.lower() }}{{ "
    "m.lstrip() }}",
    "{{ m.partition(' ') }}{{ m.partition('z') }}{{ 'z*'.partition('*') }}{{ m.removeprefix(m[:1]) }}",
    "{{ m.removesuffix('.') }}{{ m.replace(m[0], 'z') }}{{ 'z*z'.replace('*', m) }}{{ m.replace('', '*') }}",
    "{{ 'z*'.replace('', m) }}{{ m.replace('z', '*') }}{{ m.rfind('.') }}{{ m.rindex('.') }}{{ m.rjust(40, '*') }}",
    "{{ m.rpartition(' ') }}{{ m.rsplit() }}{{ m.rsplit(' ', 1) }}{{ m.rstrip() }}{{ m.rstrip('.') }}{{ m.split() }}",
    "{{ m.split(' ') }}{{ m.split(None, 1) }}{{ m.splitlines() }}{{ m.splitlines(true) }}{{ m.startswith('z') }}",
    "{{ m.strip() }}{{ m.strip('z') }}{{ m.swapcase() }}{{ m.title() }}{{ m.upper() }}{{ m.zfill(40) }}",
    /* filters */
    "{{ 1|abs }}{{ l|attr('k') }}{{ [m, m, m]|batch(2, 'z')|list }}{{ ['z']|batch(2, m)|list }}{{ m|capitalize }}",
    "{{ m|center(60) }}{{ m|count }}{{ m|d('z') }}{{ nothing|d(m) }}{{ ''|default(m, true) }}{{ d|dictsort }}",
    "{{ m|e }}{{ m|escape|e }}{{ '1'|filesizeformat }}{{ [m]|first }}{{ m|first }}{{ m|float }}{{ m|forceescape }}",
    "{{ 'z%s%%'|format(m) }}{{ 'z%(k)s'|format(k=m) }}{{ l|groupby('k') }}{{ l|groupby('x', default=m) }}",
    "{{ m|indent }}{{ m|indent(2, true, true) }}{{ 'z\n*'|indent(m) }}{{ m|int }}{{ m|int(m) }}{{ d|items|list }}",
    "{{ [m, 'z']|join('*') }}{{ ['z', 'z']|join(m) }}{{ l|join('*', 'k') }}{{ m|join }}{{ [m]|last }}{{ m|last }}",
    "{{ m|length }}{{ m|list }}{{ m|lower }}{{ [m]|map('upper')|list }}{{ l|map(attribute='k')|list }}",
    "{{ l|map(attribute='x', default=m)|list }}{{ [m, 'z']|max }}{{ [m, 'z']|min }}{{ l|max(attribute='k') }}",
    "{{ d|pprint }}{{ [m * 9, 'z' * 90]|pprint }}{{ (m * 9)|pprint }}{{ [m]|reject('none')|list }}",
    "{{ l|rejectattr('x')|list }}{{ m|replace('.', 'z') }}{{ 'z'|replace('z', m) }}{{ m|reverse }}{{ [m]|reverse|list "
    "}}",
    "{{ 1|round }}{{ m|safe }}{{ m|safe + 'z' }}{{ 'z'|safe + m }}{{ m|safe ~ m }}{{ m|safe * 2 }}{{ (m|safe)[1:] }}",
    "{{ [m|safe] }}{{ 'z%s'|safe % m }}{{ [m]|select|list }}{{ l|selectattr('k')|list }}{{ [m, m]|slice(3, 'z')|list "
    "}}",
    "{{ [m, 'z', m]|sort }}{{ l|sort(attribute='k') }}{{ m|sort }}{{ m|string }}{{ [m]|string }}{{ m|striptags }}",
    "{{ ('z&amp; ' ~ m)|striptags }}{{ [[m], ['z']]|sum(start=[]) }}{{ m|title }}{{ d|tojson }}{{ l|tojson(indent=2) "
    "}}",
    "{{ m|tojson(ensure_ascii=true) }}{{ [1, 2]|tojson(separators=(m, 'z')) }}{{ [1]|tojson(indent=m) }}",
    "{{ d|tojson(sort_keys=true) }}{{ m|trim }}{{ m|trim('z') }}{{ m|truncate(9, true, 'z', 0) }}{{ m|truncate(9) }}",
    "{{ ('z ' * 20)|truncate(25, true, m) }}{{ [m, m, 'z']|unique|list }}{{ m|upper }}{{ m|urlencode }}{{ d|urlencode "
    "}}",
    "{{ [(m, 'z')]|urlencode }}{{ m|wordcount }}{{ (m * 9)|wordwrap(9) }}{{ m|wordwrap(2, true, 'z') }}",
    "{{ ('z ' * 9)|wordwrap(3, true, m) }}{{ {'z': m}|xmlattr }}{{ {m[3]: 'z'}|xmlattr }}",
};

static void render(const char *source, bool marked, struct jinja_output *out)
{
    json_t *m = json_string(message), *twice = json_sprintf("%s%s", message, message);
    json_t *d = json_object(), *l = json_pack("[{s:O},{s:o}]", "k", m, "k", twice);
    json_object_set(d, message, m);
    const struct jinja_variable variables[] = {{"m", m, marked, NULL}, {"d", d, marked, NULL}, {"l", l, marked, NULL}};
    const struct jinja_context context = {.variables = variables, .num_variables = 3, .seconds = 60};
    struct jinja_template *t;
    struct error err = {""};
    if (jinja_parse(source, strlen(source), &t, &err) || jinja_render(t, &context, out, &err))
        fail_msg("%s: %s", source, err.text);
    jinja_template_free(t);
    json_decref(m);
    json_decref(d);
    json_decref(l);
}

static bool is_message(unsigned char c)
{
    return strchr("qQwW<|>", c) || c == 0xC3 || c == 0xA9 || c == 0x89;
}

static void test_every_way(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        struct jinja_output out = {0};
        render(templates[i], true, &out);
        for (size_t at = 0; at < out.text.length; at++) {
            const unsigned char c = (unsigned char)out.text.data[at];
            if (c && is_message(c) && !out.marks.data[at])
                fail_msg("%s: byte %zu lost its mark: %s", templates[i], at, out.text.data);
            if (c && strchr("zZ*~", c) && out.marks.data[at])
                fail_msg("%s: byte %zu is the template's, but marked: %s", templates[i], at, out.text.data);
        }
        jinja_output_free(&out);
    }
}

static void test_nothing_marked(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        struct jinja_output out = {0};
        render(templates[i], false, &out);
        if (memchr(out.marks.data, 1, out.marks.length)) fail_msg("%s: something is marked", templates[i]);
        jinja_output_free(&out);
    }
}

/* Whether a template has prefix, name, and then no letter. */
static bool is_tried(const char *prefix, const char *name)
{
    char called[64];
    snprintf(called, sizeof called, "%s%s", prefix, name);
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        const char *at = templates[i];
        while ((at = strstr(at, called)) != NULL) {
            at += strlen(called);
            if (!(*at >= 'a' && *at <= 'z') && *at != '_') return true;
        }
    }
    return false;
}

/* A filter or method that is added is added here, too. */
static void test_complete(void **state)
{
    (void)state;
    for (const struct jinja_function *const *table = jinja_str_methods; *table; table++)
        for (const struct jinja_function *f = *table; f->name; f++)
            if (!is_tried(".", f->name)) fail_msg("no template tries .%s()", f->name);
    for (const struct jinja_function *const *table = jinja_filters; *table; table++)
        for (const struct jinja_function *f = *table; f->name; f++) {
            const bool refused = strcmp(f->name, "random") == 0 || strcmp(f->name, "urlize") == 0;
            if (!refused && !is_tried("|", f->name)) fail_msg("no template tries |%s", f->name);
        }
}

/* What stands for text of a message has its mark, too: an escape, a line end, the padding of its format. */
static void test_what_stands_for_it(void **state)
{
    (void)state;
    static const struct {
        const char *template, *text, *marks;
    } cases[] = {
        {"{{ f % 5 }}", "%    5\n", "MMMMM-M"}, /* f is "%%%5d\n" */
        {"{{ '%%%5d' % 5 }}", "%    5", "------"},
        {"{{ ('{:' ~ w ~ '}').format(5) }}", "  5", "MM-"}, /* w is "3" */
        {"{{ '{:3}'.format(5) }}", "  5", "---"},
        {"{{ n|wordwrap(3) }}", "q\nw w\nq", "MMMMM-M"}, /* n is "q\nw w q" */
        {"{{ n|indent(1) }}", "q\n w w q", "MM-MMMMM"},
        {"{{ n|tojson }}", "\"q\\nw w q\"", "-MMMMMMMM-"},
        {"{{ n|urlencode }}", "q%0Aw%20w%20q", "MMMMMMMMMMMMM"},
        {"{{ '<'|e ~ b|e }}", "&lt;&lt;", "----MMMM"}, /* b is "<" */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *f = json_string("%%%5d\n"), *w = json_string("3"), *n = json_string("q\nw w q"), *b = json_string("<");
        const struct jinja_variable variables[] = {
            {"f", f, true, NULL}, {"w", w, true, NULL}, {"n", n, true, NULL}, {"b", b, true, NULL}};
        const struct jinja_context context = {.variables = variables, .num_variables = 4};
        struct jinja_output out = {0};
        struct jinja_template *t;
        struct error err = {""};
        assert_int_equal(jinja_parse(cases[i].template, strlen(cases[i].template), &t, &err), STATUS_OK);
        if (jinja_render(t, &context, &out, &err)) fail_msg("%s: %s", cases[i].template, err.text);
        assert_string_equal(out.text.data, cases[i].text);
        for (size_t at = 0; at < out.text.length; at++)
            if (out.marks.data[at] != (cases[i].marks[at] == 'M'))
                fail_msg("%s: the mark of byte %zu is wrong", cases[i].template, at);
        jinja_output_free(&out);
        jinja_template_free(t);
        json_decref(f);
        json_decref(w);
        json_decref(n);
        json_decref(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_way),
        cmocka_unit_test(test_nothing_marked),
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_what_stands_for_it),
    };
    return cmocka_run_group_tests_name("jinja_marks", tests, NULL, NULL);
}
