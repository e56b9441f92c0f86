/* Falcon (TII, 2023): attention and MLP in parallel, with one norm or, in models of 40 and 180 billion parameters, two.
 * q, k and v of each KV head are together in the file. Falcon-RW has ALiBi instead of a rotation, and no parallel
 * block. */
#include "model/families/families.h"

/* How many heads of K and V there are. */
static int32_t read_kv_heads(struct json_reader *r, int32_t num_heads, bool new_architecture)
{
    const bool multi_query = json_reader_bool(r, "multi_query", true);
    const int32_t num_kv_heads = json_reader_int(r, "num_kv_heads", num_heads, 1, num_heads);
    if (num_heads % num_kv_heads != 0)
        json_reader_fail(r, STATUS_INVALID, "num_attention_heads (%d) is not a multiple of num_kv_heads (%d)",
                         num_heads, num_kv_heads);
    return new_architecture ? num_kv_heads : multi_query ? 1 : num_heads;
}

static enum norm_placement read_norm_placement(struct json_reader *r, bool new_architecture)
{
    const bool parallel = json_reader_bool(r, "parallel_attn", true);
    const int32_t norms = json_reader_int(r, "num_ln_in_parallel_attn", new_architecture ? 2 : 1, 1, 2);
    if (new_architecture && !parallel)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "new_decoder_architecture is true and parallel_attn false: transformers has no such model");
    if (!parallel) return NORM_BEFORE;
    return new_architecture && norms == 2 ? NORM_PARALLEL_TWO : NORM_PARALLEL;
}

static void set_names(struct tensor_names *names, enum norm_placement placement)
{
    names->embedding = "transformer.word_embeddings";
    names->final_norm = "transformer.ln_f";
    names->layers = "transformer.h";
    if (placement == NORM_PARALLEL_TWO) names->attention_norm = "ln_attn", names->mlp_norm = "ln_mlp";
    names->attention = "self_attention";
    names->qkv = "self_attention.query_key_value";
    names->o = "dense";
    names->up = "mlp.dense_h_to_4h";
    names->down = "mlp.dense_4h_to_h";
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 2048,
                                           .norm_eps = 1e-5,
                                           .tie_word_embeddings = true,
                                           .intermediate_factor = 4,
                                           .intermediate_size_key = "ffn_hidden_size",
                                           .norm_eps_key = "layer_norm_epsilon"};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    const bool new_architecture = json_reader_bool(r, "new_decoder_architecture", false);
    layer.norm_placement = read_norm_placement(r, new_architecture);
    layer.attention.num_kv_heads = read_kv_heads(r, layer.attention.num_heads, new_architecture);
    layer.attention.qkv_bias = layer.attention.o_bias = layer.mlp.bias = json_reader_bool(r, "bias", false);
    if (json_reader_bool(r, "alibi", false)) {
        layer.attention.rotary_dim = 0;
        layer.attention.alibi_bias_max = 8;
        layer.attention.alibi_multiplier = layer.attention.scale;
    }
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.activation = family_read_plain_activation(r, "activation", ACTIVATION_GELU);
    family_set_layers(spec, &layer);
    family_set_layer_norms(spec);
    spec->qkv_by_head = true;
    set_names(&spec->names, layer.norm_placement);
}

const struct family family_falcon = {
    .model_type = "falcon", .architecture = "FalconForCausalLM", .read = read, .reads = "alibi bias parallel_attn"};
