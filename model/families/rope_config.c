/* Rotary positions from config.json: rope_theta and rope_scaling (transformers 4), or rope_parameters (5). */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/words.h"
#include "model/families/families.h"

/* A key that is neither read here nor known to change nothing may matter, so it is refused. */
static void check_keys(struct json_reader *r, const struct family *family)
{
    static const char known[] = "rope_type type rope_theta factor low_freq_factor high_freq_factor beta_fast beta_slow "
                                "attention_factor mscale mscale_all_dim truncate short_factor long_factor "
                                "original_max_position_embeddings partial_rotary_factor finetuned attn_factor "
                                "extrapolation_factor mrope_section mrope_interleaved";
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        if (family->reads_alpha && strcmp(key, "alpha") == 0) continue;
        if (family->reads_mscale && words_have("short_mscale long_mscale", key)) continue;
        if (family->scales_queries && words_have("llama_4_scaling_beta max_position_embeddings", key)) continue;
        if (!json_is_null(value) && !words_have(known, key))
            json_reader_fail(r, STATUS_UNSUPPORTED, "%s%s is set, a key that quire does not know", r->prefix,
                             show_string(key).text);
    }
}

/* vLLM's keys of yarn. */
static void warn_of_vllm(struct json_reader *r)
{
    static const char *const keys[] = {"attn_factor", "extrapolation_factor"};
    for (int i = 0; i < 2; i++)
        if (json_reader_number(r, keys[i], 1, -1e6, 1e6) != 1)
            json_reader_warn(r, "%s%s is not used, as in transformers; vLLM uses it, so its answers differ", r->prefix,
                             keys[i]);
}

/* The type of a family that has no other than longrope. */
static enum rope_type read_longrope_name(struct json_reader *r, const char *name)
{
    if (words_have("longrope su yarn", name)) return ROPE_LONGROPE;
    if (strcmp(name, "default") != 0)
        json_reader_fail(r, STATUS_UNSUPPORTED, "%srope_type \"%s\" is not supported (default and longrope are)",
                         r->prefix, show_string(name).text);
    return ROPE_DEFAULT;
}

static enum rope_type read_type(struct json_reader *r, enum rope_type absent, bool longrope_only)
{
    const char *name = json_reader_string(r, "rope_type", NULL);
    if (!name) name = json_reader_string(r, "type", NULL);
    if (!name) return absent;
    /* Positions of three axes, which are equal in text, whichever axis a pair of elements belongs to. */
    if (strcmp(name, "mrope") == 0) return ROPE_DEFAULT;
    if (longrope_only) return read_longrope_name(r, name);
    for (size_t i = 0; i < NUM_ROPE_TYPES; i++)
        if (strcmp(name, rope_type_names[i]) == 0) return (enum rope_type)i;
    json_reader_fail(r, STATUS_UNSUPPORTED,
                     "%srope_type \"%s\" is not supported (default, linear, dynamic, yarn, llama3, "
                     "longrope and proportional are)",
                     r->prefix, show_string(name).text);
    return ROPE_DEFAULT;
}

static void read_llama3(struct json_reader *r, struct rope_config *rope)
{
    rope->factor = json_reader_require_number(r, "factor", 1e-3, 1e6);
    rope->low_freq_factor = json_reader_require_number(r, "low_freq_factor", 1e-6, 1e6);
    rope->high_freq_factor = json_reader_require_number(r, "high_freq_factor", 1e-6, 1e6);
    if (rope->high_freq_factor < rope->low_freq_factor)
        json_reader_fail(r, STATUS_INVALID, "%shigh_freq_factor (%g) must not be less than low_freq_factor (%g)",
                         r->prefix, rope->high_freq_factor, rope->low_freq_factor);
}

/* Hunyuan's: one theta for all lengths. 0 is none, as in transformers. */
static void read_alpha(struct json_reader *r, const struct model_spec *spec, struct rope_config *rope)
{
    const double dim = spec->layers[0].attention.head_size;
    const double alpha = json_reader_number(r, "alpha", 0, 0, 1e9);
    if (alpha == 0) return;
    rope->theta *= pow(alpha, dim / (dim - 2));
    rope->type = ROPE_DEFAULT;
}

static void read_yarn(struct json_reader *r, const struct model_spec *spec, struct rope_config *rope)
{
    const double stretch = (double)spec->max_position_embeddings / rope->original_max_position;
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
    rope->truncate = json_reader_bool(r, "truncate", true);
    warn_of_vllm(r);
}

