/* What the tokenizer's tests share: the golden data, folders made for one test, and a small random generator. */
#ifndef QUIRE_TESTS_TEST_TOKENIZER_SUPPORT_H
#define QUIRE_TESTS_TEST_TOKENIZER_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/array.h"
#include "base/file.h"
#include "tokenizer/tokenizer.h"

#define BPE QUIRE_TEST_DATA "/tokenizer_bpe"
#define UNIGRAM QUIRE_TEST_DATA "/tokenizer_unigram"

static inline struct tokenizer *open_tokenizer(const char *folder)
{
    struct tokenizer *t;
    struct error err = {{0}};
    if (tokenizer_open(folder, &t, &err)) fail_msg("%s", err.text);
    return t;
}

static inline json_t *load_golden(const char *folder)
{
    char path[512];
    json_error_t error;
    assert_true(path_join(path, sizeof path, folder, "golden.json"));
    json_t *golden = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!golden) fail_msg("%s: %s", path, error.text);
    return golden;
}

/* A JSON list of ids. The caller frees list->ids. */
static inline struct token_list json_ids(const json_t *array)
{
    struct token_list list = {0};
    for (size_t i = 0; i < json_array_size(array); i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(array, i));
        assert_true(token_list_append(&list, &id, 1));
    }
    return list;
}

static inline void assert_same_ids(const struct token_list *got, const struct token_list *expected, const char *what)
{
    size_t n = got->count < expected->count ? got->count : expected->count;
    for (size_t i = 0; i < n; i++)
        if (got->ids[i] != expected->ids[i])
            fail_msg("%s: token %zu is %d, expected %d", what, i, (int)got->ids[i], (int)expected->ids[i]);
    if (got->count != expected->count) fail_msg("%s: %zu tokens, expected %zu", what, got->count, expected->count);
}

/* A folder for one test, made by make_folder and removed with its files by remove_folder. */
static inline void make_folder(char folder[64])
{
    strcpy(folder, "/tmp/quire-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static inline void write_bytes(const char *folder, const char *name, const void *data, size_t length)
{
    char path[512];
    assert_true(path_join(path, sizeof path, folder, name));
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, length, f), length);
    assert_int_equal(fclose(f), 0);
}

static inline void write_string(const char *folder, const char *name, const char *contents)
{
    write_bytes(folder, name, contents, strlen(contents));
}

static inline void link_model(const char *folder, const char *source)
{
    char from[512], to[512];
    assert_true(path_join(from, sizeof from, source, "tokenizer.model"));
    assert_true(path_join(to, sizeof to, folder, "tokenizer.model"));
    assert_int_equal(symlink(from, to), 0);
}

static inline void remove_folder(const char *folder)
{
    static const char *const names[] = {"tokenizer.model",         "tokenizer.json",        "tokenizer_config.json",
                                        "special_tokens_map.json", "added_tokens.json",     "chat_template.jinja",
                                        "chat_template.json",      "processor_config.json", "tiktoken.model"};
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (path_join(path, sizeof path, folder, names[i])) unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

/* A tokenizer of the given model and tokenizer_config.json (NULL: none). */
static inline struct tokenizer *open_with_config(const char *model_folder, const char *config)
{
    char folder[64];
    make_folder(folder);
    link_model(folder, model_folder);
    if (config) write_string(folder, "tokenizer_config.json", config);
    struct tokenizer *t = open_tokenizer(folder);
    remove_folder(folder);
    return t;
}

/* xorshift64*: the same numbers everywhere. *state must not be 0. */
static inline uint32_t random_below(uint64_t *state, uint32_t limit)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (uint32_t)((*state * 0x2545F4914F6CDD1Dull) >> 33) % limit;
}

#endif
