/* What the files of families share. */
#include <math.h>
#include <string.h>

#include "model/families/families.h"

const char *const activation_names[NUM_ACTIVATIONS] = {
    [ACTIVATION_SILU] = "silu",   [ACTIVATION_GELU_TANH] = "gelu_pytorch_tanh",
    [ACTIVATION_GELU] = "gelu",   [ACTIVATION_RELU] = "relu",
    [ACTIVATION_RELU2] = "relu2", [ACTIVATION_XIELU] = "xielu"};

static int32_t read_head_size(struct json_reader *r, int32_t absent, int32_t hidden_size, int32_t num_heads)
{
    /* null stands for the quotient, too */
    if (json_reader_has(r, "head_dim")) absent = 0;
    int32_t head_size = json_reader_int(r, "head_dim", absent, 2, MODEL_MAX_HEAD_SIZE);
    if (head_size == 0) {
        if (hidden_size % num_heads != 0)
            json_reader_fail(
                r, STATUS_INVALID,
                "hidden_size (%d) is not a multiple of num_attention_heads (%d), and head_dim is not given",
                hidden_size, num_heads);
        head_size = hidden_size / num_heads;
    }
    if (head_size < 2 || head_size > MODEL_MAX_HEAD_SIZE || head_size % 2 != 0)
        json_reader_fail(r, STATUS_INVALID, "head_dim must be an even number from 2 to %d, found %d",
                         MODEL_MAX_HEAD_SIZE, head_size);
    return head_size;
}

static const char *key_or(const char *key, const char *usual)
{
    return key ? key : usual;
}

static struct attention_spec read_heads(struct json_reader *r, const struct size_defaults *defaults,
                                        int32_t hidden_size)
{
    const char *heads_key = key_or(defaults->num_heads_key, "num_attention_heads");
    const char *kv_key = key_or(defaults->num_kv_heads_key, "num_key_value_heads");
    struct attention_spec a = {
        .num_heads = json_reader_require_int(r, heads_key, 1, 4096), .v_multiplier = 1, .alibi_multiplier = 1};
    /* transformers replaces null by the number of heads, and takes the family's number where the key is absent */
    const bool given = json_reader_has(r, kv_key) || defaults->num_kv_heads == 0;
    a.num_kv_heads = json_reader_int(r, kv_key, given ? a.num_heads : defaults->num_kv_heads, 1, 4096);
    if (a.num_heads % a.num_kv_heads != 0)
        json_reader_fail(r, STATUS_INVALID, "%s (%d) is not a multiple of %s (%d)", heads_key, a.num_heads, kv_key,
                         a.num_kv_heads);
    a.head_size = a.rotary_dim = read_head_size(r, defaults->head_size, hidden_size, a.num_heads);
    a.scale = (float)(1 / sqrt((double)a.head_size));
    return a;
}

struct layer_spec family_read_llama(struct json_reader *r, const struct size_defaults *defaults,
                                    struct model_spec *spec)
{
    const char *layers_key = key_or(defaults->num_layers_key, "num_hidden_layers");
    const char *eps_key = key_or(defaults->norm_eps_key, "rms_norm_eps");
    const char *inner_key = key_or(defaults->intermediate_size_key, "intermediate_size");
    const char *positions_key = key_or(defaults->max_position_key, "max_position_embeddings");
    const int32_t factor = defaults->intermediate_factor;
    struct layer_spec layer = {.residual_multiplier = 1};
    spec->hidden_size = json_reader_require_int(r, key_or(defaults->hidden_size_key, "hidden_size"), 1, 1 << 20);
    if (!defaults->no_mlp)
        layer.mlp.intermediate_size = factor ? json_reader_int(r, inner_key, factor * spec->hidden_size, 1, 1 << 22)
                                             : json_reader_require_int(r, inner_key, 1, 1 << 22);
    spec->num_layers = defaults->num_layers ? json_reader_int(r, layers_key, defaults->num_layers, 1, MODEL_MAX_LAYERS)
                                            : json_reader_require_int(r, layers_key, 1, MODEL_MAX_LAYERS);
    spec->vocab_size = json_reader_require_int(r, "vocab_size", 1, 1 << 24);
    layer.attention = read_heads(r, defaults, spec->hidden_size);
    spec->max_position_embeddings = json_reader_int(r, positions_key, defaults->max_position, 1, 1 << 28);
    spec->norm_eps = json_reader_number(r, eps_key, defaults->norm_eps > 0 ? defaults->norm_eps : 1e-6, 0, 1);
    spec->tie_word_embeddings = json_reader_bool(r, "tie_word_embeddings", defaults->tie_word_embeddings);
    return layer;
}

void family_set_layers(struct model_spec *spec, const struct layer_spec *layer)
{
    for (int32_t i = 0; i < spec->num_layers; i++) spec->layers[i] = *layer;
}

