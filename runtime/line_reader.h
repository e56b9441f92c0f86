/* Lines of a file or pipe, without waiting for more than there is: while a slow pipe has nothing to give, the caller
 * has something better to do. */
#ifndef QUIRE_RUNTIME_LINE_READER_H
#define QUIRE_RUNTIME_LINE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"

#define LINE_READER_MAX_LINE (64u << 20) /* bytes; a longer line is a file of another kind */

struct line_reader {
    int fd;
    bool owned;         /* by line_reader_open: closed with the reader */
    struct text buffer; /* read, not given yet, from `start` on; the line given last lies before it */
    size_t start, scanned;
    bool ended;        /* the file has no more */
    bool skipping;     /* inside a line that was too long */
    int64_t line;      /* number of the line given last, from 1 */
    uint64_t consumed; /* bytes of the file up to the end of that line */
};

enum line_result {
    LINE_READY,    /* a line */
    LINE_NOT_YET,  /* nothing to read at the moment, or a signal came */
    LINE_TOO_LONG, /* a line was skipped (it has its number) */
    LINE_END,
    LINE_FAILED /* the sentence is in *err */
};

void line_reader_init(struct line_reader *r, int fd); /* fd stays the caller's */
/* Opens the file of that name, or standard input for "-". A folder is refused. On failure *r is zeroed. */
enum status line_reader_open(struct line_reader *r, const char *name, struct error *err);
void line_reader_free(struct line_reader *r); /* safe on a zeroed struct */

/* Gives the next line, (*line)[*length], without its newline (or carriage return and newline), the first without a byte
 * order mark; valid until the next call. `wait`: for a while, or until a signal comes. The last line need not end with
 * a newline. */
enum line_result line_reader_next(struct line_reader *r, bool wait, const char **line, size_t *length,
                                  struct error *err);

#endif