/* How many elements of each head are rotated; 0: partial_rotary_factor is out of range. Of latent attention it is a
 * size of its own. */
static int32_t rotated_elements(const struct layer_spec *layer, double partial_rotary_factor)
{
    const bool valid = partial_rotary_factor > 0 && partial_rotary_factor <= 1;
    if (layer->mixer == MIXER_LATENT) return layer->latent.rope;
    return valid ? (int32_t)(layer->attention.head_size * partial_rotary_factor) : 0;
}

/* short_factor or long_factor: a number for each pair that is rotated. */
static void read_pair_factors(struct json_reader *r, const char *key, int32_t num_pairs, float *factors)
{
    const json_t *list = json_reader_get(r, key);
    if (!json_is_array(list) || json_array_size(list) != (size_t)num_pairs) {
        json_reader_fail(r, STATUS_INVALID, "%s%s must be an array of %d numbers, one for each pair, found %s",
                         r->prefix, key, num_pairs, list ? show_value(list).text : "none");
        return;
    }
    for (int32_t i = 0; i < num_pairs; i++)
        factors[i] = (float)json_reader_to_number(r, key, json_array_get(list, (size_t)i), 1e-6, 1e6);
}

static void read_longrope(struct json_reader *r, const struct model_spec *spec, double partial,
                          struct rope_config *rope)
{
    const double stretch = (double)spec->max_position_embeddings / rope->original_max_position;
    const int32_t num_pairs = rotated_elements(&spec->layers[0], partial) / 2;
    rope->factor = json_reader_number(r, "factor", stretch, 1e-6, 1e6);
    rope->attention_factor = json_reader_number(r, "attention_factor", 0, 1e-6, 1e6);
    if (rope->original_max_position < 2)
        json_reader_fail(r, STATUS_INVALID,
                         "original_max_position_embeddings must be at least 2 for %srope_type \"longrope\"", r->prefix);
    if (r->status != STATUS_OK || num_pairs == 0) return; /* narrow_rotation refuses 0 */
    read_pair_factors(r, "short_factor", num_pairs, rope->short_factor);
    read_pair_factors(r, "long_factor", num_pairs, rope->long_factor);
}

/* Phi-3.5-MoE's, of shorter and of longer sequences. */
static void read_mscale(struct json_reader *r, struct rope_config *rope)
{
    const double longer = json_reader_require_number(r, "long_mscale", 1e-6, 1e6);
    rope->attention_factor = json_reader_require_number(r, "short_mscale", 1e-6, 1e6);
    if (rope->attention_factor != longer)
        json_reader_fail(r, STATUS_UNSUPPORTED, "%sshort_mscale (%g) and long_mscale (%g) are not the same number",
                         r->prefix, rope->attention_factor, longer);
}

/* Where the file gives a part of a head, it must be the one that qk_rope_head_dim is. */
static void check_latent_rotation(struct json_reader *r, const struct latent_spec *l, double factor)
{
    if ((int32_t)(latent_head_size(l) * factor) != l->rope)
        json_reader_fail(r, STATUS_INVALID,
                         "partial_rotary_factor is %g, but qk_rope_head_dim is %d of the %d elements of a head", factor,
                         l->rope, latent_head_size(l));
}

/* Sets the rotary_dim of layers that this rope rotates, if it rotates only a part of each head. */
static void narrow_rotation(struct json_reader *r, int32_t rope, double factor, struct model_spec *spec)
{
    if (factor == 1) return;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct attention_spec *a = &spec->layers[i].attention;
        const int32_t dim = rotated_elements(&spec->layers[i], factor);
        if (spec->layers[i].mixer == MIXER_LATENT) check_latent_rotation(r, &spec->layers[i].latent, factor);
        if (a->rope != rope || spec->layers[i].mixer != MIXER_ATTENTION) continue;
        if (dim < 2 || dim % 2 != 0)
            json_reader_fail(r, STATUS_INVALID,
                             "partial_rotary_factor is %g, but must rotate an even number of the %d elements of a head",
                             factor, a->head_size);
        if (a->rotary_dim > 0) a->rotary_dim = dim;
    }
}

/* What counts for the object besides its own keys: the family, and keys beside the object. */
struct rope_outer {
    const struct family *family;
    double partial_rotary_factor;  /* the object's overrides it */
    int32_t original_max_position; /* overrides the object's; 0: none */
};

