/* Memory on a GPU: the report against the device's own count, while another process holds memory; and every allocation
 * of a model failing in turn. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "model/config.h"
#include "model/model.h"
#include "tests/support/run.h"
#ifdef QUIRE_HAVE_CUDA
#include "kernels/cuda/cuda.h"
#endif

static const double MIB = 1024.0 * 1024.0;

static int64_t in_use(const char *gpu, struct error *err)
{
    struct backend *b;
    int64_t available = 0, total = 0;
    if (backend_open(gpu, 0, &b, err) != STATUS_OK) fail_msg("%s", err->text);
    if (b->memory_info(b, &available, &total, err) != STATUS_OK) fail_msg("%s", err->text);
    b->destroy(b);
    return total - available;
}

/* The sum of the report is what the device says. */
static void check_report(const struct memory_profile *p)
{
    struct error err;
    const double report = (double)(memory_profile_fixed(p) + p->kv_cache), device = (double)in_use(p->device, &err);
    print_message("%s: report %.1f MiB, device %.1f MiB, others %.1f MiB\n", p->device, report / MIB, device / MIB,
                  (double)p->others / MIB);
    if (report < 0.99 * device || report > 1.01 * device)
        fail_msg("the report's sum is %.1f MiB, but the device says %.1f MiB", report / MIB, device / MIB);
    assert_true(device <= 1.01 * p->utilization * (double)p->total);
}

static void test_report_is_what_the_device_says(void **state)
{
    (void)state;
    const double utilizations[] = {0.2, 0.5, 0.9};
    for (int i = 0; i < 3; i++) {
        char path[512];
        struct engine_options o = run_options(QUIRE_GUIDE, path, sizeof path);
        o.gpu_memory_utilization = utilizations[i];
        struct engine *e = run_engine(&o);
        const struct memory_profile *p = engine_info(e)->memory;
        check_report(p);
        assert_int_equal(p->num_blocks, p->kv_budget / p->block_bytes);
        engine_destroy(e);
    }
}

/* Of each of two ranks. */
static void test_report_of_ranks(void **state)
{
    (void)state;
    char path[512];
    run_max_ranks();
    struct engine_options o = run_options(QUIRE_GUIDE, path, sizeof path);
    o.device = "cuda:0,1";
    o.tensor_parallel_size = 2;
    o.gpu_memory_utilization = 0.5;
    struct engine *e = run_engine(&o);
    const struct engine_info *info = engine_info(e);
    assert_int_equal(info->num_ranks, 2);
    for (int r = 0; r < 2; r++) {
        check_report(&info->rank_memory[r]);
        assert_int_equal(info->rank_memory[r].num_blocks, info->memory->num_blocks);
    }
    engine_destroy(e);
}

/* A child process that holds memory on the GPU until it is killed. It is forked before this process uses the GPU,
 * because a CUDA context does not survive a fork. */
struct holder {
    pid_t pid;
    int ready[2], start[2];
};
static const int64_t HELD = (int64_t)10 << 30;

static void hold(const struct holder *h)
{
    struct backend *b;
    struct error err;
    void *data;
    char byte = 0;
    if (read(h->start[0], &byte, 1) != 1) _exit(0);
    if (backend_open("cuda", 0, &b, &err) != STATUS_OK)
        byte = 'n';
    else
        byte = b->memory_alloc(b, MEMORY_DEVICE, HELD, &data, &err) == STATUS_OK ? 'y' : 'x';
    if (write(h->ready[1], &byte, 1) != 1) _exit(1);
    for (;;) pause();
}

static int start_holder(void **state)
{
    struct holder *h = calloc(1, sizeof *h);
    if (!h || pipe(h->ready) != 0 || pipe(h->start) != 0) return -1;
    h->pid = fork();
    if (h->pid < 0) return -1;
    if (h->pid == 0) {
        close(h->start[1]);
        hold(h);
    }
    *state = h;
    return 0;
}

static int end_holder(void **state)
{
    struct holder *h = *state;
    kill(h->pid, SIGKILL);
    waitpid(h->pid, NULL, 0);
    for (int i = 0; i < 2; i++) {
        close(h->ready[i]);
        close(h->start[i]);
    }
    free(h);
    return 0;
}

static bool has_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library) dlclose(library);
    return library != NULL;
}

