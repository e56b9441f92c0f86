/* Advice helps. Thousands of settings are planned on made-up amounts of memory; each advice of an error is followed
 * alone, and then the plan must succeed. Commands are run, too, and the flags that their sentences advise are followed.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "base/random.h"
#include "runtime/commands.h"
#include "runtime/engine/loaded_model_state.h"
#include "scheduler/state_pool.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { NUM_SETTINGS = 60 };
#else
enum { NUM_SETTINGS = 200 }; /* for each model and device */
#endif

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* What config.json has of head sizes and lengths. */
struct shape {
    int head_size;
    long long length;
    bool window, experts;
    int state_heads; /* of each recurrent layer, of three in four; 0: there are none */
};
static const struct shape shapes[] = {
    {16, 256, false, false},       {16, 131072, false, false},    {16, 10000000, false, false},
    {64, 268435456, false, false}, {32, 32768, true, false},      {10, 256, false, false},
    {12, 4096, false, false},      {24, 4096, false, false}, /* no cache type; only float32; not fp8 */
    {16, 4096, false, true},       {16, 32768, .state_heads = 2}, {16, 131072, .state_heads = 256},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

static void write_config(const struct temp_folder *folder, const struct shape *s)
{
    char text[1024], recurrent[512];
    snprintf(recurrent, sizeof recurrent,
             ", \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 32, \"linear_value_head_dim\": 32, "
             "\"linear_num_key_heads\": %d, \"linear_num_value_heads\": %d, \"rope_parameters\": {\"rope_type\": "
             "\"default\", \"rope_theta\": 10000, \"partial_rotary_factor\": 0.5}",
             s->state_heads, s->state_heads);
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", \"vocab_size\": 512, \"hidden_size\": 64, \"intermediate_size\": 96, "
             "\"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": %d, "
             "\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": %lld%s}",
             s->window        ? "gemma3_text"
             : s->experts     ? "qwen3_moe"
             : s->state_heads ? "qwen3_5_text"
                              : "llama",
             s->head_size, s->length,
             s->window        ? ", \"sliding_window\": 512, \"query_pre_attn_scalar\": 32, \"hidden_activation\": "
                                "\"gelu_pytorch_tanh\", \"layer_types\": [\"sliding_attention\", \"sliding_attention\", "
                                "\"sliding_attention\", \"full_attention\"]"
             : s->experts     ? ", \"num_experts\": 64, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 512, "
                                "\"norm_topk_prob\": true"
             : s->state_heads ? recurrent
                              : "");
    temp_folder_write_string(folder, "config.json", text);
}

static struct engine_options no_options(const struct temp_folder *folder)
{
    struct engine_options o = engine_options_default();
    o.model = folder->path;
    o.device = "cpu";
    o.threads = 1;
    o.load_format = LOAD_FORMAT_DUMMY;
    return o;
}

/* ---- plans ---- */

/* 2^low .. 2^high, each power as likely as another. */
static double random_size(struct random *r, double low, double high)
{
    return exp2(low + random_uniform(r) * (high - low));
}

static bool one_in(struct random *r, uint64_t n)
{
    return random_bits(r) % n == 0;
}

static int32_t random_count(struct random *r, double high)
{
    return (int32_t)random_size(r, 0, high);
}

/* Some of the options are set, to small values, usual ones or absurd ones. */
static struct engine_options random_options(struct random *r, const struct temp_folder *folder)
{
    static const char *const dtypes[] = {"auto", "float32", "float16", "bfloat16", "fp8", "fp8_e5m2"};
    struct engine_options o = no_options(folder);
    if (one_in(r, 2)) o.max_model_len = random_count(r, one_in(r, 4) ? 30 : 14);
    if (one_in(r, 2)) o.max_num_seqs = random_count(r, 16);
    if (one_in(r, 2)) o.max_num_batched_tokens = random_count(r, one_in(r, 4) ? 30 : 13);
    if (one_in(r, 3)) o.kv_cache_space = random_size(r, -20, 6);
    if (one_in(r, 3)) o.gpu_memory_utilization = 0.01 + 0.99 * random_uniform(r);
    if (one_in(r, 3)) o.num_gpu_blocks_override = random_count(r, one_in(r, 4) ? 30 : 10);
    if (one_in(r, 3)) o.swap_space = one_in(r, 2) ? 0 : random_size(r, -22, 3);
    if (one_in(r, 3)) o.preemption_mode = PREEMPTION_SWAP;
    if (one_in(r, 4)) o.enable_chunked_prefill = false;
    if (one_in(r, 4)) o.enable_prefix_caching = false;
    if (one_in(r, 2)) o.block_size = 8 << random_bits(r) % 5;
    o.kv_cache_dtype = dtypes[random_bits(r) % (sizeof dtypes / sizeof *dtypes)];
    if (one_in(r, 4)) o.dtype = dtypes[random_bits(r) % 4];
    return o;
}

