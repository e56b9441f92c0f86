#include "runtime/generate/answer_line.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"

static const char HEAD[] = "{\"index\": ";
enum { MAX_DIGITS = 18, READ_BYTES = 1 << 20 };

/* ---- a line ---- */

/* A walk over a line: where it is, and what the key before it means. */
struct walk {
    const char *at, *end;
    int64_t depth;
    bool in_reasons; /* the last key was finish_reason or finish_reasons */
};

static bool read_index(const char *line, size_t length, int64_t *index)
{
    const size_t head = sizeof HEAD - 1;
    size_t i = head;
    if (length <= head || memcmp(line, HEAD, head) != 0) return false;
    for (*index = 0; i < length && i < head + MAX_DIGITS && line[i] >= '0' && line[i] <= '9'; i++)
        *index = 10 * *index + (line[i] - '0');
    return i > head && i < length && (line[i] == ',' || line[i] == '}');
}

/* Moves past the string whose opening quote is at w->at. False: it does not end, or has a control character. */
static bool skip_string(struct walk *w)
{
    for (w->at++; w->at < w->end; w->at++) {
        const unsigned char c = (unsigned char)*w->at;
        if (c < 0x20) return false;
        if (c == '\\') w->at++;
        if (c != '"') continue;
        w->at++;
        return true;
    }
    return false;
}

static bool equals(const char *text, size_t length, const char *name)
{
    return length == strlen(name) && memcmp(text, name, length) == 0;
}

static bool read_string(struct walk *w, struct answer_line *out)
{
    const char *text = w->at + 1;
    if (!skip_string(w)) return false;
    const size_t length = (size_t)(w->at - text) - 1;
    const bool is_key = w->at < w->end && *w->at == ':';
    if (!is_key) {
        if (w->in_reasons && equals(text, length, "length")) out->num_cut++;
        return true;
    }
    const char *value = w->at + 1;
    while (value < w->end && *value == ' ') value++;
    const bool is_null = w->end - value >= 4 && memcmp(value, "null", 4) == 0;
    if (w->depth == 1 && equals(text, length, "error") && !is_null) out->failed = true;
    w->in_reasons = equals(text, length, "finish_reason") || equals(text, length, "finish_reasons");
    return true;
}

bool answer_line_read(const char *line, size_t length, struct answer_line *out)
{
    struct walk w = {.at = line, .end = line + length};
    *out = (struct answer_line){0};
    if (!read_index(line, length, &out->index)) return false;
    while (w.at < w.end) {
        const char c = *w.at;
        if (c == '"') {
            if (!read_string(&w, out)) return false;
            continue;
        }
        if ((unsigned char)c < 0x20) return false;
        if (c == '{' || c == '[') w.depth++;
        if (c == '}' || c == ']') w.depth--;
        w.at++;
        if (w.depth == 0) break;
    }
    return w.depth == 0 && w.at == w.end;
}

/* ---- a file ---- */

static enum status read_more(int fd, const char *name, uint64_t offset, struct text *buffer, size_t *count,
                             struct error *err)
{
    if (!text_reserve(buffer, buffer->length + READ_BYTES))
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a line of %s", name);
    ssize_t got;
    do {
        got = pread(fd, buffer->data + buffer->length, READ_BYTES, (off_t)offset);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return error_set(err, STATUS_IO, "cannot read %s: %s", name, strerror(errno));
    buffer->length += (size_t)got;
    *count = (size_t)got;
    return STATUS_OK;
}

struct scan {
    const char *name;
    answer_visitor *visit;
    void *user;
    int64_t line;  /* lines before this place */
    bool torn;     /* what follows was never on the disk */
    uint64_t base; /* offset in the file of the buffer's first byte */
};

/* Visits the whole lines of the buffer, and takes them out of it. `scanned`: there is no newline before it. */
static enum status visit_lines(struct scan *s, struct text *buffer, size_t scanned, struct error *err)
{
    size_t start = 0;
    const char *newline;
    while ((newline = memchr(buffer->data + scanned, '\n', buffer->length - scanned)) != NULL) {
        const char *line = buffer->data + start;
        const size_t length = (size_t)(newline - line);
        struct answer_line answer;
        s->line++;
        if (!answer_line_read(line, length, &answer)) {
            s->torn = memchr(line, '\0', length) != NULL;
            if (s->torn) return STATUS_OK;
            return error_set(err, STATUS_INVALID, "line %lld of %s is damaged, or is no answer of quire generate",
                             (long long)s->line, s->name);
        }
        const enum status status = s->visit(s->user, &answer, s->base, length + 1, err);
        if (status != STATUS_OK) return status;
        scanned = start += length + 1;
        s->base += length + 1;
    }
    memmove(buffer->data, buffer->data + start, buffer->length - start);
    buffer->length -= start;
    return STATUS_OK;
}

enum status answer_scan(int fd, const char *name, uint64_t start, answer_visitor *visit, void *user, uint64_t *whole,
                        struct error *err)
{
    struct scan s = {.name = name, .visit = visit, .user = user, .base = start};
    struct text buffer = {0};
    enum status status = STATUS_OK;
    size_t count = 1;
    while (status == STATUS_OK && count > 0 && !s.torn) {
        const size_t scanned = buffer.length;
        status = read_more(fd, name, s.base + buffer.length, &buffer, &count, err);
        if (status == STATUS_OK) status = visit_lines(&s, &buffer, scanned, err);
    }
    *whole = s.base;
    text_free(&buffer);
    return status;
}
