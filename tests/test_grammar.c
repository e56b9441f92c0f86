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

struct case_ {
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
static bool is_allowed(struct case_ *c, int32_t id)
{
    const struct token token = token_table_get(c->table, id);
    if (id == STOP_ID) return slow_grammar_ask(c->grammar, c->text, c->length).is_text;
    if (token.length == 0 || (token.flags & TOKEN_SPECIAL)) return false;
    memcpy(c->text + c->length, c->table->bytes.data + token.offset, token.length);
    return slow_grammar_ask(c->grammar, c->text, c->length + (int)token.length).is_prefix;
}

/* Compares the whole mask; returns a random allowed token, -1: none is. */
static int32_t check_mask(struct case_ *c, struct random *r)
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
static void check_refusal(struct case_ *c, struct random *r)
{
    uint32_t again[MAX_WORDS];
    const int32_t id = below(r, c->table->count);
    if (is_set(c->mask, id)) return;
    assert_false(matcher_accept(c->matcher, id));
    matcher_mask(c->matcher, again);
    assert_memory_equal(c->mask, again, sizeof(uint32_t) * (size_t)((c->table->count + 31) / 32));
}

static void check_walk(struct case_ *c, struct random *r)
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
        struct case_ c = {.grammar = g, .table = table, .matcher = make_matcher(constraint)};
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
    for (int round = 0; round < 400; round++) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_grammars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
