/* quire chat with a toy model, for the tests of it: on a pseudo-terminal, through a pipe, and through the shell. */
#ifndef QUIRE_TESTS_SUPPORT_CHAT_PROGRAM_H
#define QUIRE_TESTS_SUPPORT_CHAT_PROGRAM_H

#include "tests/support/program.h"
#include "tests/support/pty.h"
#include "tests/support/toy_model.h"

struct chat_fixture {
    struct temp_folder model, plain, state; /* a chat model, one without a template, and XDG_STATE_HOME */
};
/* The set-up and tear-down of a group of tests: *state is a struct chat_fixture. */
int chat_set_up(void **state);
int chat_tear_down(void **state);

#define CHAT_MAX_ARGS 32

/* Writes quire chat --model FOLDER --load-format dummy ..., and `more`, which ends with NULL, to
 * argv[CHAT_MAX_ARGS + 1]. Answers go on until a limit ends them. */
void chat_make_argv(const char **argv, const char *model, const char *const *more);

/* Starts quire chat on a terminal. */
void chat_start(struct pty *p, const struct chat_fixture *f, const char *const *more);
/* Runs quire chat with `input` on a pipe. */
void chat_run(struct program *p, const char *model, const char *input, const char *const *more);
/* Runs quire chat through the shell: `words` are flags and redirections. */
void chat_run_shell(struct program *p, const char *model, const char *words);

size_t chat_count_lines(const struct text *t);

#endif
