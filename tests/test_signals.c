/* Signals that ask a command to end: it writes what is finished, and a shell sees a process that the signal ended. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/support/program.h"
#include "tests/support/pty.h"
#include "tests/support/toy_model.h"

enum { MAX_ARGS = 40, PIPE_BYTES = 4096 };

struct fixture {
    struct temp_folder model, files;
};

static int set_up(void **state)
{
    static struct fixture f;
    toy_model_make(&f.model, QUIRE_GUIDE, true);
    temp_folder_make(&f.files);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    temp_folder_remove(&f->files);
    temp_folder_remove(&f->model);
    return 0;
}

static void make_argv(const char **argv, const struct fixture *f, const char *const *more)
{
    const char *const last[] = {"--model", f->model.path,      "--load-format", "dummy", "--device",
                                "cpu",     "--kv-cache-space", "0.1",           NULL};
    int argc = 0;
    argv[argc++] = QUIRE_EXECUTABLE;
    while (argc < MAX_ARGS - 10 && *more) argv[argc++] = *more++;
    for (int i = 0; last[i] && strcmp(argv[1], "merge") != 0; i++) argv[argc++] = last[i];
    argv[argc] = NULL;
}

/* A command whose standard output is a small pipe, so that it waits until somebody reads. */
struct running {
    pid_t pid;
    int out, err;
    struct text said; /* on standard error */
};

static void start(struct running *r, const struct fixture *f, const char *const *more)
{
    const char *argv[MAX_ARGS + 1];
    int out[2], err[2];
    *r = (struct running){0};
    make_argv(argv, f, more);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    assert_int_equal(fcntl(out[1], F_SETPIPE_SZ, PIPE_BYTES), PIPE_BYTES);
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid == 0) {
        dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    r->out = out[0];
    r->err = err[0];
}

static void read_to_end(int fd, struct text *out)
{
    char bytes[4096];
    ssize_t count;
    while ((count = read(fd, bytes, sizeof bytes)) > 0) assert_true(text_append(out, bytes, (size_t)count));
    assert_true(text_append(out, "", 0));
    close(fd);
}

/* Waits until the pipe has no room for another line. */
static void wait_until_blocked(const struct running *r)
{
    enum { LINE_BYTES = 256 };
    int held = 0;
    for (int i = 0; i < 6000 && held < PIPE_BYTES - LINE_BYTES; i++) {
        assert_int_equal(ioctl(r->out, FIONREAD, &held), 0);
        usleep(10000);
    }
    assert_true(held >= PIPE_BYTES - LINE_BYTES);
}

static void expect_killed(struct running *r, int signal_number)
{
    int status;
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != signal_number)
        fail_msg("status %x: %s", (unsigned)status, r->said.data);
    text_free(&r->said);
}

/* ---- generate ---- */

static const char *write_prompts(const struct fixture *f, char *path)
{
    struct text lines = {0};
    for (int i = 0; i < 400; i++) assert_true(text_append_string(&lines, "{\"prompt\": [5, 6], \"max_tokens\": 3}\n"));
    temp_folder_write_string(&f->files, "in.jsonl", lines.data);
    assert_true(path_join(path, 512, f->files.path, "in.jsonl"));
    text_free(&lines);
    return path;
}

/* timeout(1) sends its signal to the process and to its group: the second does not take away what the first allows. */
static void test_signal_that_comes_twice(void **state)
{
    static const int numbers[] = {SIGTERM, SIGHUP};
    char in[512];
    for (int i = 0; i < 2; i++) {
        struct running r;
        struct text out = {0};
        start(&r, *state, (const char *[]){"generate", "-i", write_prompts(*state, in), NULL});
        wait_until_blocked(&r);
        for (int n = 0; n < 5; n++, usleep(1000)) assert_int_equal(kill(r.pid, numbers[i]), 0);
        read_to_end(r.out, &out);
        read_to_end(r.err, &r.said);
        assert_non_null(strstr(r.said.data, "quire generate: interrupted; "));
        assert_true(out.data[out.length - 1] == '\n');
        expect_killed(&r, numbers[i]);
        text_free(&out);
    }
}

/* It waits for a reader who never comes; a signal that comes while another is pending is lost, so they go on. */
static void test_second_interrupt_ends_at_once(void **state)
{
    char in[512];
    struct running r;
    int status = 0;
    start(&r, *state, (const char *[]){"generate", "-i", write_prompts(*state, in), NULL});
    wait_until_blocked(&r);
    while (waitpid(r.pid, &status, WNOHANG) == 0) {
        assert_int_equal(kill(r.pid, SIGINT), 0);
        usleep(1000);
    }
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    close(r.out);
    close(r.err);
}

