#include "model/checkpoint/check_finite.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/plural.h"
#include "base/pool.h"

enum { CHUNK = 1 << 16 }; /* elements: they stay in a processor's cache for the second look */

struct tally {
    int64_t nan, infinite;
};

/* Without the sign, the bits of floats are ordered as integers; infinity and NaN are the largest. These loops are all
 * that sound weights cost, and compilers vectorize them. */
static int32_t largest_of_8_bits(const uint8_t *bits, int64_t count)
{
    uint8_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t magnitude = bits[i] & 0x7f;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

static int32_t largest_of_16_bits(const uint16_t *bits, int64_t count)
{
    int16_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        const int16_t magnitude = (int16_t)(bits[i] & 0x7fff);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

static int32_t largest_of_32_bits(const uint32_t *bits, int64_t count)
{
    int32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t magnitude = (int32_t)(bits[i] & 0x7fffffff);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/* Whether there may be a NaN or an infinity. */
static bool is_suspicious(const void *data, enum dtype dtype, int64_t count)
{
    switch (dtype) {
    case DTYPE_FLOAT32:
        return largest_of_32_bits(data, count) >= 0x7f800000;
    case DTYPE_FLOAT16:
        return largest_of_16_bits(data, count) >= 0x7c00;
    case DTYPE_BFLOAT16:
        return largest_of_16_bits(data, count) >= 0x7f80;
    default: /* e4m3, which has no infinity */
        return largest_of_8_bits(data, count) >= 0x7f;
    }
}

static struct tally count_chunk(const void *data, enum dtype dtype, int64_t count)
{
    struct tally tally = {0};
    if (!is_suspicious(data, dtype, count)) return tally;
    for (int64_t i = 0; i < count; i++) {
        const float value = dtype_load(data, dtype, i);
        tally.nan += isnan(value) != 0;
        tally.infinite += isinf(value) != 0;
    }
    return tally;
}

struct tensor_tally {
    const char *data;
    enum dtype dtype;
    int64_t count;
    atomic_llong nan, infinite;
};

static void add_chunk(void *tally, int64_t index, int thread)
{
    (void)thread;
    struct tensor_tally *t = tally;
    const int64_t first = index * CHUNK, length = t->count - first < CHUNK ? t->count - first : CHUNK;
    const struct tally chunk = count_chunk(t->data + first * dtype_size(t->dtype), t->dtype, length);
    if (chunk.nan) atomic_fetch_add(&t->nan, chunk.nan);
    if (chunk.infinite) atomic_fetch_add(&t->infinite, chunk.infinite);
}

static struct tally count_tensor(struct pool *pool, const void *data, enum dtype dtype, int64_t count)
{
    struct tensor_tally tally = {.data = data, .dtype = dtype, .count = count};
    pool_run(pool, INT_MAX, (count + CHUNK - 1) / CHUNK, add_chunk, &tally);
    return (struct tally){tally.nan, tally.infinite};
}

void tensor_file_check_finite(const struct tensor_file *file, const struct log *log)
{
    if (!file || !log || log->level < LOG_INFO) return;
    const double started = clock_seconds();
    const int64_t num_tensors = tensor_file_count(file);
    int64_t damaged = 0;
    struct pool *pool = pool_open_allowed();
    for (int64_t i = 0; i < num_tensors; i++) {
        const struct stored_tensor *t = tensor_file_at(file, i);
        const enum dtype dtype = t->type->dtype;
        if (!t->type->has_dtype || dtype == DTYPE_FP8_E5M2) continue;
        const int64_t count = (int64_t)(t->bytes / (uint64_t)dtype_size(dtype));
        const struct tally found = count_tensor(pool, t->data, dtype, count);
        if (found.nan == 0 && found.infinite == 0) continue;
        damaged++;
        log_write(log, LOG_WARNING,
                  "%s: tensor \"%s\" is damaged: it holds %lld NaN and %lld infinite values among %lld", t->path,
                  show_string(t->name).text, (long long)found.nan, (long long)found.infinite, (long long)count);
    }
    log_write(log, LOG_INFO, "looked for NaN and infinity in %lld tensor%s in %.2f s; damaged: %lld",
              (long long)num_tensors, plural(num_tensors), clock_seconds() - started, (long long)damaged);
    pool_close(pool);
}