static void test_memory_of_others(void **state)
{
    struct holder *h = *state;
    /* Not run_options, which opens the device: what a process holds is told from the rest when it opens it first. */
    struct engine_options o = engine_options_default();
    char byte = 's';
    o.model = QUIRE_GUIDE;
    o.device = "cuda";
    o.skip_tokenizer = true;
    assert_int_equal(write(h->start[1], &byte, 1), 1);
    assert_int_equal(read(h->ready[0], &byte, 1), 1);
    if (byte == 'n') {
        print_message("skipped: no CUDA device\n");
        skip();
    }
    assert_int_equal(byte, 'y');
    o.gpu_memory_utilization = 0.5;
    struct engine *e = run_engine(&o);
    const struct memory_profile *p = engine_info(e)->memory;
    assert_true(p->others + p->context >= HELD);
    if (has_nvml()) { /* it tells them apart */
        assert_false(p->others_unknown);
        assert_true(p->others >= HELD);
        assert_true(p->context > 0 && p->context < HELD / 2);
    }
    check_report(p);
    engine_destroy(e);
    /* Memory of others counts against the utilization. If it leaves too little, the error says how much to ask for. */
    struct error err;
    o.gpu_memory_utilization = 0.05;
    assert_int_equal(engine_create(&o, &e, &err), STATUS_OUT_OF_MEMORY);
    assert_true(err.num_advice > 0);
    const struct advice *last = &err.advice[err.num_advice - 1];
    assert_string_equal(last->setting, "gpu_memory_utilization");
    assert_true(strtod(last->value, NULL) > 0.05 && strtod(last->value, NULL) < 0.9);
}

#ifdef QUIRE_HAVE_CUDA
/* Makes a model, in which the countdown-th allocation fails (0: none). */
static enum status make_model(struct backend *b, const struct model_spec *spec, struct model_weights *weights,
                              int countdown, struct error *err)
{
    const struct model_options options = {
        .limits = {.max_num_tokens = 64,
                   .max_num_seqs = 8,
                   .max_num_drafts = 7,
                   .max_model_len = 128,
                   .block_size = 16,
                   .num_groups = 1},
        .copy_weights = true,
    };
    struct model *m = NULL;
    backend_cuda_fail_allocation(b, countdown);
    enum status status = model_create(b, spec, weights, &options, &m, err);
    if (status == STATUS_OK) status = model_warm_up(m, err);
    if (status == STATUS_OK) status = model_allocate_cache(m, 20, err);
    if (status == STATUS_OK) status = model_capture(m, err);
    if (status == STATUS_OK) status = model_wait_for_weights(m, err);
    int32_t added;
    if (status == STATUS_OK) status = model_grow_swap_space(m, 8, &added, err);
    backend_cuda_fail_allocation(b, 0);
    model_destroy(m);
    return status;
}
#endif

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    run_need_device();
#ifdef QUIRE_HAVE_CUDA
    struct backend *b;
    struct model_config config;
    struct model_weights weights;
    struct error err = {""};
    int64_t before, after, total;
    int failures = 0;
    assert_int_equal(backend_open("cuda", 0, &b, &err), STATUS_OK);
    assert_int_equal(model_config_load(QUIRE_GUIDE, NULL, NULL, &config, &err), STATUS_OK);
    assert_int_equal(model_weights_open(QUIRE_GUIDE, &config.spec, NULL, &weights, &err), STATUS_OK);
    assert_int_equal(make_model(b, &config.spec, &weights, 0, &err), STATUS_OK);
    assert_int_equal(b->memory_info(b, &before, &total, &err), STATUS_OK);
    while (make_model(b, &config.spec, &weights, failures + 1, &err) != STATUS_OK) {
        assert_true(strlen(err.text) > 20);
        failures++;
    }
    print_message("%d allocations failed in turn\n", failures);
    assert_true(failures > 50);
    assert_int_equal(b->memory_info(b, &after, &total, &err), STATUS_OK);
    assert_true(before - after < (int64_t)64 << 20); /* nothing stays behind */
    model_weights_close(&weights);
    b->destroy(b);
#endif
}

int main(void)
{
    run_set_device("cuda");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_of_others),
        cmocka_unit_test(test_report_is_what_the_device_says),
        cmocka_unit_test(test_report_of_ranks),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("cuda", tests, start_holder, end_holder);
}
