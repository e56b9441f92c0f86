/* Regular languages (tokenizer/grammar/regular.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/random.h"
#include "base/utf8.h"
#include "tests/support/must.h"
#include "tests/support/plain_grammar.h"
#include "tokenizer/grammar/regular.h"

static struct regular *parse(const char *pattern, bool search)
{
    struct error err = {""};
    struct regular *r;
    if (regular_parse(pattern, strlen(pattern), search, &r, &err)) fail_msg("%s: %s", pattern, err.text);
    return r;
}

static bool matches(const struct regular *r, const char *text)
{
    return regular_matches(r, text, strlen(text));
}

/* Texts that a pattern matches as a whole, and texts that it does not; each list ends with NULL. */
static const struct {
    const char *pattern;
    const char *yes[6], *no[6];
} whole[] = {
    {"", {""}, {"a"}},
    {"abc", {"abc"}, {"", "ab", "abcd", "Abc"}},
    {"a|b|", {"a", "b", ""}, {"ab", "c"}},
    {"(?:ab)+c?", {"ab", "abab", "abc"}, {"", "abcab", "c"}},
    {"a{2}", {"aa"}, {"a", "aaa"}},
    {"a{2,}?", {"aa", "aaaaa"}, {"a"}},
    {"a{1,3}b{0}", {"a", "aa", "aaa"}, {"", "aaaa", "ab"}},
    {"a{,2}", {"", "a", "aa"}, {"aaa"}},
    {"a{,}", {"a{,}"}, {"a"}},
    {"x{y}", {"x{y}"}, {"x"}},
    {"(a|b)*abb", {"abb", "aabb", "babaabb"}, {"ab", "abba"}},
    {"[a-c]", {"a", "b", "c"}, {"d", "", "ab"}},
    {"[^a-c]", {"d", "\n", "\xc3\xa9"}, {"a", "b", ""}},
    {"[]", {NULL}, {"", "]", "a"}},
    {"[^]", {"a", "\n"}, {"", "ab"}},
    {"[-a]", {"-", "a"}, {"b"}},
    {"[a-]", {"-", "a"}, {"b"}},
    {"[\\d-x]", {"5", "-", "x"}, {"y", "d"}},
    {"[a-\\d]", {"5", "-", "a"}, {"b"}},
    {"[\\]\\\\^]", {"]", "\\", "^"}, {"a"}},
    {"[\\b]", {"\b"}, {"b"}},
    {".", {"a", " ", "\xc3\xa9", "\xf0\x9f\x98\x80"}, {"", "\n", "\r", "\xe2\x80\xa8", "ab"}},
    {"(?s).", {"\n", "a"}, {"", "ab"}},
    {"(?s:.).", {"\na"}, {"a\n"}},
    {"\\d\\D", {"1a", "0\xd9\xa1"}, {"11", "a1", "\xd9\xa1 "}},
    {"\\w+", {"a_9Z"}, {"", "\xc3\xa9", "a b"}},
    {"\\W", {"-", "\xc3\xa9"}, {"a", "_"}},
    {"\\s\\S", {" a", "\xc2\xa0z", "\xef\xbb\xbfq"}, {"  ", "ab"}},
    {"\\t\\n\\r\\f\\v\\0", {NULL}, {"", "tnrfv0"}},
    {"\\x41\\u0042\\u{43}\\u{1F600}", {"ABC\xf0\x9f\x98\x80"}, {"ABC"}},
    {"\\uD83D\\uDE00", {"\xf0\x9f\x98\x80"}, {"\xf0\x9f\x98\x81"}},
    {"\\.\\*\\/\\-\\$\\^", {".*/-$^"}, {"a"}},
    {"(?i)ab[c-d]", {"abc", "ABD", "aBc"}, {"abe", "ab"}},
    {"(?i:a)b", {"ab", "Ab"}, {"aB", "AB"}},
    {"(?i:[^a])", {"b", "B"}, {"a", "A"}},
    {"(a)(?<n>b)(?P<m>c)", {"abc"}, {"ab"}},
    {"^a$", {"a"}, {"", "aa", "^a$"}},
    {"a^b|c$d|(^|x)y($|z)", {"y", "xy", "xyz", "yz"}, {"ab", "a^b", "cd", "xyzz"}},
    {"\\Aa\\Z|\\Ab\\z", {"a", "b"}, {"", "ab"}},
    {"\\p{Lu}\\p{Ll}+", {"Ab", "\xc3\x89\xc3\xa9"}, {"ab", "AB", "A1"}},
    {"\\p{L}\\P{L}", {"a1", "\xe4\xb8\xad\xef\xbc\x81"}, {"aa", "1a"}},
    {"\\p{Script=Greek}\\p{sc=Cyrillic}[\\p{Han}x]", {"\xce\xb1\xd0\xb6\xe4\xb8\xad", "\xce\xb1\xd0\xb6x"}, {"abx"}},
    {"\\p{Nd}\\pN", {"1\xd9\xa1"}, {"1a"}},
    {"(?=.*\\d)(?!.*\\s)[a-z0-9 ]{3,}", {"ab1", "123x"}, {"abc", "a1", "ab 1", ""}},
    {"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", {"-1.5", "0", "+.5", "7."}, {"", "-", ".", "+.", "1.2.3"}},
    {"(?=a|b).(?:x|y)", {"ax", "by"}, {"cx", "a"}},
    {"(((a*)*)*)*b", {"b", "aab"}, {"", "a"}},
    {"(|a)+", {"", "aaa"}, {"b"}},
};

