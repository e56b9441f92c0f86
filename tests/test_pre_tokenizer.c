/* pre_tokenizer.h: the words are those of tokenizers 0.23; what it does not have is refused; nothing is quadratic. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tokenizer/pre_tokenizer.h"

static struct pre_tokenizer *open_value(const json_t *value)
{
    struct pre_tokenizer *p;
    struct error err = {{0}};
    if (pre_tokenizer_open(value, "tokenizer.json", &p, &err)) fail_msg("%s", err.text);
    return p;
}

static struct pre_tokenizer *open_string(const char *json)
{
    json_t *value = json_loads(json, 0, NULL);
    assert_non_null(value);
    struct pre_tokenizer *p = open_value(value);
    json_decref(value);
    return p;
}

/* A word as tokenizers writes it: in ByteLevel's characters, if there is a ByteLevel. */
static struct text written_word(const struct words *words, struct word word, bool byte_level)
{
    struct text out = {0};
    const char *bytes = words->text.data + word.offset;
    assert_true(text_append(&out, "", 0));
    for (uint32_t i = 0; i < word.length; i++) {
        uint32_t c = byte_level_character((unsigned char)bytes[i]);
        char mapped[] = {(char)(0xC0 | c >> 6), (char)(0x80 | (c & 0x3F))};
        if (!byte_level)
            assert_true(text_append(&out, bytes + i, 1));
        else if (c < 0x80)
            assert_true(text_append(&out, &(char){(char)c}, 1));
        else
            assert_true(text_append(&out, mapped, 2));
    }
    return out;
}

static void check_text(const struct pre_tokenizer *p, const json_t *text, const json_t *expected, const char *what)
{
    struct words words = {{0}};
    struct error err = {{0}};
    if (pre_tokenizer_split(p, json_string_value(text), json_string_length(text), true, &words, &err))
        fail_msg("%s: %s", what, err.text);
    size_t good = 0;
    for (; good < words.count && good < json_array_size(expected); good++) {
        const json_t *word = json_array_get(expected, good);
        struct text written = written_word(&words, words.items[good], pre_tokenizer_is_byte_level(p));
        bool equal = written.length == json_string_length(word) &&
                     memcmp(written.data, json_string_value(word), written.length) == 0;
        text_free(&written);
        if (!equal) break;
    }
    if (good != words.count || good != json_array_size(expected))
        fail_msg("%s: word %zu of %s, %zu words, expected %zu", what, good, show_value(text).text, words.count,
                 json_array_size(expected));
    words_free(&words);
}

static void test_golden(void **state)
{
    (void)state;
    json_t *golden;
    struct error err;
    assert_int_equal(json_object_read(QUIRE_TEST_DATA "/pre_tokenizer.json", &golden, &err), STATUS_OK);
    const json_t *texts = json_object_get(golden, "texts"), *test_case;
    size_t index;
    assert_true(json_array_size(json_object_get(golden, "cases")) > 80);
    json_array_foreach(json_object_get(golden, "cases"), index, test_case)
    {
        const json_t *value = json_object_get(test_case, "pre_tokenizer");
        struct pre_tokenizer *p = open_value(value);
        for (size_t i = 0; i < json_array_size(texts); i++)
            check_text(p, json_array_get(texts, i), json_array_get(json_object_get(test_case, "expected"), i),
                       show_value(value).text);
        pre_tokenizer_close(p);
    }
    json_decref(golden);
}

static void test_none_is_one_word(void **state)
{
    (void)state;
    struct pre_tokenizer *p = open_value(NULL);
    struct words words = {{0}};
    assert_int_equal(pre_tokenizer_split(p, "a b", 3, true, &words, NULL), STATUS_OK);
    assert_int_equal(words.count, 1);
    assert_int_equal(words.items[0].length, 3);
    assert_int_equal(pre_tokenizer_split(p, "", 0, true, &words, NULL), STATUS_OK);
    assert_int_equal(words.count, 0);
    words_free(&words);
    pre_tokenizer_close(p);
}

