/* Unigram: ways of equal scores, unknown characters, what stands for them, and what is refused. The ids are those that
 * tokenizers 0.23 gives, where it gives any. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/temp_folder.h"
#include "tokenizer/unigram.h"

/* A tokenizer.json with these members of a Unigram model. */
static enum status open_model(const char *members, bool byte_level, struct unigram **out, struct error *err)
{
    struct temp_folder folder;
    struct tokenizer_json file;
    struct text text = {0};
    char path[512];
    *out = NULL;
    temp_folder_make(&folder);
    assert_true(text_printf(&text, "{\"model\": {\"type\": \"Unigram\", %s}}", members));
    temp_folder_write(&folder, "tokenizer.json", text.data, text.length);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder.path);
    enum status status = tokenizer_json_read(path, &file, err);
    if (!status) status = unigram_open(&file, byte_level, path, out, err);
    tokenizer_json_free(&file);
    text_free(&text);
    temp_folder_remove(&folder);
    return status;
}

static void refuse(const char *members, bool byte_level, enum status expected, const char *words)
{
    struct unigram *u;
    struct error err = {""};
    const enum status status = open_model(members, byte_level, &u, &err);
    unigram_close(u);
    if (status != expected || !strstr(err.text, "tokenizer.json: ") || !strstr(err.text, words))
        fail_msg("%s: expected \"%s\", found %d: %s", members, words, (int)status, err.text);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "1", "[]", "[\"a\"]", "[\"a\", \"1\"]", "[\"a\", null]", "[\"a\", 1, 2]", "[\"a\", 1e400]", "[1, 1]"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        char members[100];
        snprintf(members, sizeof members, "\"vocab\": [[\"x\", 0], %s]", pieces[i]);
        refuse(members, false, STATUS_INVALID, "piece 1 must be an array of a string and its score, a number");
    }
    refuse("\"vocab\": {\"a\": 1}", false, STATUS_INVALID, "must be an array of pieces and their scores");
    refuse("\"unk_id\": 0", false, STATUS_INVALID, "no \"vocab\"");
    refuse("\"vocab\": [[\"a\", 1]], \"unk_id\": 1", false, STATUS_INVALID,
           "model.unk_id is 1, but there are 1 pieces");
    refuse("\"vocab\": [], \"unk_id\": 0", false, STATUS_INVALID, "model.unk_id is 0, but there are 0 pieces");
    refuse("\"vocab\": [[\"a\", 1]], \"unk_id\": -1", false, STATUS_INVALID, "model.unk_id must be");
    refuse("\"vocab\": [[\"a\", 1]], \"unk_id\": 0.5", false, STATUS_INVALID, "model.unk_id must be");
    refuse("\"vocab\": [[\"a\", 1]], \"byte_fallback\": 1", false, STATUS_INVALID, "model.byte_fallback must be");
    refuse("\"vocab\": [[\"a\", 1]]", true, STATUS_UNSUPPORTED, "ByteLevel");
}

static enum status encode(const struct unigram *u, const char *text, size_t length, struct token_list *out,
                          struct error *err)
{
    struct word word = {0, (uint32_t)length};
    struct words words = {.items = &word, .count = 1};
    assert_true(text_append(&words.text, text, length));
    const enum status status = unigram_encode(u, &words, out, err);
    text_free(&words.text);
    return status;
}

/* expected: the ids, each followed by a space. */
static void check(const struct unigram *u, const char *text, const char *expected)
{
    struct token_list ids = {0};
    struct text found = {0};
    struct error err = {""};
    if (encode(u, text, strlen(text), &ids, &err)) fail_msg("%s: %s", text, err.text);
    assert_true(text_append(&found, "", 0));
    for (size_t i = 0; i < ids.count; i++) assert_true(text_printf(&found, "%d ", (int)ids.ids[i]));
    if (strcmp(found.data, expected) != 0) fail_msg("%s: expected %s, found %s", text, expected, found.data);
    token_list_free(&ids);
    text_free(&found);
}

static void check_model(const char *members, const char *text, const char *expected)
{
    struct unigram *u;
    struct error err = {""};
    if (open_model(members, false, &u, &err)) fail_msg("%s: %s", members, err.text);
    check(u, text, expected);
    unigram_close(u);
}

#define MODEL(pieces) "\"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], " pieces "]"

/* The piece that begins first wins, so the last piece is the longest. */
static void test_ties(void **state)
{
    (void)state;
    check_model(MODEL("[\"ab\", -2], [\"a\", -1], [\"b\", -1]"), "ab", "1 ");
    check_model(MODEL("[\"ab\", -2], [\"bc\", -2], [\"a\", -2], [\"b\", -2], [\"c\", -2]"), "abc", "3 2 ");
    /* Equal as the nearest doubles, but not as tokenizers reads these numbers. */
    check_model(MODEL("[\"a\", -10.399999618530273], [\"aa\", -20.799999237060547]"), "aaaa", "1 1 1 1 ");
    /* "xy" has the score of two unknown characters. */
    check_model("\"unk_id\": 0, \"vocab\": [[\"<unk>\", -1], [\"xy\", -22]]", "xy", "1 ");
    /* The last of equal pieces counts, also where it is worse. */
    check_model(MODEL("[\"a\", -1], [\"b\", -1], [\"a\", -5], [\"ab\", -7]"), "ab", "3 2 ");
}