/* The bar is there before the first step ends, and Ctrl-C ends the step: nothing of it is in the output. */
static void test_long_prompt_on_terminal(void **state)
{
    const struct fixture *f = *state;
    char in[512], out[512];
    const char *argv[MAX_ARGS + 1];
    struct text lines = {0}, written = {0};
    struct error err;
    struct pty p;
    for (int i = 0; i < 2; i++) {
        assert_true(text_append_string(&lines, "{\"prompt\": [1"));
        for (int k = 1; k < 50000; k++) assert_true(text_printf(&lines, ", %d", (k * 7 + i) % 500));
        assert_true(text_append_string(&lines, "]}\n"));
    }
    temp_folder_write_string(&f->files, "long.jsonl", lines.data);
    assert_true(path_join(in, sizeof in, f->files.path, "long.jsonl"));
    assert_true(path_join(out, sizeof out, f->files.path, "out"));
    make_argv(argv, f, (const char *[]){"generate", "-i", in, "-o", out, "--max-model-len", "60000", NULL});
    pty_start(&p, argv);
    pty_expect(&p, "0/2  reading 0 %");
    pty_type(&p, "\x03");
    pty_expect(&p, "quire generate: interrupted; ");
    assert_int_equal(pty_finish(&p), 128 + SIGINT);
    assert_int_equal(file_read(out, &written, &err), STATUS_OK);
    assert_int_equal(written.length, 0);
    text_free(&lines);
    text_free(&written);
}

/* ---- other commands ---- */

/* Sends the signal once the command waits for its reader, and reads the rest. */
static void interrupt(const struct fixture *f, const char *const *more, const char *said, struct text *out)
{
    struct running r;
    start(&r, f, more);
    wait_until_blocked(&r);
    assert_int_equal(kill(r.pid, SIGINT), 0);
    read_to_end(r.out, out);
    read_to_end(r.err, &r.said);
    if (!strstr(r.said.data, said)) fail_msg("no '%s' in: %s", said, r.said.data);
    expect_killed(&r, SIGINT);
}

/* An answer that is cut ends with a newline, as one that is finished. */
static void test_chat(void **state)
{
    struct text out = {0};
    interrupt(
        *state,
        (const char *[]){"chat", "--ignore-eos", "--max-model-len", "60000", "--max-num-seqs", "1", "go on", NULL}, "",
        &out);
    assert_int_equal(out.data[out.length - 1], '\n');
    text_free(&out);
}

/* The rows of the steps that were computed are whole. */
static void test_profile(void **state)
{
    const struct fixture *f = *state;
    char in[512];
    struct text out = {0};
    temp_folder_write_string(&f->files, "profile.jsonl", "{\"prompt\": [5], \"max_tokens\": 50000}\n");
    assert_true(path_join(in, sizeof in, f->files.path, "profile.jsonl"));
    interrupt(f, (const char *[]){"profile", "--steps", "-i", in, "--ignore-eos", "--max-model-len", "60000", NULL},
              "quire profile: interrupted; 0 of 1 prompts were answered", &out);
    assert_int_equal(out.data[out.length - 1], '\n');
    text_free(&out);
}

/* Whole lines of the output, and a sentence. */
static void test_merge(void **state)
{
    const struct fixture *f = *state;
    enum { LINES = 50000 };
    char in[512];
    struct text lines = {0};
    for (int i = 0; i < LINES; i++) assert_true(text_printf(&lines, "{\"index\": %d, \"text\": \"%060d\"}\n", i, i));
    temp_folder_write_string(&f->files, "merge.jsonl", lines.data);
    assert_true(path_join(in, sizeof in, f->files.path, "merge.jsonl"));
    for (int unordered = 0; unordered < 2; unordered++) {
        struct text out = {0};
        interrupt(f, (const char *[]){"merge", in, unordered ? "--unordered" : NULL, NULL},
                  "quire merge: interrupted; standard output has a part of the answers\n", &out);
        assert_true(out.length < lines.length);
        assert_memory_equal(out.data, lines.data, out.length);
        assert_int_equal(out.data[out.length - 1], '\n');
        text_free(&out);
    }
    text_free(&lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signal_that_comes_twice),
        cmocka_unit_test(test_second_interrupt_ends_at_once),
        cmocka_unit_test(test_long_prompt_on_terminal),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_merge),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
