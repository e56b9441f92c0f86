/* Quantizing rows of floats, on the host and on a GPU: against the nearest codes of every scale and, for INT4, against
 * a search of all zero points and many scales, in float64. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/fp8.h"
#include "model/checkpoint/quantize.h"
#include "tests/support/must.h"

enum { MAX_ELEMENTS = 1 << 16 };

/* A matrix and what quantize_rows makes of it. Poisoned first, so that what is not written shows. */
struct sample {
    float x[MAX_ELEMENTS]; /* as the quantizer reads them */
    float scales[MAX_ELEMENTS];
    uint8_t data[MAX_ELEMENTS], zeros[MAX_ELEMENTS], rows[4 * MAX_ELEMENTS + 1];
    struct weight weight;
};

static struct sample sample;

/* Where rows are quantized: a GPU, or the host if this is NULL. What the GPU reads and writes is pinned. */
static struct backend *gpu;
static struct sample *pinned;

static double uniform(void)
{
    return rand() / (RAND_MAX + 1.0);
}

static double normal(void)
{
    return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

/* Rows of different sizes, with outliers in some, and not around zero in others. */
static double element(int64_t row)
{
    const double size = pow(10, (double)(row % 5) - 3), outlier = uniform() < 0.01 ? 8 : 1;
    return size * (normal() * (row % 3 == 0 ? outlier : 1) + (row % 4 == 1 ? 2 : 0));
}

static void quantize_there(const struct weight_quantize_args *args)
{
    struct weight_quantize_args there = *args;
    struct error err;
    if (!gpu) {
        quantize_rows(args);
        return;
    }
    memcpy(pinned->rows, args->rows, (size_t)(args->num_rows * args->in_features * dtype_size(args->dtype)));
    memcpy(pinned->data, sample.data, sizeof sample.data);
    memcpy(pinned->scales, sample.scales, sizeof sample.scales);
    memcpy(pinned->zeros, sample.zeros, sizeof sample.zeros);
    there.rows = pinned->rows, there.data = pinned->data, there.scales = pinned->scales;
    if (there.zeros) there.zeros = pinned->zeros;
    gpu->weight_quantize(gpu, &there, NULL);
    must(gpu->stream_synchronize(gpu, NULL, &err), &err);
    memcpy(sample.data, pinned->data, sizeof sample.data);
    memcpy(sample.scales, pinned->scales, sizeof sample.scales);
    memcpy(sample.zeros, pinned->zeros, sizeof sample.zeros);
}

static const struct weight *quantize_with(bool zeros, enum dtype dtype, int64_t num_rows, int64_t in_features,
                                          enum weight_format format, int64_t group_size, enum dtype scale_dtype)
{
    uint8_t *rows = sample.rows + (in_features % 2); /* rows at odd addresses too */
    memset(sample.data, 0xa5, sizeof sample.data);
    memset(sample.scales, 0xff, sizeof sample.scales); /* NaN */
    memset(sample.zeros, 0xa5, sizeof sample.zeros);
    assert_true(num_rows * in_features <= MAX_ELEMENTS);
    for (int64_t i = 0; i < num_rows * in_features; i++) {
        uint8_t bytes[4] __attribute__((aligned(4)));
        dtype_store(bytes, dtype, 0, sample.x[i]);
        memcpy(rows + i * dtype_size(dtype), bytes, (size_t)dtype_size(dtype));
        sample.x[i] = dtype_load(bytes, dtype, 0);
    }
    quantize_there(&(struct weight_quantize_args){.rows = rows,
                                                  .dtype = dtype,
                                                  .num_rows = num_rows,
                                                  .in_features = in_features,
                                                  .format = format,
                                                  .group_size = group_size,
                                                  .data = sample.data,
                                                  .scales = sample.scales,
                                                  .scale_dtype = scale_dtype,
                                                  .zeros = zeros ? sample.zeros : NULL});
    sample.weight = (struct weight){.format = format,
                                    .out_features = num_rows,
                                    .in_features = in_features,
                                    .data = sample.data,
                                    .scales = sample.scales,
                                    .scale_dtype = format == WEIGHT_INT4 ? scale_dtype : DTYPE_FLOAT32,
                                    .scale_rows = 1,
                                    .group_size = format == WEIGHT_INT4 ? group_size : in_features,
                                    .zeros = zeros ? sample.zeros : NULL};
    return &sample.weight;
}

static const struct weight *quantize(enum dtype dtype, int64_t num_rows, int64_t in_features, enum weight_format format,
                                     int64_t group_size, enum dtype scale_dtype)
{
    return quantize_with(format == WEIGHT_INT4, dtype, num_rows, in_features, format, group_size, scale_dtype);
}

static void fill(int64_t num_rows, int64_t in_features)
{
    for (int64_t i = 0; i < num_rows * in_features; i++) sample.x[i] = (float)element(i / in_features);
}

/* The distance of x to the nearest of all values that a code of the format stands for. */
static double distance_to_nearest(double x, enum weight_format format, double scale, int zero)
{
    double least = INFINITY;
    for (int code = 0; code < (format == WEIGHT_INT4 ? 16 : 256); code++) {
        const double value = format == WEIGHT_FP8    ? fp8_e4m3_to_float((uint8_t)code)
                             : format == WEIGHT_INT8 ? (int8_t)code
                                                     : code - zero;
        if (fabs(x - scale * value) < least) least = fabs(x - scale * value);
    }
    return least;
}

/* Every element got the nearest code, and the scales are as the header says. */
static void check_codes(const struct weight *w)
{
    const int64_t groups = weight_groups(w);
    for (int64_t o = 0; o < w->out_features; o++)
        for (int64_t i = 0; i < w->in_features; i++) {
            const int64_t g = o * groups + i / w->group_size;
            const double x = sample.x[o * w->in_features + i], scale = dtype_load(w->scales, w->scale_dtype, g);
            const double least = distance_to_nearest(x, w->format, scale, w->zeros ? w->zeros[g] : 8);
            const double distance = fabs(x - weight_element(w, o, i));
            if (!(distance <= least + 1e-6 * (fabs(x) + scale)))
                fail_msg("row %d, feature %d: %g is off by %g instead of %g", (int)o, (int)i, x, distance, least);
        }
}

static float rounded(float scale, enum dtype dtype)
{
    float stored; /* of any dtype */
    dtype_store(&stored, dtype, 0, dtype == DTYPE_FLOAT16 ? fmaxf(scale, 0x1p-14f) : scale);
    return dtype_load(&stored, dtype, 0);
}

static void test_fp8_and_int8(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 7, 128, 1000, 2500};
    for (int t = 0; t < 3 * 2 * 5; t++) {
        const enum dtype dtype = (const enum dtype[]){DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16}[t % 3];
        const enum weight_format format = t / 3 % 2 ? WEIGHT_INT8 : WEIGHT_FP8;
        const int64_t in_features = sizes[t / 6], num_rows = 20;
        fill(num_rows, in_features);
        const enum dtype scale_dtype = format == WEIGHT_INT8 ? dtype : DTYPE_FLOAT32;
        const struct weight *w = quantize(dtype, num_rows, in_features, format, 0, scale_dtype);
        check_codes(w);
        for (int64_t o = 0; o < num_rows; o++) {
            float largest = 0;
            for (int64_t i = 0; i < in_features; i++) largest = fmaxf(largest, fabsf(sample.x[o * in_features + i]));
            const float expected = rounded(largest / (format == WEIGHT_FP8 ? 448 : 127), scale_dtype);
            assert_true(((const float *)w->scales)[o] == expected);
        }
        assert_int_equal(sample.data[num_rows * in_features], 0xa5);
    }
}