void family_set_mtp(struct model_spec *spec, const struct layer_spec *layer, const char *layers, int32_t first_layer)
{
    const struct layer_spec first = *layer; /* which may be one of the spec's */
    spec->head = (struct head_spec){.kind = HEAD_MTP, .num_states = 1, .state_size = spec->hidden_size};
    spec->num_layers = 1;
    spec->layers[0] = first;
    spec->tie_word_embeddings = false;
    spec->names.layers = layers;
    spec->names.first_layer = first_layer;
}

void family_set_layer_norms(struct model_spec *spec)
{
    spec->norm_type = NORM_LAYER;
    spec->norm_bias = true;
}

void family_set_gpt_names(struct tensor_names *names)
{
    names->embedding = "transformer.wte";
    names->final_norm = "transformer.ln_f";
    names->layers = "transformer.h";
    names->attention_norm = "ln_1";
    names->attention = "attn";
}

const char *family_either_key(struct json_reader *r, const char *key, const char *other)
{
    return json_reader_get(r, key) ? key : other;
}

struct size_defaults family_gpt_sizes(struct json_reader *r)
{
    return (struct size_defaults){
        .max_position = 1024,
        .norm_eps = 1e-5,
        .tie_word_embeddings = true,
        .intermediate_factor = 4,
        .intermediate_size_key = "n_inner",
        .num_layers_key = family_either_key(r, "num_hidden_layers", "n_layer"),
        .norm_eps_key = "layer_norm_epsilon",
        .hidden_size_key = family_either_key(r, "hidden_size", "n_embd"),
        .num_heads_key = family_either_key(r, "num_attention_heads", "n_head"),
        .max_position_key = family_either_key(r, "max_position_embeddings", "n_positions"),
    };
}

void family_require_bool(struct json_reader *r, const char *key, bool expected, const char *what)
{
    if (json_reader_bool(r, key, expected) == expected) return;
    json_reader_fail(r, STATUS_UNSUPPORTED, "%s is %s: quire does not compute %s in this family", key,
                     expected ? "false" : "true", what);
}

void family_set_windows(struct model_spec *spec, int32_t window, int32_t full_every)
{
    for (int32_t i = 0; i < spec->num_layers; i++)
        spec->layers[i].attention.window = (i + 1) % full_every == 0 ? 0 : window;
}

void family_set_gemma(struct model_spec *spec)
{
    spec->gain_offset = 1;
    spec->embedding_multiplier = sqrt(spec->hidden_size);
    spec->round_embedding_multiplier = true;
}

void family_read_rotating_layers(struct json_reader *r, struct model_spec *spec)
{
    const json_t *list = json_reader_get(r, "no_rope_layers");
    const int32_t interval = json_reader_int(r, "no_rope_layer_interval", 4, 1, INT32_MAX);
    if (json_is_array(list) && json_array_size(list) == 0) list = NULL;
    if (list && (!json_is_array(list) || json_array_size(list) < (size_t)spec->num_layers)) {
        json_reader_expected(r, "no_rope_layers", "an array of a 1 or a 0 for each of num_hidden_layers", list);
        return;
    }
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const bool rotates =
            list ? json_reader_to_int64(r, "an element of no_rope_layers", json_array_get(list, (size_t)i), 0, 1)
                 : (i + 1) % interval != 0;
        if (!rotates) spec->layers[i].attention.rotary_dim = 0;
    }
}

const json_t *family_get_layer_list(struct json_reader *r, const char *key, const char *what,
                                    const struct model_spec *spec)
{
    const json_t *list = json_reader_get(r, key);
    const int32_t further = json_reader_int(r, "num_nextn_predict_layers", 0, 0, MODEL_MAX_LAYERS);
    const size_t size = json_array_size(list), layers = (size_t)spec->num_layers;
    if (!list || (json_is_array(list) && (size == layers || size == layers + (size_t)further))) return list;
    json_reader_fail(r, STATUS_INVALID, "%s must be an array of num_hidden_layers (%d) %s, found %s", key,
                     spec->num_layers, what, show_value(list).text);
    return NULL;
}

static const json_t *get_layer_types(struct json_reader *r, const struct model_spec *spec)
{
    return family_get_layer_list(r, "layer_types", "strings", spec);
}

void family_read_layer_types(struct json_reader *r, int32_t window, struct model_spec *spec)
{
    const json_t *list = get_layer_types(r, spec);
    for (int32_t i = 0; list && i < spec->num_layers; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        const bool sliding = json_is_word(value, "sliding_attention");
        if (!sliding && !json_is_word(value, "full_attention"))
            json_reader_fail(r, STATUS_UNSUPPORTED,
                             "layer_types[%d] is %s; quire computes \"sliding_attention\" and \"full_attention\"", i,
                             show_value(value).text);
        if (sliding && window == 0)
            json_reader_fail(
                r, STATUS_INVALID,
                "layer_types[%d] is \"sliding_attention\", but sliding_window is null or use_sliding_window is false",
                i);
        spec->layers[i].attention.window = sliding ? window : 0;
    }
}

