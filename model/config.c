#include "model/config.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

/* --- Keys that change the arithmetic in ways that quire does not compute --- */

enum neutral { NEUTRAL_OFF, NEUTRAL_ONE, NEUTRAL_TRUE, NEUTRAL_SILU, NEUTRAL_RMS_NORM, NEUTRAL_ROTARY };

/* Other than null, the value that leaves llama's arithmetic as it is. */
static const char *const neutral_names[] = {"false, 0 or empty", "1", "true", "\"silu\"", "\"rms_norm\"", "\"rope\""};

struct refused_key {
    const char *key;
    enum neutral neutral;
    const char *why;
};

static const struct refused_key refused_keys[] = {
    {"quantization_config", NEUTRAL_OFF, "quantized weights are not read: use the checkpoint in float16 or bfloat16"},
    {"compression_config", NEUTRAL_OFF, "compressed weights are not read: use the checkpoint in float16 or bfloat16"},
    {"hidden_act", NEUTRAL_SILU, "another activation"},
    {"hidden_activation", NEUTRAL_SILU, "another activation"},
    {"mlp_hidden_act", NEUTRAL_SILU, "another activation"},
    {"activation_function", NEUTRAL_SILU, "another activation"},
    {"norm_type", NEUTRAL_RMS_NORM, "another norm"},
    {"normalization_type", NEUTRAL_RMS_NORM, "another norm"},
    {"layer_norm_type", NEUTRAL_RMS_NORM, "another norm"},
    {"layernorm_type", NEUTRAL_RMS_NORM, "another norm"},
    {"position_embedding_type", NEUTRAL_ROTARY, "other positions"},
    {"partial_rotary_factor", NEUTRAL_ONE, "a partial rotation"},
    {"rotary_pct", NEUTRAL_ONE, "a partial rotation"},
    {"rope_pct", NEUTRAL_ONE, "a partial rotation"},
    {"rope_interleaved", NEUTRAL_OFF, "interleaved rotation"},
    {"rope_interleave", NEUTRAL_OFF, "interleaved rotation"},
    {"rotary_interleaved", NEUTRAL_OFF, "interleaved rotation"},
    {"is_neox_style", NEUTRAL_TRUE, "interleaved rotation"},
    {"use_rope", NEUTRAL_TRUE, "no rotation"},
    {"no_rope_layers", NEUTRAL_OFF, "layers without rotation"},
    {"no_rope_layer_interval", NEUTRAL_OFF, "layers without rotation"},
    {"rope_local_base_freq", NEUTRAL_OFF, "layers of several kinds"},
    {"sliding_window_pattern", NEUTRAL_OFF, "layers of several kinds"},
    {"per_layer_config", NEUTRAL_OFF, "layers of several kinds"},
    {"block_configs", NEUTRAL_OFF, "layers of several kinds"},
    {"cross_attention_layers", NEUTRAL_OFF, "cross-attention"},
    {"add_cross_attention", NEUTRAL_OFF, "cross-attention"},
    {"is_encoder_decoder", NEUTRAL_OFF, "an encoder"},
    {"is_causal", NEUTRAL_TRUE, "attention to later tokens"},
    {"use_bidirectional_attention", NEUTRAL_OFF, "attention to later tokens"},
    {"attention_chunk_size", NEUTRAL_OFF, "chunked attention"},
    {"attn_temperature_tuning", NEUTRAL_OFF, "scaled queries"},
    {"attention_sinks", NEUTRAL_OFF, "attention sinks"},
    {"alibi", NEUTRAL_OFF, "ALiBi"},
    {"use_alibi", NEUTRAL_OFF, "ALiBi"},
    {"attn_logit_softcapping", NEUTRAL_OFF, "a soft cap"},
    {"final_logit_softcapping", NEUTRAL_OFF, "a soft cap"},
    {"clip_qkv", NEUTRAL_OFF, "clipped queries, keys and values"},
    {"qk_norm", NEUTRAL_OFF, "norms of queries and keys"},
    {"use_qk_norm", NEUTRAL_OFF, "norms of queries and keys"},
    {"qk_layernorm", NEUTRAL_OFF, "norms of queries and keys"},
    {"use_qk_layernorm", NEUTRAL_OFF, "norms of queries and keys"},
    {"bias", NEUTRAL_OFF, "biases other than attention_bias and mlp_bias"},
    {"use_bias", NEUTRAL_OFF, "biases other than attention_bias and mlp_bias"},
    {"qkv_bias", NEUTRAL_OFF, "biases other than attention_bias and mlp_bias"},
    {"lm_head_bias", NEUTRAL_OFF, "biases other than attention_bias and mlp_bias"},
    {"embedding_multiplier", NEUTRAL_ONE, "scaled embeddings"},
    {"scale_emb", NEUTRAL_ONE, "scaled embeddings"},
    {"scale_embeddings", NEUTRAL_OFF, "scaled embeddings"},
    {"normalize_embeddings", NEUTRAL_OFF, "scaled embeddings"},
    {"residual_multiplier", NEUTRAL_ONE, "a scaled residual"},
    {"scale_depth", NEUTRAL_ONE, "a scaled residual"},
    {"logits_scaling", NEUTRAL_ONE, "scaled logits"},
    {"logit_scale", NEUTRAL_ONE, "scaled logits"},
    {"dim_model_base", NEUTRAL_OFF, "scaled logits"},
    {"parallel_attn", NEUTRAL_OFF, "a parallel residual"},
    {"parallel_residual", NEUTRAL_OFF, "a parallel residual"},
    {"use_parallel_residual", NEUTRAL_OFF, "a parallel residual"},
    {"apply_residual_connection_post_layernorm", NEUTRAL_OFF, "another residual"},
    {"num_experts", NEUTRAL_OFF, "a mixture of experts"},
    {"num_local_experts", NEUTRAL_OFF, "a mixture of experts"},
    {"n_routed_experts", NEUTRAL_OFF, "a mixture of experts"},
    {"moe_num_experts", NEUTRAL_OFF, "a mixture of experts"},
    {"pruned_heads", NEUTRAL_OFF, "pruned heads"},
};

