/* added_tokens.h: where tokens are found in a text. What is expected is what tokenizers 0.23 finds. */
#include "test_tokenizer_support.h"

#include "tokenizer/added_tokens.h"

enum { A, A_B, LEFT, RIGHT, WORD, AB, ABC, BCD, BOTH, NUM_TOKENS };

enum { LONG_RUN = 1 << 18 }; /* bytes */

static const struct {
    const char *text;
    unsigned flags;
} tokens[NUM_TOKENS] = {
    [A] = {"<a>", 0},
    [A_B] = {"<a><b>", 0},
    [LEFT] = {"[L]", ADDED_TOKEN_LSTRIP},
    [RIGHT] = {"[R]", ADDED_TOKEN_RSTRIP},
    [WORD] = {"w\xc3\xb6rd", ADDED_TOKEN_SINGLE_WORD},
    [AB] = {"ab", 0},
    [ABC] = {"abc", 0},
    [BCD] = {"bcd", 0},
    [BOTH] = {"[LR]", ADDED_TOKEN_LSTRIP | ADDED_TOKEN_RSTRIP},
};

static void fill(struct added_tokens *a)
{
    for (int id = NUM_TOKENS - 1; id >= 0; id--)
        assert_true(added_tokens_add(a, tokens[id].text, strlen(tokens[id].text), id, tokens[id].flags));
    added_tokens_sort(a);
}

struct found {
    int id;
    size_t from, to;
};

static void check(const struct added_tokens *a, const char *text, const struct found *expected, size_t count)
{
    struct added_search search = {.text = text, .length = strlen(text), .special = true};
    struct added_match match;
    size_t n = 0, end = 0;
    for (; added_tokens_next(a, &search, &match); n++, end = match.to) {
        if (match.from < end) match.from = end; /* the match before took that white space */
        if (n < count && match.id == expected[n].id && match.from == expected[n].from && match.to == expected[n].to)
            continue;
        fail_msg("\"%s\": match %zu is %d, %zu to %zu", text, n, (int)match.id, match.from, match.to);
    }
    if (n != count) fail_msg("\"%s\": %zu matches, expected %zu", text, n, count);
}

static void test_matches(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct found found[4];
        size_t count;
    } cases[] = {
        {"", {{0}}, 0},
        {"<a", {{0}}, 0},
        {"<a><b><a><a><b>", {{A_B, 0, 6}, {A, 6, 9}, {A_B, 9, 15}}, 3},
        {"a<a>[R]\n[L]<a><b>", {{A, 1, 4}, {RIGHT, 4, 8}, {LEFT, 8, 11}, {A_B, 11, 17}}, 4},
        /* overlapping: leftmost, then longest */
        {"abcd", {{ABC, 0, 3}}, 1},
        {"abbcd", {{AB, 0, 2}, {BCD, 2, 5}}, 2},
        {"ababc", {{AB, 0, 2}, {ABC, 2, 5}}, 2},
        {"xabcabcd", {{ABC, 1, 4}, {ABC, 4, 7}}, 2},
        /* lstrip and rstrip */
        {"x  [L]  y", {{LEFT, 1, 6}}, 1},
        {"   [L]", {{LEFT, 0, 6}}, 1},
        {"[L][L]", {{LEFT, 0, 3}, {LEFT, 3, 6}}, 2},
        {"x  [R]\t\n y", {{RIGHT, 3, 9}}, 1},
        {"[R]   ", {{RIGHT, 0, 6}}, 1},
        {"[R]  [L]", {{RIGHT, 0, 5}, {LEFT, 5, 8}}, 2},
        {"a [LR]\xe3\x80\x80[LR] b", {{BOTH, 1, 9}, {BOTH, 9, 14}}, 2},
        {"\xc2\xa0[L]\xe2\x80\xa8[R]\xc2\x85x", {{LEFT, 0, 5}, {RIGHT, 8, 13}}, 2},
        {"[R]\xe2\x80\x8b[L]", {{RIGHT, 0, 3}, {LEFT, 6, 9}}, 2}, /* U+200B is no white space */
        /* single_word: marks, digits, connectors and joiners belong to a word; superscripts do not */
        {"w\xc3\xb6rd", {{WORD, 0, 5}}, 1},
        {"w\xc3\xb6rd w\xc3\xb6rds _w\xc3\xb6rd \xcc\x81w\xc3\xb6rd (w\xc3\xb6rd)", {{WORD, 0, 5}, {WORD, 29, 34}}, 2},
        {"w\xc3\xb6rd\xcc\x81 w\xc3\xb6rd1 w\xc3\xb6rd\xe2\x80\x8d w\xc3\xb6rd\xc2\xb2", {{WORD, 24, 29}}, 1},
        {"w\xc3\xb6rdw\xc3\xb6rd", {{0}}, 0},
        {"\xe2\x93\xa6w\xc3\xb6rd w\xc3\xb6rd\xe2\x93\xa6", {{0}}, 0}, /* a circled letter */
    };
    struct added_tokens a = {0};
    fill(&a);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&a, cases[i].text, cases[i].found, cases[i].count);
    added_tokens_free(&a);
}

