/* Weights copied to a device with memory of its own, for which the CPU stands in: every element of every tensor, in its
 * place in the merged matrices, in the type of the activations; and dummy weights that a device makes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/config.h"
#include "model/device_weights.h"
#include "tests/support/golden.h"
#include "tests/support/must.h"

struct copied {
    struct backend *backend;
    struct arena arena;
    struct model_config config;
    struct model_weights host, device;
};

static void golden_folder(char folder[512], const char *name)
{
    snprintf(folder, 512, QUIRE_TEST_DATA "/golden/%s", name);
}

static void copied_init(struct copied *c, const char *name)
{
    char folder[512];
    struct error err;
    golden_folder(folder, name);
    must(backend_open("cpu", 1, &c->backend, &err), &err);
    arena_init(&c->arena, c->backend);
    must(model_config_load(folder, NULL, NULL, &c->config, &err), &err);
}

static void copy(struct copied *c, const struct model_weights *host, enum dtype dtype)
{
    struct upload *upload;
    struct error err;
    must(device_weights_begin(&c->arena, &c->config.spec, host, dtype, &c->device, &upload, &err), &err);
    must(upload_finish(upload, &err), &err);
}

static void copied_open(struct copied *c, const char *name, enum dtype dtype)
{
    char folder[512];
    struct error err;
    golden_folder(folder, name);
    copied_init(c, name);
    must(model_weights_open(folder, &c->config.spec, NULL, &c->host, &err), &err);
    copy(c, &c->host, dtype);
    must(model_weights_pack(&c->host, &err), &err); /* what cannot be used in the files */
}

static void copied_close(struct copied *c)
{
    model_weights_close(&c->device);
    model_weights_close(&c->host);
    arena_free(&c->arena);
    c->backend->destroy(c->backend);
}

static float rounded(float value, enum dtype dtype)
{
    float stored;
    dtype_store(&stored, dtype, 0, value);
    return dtype_load(&stored, dtype, 0);
}

static const struct weight *device_matrix(const struct copied *c, const struct tensor *t)
{
    const struct layer_weights *layer = t->layer >= 0 ? &c->device.layers[t->layer] : NULL;
    if (t->role == TENSOR_Q || t->role == TENSOR_K || t->role == TENSOR_V) return &layer->qkv.parts[0];
    if (t->role == TENSOR_GATE || t->role == TENSOR_UP) return &layer->gate_up.parts[0];
    if (t->role == TENSOR_DOWN) return &layer->down; /* which may lie behind those of experts, as gate and up may */
    return model_weights_matrix(&c->device, t);
}

static void check_tensor(const struct copied *c, const struct tensor *t, enum dtype dtype)
{
    const int64_t count = t->out_features * (t->in_features ? t->in_features : 1);
    const void *from, *to;
    enum dtype from_dtype, to_dtype = dtype;
    int64_t first = 0;
    if (t->kind == TENSOR_CACHE_SCALE) return;
    if (t->kind == TENSOR_SCALAR) {
        const struct layer_weights *host = &c->host.layers[t->layer], *device = &c->device.layers[t->layer];
        assert_memory_equal(&host->xielu, &device->xielu, sizeof host->xielu);
        return;
    }
    const struct weights_place of_host = model_weights_place(&c->host, t),
                               of_device = model_weights_place(&c->device, t);
    const bool is_vector = t->kind == TENSOR_VECTOR || (!of_host.norm && !tensor_is_stored(t));
    if (of_host.norm || is_vector) {
        from = *of_host.vector, to = *of_device.vector;
        from_dtype = to_dtype = *of_device.vector_dtype;
        assert_int_equal(*of_host.vector_dtype, *of_device.vector_dtype);
        if (is_vector) assert_int_equal(to_dtype, DTYPE_FLOAT32);
        if (is_vector) from = (const float *)from + of_host.first_row, first = of_device.first_row;
        if (of_host.norm) assert_true(of_host.norm->eps == of_device.norm->eps && of_host.norm->eps > 0);
    } else {
        const struct weight *host = model_weights_matrix(&c->host, t), *device = device_matrix(c, t);
        const bool bias = t->kind == TENSOR_BIAS;
        from = bias ? host->bias : host->data, to = bias ? device->bias : device->data;
        from_dtype = bias ? host->bias_dtype : weight_dtype(host);
        assert_int_equal(bias ? device->bias_dtype : weight_dtype(device), dtype);
        assert_int_equal(device->out_features * (t->num_experts > 0 ? t->num_experts : 1), t->merged_rows);
        first = t->first_row * (bias ? 1 : t->in_features);
    }
    assert_ptr_not_equal(from, to);
    for (int64_t i = 0; i < count; i++) {
        const float expected = rounded(dtype_load(from, from_dtype, i), to_dtype);
        if (dtype_load(to, to_dtype, first + i) != expected)
            fail_msg("%s: element %lld is not what it was", t->name, (long long)i);
    }
}