static bool one_of(const char *string, const char *const *names)
{
    for (; string && *names; names++)
        if (strcmp(string, *names) == 0) return true;
    return false;
}

static bool is_off(const json_t *value)
{
    return json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static bool is_neutral(const json_t *value, enum neutral neutral)
{
    static const char *const silu[] = {"silu", "swish", NULL};
    static const char *const rms[] = {"rms_norm", "rmsnorm", "RMSNorm", "rms", NULL};
    static const char *const rotary[] = {"rope", "rotary", NULL};
    switch (neutral) {
    case NEUTRAL_OFF:
        return is_off(value);
    case NEUTRAL_ONE:
        return json_is_number(value) && json_number_value(value) == 1;
    case NEUTRAL_TRUE:
        return json_is_true(value);
    case NEUTRAL_SILU:
        return one_of(json_string_value(value), silu);
    case NEUTRAL_RMS_NORM:
        return one_of(json_string_value(value), rms);
    case NEUTRAL_ROTARY:
        return one_of(json_string_value(value), rotary);
    }
    return false;
}

static void check_refused(struct json_reader *r)
{
    for (size_t i = 0; i < sizeof refused_keys / sizeof *refused_keys; i++) {
        const struct refused_key *refused = &refused_keys[i];
        const json_t *value = json_reader_get(r, refused->key);
        if (value && !is_neutral(value, refused->neutral))
            json_reader_fail(r, STATUS_UNSUPPORTED, "%s is %s, but quire computes only %s there (%s)", refused->key,
                             show_value(value).text, neutral_names[refused->neutral], refused->why);
    }
}

/* Two keys of other families that name attention's scale: fine where it is llama's own. */
static void check_attention_scale(struct json_reader *r, const struct model_config *config)
{
    const double scale = json_reader_number(r, "attention_multiplier", NAN, -1e9, 1e9);
    if (fabs(scale - 1 / sqrt(config->spec.head_size)) > 1e-6)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "attention_multiplier is %g, but quire scales attention by 1 / sqrt(head_dim) = %g", scale,
                         1 / sqrt(config->spec.head_size));
    const double scalar = json_reader_number(r, "query_pre_attn_scalar", config->spec.head_size, -1e9, 1e9);
    if (scalar != config->spec.head_size)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "query_pre_attn_scalar is %g, but quire scales attention by 1 / sqrt(head_dim = %d)", scalar,
                         config->spec.head_size);
}

