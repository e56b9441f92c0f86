/* Byte-pair encoding: the ids that tokenizers gives for models with every option (tests/data/bpe_golden.json, by
 * tests/scripts/make_bpe_golden.py), and long words compared with the definition, one merge at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "tests/support/temp_folder.h"
#include "tokenizer/bpe.h"
#include "tokenizer/merges.h"

/* --- opening --- */

/* A tokenizer.json with this model. */
static enum status open_model(const char *model, bool byte_level, struct bpe **out, struct error *err)
{
    struct temp_folder folder;
    struct tokenizer_json file;
    struct text text = {0};
    char path[512];
    temp_folder_make(&folder);
    assert_true(text_printf(&text, "{\"version\": \"1.0\", \"model\": %s}", model));
    temp_folder_write(&folder, "tokenizer.json", text.data, text.length);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder.path);
    if (tokenizer_json_read(path, &file, err)) fail_msg("%s", err->text);
    const enum status status = bpe_open(&file, byte_level, "tokenizer.json", out, err);
    tokenizer_json_free(&file);
    text_free(&text);
    temp_folder_remove(&folder);
    return status;
}

static struct bpe *open_or_fail(const char *model, bool byte_level)
{
    struct bpe *b;
    struct error err = {""};
    if (open_model(model, byte_level, &b, &err)) fail_msg("%s", err.text);
    return b;
}

static void refuse(const char *model, enum status expected, const char *words)
{
    struct bpe *b;
    struct error err = {""};
    assert_int_equal(open_model(model, false, &b, &err), expected);
    assert_null(b);
    if (!strstr(err.text, "tokenizer.json: ") || !strstr(err.text, words))
        fail_msg("expected \"%s\", found: %s", words, err.text);
}

static void test_refused(void **state)
{
    (void)state;
    refuse("{\"vocab\": {\"a\": 0, \"ab\": 1}, \"merges\": [\"a b\"]}", STATUS_INVALID,
           "merge 0 needs the piece \"b\", which is not in the vocabulary");
    refuse("{\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [\"a b\"]}", STATUS_INVALID,
           "merge 0 needs the piece \"ab\"");
    refuse("{\"vocab\": {\"b\": 0, \"ab\": 1}, \"merges\": [\"a b\"]}", STATUS_INVALID,
           "merge 0 needs the piece \"a\"");
    refuse("{\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"], \"continuing_subword_prefix\": \"##\"}",
           STATUS_INVALID, "merge 0 needs");
    refuse("{\"vocab\": {\"a\": 0, \"a\": 1}, \"merges\": []}", STATUS_INVALID, "\"a\" is in the vocabulary twice");
    refuse("{\"vocab\": {}, \"merges\": [], \"dropout\": 0.1}", STATUS_UNSUPPORTED, "model.dropout");
    refuse("{\"vocab\": {}, \"merges\": [], \"fuse_unk\": 1}", STATUS_INVALID, "model.fuse_unk");
    refuse("{\"vocab\": {}, \"merges\": [], \"unk_token\": 1}", STATUS_INVALID, "model.unk_token");
    bpe_close(open_or_fail("{\"vocab\": {}, \"merges\": [], \"dropout\": 0.0, \"unk_token\": null}", false));
}

static void test_piece_id(void **state)
{
    (void)state;
    const char *model = "{\"vocab\": {\"\\u0120a\": 5, \"\\u65e5\": 7}, \"merges\": []}";
    struct bpe *b = open_or_fail(model, true);
    assert_int_equal(bpe_piece_id(b, " a", 2), 5);
    assert_int_equal(bpe_piece_id(b, "\xe6\x97\xa5", 3), 7);
    assert_int_equal(bpe_piece_id(b, "x", 1), -1);
    assert_int_equal(bpe_piece_id(b, "", 0), -1);
    bpe_close(b);
    b = open_or_fail(model, false);
    assert_int_equal(bpe_piece_id(b, " a", 2), -1);
    assert_int_equal(bpe_piece_id(b,
                                  "\xc4\xa0"
                                  "a",
                                  3),
                     5);
    bpe_close(b);
}

