/* What families with recurrent layers share. */
#include <math.h>
#include <string.h>

#include "base/json_value.h"
#include "base/words.h"
#include "model/families/families.h"

void family_finish_recurrent(struct json_reader *r, struct recurrent_spec *s)
{
    if (s->num_v_heads % s->num_k_heads != 0)
        json_reader_fail(
            r, STATUS_UNSUPPORTED,
            "a recurrent layer has %d heads of values and %d of keys; quire computes as many, or a multiple",
            s->num_v_heads, s->num_k_heads);
    if (s->k_head_size % 16 != 0 || s->v_head_size % 16 != 0)
        json_reader_fail(
            r, STATUS_UNSUPPORTED,
            "a recurrent layer's heads have %d elements of keys and %d of values; quire computes multiples "
            "of 16",
            s->k_head_size, s->v_head_size);
    if (s->scale == 0) s->scale = 1 / sqrtf((float)s->k_head_size);
    if (s->norm_group_size == 0) s->norm_group_size = s->v_head_size;
    if (s->norm_size == 0) s->norm_size = s->norm_group_size;
}

void family_set_mixed_layers(struct json_reader *r, const char *words, const struct layer_spec *attention,
                             const struct layer_spec *other, int32_t full_every, struct model_spec *spec)
{
    const char *key = family_either_key(r, "layer_types", "layers_block_type");
    const json_t *list = family_get_layer_list(r, key, "strings", spec);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const json_t *value = list ? json_array_get(list, (size_t)i) : NULL;
        const bool is_text = value && json_is_text(value);
        const bool is_other = list ? is_text && words_have(words, json_string_value(value)) : (i + 1) % full_every != 0;
        if (list && !is_other && !(is_text && words_have("full_attention attention", json_string_value(value))))
            json_reader_fail(r, STATUS_UNSUPPORTED, "%s[%d] is %s; quire computes \"%.*s\" and \"full_attention\"", key,
                             i, show_value(value).text, (int)strcspn(words, " "), words);
        spec->layers[i] = is_other ? *other : *attention;
    }
}

/* time_step_limit: between which two numbers a time step lies. The second may be infinite, which has no number in JSON.
 */
static void read_step_limits(struct json_reader *r, struct recurrent_spec *net)
{
    const json_t *list = json_reader_get(r, "time_step_limit"), *most = json_array_get(list, 1);
    net->beta_max = INFINITY;
    if (!list) return;
    if (json_array_size(list) != 2) {
        json_reader_expected(r, "time_step_limit", "an array of two numbers", list);
        return;
    }
    net->beta_min = (float)json_reader_to_number(r, "time_step_limit[0]", json_array_get(list, 0), 0, 1e9);
    const char *spelling = json_spelling(most);
    if (!spelling) spelling = json_string_value(json_object_get(most, "__float__")); /* as transformers 5 writes it */
    if (spelling && strcmp(spelling, "Infinity") == 0) return;
    net->beta_max = (float)json_reader_to_number(r, "time_step_limit[1]", most, net->beta_min, 1e9);
}

struct recurrent_spec family_make_mamba2(struct json_reader *r, const struct recurrent_spec *sizes)
{
    struct recurrent_spec net = *sizes;
    net.kind = RECURRENCE_SSD;
    net.layout = RECURRENT_MAMBA;
    net.value_first = true;
    net.has_skip = true;
    net.gate_first = true;
    net.scale = 1;
    net.norm_size = (int32_t)recurrent_v_size(&net);
    if (net.beta_max == 0) net.beta_max = INFINITY;
    family_finish_recurrent(r, &net);
    return net;
}

struct recurrent_spec family_read_mamba2(struct json_reader *r, int32_t size, const struct model_spec *spec)
{
    const int32_t expand = json_reader_int(r, "mamba_expand", 2, 1, 64);
    const int32_t inner = size > 0 ? size : expand * spec->hidden_size;
    struct recurrent_spec net = {
        .num_k_heads = json_reader_int(r, "mamba_n_groups", 1, 1, 1024),
        .num_v_heads = json_reader_int(r, "mamba_n_heads", 128, 1, 4096),
        .k_head_size = json_reader_int(r, "mamba_d_state", 256, 1, 256),
        .conv_width = json_reader_int(r, "mamba_d_conv", 4, 2, 16),
        .conv_bias = json_reader_bool(r, "mamba_conv_bias", true),
        .norm_eps = spec->norm_eps,
        .norm_group_size = inner,
    };
    const bool is_auto =
        !json_reader_get(r, "mamba_d_head") || json_is_word(json_reader_get(r, "mamba_d_head"), "auto");
    net.in_bias = net.o_bias = json_reader_bool(r, "mamba_proj_bias", false);
    net.v_head_size = is_auto ? inner / net.num_v_heads : json_reader_int(r, "mamba_d_head", 0, 1, 256);
    if ((int64_t)net.v_head_size * net.num_v_heads != inner)
        json_reader_fail(r, STATUS_INVALID, "mamba_n_heads (%d) heads of %d elements are not %s (%d)", net.num_v_heads,
                         net.v_head_size, size > 0 ? "mamba_d_ssm" : "mamba_expand * hidden_size", inner);
    if (net.v_head_size > 256)
        json_reader_fail(r, STATUS_UNSUPPORTED, "mamba_d_head is %d; quire computes up to 256", net.v_head_size);
    read_step_limits(r, &net);
    return family_make_mamba2(r, &net);
}

void family_set_mamba_names(struct tensor_names *names, const char *module)
{
    names->recurrent = module;
    names->recurrent_o = "out_proj";
    names->recurrent_norm = "norm";
}

void family_set_bamba_names(struct tensor_names *names)
{
    family_set_mamba_names(names, "mamba");
    names->final_norm = "model.final_layernorm";
    names->mlp_norm = "pre_ff_layernorm";
    names->gate = "feed_forward.gate_proj";
    names->up = "feed_forward.up_proj";
    names->down = "feed_forward.down_proj";
}
