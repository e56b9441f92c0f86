/* --shard I/N: a run that answers one of N parts of its input. The parts are contiguous, so that the ordered outputs of
 * all of them, one behind the other, are the output of the whole. */
#ifndef QUIRE_RUNTIME_SHARD_H
#define QUIRE_RUNTIME_SHARD_H

#include <stdint.h>

#include "base/status.h"

#define SHARD_MAX_COUNT 1000000

struct shard {
    int32_t number, count; /* 1 .. count */
};

/* For OPTION_CUSTOM: "I/N", to a struct shard. */
enum status shard_parse(void *target, const char *text, struct error *err);

/* The indices [*begin, *end) of the shard, of num_prompts: the parts differ by at most one prompt. */
void shard_range(const struct shard *shard, int64_t num_prompts, int64_t *begin, int64_t *end);

#endif