/* Every float16 is rounded to the e4m3 value that kernels/fp8.h finds, and every bfloat16. */
static void test_all_halves(void **state)
{
    (void)state;
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
        for (int half = 0; half < 1 << 15; half += 2) {
            const float x = is_bf16 ? bf16_to_float((uint16_t)half) : fp16_to_float((uint16_t)half);
            if (!(x <= 448)) break;
            sample.x[0] = 448;
            for (int i = 0; i < 2; i++) {
                sample.x[1 + 2 * i] =
                    is_bf16 ? bf16_to_float((uint16_t)(half + i)) : fp16_to_float((uint16_t)(half + i));
                sample.x[2 + 2 * i] = -sample.x[1 + 2 * i];
            }
            if (!(sample.x[3] <= 448)) break;
            quantize(is_bf16 ? DTYPE_BFLOAT16 : DTYPE_FLOAT16, 1, 5, WEIGHT_FP8, 0, DTYPE_FLOAT32);
            assert_true(sample.scales[0] == 1);
            for (int i = 0; i < 5; i++) assert_int_equal(sample.data[i], float_to_fp8(sample.x[i], true));
        }
}

static double group_error(const float *x, int64_t count, double scale, int zero)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const double code = fmin(fmax(nearbyint(x[i] / scale + zero), 0), 15), d = x[i] - scale * (code - zero);
        sum += d * d;
    }
    return sum;
}