void family_read_chunks(struct json_reader *r, int32_t chunk, struct model_spec *spec)
{
    const json_t *list = get_layer_types(r, spec);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct attention_spec *a = &spec->layers[i].attention;
        const json_t *value = json_array_get(list, (size_t)i);
        const bool chunked = list ? json_is_word(value, "chunked_attention") : a->rotary_dim > 0;
        if (list && !chunked && !json_is_word(value, "full_attention"))
            json_reader_fail(r, STATUS_UNSUPPORTED,
                             "layer_types[%d] is %s; quire computes \"chunked_attention\" and \"full_attention\"", i,
                             show_value(value).text);
        if (chunked && chunk == 0)
            json_reader_fail(r, STATUS_INVALID, "attention_chunk_size is null, but layer %d attends to chunks", i);
        a->chunk = chunked ? chunk : 0;
    }
}

int32_t family_read_window(struct json_reader *r, int32_t absent)
{
    return json_reader_int(r, "sliding_window", json_reader_has(r, "sliding_window") ? 0 : absent, 1, INT32_MAX);
}

void family_read_windows(struct json_reader *r, int32_t absent, int32_t full_every, struct model_spec *spec)
{
    const int32_t window = family_read_window(r, absent);
    family_set_windows(spec, window, full_every);
    family_read_layer_types(r, window, spec);
    if (window == 0 && !json_reader_get(r, "layer_types"))
        json_reader_fail(r, STATUS_INVALID, "sliding_window is null, but this model has layers with a window");
}

void family_read_alternating_windows(struct json_reader *r, int32_t full_every, struct model_spec *spec)
{
    family_read_windows(r, 4096, full_every, spec);
}

void family_set_two_ropes(struct model_spec *spec)
{
    spec->num_ropes = 2;
    for (int32_t i = 0; i < spec->num_layers; i++)
        spec->layers[i].attention.rope = spec->layers[i].attention.window > 0;
}

void family_read_qwen_windows(struct json_reader *r, int32_t first_absent, struct model_spec *spec)
{
    int32_t window = 0;
    if (json_reader_bool(r, "use_sliding_window", false)) window = family_read_window(r, 4096);
    const int32_t first = json_reader_int(r, "max_window_layers", first_absent, 0, INT32_MAX);
    for (int32_t i = first; i < spec->num_layers; i++) spec->layers[i].attention.window = window;
    family_read_layer_types(r, window, spec);
}

float family_read_soft_cap(struct json_reader *r, const char *key, double absent)
{
    return (float)json_reader_number(r, key, json_reader_has(r, key) ? 0 : absent, 1e-6, 1e6);
}

void family_check_activation(struct json_reader *r, const char *expected)
{
    const char *name = json_reader_string(r, "hidden_act", expected);
    if (strcmp(name, expected) != 0)
        json_reader_fail(r, STATUS_UNSUPPORTED, "hidden_act is \"%s\"; in this family quire computes \"%s\"",
                         show_string(name).text, expected);
}

enum activation family_read_activation(struct json_reader *r, const char *key, enum activation absent)
{
    const char *name = json_reader_string(r, key, NULL);
    if (!name) return absent;
    if (strcmp(name, "swish") == 0) return ACTIVATION_SILU;
    for (int i = 0; i < NUM_GATE_ACTIVATIONS; i++)
        if (strcmp(name, activation_names[i]) == 0) return (enum activation)i;
    json_reader_fail(r, STATUS_UNSUPPORTED, "%s is \"%s\"; quire computes \"silu\", \"gelu\" and \"gelu_pytorch_tanh\"",
                     key, show_string(name).text);
    return absent;
}

enum activation family_read_plain_activation(struct json_reader *r, const char *key, enum activation absent)
{
    static const struct {
        const char *name;
        enum activation activation;
    } names[] = {{"silu", ACTIVATION_SILU},
                 {"swish", ACTIVATION_SILU},
                 {"gelu", ACTIVATION_GELU},
                 {"gelu_python", ACTIVATION_GELU},
                 {"gelu_new", ACTIVATION_GELU_TANH},
                 {"gelu_fast", ACTIVATION_GELU_TANH},
                 {"gelu_python_tanh", ACTIVATION_GELU_TANH},
                 {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
                 {"relu", ACTIVATION_RELU},
                 {"relu2", ACTIVATION_RELU2}};
    const char *name = json_reader_string(r, key, NULL);
    if (!name) return absent;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i].name) == 0) return names[i].activation;
    json_reader_fail(r, STATUS_UNSUPPORTED,
                     "%s is \"%s\"; quire computes \"silu\", \"gelu\", \"gelu_new\", \"relu\" and \"relu2\"", key,
                     show_string(name).text);
    return absent;
}

void family_check_layer_types(struct json_reader *r, const struct model_spec *spec)
{
    const json_t *list = get_layer_types(r, spec);
    for (int32_t i = 0; list && i < spec->num_layers; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        const char *expected = spec->layers[i].attention.window ? "sliding_attention" : "full_attention";
        if (!json_is_word(value, expected))
            json_reader_fail(r, STATUS_UNSUPPORTED, "layer_types[%d] is %s, but this layer is computed with \"%s\"", i,
                             show_value(value).text, expected);
    }
}
