#include "runtime/chat/conversation_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

static enum status cannot_write(const char *path, struct error *err)
{
    return error_set(err, STATUS_IO, "cannot write %s: %s", path, strerror(errno));
}

/* Writes the messages to a new file beside `path`, whose name goes to temporary[size]. */
static enum status write_beside(const char *path, const json_t *messages, char *temporary, size_t size,
                                struct error *err)
{
    if ((size_t)snprintf(temporary, size, "%s.XXXXXX", path) >= size) {
        errno = ENAMETOOLONG;
        return cannot_write(path, err);
    }
    const int fd = mkstemp(temporary);
    if (fd < 0) return cannot_write(path, err);
    const mode_t mask = umask(0);
    umask(mask);
    FILE *file = fdopen(fd, "w");
    bool ok = file && fchmod(fd, 0666 & ~mask) == 0 && json_print(messages, JSON_INDENT(2), file);
    ok = ok && fflush(file) == 0 && fsync(fd) == 0;
    const enum status status = ok ? STATUS_OK : cannot_write(path, err);
    if (file)
        fclose(file);
    else
        close(fd);
    if (!ok) unlink(temporary);
    return status;
}

/* Gives the complete file its name. link fails where the name has been taken since, rename replaces it. Some file
 * systems have no links. */
static bool take_name(const char *temporary, const char *path, bool replace)
{
    if (replace) return rename(temporary, path) == 0;
    if (link(temporary, path) == 0) return unlink(temporary) == 0;
    return (errno == EPERM || errno == ENOTSUP) && rename(temporary, path) == 0;
}

enum status conversation_file_write(const char *path, const json_t *messages, bool replace, bool *exists,
                                    struct error *err)
{
    char temporary[4096];
    struct stat info;
    const bool there = stat(path, &info) == 0;
    *exists = there && !replace;
    if (*exists) return error_set(err, STATUS_INVALID, "%s exists", path);
    if (there && !S_ISREG(info.st_mode)) return error_set(err, STATUS_INVALID, "%s is not a regular file", path);
    enum status status = write_beside(path, messages, temporary, sizeof temporary, err);
    if (status != STATUS_OK) return status;
    const bool ok = take_name(temporary, path, replace);
    if (!ok) {
        *exists = !replace && errno == EEXIST;
        status = cannot_write(path, err);
        unlink(temporary);
    }
    return status;
}

enum status conversation_file_read(const char *path, json_t **messages, struct error *err)
{
    struct text bytes = {0};
    json_t *value = NULL;
    *messages = NULL;
    enum status status = file_read(path, &bytes, err);
    if (status == STATUS_OK)
        status = json_value_parse(bytes.data ? bytes.data : "", bytes.length, 0, path, &value, err);
    text_free(&bytes);
    if (status != STATUS_OK) return status;
    json_t *list = json_is_object(value) ? json_object_get(value, "messages") : value;
    if (json_is_array(list))
        *messages = json_incref(list);
    else
        status = error_set(err, STATUS_INVALID,
                           "%s: expected a list of messages, or an object with such a list as \"messages\"", path);
    json_decref(value);
    return status;
}
