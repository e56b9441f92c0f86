/* The executable from outside: usage, help, exit statuses, and nothing on stdout but what was asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "runtime/commands.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

/* A command, and the word that bench wants after it. */
static const char *const COMMANDS[][2] = {{"chat"}, {"generate"}, {"profile"}, {"inspect"}, {"bench", "latency"}};
enum { NUM_COMMANDS = 5, MAX_ARGS = 8 };

static void run(struct program *p, const char *const *args)
{
    const char *argv[MAX_ARGS + 2] = {QUIRE_EXECUTABLE};
    for (int i = 0; i < MAX_ARGS && args[i]; i++) argv[i + 1] = args[i];
    program_run(p, argv, NULL);
}

/* The arguments of COMMANDS[command], in argv: its words, then args. */
static const char *const *with_command(int command, const char *const *args, const char **argv)
{
    int argc = 0;
    argv[argc++] = COMMANDS[command][0];
    if (COMMANDS[command][1]) argv[argc++] = COMMANDS[command][1];
    while (argc < MAX_ARGS && *args) argv[argc++] = *args++;
    argv[argc] = NULL;
    return argv;
}

static const char *text_of(const struct text *t)
{
    return t->data ? t->data : "";
}

/* Exit status 2, the sentence on stderr, nothing on stdout. */
static void check_usage_error(const char *const *args, const char *sentence)
{
    struct program p;
    run(&p, args);
    assert_int_equal(p.exit_status, EXIT_STATUS_USAGE);
    assert_int_equal(p.out.length, 0);
    if (!strstr(text_of(&p.err), sentence)) fail_msg("no '%s' in: %s", sentence, text_of(&p.err));
    program_free(&p);
}

static void check_help(const char *const *args, const char *begins, const char *contains)
{
    struct program p;
    run(&p, args);
    assert_int_equal(p.exit_status, EXIT_STATUS_OK);
    assert_int_equal(p.err.length, 0);
    assert_int_equal(strncmp(text_of(&p.out), begins, strlen(begins)), 0);
    if (!strstr(text_of(&p.out), contains)) fail_msg("no '%s' in: %s", contains, text_of(&p.out));
    program_free(&p);
}

static void test_usage(void **state)
{
    (void)state;
    check_usage_error((const char *[]){NULL}, "usage: quire COMMAND [flags]");
    check_usage_error((const char *[]){"chatt", NULL}, "there is no command 'chatt'");
    check_usage_error((const char *[]){"--chat", NULL}, "there is no command '--chat'");
    check_usage_error((const char *[]){"pull", NULL}, "there is no command 'pull': quire downloads nothing");
}

static void test_help(void **state)
{
    (void)state;
    check_help((const char *[]){"--help", NULL}, "usage: quire COMMAND [flags]", "generate");
    check_help((const char *[]){"-h", NULL}, "usage: quire COMMAND [flags]", "chat");
#ifdef QUIRE_HAVE_CUDA
    check_help((const char *[]){"--version", NULL}, "quire " QUIRE_VERSION ", ", "cuda:0: ");
#else
    check_help((const char *[]){"--version", NULL}, "quire " QUIRE_VERSION ", ", "built for the CPU alone\n");
#endif
    for (int i = 0; i < NUM_COMMANDS; i++) {
        const char *argv[MAX_ARGS + 1];
        char begins[64];
        snprintf(begins, sizeof begins, "usage: quire %s", COMMANDS[i][0]);
        check_help(with_command(i, (const char *[]){"--help", NULL}, argv), begins, "--model PATH");
        check_help(with_command(i, (const char *[]){"-h", "--nonsense", NULL}, argv), begins, "--kv-cache-space GIB");
    }
    check_help((const char *[]){"generate", "--help-all", NULL}, "usage", "Default: 16.");
    check_help((const char *[]){"chat", "--help", NULL}, "usage", "--system TEXT");
}

/* The flags that every command has; test_errors has the others. */
static void test_bad_flags(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_COMMANDS; i++) {
        const char *argv[MAX_ARGS + 1];
        check_usage_error(with_command(i, (const char *[]){"--max-model-length", "5", NULL}, argv),
                          "there is no flag --max-model-length; did you mean --max-model-len?");
        check_usage_error(with_command(i, (const char *[]){"--block-size", "17", NULL}, argv),
                          "--block-size: expected 8|16|32|64|128, got '17'");
        check_usage_error(with_command(i, (const char *[]){"--device", NULL}, argv), "--device needs a value");
    }
}

static void test_failures(void **state)
{
    (void)state;
    static const char *const commands[] = {"chat", "generate"};
    for (int i = 0; i < 2; i++) {
        struct program p;
        run(&p, (const char *[]){commands[i], "--model", "/nowhere/at/all", NULL});
        assert_int_equal(p.exit_status, EXIT_STATUS_FAILURE);
        assert_int_equal(p.out.length, 0);
        assert_non_null(strstr(text_of(&p.err), "/nowhere/at/all"));
        assert_true(strchr(p.err.data, '\n') == p.err.data + p.err.length - 1); /* one sentence */
        program_free(&p);
    }
}

/* Without --device, a GPU is used if there is one, else the CPU. A build with CUDA kernels says why it does not use the
 * GPU of a machine that has one; on other machines there is nothing to say. */