/* Plans with so much memory, as a run would. A GPU has its context in it. */
static enum status plan(const struct engine_options *o, const struct loaded_model *described, int64_t available,
                        struct loaded_model *l, struct error *err)
{
    static struct loaded_model before;
    before.profile = (struct memory_profile){
        .total = available, .available = available, .context = described->backend->discrete ? available / 16 : 0};
    *l = *described; /* borrows */
    l->before = &before;
    const enum status status = loaded_model_plan(o, l, false, err);
    l->before = NULL;
    return status;
}

/* Sequences have the slots that they need, and leave half of the memory where nobody asked for so many. What snapshots
 * take is a part of the cache. */
static void check_slots(const struct engine_options *o, const struct loaded_model *l)
{
    const struct memory_profile *p = &l->profile;
    const int64_t snapshots = memory_profile_snapshots(p);
    if (p->slot_bytes == 0) {
        assert_int_equal(p->num_state_slots, 0);
        return;
    }
    assert_int_equal(p->num_state_slots, l->limits.num_state_slots);
    assert_int_equal(p->num_state_slots - p->num_snapshot_slots, state_pool_min_slots(&l->limits));
    assert_int_equal(p->state_slots, (p->num_state_slots + 1) * p->slot_bytes);
    if (!o->enable_prefix_caching) assert_int_equal(p->num_snapshot_slots, 0);
    if (o->num_gpu_blocks_override > 0) return;
    const int64_t cache = memory_profile_cache_budget(p);
    assert_true(snapshots <= cache / 4 ||
                (p->num_snapshot_slots <= MEMORY_MIN_SNAPSHOTS && snapshots <= cache / 2 + p->slot_bytes));
    if (o->enable_prefix_caching && o->max_model_len == 0 && cache >= 2 * MEMORY_MIN_SNAPSHOTS * p->slot_bytes)
        assert_true(p->num_snapshot_slots >= MEMORY_MIN_SNAPSHOTS);
    if (o->max_num_seqs == 0 && l->limits.max_num_seqs > 8)
        assert_true(memory_profile_sequence_slots(p) <= cache + cache / 8);
}

/* What was asked for is what the plan has. */
static void check_kept(const struct engine_options *o, const struct loaded_model *l, int64_t available)
{
    const struct batch_limits *limits = &l->limits;
    const struct memory_profile *p = &l->profile;
    const int64_t all = (int64_t)limits->max_num_seqs * limits->max_model_len;
    check_slots(o, l);
    if (o->max_model_len > 0) assert_int_equal(limits->max_model_len, o->max_model_len);
    if (o->max_num_seqs > 0) assert_int_equal(limits->max_num_seqs, o->max_num_seqs);
    if (o->max_num_batched_tokens > 0)
        assert_int_equal(limits->max_num_tokens, o->max_num_batched_tokens < all ? o->max_num_batched_tokens : all);
    if (o->swap_space >= 0) assert_true(p->swap_space == (int64_t)(o->swap_space * GIB));
    if (o->num_gpu_blocks_override > 0) assert_int_equal(p->num_blocks, o->num_gpu_blocks_override);
    if (p->discrete) {
        if (o->num_gpu_blocks_override == 0) assert_true(memory_profile_fixed(p) + p->kv_cache <= p->budget);
        assert_true(p->budget == (int64_t)((double)available * o->gpu_memory_utilization));
        return;
    }
    if (o->num_gpu_blocks_override == 0 && o->kv_cache_space > 0)
        assert_int_equal(p->num_blocks,
                         ((int64_t)(o->kv_cache_space * GIB) - memory_profile_snapshots(p)) / p->block_bytes);
    assert_true(memory_profile_step_memory(p) + p->kv_cache <= available);
}

static void print_options(const struct engine_options *o, int64_t available)
{
    print_error(
        "%.4f GiB, %.3f of a GPU's, max_model_len %d, max_num_seqs %d, max_num_batched_tokens %d, kv_cache_space %g, "
        "num_gpu_blocks_override %d, swap_space %g, block_size %d, %s, chunks %d, mode %d\n",
        (double)available / GIB, o->gpu_memory_utilization, o->max_model_len, o->max_num_seqs,
        o->max_num_batched_tokens, o->kv_cache_space, o->num_gpu_blocks_override, o->swap_space, o->block_size,
        o->kv_cache_dtype, o->enable_chunked_prefill, o->preemption_mode);
}

