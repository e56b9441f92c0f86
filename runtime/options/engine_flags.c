#include "runtime/options/engine_flags.h"

#include <math.h>
#include <string.h>

#include "runtime/commands.h"

static enum status parse_load_format(void *target, const char *text, struct error *err)
{
    enum load_format *format = target;
    if (strcmp(text, "auto") == 0 || strcmp(text, "safetensors") == 0) {
        *format = LOAD_FORMAT_AUTO;
    } else if (strcmp(text, "dummy") == 0) {
        *format = LOAD_FORMAT_DUMMY;
    } else {
        return error_set(err, STATUS_INVALID, "expected auto|safetensors|dummy, got '%s'", text);
    }
    return STATUS_OK;
}

static enum status parse_preemption_mode(void *target, const char *text, struct error *err)
{
    static const char *const names[] = {
        [PREEMPTION_AUTO] = "auto", [PREEMPTION_RECOMPUTE] = "recompute", [PREEMPTION_SWAP] = "swap"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *(enum preemption_mode *)target = (enum preemption_mode)i;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "expected auto|recompute|swap, got '%s'", text);
}

static enum status parse_scheduling_policy(void *target, const char *text, struct error *err)
{
    enum scheduling_policy *policy = target;
    if (strcmp(text, "fcfs") == 0) {
        *policy = SCHEDULING_FCFS;
    } else if (strcmp(text, "priority") == 0) {
        *policy = SCHEDULING_PRIORITY;
    } else {
        return error_set(err, STATUS_INVALID, "expected fcfs|priority, got '%s'", text);
    }
    return STATUS_OK;
}

enum status engine_flags_parse_device(void *target, const char *text, struct error *err)
{
    bool numbered = strncmp(text, "cuda:", 5) == 0 && text[5] && text[5 + strspn(text + 5, "0123456789")] == '\0';
    if (!numbered && strcmp(text, "auto") != 0 && strcmp(text, "cpu") != 0 && strcmp(text, "cuda") != 0) {
        return error_set(err, STATUS_INVALID, "expected auto|cpu|cuda|cuda:N, got '%s'", text);
    }
    *(const char **)target = text;
    return STATUS_OK;
}

enum status engine_flags_parse_block_size(void *target, const char *text, struct error *err)
{
    static const int32_t sizes[] = {8, 16, 32, 64, 128};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", (int)sizes[i]);
        if (strcmp(name, text) != 0) continue;
        *(int32_t *)target = sizes[i];
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "expected 8|16|32|64|128, got '%s'", text);
}

/* Each -v raises the level by one: from warnings to what is being done, then to everything. */
static enum status parse_verbose(void *target, const char *text, struct error *err)
{
    (void)text, (void)err;
    enum log_level *level = target;
    if (*level < LOG_DEBUG) (*level)++;
    return STATUS_OK;
}

/* vLLM's names of two types are shorter. */
enum status engine_flags_parse_dtype(void *target, const char *text, struct error *err)
{
    static const struct {
        const char *name, *dtype;
    } names[] = {{"auto", "auto"},       {"float32", "float32"}, {"float", "float32"},
                 {"float16", "float16"}, {"half", "float16"},    {"bfloat16", "bfloat16"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i].name) != 0) continue;
        *(const char **)target = names[i].dtype;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "expected auto|float32|float|float16|half|bfloat16, got '%s'", text);
}

/* How many GPUs share a model: vLLM's flags, of which quire can do 1. */
static enum status parse_one(void *target, const char *text, struct error *err)
{
    (void)target;
    if (strcmp(text, "1") == 0) return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "expected 1, got '%s': quire runs a model on one GPU; for several start one process a GPU, with "
                     "--device cuda:N and with --shard I/N of quire generate",
                     text);
}

