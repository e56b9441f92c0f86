#include "runtime/engine/engine_options.h"

#include "base/processors.h"
#include "base/random.h"

struct engine_options engine_options_default(void)
{
    return (struct engine_options){
        .device = "auto",
        .data_parallel_size = 1,
        .cpu_isa = "auto",
        .dtype = "auto",
        .quantization = "none",
        .generation_config = "auto",
        .kv_cache_dtype = "auto",
        .tensor_parallel_size = 1,
        .pipeline_parallel_size = 1,
        .nnodes = 1,
        .node_rank = -1,
        .distributed_timeout_seconds = 600,
        .block_size = 16,
        .gpu_memory_utilization = 0.9,
        .swap_space = -1,
        .enable_prefix_caching = true,
        .enable_chunked_prefill = true,
        .state_interval = ENGINE_STATE_INTERVAL,
        .async_scheduling = -1,
        .speculative = speculative_config_default(),
    };
}

int engine_options_threads(const struct engine_options *o)
{
    return o->threads > 0 ? o->threads : processors_allowed();
}

int32_t engine_options_ranks(const struct engine_options *o)
{
    return o->tensor_parallel_size * o->pipeline_parallel_size;
}

uint64_t engine_request_seed(uint64_t options_seed, uint64_t place)
{
    return random_mix(options_seed * RANDOM_STEP + place);
}

int32_t engine_options_num_drafts(const struct engine_options *o)
{
    return o->drafter || o->speculative.method != DRAFT_NONE ? o->speculative.num_speculative_tokens : 0;
}
