/* DBRX (Databricks, 2024): LayerNorms without biases, clipped queries, keys and values, and a mixture of experts in
 * every layer, whose matrices lie one below the other. */
#include <string.h>

#include "model/families/families.h"

/* A reader of the object of a key; without it, all that is in it is absent. */
static struct json_reader reader_of(struct json_reader *r, const char *key, const char *prefix)
{
    const json_t *object = json_reader_get(r, key);
    if (object && !json_is_object(object)) json_reader_expected(r, key, "an object", object);
    struct json_reader inner = *r;
    inner.object = json_is_object(object) ? object : NULL;
    inner.prefix = prefix;
    return inner;
}

/* The published files have rope_theta here; files of transformers 5 have it in rope_parameters, which then counts. */
static void read_attention(struct json_reader *r, struct model_spec *spec, struct attention_spec *a)
{
    struct json_reader inner = reader_of(r, "attn_config", "attn_config.");
    a->clip = (float)json_reader_number(&inner, "clip_qkv", 0, 1e-6, 1e6);
    a->num_kv_heads = json_reader_int(&inner, "kv_n_heads", 1, 1, 4096);
    if (a->num_heads % a->num_kv_heads != 0)
        json_reader_fail(&inner, STATUS_INVALID, "n_heads (%d) is not a multiple of attn_config.kv_n_heads (%d)",
                         a->num_heads, a->num_kv_heads);
    spec->ropes[0].theta = json_reader_number(&inner, "rope_theta", 10000, 2, 1e15);
    r->status = inner.status;
}

/* The weights of a token's experts are divided by their norm of this order, which is their sum if it is 1. */
static bool read_normalize(struct json_reader *r)
{
    static const char key[] = "moe_normalize_expert_weights";
    if (json_reader_has(r, key) && !json_reader_get(r, key)) return false;
    const double order = json_reader_number(r, key, 1, 0, 1e6);
    if (order != 1)
        json_reader_fail(r, STATUS_UNSUPPORTED, "%s%s is %g, but quire computes 1 or null", r->prefix, key, order);
    return true;
}

static struct experts_spec read_experts(struct json_reader *r)
{
    static const struct experts_keys keys = {.num_experts = {"moe_num_experts"},
                                             .top_k = "moe_top_k",
                                             .size = "ffn_hidden_size",
                                             .absent_num_experts = 4,
                                             .absent_top_k = 1,
                                             .absent_size = 3584};
    struct json_reader inner = reader_of(r, "ffn_config", "ffn_config.");
    struct experts_spec experts = family_read_experts(&inner, &keys);
    const char *activation = json_string_value(json_object_get(json_reader_get(&inner, "ffn_act_fn"), "name"));
    experts.router.normalize = read_normalize(&inner);
    if (activation && strcmp(activation, "silu") != 0)
        json_reader_fail(&inner, STATUS_UNSUPPORTED, "ffn_config.ffn_act_fn names \"%s\"; quire computes \"silu\"",
                         show_string(activation).text);
    r->status = inner.status;
    return experts;
}

static void set_names(struct tensor_names *names)
{
    names->embedding = "transformer.wte";
    names->final_norm = "transformer.norm_f";
    names->layers = "transformer.blocks";
    names->attention_norm = "norm_attn_norm.norm_1";
    names->mlp_norm = "norm_attn_norm.norm_2";
    names->attention = "norm_attn_norm.attn";
    names->qkv = "norm_attn_norm.attn.Wqkv";
    names->o = "out_proj";
    names->router = "ffn.router.layer";
    names->experts = NULL;
    names->expert_gate = "ffn.experts.mlp.w1";
    names->expert_up = "ffn.experts.mlp.v1";
    names->expert_down = "ffn.experts.mlp.w2";
    names->experts_flat = true;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 2048,
                                           .norm_eps = 1e-5,
                                           .num_layers_key = "n_layers",
                                           .norm_eps_key = "",
                                           .hidden_size_key = "d_model",
                                           .num_heads_key = "n_heads",
                                           .max_position_key = "max_seq_len",
                                           .no_mlp = true};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    read_attention(r, spec, &layer.attention);
    layer.experts = read_experts(r);
    family_set_layers(spec, &layer);
    spec->norm_type = NORM_LAYER;
    set_names(&spec->names);
}

const struct family family_dbrx = {.model_type = "dbrx", .architecture = "DbrxForCausalLM", .read = read};