/* --- Architecture --- */

static const struct family {
    const char *model_type, *architecture;
    int32_t max_position, num_kv_heads, sliding_window; /* transformers' defaults; 0 heads: as many as num_heads */
} families[] = {
    {"llama", "LlamaForCausalLM", 2048, 0, 0},
    {"mistral", "MistralForCausalLM", 131072, 8, 4096},
};

static const struct family *family_by_type(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(model_type, families[i].model_type) == 0) return &families[i];
    return NULL;
}

static const struct family *family_by_architecture(const char *architecture)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(architecture, families[i].architecture) == 0) return &families[i];
    return NULL;
}

static const struct family *read_architectures(struct json_reader *r)
{
    const json_t *list = json_reader_get(r, "architectures");
    if (!list) return NULL;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name || json_array_size(list) != 1) {
        json_reader_fail(r, STATUS_INVALID, "architectures must be an array of one string, found %s",
                         show_value(list).text);
        return NULL;
    }
    const struct family *family = family_by_architecture(name);
    if (!family)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "architectures names \"%s\"; quire runs LlamaForCausalLM and MistralForCausalLM",
                         show_string(name).text);
    return family;
}

static const struct family *read_family(struct json_reader *r)
{
    const struct family *family = read_architectures(r), *by_type = NULL;
    const char *model_type = json_reader_string(r, "model_type", NULL);
    if (model_type) {
        by_type = family_by_type(model_type);
        if (!by_type)
            json_reader_fail(r, STATUS_UNSUPPORTED, "model_type is \"%s\"; quire runs llama and mistral",
                             show_string(model_type).text);
    }
    if (family && by_type && family != by_type)
        json_reader_fail(r, STATUS_INVALID, "model_type \"%s\" and architectures \"%s\" contradict each other",
                         by_type->model_type, family->architecture);
    if (!family) family = by_type;
    if (!family) json_reader_fail(r, STATUS_INVALID, "the key model_type is missing");
    return family ? family : &families[0];
}

/* --- Sizes --- */

static void read_head_dim(struct json_reader *r, struct model_config *config)
{
    config->spec.head_size = json_reader_int(r, "head_dim", 0, 2, MODEL_MAX_HEAD_SIZE);
    if (config->spec.head_size == 0) {
        if (config->spec.hidden_size % config->spec.num_heads != 0)
            json_reader_fail(r, STATUS_INVALID,
                             "hidden_size (%d) is not a multiple of num_attention_heads (%d), and head_dim is not "
                             "given",
                             config->spec.hidden_size, config->spec.num_heads);
        config->spec.head_size = config->spec.hidden_size / config->spec.num_heads;
    }
    if (config->spec.head_size < 2 || config->spec.head_size > MODEL_MAX_HEAD_SIZE || config->spec.head_size % 2 != 0)
        json_reader_fail(r, STATUS_INVALID, "head_dim must be an even number from 2 to %d, found %d",
                         MODEL_MAX_HEAD_SIZE, config->spec.head_size);
}

