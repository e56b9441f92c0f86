#include "tests/support/kernel_test.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "kernels/cpu/cpu.h"
#include "tests/support/run.h"

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

static void add_backend(struct kernel_test *test, struct backend *b, const char *name)
{
    struct test_backend *tb = &test->backends[test->num_backends++];
    *tb = (struct test_backend){.b = b, .random = &test->random};
    snprintf(tb->name, sizeof tb->name, "%s", name);
}

static uint64_t choose_seed(void)
{
    const char *given = getenv("QUIRE_TEST_SEED");
    if (!given) return 1;
    return strcmp(given, "fresh") == 0 ? (uint64_t)(clock_seconds() * 1e6) : strtoull(given, NULL, 10);
}

int kernel_test_setup(void **state)
{
    struct kernel_test *test = calloc(1, sizeof *test);
    struct error err;
    struct backend *b;
    char name[32];
    test->random.state = choose_seed();
    printf("seed: %llu (QUIRE_TEST_SEED=%llu repeats it)\n", (unsigned long long)test->random.state,
           (unsigned long long)test->random.state);
    for (enum cpu_isa isa = CPU_SCALAR; isa < CPU_ISA_COUNT; isa++) {
        if (!run_has_isa(isa)) continue;
        if (backend_open("cpu", 2, &b, &err) != STATUS_OK) return -1;
        backend_cpu_set_isa(b, isa);
        snprintf(name, sizeof name, "cpu %s", cpu_isa_name(isa));
        add_backend(test, b, name);
    }
    test->backends[test->num_backends - 1].widest = true;
    if (backend_open("cuda", 0, &b, &err) == STATUS_OK) {
        add_backend(test, b, b->name);
    } else {
        printf("skipped: no CUDA device (%s)\n", err.text);
    }
    *state = test;
    return 0;
}

static void release_workspace(struct test_backend *tb)
{
    if (!tb->workspace) return;
    check_workspace(tb);
    tb->b->workspace_set(tb->b, NULL, 0);
    tb->b->memory_free(tb->b, MEMORY_DEVICE, tb->workspace, tb->workspace_bytes + 2 * GUARD);
    tb->workspace = NULL;
}

int kernel_test_teardown(void **state)
{
    struct kernel_test *test = *state;
    for (int i = 0; i < test->num_backends; i++) {
        release_workspace(&test->backends[i]);
        test->backends[i].b->destroy(test->backends[i].b);
    }
    free(test);
    return 0;
}

/* How many of seven cases in a row. */
static int share_of(const struct test_backend *tb)
{
#if defined(__SANITIZE_THREAD__)
    const int share = 1;
#elif defined(__SANITIZE_ADDRESS__)
    const int share = 2;
#else
    const int share = 7;
#endif
    const char *cases = getenv("QUIRE_TEST_CASES");
    if (cases && strcmp(cases, "all") == 0) return 7;
    return tb->b->discrete || tb->widest ? share : 1;
}

bool kernel_test_takes(struct test_backend *tb)
{
    return tb->num_cases++ % 7 < share_of(tb);
}

struct test_backend *kernel_test_gpu(struct kernel_test *test)
{
    for (int i = 0; i < test->num_backends; i++)
        if (test->backends[i].b->discrete) return &test->backends[i];
    skip();
    return NULL;
}

static void *device_alloc(struct backend *b, int64_t bytes)
{
    void *data;
    struct error err;
    if (b->memory_alloc(b, MEMORY_DEVICE, bytes, &data, &err) != STATUS_OK) fail_msg("%s", err.text);
    return data;
}

static void wait_for(struct backend *b)
{
    struct error err;
    if (b->stream_synchronize(b, NULL, &err) != STATUS_OK) fail_msg("%s", err.text);
}

/* Checks both guards of an allocation that has `bytes` between them. */
static void check_guards(struct backend *b, const uint8_t *allocation, int64_t bytes, const char *what)
{
    uint8_t guards[2 * GUARD];
    b->copy(b, guards, allocation, GUARD, NULL);
    b->copy(b, guards + GUARD, allocation + GUARD + bytes, GUARD, NULL);
    wait_for(b);
    for (int i = 0; i < 2 * GUARD; i++)
        if (guards[i] != GUARD_BYTE) fail_msg("%s: something was written %s it", what, i < GUARD ? "before" : "after");
}

void use_workspace(struct test_backend *tb, const struct workspace_query *query)
{
    release_workspace(tb);
    tb->workspace_bytes = tb->b->workspace_bytes(tb->b, query);
    tb->workspace = device_alloc(tb->b, tb->workspace_bytes + 2 * GUARD);
    tb->b->fill(tb->b, tb->workspace, GUARD_BYTE, GUARD);
    tb->b->fill(tb->b, tb->workspace + GUARD + tb->workspace_bytes, GUARD_BYTE, GUARD);
    tb->b->workspace_set(tb->b, tb->workspace + GUARD, tb->workspace_bytes);
}

void check_workspace(const struct test_backend *tb)
{
    if (tb->workspace) check_guards(tb->b, tb->workspace, tb->workspace_bytes, tb->name);
}

static struct tensor tensor_new(struct backend *b, enum dtype dtype, int64_t count, int64_t bytes)
{
    struct tensor t = {.b = b, .dtype = dtype, .count = count, .bytes = bytes};
    uint8_t *allocation = device_alloc(b, bytes + 2 * GUARD);
    b->fill(b, allocation, GUARD_BYTE, bytes + 2 * GUARD);
    t.data = allocation + GUARD;
    t.host = malloc(bytes > 0 ? (size_t)bytes : 1);
    return t;
}

