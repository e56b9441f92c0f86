/* Brings what was written to files onto the disk, at least every ten seconds while there is something. A thread of its
 * own does it, so that the loop of steps never waits for a disk. */
#ifndef QUIRE_RUNTIME_DISK_SYNC_H
#define QUIRE_RUNTIME_DISK_SYNC_H

#include <stdint.h>

#include "base/status.h"

enum { DISK_SYNC_FILES = 2 };

struct disk_sync;

/* Watches the files of fds[DISK_SYNC_FILES], which stay the caller's; -1: no file. */
enum status disk_sync_start(const int *fds, struct disk_sync **out, struct error *err);

/* File `i` has got more, `position` bytes in all that this process wrote to it, and never fewer than before. */
void disk_sync_note(struct disk_sync *s, int i, uint64_t position);
/* The position of file `i` up to which its bytes are on the disk. */
uint64_t disk_sync_done(struct disk_sync *s, int i);
/* Fails with the sentence of what fdatasync said, once it failed: then the disk may have lost what was written. */
enum status disk_sync_check(struct disk_sync *s, struct error *err);

/* Brings the rest onto the disk, ends the thread and frees it; NULL is allowed. Fails as disk_sync_check. */
enum status disk_sync_end(struct disk_sync *s, struct error *err);

#endif
