/* grammar.h and matcher.h: masks are compared with a recognizer that knows no automata. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/pool.h"
#include "tests/support/must.h"
#include "tests/support/slow_grammar.h"
#include "tokenizer/grammar/matcher.h"

enum { STOP_ID = 3, MAX_TOKENS = 80, MAX_WORDS = (MAX_TOKENS + 31) / 32 };

static int below(struct random *r, int limit)
{
    return (int)(random_bits(r) % (uint64_t)limit);
}

/* ---- small vocabularies ---- */

/* Random tokens, some alike; one is special, one has no bytes, and one is the stop token. */
static void make_table(struct token_table *table, struct random *r, int32_t count)
{
    *table = (struct token_table){.rules = {.decoding = DECODE_BYTE_LEVEL}};
    for (int32_t id = 0; id < count; id++) {
        char bytes[8];
        const int length = id == 5 ? 0 : slow_random_bytes(r, 4, bytes);
        assert_true(token_table_set(table, id, bytes, (size_t)length, id == 4 ? TOKEN_SPECIAL : 0));
    }
}

static struct vocabulary *make_vocabulary(const struct token_table *table)
{
    struct vocabulary *v;
    struct error err;
    must(vocabulary_create(table, table->count, (int32_t[]){STOP_ID}, 1, &v, &err), &err);
    return v;
}

static struct constraint *make_constraint(struct grammar_builder *b, int32_t root, const struct vocabulary *v)
{
    struct grammar *g;
    struct constraint *c;
    struct error err;
    must(grammar_build(b, root, &g, &err), &err);
    must(constraint_create(g, v, &c, &err), &err);
    grammar_free(g);
    grammar_builder_free(b);
    return c;
}

static struct matcher *make_matcher(struct constraint *c)
{
    struct matcher *m;
    struct error err;
    must(matcher_create(c, false, &m, &err), &err);
    return m;
}

/* ---- masks of random grammars ---- */

struct check {
    const struct slow_grammar *grammar;
    const struct token_table *table;
    struct matcher *matcher;
    char text[SLOW_MAX_TEXT + 8];
    int length;
    uint32_t mask[MAX_WORDS];
};

static bool is_set(const uint32_t *words, int32_t id)
{
    return words[id / 32] >> (id % 32) & 1;
}

/* What the mask says of a token, found byte by byte. */
static bool is_allowed(struct check *c, int32_t id)
{
    const struct token token = token_table_get(c->table, id);
    if (id == STOP_ID) return slow_grammar_ask(c->grammar, c->text, c->length).is_text;
    if (token.length == 0 || (token.flags & TOKEN_SPECIAL)) return false;
    memcpy(c->text + c->length, c->table->bytes.data + token.offset, token.length);
    return slow_grammar_ask(c->grammar, c->text, c->length + (int)token.length).is_prefix;
}

/* Compares the whole mask; returns a random allowed token, -1: none is. */
static int32_t check_mask(struct check *c, struct random *r)
{
    int32_t chosen = -1;
    int num_allowed = 0;
    matcher_mask(c->matcher, c->mask);
    assert_false(matcher_failed(c->matcher));
    for (int32_t id = 0; id < c->table->count; id++) {
        const bool allowed = is_allowed(c, id);
        if (allowed != is_set(c->mask, id)) fail_msg("text %.*s: token %d", c->length, c->text, (int)id);
        if (allowed && id != STOP_ID && below(r, ++num_allowed) == 0) chosen = id;
    }
    assert_int_equal(matcher_may_end(c->matcher), slow_grammar_ask(c->grammar, c->text, c->length).is_text);
    if (num_allowed > 0) assert_false(matcher_must_end(c->matcher));
    return chosen;
}

/* A token that is not allowed changes nothing. */
static void check_refusal(struct check *c, struct random *r)
{
    uint32_t again[MAX_WORDS];
    const int32_t id = below(r, c->table->count);
    if (is_set(c->mask, id)) return;
    assert_false(matcher_accept(c->matcher, id));
    matcher_mask(c->matcher, again);
    assert_memory_equal(c->mask, again, sizeof(uint32_t) * (size_t)((c->table->count + 31) / 32));
}

