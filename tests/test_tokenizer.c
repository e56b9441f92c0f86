/* tokenizer.h and what it is built on: SentencePiece, the table of tokens, special tokens, the JSON files. */
#include "test_tokenizer_support.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "base/utf8.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer_config.h"

/* Whether TOKENIZER_ADD_SPECIAL puts bos before a text. */
static bool adds_bos(const struct tokenizer *t)
{
    struct token_list ids = {0};
    struct error err;
    assert_int_equal(tokenizer_encode(t, "", 0, TOKENIZER_ADD_SPECIAL, &ids, &err), STATUS_OK);
    const bool adds = ids.count > 0 && ids.ids[0] == tokenizer_bos_id(t);
    token_list_free(&ids);
    return adds;
}

static const char *const folders[] = {BPE, UNIGRAM};

static struct sentencepiece_model *open_model(const char *folder)
{
    char path[512];
    struct sentencepiece_model *sp;
    struct error err = {{0}};
    assert_true(path_join(path, sizeof path, folder, "tokenizer.model"));
    if (sentencepiece_open(path, &sp, &err)) fail_msg("%s", err.text);
    return sp;
}

static struct token_list encode(const struct tokenizer *t, const char *text, size_t length, unsigned flags)
{
    struct token_list list = {0};
    struct error err = {{0}};
    if (tokenizer_encode(t, text, length, flags, &list, &err)) fail_msg("%s", err.text);
    return list;
}

static struct text decode(const struct tokenizer *t, const struct token_list *ids, bool with_special)
{
    struct text text = {0};
    struct error err = {{0}};
    if (tokenizer_decode(t, ids->ids, ids->count, with_special, &text, &err)) fail_msg("%s", err.text);
    return text;
}

static void assert_text(const struct text *got, const char *expected, size_t length)
{
    if (got->length != length || (length && memcmp(got->data, expected, length) != 0))
        fail_msg("got \"%.*s\" (%zu bytes), expected \"%.*s\" (%zu bytes)", (int)got->length, got->data, got->length,
                 (int)length, expected, length);
}

/* --- golden data --- */

static void check_encoding(const struct tokenizer *t, const json_t *entry, const char *key, unsigned flags)
{
    const json_t *text = json_object_get(entry, "text");
    struct token_list expected = json_ids(json_object_get(entry, key));
    struct token_list got = encode(t, json_string_value(text), json_string_length(text), flags);
    assert_same_ids(&got, &expected, json_string_value(text));
    token_list_free(&got);
    token_list_free(&expected);
}

static void check_decoding(const struct tokenizer *t, const json_t *entry, const char *key)
{
    const json_t *text = json_object_get(entry, key);
    struct token_list ids = json_ids(json_object_get(entry, "ids"));
    struct text got = decode(t, &ids, false);
    assert_text(&got, json_string_value(text), json_string_length(text));
    text_free(&got);
    token_list_free(&ids);
}

/* Without a configuration only the model's own rules apply, as in the golden data. */
static void test_golden(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        struct tokenizer *t = open_with_config(folders[f], NULL);
        json_t *golden = load_golden(folders[f]), *entry;
        size_t i;
        json_array_foreach(json_object_get(golden, "encode"), i, entry)
        {
            check_encoding(t, entry, "ids", 0);
            check_decoding(t, entry, "decoded");
        }
        assert_true(i > 20);
        json_array_foreach(json_object_get(golden, "decode"), i, entry) check_decoding(t, entry, "text");
        assert_true(i > 20);
        json_decref(golden);
        tokenizer_close(t);
    }
}

/* --- decode is the library's --- */

static void check_against_library(const struct tokenizer *t, const struct sentencepiece_model *sp,
                                  const struct token_list *ids)
{
    char *expected;
    size_t length;
    struct error err;
    assert_int_equal(sentencepiece_decode(sp, ids->ids, (int32_t)ids->count, &expected, &length, &err), STATUS_OK);
    struct text got = decode(t, ids, false);
    assert_text(&got, expected, length);
    text_free(&got);
    free(expected);
}

/* Byte pieces and spaces are drawn often, because they have rules of their own. */
static int32_t draw_id(const struct sentencepiece_model *sp, uint64_t *seed)
{
    int32_t byte = sentencepiece_piece_to_id(sp, "<0x00>"), space = sentencepiece_piece_to_id(sp, "\xe2\x96\x81");
    uint32_t kind = random_below(seed, 4);
    if (kind == 0 && byte != sentencepiece_unk_id(sp)) return byte + (int32_t)(0x80 + random_below(seed, 0x80));
    if (kind == 1) return space;
    return (int32_t)random_below(seed, (uint32_t)sentencepiece_size(sp));
}

static void test_decode_is_the_library_s(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        struct tokenizer *t = open_with_config(folders[f], NULL);
        struct sentencepiece_model *sp = open_model(folders[f]);
        uint64_t seed = 42;
        for (int round = 0; round < 4000; round++) {
            struct token_list ids = {0};
            for (uint32_t n = random_below(&seed, 20); n > 0; n--) {
                int32_t id = draw_id(sp, &seed);
                assert_true(token_list_append(&ids, &id, 1));
            }
            check_against_library(t, sp, &ids);
            token_list_free(&ids);
        }
        sentencepiece_close(sp);
        tokenizer_close(t);
    }
}

