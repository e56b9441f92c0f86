/* Where `quire generate` puts its answers: a file, or standard output. Every line is handed to the operating system
 * when it is written, so the lines that are written survive the process, however it ends. */
#ifndef QUIRE_RUNTIME_OUTPUT_H
#define QUIRE_RUNTIME_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/inputs.h"

/* What other programs did to a regular file while it was written. */
enum output_loss { OUTPUT_KEPT, OUTPUT_CUT, OUTPUT_REMOVED, OUTPUT_MOVED };

struct output {
    int fd;            /* standard output stays open when the output is closed */
    const char *name;  /* for messages */
    bool open;         /* false in a zeroed struct */
    bool named;        /* a regular file that output_open opened by its name */
    bool created;      /* ... and that was not there before */
    bool terminal;     /* answers are shown on a screen */
    bool regular;      /* a regular file, named or not */
    bool linked;       /* ... that had a name when it was opened */
    bool failed;       /* a write failed or the file was taken away, so nothing more can be written */
    bool reader_ended; /* ... because the reader of the pipe closed it */
    uint64_t written;  /* bytes, by output_write */
    uint64_t end;      /* of a regular file: where what is known to be in it ends */
    enum output_loss loss;
};

/* Opens the file `name` for writing, or standard output for "-". A regular file is locked against other runs until it
 * is closed; its contents stay as they are. `name` is referred to. Fails with
 *   INVALID  the file is one of the inputs (NULL: there are none)
 *   IO       it cannot be opened, or another run holds the lock */
enum status output_open(struct output *o, const char *name, const struct inputs *inputs, struct error *err);

uint64_t output_size(const struct output *o); /* bytes of a named file; else 0 */

/* Cuts a named file to its first `keep` bytes; output_write goes on behind them. Does nothing to others. */
enum status output_cut(struct output *o, uint64_t keep, struct error *err);

/* Writes whole lines, (line)[length] with their newlines; to a terminal as base/visible.h has it. If only a part of
 * them fits (a full disk), a regular file is cut back to what it was before. A regular file that was cut or removed
 * meanwhile gets nothing more: IO, and o->loss says what happened. */
enum status output_write(struct output *o, const char *line, size_t length, struct error *err);

/* Whether a regular file still holds what was written to it and is still found under its name. IO: it does not; o->loss
 * and the sentence say what happened. */
enum status output_check(struct output *o, struct error *err);

/* Closes what output_open opened; some file systems report a failed write only here. Safe on a zeroed struct. */
enum status output_close(struct output *o, struct error *err);

#endif
