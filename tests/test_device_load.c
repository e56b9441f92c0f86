/* Loading onto a device with memory of its own, without one: the CPU backend, which counts what is allocated, says that
 * the first matmul loads something large, as cuBLAS does, and can fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "base/file.h"
#include "model/model_state.h"
#include "runtime/engine/engine_pool.h"
#include "runtime/engine/loaded_model_state.h"
#include "tests/support/temp_folder.h"
#include "tests/support/toy_model.h"

static const int64_t MIB = 1 << 20, CONTEXT = 300 << 20, OTHERS = 50 << 20;

enum { DEVICES = 2 };
static struct {
    int64_t total, loaded_on_use;
    atomic_llong held;      /* memory of all devices that is allocated now */
    int64_t more_of_others; /* on the second device */
    bool others_unknown;
    atomic_int allocations, failing;
    const char *shrinking; /* a file, opened by then, that is cut when pinned memory is asked for */
    struct {
        struct backend cpu; /* what it is made of */
        pthread_t main;     /* the thread that opened it */
        int64_t held;
        bool used; /* a matmul was computed */
    } of[DEVICES];
} device;

/* The number of the device. */
static int number_of(const struct backend *b)
{
    return strcmp(b->name, "cuda:1") == 0;
}

static int64_t others_of(int number)
{
    return OTHERS + (number == 1 ? device.more_of_others : 0);
}

static enum status memory_info(struct backend *b, int64_t *free_bytes, int64_t *total_bytes, struct error *err)
{
    const int number = number_of(b);
    (void)err;
    *total_bytes = device.total;
    *free_bytes = device.total - others_of(number) - CONTEXT - device.of[number].held;
    if (device.of[number].used) *free_bytes -= device.loaded_on_use;
    return STATUS_OK;
}

static void hold(const struct backend *b, int64_t bytes)
{
    device.held += bytes;
    device.of[number_of(b)].held += bytes;
}

static enum status memory_alloc(struct backend *b, enum memory_kind kind, int64_t bytes, void **out, struct error *err)
{
    if (++device.allocations == device.failing) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory, on purpose");
    if (kind == MEMORY_HOST_PINNED && device.shrinking && truncate(device.shrinking, 4096) == 0)
        device.shrinking = NULL;
    enum status status = device.of[number_of(b)].cpu.memory_alloc(b, kind, bytes, out, err);
    if (status == STATUS_OK && kind == MEMORY_DEVICE) hold(b, bytes);
    return status;
}

static void memory_free(struct backend *b, enum memory_kind kind, void *data, int64_t bytes)
{
    if (data && kind == MEMORY_DEVICE) hold(b, -bytes);
    device.of[number_of(b)].cpu.memory_free(b, kind, data, bytes);
}

/* Weights come in threads while a step warms the device up with whatever is there: so they stay zeros here. */
static void copy(struct backend *b, void *destination, const void *source, int64_t bytes, backend_stream stream)
{
    const int number = number_of(b);
    if (pthread_equal(pthread_self(), device.of[number].main))
        device.of[number].cpu.copy(b, destination, source, bytes, stream);
}

static void linear(struct backend *b, const struct linear_args *args)
{
    device.of[number_of(b)].used = true;
    device.of[number_of(b)].cpu.linear(b, args);
}

/* The linker calls these instead of the functions of kernels/. */
enum status __wrap_backend_open(const char *name, int threads, struct backend **out, struct error *err);
int __wrap_backend_num_gpus(void);
enum status __wrap_backend_group_open(struct backend *const *ranks, int32_t num_ranks, struct error *err);

enum status __wrap_backend_open(const char *name, int threads, struct backend **out, struct error *err)
{
    const int number = strcmp(name, "cuda:1") == 0;
    enum status status = backend_cpu_open(threads, out, err);
    if (status != STATUS_OK) return status;
    struct backend *b = *out;
    device.allocations = 0;
    device.of[number].cpu = *b;
    device.of[number].main = pthread_self();
    device.of[number].used = false;
    b->name = number == 0 ? "cuda:0" : "cuda:1";
    b->discrete = true;
    b->others_bytes = device.others_unknown ? -1 : others_of(number);
    b->memory_info = memory_info;
    b->memory_alloc = memory_alloc;
    b->memory_free = memory_free;
    b->copy = copy;
    b->linear = linear;
    return status;
}

int __wrap_backend_num_gpus(void)
{
    return DEVICES;
}