static void test_every_byte_sequence(void **state)
{
    (void)state;
    struct tokenizer *t = open_with_config(BPE, NULL);
    struct sentencepiece_model *sp = open_model(BPE);
    static const unsigned char edges[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1,
                                          0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
    enum { EDGES = sizeof edges };
    int32_t byte = sentencepiece_piece_to_id(sp, "<0x00>");
    for (int i = 0; i < EDGES * EDGES * EDGES; i++) {
        int32_t ids[4] = {byte + edges[i % EDGES], byte + edges[i / EDGES % EDGES], byte + edges[i / EDGES / EDGES],
                          byte + 0x80};
        struct token_list list = {ids, 3 + (size_t)(i % 2), 4};
        check_against_library(t, sp, &list);
    }
    sentencepiece_close(sp);
    tokenizer_close(t);
}

static void test_decode_out_of_range(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(BPE);
    static const int32_t wrong[] = {-1, 602, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        struct text text = {0};
        struct error err = {{0}};
        int32_t ids[2] = {300, wrong[i]};
        text_append_string(&text, "kept");
        assert_int_equal(tokenizer_decode(t, ids, 2, false, &text, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "601"));
        assert_string_equal(text.data, "kept");
        text_free(&text);
        size_t length = 1;
        assert_string_equal(tokenizer_token_bytes(t, wrong[i], true, &length), "");
        assert_int_equal(length, 0);
        assert_false(tokenizer_is_special(t, wrong[i]));
    }
    struct text empty = {0};
    assert_int_equal(tokenizer_decode(t, NULL, 0, false, &empty, NULL), STATUS_OK);
    assert_int_equal(empty.length, 0);
    text_free(&empty);
    tokenizer_close(t);
}

/* --- special tokens --- */

/* The source of the chat template named "default", or NULL. */
static const char *default_template(const struct tokenizer *t)
{
    size_t count;
    const struct named_template *templates = tokenizer_chat_templates(t, &count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(templates[i].name, "default") == 0) return templates[i].source;
    return NULL;
}

static void test_vocabulary(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(BPE);
    assert_int_equal(tokenizer_size(t), 602);
    assert_int_equal(tokenizer_bos_id(t), 1);
    assert_int_equal(tokenizer_eos_id(t), 6);
    assert_true(adds_bos(t));
    assert_int_equal(tokenizer_special_id(t, "<s>"), 1);
    assert_int_equal(tokenizer_special_id(t, "<|system|>"), 3);
    assert_int_equal(tokenizer_special_id(t, "<|end|>"), 6);
    assert_int_equal(tokenizer_special_id(t, "<|tool|>"), 600);
    assert_int_equal(tokenizer_special_id(t, "<file>"), 601);
    assert_int_equal(tokenizer_special_id(t, "<unk>"), -1);
    assert_int_equal(tokenizer_special_id(t, "the"), -1);
    assert_int_equal(tokenizer_special_id(t, ""), -1);
    for (int32_t id = 0; id < 602; id++)
        assert_int_equal(tokenizer_is_special(t, id), (id >= 1 && id <= 6) || id == 600);
    assert_string_equal(tokenizer_file(t), "tokenizer.model");
    assert_non_null(strstr(default_template(t), "add_generation_prompt"));
    tokenizer_close(t);

    t = open_tokenizer(UNIGRAM);
    assert_false(adds_bos(t));
    assert_int_equal(tokenizer_bos_id(t), 1);
    assert_int_equal(tokenizer_eos_id(t), tokenizer_special_id(t, "<|im_end|>"));
    assert_true(tokenizer_is_special(t, tokenizer_special_id(t, "<|im_start|>")));
    assert_int_equal(tokenizer_special_id(t, "<sep>"), -1);
    assert_non_null(strstr(default_template(t), "<|im_start|>"));
    tokenizer_close(t);
}

static void test_token_bytes(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(BPE);
    struct sentencepiece_model *sp = open_model(BPE);
    size_t length;
    assert_memory_equal(tokenizer_token_bytes(t, 0, false, &length), " \xe2\x81\x87 ", 5);
    assert_int_equal(length, 5);
    assert_string_equal(tokenizer_token_bytes(t, 6, false, &length), "");
    assert_int_equal(length, 0);
    assert_memory_equal(tokenizer_token_bytes(t, 6, true, &length), "<|end|>", 7);
    assert_int_equal(length, 7);
    assert_memory_equal(tokenizer_token_bytes(t, 601, false, &length), "<file>", 6);
    assert_int_equal(length, 6);
    int32_t byte = sentencepiece_piece_to_id(sp, "<0x00>");
    for (int i = 0; i < 256; i++) {
        assert_int_equal((unsigned char)*tokenizer_token_bytes(t, byte + i, false, &length), i);
        assert_int_equal(length, 1);
    }
    int32_t the = sentencepiece_piece_to_id(sp, "\xe2\x96\x81the");
    assert_memory_equal(tokenizer_token_bytes(t, the, false, &length), " the", 4);
    assert_int_equal(length, 4);
    sentencepiece_close(sp);
    tokenizer_close(t);
}

static size_t count_special(const struct tokenizer *t, const struct token_list *ids)
{
    size_t count = 0;
    for (size_t i = 0; i < ids->count; i++) count += tokenizer_is_special(t, ids->ids[i]);
    return count;
}

static void test_text_never_names_a_token(void **state)
{
    (void)state;
    static const char text[] = "x<|end|><|user|> hi <|tool|><file></s> <|im_start|>user<|im_end|>"
                               "<|im_start|><|im_start|> \xef\xbd\x9c <s>";
    for (int f = 0; f < 2; f++) {
        struct tokenizer *t = open_tokenizer(folders[f]);
        struct token_list plain = encode(t, text, sizeof text - 1, 0);
        assert_int_equal(count_special(t, &plain), 0);
        if (f == 0) { /* with byte fallback nothing is lost */
            struct text back = decode(t, &plain, false);
            assert_text(&back, text, sizeof text - 1);
            text_free(&back);
        }
        struct token_list parsed = encode(t, text, sizeof text - 1, TOKENIZER_PARSE_SPECIAL);
        assert_int_equal(count_special(t, &parsed), f == 0 ? 5 : 6);
        token_list_free(&plain);
        token_list_free(&parsed);
        tokenizer_close(t);
    }
}

/* A user-defined piece that is special keeps its letters when a text spells it. */
static void test_spelling_of_a_special_piece(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(UNIGRAM);
    static const char text[] = "we <|im_end|> go";
    struct token_list ids = encode(t, text, sizeof text - 1, 0), free_ids;
    assert_int_equal(count_special(t, &ids), 0);
    tokenizer_close(t);
    t = open_with_config(UNIGRAM, NULL); /* nothing is special: the piece itself comes out */
    free_ids = encode(t, text, sizeof text - 1, 0);
    assert_true(ids.count > free_ids.count);
    assert_int_equal(ids.ids[0], free_ids.ids[0]);
    assert_int_equal(ids.ids[ids.count - 1], free_ids.ids[free_ids.count - 1]);
    token_list_free(&ids);
    token_list_free(&free_ids);
    tokenizer_close(t);
}

static void append_segment(const struct tokenizer *t, struct token_list *list, const char *text, int32_t special)
{
    assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, list, NULL), STATUS_OK);
    if (special >= 0) assert_true(token_list_append(list, &special, 1));
}

