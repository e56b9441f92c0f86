/* Where `quire generate` puts its answers: a file, or standard output. Every line is handed to the operating system
 * when it is written, so the lines that are written survive the process, however it ends. */
#ifndef QUIRE_RUNTIME_OUTPUT_H
#define QUIRE_RUNTIME_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "runtime/inputs.h"

struct output {
    int fd;            /* standard output stays open when the output is closed */
    const char *name;  /* for messages */
    bool open;         /* false in a zeroed struct */
    bool begun;        /* what the file held before is gone */
    bool failed;       /* a write failed, so nothing more can be written */
    bool reader_ended; /* ... because the reader of the pipe closed it */
};

/* Opens the file `name` for writing, or standard output for "-". A regular file is locked against other runs until it
 * is closed; its contents stay until output_begin. `name` is referred to. Fails with
 *   INVALID  the file is not empty and `overwrite` is false, or it is one of the inputs
 *   IO       it cannot be opened, or another run holds the lock */
enum status output_open(struct output *o, const char *name, bool overwrite, const struct inputs *inputs,
                        struct error *err);

/* Empties the file. Later calls do nothing. */
enum status output_begin(struct output *o, struct error *err);

/* Writes a whole line, (line)[length] with its newline; begins the output if that has not been done. If only a part of
 * the line fits (a full disk), a regular file is cut back to the end of the line before it. */
enum status output_write(struct output *o, const char *line, size_t length, struct error *err);

/* Closes what output_open opened; some file systems report a failed write only here. Safe on a zeroed struct. */
enum status output_close(struct output *o, struct error *err);

#endif