struct tensor tensor_poison(struct backend *b, enum dtype dtype, int64_t count)
{
    struct tensor t = tensor_new(b, dtype, count, count * dtype_size(dtype));
    memset(t.host, 0xff, (size_t)t.bytes);
    tensor_upload(&t);
    return t;
}

struct tensor tensor_random(struct backend *b, enum dtype dtype, int64_t count, double amplitude, struct random *random)
{
    struct tensor t = tensor_new(b, dtype, count, count * dtype_size(dtype));
    for (int64_t i = 0; i < count; i++) tensor_set(&t, i, (2 * random_uniform(random) - 1) * amplitude);
    tensor_upload(&t);
    return t;
}

struct tensor tensor_bytes(struct backend *b, const void *bytes, int64_t count)
{
    struct tensor t = tensor_new(b, DTYPE_FP8_E4M3, count, count);
    if (count > 0) memcpy(t.host, bytes, (size_t)count);
    tensor_upload(&t);
    return t;
}

struct tensor tensor_random_bytes(struct backend *b, int64_t count, uint8_t mask, struct random *random)
{
    struct tensor t = tensor_poison(b, DTYPE_FP8_E4M3, count);
    for (int64_t i = 0; i < count; i++) t.host[i] = (uint8_t)random_bits(random) & mask;
    tensor_upload(&t);
    return t;
}

struct tensor tensor_padded_logits(const struct test_backend *tb, const float *logits, int64_t count,
                                   int64_t vocab_size, int64_t *stride)
{
    *stride = vocab_size + random_between(tb->random, 0, 8);
    struct tensor t = tensor_new(tb->b, DTYPE_FLOAT32, count * *stride, count * *stride * (int64_t)sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        float *row = (float *)t.host + i * *stride;
        memcpy(row, logits + i * vocab_size, sizeof *row * (size_t)vocab_size);
        for (int64_t j = vocab_size; j < *stride; j++) row[j] = (j - vocab_size) % 2 ? NAN : FLT_MAX;
    }
    tensor_upload(&t);
    return t;
}

void tensor_upload(struct tensor *t)
{
    t->b->copy(t->b, t->data, t->host, t->bytes, NULL);
    wait_for(t->b);
}

void tensor_download(struct tensor *t)
{
    t->b->copy(t->b, t->host, t->data, t->bytes, NULL);
    wait_for(t->b);
    check_guards(t->b, (uint8_t *)t->data - GUARD, t->bytes, "a tensor");
}

void tensor_free(struct tensor *t)
{
    check_guards(t->b, (uint8_t *)t->data - GUARD, t->bytes, "a tensor");
    t->b->memory_free(t->b, MEMORY_DEVICE, (uint8_t *)t->data - GUARD, t->bytes + 2 * GUARD);
    free(t->host);
    *t = (struct tensor){0};
}

double tensor_get(const struct tensor *t, int64_t i)
{
    uint32_t bits = 0;
    int size = dtype_size(t->dtype);
    memcpy(&bits, t->host + i * size, (size_t)size); /* little-endian */
    return reference_decode(t->dtype, bits);
}

void tensor_set(struct tensor *t, int64_t i, double value)
{
    int size = dtype_size(t->dtype);
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    if (t->dtype != DTYPE_FLOAT32) bits = reference_encode(t->dtype, value);
    memcpy(t->host + i * size, &bits, (size_t)size);
}

double *tensor_doubles(const struct tensor *t)
{
    double *out = malloc(sizeof *out * (size_t)(t->count > 0 ? t->count : 1));
    for (int64_t i = 0; i < t->count; i++) out[i] = tensor_get(t, i);
    return out;
}

double *tensor_rows(const struct tensor *t, int64_t rows, int64_t columns, int64_t stride)
{
    double *out = malloc(sizeof *out * (size_t)(rows * columns + 1));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) out[r * columns + c] = tensor_get(t, r * stride + c);
    return out;
}

void tensor_close_up(const struct test_backend *tb, struct tensor *t, int64_t rows, int64_t columns, int64_t stride)
{
    const int64_t size = dtype_size(t->dtype);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = columns * size; i < stride * size; i++)
            if (t->host[r * stride * size + i] != 0xff) fail_msg("%s: something was written between rows", tb->name);
        memmove(t->host + r * columns * size, t->host + r * stride * size, (size_t)(columns * size));
    }
}

void check_within(const struct test_backend *tb, const char *what, const struct tensor *out, const double *reference,
                  int64_t count, double tolerance)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = tensor_get(out, i);
        if (!isfinite(value))
            fail_msg("%s: %s: element %lld is %g: not written, or not a number", tb->name, what, (long long)i, value);
        difference += (value - reference[i]) * (value - reference[i]);
        norm += reference[i] * reference[i];
    }
    if (sqrt(difference) > tolerance * sqrt(norm) + 1e-30 * sqrt((double)count))
        fail_msg("%s: %s: ||out - reference|| / ||reference|| = %.3g, above %.0e", tb->name, what,
                 sqrt(difference / norm), tolerance);
}

void check_close(const struct test_backend *tb, const char *what, const struct tensor *out, const double *reference,
                 int64_t count, enum dtype dtype)
{
    check_within(tb, what, out, reference, count, dtype == DTYPE_FLOAT32 ? 1e-5 : 1e-2);
}