static void test_parse_special(void **state)
{
    (void)state;
    static const char text[] = "<s><|user|>the river<|end|> a <file>b";
    struct tokenizer *t = open_tokenizer(BPE);
    struct token_list expected = {0}, got = encode(t, text, sizeof text - 1, TOKENIZER_PARSE_SPECIAL);
    append_segment(t, &expected, "", 1);
    append_segment(t, &expected, "", 4);
    append_segment(t, &expected, "the river", 6);
    append_segment(t, &expected, " a ", 601);
    append_segment(t, &expected, "b", -1);
    assert_same_ids(&got, &expected, text);
    struct text back = decode(t, &got, true);
    assert_text(&back, text, sizeof text - 1);
    text_free(&back);
    token_list_free(&got);
    token_list_free(&expected);
    tokenizer_close(t);
}

static void test_longest_match(void **state)
{
    (void)state;
    struct tokenizer *t = open_with_config(BPE, "{\"added_tokens_decoder\": {"
                                                "\"600\": {\"content\": \"<a>\", \"special\": true},"
                                                "\"601\": {\"content\": \"<a><b>\", \"special\": true},"
                                                "\"603\": {\"content\": \"<b>\"}}}");
    static const int32_t ids[] = {601, 600, 600, 603, 603};
    struct token_list expected = {(int32_t *)ids, 4, 4};
    struct token_list got = encode(t, "<a><b><a><a><b>", 15, TOKENIZER_PARSE_SPECIAL);
    static const int32_t best[] = {601, 600, 601};
    expected.ids = (int32_t *)best;
    expected.count = 3;
    assert_same_ids(&got, &expected, "longest");
    assert_int_equal(tokenizer_size(t), 604);
    size_t length; /* 602 is a gap */
    tokenizer_token_bytes(t, 602, true, &length);
    assert_int_equal(length, 0);
    token_list_free(&got);
    tokenizer_close(t);
}

static void test_round_trip_of_random_text(void **state)
{
    (void)state;
    static const char *const parts[] = {"the", " ",    "  ",  "<|end|>",          "<s>", "<file>", "river",
                                        "\n",  "\t",   "é",   "\xf0\x9f\x98\x80", "<",   "|>",     "<|tool|>",
                                        "x",   "1987", "日本"};
    struct tokenizer *t = open_tokenizer(BPE);
    uint64_t seed = 7;
    for (int round = 0; round < 2000; round++) {
        struct text text = {0};
        for (uint32_t n = random_below(&seed, 12); n > 0; n--)
            text_append_string(&text, parts[random_below(&seed, sizeof parts / sizeof *parts)]);
        for (int parse = 0; parse < 2; parse++) {
            struct token_list ids = encode(t, text.data, text.length, parse ? TOKENIZER_PARSE_SPECIAL : 0);
            struct text back = decode(t, &ids, true);
            assert_text(&back, text.data ? text.data : "", text.length);
            text_free(&back);
            token_list_free(&ids);
        }
        text_free(&text);
    }
    tokenizer_close(t);
}

static void test_bos(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(BPE);
    struct token_list ids = encode(t, "", 0, TOKENIZER_ADD_SPECIAL);
    assert_int_equal(ids.count, 1);
    assert_int_equal(ids.ids[0], 1);
    assert_int_equal(tokenizer_encode(t, "the", 3, TOKENIZER_ADD_SPECIAL, &ids, NULL), STATUS_OK); /* appends */
    assert_int_equal(ids.ids[1], 1);
    token_list_free(&ids);
    tokenizer_close(t);
    t = open_tokenizer(UNIGRAM); /* add_bos_token is false */
    ids = encode(t, NULL, 0, TOKENIZER_ADD_SPECIAL);
    assert_int_equal(ids.count, 0);
    token_list_free(&ids);
    tokenizer_close(t);
    t = open_with_config(BPE, "{\"bos_token\": null, \"eos_token\": \"\"}");
    assert_int_equal(tokenizer_bos_id(t), -1);
    assert_int_equal(tokenizer_eos_id(t), -1);
    ids = encode(t, "", 0, TOKENIZER_ADD_SPECIAL);
    assert_int_equal(ids.count, 0);
    token_list_free(&ids);
    tokenizer_close(t);
}

