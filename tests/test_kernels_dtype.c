/* Conversions between element types, through dtype.h and through a cache of every type. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/dtype.h"
#include "tests/support/kernel_test.h"

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static void decodes_every_16_bit_value(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float half = fp16_to_float((uint16_t)bits), brain = bf16_to_float((uint16_t)bits);
        const double half_is = reference_decode(DTYPE_FLOAT16, bits);
        const double brain_is = reference_decode(DTYPE_BFLOAT16, bits);
        assert_true(isnan(half_is) ? isnan(half) : (double)half == half_is);
        assert_true(isnan(brain_is) ? isnan(brain) : (double)brain == brain_is);
        if (!isnan(half)) assert_int_equal(float_to_fp16(half), bits);
        if (!isnan(brain)) assert_int_equal(float_to_bf16(brain), bits);
        assert_true(isnan(half) ? isnan(fp16_to_float(float_to_fp16(half))) : true);
        assert_true(isnan(brain) ? isnan(bf16_to_float(float_to_bf16(brain))) : true);
    }
}

static float any_float(struct random *random)
{
    float f;
    uint32_t bits = (uint32_t)random_bits(random);
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Random values over all exponents, and values around the middle between two neighbours. */
static void rounds_to_nearest_even(void **state)
{
    struct kernel_test *test = *state;
    for (int i = 0; i < 20000; i++) {
        float f = any_float(&test->random);
        if (i % 2 == 0) { /* a tie, or the float next to it */
            f = (fp16_to_float((uint16_t)(i & 0x7bfe)) + fp16_to_float((uint16_t)((i & 0x7bfe) + 1))) / 2;
            f = i % 3 == 0 ? nextafterf(f, 1e9f) : i % 3 == 1 ? nextafterf(f, 0) : f;
        }
        if (!isfinite(f)) continue;
        if (fabsf(f) <= 65504) assert_int_equal(float_to_fp16(f), reference_encode(DTYPE_FLOAT16, f));
        if (fabsf(f) <= 3.3e38f) assert_int_equal(float_to_bf16(f), reference_encode(DTYPE_BFLOAT16, f));
    }
    assert_int_equal(float_to_fp16(65520), 0x7c00); /* the tie above the largest goes to infinity */
    assert_int_equal(float_to_fp16(65519), 0x7bff);
    assert_int_equal(float_to_fp16(-INFINITY), 0xfc00);
    assert_int_equal(float_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(bits_of(fp16_to_float(0x8000)), 0x80000000u);
}

static void knows_its_names(void **state)
{
    (void)state;
    enum dtype dtype;
    for (enum dtype d = DTYPE_FLOAT32; d <= DTYPE_FP8_E5M2; d++) {
        assert_int_equal(dtype_parse(dtype_name(d), &dtype), 0);
        assert_int_equal(dtype, d);
    }
    assert_int_equal(dtype_parse("half", &dtype), 0);
    assert_int_equal(dtype, DTYPE_FLOAT16);
    assert_int_equal(dtype_parse("fp8", &dtype), 0);
    assert_int_equal(dtype, DTYPE_FP8_E4M3);
    assert_int_equal(dtype_parse("int8", &dtype), -1);
    assert_string_equal(dtype_name(DTYPE_E8M0), "e8m0");
    assert_int_equal(dtype_parse("e8m0", &dtype), -1);
}

/* Each byte, and numbers between. */
static void reads_and_writes_e8m0(void **state)
{
    (void)state;
    for (int i = 0; i < 256; i++) {
        const uint8_t byte = (uint8_t)i;
        uint8_t stored = 0x55;
        const float value = dtype_load(&byte, DTYPE_E8M0, 0);
        if (i == 255)
            assert_true(isnan(value));
        else
            assert_true(value == ldexp(1, i - 127) && value == reference_decode(DTYPE_E8M0, byte));
        dtype_store(&stored, DTYPE_E8M0, 0, value);
        assert_int_equal(stored, i);
        for (int j = 0; j < 8 && i > 0 && i < 254; j++) {
            dtype_store(&stored, DTYPE_E8M0, 0, value * (1 + (float)j / 8));
            assert_int_equal(stored, reference_encode(DTYPE_E8M0, value * (1 + (double)j / 8)));
        }
    }
}

static void weighs_weights(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    for (int i = 0; i < 3; i++) {
        const struct weight w = {
            .format = weight_format_of(types[i]), .out_features = 3, .in_features = (int64_t)1 << 31};
        assert_int_equal(weight_dtype(&w), types[i]);
        assert_true(weight_bytes(&w) == 3 * ((int64_t)1 << 31) * dtype_size(types[i]));
    }
}

/* Stores one value per token through reshape_and_cache (one head of 16) and compares the cache's bits. */
static void check_stored(const struct test_backend *tb, enum dtype dtype, enum dtype cache, const float *values,
                         int32_t count)
{
    enum { HEAD = 16, BLOCK = 16 };
    const int32_t blocks = (count + BLOCK - 1) / BLOCK;
    struct tensor in = tensor_poison(tb->b, dtype, (int64_t)count * HEAD);
    struct tensor k = tensor_poison(tb->b, cache, (int64_t)blocks * HEAD * BLOCK);
    struct tensor v = tensor_poison(tb->b, cache, (int64_t)blocks * HEAD * BLOCK);
    int64_t *slots = malloc(sizeof *slots * (size_t)count);
    for (int32_t t = 0; t < count; t++) {
        slots[t] = t;
        for (int d = 0; d < HEAD; d++) tensor_set(&in, (int64_t)t * HEAD + d, values[t]);
    }
    tensor_upload(&in);
    struct tensor slot_mapping = tensor_bytes(tb->b, slots, (int64_t)sizeof *slots * count);
    const float ones[2] = {1, 1};
    struct tensor scales = tensor_bytes(tb->b, ones, sizeof ones);
    struct reshape_and_cache_args args = {.key = in.data,
                                          .value = in.data,
                                          .kv_stride = HEAD,
                                          .k_cache = k.data,
                                          .v_cache = v.data,
                                          .slot_mapping = slot_mapping.data,
                                          .num_tokens = count,
                                          .num_kv_heads = 1,
                                          .head_size = HEAD,
                                          .v_head_size = HEAD,
                                          .block_size = BLOCK,
                                          .block_stride = HEAD * BLOCK,
                                          .dtype = dtype,
                                          .cache_dtype = cache,
                                          .kv_scales = scales.data};
    tb->b->reshape_and_cache(tb->b, &args);
    tensor_download(&v);
    const int size = dtype_size(cache);
    for (int32_t t = 0; t < count; t++) {
        uint32_t bits = 0;
        memcpy(&bits, v.host + ((int64_t)t / BLOCK * HEAD * BLOCK + t % BLOCK) * size, (size_t)size);
        const uint32_t expected = reference_encode(cache, tensor_get(&in, (int64_t)t * HEAD));
        if (bits != expected)
            fail_msg("%s: %s %.9g is stored as %#x, not %#x", tb->name, dtype_name(cache), values[t], bits, expected);
    }
    free(slots);
    tensor_free(&in), tensor_free(&k), tensor_free(&v), tensor_free(&slot_mapping);
    tensor_free(&scales);
}

static void stores_fp8_rounded_and_clamped(void **state)
{
    struct kernel_test *test = *state;
    enum { COUNT = 3000 };
    float values[COUNT];
    for (int i = 0; i < test->num_backends; i++)
        for (enum dtype cache = DTYPE_FP8_E4M3; cache <= DTYPE_FP8_E5M2; cache++) {
            for (int j = 0; j < COUNT; j++)
                values[j] =
                    (float)ldexp(2 * random_uniform(&test->random) - 1, (int)random_between(&test->random, -20, 18));
            for (uint32_t bits = 0; bits < 0x7b; bits++) /* every tie */
                values[bits] = (float)((reference_decode(cache, bits) + reference_decode(cache, bits + 1)) / 2);
            check_stored(&test->backends[i], DTYPE_FLOAT32, cache, values, COUNT);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_every_16_bit_value),
        cmocka_unit_test(rounds_to_nearest_even),
        cmocka_unit_test(knows_its_names),
        cmocka_unit_test(reads_and_writes_e8m0),
        cmocka_unit_test(weighs_weights),
        cmocka_unit_test(stores_fp8_rounded_and_clamped),
    };
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
