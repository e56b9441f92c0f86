#include "tests/support/serve_program.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <fcntl.h>

enum { MAX_ARGS = 40 };

static bool read_some(struct serve_program *s)
{
    char bytes[4096];
    const ssize_t count = read(s->err, bytes, sizeof bytes);
    return count > 0 && text_append(&s->said, bytes, (size_t)count);
}

/* "quire serve: NAME on DEVICE, at URL". */
static void wait_until_ready(struct serve_program *s)
{
    const char *line = NULL;
    while (!line || !strchr(line, '\n')) {
        if (!read_some(s)) fail_msg("quire serve has ended: %s", s->said.length ? s->said.data : "");
        line = strstr(s->said.data, "quire serve: ");
    }
    const char *at = strstr(line, ", at ");
    if (!at || sscanf(at, ", at %255s", s->url) != 1) fail_msg("no address: %s", s->said.data);
}

void serve_program_start(struct serve_program *s, const char *const *flags)
{
    const char *argv[MAX_ARGS] = {QUIRE_EXECUTABLE,   "serve", "--model",        QUIRE_GUIDE, "--port",    "0",
                                  "--kv-cache-space", "0.1",   "--max-num-seqs", "16",        "--threads", "1"};
    int err[2], argc = 12;
    *s = (struct serve_program){0};
    while (*flags && argc < MAX_ARGS - 1) argv[argc++] = *flags++;
    assert_null(*flags);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing behind */
        dup2(open("/dev/null", O_RDWR), STDIN_FILENO);
        dup2(STDIN_FILENO, STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(err[1]);
    s->err = err[0];
    wait_until_ready(s);
}

int serve_program_wait(struct serve_program *s)
{
    int status;
    while (read_some(s)) continue;
    close(s->err);
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void serve_program_stop(struct serve_program *s)
{
    kill(s->pid, SIGTERM);
    const int status = serve_program_wait(s);
    if (status != 0) fail_msg("exit status %d: %s", status, s->said.data);
    serve_program_free(s);
}

void serve_program_free(struct serve_program *s)
{
    text_free(&s->said);
}

void serve_program_get(const struct serve_program *s, const char *path, const char *headers, const char *body,
                       struct http_reply *out)
{
    struct http_client c;
    http_client_open(&c, s->url);
    http_client_ask(&c, body ? "POST" : "GET", path, headers, body, out);
    http_client_close(&c);
}

json_t *serve_program_ask(const struct serve_program *s, const char *path, const char *body, int status)
{
    struct http_reply r;
    json_error_t why;
    serve_program_get(s, path, "", body, &r);
    if (r.status != status) fail_msg("%s: status %d: %s", path, r.status, r.body.length ? r.body.data : "");
    json_t *json = json_loadb(r.body.data, r.body.length, 0, &why);
    if (!json_is_object(json)) fail_msg("%s: %s: %s", path, why.text, r.body.data);
    http_reply_free(&r);
    return json;
}

double serve_program_metric(const struct serve_program *s, const char *name)
{
    struct http_reply r;
    serve_program_get(s, "/metrics", "", NULL, &r);
    assert_int_equal(r.status, 200);
    const char *line = r.body.data;
    while (line && strncmp(line, name, strlen(name)) != 0) line = (line = strchr(line, '\n')) ? line + 1 : NULL;
    if (!line) fail_msg("no metric %s in: %s", name, r.body.data);
    const double value = strtod(line + strcspn(line, " ") + 1, NULL);
    http_reply_free(&r);
    return value;
}
