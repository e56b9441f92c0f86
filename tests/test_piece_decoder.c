/* piece_decoder.h and post_processor.h: the "decoder" and the "post_processor" of a tokenizer.json. */
#include "test_tokenizer_support.h"

#include "tokenizer/piece_decoder.h"
#include "tokenizer/post_processor.h"

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *value = json_loads(text, JSON_DECODE_ANY, &error);
    if (!value) fail_msg("%s: %s", error.text, text);
    return value;
}

static struct piece_decoder *open_decoder(const char *json, struct decoding_rules *rules)
{
    struct piece_decoder *d;
    struct error err = {{0}};
    json_t *value = parse(json);
    if (piece_decoder_open(value, "t.json", &d, rules, &err)) fail_msg("%s", err.text);
    json_decref(value);
    return d;
}

static void assert_piece(struct piece_decoder *d, const char *piece, const char *expected, bool expected_byte)
{
    struct text bytes = {0};
    bool is_byte;
    assert_true(piece_decoder_apply(d, piece, strlen(piece), &bytes, &is_byte));
    assert_int_equal(bytes.length, strlen(expected));
    assert_memory_equal(bytes.data, expected, bytes.length);
    assert_int_equal(is_byte, expected_byte);
    text_free(&bytes);
}

static void test_byte_fallback(void **state)
{
    (void)state;
    struct decoding_rules rules;
    struct piece_decoder *d = open_decoder(
        "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"\xe2\x96\x81\"},"
        " \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"},"
        " {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}",
        &rules);
    assert_int_equal(rules.decoding, DECODE_BYTE_FALLBACK);
    assert_int_equal(rules.strip_spaces, 1);
    assert_false(rules.space_between);
    assert_piece(d, "\xe2\x96\x81\xe2\x96\x81the\xe2\x96\x81", "  the ", false);
    assert_piece(d, "\xe2\x96\xe2\x96\x82", "\xe2\x96\xe2\x96\x82", false); /* the pattern's first bytes alone */
    assert_piece(d, "<0x41>", "A", true);
    assert_piece(d, "<0xfF>", "\xff", true);
    assert_piece(d, "<0x4>", "<0x4>", false);
    assert_piece(d, "<0x4G>", "<0x4G>", false);
    assert_piece(d, "", "", false);
    piece_decoder_close(d);
}

static void test_byte_level(void **state)
{
    (void)state;
    struct decoding_rules rules;
    struct piece_decoder *d = open_decoder("{\"type\": \"ByteLevel\", \"add_prefix_space\": true}", &rules);
    assert_int_equal(rules.decoding, DECODE_BYTE_LEVEL);
    assert_piece(d, "\xc4\xa0the\xc4\x8a", " the\n", false);
    assert_piece(d, "\xc3\x83\xc2\xa9", "\xc3\xa9", false);
    assert_piece(d, "<|end of\xc4\xa0text|>", "<|end of\xc4\xa0text|>", false); /* a space stands for no byte */
    piece_decoder_close(d);
}

static void test_others(void **state)
{
    (void)state;
    struct decoding_rules rules;
    struct piece_decoder *d =
        open_decoder("{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"always\"}", &rules);
    assert_true(rules.spaceless_first_token);
    assert_piece(d, "_a_b", " a b", false);
    piece_decoder_close(d);
    d = open_decoder("{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"never\"}", &rules);
    assert_false(rules.spaceless_first_token);
    piece_decoder_close(d);
    d = open_decoder("{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 2}", &rules);
    assert_piece(d, "  a   ", " a ", false);
    assert_piece(d, " ", "", false);
    piece_decoder_close(d);
    d = open_decoder("null", &rules);
    assert_true(rules.space_between);
    assert_piece(d, "\xc4\xa0the", "\xc4\xa0the", false);
    piece_decoder_close(d);
    piece_decoder_close(NULL);
}