static void read_sizes(struct json_reader *r, const struct family *family, struct model_config *config)
{
    config->spec.hidden_size = json_reader_require_int(r, "hidden_size", 1, 1 << 20);
    config->spec.intermediate_size = json_reader_require_int(r, "intermediate_size", 1, 1 << 22);
    config->spec.num_layers = json_reader_require_int(r, "num_hidden_layers", 1, MODEL_MAX_LAYERS);
    config->spec.num_heads = json_reader_require_int(r, "num_attention_heads", 1, 4096);
    config->spec.vocab_size = json_reader_require_int(r, "vocab_size", 1, 1 << 24);
    /* transformers gives a Mistral without the key 8; null is as many as there are heads */
    const bool silent = !json_reader_has(r, "num_key_value_heads");
    const int32_t absent = silent && family->num_kv_heads ? family->num_kv_heads : config->spec.num_heads;
    config->spec.num_kv_heads = json_reader_int(r, "num_key_value_heads", absent, 1, 4096);
    if (config->spec.num_heads % config->spec.num_kv_heads != 0)
        json_reader_fail(r, STATUS_INVALID, "num_attention_heads (%d) is not a multiple of num_key_value_heads (%d)",
                         config->spec.num_heads, config->spec.num_kv_heads);
    read_head_dim(r, config);
    config->spec.max_position_embeddings =
        json_reader_int(r, "max_position_embeddings", family->max_position, 1, 1 << 28);
    config->spec.norm_eps = json_reader_number(r, "rms_norm_eps", 1e-6, 0, 1);
    config->spec.tie_word_embeddings = json_reader_bool(r, "tie_word_embeddings", false);
}

/* --- Sliding window --- */

static void check_layer_types(struct json_reader *r, const struct model_config *config, int32_t window)
{
    const json_t *list = json_reader_get(r, "layer_types");
    if (!list) return;
    if (!json_is_array(list) || json_array_size(list) != (size_t)config->spec.num_layers) {
        json_reader_fail(r, STATUS_INVALID, "layer_types must be an array of num_hidden_layers (%d) strings",
                         config->spec.num_layers);
        return;
    }
    const char *expected = window ? "sliding_attention" : "full_attention";
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (json_is_string(value) && strcmp(json_string_value(value), expected) == 0) continue;
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "layer_types[%zu] is %s, but with sliding_window %d quire computes every layer with \"%s\"", i,
                         show_value(value).text, window, expected);
        return;
    }
}

static int32_t read_sliding_window(struct json_reader *r, const struct family *family,
                                   const struct model_config *config)
{
    const bool silent = !json_reader_has(r, "sliding_window");
    int32_t window = json_reader_int(r, "sliding_window", silent ? family->sliding_window : 0, 1, INT32_MAX);
    const bool llama = family->sliding_window == 0;
    const bool used = json_reader_bool(r, "use_sliding_window", window > 0);
    if (llama && !used) window = 0;
    if (used != (window > 0))
        json_reader_fail(r, STATUS_UNSUPPORTED, "use_sliding_window (%s) contradicts sliding_window (%d)",
                         used ? "true" : "false", window);
    if (llama && window)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "sliding_window is %d, but a llama model attends to everything; with a window its "
                         "model_type is mistral",
                         window);
    check_layer_types(r, config, window);
    return window;
}

/* Every layer alike: llama's. */
static void read_layers(struct json_reader *r, struct model_spec *spec, int32_t window)
{
    const bool attention_bias = json_reader_bool(r, "attention_bias", false);
    const struct layer_spec layer = {
        .qkv_bias = attention_bias,
        .o_bias = attention_bias,
        .rotary_dim = spec->head_size,
        .attention_scale = (float)(1.0 / sqrt((double)spec->head_size)),
        .window = window,
        .mlp_bias = json_reader_bool(r, "mlp_bias", false),
        .residual_multiplier = 1,
    };
    for (int32_t i = 0; i < spec->num_layers; i++) spec->layers[i] = layer;
    spec->names = (struct tensor_names){.attention_norm = "input_layernorm", .mlp_norm = "post_attention_layernorm"};
}

