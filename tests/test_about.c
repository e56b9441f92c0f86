/* What quire says of itself: the help that fits a screen, the version, the manual page, completions, and warnings of
 * the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/commands.h"
#include "runtime/options/flag_lines.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

static void quire(struct program *p, const char *first, const char *second, const char *third)
{
    program_run(p, (const char *[]){QUIRE_EXECUTABLE, first, second, third, NULL}, NULL);
    if (p->exit_status != EXIT_STATUS_OK) fail_msg("exit status %d: %s", p->exit_status, p->err.data);
}

static void check_size(const struct text *text, int most_lines, size_t most_columns)
{
    int lines = 0;
    for (const char *at = text->data; *at; lines++) {
        const size_t length = strcspn(at, "\n");
        if (length > most_columns) fail_msg("%zu columns: %.*s", length, (int)length, at);
        at += length + (at[length] == '\n');
    }
    if (lines > most_lines) fail_msg("%d lines:\n%s", lines, text->data);
}

static void test_help_fits_a_screen(void **state)
{
    (void)state;
    struct program p;
    quire(&p, "--help", NULL, NULL);
    check_size(&p.out, 24, 80);
    for (int i = 0; i < COMMAND_COUNT; i++) assert_non_null(strstr(p.out.data, command_list[i]->name));
    program_free(&p);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const struct command *const *part = command_list[i]->parts;
        quire(&p, command_list[i]->name, part ? (*part)->name : "--help", part ? "--help" : NULL);
        check_size(&p.out, 45, 100);
        program_free(&p);
    }
}

static void test_version(void **state)
{
    (void)state;
    struct program p;
    quire(&p, "--version", NULL, NULL);
    assert_int_equal(strncmp(p.out.data, "quire " QUIRE_VERSION, strlen("quire " QUIRE_VERSION)), 0);
    static const char *const words[] = {
        "CPU kernels for scalar", " is used",        "CUDA kernels", "built with ", "jansson 2",
        "libpcre2-8 10",          "sentencepiece 0", "simdjson "};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strstr(p.out.data, words[i])) fail_msg("no %s in: %s", words[i], p.out.data);
    program_free(&p);
}

/* Every command and every flag stands in the manual page and in each completion. */
static void test_manual_and_completions(void **state)
{
    (void)state;
    static const char *const texts[] = {"bash", "zsh", "fish", NULL /* the manual */};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct program p;
        struct text tables = {0};
        struct flag_line line;
        quire(&p, texts[i] ? "--print-completion" : "--print-man", texts[i], NULL);
        assert_true(command_append_flags(&tables));
        for (char *at = tables.data; flag_line_next(&at, &line);) {
            if (strcmp(line.kind, "flag") != 0) continue;
            char name[128] = "";
            for (const char *c = line.name; *c; c++)
                snprintf(name + strlen(name), sizeof name - strlen(name), texts[i] || *c != '-' ? "%c" : "\\-", *c);
            if (!strstr(p.out.data, name)) fail_msg("%s: no %s", texts[i] ? texts[i] : "man", name);
        }
        text_free(&tables);
        program_free(&p);
    }
}

/* Runs a script of a shell after the shell has read its completion; skips where there is no such shell. */
static void complete(const char *shell, const char *script, const char *expected)
{
    struct program p;
    char command[2048];
    snprintf(command, sizeof command, "command -v %s >/dev/null || exit 3; %s", shell, script);
    program_run(&p, (const char *[]){"/bin/sh", "-c", command, NULL}, NULL);
    if (p.exit_status != 3 && (p.exit_status != 0 || strcmp(p.out.data, expected) != 0))
        fail_msg("%s: %s%s", script, p.out.data, p.err.data);
    program_free(&p);
}

#define IN_BASH(words)                                                                                                 \
    "bash -c 'source <(" QUIRE_EXECUTABLE " --print-completion bash); COMP_WORDS=(" words                              \
    "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _quire; echo ${COMPREPLY[@]}'"
/* fish writes into its home folder. */
#define IN_FISH(words)                                                                                                 \
    "home=$(mktemp -d); HOME=$home XDG_CONFIG_HOME=$home XDG_DATA_HOME=$home fish --no-config -c '" QUIRE_EXECUTABLE   \
    " --print-completion fish | source; complete -C \"" words "\"' 2>/dev/null | cut -f 1 | tr '\\n' ' '; rm -r $home"

static void test_shells(void **state)
{
    (void)state;
    complete("bash", IN_BASH("quire ch"), "chat\n");
    complete("bash", IN_BASH("quire chat --dev"), "--device\n");
    complete("bash", IN_BASH("quire chat --device \"\""), "auto cpu cuda\n");
    complete("bash", IN_BASH("quire chat -p \"\""), "\n");
    complete("bash", IN_BASH("quire bench lat"), "latency\n");
    complete("bash", IN_BASH("quire bench cache --prefix"), "--prefix-len\n");
    complete("bash", IN_BASH("quire bench latency --prefix"), "\n");
    complete("bash", IN_BASH("quire generate -i " QUIRE_GUIDE "/conf"), QUIRE_GUIDE "/config.json\n");
    complete("zsh",
             QUIRE_EXECUTABLE " --print-completion zsh >/dev/null && " QUIRE_EXECUTABLE
                              " --print-completion zsh | zsh -n /dev/stdin",
             "");
    complete("fish", IN_FISH("quire ch"), "chat ");
    complete("fish", IN_FISH("quire chat --device "), "auto cpu cuda ");
    complete("fish", IN_FISH("quire bench cache --prefix"), "--prefix-len ");
}

static void test_unknown_variables(void **state)
{
    (void)state;
    struct program p;
    setenv("QUIRE_MAX_MODEL_LENGTH", "5", 1);
    setenv("QUIRE_BEAM_WIDTH", "2", 1); /* another command's */
    setenv("QUIRE_TEST_SOMETHING", "2", 1);
    quire(&p, "tokenize", "x", NULL);
    assert_string_equal(p.err.data, "warning: QUIRE_MAX_MODEL_LENGTH in the environment is ignored: no command has a "
                                    "flag --max-model-length\n");
    program_free(&p);
    quire(&p, "--version", NULL, NULL);
    assert_int_equal(p.err.length, 0);
    program_free(&p);
    unsetenv("QUIRE_MAX_MODEL_LENGTH");
    unsetenv("QUIRE_BEAM_WIDTH");
    unsetenv("QUIRE_TEST_SOMETHING");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help_fits_a_screen),     cmocka_unit_test(test_version),
        cmocka_unit_test(test_manual_and_completions), cmocka_unit_test(test_shells),
        cmocka_unit_test(test_unknown_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