static void check_walk(struct check *c, struct random *r)
{
    int32_t taken[SLOW_MAX_TEXT];
    int count = 0;
    for (;;) {
        const int32_t id = check_mask(c, r);
        check_refusal(c, r);
        if (id < 0) break;
        const struct token token = token_table_get(c->table, id);
        if (c->length + 2 * 8 > SLOW_MAX_TEXT) break;
        memcpy(c->text + c->length, c->table->bytes.data + token.offset, token.length);
        c->length += (int)token.length;
        assert_true(matcher_accept(c->matcher, id));
        taken[count++] = id;
        const int back =
            below(r, 4) ? 0 : below(r, count < MATCHER_MAX_ROLLBACK ? count + 1 : MATCHER_MAX_ROLLBACK + 1);
        matcher_rollback(c->matcher, back);
        for (int i = 0; i < back; i++) c->length -= (int)token_table_get(c->table, taken[--count]).length;
        if (back && below(r, 3) == 0) break;
    }
}

static void check_grammar(const struct slow_grammar *g, const struct token_table *table, const struct vocabulary *v,
                          struct random *r)
{
    struct grammar_builder *b = grammar_builder_create();
    const int32_t root = slow_grammar_add(g, b);
    struct grammar *made;
    struct error err;
    if (!slow_grammar_has_text(g)) {
        assert_int_equal(grammar_build(b, root, &made, &err), STATUS_INVALID);
        grammar_builder_free(b);
        return;
    }
    struct constraint *constraint = make_constraint(b, root, v);
    for (int walk = 0; walk < 3; walk++) {
        struct check c = {.grammar = g, .table = table, .matcher = make_matcher(constraint)};
        check_walk(&c, r);
        matcher_free(c.matcher);
    }
    constraint_free(constraint);
}

static void test_random_grammars(void **state)
{
    (void)state;
    struct random r = {1};
    struct slow_grammar *g = malloc(sizeof *g);
    for (int round = 0; round < 300; round++) {
        struct token_table table;
        make_table(&table, &r, 20 + below(&r, MAX_TOKENS - 20));
        struct vocabulary *v = make_vocabulary(&table);
        slow_grammar_random(g, &r);
        check_grammar(g, &table, v, &r);
        vocabulary_free(v);
        token_table_free(&table);
    }
    free(g);
}

/* ---- texts of certain grammars ---- */

#define NODES(...)                                                                                                     \
    (grammar_node[]){__VA_ARGS__}, (int32_t)(sizeof((grammar_node[]){__VA_ARGS__}) / sizeof(grammar_node))

static grammar_node literal(struct grammar_builder *b, const char *text)
{
    return grammar_bytes(b, text, strlen(text));
}

/* A vocabulary whose token i is the byte i, but for the stop token; and some more tokens. */
static void make_bytes_table(struct token_table *table, const char *const *more, int32_t count)
{
    *table = (struct token_table){.rules = {.decoding = DECODE_BYTE_LEVEL}};
    for (int32_t id = 0; id < 256; id++) {
        const char byte = (char)id;
        assert_true(token_table_set(table, id, &byte, 1, 0));
    }
    for (int32_t i = 0; i < count; i++) assert_true(token_table_set(table, 256 + i, more[i], strlen(more[i]), 0));
}

struct bytes {
    struct token_table table;
    struct vocabulary *vocabulary;
    struct constraint *constraint;
    struct matcher *matcher;
};

/* Ends the builder. */
static void open_bytes(struct bytes *t, struct grammar_builder *b, int32_t root)
{
    make_bytes_table(&t->table, NULL, 0);
    t->vocabulary = make_vocabulary(&t->table);
    t->constraint = make_constraint(b, root, t->vocabulary);
    t->matcher = make_matcher(t->constraint);
}

static void close_bytes(struct bytes *t)
{
    matcher_free(t->matcher);
    constraint_free(t->constraint);
    vocabulary_free(t->vocabulary);
    token_table_free(&t->table);
}

/* How many bytes of the text are accepted, one after the other. */
static size_t accept_text(struct matcher *m, const char *text)
{
    size_t i = 0;
    while (text[i] && matcher_accept(m, (unsigned char)text[i])) i++;
    return i;
}

static void check_text(struct constraint *c, const char *text, bool is_text)
{
    struct matcher *m = make_matcher(c);
    const bool accepted = accept_text(m, text) == strlen(text) && matcher_may_end(m);
    if (accepted != is_text) fail_msg("%s", text);
    matcher_free(m);
}

