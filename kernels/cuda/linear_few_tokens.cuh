/* The kernel behind linear for few tokens and behind the fused operations of a decode step (decode_fused.cu): what one
 * call of it computes, and how it is cut up. */
#ifndef QUIRE_KERNELS_CUDA_LINEAR_FEW_ROWS_CUH
#define QUIRE_KERNELS_CUDA_LINEAR_FEW_ROWS_CUH

#include "kernels/cuda/state.cuh"

enum { FEW_ROWS_MAX_TOKENS = 16, FEW_ROWS_TILE = 16, FEW_ROWS_BEST_TOKENS = 8, FEW_ROWS_BEST_ELEMENTS = 20480 };

enum few_rows_result {
    FEW_ROWS_STORE, /* out = y */
    FEW_ROWS_ADD,   /* out += y, y rounded to dtype before and the sum after */
    FEW_ROWS_GATE   /* out[t][i] = silu(y[t][i]) * y[t][rows / 2 + i], both rounded to dtype before */
};

/* y[t][r] = sum_c z[t][c] * w[r][c] (+ bias[r]); z = x, or rms_norm(x) * gain where there is a gain. */
struct few_rows_product {
    const void *weights; /* [rows, columns] dtype */
    const void *bias;    /* [rows] dtype, or NULL */
    int64_t rows, columns;
    const void *x; /* [num_tokens, columns] dtype */
    int64_t x_stride;
    int32_t num_tokens;
    enum dtype dtype; /* float16 or bfloat16 */
    const void *gain; /* [columns], or NULL */
    bool gain_is_float;
    float eps;
    void *out;
    int64_t out_stride;
    bool out_is_float; /* out is float32, else of dtype; for FEW_ROWS_STORE only */
    enum few_rows_result result;
};

/* A product of the weight w with x, without a norm; out is to be set. */
static inline struct few_rows_product few_rows_product_of(const void *x, int64_t x_stride, enum dtype dtype,
                                                          int32_t num_tokens, const struct weight *w,
                                                          enum few_rows_result result)
{
    struct few_rows_product p = {};
    p.weights = w->data;
    p.bias = w->bias;
    p.rows = w->out_features;
    p.columns = w->in_features;
    p.x = x;
    p.x_stride = x_stride;
    p.num_tokens = num_tokens;
    p.dtype = dtype;
    p.result = result;
    return p;
}

/* Whether this kernel is the fastest for it, where there is linear_wgmma too: the tokens of a block are all in shared
 * memory, and wide ones leave the weights too little of it. Both operands' width counts, so that the products of a
 * layer are computed alike. */
static inline bool few_rows_is_best(const struct few_rows_product *p)
{
    const int64_t width = p->rows < p->columns ? p->rows : p->columns;
    return p->num_tokens <= FEW_ROWS_BEST_TOKENS && p->num_tokens * width <= FEW_ROWS_BEST_ELEMENTS;
}

/* An element of FEW_ROWS_GATE. */
template <class T> static __device__ __forceinline__ float gate_times_up(float gate, float up)
{
    const float x = to_float(from_float<T>(gate));
    return __fdividef(x, 1.0f + __expf(-x)) * to_float(from_float<T>(up));
}

/* How a product is cut up, a function of its shape and of the device. The weights are taken in tiles of 16 rows, tiles
 * in `splits` parts along their columns, parts in chunks; a chunk of a tile is one stage of the ring. */
struct few_rows_plan {
    int32_t blocks; /* a multiple of splits */
    int32_t splits;
    int32_t part;  /* columns of a part; a multiple of chunk */
    int32_t chunk; /* columns of a chunk; a multiple of 256 */
    int32_t stages;
    int32_t ahead;   /* chunks under way at once; at most stages */
    int32_t cluster; /* blocks that bring x together: 1 or 2 */
    int32_t x_bytes, shared_bytes;
};

/* False if the kernel cannot compute it: on this device, with these sizes and alignments. */
bool few_rows_plan(const struct cuda_state *s, const struct few_rows_product *p, struct few_rows_plan *out);

void few_rows_launch(struct backend *b, const char *operation, const struct few_rows_product *p,
                     const struct few_rows_plan *plan, cudaStream_t stream);

#endif
