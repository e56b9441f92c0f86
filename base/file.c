#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status open_error(const char *path, struct error *err)
{
    return error_set(err, STATUS_IO, "%s: cannot open: %s", path, strerror(errno));
}

enum status mapped_file_open(const char *path, struct mapped_file *file, struct error *err)
{
    *file = (struct mapped_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return open_error(path, err);
    struct stat info;
    enum status status = STATUS_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = error_set(err, STATUS_IO, "%s: not a regular file", path);
    } else if (info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) {
            status = error_set(err, STATUS_IO, "%s: cannot map %lld bytes: %s", path, (long long)info.st_size,
                               strerror(errno));
        } else {
            *file = (struct mapped_file){data, (uint64_t)info.st_size, fd};
        }
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

enum status file_read(const char *path, struct text *out, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return open_error(path, err);
    enum status status = STATUS_OK;
    for (;;) {
        if (!text_reserve(out, out->length + 65536)) {
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

bool path_join(char *out, size_t size, const char *folder, const char *name)
{
    size_t n = strlen(folder);
    const char *slash = n && folder[n - 1] == '/' ? "" : "/";
    int written = snprintf(out, size, "%s%s%s", folder, slash, name);
    return written >= 0 && (size_t)written < size;
}
