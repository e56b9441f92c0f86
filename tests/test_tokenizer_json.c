/* tokenizer.json as flat arrays: both forms of merges, the rest as JSON, and every way in which a file can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/temp_folder.h"
#include "base/json.h"
#include "tokenizer/tokenizer_json.h"

static enum status read_bytes(const char *bytes, size_t length, struct tokenizer_json *out, struct error *err)
{
    struct temp_folder folder;
    char path[512];
    temp_folder_make(&folder);
    temp_folder_write(&folder, "tokenizer.json", bytes, length);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder.path);
    const enum status status = tokenizer_json_read(path, out, err);
    temp_folder_remove(&folder);
    return status;
}

static struct tokenizer_json read_file(const char *text)
{
    struct tokenizer_json file;
    struct error err = {""};
    if (read_bytes(text, strlen(text), &file, &err)) fail_msg("%s: %s", text, err.text);
    return file;
}

static void refuse(const char *text, enum status expected, const char *words)
{
    struct tokenizer_json file;
    struct error err = {""};
    const enum status status = read_bytes(text, strlen(text), &file, &err);
    if (status != expected) fail_msg("%s: status %d, %s", text, (int)status, err.text);
    if (!strstr(err.text, "tokenizer.json: ") || !strstr(err.text, words))
        fail_msg("%s: expected \"%s\", found: %s", text, words, err.text);
    tokenizer_json_free(&file);
}

static void check_string(const struct tokenizer_json *file, uint32_t offset, uint32_t length, const char *expected)
{
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(file->strings.data + offset, expected, length);
}

static void check_merge(const struct tokenizer_json *file, size_t rank, const char *left, const char *right)
{
    const struct json_merge *m = &file->merges[rank];
    check_string(file, m->left, m->left_length, left);
    check_string(file, m->right, m->right_length, right);
}

static void test_read(void **state)
{
    (void)state;
    struct tokenizer_json file =
        read_file("{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 9}], \"normalizer\": null,\n"
                  "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": \"<unk>\","
                  "\"vocab\": {\"b\": 1, \"\\u00e9\\n\": 0, \"a b\": 7, \"\\ud83d\\ude00\": 4194303},"
                  "\"merges\": [\"a b\", [\"a b\", \"c\"], \"\\u0120 x\"], \"fuse_unk\": true}, \"decoder\": {}}\n");
    assert_int_equal(file.num_vocab, 4);
    check_string(&file, file.vocab[0].offset, file.vocab[0].length, "b");
    check_string(&file, file.vocab[1].offset, file.vocab[1].length, "\xc3\xa9\n");
    check_string(&file, file.vocab[2].offset, file.vocab[2].length, "a b");
    check_string(&file, file.vocab[3].offset, file.vocab[3].length, "\xf0\x9f\x98\x80");
    assert_int_equal(file.vocab[1].id, 0);
    assert_int_equal(file.vocab[3].id, 4194303);
    assert_int_equal(file.num_merges, 3);
    check_merge(&file, 0, "a", "b");
    check_merge(&file, 1, "a b", "c");
    check_merge(&file, 2, "\xc4\xa0", "x");
    json_t *rest = json_loads("{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 9}], \"normalizer\": null,"
                              "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": \"<unk>\","
                              "\"fuse_unk\": true}, \"decoder\": {}}",
                              0, NULL);
    assert_true(json_equal(file.rest, rest));
    json_decref(rest);
    tokenizer_json_free(&file);
}

/* Members in another order, pieces with a NUL, files of early versions that do not name the model. */
static void test_forms(void **state)
{
    (void)state;
    struct tokenizer_json file =
        read_file(" {\"model\": {\"merges\": [], \"vocab\": {\"a\\u0000b\": 3, \"\": 0}}, \"version\": \"1.0\"} ");
    assert_int_equal(file.num_merges, 0);
    assert_int_equal(file.num_vocab, 2);
    assert_int_equal(file.vocab[0].length, 3);
    assert_memory_equal(file.strings.data + file.vocab[0].offset, "a\0b", 3);
    assert_int_equal(file.vocab[1].length, 0);
    assert_string_equal(json_string_value(json_object_get(file.rest, "version")), "1.0");
    tokenizer_json_free(&file);
    file = read_file("\xef\xbb\xbf{\"x\":NaN,\"y\":[1e999,99999999999999999999,\"\\u0000\\ud800\"],"
                     "\"model\":{\"vocab\":{},\"merges\":[],\"type\":\"BPE\"}}");
    assert_string_equal(json_spelling(json_object_get(file.rest, "x")), "NaN");
    assert_int_equal(json_array_size(json_object_get(file.rest, "y")), 3);
    tokenizer_json_free(&file);
    file = read_file("{\"model\":{\"vocab\":{},\"merges\":[],\"type\":\"BPE\"}}");
    assert_int_equal(file.num_vocab, 0);
    tokenizer_json_free(&file);
}

#define MODEL(members) "{\"model\": {\"type\": \"BPE\", " members "}}"
#define VOCAB(pieces) MODEL("\"vocab\": {" pieces "}, \"merges\": []")
#define MERGES(merges) MODEL("\"vocab\": {}, \"merges\": [" merges "]")

