/* The fused operations of a decode step. For few tokens a layer takes half as many kernels as with the plain
 * operations: each matmul kernel norms its own input, and applies the activation or adds to the residual stream when it
 * stores its result. From compute capability 9.0 on there are no gaps between them either: each kernel reads its first
 * weights while the previous one still runs. On 8.x all matmuls between the attentions of two layers are one kernel.
 *
 *     plain operations                                    fused
 *     fused_add_rms_norm, linear (qkv)                    norm_linear
 *     rotary_embedding, reshape_and_cache, attention      decode_attention (attention/decode.cu)
 *     linear (o)                                          linear_residual
 *     fused_add_rms_norm, linear (gate_up), act_and_mul   gate_up
 *     linear (down)                                       linear_residual
 *
 * Rounding is that of the plain operations: the residual stream after each addition, what is added to it before, gate
 * and up before the activation. The norm is computed in float32 from the residual stream as it is stored. Only
 * few_tokens_wgmma rounds x times its gains instead of the normed x, and multiplies the sums by the norm's factor.
 *
 * Quantized weights go to linear_decoding (linear_wgmma_quantized.cuh), which chooses the kernel; on 8.x each matmul is
 * a kernel of its own. With a norm it declines where that is linear_wgmma_quantized or linear_mma_quantized, which does
 * not take gate_up either.
 *
 * Where linear_wgmma is the faster kernel (few_tokens_is_best says no), the norm is a kernel of its own.
 *
 * These operations decline (return false, having done nothing): a norm that is not RMSNorm, whose gain has another type
 * than float32 and the activations', or whose x does not fit into shared memory; more than FUSED_MAX_TOKENS tokens, or
 * more than linear_wgmma takes where there is one, since cuBLAS and separate kernels are as fast from there on;
 * float32; types that differ, that of the bias included; in_features that is not a multiple of 8; addresses that are
 * not a multiple of 16. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/matmul/few_tokens.cuh"
#include "kernels/cuda/matmul/linear_wgmma.cuh"
#include "kernels/cuda/matmul/linear_wgmma_quantized.cuh"
#include "kernels/cuda/operations.h"

/* False: the kernel does not take such a norm. */
static bool set_norm(struct matmul *m, const struct norm_params *norm)
{
    m->gain = norm->gain;
    m->gain_is_float = norm->gain_dtype == DTYPE_FLOAT32;
    m->eps = norm->eps;
    return norm->gain && norm->type == NORM_RMS && (m->gain_is_float || norm->gain_dtype == m->dtype);
}

static bool run(struct backend *b, const char *operation, const struct matmul *m)
{
    struct few_tokens_plan plan;
    const struct cuda_state *s = cuda_state(b);
    if (matmul_is_quantized(m)) return linear_decoding(b, operation, m);
    if (s->has_wgmma && !few_tokens_is_best(m)) return linear_wgmma(b, operation, m);
    if (m->num_tokens > FUSED_MAX_TOKENS || !few_tokens_plan(s, m, &plan)) return false;
    few_tokens_launch(b, operation, m, &plan);
    return true;
}

bool cuda_norm_linear(struct backend *b, const struct norm_linear_args *args)
{
    struct matmul m;
    return matmul_of(&args->linear, MATMUL_STORE, &m) && set_norm(&m, &args->norm) && run(b, "norm_linear", &m);
}

bool cuda_linear_residual(struct backend *b, const struct linear_args *args)
{
    struct matmul m;
    return matmul_of(args, MATMUL_ADD, &m) && run(b, "linear_residual", &m);
}

bool cuda_gate_up(struct backend *b, const struct gate_up_args *args)
{
    struct matmul m;
    if (!matmul_of(&args->linear, MATMUL_GATE, &m) || m.out_features % 2 != 0) return false;
    m.activation = args->activation;
    return (!args->norm || set_norm(&m, args->norm)) && run(b, "gate_up", &m);
}
