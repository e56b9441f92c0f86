/* The rotation table. The formulas are those of transformers' modeling_rope_utils. What is float32 there is float32
 * here, too: a frequency rounded differently moves the angle at position 100000 by 0.01. */
#include <limits.h>
#include <math.h>

#include "model/model_spec.h"

const char *const rope_type_names[NUM_ROPE_TYPES] = {
    [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear",     [ROPE_DYNAMIC] = "dynamic",          [ROPE_YARN] = "yarn",
    [ROPE_LLAMA3] = "llama3",   [ROPE_LONGROPE] = "longrope", [ROPE_PROPORTIONAL] = "proportional"};

/* base ^ (2 * pair / dim), in float32. */
static float pair_wavelength(double base, int pair, int dim)
{
    const float exponent = (float)(2 * pair) / (float)dim;
    return (float)pow((double)(float)base, (double)exponent);
}

int32_t layer_rotary_dim(const struct layer_spec *layer, int32_t rope)
{
    if (layer->mixer == MIXER_LATENT) return rope == 0 && !layer->latent.no_rotation ? layer->latent.rope : 0;
    return layer->attention.rope == rope ? layer->attention.rotary_dim : 0;
}

int32_t rope_rotary_dim(const struct model_spec *spec, int32_t rope)
{
    int32_t dim = 0;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const int32_t of_layer = layer_rotary_dim(&spec->layers[i], rope);
        if (of_layer > dim) dim = of_layer;
    }
    return dim;
}

static double dynamic_base(const struct rope_config *rope, int dim)
{
    /* factor * longest / max_position_embeddings, with longest = max_position_embeddings * factor */
    const double stretch = rope->factor * rope->factor - (rope->factor - 1);
    return rope->theta * pow(stretch, (double)dim / (dim - 2));
}

