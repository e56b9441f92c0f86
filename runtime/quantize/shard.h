/* Writing a shard of the plan: its tensors are read, quantized or copied, and written in pieces of some MiB, which the
 * threads of a pool share. Memory: a few pieces a thread. */
#ifndef QUIRE_RUNTIME_QUANTIZE_SHARD_H
#define QUIRE_RUNTIME_QUANTIZE_SHARD_H

#include "base/pool.h"
#include "runtime/progress.h"
#include "runtime/quantize/plan.h"

/* What writing needs beside the plan. */
struct shard_writer {
    const struct quantize_plan *plan;
    const char *folder; /* the output */
    struct pool *pool;  /* NULL: only the caller works */
    struct progress progress;
    uint64_t total, done, done_before; /* bytes of stored tensors: of all, of those that are written, of earlier runs */
};

/* Whether the folder has that shard, whole: files get their names when they are. */
bool shard_is_whole(const struct shard_writer *w, const struct planned_shard *shard);

/* Writes it to a file of another name, which is renamed when it is on the disk. IO: it cannot be written, or the
 * checkpoint cannot be read or was changed. CANCELLED: a signal asks for the end of the command (interrupt.h). */
enum status shard_write(struct shard_writer *w, const struct planned_shard *shard, struct error *err);

/* Removes what a killed run left of a shard. */
void shard_remove_part(const struct shard_writer *w);

#endif
