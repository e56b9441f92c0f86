#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_broken_link(const char *path)
{
    struct stat info;
    return stat(path, &info) != 0 && errno == ENOENT && lstat(path, &info) == 0;
}

static enum status open_error(const char *path, struct error *err)
{
    const int why = errno;
    if (is_broken_link(path))
        return error_set(err, STATUS_IO, "%s: a symbolic link to a file that does not exist", path);
    return error_set(err, STATUS_IO, "%s: cannot open: %s", path, strerror(why));
}

static enum status not_regular(const char *path, mode_t mode, struct error *err)
{
    const char *kind = S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a named pipe" : "a device or a socket";
    return error_set(err, STATUS_IO, "%s: not a regular file but %s", path, kind);
}

static bool is_pipe(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISFIFO(info.st_mode);
}

/* A regular file, or, if `wait`, a pipe. Without O_NONBLOCK, opening a named pipe waits until somebody writes to it. */
static enum status open_file(const char *path, bool wait, int *fd, struct stat *info, struct error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | (wait ? 0 : O_NONBLOCK));
    if (*fd < 0) return open_error(path, err);
    enum status status = STATUS_OK;
    if (fstat(*fd, info) != 0)
        status = open_error(path, err);
    else if (!S_ISREG(info->st_mode) && !(wait && S_ISFIFO(info->st_mode)))
        status = not_regular(path, info->st_mode, err);
    if (status != STATUS_OK) {
        close(*fd);
        return status;
    }
    return STATUS_OK;
}

static int64_t modified(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

enum status mapped_file_open(const char *path, struct mapped_file *file, struct error *err)
{
    int fd;
    struct stat info;
    *file = (struct mapped_file){0};
    enum status status = open_file(path, false, &fd, &info, err);
    if (status != STATUS_OK) return status;
    const uint64_t size = (uint64_t)info.st_size;
    if (size > 0) {
        void *data = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED)
            status = error_set(err, STATUS_IO, "%s: cannot map %llu bytes: %s", path, (unsigned long long)size,
                               strerror(errno));
        else
            *file = (struct mapped_file){data, size, fd, modified(&info)};
    }
    if (!file->data) close(fd);
    return status;
}

void mapped_file_close(struct mapped_file *file)
{
    if (file->data) {
        munmap((void *)file->data, file->size);
        close(file->fd);
    }
    *file = (struct mapped_file){0};
}

bool mapped_file_changed(const struct mapped_file *file)
{
    struct stat info;
    if (!file->data) return false;
    return fstat(file->fd, &info) != 0 || (uint64_t)info.st_size != file->size || modified(&info) != file->modified;
}

enum status file_refuse_lfs_pointer(const char *path, const void *data, size_t size, struct error *err)
{
    static const char lfs[] = "version https://git-lfs";
    if (size < sizeof lfs - 1 || memcmp(data, lfs, sizeof lfs - 1) != 0) return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "%s: this is only the pointer that Git LFS keeps in place of the file; fetch the file with: git "
                     "lfs pull",
                     path);
}

bool mapped_file_read(const struct mapped_file *file, uint64_t offset, void *out, size_t bytes)
{
    while (bytes > 0) {
        errno = 0;
        const ssize_t got = pread(file->fd, out, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        out = (uint8_t *)out + got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return true;
}

static enum status read_whole(const char *path, bool wait, struct text *out, struct error *err)
{
    int fd;
    struct stat info;
    enum status status = open_file(path, wait, &fd, &info, err);
    if (status != STATUS_OK) return status;
    for (size_t rest = (size_t)info.st_size;; rest = 0) { /* room for all at once: the size is nearly always right */
        if (!text_reserve(out, out->length + rest + 65536)) {
            status = error_set(err, STATUS_OUT_OF_MEMORY, "%s: out of memory reading the file", path);
            break;
        }
        ssize_t got = read(fd, out->data + out->length, 65536);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = error_set(err, STATUS_IO, "%s: cannot read: %s", path, strerror(errno));
        if (got <= 0) break;
        out->length += (size_t)got;
        out->data[out->length] = '\0';
    }
    close(fd);
    return status;
}

enum status file_read(const char *path, struct text *out, struct error *err)
{
    return read_whole(path, false, out, err);
}

enum status file_read_or_pipe(const char *path, struct text *out, struct error *err)
{
    return read_whole(path, is_pipe(path), out, err);
}

static bool write_whole(const char *path, const char *bytes, size_t count)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    errno = ENOSPC; /* a write that is short without an error */
    const bool written = write(fd, bytes, count) == (ssize_t)count && fsync(fd) == 0;
    const int why = errno;
    const bool closed = close(fd) == 0;
    if (!written) errno = why;
    return written && closed;
}

void file_sync_name(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == folder) slash++;
    if (slash) *slash = '\0';
    const int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

enum status file_replace(const char *path, const char *bytes, size_t count, struct error *err)
{
    char temporary[PATH_MAX];
    const int length = snprintf(temporary, sizeof temporary, "%s.new", path);
    if (length >= (int)sizeof temporary) return error_set(err, STATUS_INVALID, "%s: the path is too long", path);
    if (!write_whole(temporary, bytes, count) || rename(temporary, path) != 0) {
        const enum status status = error_set(err, STATUS_IO, "%s: cannot write: %s", path, strerror(errno));
        unlink(temporary);
        return status;
    }
    file_sync_name(path);
    return STATUS_OK;
}

enum status file_find(const char *path, bool *found, struct error *err)
{
    struct stat info;
    *found = false;
    if (stat(path, &info) != 0) {
        const bool absent = (errno == ENOENT || errno == ENOTDIR) && lstat(path, &info) != 0;
        return absent ? STATUS_OK : open_error(path, err);
    }
    if (!S_ISREG(info.st_mode)) return not_regular(path, info.st_mode, err);
    *found = true;
    return STATUS_OK;
}

bool file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool folder_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool folder_find_entry(const char *folder, const char *pattern, char *name, size_t size)
{
    bool found = false;
    DIR *entries = opendir(folder);
    if (!entries) return false;
    for (const struct dirent *e; (e = readdir(entries));) {
        if (fnmatch(pattern, e->d_name, FNM_CASEFOLD) != 0 || strlen(e->d_name) >= size) continue;
        if (!found || strcmp(e->d_name, name) < 0) strcpy(name, e->d_name);
        found = true;
    }
    closedir(entries);
    return found;
}

bool path_join(char *out, size_t size, const char *folder, const char *name)
{
    size_t n = strlen(folder);
    const char *slash = n && folder[n - 1] == '/' ? "" : "/";
    int written = snprintf(out, size, "%s%s%s", folder, slash, name);
    return written >= 0 && (size_t)written < size;
}