static void test_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        struct regular *r = parse(whole[i].pattern, false);
        for (int k = 0; k < 6 && whole[i].yes[k]; k++)
            if (!matches(r, whole[i].yes[k])) fail_msg("%s does not match %s", whole[i].pattern, whole[i].yes[k]);
        for (int k = 0; k < 6 && whole[i].no[k]; k++)
            if (matches(r, whole[i].no[k])) fail_msg("%s matches %s", whole[i].pattern, whole[i].no[k]);
        regular_free(r);
    }
}

static void test_search(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *yes, *no;
    } cases[] = {{"b", "abc", "ac"},
                 {"^b", "bc", "abc"},
                 {"b$", "ab", "abc"},
                 {"^b$", "b", "bb"},
                 {"^a|c$", "xyc", "xay"},
                 {"(^|-)x", "a-x-", "ax"},
                 {"a\\n*$", "ba\n\n", "ab"},
                 {"a.*b", "xaybz", "ba"},
                 {"^", "", NULL},
                 {"", "x", NULL},
                 {"x$y|z", "z", "xy"},
                 {"[]|q", "q", "r"},
                 {"^(?=.*b)a", "axb", "ax"},
                 {"^(?!.*b$)a", "abx", "xb"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct regular *r = parse(cases[i].pattern, true);
        if (!matches(r, cases[i].yes)) fail_msg("%s is not found in %s", cases[i].pattern, cases[i].yes);
        if (cases[i].no && matches(r, cases[i].no)) fail_msg("%s is found in %s", cases[i].pattern, cases[i].no);
        regular_free(r);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        enum status status;
        const char *sentence;
    } cases[] = {
        {"a(?=b)", STATUS_UNSUPPORTED,
         "character 2 of the regular expression: quire does not support lookahead, (?=...)"},
        {"a(?!b)", STATUS_UNSUPPORTED, "lookahead, (?!...)"},
        {"(?=b)", STATUS_UNSUPPORTED, "lookahead, (?=...)"},
        {"^(?=b)b|c", STATUS_UNSUPPORTED, "only where no alternatives follow it"},
        {"^(?=b", STATUS_INVALID, "character 2 of the regular expression: this ( has no )"},
        {"^(?=b)*", STATUS_INVALID, "there is nothing to repeat"},
        {"(?<=b)", STATUS_UNSUPPORTED, "lookbehind"},
        {"(?<!b)", STATUS_UNSUPPORTED, "lookbehind"},
        {"(?>b)", STATUS_UNSUPPORTED, "atomic groups"},
        {"(?m)b", STATUS_UNSUPPORTED, "quire supports groups of the forms"},
        {"(a)\\1", STATUS_UNSUPPORTED, "character 4 of the regular expression: quire does not support back-references"},
        {"(?<n>a)\\k<n>", STATUS_UNSUPPORTED, "back-references"},
        {"(?P=n)", STATUS_UNSUPPORTED, "back-references"},
        {"\xc3\xa9\\b", STATUS_UNSUPPORTED, "character 2 of the regular expression: quire does not support \\b"},
        {"a++", STATUS_UNSUPPORTED, "possessive"},
        {"\\q", STATUS_UNSUPPORTED, "quire does not know this escape"},
        {"\\p{Klingon}", STATUS_UNSUPPORTED, "quire does not know \\p{klingon}"},
        {"[[:alpha:]]", STATUS_UNSUPPORTED, "[:...:]"},
        {"a{70000}", STATUS_UNSUPPORTED, "more than 65536 times"},
        {"(a{1000}){1000}", STATUS_UNSUPPORTED, "too large"},
        {"(((){60000}){60000}){60000}", STATUS_UNSUPPORTED, "too large"},
        {"(a|b)*a(a|b){20}", STATUS_UNSUPPORTED, "too large"},
        {"(", STATUS_INVALID, "character 1 of the regular expression: this ( has no )"},
        {"a)", STATUS_INVALID, "character 2 of the regular expression: this ) has no ("},
        {"[a", STATUS_INVALID, "this [ has no ]"},
        {"*a", STATUS_INVALID, "there is nothing to repeat"},
        {"a**", STATUS_INVALID, "a repetition of a repetition needs a group"},
        {"a{3,2}", STATUS_INVALID, "the most of a repetition is below the least"},
        {"[b-a]", STATUS_INVALID, "ends before it begins"},
        {"\\", STATUS_INVALID, "must be followed by a character"},
        {"\\u12", STATUS_INVALID, "number of a character"},
        {"\\uD800", STATUS_INVALID, "number of a character"},
        {"\\u{110000}", STATUS_INVALID, "number of a character"},
        {"\\p", STATUS_INVALID, "name of a class"},
        {"(?<n", STATUS_INVALID, "name has no end"},
        {"\xff", STATUS_INVALID, "not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {""};
        struct regular *r;
        const enum status status = regular_parse(cases[i].pattern, strlen(cases[i].pattern), true, &r, &err);
        if (status != cases[i].status || r || !strstr(err.text, cases[i].sentence))
            fail_msg("%s: status %d, %s", cases[i].pattern, status, err.text);
    }
    char deep[1001];
    struct error err = {""};
    struct regular *r;
    memset(deep, '(', 1000);
    assert_int_equal(regular_parse(deep, 1000, false, &r, &err), STATUS_UNSUPPORTED);
}

static void test_operations(void **state)
{
    (void)state;
    struct regular *word = parse("^[a-z]+$", true), *three = regular_any(2, 3), *none = NULL;
    const struct regular_text texts[] = {{"ab", 2}, {"abc", 3}, {"\xc3\xa9", 2}, {"", 0}};
    struct regular *listed = regular_texts(texts, 4), *unlisted = regular_complement(listed);
    struct regular *both = regular_intersection(word, three), *left = regular_intersection(both, unlisted);
    struct regular *any = regular_union(listed, unlisted), *nothing = regular_intersection(listed, unlisted);
    assert_true(matches(both, "abc") && matches(both, "zz") && !matches(both, "a") && !matches(both, "abcd"));
    assert_true(!matches(both, "a1"));
    assert_true(matches(listed, "") && matches(listed, "\xc3\xa9") && !matches(listed, "a") &&
                !matches(listed, "abcd"));
    assert_true(matches(left, "abd") && matches(left, "ba") && !matches(left, "abc") && !matches(left, "ab"));
    assert_true(matches(any, "x") && matches(any, "ab"));
    assert_true(regular_is_empty(nothing) && !regular_is_empty(left));
    assert_null(regular_intersection(word, none));
    assert_null(regular_union(none, word));
    assert_null(regular_complement(none));
    assert_null(regular_any(0, REGULAR_MAX_STATES));
    assert_null(regular_texts(&(struct regular_text){"\xff", 1}, 1));
    struct regular *const all[] = {word, three, listed, unlisted, both, left, any, nothing};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) regular_free(all[i]);
    regular_free(NULL);
}