/* sum ::= sum "+" product | product, product ::= product "*" value | value, value ::= "(" sum ")" | [0-9]. */
static void test_left_recursion(void **state)
{
    (void)state;
    struct grammar_builder *b = grammar_builder_create();
    const int32_t sum = grammar_rule(b, "sum"), product = grammar_rule(b, "product"), value = grammar_rule(b, "value");
    const grammar_node s = grammar_reference(b, sum), p = grammar_reference(b, product),
                       v = grammar_reference(b, value);
    const grammar_node digit = grammar_characters(b, &(struct character_range){'0', '9'}, 1);
    grammar_define(b, sum, grammar_choice(b, NODES(grammar_sequence(b, NODES(s, literal(b, "+"), p)), p)));
    grammar_define(b, product, grammar_choice(b, NODES(grammar_sequence(b, NODES(p, literal(b, "*"), v)), v)));
    grammar_define(b, value,
                   grammar_choice(b, NODES(grammar_sequence(b, NODES(literal(b, "("), s, literal(b, ")"))), digit)));
    struct bytes t;
    open_bytes(&t, b, sum);
    check_text(t.constraint, "1+2*3", true);
    check_text(t.constraint, "((1+2)*3+4)*5*(6)", true);
    check_text(t.constraint, "1+", false);
    check_text(t.constraint, "(1+2", false);
    check_text(t.constraint, "1++2", false);
    close_bytes(&t);
}

/* all ::= all all | "a" | "": every text has more derivations than can be counted. */
static void test_ambiguity(void **state)
{
    (void)state;
    struct grammar_builder *b = grammar_builder_create();
    const int32_t rule = grammar_rule(b, "all");
    const grammar_node all = grammar_reference(b, rule);
    grammar_define(b, rule,
                   grammar_choice(b, NODES(grammar_sequence(b, NODES(all, all)), literal(b, "a"), grammar_empty(b))));
    struct bytes t;
    open_bytes(&t, b, rule);
    for (int i = 0; i < 300; i++) {
        assert_true(matcher_may_end(t.matcher));
        assert_true(matcher_accept(t.matcher, 'a'));
    }
    assert_false(matcher_accept(t.matcher, 'b'));
    close_bytes(&t);
}

static void test_deep_nesting(void **state)
{
    (void)state;
    struct grammar_builder *b = grammar_builder_create();
    const int32_t rule = grammar_rule(b, "list");
    grammar_define(b, rule,
                   grammar_sequence(b, NODES(literal(b, "["), grammar_repeat(b, grammar_reference(b, rule), 0, 1),
                                             literal(b, "]"))));
    struct bytes t;
    open_bytes(&t, b, rule);
    enum { DEPTH = 200000 };
    for (int i = 0; i < DEPTH; i++) assert_true(matcher_accept(t.matcher, '['));
    for (int i = 0; i < DEPTH; i++) {
        assert_false(matcher_may_end(t.matcher));
        assert_true(matcher_accept(t.matcher, ']'));
    }
    assert_true(matcher_must_end(t.matcher));
    close_bytes(&t);
}

/* A repetition takes as much memory whatever its counts are, and an answer that visits more places than fit goes on. */
static void test_large_counts(void **state)
{
    (void)state;
    enum { LEAST = 150000, MOST = 200000 };
    struct grammar_builder *b = grammar_builder_create();
    const int32_t rule = grammar_rule(b, NULL);
    grammar_define(b, rule,
                   grammar_repeat(b, grammar_choice(b, NODES(literal(b, "a"), literal(b, "bc"))), LEAST, MOST));
    struct bytes t;
    open_bytes(&t, b, rule);
    assert_true(constraint_bytes(t.constraint) < 1 << 20);
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(matcher_may_end(t.matcher), i >= LEAST);
        if (i % 3) {
            assert_true(matcher_accept(t.matcher, 'a'));
            continue;
        }
        assert_true(matcher_accept(t.matcher, 'b'));
        assert_true(matcher_accept(t.matcher, 'c'));
    }
    assert_true(matcher_must_end(t.matcher));
    assert_true(constraint_bytes(t.constraint) < 100 << 20);
    matcher_rollback(t.matcher, MATCHER_MAX_ROLLBACK);
    assert_true(matcher_accept(t.matcher, 'a') || matcher_accept(t.matcher, 'c'));
    close_bytes(&t);
}

