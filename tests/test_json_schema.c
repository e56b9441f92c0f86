/* JSON Schema to grammars (tokenizer/grammar/json_schema.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_parse.h"
#include "tests/support/must.h"
#include "tests/support/plain_grammar.h"
#include "tokenizer/grammar/json_schema.h"

static enum status try_compile(const char *schema, struct json_schema_options options, struct grammar **out,
                               struct error *err)
{
    struct grammar_builder *b = grammar_builder_create();
    const int32_t root = grammar_rule(b, "root");
    grammar_node node;
    json_t *json;
    struct error parse = {""};
    *out = NULL;
    must(json_value_parse(schema, strlen(schema), JSON_DECODE_ANY, NULL, &json, &parse), &parse);
    enum status status = json_schema_node(json, &options, b, &node, err);
    grammar_define(b, root, node);
    if (!status) status = grammar_build(b, root, out, err);
    grammar_builder_free(b);
    json_decref(json);
    return status;
}

static struct grammar *compile(const char *schema, struct json_schema_options options)
{
    struct grammar *g;
    struct error err = {""};
    if (try_compile(schema, options, &g, &err)) fail_msg("%s: %s", schema, err.text);
    return g;
}

/* A schema, texts of its grammar, and others; each list ends with NULL. */
struct example {
    const char *schema;
    const char *yes[8], *no[8];
};

static void check(const struct example *examples, size_t count, struct json_schema_options options)
{
    for (size_t i = 0; i < count; i++) {
        const struct example *e = &examples[i];
        struct grammar *g = compile(e->schema, options);
        for (int k = 0; k < 8 && e->yes[k]; k++)
            if (!plain_grammar_matches(g, e->yes[k], strlen(e->yes[k]))) fail_msg("%s has no %s", e->schema, e->yes[k]);
        for (int k = 0; k < 8 && e->no[k]; k++)
            if (plain_grammar_matches(g, e->no[k], strlen(e->no[k]))) fail_msg("%s has %s", e->schema, e->no[k]);
        grammar_free(g);
    }
}
#define CHECK(examples) check(examples, sizeof examples / sizeof *examples, (struct json_schema_options){false})

static void test_types(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"true", {"null", "[]", "{\"a\": [1, {}]}", "\"x\"", "-1.5e3", "true"}, {"", "nul", "{,}", "[1,2]", "01"}},
        {"{}", {"0", "[[], [0]]"}, {"[", "1 ", "'a'"}},
        {"{\"type\": \"null\"}", {"null"}, {"true", "\"null\""}},
        {"{\"type\": \"boolean\"}", {"true", "false"}, {"null", "0", "True"}},
        {"{\"type\": \"integer\"}", {"0", "-7", "120"}, {"1.0", "-0", "007", "1e3", "+1", "\"1\"", "-"}},
        {"{\"type\": \"number\"}", {"0", "-0.5", "1e3", "1.25E-07", "1e+16"}, {".5", "1.", "01", "1e", "NaN", "- 1"}},
        {"{\"type\": \"string\"}",
         {"\"\"", "\"a b\"", "\"\\n\\u0001\\\"\\\\\"", "\"\xc3\xa9\xf0\x9f\x98\x80\""},
         {"a", "\"a", "\"\n\"", "\"\\u0041\"", "\"\\/\"", "\"\xff\""}},
        {"{\"type\": \"array\"}", {"[]", "[1, \"a\", null]"}, {"{}", "[1 ]", "[1,]"}},
        {"{\"type\": \"object\"}", {"{}", "{\"a\": 1, \"b\": {}}"}, {"[]", "{\"a\":1}", "{a: 1}"}},
        {"{\"type\": [\"integer\", \"null\"]}", {"1", "null"}, {"1.5", "\"\"", "true"}},
        {"{\"type\": [\"integer\", \"number\"]}", {"1", "1.5"}, {"null"}},
        {"{\"title\": \"t\", \"description\": \"d\", \"default\": 0, \"examples\": [], \"$comment\": \"c\", \"x-y\": 1,"
         "\"deprecated\": true, \"readOnly\": true, \"writeOnly\": false, \"$schema\": \"s\", \"$id\": \"i\"}",
         {"1", "{}"},
         {""}},
    };
    CHECK(examples);
}