static void test_unknown(void **state)
{
    (void)state;
    check_model(MODEL("[\"a\", -1]"), "xxa", "0 1 ");
    check_model(MODEL("[\"a\", -1]"), "axx", "1 0 ");
    check_model(MODEL("[\"a\", -1]"), "\xc3\xa9\xc3\xa0x", "0 ");
    check_model(MODEL("[\"a\", -1]"), "a<unk>\xc3\xa9", "1 0 ");
    check_model(MODEL("[\"a\", -1], [\"\", -100]"), "aa", "1 1 ");
    check_model(MODEL("[\"a\", -1], [\"\", -100]"), "", "");
    /* The lowest score is -5, so an unknown character has -15. */
    check_model(MODEL("[\"a\", 10.5], [\"xa\", -5]"), "xa", "0 1 ");
    check_model(MODEL("[\"a\", 9.5], [\"xa\", -5]"), "xa", "2 ");
    /* With scores above 0 two unknown characters are better than a piece of both, which is then what stands for them.
     */
    check_model("\"unk_id\": 0, \"vocab\": [[\"<unk>\", 100], [\"xy\", 100]]", "xy", "1 ");
    check_model("\"unk_id\": 0, \"vocab\": [[\"<unk>\", 100], [\"xy\", 100]]", "xyq", "0 ");
}

#define BYTES(pieces) MODEL(pieces) ", \"byte_fallback\": true"

static void test_byte_fallback(void **state)
{
    (void)state;
    check_model(BYTES("[\"a\", -1], [\"<0xC3>\", -1], [\"<0xA9>\", -1]"),
                "a\xc3\xa9"
                "a",
                "1 2 3 1 ");
    check_model(MODEL("[\"a\", -1], [\"<0xC3>\", -1], [\"<0xA9>\", -1]"),
                "a\xc3\xa9"
                "a",
                "1 0 1 ");
    check_model(BYTES("[\"a\", -1], [\"<0xC3>\", -1]"),
                "\xc3\xa9"
                "a",
                "0 1 ");
    check_model(BYTES("[\"a\", -1], [\"<0xC3>\", -1], [\"<0xA9>\", -1]"),
                "\xc3\xa9\xc3\xa0"
                "a",
                "0 1 ");
}

static void fail_to_encode(const char *members, const char *text, const char *words)
{
    struct unigram *u;
    struct error err = {""};
    struct token_list ids = {0};
    if (open_model(members, false, &u, &err)) fail_msg("%s: %s", members, err.text);
    assert_true(token_list_append(&ids, &(int32_t){7}, 1));
    assert_int_equal(encode(u, text, strlen(text), &ids, &err), STATUS_INVALID);
    if (!strstr(err.text, words)) fail_msg("expected \"%s\", found: %s", words, err.text);
    assert_int_equal(ids.count, 1);
    token_list_free(&ids);
    unigram_close(u);
}

static void test_no_unk_id(void **state)
{
    (void)state;
    check_model("\"vocab\": []", "", "");
    check_model("\"vocab\": [[\"a\", -1], [\"ab\", -1], [\"c\", -1]], \"unk_id\": null", "abc", "1 2 ");
    fail_to_encode("\"vocab\": []", "a", "\"a\" is no piece of the vocabulary, and the model has no unk_id");
    fail_to_encode("\"vocab\": [[\"ab\", -1]]", "ab", "\"a\" is no piece");
    fail_to_encode("\"vocab\": [[\"a\", -1]]", "a\xc3\xa9", "\"\xc3\xa9\" is no piece");
}

static void test_hidden(void **state)
{
    (void)state;
    struct unigram *u;
    assert_int_equal(open_model(BYTES("[\"<s>\", 0], [\"<\", -5], [\"s\", -5], [\">\", -5]"), false, &u, NULL), 0);
    check(u, "s<s>", "3 1 ");
    unigram_hide(u, 1);
    unigram_hide(u, 0);  /* the unknown piece stays */
    unigram_hide(u, 99); /* no such piece */
    check(u, "s<s>", "3 2 3 4 ");
    check(u, "<unk>", "0 ");
    assert_int_equal(unigram_piece_id(u, "<s>", 3), 1);
    assert_int_equal(unigram_piece_id(u, "<t>", 3), -1);
    unigram_close(u);
    /* Unknown characters that spell it */
    assert_int_equal(open_model(MODEL("[\"<s>\", 0], [\"a\", -5]"), false, &u, NULL), 0);
    unigram_hide(u, 1);
    check(u, "a<s>", "2 0 ");
    unigram_close(u);
}

/* Every place can be reached from three others. */
static void test_long_word(void **state)
{
    (void)state;
    enum { LENGTH = 1000000 };
    struct unigram *u;
    struct token_list ids = {0};
    char *text = malloc(LENGTH);
    assert_non_null(text);
    memset(text, 'a', LENGTH);
    assert_int_equal(open_model(MODEL("[\"a\", -2], [\"aaa\", -2], [\"aaaaaaaa\", -3]"), false, &u, NULL), 0);
    assert_int_equal(encode(u, text, LENGTH, &ids, NULL), STATUS_OK);
    assert_int_equal(ids.count, LENGTH / 8);
    for (size_t i = 0; i < ids.count; i++) assert_int_equal(ids.ids[i], 3);
    token_list_free(&ids);
    unigram_close(u);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_ties),      cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_byte_fallback), cmocka_unit_test(test_no_unk_id), cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_long_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