/* 2^40 times "ab", by nodes that are used twice. */
static void test_shared_nodes(void **state)
{
    (void)state;
    struct grammar_builder *b = grammar_builder_create();
    const int32_t rule = grammar_rule(b, NULL);
    grammar_node node = literal(b, "ab");
    for (int i = 0; i < 40; i++) node = grammar_sequence(b, NODES(node, node));
    grammar_define(b, rule, node);
    struct bytes t;
    open_bytes(&t, b, rule);
    for (int i = 0; i < 1000; i++) assert_true(matcher_accept(t.matcher, i % 2 ? 'b' : 'a'));
    assert_false(matcher_may_end(t.matcher));
    close_bytes(&t);
}

/* (a|b)* a (a|b)^60: a deterministic automaton would have 2^60 states. */
static void test_nondeterminism(void **state)
{
    (void)state;
    enum { AFTER = 60 };
    struct grammar_builder *b = grammar_builder_create();
    const int32_t rule = grammar_rule(b, NULL);
    grammar_node parts[AFTER + 2];
    for (int i = 0; i < AFTER + 2; i++) {
        /* Not one node, which would be repeated with a count. */
        const grammar_node either = grammar_choice(b, NODES(literal(b, "a"), literal(b, "b")));
        parts[i] = i == 0 ? grammar_repeat(b, either, 0, GRAMMAR_UNBOUNDED) : i == 1 ? literal(b, "a") : either;
    }
    grammar_define(b, rule, grammar_sequence(b, parts, AFTER + 2));
    struct bytes t;
    open_bytes(&t, b, rule);
    struct random r = {2};
    char text[400];
    for (int i = 0; i < 400; i++) {
        text[i] = below(&r, 2) ? 'a' : 'b';
        assert_true(matcher_accept(t.matcher, (unsigned char)text[i]));
        assert_int_equal(matcher_may_end(t.matcher), i >= AFTER && text[i - AFTER] == 'a');
    }
    close_bytes(&t);
}

static void test_refused(void **state)
{
    (void)state;
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *g;
    struct error err;
    const int32_t first = grammar_rule(b, "first"), second = grammar_rule(b, "second");
    assert_int_equal(grammar_rule(b, "first"), first);
    grammar_define(b, first, grammar_choice(b, NODES(literal(b, "a"), grammar_reference(b, second))));
    assert_int_equal(grammar_build(b, first, &g, &err), STATUS_INVALID);
    assert_string_equal(err.text, "rule second is used but not defined");
    assert_int_equal(grammar_build(b, second, &g, &err), STATUS_INVALID);
    grammar_define(b, second, grammar_sequence(b, NODES(literal(b, "b"), grammar_reference(b, second))));
    must(grammar_build(b, first, &g, &err), &err);
    grammar_free(g);
    assert_int_equal(grammar_build(b, second, &g, &err), STATUS_INVALID);
    assert_string_equal(err.text, "no text is in the grammar");
    for (int i = 0; i <= GRAMMAR_MAX_NODES; i++) literal(b, "a");
    assert_int_equal(grammar_build(b, first, &g, &err), STATUS_UNSUPPORTED);
    grammar_builder_free(b);
}

/* ---- the end, and what is forced ---- */

static void test_end(void **state)
{
    (void)state;
    struct grammar_builder *b = grammar_builder_create();
    const int32_t rule = grammar_rule(b, NULL);
    grammar_define(b, rule, grammar_sequence(b, NODES(literal(b, "yes"), grammar_repeat(b, literal(b, "!"), 0, 1))));
    struct bytes t;
    uint32_t words[8];
    open_bytes(&t, b, rule);
    assert_false(matcher_accept(t.matcher, STOP_ID));
    assert_int_equal(accept_text(t.matcher, "yes"), 3);
    assert_true(matcher_may_end(t.matcher));
    assert_false(matcher_must_end(t.matcher));
    matcher_mask(t.matcher, words);
    for (int32_t id = 0; id < 256; id++) assert_int_equal(is_set(words, id), id == '!' || id == STOP_ID);
    assert_true(matcher_accept(t.matcher, STOP_ID));
    assert_false(matcher_accept(t.matcher, '!'));
    assert_false(matcher_accept(t.matcher, STOP_ID));
    matcher_mask(t.matcher, words);
    for (int i = 0; i < 8; i++) assert_int_equal(words[i], 0);
    assert_false(matcher_failed(t.matcher));
    matcher_rollback(t.matcher, 1);
    assert_true(matcher_accept(t.matcher, '!'));
    assert_true(matcher_must_end(t.matcher));
    close_bytes(&t);
}