static void change_number(const struct advice *a, double now, double value)
{
    if (a->kind == ADVICE_LOWER ? value >= now || value <= 0 : value <= now)
        fail_msg("%s is %g: that cannot be changed to %s", a->setting, now, a->value);
}

/* Sets the field that the advice names. */
static void follow(const struct advice *a, const struct loaded_model *l, struct engine_options *o)
{
    const struct {
        const char *name;
        int32_t *field;
    } integers[] = {{"max_model_len", &o->max_model_len},
                    {"max_num_seqs", &o->max_num_seqs},
                    {"max_num_batched_tokens", &o->max_num_batched_tokens},
                    {"num_gpu_blocks_override", &o->num_gpu_blocks_override},
                    {"cpu_offload_experts", &o->cpu_offload_experts}};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        if (strcmp(a->setting, integers[i].name) != 0) continue;
        change_number(a, *integers[i].field, strtod(a->value, NULL));
        *integers[i].field = atoi(a->value);
        return;
    }
    const struct {
        const char *name;
        double *field;
    } reals[] = {{"swap_space", &o->swap_space},
                 {"kv_cache_space", &o->kv_cache_space},
                 {"gpu_memory_utilization", &o->gpu_memory_utilization}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        if (strcmp(a->setting, reals[i].name) != 0) continue;
        const bool chosen = i == 1 && o->kv_cache_space == 0;
        change_number(a, chosen ? (double)memory_profile_cache_budget(&l->profile) / GIB : *reals[i].field,
                      strtod(a->value, NULL));
        if (i > 0) assert_int_equal(l->profile.discrete, i == 2);
        *reals[i].field = strtod(a->value, NULL);
        return;
    }
    if (strcmp(a->setting, "preemption_mode") == 0) {
        assert_string_equal(a->value, "recompute");
        o->preemption_mode = PREEMPTION_RECOMPUTE;
    } else {
        assert_string_equal(a->setting, "kv_cache_dtype");
        assert_string_not_equal(a->value, o->kv_cache_dtype);
        o->kv_cache_dtype = a->value;
    }
}

/* What follows the advice fits. On the CPU it must fit into a little less free memory than before, too, because that
 * changes. */
static void check_advice(const struct engine_options *o, const struct loaded_model *described, int64_t available,
                         const struct loaded_model *failed, const struct error *err)
{
    for (int i = 0; i < err->num_advice; i++) {
        for (int part = 0; part < (failed->profile.discrete ? 1 : 2); part++) {
            struct engine_options changed = *o;
            struct loaded_model l;
            struct error again;
            follow(&err->advice[i], failed, &changed);
            if (plan(&changed, described, available - part * (available / 20), &l, &again) == STATUS_OK) {
                check_kept(&changed, &l, available);
                continue;
            }
            print_options(o, available);
            print_error("%s\n", command_sentence(err).text);
            fail_msg("advice %d does not help: %s", i + 1, command_sentence(&again).text);
        }
    }
}

struct counts {
    int plans, errors, advised;
};

static void try_setting(const struct engine_options *o, const struct loaded_model *described, int64_t available,
                        struct counts *counts)
{
    struct loaded_model l;
    struct error err;
    counts->plans++;
    if (plan(o, described, available, &l, &err) == STATUS_OK) {
        check_kept(o, &l, available);
        return;
    }
    counts->errors++;
    counts->advised += err.num_advice > 0;
    check_advice(o, described, available, &l, &err);
}

/* A GPU is a backend of the CPU that says so: nothing is allocated. */
static void try_settings(const struct temp_folder *folder, const struct shape *shape, bool discrete, struct random *r)
{
    struct engine_options o = no_options(folder);
    struct loaded_model *described;
    struct error err;
    struct counts counts = {0};
    if (loaded_model_describe(&o, &described, &err, &err) != STATUS_OK) fail_msg("%s", err.text);
    described->backend->discrete = discrete;
    for (int i = 0; i < NUM_SETTINGS; i++) {
        o = random_options(r, folder);
        try_setting(&o, described, (int64_t)random_size(r, 18, 38), &counts);
    }
    print_message("%s, head size %d, %lld tokens: %d plans, %d errors, %d with advice\n", discrete ? "GPU" : "CPU",
                  shape->head_size, shape->length, counts.plans, counts.errors, counts.advised);
    if (shape->head_size % 4 == 0) assert_true(counts.advised > counts.errors / 4);
    if (shape->head_size % 4 != 0) assert_true(counts.errors == counts.plans && counts.advised == 0);
    loaded_model_close(described);
}

