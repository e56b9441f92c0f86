/* The bytes of a file or pipe, unpacked if they are gzip (RFC 1952) or zstd (RFC 8878), which their first bytes tell.
 * Reading does not block, so that the caller can compute while a slow pipe has no more.
 *
 * Other packed forms and UTF-16 are refused, as far as the first bytes that are read show them.
 *
 * A file may hold several gzip members or zstd frames, one after the other. Checksums are compared; they stand behind
 * the data, so damage may be noticed only after damaged bytes were given out. */
#ifndef QUIRE_RUNTIME_BYTE_SOURCE_H
#define QUIRE_RUNTIME_BYTE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct unpacker;

enum byte_form { BYTE_FORM_UNKNOWN, BYTE_FORM_PLAIN, BYTE_FORM_GZIP, BYTE_FORM_ZSTD };

struct byte_source {
    int fd;
    enum byte_form form;
    unsigned char *buffer; /* bytes of the file that are not given out or unpacked yet; NULL until the first read */
    size_t start, end;     /* they are buffer[start .. end) */
    bool ended;            /* the end of the file was read */
    uint64_t bytes_read;   /* of the file, those in the buffer not counted */
    uint64_t bytes_given;  /* to the caller */
    struct unpacker *unpacker;
};

enum source_result { SOURCE_BYTES, SOURCE_NOT_YET, SOURCE_END, SOURCE_FAILED };

void byte_source_init(struct byte_source *s, int fd); /* fd stays the caller's */
void byte_source_free(struct byte_source *s);         /* safe on a zeroed struct */

/* SOURCE_BYTES: *count bytes, at least 1 and at most `size`, are in `out`. SOURCE_NOT_YET: there are none yet, or a
 * signal arrived. With `wait` the call may block for half a second. After SOURCE_FAILED only byte_source_free follows;
 * the bytes before the place that is damaged or missing were given out (of zstd, the blocks before). */
enum source_result byte_source_read(struct byte_source *s, bool wait, char *out, size_t size, size_t *count,
                                    struct error *err);

#endif