static bool reads_partial_rotary_factor(const struct family *family)
{
    return words_have(family->reads, "partial_rotary_factor");
}

/* A number for all layers, or an array of one for each: those of the layers that this rope rotates are the same. */
static double read_of_rope(struct json_reader *r, const char *key, int32_t rope, double absent, double min, double max,
                           const struct model_spec *spec)
{
    const json_t *value = json_reader_get(r, key);
    if (!json_is_array(value)) return json_reader_number(r, key, absent, min, max);
    const json_t *list = family_get_layer_list(r, key, "numbers", spec);
    double first = NAN;
    for (int32_t i = 0; list && i < spec->num_layers; i++) {
        if (spec->layers[i].attention.rope != rope) continue;
        const double number = json_reader_to_number(r, key, json_array_get(list, (size_t)i), min, max);
        if (isnan(first)) first = number;
        if (number != first)
            json_reader_fail(r, STATUS_UNSUPPORTED, "%s[%d] is %g, but %g in another layer of the same kind", key, i,
                             number, first);
    }
    return isnan(first) ? absent : first;
}

static double read_partial_rotary_factor(struct json_reader *r, const struct family *family, int32_t rope,
                                         const struct model_spec *spec)
{
    const double absent = family->partial_rotary_factor > 0 ? family->partial_rotary_factor : 1;
    const char *key = family->partial_rotary_factor_key ? family->partial_rotary_factor_key : "partial_rotary_factor";
    return reads_partial_rotary_factor(family) ? read_of_rope(r, key, rope, absent, 0, 1, spec) : 1;
}

static void read_scaling(struct json_reader *r, const struct model_spec *spec, struct rope_outer *outer,
                         struct rope_config *rope)
{
    check_keys(r, outer->family);
    rope->type = read_type(r, rope->type, outer->family->longrope_only);
    rope->theta = json_reader_number(r, "rope_theta", rope->theta, 2, 1e15);
    if (rope->type == ROPE_PROPORTIONAL) {
        rope->proportion = json_reader_number(r, "partial_rotary_factor", 1, 0, 1);
        rope->factor = json_reader_number(r, "factor", 1, 1e-3, 1e6);
        return;
    }
    const double partial = json_reader_number(r, "partial_rotary_factor", outer->partial_rotary_factor, -1e9, 1e9);
    if (partial != outer->partial_rotary_factor && !reads_partial_rotary_factor(outer->family))
        json_reader_fail(r, STATUS_UNSUPPORTED, "%spartial_rotary_factor is %s, but quire rotates whole heads",
                         r->prefix, show_value(json_reader_get(r, "partial_rotary_factor")).text);
    outer->partial_rotary_factor = partial;
    const int32_t original =
        json_reader_int(r, "original_max_position_embeddings", spec->max_position_embeddings, 1, 1 << 28);
    rope->original_max_position = outer->original_max_position ? outer->original_max_position : original;
    if (rope->type == ROPE_LINEAR || rope->type == ROPE_DYNAMIC)
        rope->factor = json_reader_require_number(r, "factor", 1e-3, 1e6);
    if (rope->type == ROPE_DYNAMIC && rotated_elements(&spec->layers[0], 1) <= 2)
        json_reader_fail(r, STATUS_INVALID, "%srope_type \"dynamic\" needs a head_dim greater than 2", r->prefix);
    if (rope->type == ROPE_DYNAMIC && outer->family->reads_alpha) read_alpha(r, spec, rope);
    rope->mscale_all_dim = json_reader_number(r, "mscale_all_dim", 0, 0, 1e6);
    if (rope->type == ROPE_YARN) read_yarn(r, spec, rope);
    if (rope->type == ROPE_LLAMA3) read_llama3(r, rope);
    if (rope->type == ROPE_LONGROPE) read_longrope(r, spec, partial, rope);
    if (rope->type == ROPE_LONGROPE && outer->family->reads_mscale) read_mscale(r, rope);
}

/* The object of a key; NULL: none. */
static const json_t *get_object(struct json_reader *r, const char *key)
{
    const json_t *value = json_reader_get(r, key);
    if (!value || json_is_map(value)) return value;
    json_reader_fail(r, STATUS_INVALID, "%s%s must be an object or null, found %s", r->prefix, key,
                     show_value(value).text);
    return NULL;
}

/* The object that counts, and what its keys are called in messages; NULL: none. If both rope_scaling and
 * rope_parameters hold something, rope_scaling counts, as in transformers. */
