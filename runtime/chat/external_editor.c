#include "runtime/chat/external_editor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

static const char *editor_command(void)
{
    const char *visual = getenv("VISUAL"), *editor = getenv("EDITOR");
    if (visual && *visual) return visual;
    return editor && *editor ? editor : "vi";
}

/* Makes a file that holds the text; its name goes to path[size]. */
static enum status make_file(const struct text *text, char *path, size_t size, struct error *err)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, size, "%s/quire-XXXXXX.md", folder && *folder ? folder : "/tmp");
    const int fd = mkstemps(path, 3);
    if (fd < 0) return error_set(err, STATUS_IO, "cannot make a file for the editor, %s: %s", path, strerror(errno));
    FILE *file = fdopen(fd, "w");
    bool ok = file && (text->length == 0 || fwrite(text->data, 1, text->length, file) == text->length);
    ok = ok && (text->length == 0 || fputc('\n', file) != EOF);
    if (file)
        ok = fclose(file) == 0 && ok;
    else
        close(fd);
    if (ok) return STATUS_OK;
    unlink(path);
    return error_set(err, STATUS_IO, "cannot write %s: %s", path, strerror(errno));
}

static void run_child(const char *command, const char *path)
{
    /* The command may have arguments of its own, as in EDITOR="code --wait". */
    char script[4096];
    signal(SIGINT, SIG_DFL);
    if (snprintf(script, sizeof script, "%s \"$1\"", command) < (int)sizeof script)
        execl("/bin/sh", "sh", "-c", script, "sh", path, (char *)NULL);
    _exit(127);
}

static enum status run_editor(const char *path, struct error *err)
{
    const char *command = editor_command();
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGINT, &ignore, &before);
    const pid_t child = fork();
    if (child == 0) run_child(command, path);
    int ended = 0;
    pid_t waited = child;
    while (child > 0 && (waited = waitpid(child, &ended, 0)) < 0 && errno == EINTR) continue;
    sigaction(SIGINT, &before, NULL);
    if (child < 0 || waited < 0)
        return error_set(err, STATUS_IO, "cannot start the editor '%s': %s", command, strerror(errno));
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 127)
        return error_set(err, STATUS_INVALID, "there is no editor '%s'; set EDITOR or VISUAL to the one to use",
                         command);
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "the editor '%s' failed, so nothing is asked", command);
}

enum status external_editor_run(struct text *text, struct error *err)
{
    char path[4096];
    struct text saved = {0};
    enum status status = make_file(text, path, sizeof path, err);
    if (status != STATUS_OK) return status;
    status = run_editor(path, err);
    if (status == STATUS_OK) status = file_read(path, &saved, err);
    unlink(path);
    if (status != STATUS_OK) {
        text_free(&saved);
        return status;
    }
    while (saved.length > 0 && strchr("\r\n", saved.data[saved.length - 1])) saved.data[--saved.length] = '\0';
    text_free(text);
    *text = saved;
    return STATUS_OK;
}
