/* gpt-oss (OpenAI, 2025): a mixture of experts with biases everywhere, whose heads have learnt sinks. Every second
 * layer has a window. As published, config.json names no type, the floats are bfloat16, and the experts are MXFP4. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {.num_experts = {"num_local_experts", "num_experts"},
                                             .size = "intermediate_size",
                                             .absent_num_experts = 128,
                                             .absent_top_k = 4};
    const struct size_defaults defaults = {
        .max_position = 131072, .num_kv_heads = 8, .head_size = 64, .norm_eps = 1e-5};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", true);
    layer.attention.sinks = true;
    layer.experts = family_read_experts(r, &keys);
    layer.experts.router.normalize = true;
    layer.experts.gate = (struct gate_params){.kind = GATE_SWIGLU_OAI, .limit = 7};
    layer.experts.bias = layer.experts.router_bias = true;
    layer.mlp.intermediate_size = 0;
    family_set_layers(spec, &layer);
    family_read_windows(r, 128, 2, spec);
    spec->names.router = "mlp.router";
    spec->names.experts = NULL;
    spec->names.expert_gate_up = "mlp.experts.gate_up_proj";
    spec->names.expert_down = "mlp.experts.down_proj";
    spec->names.experts_transposed = spec->names.experts_interleaved = true;
}

static const struct rope_config rope = {.type = ROPE_YARN,
                                        .theta = 150000,
                                        .factor = 32,
                                        .beta_fast = 32,
                                        .beta_slow = 1,
                                        .truncate = false,
                                        .original_max_position = 4096};

const struct family family_gpt_oss = {.model_type = "gpt_oss",
                                      .architecture = "GptOssForCausalLM",
                                      .read = read,
                                      .dtype = DTYPE_BFLOAT16,
                                      .rope_theta = 150000,
                                      .rope = &rope,
                                      .reads =
                                          "attention_bias sliding_window layer_types num_local_experts num_experts",
                                      .ignores = "use_sliding_window"};
