/* What an engine is asked for. */
#ifndef QUIRE_RUNTIME_ENGINE_OPTIONS_H
#define QUIRE_RUNTIME_ENGINE_OPTIONS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "runtime/engine/draft.h"
#include "scheduler/scheduler.h"

enum load_format { LOAD_FORMAT_AUTO, LOAD_FORMAT_DUMMY }; /* dummy: random weights, only config.json is read */

enum { ENGINE_STATE_INTERVAL = 8192 };

/* What engines that open at the same time have in common: max_model_len and max_num_seqs. */
struct common_limits {
    int32_t max_model_len, max_num_seqs;
};
/* Takes the limits that an engine has planned, and puts the least of all engines' in their place, once all have come.
 * Other than OK: another engine failed. */
typedef enum status agree_limits_function(void *context, struct common_limits *limits, struct error *err);

/* vLLM's names and meanings. Where an error carries advice (base/status.h), it names these fields. The strings are
 * referred to, and must outlive the engine. */
struct engine_options {
    const char *model;        /* checkpoint folder */
    const char *revision;     /* for who finds the folder of a name: which snapshot; NULL: the usual one */
    const char *device;       /* "auto", "cpu", "cuda", "cuda:N"; of several GPUs also "cuda:N,M" */
    const char *dtype;        /* of activations: "auto", "float32", "float16", "bfloat16". auto: the checkpoint's on a
                                 GPU, float32 on the CPU */
    const char *quantization; /* of weights, while they are loaded, or what the checkpoint is (quantization_apply);
                                 "none" or NULL: as the checkpoint has them */
    const char *generation_config; /* where the defaults of sampling are from: "auto" or NULL, "vllm", or a folder
                                      (model_config_load) */
    const char *kv_cache_dtype;    /* "auto": as dtype; also "fp8" or "fp8_e4m3", and "fp8_e5m2". The scales of fp8_e4m3
                                      are the checkpoint's or, if it has none, measured on the prompts of the first step */
    int32_t tensor_parallel_size;  /* ranks that share the model (model/shard.h): 1 to COLLECTIVE_MAX_RANKS, each on a
                                      GPU  of its own, or with its part of the CPU's threads */
    bool enable_expert_parallel;   /* each rank has some of a layer's experts, and not a part of each */
    int32_t pipeline_parallel_size; /* stages that share the layers (model/stage.h), each of tensor_parallel_size ranks;
                                       COLLECTIVE_MAX_RANKS ranks in all */
    /* Processes that have tensor_parallel_size / nnodes ranks each: this one is node_rank, and node 0 has the engine
     * (model/nodes/nodes.h). They meet at an address and a port of node 0, and wait for one another for so many
     * seconds at most. Of node_rank -1, master_addr NULL and master_port 0: who reads flags finds it out. */
    int32_t nnodes, node_rank;
    const char *master_addr;
    char node_address[64]; /* for who finds out master_addr */
    int32_t master_port, distributed_timeout_seconds;
    char node_facts[256];       /* lines "NAME: VALUE" of what all nodes must have alike: this program, and the model's
                                   files */
    int32_t data_parallel_size; /* engines that engine_pool_create opens; engine_create opens one */
    int32_t host_share;         /* on the CPU so many engines, this one included, are to share what memory is free;
                                   0: it is this one's alone */
    const char *trace_file;     /* gets a Chrome trace of steps, requests and queues (trace.h); NULL: none */
    enum load_format load_format;
    int32_t block_size;              /* 8, 16, 32, 64 or 128 */
    int32_t max_model_len;           /* 0: the model's, or the largest that fits */
    int32_t max_num_seqs;            /* sequences in one step; 0: 256, or fewer where memory is short */
    int32_t max_num_batched_tokens;  /* tokens in one step; 0: 8192 on a GPU; on the CPU, or where it computes experts
                                        for a GPU, as many as its threads compute in about a second, a power of two from
                                        128 to 8192, and 8192 without chunked prefill. At least max_num_seqs. Fewer where
                                        memory is short */
    double gpu_memory_utilization;   /* share of a GPU's memory, 0 to 1 */
    double kv_cache_space;           /* GiB, on the CPU, of blocks and snapshots of states; 0: the lesser of 4 and a
                                        quarter of what is free */
    int32_t num_gpu_blocks_override; /* 0: computed from memory */
    double swap_space;               /* GiB of host memory for preempted requests, allocated as it is needed; below 0:
                                        4, or on the CPU the lesser of 4 and an eighth of what is free */
    bool enable_prefix_caching, enable_chunked_prefill;
    int32_t state_interval; /* a long prompt leaves a snapshot of the states of recurrent layers every so many tokens,
                               rounded up to whole blocks (ENGINE_STATE_INTERVAL); 0: none but at its end */
    enum preemption_mode preemption_mode;
    enum scheduling_policy scheduling_policy;
    int32_t cpu_offload_experts; /* on a GPU the experts of the first so many layers stay in host memory, and the CPU
                                    computes them; more than there are: of all */
    bool cpu_offload_embeddings; /* a GPU reads tables of embeddings in pinned host memory (struct model_weights) */
    bool enforce_eager;          /* no CUDA graphs */
    int async_scheduling;        /* 1: schedule a step while the last one runs; 0: do not; -1: on a GPU */
    struct speculative_config speculative; /* how to draft the next tokens; DRAFT_NONE: not at all */
    uint64_t speculative_given; /* for who reads flags: which fields of it have a flag of their own that was given */
    struct drafter *drafter; /* drafts in place of one of speculative.method; speculative.num_speculative_tokens holds
                                for it, too. The caller's, and must outlive the engine. NULL: none is given */
    bool fixed_drafts;       /* every run has as many drafts as it has room for (speculation_limits.fixed): for tests
                                and benchmarks */
    bool skip_tokenizer;     /* open no tokenizer: prompts are token ids, answers have no text */
    int threads;             /* of the CPU; 0: every processor that this process may use */
    const char *cpu_isa;     /* "auto", or the instruction set of the CPU's kernels: backend_choose_isa */
    uint64_t seed;           /* of sampling where a request has none, and of dummy weights */
    const struct log *log;   /* may be NULL */
    /* May be NULL. Set to 1 by a signal handler, say: while it is not 0, a step that the CPU computes ends between two
     * operations, and the requests in it end with FINISH_ABORT. A GPU's steps are short, and run to their end. */
    const volatile sig_atomic_t *cancel;
    /* NULL: the engine stands alone. Else it calls this once on the CPU, when its memory is planned, and once more on a
     * GPU, when it is measured. */
    agree_limits_function *agree;
    void *agree_context;
};
struct engine_options engine_options_default(void);
int engine_options_threads(const struct engine_options *o);   /* `threads`, or the number that 0 stands for */
int32_t engine_options_ranks(const struct engine_options *o); /* that share the model, of all stages */
/* The seed of a request that has none, from its place in the order of arrival, from 1. */
uint64_t engine_request_seed(uint64_t options_seed, uint64_t place);
/* Drafts that a sequence may have in a step: speculative.num_speculative_tokens, or 0 where nothing drafts. */
int32_t engine_options_num_drafts(const struct engine_options *o);

#endif
