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

/* out[j * count + c] = rows[c * width + j]. */
static inline __attribute__((always_inline)) void load_columns_of(float *restrict out, const float *restrict rows,
                                                                  int64_t count, int width)
{
    for (int64_t c = 0; c < count; c++)
        for (int j = 0; j < width; j++) out[j * count + c] = rows[c * width + j];
}

/* The usual widths are constants, so that the compiler has vectors of channels. */
static void load_columns(float *out, const float *rows, int64_t count, int width)
{
    if (width == 4)
        load_columns_of(out, rows, count, 4);
    else if (width == 3)
        load_columns_of(out, rows, count, 3);
    else
        load_columns_of(out, rows, count, width);
}

static void load_weights(struct conv *conv)
{
    const struct short_conv_args *args = conv->args;
    load_columns(conv->weights, args->weight + conv->first * args->width, conv->count, args->width);
    memset(conv->bias, 0, sizeof conv->bias);
    if (args->bias) memcpy(conv->bias, args->bias + conv->first, (size_t)conv->count * sizeof *conv->bias);
}

static float *state_of(const struct conv *conv, int32_t slot)
{
    return conv->args->states + slot * conv->args->state_stride + conv->first * (conv->args->width - 1);
}

static void load_state(struct conv *conv, int32_t slot)
{
    const int width = conv->args->width;
    conv->head = 0;
    if (slot == STATE_SLOT_NONE)
        memset(conv->ring, 0, sizeof(float) * (size_t)(width * conv->count));
    else
        load_columns(conv->ring, state_of(conv, slot), conv->count, width - 1);
}

static void store_state(struct conv *conv, int32_t slot)
{
    if (slot == STATE_SLOT_NONE) return;
    float *restrict state = state_of(conv, slot);
    const int last = conv->args->width - 1;
    if (last == 3) {
        const float *restrict a = ring_row(conv, 0), *restrict b = ring_row(conv, 1), *restrict d = ring_row(conv, 2);
        for (int64_t c = 0; c < conv->count; c++) state[3 * c] = a[c], state[3 * c + 1] = b[c], state[3 * c + 2] = d[c];
        return;
    }
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