void model_flags_add(struct option_table *table, const char **model, const char **revision, const char *heading)
{
    const struct option_spec specs[] = {
        {.heading = heading,
         .name = "model",
         .common = true,
         .letter = 'm',
         .kind = OPTION_STRING,
         .target = model,
         .not_empty = true,
         .argument = "PATH|ORG/NAME[@REVISION]",
         .help = "Checkpoint folder, or a model in the Hugging Face cache. Default: the model that ships with quire."},
        {.name = "revision",
         .kind = OPTION_STRING,
         .target = revision,
         .not_empty = true,
         .argument = "REVISION",
         .help = "Which snapshot of ORG/NAME: a branch, a tag, a commit or the beginning of one. Default: main."},
        {.name = "trust-remote-code",
         .kind = OPTION_SWITCH,
         .target = &table->ignored,
         .note = "this changes nothing, because quire executes no code of a checkpoint",
         .help = "Accepted for vLLM's command lines; quire executes no code of a checkpoint. Default: off."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

static void add_model_flags(struct option_table *table, struct engine_options *o, struct log *log)
{
    model_flags_add(table, &o->model, &o->revision, "Model and device:");
    const struct option_spec specs[] = {
        {.name = "device",
         .common = true,
         .kind = OPTION_CUSTOM,
         .target = &o->device,
         .parse = engine_flags_parse_device,
         .argument = "auto|cpu|cuda|cuda:N",
         .help = "Where to compute. Default: auto, a GPU if there is one."},
        {.name = "dtype",
         .kind = OPTION_CUSTOM,
         .target = &o->dtype,
         .parse = engine_flags_parse_dtype,
         .argument = "auto|float32|float|float16|half|bfloat16",
         .help = "Type of weights and activations. Default: auto, the checkpoint's on a GPU, float32 on the CPU."},
        {.name = "quantization",
         .common = true,
         .kind = OPTION_STRING,
         .target = &o->quantization,
         .choices = "none|fp8|int8|int4|awq|gptq|compressed-tensors",
         .help = "fp8, int8, int4: quantize weights while loading. Default: none."},
        {.name = "load-format",
         .kind = OPTION_CUSTOM,
         .target = &o->load_format,
         .parse = parse_load_format,
         .argument = "auto|safetensors|dummy",
         .help =
             "dummy: random weights; config.json, and a tokenizer where texts are read, are enough. Default: auto."},
        {.name = "generation-config",
         .kind = OPTION_STRING,
         .target = &o->generation_config,
         .not_empty = true,
         .argument = "auto|vllm|FOLDER",
         .help =
             "Where defaults of sampling are from. auto: the model's generation_config.json; vllm: none; or another "
             "folder with that file. Default: auto."},
        {.name = "max-model-len",
         .common = true,
         .kind = OPTION_INT32,
         .target = &o->max_model_len,
         .minimum = 1,
         .maximum = INFINITY,
         .argument = "N",
         .help = "Longest sequence, prompt and answer, in tokens. Default: the model's, or the "
                 "longest that fits in memory."},
        {.name = "threads",
         .letter = 't',
         .kind = OPTION_INT32,
         .target = &o->threads,
         .minimum = 0,
         .maximum = 4096,
         .argument = "N",
         .help =
             "Threads of the CPU. Default: 0, every processor that may be used, as far as a container's quota goes."},
        {.name = "cpu-isa",
         .kind = OPTION_STRING,
         .target = &o->cpu_isa,
         .choices = "auto|scalar|avx2|avx512|avx512vnni|amx",
         .help = "Instruction set of the CPU's kernels. Default: auto, the widest that the processor has."},
        {.name = "seed",
         .kind = OPTION_UINT64,
         .target = &o->seed,
         .argument = "N",
         .help = "Seed of sampling, and of dummy weights. Default: 0; for quire chat, another one each time."},
        {.name = "verbose",
         .common = true,
         .letter = 'v',
         .kind = OPTION_CUSTOM,
         .target = &log->level,
         .parse = parse_verbose,
         .help = "Say what is being done, on stderr; twice: say everything."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

static void add_cache_flags(struct option_table *table, struct engine_options *o)
{
    const struct option_spec specs[] = {
        {.heading = "KV cache:",
         .name = "kv-cache-dtype",
         .kind = OPTION_STRING,
         .target = &o->kv_cache_dtype,
         .choices = "auto|float32|float16|bfloat16|fp8|fp8_e4m3|fp8_e5m2",
         .help =
             "Type of the cached keys and values. fp8 is fp8_e4m3: half the memory of 16 bits, with the checkpoint's "
             "scales or measured ones. Default: auto, as --dtype."},
        {.name = "block-size",
         .kind = OPTION_CUSTOM,
         .target = &o->block_size,
         .parse = engine_flags_parse_block_size,
         .argument = "8|16|32|64|128",
         .help = "Tokens in a block of the KV cache. Default: 16."},
        {.name = "gpu-memory-utilization",
         .common = true,
         .kind = OPTION_DOUBLE,
         .target = &o->gpu_memory_utilization,
         .minimum = 0.01,
         .maximum = 1,
         .argument = "F",
         .help = "Share of the GPU's memory to use. Default: 0.9."},
        {.name = "kv-cache-space",
         .common = true,
         .kind = OPTION_DOUBLE,
         .target = &o->kv_cache_space,
         .minimum = 0,
         .maximum = 1 << 20,
         .argument = "GIB",
         .help = "Memory of the KV cache on the CPU, in GiB. Default: 0, the lesser of 4 and a quarter of what is "
                 "free."},
        {.name = "num-gpu-blocks-override",
         .kind = OPTION_INT32,
         .target = &o->num_gpu_blocks_override,
         .minimum = 0,
         .maximum = INFINITY,
         .argument = "N",
         .help = "Number of KV blocks, on either device. Default: 0, computed from memory."},
        {.name = "swap-space",
         .kind = OPTION_DOUBLE,
         .target = &o->swap_space,
         .minimum = 0,
         .maximum = 1 << 20,
         .argument = "GIB",
         .help =
             "Host memory for the KV blocks of preempted requests, in GiB; allocated as it is needed. Default: 4, or "
             "on the CPU the lesser of 4 and an eighth of what is free."},
        {.name = "enable-prefix-caching",
         .kind = OPTION_SWITCH,
         .target = &o->enable_prefix_caching,
         .help = "Reuse the blocks of prompts that begin alike. Default: on."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

static void add_scheduling_flags(struct option_table *table, struct engine_options *o)
{
    const struct option_spec specs[] = {
        {.heading = "Scheduling:",
         .name = "max-num-seqs",
         .common = true,
         .kind = OPTION_INT32,
         .target = &o->max_num_seqs,
         .minimum = 1,
         .maximum = 65535,
         .argument = "N",
         .help = "Most sequences in one step. Default: 256, or as memory allows."},
        {.name = "max-num-batched-tokens",
         .kind = OPTION_INT32,
         .target = &o->max_num_batched_tokens,
         .minimum = 0,
         .maximum = INFINITY,
         .argument = "N",
         .help =
             "Most tokens in one step. Default: 0, which is 8192 on a GPU, and on a CPU what its threads compute in "
             "about a second, estimated: 128 to 8192, but --max-num-seqs at least; or fewer where memory is short."},
        {.name = "scheduling-policy",
         .kind = OPTION_CUSTOM,
         .target = &o->scheduling_policy,
         .parse = parse_scheduling_policy,
         .argument = "fcfs|priority",
         .help = "Which requests run first: those that came first, or those whose \"priority\" is smallest. "
                 "Default: fcfs."},
        {.name = "preemption-mode",
         .kind = OPTION_CUSTOM,
         .target = &o->preemption_mode,
         .parse = parse_preemption_mode,
         .argument = "auto|recompute|swap",
         .help = "How a request makes room for older ones: it is recomputed later, or swapped to host memory. "
                 "Default: auto, which swaps requests with several unfinished answers."},
        {.name = "enable-chunked-prefill",
         .kind = OPTION_SWITCH,
         .target = &o->enable_chunked_prefill,
         .help = "Cut long prompts into chunks, computed beside other requests. Default: on."},
        {.name = "enforce-eager",
         .kind = OPTION_SWITCH,
         .target = &o->enforce_eager,
         .help = "On a GPU, launch every kernel of every step instead of replaying captured graphs. Default: off."},
        {.name = "async-scheduling",
         .kind = OPTION_TRISTATE,
         .target = &o->async_scheduling,
         .help = "Schedule a step while the last one runs. Default: on, except on the CPU."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

static void add_parallel_flags(struct option_table *table)
{
    static const struct {
        const char *name, *letters, *help;
    } flags[] = {
        {"tensor-parallel-size", "tp", "GPUs that share each layer. Only 1 is possible."},
        {"pipeline-parallel-size", "pp", "GPUs that share the layers. Only 1 is possible."},
        {"data-parallel-size", "dp",
         "Copies of the model. Only 1 is possible; quire generate --shard I/N gives each process a part."},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const struct option_spec spec = {.heading = i == 0 ? "Several GPUs:" : NULL,
                                         .name = flags[i].name,
                                         .letters = flags[i].letters,
                                         .kind = OPTION_CUSTOM,
                                         .target = &table->ignored,
                                         .parse = parse_one,
                                         .argument = "1",
                                         .help = flags[i].help};
        option_table_add(table, &spec, 1);
    }
}

void engine_flags_add(struct option_table *table, struct engine_options *options, struct log *log)
{
    log->spell = command_spell_flag;
    add_model_flags(table, options, log);
    add_cache_flags(table, options);
    add_scheduling_flags(table, options);
    add_parallel_flags(table);
}

void trace_flag_add(struct option_table *table, struct engine_options *options)
{
    const struct option_spec spec = {
        .name = "trace",
        .kind = OPTION_STRING,
        .target = &options->trace_file,
        .not_empty = true,
        .argument = "FILE",
        .help = "Write a Chrome trace of steps, requests and queues, for ui.perfetto.dev. Default: none."};
    option_table_add(table, &spec, 1);
}