/* --- RoPE --- */

static const char *const rope_names[] = {[ROPE_DEFAULT] = "default",
                                         [ROPE_LINEAR] = "linear",
                                         [ROPE_DYNAMIC] = "dynamic",
                                         [ROPE_YARN] = "yarn",
                                         [ROPE_LLAMA3] = "llama3"};

/* Every key of the object must be one that is read here, or known to change nothing: what is unknown may matter. */
static void check_rope_keys(struct json_reader *r)
{
    static const char *const known[] = {"rope_type",
                                        "type",
                                        "rope_theta",
                                        "factor",
                                        "low_freq_factor",
                                        "high_freq_factor",
                                        "beta_fast",
                                        "beta_slow",
                                        "attention_factor",
                                        "mscale",
                                        "mscale_all_dim",
                                        "truncate",
                                        "original_max_position_embeddings",
                                        "partial_rotary_factor",
                                        "finetuned",
                                        NULL};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        if (!json_is_null(value) && !one_of(key, known))
            json_reader_fail(r, STATUS_UNSUPPORTED, "%s%s is set, a key that quire does not know", r->prefix,
                             show_string(key).text);
    }
}

static enum rope_type read_rope_type(struct json_reader *r)
{
    const char *name = json_reader_string(r, "rope_type", NULL);
    if (!name) name = json_reader_string(r, "type", NULL);
    if (!name) return ROPE_DEFAULT;
    for (size_t i = 0; i < sizeof rope_names / sizeof *rope_names; i++)
        if (strcmp(name, rope_names[i]) == 0) return (enum rope_type)i;
    json_reader_fail(r, STATUS_UNSUPPORTED,
                     "%srope_type \"%s\" is not supported (default, linear, dynamic, yarn and llama3 are)", r->prefix,
                     show_string(name).text);
    return ROPE_DEFAULT;
}

static void read_llama3(struct json_reader *r, struct rope_config *rope)
{
    rope->factor = json_reader_require_number(r, "factor", 1e-3, 1e6);
    rope->low_freq_factor = json_reader_require_number(r, "low_freq_factor", 1e-6, 1e6);
    rope->high_freq_factor = json_reader_require_number(r, "high_freq_factor", 1e-6, 1e6);
    if (rope->high_freq_factor <= rope->low_freq_factor)
        json_reader_fail(r, STATUS_INVALID, "%shigh_freq_factor (%g) must be greater than low_freq_factor (%g)",
                         r->prefix, rope->high_freq_factor, rope->low_freq_factor);
}

static void read_yarn(struct json_reader *r, const struct model_config *config, struct rope_config *rope)
{
    const double stretch = (double)config->spec.max_position_embeddings / rope->original_max_position;
    rope->factor = json_reader_number(r, "factor", stretch, 1e-3, 1e6);
    rope->beta_fast = json_reader_number(r, "beta_fast", 32, 0, 1e6);
    rope->beta_slow = json_reader_number(r, "beta_slow", 1, 0, 1e6);
    if (rope->beta_fast == 0) rope->beta_fast = 32; /* as transformers does */
    if (rope->beta_slow == 0) rope->beta_slow = 1;
    if (rope->beta_fast < rope->beta_slow)
        json_reader_fail(r, STATUS_INVALID, "%sbeta_fast (%g) must not be less than beta_slow (%g)", r->prefix,
                         rope->beta_fast, rope->beta_slow);
    rope->attention_factor = json_reader_number(r, "attention_factor", 0, 1e-6, 1e6);
    rope->mscale = json_reader_number(r, "mscale", 0, 0, 1e6);
    rope->mscale_all_dim = json_reader_number(r, "mscale_all_dim", 0, 0, 1e6);
    rope->truncate = json_reader_bool(r, "truncate", true);
}

