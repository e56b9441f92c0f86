#include "runtime/options/engine_flags.h"

#include <math.h>
#include <string.h>

#include "kernels/gpu_list.h"
#include "runtime/engine/engine_pool.h"
#include "runtime/options/command.h"
#include "runtime/options/speculation_flags.h"

enum status engine_flags_parse_device(void *target, const char *text, struct error *err)
{
    if (gpu_list_count(text) == 0 && strcmp(text, "auto") != 0 && strcmp(text, "cpu") != 0 &&
        strcmp(text, "cuda") != 0) {
        return error_set(err, STATUS_INVALID, "expected auto|cpu|cuda|cuda:N[,M,..], got '%s'", text);
    }
    *(const char **)target = text;
    return STATUS_OK;
}

const int32_t engine_flags_block_sizes[] = {8, 16, 32, 64, 128};

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

void model_flags_add(struct option_table *table, const char **model, const char **revision, const char *heading)
{
    const struct option_spec specs[] = {
        {"model", OPTION_STRING, model, "PATH|ORG/NAME[@REVISION]",
         .help = "Checkpoint folder, or a model in the Hugging Face cache. Default: the model that ships with quire.",
         .heading = heading, .letter = 'm', .common = true, .not_empty = true},
        {"revision", OPTION_STRING, revision, "REVISION",
         .help = "Which snapshot of ORG/NAME: a branch, a tag, a commit or the beginning of one. Default: main.",
         .not_empty = true},
        {"trust-remote-code", OPTION_SWITCH, &table->ignored,
         .help = "Accepted for vLLM's command lines; quire executes no code of a checkpoint. Default: off.",
         .note = "this changes nothing, because quire executes no code of a checkpoint"},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

static void add_model_flags(struct option_table *table, struct engine_options *o, struct log *log)
{
    model_flags_add(table, &o->model, &o->revision, "Model and device:");
    static const int32_t load_formats[] = {LOAD_FORMAT_AUTO, LOAD_FORMAT_AUTO, LOAD_FORMAT_DUMMY};
    const struct option_spec specs[] = {
        {"device", OPTION_CUSTOM, &o->device, "auto|cpu|cuda|cuda:N,..",
         .help = "Where to compute. Default: auto, a GPU if there is one.", .common = true,
         .parse = engine_flags_parse_device},
        {"dtype", OPTION_CUSTOM, &o->dtype, "auto|float32|float|float16|half|bfloat16",
         .help = "Type of weights and activations. Default: auto, the checkpoint's on a GPU, float32 on the CPU.",
         .parse = engine_flags_parse_dtype},
        {"quantization", OPTION_CHOICE, &o->quantization, "none|fp8|int8|int4|awq|gptq|compressed-tensors",
         .help = "fp8, int8, int4: quantize weights while loading. Default: none.", .common = true},
        {"load-format", OPTION_ENUM, &o->load_format, "auto|safetensors|dummy",
         .help = "dummy: random weights; config.json, and a tokenizer where texts are read, are enough. Default: auto.",
         .values = load_formats},
        {"generation-config", OPTION_STRING, &o->generation_config, "auto|vllm|FOLDER",
         .help = "Where defaults of sampling are from. auto: the model's generation_config.json; vllm: none; or "
                 "another folder with that file. Default: auto.",
         .not_empty = true},
        {"cpu-offload-experts", OPTION_INT32, &o->cpu_offload_experts, "N",
         .help = "On a GPU, keep the experts of the first N layers in host memory and let the CPU compute them. "
                 "Default: 0.",
         .minimum = 0, .maximum = INFINITY},
        {"cpu-offload-embeddings", OPTION_SWITCH, &o->cpu_offload_embeddings,
         .help = "Keep tables of embeddings, of which a step reads a few rows, in pinned host memory: the embedding "
                 "unless it is lm_head, too, and per-layer embeddings. Default: off."},
        {"max-model-len", OPTION_INT32, &o->max_model_len, "N",
         .help = "Longest sequence, prompt and answer, in tokens. Default: the model's, or the "
                 "longest that fits in memory.",
         .common = true, .minimum = 1, .maximum = INFINITY},
        {"threads", OPTION_INT32, &o->threads, "N",
         .help =
             "Threads of the CPU. Default: 0, every processor that may be used, as far as a container's quota goes.",
         .letter = 't', .minimum = 0, .maximum = 4096},
        {"cpu-isa", OPTION_CHOICE, &o->cpu_isa, "auto|scalar|avx2|avx512|avx512vnni|amx",
         .help = "Instruction set of the CPU's kernels. Default: auto, the widest that the processor has."},
        {"seed", OPTION_UINT64, &o->seed, "N",
         .help = "Seed of sampling, and of dummy weights. Default: 0; for quire chat, another one each time."},
        {"verbose", OPTION_CUSTOM, &log->level, .help = "Say what is being done, on stderr; twice: say everything.",
         .letter = 'v', .common = true, .parse = parse_verbose},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

/* vLLM's flag, of whose types quire has one. */
static enum status parse_state_dtype(void *target, const char *text, struct error *err)
{
    (void)target;
    if (strcmp(text, "auto") == 0 || strcmp(text, "float32") == 0) return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "expected auto|float32, got '%s': the states of recurrent layers are float32, because they gather "
                     "the rounding of every token",
                     text);
}

static void add_cache_flags(struct option_table *table, struct engine_options *o)
{
    const struct option_spec specs[] = {
        {"kv-cache-dtype", OPTION_CHOICE, &o->kv_cache_dtype, "auto|float32|float16|bfloat16|fp8|fp8_e4m3|fp8_e5m2",
         .help = "Type of the cached keys and values. fp8 is fp8_e4m3: half the memory of 16 bits, with the "
                 "checkpoint's scales or measured ones. Default: auto, as --dtype.",
         .heading = "KV cache:"},
        {"block-size", OPTION_ENUM, &o->block_size, "8|16|32|64|128",
         .help = "Tokens in a block of the KV cache. Default: 16.", .values = engine_flags_block_sizes},
        {"gpu-memory-utilization", OPTION_DOUBLE, &o->gpu_memory_utilization, "F",
         .help = "Share of the GPU's memory to use. Default: 0.9.", .common = true, .minimum = 0.01, .maximum = 1},
        {"kv-cache-space", OPTION_DOUBLE, &o->kv_cache_space, "GIB",
         .help = "Memory of the KV cache on the CPU, snapshots of states included, in GiB. Default: 0, the lesser of 4 "
                 "and a quarter of what is "
                 "free.",
         .common = true, .minimum = 0, .maximum = 1 << 20},
        {"num-gpu-blocks-override", OPTION_INT32, &o->num_gpu_blocks_override, "N",
         .help = "Number of KV blocks, on either device. Default: 0, computed from memory.", .minimum = 0,
         .maximum = INFINITY},
        {"swap-space", OPTION_DOUBLE, &o->swap_space, "GIB",
         .help =
             "Host memory for the KV blocks and the states of preempted requests, in GiB; allocated as it is needed. "
             "Default: 4, or on the CPU the lesser of 4 and an eighth of what is free.",
         .minimum = 0, .maximum = 1 << 20},
        {"enable-prefix-caching", OPTION_SWITCH, &o->enable_prefix_caching,
         .help = "Reuse the blocks of prompts that begin alike. Default: on."},
        {"state-interval", OPTION_INT32, &o->state_interval, "N",
         .help = "Of models with recurrent layers: a long prompt leaves a snapshot of their states every N tokens, "
                 "rounded up to whole blocks, from which later prompts go on. 0: none but at its end. Default: 8192.",
         .minimum = 0, .maximum = 1 << 28},
        {"mamba-ssm-cache-dtype", OPTION_CUSTOM, &table->ignored, "auto|float32",
         .help = "Type of the states of recurrent layers. Default: auto, which is float32.",
         .parse = parse_state_dtype},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

static void add_scheduling_flags(struct option_table *table, struct engine_options *o)
{
    static const int32_t modes[] = {PREEMPTION_AUTO, PREEMPTION_RECOMPUTE, PREEMPTION_SWAP};
    static const int32_t policies[] = {SCHEDULING_FCFS, SCHEDULING_PRIORITY};
    const struct option_spec specs[] = {
        {"max-num-seqs", OPTION_INT32, &o->max_num_seqs, "N",
         .help = "Most sequences in one step. Default: 256, or as memory allows.",
         .heading = "Scheduling:", .common = true, .minimum = 1, .maximum = 65535},
        {"max-num-batched-tokens", OPTION_INT32, &o->max_num_batched_tokens, "N",
         .help =
             "Most tokens in one step. Default: 0, which is 8192 on a GPU, and on a CPU what its threads compute in "
             "about a second, estimated: 128 to 8192, but --max-num-seqs at least; or fewer where memory is short.",
         .minimum = 0, .maximum = INFINITY},
        {"scheduling-policy", OPTION_ENUM, &o->scheduling_policy, "fcfs|priority",
         .help = "Which requests run first: those that came first, or those whose \"priority\" is smallest. "
                 "Default: fcfs.",
         .values = policies},
        {"preemption-mode", OPTION_ENUM, &o->preemption_mode, "auto|recompute|swap",
         .help = "How a request makes room for older ones: it is recomputed later, or swapped to host memory. "
                 "Default: auto, which swaps requests with several unfinished answers.",
         .values = modes},
        {"enable-chunked-prefill", OPTION_SWITCH, &o->enable_chunked_prefill,
         .help = "Cut long prompts into chunks, computed beside other requests. Default: on."},
        {"enforce-eager", OPTION_SWITCH, &o->enforce_eager,
         .help = "On a GPU, launch every kernel of every step instead of replaying captured graphs. Default: off."},
        {"async-scheduling", OPTION_TRISTATE, &o->async_scheduling,
         .help = "Schedule a step while the last one runs. Default: on, except on the CPU."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

static void add_parallel_flags(struct option_table *table, struct engine_options *o)
{
    const struct option_spec specs[] = {
        {"tensor-parallel-size", OPTION_INT32, &o->tensor_parallel_size, "N",
         .help = "Share the model between N GPUs. Default: 1.", .heading = "Several GPUs:", .letters = "tp",
         .minimum = 1, .maximum = COLLECTIVE_MAX_RANKS},
        {"pipeline-parallel-size", OPTION_INT32, &o->pipeline_parallel_size, "N",
         .help = "Cut the model's layers into N stages, on a GPU each, or on as many as --tensor-parallel-size says. "
                 "Steps go from stage to stage, and N of them are computed at the same time. Default: 1.",
         .letters = "pp", .minimum = 1, .maximum = COLLECTIVE_MAX_RANKS},
        {"enable-expert-parallel", OPTION_SWITCH, &o->enable_expert_parallel,
         .help =
             "With --tensor-parallel-size N, give each GPU some of the experts of a mixture, whole, instead of a part "
             "of each. Default: off.",
         .letters = "ep"},
        {"data-parallel-size", OPTION_INT32, &o->data_parallel_size, "N",
         .help = "Of quire generate and quire bench throughput: engines that share the requests, each with a copy of "
                 "the model, on the GPUs of --device or the first N; on the CPU they share its threads. Default: 1.",
         .letters = "dp", .minimum = 1, .maximum = ENGINE_POOL_MAX},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

static void add_node_flags(struct option_table *table, struct engine_options *o)
{
    const struct option_spec specs[] = {
        {"nnodes", OPTION_INT32, &o->nnodes, "N",
         .help =
             "Processes that share the model, on one host or several: each has --tensor-parallel-size / N of the GPUs. "
             "All are started with the same command line; the first runs the command. Default: 1.",
         .heading = "Several processes:", .minimum = 1, .maximum = COLLECTIVE_MAX_RANKS},
        {"node-rank", OPTION_INT32, &o->node_rank, "N",
         .help = "Which of them this is: 0 runs the command. Default: what mpirun or srun says.", .minimum = 0,
         .maximum = COLLECTIVE_MAX_RANKS - 1},
        {"master-addr", OPTION_STRING, &o->master_addr, "ADDRESS",
         .help = "Host name or address of process 0. Default: MASTER_ADDR, or srun's first host, or 127.0.0.1.",
         .not_empty = true},
        {"master-port", OPTION_INT32, &o->master_port, "PORT",
         .help = "Port at which process 0 waits for the others. Default: MASTER_PORT, or 29501.", .minimum = 1,
         .maximum = 65535},
        {"distributed-timeout-seconds", OPTION_INT32, &o->distributed_timeout_seconds, "N",
         .help = "How long a process waits for another before it gives up. Default: 600.", .minimum = 1,
         .maximum = 1 << 20},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

enum status engine_flags_check_one(const struct engine_options *o, const char *why, struct error *err)
{
    if (o->data_parallel_size != 1)
        return error_set(err, STATUS_INVALID, "--data-parallel-size %d: %s", o->data_parallel_size, why);
    return STATUS_OK;
}

void engine_flags_add(struct option_table *table, struct engine_options *options, struct log *log)
{
    log->spell = command_spell_flag;
    add_model_flags(table, options, log);
    add_cache_flags(table, options);
    add_scheduling_flags(table, options);
    speculation_flags_add(table, options);
    add_parallel_flags(table, options);
    add_node_flags(table, options);
}

void trace_flag_add(struct option_table *table, struct engine_options *options)
{
    const struct option_spec spec = {
        "trace",
        OPTION_STRING,
        &options->trace_file,
        "FILE",
        .help = "Write a Chrome trace of steps, requests and queues, for ui.perfetto.dev. Default: none.",
        .not_empty = true};
    option_table_add(table, &spec, 1);
}
