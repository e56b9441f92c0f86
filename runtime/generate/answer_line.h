/* Reads the lines that `quire generate` wrote, to go on with a file of answers or to merge several. The index is the
 * first key of every line, {"index": 12, ...}, in all formats of answers; so a line need not be parsed into a tree. */
#ifndef QUIRE_RUNTIME_ANSWER_LINE_H
#define QUIRE_RUNTIME_ANSWER_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct answer_line {
    int64_t index;
    bool failed;     /* it has an "error" other than null */
    int32_t num_cut; /* answers in it whose finish_reason is "length" */
};

/* Reads line[length], without its newline. False: the line is not one of these, or is damaged. What is checked is that
 * it begins with the index, that it has no control characters, and that strings and brackets end where they should; an
 * object that is damaged otherwise is taken for a good one. */
bool answer_line_read(const char *line, size_t length, struct answer_line *out);

/* What answer_scan calls for each whole line, at line[length] with its newline, which begins at byte `offset`. */
typedef enum status answer_visitor(void *user, const struct answer_line *answer, uint64_t offset, size_t length,
                                   struct error *err);

/* Reads all lines of a file from byte `start` on, a part at a time. *whole gets the end of the last line that ends with
 * a newline; what follows is torn. So is all behind a line with NUL bytes, which the disk never got (a power failure).
 * Fails with
 *   INVALID  a line is no answer; the sentence has its number
 *   IO       the file cannot be read
 *   other    what the visitor returned */
enum status answer_scan(int fd, const char *name, uint64_t start, answer_visitor *visit, void *user, uint64_t *whole,
                        struct error *err);

#endif