/* The least squared error of a group: every zero point, scales in steps of a hundredth of the whole range's. */
static double best_error(const float *x, int64_t count)
{
    double low = 0, high = 0, least = INFINITY;
    for (int64_t i = 0; i < count; i++) {
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    for (int zero = 0; zero < 16; zero++)
        for (int percent = 30; percent <= 115; percent++)
            least = fmin(least, group_error(x, count, (high - low) / 15 * percent / 100, zero));
    return least;
}

/* All elements have the nearest code; and the squared error is near the least one. */
static void test_int4(void **state)
{
    (void)state;
    static const int64_t groups[] = {256, 24, 32, 48, 64, 128};
    static const enum dtype dtypes[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    for (int t = 0; t < 6 * 3; t++) {
        const int64_t size = groups[t / 3], num_rows = 20, in_features = 3 * size;
        fill(num_rows, in_features);
        const struct weight *w =
            quantize(dtypes[t % 3], num_rows, in_features, WEIGHT_INT4, size, dtypes[(t + t / 3) % 3]);
        double relative = 0;
        check_codes(w);
        for (int64_t g = 0; g < 3 * num_rows; g++) {
            const float *x = sample.x + g * size;
            double error = 0;
            for (int64_t i = 0; i < size; i++) {
                const double d = x[i] - weight_element(w, g / 3, g % 3 * size + i);
                error += d * d;
            }
            assert_true(w->zeros[g] <= 15);
            relative += error / best_error(x, size) / (double)(3 * num_rows);
        }
        print_message("groups of %d: %.4f times the least squared error\n", (int)size, relative);
        if (!(relative < (size >= 64 ? 1.05 : 1.12))) fail_msg("groups of %d: %g", (int)size, relative);
        assert_int_equal(sample.data[num_rows * in_features / 2], 0xa5);
        assert_int_equal(sample.zeros[3 * num_rows], 0xa5);
    }
}

/* Without zero points. compressed-tensors' scale is the largest magnitude / 7.5: no group of ours is worse by more than
 * the scale's rounding, and all together are better. */
static void test_int4_symmetric(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    for (int t = 0; t < 3 * 3; t++) {
        const int64_t size = 32 << t / 3, num_rows = 20, in_features = 3 * size;
        double relative = 0, least = 0;
        fill(num_rows, in_features);
        const struct weight *w =
            quantize_with(false, dtypes[t % 3], num_rows, in_features, WEIGHT_INT4, size, dtypes[t % 3]);
        check_codes(w);
        for (int64_t g = 0; g < 3 * num_rows; g++) {
            const float *x = sample.x + g * size;
            double error = 0, best = INFINITY;
            float largest = 0;
            for (int64_t i = 0; i < size; i++) {
                const double d = x[i] - weight_element(w, g / 3, g % 3 * size + i);
                error += d * d;
                largest = fmaxf(largest, fabsf(x[i]));
            }
            for (int percent = 30; percent <= 115; percent++)
                best = fmin(best, group_error(x, size, largest / 7.5 * percent / 100, 8));
            const double theirs = group_error(x, size, rounded(largest / 7.5f, w->scale_dtype), 8);
            if (!(error < 1.02 * theirs)) fail_msg("group %d: %g, theirs %g", (int)g, error, theirs);
            relative += error / theirs / (double)(3 * num_rows);
            least += error / best / (double)(3 * num_rows);
        }
        print_message("groups of %d: %.4f times compressed-tensors' squared error, %.4f times the least\n", (int)size,
                      relative, least);
        if (!(relative < 0.95 && least < 1.12)) fail_msg("groups of %d: %g, %g", (int)size, relative, least);
        assert_int_equal(sample.zeros[0], 0xa5);
        assert_int_equal(sample.data[num_rows * in_features / 2], 0xa5);
    }
}

/* Elements that are multiples of a scale, -5 to 10 of them, come back as they are. */
static void test_int4_exact(void **state)
{
    (void)state;
    for (int64_t i = 0; i < 64; i++) sample.x[i] = 0.25f * (float)(i % 16 - 5);
    const struct weight *w = quantize(DTYPE_BFLOAT16, 1, 64, WEIGHT_INT4, 64, DTYPE_BFLOAT16);
    assert_int_equal(w->zeros[0], 5);
    for (int64_t i = 0; i < 64; i++) assert_true(weight_element(w, 0, i) == sample.x[i]);
    for (int64_t i = 0; i < 64; i++) sample.x[i] = 0.25f * (float)(i % 16 - 8);
    w = quantize_with(false, DTYPE_BFLOAT16, 1, 64, WEIGHT_INT4, 64, DTYPE_BFLOAT16);
    for (int64_t i = 0; i < 64; i++) assert_true(weight_element(w, 0, i) == sample.x[i]);
}

static void expect_row(enum dtype dtype, enum weight_format format, enum dtype scale_dtype, float scale)
{
    const struct weight *w = quantize(dtype, 3, 32, format, 32, scale_dtype);
    const float found = dtype_load(w->scales, scale_dtype, 1);
    if (!(isnan(scale) ? isnan(found) : found == scale)) fail_msg("the scale is %g, not %g", found, scale);
    for (int64_t i = 0; i < 32; i++) {
        const float x = sample.x[32 + i], element = weight_element(w, 1, i);
        if (!(isnan(scale) ? isnan(element) : fabsf(element - x) <= 2.5e-38f)) fail_msg("%g becomes %g", x, element);
        assert_true(isfinite(weight_element(w, 0, i)) && isfinite(weight_element(w, 2, i)));
    }
}

/* NaN and infinities make the scale NaN, in any place; zeros and elements near the smallest get 1. Neighbours are not
 * touched. */
static void test_odd_rows(void **state)
{
    (void)state;
    const float odd[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int t = 0; t < 3 * 5; t++) {
        const enum dtype dtypes[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16}, dtype = dtypes[t % 3];
        const enum weight_format format = t / 3 < 2 ? WEIGHT_FP8 + t / 3 : WEIGHT_INT4;
        const enum dtype scales = t / 3 < 2 ? DTYPE_FLOAT32 : dtypes[t / 3 - 2];
        for (int i = 0; i < 4 * 32; i++) {
            fill(3, 32);
            sample.x[32 + i / 4] = odd[i % 4];
            expect_row(dtype, format, scales, NAN);
        }
        fill(3, 32);
        for (int i = 0; i < 32; i++) sample.x[32 + i] = 0;
        expect_row(dtype, format, scales, 1);
        for (int i = 0; i < 32; i++) sample.x[32 + i] = i % 2 ? 1e-40f : -0.0f;
        expect_row(dtype, format, scales, 1);
    }
}

/* The largest and the smallest elements whose scales are normal numbers keep their relative precision. */
static void test_extremes(void **state)
{
    (void)state;
    for (int t = 0; t < 2 * 3; t++) {
        const enum weight_format format = WEIGHT_FP8 + t / 2;
        const double size = t % 2 ? 3.0e38 : 1e-34;
        for (int i = 0; i < 64; i++) sample.x[i] = (float)(size * (i - 31.5) / 31.5);
        const struct weight *w = quantize(DTYPE_FLOAT32, 1, 64, format, 64, DTYPE_FLOAT32);
        for (int i = 0; i < 64; i++) assert_true(fabs(weight_element(w, 0, i) - sample.x[i]) < 0.07 * size);
    }
    /* float16 has no smaller normal number than 2^-14, and no larger one than 65504 */
    for (int i = 0; i < 32; i++) sample.x[i] = 1e-6f * (float)i;
    const struct weight *w = quantize(DTYPE_FLOAT32, 1, 32, WEIGHT_INT4, 32, DTYPE_FLOAT16);
    assert_true(dtype_load(w->scales, DTYPE_FLOAT16, 0) == 0x1p-14f);
    for (int i = 0; i < 32; i++) assert_true(fabsf(weight_element(w, 0, i) - sample.x[i]) <= 0x1p-15f);
    for (int i = 0; i < 32; i++) sample.x[i] = 1e30f * (float)i;
    assert_true(dtype_load(quantize(DTYPE_FLOAT32, 1, 32, WEIGHT_INT4, 32, DTYPE_FLOAT16)->scales, DTYPE_FLOAT16, 0) ==
                65504);
}

/* Rows longer than the GPU keeps, at any number of elements. */
static void test_long_rows(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        const int64_t in_features = t < 2 ? 28672 : 28671;
        fill(2, in_features);
        check_codes(quantize(t % 2 ? DTYPE_FLOAT32 : DTYPE_BFLOAT16, 2, in_features, t % 2 ? WEIGHT_FP8 : WEIGHT_INT8,
                             0, DTYPE_FLOAT32));
    }
}

static int open_gpu(void **state)
{
    (void)state;
    struct error err;
    void *memory;
    if (backend_open("cuda", 0, &gpu, &err) != STATUS_OK) return 0;
    must(gpu->memory_alloc(gpu, MEMORY_HOST_PINNED, sizeof *pinned, &memory, &err), &err);
    pinned = memory;
    return 0;
}

static int close_gpu(void **state)
{
    (void)state;
    if (!gpu) return 0;
    gpu->memory_free(gpu, MEMORY_HOST_PINNED, pinned, sizeof *pinned);
    gpu->destroy(gpu);
    return 0;
}

/* All tests again. */
static void test_on_gpu(void **state)
{
    if (!gpu) {
        print_message("skipped: no CUDA device\n");
        skip();
    }
    test_fp8_and_int8(state);
    test_all_halves(state);
    test_int4(state);
    test_int4_symmetric(state);
    test_int4_exact(state);
    test_odd_rows(state);
    test_extremes(state);
    test_long_rows(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp8_and_int8),
        cmocka_unit_test(test_all_halves),
        cmocka_unit_test(test_int4),
        cmocka_unit_test(test_int4_symmetric),
        cmocka_unit_test(test_int4_exact),
        cmocka_unit_test(test_odd_rows),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test_setup_teardown(test_on_gpu, open_gpu, close_gpu),
    };
    srand(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