static const json_t *find_rope_object(struct json_reader *r, const char **prefix)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    static const char *const prefixes[] = {"rope_scaling.", "rope_parameters."};
    for (int i = 0; i < 2; i++) {
        const json_t *value = get_object(r, keys[i]);
        *prefix = prefixes[i];
        if (json_object_size(value) > 0) return value;
    }
    return NULL;
}

/* Reads the object, unless there is none or it is empty. Its keys are called prefixKEY; absent ones leave *rope. */
static void read_object(struct json_reader *r, const json_t *object, const char *prefix, const struct model_spec *spec,
                        struct rope_outer *outer, struct rope_config *rope)
{
    struct json_reader inner = *r;
    if (json_object_size(object) == 0) return;
    inner.object = object;
    inner.prefix = prefix;
    read_scaling(&inner, spec, outer, rope);
    r->status = inner.status;
}

/* By which every layer scales its queries, in the object of a rope; 0.1 without an object. */
static void read_query_scaling(struct json_reader *r, const json_t *object, const char *prefix, struct model_spec *spec)
{
    struct json_reader inner = *r;
    struct query_scaling scaling = {.length = spec->ropes[0].original_max_position, .beta = 0.1f};
    inner.object = object;
    inner.prefix = prefix;
    if (object) scaling.beta = (float)json_reader_require_number(&inner, "llama_4_scaling_beta", -1e6, 1e6);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct layer_spec *layer = &spec->layers[i];
        *(layer->mixer == MIXER_LATENT ? &layer->latent.query_scaling : &layer->attention.query_scaling) = scaling;
    }
    r->status = inner.status;
}

static struct rope_config unscaled(const struct model_spec *spec, double theta)
{
    return (struct rope_config){
        .theta = theta, .factor = 1, .truncate = true, .original_max_position = spec->max_position_embeddings};
}

/* A key beside the object is the default of the same key inside it, except original_max_position_embeddings, where the
 * one beside it counts. A theta that read() has set stands for the family's. */
static void read_one_rope(struct json_reader *r, const struct family *family, struct model_spec *spec)
{
    const double known = spec->ropes[0].theta > 0 ? spec->ropes[0].theta : family->rope_theta;
    const double theta = known > 0 ? known : 10000;
    const char *theta_key = family->rope_theta_key ? family->rope_theta_key : "rope_theta";
    struct rope_outer outer = {.family = family,
                               .partial_rotary_factor = read_partial_rotary_factor(r, family, 0, spec)};
    spec->ropes[0] = unscaled(spec, json_reader_number(r, theta_key, theta, 2, 1e15));
    outer.original_max_position =
        json_reader_int(r, "original_max_position_embeddings", family->original_max_position, 1, 1 << 28);
    const char *prefix;
    const json_t *object = find_rope_object(r, &prefix);
    if (!object && family->rope && !json_reader_get(r, "rope_parameters")) spec->ropes[0] = *family->rope;
    read_object(r, object, prefix, spec, &outer, &spec->ropes[0]);
    if (family->scales_queries) read_query_scaling(r, object, prefix, spec);
    narrow_rotation(r, 0, outer.partial_rotary_factor, spec);
}

/* The name that rope_type had at first. */
static void warn_of_old_key(const struct json_reader *r, const json_t *scaling)
{
    if (json_object_get(scaling, "type") && !json_object_get(scaling, "rope_type"))
        json_reader_warn(r,
                         "rope_scaling.type counts as rope_type, as in transformers 4; transformers 5 does not read it "
                         "in this family, so its answers differ");
}

/* rope_parameters hold an object for each kind of layer. In the layout of transformers 4, rope_theta and rope_scaling
 * are those of layers without a window, and rope_local_base_freq, or what the family calls it, those of the others. */
