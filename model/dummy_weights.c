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

static void repeat(char *out, int64_t bytes, uint64_t pattern)
{
    if (bytes > 0) memcpy(out, &pattern, (size_t)(bytes < 8 ? bytes : 8));
    for (int64_t done = 8; done < bytes; done *= 2)
        memcpy(out + done, out, (size_t)(done < bytes - done ? done : bytes - done));
}

void dummy_fill(const struct fill_dummy_args *args, struct pool *pool)
{
    struct filling f = {.args = args, .count = args->count / 8};
    if (args->pattern) {
        repeat(args->out, args->count, args->pattern);
    } else if (args->format < WEIGHT_FP8) {
        fill_floats(args, pool);
    } else {
        fill(pool, fill_piece_bytes, &f);
        memset((char *)args->out + f.count * 8, DUMMY_LAST_BYTE, (size_t)(args->count % 8));
    }
}

/* ---- parts of a weight ---- */

/* The root of the mean square of random bytes, if each is as likely as another. */
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

/* Scales that give elements the usual deviation. */
static uint64_t scale_pattern(const struct weight *w)
{
    const float scale = (float)(DUMMY_DEVIATION / root_mean_square(w->format));
    uint64_t pattern;
    for (int i = 0; i < 8 / dtype_size(w->scale_dtype); i++) dtype_store(&pattern, w->scale_dtype, i, scale);
    return pattern;
}

/* Each tensor has random numbers of its own, which depend on the seed and its index in the table. Zero points are 7 and
 * 8. */
struct fill_dummy_args dummy_part(const struct model_weights *weights, const struct tensor *t, const struct weight *w,
                                  int part, void *out)
{
    static const uint8_t zeros[8] = {7, 8, 7, 8, 7, 8, 7, 8};
    const uint64_t index = (uint64_t)(t - weights->table.tensors);
    const int64_t bytes = weight_part_bytes(w, t->scheme.has_zeros, w->out_features).of[part];
    struct fill_dummy_args args = {.out = out,
                                   .count = weight_is_quantized(w) ? bytes : tensor_elements(t),
                                   .seed = random_mix(weights->seed + (index + 1) * 0xd1342543de82ef95u),
                                   .format = w->format,
                                   .dtype = weight_is_quantized(w) ? DTYPE_FP8_E4M3 : weight_dtype(w)};
    if (part == WEIGHT_SCALES) args.pattern = scale_pattern(w);
    if (part == WEIGHT_ZEROS) memcpy(&args.pattern, zeros, sizeof zeros);
    return args;
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

static void fill_parts(const struct dummy *d, const struct tensor *t, const struct weight *w)
{
    const struct weight_rows parts = weight_parts(w);
    for (int i = 0; i < NUM_WEIGHT_PARTS; i++) {
        if (!parts.at[i]) continue;
        const struct fill_dummy_args args = dummy_part(d->weights, t, w, i, parts.at[i]);
        dummy_fill(&args, d->pool);
    }
}

/* Takes the memory of the tensor, whose weight has no data yet, and fills it unless it is only counted. */
static void fill_tensor(const struct dummy *d, const struct model_spec *spec, const struct tensor *t,
                        struct weights_memory *memory)
{
    struct weight w = weight_of_tensor(t, model_weights_dtype(spec, t));
    if (!tensor_is_weight(t)) return; /* model_weights_init has set it */
    if (t->kind == TENSOR_VECTOR) {   /* the first part of a merged one is all of it */
        if (t->first_row > 0) return;
        w.out_features = t->merged_rows;
    }
    if (!d->weights->made_by_device || t->kind != TENSOR_MATRIX)
        weights_memory_take_parts(memory, &w, t->scheme.has_zeros);
    int32_t *order = weight_is_ordered(t) ? weights_memory_take(memory, t->in_features * (int64_t)sizeof *order) : NULL;
    if (!memory->at) return;
    /* Without a convolution, or a gain, a recurrent layer would compute nothing but zeros. */
    const bool is_one = t->kind != TENSOR_VECTOR || t->role == TENSOR_CONV || t->role == TENSOR_MIX_NORM;
    const struct recurrent_spec *r = t->layer >= 0 ? &spec->layers[t->layer].recurrent : NULL;
    if (order) fill_order(order, w.in_features);
    w.input_order = order;
    if (t->kind == TENSOR_IDS)
        for (int32_t i = 0; i < t->out_features; i++) ((int32_t *)w.data)[i] = i;
    else if (t->kind == TENSOR_SLOPES)
        for (int32_t i = 0; i < t->out_features; i++) ((float *)w.data)[i] = recurrent_slope(r, i);
    else if (t->kind == TENSOR_GAIN || t->kind == TENSOR_ONES || t->kind == TENSOR_VECTOR)
        for (int64_t i = 0; i < w.out_features; i++) dtype_store((void *)w.data, weight_dtype(&w), i, is_one);
    else
        fill_parts(d, t, &w);
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
