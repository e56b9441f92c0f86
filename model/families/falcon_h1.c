/* Falcon-H1 (TII, 2025): in each layer attention and Mamba 2 read the same input, and what both compute is added.
 * Constants multiply what matrices compute (maximal update parametrization: Yang et al., 2022). */
#include "model/families/families.h"

static double read_multiplier(struct json_reader *r, const char *key)
{
    return json_reader_number(r, key, 1, -1e6, 1e6);
}

/* An array of `count` multipliers; 1 where there is none. */
static void read_multipliers(struct json_reader *r, const char *key, size_t count, float *out)
{
    const json_t *list = json_reader_get(r, key);
    for (size_t i = 0; i < count; i++) out[i] = 1;
    if (!list) return;
    if (json_array_size(list) != count) {
        json_reader_expected(r, key, count == 2 ? "an array of 2 numbers" : "an array of 5 numbers", list);
        return;
    }
    for (size_t i = 0; i < count; i++)
        out[i] = (float)json_reader_to_number(r, key, json_array_get(list, i), -1e6, 1e6);
}

/* 0 would stand for 1. */
static void check_multipliers(struct json_reader *r, const struct layer_spec *l)
{
    const struct attention_spec *a = &l->attention;
    const struct recurrent_spec *n = &l->recurrent;
    if (a->in_multiplier == 0 || a->k_multiplier == 0 || a->out_multiplier == 0 || n->q_multiplier == 0 ||
        n->k_multiplier == 0 || n->v_multiplier == 0 || n->gate_multiplier == 0 || n->a_multiplier == 0 ||
        n->out_multiplier == 0 || l->mlp.gate_multiplier == 0 || l->mlp.out_multiplier == 0)
        json_reader_fail(r, STATUS_UNSUPPORTED, "a multiplier is 0, which would leave out a part of each layer");
}

/* Inputs are multiplied where what the matrices make of them is. */
static void check_biases(struct json_reader *r, const struct layer_spec *l, double ssm_in)
{
    if (l->attention.qkv_bias && l->attention.in_multiplier != 1)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "attention_in_multiplier is %g beside biases (attention_bias), which it does not multiply; "
                         "quire computes this without biases only",
                         (double)l->attention.in_multiplier);
    if (l->recurrent.in_bias && ssm_in != 1)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "ssm_in_multiplier is %g beside biases (mamba_proj_bias), which it does not multiply; quire "
                         "computes this without biases only",
                         ssm_in);
}

static int32_t read_inner_size(struct json_reader *r)
{
    return json_reader_has(r, "mamba_d_ssm") ? json_reader_int(r, "mamba_d_ssm", 0, 1, 1 << 22) : 1024;
}

static struct recurrent_spec read_mamba(struct json_reader *r, const struct model_spec *spec)
{
    struct recurrent_spec net = family_read_mamba2(r, read_inner_size(r), spec);
    const double in = read_multiplier(r, "ssm_in_multiplier");
    float parts[5];
    read_multipliers(r, "ssm_multipliers", 5, parts);
    net.gate_multiplier = (float)in * parts[0];
    net.v_multiplier = (float)in * parts[1];
    net.k_multiplier = (float)in * parts[2];
    net.q_multiplier = (float)in * parts[3];
    net.a_multiplier = (float)in * parts[4];
    net.out_multiplier = (float)read_multiplier(r, "ssm_out_multiplier");
    net.o_bias = json_reader_bool(r, "projectors_bias", false);
    net.no_norm = !json_reader_bool(r, "mamba_rms_norm", false);
    net.gate_first = !json_reader_bool(r, "mamba_norm_before_gate", true);
    net.norm_group_size = (int32_t)recurrent_v_size(&net) / net.num_k_heads;
    return net;
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    const struct size_defaults defaults = {.max_position = 8192, .num_kv_heads = 8, .norm_eps = 1e-5};
    struct layer_spec layer = family_read_llama(r, &defaults, spec);
    struct attention_spec *a = &layer.attention;
    float mlp[2];
    read_multipliers(r, "mlp_multipliers", 2, mlp);
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    layer.mlp.gate_multiplier = mlp[0];
    layer.mlp.out_multiplier = mlp[1];
    a->qkv_bias = a->o_bias = json_reader_bool(r, "attention_bias", false);
    a->in_multiplier = (float)read_multiplier(r, "attention_in_multiplier");
    a->k_multiplier = (float)read_multiplier(r, "key_multiplier");
    a->out_multiplier = (float)read_multiplier(r, "attention_out_multiplier");
    if (a->head_size % 16 != 0)
        json_reader_fail(r, STATUS_UNSUPPORTED, "head_dim is %d; beside Mamba 2 quire computes multiples of 16",
                         a->head_size);
    layer.recurrent_beside = true;
    layer.recurrent = read_mamba(r, spec);
    check_multipliers(r, &layer);
    check_biases(r, &layer, read_multiplier(r, "ssm_in_multiplier"));
    family_set_layers(spec, &layer);
    spec->embedding_multiplier = read_multiplier(r, "embedding_multiplier");
    spec->logits_multiplier = read_multiplier(r, "lm_head_multiplier");
    family_set_bamba_names(&spec->names);
}

const struct family family_falcon_h1 = {.model_type = "falcon_h1",
                                        .architecture = "FalconH1ForCausalLM",
                                        .read = read,
                                        .reads = "attention_bias mlp_bias embedding_multiplier",
                                        .ignores = "layer_types"};
