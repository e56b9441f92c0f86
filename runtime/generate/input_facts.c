#include "runtime/generate/input_facts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plural.h"
#include "runtime/prompts/prompt.h"

/* The file, opened; standard input stays where it is. */
static int open_input(const char *name)
{
    if (input_is_standard(name)) return fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    return open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe without a writer would block */
}

bool input_facts_are_files(const struct input_list *list)
{
    struct stat info;
    for (size_t i = 0; i < input_list_count(list); i++)
        if (!input_file_info(input_list_name(list, i), &info)) return false;
    return true;
}

/* ---- contents ---- */

struct contents {
    int *fds;
    uint64_t *sizes; /* [count], bytes of each */
    size_t count;
};

static void close_contents(struct contents *c)
{
    for (size_t i = 0; c->fds && i < c->count; i++)
        if (c->fds[i] >= 0) close(c->fds[i]);
    free(c->fds);
    free(c->sizes);
}

/* Close it also after a failure. */
static enum status open_contents(const struct input_list *list, struct contents *c, struct error *err)
{
    const size_t count = input_list_count(list);
    *c = (struct contents){malloc(count * sizeof *c->fds), malloc(count * sizeof *c->sizes), 0};
    if (!c->fds || !c->sizes)
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for %zu name%s", count, plural((int64_t)count));
    for (; c->count < count; c->count++) c->fds[c->count] = open_input(input_list_name(list, c->count));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < count && status == STATUS_OK; i++) status = fingerprint_size(c->fds[i], &c->sizes[i], err);
    return status == STATUS_OK ? status : error_prefix(err, status, "the input");
}

static enum status hash_contents(const struct contents *c, size_t count, struct fingerprint *out, struct error *err)
{
    const enum status status = fingerprint_files(c->fds, c->sizes, (int)count, out, err);
    return status == STATUS_OK ? status : error_prefix(err, status, "the input");
}

enum status input_facts_hash(const struct input_list *list, struct fingerprint *out, json_t **sizes, struct error *err)
{
    struct contents c;
    enum status status = open_contents(list, &c, err);
    if (status == STATUS_OK) status = hash_contents(&c, c.count, out, err);
    *sizes = status == STATUS_OK ? json_array() : NULL;
    bool ok = *sizes != NULL;
    for (size_t i = 0; i < c.count && ok; i++)
        ok = json_array_append_new(*sizes, json_integer((json_int_t)c.sizes[i])) == 0;
    close_contents(&c);
    if (ok || status != STATUS_OK) return status;
    json_decref(*sizes);
    *sizes = NULL;
    return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for %zu sizes", c.count);
}

/* ---- growth ---- */

/* Whether the last of the first `size` bytes of a file ends a line, or the bytes behind them do. What is packed ends
 * where nothing shows it. */
static bool ends_line(int fd, uint64_t size)
{
    static const unsigned char gzip[] = {0x1F, 0x8B}, zstd[] = {0x28, 0xB5, 0x2F, 0xFD};
    const off_t start = lseek(fd, 0, SEEK_CUR), end = start + (off_t)size;
    char first[4] = "", last = '\0', next[2] = "";
    if (size == 0) return true;
    if (pread(fd, first, sizeof first, start) < 0 || pread(fd, &last, 1, end - 1) != 1) return false;
    if (pread(fd, next, sizeof next, end) < 1) return false;
    if (memcmp(first, gzip, sizeof gzip) == 0 || memcmp(first, zstd, sizeof zstd) == 0) return false;
    return last == '\n' || next[0] == '\n' || (next[0] == '\r' && next[1] == '\n');
}

/* Gives the files, as many as `sizes` has, those sizes. False: they cannot hold what was there then. */
static bool shrink(struct contents *c, const json_t *sizes)
{
    const size_t count = json_array_size(sizes);
    if (count == 0 || count > c->count) return false;
    for (size_t i = 0; i < count; i++) {
        const uint64_t size = (uint64_t)json_integer_value(json_array_get(sizes, i));
        const bool more_lines = i == count - 1 && size < c->sizes[i] && ends_line(c->fds[i], size);
        if (size != c->sizes[i] && !more_lines) return false;
        c->sizes[i] = size;
    }
    return true;
}

enum status input_facts_grown(const struct input_list *list, const struct fingerprint *before, const json_t *sizes,
                              bool *grown, struct error *err)
{
    struct contents c;
    struct fingerprint then = {""};
    enum status status = open_contents(list, &c, err);
    const bool possible = status == STATUS_OK && shrink(&c, sizes);
    if (possible) status = hash_contents(&c, json_array_size(sizes), &then, err);
    *grown = possible && status == STATUS_OK && strcmp(then.text, before->text) == 0;
    close_contents(&c);
    return status;
}

/* ---- prompts ---- */

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
