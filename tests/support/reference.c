#include "tests/support/reference.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/philox.h"

struct format {
    int exponent_bits, mantissa_bits;
    uint32_t largest; /* bits of the largest finite value */
    bool has_infinity;
};

static struct format format_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_FLOAT16:
        return (struct format){5, 10, 0x7bff, true};
    case DTYPE_BFLOAT16:
        return (struct format){8, 7, 0x7f7f, true};
    case DTYPE_FP8_E4M3:
        return (struct format){4, 3, 0x7e, false};
    case DTYPE_FP8_E5M2:
        return (struct format){5, 2, 0x7b, true};
    case DTYPE_E8M0:
        return (struct format){8, 0, 0xfe, false};
    default:
        return (struct format){8, 23, 0x7f7fffff, true};
    }
}

/* 2^exponent, of a float64 that is not subnormal. ldexp takes several times as long, and tests convert many numbers. */
static double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

double reference_decode(enum dtype dtype, uint32_t bits)
{
    struct format f = format_of(dtype);
    int bias = (1 << (f.exponent_bits - 1)) - 1;
    uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
    uint32_t exponent = (bits >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1);
    double sign = (bits >> (f.exponent_bits + f.mantissa_bits)) & 1 ? -1 : 1;
    uint32_t magnitude = bits & ((1u << (f.exponent_bits + f.mantissa_bits)) - 1);
    if (magnitude > f.largest) return f.has_infinity && mantissa == 0 ? sign * INFINITY : NAN;
    if (exponent == 0 && f.mantissa_bits > 0) return sign * mantissa * power_of_two(1 - bias - f.mantissa_bits);
    return sign * (mantissa + (1u << f.mantissa_bits)) * power_of_two((int)exponent - bias - f.mantissa_bits);
}

/* Larger magnitudes have larger bits. So: from a guess near the value, step to the two magnitudes around it, and take
 * the nearer one. */
uint32_t reference_encode(enum dtype dtype, double value)
{
    struct format f = format_of(dtype);
    int exponent, bias = (1 << (f.exponent_bits - 1)) - 1;
    uint32_t sign = signbit(value) ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
    double magnitude = fabs(value), mantissa = frexp(magnitude, &exponent);
    if (magnitude >= reference_decode(dtype, f.largest)) return sign | f.largest;
    double guess = (exponent - 2 + bias + 2 * mantissa) * power_of_two(f.mantissa_bits);
    uint32_t low = guess > 0 && mantissa > 0 ? (uint32_t)guess : 0;
    while (low > 0 && reference_decode(dtype, low) > magnitude) low--;
    while (reference_decode(dtype, low + 1) <= magnitude) low++;
    double below = magnitude - reference_decode(dtype, low), above = reference_decode(dtype, low + 1) - magnitude;
    return sign | (below < above || (below == above && low % 2 == 0) ? low : low + 1);
}

void reference_for(int64_t count, pool_body *body, void *context)
{
    struct pool *pool = pool_open_allowed();
    pool_run(pool, INT_MAX, count, body, context);
    pool_close(pool);
}

struct matmul {
    double *out;
    const double *x, *w, *bias;
    int64_t num_tokens, out_features, in_features;
};

static void compute_feature(void *matmul, int64_t o, int thread)
{
    (void)thread;
    const struct matmul *m = matmul;
    for (int64_t t = 0; t < m->num_tokens; t++) {
        const double *x = m->x + t * m->in_features, *w = m->w + o * m->in_features;
        double sum = m->bias ? m->bias[o] : 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < m->in_features; i++) sum += x[i] * w[i];
        m->out[t * m->out_features + o] = sum;
    }
}

void reference_linear(double *out, const double *x, const double *w, const double *bias, int64_t num_tokens,
                      int64_t out_features, int64_t in_features)
{
    struct matmul m = {out, x, w, bias, num_tokens, out_features, in_features};
    reference_for(out_features, compute_feature, &m);
}

void reference_rms_norm(double *out, const double *x, const double *gain, double eps, int64_t tokens, int64_t size)
{
    for (int64_t t = 0; t < tokens; t++) {
        double squares = 0;
        for (int64_t i = 0; i < size; i++) squares += x[t * size + i] * x[t * size + i];
        for (int64_t i = 0; i < size; i++)
            out[t * size + i] = x[t * size + i] / sqrt(squares / (double)size + eps) * gain[i];
    }
}

void reference_layer_norm(double *out, const double *x, const double *gain, const double *bias, double eps,
                          int64_t tokens, int64_t size)
{
    for (int64_t t = 0; t < tokens; t++, x += size, out += size) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < size; i++) sum += x[i];
        const double mean = sum / (double)size;
        for (int64_t i = 0; i < size; i++) squares += (x[i] - mean) * (x[i] - mean);
        for (int64_t i = 0; i < size; i++)
            out[i] = (x[i] - mean) / sqrt(squares / (double)size + eps) * gain[i] + (bias ? bias[i] : 0);
    }
}

