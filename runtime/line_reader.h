/* Reads a file or pipe line by line without blocking, so that the caller can compute while a slow pipe has no more.
 * gzip and zstd are unpacked (byte_source.h). */
#ifndef QUIRE_RUNTIME_LINE_READER_H
#define QUIRE_RUNTIME_LINE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"
#include "runtime/byte_source.h"

#define LINE_READER_MAX_LINE (64u << 20) /* bytes; a file with a longer line is no file of prompts */

struct line_reader {
    struct byte_source source;
    bool owned;         /* the source's file was opened by line_reader_open, and closed with the reader */
    struct text buffer; /* from `start` on: bytes that were read and not returned yet */
    size_t start;
    size_t scanned;    /* there is no newline between `start` and here */
    bool ended;        /* the end of the file was read */
    bool skipping;     /* inside a line that is too long */
    int64_t line;      /* number of the last line that was returned, from 1 */
    uint64_t consumed; /* bytes up to the end of that line, unpacked */
};

enum line_result {
    LINE_READY,    /* a line */
    LINE_NOT_YET,  /* no whole line yet, or a signal arrived */
    LINE_TOO_LONG, /* a line was skipped; it is counted */
    LINE_END,
    LINE_FAILED /* the sentence is in *err */
};

void line_reader_init(struct line_reader *r, int fd); /* fd stays the caller's */
/* Opens the file of that name, or standard input for "-". A folder is refused. On failure *r is zeroed. */
enum status line_reader_open(struct line_reader *r, const char *name, struct error *err);
void line_reader_free(struct line_reader *r); /* safe on a zeroed struct */

/* The bytes of the file, as it lies on the disk, up to the end of the last line: of a packed file, about. */
uint64_t line_reader_position(const struct line_reader *r);

/* The next line: (*line)[*length] without its newline, or carriage return and newline, valid until the next call. A
 * byte order mark before the first line is skipped, and the last line need not end with a newline. With `wait` the call
 * may block for half a second, or until a signal arrives. */
enum line_result line_reader_next(struct line_reader *r, bool wait, const char **line, size_t *length,
                                  struct error *err);

#endif
