#include "runtime/line_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 64 * 1024 };

void line_reader_init(struct line_reader *r, int fd)
{
    *r = (struct line_reader){0};
    byte_source_init(&r->source, fd);
}

enum status line_reader_open(struct line_reader *r, const char *name, struct error *err)
{
    const bool standard = strcmp(name, "-") == 0;
    struct stat info;
    const int fd = standard ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);
    enum status status = STATUS_OK;
    line_reader_init(r, fd);
    r->owned = !standard;
    if (fd < 0)
        status = error_set(err, STATUS_IO, "cannot open the input %s: %s", name, strerror(errno));
    else if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode))
        status = error_set(err, STATUS_IO, "the input %s is a folder; name a file of prompts", name);
    if (status != STATUS_OK) line_reader_free(r);
    return status;
}

void line_reader_free(struct line_reader *r)
{
    text_free(&r->buffer);
    if (r->owned && r->source.fd >= 0) close(r->source.fd);
    byte_source_free(&r->source);
    *r = (struct line_reader){0};
}

/* Removes `count` bytes from the front of the buffer. */
static void consume(struct line_reader *r, size_t count)
{
    r->start += count;
    r->scanned = r->start;
    r->consumed += count;
}

/* Moves the remaining bytes to the front, so that the buffer grows only with the longest line. */
static void compact(struct line_reader *r)
{
    if (r->start == 0) return;
    memmove(r->buffer.data, r->buffer.data + r->start, r->buffer.length - r->start);
    r->buffer.length -= r->start;
    r->scanned -= r->start;
    r->start = 0;
}

/* Reads more. LINE_READY: bytes were read, or the end of the file. */
static enum line_result fill(struct line_reader *r, bool wait, struct error *err)
{
    size_t count;
    compact(r);
    if (!text_reserve(&r->buffer, r->buffer.length + READ_BYTES)) {
        error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a line of more than %zu bytes", r->buffer.length);
        return LINE_FAILED;
    }
    char *end = r->buffer.data + r->buffer.length;
    const enum source_result result = byte_source_read(&r->source, wait, end, READ_BYTES, &count, err);
    if (result == SOURCE_NOT_YET) return LINE_NOT_YET;
    if (result == SOURCE_FAILED) return LINE_FAILED;
    r->ended = result == SOURCE_END;
    r->buffer.length += count;
    return LINE_READY;
}

/* Returns buffer[start .. start + length) as the next line and consumes `taken` bytes. */
static enum line_result give(struct line_reader *r, size_t length, size_t taken, const char **line, size_t *line_length)
{
    *line = r->buffer.data + r->start;
    if (length > 0 && (*line)[length - 1] == '\r') length--;
    bool skipped = r->skipping;
    r->skipping = false;
    consume(r, taken);
    r->line++;
    if (r->line == 1 && length >= 3 && memcmp(*line, "\xEF\xBB\xBF", 3) == 0) { /* a byte order mark */
        *line += 3;
        length -= 3;
    }
    *line_length = length;
    return skipped ? LINE_TOO_LONG : LINE_READY;
}

enum line_result line_reader_next(struct line_reader *r, bool wait, const char **line, size_t *length,
                                  struct error *err)
{
    for (;;) {
        size_t held = r->buffer.length - r->start;
        const char *newline = NULL;
        if (r->buffer.length > r->scanned) {
            newline = memchr(r->buffer.data + r->scanned, '\n', r->buffer.length - r->scanned);
        }
        if (newline) {
            size_t n = (size_t)(newline - (r->buffer.data + r->start));
            return give(r, n, n + 1, line, length);
        }
        r->scanned = r->buffer.length;
        if (r->ended) return held || r->skipping ? give(r, held, held, line, length) : LINE_END;
        if (held > LINE_READER_MAX_LINE) r->skipping = true;
        if (r->skipping) consume(r, held);
        enum line_result result = fill(r, wait, err);
        if (result != LINE_READY) return result;
    }
}

uint64_t line_reader_position(const struct line_reader *r)
{
    const struct byte_source *s = &r->source;
    if (s->form == BYTE_FORM_PLAIN || s->bytes_given == 0) return r->consumed;
    return (uint64_t)((double)s->bytes_read * (double)r->consumed / (double)s->bytes_given);
}
