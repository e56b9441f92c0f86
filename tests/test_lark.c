/* Lark's grammars (tokenizer/grammar/lark.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/grammar_texts.h"
#include "tokenizer/grammar/lark.h"

static const struct grammar_texts cases[] = {
    {"start: \"a\"", {"a"}, {"", "b", "aa"}},
    {"start: \"a\" \"b\" | \"c\" -> alias\n", {"ab", "c"}, {"a", "abc"}},
    {"start: \"a\"\n     | b // one\n     | # two\nb: \"x\"", {"a", "x", ""}, {"b"}},
    {"start:\n    | \"a\" -> x\n    | -> y\n", {"", "a"}, {"x"}},
    {"?start: inline\n!inline.2: \"a\"\n?!other: \"b\"\n", {"a"}, {"b"}},
    {"start: \"\\\"\\\\\\n\\x41\\u00e9\"", {"\"\\\nA\xc3\xa9"}, {"A"}},
    {"start: \"select \xc3\xa9\"i", {"select \xc3\xa9", "SeLeCT \xc3\x89"}, {"selec"}},
    {"start: \"a\"..\"c\" \"x\" .. \"z\"", {"ax", "cz"}, {"dx", "a.."}},
    {"start: /[ab]+/ /\\/x/", {"a/x", "abab/x"}, {"/x", "a\\/x"}},
    {"start: /a.b/s /c/ui", {"a\nbC", "axbc"}, {"ab"}},
    {"start: /a.b/", {"axb"}, {"a\nb"}},
    {"start: [\"a\"] (\"b\" | \"c\")", {"ab", "c"}, {"a", ""}},
    {"start: \"a\"* \"b\"+ \"c\"?", {"b", "aabbc"}, {"a", "bcc"}},
    {"start: \"a\"~2 X~1..3\nX: \"b\"", {"aab", "aabbb"}, {"ab", "aa", "aabbbb"}},
    {"start: (\"a\"\n  \"b\"\n  | \"c\")", {"ab", "c"}, {"abc"}},
    {"start: a \\\n  \"b\"\na: \"a\"", {"ab"}, {"a"}},
    {"start: _A_1 _b2\n_A_1.-3: \"a\" | \"A\"\n_b2: _A_1 \"b\"", {"aab", "AAb"}, {"ab"}},
    {"start: \"(\" start \")\" | \"x\"", {"x", "((x))"}, {"(x", ""}},
    {"start: A \"b\"\nA: \"x\" \"y\"\n%ignore \" \"\n%ignore /\\t/", {"xyb", " xy \t b  "}, {"x yb", "xy"}},
    {"%import common.INT\nstart: INT (\",\" INT)*\n%ignore \" \"", {"1", "12 , 3"}, {"", "1,"}},
    {"%import common.WORD -> W\nstart: W", {"abc"}, {"a1", ""}},
    {"%import common (CNAME, SIGNED_NUMBER,\n  ESCAPED_STRING)\nstart: CNAME \"=\" (SIGNED_NUMBER | ESCAPED_STRING)",
     {"a_1=5", "x=-2.5e3", "x=.5", "x=\"a\\\"b\""},
     {"1=5", "x=\"a\"b\"", "x=-"}},
    {"%import common.C_COMMENT\nstart: C_COMMENT", {"/**/", "/* a * b **/"}, {"/*/", "/* */ */"}},
    {"%import common.NEWLINE\n%import common.WS\nstart: NEWLINE \"x\" WS", {"\n\r\nx \t\f\n"}, {"x ", "\nx"}},
};

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = grammar_texts_parse(lark_parse, cases[i].source);
        grammar_texts_check(g, &cases[i]);
        grammar_free(g);
    }
}

static void test_json(void **state)
{
    (void)state;
    static const struct grammar_texts json = {
        "?start: value\n"
        "?value: object | array | ESCAPED_STRING | SIGNED_NUMBER -> number\n"
        "      | \"true\" | \"false\" | \"null\"\n"
        "array: \"[\" [value (\",\" value)*] \"]\"\n"
        "object: \"{\" [pair (\",\" pair)*] \"}\"\n"
        "pair: ESCAPED_STRING \":\" value\n"
        "%import common.ESCAPED_STRING\n%import common.SIGNED_NUMBER\n%import common.WS\n%ignore WS\n",
        {"[]", " { \"a\" : [ 1, 2.5 , true ] }\n", "null", "\"x\"", "-1e5", "{\"a\":{\"b\":{}}}"},
        {"[1,]", "{\"a\"}", "nul", "tr ue", ""}};
    struct grammar *g = grammar_texts_parse(lark_parse, json.source);
    grammar_texts_check(g, &json);
    grammar_free(g);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *source, *sentence;
    } refused[] = {
        {"", "line 1, column 1: there is no rule 'start', with which the text begins"},
        {"start: a\nb: C", "line 1, column 8: 'a' is not defined"},
        {"start: \"a\"\nstart: \"b\"", "line 2, column 1: 'start' is defined twice"},
        {"start \"a\"", "line 1, column 7: expected ':', found '\"a\"'"},
        {"1: \"a\"", "line 1, column 1: expected a definition, NAME: ..., or a directive, found '1: \"a\"'"},
        {"start: (\"a\"", "line 1, column 12: expected ')', but the grammar ends"},
        {"start: [\"a\"\n)", "line 2, column 1: expected ']', found ')'"},
        {"start: \"a\" ]", "line 1, column 12: expected a definition, NAME: ..., or a directive, found ']'"},
        {"start: *", "line 1, column 8: expected a name, '\"', '/', '(' or '[', found '*'"},
        {"start: \"a\" -> \"b\"", "line 1, column 15: expected a name, found '\"b\"'"},
        {"start: \"a\" - b", "line 1, column 12: expected '->', found '- b'"},
        {"start: \"a", "line 1, column 8: a string has no second '\"'"},
        {"start: \"a\nb: \"c\"", "line 1, column 8: a string has no second '\"'"},
        {"start: \"\\d\"", "line 1, column 10: there is no escape \\d"},
        {"start: /a", "line 1, column 8: a pattern has no second '/'"},
        {"start: \"b\"..\"a\"", "line 1, column 8: a range must go from a character to a later one"},
        {"start: \"ab\"..\"c\"", "line 1, column 8: a range must go from a character to a later one"},
        {"start: \"a\"~3..2", "line 1, column 11: a repetition has at least 3 and at most 2"},
        {"start: A\nA: b\nb: \"x\"", "line 2, column 4: a terminal cannot be made of the rule 'b'"},
        {"start: a{\"x\"}\na{y}: y", "line 1, column 8: quire does not support templates"},
        {"a{y}: y", "line 1, column 1: quire does not support templates"},
        {"start: /a/x", "line 1, column 11: quire does not support the flag x of a pattern"},
        {"start: <|think|>", "line 1, column 8: quire does not support special tokens in a grammar"},
        {"%declare A\nstart: A", "line 1, column 1: quire does not support '%declare'"},
        {"%import python.NAME\nstart: NAME", "line 1, column 9: quire imports the module common only"},
        {"%import common.FOO\nstart: FOO", "line 1, column 16: quire's module common has no terminal 'FOO'"},
        {"%import common (INT\nstart: INT", "line 2, column 1: expected ')', found 'start: INT'"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        grammar_texts_refuse(lark_parse, refused[i].source, refused[i].sentence);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_json),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