/* --- odd texts --- */

static void test_nul_and_ill_formed(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(BPE);
    static const char nul[] = "a\0b\0";
    struct token_list ids = encode(t, nul, 4, TOKENIZER_PARSE_SPECIAL);
    struct text back = decode(t, &ids, false);
    assert_text(&back, nul, 4);
    text_free(&back);
    token_list_free(&ids);
    static const char bad[] = "a\xff\xc3(\xed\xa0\x80";
    static const char replaced[] = "a\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd";
    ids = encode(t, bad, sizeof bad - 1, 0);
    back = decode(t, &ids, false);
    assert_text(&back, replaced, sizeof replaced - 1);
    text_free(&back);
    token_list_free(&ids);
    tokenizer_close(t);
}

static void test_random_bytes(void **state)
{
    (void)state;
    uint64_t seed = 99;
    for (int f = 0; f < 2; f++) {
        struct tokenizer *t = open_tokenizer(folders[f]);
        for (int round = 0; round < 3000; round++) {
            char bytes[40];
            uint32_t n = random_below(&seed, sizeof bytes);
            for (uint32_t i = 0; i < n; i++) bytes[i] = (char)random_below(&seed, 256);
            struct token_list ids = encode(t, bytes, n, round & 3);
            struct text back = decode(t, &ids, true);
            for (size_t i = 0; i < back.length;) {
                int length = utf8_length(back.data + i, back.length - i);
                assert_true(length > 0);
                i += (size_t)length;
            }
            text_free(&back);
            token_list_free(&ids);
        }
        tokenizer_close(t);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void test_long_text(void **state)
{
    (void)state;
    static const char sentence[] = "the river carries seven letters <|end|> before noon. ";
    struct text text = {0};
    while (text.length < 1 << 20) text_append(&text, sentence, sizeof sentence - 1);
    for (int f = 0; f < 2; f++) {
        struct tokenizer *t = open_tokenizer(folders[f]);
        double start = seconds();
        struct token_list ids = encode(t, text.data, text.length, f == 0 ? 0 : TOKENIZER_PARSE_SPECIAL);
        struct text back = decode(t, &ids, true);
        assert_true(seconds() - start < 60); /* about one second; a quadratic algorithm takes hours */
        if (f == 0) assert_text(&back, text.data, text.length);
        text_free(&back);
        token_list_free(&ids);
        tokenizer_close(t);
    }
    struct tokenizer *t = open_tokenizer(BPE); /* one word without an end */
    memset(text.data, 'a', text.length);
    struct token_list ids = encode(t, text.data, text.length, 0);
    assert_true(ids.count > 1000);
    token_list_free(&ids);
    tokenizer_close(t);
    text_free(&text);
}

static void test_too_long(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(BPE);
    struct token_list ids = {0};
    struct error err = {{0}};
    assert_int_equal(tokenizer_encode(t, "x", (size_t)1 << 40, TOKENIZER_ADD_SPECIAL, &ids, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "too long"));
    assert_int_equal(ids.count, 0);
    token_list_free(&ids);
    tokenizer_close(t);
}

/* --- threads --- */

static void *encode_many(void *tokenizer)
{
    const struct tokenizer *t = tokenizer;
    static const char text[] = "the <|im_end|> river caf\xc3\xa9";
    size_t total = 0;
    for (unsigned i = 0; i < 80; i++) {
        struct token_list ids = {0};
        struct text back = {0};
        if (!tokenizer_encode(t, text, sizeof text - 1, i % 4, &ids, NULL) &&
            !tokenizer_decode(t, ids.ids, ids.count, i % 2, &back, NULL))
            total += ids.count + back.length;
        token_list_free(&ids);
        text_free(&back);
    }
    return (void *)total;
}

static void test_threads(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(UNIGRAM);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_many, t), 0);
    void *expected = encode_many(t), *got;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], &got), 0);
        assert_ptr_equal(got, expected);
    }
    tokenizer_close(t);
}

/* --- what cannot be opened --- */

static void assert_refused(const char *folder, enum status expected, const char *const *words)
{
    struct tokenizer *t = (struct tokenizer *)&t;
    struct error err = {{0}};
    enum status status = tokenizer_open(folder, &t, &err);
    if (status != expected) fail_msg("status %d, expected %d: %s", status, expected, err.text);
    assert_null(t);
    assert_null(strchr(err.text, '\n'));
    for (; *words; words++)
        if (!strstr(err.text, *words)) fail_msg("\"%s\" is not in: %s", *words, err.text);
}

static void test_missing(void **state)
{
    (void)state;
    char folder[64];
    assert_refused("/nonexistent/folder", STATUS_IO, (const char *[]){"/nonexistent/folder", "no such folder", NULL});
    make_folder(folder);
    assert_refused(folder, STATUS_IO,
                   (const char *[]){folder, "no tokenizer.json, no tokenizer.model", "tiktoken.model", NULL});
    write_string(folder, "tokenizer.json", "{}");
    assert_refused(folder, STATUS_INVALID, (const char *[]){folder, "tokenizer.json", "model", NULL});
    remove_folder(folder);
}

