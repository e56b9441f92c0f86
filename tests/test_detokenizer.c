/* detokenizer.h: streaming gives the whole decode, in whole characters. */
#include "test_tokenizer_support.h"

#include "base/utf8.h"
#include "tokenizer/detokenizer.h"

#define OF(name) QUIRE_TEST_DATA "/tokenizers/" name
static const char *const folders[] = {BPE, UNIGRAM, OF("llama3"), OF("llama2"), OF("metaspace")};

static void assert_utf8(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length;) {
        int n = utf8_length(bytes + i, length - i);
        assert_true(n > 0);
        i += (size_t)n;
    }
}

/* Half of the ids are bytes above 0x7F, where the model has them. */
static int32_t draw_id(const struct tokenizer *t, uint64_t *seed)
{
    if (random_below(seed, 2) && tokenizer_size(t) >= 600) return 7 + 0x80 + (int32_t)random_below(seed, 0x80);
    return (int32_t)random_below(seed, (uint32_t)tokenizer_size(t));
}

static void stream(struct detokenizer *d, const int32_t *ids, size_t count, size_t max, struct text *out)
{
    char *buffer = malloc(max); /* exactly as long as promised: a sanitizer sees one byte more */
    assert_non_null(buffer);
    for (size_t i = 0; i <= count; i++) {
        size_t length = i < count ? detokenizer_add(d, ids[i], buffer) : detokenizer_finish(d, buffer);
        assert_true(length <= max);
        assert_utf8(buffer, length);
        assert_true(text_append(out, buffer, length));
    }
    free(buffer);
}

static void check_sequence(const struct tokenizer *t, const int32_t *ids, size_t count, bool with_special)
{
    struct detokenizer d;
    struct text streamed = {0}, whole = {0};
    detokenizer_init(&d, tokenizer_tokens(t), true, with_special);
    stream(&d, ids, count, detokenizer_max_bytes(tokenizer_tokens(t)), &streamed);
    assert_int_equal(d.pending_length, 0);
    assert_int_equal(tokenizer_decode(t, ids, count, with_special, &whole, NULL), STATUS_OK);
    assert_int_equal(streamed.length, whole.length);
    if (whole.length) assert_memory_equal(streamed.data, whole.data, whole.length);
    text_free(&streamed);
    text_free(&whole);
}

static void test_joined_is_whole(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        struct tokenizer *t = open_tokenizer(folders[f]);
        uint64_t seed = 3;
        for (int round = 0; round < 4000; round++) {
            int32_t ids[24];
            size_t count = random_below(&seed, 24);
            for (size_t i = 0; i < count; i++) ids[i] = draw_id(t, &seed);
            check_sequence(t, ids, count, round % 2);
        }
        tokenizer_close(t);
    }
}

/* Stopping at any token and going on with a copy changes nothing: all state is in the struct. */
static void test_split_points(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(BPE);
    uint64_t seed = 5;
    size_t max = detokenizer_max_bytes(tokenizer_tokens(t));
    char *buffer = malloc(max);
    for (int round = 0; round < 1000; round++) {
        int32_t ids[16];
        for (size_t i = 0; i < 16; i++) ids[i] = draw_id(t, &seed);
        size_t split = random_below(&seed, 17);
        struct detokenizer d, copy;
        struct text parts = {0}, whole = {0};
        detokenizer_init(&d, tokenizer_tokens(t), true, false);
        for (size_t i = 0; i < split; i++)
            assert_true(text_append(&parts, buffer, detokenizer_add(&d, ids[i], buffer)));
        copy = d;
        memset(&d, 0xA5, sizeof d);
        stream(&copy, ids + split, 16 - split, max, &parts);
        assert_int_equal(tokenizer_decode(t, ids, 16, false, &whole, NULL), STATUS_OK);
        assert_int_equal(parts.length, whole.length);
        assert_memory_equal(parts.data, whole.data, whole.length);
        text_free(&parts);
        text_free(&whole);
    }
    free(buffer);
    tokenizer_close(t);
}

static size_t add(struct detokenizer *d, int32_t id, char *out)
{
    size_t length = detokenizer_add(d, id, out);
    out[length] = '\0';
    return length;
}

enum { BYTE = 7 }; /* the first byte piece of the BPE model */

