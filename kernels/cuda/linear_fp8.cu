/* Matmuls of quantized rows by a weight in FP8 (W8A8), by cuBLASLt. */
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantize.cuh"

/* Up to so many tokens the weights are decoded, and x keeps its 16 bits, in as little time. */
enum { MAX_FEW_TOKENS = 64 };

/* What cuBLASLt is asked about; out, x and its scales are missing. False: none of its matmuls. */
static bool describe(const struct weight *w, int32_t num_tokens, enum dtype dtype, int64_t out_stride,
                     struct cublas_lt_matmul *m)
{
    const bool rows = w->scale_rows == 1 && w->group_size == w->in_features;
    const bool blocks = w->scale_rows == QUANTIZE_GROUP && w->group_size == QUANTIZE_GROUP &&
                        w->in_features % (4 * QUANTIZE_GROUP) == 0; /* rows of scales are aligned to 16 bytes */
    *m = {};
    m->scaling = blocks ? CUBLAS_LT_BLOCKS : CUBLAS_LT_ROWS;
    m->num_tokens = blocks ? quantized_rows_padded(num_tokens) : num_tokens;
    m->out_features = w->out_features;
    m->in_features = w->in_features;
    m->out_stride = out_stride;
    m->dtype = dtype;
    m->weight = w->data;
    m->weight_scales = m->x_scales = (const float *)w->scales;
    m->bias = w->bias;
    return w->format == WEIGHT_FP8 && (rows || blocks) && !w->input_order && w->scale_dtype == DTYPE_FLOAT32 &&
           (dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16) && (!w->bias || w->bias_dtype == dtype) &&
           w->in_features % 16 == 0 && w->out_features % 16 == 0 && cuda_is_aligned(w->data) &&
           cuda_is_aligned(w->scales);
}

bool cuda_takes_quantized_rows(struct backend *b, const struct weight *w, int32_t num_tokens, enum dtype dtype)
{
    struct cublas_lt_matmul m;
    return w->quantize_x && num_tokens > MAX_FEW_TOKENS && describe(w, num_tokens, dtype, w->out_features, &m) &&
           cublas_lt_takes(cuda_state(b)->cublas_lt, &m);
}

void cuda_linear_quantized_rows(struct backend *b, const struct linear_args *args)
{
    const struct weight *w = args->weight;
    const struct cuda_state *s = cuda_use(b);
    struct cublas_lt_matmul m;
    int status = -1;
    if (args->out_dtype == args->dtype && cuda_is_aligned(args->out) && s->cublas_lt &&
        describe(w, args->num_tokens, args->dtype, args->out_stride, &m)) {
        m.out = args->out;
        m.x = args->quantized_x->data;
        m.x_scales = args->quantized_x->scales;
        status = cublas_lt_run(s->cublas_lt, &m, s->regions[CUDA_USER_CUBLAS].data, s->stream);
    }
    if (status)
        cuda_fail(b, "linear failed on %s: cuBLASLt's status is %d for %d quantized tokens, %lld x %lld weights",
                  b->name, status, args->num_tokens, (long long)w->out_features, (long long)w->in_features);
    cuda_check_launch(b, "linear");
}