/* --- encoding --- */

static void add_word(struct words *words, const char *bytes, size_t length)
{
    assert_true(array_reserve(&words->items, &words->capacity, words->count + 1, sizeof *words->items));
    words->items[words->count++] = (struct word){(uint32_t)words->text.length, (uint32_t)length};
    assert_true(text_append(&words->text, bytes, length));
}

static void free_words(struct words *words)
{
    text_free(&words->text);
    free(words->items);
}

static void encode_or_fail(const struct bpe *b, const struct words *words, struct token_list *out)
{
    struct error err = {""};
    if (bpe_encode(b, words, out, &err)) fail_msg("%s", err.text);
}

static void check_ids(const char *name, size_t word, const struct token_list *got, size_t from, const json_t *expected)
{
    const size_t count = json_array_size(expected);
    for (size_t i = 0; i < count; i++) {
        const int64_t id = json_integer_value(json_array_get(expected, i));
        if (from + i >= got->count || got->ids[from + i] != id)
            fail_msg("%s: word %zu: id %zu of %zu must be %lld, found %d", name, word, i, count, (long long)id,
                     from + i < got->count ? (int)got->ids[from + i] : -1);
    }
}

/* Each word alone, and all in one call: a word that comes again is remembered within a call. */
static void check_case(const json_t *golden)
{
    const char *name = json_string_value(json_object_get(golden, "name"));
    const json_t *texts = json_object_get(golden, "words"), *expected = json_object_get(golden, "ids");
    char *model = json_dumps(json_object_get(golden, "model"), 0);
    struct bpe *b = open_or_fail(model, json_is_true(json_object_get(golden, "byte_level")));
    struct words all = {0};
    struct token_list ids = {0};
    for (size_t i = 0; i < 2 * json_array_size(texts); i++) {
        const size_t n = i % json_array_size(texts);
        const json_t *text = json_array_get(texts, n);
        struct words one = {0};
        add_word(&one, json_string_value(text), json_string_length(text));
        add_word(&all, json_string_value(text), json_string_length(text));
        ids.count = 0;
        encode_or_fail(b, &one, &ids);
        check_ids(name, n, &ids, 0, json_array_get(expected, n));
        assert_int_equal(ids.count, json_array_size(json_array_get(expected, n)));
        free_words(&one);
    }
    ids.count = 0;
    encode_or_fail(b, &all, &ids);
    size_t from = 0;
    for (size_t i = 0; i < all.count; i++) {
        const json_t *word_ids = json_array_get(expected, i % json_array_size(texts));
        check_ids(name, i, &ids, from, word_ids);
        from += json_array_size(word_ids);
    }
    assert_int_equal(ids.count, from);
    free_words(&all);
    token_list_free(&ids);
    bpe_close(b);
    free(model);
}

static void test_golden(void **state)
{
    (void)state;
    json_error_t err;
    json_t *cases = json_load_file(QUIRE_TEST_DATA "/bpe_golden.json", JSON_ALLOW_NUL, &err);
    if (!cases) fail_msg("%s", err.text);
    assert_true(json_array_size(cases) > 20);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(json_array_get(cases, i));
    json_decref(cases);
}

/* The unk_token may be missing until it is needed; a call that fails leaves the list as it was. */
static void test_no_unk_token(void **state)
{
    (void)state;
    struct bpe *b = open_or_fail("{\"vocab\": {\"a\": 3}, \"merges\": [], \"unk_token\": \"<unk>\"}", false);
    struct words words = {0};
    struct token_list ids = {0};
    struct error err = {""};
    add_word(&words, "aa", 2);
    encode_or_fail(b, &words, &ids);
    assert_int_equal(ids.count, 2);
    add_word(&words, "ab", 2);
    assert_int_equal(bpe_encode(b, &words, &ids, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "\"b\" has no token in the vocabulary"));
    assert_int_equal(ids.count, 2);
    assert_int_equal(ids.ids[1], 3);
    free_words(&words);
    token_list_free(&ids);
    bpe_close(b);
}

/* --- merges --- */

