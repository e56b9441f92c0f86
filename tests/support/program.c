#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void read_all(FILE *file, struct text *out)
{
    char buffer[4096];
    size_t got;
    rewind(file);
    while ((got = fread(buffer, 1, sizeof buffer, file)) > 0) assert_true(text_append(out, buffer, got));
    assert_true(text_append(out, "", 0));
    fclose(file);
}

/* Files, not pipes: whatever the program writes, it never waits for the test. */
void program_run(struct program *p, const char *const *argv, const char *input)
{
    FILE *in = tmpfile(), *out = tmpfile(), *err = tmpfile();
    assert_true(in && out && err);
    if (input) fputs(input, in);
    rewind(in);
    *p = (struct program){0};
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(in), STDIN_FILENO);
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    p->exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    fclose(in);
    read_all(out, &p->out);
    read_all(err, &p->err);
    if (p->exit_status == 127) fail_msg("cannot run %s", argv[0]);
}

void program_free(struct program *p)
{
    text_free(&p->out);
    text_free(&p->err);
}

json_t *program_json(const struct program *p)
{
    json_error_t why;
    if (p->exit_status != 0) fail_msg("exit status %d: %s", p->exit_status, p->err.data);
    json_t *json = json_loadb(p->out.data, p->out.length, 0, &why);
    if (!json) fail_msg("not JSON: %s\n%s", why.text, p->out.data);
    return json;
}

int64_t json_require_integer(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("%s is missing or no integer", key);
    return json_integer_value(value);
}

double json_require_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("%s is missing or no number", key);
    return json_number_value(value);
}
