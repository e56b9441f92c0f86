/* Files: mapped whole and read-only, or read into memory. Only regular files are opened, as a named pipe would block,
 * except by file_read_or_pipe. Errors name the path and what the system said (STATUS_IO). */
#ifndef QUIRE_BASE_FILE_H
#define QUIRE_BASE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"

struct mapped_file {
    const uint8_t *data; /* [size], page aligned; NULL for an empty file */
    uint64_t size;
    int fd;           /* open while the file is mapped */
    int64_t modified; /* when the file was last written, at the time it was opened: nanoseconds since 1970 */
};

/* Maps a file read-only (pages shared with the page cache). */
enum status mapped_file_open(const char *path, struct mapped_file *file, struct error *err);
void mapped_file_close(struct mapped_file *file); /* safe on a zeroed struct */

/* Copies `bytes` bytes at `offset` to `out` by reading the file, without touching the mapping. On failure returns
 * false, and errno says why; 0 means that the file has become shorter. */
bool mapped_file_read(const struct mapped_file *file, uint64_t offset, void *out, size_t bytes);

/* Whether the file was written, cut short or made longer since it was opened: then what was read of it may be of two
 * files. Reading a page that is gone raises SIGBUS (runtime/bus_error.h). */
bool mapped_file_changed(const struct mapped_file *file);

/* Refuses the small text file that Git LFS keeps in place of one that was not fetched. */
enum status file_refuse_lfs_pointer(const char *path, const void *data, size_t size, struct error *err);

/* Appends a whole file to *out. */
enum status file_read(const char *path, struct text *out, struct error *err);
/* Appends a whole file that a person names to *out. It may be a pipe, such as bash's <(COMMAND), which is read until
 * its writers close it. */
enum status file_read_or_pipe(const char *path, struct text *out, struct error *err);

/* Writes a file whole: it gets its name, by a rename of PATH.new, once its bytes are on the disk. */
enum status file_replace(const char *path, const char *bytes, size_t count, struct error *err);
/* Brings the name that a file has in its folder onto the disk, if the file system can. */
void file_sync_name(const char *path);

/* Looks for a file that need not exist. A folder, a named pipe or a broken symbolic link of that name is an error,
 * because it is there by mistake. */
enum status file_find(const char *path, bool *found, struct error *err);

bool file_exists(const char *path);   /* `path` names a regular file */
bool folder_exists(const char *path); /* `path` names a folder */

/* Writes to name[size] the entry of a folder, of any kind, that matches a pattern of fnmatch, capital letters being
 * equal to small ones; the first by name if there are several. False if there is none. */
bool folder_find_entry(const char *folder, const char *pattern, char *name, size_t size);

/* Writes "folder/name" into out[size]; false if it does not fit. */
bool path_join(char *out, size_t size, const char *folder, const char *name);

#endif
