/* Tokenizers of tokenizer.json: the strings of tests/data/tokenizers, with what the Python library tokenizers makes of
 * them. */
#include "test_tokenizer_support.h"

#include <dirent.h>

#include "tokenizer/detokenizer.h"

static void assert_encoded(const struct tokenizer *t, const json_t *entry, const json_t *expected, unsigned flags)
{
    const json_t *text = json_object_get(entry, "text");
    struct token_list ids = {0}, wanted = json_ids(expected);
    struct error err = {{0}};
    if (tokenizer_encode(t, json_string_value(text), json_string_length(text), flags, &ids, &err))
        fail_msg("%s", err.text);
    assert_same_ids(&ids, &wanted, json_string_value(text));
    token_list_free(&ids);
    token_list_free(&wanted);
}

static void assert_text(const struct text *got, const json_t *expected)
{
    if (got->length != json_string_length(expected) ||
        (got->length && memcmp(got->data, json_string_value(expected), got->length) != 0))
        fail_msg("got \"%s\", expected \"%s\"", got->length ? got->data : "", json_string_value(expected));
}

/* Decodes in one call, and id by id. */
static void assert_decoded(const struct tokenizer *t, const json_t *list, bool with_special, const json_t *expected)
{
    struct token_list ids = json_ids(list);
    struct text whole = {0}, streamed = {0};
    struct detokenizer d;
    struct error err = {{0}};
    if (tokenizer_decode(t, ids.ids, ids.count, with_special, &whole, &err)) fail_msg("%s", err.text);
    assert_text(&whole, expected);
    detokenizer_init(&d, tokenizer_tokens(t), true, with_special);
    for (size_t i = 0; i <= ids.count; i++) {
        assert_true(text_reserve(&streamed, streamed.length + detokenizer_max_bytes(tokenizer_tokens(t))));
        char *end = streamed.data + streamed.length;
        streamed.length += i < ids.count ? detokenizer_add(&d, ids.ids[i], end) : detokenizer_finish(&d, end);
        streamed.data[streamed.length] = '\0';
    }
    assert_text(&streamed, expected);
    text_free(&whole);
    text_free(&streamed);
    token_list_free(&ids);
}

/* The value of a key that is left out where it equals that of another. */
static const json_t *get(const json_t *entry, const char *key, const char *other)
{
    const json_t *value = json_object_get(entry, key);
    return value ? value : json_object_get(entry, other);
}

static void assert_before(const struct tokenizer *t, const json_t *before)
{
    struct token_list ids = {0}, wanted = json_ids(before);
    assert_int_equal(tokenizer_encode(t, "", 0, TOKENIZER_ADD_SPECIAL, &ids, NULL), STATUS_OK);
    assert_same_ids(&ids, &wanted, "before");
    token_list_free(&ids);
    token_list_free(&wanted);
}

static size_t check(const char *folder)
{
    struct tokenizer *t = open_tokenizer(folder);
    char path[512];
    json_error_t error;
    assert_true(path_join(path, sizeof path, folder, "cases.json"));
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error), *entry;
    if (!root) fail_msg("%s: %s", path, error.text);
    size_t i, count = 0;
    assert_before(t, json_object_get(root, "before"));
    json_array_foreach(json_object_get(root, "encode"), i, entry)
    {
        const json_t *ids = json_object_get(entry, "ids");
        assert_encoded(t, entry, ids, TOKENIZER_PARSE_SPECIAL);
        assert_encoded(t, entry, get(entry, "plain", "ids"), 0);
        assert_decoded(t, ids, true, get(entry, "decoded", "text"));
        assert_decoded(t, ids, false, get(entry, "skipped", "text"));
    }
    count += i;
    json_array_foreach(json_object_get(root, "decode"), i, entry)
    {
        assert_decoded(t, json_object_get(entry, "ids"), true, json_object_get(entry, "decoded"));
        assert_decoded(t, json_object_get(entry, "ids"), false, json_object_get(entry, "skipped"));
    }
    json_decref(root);
    tokenizer_close(t);
    return count + i;
}

static void test_golden(void **state)
{
    (void)state;
    struct dirent **entries;
    size_t cases = 0;
    const int count = scandir(QUIRE_TEST_DATA "/tokenizers", &entries, NULL, alphasort);
    assert_true(count > 10);
    for (int i = 0; i < count; i++) {
        char folder[512];
        assert_true(path_join(folder, sizeof folder, QUIRE_TEST_DATA "/tokenizers", entries[i]->d_name));
        if (entries[i]->d_name[0] != '.') cases += check(folder);
        free(entries[i]);
    }
    free(entries);
    assert_true(cases > 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
