/* GBNF (tokenizer/grammar/gbnf.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/grammar_texts.h"
#include "tokenizer/grammar/gbnf.h"

static const struct grammar_texts cases[] = {
    {"root ::= \"a\"", {"a"}, {"", "b", "aa"}},
    {"root ::= ", {""}, {"a"}},
    {"root ::= \"a\" | ", {"a", ""}, {"aa"}},
    {"root ::= \"a\" \"b\" | \"c\"", {"ab", "c"}, {"a", "abc"}},
    {"root::=\"a\"", {"a"}, {""}},
    {"root ::= \"\\n\\t\\r\\\\\\\"\\x41\\u00e9\\U0001F600\"", {"\n\t\r\\\"A\xc3\xa9\xf0\x9f\x98\x80"}, {""}},
    {"root ::= \"\xc3\xa9#|\" # \"b\"", {"\xc3\xa9#|"}, {"\xc3\xa9"}},
    {"root ::= [a-cx\\]^-]", {"a", "b", "c", "x", "]", "^", "-"}, {"d", "", "ab"}},
    {"root ::= [-a]", {"-", "a"}, {"b"}},
    {"root ::= [^a-c\\x2d\xc3\xa9]", {"d", "\n", "\xc3\xa8", "\xf0\x9f\x98\x80"}, {"a", "c", "-", "\xc3\xa9", ""}},
    {"root ::= [^\\u0000-\\u007f]", {"\xc2\x80", "\xf4\x8f\xbf\xbf"}, {"a", "\x7f"}},
    {"root ::= .", {"a", "\n", "\xc3\xa9"}, {"", "ab"}},
    {"root ::= \"ab\"*", {"", "ab", "abab"}, {"a", "aba"}},
    {"root ::= \"a\"+ \"b\"?", {"a", "aab"}, {"", "b", "abb"}},
    {"root ::= [a]{2}", {"aa"}, {"a", "aaa"}},
    {"root ::= \"a\"{1,}", {"a", "aaaa"}, {""}},
    {"root ::= \"a\"{ 1 , 3 } \"b\"", {"ab", "aaab"}, {"b", "aaaab"}},
    {"root ::= \"a\"{0,2}+", {"", "aaaaa"}, {"b"}},
    {"root ::= (\"a\" | \"b\"\n  # more\n  | (\"c\"))* \"d\"", {"d", "acbd"}, {"ac", "e"}},
    {"root ::= a-1 B_2\na-1 ::= \"x\"\nB_2 ::= \"y\"", {"xy"}, {"x", "yx"}},
    {"root ::=\n    \"a\"\n  | \"b\"\n\n\nother ::= \"c\"", {"a", "b"}, {"c"}},
    {"root ::= \"a\"\n  \"b\" other\nother ::= \"c\"", {"abc"}, {"a", "ab"}},
    {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", ""}},
    {"# numbers\r\nroot ::= digit+ (\".\" digit+)?\r\ndigit ::= [0-9]\r\n", {"1", "12.50"}, {".5", "1."}},
};

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = grammar_texts_parse(gbnf_parse, cases[i].source);
        grammar_texts_check(g, &cases[i]);
        grammar_free(g);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *source, *sentence;
    } refused[] = {
        {"", "line 1, column 1: there is no rule 'root', with which the text begins"},
        {"x ::= \"a\"\n", "line 2, column 1: there is no rule 'root', with which the text begins"},
        {"root ::= a\nb ::= c", "line 1, column 10: 'a' is not defined"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: 'root' is defined twice"},
        {"root = \"a\"", "line 1, column 1: expected a rule, NAME ::= ..., found 'root = \"a\"'"},
        {"root ::= \"a\" )", "line 1, column 14: expected a rule, NAME ::= ..., found ')'"},
        {"root ::= (\"a\"", "line 1, column 14: expected ')', but the grammar ends"},
        {"root ::= \"\xc3\xa9\" (\"a\" ]",
         "line 1, column 19: expected a rule's name, '\"', '[', '(' or '.', found ']'"},
        {"root ::= \"a", "line 1, column 10: a literal has no second '\"'"},
        {"root ::= \"", "line 1, column 10: a literal has no second '\"'"},
        {"root ::= \"\\q\"", "line 1, column 12: there is no escape \\q"},
        {"root ::= \"\\x4\"", "line 1, column 13: expected 2 hexadecimal digits"},
        {"root ::= \"\\ud800\"", "line 1, column 13: there is no character U+D800"},
        {"root ::= \"\\U00110000\"", "line 1, column 13: there is no character U+110000"},
        {"root ::= [a", "line 1, column 11: a class has no ']'"},
        {"root ::= []", "line 1, column 11: a class has no characters"},
        {"root ::= [^]", "line 1, column 12: a class has no characters"},
        {"root ::= [b-a]", "line 1, column 11: a range of characters is empty"},
        {"root ::= *", "line 1, column 10: expected a rule's name, '\"', '[', '(' or '.', found '*'"},
        {"root ::= \"a\"{}", "line 1, column 14: expected a number, found '}'"},
        {"root ::= \"a\"{,2}", "line 1, column 14: expected a number, found ',2}'"},
        {"root ::= \"a\"{1", "line 1, column 15: expected '}', but the grammar ends"},
        {"root ::= \"a\"{3,2}", "line 1, column 13: a repetition has at least 3 and at most 2"},
        {"root ::= \"a\"{99999999999}", "line 1, column 14: a count is above 2147483647"},
        {"root ::= <think>", "line 1, column 10: quire does not support tokens in a grammar"},
        {"root ::= !<[7]>", "line 1, column 10: quire does not support tokens in a grammar"},
        {"root ::= \"a\" ;\xc3\xa9 456789012345678\xc3\xa9\xc3\xa9",
         "line 1, column 14: expected a rule's name, '\"', '[', '(' or '.', found ';\xc3\xa9 456789012345678\xc3\xa9'"},
        {"root ::= \"\xff\"", "line 1, column 11: the grammar is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        grammar_texts_refuse(gbnf_parse, refused[i].source, refused[i].sentence);
}

static void test_depth(void **state)
{
    (void)state;
    char source[2048];
    for (size_t depth = 200; depth <= 201; depth++) {
        const size_t begin = (size_t)snprintf(source, sizeof source, "root ::= ");
        memset(source + begin, '(', depth);
        memset(source + begin + depth, ')', depth);
        source[begin + 2 * depth] = '\0';
        if (depth == 200)
            grammar_free(grammar_texts_parse(gbnf_parse, source));
        else
            grammar_texts_refuse(gbnf_parse, source, "line 1, column 210: groups are nested more than 200 deep");
    }
}

/* Names belong to a grammar, so that a builder can have several. */
static void test_shared_builder(void **state)
{
    (void)state;
    static const char first[] = "root ::= x\nx ::= \"a\"", second[] = "root ::= x\nx ::= \"b\"";
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *g;
    struct error err;
    int32_t roots[2];
    assert_int_equal(gbnf_parse(first, strlen(first), b, &roots[0], &err), STATUS_OK);
    assert_int_equal(gbnf_parse(second, strlen(second), b, &roots[1], &err), STATUS_OK);
    const int32_t both = grammar_rule(b, NULL);
    grammar_define(
        b, both,
        grammar_sequence(b, (grammar_node[]){grammar_reference(b, roots[0]), grammar_reference(b, roots[1])}, 2));
    assert_int_equal(grammar_build(b, both, &g, &err), STATUS_OK);
    grammar_builder_free(b);
    grammar_texts_check(g, &(struct grammar_texts){"two grammars", {"ab"}, {"aa", "bb", "a"}});
    grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_depth), cmocka_unit_test(test_shared_builder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
