/* The fused operations of a decode step. For few tokens a layer takes half as many kernels as with the plain
 * operations: each matmul kernel norms its own input, and applies the activation or adds to the residual stream when it
 * stores its result. From compute capability 9.0 on there are no gaps between them either: each kernel reads its first
 * weights while the previous one still runs. On 8.x all matmuls between the attentions of two layers are one kernel.
 *
 *     plain operations                                    fused
 *     fused_add_rms_norm, linear (qkv)                    norm_linear
 *     rotary_embedding, reshape_and_cache, attention      decode_attention (attention/decode.cu)
 *     linear (o)                                          linear_residual
 *     fused_add_rms_norm, linear (gate_up), act_and_mul   gate_up; or activate, where there are no gates
 *     linear (down)                                       linear_residual
 *
 * Rounding is that of the plain operations: the residual stream after each addition, what is added to it before, gate
 * and up before the activation. The norm is computed in float32 from the residual stream as it is stored. Only
 * few_tokens_wgmma rounds x times its gains instead of the normed x, and multiplies the sums by the norm's factor.
 *
 * The planner (plan.h) chooses the kernel, or declines (they return false, having done nothing): a norm that is not
 * RMSNorm, whose gain has another type than float32 and the activations', or whose x does not fit into shared memory;
 * where a kernel for a batch of tokens is faster, which takes no norm, and linear_mma_quantized no gate_up either; more
 * than FUSED_MAX_TOKENS tokens of floats, or more than linear_wgmma takes where there is one, since cuBLAS and separate
 * kernels are as fast from there on; float32; types that differ, that of the bias included; in_features that is not a
 * multiple of 8; addresses that are not a multiple of 16; row segments with a norm, or that no kernel for a batch of
 * tokens takes. */
#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/operations.h"

static bool run(struct backend *b, const char *operation, const struct linear_args *args, enum matmul_result result,
                const struct norm_params *norm, const struct gate_params *gate)
{
    const struct matmul_device device = matmul_device_of(b);
    const struct matmul_question q = matmul_question_of(args, result, norm, gate, true);
    const enum matmul_kernel kernel = matmul_plan(&device, &q);
    if (kernel == MATMUL_DECLINED) return false;
    matmul_run(b, operation, kernel, &q.matmul);
    return true;
}

bool cuda_norm_linear(struct backend *b, const struct norm_linear_args *args)
{
    return run(b, "norm_linear", &args->linear, MATMUL_STORE, &args->norm, NULL);
}

bool cuda_linear_residual(struct backend *b, const struct linear_args *args)
{
    return run(b, "linear_residual", args, MATMUL_ADD, NULL, NULL);
}

bool cuda_gate_up(struct backend *b, const struct gate_up_args *args)
{
    const enum matmul_result result = args->gate.kind == GATE_NONE ? MATMUL_ACTIVATE : MATMUL_GATE;
    return run(b, "gate_up", &args->linear, result, args->norm, &args->gate);
}
