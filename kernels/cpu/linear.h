/* A matmul, its operands and its output: what linear.c and linear_quantized.c share (matmul.c). */
#ifndef QUIRE_KERNELS_CPU_LINEAR_H
#define QUIRE_KERNELS_CPU_LINEAR_H

#include "kernels/cpu/state.h"

enum {
    FEW_TOKENS = 64,     /* at once, where each weight is read once from memory */
    FEW_FEATURES = 64,   /* output features at once there, at most */
    FEW_PIECE = 16,      /* a multiple of what any kernel of few tokens takes at once */
    FEW_BYTES = 1 << 15, /* of weights at once there, about: 2 to 4 microseconds */
    PIECE_FEATURES = 256 /* output features of a piece of a matmul of many tokens, at most */
};

/* The up of a gated MLP, whose gate is the matmul's weight: the output features of w from `first` on. */
struct matmul_up {
    const struct weight *w;
    int64_t first;
};

struct matmul {
    const struct cpu_state *s;
    const struct linear_args *args;
    const struct weight *w;
    enum dtype w_dtype; /* float32 if w is quantized */
    struct cpu_matmul_plan plan;
    int64_t num_tokens, in_features, out_features;
    /* Of an expert: */
    const int32_t *tokens;               /* token t of the matmul is row tokens[t] of x; NULL: row t */
    const struct expert_plan *x_weights; /* x is multiplied by them, and rounded to dtype; NULL: it is not */
    int32_t top_k;                       /* of x_weights */
    const struct matmul_up *up;          /* NULL: none */
    const struct gate_params *gate;      /* out = gate(x * W^T, x * up^T), or without up gate(x * W^T); NULL: x * W^T */
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
    const int64_t row = m->tokens ? m->tokens[token] : token;
    return cpu_element(m->args->x, m->args->dtype, row * m->args->x_stride + start);
}

/* Input features of columns [start, start + count) of a token, as floats. */
void matmul_gather_x(const struct matmul *m, float *out, int64_t token, int64_t start, int64_t count);
/* Adds the bias of w to a token's sums of its output features [first, first + count), count <= PIECE_FEATURES. */
void matmul_add_bias(const struct matmul *m, const struct weight *w, float *sums, int64_t first, int64_t count);
/* Adds the bias, and writes the result to out. ups: the sums of m->up, if there is one. */
void matmul_finish(const struct matmul *m, int64_t token, int64_t first, float *sums, float *ups, int64_t count);

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

/* Some tokens as the kernels of few tokens read them, in the workspace: as floats or, for CPU_FEW_QUANTIZED, as
 * linear_quantized.c says. */
struct few_x {
    const struct matmul *m; /* what is said of x and of groups holds for every matmul of it */
    const struct cpu_quantized_kernels *kernels;
    int64_t x_bytes, groups, scale_stride;
    uint8_t *x;     /* [count] of x_bytes */
    float *sums;    /* [count, groups] of x over the weight's groups; only if it has zeros */
    float *scratch; /* of the threads */
    int count;
};

/* How many tokens the workspace has room for, and the places of so many. */
int64_t matmul_few_x_room(const struct matmul *m);
struct few_x matmul_few_x(const struct matmul *m, int count);
struct few_x matmul_few_x_part(const struct few_x *x, int64_t first, int count);
/* Makes `token` of m the one with this index in x. */
void matmul_few_x_set(const struct few_x *x, const struct matmul *m, int64_t index, int64_t token, int thread);
/* sums[t * FEW_FEATURES + i] = x[t] * output feature first + i of w, i < count <= FEW_FEATURES, for up to FEW_TOKENS
 * tokens. kernel: that of the plan for w. */
void matmul_few_sums(const struct few_x *x, const struct weight *w, enum cpu_few_kernel kernel, float *sums,
                     int64_t first, int64_t count, int thread);

/* linear_quantized.c. CPU_FEW_QUANTIZED of up to FEW_TOKENS tokens from `token` on. */
void matmul_few_quantized(const struct matmul_parts *parts, int64_t token, int count);
int64_t matmul_quantized_workspace(const struct cpu_state *s, int64_t in_features);
/* The same as those without "quantized" above. */
int64_t matmul_quantized_x_room(const struct matmul *m);
struct few_x matmul_quantized_x(const struct matmul *m, int count);
void matmul_quantized_x_set(const struct few_x *x, const struct matmul *m, int64_t index, int64_t token, int thread);
void matmul_quantized_sums(const struct few_x *x, const struct weight *w, float *sums, int64_t first, int64_t count,
                           int thread);

/* linear.c. Many tokens: [token, token + num_tokens) against all weights. */
struct stretch {
    const struct matmul *m;
    int64_t token, num_tokens;
    int64_t across, down;         /* pieces that cover the output features, and the strips */
    int64_t strips, strip_tokens; /* x is cut into strips of equal height, at most tile_tokens */
    int64_t piece_features;       /* of a piece: a multiple of tile_features, */
    int64_t piece_strips;         /* by so many strips */
    uint8_t *packed;              /* x: for each DEPTH input features, [strips] of tile_tokens * x_bytes() */
    uint8_t *scratch;             /* [threads] of thread_bytes() */
};

/* Where packed x begins in the workspace, how many bytes of it a stretch of so many tokens takes, and the longest
 * stretch that there is room for; 0: for none. */
uint8_t *matmul_packed(const struct cpu_state *s);
int64_t matmul_packed_bytes(const struct matmul *m, int64_t num_tokens);
int64_t matmul_longest_stretch(const struct matmul *m);
/* Divides the stretch into about `wanted` pieces or fewer. */
void matmul_choose_pieces(struct stretch *stretch, int64_t wanted);
void matmul_pack_strip(const struct stretch *stretch, int64_t strip);
/* Piece `index` of across * down. */
void matmul_compute_piece(const struct stretch *stretch, int64_t index, int thread);

#endif
