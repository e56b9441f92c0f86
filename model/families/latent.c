/* What families with latent attention share. */
#include <math.h>

#include "model/families/families.h"

static void check_sizes(struct json_reader *r, const struct latent_spec *l)
{
    const int32_t sizes[] = {l->rank, l->rope, l->nope, l->v_head_size};
    static const char *const keys[] = {"kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"};
    for (int i = 0; i < 4; i++)
        if (sizes[i] % 16 != 0)
            json_reader_fail(r, STATUS_UNSUPPORTED, "%s is %d; quire computes multiples of 16", keys[i], sizes[i]);
    if (l->bias && l->q_rank == 0)
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "attention_bias is true, but quire computes biases of latent attention "
                         "only with q_lora_rank");
}

struct layer_spec family_read_latent(struct json_reader *r, const struct size_defaults *defaults,
                                     const struct latent_sizes *absent, struct model_spec *spec)
{
    struct size_defaults sizes = *defaults;
    sizes.head_size = absent->rope; /* head_dim is not used, and need not be there */
    struct layer_spec layer = family_read_llama(r, &sizes, spec);
    const int32_t heads = layer.attention.num_heads, quotient = heads > 0 ? spec->hidden_size / heads : 16;
    const bool has_q_rank = json_reader_has(r, "q_lora_rank");
    struct latent_spec l = {
        .num_heads = heads,
        .q_rank = json_reader_int(r, "q_lora_rank", has_q_rank ? 0 : absent->q_rank, 1, 1 << 20),
        .rank = json_reader_int(r, "kv_lora_rank", absent->rank, 1, 1 << 12),
        .rope = json_reader_int(r, "qk_rope_head_dim", absent->rope, 2, MODEL_MAX_HEAD_SIZE),
        .nope = json_reader_int(r, "qk_nope_head_dim", absent->nope, 1, MODEL_MAX_HEAD_SIZE),
        .v_head_size = json_reader_int(r, "v_head_dim", absent->v_head_size > 0 ? absent->v_head_size : quotient, 1,
                                       MODEL_MAX_HEAD_SIZE),
        .bias = json_reader_bool(r, "attention_bias", false),
        .norm_eps = 1e-6,
    };
    l.scale = (float)(1 / sqrt((double)latent_head_size(&l)));
    check_sizes(r, &l);
    layer.mixer = MIXER_LATENT;
    layer.attention = (struct attention_spec){0};
    layer.latent = l;
    return layer;
}
