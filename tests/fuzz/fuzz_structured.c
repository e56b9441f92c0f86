/* What a request may say of the form of its answers: the first byte of the input is its kind and options, the rest the
 * value as JSON. Where there is a grammar, an answer is drawn token by token. */
#include <string.h>

#include "base/json_parse.h"
#include "base/random.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer/grammar/structured.h"

enum { NUM_TOKENS = 257, STOP_ID = 256, NUM_WORDS = (NUM_TOKENS + 31) / 32, MAX_STEPS = 40 };

/* A token for each byte; made once, and never given back. */
static const struct vocabulary *shared_vocabulary(void)
{
    static struct token_table table = {.rules = {.decoding = DECODE_BYTE_LEVEL}};
    static struct vocabulary *vocabulary;
    struct error err;
    if (vocabulary) return vocabulary;
    for (int32_t id = 0; id < NUM_TOKENS; id++) {
        const char byte = (char)id;
        fuzz_require(token_table_set(&table, id, &byte, id != STOP_ID, id == STOP_ID ? TOKEN_SPECIAL : 0), "no memory");
    }
    fuzz_require(vocabulary_create(&table, NUM_TOKENS, (int32_t[]){STOP_ID}, 1, &vocabulary, &err) == STATUS_OK,
                 "no vocabulary of bytes");
    return vocabulary;
}

/* An allowed token, or -1: there is none. */
static int32_t draw(const uint32_t *mask, struct random *random)
{
    const int32_t from = (int32_t)random_between(random, 0, NUM_TOKENS - 1);
    for (int32_t i = 0; i < NUM_TOKENS; i++) {
        const int32_t id = (from + i) % NUM_TOKENS;
        if (mask[id / 32] >> id % 32 & 1) return id;
    }
    return -1;
}

static void check_answer(struct grammar *g, uint64_t seed)
{
    struct constraint *c;
    struct matcher *m = NULL;
    struct error err = {""};
    struct random random = {seed};
    uint32_t mask[NUM_WORDS];
    if (constraint_create(g, shared_vocabulary(), &c, &err) != STATUS_OK) return fuzz_require_sentence(&err);
    fuzz_require(matcher_create(c, false, &m, &err) == STATUS_OK, "no matcher");
    for (int i = 0; i < MAX_STEPS; i++) {
        matcher_mask(m, mask);
        const int32_t id = draw(mask, &random);
        const bool may_end = mask[STOP_ID / 32] >> STOP_ID % 32 & 1;
        fuzz_require(may_end == matcher_may_end(m), "the mask and the matcher disagree about the end");
        fuzz_require(id >= 0, "an answer that cannot go on");
        fuzz_require(matcher_accept(m, id), "an allowed token is refused");
        if (id == STOP_ID) break;
    }
    matcher_free(m);
    constraint_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const begins[] = {"<think>", NULL}, *const ends[] = {"</think>", "\n", NULL};
    struct error err = {""};
    struct grammar *g = NULL;
    json_t *value;
    if (size == 0) return 0;
    if (json_value_parse((const char *)data + 1, size - 1, JSON_DECODE_ANY, NULL, &value, &err) != STATUS_OK) return 0;
    const int kind = data[0] % (NUM_STRUCTURED_KINDS - 1) + 1, options = data[0] / (NUM_STRUCTURED_KINDS - 1);
    struct structured s = {.kind = (enum structured_kind)kind,
                           .value = value,
                           .disable_any_whitespace = options & 1,
                           .disable_additional_properties = options >> 1 & 1};
    if (options & 4) s.thought = (struct structured_thought){begins, ends, options >> 3 & 1};
    if (structured_grammar(&s, &g, &err) == STATUS_OK)
        check_answer(g, size);
    else
        fuzz_require_sentence(&err);
    grammar_free(g);
    json_decref(value);
    return 0;
}