/* prepend_scheme "first" is for the word that begins the input. */
static void test_first(void **state)
{
    (void)state;
    struct pre_tokenizer *p =
        open_string("{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\"}");
    struct words words = {{0}};
    assert_int_equal(pre_tokenizer_split(p, "ab", 2, true, &words, NULL), STATUS_OK);
    assert_string_equal(words.text.data, "_ab");
    assert_int_equal(pre_tokenizer_split(p, "ab", 2, false, &words, NULL), STATUS_OK);
    assert_string_equal(words.text.data, "ab");
    words_free(&words);
    pre_tokenizer_close(p);
}

static void check_refused(const char *json, enum status expected, const char *message)
{
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    struct pre_tokenizer *p;
    struct error err = {{0}};
    assert_non_null(value);
    enum status status = pre_tokenizer_open(value, "F.json", &p, &err);
    if (status != expected || !strstr(err.text, message) || strncmp(err.text, "F.json: ", 8) != 0)
        fail_msg("%s: status %d, %s", json, (int)status, err.text);
    assert_null(p);
    json_decref(value);
}

static void check_pattern_refused(const char *pattern, enum status expected, const char *message)
{
    json_t *value = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", pattern, "behavior",
                              "Isolated", "invert", 0);
    char *json = json_dumps(value, 0);
    check_refused(json, expected, message);
    free(json);
    json_decref(value);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused("3", STATUS_INVALID, "must be an object");
    check_refused("{\"type\": \"BertPreTokenizer\"}", STATUS_UNSUPPORTED, "BertPreTokenizer");
    check_refused("{\"type\": \"Sequence\"}", STATUS_INVALID, "pretokenizers");
    check_refused("{\"type\": \"ByteLevel\"}", STATUS_INVALID, "add_prefix_space");
    check_refused("{\"type\": \"Digits\"}", STATUS_INVALID, "individual_digits");
    check_refused("{\"type\": \"Metaspace\", \"replacement\": \"ab\"}", STATUS_INVALID, "one character");
    check_refused("{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": 1}", STATUS_INVALID,
                  "prepend");
    check_refused("{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}", STATUS_INVALID,
                  "first, never or always");
    check_refused("{\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false}", STATUS_INVALID,
                  "prepend_scheme is not never");
    check_refused("{\"type\": \"Punctuation\", \"behavior\": \"isolated\"}", STATUS_INVALID, "MergedWithNext");
    check_refused("{\"type\": \"Split\", \"pattern\": \"a\", \"behavior\": \"Removed\", \"invert\": true}",
                  STATUS_INVALID, "pattern must be");
    check_refused("{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\", \"add_prefix_space\": true},"
                  "{\"type\": \"Metaspace\", \"replacement\": \"_\"}]}",
                  STATUS_UNSUPPORTED, "Metaspace after ByteLevel");
}