/* The language as a grammar of its own. */
static struct grammar *spell(const struct regular *r, enum regular_spelling spelling)
{
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *g;
    struct error err = {""};
    grammar_node node;
    const int32_t root = grammar_rule(b, "root");
    assert_true(regular_node(r, spelling, b, &node));
    grammar_define(b, root, node);
    must(grammar_build(b, root, &g, &err), &err);
    grammar_builder_free(b);
    return g;
}

static void test_spelling(void **state)
{
    (void)state;
    struct regular *any = regular_any(0, -1),
                   *odd = parse("(?s)[\\u0000-\\u0020\"\\\\\\u07ff-\\uffff]|\\u{10ffff}x", false);
    struct grammar *plain = spell(any, REGULAR_PLAIN), *json = spell(any, REGULAR_JSON_STRING);
    struct grammar *odd_json = spell(odd, REGULAR_JSON_STRING);
    static const char *const characters[] = {"a",
                                             "\x7f",
                                             "\xc2\x80",
                                             "\xdf\xbf",
                                             "\xe0\xa0\x80",
                                             "\xed\x9f\xbf",
                                             "\xee\x80\x80",
                                             "\xef\xbf\xbf",
                                             "\xf0\x90\x80\x80",
                                             "\xf4\x8f\xbf\xbf"};
    static const char *const others[] = {"\x80",         "\xc1\x81",         "\xe0\x80\x80",
                                         "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
                                         "\xc2",         "\xf5\x80\x80\x80", "\xff"};
    for (size_t i = 0; i < sizeof characters / sizeof *characters; i++) {
        assert_true(plain_grammar_matches(plain, characters[i], strlen(characters[i])));
        assert_true(plain_grammar_matches(json, characters[i], strlen(characters[i])));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(plain_grammar_matches(plain, others[i], strlen(others[i])));
        assert_false(plain_grammar_matches(json, others[i], strlen(others[i])));
    }
    static const char *const escaped[] = {"\\\"", "\\\\", "\\b", "\\f", "\\n", "\\r", "\\t", "\\u0000", "\\u001f"};
    for (size_t i = 0; i < sizeof escaped / sizeof *escaped; i++) {
        assert_true(plain_grammar_matches(json, escaped[i], strlen(escaped[i])));
        assert_true(plain_grammar_matches(odd_json, escaped[i], strlen(escaped[i])));
    }
    static const char *const wrong[] = {"\"", "\\", "\n", "\\u000a", "\\u0020", "\\u001F", "\\/", "\\u00e9", "\\x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(plain_grammar_matches(json, wrong[i], strlen(wrong[i])));
    assert_true(plain_grammar_matches(odd_json, "\xdf\xbf", 2) && !plain_grammar_matches(odd_json, "\xdf\xbe", 2));
    assert_true(plain_grammar_matches(odd_json, "\xf4\x8f\xbf\xbfx", 5));
    assert_false(plain_grammar_matches(odd_json, "\xf4\x8f\xbf\xbf", 4));
    grammar_free(plain);
    grammar_free(json);
    grammar_free(odd_json);
    regular_free(any);
    regular_free(odd);
}

/* Random patterns over a few characters, among which are characters of 2, 3 and 4 bytes. */
static void random_pattern(struct random *r, int depth, struct text *out)
{
    static const char *const atoms[] = {"a",
                                        "b",
                                        "\xc3\xa9",
                                        "\xe4\xb8\xad",
                                        "\xf0\x9f\x98\x80",
                                        "[ab]",
                                        "[^a]",
                                        ".",
                                        "[\xc3\xa9-\xe4\xb8\xad]",
                                        "\\d",
                                        "\\W",
                                        "^",
                                        "$",
                                        "1"};
    static const char *const quantifiers[] = {"*", "+", "?", "{2}", "{1,3}", "{0,2}?", "{2,}"};
    const uint64_t kind = depth == 0 ? 0 : random_bits(r) % 6;
    if (kind < 2) {
        text_append_string(out, atoms[random_bits(r) % (sizeof atoms / sizeof *atoms)]);
    } else if (kind == 2) {
        text_append_string(out, "(?:");
        random_pattern(r, depth - 1, out);
        text_append_string(out, "|");
        random_pattern(r, depth - 1, out);
        text_append_string(out, ")");
    } else if (kind < 5) {
        random_pattern(r, depth - 1, out);
        random_pattern(r, depth - 1, out);
    } else {
        text_append_string(out, "(?:");
        random_pattern(r, depth - 1, out);
        text_append_string(out, ")");
        text_append_string(out, quantifiers[random_bits(r) % (sizeof quantifiers / sizeof *quantifiers)]);
    }
}

/* A pattern, of which every fourth looks ahead from the beginning of the text. */
static void random_whole_pattern(struct random *r, struct text *out)
{
    const uint64_t kind = random_bits(r) % 8;
    if (kind < 2) {
        text_append_string(out, kind == 0 ? "^(?=" : "^(?!");
        random_pattern(r, 3, out);
        text_append_string(out, ")");
    }
    random_pattern(r, 4, out);
}

static bool pcre2_finds(const pcre2_code *code, const char *text, size_t length)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    const int found = pcre2_match(code, (PCRE2_SPTR)text, length, 0, PCRE2_NO_UTF_CHECK, data, NULL);
    pcre2_match_data_free(data);
    assert_true(found >= 0 || found == PCRE2_ERROR_NOMATCH);
    return found >= 0;
}