static void test_waits_for_a_character(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(BPE);
    struct detokenizer d;
    char out[64];
    detokenizer_init(&d, tokenizer_tokens(t), true, false);
    assert_int_equal(add(&d, BYTE + 0xF0, out), 0);
    assert_int_equal(add(&d, BYTE + 0x9F, out), 0);
    assert_int_equal(add(&d, BYTE + 0x98, out), 0);
    assert_int_equal(add(&d, BYTE + 0x80, out), 4);
    assert_string_equal(out, "\xf0\x9f\x98\x80");
    assert_int_equal(add(&d, BYTE + 0xFF, out), 3); /* begins nothing: at once */
    assert_string_equal(out, UTF8_REPLACEMENT);
    assert_int_equal(add(&d, BYTE + 0xE2, out), 0);
    assert_int_equal(add(&d, BYTE + 0xC3, out), 3); /* the first byte can form no character, the second still may */
    assert_int_equal(add(&d, BYTE + 0xA9, out), 2);
    assert_string_equal(out, "\xc3\xa9");
    assert_int_equal(add(&d, BYTE + 0xE2, out), 0);
    assert_int_equal(add(&d, BYTE + 0x96, out), 0);
    assert_int_equal(add(&d, 6, out), 6); /* a special token ends it: one U+FFFD a byte */
    assert_int_equal(add(&d, BYTE + 0xE2, out), 0);
    assert_int_equal(detokenizer_finish(&d, out), 3);
    assert_int_equal(detokenizer_finish(&d, out), 0);
    tokenizer_close(t);
}

static int32_t only_id(const struct tokenizer *t, const char *text)
{
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, &ids, NULL), STATUS_OK);
    assert_int_equal(ids.count, 1);
    int32_t id = ids.ids[0];
    token_list_free(&ids);
    return id;
}

static void test_first_space(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(BPE);
    int32_t river = only_id(t, "river"), user = tokenizer_special_id(t, "<|user|>");
    struct detokenizer d;
    char out[64];
    detokenizer_init(&d, tokenizer_tokens(t), true, false);
    add(&d, user, out);
    add(&d, river, out);
    assert_string_equal(out, "river");
    add(&d, river, out);
    assert_string_equal(out, " river");
    add(&d, user, out);
    add(&d, river, out); /* not the first word of the text */
    assert_string_equal(out, " river");
    detokenizer_init(&d, tokenizer_tokens(t), false, false);
    add(&d, river, out);
    assert_string_equal(out, " river");
    detokenizer_init(&d, tokenizer_tokens(t), true, true);
    add(&d, user, out);
    assert_string_equal(out, "<|user|>");
    add(&d, river, out);
    assert_string_equal(out, "river");
    tokenizer_close(t);
}

/* A run of byte tokens longer than what is held back: whole characters stay whole, and where it breaks each byte after
 * what was written is U+FFFD. */
static void test_long_run_of_bytes(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(QUIRE_TEST_DATA "/tokenizers/llama2");
    const int32_t byte = 3; /* the first byte token */
    struct detokenizer d;
    struct text out = {0};
    int32_t ids[400];
    for (int i = 0; i < 400; i++) ids[i] = byte + (unsigned char)"\xe2\x96\x87"[i % 3];
    detokenizer_init(&d, tokenizer_tokens(t), true, false);
    stream(&d, ids, 399, detokenizer_max_bytes(tokenizer_tokens(t)), &out);
    assert_int_equal(out.length, 399);
    for (int i = 0; i < 399; i += 3) assert_memory_equal(out.data + i, "\xe2\x96\x87", 3);
    out.length = 0;
    detokenizer_init(&d, tokenizer_tokens(t), true, false);
    stream(&d, ids + 1, 30, detokenizer_max_bytes(tokenizer_tokens(t)), &out); /* broken from the start: every byte */
    assert_int_equal(out.length, 90);
    for (int i = 0; i < 90; i += 3) assert_memory_equal(out.data + i, UTF8_REPLACEMENT, 3);
    text_free(&out);
    tokenizer_close(t);
}

static void test_ids_out_of_range(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(BPE);
    struct detokenizer d;
    char out[64];
    detokenizer_init(&d, tokenizer_tokens(t), true, true);
    assert_int_equal(add(&d, -1, out), 0);
    assert_int_equal(add(&d, 602, out), 0);
    assert_int_equal(add(&d, INT32_MAX, out), 0);
    assert_int_equal(add(&d, BYTE + 0xE2, out), 0);
    assert_int_equal(add(&d, INT32_MIN, out), 0);
    assert_int_equal(detokenizer_finish(&d, out), 3);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joined_is_whole),       cmocka_unit_test(test_split_points),
        cmocka_unit_test(test_waits_for_a_character), cmocka_unit_test(test_first_space),
        cmocka_unit_test(test_ids_out_of_range),      cmocka_unit_test(test_long_run_of_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