static void test_values(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{\"enum\": [1, \"a\", null, [1, {\"b\": 2.5}], true]}",
         {"1", "\"a\"", "null", "[1, {\"b\": 2.5}]", "true"},
         {"2", "a", "false", "[1,{\"b\":2.5}]"}},
        {"{\"const\": \"q\\\"\\n\\u001f\xc3\xa9\"}", {"\"q\\\"\\n\\u001f\xc3\xa9\""}, {"\"q\"", "\"\""}},
        {"{\"const\": {}}", {"{}"}, {"{\"a\": 1}"}},
        {"{\"enum\": [1, 2.5, \"x\", 30], \"type\": \"number\", \"maximum\": 10}", {"1", "2.5"}, {"30", "\"x\"", "5"}},
        {"{\"enum\": [\"ab\", \"abc\", \"b\"], \"pattern\": \"^a\", \"maxLength\": 2}",
         {"\"ab\""},
         {"\"abc\"", "\"b\""}},
        {"{\"enum\": [[1], [1, 2], [\"a\"]], \"items\": {\"type\": \"integer\"}, \"minItems\": 2}",
         {"[1, 2]"},
         {"[1]", "[\"a\"]"}},
        {"{\"enum\": [{\"a\": 1}, {\"a\": \"x\"}, {}], \"properties\": {\"a\": {\"type\": \"integer\"}},"
         "\"required\": [\"a\"]}",
         {"{\"a\": 1}"},
         {"{}", "{\"a\": \"x\"}"}},
        {"{\"allOf\": [{\"enum\": [1, 2, 3]}, {\"enum\": [2.0, 3, 4]}, {\"const\": 2}]}", {"2"}, {"2.0", "1", "3"}},
        {"{\"enum\": [1, 2, 3], \"anyOf\": [{\"minimum\": 3}, {\"maximum\": 1}]}", {"1", "3"}, {"2"}},
        {"{\"enum\": [1, 2, 3], \"oneOf\": [{\"minimum\": 2}, {\"maximum\": 2}]}", {"1", "3"}, {"2"}},
        {"{\"enum\": [1e300, 1e-7, 12345678901234567890, 0.1, -0.0, 100.0]}",
         {"1e+300", "1e-07", "12345678901234567890", "0.1", "-0.0", "100.0"},
         {"100", "0", "1e300"}},
    };
    CHECK(examples);
}

static void test_strings(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
         {"\"ab\"", "\"\xf0\x9f\x98\x80\\n\"", "\"abc\""},
         {"\"a\"", "\"abcd\"", "\"\xf0\x9f\x98\x80\""}},
        {"{\"type\": \"string\", \"maxLength\": 0}", {"\"\""}, {"\"a\""}},
        {"{\"type\": \"string\", \"minLength\": 1.0}", {"\"a\""}, {"\"\""}},
        {"{\"type\": \"string\", \"pattern\": \"^[a-z]+$\"}", {"\"a\"", "\"xyz\""}, {"\"\"", "\"A\"", "\"a1\""}},
        {"{\"type\": \"string\", \"pattern\": \"\\\\d\\\\d\"}", {"\"12\"", "\"a42\\n\""}, {"\"1\"", "\"a\""}},
        {"{\"type\": \"string\", \"pattern\": \"^\\\"\\\\n$\"}", {"\"\\\"\\n\""}, {"\"\"\n\"", "\"\\n\""}},
        {"{\"type\": \"string\", \"pattern\": \"^a*$\", \"minLength\": 2, \"maxLength\": 4}",
         {"\"aa\"", "\"aaaa\""},
         {"\"a\"", "\"aaaaa\"", "\"ab\""}},
        {"{\"type\": \"string\", \"allOf\": [{\"pattern\": \"^a\"}, {\"pattern\": \"b$\"}, {\"minLength\": 3}]}",
         {"\"axb\"", "\"aab\""},
         {"\"ab\"", "\"abc\"", "\"bab\""}},
        {"{\"minLength\": 2}", {"\"ab\"", "1", "[]", "null"}, {"\"a\""}},
    };
    CHECK(examples);
}