static void advice_of_plans_helps(void **state)
{
    const struct temp_folder *folder = *state;
    struct random r = {7};
    for (int s = 0; s < NUM_SHAPES; s++) {
        write_config(folder, &shapes[s]);
        for (int discrete = 0; discrete < 2; discrete++) try_settings(folder, &shapes[s], discrete, &r);
    }
}

/* What nobody set adapts: a plan succeeds on as little memory as one sequence of one block needs. */
static void defaults_start_anywhere(void **state)
{
    const struct temp_folder *folder = *state;
    for (int s = 0; s < NUM_SHAPES; s++) {
        if (shapes[s].head_size % 4 != 0) continue;
        write_config(folder, &shapes[s]);
        struct engine_options o = no_options(folder);
        struct loaded_model *described, l;
        struct error err;
        volatile sig_atomic_t cancel = 0;
        if (loaded_model_describe(&o, &described, &err, &err) != STATUS_OK) fail_msg("%s", err.text);
        const int64_t least = shapes[s].state_heads > 100 ? 64 << 20 : 2 << 20; /* a slot has 3 MiB */
        for (int64_t available = least; available < (int64_t)1 << 40; available += available / 3) {
            o.cancel = available % 2 ? &cancel : NULL;
            o.enable_chunked_prefill = available % 3 != 0;
            if (plan(&o, described, available, &l, &err) != STATUS_OK)
                fail_msg("%lld bytes, %lld tokens: %s", (long long)available, shapes[s].length, err.text);
            check_kept(&o, &l, available);
        }
        loaded_model_close(described);
    }
}

