/* Structural tags (tokenizer/grammar/structural_tag.h), and the text around them (free_text.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_parse.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tests/support/grammar_texts.h"
#include "tests/support/must.h"
#include "tests/support/plain_grammar.h"
#include "tokenizer/grammar/free_text.h"
#include "tokenizer/grammar/structural_tag.h"

/* ---- free text ---- */

/* Whether `text` may be what free_text_node(marks, which) has, the plain way. */
static bool is_free_text(const struct free_text_marks *marks, int32_t which, const char *text, size_t length)
{
    if (utf8_valid_prefix(text, length) < length) return false;
    size_t first_end = SIZE_MAX;
    bool found = false;
    for (int32_t i = 0; i < marks->count; i++) {
        const size_t size = strlen(marks->list[i]);
        for (size_t at = 0; at + size <= length; at++) {
            if (memcmp(text + at, marks->list[i], size) != 0) continue;
            if (at + size < first_end) first_end = at + size;
            found = found || (i == which && at + size == length);
        }
    }
    return which < 0 ? first_end == SIZE_MAX : found && first_end == length;
}

/* NULL: there is no such text. */
static struct grammar *free_text_grammar(const struct free_text_marks *marks, int32_t which)
{
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *g;
    struct error err = {""};
    grammar_node node;
    const int32_t root = grammar_rule(b, NULL);
    must(free_text_node(marks, which, b, &node, &err), &err);
    grammar_define(b, root, node);
    if (grammar_build(b, root, &g, &err) != STATUS_OK) g = NULL;
    grammar_builder_free(b);
    return g;
}

/* Texts of pieces that marks are made of, and of bytes that are no characters. */
static void test_free_text(void **state)
{
    (void)state;
    static const struct free_text_marks lists[] = {
        {{"ab"}, 1}, {{"aa", "aba"}, 2}, {{"\xc3\xa9", "a\xc3\xa9", "b"}, 3}, {{"abab", "ba", "bb"}, 3}, {{NULL}, 0}};
    static const char *const pieces[] = {"a", "b", "ab", "\xc3\xa9", "\xc3", "\xf0\x9f\x98\x80", "\xed\xa0\x80", "x"};
    struct random random = {1};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        for (int32_t which = FREE_TEXT_NO_MARK; which < lists[l].count; which++) {
            struct grammar *g = free_text_grammar(&lists[l], which);
            for (int i = 0; i < 2000; i++) {
                char text[64] = "";
                const int64_t count = random_between(&random, 0, 6);
                for (int64_t k = 0; k < count; k++) strcat(text, pieces[random_between(&random, 0, 7)]);
                const bool expected = is_free_text(&lists[l], which, text, strlen(text));
                if ((g && plain_grammar_matches(g, text, strlen(text))) != expected)
                    fail_msg("list %zu, mark %d: '%s' is not %d", l, which, text, expected);
            }
            grammar_free(g);
        }
    }
}

static void test_many_bytes(void **state)
{
    (void)state;
    char mark[FREE_TEXT_MAX_BYTES + 2];
    struct grammar_builder *b = grammar_builder_create();
    struct error err = {""};
    grammar_node node;
    memset(mark, 'a', sizeof mark);
    mark[sizeof mark - 1] = '\0';
    assert_int_equal(free_text_node(&(struct free_text_marks){{mark}, 1}, 0, b, &node, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "the strings that text is searched for have more than 4096 bytes");
    must(free_text_node(&(struct free_text_marks){{mark + 1}, 1}, 0, b, &node, &err), &err);
    grammar_builder_free(b);
}

/* ---- tags ---- */

#define TAG(name, content) "{\"type\":\"tag\",\"begin\":\"<" name ">\",\"content\":" content ",\"end\":\"</" name ">\"}"
#define WORD(text) "{\"type\":\"const_string\",\"value\":\"" text "\"}"
#define ANY "{\"type\":\"any_text\"}"
#define FORMAT(format) "{\"type\":\"structural_tag\",\"format\":" format "}"
#define TRIGGERED(more)                                                                                                \
    FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<f\"],\"tags\":[" TAG(                                        \
        "f1", WORD("x")) ","                                                                                           \
                         "{\"begin\":\"<f2>\",\"content\":" ANY ",\"end\":[\"</f>\",\"<end>\"]}]" more "}")