static void check_forced(struct matcher *m, size_t most, const char *expected)
{
    struct text text = {0};
    struct error err;
    must(matcher_forced(m, most, &text, &err), &err);
    assert_int_equal(text.length, strlen(expected));
    if (text.length) assert_string_equal(text.data, expected);
    text_free(&text);
}

static void test_forced(void **state)
{
    (void)state;
    struct grammar_builder *b = grammar_builder_create();
    const int32_t rule = grammar_rule(b, NULL), name = grammar_rule(b, NULL);
    grammar_define(b, name, grammar_choice(b, NODES(literal(b, "age"), literal(b, "address"))));
    grammar_define(b, rule,
                   grammar_sequence(b, NODES(literal(b, "{\""), grammar_reference(b, name), literal(b, "\": 1}"))));
    struct bytes t;
    open_bytes(&t, b, rule);
    check_forced(t.matcher, 100, "{\"a");
    check_forced(t.matcher, 2, "{\"");
    assert_int_equal(accept_text(t.matcher, "{\"ad"), 4);
    check_forced(t.matcher, 100, "dress\": 1}");
    assert_int_equal(accept_text(t.matcher, "dress\": 1}"), 10);
    check_forced(t.matcher, 100, "");
    close_bytes(&t);
}

/* At the start of an answer the tokenizer drops a space. */
static void test_first_token(void **state)
{
    (void)state;
    static const char *const spellings[] = {"a", " a", " ", "  a", "<stop>", "b"};
    enum { COUNT = sizeof spellings / sizeof *spellings };
    struct token_table table = {.rules = {.decoding = DECODE_SENTENCEPIECE, .strips_first_space = true}};
    for (int32_t id = 0; id < COUNT; id++)
        assert_true(token_table_set(&table, id, spellings[id], strlen(spellings[id]),
                                    spellings[id][0] == ' ' ? TOKEN_LEADING_SPACE : 0));
    struct error err;
    struct vocabulary *v;
    must(vocabulary_create(&table, COUNT, (int32_t[]){4}, 1, &v, &err), &err);
    struct grammar_builder *b = grammar_builder_create();
    const int32_t rule = grammar_rule(b, NULL);
    const grammar_node part = grammar_choice(b, NODES(literal(b, "a"), literal(b, " a")));
    grammar_define(b, rule, grammar_sequence(b, NODES(literal(b, "a"), grammar_repeat(b, part, 0, GRAMMAR_UNBOUNDED))));
    struct constraint *c = make_constraint(b, rule, v);
    for (int at_start = 0; at_start < 2; at_start++) {
        struct matcher *m;
        uint32_t word;
        must(matcher_create(c, at_start, &m, &err), &err);
        matcher_mask(m, &word);
        assert_int_equal(word, at_start ? 1 | 2 | 4 : 1);
        assert_int_equal(matcher_accept(m, 1), at_start);
        matcher_rollback(m, at_start);
        assert_int_equal(matcher_accept(m, 2), at_start); /* it adds nothing */
        if (at_start) matcher_mask(m, &word);
        if (at_start) assert_int_equal(word, 1);
        matcher_rollback(m, at_start);
        assert_true(matcher_accept(m, 0));
        matcher_mask(m, &word);
        assert_int_equal(word, 1 | 2 | 4 | 16);
        assert_true(matcher_accept(m, 1));
        matcher_free(m);
    }
    constraint_free(c);
    vocabulary_free(v);
    token_table_free(&table);
}

/* ---- threads ---- */

enum { NUM_THREADS = 4, WALKS = 30, STEPS = 12 };

struct walker {
    struct constraint *shared, *own;
    int32_t num_ids;
    uint64_t seed;
    bool differs;
};

