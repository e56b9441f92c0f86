/* The table of operations that the model is computed with. kernels/cpu and kernels/cuda implement it, operation for
 * operation.
 *
 * Conventions
 *
 * - Pointers are raw and shapes are explicit: there is no tensor library and no graph. Tensors are row-major and
 *   contiguous, except where a stride is given: the distance between two tokens, in elements.
 * - "Device memory" is what memory_alloc(MEMORY_DEVICE) returns. On the CPU it is ordinary memory.
 * - An operation takes one args struct. Its function type is declared once, here, and both backends declare their
 *   functions with that type.
 * - Operations run in the order of their calls, on the backend's main stream. A call returns before the work is done
 *   (on the CPU, after): the device memory that the arguments point to is read and written later, the args struct
 *   itself and host memory that a comment calls "host" are read before the call returns.
 * - One thread calls the operations. Other threads may create, use and destroy streams and events of their own.
 * - Operations cannot fail where they are called. stream_synchronize and event_synchronize report a device error.
 * - Operations do not allocate and do not synchronize. Scratch memory is the workspace that was set at start-up.
 * - A launch depends on the host-side counts in the arguments only, never on a length that only the device knows, so
 *   that the launches of a step can be captured in a graph.
 *
 * Names and semantics are those of the PagedAttention paper (Kwon et al., SOSP 2023) and of vLLM's kernels.
 */
#ifndef QUIRE_KERNELS_BACKEND_H
#define QUIRE_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/batch.h"
#include "base/status.h"
#include "kernels/collective.h"
#include "kernels/dtype.h"
#include "kernels/latent.h"
#include "kernels/recurrence.h"

