/* A file that is cut short while it is mapped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "runtime/bus_error.h"
#include "tests/support/temp_folder.h"

/* Runs in a child process: cuts the file, and reads the page that is gone. */
static void touch_what_is_gone(const char *path, int err_fd)
{
    struct mapped_file file;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    dup2(err_fd, STDERR_FILENO);
    bus_error_catch();
    if (mapped_file_open(path, &file, NULL) != STATUS_OK || truncate(path, 100) != 0) _exit(7);
    const volatile uint8_t *data = file.data;
    _exit(data[file.size - 1] ? 8 : 9); /* not reached */
}

static int run_child(const char *path, char *said, size_t size)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) touch_what_is_gone(path, ends[1]);
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(ends[0], said + length, size - 1 - length)) > 0;) length += (size_t)got;
    said[length] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_the_sentence_names_the_file(void **state)
{
    (void)state;
    struct temp_folder folder;
    char path[512], said[1024], expected[1024];
    char *bytes = calloc(1, 20000);
    assert_non_null(bytes);
    temp_folder_make(&folder);
    temp_folder_write(&folder, "a file\x1b[2J", bytes, 20000);
    assert_true(path_join(path, sizeof path, folder.path, "a file\x1b[2J"));
    assert_int_equal(run_child(path, said, sizeof said), 1);
    snprintf(expected, sizeof expected,
             "\nquire: %s/a file?[2J: the file was cut short while it was in use; start again, once it is complete\n",
             folder.path);
    assert_string_equal(said, expected);
    free(bytes);
    temp_folder_remove(&folder);
}

static void kill_self(void)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    bus_error_catch();
    raise(SIGBUS);
    raise(SIGBUS); /* the first one put the default back */
    _exit(0);
}

static void test_any_other_kills(void **state)
{
    (void)state;
    int status;
    const pid_t child = fork();
    if (child == 0) kill_self();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_sentence_names_the_file),
        cmocka_unit_test(test_any_other_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