static void test_formats(void **state)
{
    (void)state;
    static const struct {
        const char *format, *yes[8], *no[8];
    } formats[] = {
        {"date",
         {"2024-02-29", "1999-12-31", "2000-02-29", "0001-01-01", "2023-04-30"},
         {"2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "24-01-01", "0000-01-01", "2024-00-10"}},
        {"time",
         {"23:59:59Z", "00:00:00.123+05:30", "12:00:00-23:59"},
         {"24:00:00Z", "12:00:00", "12:60:00Z", "12:00:00+24:00", "1:00:00Z"}},
        {"date-time", {"2024-02-29T12:00:00Z", "1985-04-12T23:20:50.52-08:00"}, {"2024-02-30T12:00:00Z", "2024-02-29"}},
        {"duration",
         {"P1Y2M3DT4H5M6S", "P3W", "PT0S", "P1D", "PT1H30M"},
         {"P", "PT", "1D", "P1Y3D", "P1W2D", "PT1H3S", "P1S"}},
        {"uuid",
         {"123e4567-e89b-12d3-A456-426614174000"},
         {"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g"}},
        {"email", {"a.b+c@example.org", "x@y"}, {"a", "@b", "a@", "a..b@c.de", ".a@b.c", "a b@c.de"}},
        {"hostname", {"a", "example.org", "x-1.y.z", "a.b.c.d.e.f.g.h"}, {"", "-a", "a-", "a..b", "a_b", ".a"}},
        {"ipv4", {"0.0.0.0", "192.168.1.255"}, {"256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5"}},
        {"ipv6",
         {"::", "::1", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "::ffff:192.0.2.1", "1::", "1:2:3:4:5:6:7::"},
         {"1:2:3:4:5:6:7", ":::", "1::2::3", "12345::", "::1.2.3", "1:2:3:4:5:6:7:8:9"}},
        {"uri",
         {"http://a.b:80/c?d=e#f", "mailto:a@b.c", "urn:x:y", "http://[::1]/", "a:", "file:///x%20y"},
         {"", "a", "//a/b", "http://a b", "http://a/%zz", "1:a", "http://[::1"}},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char schema[100], text[200];
        snprintf(schema, sizeof schema, "{\"type\": \"string\", \"format\": \"%s\"}", formats[i].format);
        struct grammar *g = compile(schema, (struct json_schema_options){false});
        for (int k = 0; k < 8 && formats[i].yes[k]; k++) {
            snprintf(text, sizeof text, "\"%s\"", formats[i].yes[k]);
            if (!plain_grammar_matches(g, text, strlen(text))) fail_msg("%s has no %s", formats[i].format, text);
        }
        for (int k = 0; k < 8 && formats[i].no[k]; k++) {
            snprintf(text, sizeof text, "\"%s\"", formats[i].no[k]);
            if (plain_grammar_matches(g, text, strlen(text))) fail_msg("%s has %s", formats[i].format, text);
        }
        grammar_free(g);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{\"type\": \"integer\", \"minimum\": -12, \"maximum\": 105}",
         {"-12", "-9", "0", "99", "100", "105"},
         {"-13", "-20", "-100", "106", "110", "1000", "99.5"}},
        {"{\"type\": \"integer\", \"exclusiveMinimum\": 0, \"exclusiveMaximum\": 10}",
         {"1", "9"},
         {"0", "10", "-1", "11"}},
        {"{\"type\": \"integer\", \"minimum\": 1.5, \"maximum\": 3.5}", {"2", "3"}, {"1", "4"}},
        {"{\"type\": \"integer\", \"exclusiveMinimum\": -1.5, \"exclusiveMaximum\": 1.5}",
         {"-1", "0", "1"},
         {"-2", "2"}},
        {"{\"type\": \"integer\", \"minimum\": 18446744073709551615}",
         {"18446744073709551615", "18446744073709551616", "20000000000000000000"},
         {"18446744073709551614", "9"}},
        {"{\"type\": \"integer\", \"exclusiveMinimum\": 99}", {"100", "1000"}, {"99", "9", "-100"}},
        {"{\"type\": \"integer\", \"maximum\": -100}", {"-100", "-101", "-1000"}, {"-99", "0", "100"}},
        {"{\"type\": \"number\", \"minimum\": 0.5, \"maximum\": 12.25}",
         {"0.5", "0.50", "1", "9.999", "12.25", "12.250", "12", "5.0"},
         {"0.4", "0", "12.26", "12.2500001", "13", "0.49999", "-1", "1e0"}},
        {"{\"type\": \"number\", \"exclusiveMinimum\": 0, \"exclusiveMaximum\": 1}",
         {"0.5", "0.1", "0.001", "0.9999"},
         {"0", "1", "0.0", "1.0", "0.00", "-0.5"}},
        {"{\"type\": \"number\", \"minimum\": -1.5}",
         {"-1.5", "-1", "-0.0", "0", "7", "-1.25"},
         {"-1.51", "-2", "-10"}},
        {"{\"type\": \"number\", \"maximum\": 0}", {"0", "-0.0", "-5", "0.0"}, {"0.1", "1"}},
        {"{\"type\": \"number\", \"minimum\": 0}", {"0", "-0.0", "0.5"}, {"-0.1", "-1"}},
        {"{\"type\": \"integer\", \"multipleOf\": 7}", {"0", "7", "-14", "49", "700"}, {"1", "8", "-13"}},
        {"{\"type\": \"integer\", \"multipleOf\": 4, \"minimum\": 5, \"maximum\": 20}",
         {"8", "12", "20"},
         {"4", "5", "24"}},
        {"{\"type\": \"number\", \"multipleOf\": 0.25}",
         {"0", "0.25", "-1.5", "3.75", "2.0", "7", "1234567890123.50"},
         {"0.1", "0.3", "1.255", "2.51", "12345678901234.25"}},
        {"{\"type\": \"number\", \"multipleOf\": 0.01}", {"19.99", "1", "0.5"}, {"19.999", "0.001"}},
        {"{\"type\": \"number\", \"multipleOf\": 1.0}", {"3", "3.0"}, {"3.5"}},
        {"{\"allOf\": [{\"type\": \"integer\", \"multipleOf\": 2}, {\"multipleOf\": 3}]}",
         {"6", "0", "-12"},
         {"2", "3", "4"}},
        {"{\"type\": \"integer\", \"format\": \"uint8\"}", {"0", "255"}, {"-1", "256"}},
        {"{\"type\": \"integer\", \"format\": \"int64\"}",
         {"-9223372036854775808", "9223372036854775807"},
         {"9223372036854775808"}},
        {"{\"minimum\": 3}", {"3", "\"a\"", "null"}, {"2"}},
    };
    CHECK(examples);
}

static void test_arrays(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}}",
         {"[]", "[1]", "[1, 2, 3]"},
         {"[\"a\"]", "[1,2]", "[1, ]"}},
        {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 2, \"maxItems\": 3}",
         {"[1, 2]", "[1, 2, 3]"},
         {"[]", "[1]", "[1, 2, 3, 4]"}},
        {"{\"type\": \"array\", \"maxItems\": 0}", {"[]"}, {"[1]"}},
        {"{\"type\": \"array\", \"items\": false}", {"[]"}, {"[1]"}},
        {"{\"type\": \"array\", \"items\": true, \"maxItems\": 1}", {"[]", "[[]]"}, {"[1, 2]"}},
        {"{\"type\": \"array\", \"prefixItems\": [{\"type\": \"integer\"}, {\"type\": \"string\"}]}",
         {"[]", "[1]", "[1, \"a\"]", "[1, \"a\", null, 2]"},
         {"[\"a\"]", "[1, 2]"}},
        {"{\"type\": \"array\", \"prefixItems\": [{\"type\": \"integer\"}, {\"type\": \"string\"}], \"items\": false,"
         "\"minItems\": 1}",
         {"[1]", "[1, \"a\"]"},
         {"[]", "[1, \"a\", 1]"}},
        {"{\"type\": \"array\", \"prefixItems\": [{\"type\": \"integer\"}], \"items\": {\"type\": \"null\"}, "
         "\"minItems\": 3,"
         "\"maxItems\": 4}",
         {"[1, null, null]", "[1, null, null, null]"},
         {"[1, null]", "[1, null, null, null, null]", "[null, null, null]"}},
        {"{\"type\": \"array\", \"prefixItems\": [{}, {}, {}], \"maxItems\": 2}", {"[]", "[1, 2]"}, {"[1, 2, 3]"}},
        {"{\"type\": \"array\", \"allOf\": [{\"items\": {\"minimum\": 2}}, {\"prefixItems\": [{\"type\": \"integer\"}],"
         "\"items\": {\"const\": 5}}]}",
         {"[3]", "[2, 5, 5]"},
         {"[1]", "[2, 3]"}},
        {"{\"minItems\": 1}", {"[1]", "1"}, {"[]"}},
    };
    CHECK(examples);
}

