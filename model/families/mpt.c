/* MPT (MosaicML, 2023): ALiBi instead of positions, LayerNorms without biases, GELU in an MLP without a gate, and no
 * biases anywhere. */
#include <math.h>

#include "model/families/families.h"

/* attn_config says what transformers computes, and what only MosaicML's own code does. */
static void read_attention(struct json_reader *r, struct attention_spec *a)
{
    const json_t *object = json_reader_get(r, "attn_config");
    struct json_reader inner = *r;
    a->rotary_dim = 0;
    a->alibi_bias_max = 8;
    if (!object) return;
    if (!json_is_object(object)) {
        json_reader_expected(r, "attn_config", "an object", object);
        return;
    }
    inner.object = object;
    inner.prefix = "attn_config.";
    family_require_bool(&inner, "alibi", true, "learned positions");
    family_require_bool(&inner, "qk_ln", false, "norms of queries and keys");
    family_require_bool(&inner, "prefix_lm", false, "attention to later tokens");
    if (json_reader_number(&inner, "alibi_bias_max", 8, 0, 1e6) != 8)
        json_reader_fail(&inner, STATUS_UNSUPPORTED, "attn_config.alibi_bias_max is not 8, which transformers takes");
    if (json_reader_number(&inner, "clip_qkv", 0, 0, 1e6) != 0)
        json_reader_fail(&inner, STATUS_UNSUPPORTED, "attn_config.clip_qkv is set; quire does not clip q, k and v");
    const double scale = json_reader_number(&inner, "softmax_scale", 0, 0, 1e6);
    if (scale > 0) a->scale = (float)scale;
    r->status = inner.status;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 2048,
                                           .norm_eps = 1e-5,
                                           .tie_word_embeddings = true,
                                           .intermediate_factor = 4,
                                           .intermediate_size_key = "",
                                           .num_layers_key = family_either_key(r, "num_hidden_layers", "n_layers"),
                                           .norm_eps_key = "layer_norm_epsilon",
                                           .hidden_size_key = family_either_key(r, "hidden_size", "d_model"),
                                           .num_heads_key = family_either_key(r, "num_attention_heads", "n_heads"),
                                           .max_position_key = "max_seq_len"};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    layer.mlp.kind = MLP_PLAIN;
    layer.mlp.activation = ACTIVATION_GELU;
    read_attention(r, &layer.attention);
    family_require_bool(r, "no_bias", true, "biases");
    if (json_reader_int(r, "expansion_ratio", 4, 1, 1 << 10) != 4)
        json_reader_fail(r, STATUS_UNSUPPORTED, "expansion_ratio is not 4, which transformers takes");
    family_set_layers(spec, &layer);
    spec->norm_type = NORM_LAYER;
    spec->names.embedding = "transformer.wte";
    spec->names.final_norm = "transformer.norm_f";
    spec->names.layers = "transformer.blocks";
    spec->names.attention_norm = "norm_1";
    spec->names.mlp_norm = "norm_2";
    spec->names.attention = "attn";
    spec->names.qkv = "attn.Wqkv";
    spec->names.o = "out_proj";
    spec->names.up = "ffn.up_proj";
    spec->names.down = "ffn.down_proj";
}

const struct family family_mpt = {.model_type = "mpt",
                                  .architecture = "MptForCausalLM",
                                  .read = read,
                                  /* norm_type is "low_precision_layernorm" */
                                  .ignores = "norm_type"};
