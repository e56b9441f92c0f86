/* Which prompts a run makes of its lines, in which order it takes them, and what a dry run counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "runtime/generate/distinct.h"
#include "runtime/generate/id_set.h"
#include "runtime/generate/window.h"
#include "tests/support/generate.h"

struct fixture {
    struct temp_folder chat, plain, files;
};

static int set_up(void **state)
{
    static struct fixture f;
    toy_model_make(&f.chat, QUIRE_GUIDE, true);
    toy_model_make(&f.plain, QUIRE_GUIDE, false);
    temp_folder_make(&f.files);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    temp_folder_remove(&f->chat);
    temp_folder_remove(&f->plain);
    temp_folder_remove(&f->files);
    return 0;
}

/* ---- the window ---- */

static void add(struct window *w, int32_t priority, const char *salt, const int32_t *ids, size_t count, size_t number)
{
    struct prompt p = {.priority = priority, .cache_salt = salt ? strdup(salt) : NULL};
    assert_true(token_list_append(&p.tokens, ids, count));
    assert_true(window_add(w, &p, (struct result *)(uintptr_t)number));
}

static void expect_order(struct window *w, const size_t *numbers, size_t count)
{
    struct window_entry entry;
    for (size_t i = 0; i < count; i++) {
        assert_true(window_take(w, &entry));
        assert_int_equal((uintptr_t)entry.result, numbers[i]);
        prompt_free(&entry.prompt);
    }
}

static void test_window(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 2, 3, 1, 2, 4};
    struct window w = {0};
    struct window_entry entry;
    assert_false(window_take(&w, &entry));
    add(&w, 0, NULL, ids, 3, 1);     /* 1 2 3 */
    add(&w, 0, NULL, ids + 1, 2, 2); /* 2 3 */
    add(&w, 0, NULL, ids, 2, 3);     /* 1 2 */
    add(&w, 0, "s", ids, 3, 4);
    add(&w, -1, NULL, ids + 2, 1, 5);
    add(&w, 0, NULL, ids + 3, 3, 6); /* 1 2 4 */
    add(&w, 0, NULL, ids, 3, 7);     /* 1 2 3 */
    assert_int_equal(w.num_tokens, 17);
    expect_order(&w, (const size_t[]){5, 3, 1}, 3);
    add(&w, -9, NULL, ids, 1, 8); /* waits until the sorted ones are gone */
    assert_int_equal(window_collected(&w), 1);
    assert_int_equal(window_count(&w), 5);
    expect_order(&w, (const size_t[]){7, 6, 2, 4, 8}, 5);
    assert_int_equal(w.num_tokens, 0);
    assert_false(window_take(&w, &entry));
    add(&w, 0, NULL, ids, 1, 9);
    window_free(&w);
}

/* Prompts that share a long beginning, shuffled, with a cache that holds few of the beginnings: in the order of the
 * input nearly none is found again. */