enum status __wrap_backend_group_open(struct backend *const *ranks, int32_t num_ranks, struct error *err)
{
    return num_ranks > 1 ? backend_cpu_group_open(ranks, num_ranks, err) : STATUS_OK;
}

static const struct log quiet = {LOG_ERROR};

static struct engine_options options(const char *model)
{
    struct engine_options o = engine_options_default();
    o.model = model;
    o.log = &quiet;
    o.skip_tokenizer = true;
    o.load_format = LOAD_FORMAT_DUMMY;
    o.gpu_memory_utilization = 1;
    o.max_num_seqs = 8;
    o.max_num_batched_tokens = 512;
    return o;
}

static int set_up(void **state)
{
    static struct temp_folder folder;
    toy_model_make(&folder, QUIRE_GUIDE, true);
    *state = &folder;
    return 0;
}

static int tear_down(void **state)
{
    temp_folder_remove(*state);
    return 0;
}

static enum status load(const struct engine_options *o, int64_t total, int64_t loaded_on_use, struct loaded_model **l,
                        struct error *err)
{
    device.total = total;
    device.loaded_on_use = loaded_on_use;
    enum status status = loaded_model_open(o, l, err);
    if (status != STATUS_OK) assert_int_equal(device.held, 0);
    return status;
}

/* What is loaded on use is not forgotten, and no byte is promised twice. */
static void check_profile(const struct memory_profile *p, int number)
{
    assert_int_equal(p->in_use, others_of(number) + CONTEXT + device.loaded_on_use + device.of[number].held);
    assert_int_equal(memory_profile_fixed(p) + p->kv_cache, p->in_use);
    assert_true(p->in_use <= device.total);
}

static void check_report(const struct loaded_model *l)
{
    const struct memory_profile *p = &l->profile;
    check_profile(p, strcmp(p->device, "cuda:1") == 0);
    assert_int_equal(p->num_blocks, p->kv_budget / p->block_bytes);
    assert_true(memory_blocks_needed(&l->limits, l->limits.max_model_len) <= p->num_blocks);
}

/* Each of two ranks is told of with what its own device holds. The blocks are those of the one that has room for the
 * fewest: the second has less memory, or more rows of weights. */
static void test_ranks(void **state)
{
    (void)state;
    struct engine_options o = options(QUIRE_TEST_DATA "/golden/mha");
    o.load_format = LOAD_FORMAT_AUTO;
    o.tensor_parallel_size = 2;
    o.device = "cuda:0,1";
    for (int i = 0; i < 3; i++) {
        struct loaded_model *l = NULL;
        struct error err;
        device.more_of_others = i == 1 ? 30 * MIB : i == 2 ? -30 * MIB : 0;
        if (load(&o, 600 * MIB, MIB, &l, &err) != STATUS_OK) fail_msg("%s", err.text);
        check_report(l);
        for (int32_t r = 0; r < 2; r++) {
            const struct memory_profile *p = &l->rank_profiles[r];
            check_profile(p, r);
            assert_int_equal(p->others, others_of(r));
            assert_int_equal(p->num_blocks, l->profile.num_blocks);
            assert_true(p->kv_cache <= p->kv_budget);
            const struct model *m = r == 0 ? l->model : l->model->others[r - 1];
            assert_int_equal(p->weights, m->arena.bytes[PURPOSE_WEIGHTS]);
        }
        assert_string_equal(l->profile.device, i == 1 ? "cuda:1" : "cuda:0");
        loaded_model_close(l);
        assert_int_equal(device.held, 0);
    }
    device.more_of_others = 0;
}

/* What does not fit names the device that is too small. */
static void test_a_rank_that_is_too_small(void **state)
{
    (void)state;
    struct engine_options o = options(QUIRE_TEST_DATA "/golden/mha");
    struct loaded_model *l;
    struct error err;
    o.tensor_parallel_size = 2;
    o.device = "cuda:0,1";
    device.more_of_others = 400 * MIB;
    assert_int_equal(load(&o, 700 * MIB, MIB, &l, &err), STATUS_OUT_OF_MEMORY);
    if (!strstr(err.text, "1.00 of cuda:1's 0.68 GiB are not enough")) fail_msg("%s", err.text);
    device.more_of_others = 0;
}

