/* Short text files that the kernel writes: /proc/meminfo, the files of control groups. */
#ifndef QUIRE_BASE_KERNEL_FILE_H
#define QUIRE_BASE_KERNEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes to out[size] what follows `key` in the first line that begins with it, without the blanks and the colon
 * between them. `key` may be "": the first line. The file is `path` below the folder `root`, "" for /. False: there is
 * no such line, and out is "". */
bool kernel_file_line(const char *root, const char *path, const char *key, char *out, size_t size);

/* The number that such a line begins with; `fallback` if there is none, as where a limit is "max". */
int64_t kernel_file_number(const char *root, const char *path, const char *key, int64_t fallback);

#endif
