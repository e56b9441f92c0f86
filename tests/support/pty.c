#include "tests/support/pty.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static const double PATIENCE_SECONDS = 60;

void pty_start(struct pty *p, const char *const *argv)
{
    struct winsize size = {.ws_row = 40, .ws_col = 200};
    *p = (struct pty){0};
    p->pid = forkpty(&p->fd, NULL, NULL, &size);
    if (p->pid == 0) {
        setenv("TERM", "xterm", 1);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    assert_true(p->pid > 0);
    assert_true(text_reserve(&p->screen, 4096));
}

void pty_type(struct pty *p, const char *keys)
{
    size_t length = strlen(keys);
    assert_int_equal(write(p->fd, keys, length), (ssize_t)length);
}

/* More of the screen; false when the program has closed the terminal or nothing came in time. */
static bool read_more(struct pty *p, double until)
{
    char bytes[4096];
    double left = until - clock_seconds();
    struct pollfd poller = {.fd = p->fd, .events = POLLIN};
    if (left <= 0 || poll(&poller, 1, (int)(left * 1000) + 1) <= 0) return false;
    ssize_t count = read(p->fd, bytes, sizeof bytes);
    if (count <= 0) return false;
    assert_true(text_append(&p->screen, bytes, (size_t)count));
    return true;
}

void pty_expect(struct pty *p, const char *text)
{
    double until = clock_seconds() + PATIENCE_SECONDS;
    for (;;) {
        const char *rest = p->screen.data + p->seen;
        const char *found = memmem(rest, p->screen.length - p->seen, text, strlen(text));
        if (found) {
            p->seen = (size_t)(found - p->screen.data) + strlen(text);
            return;
        }
        if (read_more(p, until)) continue;
        kill(p->pid, SIGKILL);
        fail_msg("'%s' did not appear; the screen:\n%s", text, p->screen.data);
    }
}

int pty_finish(struct pty *p)
{
    double until = clock_seconds() + PATIENCE_SECONDS;
    while (read_more(p, until)) continue;
    if (clock_seconds() >= until) kill(p->pid, SIGKILL);
    int status = 0;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    close(p->fd);
    text_free(&p->screen);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
