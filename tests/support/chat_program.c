#include "tests/support/chat_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <unistd.h>

int chat_set_up(void **state)
{
    static struct chat_fixture fixture;
    toy_model_make(&fixture.model, QUIRE_GUIDE, true);
    toy_model_make(&fixture.plain, QUIRE_GUIDE, false);
    temp_folder_make(&fixture.state);
    setenv("XDG_STATE_HOME", fixture.state.path, 1);
    *state = &fixture;
    return 0;
}

int chat_tear_down(void **state)
{
    struct chat_fixture *f = *state;
    char path[512];
    snprintf(path, sizeof path, "%s/quire/history", f->state.path);
    unlink(path);
    snprintf(path, sizeof path, "%s/quire", f->state.path);
    rmdir(path);
    temp_folder_remove(&f->state);
    temp_folder_remove(&f->plain);
    temp_folder_remove(&f->model);
    return 0;
}

void chat_make_argv(const char **argv, const char *model, const char *const *more)
{
    const char *const first[] = {QUIRE_EXECUTABLE, "chat", "--model",        model, "--load-format",    "dummy",
                                 "--device",       "cpu",  "--max-num-seqs", "4",   "--kv-cache-space", "0.1",
                                 "--ignore-eos"};
    int argc = 0;
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) argv[argc++] = first[i];
    while (argc < CHAT_MAX_ARGS && *more) argv[argc++] = *more++;
    argv[argc] = NULL;
}

void chat_start(struct pty *p, const struct chat_fixture *f, const char *const *more)
{
    const char *argv[CHAT_MAX_ARGS + 1];
    chat_make_argv(argv, f->model.path, more);
    pty_start(p, argv);
}

void chat_run(struct program *p, const char *model, const char *input, const char *const *more)
{
    const char *argv[CHAT_MAX_ARGS + 1];
    chat_make_argv(argv, model, more);
    program_run(p, argv, input);
}

void chat_run_shell(struct program *p, const char *model, const char *words)
{
    const char *argv[CHAT_MAX_ARGS + 1];
    struct text command = {0};
    chat_make_argv(argv, model, (const char *[]){words, NULL});
    assert_true(text_append_string(&command, "exec"));
    for (int i = 0; argv[i]; i++) assert_true(text_printf(&command, " %s", argv[i]));
    program_run(p, (const char *[]){"/bin/sh", "-c", command.data, NULL}, NULL);
    text_free(&command);
}

size_t chat_count_lines(const struct text *t)
{
    size_t lines = 0;
    for (size_t i = 0; i < t->length; i++) lines += t->data[i] == '\n';
    return lines;
}
