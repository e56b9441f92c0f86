/* usage: grammar   reads lines {"kind": "grammar", "value": ..., "texts": [...], "draw": N}, where kind and value are a
 * field of structured_outputs, and writes for each a line: {"error": "..."}, or {"accepted": [true, ...], "drawn":
 * ["...",
 * ...]}: whether each text may be an answer, and answers that were drawn byte by byte, at most N. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_parse.h"
#include "base/json_value.h"
#include "base/random.h"
#include "tokenizer/grammar/structured.h"

enum { STOP_ID = 256, NUM_TOKENS, NUM_WORDS = (NUM_TOKENS + 31) / 32, MAX_DRAWN = 80 };

static struct vocabulary *byte_vocabulary(void)
{
    static struct token_table table = {.rules = {.decoding = DECODE_BYTE_LEVEL}};
    struct vocabulary *v = NULL;
    bool ok = true;
    for (int32_t id = 0; id < NUM_TOKENS; id++) {
        const char byte = (char)id;
        ok = ok && token_table_set(&table, id, &byte, id != STOP_ID, id == STOP_ID ? TOKEN_SPECIAL : 0);
    }
    if (!ok || vocabulary_create(&table, NUM_TOKENS, (int32_t[]){STOP_ID}, 1, &v, NULL)) abort();
    return v;
}

static struct matcher *start(struct constraint *c)
{
    struct matcher *m;
    if (matcher_create(c, false, &m, NULL)) abort();
    return m;
}

static bool accepts(struct constraint *c, const char *text, size_t length)
{
    struct matcher *m = start(c);
    bool ok = true;
    for (size_t i = 0; ok && i < length; i++) ok = matcher_accept(m, (unsigned char)text[i]);
    ok = ok && matcher_may_end(m);
    matcher_free(m);
    return ok;
}

/* Where the text may end it does so one time in four. NULL: it was not ended after MAX_DRAWN bytes. */
static json_t *draw(struct constraint *c, struct random *random)
{
    char text[MAX_DRAWN];
    size_t length = 0;
    uint32_t mask[NUM_WORDS];
    struct matcher *m = start(c);
    while (!(matcher_may_end(m) && (matcher_must_end(m) || random_between(random, 0, 3) == 0))) {
        int32_t id = (int32_t)random_between(random, 0, 255), tried = 0;
        matcher_mask(m, mask);
        while (tried < 256 && !(mask[id / 32] >> id % 32 & 1)) {
            id = (id + 1) % 256;
            tried++;
        }
        if (length == MAX_DRAWN || tried == 256 || !matcher_accept(m, id)) break;
        text[length++] = (char)id;
    }
    const bool ended = matcher_may_end(m);
    matcher_free(m);
    return ended ? json_stringn(text, length) : NULL;
}

static json_t *answer(struct structured_cache *cache, const json_t *line, struct random *random)
{
    struct structured s = {.value = json_object_get(line, "value")};
    struct constraint *c;
    struct error err = {""};
    for (int kind = 1; kind < NUM_STRUCTURED_KINDS; kind++)
        if (json_is_word(json_object_get(line, "kind"), structured_kind_name((enum structured_kind)kind)))
            s.kind = (enum structured_kind)kind;
    if (structured_cache_get(cache, &s, &c, &err)) return json_pack("{s:s}", "error", err.text);
    json_t *accepted = json_array(), *drawn = json_array();
    const json_t *text;
    size_t i;
    json_array_foreach(json_object_get(line, "texts"), i, text)
        json_array_append_new(accepted, json_boolean(accepts(c, json_string_value(text), json_string_length(text))));
    for (json_int_t k = json_integer_value(json_object_get(line, "draw")); k > 0; k--) {
        json_t *one = draw(c, random);
        if (one) json_array_append_new(drawn, one);
    }
    constraint_free(c);
    return json_pack("{s:o,s:o}", "accepted", accepted, "drawn", drawn);
}

int main(void)
{
    struct random random = {1};
    struct structured_cache *cache;
    char *text = NULL;
    size_t capacity = 0;
    ssize_t length;
    if (structured_cache_create(byte_vocabulary(), SIZE_MAX, &cache, NULL)) abort();
    while ((length = getline(&text, &capacity, stdin)) > 0) {
        struct error err = {""};
        json_t *line;
        if (json_value_parse(text, (size_t)length, 0, NULL, &line, &err)) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        json_t *out = answer(cache, line, &random);
        json_print(out, JSON_COMPACT, stdout);
        fflush(stdout);
        json_decref(out);
        json_decref(line);
    }
    free(text);
    return 0;
}
