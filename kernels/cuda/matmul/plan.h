/* The planner: which kernel computes a matmul. It is the only place where that is decided, for linear, the fused
 * operations and the question whether x is quantized. A pure function of facts: no GPU is asked.
 *
 * What is exact stays with the kernels: how they cut a matmul into tiles, parts and stages. Where a kernel keeps x in
 * shared memory, whether it fits is a part of the decision (few_tokens.h).
 *
 * A planner that chooses by the matrix alone, so that a row's bits do not depend on the batch, will take that as a
 * field of struct matmul_question. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_PLAN_H
#define QUIRE_KERNELS_CUDA_MATMUL_PLAN_H

#include "kernels/cuda/matmul/matmul.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FEW_TOKENS_WGMMA_MAX = 8,       /* few_tokens_wgmma.cu takes so many tokens, half as many of float16 */
    QUANTIZED_SEGMENTS_MAX = 16384, /* elements of a row that a block keeps in registers while it quantizes them */
    INPUT_ORDER_PIECE = 8,          /* elements that input_order.cu moves as one */
    INPUT_ORDER_WARPS = 16          /* of its blocks */
};

/* Each has the name of its file, but for those that say otherwise. */
enum matmul_kernel {
    MATMUL_DECLINED, /* a fused operation: the plain operations are faster, or no kernel can compute it */

    /* Floats. */
    MATMUL_FEW_TOKENS,   /* compute capability 9.0 and later */
    MATMUL_CHAIN,        /* 8.x: launched later, together with those that follow it */
    MATMUL_LINEAR_WGMMA, /* a batch of tokens on Hopper */
    MATMUL_CUBLAS,       /* cublas.c */
    MATMUL_LINEAR_MIXED, /* any types, slowly; and row segments of any weights */

    /* Quantized weights. */
    MATMUL_FEW_TOKENS_WGMMA,       /* FP8 and INT4 on Hopper */
    MATMUL_FEW_TOKENS_QUANTIZED,   /* all GPUs */
    MATMUL_LINEAR_WGMMA_INT4,      /* a batch of tokens on Hopper: INT4 with 16-bit scales in groups of 128 or of the
                                      whole row, up to 32 tokens */
    MATMUL_LINEAR_WGMMA_QUANTIZED, /* a batch of tokens on Hopper */
    MATMUL_LINEAR_MMA_QUANTIZED,   /* a batch of tokens elsewhere */
    MATMUL_IN_ORDER,   /* a weight with an input_order, in parts of matmul_part_tokens: x is put into that order (and
                          normed) first, and each part is a matmul of its own */
    MATMUL_DEQUANTIZE, /* rows of the weight become floats, for a matmul of floats */

    /* Quantized rows, too (W8A8). */
    MATMUL_ROWS_WGMMA, /* linear_wgmma.cu; split rows by MXFP4 (split.cuh): linear_wgmma_mxfp4_rows.cu */
    MATMUL_CUBLAS_LT,  /* quantized_rows.cu */

    NUM_MATMUL_KERNELS
};

/* What the choice depends on beside the matmul. */
struct matmul_device {
    int compute_capability; /* 90: 9.0; what the kernels were compiled for */
    bool has_wgmma;
    int num_sms;
    int max_shared_bytes; /* dynamic shared memory of one block */
    bool has_partials;    /* there is room for the sums of parts (CUDA_USER_LINEAR) */
    const void *scratch;  /* room for x in another order (CUDA_USER_DEQUANTIZE); NULL: none */
    int64_t scratch_bytes;
};

/* An operation as a question to the planner. */
struct matmul_question {
    struct matmul matmul; /* addresses count by their alignment alone */
    bool is_fused;        /* the operation may decline */
    enum dtype out_dtype;
    enum dtype bias_dtype;          /* if matmul.bias */
    const struct norm_params *norm; /* matmul has its gain; NULL: none */
    int64_t rows_group_size;        /* of quantized rows, which are there instead of matmul.x; 0: there are none */
};

/* The question that an operation asks; `norm` may be NULL, and so may `gate` but for MATMUL_GATE and
 * MATMUL_ACTIVATE. linear is not fused, and is MATMUL_STORE without a norm. */
struct matmul_question matmul_question_of(const struct linear_args *args, enum matmul_result result,
                                          const struct norm_params *norm, const struct gate_params *gate,
                                          bool is_fused);

enum matmul_kernel matmul_plan(const struct matmul_device *d, const struct matmul_question *q);

/* The kernel of a matmul of a quantized weight: of a part of MATMUL_IN_ORDER, in its order. MATMUL_DECLINED: none is
 * faster than dequantizing. */
enum matmul_kernel matmul_plan_quantized(const struct matmul_device *d, const struct matmul *m);

/* The tokens of the parts of MATMUL_IN_ORDER but the last: as many as `scratch` has room for, or fewer, so that the
 * parts have about the same size. 0: none. */
int32_t matmul_part_tokens(const struct matmul_device *d, const struct matmul *m);

/* A part of MATMUL_IN_ORDER once its x is in `scratch`, in order and normed. */
struct matmul matmul_ordered_part(const struct matmul_device *d, const struct matmul *m, int32_t first_token,
                                  int32_t num_tokens);

/* Whether x is to be quantized for a matmul, if cuBLASLt has it: a weight in FP8 that was made for it, and more tokens
 * than are as fast with x as it is. */
bool matmul_wants_quantized_rows(const struct matmul_device *d, const struct weight *w, int32_t num_tokens,
                                 enum dtype dtype);

/* What the rows of x become before a matmul of row segments, of at most QUANTIZED_SEGMENTS_MAX elements. */
enum segment_rows {
    SEGMENT_ROWS_PLAIN,     /* nothing else */
    SEGMENT_ROWS_QUANTIZED, /* FP8, with a scale for each row */
    SEGMENT_ROWS_BLOCKS,    /* FP8, with a scale for each group of 128 elements, behind the elements of the row */
    SEGMENT_ROWS_SPLIT      /* split.cuh */
};

enum segment_rows matmul_segment_rows(const struct matmul_device *d, const struct matmul_question *q,
                                      const struct weight *w);

/* Whether cuBLASLt may be asked to multiply quantized rows by the weight; *by_blocks: both have a scale for 128 input
 * features, else one for each token and output feature. */
bool matmul_is_for_cublas_lt(const struct weight *w, enum dtype dtype, bool *by_blocks);

#ifdef __cplusplus
}
#endif

#endif