/* Two engines that open at the same time have the lengths and the sequences for which the smaller device has room. */
static void test_engines_agree(void **state)
{
    const struct temp_folder *toy = *state;
    struct engine_options o = options(toy->path);
    struct error err;
    struct loaded_model *l;
    struct engine_pool *p;
    o.threads = 1; /* of an engine */
    if (load(&o, 375 * MIB, MIB, &l, &err) != STATUS_OK) fail_msg("%s", err.text);
    const struct batch_limits alone = l->limits;
    loaded_model_close(l);
    assert_true(alone.max_model_len < TOY_MODEL_LENGTH);
    o.data_parallel_size = o.threads = 2;
    o.device = "cuda";
    for (int i = 0; i < 2; i++) {
        device.total = (i == 0 ? 375 : 475) * MIB;
        device.more_of_others = (i == 0 ? -100 : 100) * MIB; /* the second, or the first, is as the one above */
        if (engine_pool_create(&o, &p, &err) != STATUS_OK) fail_msg("%s", err.text);
        const struct batch_limits *limits = engine_pool_info(p)->limits;
        assert_int_equal(limits->max_model_len, alone.max_model_len);
        assert_int_equal(limits->max_num_seqs, alone.max_num_seqs);
        engine_pool_destroy(p);
        assert_int_equal(device.held, 0);
    }
    device.more_of_others = 0;
}

/* One that fails ends the other, which waits for it, and is named. */
static void test_an_engine_that_fails(void **state)
{
    const struct temp_folder *toy = *state;
    struct engine_options o = options(toy->path);
    struct error err;
    struct engine_pool *p;
    o.data_parallel_size = 2;
    o.device = "cuda";
    device.total = 600 * MIB;
    device.more_of_others = 248 * MIB;
    assert_int_equal(engine_pool_create(&o, &p, &err), STATUS_OUT_OF_MEMORY);
    if (strncmp(err.text, "engine 2 of 2, on cuda:1: ", 26) != 0 || !strstr(err.text, "are not enough"))
        fail_msg("%s", err.text);
    assert_null(p);
    assert_int_equal(device.held, 0);
    device.more_of_others = 0;
    for (int n = 1; n < 40; n += 3) {
        device.failing = n; /* of both together */
        const enum status status = engine_pool_create(&o, &p, &err);
        device.failing = 0;
        engine_pool_destroy(p);
        assert_int_equal(device.held, 0);
        if (status != STATUS_OK && !strstr(err.text, "no memory, on purpose")) fail_msg("%s", err.text);
    }
}

/* Memory of others that the device cannot tell apart is a part of the context, and the report says that. */
static void test_others_may_be_unknown(void **state)
{
    const struct temp_folder *folder = *state;
    const struct engine_options o = options(folder->path);
    for (int unknown = 0; unknown < 2; unknown++) {
        struct loaded_model *l = NULL;
        struct error err;
        device.others_unknown = unknown;
        if (load(&o, 2048 * MIB, 0, &l, &err) != STATUS_OK) fail_msg("%s", err.text);
        assert_int_equal(l->profile.others_unknown, unknown);
        assert_int_equal(l->profile.others, unknown ? 0 : OTHERS);
        assert_int_equal(l->profile.context, unknown ? CONTEXT + OTHERS : CONTEXT);
        check_report(l);
        loaded_model_close(l);
    }
    device.others_unknown = false;
}

#ifdef __SANITIZE_THREAD__ /* minutes, and the threads do the same whatever is loaded on first use */
static const int64_t least_loaded_on_use = 20 << 20;
#else
static const int64_t least_loaded_on_use = 0;
#endif

/* A length that nobody asked for is the longest that fits, whatever is loaded on first use. The devices go from one
 * that is too small to one that has room for more than the model's length. */
