/* How much memory of the machine this process may take. */
#ifndef QUIRE_BASE_HOST_MEMORY_H
#define QUIRE_BASE_HOST_MEMORY_H

#include <stdint.h>

#include "base/status.h"

struct host_memory {
    int64_t free_bytes;  /* what the system can give without swapping, page cache that it would drop included */
    int64_t total_bytes; /* of the machine, or the smallest limit that applies */
};

/* Reads /proc/meminfo, the limits of every control group that the process is in (cgroup.h), and RLIMIT_AS. */
enum status host_memory_read(struct host_memory *out, struct error *err);

/* Reads those files below the folder `root` instead of /: for tests. */
enum status host_memory_read_below(const char *root, struct host_memory *out, struct error *err);

/* How many of the `bytes` at `data`, which the process has mapped, are in memory now: of memory that was reserved,
 * those on pages that were touched and not swapped out; of a mapped file, those that the system has in its page cache.
 * -1 if the system does not tell. */
int64_t host_memory_resident(const void *data, int64_t bytes);

#endif
