#include "runtime/generate/input_facts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/plural.h"
#include "runtime/prompts.h"

/* The files of a list, opened; an empty list is standard input, which stays where it is. */
static int open_input(const struct input_list *list, size_t i)
{
    if (list->count == 0 || strcmp(list->names[i], "-") == 0) return fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    return open(list->names[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe without a writer would block */
}

bool input_facts_are_files(const struct input_list *list)
{
    const size_t count = list->count ? list->count : 1;
    struct stat info;
    for (size_t i = 0; i < count; i++) {
        const bool standard = list->count == 0 || strcmp(list->names[i], "-") == 0;
        if ((standard ? fstat(STDIN_FILENO, &info) : stat(list->names[i], &info)) != 0 || !S_ISREG(info.st_mode))
            return false;
    }
    return true;
}

enum status input_facts_hash(const struct input_list *list, struct fingerprint *out, struct error *err)
{
    const size_t count = list->count ? list->count : 1;
    int *fds = malloc(count * sizeof *fds);
    if (!fds) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for %zu name%s", count, plural((int64_t)count));
    for (size_t i = 0; i < count; i++) fds[i] = open_input(list, i);
    const enum status status = fingerprint_files(fds, (int)count, out, err);
    for (size_t i = 0; i < count; i++)
        if (fds[i] >= 0) close(fds[i]);
    free(fds);
    return status == STATUS_OK ? status : error_prefix(err, status, "the input");
}

enum status input_facts_count(const struct input_list *list, int64_t *count, struct error *err)
{
    struct inputs inputs;
    const off_t start = lseek(STDIN_FILENO, 0, SEEK_CUR);
    const char *line;
    size_t length;
    enum line_result kind;
    const enum status status = inputs_open(&inputs, list, err);
    if (status != STATUS_OK) return status;
    for (*count = 0; (kind = inputs_next(&inputs, true, &line, &length, err)) < LINE_END;)
        if (kind == LINE_TOO_LONG || (kind == LINE_READY && !prompt_line_is_blank(line, length))) ++*count;
    if (kind == LINE_FAILED) ++*count;
    inputs_close(&inputs);
    if (start >= 0) lseek(STDIN_FILENO, start, SEEK_SET);
    return STATUS_OK;
}