static void test_every_size_of_device(void **state)
{
    const struct temp_folder *toy = *state;
    const struct engine_options o = options(toy->path);
    for (int64_t loaded_on_use = least_loaded_on_use; loaded_on_use <= 20 * MIB; loaded_on_use += 10 * MIB) {
        int32_t too_small = 0, shortened = 0, whole = 0;
        for (int64_t total = 340 * MIB; total < 460 * MIB; total += 2000001) {
            struct loaded_model *l;
            struct error err = {""};
            if (load(&o, total, loaded_on_use, &l, &err) != STATUS_OK) {
                assert_non_null(strstr(err.text, "are not enough"));
                assert_int_equal(shortened + whole, 0);
                too_small++;
                continue;
            }
            const struct memory_profile *p = &l->profile;
            const int32_t length = l->limits.max_model_len;
            check_report(l);
            if (length < TOY_MODEL_LENGTH) {
                /* A block may be left that the tables of a longer one would take. Short ones make steps smaller too. */
                const int32_t longest = memory_longest_request(&l->limits, p->num_blocks);
                assert_true(longest - length <= l->limits.block_size || length < 64);
                assert_int_equal(whole, 0);
                shortened++;
            } else {
                whole++;
            }
            loaded_model_close(l);
            assert_int_equal(device.held, 0);
        }
        print_message("%d devices too small, %d with less than the model's length, %d with all of it\n", too_small,
                      shortened, whole);
        assert_true(too_small > 5 && shortened > 5 && whole > 5);
    }
}

/* Quantized weights, made or from a file that is quantized while it is loaded, are counted to the byte. */
static void test_quantized(void **state)
{
    static const char *const formats[] = {"fp8", "int8", "int4"};
    const struct temp_folder *toy = *state;
    for (int i = 0; i < 6; i++) {
        struct loaded_model *l;
        struct error err;
        struct engine_options o = options(i < 3 ? toy->path : QUIRE_TEST_DATA "/golden/mha");
        if (i >= 3) o.load_format = LOAD_FORMAT_AUTO;
        o.quantization = formats[i % 3];
        if (load(&o, 2048 * MIB, MIB, &l, &err) != STATUS_OK) fail_msg("%s", err.text);
        check_report(l);
        assert_int_equal(weight_is_quantized(&l->model->device_weights.layers[0].down), true);
        assert_int_equal(l->profile.weights, l->model->arena.bytes[PURPOSE_WEIGHTS]);
        loaded_model_close(l);
        assert_int_equal(device.held, 0);
    }
}

/* Experts that stay on the host, in their file or packed, leave their bytes to blocks of the cache. */
static void test_experts_on_the_host(void **state)
{
    (void)state;
    struct engine_options o = options(QUIRE_TEST_DATA "/golden/qwen3_moe");
    o.load_format = LOAD_FORMAT_AUTO;
    for (int quantized = 0; quantized < 2; quantized++) {
        struct memory_profile last = {0};
        o.quantization = quantized ? "int8" : NULL;
        for (o.cpu_offload_experts = 0; o.cpu_offload_experts < 4; o.cpu_offload_experts++) {
            struct loaded_model *l;
            struct error err;
            if (load(&o, 512 * MIB, MIB, &l, &err) != STATUS_OK) fail_msg("%s", err.text);
            const struct memory_profile *p = &l->profile;
            const struct model_spec *spec = &l->config.spec;
            const struct router_params *router = &spec->layers[0].experts.router;
            const int32_t layers = o.cpu_offload_experts < spec->num_layers ? o.cpu_offload_experts : spec->num_layers;
            check_report(l);
            assert_int_equal(p->host_expert_layers, layers);
            assert_int_equal(p->weights, l->model->arena.bytes[PURPOSE_WEIGHTS]);
            assert_int_equal(p->host, l->model->arena.bytes[PURPOSE_HOST_STAGING]);
            assert_int_equal(p->host_token_bytes * router->num_experts, p->host_experts * router->top_k);
            assert_int_equal(p->host_experts * spec->num_layers, (p->host_experts + p->experts) * layers);
            assert_true(quantized ? l->weights.memory_bytes >= p->host_experts : l->weights.memory_bytes == 0);
            if (o.cpu_offload_experts > 0 && last.host_expert_layers < layers) {
                assert_int_equal(p->weights + p->host_experts, last.weights + last.host_experts);
                assert_true(p->num_blocks > last.num_blocks);
            }
            last = *p;
            loaded_model_close(l);
            assert_int_equal(device.held, 0);
        }
    }
}

/* Tables of embeddings in pinned memory: per-layer ones, and that of an untied model, of which ranks have a part each.
 */