/* A vocabulary in tiktoken's form is recognised; if it is not Kimi's, the sentence says what to take. */
static void test_tiktoken(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer.model", "qwen.tiktoken", "tiktoken.model"};
    for (size_t i = 0; i < 3; i++) {
        char folder[64], path[96];
        make_folder(folder);
        write_string(folder, names[i], "IQ== 0\nIg== 1\nIw== 2\n");
        assert_refused(folder, STATUS_UNSUPPORTED, (const char *[]){names[i], "tiktoken", "tokenizer.json", NULL});
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(unlink(path), 0);
        remove_folder(folder);
    }
    struct tokenizer *t = open_tokenizer(QUIRE_TEST_DATA "/tokenizers/kimi");
    assert_string_equal(tokenizer_file(t), "tiktoken.model");
    tokenizer_close(t);
}

/* Kimi's, with lines that are none. */
static void test_bad_tiktoken(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"IQ== 0\nIg== \n", "line 2 is not a token in base64"},
        {"IQ== 0\n!g== 1\n", "line 2 is not a token in base64"},
        {"IQ== 0\nIQ 1\n", "line 2 is not a token in base64"},
        {"IQ== 0\n\nIg== 0\n", "line 3 has the id 0, which is not above"},
        {"IQ== 0\nIQ== 1\n", "the token with the id 1 is there twice"},
        {"IQ== 0\nIg== 4194304\n", "line 2 is not a token in base64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[64];
        make_folder(folder);
        write_string(folder, "tokenizer_config.json", "{\"tokenizer_class\":\"TikTokenTokenizer\"}");
        write_string(folder, "tiktoken.model", cases[i][0]);
        assert_refused(folder, i == 3 ? STATUS_UNSUPPORTED : STATUS_INVALID,
                       (const char *[]){"tiktoken.model", cases[i][1], NULL});
        remove_folder(folder);
    }
}

static void test_bad_models(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t length;
        const char *word;
    } cases[] = {
        {"", 0, "empty"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", 57, "git lfs pull"},
        {"\x00\x00\x00\x00", 4, "not a whole SentencePiece model"},
        {"{\"a\": 1}", 8, "not a whole SentencePiece model"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, "not a whole SentencePiece model"},
        {"\x0a\x00", 2, "ill-formed"},                                       /* a piece without text */
        {"\x0a\x03\x0a\x01\x00", 5, "ill-formed"},                           /* a NUL in it */
        {"\x0a\x7f\x0a\x01\x61", 5, "not a whole SentencePiece model"},      /* longer than the file */
        {"\x12\x00\x1a\x00", 4, "no pieces"},                                /* nothing but settings */
        {"\x0a\x03\x0a\x01\x61", 5, "cut short after 1 piece"},              /* nothing but a piece */
        {"\x0a\x03\x0a\x01\x61\x12\x00\x1a\x00", 9, "SentencePiece cannot"}, /* no unknown piece */
    };
    char folder[64];
    make_folder(folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_bytes(folder, "tokenizer.model", cases[i].bytes, cases[i].length);
        assert_refused(folder, STATUS_INVALID, (const char *[]){folder, "tokenizer.model", cases[i].word, NULL});
    }
    remove_folder(folder);
}

/* Every prefix of a model file is refused, and the library prints nothing. */
static void test_truncated_models(void **state)
{
    (void)state;
    struct mapped_file file;
    char folder[64], log[80];
    make_folder(folder);
    snprintf(log, sizeof log, "%s.log", folder);
    assert_int_equal(mapped_file_open(BPE "/tokenizer.model", &file, NULL), STATUS_OK);
    int saved = dup(2), to = open(log, O_CREAT | O_RDWR | O_TRUNC, 0600);
    assert_true(saved >= 0 && to >= 0 && dup2(to, 2) == 2);
    for (uint64_t length = 0; length < file.size; length += 1 + length / 100) {
        struct tokenizer *t;
        write_bytes(folder, "tokenizer.model", file.data, length);
        enum status status = tokenizer_open(folder, &t, NULL);
        tokenizer_close(t);
        if (length < file.size - 64) assert_int_equal(status, STATUS_INVALID); /* the last settings may be left out */
    }
    assert_int_equal(dup2(saved, 2), 2);
    struct stat info;
    assert_int_equal(fstat(to, &info), 0);
    assert_int_equal(info.st_size, 0);
    close(saved);
    close(to);
    unlink(log);
    mapped_file_close(&file);
    remove_folder(folder);
}

/* A damaged normalization trie, which SentencePiece would follow out of bounds, is found before the model is loaded. */
static void test_damaged_models(void **state)
{
    (void)state;
    char folder[64];
    uint64_t seed = 17;
    make_folder(folder);
    for (int round = 0; round < 1000; round++) {
        struct text model = {0};
        struct tokenizer *t;
        struct error err = {{0}};
        assert_int_equal(file_read(round % 2 ? BPE "/tokenizer.model" : UNIGRAM "/tokenizer.model", &model, NULL), 0);
        for (int i = 0; i < 3; i++)
            model.data[random_below(&seed, (uint32_t)model.length)] ^= (char)(1 + random_below(&seed, 255));
        write_bytes(folder, "tokenizer.model", model.data, model.length);
        if (tokenizer_open(folder, &t, &err)) {
            assert_non_null(strstr(err.text, "tokenizer.model"));
        } else {
            struct token_list ids = encode(t, "the river \xef\xbc\xa1 \xff", 15, TOKENIZER_PARSE_SPECIAL);
            token_list_free(&ids);
        }
        tokenizer_close(t);
        text_free(&model);
    }
    remove_folder(folder);
}