void reference_rotary(double *x, const int32_t *positions, const double *cos_sin, int64_t tokens, int64_t heads,
                      int64_t head_size, int64_t rotary_dim, bool interleaved)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < rotary_dim / 2; i++) {
                double *head = x + (t * heads + h) * head_size;
                double *left = head + (interleaved ? 2 * i : i), *right = left + (interleaved ? 1 : rotary_dim / 2);
                double c = cos_sin[positions[t] * rotary_dim + i];
                double s = cos_sin[positions[t] * rotary_dim + rotary_dim / 2 + i];
                const double a = *left, b = *right;
                *left = a * c - b * s;
                *right = b * c + a * s;
            }
}

static double activate(double x, enum activation activation)
{
    if (activation == ACTIVATION_SILU) return x / (1 + exp(-x));
    if (activation == ACTIVATION_GELU) return x / 2 * erfc(-x / sqrt(2));
    const double u = sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-2 * u)); /* x / 2 * (1 + tanh(u)), without its cancellation */
}

void reference_act_and_mul(double *out, const double *gate_up, int64_t tokens, int64_t size, enum activation activation,
                           double limit)
{
    const double most = limit > 0 ? limit : INFINITY;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < size; i++) {
            const double *gate = gate_up + t * 2 * size + i, up = gate[size];
            out[t * size + i] = fmin(activate(*gate, activation), most) * fmax(fmin(up, most), -most);
        }
}

double reference_activate(double x, enum activation activation, const struct xielu_params *params)
{
    const double positive = x > 0 ? x : 0;
    if (activation == ACTIVATION_RELU) return positive;
    if (activation == ACTIVATION_RELU2) return positive * positive;
    if (activation != ACTIVATION_XIELU) return activate(x, activation);
    if (x > 0) return params->alpha_p * x * x + params->beta * x;
    const double bounded = x < params->eps ? x : params->eps;
    return params->alpha_n * (expm1(bounded) - x) + params->beta * x;
}

static bool attends(const struct reference_query *q, int32_t token)
{
    const struct attention_params *p = q->params;
    if (token > q->position) return false;
    if (p->window > 0 && token <= q->position - p->window) return false;
    if (p->chunk > 0 && token / p->chunk != q->position / p->chunk) return false;
    if (p->sparse_vertical_stride <= 1) return true;
    int32_t query_block = q->position / p->sparse_block_size, key_block = token / p->sparse_block_size;
    int32_t step = p->sparse_head_sliding_step, offset = step >= 0 ? q->head * step : q->kv_head * -step;
    bool remote = (key_block + offset + 1) % p->sparse_vertical_stride == 0;
    bool local = key_block > query_block - p->sparse_local_blocks;
    return remote || local;
}

static double score(const struct reference_query *q, int32_t token)
{
    const struct attention_params *p = q->params;
    double dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int32_t d = 0; d < q->head_size; d++) dot += q->query[d] * q->keys[token * q->stride + d];
    dot *= p->scale;
    if (p->soft_cap > 0) dot = p->soft_cap * tanh(dot / p->soft_cap);
    return dot + q->alibi_slope * (token - q->position);
}

void reference_attention(double *out, const struct reference_query *q)
{
    double *scores = malloc(sizeof *scores * (size_t)(q->position + 1)), max = -INFINITY, sum = 0;
    memset(out, 0, sizeof *out * (size_t)q->v_head_size);
    for (int32_t t = 0; t <= q->position; t++) {
        if (!attends(q, t)) continue;
        scores[t] = score(q, t);
        max = fmax(max, scores[t]);
    }
    for (int32_t t = 0; t <= q->position; t++) {
        if (!attends(q, t)) continue;
        double weight = exp(scores[t] - max);
        sum += weight;
#pragma omp simd
        for (int32_t d = 0; d < q->v_head_size; d++) out[d] += weight * q->values[t * q->v_stride + d];
    }
    if (q->sink) sum += exp(*q->sink - max);
    for (int32_t d = 0; d < q->v_head_size && sum > 0; d++) out[d] /= sum;
    free(scores);
}

/* A token and its value while sampling. */
struct entry {
    double value;
    int32_t id;
};

static int by_value(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->value != b->value) return a->value < b->value ? 1 : -1;
    return a->id < b->id ? -1 : 1;
}

static int32_t occurrences(const int32_t *tokens, int32_t count, int32_t id)
{
    int32_t found = 0;
    for (int32_t i = 0; i < count; i++) found += tokens[i] == id;
    return found;
}