/* Random walks: masks of a constraint that all threads use are those of one that this thread has alone. */
static void *walk_randomly(void *context)
{
    struct walker *w = context;
    struct random r = {w->seed};
    for (int walk = 0; walk < WALKS; walk++) {
        struct matcher *a, *b;
        uint32_t words[MAX_WORDS], expected[MAX_WORDS];
        w->differs =
            w->differs || matcher_create(w->shared, false, &a, NULL) || matcher_create(w->own, false, &b, NULL);
        for (int step = 0; step < STEPS && !w->differs; step++) {
            matcher_mask(a, words);
            matcher_mask(b, expected);
            const size_t bytes = (size_t)(w->num_ids + 31) / 32 * sizeof *words;
            const int32_t id = below(&r, w->num_ids);
            w->differs = memcmp(words, expected, bytes) != 0 || matcher_accept(a, id) != matcher_accept(b, id);
        }
        matcher_free(a);
        matcher_free(b);
    }
    return NULL;
}

static void check_threads(const struct slow_grammar *g, const struct vocabulary *v, int32_t num_ids)
{
    pthread_t threads[NUM_THREADS];
    struct walker walkers[NUM_THREADS];
    struct constraint *constraints[NUM_THREADS + 1];
    for (int i = 0; i <= NUM_THREADS; i++) {
        struct grammar_builder *b = grammar_builder_create();
        const int32_t root = slow_grammar_add(g, b);
        constraints[i] = make_constraint(b, root, v);
    }
    for (int i = 0; i < NUM_THREADS; i++) {
        walkers[i] = (struct walker){constraints[NUM_THREADS], constraints[i], num_ids, (uint64_t)i, false};
        assert_int_equal(pthread_create(&threads[i], NULL, walk_randomly, &walkers[i]), 0);
    }
    for (int i = 0; i < NUM_THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < NUM_THREADS; i++) assert_false(walkers[i].differs);
    for (int i = 0; i <= NUM_THREADS; i++) constraint_free(constraints[i]);
}

static void test_threads(void **state)
{
    (void)state;
    struct random r = {5};
    struct slow_grammar *g = malloc(sizeof *g);
    struct token_table table;
    make_table(&table, &r, MAX_TOKENS);
    struct vocabulary *v = make_vocabulary(&table);
    for (int round = 0; round < 30; round++) {
        slow_grammar_random(g, &r);
        if (slow_grammar_has_text(g)) check_threads(g, v, table.count);
    }
    vocabulary_free(v);
    token_table_free(&table);
    free(g);
}

/* matcher_masks gives what matcher_mask gives. */
static void test_masks_of_many(void **state)
{
    (void)state;
    enum { COUNT = 12 };
    struct pool *pool;
    struct error err;
    must(pool_open(NUM_THREADS, &pool, &err), &err);
    struct bytes t[COUNT];
    struct matcher *matchers[COUNT];
    uint32_t masks[COUNT][8], again[8];
    uint32_t *words[COUNT];
    for (int i = 0; i < COUNT; i++) {
        struct grammar_builder *b = grammar_builder_create();
        const int32_t rule = grammar_rule(b, NULL);
        const struct character_range range = {(uint32_t)('a' + i), (uint32_t)('c' + i)};
        grammar_define(b, rule, grammar_repeat(b, grammar_characters(b, &range, 1), 1, 100));
        open_bytes(&t[i], b, rule);
        matchers[i] = t[i].matcher;
        words[i] = masks[i];
        if (i % 2) matcher_mask(matchers[i], masks[i]); /* found before */
    }
    matcher_masks(matchers, words, COUNT, pool);
    for (int i = 0; i < COUNT; i++) {
        for (int c = 0; c < 256; c++) assert_int_equal(is_set(masks[i], c), c >= 'a' + i && c <= 'c' + i);
        matcher_masks(&matchers[i], &(uint32_t *){again}, 1, NULL);
        assert_memory_equal(again, masks[i], sizeof again);
        close_bytes(&t[i]);
    }
    pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_grammars),
        cmocka_unit_test(test_left_recursion),
        cmocka_unit_test(test_ambiguity),
        cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_large_counts),
        cmocka_unit_test(test_shared_nodes),
        cmocka_unit_test(test_nondeterminism),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_first_token),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_masks_of_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
