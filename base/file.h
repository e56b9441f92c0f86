/* Files: mapped whole and read-only, or read into memory. Only regular files are opened: a named pipe would block.
 * Errors name the path and what the system said (STATUS_IO). */
#ifndef QUIRE_BASE_FILE_H
#define QUIRE_BASE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"

struct mapped_file {
    const uint8_t *data; /* [size], page aligned; NULL for an empty file */
    uint64_t size;
    int fd; /* open while the file is mapped */
};

/* Maps a file read-only (pages shared with the page cache). */
enum status mapped_file_open(const char *path, struct mapped_file *file, struct error *err);
void mapped_file_close(struct mapped_file *file); /* safe on a zeroed struct */

/* Copies the `bytes` at data + offset to `out`, without a page of the mapping being touched. False: errno says why, 0
 * that the file has become shorter. */
bool mapped_file_read(const struct mapped_file *file, uint64_t offset, void *out, size_t bytes);

/* Appends a whole file to *out. */
enum status file_read(const char *path, struct text *out, struct error *err);

/* Looks for a file that need not be there. What is there and cannot be a file, as a folder, a named pipe or a broken
 * symbolic link, is an error: nobody means that as "no such file". */
enum status file_find(const char *path, bool *found, struct error *err);

/* True if `path` names a regular file. / a folder. */
bool file_exists(const char *path);
bool folder_exists(const char *path);

/* Writes "folder/name" into out[size]; false if it does not fit. */
bool path_join(char *out, size_t size, const char *folder, const char *name);

#endif
