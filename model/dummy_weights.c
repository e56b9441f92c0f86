/* Random weights, for measuring a model whose files are not there: model_weights_dummy. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/dummy.h"
#include "kernels/fp8.h"
#include "model/weights.h"

enum { PIECE = 1 << 15 /* random numbers that a thread makes at once */ };

struct dummy {
    struct pool *pool;
    struct model_weights *weights;
};

/* ---- data ---- */

/* Data that is made of `count` random numbers, in pieces that may be made in any order. */
struct filling {
    const struct fill_dummy_args *args;
    int64_t count;
    _Alignas(float) char values[DUMMY_VALUES * sizeof(float)]; /* what each sum stands for, of args->dtype */
};

static int64_t piece_end(const struct filling *f, int64_t piece)
{
    return f->count - piece * PIECE < PIECE ? f->count : (piece + 1) * PIECE;
}

/* Two numbers of `size` bytes from each random one. */
static inline __attribute__((always_inline)) void fill_piece(const struct filling *f, int64_t piece, int size)
{
    const char *values = f->values;
    char *out = f->args->out;
    const uint64_t seed = f->args->seed;
    for (int64_t i = piece * PIECE; i < piece_end(f, piece); i++) {
        uint32_t low, high;
        dummy_sums(dummy_bits(seed, i), &low, &high);
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

static void fill_piece_bytes(void *filling, int64_t piece, int thread)
{
    (void)thread;
    const struct filling *f = filling;
    const uint64_t seed = f->args->seed;
    const bool fp8 = f->args->format == WEIGHT_FP8;
    char *out = f->args->out;
    for (int64_t i = piece * PIECE; i < piece_end(f, piece); i++) {
        const uint64_t x = dummy_bytes(dummy_bits(seed, i), fp8);
        memcpy(out + 8 * i, &x, 8);
    }
}

static void fill(struct pool *pool, pool_body *body, struct filling *f)
{
    pool_run(pool, INT_MAX, (f->count + PIECE - 1) / PIECE, body, f);
}

static void fill_floats(const struct fill_dummy_args *args, struct pool *pool)
{
    const struct weight stored = {.format = args->format};
    const enum dtype from = weight_dtype(&stored), to = args->dtype;
    const int64_t size = dtype_size(to), last = dummy_last_sum(args->seed);
    struct filling f = {.args = args, .count = args->count / 2};
    for (int i = 0; i < DUMMY_VALUES; i++) {
        float value;
        dtype_store(&value, from, 0, dummy_float((uint32_t)i));
        dtype_store(f.values, to, i, dtype_load(&value, from, 0));
    }
    fill(pool, size == 2 ? fill_piece16 : fill_piece32, &f);
    if (args->count % 2) memcpy((char *)args->out + (args->count - 1) * size, f.values + last * size, (size_t)size);
}

void dummy_fill(const struct fill_dummy_args *args, struct pool *pool)
{
    struct filling f = {.args = args, .count = args->count / 8};
    if (args->format < WEIGHT_FP8) {
        fill_floats(args, pool);
        return;
    }
    fill(pool, fill_piece_bytes, &f);
    memset((char *)args->out + f.count * 8, DUMMY_LAST_BYTE, (size_t)(args->count % 8));
}

/* Each tensor has random numbers of its own, which depend on the seed and its index in the table. */
struct fill_dummy_args dummy_data(const struct model_weights *weights, const struct tensor *t, const struct weight *w,
                                  void *out, enum dtype dtype)
{
    const uint64_t index = (uint64_t)(t - weights->table.tensors);
    const int64_t bytes = weight_part_bytes(w, false, w->out_features).of[WEIGHT_DATA];
    return (struct fill_dummy_args){.out = out,
                                    .count = weight_is_quantized(w) ? bytes : tensor_elements(t),
                                    .seed = random_mix(weights->seed + (index + 1) * 0xd1342543de82ef95u),
                                    .format = w->format,
                                    .dtype = dtype};
}

/* ---- scales ---- */

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

/* Repeats the first `size` of the bytes to the end. */
static void repeat(char *out, int64_t bytes, int64_t size)
{
    for (int64_t done = size; done < bytes; done *= 2)
        memcpy(out + done, out, (size_t)(done < bytes - done ? done : bytes - done));
}

/* Zero points are 7 and 8. */
static void fill_scales(const struct weight *w, bool has_zeros)
{
    const struct weight_part_bytes bytes = weight_part_bytes(w, has_zeros, w->out_features);
    const struct weight_rows parts = weight_parts(w);
    char *zeros = parts.at[WEIGHT_ZEROS];
    dtype_store(parts.at[WEIGHT_SCALES], w->scale_dtype, 0, (float)(DUMMY_DEVIATION / root_mean_square(w->format)));
    repeat(parts.at[WEIGHT_SCALES], bytes.of[WEIGHT_SCALES], dtype_size(w->scale_dtype));
    for (int64_t i = 0; i < 2 && i < bytes.of[WEIGHT_ZEROS]; i++) zeros[i] = (char)(7 + i);
    repeat(zeros, bytes.of[WEIGHT_ZEROS], 2);
}

/* ---- */

/* Takes memory for the parts of a tensor's weight; none for data that a device will make. */
static void take_parts(const struct dummy *d, const struct tensor *t, struct weight *w, struct weights_memory *memory)
{
    const bool left_out = d->weights->made_by_device && t->kind == TENSOR_MATRIX;
    if (left_out) w->data = d; /* it seems to be there */
    weights_memory_take_parts(memory, w, t->scheme.has_zeros);
    if (left_out) w->data = NULL;
}

static void fill_data(const struct dummy *d, const struct tensor *t, const struct weight *w, enum dtype dtype)
{
    const struct fill_dummy_args args = dummy_data(d->weights, t, w, (void *)w->data, dtype);
    dummy_fill(&args, d->pool);
}

/* Takes the memory of the tensor, whose weight has no data yet, and fills it unless it is only counted. */
static void fill_tensor(const struct dummy *d, const struct model_spec *spec, const struct tensor *t,
                        struct weights_memory *memory)
{
    struct weight w = weight_of_tensor(t, model_weights_dtype(spec, t));
    if (!tensor_is_weight(t)) return; /* model_weights_init has set it */
    take_parts(d, t, &w, memory);
    int32_t *order = weight_is_ordered(t) ? weights_memory_take(memory, t->in_features * (int64_t)sizeof *order) : NULL;
    if (!memory->at) return;
    if (order) fill_order(order, w.in_features);
    w.input_order = order;
    if (t->scheme.is_quantized) fill_scales(&w, t->scheme.has_zeros);
    if (t->kind == TENSOR_GAIN || t->kind == TENSOR_ONES || t->kind == TENSOR_VECTOR)
        for (int64_t i = 0; i < t->out_features; i++)
            dtype_store((void *)w.data, weight_dtype(&w), i, t->kind != TENSOR_VECTOR);
    else if (w.data)
        fill_data(d, t, &w, spec->dtype);
    model_weights_set(d->weights, t, &w);
}

static void fill_all(const struct dummy *d, const struct model_spec *spec, struct weights_memory *memory)
{
    for (int32_t i = 0; i < d->weights->table.count; i++) fill_tensor(d, spec, &d->weights->table.tensors[i], memory);
}

enum status model_weights_dummy(const struct model_spec *spec, uint64_t seed, bool made_by_device,
                                struct model_weights *weights, struct error *err)
{
    struct weights_memory memory = {0};
    struct dummy d = {.weights = weights};
    enum status status = model_weights_init(spec, spec->tie_word_embeddings, weights, err);
    if (status != STATUS_OK) return status;
    weights->seed = seed;
    weights->made_by_device = made_by_device;
    fill_all(&d, spec, &memory);
    status = model_weights_allocate(weights, memory.bytes, "dummy weights of this config", err);
    if (status != STATUS_OK) {
        model_weights_close(weights);
        return status;
    }
    memory = (struct weights_memory){.at = weights->memory};
    d.pool = pool_open_allowed();
    fill_all(&d, spec, &memory);
    pool_close(d.pool);
    if (spec->tie_word_embeddings) weights->lm_head = weights->embedding;
    return STATUS_OK;
}
