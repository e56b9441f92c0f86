#include "runtime/generate/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/generate/answer_line.h"

enum { WORTH_BYTES = 16 << 20 }; /* fewer dead bytes are left where they are */

static const char *shown_name(const struct spool *s)
{
    return s->name[0] ? s->name : "the file for early answers in TMPDIR";
}

static enum status fail(const struct spool *s, const char *what, struct error *err)
{
    return error_set(err, STATUS_IO, "%s: cannot %s: %s", shown_name(s), what, strerror(errno));
}

/* ---- the file ---- */

static int open_unnamed(void)
{
    const char *folder = getenv("TMPDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/quire-spool-XXXXXX", folder && *folder ? folder : "/tmp");
    const int fd = mkostemp(path, O_APPEND | O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
}

enum status spool_open(struct spool *s, const char *name, struct error *err)
{
    *s = (struct spool){.look_at = WORTH_BYTES};
    if (name) snprintf(s->name, sizeof s->name, "%s", name);
    /* O_APPEND: a file that another program cuts gets no hole. */
    s->fd = name ? open(name, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : open_unnamed();
    if (s->fd < 0) return fail(s, "open it", err);
    s->open = true;
    return STATUS_OK;
}

static enum status cut_file(const struct spool *s, uint64_t end, struct error *err)
{
    return ftruncate(s->fd, (off_t)end) == 0 ? STATUS_OK : fail(s, "cut it", err);
}

enum status spool_cut(struct spool *s, uint64_t end, struct error *err)
{
    const enum status status = cut_file(s, end, err);
    if (status == STATUS_OK) s->end = end;
    return status;
}

uint64_t spool_skip_given_back(struct spool *s)
{
    char bytes[65536];
    ssize_t count;
    while ((count = pread(s->fd, bytes, sizeof bytes, (off_t)s->given_back)) > 0) {
        ssize_t zeros = 0;
        while (zeros < count && bytes[zeros] == 0) zeros++;
        s->given_back += (uint64_t)zeros;
        if (zeros < count) break;
    }
    return s->given_back;
}

enum status spool_clear(struct spool *s, struct error *err)
{
    s->count = 0;
    s->live_bytes = s->given_back = 0;
    s->look_at = WORTH_BYTES;
    s->waits = false;
    return spool_cut(s, 0, err);
}

void spool_close(struct spool *s, bool remove_empty)
{
    if (!s->open) return;
    if (s->name[0] && remove_empty && s->count == 0) unlink(s->name);
    close(s->fd);
    free(s->entries);
    *s = (struct spool){0};
}

/* ---- entries: a binary heap ---- */

static void swap(struct spool *s, size_t i, size_t k)
{
    const struct spool_entry entry = s->entries[i];
    s->entries[i] = s->entries[k];
    s->entries[k] = entry;
}

enum status spool_note(struct spool *s, int64_t index, uint64_t offset, uint64_t length, struct error *err)
{
    if (!array_reserve(&s->entries, &s->capacity, s->count + 1, sizeof *s->entries))
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for %zu early answers", s->count + 1);
    size_t i = s->count++;
    s->entries[i] = (struct spool_entry){index, offset, length};
    for (; i > 0 && s->entries[(i - 1) / 2].index > index; i = (i - 1) / 2) swap(s, i, (i - 1) / 2);
    s->live_bytes += length;
    if (s->end < offset + length) s->end = offset + length;
    return STATUS_OK;
}

int64_t spool_first(const struct spool *s)
{
    return s->count > 0 ? s->entries[0].index : -1;
}

void spool_drop(struct spool *s)
{
    s->live_bytes -= s->entries[0].length;
    s->entries[0] = s->entries[--s->count];
    for (size_t i = 0, child; (child = 2 * i + 1) < s->count; i = child) {
        if (child + 1 < s->count && s->entries[child + 1].index < s->entries[child].index) child++;
        if (s->entries[i].index <= s->entries[child].index) break;
        swap(s, i, child);
    }
}

/* ---- lines ---- */

static enum status was_changed(const struct spool *s, const char *how, struct error *err)
{
    return error_set(err, STATUS_IO, "%s was %s while quire was writing it", shown_name(s), how);
}

/* What is known of it, if the system does not tell. */
static struct stat file_now(const struct spool *s)
{
    struct stat info;
    if (fstat(s->fd, &info) != 0) info = (struct stat){.st_size = (off_t)s->end, .st_nlink = 1};
    return info;
}

enum status spool_check(const struct spool *s, struct error *err)
{
    if (!s->open || (uint64_t)file_now(s).st_size >= s->end) return STATUS_OK;
    return was_changed(s, "cut short", err);
}

size_t spool_num_lost(const struct spool *s)
{
    const uint64_t size = (uint64_t)file_now(s).st_size;
    size_t lost = 0;
    for (size_t i = 0; i < s->count; i++) lost += s->entries[i].offset + s->entries[i].length > size;
    return lost;
}

bool spool_is_removed(const struct spool *s)
{
    return s->open && s->name[0] && file_now(s).st_nlink == 0;
}

enum status spool_write(struct spool *s, int64_t index, const char *line, size_t length, struct error *err)
{
    const uint64_t offset = s->end;
    enum status status = spool_check(s, err);
    size_t written = 0;
    if (status != STATUS_OK) return status;
    while (status == STATUS_OK && written < length) {
        const ssize_t count = write(s->fd, line + written, length - written);
        if (count >= 0)
            written += (size_t)count;
        else if (errno != EINTR)
            status = fail(s, "write", err);
    }
    /* Behind what was written, wherever the file ended by then. */
    const off_t position = lseek(s->fd, 0, SEEK_CUR);
    if (status == STATUS_OK && (uint64_t)position < offset + length) status = was_changed(s, "cut short", err);
    if (status == STATUS_OK) status = spool_note(s, index, offset, length, err);
    if (status == STATUS_OK) s->written += length;
    if (status != STATUS_OK && written > 0) cut_file(s, (uint64_t)position - written, NULL);
    return status;
}

static enum status check_line(const struct spool *s, const struct text *line, struct error *err)
{
    struct answer_line found;
    const size_t length = line->length - 1;
    if (line->data[length] == '\n' && answer_line_read(line->data, length, &found) && found.index == spool_first(s))
        return STATUS_OK;
    return was_changed(s, "changed", err);
}

enum status spool_read(const struct spool *s, struct text *line, struct error *err)
{
    const struct spool_entry *e = &s->entries[0];
    text_clear(line);
    if (!text_reserve(line, e->length))
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for an answer of %llu bytes",
                         (unsigned long long)e->length);
    while (line->length < e->length) {
        const ssize_t count =
            pread(s->fd, line->data + line->length, e->length - line->length, (off_t)(e->offset + line->length));
        if (count < 0 && errno == EINTR) continue;
        if (count == 0) return was_changed(s, "cut short", err);
        if (count < 0) return fail(s, "read", err);
        line->length += (size_t)count;
    }
    return check_line(s, line, err);
}

/* ---- giving back ---- */

static uint64_t lowest_offset(const struct spool *s)
{
    uint64_t lowest = s->end;
    for (size_t i = 0; i < s->count; i++)
        if (s->entries[i].offset < lowest) lowest = s->entries[i].offset;
    return lowest;
}

/* A file system that cannot do it keeps the bytes until the spool is empty. */
static void give_back(struct spool *s)
{
    if (s->floor == s->end) {
        spool_cut(s, 0, NULL);
        s->given_back = 0;
    } else if (s->floor > s->given_back) {
        fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->given_back,
                  (off_t)(s->floor - s->given_back));
        s->given_back = s->floor;
    }
    s->waits = false;
}

void spool_reclaim(struct spool *s, uint64_t written, uint64_t synced)
{
    if (s->waits && synced >= s->position) give_back(s);
    const uint64_t dead = s->end - s->given_back - s->live_bytes;
    if (s->waits || dead == 0 || (s->count > 0 && dead < s->look_at)) return;
    s->floor = lowest_offset(s);
    s->position = written;
    s->waits = s->count == 0 || s->floor > s->given_back;
    s->look_at = s->waits ? WORTH_BYTES : dead + WORTH_BYTES;
}