#ifdef __cplusplus
extern "C" {
#endif

struct backend;

/* Handles. (In C++, which the CUDA sources are, a struct tag and a typedef cannot share a name.) */
typedef struct backend_stream_object *backend_stream; /* NULL: the backend's main stream */
typedef struct backend_event_object *backend_event;
typedef struct backend_graph_object *backend_graph;

/* ---- weights ---- */

/* How the elements of a weight are stored: as floats, or quantized. FP8 is e4m3, INT8 is two's complement. INT4 and
 * MXFP4 are two numbers in a byte: input feature 2 j is the low half of byte j, 2 j + 1 the high half. Those of INT4
 * are from 0 to 15, those of MXFP4 are e2m1 (OCP Microscaling Formats 1.0): bit 3 is the sign, and bits 0 to 2 stand
 * for 0, 0.5, 1, 1.5, 2, 3, 4 and 6. */
enum weight_format {
    WEIGHT_FLOAT32,
    WEIGHT_FLOAT16,
    WEIGHT_BFLOAT16,
    WEIGHT_FP8,
    WEIGHT_INT8,
    WEIGHT_INT4,
    WEIGHT_MXFP4
};

/* A matrix, out = x * W^T + bias, one row of in_features elements per output feature.
 *
 * A quantized element stands for scale * (stored - zero). The elements of scale_rows output features by group_size
 * input features share a scale:
 *
 *   one scale for each output feature   scale_rows 1, group_size = in_features   scales [out_features, 1]
 *   groups of 128 input features        scale_rows 1, group_size 128             scales [out_features, groups]
 *   blocks of 128 x 128 (FP8 only)      scale_rows 128, group_size 128           scales [out_features / 128, groups]
 *
 * rounded up where a size is no multiple; groups = in_features / group_size, rounded up. A scale of a whole matrix is
 * repeated for each output feature. in_features of INT4 and MXFP4 is a multiple of 8, and of its group_size.
 *
 * MXFP4 has groups of 32 and scales of e8m0, powers of two. NVFP4 is MXFP4 with groups of 16 and float32 scales. */
struct weight {
    enum weight_format format;
    int64_t out_features, in_features;
    const void *data; /* [out_features, in_features], for INT4 and MXFP4 [out_features, in_features / 2] bytes */
    const void *bias; /* [out_features] bias_dtype, or NULL */
    enum dtype bias_dtype;

    /* Only quantized formats have these. */
    const void *scales; /* scale_dtype: float32; INT4: what the file has, 16-bit floats too; MXFP4: e8m0 or float32 */
    enum dtype scale_dtype;
    int64_t scale_rows, group_size;
    const uint8_t *zeros; /* [out_features, groups], INT4 only; NULL: the zero of INT4 is 8, of FP8 and INT8 0 */
    /* [in_features] a permutation: column i of data, and of the groups, is for input feature input_order[i] (GPTQ with
     * desc_act). NULL: column i is for input feature i. Where ranks have the columns between them, it has a part of the
     * permutation of all, and operations do not take it: gather_columns makes the input that has that order. */
    const int32_t *input_order;
    bool quantize_x; /* x may be rounded to 8 bits, with a scale of each token and, if there are groups, each group: the
                        checkpoint was made for that (W8A8). A backend need not do it. */
    bool is_share;   /* ranks have the columns of a matrix between them: what it computes is a share of a sum, which an
                        all_reduce adds. Operations do not look at it. */
};

/* Whether a byte has two elements. */
static inline bool weight_is_packed(enum weight_format format)
{
    return format == WEIGHT_INT4 || format == WEIGHT_MXFP4;
}

bool weight_is_quantized(const struct weight *w);
enum dtype weight_dtype(const struct weight *w);       /* of the elements of data; of floats and FP8 */
enum weight_format weight_format_of(enum dtype dtype); /* float32, float16 or bfloat16 */
int64_t weight_groups(const struct weight *w);         /* of a row; 1 without groups */
int64_t weight_scale_count(const struct weight *w);    /* elements of scales; 0 if w is not quantized */
int64_t weight_row_bytes(const struct weight *w);      /* of a row of data */
int64_t weight_bytes(const struct weight *w);          /* of data, scales, zeros and input_order; without the bias */
/* Weight `index` of those that lie one behind the other (struct row_segments), the first of which is w. */
struct weight weight_of_segment(const struct weight *w, int32_t index);
/* What element [o][i] of data stands for. Not for inner loops. */
float weight_element(const struct weight *w, int64_t o, int64_t i);

/* ---- quantizing weights ---- */

/* Rows of floats that become rows of a quantized weight, without blocks.
 *
 * FP8 and INT8: a scale for each row, absmax / 448 and absmax / 127, and no zero points. INT4: a scale and a zero point
 * from 0 to 15 for each group of input features, which make the sum of squared errors small: of some ranges, from that
 * of the group's elements to about two thirds of it, the one whose best scale has the smallest error is taken. Without
 * zero points the ranges are as large below 0 as above. Scales are numbers of scale_dtype, and elements are rounded to
 * the nearest code of the scale as it is stored; ties go to even.
 *
 * A row, or group of INT4, that holds a NaN or an infinity gets the scale NaN, so that damaged weights show in the
 * logits as they do without quantizing. One of zeros gets scale 1; so does one that is too small for a normal float32
 * as its scale. */
enum { QUANTIZE_MAX_GROUP = 256 };

struct weight_quantize_args {
    const void *rows; /* [num_rows, in_features] dtype */
    enum dtype dtype; /* float32, float16 or bfloat16 */
    int64_t num_rows, in_features;
    enum weight_format format; /* FP8, INT8 or INT4 */
    int64_t group_size;        /* INT4: even, at most QUANTIZE_MAX_GROUP, divides in_features; otherwise not used */
    void *data;                /* out: [num_rows, in_features], INT4 [num_rows, in_features / 2] bytes */
    void *scales;              /* out: [num_rows] float32, INT4 [num_rows, in_features / group_size] scale_dtype */
    enum dtype scale_dtype;    /* float32, bfloat16, or float16, whose scales are from 2^-14 to 65504 */
    uint8_t *zeros;            /* out, INT4 only: [num_rows, in_features / group_size]; NULL: all are 8 */
};

/* ---- dummy weights ---- */

/* What kernels/dummy.h makes of the seed: `count` floats of the format's type, stored as `dtype`; of a quantized format
 * `count` bytes. With a pattern, `count` bytes that repeat it. */
struct fill_dummy_args {
    void *out;
    int64_t count;
    uint64_t seed;
    enum weight_format format;
    enum dtype dtype; /* float32, float16 or bfloat16; not used for bytes */
    uint64_t pattern; /* 0: none */
};

/* ---- quantized rows ---- */

/* The input of a matmul in 8 bits (FP8), with a scale for each token or, for a weight with groups, for each token and
 * group: element i of token t stands for scales[i / group_size * stride + t] * data[t * size + i], where stride is
 * quantized_rows_padded(num_tokens). A scale is the largest magnitude of its elements / 448.
 *
 * An operation that is given `quantized` writes its result there, rounded to its dtype first, instead of to `out`. size
 * is a multiple of 16, and of group_size; addresses are multiples of 16. There is room for the padded number of tokens.
 */
struct quantized_rows {
    void *data;    /* [padded tokens, size] */
    float *scales; /* [size / group_size, padded tokens] */
    int64_t group_size;
};

static inline int64_t quantized_rows_padded(int64_t num_tokens)
{
    return (num_tokens + 3) / 4 * 4;
}

/* The scales that a matmul has left out of its result, for the operation that reads it: element i of token t stands for
 * factor * of_tokens[t] * of_features[i] * result[t][i]. */
struct left_out_scales {
    const float *of_tokens;   /* [num_tokens]; NULL: nothing was left out */
    const float *of_features; /* [out_features] */
    float factor;
};

struct quantize_rows_args {
    const struct quantized_rows *out; /* host */
    const void *x;                    /* [num_tokens, size] dtype */
    int32_t num_tokens, size;
    enum dtype dtype;
};

/* ---- norms and activations ---- */

/* RMSNorm (Zhang and Sennrich, 2019): y = x / sqrt(mean(x^2) + eps) * gain. LayerNorm (Ba et al., 2016): the same of
 * x - mean(x), + bias. Both are computed in float32. */
enum norm_type { NORM_RMS, NORM_LAYER };

struct norm_params {
    enum norm_type type;
    const void *gain; /* [size] gain_dtype */
    enum dtype gain_dtype;
    float eps;
    const void *bias; /* [size] bias_dtype, of a LayerNorm only; NULL: none */
    enum dtype bias_dtype;
};

struct rms_norm_args {
    void *out;     /* [num_tokens, size] dtype; may be x if the strides are the same */
    const void *x; /* [num_tokens, size] dtype */
    int64_t out_stride, x_stride;
    const struct quantized_rows *quantized; /* host; NULL: none; instead of out */
    struct norm_params norm;
    int32_t num_tokens, size;
    enum dtype dtype;
};

/* residual = sum_multiplier * (residual + multiplier * x); out = norm(residual). With a post norm x is normed, and
 * rounded to dtype, before it is added (Gemma 2, OLMo 2). */
struct fused_add_rms_norm_args {
    void *out; /* [num_tokens, size] dtype; may be x; NULL without `quantized`: only the addition, and `norm` is not
                  used */
    const struct quantized_rows *quantized; /* host; NULL: none; instead of out */
    void *x;                                /* [num_tokens, size] dtype; with a post norm its contents are lost */
    struct left_out_scales x_scales;
    void *residual; /* [num_tokens, size] dtype */
    float multiplier, sum_multiplier;
    const struct norm_params *post_norm; /* host; NULL: none */
    struct norm_params norm;
    int32_t num_tokens, size;
    enum dtype dtype;
};

/* silu(x) = x / (1 + exp(-x)). gelu(x) = x / 2 * (1 + erf(x / sqrt(2))). gelu_tanh(x), which approximates it, =
 * x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016). Only `activate` and experts
 * without gates take the others: relu(x) = max(x, 0), relu2(x) = relu(x)^2 (So et al., 2021); and only `activate`
 * xielu, of struct xielu_params. */
enum activation {
    ACTIVATION_SILU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_GELU,
    NUM_GATE_ACTIVATIONS,
    ACTIVATION_RELU = NUM_GATE_ACTIVATIONS,
    ACTIVATION_RELU2,
    ACTIVATION_XIELU,
    NUM_ACTIVATIONS
};

/* out[t][i] = activation(gate_up[t][i]) * gate_up[t][size + i], computed in float32. With a limit, the first factor is
 * at most the limit, and the second within +-limit. With `up` its rows take the place of the second half of gate_up,
 * which has gates only, and neither `quantized` nor scales are set. */
struct act_and_mul_args {
    void *out;                              /* [num_tokens, size] dtype */
    const struct quantized_rows *quantized; /* host; NULL: none; instead of out */
    const void *gate_up;                    /* [num_tokens, 2 * size] dtype */
    struct left_out_scales gate_up_scales;
    const void *up; /* [num_tokens, size] dtype; NULL: in gate_up */
    int64_t up_stride;
    enum activation activation; /* below NUM_GATE_ACTIVATIONS */
    float limit;                /* 0: none */
    int32_t num_tokens, size;
    enum dtype dtype;
};

/* xIELU (Huang and Schlag, 2024, arXiv 2411.13010): alpha_p x^2 + beta x where x > 0, and elsewhere
 * alpha_n (exp(min(x, eps)) - 1 - x) + beta x. */
struct xielu_params {
    float alpha_p, alpha_n, beta;
    float eps; /* below 0 */
};

/* out = activation(x), computed in float32. */
struct activate_args {
    void *out;     /* [num_tokens, size] dtype; may be x */
    const void *x; /* [num_tokens, size] dtype */
    enum activation activation;
    struct xielu_params xielu; /* of ACTIVATION_XIELU */
    int32_t num_tokens, size;
    enum dtype dtype;
};

/* What experts and MLPs compute of gate g and up u, in float32. GATE_MULTIPLY: activation(g) * u. With a limit,
 * activation(g) is at most the limit, and u within +-limit (Step 3.5). GATE_SWIGLU_OAI (gpt-oss):
 * (u + 1) * g * sigmoid(1.702 g). With a limit, g is at most the limit first, and u within +-limit. GATE_NONE: there
 * is no g, and activation(u) is computed, any but xielu. */
enum gate_kind { GATE_MULTIPLY, GATE_SWIGLU_OAI, GATE_NONE };

struct gate_params {
    enum gate_kind kind;
    enum activation activation; /* of GATE_MULTIPLY and GATE_NONE */
    float limit;                /* 0: none; not of GATE_NONE */
};

/* How many numbers one is computed of: g and u, or u. */
static inline int gate_operands(const struct gate_params *gate)
{
    return gate->kind == GATE_NONE ? 1 : 2;
}

/* Clips each element to -limit .. limit; NaN stays NaN. */
struct clip_args {
    void *x; /* [count] dtype, in place */
    int64_t count;
    float limit;
    enum dtype dtype;
};

/* Queries times a function of their position, so that attention of long texts stays sharp (Nakanishi, 2025, arXiv
 * 2501.19399): x[t][i] *= 1 + beta * log(1 + (positions[t] + first) / length), where the quotient is one of integers.
 */
struct query_scaling {
    int32_t length; /* 0: none */
    int32_t first;  /* 0 or 1: positions count from there */
    float beta;
};

struct scale_queries_args {
    void *x; /* [num_tokens, size] dtype, in place */
    int64_t stride;
    const int32_t *positions; /* [num_tokens] */
    struct query_scaling scaling;
    int32_t num_tokens, size;
    enum dtype dtype;
};

/* Columns times constants, part by part: the parts follow each other from the first column on, and x[t][c] *=
 * multipliers[p] for the columns c of part p. */
enum { SCALE_MAX_PARTS = 8 };
struct scale_columns_args {
    void *x; /* [num_tokens, stride] dtype, in place */
    int64_t stride;
    int32_t num_tokens, num_parts;
    int32_t sizes[SCALE_MAX_PARTS]; /* [num_parts] columns of each; more than 0 */
    float multipliers[SCALE_MAX_PARTS];
    enum dtype dtype;
};

/* The results of attention times gates, which are a function of a projection of the layer's input:
 * x[t][i] *= f(gate[t][i / (size / gate_size)]). Numbers are float32 between reading and writing. */
enum output_gate { OUTPUT_GATE_NONE, OUTPUT_GATE_SIGMOID, OUTPUT_GATE_SOFTPLUS };

struct output_gate_args {
    void *x;          /* [num_tokens, size] dtype, in place */
    const void *gate; /* [num_tokens, gate_size] dtype, of which tokens are gate_stride elements apart */
    int64_t gate_stride;
    int32_t num_tokens, size, gate_size; /* gate_size divides size: a gate for each element, or for each head */
    enum output_gate kind;               /* not NONE */
    enum dtype dtype;
};

/* ---- matmuls ---- */

/* Rows that are multiplied by different weights: rows starts[s], ..., starts[s + 1] - 1 of x and out by weight s.
 *
 *     x, out      | rows of weight 0 | rows of weight 2      | rows of weight 3 |        weight 1 has none
 *                 starts[0]          starts[1], starts[2]    starts[3]          starts[4]
 *
 * The `count` weights have the same shape and format, and lie one behind the other: struct weight describes weight 0,
 * and data, bias, scales and zeros of weight s begin s times as many rows later, out_features of them, which is a
 * multiple of scale_rows. There is no input_order. Rows before starts[0] and from starts[count] on are not written. */
struct row_segments {
    const int32_t *starts; /* [count + 1] on the device, ascending, 0 to num_tokens */
    int32_t count;         /* 0: all rows are multiplied by the same weight */
    int32_t all; /* the weights that all num_tokens rows are of, those that are not here too; for estimates. 0: count */
};

/* out[t][o] = sum over i of x[t][i] * weight[o][i], + bias[o]; accumulated in float32. The strides let parts of a fused
 * QKV lie side by side. */
struct linear_args {
    void *out; /* [num_tokens, out_features] out_dtype; must not overlap x */
    int64_t out_stride;
    enum dtype out_dtype;
    const void *x; /* [num_tokens, in_features] dtype */
    int64_t x_stride;
    const struct quantized_rows *quantized_x; /* host; instead of x, if takes_quantized_rows allows it; NULL: x. Then
                                                 `out` has room for the padded number of tokens, too */
    struct left_out_scales *left_out; /* host; with quantized_x linear may leave out scales, and sets it; NULL: not */
    enum dtype dtype;
    int32_t num_tokens;
    const struct weight *weight;
    struct row_segments segments; /* without quantized_x */
};

enum {
    LINEAR_MAX_PARTS = 8
}; /* matmuls of the same x at a time: q, k and v of attention, and beside these five parts
      of a recurrent layer */

/* out = linear(rms_norm(x)). */
struct norm_linear_args {
    struct linear_args linear;
    struct norm_params norm;
};

/* out = act_and_mul(linear(rms_norm(x))), or without gates activate(linear(rms_norm(x))); or without the norm. */
struct gate_up_args {
    struct linear_args linear;      /* weight [gate_operands * size, in_features]; out [num_tokens, size] */
    const struct norm_params *norm; /* host; NULL: x is not normed */
    struct gate_params gate;        /* GATE_MULTIPLY or GATE_NONE */
};

/* ---- mixtures of experts ---- */

/* How the logits of a router become the experts of a token and their weights (SPEC S15). For each token:
 *
 *   1. logits = soft_cap * tanh(logits / soft_cap), if there is a soft cap.
 *   2. scores = the softmax over all experts, or the sigmoid of each.
 *   3. choice = scores, or logits with `by_logits`; + choice_bias if there is one.
 *   4. With groups, the experts are in num_groups groups of equal size, one behind the other. The value of a group is
 *      its largest choice, or the sum of its two largest. Only the experts of the top_groups groups of the largest
 *      values remain.
 *   5. The top_k experts of the largest choice are taken; of equal ones, the lower index.
 *   6. weights = their scores; divided by their sum + 1e-20 if `normalize`; times `scaling`; times expert_scales.
 *
 * A choice that is NaN counts as -infinity. If a score is NaN, all weights of the token are NaN, and its experts are
 * top_k different ones.
 *
 * ROUTER_SPARSEMIXER (Phi-3.5-MoE, arXiv 2409.12136) takes two experts, one after the other. The weight of each is its
 * share of a softmax over the experts whose logits are less than 2 * jitter (relative to the larger magnitude of the
 * two) below that of the expert taken; the second softmax leaves out the first expert. */
enum router_kind { ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_SPARSEMIXER };

struct router_params {
    enum router_kind kind;
    int32_t num_experts, top_k;     /* top_k <= num_experts */
    int32_t num_groups, top_groups; /* num_groups 0 or 1: none */
    bool by_logits;                 /* of two scores that are both 1, the one of the larger logit is chosen */
    bool group_sums;                /* the value of a group is the sum of its two largest */
    bool normalize;
    float scaling;  /* 1: none */
    float soft_cap; /* 0: none */
    float jitter;   /* of ROUTER_SPARSEMIXER */
    /* The experts that are here, where other ranks have the others (model/shard.h); num_own 0: all */
    int32_t first_own, num_own;
};

static inline int32_t router_num_own(const struct router_params *router)
{
    return router->num_own > 0 ? router->num_own : router->num_experts;
}

enum { ROUTER_MAX_EXPERTS = 1024, ROUTER_MAX_TOP_K = 32 };
#define ROUTER_SMALLEST_SUM 1e-20f

/* Which tokens go to which expert. An *assignment* is a token and one of its experts; there are A = num_tokens * top_k.
 * They are sorted by expert, and those of one expert by token: the rows of the matrices that experts read and write.
 *
 *     assignments   | rows of expert 0 | rows of expert 2       | ...
 *                   starts[0] = 0      starts[1], starts[2]     starts[num_experts] = A
 *
 * Where only some experts are here (router_params.num_own), these are numbered from 0, and starts[num_own] is the
 * number of assignments to them. The others have no row: -1 is in their place in `rows`, and behind the last row in
 * `tokens`.
 */
struct expert_plan {
    int32_t *starts; /* [num_experts + 1]: the starts of row segments */
    int32_t *tokens; /* [A] the token of a row */
    int32_t *rows;   /* [num_tokens, top_k] a token's rows, experts ascending */
    float *weights;  /* [num_tokens, top_k] their weights, in the same order */
};

struct route_experts_args {
    struct expert_plan plan;    /* out, on the device */
    float *base_gate;           /* out: [num_tokens] the sigmoid of the number behind a token's logits; NULL: none is */
    const float *logits;        /* [num_tokens, num_experts], and base_gate's behind those of each token */
    const float *choice_bias;   /* [num_experts] on the device; NULL: none */
    const float *expert_scales; /* [num_experts] on the device; NULL: none */
    struct router_params router;
    int32_t num_tokens;
};

/* Elements of a token in its logits. */
static inline int64_t router_row(const struct route_experts_args *args)
{
    return args->router.num_experts + (args->base_gate ? 1 : 0);
}

/* A matrix of each expert, all of the same shape and format. */
struct expert_matrices {
    /* host. stacked: [1], expert 0's; the others lie behind it, as in struct row_segments. Otherwise, on the CPU only,
     * [num_experts, num_parts], wherever they lie. */
    const struct weight *weights;
    bool stacked;
    int num_parts; /* 1; or 2, where gate and up of an expert are two matrices (not stacked) */
};

/* out[row] = gate(x[tokens[row]] * W^T + bias), W and bias those of the row's expert, for all A rows. Where there are
 * gates, the first half of a product is g and the second u. Rows that no expert has get any numbers. */
struct experts_gate_up_args {
    void *out;                      /* [A, size] dtype */
    const void *x;                  /* [num_tokens, in_features] dtype */
    struct expert_matrices gate_up; /* [2 * size, in_features]: gate, then up; without gates [size, in_features] */
    struct gate_params gate;
    struct expert_plan plan;
    bool weights_first; /* x is multiplied by the assignment's weight before the matmul (Llama 4) */
    void *scratch; /* [A, the larger of in_features and out_features of gate_up] dtype, and [A] float32 behind it */
    int32_t num_tokens, num_experts, top_k; /* num_experts: those that are here, which gate_up and the plan have */
    int32_t all_experts;                    /* with those of other ranks: for estimates. 0: num_experts */
    int32_t size;
    enum dtype dtype;
};

/* out[token] = base[token] * base_gate[token] + the sum, in ascending order of expert, over the token's rows
 * of weight * (x[row] * W^T + bias). Sums are float32, so an answer does not depend on the batch. */
struct experts_down_args {
    void *out; /* [num_tokens, out_features] dtype; may be base */
    void *x;   /* [A, size] dtype: what experts_gate_up has written; its contents are lost */
    struct expert_matrices down;
    struct expert_plan plan;
    bool weights_first;     /* the weights are in x: here they count as 1 */
    const void *base;       /* [num_tokens, out_features] dtype: the shared experts' result; NULL: 0 */
    const float *base_gate; /* [num_tokens]; NULL: base is added as it is */
    void *scratch;          /* [A, out_features] dtype, and [A] float32 behind it */
    int32_t num_tokens, num_experts, top_k, all_experts; /* as in experts_gate_up_args */
    int32_t size;
    enum dtype dtype;
};

/* ---- embedding and rows ---- */

/* out[t] = multiplier * table[id - first_id], id = ids[t] >= 0 ? ids[t] : last_sampled[-ids[t] - 1]. An id of -1 in
 * last_sampled, which sample writes if no token can be sampled, counts as 0. With learned positions (Radford et al.,
 * 2018) position_table[positions[t] + position_offset] is added in float32. */
struct embedding_args {
    void *out;                         /* [num_tokens, in_features] dtype */
    const int32_t *ids, *last_sampled; /* [num_tokens], [samples of the last step] */
    int32_t num_tokens;
    const struct weight *table; /* [vocab_size, in_features] */
    int32_t first_id;           /* of the table; 0 */
    bool is_part;               /* the table has some ids only: the row of another one is 0 */
    float multiplier;
    const struct weight *position_table; /* [, in_features], of the table's type; NULL: none */
    const int32_t *positions;            /* [num_tokens] */
    int32_t position_offset;
    enum dtype dtype;
};

/* out[i] = x[indices[i]]: picks the tokens whose logits are wanted. Where an index is below 0, out[i] stays as it is.
 */
struct gather_rows_args {
    void *out;                    /* [num_indices, size] dtype */
    const void *x;                /* [tokens, size] dtype */
    int64_t out_stride, x_stride; /* elements from row to row; at least size */
    const int32_t *indices;       /* NULL: 0, 1, 2, ... */
    int32_t num_indices, size;
    enum dtype dtype;
};

/* logits = soft_cap * tanh(logits * multiplier / soft_cap), or logits * multiplier without a cap. */
struct scale_logits_args {
    float *logits; /* [num_samples, vocab_size] in place */
    int32_t num_samples, vocab_size;
    float multiplier;
    float soft_cap; /* 0: none */
};

/* out[i, ids[j]] = logits[i, j], and -infinity for all other ids: the logits of a vocabulary that is a part of another.
 */
struct scatter_logits_args {
    float *out;          /* [num_samples, vocab_size] */
    const float *logits; /* [num_samples, num_ids] */
    const int32_t *ids;  /* [num_ids] distinct */
    int32_t num_samples, num_ids, vocab_size;
};

/* ---- attention ---- */

/* What varies in attention from layer to layer and from model to model.
 *
 * ALiBi (Press et al., 2022) stands for positions in BLOOM, MPT and falcon-rw: score += slope * (key position - query
 * position). Block-sparse attention is that of phi-3-small, as vLLM computes it. Tokens are in sparse blocks of
 * sparse_block_size, a multiple of block_size. A query in sparse block qb reads the keys of sparse block kb if
 *
 *     (kb + head_offset + 1) % vertical_stride == 0   or   kb > qb - local_blocks
 *
 * where head_offset is head * head_sliding_step, or kv_head * -head_sliding_step if that is negative. Every backend has
 * both, and tests call them; no family of model/families/ sets the sparse ones. */
struct attention_params {
    float scale;               /* scores are scale * q.k */
    int32_t window;            /* > 0: a query attends only to the last `window` tokens, itself included */
    int32_t chunk;             /* > 0: only to those of its own chunk: the tokens whose position / chunk is its own; no
                                  window then */
    float soft_cap;            /* > 0: score = soft_cap * tanh(score / soft_cap) */
    const float *alibi_slopes; /* [num_heads] on the device; NULL: no ALiBi */
    const float *sinks;        /* [num_heads] on the device: exp(sink) is added to the sum that divides the weights of a
                                  head, as if it attended to one more key, whose value is 0; NULL: no sinks */
    /* Block-sparse attention; vertical_stride <= 1 turns it off. */
    int32_t sparse_block_size, sparse_local_blocks, sparse_vertical_stride, sparse_head_sliding_step;
    /* [2] on the device, of K and of V, positive. fp8 cache: real value = stored value * scale; others read none. */
    const float *kv_scales;
};

/* The KV cache of a layer. x = 16 / sizeof(cache element) elements of a head lie together, so that 16 bytes of K belong
 * to one token:
 *
 *   K [num_blocks, num_kv_heads, head_size / x, block_size, x]    V [num_blocks, num_kv_heads, v_head_size, block_size]
 *
 *        one block and head of K, bfloat16 (x = 8)                       the same of V
 *
 *               token 0     token 1   ...  token 15                           token 0  1  2  ...  15
 *   dims 0..7   |8 elements|8 elements|...|8 elements|              dim 0          |  |  |  | ... |  |
 *   dims 8..15  |8 elements|8 elements|...|8 elements|              dim 1          |  |  |  | ... |  |
 *   ...                                                             ...
 *
 * A block of a tensor may be larger than the block of a layer that it serves (model/kv_cache.h): block_stride is at
 * least num_kv_heads * head_size * block_size, as many of v_head_size, too, and what lies behind these elements is
 * neither read nor written. */
struct reshape_and_cache_args {
    const void *key, *value; /* [num_tokens, num_kv_heads, head_size], and v_head_size, dtype */
    int64_t kv_stride;       /* of key and value */
    void *k_cache, *v_cache;
    const int64_t *slot_mapping; /* [num_tokens] block * block_size + offset; -1: the token is not stored */
    int32_t num_tokens, num_kv_heads, head_size, v_head_size, block_size; /* v_head_size: of V, head_size: of K */
    int64_t block_stride; /* elements from a block to the next, of K and of V; a multiple of 16 bytes */
    enum dtype dtype, cache_dtype;
    /* [2] on the device, of K and of V, as in attention_params. An fp8 cache stores value / scale, and the largest
     * number of its type where that is more; others read none. calculate_kv_scales writes them. */
    float *kv_scales;
};

/* RoPE (Su et al., 2021) from a table that the model makes, so that a backend knows nothing of RoPE scaling. Pair i of
 * a head is the elements i and i + rotary_dim / 2 or, interleaved, 2 i and 2 i + 1; elements from rotary_dim on stay as
 * they are. With query_norm and key_norm each head is normed over head_size first (QK norm: Henry et al., 2020). */
struct rotary_args {
    void *query,
        *key; /* [num_tokens, num_heads, head_size] and [num_tokens, num_kv_heads, head_size] dtype, in place */
    int64_t query_stride, key_stride;
    const int32_t *positions;                                           /* [num_tokens] rows of cos_sin */
    const float *cos_sin;                                               /* [, rotary_dim]: cos of each pair, then sin */
    const struct norm_params *query_norm, *key_norm;                    /* host; both, of one type, or neither (NULL) */
    int32_t num_tokens, num_heads, num_kv_heads, head_size, rotary_dim; /* rotary_dim 0: heads are only normed */
    bool interleaved;
    enum dtype dtype;
};

/* Paged attention of the batch's sequences [first_seq, first_seq + num_seqs). Token t of sequence i lies in block
 * block_tables[state_indices[i]][t / block_size]. Query j of a sequence attends to [0, seq_len - query_len + j], or to
 * the part of the window or the chunk that ends there. Entries of blocks that no query of the sequence attends to are
 * not read.
 *
 * Sequences with one query token that follow one another, of the same state index and one token longer each, are a run
 * (base/batch.h). */
struct attention_args {
    void *out;         /* [num_tokens, num_heads, v_head_size] dtype; the rows of those sequences' tokens are written */
    const void *query; /* [num_tokens, num_heads, head_size] dtype */
    int64_t query_stride;
    const void *k_cache, *v_cache; /* cache_dtype */
    const int32_t *block_tables;   /* [max_num_seqs, block_table_stride] of the KV cache group of the layer */
    int64_t block_table_stride;
    const int32_t *seq_lens;      /* [seqs of the batch] context length after this step */
    const int32_t *query_start;   /* [seqs of the batch + 1] */
    const int32_t *state_indices; /* [seqs of the batch] */
    int32_t first_seq, num_seqs;
    int32_t num_heads, num_kv_heads;            /* of this rank */
    int32_t head_size, v_head_size, block_size; /* as in reshape_and_cache_args */
    int64_t block_stride;                       /* the same */
    int32_t max_query_len, max_seq_len;         /* bounds, for choosing a kernel and a grid */
    int32_t max_run_len; /* the same, 1 + MAX_DRAFTS at most; up to 1: there are no runs, state indices are distinct */
    enum dtype dtype, cache_dtype;
    const struct attention_params *params; /* host */
};

/* rotary_embedding, reshape_and_cache and paged attention of sequences with one query token each (or none: padding)
 * that read no K and V which other sequences write in this step, but for those before them in their run; and
 * output_gate of the results. query and key are left as they were. */
struct decode_attention_args {
    struct rotary_args rotary;
    struct reshape_and_cache_args cache;
    struct attention_args attention;
    struct output_gate_args gate; /* kind NONE: there is none */
};

/* rms_norm of the latents, rotary_embedding of the rotated keys, and latent_cache of both; they are left as they were.
 * With q_rank, also q = rms_norm(q_in). */
struct latent_inputs_args {
    struct latent_cache_args cache;
    struct norm_params norm;  /* of latents */
    const float *cos_sin;     /* [, rope]; NULL: keys are not rotated */
    const int32_t *positions; /* [num_tokens] */
    bool interleaved;
    void *q;          /* [num_tokens, q_rank] dtype */
    const void *q_in; /* [num_tokens, q_rank] dtype */
    int64_t q_stride; /* of q_in */
    int32_t q_rank;   /* 0: there is no q */
    struct norm_params q_norm;
};

/* ---- blocks ---- */

/* block_tables[group][state_index][index] = block, for each delta. */
struct update_block_tables_args {
    int32_t *block_tables;                  /* [num_groups, max_num_seqs, block_table_stride] */
    int64_t block_table_stride;             /* entries from sequence to sequence */
    int64_t group_stride;                   /* entries from group to group */
    const struct block_table_delta *deltas; /* [num_deltas] on the device */
    int32_t num_deltas;
};

/* Copies blocks inside each cache tensor. */
struct copy_blocks_args {
    void *const *caches; /* [num_caches] host array of device pointers */
    int32_t num_caches;
    int64_t block_bytes;            /* of one block in one tensor */
    const struct block_pair *pairs; /* [num_pairs] on the device */
    int32_t num_pairs;
};

/* Copies blocks between two sets of tensors, one of them in pinned host memory. */
struct swap_blocks_args {
    void *const *sources, *const *destinations; /* [num_caches] host arrays */
    int32_t num_caches;
    int64_t block_bytes;
    const struct block_pair *pairs; /* [num_pairs] host */
    int32_t num_pairs;
};

/* ---- sampling ---- */

/* How one sequence is sampled; row state_index of an array on the device. Semantics, ranges and order of application
 * are those of vLLM's SamplingParams: logit_bias and min_tokens (the stop ids get -inf), repetition, frequency and
 * presence penalties, then greedy, or temperature, min_p, top_k, top_p and a draw by Gumbel-max over Philox(seed,
 * sequence_index, output position), one lane per token id. */
#define SAMPLING_MAX_BIAS 300
#define SAMPLING_MAX_STOP_IDS 80 /* a request's 64 and the model's end-of-sequence ids */
struct sampling_state {
    float temperature; /* < 1e-5: greedy */
    float top_p, min_p;
    int32_t top_k;                                                 /* <= 0: off */
    float repetition_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
    uint64_t seed;
    uint32_t sequence_index; /* which of n answers */
    int32_t min_tokens;      /* the stop ids cannot be sampled before so many tokens were output */
    int32_t num_logprobs;    /* -1: none; 0: of the sampled token; k: and of the k most probable */
    int32_t prompt_len;      /* history[0 .. prompt_len) is the prompt, the rest output */
    int32_t num_bias, num_stop_ids;
    int32_t bias_ids[SAMPLING_MAX_BIAS];
    float bias_values[SAMPLING_MAX_BIAS];
    int32_t stop_ids[SAMPLING_MAX_STOP_IDS];
};

/* Which logits a rank of a group has: those of ids first .. first + count - 1; count may be 0. */
struct sample_share {
    int32_t rank, num_ranks; /* num_ranks 0: all logits are there */
    int32_t first, count;
};

struct sample_args {
    float *logits; /* [num_samples, logits_stride]; overwritten. The first vocab_size of a row are sampled from; the
                      others belong to padding of the lm_head and are not read */
    int64_t logits_stride; /* at least vocab_size */
    int32_t num_samples, vocab_size;
    const int32_t *state_indices;        /* [num_samples] */
    const int32_t *output_positions;     /* [num_samples] */
    const struct sampling_state *states; /* [max_num_seqs] */
    int32_t *history; /* [max_num_seqs, history_stride] tokens of each sequence; the token sampled at output
                         position p is written to history[state_index][prompt_len + p] */
    int64_t history_stride;
    /* [num_samples] drafts[i] >= 0: sample i is drawn as if the token sampled at output position
     * output_positions[i] - 1 was drafts[i]; -1: history has that token. The samples of a run follow one another, by
     * output position. If a sample does not draw the next one's draft, what the rest of its run draws is undefined, and
     * so is `history` behind its token. NULL: all are -1. */
    const int32_t *drafts;
    /* [num_samples] NULL: tokens are drawn. Else nothing is drawn, processed or written to `history`: the results are
     * those of these tokens, with the top_stride most probable ones. any_logprobs is set then, any_processing and
     * any_random are not, and the arrays above but the logits may be NULL. A target may be an id from vocab_size on:
     * its logit counts as -infinity. */
    const int32_t *targets;
    /* Which ids a sample may be: those whose bit, id % 32 of word id / 32, is set in row mask_rows[i] of the masks; -1:
     * all. The logits of others count as -infinity before everything else, for log-probabilities, too (as in vLLM).
     * NULL: all samples may be any id. Not used with targets. */
    const uint32_t *masks;                         /* [rows, mask_words] */
    int64_t mask_words;                            /* at least vocab_size / 32, rounded up */
    const int32_t *mask_rows;                      /* [num_samples] */
    bool any_processing, any_random, any_logprobs; /* over the batch: a pass that no sequence needs is skipped */
    int32_t *token_ids;  /* [num_samples] out: the token, or -1 if, after processing, a logit is NaN or the largest is
                            infinite. Then nothing is written to `history`, and the sample's log-probabilities and ranks
                            are undefined. */
    float *logprobs;     /* [num_samples] out, of the logits before processing, for sequences that ask for logprobs, or
                            targets */
    int32_t *ranks;      /* [num_samples] out */
    int32_t top_stride;  /* at most SAMPLING_MAX_TOP, and at least num_logprobs of every sample */
    int32_t *top_ids;    /* [num_samples, top_stride] out */
    float *top_logprobs; /* [num_samples, top_stride] out */
    /* Of a group (kernels/collective.h), whose ranks call this together: each finds the best of its ids, all get the
     * best of all ranks, and other logits are not read. For greedy batches: no pass that any_* ask for, and no targets.
     */
    struct sample_share share;
};

/* ---- memory ---- */

enum memory_kind { MEMORY_DEVICE, MEMORY_HOST_PINNED };

#define COPY_MAX_SEGMENTS 20
struct copy_segment {
    void *destination;
    const void *source;
    int64_t bytes;
};

/* Copies the segments in one launch, from pinned host memory to the device or back: a step's inputs, or what the host
 * computes with (call_host). Pointers and sizes are multiples of 4 bytes; segments do not overlap. The sources must not
 * change until the step is over. */
struct copy_many_args {
    const struct copy_segment *segments; /* [count <= COPY_MAX_SEGMENTS] host */
    int32_t count;
};

/* The largest shapes of any operation, from which the size of the workspace follows. */
struct workspace_query {
    int32_t max_num_tokens, max_num_seqs, max_model_len; /* max_num_seqs: entries of a batch, or samples */
    int32_t num_heads, head_size, block_size;            /* head_size: of q, K or V */
    int64_t max_in_features, vocab_size;                 /* max_in_features: over all weights */
    int64_t max_quantized_elements; /* out_features * in_features, over the quantized weights; 0: there are none */
    int32_t num_recurrent_heads;    /* of v; 0: no layer is recurrent */
    int64_t recurrent_state_size;   /* elements of a layer's state */
    int32_t latent_rank;            /* of latent attention; 0: there is none */
};

/* ---- function types ---- */

/* Bytes free and in all, by the device's own count. */
typedef enum status memory_info_function(struct backend *b, int64_t *free_bytes, int64_t *total_bytes,
                                         struct error *err);
/* Device memory is set to zero, on the main stream; other streams must wait for that before they use it. */
typedef enum status memory_alloc_function(struct backend *b, enum memory_kind kind, int64_t bytes, void **out,
                                          struct error *err);
typedef void memory_free_function(struct backend *b, enum memory_kind kind, void *data, int64_t bytes);
typedef void copy_function(struct backend *b, void *destination, const void *source, int64_t bytes,
                           backend_stream stream);
typedef void fill_function(struct backend *b, void *destination, int byte, int64_t bytes);
typedef void copy_many_function(struct backend *b, const struct copy_many_args *args);
typedef void host_function(void *context);
typedef void call_host_function(struct backend *b, host_function *function, void *context);
typedef int64_t workspace_bytes_function(struct backend *b, const struct workspace_query *query);
typedef void workspace_set_function(struct backend *b, void *workspace, int64_t bytes);
typedef void preload_function(struct backend *b, enum dtype dtype);
typedef void weight_prepare_function(struct backend *b, const struct weight *w);
typedef void weight_quantize_function(struct backend *b, const struct weight_quantize_args *args,
                                      backend_stream stream);
typedef void fill_dummy_function(struct backend *b, const struct fill_dummy_args *args, backend_stream stream);

typedef enum status stream_create_function(struct backend *b, backend_stream *out, struct error *err);
typedef void stream_destroy_function(struct backend *b, backend_stream stream);
typedef enum status stream_synchronize_function(struct backend *b, backend_stream stream, struct error *err);
typedef enum status event_create_function(struct backend *b, backend_event *out, struct error *err);
typedef void event_destroy_function(struct backend *b, backend_event event);
typedef void event_record_function(struct backend *b, backend_event event, backend_stream stream);
typedef void event_wait_function(struct backend *b, backend_event event, backend_stream stream); /* the stream waits */
typedef enum status event_synchronize_function(struct backend *b, backend_event event,
                                               struct error *err); /* the host waits */
typedef enum status capture_begin_function(struct backend *b, struct error *err);
typedef enum status capture_end_function(struct backend *b, backend_graph *out, struct error *err);
typedef void graph_launch_function(struct backend *b, backend_graph graph);
typedef void graph_destroy_function(struct backend *b, backend_graph graph);

typedef void embedding_function(struct backend *b, const struct embedding_args *args);
typedef void rms_norm_function(struct backend *b, const struct rms_norm_args *args);
typedef void fused_add_rms_norm_function(struct backend *b, const struct fused_add_rms_norm_args *args);
typedef void rotary_embedding_function(struct backend *b, const struct rotary_args *args);
typedef void reshape_and_cache_function(struct backend *b, const struct reshape_and_cache_args *args);
typedef void calculate_kv_scales_function(struct backend *b, const struct reshape_and_cache_args *args);
typedef void paged_attention_function(struct backend *b, const struct attention_args *args);
typedef void act_and_mul_function(struct backend *b, const struct act_and_mul_args *args);
typedef void activate_function(struct backend *b, const struct activate_args *args);
typedef void clip_function(struct backend *b, const struct clip_args *args);
typedef void scale_queries_function(struct backend *b, const struct scale_queries_args *args);
typedef void scale_columns_function(struct backend *b, const struct scale_columns_args *args);
typedef void output_gate_function(struct backend *b, const struct output_gate_args *args);
typedef void linear_function(struct backend *b, const struct linear_args *args);
typedef void route_experts_function(struct backend *b, const struct route_experts_args *args);
typedef void experts_gate_up_function(struct backend *b, const struct experts_gate_up_args *args);
typedef void experts_down_function(struct backend *b, const struct experts_down_args *args);
typedef void gather_rows_function(struct backend *b, const struct gather_rows_args *args);
typedef void scale_logits_function(struct backend *b, const struct scale_logits_args *args);
typedef void scatter_logits_function(struct backend *b, const struct scatter_logits_args *args);
typedef void update_block_tables_function(struct backend *b, const struct update_block_tables_args *args);
typedef void copy_blocks_function(struct backend *b, const struct copy_blocks_args *args);
typedef void swap_blocks_function(struct backend *b, const struct swap_blocks_args *args, backend_stream stream);
typedef void sample_function(struct backend *b, const struct sample_args *args);

typedef bool takes_quantized_rows_function(struct backend *b, const struct weight *w, int32_t num_tokens,
                                           enum dtype dtype);
typedef void quantize_rows_function(struct backend *b, const struct quantize_rows_args *args);
typedef bool linear_parts_function(struct backend *b, const struct linear_args *parts, int count);
typedef bool norm_linear_function(struct backend *b, const struct norm_linear_args *args);
typedef bool linear_residual_function(struct backend *b, const struct linear_args *args);
typedef bool gate_up_function(struct backend *b, const struct gate_up_args *args);
typedef bool latent_inputs_function(struct backend *b, const struct latent_inputs_args *args);
typedef bool decode_attention_function(struct backend *b, const struct decode_attention_args *args);

typedef void destroy_function(struct backend *b);

struct backend {
    const char *name; /* "cpu", "cuda:0" */
    /* "NVIDIA H200, sm_90, kernels for sm_90a": the device, and which of this build's kernels it runs. NULL: there is
     * nothing to say. */
    const char *description;
    const char *isa; /* of the CPU's kernels: "avx2"; NULL: a GPU */
    void *state;

    /* The device has memory of its own: weights are copied to it and gpu_memory_utilization sets quire's share. This is
     * how to ask "is this a GPU". */
    bool discrete;
    int64_t others_bytes; /* held on the device by other processes when it was opened; -1: not known */
    const char *others;   /* which processes those are, as far as it is known: "python3 (pid 712) 20.1 GiB"; or "" */

    memory_info_function *memory_info;
    memory_alloc_function *memory_alloc;
    memory_free_function *memory_free;
    copy_function *copy;
    fill_function *fill;
    copy_many_function *copy_many;
    /* Calls function(context) on some thread of the host, in the order of the main stream: it finds in pinned host
     * memory what was copied there before, and what follows waits for it. A graph calls it at each replay. It must not
     * call this backend. */
    call_host_function *call_host;
    workspace_bytes_function *workspace_bytes;
    workspace_set_function *workspace_set; /* device memory, owned by the caller */
    /* Starts a thread that loads what matmuls of this type load on first use. memory_info waits for it. NULL: nothing
     * is loaded on first use. */
    preload_function *preload;
    /* Reorders the data of a quantized weight in place, once all of it is in device memory, for the backend's own
     * kernels; call it once for each weight, before its first use. NULL: weights are used as they are described above.
     */
    weight_prepare_function *weight_prepare;
    /* Quantizes rows that lie in device memory or in pinned host memory, at an address that is a multiple of 16; any
     * thread. data, scales and zeros are on the device. NULL: the host does it. */
    weight_quantize_function *weight_quantize;
    /* Makes data of dummy weights in device memory; any thread. NULL: the host does it. */
    fill_dummy_function *fill_dummy;

    stream_create_function *stream_create;
    stream_destroy_function *stream_destroy;
    stream_synchronize_function *stream_synchronize;
    event_create_function *event_create;
    event_destroy_function *event_destroy;
    event_record_function *event_record;
    event_wait_function *event_wait;
    event_synchronize_function *event_synchronize;

    /* Capture and replay of what is put on the main stream. NULL: the backend has no graphs. */
    capture_begin_function *capture_begin;
    capture_end_function *capture_end;
    graph_launch_function *graph_launch;
    graph_destroy_function *graph_destroy;

    embedding_function *embedding;
    rms_norm_function *rms_norm;
    fused_add_rms_norm_function *fused_add_rms_norm;
    rotary_embedding_function *rotary_embedding;
    reshape_and_cache_function *reshape_and_cache;
    /* Raises each of kv_scales, where need be, to kv_scale_for the largest number that reshape_and_cache would store
     * with the same arguments. */
    calculate_kv_scales_function *calculate_kv_scales;
    /* v1: the whole context in one partition; v2: partitions of 512 tokens and a reduction. Both take one query token a
     * sequence. prefill takes any query length. */
    paged_attention_function *paged_attention_v1, *paged_attention_v2, *paged_attention_prefill;
    short_conv_function *short_conv;
    recurrence_function *recurrence;
    gated_norm_function *gated_norm;
    latent_cache_function *latent_cache;
    latent_attention_function *latent_attention;
    heads_linear_function *heads_linear;
    act_and_mul_function *act_and_mul;
    activate_function *activate;
    clip_function *clip;
    scale_queries_function *scale_queries;
    scale_columns_function *scale_columns;
    output_gate_function *output_gate;
    linear_function *linear;
    /* A mixture of experts: the plan, then two grouped matmuls. No count that only the device knows reaches the host:
     * launches depend on num_tokens, num_experts and top_k. */
    route_experts_function *route_experts;
    experts_gate_up_function *experts_gate_up;
    experts_down_function *experts_down;
    gather_rows_function *gather_rows;
    scale_logits_function *scale_logits;
    scatter_logits_function *scatter_logits;
    update_block_tables_function *update_block_tables;
    copy_blocks_function *copy_blocks;
    swap_blocks_function *swap_blocks;
    sample_function *sample;

    /* Whether linear is to get quantized rows, with groups of the weight's group_size, for so many tokens; out has
     * dtype. NULL: never, and no operation takes `quantized`. */
    takes_quantized_rows_function *takes_quantized_rows;
    quantize_rows_function *quantize_rows; /* NULL if takes_quantized_rows is */

    /* Optional operations (NULL: not there) that do the work of several in one kernel, so that a decode step has fewer
     * gaps. Each returns false, having done nothing, for arguments that it does not take; which those are depends on
     * the model and on num_tokens alone. They round where the operations that they replace do, but for norm_linear and
     * gate_up, which may round x times its gains instead of the normed x.
     *
     * A fused kernel may start before the kernel that makes its input, or the starts of row segments, has ended. So
     * everything else (gains, weights, positions, tables, the cache) must have been written by an earlier kernel. */
    linear_parts_function *linear_parts; /* linear of each part, LINEAR_MAX_PARTS at most; all have the same x,
                                            num_tokens and types */
    norm_linear_function *norm_linear;
    linear_residual_function *linear_residual; /* out += linear(x); out has dtype */
    gate_up_function *gate_up;
    latent_inputs_function *latent_inputs;
    decode_attention_function *decode_attention;
    decode_recurrence_function *decode_recurrence;

    /* Of a rank (kernels/collective.h); NULL: there are no others. */
    all_reduce_function *all_reduce;
    all_gather_function *all_gather;
    all_reduce_add_norm_function *all_reduce_add_norm; /* optional: NULL, too, where ranks are CPUs */
    agree_function *agree;
    /* These call all_reduce and all_gather; they are there, too, where those are not. */
    all_norm_function *all_norm;
    gather_columns_function *gather_columns;
    /* Of a rank that sends to others; else NULL. */
    send_function *send;
    receive_function *receive;
    struct transfer_end *transfer_end; /* kernels/transfer.c */
    struct group_failure *failure;     /* the caller's (group_failure.h); set before the group is made. NULL: none */

    destroy_function *destroy;
};

/* Opens "cpu", "cuda", "cuda:N" or "auto". auto is the first GPU if it can be used, else the CPU; *err then says why no
 * GPU is used, and is empty where one is, or where the machine has none. threads: of the CPU backend, 0 for all allowed
 * processors. Free *out with
 * (*out)->destroy(*out). */
enum status backend_open(const char *device, int threads, struct backend **out, struct error *err);

/* GPUs that this process sees: "cuda:0" and those that follow; 0 where none can be used. Opens no device. */
int backend_num_gpus(void);
/* Writes lines to text[size]: what the CUDA kernels of this build were compiled for, and what GPUs there are, or why
 * none can be used. Opens no device. */
void backend_describe_cuda(char *text, size_t size);
/* Writes a line, without its end, to text[size]: the instruction sets that the CPU kernels were compiled for, the one
 * that is used here, and what of interest the processor has. */
void backend_describe_cpu(char *text, size_t size);

/* Chooses the CPU's kernels, before the first operation: "auto", the widest instruction set that the processor has, or
 * "scalar", "avx2", "avx512", "avx512vnni" or "amx". Does nothing on a GPU. */
enum status backend_choose_isa(struct backend *b, const char *name, struct error *err);

enum status backend_cpu_open(int threads, struct backend **out, struct error *err);
enum status backend_cuda_open(int device, struct backend **out, struct error *err);

/* The paper's partition, and the rule that chooses between v1 and v2. */
#define PAGED_ATTENTION_PARTITION_SIZE 512
bool paged_attention_use_v1(int32_t max_seq_len, int32_t num_seqs, int32_t num_heads);

/* Attention of a whole batch: the first num_decodes sequences through v1 or v2, the rest through prefill. Sets
 * first_seq and num_seqs itself. */
void paged_attention(struct backend *b, const struct attention_args *args, int32_t num_decodes, int32_t num_seqs);

#ifdef __cplusplus
}
#endif

#endif