static double processed(double logit, int32_t id, const struct sampling_state *row, const int32_t *history,
                        int32_t output)
{
    for (int32_t i = 0; i < row->num_stop_ids; i++)
        if (output < row->min_tokens && row->stop_ids[i] == id) logit = -INFINITY;
    for (int32_t i = 0; i < row->num_bias; i++)
        if (row->bias_ids[i] == id) logit += row->bias_values[i];
    int32_t in_output = occurrences(history + row->prompt_len, output, id);
    if (in_output + occurrences(history, row->prompt_len, id) > 0)
        logit = logit > 0 ? logit / row->repetition_penalty : logit * row->repetition_penalty;
    logit -= row->frequency_penalty * in_output;
    return in_output > 0 ? logit - row->presence_penalty : logit;
}

static double gumbel(const struct sampling_state *row, int32_t output, int32_t id)
{
    uint32_t words[4];
    philox4x32(row->seed, row->sequence_index, (uint32_t)output, (uint32_t)(id / 4), words);
    return -log(-log((double)philox_uniform(words[id % 4])));
}

/* Entries are sorted; returns how many stay. Cuts within rounding of each other set *close. */
static int32_t cut(struct entry *entries, int32_t count, const struct sampling_state *row, bool *close)
{
    double max = entries[0].value, total = 0, before = 0;
    int32_t kept = 0;
    while (count > 1 && entries[count - 1].value == -INFINITY) count--;
    for (; row->min_p > 0 && kept < count; kept++) {
        double probability = exp(entries[kept].value - max);
        if (fabs(probability - (double)row->min_p) < 1e-5 * row->min_p) *close = true;
        if (probability < (double)row->min_p) break;
    }
    if (row->min_p > 0) count = kept;
    if (row->top_k > 0 && row->top_k < count) {
        kept = row->top_k;
        while (kept < count && entries[kept].value == entries[row->top_k - 1].value) kept++;
        if (kept < count && entries[kept - 1].value - entries[kept].value < 1e-5) *close = true;
        count = kept;
    }
    if (row->top_p >= 1) return count;
    for (int32_t i = 0; i < count; i++) total += exp(entries[i].value - max);
    for (kept = 0; kept < count; kept++) {
        if (fabs(before / total - (double)row->top_p) < 1e-5 && kept > 0) *close = true;
        if (kept > 0 && before / total >= (double)row->top_p) break;
        before += exp(entries[kept].value - max);
    }
    return kept;
}

static void raw_logprob(struct reference_sample *out, const float *logits, int32_t vocab_size)
{
    double max = -INFINITY, sum = 0, sampled = logits[out->token];
    out->rank = 1;
    for (int32_t i = 0; i < vocab_size; i++)
        if (logits[i] > max) max = logits[i];
    for (int32_t i = 0; i < vocab_size; i++) sum += exp(logits[i] - max);
    for (int32_t i = 0; i < vocab_size; i++) out->rank += logits[i] > sampled;
    out->logprob = sampled - max - log(sum);
}

/* The largest of value + noise among the first `count` entries. */
static void draw(struct reference_sample *out, const struct entry *entries, int32_t count,
                 const struct sampling_state *row, int32_t output)
{
    double best = -INFINITY, second = -INFINITY, total = 0;
    out->token = entries[0].id;
    for (int32_t i = 0; i < count; i++) {
        double value = entries[i].value + gumbel(row, output, entries[i].id);
        if (value > best) {
            second = best;
            best = value;
            out->token = entries[i].id;
        } else {
            second = fmax(second, value);
        }
        total += exp(entries[i].value - entries[0].value);
    }
    if (best - second < 1e-4) out->close = true;
    out->num_kept = count;
    for (int32_t i = 0; i < count && out->probabilities; i++)
        out->probabilities[entries[i].id] = exp(entries[i].value - entries[0].value) / total;
}

void reference_sample(struct reference_sample *out, const float *logits, int32_t vocab_size,
                      const struct sampling_state *row, const int32_t *history, int32_t output)
{
    struct entry *entries = malloc(sizeof *entries * (size_t)vocab_size);
    bool greedy = row->temperature < 1e-5f;
    out->close = false;
    for (int32_t i = 0; i < vocab_size; i++) {
        double value = processed(logits[i], i, row, history, output);
        entries[i] = (struct entry){greedy ? value : value / (double)row->temperature, i};
        if (out->probabilities) out->probabilities[i] = 0;
    }
    qsort(entries, (size_t)vocab_size, sizeof *entries, by_value);
    if (greedy || entries[0].value == -INFINITY) {
        out->token = entries[0].value == -INFINITY ? 0 : entries[0].id;
        out->num_kept = 1;
        if (vocab_size > 1 && entries[0].value != entries[1].value &&
            entries[0].value - entries[1].value < 1e-5 * fabs(entries[0].value))
            out->close = true;
    } else {
        draw(out, entries, cut(entries, vocab_size, row, &out->close), row, output);
    }
    raw_logprob(out, logits, vocab_size);
    free(entries);
}