static void test_objects(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{\"type\": \"object\", \"properties\": {\"b\": {\"type\": \"integer\"}, \"a\": {\"type\": \"null\"}},"
         "\"required\": [\"b\", \"a\"], \"additionalProperties\": false}",
         {"{\"b\": 1, \"a\": null}"},
         {"{\"a\": null, \"b\": 1}", "{\"b\": 1}", "{}", "{\"b\": 1, \"a\": null, \"c\": 1}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}, \"c\": {}}, \"additionalProperties\": false}",
         {"{}", "{\"a\": 1}", "{\"c\": 1}", "{\"a\": 1, \"c\": 1}", "{\"a\": 1, \"b\": 2, \"c\": 3}", "{\"b\": 0}"},
         {"{\"b\": 1, \"a\": 1}", "{, \"a\": 1}", "{\"a\": 1, }", "{\"d\": 1}", "{\"a\": 1, \"a\": 1}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}, \"c\": {}}, \"required\": [\"b\"],"
         "\"additionalProperties\": {\"type\": \"integer\"}}",
         {"{\"b\": 1}", "{\"a\": [], \"b\": 1, \"x\": 2, \"y\": 3}", "{\"b\": 1, \"c\": 0}", "{\"b\": 1, \"\": 2}"},
         {"{\"a\": 1}", "{\"x\": 1, \"b\": 1}", "{\"b\": 1, \"x\": \"\"}", "{\"b\": 1, \"a\": 1}"}},
        {"{\"type\": \"object\", \"additionalProperties\": {\"type\": \"integer\"}}",
         {"{}", "{\"a\": 1}", "{\"\\n\": 1, \"b\": 2}"},
         {"{\"a\": \"\"}", "{\"a\": 1,}"}},
        {"{\"type\": \"object\", \"required\": [\"q\"]}",
         {"{\"q\": []}", "{\"q\": 1, \"z\": 1}"},
         {"{}", "{\"z\": 1}"}},
        {"{\"type\": \"object\", \"required\": [\"q\"], \"additionalProperties\": {\"type\": \"null\"}}",
         {"{\"q\": null}"},
         {"{\"q\": 1}", "{}"}},
        {"{\"type\": \"object\", \"patternProperties\": {\"^n\": {\"type\": \"integer\"}, \"s$\": {\"type\": "
         "[\"string\","
         "\"integer\"]}}, \"additionalProperties\": false, \"properties\": {\"nx\": {\"minimum\": 5}}}",
         {"{\"nx\": 7}", "{\"n\": 1}", "{\"as\": \"x\"}", "{\"ns\": 3}", "{\"nx\": 5, \"ns\": 1, \"s\": \"\"}"},
         {"{\"nx\": 4}", "{\"nx\": \"a\"}", "{\"ns\": \"x\"}", "{\"x\": 1}", "{\"n\": null}"}},
        {"{\"type\": \"object\", \"patternProperties\": {\"^x-\": {\"type\": \"null\"}}}",
         {"{\"x-a\": null, \"y\": 1}"},
         {"{\"x-a\": 1}"}},
        {"{\"type\": \"object\", \"propertyNames\": {\"pattern\": \"^[a-c]$\", \"maxLength\": 1}}",
         {"{}", "{\"a\": 1, \"c\": 2}"},
         {"{\"d\": 1}", "{\"ab\": 1}"}},
        {"{\"type\": \"object\", \"propertyNames\": {\"enum\": [\"k\", \"l\"]}, \"properties\": {\"l\": {\"const\": 1},"
         "\"m\": {}}}",
         {"{}", "{\"l\": 1}", "{\"k\": 5}", "{\"l\": 1, \"k\": 2}"},
         {"{\"m\": 1}", "{\"l\": 2}", "{\"x\": 1}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\\\"\\n~/\": {\"type\": \"null\"}}, \"additionalProperties\": "
         "false}",
         {"{\"a\\\"\\n~/\": null}"},
         {"{\"a\": null}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\": false, \"b\": {}}, \"additionalProperties\": false}",
         {"{}", "{\"b\": 1}"},
         {"{\"a\": 1}"}},
        {"{\"required\": [\"a\"]}", {"{\"a\": 1}", "[]", "1"}, {"{}"}},
    };
    CHECK(examples);
}

static void test_property_counts(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}, \"c\": {}}, \"minProperties\": 2,"
         "\"additionalProperties\": false}",
         {"{\"a\": 1, \"b\": 1}", "{\"a\": 1, \"c\": 1}", "{\"a\": 1, \"b\": 1, \"c\": 1}", "{\"b\": 1, \"c\": 1}"},
         {"{}", "{\"a\": 1}", "{\"c\": 1}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}, \"c\": {}}, \"maxProperties\": 1,"
         "\"additionalProperties\": false}",
         {"{}", "{\"a\": 1}", "{\"b\": 1}", "{\"c\": 1}"},
         {"{\"a\": 1, \"b\": 1}", "{\"b\": 1, \"c\": 1}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}, \"c\": {}}, \"minProperties\": 1,"
         "\"maxProperties\": 2, \"required\": [\"c\"], \"additionalProperties\": {\"type\": \"integer\"}}",
         {"{\"c\": 1}", "{\"a\": 1, \"c\": 1}", "{\"b\": 1, \"c\": 1}", "{\"c\": 1, \"x\": 1}"},
         {"{\"a\": 1, \"b\": 1, \"c\": 1}", "{\"c\": 1, \"x\": 1, \"y\": 1}", "{\"a\": 1, \"c\": 1, \"x\": 1}"}},
        {"{\"type\": \"object\", \"additionalProperties\": {\"type\": \"integer\"}, \"minProperties\": 2, "
         "\"maxProperties\": 3}",
         {"{\"a\": 1, \"b\": 1}", "{\"a\": 1, \"b\": 1, \"c\": 1}"},
         {"{}", "{\"a\": 1}", "{\"a\": 1, \"b\": 1, \"c\": 1, \"d\": 1}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\": {}}, \"additionalProperties\": {\"type\": \"integer\"},"
         "\"minProperties\": 3}",
         {"{\"a\": 1, \"b\": 1, \"c\": 1}", "{\"x\": 1, \"b\": 1, \"c\": 1, \"d\": 4}"},
         {"{\"a\": 1, \"b\": 1}", "{\"b\": 1, \"c\": 1}", "{}"}},
        {"{\"type\": \"object\", \"maxProperties\": 0}", {"{}"}, {"{\"a\": 1}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}}, \"additionalProperties\": false, "
         "\"maxProperties\": 2,"
         "\"minProperties\": 2}",
         {"{\"a\": 1, \"b\": 1}"},
         {"{\"a\": 1}", "{\"b\": 1}"}},
    };
    CHECK(examples);
}

static void test_combinations(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"string\", \"maxLength\": 1}]}",
         {"1", "\"a\""},
         {"\"ab\"", "null"}},
        {"{\"type\": \"string\", \"anyOf\": [{\"maxLength\": 1}, {\"minLength\": 3}]}",
         {"\"\"", "\"abc\""},
         {"\"ab\"", "1"}},
        {"{\"anyOf\": [{\"minimum\": 5}, {\"type\": \"string\"}], \"oneOf\": [{\"type\": \"integer\"}, {\"type\": "
         "\"null\"}]}",
         {"5", "null", "10"},
         {"4", "\"a\""}},
        {"{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"null\"}]}", {"1", "null"}, {"\"a\""}},
        {"{\"oneOf\": [{\"maximum\": 3}, {\"minimum\": 4}], \"type\": \"integer\"}", {"3", "4"}, {"3.5", "null"}},
        {"{\"oneOf\": [{\"pattern\": \"^a\"}, {\"pattern\": \"^b\"}], \"type\": \"string\"}",
         {"\"a\"", "\"bc\""},
         {"\"c\""}},
        {"{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"k\": {\"const\": \"x\"}, \"v\": {\"type\": "
         "\"integer\"}},"
         "\"required\": [\"k\"], \"additionalProperties\": false}, {\"type\": \"object\", \"properties\": {\"k\": "
         "{\"enum\":"
         "[\"y\", \"z\"]}}, \"required\": [\"k\"], \"additionalProperties\": false}], \"discriminator\": "
         "{\"propertyName\": \"k\"}}",
         {"{\"k\": \"x\"}", "{\"k\": \"x\", \"v\": 1}", "{\"k\": \"z\"}"},
         {"{\"k\": \"y\", \"v\": 1}", "{\"k\": \"w\"}", "{}"}},
        {"{\"oneOf\": [{\"required\": [\"a\"], \"additionalProperties\": false, \"properties\": {\"a\": {}}}, "
         "{\"required\": [\"b\"],"
         "\"additionalProperties\": false, \"properties\": {\"b\": {}}}], \"type\": \"object\"}",
         {"{\"a\": 1}", "{\"b\": 1}"},
         {"{\"a\": 1, \"b\": 1}", "{}"}},
        {"{\"allOf\": [{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"]},"
         "{\"properties\": {\"b\": {\"type\": \"null\"}, \"a\": {\"maximum\": 3}}, \"required\": [\"b\"]}]}",
         {"{\"a\": 1, \"b\": null}", "{\"a\": 3, \"b\": null, \"c\": 0}"},
         {"{\"a\": 4, \"b\": null}", "{\"a\": 1}", "{\"b\": null, \"a\": 1}"}},
        {"{\"allOf\": [{\"anyOf\": [{\"const\": 1}, {\"const\": 2}]}, {\"anyOf\": [{\"const\": 2}, {\"const\": 3}]}]}",
         {"2"},
         {"1", "3"}},
        {"{\"allOf\": [true, {\"type\": \"null\"}]}", {"null"}, {"1"}},
        {"{\"anyOf\": [false, {\"type\": \"null\"}]}", {"null"}, {"1"}},
    };
    CHECK(examples);
}

