#include "runtime/generate/shard.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

enum status shard_parse(void *target, const char *text, struct error *err)
{
    struct shard *shard = target;
    char *slash, *end = NULL;
    errno = 0;
    const long number = strtol(text, &slash, 10);
    const long count = *slash == '/' && slash[1] >= '0' && slash[1] <= '9' ? strtol(slash + 1, &end, 10) : 0;
    const bool good = *text >= '0' && *text <= '9' && end && !*end && errno == 0;
    if (!good || count > SHARD_MAX_COUNT || number < 1 || number > count)
        return error_set(err, STATUS_INVALID, "expected I/N with I from 1 to N, as in 1/4, got '%s'", text);
    *shard = (struct shard){(int32_t)number, (int32_t)count};
    return STATUS_OK;
}

/* floor(num_prompts * part / count) without overflow. */
static int64_t part_of(int64_t num_prompts, int64_t part, int64_t count)
{
    return num_prompts / count * part + num_prompts % count * part / count;
}

void shard_range(const struct shard *shard, int64_t num_prompts, int64_t *begin, int64_t *end)
{
    *begin = part_of(num_prompts, shard->number - 1, shard->count);
    *end = part_of(num_prompts, shard->number, shard->count);
}