static void test_patterns_refused(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        enum status status;
        const char *message;
    } cases[] = {
        {"(a", STATUS_INVALID, "group without its )"},
        {"a)", STATUS_INVALID, "a ) without its ("},
        {"[a", STATUS_INVALID, "class without its ]"},
        {"[]a]", STATUS_UNSUPPORTED, "begins with ]"},
        {"[b-a]", STATUS_INVALID, "end is before"},
        {"[a-\\d]", STATUS_UNSUPPORTED, "escape in a class"},
        {"*a", STATUS_INVALID, "nothing to repeat"},
        {"a\\", STATUS_INVALID, "backslash at the end"},
        {"(a)\\1", STATUS_UNSUPPORTED, "\\1"},
        {"\\K", STATUS_UNSUPPORTED, "\\K"},
        {"\\X", STATUS_UNSUPPORTED, "\\X"},
        {"\\G", STATUS_UNSUPPORTED, "\\G"},
        {"(?x)a", STATUS_UNSUPPORTED, "this group"},
        {"(?~a)", STATUS_UNSUPPORTED, "this group"},
        {"\\p{Klingon}", STATUS_UNSUPPORTED, "Klingon"},
        {"[[:klingon:]]", STATUS_UNSUPPORTED, "klingon"},
        {"\\x{110000}", STATUS_INVALID, "number of a character"},
        {"\\ud800", STATUS_INVALID, "number of a character"},
        {"\\xe9", STATUS_UNSUPPORTED, "not ASCII"},
        {"a{2,1}", STATUS_UNSUPPORTED, "n above m"},
        {"a{70000}", STATUS_UNSUPPORTED, "65535"},
        {"(?i:\xc3\xa9)", STATUS_UNSUPPORTED, "not ASCII under (?i)"},
        {"(?i:[\\p{L}])", STATUS_UNSUPPORTED, "in brackets under (?i)"},
        {"(?i:first)", STATUS_UNSUPPORTED, "ligature"},
        {"(?<=a*)b", STATUS_UNSUPPORTED, "PCRE2 does not take"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_pattern_refused(cases[i].pattern, cases[i].status, cases[i].message);
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    struct text deep = {0};
    for (int i = 0; i < 100000; i++) assert_true(text_append_string(&deep, "("));
    check_pattern_refused(deep.data, STATUS_UNSUPPORTED, "nested groups");
    memset(deep.data, '[', deep.length);
    check_pattern_refused(deep.data, STATUS_UNSUPPORTED, "nested groups");
    text_free(&deep);
}

static enum status split_repeated(const char *json, const char *unit, size_t bytes, const char *end, size_t *count)
{
    struct pre_tokenizer *p = open_string(json);
    struct words words = {{0}};
    struct text text = {0};
    struct error err = {{0}};
    while (text.length < bytes) assert_true(text_append_string(&text, unit));
    assert_true(text_append_string(&text, end));
    enum status status = pre_tokenizer_split(p, text.data, text.length, true, &words, &err);
    if (status) assert_non_null(strstr(err.text, "given up"));
    *count = words.count;
    text_free(&text);
    words_free(&words);
    pre_tokenizer_close(p);
    return status;
}

#define REGEX(pattern)                                                                                                 \
    "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false, \"pattern\": {\"Regex\": \"" pattern "\"}}"

/* 10 MB of one thing: where the work is quadratic, this takes hours. */
static void test_long_runs(void **state)
{
    (void)state;
    static const struct {
        const char *json, *unit, *end;
        size_t count;
    } cases[] = {
        {"{\"type\": \"ByteLevel\", \"add_prefix_space\": false}", "a", "", 1},
        {"{\"type\": \"ByteLevel\", \"add_prefix_space\": false}", " ", "a", 2},
        {"{\"type\": \"ByteLevel\", \"add_prefix_space\": false}", "\xf0\x9f\x98\x80", "", 1},
        {REGEX("\\\\s+$"), " ", "a", 1},
        {REGEX("\\\\s+$|b"), " ", "a", 1},
        {REGEX("\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"), "\n ", "a", 3},
        {REGEX("\\\\p{N}{1,3}+"), "7", "", 1},
        {REGEX("(?:[a-z]b|a)+"), "ab", "", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t count;
        assert_int_equal(split_repeated(cases[i].json, cases[i].unit, 10000000, cases[i].end, &count), STATUS_OK);
        if (count != cases[i].count) fail_msg("%s: %zu words", cases[i].json, count);
    }
}

/* A pattern that tries exponentially many ways to match is an error soon. */
static void test_search_is_bounded(void **state)
{
    (void)state;
    size_t count;
    assert_int_equal(split_repeated(REGEX("(?:a|a|aa)+[bc]"), "a", 100, "", &count), STATUS_INVALID);
}

static void test_byte_level_table(void **state)
{
    (void)state;
    int known = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        int byte = byte_level_byte(c);
        assert_in_range(byte + 1, 0, 256);
        if (byte >= 0) assert_int_equal(byte_level_character(byte), c);
        known += byte >= 0;
    }
    assert_int_equal(known, 256);
    assert_int_equal(byte_level_character(' '), 0x120);
    assert_int_equal(byte_level_character('\n'), 0x10A);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_none_is_one_word),
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_patterns_refused),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_search_is_bounded),
        cmocka_unit_test(test_byte_level_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
