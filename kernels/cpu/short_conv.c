/* Causal convolutions over the last few tokens of each channel.
 *
 * An iteration computes some channels of a chain of entries, token after token. Their weights and their last `width`
 * tokens lie on the stack, by columns: the tokens in a ring, of which row `head` is the oldest. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/state.h"

enum { CONV_FLOATS = 2048, CONV_CHANNELS = 512 }; /* of weights; channels at once, at most */

struct conv {
    const struct cpu_kernels *kernels;
    const struct short_conv_args *args;
    int64_t first, count; /* channels [first, first + count) */
    int head;
    float weights[CONV_FLOATS], ring[CONV_FLOATS]; /* [width, count] */
    float bias[CONV_CHANNELS];
};

static int64_t channels_at_once(const struct short_conv_args *args)
{
    assert(args->width <= CONV_FLOATS);
    return min_i64(CONV_CHANNELS, CONV_FLOATS / args->width);
}

/* Row j of the ring, the oldest first. */
static float *ring_row(struct conv *conv, int j)
{
    return conv->ring + (conv->head + j) % conv->args->width * conv->count;
}

static void load_weights(struct conv *conv)
{
    const struct short_conv_args *args = conv->args;
    const int64_t width = args->width;
    float rows[CONV_FLOATS];
    conv->kernels->to_float(rows, cpu_element(args->weight, args->weight_dtype, conv->first * width),
                            args->weight_dtype, conv->count * width);
    for (int64_t j = 0; j < width; j++)
        for (int64_t c = 0; c < conv->count; c++) conv->weights[j * conv->count + c] = rows[c * width + j];
    memset(conv->bias, 0, sizeof conv->bias);
    if (args->bias)
        conv->kernels->to_float(conv->bias, cpu_element(args->bias, args->weight_dtype, conv->first),
                                args->weight_dtype, conv->count);
}

static float *state_of(const struct conv *conv, int32_t slot)
{
    return conv->args->states + slot * conv->args->state_stride + conv->first * (conv->args->width - 1);
}

static void load_state(struct conv *conv, int32_t slot)
{
    const int width = conv->args->width;
    conv->head = 0;
    memset(conv->ring, 0, sizeof(float) * (size_t)(width * conv->count));
    if (slot == STATE_SLOT_NONE) return;
    const float *state = state_of(conv, slot);
    for (int j = 0; j < width - 1; j++)
        for (int64_t c = 0; c < conv->count; c++) conv->ring[j * conv->count + c] = state[c * (width - 1) + j];
}

static void store_state(struct conv *conv, int32_t slot)
{
    if (slot == STATE_SLOT_NONE) return;
    float *state = state_of(conv, slot);
    const int last = conv->args->width - 1;
    for (int j = 0; j < last; j++) {
        const float *row = ring_row(conv, j);
        for (int64_t c = 0; c < conv->count; c++) state[c * last + j] = row[c];
    }
}

/* The channels of a token of x, or of a gate. */
static void load_row(const struct conv *conv, float *out, const void *rows, int64_t token)
{
    const struct short_conv_args *args = conv->args;
    conv->kernels->to_float(out, cpu_element(rows, args->dtype, token * args->x_stride + conv->first), args->dtype,
                            conv->count);
}

/* u of the token becomes the newest row of the ring. */
static void load_token(struct conv *conv, int64_t token)
{
    const struct short_conv_args *args = conv->args;
    float *u = ring_row(conv, args->width - 1), gate[CONV_CHANNELS];
    uint32_t rounded[CONV_CHANNELS];
    load_row(conv, u, args->x, token);
    if (!args->input_gate) return;
    load_row(conv, gate, args->input_gate, token);
    for (int64_t c = 0; c < conv->count; c++) u[c] *= gate[c];
    conv->kernels->from_float(rounded, u, args->dtype, conv->count);
    conv->kernels->to_float(u, rounded, args->dtype, conv->count);
}

static void conv_token(struct conv *conv, int64_t token)
{
    const struct short_conv_args *args = conv->args;
    float y[CONV_CHANNELS], gate[CONV_CHANNELS];
    load_token(conv, token);
    memcpy(y, conv->bias, sizeof *y * (size_t)conv->count);
    for (int j = 0; j < args->width; j++)
        conv->kernels->multiply_add(y, conv->weights + j * conv->count, ring_row(conv, j), conv->count);
    for (int64_t c = 0; c < conv->count; c++) gate[c] = 1;
    if (args->output_gate) load_row(conv, gate, args->output_gate, token);
    if (args->silu) {
        conv->kernels->silu_and_mul(y, y, gate, conv->count);
    } else {
        for (int64_t c = 0; c < conv->count; c++) y[c] *= gate[c];
    }
    conv->kernels->from_float(cpu_element_out(args->out, args->dtype, token * args->channels + conv->first), y,
                              args->dtype, conv->count);
    conv->head = (conv->head + 1) % args->width;
}

/* Entries that go on from the one before them are computed with the first of their chain. */
static void conv_channels(const struct cpu_state *s, const void *conv_args, int64_t index, int thread)
{
    (void)thread;
    const struct short_conv_args *args = conv_args;
    const struct state_batch *batch = &args->batch;
    const int64_t step = channels_at_once(args), pieces = divide_up(args->channels, step), piece = index % pieces;
    int64_t i = index / pieces;
    struct conv conv;
    if (batch->sources[i] == STATE_CONTINUES) return;
    conv.kernels = s->kernels, conv.args = args;
    conv.first = piece * step, conv.count = min_i64(step, args->channels - conv.first);
    load_weights(&conv);
    load_state(&conv, batch->sources[i]);
    do {
        for (int64_t t = batch->query_start[i]; t < batch->query_start[i + 1]; t++) conv_token(&conv, t);
        store_state(&conv, batch->slots[i]);
        i++;
    } while (i < batch->num_seqs && batch->sources[i] == STATE_CONTINUES);
}

void cpu_short_conv(struct backend *b, const struct short_conv_args *args)
{
    const int64_t pieces = divide_up(args->channels, channels_at_once(args));
    const int64_t work = (int64_t)(args->batch.num_tokens + args->batch.num_seqs) * args->channels * args->width;
    cpu_for(cpu_state(b), work, args->batch.num_seqs * pieces, conv_channels, args);
}