/* Long wavelengths are stretched by `factor`, short ones kept, those between interpolated (Llama 3.1). */
static float llama3_frequency(const struct rope_config *rope, float frequency)
{
    const double original = rope->original_max_position;
    const float wavelength = (float)(2 * M_PI) / frequency;
    const float factor = (float)rope->factor;
    if (wavelength < (float)(original / rope->high_freq_factor)) return frequency;
    if (wavelength > (float)(original / rope->low_freq_factor)) return frequency / factor;
    if (rope->low_freq_factor == rope->high_freq_factor) return frequency; /* at the border itself */
    const float smooth = ((float)original / wavelength - (float)rope->low_freq_factor) /
                         (float)(rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

/* Yarn keeps the frequencies of pairs below `low`, divides those above `high` by `factor`, and blends between. */
struct yarn_range {
    double low, high;
};

/* The (fractional) pair that turns `rotations` times over the original context. */
static double yarn_dimension(const struct rope_config *rope, int dim, double rotations)
{
    return dim * log(rope->original_max_position / (rotations * 2 * M_PI)) / (2 * log(rope->theta));
}

static struct yarn_range yarn_range(const struct rope_config *rope, int dim)
{
    struct yarn_range range = {yarn_dimension(rope, dim, rope->beta_fast), yarn_dimension(rope, dim, rope->beta_slow)};
    if (rope->truncate) {
        range.low = floor(range.low);
        range.high = ceil(range.high);
    }
    range.low = fmax(range.low, 0);
    range.high = fmin(range.high, dim - 1);
    if (range.low == range.high) range.high += 0.001; /* no division by zero */
    return range;
}

static float yarn_frequency(const struct rope_config *rope, struct yarn_range range, int pair, float wavelength)
{
    float ramp = ((float)pair - (float)range.low) / (float)(range.high - range.low);
    ramp = fminf(fmaxf(ramp, 0), 1);
    const float keep = 1 - ramp;
    return 1 / ((float)rope->factor * wavelength) * (1 - keep) + 1 / wavelength * keep;
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* Ding et al., 2024. */
static double longrope_scale(const struct rope_config *rope)
{
    return rope->factor <= 1 ? 1 : sqrt(1 + log(rope->factor) / log(rope->original_max_position));
}

static float attention_factor(const struct rope_config *rope)
{
    if (rope->type != ROPE_YARN && rope->type != ROPE_LONGROPE) return 1;
    if (rope->attention_factor > 0) return (float)rope->attention_factor;
    if (rope->type == ROPE_LONGROPE) return (float)longrope_scale(rope);
    if (rope->mscale != 0 && rope->mscale_all_dim != 0)
        return (float)(yarn_mscale(rope->factor, rope->mscale) / yarn_mscale(rope->factor, rope->mscale_all_dim));
    return (float)yarn_mscale(rope->factor, 1);
}

/* `is_long`: in a sequence past longrope's switch. */
static float pair_frequency(const struct rope_config *rope, int pair, int dim, bool is_long)
{
    const float wavelength =
        pair_wavelength(rope->type == ROPE_DYNAMIC ? dynamic_base(rope, dim) : rope->theta, pair, dim);
    switch (rope->type) {
    case ROPE_LINEAR:
        return 1 / wavelength / (float)rope->factor;
    case ROPE_YARN:
        return yarn_frequency(rope, yarn_range(rope, dim), pair, wavelength);
    case ROPE_LLAMA3:
        return llama3_frequency(rope, 1 / wavelength);
    case ROPE_LONGROPE:
        return 1 / ((is_long ? rope->long_factor : rope->short_factor)[pair] * wavelength);
    case ROPE_PROPORTIONAL:
        return pair < (int)(rope->proportion * dim / 2) ? 1 / wavelength / (float)rope->factor : 0;
    default:
        return 1 / wavelength;
    }
}

int32_t model_spec_rope_switch(const struct model_spec *spec, int32_t max_length)
{
    for (int32_t i = 0; i < spec->num_ropes; i++) {
        const struct rope_config *rope = &spec->ropes[i];
        if (rope->type == ROPE_LONGROPE && rope->original_max_position < max_length) return rope->original_max_position;
    }
    return 0;
}

int32_t rope_table_rows(const struct model_spec *spec, int32_t max_length)
{
    return model_spec_rope_switch(spec, max_length) ? 2 * max_length : max_length;
}

struct angles {
    const float *frequencies; /* [pairs] */
    int pairs;
    float scale, sine_scale;
    float *table; /* [positions, 2 * pairs] */
};

static void fill_row(void *angles, int64_t position, int thread)
{
    (void)thread;
    const struct angles *a = angles;
    float *row = a->table + position * 2 * a->pairs;
    for (int pair = 0; pair < a->pairs; pair++) {
        const float angle = (float)position * a->frequencies[pair];
        row[pair] = cosf(angle) * a->scale;
        row[a->pairs + pair] = sinf(angle) * a->sine_scale;
    }
}

void rope_table(const struct model_spec *spec, int32_t rope, int32_t max_length, float *table, struct pool *pool)
{
    const struct rope_config *config = &spec->ropes[rope];
    const int dim = rope_rotary_dim(spec, rope), pairs = dim / 2;
    const int halves = rope_table_rows(spec, max_length) / max_length;
    for (int half = 0; half < halves; half++, table += (int64_t)max_length * dim) {
        float frequencies[MODEL_MAX_HEAD_SIZE / 2];
        for (int pair = 0; pair < pairs; pair++) frequencies[pair] = pair_frequency(config, pair, dim, half == 1);
        const float scale = attention_factor(config);
        struct angles angles = {frequencies, pairs, scale, spec->rope_reversed ? -scale : scale, table};
        pool_run(pool, INT_MAX, max_length, fill_row, &angles);
    }
}

int32_t model_spec_max_length(const struct model_spec *spec)
{
    const struct rope_config *rope = &spec->ropes[0];
    double length = spec->max_position_embeddings;
    if (spec->num_ropes > 1 || rope_rotary_dim(spec, 0) == 0) return spec->max_position_embeddings;
    if (rope->type == ROPE_LINEAR || rope->type == ROPE_DYNAMIC) length *= rope->factor;
    if (rope->type == ROPE_YARN) length = rope->original_max_position * rope->factor;
    return length >= INT32_MAX ? INT32_MAX : length < 1 ? 1 : (int32_t)length;
}
