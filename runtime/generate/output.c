#include "runtime/generate/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/plural.h"
#include "base/visible.h"
#include "runtime/interrupt.h"

/* ---- opening ---- */

static bool is_regular(int fd, struct stat *info)
{
    return fstat(fd, info) == 0 && S_ISREG(info->st_mode);
}

/* A file system without locks lets every run in. */
static bool is_locked(int fd)
{
    struct stat info;
    return is_regular(fd, &info) && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

static enum status check_file(const struct output *o, const struct inputs *inputs, struct error *err)
{
    if (inputs && inputs_find(inputs, o->fd))
        return error_set(err, STATUS_INVALID, "%s%s is the input; name another file",
                         o->fd == STDOUT_FILENO ? "" : "the output ", o->name);
    if (o->fd != STDOUT_FILENO && is_locked(o->fd))
        return error_set(err, STATUS_IO, "another quire is writing the output %s; wait for it, or name another file",
                         o->name);
    return STATUS_OK;
}

/* O_APPEND: a file that another program cuts gets no hole. */
static void open_file(struct output *o, const char *name)
{
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    o->fd = open(name, flags | O_EXCL, 0666);
    o->created = o->fd >= 0;
    if (!o->created) o->fd = open(name, flags, 0666);
}

/* Standard output may be the end of a file that others have written, or the middle of it. */
static void note_file(struct output *o, bool standard)
{
    struct stat info;
    o->regular = is_regular(o->fd, &info);
    if (!o->regular) return;
    o->named = !standard;
    o->linked = info.st_nlink > 0;
    const off_t position = lseek(o->fd, 0, SEEK_CUR);
    const bool appends = fcntl(o->fd, F_GETFL) & O_APPEND;
    o->end = (uint64_t)(appends || position > info.st_size ? info.st_size : position);
}

enum status output_open(struct output *o, const char *name, const struct inputs *inputs, struct error *err)
{
    const bool standard = strcmp(name, "-") == 0;
    *o = (struct output){.fd = STDOUT_FILENO, .name = standard ? "standard output" : name};
    if (input_name_is_packed(name))
        return error_set(err, STATUS_INVALID,
                         "the output %s has the name of a packed file, but text is written: leave the ending out, and "
                         "pack the file when it is whole",
                         name);
    if (!standard) open_file(o, name);
    if (o->fd < 0) return error_set(err, STATUS_IO, "cannot write the output %s: %s", name, strerror(errno));
    o->open = true;
    o->terminal = isatty(o->fd);
    note_file(o, standard);
    enum status status = check_file(o, inputs, err);
    if (status != STATUS_OK) output_close(o, NULL);
    return status;
}

uint64_t output_size(const struct output *o)
{
    struct stat info;
    return o->named && is_regular(o->fd, &info) ? (uint64_t)info.st_size : 0;
}

/* ---- writing ---- */

static enum status fail(struct output *o, struct error *err)
{
    o->failed = true;
    o->reader_ended = errno == EPIPE;
    return error_set(err, STATUS_IO, "%s: cannot write: %s", o->name, strerror(errno));
}

enum status output_cut(struct output *o, uint64_t keep, struct error *err)
{
    if (!o->named) return STATUS_OK;
    o->end = keep;
    return ftruncate(o->fd, (off_t)keep) == 0 ? STATUS_OK : fail(o, err);
}

static enum status lose(struct output *o, enum output_loss loss, struct error *err)
{
    static const char *const happened[] = {
        [OUTPUT_CUT] = "cut short", [OUTPUT_REMOVED] = "removed", [OUTPUT_MOVED] = "moved or replaced"};
    o->failed = true;
    o->loss = loss;
    return error_set(err, STATUS_IO, "%s was %s while quire was writing it", o->name, happened[loss]);
}

/* What the descriptor tells: whether the file is as long as it should be, and in some folder. */
static enum status check_held(struct output *o, struct error *err)
{
    struct stat info;
    if (!o->regular || fstat(o->fd, &info) != 0) return STATUS_OK;
    if (o->linked && info.st_nlink == 0) return lose(o, OUTPUT_REMOVED, err);
    return (uint64_t)info.st_size < o->end ? lose(o, OUTPUT_CUT, err) : STATUS_OK;
}

enum status output_check(struct output *o, struct error *err)
{
    struct stat held, found;
    const enum status status = check_held(o, err);
    if (status != STATUS_OK || !o->named || fstat(o->fd, &held) != 0) return status;
    const bool same = stat(o->name, &found) == 0 ? found.st_ino == held.st_ino && found.st_dev == held.st_dev
                                                 : errno != ENOENT && errno != ENOTDIR;
    return same ? STATUS_OK : lose(o, OUTPUT_MOVED, err);
}

/* Takes the last `count` bytes off the file again, if they are its end: another process may have appended to it. */
static void take_back(int fd, size_t count)
{
    struct stat info;
    const off_t end = lseek(fd, 0, SEEK_CUR);
    if (count == 0 || !is_regular(fd, &info) || info.st_size != end) return;
    if (ftruncate(fd, end - (off_t)count) == 0) lseek(fd, end - (off_t)count, SEEK_SET);
}

/* A terminal or pipe that another process has made non-blocking. */
static void wait_until_writable(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLOUT};
    poll(&poller, 1, -1);
}

static enum status write_bytes(struct output *o, const char *line, size_t length, struct error *err)
{
    enum status status = STATUS_OK;
    size_t written = 0;
    while (status == STATUS_OK && written < length) {
        const ssize_t count = write(o->fd, line + written, length - written);
        if (count >= 0) {
            written += (size_t)count;
        } else if (errno == EAGAIN) {
            wait_until_writable(o->fd);
        } else if (errno != EINTR) {
            status = fail(o, err);
            take_back(o->fd, written);
        }
    }
    return status;
}

static enum status write_visible(struct output *o, const char *line, size_t length, struct error *err)
{
    struct text shown = {0};
    enum status status = STATUS_OK;
    if (!visible_append(&shown, line, length))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "no memory for an answer of %zu byte%s", length,
                           plural((int64_t)length));
    if (status == STATUS_OK) status = write_bytes(o, shown.data, shown.length, err);
    text_free(&shown);
    return status;
}

/* A file that was cut just before the write holds the lines at an earlier place, perhaps behind half a line. */
static enum status note_end(struct output *o, size_t length, struct error *err)
{
    const off_t position = o->regular ? lseek(o->fd, 0, SEEK_CUR) : -1;
    if (position < 0) return STATUS_OK;
    if ((uint64_t)position < o->end + length) {
        take_back(o->fd, length);
        return lose(o, OUTPUT_CUT, err);
    }
    o->end = (uint64_t)position;
    return STATUS_OK;
}

enum status output_write(struct output *o, const char *line, size_t length, struct error *err)
{
    enum status status = check_held(o, err);
    if (status != STATUS_OK) return status;
    if (o->regular) interrupt_hold(); /* others may wait long for their reader */
    status = o->terminal ? write_visible(o, line, length, err) : write_bytes(o, line, length, err);
    if (status == STATUS_OK) status = note_end(o, length, err);
    if (o->regular) interrupt_release();
    if (status == STATUS_OK) o->written += length;
    return status;
}

enum status output_close(struct output *o, struct error *err)
{
    if (!o->open) return STATUS_OK;
    o->open = false;
    if (o->fd == STDOUT_FILENO || close(o->fd) == 0) return STATUS_OK;
    return fail(o, err);
}