/* regular.h and PCRE2 agree on random patterns and texts, and a text is in the grammar if it matches. */
static void test_random(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a", "b", "1", "\n", "\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x98\x80", "_"};
    struct random random = {20260};
    struct text pattern = {0}, text = {0}, drawn = {0};
    int num_found = 0, num_missed = 0;
    for (int i = 0; i < 2000; i++) {
        int number;
        PCRE2_SIZE offset;
        text_clear(&pattern);
        random_whole_pattern(&random, &pattern);
        pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern.data, pattern.length, PCRE2_UTF | PCRE2_DOLLAR_ENDONLY,
                                         &number, &offset, NULL);
        assert_non_null(code);
        struct regular *r = parse(pattern.data, true);
        struct grammar *g = regular_is_empty(r) ? NULL : spell(r, REGULAR_PLAIN);
        for (int k = 0; k < 12; k++) {
            text_clear(&text);
            text_append(&text, "", 0);
            for (uint64_t n = random_bits(&random) % 6; n > 0; n--)
                text_append_string(&text, pieces[random_bits(&random) % 8]);
            const bool found = matches(r, text.data);
            if (found != pcre2_finds(code, text.data, text.length)) fail_msg("%s in %s", pattern.data, text.data);
            if (found != (g && plain_grammar_matches(g, text.data, text.length)))
                fail_msg("the grammar of %s: %s", pattern.data, text.data);
            found ? num_found++ : num_missed++;
        }
        for (int k = 0; g && k < 3; k++) {
            plain_grammar_draw(g, &random, 12, &drawn);
            if (!regular_matches(r, drawn.data, drawn.length)) fail_msg("%s: drew %s", pattern.data, drawn.data);
        }
        grammar_free(g);
        regular_free(r);
        pcre2_code_free(code);
    }
    assert_true(num_found > 2000 && num_missed > 2000);
    text_free(&pattern);
    text_free(&text);
    text_free(&drawn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole),    cmocka_unit_test(test_search),
                                       cmocka_unit_test(test_refused),  cmocka_unit_test(test_operations),
                                       cmocka_unit_test(test_spelling), cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
