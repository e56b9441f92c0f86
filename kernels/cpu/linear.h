/* A matmul, its operands and its output: what linear.c and linear_quantized.c share (matmul.c). */
#ifndef QUIRE_KERNELS_CPU_LINEAR_H
#define QUIRE_KERNELS_CPU_LINEAR_H

#include "kernels/cpu/state.h"

enum {
    FEW_TOKENS = 64,     /* at once, where each weight is read once from memory */
    FEW_FEATURES = 64,   /* output features at once there, at most */
    FEW_BYTES = 1 << 15, /* of weights at once there, about: 2 to 4 microseconds */
    PIECE_FEATURES = 256 /* output features of a piece of a matmul of many tokens, at most */
};

struct matmul {
    const struct cpu_state *s;
    const struct linear_args *args;
    const struct weight *w;
    enum dtype w_dtype; /* float32 if w is quantized */
    struct cpu_matmul_plan plan;
    int64_t num_tokens, in_features, out_features;
};

/* Multiplications of so many tokens. */
static inline int64_t matmul_work(const struct matmul *m, int64_t num_tokens)
{
    return num_tokens * m->out_features * m->in_features;
}

/* Output features at once where there are few tokens, for rows of so many bytes: a multiple of `multiple`. */
static inline int64_t few_features_of(int64_t row_bytes, int64_t multiple)
{
    const int64_t count = FEW_BYTES / (row_bytes > 0 ? row_bytes : 1) / multiple * multiple;
    return count < multiple ? multiple : count > FEW_FEATURES ? FEW_FEATURES : count;
}

static inline const void *matmul_x(const struct matmul *m, int64_t token, int64_t start)
{
    return cpu_element(m->args->x, m->args->dtype, token * m->args->x_stride + start);
}

/* Input features of columns [start, start + count) of a token, as floats. */
void matmul_gather_x(const struct matmul *m, float *out, int64_t token, int64_t start, int64_t count);
/* Adds the bias to a token's sums of output features [first, first + count), count <= PIECE_FEATURES; matmul_finish
 * also writes them to out. */
void matmul_add_bias(const struct matmul *m, float *sums, int64_t first, int64_t count);
void matmul_finish(const struct matmul *m, int64_t token, int64_t first, float *sums, int64_t count);

/* Matmuls of the same x, whose weights are stored in the same way. Their output features are computed in one loop. */
struct matmul_parts {
    const struct matmul *m; /* [count] */
    int count;
};

/* A piece of a part: output features [first, first + count). */
struct few_piece {
    const struct matmul *m;
    int64_t first, count;
};

/* Multiplications of all parts. */
int64_t matmul_few_work(const struct matmul_parts *parts, int num_tokens);
/* How many pieces of so many output features all parts have. */
int64_t matmul_few_pieces(const struct matmul_parts *parts, int64_t features);
struct few_piece matmul_few_piece(const struct matmul_parts *parts, int64_t features, int64_t index);

/* linear_quantized.c. CPU_FEW_QUANTIZED of up to FEW_TOKENS tokens from `token` on. */
void matmul_few_quantized(const struct matmul_parts *parts, int64_t token, int count);
int64_t matmul_quantized_workspace(const struct cpu_state *s, int64_t in_features);

#endif
