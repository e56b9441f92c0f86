/* What families with recurrent layers share. */
#include <math.h>
#include <string.h>

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

void family_set_mixed_layers(struct json_reader *r, const char *word, const struct layer_spec *attention,
                             const struct layer_spec *other, int32_t full_every, struct model_spec *spec)
{
    const json_t *list = family_get_layer_list(r, "layer_types", "strings", spec);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const json_t *value = list ? json_array_get(list, (size_t)i) : NULL;
        const bool is_other = list ? json_is_word(value, word) : (i + 1) % full_every != 0;
        if (list && !is_other && !json_is_word(value, "full_attention") && !json_is_word(value, "attention"))
            json_reader_fail(r, STATUS_UNSUPPORTED,
                             "layer_types[%d] is %s; quire computes \"%s\" and \"full_attention\"", i,
                             show_value(value).text, word);
        spec->layers[i] = is_other ? *other : *attention;
    }
}