/* outer_original: original_max_position_embeddings beside the object, which goes before the one inside; 0: none. */
static void read_scaling(struct json_reader *r, const struct model_config *config, int32_t outer_original,
                         struct rope_config *rope)
{
    check_rope_keys(r);
    rope->type = read_rope_type(r);
    rope->theta = json_reader_number(r, "rope_theta", rope->theta, 2, 1e15);
    if (json_reader_number(r, "partial_rotary_factor", 1, -1e9, 1e9) != 1)
        json_reader_fail(r, STATUS_UNSUPPORTED, "%spartial_rotary_factor is %s, but quire rotates whole heads",
                         r->prefix, show_value(json_reader_get(r, "partial_rotary_factor")).text);
    const int32_t original =
        json_reader_int(r, "original_max_position_embeddings", config->spec.max_position_embeddings, 1, 1 << 28);
    rope->original_max_position = outer_original ? outer_original : original;
    if (rope->type == ROPE_LINEAR || rope->type == ROPE_DYNAMIC)
        rope->factor = json_reader_require_number(r, "factor", 1e-3, 1e6);
    if (rope->type == ROPE_DYNAMIC && config->spec.head_size <= 2)
        json_reader_fail(r, STATUS_INVALID, "%srope_type \"dynamic\" needs a head_dim greater than 2", r->prefix);
    if (rope->type == ROPE_YARN) read_yarn(r, config, rope);
    if (rope->type == ROPE_LLAMA3) read_llama3(r, rope);
}

/* rope_scaling goes before rope_parameters where both hold something, as in transformers. A value beside them is the
 * default of the one inside, original_max_position_embeddings apart, which wins. */
static void read_rope(struct json_reader *r, struct model_config *config)
{
    struct rope_config *rope = &config->spec.rope;
    *rope = (struct rope_config){
        .theta = json_reader_number(r, "rope_theta", 10000, 2, 1e15), .factor = 1, .truncate = true};
    const int32_t outer = json_reader_int(r, "original_max_position_embeddings", 0, 1, 1 << 28);
    rope->original_max_position = config->spec.max_position_embeddings;
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    static const char *const prefixes[] = {"rope_scaling.", "rope_parameters."};
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_reader_get(r, keys[i]);
        if (!value) continue;
        if (!json_is_object(value)) {
            json_reader_fail(r, STATUS_INVALID, "%s must be an object or null, found %s", keys[i],
                             show_value(value).text);
            return;
        }
        if (json_object_size(value) == 0) continue;
        struct json_reader inner = {value, r->source, prefixes[i], r->status, r->err};
        read_scaling(&inner, config, outer, rope);
        r->status = inner.status;
        return;
    }
}

/* --- The rest --- */

static void read_dtype(struct json_reader *r, struct model_config *config)
{
    const char *key = json_reader_get(r, "dtype") ? "dtype" : "torch_dtype";
    const char *name = json_reader_string(r, key, NULL);
    config->spec.dtype = DTYPE_FLOAT32;
    if (!name) return;
    if (strncmp(name, "torch.", 6) == 0) name += 6;
    if (dtype_parse(name, &config->spec.dtype) != 0 || dtype_size(config->spec.dtype) == 1)
        json_reader_fail(r, STATUS_UNSUPPORTED, "%s is \"%s\", but quire computes in float32, float16 or bfloat16", key,
                         show_string(name).text);
}

static void add_eos(struct json_reader *r, const json_t *value, struct model_config *config)
{
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < -1 || id > INT32_MAX) {
        json_reader_fail(r, STATUS_INVALID, "eos_token_id must be a token id or an array of them, found %s",
                         show_value(value).text);
        return;
    }
    if (id < 0) return; /* -1 is how some files say none */
    for (int i = 0; i < config->num_eos; i++)
        if (config->eos_token_ids[i] == id) return;
    if (config->num_eos == CONFIG_MAX_EOS) {
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "eos_token_id: config.json and generation_config.json name more than %d tokens",
                         CONFIG_MAX_EOS);
        return;
    }
    config->eos_token_ids[config->num_eos++] = (int32_t)id;
}

