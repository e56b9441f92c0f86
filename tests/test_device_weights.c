/* Weights copied to a device with memory of its own, for which the CPU stands in: every element of every tensor, in its
 * place in the merged matrices, in the type of the activations. */
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

static void copied_open(struct copied *c, const char *name, enum dtype dtype)
{
    char folder[512];
    struct upload *upload;
    struct error err;
    snprintf(folder, sizeof folder, QUIRE_TEST_DATA "/golden/%s", name);
    must(backend_open("cpu", 1, &c->backend, &err), &err);
    arena_init(&c->arena, c->backend);
    must(model_config_load(folder, NULL, NULL, &c->config, &err), &err);
    must(model_weights_open(folder, &c->config.spec, NULL, &c->host, &err), &err);
    must(device_weights_begin(&c->arena, &c->config.spec, &c->host, dtype, &c->device, &upload, &err), &err);
    must(upload_finish(upload, &err), &err);
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
    if (of_host.norm || t->kind == TENSOR_VECTOR) {
        from = *of_host.vector, to = *of_device.vector;
        from_dtype = to_dtype = *of_device.vector_dtype;
        assert_int_equal(*of_host.vector_dtype, *of_device.vector_dtype);
        if (t->kind == TENSOR_VECTOR) assert_int_equal(to_dtype, DTYPE_FLOAT32);
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

static void test_every_element(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    for (int i = 0; i < golden_num_checkpoints; i++)
        for (size_t k = 0; k < 3; k++) {
            struct copied c = {0};
            copied_open(&c, golden_checkpoints[i], dtypes[k]);
            for (int32_t j = 0; j < c.host.table.count; j++) check_tensor(&c, &c.host.table.tensors[j], dtypes[k]);
            assert_int_equal(c.device.lm_head.data == c.device.embedding.data,
                             c.host.lm_head.data == c.host.embedding.data);
            for (int32_t j = 0; j < c.config.spec.num_layers; j++) {
                assert_int_equal(c.device.layers[j].qkv.num_parts, 1);
                const bool dense = c.config.spec.layers[j].mlp.intermediate_size > 0;
                assert_int_equal(c.device.layers[j].gate_up.num_parts, dense ? 1 : 0);
            }
            assert_int_equal(c.device.bytes, c.arena.bytes[PURPOSE_WEIGHTS]);
            assert_int_equal(c.device.bytes, device_weights_bytes(&c.host, dtypes[k]));
            copied_close(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_element)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