static void test_references(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{\"$ref\": \"#/$defs/n\", \"$defs\": {\"n\": {\"type\": \"object\", \"properties\": {\"v\": {\"type\": "
         "\"integer\"},"
         "\"next\": {\"anyOf\": [{\"$ref\": \"#/$defs/n\"}, {\"type\": \"null\"}]}}, \"required\": [\"v\", \"next\"],"
         "\"additionalProperties\": false}}}",
         {"{\"v\": 1, \"next\": null}", "{\"v\": 1, \"next\": {\"v\": 2, \"next\": null}}"},
         {"{\"v\": 1}", "{\"v\": 1, \"next\": {}}"}},
        {"{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}", {"[]", "[[], [[]]]"}, {"[1]"}},
        {"{\"items\": {\"$ref\": \"#/definitions/a~1b%20~0c\"}, \"type\": \"array\", \"definitions\": {\"a/b ~c\": "
         "{\"const\": 1}}}",
         {"[1, 1]"},
         {"[2]"}},
        {"{\"$ref\": \"#thing\", \"$defs\": {\"x\": {\"$anchor\": \"thing\", \"type\": \"null\"}}}", {"null"}, {"1"}},
        {"{\"$id\": \"http://a/b\", \"$ref\": \"http://a/b#/$defs/x\", \"$defs\": {\"x\": {\"type\": \"null\"}}}",
         {"null"},
         {"1"}},
        {"{\"$ref\": \"#/$defs/x\", \"minimum\": 3, \"$defs\": {\"x\": {\"type\": \"integer\", \"maximum\": 4}}}",
         {"3", "4"},
         {"2", "5"}},
        {"{\"prefixItems\": [{\"type\": \"null\"}, {\"$ref\": \"#/prefixItems/0\"}], \"type\": \"array\", "
         "\"minItems\": 2,"
         "\"items\": false}",
         {"[null, null]"},
         {"[null, 1]"}},
        {"{\"$ref\": \"#\"}", {"1", "{}"}, {"x"}},
        {"{\"$ref\": \"#/$defs/t\", \"$defs\": {\"t\": true, \"unused\": {\"not\": {}}}}", {"1"}, {"x"}},
    };
    CHECK(examples);
}

