/* Random weights, for measuring a model whose files are not there: model_weights_dummy. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "base/random.h"
#include "kernels/fp8.h"
#include "model/weights.h"

enum { DUMMY_VALUES = 4 * 255 + 1, PIECE = 1 << 15 /* random numbers that a thread makes at once */ };
static const double DEVIATION = 0.02;

struct dummy {
    struct pool *pool;
    struct model_weights *weights;
    enum dtype dtype;
    uint64_t seed;
    _Alignas(float) char values[DUMMY_VALUES * sizeof(float)]; /* of dtype: what each sum of four bytes stands for */
};

/* The sums of the four bytes of each half of x: 0 to 1020, nearly normal. */
static inline void byte_sums(uint64_t x, uint32_t *low, uint32_t *high)
{
    const uint64_t pairs = (x & 0x00ff00ff00ff00ffu) + ((x >> 8) & 0x00ff00ff00ff00ffu);
    const uint64_t sums = pairs + (pairs >> 16);
    *low = (uint32_t)(sums & 0xffff);
    *high = (uint32_t)((sums >> 32) & 0xffff);
}

/* What is filled with `count` random numbers, in pieces that may be made in any order. */
struct filling {
    void *out;
    int64_t count;
    uint64_t seed;
    const void *values; /* [DUMMY_VALUES], where numbers are chosen among them */
    bool fp8;
};

static int64_t piece_end(const struct filling *f, int64_t piece)
{
    return f->count - piece * PIECE < PIECE ? f->count : (piece + 1) * PIECE;
}

static void fill(const struct dummy *d, pool_body *body, struct filling *f)
{
    pool_run(d->pool, INT_MAX, (f->count + PIECE - 1) / PIECE, body, f);
}

/* Two numbers of `size` bytes from each random one. */
static inline __attribute__((always_inline)) void fill_piece(const struct filling *f, int64_t piece, int size)
{
    const char *values = f->values;
    char *out = f->out;
    for (int64_t i = piece * PIECE; i < piece_end(f, piece); i++) {
        uint32_t low, high;
        byte_sums(random_mix(f->seed + (uint64_t)i * RANDOM_STEP), &low, &high);
        memcpy(out + 2 * i * size, values + low * (uint32_t)size, (size_t)size);
        memcpy(out + (2 * i + 1) * size, values + high * (uint32_t)size, (size_t)size);
    }
}

static void fill_piece16(void *filling, int64_t piece, int thread)
{
    (void)thread;
    fill_piece(filling, piece, 2);
}

static void fill_piece32(void *filling, int64_t piece, int thread)
{
    (void)thread;
    fill_piece(filling, piece, 4);
}

/* `count` numbers of d->dtype, two at a time. */
static void fill_random(const struct dummy *d, void *out, int64_t count, uint64_t seed)
{
    const int size = dtype_size(d->dtype);
    struct filling f = {.out = out, .count = count / 2, .seed = seed, .values = d->values};
    fill(d, size == 2 ? fill_piece16 : fill_piece32, &f);
    const uint64_t last = random_mix(seed) % DUMMY_VALUES;
    if (count % 2) memcpy((char *)out + (count - 1) * size, d->values + last * (uint64_t)size, (size_t)size);
}

static void prepare_values(struct dummy *d)
{
    /* Four bytes, each uniform on 0..255: mean 510, variance 4 * (256^2 - 1) / 12 = 147.8^2. */
    const float deviation = (float)DEVIATION / 147.801f;
    for (int i = 0; i < DUMMY_VALUES; i++) dtype_store(d->values, d->dtype, i, (float)(i - 510) * deviation);
}

/* ---- quantized matrices ---- */

static void fill_piece_bytes(void *filling, int64_t piece, int thread)
{
    (void)thread;
    const struct filling *f = filling;
    const uint64_t ones = 0x0101010101010101u;
    uint64_t *out = f->out;
    for (int64_t i = piece * PIECE; i < piece_end(f, piece); i++) {
        const uint64_t x = random_mix(f->seed + (uint64_t)i * RANDOM_STEP);
        const uint64_t nan = (((x & 0x7f * ones) + ones) >> 7) & ones;
        out[i] = f->fp8 ? x ^ nan : x;
    }
}

/* Random bytes; none is a NaN of e4m3, which has all bits but the sign set. */
static void fill_random_bytes(const struct dummy *d, uint8_t *out, int64_t bytes, uint64_t seed, bool fp8)
{
    struct filling f = {.out = out, .count = bytes / 8, .seed = seed, .fp8 = fp8};
    fill(d, fill_piece_bytes, &f);
    memset(out + bytes / 8 * 8, 0x35, (size_t)(bytes % 8)); /* fewer than 8: any number will do */
}

