/* How fast this machine reads its memory: what a kernel that does nothing but read can reach. */
#ifndef QUIRE_KERNELS_HOST_READ_H
#define QUIRE_KERNELS_HOST_READ_H

#include <stdint.h>

#include "base/status.h"

/* Reads `count` pieces one after the other, each with all threads (0: as many as are allowed) and the widest loads of
 * this processor, and gets the seconds [count] of each. The pieces lie in a buffer of buffer_bytes, which they fill and
 * begin again; it is a multiple of piece_bytes, and should be much larger than the caches. */
enum status host_read_time(int threads, int64_t buffer_bytes, int64_t piece_bytes, double *seconds, int count,
                           struct error *err);

#endif