static void test_denormalizer(void **state)
{
    (void)state;
    struct text model = {0};
    char folder[64];
    assert_int_equal(file_read(BPE "/tokenizer.model", &model, NULL), STATUS_OK);
    text_append(&model, "\x2a\x03\x12\x01x", 5); /* denormalizer_spec { precompiled_charsmap: "x" } */
    make_folder(folder);
    write_bytes(folder, "tokenizer.model", model.data, model.length);
    assert_refused(folder, STATUS_UNSUPPORTED, (const char *[]){folder, "denormalization", NULL});
    text_free(&model);
    remove_folder(folder);
}

static void test_bad_configs(void **state)
{
    (void)state;
    static const struct {
        const char *json, *word;
    } cases[] = {
        {"", "the file is empty"},
        {"{\n\"a\": 1,\n}", "line 3"},
        {"[]", "expected a JSON object {...}, found an array"},
        {"{\"bos_token\": [1]}", "bos_token must be a string"},
        {"{\"eos_token\": {\"content\": 3}}", "eos_token must be a string"},
        {"{\"bos_token\": \"<nope>\"}", "bos_token is \"<nope>\""},
        {"{\"eos_token\": \"<nope>\"}", "eos_token is \"<nope>\""},
        {"{\"add_bos_token\": \"yes\"}", "add_bos_token must be true or false, found \"yes\""},
        {"{\"chat_template\": 5}", "chat_template must be a string or a list of named templates, found 5"},
        {"{\"chat_template\": [{\"name\": \"default\"}]}", "entry 1 of chat_template"},
        {"{\"added_tokens_decoder\": []}", "added_tokens_decoder must be an object, found []"},
        {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"a\"}}}", "key \"x\""},
        {"{\"added_tokens_decoder\": {\"600\": \"a\"}}", "added token 600"},
        {"{\"added_tokens_decoder\": {\"600\": {\"content\": \"\"}}}", "added token 600"},
        {"{\"added_tokens_decoder\": {\"600\": {\"content\": \"a\", \"special\": 1}}}", "\"special\""},
        {"{\"added_tokens_decoder\": {\"-1\": {\"content\": \"a\"}}}", "id -1"},
        {"{\"added_tokens_decoder\": {\"2147483647\": {\"content\": \"a\"}}}", "id 2147483647"},
        {"{\"added_tokens_decoder\": {\"99999999999999999999\": {\"content\": \"a\"}}}", "expected a token id"},
        {"{\"x\": \"\xff\"}", "line 1"},
    };
    char folder[64];
    make_folder(folder);
    link_model(folder, BPE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_string(folder, "tokenizer_config.json", cases[i].json);
        assert_refused(folder, STATUS_INVALID, (const char *[]){folder, cases[i].word, NULL});
    }
    remove_folder(folder);
}

/* The smallest tokenizer.json, with one thing more. */
#define JSON_WITH(member) "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}, " member "}"

static void test_bad_other_files(void **state)
{
    (void)state;
    static const struct {
        const char *name, *json, *word;
    } cases[] = {
        {"special_tokens_map.json", "{", "special_tokens_map.json: not valid JSON at line 1"},
        {"special_tokens_map.json", "{\"bos_token\": 1}", "bos_token must be"},
        {"added_tokens.json", "{\"<a>\": \"600\"}", "must be an integer, found \"600\""},
        {"added_tokens.json", "[7]", "expected a JSON object"},
        {"tokenizer.json", JSON_WITH("\"added_tokens\": [{\"content\": \"a\"}]"), "must be an integer, found nothing"},
        {"tokenizer.json", JSON_WITH("\"added_tokens\": [{\"id\": 5}]"), "added token 5"},
        {"tokenizer.json", JSON_WITH("\"added_tokens\": [{\"id\": -5, \"content\": \"a\"}]"), "id -5"},
        {"tokenizer.json", JSON_WITH("\"added_tokens\": [{\"id\": 5, \"content\": \"a\", \"lstrip\": 1}]"),
         "\"lstrip\" of an added token must be true or false"},
        {"tokenizer.json", JSON_WITH("\"post_processor\": {\"type\": \"TemplateProcessing\"}"), "post_processor"},
        {"tokenizer.json", JSON_WITH("\"decoder\": {\"type\": \"Sequence\"}"), "decoder"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[64];
        make_folder(folder);
        link_model(folder, BPE);
        write_string(folder, cases[i].name, cases[i].json);
        assert_refused(folder, STATUS_INVALID, (const char *[]){folder, cases[i].name, cases[i].word, NULL});
        remove_folder(folder);
    }
}

/* A named pipe, a broken link or a folder in the place of a file is an error, also where the file is optional. */
static void test_no_files(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer.model",    "tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json",  "tokenizer.json",        "chat_template.jinja",
                                        "chat_template.json", "processor_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[64], path[512];
        make_folder(folder);
        if (i > 0) link_model(folder, BPE);
        assert_true(path_join(path, sizeof path, folder, names[i]));
        assert_int_equal(mkfifo(path, 0600), 0);
        assert_refused(folder, STATUS_IO, (const char *[]){path, "a named pipe", NULL});
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink("nothing", path), 0);
        assert_refused(folder, STATUS_IO, (const char *[]){path, "a symbolic link to a file", NULL});
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_refused(folder, STATUS_IO, (const char *[]){path, "a folder", NULL});
        assert_int_equal(rmdir(path), 0);
        remove_folder(folder);
    }
}