static void test_embeddings_on_the_host(void **state)
{
    (void)state;
    static const char *const checkpoints[] = {QUIRE_TEST_DATA "/golden/gemma4_e", QUIRE_TEST_DATA "/golden/mha"};
    for (int i = 0; i < 4; i++) {
        struct engine_options o = options(checkpoints[i % 2]);
        int64_t weights = 0;
        o.load_format = LOAD_FORMAT_AUTO;
        o.device = i < 2 ? "cuda:0" : "cuda:0,1";
        o.tensor_parallel_size = i < 2 ? 1 : 2;
        for (int offloaded = 0; offloaded < 2; offloaded++) {
            struct loaded_model *l;
            struct error err;
            o.cpu_offload_embeddings = offloaded;
            if (load(&o, 512 * MIB, MIB, &l, &err) != STATUS_OK) fail_msg("%s", err.text);
            const struct memory_profile *p = &l->profile;
            const struct model_weights *w = &l->model->device_weights;
            const bool untied = w->lm_head.data != w->embedding.data;
            const int64_t tables = weight_bytes(&w->per_layer_embedding) + (untied ? weight_bytes(&w->embedding) : 0);
            check_report(l);
            assert_int_equal(p->host_embeddings, offloaded ? tables : 0);
            assert_true(tables > 0);
            assert_int_equal(p->host_embeddings, l->model->arena.bytes[PURPOSE_HOST_WEIGHTS]);
            assert_int_equal(p->weights, l->model->arena.bytes[PURPOSE_WEIGHTS]);
            if (offloaded) assert_int_equal(p->weights + p->host_embeddings, weights);
            weights = p->weights;
            if (i >= 2) {
                assert_int_equal(l->rank_profiles[1].host_embeddings, p->host_embeddings);
                assert_int_equal(l->rank_profiles[1].weights, l->model->others[0]->arena.bytes[PURPOSE_WEIGHTS]);
            }
            loaded_model_close(l);
        }
    }
}

static void test_every_allocation_can_fail(void **state)
{
    (void)state;
    struct loaded_model *l;
    struct error err;
    struct engine_options o = options(QUIRE_TEST_DATA "/golden/mha");
    o.load_format = LOAD_FORMAT_AUTO;
    for (int i = 0; i < 4; i++) {
        int failures = 0;
        o.quantization = i == 1 ? "int4" : NULL;
        if (i == 2) {
            o.model = QUIRE_TEST_DATA "/golden/qwen3_moe";
            o.quantization = "int8";
            o.cpu_offload_experts = 1;
            o.cpu_offload_embeddings = true;
        }
        if (i == 3) { /* of both ranks */
            o.cpu_offload_experts = 0;
            o.cpu_offload_embeddings = false;
            o.tensor_parallel_size = 2;
            o.device = "cuda:0,1";
        }
        for (device.failing = 1; load(&o, 512 * MIB, MIB, &l, &err) != STATUS_OK; device.failing++) {
            assert_non_null(strstr(err.text, "on purpose"));
            failures++;
        }
        device.failing = 0;
        loaded_model_close(l);
        assert_int_equal(device.held, 0);
        assert_true(failures > 4);
    }
}

/* Weights are read while they are loaded, converted, quantized or neither: a file that another program cuts meanwhile
 * is an error. */
static void test_a_file_that_shrinks(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"bfloat16", "float32", "bfloat16"};
    for (int i = 0; i < 3; i++) {
        struct temp_folder folder;
        struct loaded_model *l;
        struct error err;
        char path[512];
        temp_folder_make(&folder);
        temp_folder_copy(&folder, QUIRE_TEST_DATA "/golden/mha", "config.json");
        temp_folder_copy(&folder, QUIRE_TEST_DATA "/golden/mha", "model.safetensors");
        assert_true(path_join(path, sizeof path, folder.path, "model.safetensors"));
        struct engine_options o = options(folder.path);
        o.load_format = LOAD_FORMAT_AUTO;
        o.dtype = dtypes[i];
        if (i == 2) o.quantization = "fp8";
        device.shrinking = path;
        assert_int_equal(load(&o, 512 * MIB, MIB, &l, &err), STATUS_IO);
        assert_null(device.shrinking);
        assert_non_null(strstr(err.text, "shorter"));
        assert_non_null(strstr(err.text, "model.safetensors"));
        temp_folder_remove(&folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_may_be_unknown),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_a_rank_that_is_too_small),
        cmocka_unit_test(test_engines_agree),
        cmocka_unit_test(test_an_engine_that_fails),
        cmocka_unit_test(test_every_size_of_device),
        cmocka_unit_test(test_quantized),
        cmocka_unit_test(test_experts_on_the_host),
        cmocka_unit_test(test_embeddings_on_the_host),
        cmocka_unit_test(test_every_allocation_can_fail),
        cmocka_unit_test(test_a_file_that_shrinks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
