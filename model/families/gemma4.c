/* Gemma 4, text (Google, 2026): Gemma 3 with heads of other sizes in layers without a window, scores that are
 * not scaled, values that are normed, and a number that each layer multiplies the residual stream by. In E2B and E4B
 * tokens have embeddings for each layer, and the last layers read K and V of an earlier one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/words.h"
#include "model/families/families.h"

enum { FULL_EVERY = 6 };

/* The last layer has no window, whatever the file says. */
static void read_windows(struct json_reader *r, struct model_spec *spec)
{
    const int32_t window = family_read_window(r, 512);
    family_set_windows(spec, window, FULL_EVERY);
    family_read_layer_types(r, window, spec);
    spec->layers[spec->num_layers - 1].attention.window = 0;
    if (window == 0 && !json_reader_get(r, "layer_types"))
        json_reader_fail(r, STATUS_INVALID, "sliding_window is null, but this model has layers with a window");
}

static void set_heads(struct json_reader *r, struct attention_spec *a, int32_t head_size, int32_t num_kv_heads)
{
    if (head_size % 2 != 0)
        json_reader_fail(r, STATUS_INVALID, "%shead_dim must be even, found %d", r->prefix, head_size);
    if (a->num_heads % num_kv_heads != 0)
        json_reader_fail(r, STATUS_INVALID, "num_attention_heads (%d) is not a multiple of %snum_key_value_heads (%d)",
                         a->num_heads, r->prefix, num_kv_heads);
    a->head_size = a->rotary_dim = head_size;
    a->num_kv_heads = num_kv_heads;
}

/* An object of per_layer_config. */
static void read_layer_heads(const struct json_reader *of_file, const char *key, const json_t *object,
                             struct model_spec *spec, enum status *status)
{
    struct json_reader r = *of_file;
    char prefix[64], *end;
    const long layer = strtol(key, &end, 10);
    const char *name;
    json_t *value;
    snprintf(prefix, sizeof prefix, "per_layer_config.%.20s.", show_string(key).text);
    r.prefix = prefix;
    r.object = object;
    if (end == key || *end || layer < 0 || layer >= spec->num_layers || !json_is_map(object)) {
        json_reader_fail(&r, STATUS_INVALID,
                         "per_layer_config must have objects named by a layer's number, found %.20s",
                         show_string(key).text);
    } else {
        struct attention_spec *a = &spec->layers[layer].attention;
        json_object_foreach((json_t *)object, name, value)
        {
            if (!words_have("head_dim num_key_value_heads", name) && !json_is_null(value))
                json_reader_fail(&r, STATUS_UNSUPPORTED, "%s%s is set, a key that quire does not know", prefix,
                                 show_string(name).text);
        }
        set_heads(&r, a, json_reader_int(&r, "head_dim", a->head_size, 2, MODEL_MAX_HEAD_SIZE),
                  json_reader_int(&r, "num_key_value_heads", a->num_kv_heads, 1, 4096));
    }
    *status = r.status;
}

/* The heads of layers without a window; files of transformers 5.17 have them by layer. */
static void read_heads(struct json_reader *r, struct model_spec *spec)
{
    const json_t *by_layer = json_reader_get(r, "per_layer_config");
    const int32_t head_size = json_reader_int(r, "global_head_dim", 512, 2, MODEL_MAX_HEAD_SIZE);
    const bool v_is_k = json_reader_bool(r, "attention_k_eq_v", false);
    const int32_t kv_heads = v_is_k ? json_reader_int(r, "num_global_key_value_heads", 0, 1, 4096) : 0;
    const char *key;
    json_t *value;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct attention_spec *a = &spec->layers[i].attention;
        if (a->window > 0) continue;
        a->v_is_k = v_is_k;
        if (!by_layer) set_heads(r, a, head_size, kv_heads ? kv_heads : a->num_kv_heads);
    }
    json_object_foreach((json_t *)by_layer, key, value) read_layer_heads(r, key, value, spec, &r->status);
}