static void test_shared_beginnings(void **state)
{
    const struct fixture *f = *state;
    enum { GROUPS = 40, PER_GROUP = 12, COUNT = GROUPS * PER_GROUP, LENGTH = 64 };
    struct text input = {0};
    struct program p;
    int64_t cached = 0;
    for (int i = 0; i < COUNT; i++) {
        assert_true(text_append_string(&input, "{\"max_tokens\": 1, \"prompt\": ["));
        for (int k = 0; k < LENGTH; k++)
            assert_true(text_printf(&input, "%d,", k == 0 ? 100 + i % GROUPS : 3 + (i % GROUPS * 7 + k) % 90));
        assert_true(text_printf(&input, "%d]}\n", 3 + i));
    }
    generate_run(&p, &f->chat, input.data,
                 (const char *[]){"--num-gpu-blocks-override", "40", "--ordered", "--ignore-eos", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(generate_count_lines(&p.out), COUNT);
    for (int i = 0; i < COUNT; i++) {
        json_t *line = generate_line(&p.out, i);
        assert_int_equal(json_require_integer(line, "index"), i); /* whatever order they ran in */
        assert_int_equal(json_require_integer(line, "prompt_tokens"), LENGTH + 1);
        cached += json_require_integer(line, "cached_tokens");
        json_decref(line);
    }
    assert_true(cached > (int64_t)COUNT * LENGTH * 8 / 10);
    program_free(&p);
    text_free(&input);
}

/* The answer to a line does not depend on what runs beside it: the seed follows from the place in the input. */
static void test_seeds(void **state)
{
    const struct fixture *f = *state;
    struct program alone, beside;
    static const char first[] = "{\"prompt\": [9, 8], \"temperature\": 1}\n";
    char both[256];
    snprintf(both, sizeof both, "%s{\"prompt\": [2], \"temperature\": 1}\n", first);
    const char *const flags[] = {"--ordered", "--ignore-eos", "--seed", "5", NULL};
    generate_run(&alone, &f->chat, first, flags);
    generate_run(&beside, &f->chat, both, flags);
    json_t *a = generate_line(&alone.out, 0), *b = generate_line(&beside.out, 0);
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    program_free(&alone);
    program_free(&beside);
}

/* ---- --chat ---- */

static void prompt_tokens_of(const struct fixture *f, const char *input, const char *const *flags, int64_t *out,
                             int count)
{
    struct program p;
    generate_run(&p, &f->chat, input, flags);
    assert_int_equal(p.exit_status, 0);
    assert_null(strstr(p.err.data, "warning"));
    for (int i = 0; i < count; i++) {
        json_t *line = generate_line(&p.out, i);
        out[i] = json_require_integer(line, "prompt_tokens");
        json_decref(line);
    }
    program_free(&p);
}

static void test_chat(void **state)
{
    const struct fixture *f = *state;
    int64_t n[5], with_system[4], length = 0;
    prompt_tokens_of(f,
                     "What is a block?\n{\"prompt\": \"What is a block?\"}\n{\"prompt\": [1, 2]}\n"
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"What is a block?\"}]}\n"
                     "{\"custom_id\": \"a\", \"url\": \"/v1/chat/completions\", \"body\": {\"messages\": [{\"role\": "
                     "\"user\", \"content\": \"x\"}]}}\n",
                     (const char *[]){"--chat", "--ordered", "--max-tokens", "2", NULL}, n, 4);
    assert_true(n[0] == n[1] && n[0] == n[3]);
    assert_int_equal(n[2], 2);
    prompt_tokens_of(f,
                     "What is a block?\n{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": "
                     "\"user\", \"content\": \"What is a block?\"}]}\n",
                     (const char *[]){"--chat", "--system", "Be brief.", "--ordered", "--max-tokens", "2", NULL},
                     with_system, 2);
    assert_true(with_system[0] == with_system[1] && with_system[0] > n[0]);
    struct program p; /* and the answer is as long as that to a conversation */
    generate_run(&p, &f->chat, "x\n", (const char *[]){"--chat", "--ignore-eos", NULL});
    json_t *line = generate_line(&p.out, 0);
    length = json_require_integer(line, "prompt_tokens") + json_require_integer(line, "completion_tokens");
    assert_int_equal(length, 512);
    json_decref(line);
    program_free(&p);
}

static void expect_warning(const struct temp_folder *model, const char *input, const char *flag, bool expected)
{
    struct program p;
    generate_run(&p, model, input, (const char *[]){"--max-tokens", "2", flag, NULL});
    assert_int_equal(p.exit_status, 0);
    const char *found = strstr(p.err.data, "warning: the model is a chat model, but a prompt is plain text");
    if (expected != (found != NULL)) fail_msg("%s", p.err.data);
    if (found) assert_null(strstr(found + 1, "warning: the model is"));
    program_free(&p);
}

static void test_chat_warning(void **state)
{
    const struct fixture *f = *state;
    expect_warning(&f->chat, "one\ntwo\n{\"prompt\": \"three\"}\n", NULL, true);
    expect_warning(&f->chat, "one\n", "--no-chat", false);
    expect_warning(&f->chat, "{\"prompt\": [3]}\n", NULL, false);
    expect_warning(&f->plain, "one\n", NULL, false);
}

static void test_chat_refused(void **state)
{
    const struct fixture *f = *state;
    const struct {
        const struct temp_folder *model;
        const char *flags[4];
        int exit_status;
        const char *sentence;
    } cases[] = {{&f->plain, {"--chat"}, 1, "chat template"},
                 {&f->chat, {"--chat", "--skip-tokenizer-init"}, 1, "--chat needs a tokenizer"},
                 {&f->chat, {"--system", "x"}, 2, "--system goes with --chat"},
                 {&f->chat, {"--chat", "--system", "\xff"}, 2, "--system: byte 1 is not UTF-8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p;
        generate_run(&p, cases[i].model, "x\n", cases[i].flags);
        assert_int_equal(p.exit_status, cases[i].exit_status);
        assert_int_equal(p.out.length, 0);
        if (!strstr(p.err.data, cases[i].sentence)) fail_msg("%s", p.err.data);
        program_free(&p);
    }
}

/* ---- --dry-run ---- */

/* The number behind `label` at the beginning of a line. */
static int64_t counted(const struct text *out, const char *label)
{
    const char *at = out->data;
    while (at && strncmp(at, label, strlen(label)) != 0) at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    if (!at) fail_msg("no '%s' in: %s", label, out->data);
    return atoll(at + strlen(label));
}

static void test_dry_run(void **state)
{
    const struct fixture *f = *state;
    struct text input = {0};
    struct program p;
    char path[512];
    for (int i = 0; i < 10; i++) {
        assert_true(text_append_string(&input, "{\"max_tokens\": 3, \"n\": 2, \"temperature\": 1, \"prompt\": ["));
        for (int k = 0; k < 40; k++) assert_true(text_printf(&input, "%d,", 5 + k));
        assert_true(text_printf(&input, "%d]}\n", i));
    }
    assert_true(text_append_string(&input, "{\"prompt\": [3]}\n\n"));
    for (int i = 0; i < 25; i++) assert_true(text_printf(&input, "{\"id\": %d}\n", i / 2));
    assert_true(text_append_string(&input, "{\"prompt\": [1], \"priority\": 3}\n"));
    temp_folder_write_string(&f->files, "in", input.data);
    assert_true(path_join(path, sizeof path, f->files.path, "in"));
    generate_run(&p, &f->chat, NULL, (const char *[]){"--dry-run", "-i", path, "-o", path, NULL});
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(counted(&p.out, "prompts"), 11);
    assert_int_equal(counted(&p.out, "bad lines"), 26);
    assert_int_equal(counted(&p.out, "repeated ids"), 12);
    assert_non_null(strstr(p.out.data, "12 ids occur more than once"));
    assert_int_equal(counted(&p.out, "prompt tokens"), 411);
    assert_int_equal(counted(&p.out, "in earlier prompts, too"), 9 * 32);
    assert_int_equal(counted(&p.out, "answer tokens"), 10 * 2 * 3 + 16);
    assert_non_null(strstr(p.out.data, "at most 41 in one"));
    assert_non_null(strstr(p.out.data, "time at most"));
    assert_int_equal(generate_count_lines(&p.err), 21);
    assert_non_null(strstr(p.err.data, "line 13: one of prompt"));
    assert_non_null(strstr(p.err.data, "and 6 more bad lines"));
    program_free(&p);
    text_free(&input);
    /* Damaged weights cost the estimate only. */
    const char *const argv[] = {QUIRE_EXECUTABLE, "generate", "--model",   f->chat.path,
                                "--device",       "cpu",      "--dry-run", NULL};
    program_run(&p, argv, "{\"prompt\": [3]}\n");
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(counted(&p.out, "prompts"), 1);
    assert_null(strstr(p.out.data, "time"));
    assert_non_null(strstr(p.err.data, "no time is estimated: "));
    program_free(&p);
}

/* A set is given as many different ids as it keeps hashes of, and more. */
static void test_ids(void **state)
{
    (void)state;
    struct id_set ids = {0};
    json_t *text = json_string("1");
    id_set_add(&ids, NULL);
    assert_string_equal(id_set_sentence(&ids).text, "");
    for (size_t i = 0; i < ID_SET_MOST + 3; i++) {
        json_t *id = json_integer((json_int_t)i);
        id_set_add(&ids, id);
        for (int k = 0; k < 2 && i % 1000000 == 1; k++) id_set_add(&ids, id);
        json_decref(id);
        if (i == 7) id_set_add(&ids, text); /* "1" is not 1, which was there twice */
        if (i == 7) assert_string_equal(id_set_sentence(&ids).text, "1 id occurs more than once");
    }
    assert_int_equal(ids.num_repeated, 5);
    assert_int_equal(ids.count, ID_SET_MOST);
    assert_string_equal(id_set_sentence(&ids).text, "at least 5 ids occur more than once");
    json_decref(text);
    id_set_free(&ids);
}

static void test_distinct(void **state)
{
    (void)state;
    struct random random = {3};
    struct distinct *d = calloc(1, sizeof *d);
    assert_non_null(d);
    assert_true(distinct_count(d) < 0.5);
    for (int64_t n = 1; n <= 1000000; n++) {
        const uint64_t hash = random_bits(&random);
        distinct_add(d, hash);
        distinct_add(d, hash);
        if (n != 1 && n != 100 && n != 20000 && n != 60000 && n != 1000000) continue;
        const double error = distinct_count(d) / (double)n - 1;
        assert_true(error > -0.03 && error < 0.03);
    }
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window),  cmocka_unit_test(test_shared_beginnings), cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_chat),    cmocka_unit_test(test_chat_warning),      cmocka_unit_test(test_chat_refused),
        cmocka_unit_test(test_dry_run), cmocka_unit_test(test_distinct),          cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