static void read_eos(struct json_reader *r, struct model_config *config)
{
    const json_t *value = json_reader_get(r, "eos_token_id");
    if (!value) return;
    if (!json_is_array(value)) {
        add_eos(r, value, config);
        return;
    }
    for (size_t i = 0; i < json_array_size(value); i++) add_eos(r, json_array_get(value, i), config);
}

static void read_config(struct json_reader *r, struct model_config *config)
{
    const struct family *family = read_family(r);
    snprintf(config->architecture, sizeof config->architecture, "%s", family->architecture);
    check_refused(r);
    read_sizes(r, family, config);
    if (r->status != STATUS_OK) return; /* what follows divides by sizes */
    check_attention_scale(r, config);
    read_layers(r, &config->spec, read_sliding_window(r, family, config));
    read_rope(r, config);
    read_dtype(r, config);
    config->bos_token_id = json_reader_int(r, "bos_token_id", -1, -1, INT32_MAX);
    read_eos(r, config);
}

static void read_generation(struct json_reader *r, struct model_config *config)
{
    config->generation.present = true;
    config->generation.do_sample_given = json_reader_get(r, "do_sample") != NULL;
    config->generation.do_sample = json_reader_bool(r, "do_sample", false);
    config->generation.temperature = json_reader_number(r, "temperature", NAN, 0, 1e6);
    config->generation.top_p = json_reader_number(r, "top_p", NAN, 1e-9, 1);
    config->generation.min_p = json_reader_number(r, "min_p", NAN, 0, 1);
    config->generation.repetition_penalty = json_reader_number(r, "repetition_penalty", NAN, 1e-9, 1e6);
    config->generation.top_k = json_reader_int(r, "top_k", -1, -1, INT32_MAX);
    config->generation.max_new_tokens = json_reader_int(r, "max_new_tokens", -1, 1, INT32_MAX);
    read_eos(r, config);
}

/* Reads one file through `read`. */
static enum status load(const char *path, struct model_config *config,
                        void (*read)(struct json_reader *, struct model_config *), struct error *err)
{
    json_t *root;
    enum status status = json_object_read(path, JSON_REJECT_DUPLICATES, &root, err);
    if (status != STATUS_OK) return status;
    struct json_reader reader = json_reader(root, path, err);
    read(&reader, config);
    json_decref(root);
    return reader.status;
}

enum status model_config_load(const char *folder, struct model_config *config, struct error *err)
{
    char path[PATH_MAX];
    *config = (struct model_config){.spec = {.embedding_multiplier = 1, .logits_multiplier = 1},
                                    .bos_token_id = -1,
                                    .generation = {.temperature = NAN,
                                                   .top_p = NAN,
                                                   .min_p = NAN,
                                                   .repetition_penalty = NAN,
                                                   .top_k = -1,
                                                   .max_new_tokens = -1}};
    if (file_exists(folder))
        return error_set(err, STATUS_IO, "%s is a file; name the folder that holds config.json and *.safetensors",
                         folder);
    if (!folder_exists(folder)) return error_set(err, STATUS_IO, "%s: no such folder", folder);
    if (!path_join(path, sizeof path, folder, "generation_config.json"))
        return error_set(err, STATUS_INVALID, "%s: the path is too long", folder);
    bool found;
    enum status status = file_find(path, &found, err);
    if (status == STATUS_OK && found) status = load(path, config, read_generation, err);
    path_join(path, sizeof path, folder, "config.json"); /* shorter than the name before */
    return status == STATUS_OK ? load(path, config, read_config, err) : status;
}
