/* How few_tokens_quantized.cu splits a matmul between blocks, and what a block of it keeps in shared memory. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_QUANTIZED_H
#define QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_QUANTIZED_H

#include "kernels/cuda/matmul/few_tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TILE = FEW_TOKENS_TILE,
    UNIT_BYTES = 64,                   /* of a row */
    HALF_UNIT = TILE / 2 * UNIT_BYTES, /* rows 0 to 7 of a unit, or rows 8 to 15 */
    STAGE = MMA_WARPS * 2 * HALF_UNIT,
    MAX_BATCH = 16,  /* tiles */
    X_SKEW = 16,     /* bytes between the tokens of x, so that eight tokens lie in different banks */
    GAIN_TOKENS = 4, /* with so many tokens gains are copied to shared memory */
    SCALE_BLOCK = 8, /* groups */
    WHOLE_ROW = 31   /* group_shift: one group */
};

struct quantized_call {
    struct few_tokens_call base;         /* a chunk is a unit */
    uint32_t unit_inverse, last_inverse; /* of the units of a row of a part, and of the last part */
    uint32_t element_inverse;            /* of the elements of a tile's result */
    int32_t batch;                       /* tiles of a block whose sums are added together */
    int32_t sum_slots;                   /* the most tiles of a batch that a warp has a share of */
    bool grouped;                        /* scales are of groups, not of rows; always so for INT4 */
    int32_t group_shift;                 /* log2(group_size), or WHOLE_ROW */
    int32_t scale_shift;                 /* log2(scale_rows) */
    int32_t groups;                      /* of a row */
    int32_t fold_words; /* INT4: words of a lane's piece (32 input features each) whose sums get a scale together */
    int32_t scale_size;
    bool can_copy;                              /* eight scales, and zeros, can be copied as one */
    int32_t scale_slots;                        /* blocks of scales of a warp that there is room for */
    int32_t sum_bytes, gain_bytes, x_sum_bytes; /* in shared memory */
};

/* Input features of a unit. */
CUDA_HOST_DEVICE int unit_features(enum weight_format format)
{
    return format == WEIGHT_INT4 ? 2 * UNIT_BYTES : UNIT_BYTES;
}

/* Bytes of a block of scales, and zeros, of a tile. */
CUDA_HOST_DEVICE int scale_block_bytes(int scale_size)
{
    return TILE * SCALE_BLOCK * (scale_size + 1);
}

/* Groups of 8 tokens. */
static inline int token_groups(const struct matmul *m)
{
    return m->num_tokens <= 8 ? 1 : 2;
}

/* All of a call but where the sums of parts lie. False: this kernel does not take the matmul. */
bool few_tokens_quantized_lay_out(const struct matmul_device *d, const struct matmul *m, struct quantized_call *out);

#ifdef __cplusplus
}
#endif

#endif