/* --- the layouts of a folder --- */

static void test_no_config(void **state)
{
    (void)state;
    struct tokenizer *t = open_with_config(BPE, NULL);
    assert_int_equal(tokenizer_size(t), 600);
    assert_int_equal(tokenizer_bos_id(t), 1);
    assert_int_equal(tokenizer_eos_id(t), 2);
    assert_true(adds_bos(t));
    assert_null(default_template(t));
    tokenizer_close(t);
}

static void test_added_tokens_json(void **state)
{
    (void)state;
    char folder[64];
    make_folder(folder);
    link_model(folder, BPE);
    write_string(folder, "added_tokens.json", "{\"<a>\": 600, \"<b>\": 601, \"<c>\": 603}");
    write_string(folder, "special_tokens_map.json",
                 "{\"additional_special_tokens\": [\"<a>\", {\"content\": \"<b>\"}], \"pad_token\": \"<unk>\"}");
    struct tokenizer *t = open_tokenizer(folder);
    assert_int_equal(tokenizer_size(t), 604);
    assert_true(tokenizer_is_special(t, 600) && tokenizer_is_special(t, 601) && !tokenizer_is_special(t, 603));
    assert_false(tokenizer_is_special(t, 0));
    assert_int_equal(tokenizer_special_id(t, "<c>"), 603);
    tokenizer_close(t);
    remove_folder(folder);
}

/* Where there are both files, tokenizer.json is taken. */
static void test_transformers_5(void **state)
{
    (void)state;
    char folder[64];
    make_folder(folder);
    link_model(folder, BPE);
    write_string(
        folder, "tokenizer_config.json",
        "{\"backend\": \"tokenizers\", \"bos_token\": \"<s>\", \"eos_token\": \"<x>\", \"add_prefix_space\": null,"
        " \"extra_special_tokens\": {\"image_token\": \"<y>\"}, \"chat_template\": \"from the configuration\"}");
    write_string(folder, "tokenizer.json",
                 JSON_WITH("\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true},"
                           "{\"id\": 7, \"content\": \"<x>\", \"special\": true, \"normalized\": true},"
                           "{\"id\": 8, \"content\": \"<y>\", \"special\": false},"
                           "{\"id\": 9, \"content\": \"<z>\", \"special\": false}]"));
    write_string(folder, "chat_template.jinja", "from the file");
    struct tokenizer *t = open_tokenizer(folder);
    assert_string_equal(tokenizer_file(t), "tokenizer.json");
    assert_int_equal(tokenizer_size(t), 10);
    assert_int_equal(tokenizer_eos_id(t), 7);
    assert_int_equal(tokenizer_special_id(t, "<z>"), 9);
    assert_true(tokenizer_is_special(t, 0) && tokenizer_is_special(t, 7) && !tokenizer_is_special(t, 9));
    assert_string_equal(default_template(t), "from the file");
    const json_t *variables = tokenizer_template_variables(t);
    assert_string_equal(json_string_value(json_object_get(variables, "eos_token")), "<x>");
    assert_string_equal(json_string_value(json_object_get(variables, "image_token")), "<y>");
    tokenizer_close(t);
    remove_folder(folder);
}

/* chat_template.jinja and additional_chat_templates/ replace the templates of tokenizer_config.json; a processor's
 * template replaces these. */
static void test_template_files(void **state)
{
    (void)state;
    char folder[64], more[96];
    size_t count;
    make_folder(folder);
    link_model(folder, BPE);
    snprintf(more, sizeof more, "%s/additional_chat_templates", folder);
    assert_int_equal(mkdir(more, 0700), 0);
    write_string(folder, "tokenizer_config.json",
                 "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}, {\"name\": \"rag\", \"template\": "
                 "\"r\"}]}");
    struct tokenizer *t = open_tokenizer(folder);
    assert_string_equal(default_template(t), "d");
    assert_string_equal(tokenizer_chat_templates(t, &count)[1].source, "r");
    assert_int_equal(count, 2);
    tokenizer_close(t);
    write_string(more, "tool_use.jinja", "with tools");
    write_string(more, "notes.txt", "no template");
    write_string(folder, "chat_template.jinja", "plain");
    t = open_tokenizer(folder);
    const struct named_template *templates = tokenizer_chat_templates(t, &count);
    assert_int_equal(count, 2);
    assert_string_equal(default_template(t), "plain");
    assert_string_equal(templates[1].name, "tool_use");
    assert_string_equal(templates[1].source, "with tools");
    tokenizer_close(t);
    write_string(folder, "chat_template.json", "{\"chat_template\": \"of the processor\"}");
    t = open_tokenizer(folder);
    assert_string_equal(default_template(t), "of the processor");
    tokenizer_close(t);
    write_string(folder, "processor_config.json", "{\"chat_template\": \"newer\", \"processor_class\": \"P\"}");
    t = open_tokenizer(folder);
    assert_string_equal(default_template(t), "newer");
    tokenizer_close(t);
    write_bytes(folder, "chat_template.jinja", "a\0b", 3);
    assert_refused(folder, STATUS_INVALID, (const char *[]){folder, "chat_template.jinja: there is a NUL byte", NULL});
    static const char *const files[] = {"tool_use.jinja", "notes.txt"};
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", more, files[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(more), 0);
    remove_folder(folder);
}