/* The last num_kv_shared_layers layers read K and V of the last one before them that has their window. */
static void read_sharing(struct json_reader *r, struct model_spec *spec)
{
    const int32_t shared = json_reader_int(r, "num_kv_shared_layers", 0, 0, spec->num_layers);
    const bool wide = json_reader_bool(r, "use_double_wide_mlp", false);
    const int32_t first = spec->num_layers - shared;
    for (int32_t i = first; i < spec->num_layers; i++) {
        struct layer_spec *layer = &spec->layers[i];
        int32_t from = first - 1;
        while (from >= 0 && spec->layers[from].attention.window != layer->attention.window) from--;
        if (from < 0) {
            json_reader_fail(r, STATUS_INVALID,
                             "num_kv_shared_layers is %d, but no layer before these is of the kind of layer %d", shared,
                             i);
            return;
        }
        const int32_t num_heads = layer->attention.num_heads;
        layer->attention = spec->layers[from].attention;
        layer->attention.num_heads = num_heads;
        layer->attention.shares_kv = i - from;
        layer->attention.v_norm = layer->attention.v_is_k = false;
        if (wide) layer->mlp.intermediate_size *= 2;
    }
}

/* Of 26B-A4B: beside the MLP of each layer. */
static void read_experts(struct json_reader *r, struct model_spec *spec)
{
    static const struct experts_keys keys = {
        .num_experts = {"num_experts"}, .top_k = "top_k_experts", .size = "moe_intermediate_size"};
    if (!json_reader_bool(r, "enable_moe_block", false)) return;
    struct experts_spec experts = family_read_experts(r, &keys);
    experts.router.normalize = true;
    experts.expert_scales = experts.own_norms = true;
    experts.gate.activation = spec->layers[0].mlp.activation;
    for (int32_t i = 0; i < spec->num_layers; i++) spec->layers[i].experts = experts;
    spec->names.router = "router.proj";
    spec->names.experts = NULL;
    spec->names.expert_gate_up = "experts.gate_up_proj";
    spec->names.expert_down = "experts.down_proj";
}

static void check_refused(struct json_reader *r)
{
    const char *bidirectional = json_reader_string(r, "use_bidirectional_attention", "vision");
    if (strcmp(bidirectional, "vision") != 0) /* which text does not have */
        json_reader_fail(r, STATUS_UNSUPPORTED, "use_bidirectional_attention is \"%s\": attention to later tokens",
                         show_string(bidirectional).text);
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_gemma2(r, 131072, spec);
    layer.attention.qk_norm = QK_NORM_HEAD;
    layer.attention.v_norm = true;
    layer.attention.scale = 1;
    family_set_layers(spec, &layer);
    spec->gain_offset = 0;
    spec->layer_scalars = true;
    read_windows(r, spec);
    read_heads(r, spec);
    read_sharing(r, spec);
    read_experts(r, spec);
    family_set_two_ropes(spec);
    const int32_t absent = json_reader_has(r, "hidden_size_per_layer_input") ? 0 : 256;
    spec->per_layer_size = json_reader_int(r, "hidden_size_per_layer_input", absent, 0, 1 << 16);
    spec->per_layer_vocab_size = json_reader_int(r, "vocab_size_per_layer_input", 262144, 1, 1 << 24);
    spec->logits_soft_cap = family_read_soft_cap(r, "final_logit_softcapping", 0);
    check_refused(r);
}

static const struct rope_config rope = {.type = ROPE_PROPORTIONAL, .theta = 1e6, .factor = 1, .proportion = 0.25};

const struct family family_gemma4 = {
    .model_type = "gemma4_text",
    .architecture = "Gemma4ForCausalLM",
    .read = read,
    .rope_theta = 1e6,
    .rope_local_theta = 10000,
    .rope = &rope,
    .reads = "attention_bias final_logit_softcapping hidden_activation sliding_window layer_types per_layer_config "
             "use_bidirectional_attention num_experts",
    .ignores = "hidden_act use_sliding_window query_pre_attn_scalar",
    .sizes = {2304, 9216, 30, 8, 262144}};