static void test_automatic_device(void **state)
{
    (void)state;
    struct program p;
    struct backend *b;
    struct error err;
    const bool gpu = backend_open("cuda", 0, &b, &err) == STATUS_OK;
    if (gpu) b->destroy(b);
    run(&p, (const char *[]){"profile", "--model", QUIRE_GUIDE, "--max-num-seqs", "4", NULL});
    assert_int_equal(p.exit_status, EXIT_STATUS_OK);
    assert_non_null(strstr(text_of(&p.out), gpu ? "memory of cuda:0" : "memory of cpu"));
#ifdef QUIRE_HAVE_CUDA
    const bool driver = access("/proc/driver/nvidia/version", F_OK) == 0;
#else
    const bool driver = false;
#endif
    if (driver && !gpu)
        assert_non_null(strstr(text_of(&p.err), "no GPU is used: cuda:0"));
    else if (p.err.length > 0 && !strstr(p.err.data, "cuda:0: no NVIDIA driver"))
        fail_msg("%s", p.err.data);
    program_free(&p);
}

/* Runs quire with these words through the shell, which can close a standard file or redirect it to a full disk. */
static void check_shell(const char *words, const char *sentence)
{
    char command[1024];
    struct program p;
    snprintf(command, sizeof command, "%s %s", QUIRE_EXECUTABLE, words);
    program_run(&p, (const char *[]){"/bin/sh", "-c", command, NULL}, NULL);
    if (p.exit_status != EXIT_STATUS_FAILURE) fail_msg("%s: exit status %d", words, p.exit_status);
    assert_int_equal(p.out.length, 0);
    if (!strstr(text_of(&p.err), sentence)) fail_msg("%s: no '%s' in: %s", words, sentence, text_of(&p.err));
    assert_true(strchr(p.err.data, '\n') == p.err.data + p.err.length - 1);
    program_free(&p);
}

static void test_unwritable(void **state)
{
    (void)state;
    static const char *const commands[] = {"--version",
                                           "--help",
                                           "profile --device cpu --max-num-seqs 4",
                                           "profile --device cpu --max-num-seqs 4 --json",
                                           "inspect --device cpu",
                                           "inspect --device cpu --json"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char words[256];
        snprintf(words, sizeof words, "%s >/dev/full", commands[i]);
        check_shell(words, "No space left on device");
    }
    check_shell("--version >&-", "Bad file descriptor");
}

/* A file that quire opens must not become its standard input. */
static void test_closed_input(void **state)
{
    (void)state;
    static const char *const commands[] = {"chat", "generate --quiet"};
    for (int i = 0; i < 2; i++) {
        char words[256];
        snprintf(words, sizeof words, "%s --device cpu --max-num-seqs 4 <&-", commands[i]);
        check_shell(words, "cannot read: Bad file descriptor");
    }
}

/* A build folder may lie anywhere: the executable knows the source tree that it was built from. */
static void test_shipped_model_of_a_build_folder_elsewhere(void **state)
{
    (void)state;
    if (QUIRE_GUIDE[0] != '/') skip(); /* the tests were moved away from the source tree */
    struct temp_folder folder;
    struct program p;
    char executable[512];
    temp_folder_make(&folder);
    snprintf(executable, sizeof executable, "%s/quire", folder.path);
    program_run(&p, (const char *[]){"/bin/cp", QUIRE_EXECUTABLE, executable, NULL}, NULL);
    assert_int_equal(p.exit_status, 0);
    program_free(&p);
    program_run(&p, (const char *[]){executable, "profile", "--device", "cpu", "--max-num-seqs", "4", "--json", NULL},
                NULL);
    json_t *json = program_json(&p);
    assert_string_equal(json_string_value(json_object_get(json, "model")), QUIRE_GUIDE);
    json_decref(json);
    program_free(&p);
    temp_folder_remove(&folder);
}

/* Dynamic scaling is not computed as in transformers, and that is said once, where the model is loaded. */
static void test_dynamic_rope_warning(void **state)
{
    (void)state;
    static const char *const types[] = {"dynamic", "linear"};
    for (int i = 0; i < 2; i++) {
        struct temp_folder folder;
        struct program p;
        char config[512];
        snprintf(config, sizeof config,
                 "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":64,\"num_hidden_layers\":1,"
                 "\"num_attention_heads\":1,\"vocab_size\":320,\"rope_scaling\":{\"type\":\"%s\",\"factor\":2}}",
                 types[i]);
        temp_folder_make(&folder);
        temp_folder_write_string(&folder, "config.json", config);
        run(&p, (const char *[]){"profile", "--model", folder.path, "--load-format", "dummy", "--device", "cpu", NULL});
        assert_int_equal(p.exit_status, EXIT_STATUS_OK);
        const char *said = strstr(text_of(&p.err), "rope_type \"dynamic\": quire rotates with the base of the longest");
        assert_int_equal(said != NULL, i == 0);
        if (said) assert_null(strstr(said + 1, "rope_type"));
        program_free(&p);
        temp_folder_remove(&folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_bad_flags),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_closed_input),
        cmocka_unit_test(test_shipped_model_of_a_build_folder_elsewhere),
        cmocka_unit_test(test_automatic_device),
        cmocka_unit_test(test_dynamic_rope_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