/* With memory for all, nothing is lowered; with less, a step shrinks before sequences become short. */
static void what_is_lowered(void **state)
{
    (void)state;
    struct engine_options o = engine_options_default();
    struct loaded_model *described, l;
    struct error err;
    o.model = QUIRE_GUIDE;
    o.device = "cpu";
    o.threads = 2; /* which compute 8192 tokens in a second */
    if (loaded_model_describe(&o, &described, &err, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(plan(&o, described, (int64_t)64 << 30, &l, &err), STATUS_OK);
    assert_false(l.lowered_seqs || l.lowered_tokens);
    assert_true(l.limits.max_num_seqs == 256 && l.limits.max_num_tokens == 8192 && l.limits.max_model_len == 2048);
    assert_true(l.profile.kv_budget == (int64_t)4 << 30 && l.profile.swap_space == (int64_t)4 << 30);
    assert_int_equal(plan(&o, described, 120 << 20, &l, &err), STATUS_OK);
    assert_true(l.lowered_tokens && !l.lowered_seqs);
    assert_true(l.limits.max_num_seqs == 256 && l.limits.max_num_tokens == 2048 && l.limits.max_model_len == 2048);
    assert_int_equal(l.profile.kv_budget, 30 << 20);
    assert_int_equal(l.profile.swap_space, 15 << 20);
    o.max_num_batched_tokens = 8192; /* are refused, not lowered */
    o.max_model_len = 2048;
    o.max_num_seqs = 256;
    assert_int_equal(plan(&o, described, 120 << 20, &l, &err), STATUS_OUT_OF_MEMORY);
    assert_true(err.num_advice > 0);
    o.max_num_seqs = 0;
    o.max_num_batched_tokens = 16; /* has no room for 256 sequences, which nobody asked for */
    assert_int_equal(plan(&o, described, (int64_t)64 << 30, &l, &err), STATUS_OK);
    assert_int_equal(l.limits.max_num_seqs, 16);
    loaded_model_close(described);
}

/* ---- commands ---- */

enum { MAX_WORDS = 24 };

static void run_profile(const struct temp_folder *folder, const char *const *flags, const char *const *more,
                        struct program *p)
{
    const char *argv[MAX_WORDS] = {QUIRE_EXECUTABLE, "profile", "--model",       folder->path,
                                   "--device",       "cpu",     "--load-format", "dummy"};
    int count = 8;
    for (; *flags; flags++) argv[count++] = *flags;
    for (int i = 0; i < 2 && more[i]; i++) argv[count++] = more[i];
    program_run(p, argv, NULL);
}

/* Follows each "--flag to VALUE" of the sentence: the last of two flags holds. */
static int follow_sentence(const struct temp_folder *folder, const char *const *flags, const char *sentence)
{
    int followed = 0;
    const char *advice = strstr(sentence, ": lower --");
    if (!advice) advice = strstr(sentence, ": raise --");
    if (!advice) advice = strstr(sentence, ": set --");
    for (const char *at = advice ? strstr(advice, "--") : NULL; at; at = strstr(at + 1, "--")) {
        char flag[64], value[64];
        assert_int_equal(sscanf(at, "%63[a-z-] to %63[^, \n]", flag, value), 2);
        struct program p;
        run_profile(folder, flags, (const char *[]){flag, value}, &p);
        if (p.exit_status != 0) fail_msg("%s: following it says: %s", sentence, p.err.data);
        program_free(&p);
        followed++;
    }
    return followed;
}

static void advice_of_commands_helps(void **state)
{
    static const struct {
        int shape;
        const char *flags[7];
        bool helped; /* a single flag helps */
    } runs[] = {
        {0, {"--num-gpu-blocks-override", "3", "--max-model-len", "151"}, true},
        {0, {"--num-gpu-blocks-override", "3", "--max-model-len", "1000"}, true},
        {0, {"--kv-cache-space", "0.00001"}, true},
        {0, {"--kv-cache-space", "1000000"}, true},
        {0, {"--num-gpu-blocks-override", "2000000000"}, true},
        {0, {"--max-num-batched-tokens", "16", "--max-num-seqs", "64"}, true},
        {0, {"--no-enable-chunked-prefill", "--max-num-batched-tokens", "64", "--max-num-seqs", "8"}, true},
        {0, {"--preemption-mode", "swap", "--swap-space", "0"}, true},
        {3, {"--max-model-len", "268435456"}, true},
        {3, {"--max-model-len", "268435456", "--max-num-batched-tokens", "16"}, true},
        {3, {"--max-num-batched-tokens", "2147483647", "--max-num-seqs", "2", "--max-model-len", "268435456"}, true},
        {5, {"--kv-cache-dtype", "float32"}, false},
        {5, {"--block-size", "8"}, false},
        {6, {"--kv-cache-dtype", "float16"}, true},
        {7, {"--kv-cache-dtype", "fp8"}, true},
    };
    const struct temp_folder *folder = *state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct program p;
        write_config(folder, &shapes[runs[i].shape]);
        run_profile(folder, runs[i].flags, (const char *[]){NULL}, &p);
        if (p.exit_status != 1) fail_msg("run %zu ended with %d: %s", i, p.exit_status, p.err.data);
        const int followed = follow_sentence(folder, runs[i].flags, p.err.data);
        if ((followed > 0) != runs[i].helped) fail_msg("run %zu has %d: %s", i, followed, p.err.data);
        program_free(&p);
    }
}

/* ---- a limited address space ---- */

static void small_address_spaces(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* sanitizers reserve terabytes */
#endif
    static const char chat[] =
        "exec " QUIRE_EXECUTABLE " chat --model " QUIRE_GUIDE " --device cpu --temperature 0 --max-tokens 4 Hi",
                      generate[] = "echo Hi | " QUIRE_EXECUTABLE " generate --model " QUIRE_GUIDE
                                   " --device cpu --no-chat --max-tokens 4 --input -";
    static const struct {
        int64_t kib; /* beside the executable, which is large where it has CUDA kernels */
        const char *command;
        bool lowered;
    } runs[] = {{296000, chat, false}, {116000, chat, false}, {296000, generate, true}, {116000, generate, true}};
    struct stat executable;
    assert_int_equal(stat(QUIRE_EXECUTABLE, &executable), 0);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct program p;
        char line[1024];
        snprintf(line, sizeof line, "ulimit -v %lld; %s", (long long)(runs[i].kib + executable.st_size / 1024),
                 runs[i].command);
        program_run(&p, (const char *const[]){"/bin/sh", "-c", line, NULL}, NULL);
        if (p.exit_status != 0) fail_msg("%s: %s", line, p.err.data);
        assert_true(p.out.length > 0);
        const bool lowered = p.err.data && strstr(p.err.data, "memory is short: lowered --max-num-batched-tokens to ");
        assert_int_equal(lowered, runs[i].lowered);
        program_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(advice_of_plans_helps, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test_setup_teardown(defaults_start_anywhere, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test(what_is_lowered),
        cmocka_unit_test_setup_teardown(advice_of_commands_helps, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test(small_address_spaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