static const struct grammar_texts cases[] = {
    {FORMAT(WORD("Hi")), {"Hi"}, {"", "Hi "}},
    {FORMAT("{\"type\":\"regex\",\"pattern\":\"[a-c]+\"}"), {"abc"}, {"", "d"}},
    {FORMAT("{\"type\":\"grammar\",\"grammar\":\"root ::= \\\"a\\\"+\"}"), {"aa"}, {""}},
    {FORMAT("{\"type\":\"grammar\",\"grammar\":\"start: A+\\nA: \\\"a\\\"\"}"), {"aa"}, {""}},
    {FORMAT(ANY), {"", "any\n\xc3\xa9"}, {"\xff"}},
    {FORMAT("{\"type\":\"any_text\",\"excludes\":[\"no\",\"\xc3\xa9\"]}"), {"", "n o"}, {"xnox", "\xc3\xa9"}},
    {FORMAT("{\"type\":\"sequence\",\"elements\":[" WORD("a") "," ANY "," WORD("b") "]}"), {"ab", "axbb"}, {"a", "ba"}},
    {FORMAT("{\"type\":\"or\",\"elements\":[" WORD("a") "," WORD("b") "]}"), {"a", "b"}, {"", "ab"}},
    {FORMAT("{\"type\":\"optional\",\"content\":" WORD("a") "}"), {"", "a"}, {"aa"}},
    {FORMAT("{\"type\":\"star\",\"content\":" WORD("a") "}"), {"", "a", "aaa"}, {"b"}},
    {FORMAT("{\"type\":\"plus\",\"content\":" WORD("a") "}"), {"a", "aaa"}, {""}},
    {FORMAT("{\"type\":\"repeat\",\"min\":1,\"max\":2,\"content\":" WORD("a") "}"), {"a", "aa"}, {"", "aaa"}},
    {FORMAT("{\"type\":\"repeat\",\"min\":2,\"max\":-1,\"content\":" WORD("a") "}"), {"aa", "aaaa"}, {"a"}},
    {FORMAT(TAG("t", ANY)), {"<t></t>", "<t>a<b</t>"}, {"<t></t></t>", "<t>", "x<t></t>"}},
    {FORMAT(TAG("t", "{\"type\":\"sequence\",\"elements\":[" WORD("a") "," ANY "]}")),
     {"<t>a</t>", "<t>ab</t>"},
     {"<t></t>", "<t>a</t></t>"}},
    {FORMAT(TAG("t", "{\"type\":\"sequence\",\"elements\":[" ANY "," WORD("a") "]}")),
     {"<t>a</t>", "<t>baa</t>"},
     {"<t></t>", "<t></t>a</t>"}},
    {FORMAT(TAG("t", "{\"type\":\"star\",\"content\":" TAG("u", ANY) "}")),
     {"<t></t>", "<t><u>x</u><u></t></u></t>"},
     {"<t>x</t>", "<t><u></u>"}},
    {FORMAT(TAG("t", TAG("u", ANY))), {"<t><u></t></u></t>"}, {"<t><u></u>x</t>", "<t><u></u></u></t>"}},
    {FORMAT("{\"type\":\"tag\",\"begin\":\"a\",\"content\":" WORD("b") ",\"end\":\"\"}"), {"ab"}, {"a"}},
    {TRIGGERED(""),
     {"", "plain < text", "a <f1>x</f1> b <f2>y</f1></f><f1>x</f1>", "<f2><end>", "<<f1>x</f1>"},
     {"<f", "<f3>", "<f1>y</f1>", "<f2>y"}},
    {TRIGGERED(",\"at_least_one\":true"), {"<f1>x</f1>", "<f2>a</f> b <f1>x</f1>"}, {"", "a", "a<f1>x</f1>"}},
    {TRIGGERED(",\"stop_after_first\":true"), {"", "a", "a<f1>x</f1>"}, {"<f1>x</f1> ", "<f1>x</f1><f1>x</f1>"}},
    {TRIGGERED(",\"stop_after_first\":true,\"at_least_one\":true"), {"<f1>x</f1>"}, {"", "a<f1>x</f1>"}},
    {TRIGGERED(",\"excludes\":[\"bad\"]"), {"ba <f1>x</f1> d", "<f2>bad</f>"}, {"bad", "bad <f1>x</f1>"}},
    {FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"aa\"],\"tags\":[{\"begin\":\"aab\",\"content\":" WORD(
         "c") ",\"end\":\"d\"}]}"),
     {"aabcd", "xaabcd", "a", "baabcda"},
     {"aaabcd", "aa"}},
    {FORMAT(TAG("t", "{\"type\":\"triggered_tags\",\"triggers\":[\"(\"],\"tags\":[{\"begin\":\"(\",\"content\":"
                     "{\"type\":\"regex\",\"pattern\":\"[0-9]+\"},\"end\":\")\"}]}")),
     {"<t></t>", "<t>a(1)b(2)</t>"},
     {"<t>(a)</t>", "<t></t>(1)</t>", "<t>(1)"}},
    {FORMAT("{\"type\":\"tags_with_separator\",\"separator\":\", \",\"tags\":[" TAG("i", ANY) "]}"),
     {"", "<i>a</i>", "<i>a</i>, <i></i>"},
     {", ", "<i>a</i>, ", "<i>a</i><i>a</i>"}},
    {FORMAT("{\"type\":\"tags_with_separator\",\"separator\":\",\",\"at_least_one\":true,\"stop_after_first\":true,"
            "\"tags\":[" TAG("i", ANY) "]}"),
     {"<i>a</i>"},
     {"", "<i>a</i>,<i></i>"}},
    {FORMAT("{\"type\":\"dispatch\",\"rules\":[[\"f(\"," WORD("1)") "],[\"g(\"," WORD("2)") "]]}"),
     {"", "f(1) g(2)f(1)x"},
     {"f(2)", "f("}},
    {FORMAT("{\"type\":\"dispatch\",\"loop\":false,\"rules\":[[\"f(\"," WORD("1)") "]],\"excludes\":[\"!\"]}"),
     {"", "a f(1)", "a"},
     {"f(1) ", "!", "!f(1)"}},
    {"{\"structures\":[{\"begin\":\"<f1>\",\"schema\":{\"const\":1},\"end\":\"</f1>\"}],\"triggers\":[\"<f\"]}",
     {"", "a <f1>1</f1> b"},
     {"<f2>", "<f1>2</f1>"}},
    {FORMAT(TAG("t", "{\"type\":\"json_schema\",\"json_schema\":{\"enum\":[\"a\",null]},\"style\":\"json\"}")),
     {"<t>\"a\"</t>", "<t>null</t>"},
     {"<t>a</t>"}},
};