/* No special token has a marked byte, wherever in it that is; others are found. */
static void test_marks(void **state)
{
    (void)state;
    static const char text[] = "<s><s><t>";
    struct added_tokens a = {0};
    assert_true(added_tokens_add(&a, "<s>", 3, 1, ADDED_TOKEN_SPECIAL) && added_tokens_add(&a, "<t>", 3, 2, 0));
    added_tokens_sort(&a);
    for (size_t marked = 0; marked < 9; marked++) {
        char marks[9] = {0};
        struct added_match match;
        int found[3] = {0};
        marks[marked] = 1;
        struct added_search search = {.text = text, .length = 9, .marks = marks, .special = true};
        while (added_tokens_next(&a, &search, &match)) found[match.from / 3]++;
        for (size_t k = 0; k < 3; k++) assert_int_equal(found[k], k == 2 || k != marked / 3);
    }
    struct added_search search = {.text = text, .length = 9};
    struct added_match match;
    assert_true(added_tokens_next(&a, &search, &match)); /* no special tokens at all */
    assert_int_equal(match.from, 6);
    assert_false(added_tokens_next(&a, &search, &match));
    added_tokens_free(&a);
}

static void test_find(void **state)
{
    (void)state;
    struct added_tokens a = {0};
    fill(&a);
    for (int id = 0; id < NUM_TOKENS; id++)
        assert_int_equal(added_tokens_find(&a, tokens[id].text, strlen(tokens[id].text))->id, id);
    assert_null(added_tokens_find(&a, "a", 1));
    assert_null(added_tokens_find(&a, "abcd", 4));
    assert_true(added_tokens_add(&a, "abc", 3, 99, 0)); /* the last of the same text remains */
    added_tokens_sort(&a);
    assert_int_equal(added_tokens_find(&a, "abc", 3)->id, 99);
    assert_int_equal(a.count, NUM_TOKENS);
    added_tokens_free(&a);
    struct added_tokens none = {0};
    struct added_search search = {.text = "x", .length = 1, .special = true};
    struct added_match match;
    added_tokens_sort(&none);
    assert_null(added_tokens_find(&none, "x", 1));
    assert_false(added_tokens_next(&none, &search, &match));
    added_tokens_free(&none);
}

/* What a match has taken as white space is no match of its own where that takes white space before it, too; a long run
 * is not walked through again and again, which would take minutes. */
static void test_white_space_is_taken_once(void **state)
{
    (void)state;
    static const struct {
        unsigned flags;
        size_t matches;
    } cases[] = {
        {ADDED_TOKEN_LSTRIP | ADDED_TOKEN_RSTRIP, 1}, {ADDED_TOKEN_RSTRIP, LONG_RUN}, {ADDED_TOKEN_LSTRIP, LONG_RUN}};
    static char text[LONG_RUN];
    memset(text, '\n', sizeof text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct added_tokens a = {0};
        struct added_search search = {.text = text, .length = sizeof text};
        struct added_match match;
        size_t count = 0;
        assert_true(added_tokens_add(&a, "\n", 1, 0, cases[i].flags));
        added_tokens_sort(&a);
        for (; added_tokens_next(&a, &search, &match); count++)
            assert_int_equal(match.to, cases[i].flags & ADDED_TOKEN_RSTRIP ? sizeof text : count + 1);
        assert_int_equal(count, cases[i].matches);
        added_tokens_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matches), cmocka_unit_test(test_marks),
                                       cmocka_unit_test(test_find), cmocka_unit_test(test_white_space_is_taken_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