static void test_white_space(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"array\", \"items\": {\"type\": \"integer\"}}, "
         "\"b\": {}},"
         "\"required\": [\"a\"]}",
         {"{\"a\":[1,2],\"b\":0}", "{\"a\": [1, 2], \"b\": 0}", "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}",
          "{ \"a\": [ ] }", "{\n\t\"a\": []\n}", "{\"a\":[],\n\"x\":{\"y\":[ 1,\n 2 ]}}"},
         {" {\"a\":[]}", "{\"a\" :[]}", "{\"a\":[1 ,2]}", "{\"a\":    []}", "{\"a\":[]} ", "{\n\n\"a\":[]}"}},
        {"{\"const\": {\"a\": [1, 2]}}", {"{\"a\":[1,2]}", "{\n \"a\": [1, 2]\n}"}, {"{\"a\":[12]}"}},
    };
    check(examples, sizeof examples / sizeof *examples, (struct json_schema_options){.any_whitespace = true});
    static const struct example closed[] = {
        {"{\"type\": \"object\", \"properties\": {\"a\": {}}}", {"{}", "{\"a\": 1}"}, {"{\"b\": 1}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\": {}}, \"additionalProperties\": true}", {"{\"b\": 1}"}, {""}},
        {"{\"type\": \"object\", \"properties\": {\"a\": {}}, \"patternProperties\": {\"^b\": {}}}",
         {"{\"b\": 1}"},
         {"{\"c\": 1}"}},
        {"{\"type\": \"object\"}", {"{\"b\": 1}"}, {""}},
        {"{\"allOf\": [{\"properties\": {\"a\": {}}}, {\"properties\": {\"b\": {}}}], \"type\": \"object\"}",
         {"{\"a\": 1, \"b\": 1}"},
         {"{\"c\": 1}"}},
        {"{\"type\": \"array\", \"prefixItems\": [{}]}", {"[1]"}, {"[1, 2]"}},
        {"{\"type\": \"array\"}", {"[1, 2]"}, {""}},
    };
    check(closed, sizeof closed / sizeof *closed, (struct json_schema_options){.disable_additional_properties = true});
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *schema;
        enum status status;
        const char *sentence;
    } cases[] = {
        {"{\"properties\": {\"a\": {\"not\": {}}}}", STATUS_UNSUPPORTED,
         "#/properties/a/not: quire does not support \"not\" in a schema"},
        {"{\"if\": {}}", STATUS_UNSUPPORTED, "#/if: quire does not support \"if\""},
        {"{\"items\": {\"contains\": {}}}", STATUS_UNSUPPORTED, "#/items/contains"},
        {"{\"uniqueItems\": true}", STATUS_UNSUPPORTED, "#/uniqueItems: quire does not support \"uniqueItems\": true"},
        {"{\"dependentRequired\": {}}", STATUS_UNSUPPORTED, "#/dependentRequired"},
        {"{\"unevaluatedProperties\": false}", STATUS_UNSUPPORTED, "#/unevaluatedProperties"},
        {"{\"$dynamicRef\": \"#\"}", STATUS_UNSUPPORTED, "#/$dynamicRef"},
        {"{\"nullable\": true}", STATUS_UNSUPPORTED, "#/nullable"},
        {"{\"format\": \"iri\"}", STATUS_UNSUPPORTED, "#/format: quire does not support the format \"iri\""},
        {"{\"items\": [{}]}", STATUS_UNSUPPORTED, "#/items: a list of schemas is named \"prefixItems\""},
        {"{\"items\": {\"$id\": \"x\"}}", STATUS_UNSUPPORTED, "#/items/$id: quire supports \"$id\" only at the root"},
        {"{\"$ref\": \"http://x/y\"}", STATUS_UNSUPPORTED, "#/$ref: quire supports references within the schema alone"},
        {"{\"pattern\": \"(?<=a)\", \"type\": \"string\"}", STATUS_UNSUPPORTED,
         "#/pattern: character 1 of the regular"},
        {"{\"patternProperties\": {\"a\\\\b\": {}}}", STATUS_UNSUPPORTED, "#/patternProperties: character 2"},
        {"{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"number\"}]}", STATUS_UNSUPPORTED,
         "#/oneOf: quire needs branches"},
        {"{\"multipleOf\": 0.0001234, \"type\": \"number\"}", STATUS_UNSUPPORTED, "#/multipleOf has too many digits"},
        {"{\"propertyNames\": {\"anyOf\": [{\"pattern\": \"a\"}]}}", STATUS_UNSUPPORTED, "in propertyNames"},
        {"{\"type\": \"string\", \"pattern\": \"^a\", \"maxLength\": 100000}", STATUS_UNSUPPORTED,
         "lengths of at most"},
        {"{\"a~/b\": 1}", STATUS_UNSUPPORTED, "quire does not support \"a~/b\""},
        {"{\"properties\": {\"a\": {\"minLength\": -1}}}", STATUS_INVALID,
         "#/properties/a/minLength must be an integer from 0 up, found -1"},
        {"{\"properties\": {\"a/b\": {\"minLength\": 0.5}}}", STATUS_INVALID, "#/properties/a~1b/minLength must be"},
        {"{\"type\": \"strin\"}", STATUS_INVALID, "#/type must be null, boolean"},
        {"{\"type\": []}", STATUS_INVALID, "#/type must be"},
        {"{\"enum\": []}", STATUS_INVALID, "#/enum must be a list of at least one value, found []"},
        {"{\"anyOf\": []}", STATUS_INVALID, "#/anyOf must be a list of at least one schema"},
        {"{\"properties\": {\"a\": 1}}", STATUS_INVALID, "#/properties must be an object whose values are schemas"},
        {"{\"required\": [1]}", STATUS_INVALID, "#/required must be a list of strings"},
        {"{\"minimum\": \"1\"}", STATUS_INVALID, "#/minimum must be a number"},
        {"{\"exclusiveMinimum\": true}", STATUS_INVALID, "#/exclusiveMinimum must be a number"},
        {"{\"multipleOf\": 0}", STATUS_INVALID, "#/multipleOf must be a number above 0"},
        {"{\"maximum\": NaN}", STATUS_INVALID, "#/maximum must be a number"},
        {"{\"$ref\": \"#/$defs/x\"}", STATUS_INVALID, "#/$ref refers to \"#/$defs/x\", which is no schema"},
        {"{\"$ref\": \"#x\"}", STATUS_INVALID, "#/$ref refers to"},
        {"{\"$ref\": \"#/required\", \"required\": []}", STATUS_INVALID, "#/$ref refers to"},
        {"{\"pattern\": \"(\", \"type\": \"string\"}", STATUS_INVALID, "#/pattern: character 1"},
        {"{\"const\": \"\\ud800\"}", STATUS_INVALID, "half of a surrogate pair"},
        {"3", STATUS_INVALID, "#: a schema must be an object, true or false"},
        {"false", STATUS_INVALID, "no text"},
        {"{\"type\": \"integer\", \"minimum\": 3, \"maximum\": 2}", STATUS_INVALID, "no text"},
        {"{\"type\": \"string\", \"pattern\": \"^a$\", \"minLength\": 2}", STATUS_INVALID, "no text"},
        {"{\"type\": \"object\", \"properties\": {\"a\": false}, \"required\": [\"a\"]}", STATUS_INVALID, "no text"},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#\"}}, \"required\": [\"a\"]}", STATUS_INVALID,
         "no text"},
        {"{\"type\": \"array\", \"items\": false, \"minItems\": 1}", STATUS_INVALID, "no text"},
        {"{\"type\": \"object\", \"additionalProperties\": false, \"minProperties\": 1}", STATUS_INVALID, "no text"},
        {"{\"enum\": [1], \"type\": \"string\"}", STATUS_INVALID, "no text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {""};
        struct grammar *g;
        const enum status status = try_compile(cases[i].schema, (struct json_schema_options){false}, &g, &err);
        if (status != cases[i].status || g || !strstr(err.text, cases[i].sentence))
            fail_msg("%s: status %d, %s", cases[i].schema, status, err.text);
    }
}

