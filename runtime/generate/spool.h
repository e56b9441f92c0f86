/* Answers that are finished before their turn, for `quire generate --ordered`: their lines wait in a file, and memory
 * holds 24 bytes for each. A spool that has a name is read again by the run that goes on after this one.
 *
 *   file     | 0 0 0 0 | {"index": 7, ...} | {"index": 5, ...} | {"index": 9, ...} |
 *              given back to the disk        written already
 */
#ifndef QUIRE_RUNTIME_SPOOL_H
#define QUIRE_RUNTIME_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"

struct spool_entry {
    int64_t index;
    uint64_t offset;
    uint64_t length; /* with the newline */
};

/* Zero-initialise it before spool_open. */
struct spool {
    int fd;
    bool open;
    char name[4096];             /* "" without a name */
    struct spool_entry *entries; /* [count] a heap: the smallest index first */
    size_t count, capacity;
    uint64_t end;        /* of the file, which is never shorter unless another program cuts it */
    uint64_t live_bytes; /* of the entries */
    uint64_t given_back; /* bytes at the beginning that the disk has back */
    uint64_t written;    /* bytes, by spool_write */
    uint64_t look_at;    /* dead bytes from which on it is worth to look for more to give back */
    /* What lies before `floor` is in the output, and may go once `position` bytes of the output are on the disk. */
    bool waits;
    uint64_t floor, position;
};

/* Opens the file `name`, which need not exist, and keeps what it holds; NULL: a file without a name that is gone when
 * the process ends, in $TMPDIR or /tmp. */
enum status spool_open(struct spool *s, const char *name, struct error *err);
/* Finds where the first line of a file that holds something begins, behind what was given back to the disk. */
uint64_t spool_skip_given_back(struct spool *s);
/* Cuts the file to its first `end` bytes, all of whose lines that matter are noted. */
enum status spool_cut(struct spool *s, uint64_t end, struct error *err);
/* Empties it. */
enum status spool_clear(struct spool *s, struct error *err);

/* Adds a line, (line)[length] with its newline. If it does not fit on the disk, the spool is as it was. IO, too, if
 * another program has cut the file. */
enum status spool_write(struct spool *s, int64_t index, const char *line, size_t length, struct error *err);
/* Adds a line that is in the file already. */
enum status spool_note(struct spool *s, int64_t index, uint64_t offset, uint64_t length, struct error *err);

int64_t spool_first(const struct spool *s); /* the smallest index; -1: it is empty */
/* Puts the line with the smallest index in place of what *line held. IO, too, if it is not the line that was written,
 * because another program has changed the file. */
enum status spool_read(const struct spool *s, struct text *line, struct error *err);
void spool_drop(struct spool *s); /* ... and this removes it, once it is in the output */

/* Whether the file is as long as it should be; IO: another program has cut it. */
enum status spool_check(const struct spool *s, struct error *err);
size_t spool_num_lost(const struct spool *s); /* lines that were in the part that was cut off */
bool spool_is_removed(const struct spool *s); /* a file with a name has none any more: it goes when it is closed */

/* Gives back to the disk what is in the output: `written` bytes were written to it, `synced` of them are safe. */
void spool_reclaim(struct spool *s, uint64_t written, uint64_t synced);

/* Closes it, and removes the file if `remove_empty` is set and no line waits in it. Safe on a zeroed struct. */
void spool_close(struct spool *s, bool remove_empty);

#endif
