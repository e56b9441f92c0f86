/* The cases of `quire bench kernels`, each one operation at the sizes of a model; and for device.c where the operands
 * of a case lie, what they hold, and how the operation is called. */
#ifndef QUIRE_RUNTIME_BENCH_PLAN_H
#define QUIRE_RUNTIME_BENCH_PLAN_H

#include "kernels/backend.h"

/* How the matrices of layers are quantized; others are floats, and so are those that groups do not divide. */
struct bench_quantization {
    enum weight_format format; /* not FP8, INT8 or INT4: they are floats, too */
    enum dtype scale_dtype;
    int32_t scale_rows, group_size; /* as in struct weight; group_size 0: all input features */
    bool has_zeros, quantize_x;
};

/* The sizes of a model that the shapes of its kernels follow from. */
struct bench_sizes {
    int32_t hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_size, vocab_size, block_size;
    enum dtype weights, activations, cache;
    struct bench_quantization quantization;
    struct router_params router;       /* num_experts 0: there are no experts */
    int32_t expert_size, expert_width; /* expert_width: what experts read and make */
    struct gate_params expert_gate;
    struct bench_quantization expert_quantization;
    struct recurrence_params recurrence; /* without pointers; num_v_heads 0: no layer is recurrent */
    int32_t conv_width;                  /* of a recurrent layer's short convolution */
    struct gated_norm_args gated_norm; /* of its result: gain_size, group_size, eps, gate_first, sigmoid, round_norm */
    int32_t latent_heads, latent_rank, latent_rope, latent_nope; /* latent_heads 0: no layer has latent attention */
};

enum bench_operation {
    BENCH_LINEAR,
    BENCH_RMS_NORM,
    BENCH_FUSED_ADD_RMS_NORM,
    BENCH_ROTARY_EMBEDDING,
    BENCH_RESHAPE_AND_CACHE,
    BENCH_ACT_AND_MUL,
    BENCH_PAGED_ATTENTION,         /* decode: one query token a sequence, through v1 or v2 as the model does */
    BENCH_PAGED_ATTENTION_PREFILL, /* one sequence, all of its tokens are queries */
    BENCH_COPY_BLOCKS,             /* in every layer's K and V */
    BENCH_SWAP_BLOCKS,             /* of every layer's K and V */
    BENCH_SAMPLE,
    BENCH_ROUTE_EXPERTS,
    BENCH_EXPERTS_GATE_UP,
    BENCH_EXPERTS_DOWN,
    BENCH_SHORT_CONV,
    BENCH_RECURRENCE,
    BENCH_HEADS_LINEAR,             /* to the queries of latent attention */
    BENCH_LATENT_ATTENTION,         /* decode */
    BENCH_LATENT_ATTENTION_PREFILL, /* one sequence, all of its tokens are queries */
    BENCH_ALL_REDUCE,               /* from here on: of all ranks. This one by the group's kernels */
    BENCH_NCCL_ALL_REDUCE,          /* by NCCL */
    BENCH_ALL_REDUCE_ADD_NORM,      /* optional */
    BENCH_NORM_LINEAR,              /* from here on: optional operations of one rank */
    BENCH_LINEAR_RESIDUAL,
    BENCH_GATE_UP,
    BENCH_DECODE_ATTENTION,
    BENCH_DECODE_RECURRENCE,
    BENCH_NUM_OPERATIONS
};
const char *bench_operation_name(enum bench_operation operation); /* its name in backend.h, if it is there */

/* One call of one operation. */
struct bench_case {
    enum bench_operation operation;
    int32_t count;   /* tokens; of decode and sample: entries of the batch; of copy_blocks and swap_blocks: blocks */
    int32_t context; /* decode: tokens of each sequence */
    int32_t run_len; /* decode: entries of each sequence; 0: 1 */
    int64_t out_features, in_features; /* matmuls: the weight's, or each expert's. The output of linear is float32 if
                                          out_features is vocab_size */
    bool same_experts;                 /* experts_gate_up and experts_down: all tokens go to the same; else evenly */
    bool prompt;                       /* short_conv and recurrence: all tokens are one sequence's; else one each */
    bool top_p;                        /* sample: with a temperature and top_p 0.9; else greedy */
    bool swap_in;                      /* swap_blocks: from the host to the device; else out */
};

enum { PLAN_MAX_PARTS = 10, PLAN_MAX_SWAPS = 64 /* blocks of a call of swap_blocks */ };

/* Where the operands lie, in bytes from the start of a set or of the fixed operands. A set is filled with small random
 * numbers; calls take turns on several sets. Operands that must hold certain values (positions, block tables) are
 * fixed: there is one copy of them.
 *
 *   memory pool   | part 0 | part 1 | ... | part 0 | part 1 | ... |      fixed   | fixed 0 | fixed 1 | ...
 *                 |<----- set 0 ------->|<----- set 1 ------->|
 */
struct bench_plan {
    int64_t parts[PLAN_MAX_PARTS], fixed[PLAN_MAX_PARTS]; /* offsets in bytes */
    int num_parts, num_fixed;
    int kv_scales; /* the number of the fixed operand */
    int64_t set_bytes, fixed_bytes;
    int64_t host_bytes; /* of pinned host memory; one copy for all sets, since the link is slower than any cache */
    double bytes, link_bytes, operations; /* as in struct bench_time (device.h) */
};

/* One call: the case, and the set of operands that it works on. */
struct bench_call {
    const struct bench_sizes *sizes;
    const struct bench_case *c;
    const struct bench_plan *plan;
    int64_t number;       /* of the calls of a case, from 0 on */
    uint8_t *set, *fixed; /* on the device */
    uint8_t *host;        /* pinned */
};

/* The weight of a matmul, without data, scales and zeros. */
struct weight bench_plan_weight(const struct bench_sizes *sizes, const struct bench_case *c);

void bench_plan_make(const struct bench_sizes *sizes, const struct bench_case *c, struct bench_plan *plan);
/* Writes the fixed operands to host memory [plan->fixed_bytes], which is zeroed. */
void bench_plan_write(const struct bench_sizes *sizes, const struct bench_case *c, const struct bench_plan *plan,
                      uint8_t *fixed);
bool bench_plan_is_of_experts(enum bench_operation operation);          /* one of the three */
bool bench_plan_is_of_ranks(enum bench_operation operation);            /* one of the three */
bool bench_plan_call(struct backend *b, const struct bench_call *call); /* false: the backend does not do this */

#endif