static enum status make(const char *source, struct grammar **out, struct error *err)
{
    const struct json_schema_options options = {.any_whitespace = false};
    struct grammar_builder *b = grammar_builder_create();
    json_t *tag;
    const int32_t root = grammar_rule(b, NULL);
    grammar_node node;
    must(json_value_parse(source, strlen(source), 0, NULL, &tag, err), err);
    enum status status = structural_tag_node(tag, &options, b, &node, err);
    grammar_define(b, root, node);
    if (status == STATUS_OK) status = grammar_build(b, root, out, err);
    json_decref(tag);
    grammar_builder_free(b);
    return status;
}

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = NULL;
        struct error err = {""};
        if (make(cases[i].source, &g, &err) != STATUS_OK) fail_msg("%s\n%s", cases[i].source, err.text);
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
        {"{}", "format: a format must be an object, found none"},
        {FORMAT("[]"), "format: a format must be an object, found []"},
        {FORMAT("{}"), "format: type must be a string"},
        {FORMAT("{\"type\":\"token\",\"token\":1}"), "format: quire has no format of type \"token\""},
        {FORMAT(WORD("a\\u0000")),
         "format: value must be a string of whole characters without U+0000, found \"a\\u0000\""},
        {FORMAT("{\"type\":\"const_string\",\"value\":\"\",\"max\":1}"),
         "format: a format of this type has no field 'max'"},
        {FORMAT("{\"type\":\"any_text\",\"max_tokens\":3}"), "format: quire does not support max_tokens"},
        {FORMAT("{\"type\":\"any_text\",\"excludes\":[\"a\",\"\"]}"),
         "format.excludes[1]: it must be a string that is not empty, found \"\""},
        {FORMAT("{\"type\":\"sequence\",\"elements\":[]}"),
         "format: elements must be a list that is not empty, found []"},
        {FORMAT("{\"type\":\"or\",\"elements\":[" ANY ",{\"type\":\"plus\"}]}"),
         "format.elements[1].content: a format must be an object, found none"},
        {FORMAT("{\"type\":\"repeat\",\"min\":2,\"max\":1,\"content\":" ANY "}"),
         "format: min and max must be integers with 0 <= min <= max, or max -1 for no bound"},
        {FORMAT("{\"type\":\"grammar\",\"grammar\":\"root ::= a\"}"),
         "format.grammar: line 1, column 10: 'a' is not defined"},
        {FORMAT("{\"type\":\"json_schema\",\"json_schema\":{},\"style\":\"qwen_xml\"}"),
         "format: quire supports the style \"json\" only, found \"qwen_xml\""},
        {FORMAT("{\"type\":\"json_schema\",\"json_schema\":{},\"any_order\":true}"),
         "format: quire does not support any_order"},
        {FORMAT("{\"type\":\"json_schema\"}"), "format: json_schema is missing"},
        {FORMAT("{\"type\":\"tag\",\"begin\":\"a\",\"content\":" ANY "}"),
         "format.end: it must be a string that is not empty, found none"},
        {FORMAT("{\"type\":\"tag\",\"begin\":\"a\",\"content\":" ANY ",\"end\":[]}"),
         "format: end must be a string or a list of strings"},
        {FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"b\"],\"tags\":[" TAG("a", ANY) "]}"),
         "format.tags[0]: begin begins with none of the triggers"},
        {FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[],\"tags\":[" TAG("a", ANY) "]}"),
         "format: triggers must be a list that is not empty, found []"},
        {FORMAT("{\"type\":\"tags_with_separator\",\"separator\":\",\",\"tags\":[" ANY "]}"),
         "format.tags[0]: type must be \"tag\""},
        {FORMAT("{\"type\":\"dispatch\",\"rules\":[[1,2]]}"),
         "format.rules[0]: it must be a string that is not empty, found 1"},
        {"{\"structures\":[{\"begin\":\"a\",\"schema\":{}}],\"triggers\":[\"a\"]}",
         "tags[0].end: it must be a string that is not empty, found none"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct grammar *g = NULL;
        struct error err = {""};
        if (make(refused[i].source, &g, &err) == STATUS_OK) fail_msg("accepted: %s", refused[i].source);
        assert_string_equal(err.text, refused[i].sentence);
    }
}

/* Formats in formats: 100 of them, and what each level may cost. */
static void test_depth(void **state)
{
    (void)state;
    for (int depth = 99; depth <= 100; depth++) {
        struct text source = {0};
        struct grammar *g = NULL;
        struct error err = {""};
        text_append_string(&source, "{\"format\":");
        for (int i = 0; i < depth; i++)
            text_append_string(&source, "{\"type\":\"triggered_tags\",\"triggers\":[\"a\"],\"at_least_one\":true,"
                                        "\"tags\":[{\"begin\":\"a\",\"end\":\"b\",\"content\":");
        text_append_string(&source, WORD("x"));
        for (int i = 0; i < depth; i++) text_append_string(&source, "}]}");
        text_append_string(&source, "}");
        const enum status status = make(source.data, &g, &err);
        assert_int_equal(status, depth == 99 ? STATUS_OK : STATUS_UNSUPPORTED);
        if (depth == 100) assert_non_null(strstr(err.text, "content: formats are nested more than 100 deep"));
        grammar_free(g);
        text_free(&source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_free_text), cmocka_unit_test(test_many_bytes),
                                       cmocka_unit_test(test_texts), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_depth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