static void read_two_ropes(struct json_reader *r, const struct family *family, struct model_spec *spec)
{
    struct rope_outer outer = {.family = family,
                               .partial_rotary_factor = read_partial_rotary_factor(r, family, 0, spec)};
    struct rope_outer local = {.family = family,
                               .partial_rotary_factor = read_partial_rotary_factor(r, family, 1, spec)};
    const char *local_key = family->rope_local_theta_key ? family->rope_local_theta_key : "rope_local_base_freq";
    const json_t *both = get_object(r, "rope_parameters"), *value;
    const char *key;
    json_object_foreach((json_t *)both, key, value)
    {
        if (strcmp(key, "full_attention") != 0 && strcmp(key, "sliding_attention") != 0)
            json_reader_fail(r, STATUS_UNSUPPORTED,
                             "rope_parameters.%s is set, but %s models have the objects full_attention and "
                             "sliding_attention there",
                             show_string(key).text, family->model_type);
    }
    spec->ropes[0] = unscaled(spec, read_of_rope(r, "rope_theta", 0, family->rope_theta, 2, 1e15, spec));
    spec->ropes[1] = unscaled(spec, read_of_rope(r, local_key, 1, family->rope_local_theta, 2, 1e15, spec));
    if (family->rope && !both) spec->ropes[0] = *family->rope;
    struct json_reader parameters = *r;
    parameters.object = both;
    parameters.prefix = "rope_parameters.";
    const json_t *full = get_object(&parameters, "full_attention"), *scaling = get_object(r, "rope_scaling");
    const json_t *sliding = get_object(&parameters, "sliding_attention");
    r->status = parameters.status;
    if (!full) warn_of_old_key(r, scaling);
    read_object(r, full, "rope_parameters.full_attention.", spec, &outer, &spec->ropes[0]);
    read_object(r, scaling, "rope_scaling.", spec, &outer, &spec->ropes[0]);
    read_object(r, sliding, "rope_parameters.sliding_attention.", spec, &local, &spec->ropes[1]);
    narrow_rotation(r, 0, outer.partial_rotary_factor, spec);
    narrow_rotation(r, 1, local.partial_rotary_factor, spec);
}

/* layer_rope_theta: a theta for each layer, of which there may be as many as a model has ropes. 0: the layer is not
 * rotated. */
static void read_layer_thetas(struct json_reader *r, struct model_spec *spec)
{
    const json_t *list = family_get_layer_list(r, "layer_rope_theta", "numbers", spec);
    const struct rope_config rope = spec->ropes[0];
    int32_t count = 0;
    for (int32_t i = 0; list && i < spec->num_layers && r->status == STATUS_OK; i++) {
        struct attention_spec *a = &spec->layers[i].attention;
        const double theta =
            json_reader_to_number(r, "an element of layer_rope_theta", json_array_get(list, (size_t)i), 0, 1e15);
        if (theta == 0) {
            a->rotary_dim = 0;
            continue;
        }
        for (a->rope = 0; a->rope < count && spec->ropes[a->rope].theta != theta;) a->rope++;
        if (a->rope == MODEL_MAX_ROPES) {
            json_reader_fail(r, STATUS_UNSUPPORTED, "layer_rope_theta has more than %d numbers beside 0, in layer %d",
                             MODEL_MAX_ROPES, i);
            return;
        }
        if (a->rope < count) continue;
        spec->ropes[count] = rope;
        spec->ropes[count++].theta = theta;
    }
    if (count > 0) spec->num_ropes = count;
}

/* The positions that queries would be scaled by are rows of a table, of which longrope has two for each position. */
static void check_query_scaling(struct json_reader *r, const struct model_spec *spec)
{
    for (int32_t i = 0; i < spec->num_layers && spec->ropes[0].type == ROPE_LONGROPE; i++)
        if (spec->layers[i].attention.query_scaling.length > 0 || spec->layers[i].latent.query_scaling.length > 0)
            json_reader_fail(r, STATUS_UNSUPPORTED,
                             "the rope_type is \"longrope\", but layer %d scales its queries by their position", i);
}

/* Yarn's factor of scores, where the table of angles has none (DeepSeek V2). */
static void scale_latent_scores(struct model_spec *spec)
{
    const struct rope_config *rope = &spec->ropes[0];
    if (rope->type == ROPE_DEFAULT || rope->mscale_all_dim == 0 || rope->factor <= 1) return;
    const double mscale = 0.1 * rope->mscale_all_dim * log(rope->factor) + 1;
    for (int32_t i = 0; i < spec->num_layers; i++) spec->layers[i].latent.scale *= (float)(mscale * mscale);
}

void family_read_rope(struct json_reader *r, const struct family *family, struct model_spec *spec)
{
    if (spec->num_ropes > 1) {
        read_two_ropes(r, family, spec);
    } else {
        read_one_rope(r, family, spec);
        if (words_have(family->reads, "layer_rope_theta")) read_layer_thetas(r, spec);
    }
    check_query_scaling(r, spec);
    scale_latent_scores(spec);
}