/* The root of the mean square of what fill_random_bytes makes, if each byte is as likely as another. */
static double root_mean_square(enum weight_format format)
{
    double sum = 0;
    for (int i = 0; i < 256; i++) {
        const uint8_t byte = format == WEIGHT_FP8 && (i & 0x7f) == 0x7f ? (uint8_t)(i ^ 1) : (uint8_t)i;
        const double value = format == WEIGHT_FP8     ? dtype_load(&byte, DTYPE_FP8_E4M3, 0)
                             : format == WEIGHT_INT8  ? (int8_t)byte
                             : format == WEIGHT_MXFP4 ? e2m1_to_float(byte & 15)
                                                      : (byte & 15) - 7.5;
        sum += value * value;
    }
    return sqrt(sum / 256);
}

/* A permutation that depends on n only, so that matrices with the same input share it, as those of files do. */
static void fill_order(int32_t *order, int64_t n)
{
    struct random random = {(uint64_t)n};
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = random_between(&random, 0, i);
        order[i] = order[j], order[j] = (int32_t)i;
    }
}

/* Zero points are 7 and 8. */
static void fill_quantized(const struct dummy *d, const struct weight *w, bool has_zeros, uint64_t seed)
{
    const struct weight_part_bytes bytes = weight_part_bytes(w, has_zeros, w->out_features);
    const struct weight_rows parts = weight_parts(w);
    char *scales = parts.at[WEIGHT_SCALES];
    const int size = dtype_size(w->scale_dtype);
    fill_random_bytes(d, parts.at[WEIGHT_DATA], bytes.of[WEIGHT_DATA], seed, w->format == WEIGHT_FP8);
    dtype_store(scales, w->scale_dtype, 0, (float)(DEVIATION / root_mean_square(w->format)));
    for (int64_t i = size; i < bytes.of[WEIGHT_SCALES]; i += size) memcpy(scales + i, scales, (size_t)size);
    for (int64_t i = 0; i < bytes.of[WEIGHT_ZEROS]; i++)
        ((uint8_t *)parts.at[WEIGHT_ZEROS])[i] = (uint8_t)(7 + (i & 1));
}

/* ---- */

/* Takes the memory of the tensor, whose weight has no data yet, and fills it unless it is only counted. Each tensor has
 * random numbers of its own, which depend on the seed and its index in the table. */
static void fill_tensor(const struct dummy *d, const struct model_spec *spec, int32_t index,
                        struct weights_memory *memory)
{
    const struct tensor *t = &d->weights->table.tensors[index];
    struct weight w = weight_of_tensor(t, model_weights_dtype(spec, t));
    const uint64_t seed = random_mix(d->seed + (uint64_t)(index + 1) * 0xd1342543de82ef95u);
    if (!tensor_is_weight(t)) return; /* model_weights_init has set it */
    weights_memory_take_parts(memory, &w, t->scheme.has_zeros);
    int32_t *order = weight_is_ordered(t) ? weights_memory_take(memory, t->in_features * (int64_t)sizeof *order) : NULL;
    if (!memory->at) return;
    if (order) fill_order(order, w.in_features);
    w.input_order = order;
    if (t->scheme.is_quantized)
        fill_quantized(d, &w, t->scheme.has_zeros, seed);
    else if (t->kind == TENSOR_GAIN || t->kind == TENSOR_ONES || t->kind == TENSOR_VECTOR)
        for (int64_t i = 0; i < t->out_features; i++)
            dtype_store((void *)w.data, weight_dtype(&w), i, t->kind != TENSOR_VECTOR);
    else
        fill_random(d, (void *)w.data, tensor_elements(t), seed);
    model_weights_set(d->weights, t, &w);
}

enum status model_weights_dummy(const struct model_spec *spec, uint64_t seed, struct model_weights *weights,
                                struct error *err)
{
    struct weights_memory memory = {0};
    enum status status = model_weights_init(spec, spec->tie_word_embeddings, weights, err);
    if (status != STATUS_OK) return status;
    struct dummy d = {.weights = weights, .dtype = spec->dtype, .seed = seed};
    prepare_values(&d);
    for (int32_t i = 0; i < weights->table.count; i++) fill_tensor(&d, spec, i, &memory);
    status = model_weights_allocate(weights, memory.bytes, "dummy weights of this config", err);
    if (status != STATUS_OK) {
        model_weights_close(weights);
        return status;
    }
    memory = (struct weights_memory){.at = weights->memory};
    d.pool = pool_open_allowed();
    for (int32_t i = 0; i < weights->table.count; i++) fill_tensor(&d, spec, i, &memory);
    pool_close(d.pool);
    if (spec->tie_word_embeddings) weights->lm_head = weights->embedding;
    return STATUS_OK;
}
