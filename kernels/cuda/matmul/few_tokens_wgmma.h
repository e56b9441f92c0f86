/* How few_tokens_wgmma.cu cuts a matmul into tiles and parts, and what a block of it keeps in shared memory. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_WGMMA_H
#define QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_WGMMA_H

#include "kernels/cuda/matmul/few_tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STEP = MATMUL_STEP, /* input features, and bytes of a row of x */
    BOX_ROW = 128,      /* bytes: one step of FP8, two of INT4 */
    BOX_ROWS = 64,
    BOXES = 4, /* of a stage */
    MAX_STAGES = 16,
    SUMS_ROW = BOX_ROWS + 8, /* floats; the padding puts the tokens of a warp into different banks */
    HALF_WARPS = 32,         /* half warps of the threads that prepare x */
    ALIGNMENT = 1024         /* of a box: the swizzle's period */
};

/* Rows of a matrix of floats, of the type of x, that blocks behind the others multiply by the same x. */
struct few_beside {
    const void *weight; /* [rows, in_features] */
    void *out;          /* rows elements of each token, which are out_stride apart */
    int32_t rows, blocks;
};

struct few_tokens_wgmma_layout {
    struct few_beside beside; /* blocks 0: there are none */
    int32_t x_steps;          /* of a box of x */
    struct matmul matmul;
    int32_t tiles, tile_rows, features; /* of a tile: rows of the weight, and output features: with MATMUL_GATE half */
    uint32_t inverse;                   /* of a tile's output features: i / features is __umulhi(i, inverse) */
    int32_t splits;                     /* parts of a tile: 1, or one for each block of a cluster */
    int32_t columns;                    /* blocks of a part */
    int32_t part_stages;                /* stages of a part; the last one may have fewer */
    int32_t all_stages;
    int32_t stages, in_flight, slot_bytes; /* of the ring; in_flight: the most stages that are being copied at a time */
    int32_t groups;                        /* of a row's scales */
    int32_t group_steps, scale_bytes;
    bool has_stage_scales, loads_eight; /* scales belong to stages; eight of 16 bits, and zeros, are loaded as one */
    int32_t x_at, sums_at, factors_at, squares_at, gain_at, scales_at, shared_bytes; /* in shared memory */
};

/* Places of a token: pairs of rows of x, and of sums. */
CUDA_HOST_DEVICE int places_of(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT16 ? 2 : 1;
}

/* Steps of a row of a box. */
CUDA_HOST_DEVICE int box_steps_of(enum weight_format format)
{
    return format == WEIGHT_INT4 ? 2 : 1;
}

/* The warpgroups that multiply, with so many columns of x as e4m3. */
CUDA_HOST_DEVICE int mma_groups_of(enum weight_format format, int columns)
{
    return format == WEIGHT_INT4 && columns == 16 ? 4 : 2;
}

/* Floats of the sums of a tile. */
CUDA_HOST_DEVICE int sums_of(enum weight_format format, int columns)
{
    return mma_groups_of(format, columns) * (columns / 2) * SUMS_ROW;
}

/* Bytes of what belongs to a step of a row (a scale, and with INT4 a scaled zero), and to a step of a place. */
CUDA_HOST_DEVICE int scale_bytes_of(enum weight_format format)
{
    return (int)sizeof(float) * (format == WEIGHT_INT4 ? 2 : 1);
}

/* The steps of a part of x. */
CUDA_HOST_DEVICE int steps_of(const struct few_tokens_wgmma_layout *c, enum weight_format format)
{
    return c->part_stages * BOXES * box_steps_of(format);
}

/* Columns of x as e4m3: 8 or 16. */
static inline int columns_of(const struct matmul *m)
{
    return 2 * m->num_tokens * places_of(m->dtype) <= 8 ? 8 : 16;
}

/* False: this kernel does not take the matmul. */
bool few_tokens_wgmma_lay_out(const struct matmul_device *d, const struct matmul *m,
                              struct few_tokens_wgmma_layout *out);

/* linear of two parts: of FP8 or INT4, which this kernel takes, and of a few rows of floats. */
linear_parts_function cuda_linear_parts;

#ifdef __cplusplus
}
#endif

#endif