/* Optional properties and lengths do not multiply what a grammar takes. */
static void test_size(void **state)
{
    (void)state;
    struct text schema = {0};
    size_t sizes[2];
    for (int round = 0; round < 2; round++) {
        text_clear(&schema);
        text_append_string(&schema, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
        for (int i = 0; i < 100 * (round + 1); i++)
            text_printf(&schema, "%s\"property_%d\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":100000}",
                        i ? "," : "", i);
        text_append_string(&schema, "}}");
        struct grammar *g = compile(schema.data, (struct json_schema_options){false});
        sizes[round] = plain_grammar_size(g);
        grammar_free(g);
    }
    assert_true(sizes[1] < 2 * sizes[0] && sizes[0] < 10000);
    text_free(&schema);
}

static void test_any_object(void **state)
{
    (void)state;
    for (int any_space = 0; any_space < 2; any_space++) {
        const struct json_schema_options options = {.any_whitespace = any_space};
        struct grammar_builder *b = grammar_builder_create();
        struct grammar *g;
        struct error err = {""};
        const int32_t root = grammar_rule(b, "root");
        grammar_node node;
        must(json_object_node(&options, b, &node, &err), &err);
        grammar_define(b, root, node);
        must(grammar_build(b, root, &g, &err), &err);
        grammar_builder_free(b);
        static const char text[] = "{\"a\": [1, {\"b\": null}], \"\": \"c\"}", list[] = "[{}]", spaced[] = "{\n}";
        assert_true(plain_grammar_matches(g, text, strlen(text)));
        assert_false(plain_grammar_matches(g, list, strlen(list)));
        assert_true(plain_grammar_matches(g, spaced, strlen(spaced)) == any_space);
        grammar_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),      cmocka_unit_test(test_values),          cmocka_unit_test(test_strings),
        cmocka_unit_test(test_formats),    cmocka_unit_test(test_numbers),         cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_objects),    cmocka_unit_test(test_property_counts), cmocka_unit_test(test_combinations),
        cmocka_unit_test(test_references), cmocka_unit_test(test_white_space),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_size),       cmocka_unit_test(test_any_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