static void check_copied(const struct copied *c, enum dtype dtype)
{
    for (int32_t i = 0; i < c->host.table.count; i++) check_tensor(c, &c->host.table.tensors[i], dtype);
    assert_int_equal(c->device.lm_head.data == c->device.embedding.data,
                     c->host.lm_head.data == c->host.embedding.data);
    assert_int_equal(c->device.bytes, c->arena.bytes[PURPOSE_WEIGHTS]);
    assert_int_equal(c->device.bytes, device_weights_bytes(&c->host, dtype));
}

static void test_every_element(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    for (int i = 0; i < golden_num_checkpoints; i++)
        for (size_t k = 0; k < 3; k++) {
            struct copied c = {0};
            copied_open(&c, golden_checkpoints[i], dtypes[k]);
            check_copied(&c, dtypes[k]);
            for (int32_t j = 0; j < c.config.spec.num_layers; j++) {
                const bool mixes = c.config.spec.layers[j].mixer != MIXER_NONE;
                assert_int_equal(c.device.layers[j].qkv.num_parts, mixes ? 1 : 0);
                const bool dense = c.config.spec.layers[j].mlp.intermediate_size > 0;
                assert_int_equal(c.device.layers[j].gate_up.num_parts, dense ? 1 : 0);
            }
            copied_close(&c);
        }
}

/* Stands for a device that makes dummy weights by itself. */
static void fill_dummy(struct backend *b, const struct fill_dummy_args *args, backend_stream stream)
{
    (void)b, (void)stream;
    dummy_fill(args, NULL);
}

/* A device makes the dummy weights that the host would. */
static void test_made_by_device(void **state)
{
    (void)state;
    static const char *const names[] = {"gqa", "gpt2", "gemma4_e", "qwen3_moe"};
    static const enum dtype dtypes[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    for (int i = 0; i < 4 * 3; i++) {
        struct copied c = {0};
        struct model_weights left_out;
        struct error err;
        copied_init(&c, names[i / 3]);
        c.backend->fill_dummy = fill_dummy;
        must(model_weights_dummy(&c.config.spec, 5, false, &c.host, &err), &err);
        must(model_weights_dummy(&c.config.spec, 5, true, &left_out, &err), &err);
        assert_null(left_out.embedding.data);
        assert_int_equal(left_out.bytes, c.host.bytes);
        assert_true(left_out.memory_bytes < c.host.memory_bytes / 4);
        copy(&c, &left_out, dtypes[i % 3]);
        check_copied(&c, dtypes[i % 3]);
        model_weights_close(&left_out);
        copied_close(&c);
    }
}

enum { MOST_FILLED = 1 << 19 };

/* Compares what the GPU makes in pinned memory with what the host makes; also `offset` bytes from an aligned address.
 */
static void check_fill(struct backend *gpu, char *pinned, const struct fill_dummy_args *made, int64_t offset)
{
    static char expected[MOST_FILLED] __attribute__((aligned(8)));
    struct fill_dummy_args args = *made;
    struct error err;
    memset(pinned, 0xa5, sizeof expected);
    memset(expected, 0xa5, sizeof expected);
    args.out = pinned + offset;
    gpu->fill_dummy(gpu, &args, NULL);
    must(gpu->stream_synchronize(gpu, NULL, &err), &err);
    args.out = expected + offset;
    dummy_fill(&args, NULL);
    assert_memory_equal(pinned, expected, sizeof expected);
}

static void test_made_by_gpu(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 7, 8, 4097, 100003};
    struct backend *gpu;
    struct error err;
    void *pinned;
    if (backend_open("cuda", 0, &gpu, &err) != STATUS_OK) {
        print_message("skipped: no CUDA device\n");
        skip();
    }
    must(gpu->memory_alloc(gpu, MEMORY_HOST_PINNED, MOST_FILLED, &pinned, &err), &err);
    for (int i = 0; i < 6 * 7 * 3; i++) {
        const struct fill_dummy_args args = {.count = counts[i % 6],
                                             .seed = (uint64_t)i * i,
                                             .format = (enum weight_format)(i / 6 % 7),
                                             .dtype = (enum dtype)(i / 42)};
        struct fill_dummy_args repeated = args;
        repeated.pattern = 0x0123456789abcdef;
        check_fill(gpu, pinned, &args, 0);
        check_fill(gpu, pinned, &args, args.format < WEIGHT_FP8 ? dtype_size(args.dtype) : 3);
        check_fill(gpu, pinned, &repeated, i % 9);
    }
    gpu->memory_free(gpu, MEMORY_HOST_PINNED, pinned, MOST_FILLED);
    gpu->destroy(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_element), cmocka_unit_test(test_made_by_device),
                                       cmocka_unit_test(test_made_by_gpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