#define TENFOLD "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aaaaaaaaaa\"}"
static void test_refused_decoders(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        enum status status;
        const char *word;
    } cases[] = {
        {"{}", STATUS_INVALID, "\"type\""},
        {"7", STATUS_INVALID, "\"type\""},
        {"{\"type\": \"WordPiece\"}", STATUS_UNSUPPORTED, "WordPiece is not supported"},
        {"{\"type\": \"Sequence\"}", STATUS_INVALID, "\"decoders\" must be a list"},
        {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Sequence\"}]}", STATUS_UNSUPPORTED, "Sequence"},
        {"{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"\"}", STATUS_UNSUPPORTED,
         "regular expression"},
        {"{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"\"}", STATUS_INVALID,
         "Replace needs"},
        {"{\"type\": \"Metaspace\"}", STATUS_INVALID, "Metaspace needs"},
        {"{\"type\": \"Strip\", \"content\": \"x\"}", STATUS_UNSUPPORTED, "else than a space"},
        {"{\"type\": \"Strip\", \"content\": \" \", \"start\": -1}", STATUS_INVALID, "Strip has a wrong"},
        {"{\"type\": \"Sequence\", \"decoders\": [" TENFOLD ", " TENFOLD ", " TENFOLD "]}", STATUS_UNSUPPORTED,
         "step 2, a Replace, makes the text of a token more than 64 times as long"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct decoding_rules rules;
        struct piece_decoder *d;
        struct error err = {{0}};
        json_t *value = parse(cases[i].json);
        assert_int_equal(piece_decoder_open(value, "t.json", &d, &rules, &err), cases[i].status);
        if (!strstr(err.text, cases[i].word) || !strstr(err.text, "t.json: decoder")) fail_msg("%s", err.text);
        piece_decoder_close(d);
        json_decref(value);
    }
}

static void test_post_processors(void **state)
{
    (void)state;
#define SPECIALS "\"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1, 4]}, \"</s>\": {\"ids\": [2]}}"
    static const struct {
        const char *json;
        enum status status;
        const char *word; /* of the sentence */
        size_t before, after;
    } cases[] = {
        {"null", STATUS_OK, NULL, 0, 0},
        {"{\"type\": \"ByteLevel\"}", STATUS_OK, NULL, 0, 0},
        {"{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": "
         "{\"id\": \"A\"}},"
         " {\"SpecialToken\": {\"id\": \"</s>\"}}], " SPECIALS "}",
         STATUS_OK, NULL, 2, 1},
        {"{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, {\"type\": \"TemplateProcessing\","
         " \"single\": [{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"</s>\"}}], " SPECIALS "}]}",
         STATUS_OK, NULL, 0, 1},
        {"{\"type\": \"BertProcessing\"}", STATUS_UNSUPPORTED, "BertProcessing", 0, 0},
        {"{\"type\": \"TemplateProcessing\", \"single\": []}", STATUS_INVALID, "does not contain the text", 0, 0},
        {"{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<x>\"}}], " SPECIALS "}",
         STATUS_INVALID, "has no \"ids\"", 0, 0},
        {"{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {}}, {\"Sequence\": {}}]}", STATUS_INVALID,
         "twice", 0, 0},
        {"{\"type\": \"Sequence\", \"processors\": 3}", STATUS_INVALID, "must be a list", 0, 0},
        {"{\"type\": \"Sequence\", \"processors\": [{\"type\": \"Sequence\"}]}", STATUS_INVALID, "Sequence", 0, 0},
        {"[]", STATUS_INVALID, "\"type\"", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct post_processor p;
        struct error err = {{0}};
        json_t *value = parse(cases[i].json);
        assert_int_equal(post_processor_read(value, "t.json", &p, &err), cases[i].status);
        if (cases[i].word && !strstr(err.text, cases[i].word)) fail_msg("%s", err.text);
        if (!cases[i].word) {
            assert_int_equal(p.before.count, cases[i].before);
            assert_int_equal(p.after.count, cases[i].after);
            if (p.before.count == 2) assert_int_equal(p.before.ids[1], 4);
        }
        post_processor_free(&p);
        json_decref(value);
    }
}

/* 400 times the same three tokens before the text. */
static void test_too_many_tokens(void **state)
{
    (void)state;
    json_t *list = json_array(), *piece = parse("{\"SpecialToken\": {\"id\": \"x\"}}");
    for (int i = 0; i < 400; i++) json_array_append(list, piece);
    json_t *value = json_pack("{s:s, s:o, s:{s:{s:[i,i,i]}}}", "type", "TemplateProcessing", "single", list,
                              "special_tokens", "x", "ids", 1, 2, 3);
    struct post_processor p;
    struct error err = {{0}};
    assert_int_equal(post_processor_read(value, "t.json", &p, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "more than 1000 tokens"));
    post_processor_free(&p);
    json_decref(value);
    json_decref(piece);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_fallback),   cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_others),          cmocka_unit_test(test_refused_decoders),
        cmocka_unit_test(test_post_processors), cmocka_unit_test(test_too_many_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