static void test_refused(void **state)
{
    (void)state;
    refuse("", STATUS_INVALID, "the file is empty");
    refuse("version https://git-lfs.github.com/spec/v1\n", STATUS_INVALID, "git lfs pull");
    refuse("[1]", STATUS_INVALID, "\"model\"");
    refuse("x", STATUS_INVALID, "not valid JSON at line 1, column 1: expected a value, found 'x'");
    refuse("{}", STATUS_INVALID, "no object \"model\"");
    refuse("{\"model\": 1}", STATUS_INVALID, "no object \"model\"");
    refuse("{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}", STATUS_UNSUPPORTED,
           "\"WordPiece\" is not supported");
    refuse("{\"model\": {\"vocab\": [[\"a\", -1.5]]}}", STATUS_UNSUPPORTED, "only BPE");
    refuse("{\"model\": {\"type\": 1, \"merges\": []}}", STATUS_INVALID, "must be a string");
    refuse(MODEL("\"merges\": []"), STATUS_INVALID, "no \"vocab\"");
    refuse(MODEL("\"vocab\": {}"), STATUS_INVALID, "no \"merges\"");
    refuse(MODEL("\"vocab\": [], \"merges\": []"), STATUS_INVALID, "must be an object");
    refuse(MODEL("\"vocab\": {}, \"merges\": {}"), STATUS_INVALID, "must be an array");
    refuse(MODEL("\"vocab\": {}, \"vocab\": {}, \"merges\": []"), STATUS_INVALID, "\"vocab\" is there twice");
    refuse(MODEL("\"vocab\": {}, \"merges\": [], \"x\": 1, \"x\": 2"), STATUS_INVALID, "\"x\" is there twice");
    refuse(VOCAB("\"a\": -1"), STATUS_INVALID, "the id of the piece \"a\" must be an integer from 0 to 4194303");
    refuse(VOCAB("\"a\": 4194304"), STATUS_INVALID, "must be an integer");
    refuse(VOCAB("\"a\": 1.5"), STATUS_INVALID, "must be an integer");
    refuse(VOCAB("\"a\": \"1\""), STATUS_INVALID, "must be an integer");
    refuse(VOCAB("\"a\": 5, \"b\": 5"), STATUS_INVALID, "the pieces \"a\" and \"b\" have the same id 5");
    refuse(MERGES("\"a b\", \"ab\""), STATUS_INVALID, "merge 1 must be two pieces with a space between them");
    refuse(MERGES("\"a b c\""), STATUS_INVALID, "found \"a b c\"");
    refuse(MERGES("[\"a\"]"), STATUS_INVALID, "merge 0 must have two strings");
    refuse(MERGES("[\"a\", \"b\", \"c\"]"), STATUS_INVALID, "merge 0 must have two strings");
    refuse(MERGES("[\"a\", 1]"), STATUS_INVALID, "merge 0 must have two strings");
    refuse(MERGES("{}"), STATUS_INVALID, "merge 0 must be a string or an array");
    refuse(MERGES("") " x", STATUS_INVALID, "not valid JSON at line 1, column 55: expected the end, found 'x'");
    refuse("\xef\xbb\xbf{\n\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\" 1}}}", STATUS_INVALID,
           "tokenizer.json: not valid JSON at line 2, column 48: expected ':', found '1'");
    refuse(VOCAB("\"\xff\": 0"), STATUS_INVALID, "not valid JSON at line 1, column 38: a byte that is not UTF-8");
    refuse("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0", STATUS_INVALID,
           "but the text ends; is it cut short?");
    refuse(VOCAB("\"\\ud800\": 0"), STATUS_INVALID, "a string holds half of a surrogate pair");
    refuse(VOCAB("\"a\": 99999999999999999999"), STATUS_INVALID, "the id of the piece \"a\" must be an integer");
    refuse(MERGES("") " {}", STATUS_INVALID, "tokenizer.json: ");
    refuse("{\"decoder\": {\"a\": tru}, \"model\": {\"vocab\": {}, \"merges\": []}}", STATUS_INVALID, "not valid JSON");
}

/* Wherever a file is cut, reading ends with a sentence; so it does when any byte is another one. */
static void test_damaged(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\\n\":1,\"ab\":2},"
        "\"merges\":[\"a b\",[\"a\",\"b\"]],\"x\":[1,{\"y\":null}]},\"decoder\":{\"z\":true}}";
    for (size_t length = 0; length < sizeof whole - 1; length++) {
        struct tokenizer_json file;
        struct error err = {""};
        assert_int_equal(read_bytes(whole, length, &file, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "tokenizer.json: "));
        tokenizer_json_free(&file);
    }
    for (size_t i = 0; i < sizeof whole - 1; i++) {
        for (size_t k = 0; k < 6; k++) {
            char copy[sizeof whole];
            struct tokenizer_json file;
            struct error err = {""};
            memcpy(copy, whole, sizeof whole);
            copy[i] = "\"}]\xff,0"[k];
            if (read_bytes(copy, sizeof whole - 1, &file, &err)) assert_non_null(strstr(err.text, "tokenizer.json: "));
            tokenizer_json_free(&file);
        }
    }
}

static void test_no_file(void **state)
{
    (void)state;
    struct tokenizer_json file;
    struct error err = {""};
    assert_int_equal(tokenizer_json_read("/nonexistent/tokenizer.json", &file, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "/nonexistent/tokenizer.json"));
    tokenizer_json_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),    cmocka_unit_test(test_forms),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