static void test_template_list(void **state)
{
    (void)state;
    struct tokenizer *t = open_with_config(BPE, "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}]}");
    assert_null(default_template(t));
    tokenizer_close(t);
    t = open_with_config(BPE, "{\"chat_template\": null, \"added_tokens_decoder\": null, \"add_bos_token\": null}");
    assert_null(default_template(t));
    assert_true(adds_bos(t));
    tokenizer_close(t);
}

/* Ordinary text stays ordinary, even if a file lists it as special. */
static void test_ordinary_text_stays_text(void **state)
{
    (void)state;
    struct tokenizer *plain = open_with_config(BPE, NULL);
    struct token_list expected = encode(plain, "a cat!", 6, 0);
    int32_t a = expected.ids[0];
    tokenizer_close(plain);
    char config[300];
    snprintf(config, sizeof config,
             "{\"pad_token\": \"!\", \"eos_token\": \"a\", \"added_tokens_decoder\": {\"%d\": "
             "{\"content\": \"x\", \"special\": true}, \"0\": {\"content\": \"<unk>\", \"special\": true}}}",
             (int)a);
    struct tokenizer *t = open_with_config(BPE, config);
    struct token_list got = encode(t, "a cat!", 6, 0);
    assert_same_ids(&got, &expected, "text");
    assert_true(tokenizer_eos_id(t) >= 0);
    token_list_free(&got);
    token_list_free(&expected);
    tokenizer_close(t);
}

/* --- SentencePiece alone --- */

static void test_sentencepiece(void **state)
{
    (void)state;
    struct sentencepiece_model *sp = open_model(BPE);
    size_t length;
    assert_int_equal(sentencepiece_size(sp), 600);
    assert_int_equal(sentencepiece_unk_id(sp), 0);
    assert_int_equal(sentencepiece_bos_id(sp), 1);
    assert_int_equal(sentencepiece_eos_id(sp), 2);
    assert_true(sentencepiece_adds_dummy_prefix(sp));
    assert_false(sentencepiece_removes_extra_whitespaces(sp));
    assert_string_equal(sentencepiece_piece(sp, 4, &length), "<|user|>");
    assert_int_equal(length, 8);
    assert_int_equal(sentencepiece_type(sp, 0), PIECE_UNKNOWN);
    assert_int_equal(sentencepiece_type(sp, 4), PIECE_CONTROL);
    assert_int_equal(sentencepiece_type(sp, 7), PIECE_BYTE);
    assert_int_equal(sentencepiece_type(sp, 599), PIECE_NORMAL);
    assert_int_equal(sentencepiece_piece_to_id(sp, "no such piece"), 0);
    int32_t wrong = 600;
    char *text;
    struct error err = {{0}};
    assert_int_equal(sentencepiece_decode(sp, &wrong, 1, &text, &length, &err), STATUS_INVALID);
    assert_null(text);
    assert_true(strlen(err.text) > 0);
    sentencepiece_close(sp);
    sentencepiece_close(NULL);
    tokenizer_close(NULL);
    sp = open_model(UNIGRAM);
    assert_true(sentencepiece_removes_extra_whitespaces(sp));
    sentencepiece_close(sp);
}

static void test_utf8(void **state)
{
    (void)state;
    assert_int_equal(utf8_length("a", 1), 1);
    assert_int_equal(utf8_length("\0", 1), 1);
    assert_int_equal(utf8_length("\xc3\xa9", 2), 2);
    assert_int_equal(utf8_length("\xc3", 1), 0);
    assert_int_equal(utf8_length("\xc3(", 2), -1);
    assert_int_equal(utf8_length("\xc0\x80", 2), -1);
    assert_int_equal(utf8_length("\xe0\x9f\xbf", 3), -1);
    assert_int_equal(utf8_length("\xed\xa0\x80", 3), -1);
    assert_int_equal(utf8_length("\xef\xbf\xbf", 3), 3);
    assert_int_equal(utf8_length("\xf0\x8f\xbf\xbf", 4), -1);
    assert_int_equal(utf8_length("\xf4\x8f\xbf\xbf", 4), 4);
    assert_int_equal(utf8_length("\xf4\x90\x80\x80", 4), -1);
    assert_int_equal(utf8_length("\xf0\x9f\x98", 3), 0);
    assert_int_equal(utf8_length("\x80", 1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_decode_is_the_library_s),
        cmocka_unit_test(test_every_byte_sequence),
        cmocka_unit_test(test_decode_out_of_range),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_token_bytes),
        cmocka_unit_test(test_text_never_names_a_token),
        cmocka_unit_test(test_spelling_of_a_special_piece),
        cmocka_unit_test(test_parse_special),
        cmocka_unit_test(test_longest_match),
        cmocka_unit_test(test_round_trip_of_random_text),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_nul_and_ill_formed),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_bad_models),
        cmocka_unit_test(test_truncated_models),
        cmocka_unit_test(test_damaged_models),
        cmocka_unit_test(test_denormalizer),
        cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_bad_other_files),
        cmocka_unit_test(test_no_files),
        cmocka_unit_test(test_no_config),
        cmocka_unit_test(test_added_tokens_json),
        cmocka_unit_test(test_transformers_5),
        cmocka_unit_test(test_template_files),
        cmocka_unit_test(test_tiktoken),
        cmocka_unit_test(test_bad_tiktoken),
        cmocka_unit_test(test_template_list),
        cmocka_unit_test(test_ordinary_text_stays_text),
        cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