/* The definition: the lowest rank first, then the leftmost. */
static size_t merge_slowly(const struct merge *merges, size_t num_merges, int32_t *ids, size_t count)
{
    for (;;) {
        size_t best_rank = num_merges, best = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            for (size_t rank = 0; rank < best_rank; rank++) {
                if (merges[rank].left != ids[i] || merges[rank].right != ids[i + 1]) continue;
                best_rank = rank;
                best = i;
            }
        }
        if (best_rank == num_merges) return count;
        ids[best] = merges[best_rank].result;
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
        count--;
    }
}

enum { LETTERS = 3, MAX_MERGES = 24, MAX_SYMBOLS = 3000 };

/* Different pairs, each making a symbol of its own, of letters and of results in any order. */
static size_t random_merges(struct random *random, struct merge *out)
{
    const int32_t wanted = (int32_t)random_between(random, 1, MAX_MERGES);
    size_t count = 0;
    for (int32_t i = 0; i < wanted; i++) {
        const int32_t left = (int32_t)random_between(random, 0, LETTERS + wanted - 1);
        const int32_t right = (int32_t)random_between(random, 0, LETTERS + wanted - 1);
        bool known = false;
        for (size_t k = 0; k < count; k++) known |= out[k].left == left && out[k].right == right;
        if (!known) out[count++] = (struct merge){left, right, LETTERS + i};
    }
    return count;
}

static void test_long_words(void **state)
{
    (void)state;
    static int32_t expected[MAX_SYMBOLS], got[MAX_SYMBOLS];
    struct random random = {7};
    for (int round = 0; round < 300; round++) {
        struct merge slow[MAX_MERGES], *items = malloc(sizeof slow);
        struct merges merges;
        struct merge_scratch *scratch = merge_scratch_new();
        assert_non_null(items);
        assert_non_null(scratch);
        const size_t num_merges = random_merges(&random, slow);
        memcpy(items, slow, sizeof slow);
        assert_true(merges_init(&merges, items, num_merges, false));
        for (size_t count = 1; count <= MAX_SYMBOLS; count = count * 3 + 2) { /* 1, 5, 17, 53, 161, 485, 1457 */
            const int64_t letters = random_between(&random, 1, LETTERS);
            for (size_t i = 0; i < count; i++) expected[i] = got[i] = (int32_t)random_between(&random, 0, letters - 1);
            const size_t left = merge_slowly(slow, num_merges, expected, count);
            assert_int_equal(merges_apply(&merges, scratch, got, count), left);
            assert_memory_equal(got, expected, left * sizeof *got);
        }
        merge_scratch_free(scratch);
        merges_free(&merges);
    }
}

/* A word of a million letters, with as many merges one after the other as there can be. */
static void test_million(void **state)
{
    (void)state;
    const size_t count = 1000000;
    struct bpe *b = open_or_fail("{\"vocab\": {\"a\": 0, \"aa\": 1, \"aaaa\": 2, \"b\": 3, \"ab\": 4, \"aab\": 5},"
                                 "\"merges\": [\"a ab\", \"a b\", \"a a\", \"aa aa\"]}",
                                 false);
    struct words words = {0};
    struct token_list ids = {0};
    char *text = malloc(count);
    assert_non_null(text);
    memset(text, 'a', count);
    add_word(&words, text, count);
    for (size_t i = 2; i < count; i += 3) text[i] = 'b';
    add_word(&words, text, count);
    encode_or_fail(b, &words, &ids);
    assert_int_equal(ids.count, count / 4 + count / 3 + 1);
    for (size_t i = 0; i < count / 4; i++) assert_int_equal(ids.ids[i], 2);
    for (size_t i = 0; i < count / 3; i++) assert_int_equal(ids.ids[count / 4 + i], 5);
    assert_int_equal(ids.ids[ids.count - 1], 0);
    free(text);
    free_words(&words);
    token_list_free(&ids);
    bpe_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_piece_id),   cmocka_unit_test(test_golden),
        cmocka_unit_test(test_no_unk_token), cmocka_unit_test(test_long_words), cmocka_unit_test(test_million),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
