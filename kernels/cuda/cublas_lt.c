#include "kernels/cuda/cublas_lt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cublas.h"
#include "kernels/cuda/library.h"

/* The part of cuBLASLt's interface that is used here, as of version 12. Version 12.9 has the scales of blocks, later
 * ones those of rows; what an older one does not know it refuses. */
typedef struct cublasLtContext *handle;
typedef struct opaque *descriptor;
enum { STATUS_SUCCESS = 0, STATUS_NOT_SUPPORTED = 15 };
enum { OP_N = 0, OP_T = 1 };
enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14, CUDA_R_8F_E4M3 = 28 };
enum { COMPUTE_32F = 68 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS_POINTER = 8 };
enum { DESC_A_SCALE_POINTER = 17, DESC_B_SCALE_POINTER = 18, DESC_FAST_ACCUM = 25, DESC_BIAS_DATA_TYPE = 26 };
enum { DESC_A_SCALE_MODE = 31, DESC_B_SCALE_MODE = 32 };
enum { SCALE_OUTER_VEC_32F = 3, SCALE_VEC128_32F = 4, SCALE_BLK128x128_32F = 5 };
enum { EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4 };
enum { PREF_MAX_WORKSPACE_BYTES = 1, PREF_MIN_ALIGNMENT_A_BYTES = 5, PREF_MIN_ALIGNMENT_D_BYTES = 8 };

struct algorithm {
    uint64_t data[8];
};

/* cublasLtMatmulHeuristicResult_t */
struct heuristic {
    struct algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

/* The algorithm of a shape; algorithms are found again by a hash. Numbers of tokens that are close to each other share
 * one, because the search takes longer than a step of a prompt's chunk may. */
struct choice {
    struct cublas_lt_matmul shape; /* its pointers are NULL, except `bias` where there is one */
    bool is_known, is_taken;
    struct algorithm algorithm;
};
enum { NUM_CHOICES = 512 };

struct cublas_lt {
    void *library;
    handle handle;
    struct choice choices[NUM_CHOICES];
    int (*create)(handle *);
    int (*destroy)(handle);
    int (*desc_create)(descriptor *, int, int);
    int (*desc_destroy)(descriptor);
    int (*desc_set)(descriptor, int, const void *, size_t);
    int (*layout_create)(descriptor *, int, uint64_t, uint64_t, int64_t);
    int (*layout_destroy)(descriptor);
    int (*preference_create)(descriptor *);
    int (*preference_destroy)(descriptor);
    int (*preference_set)(descriptor, int, const void *, size_t);
    int (*get_heuristic)(handle, descriptor, descriptor, descriptor, descriptor, descriptor, descriptor, int,
                         struct heuristic *, int *);
    int (*matmul)(handle, descriptor, const void *, const void *, descriptor, const void *, descriptor, const void *,
                  const void *, descriptor, void *, descriptor, const struct algorithm *, void *, size_t, void *);
};

static bool find_all(struct cublas_lt *lt)
{
    void *l = lt->library;
    return library_find(l, "cublasLtCreate", &lt->create) && library_find(l, "cublasLtDestroy", &lt->destroy) &&
           library_find(l, "cublasLtMatmulDescCreate", &lt->desc_create) &&
           library_find(l, "cublasLtMatmulDescDestroy", &lt->desc_destroy) &&
           library_find(l, "cublasLtMatmulDescSetAttribute", &lt->desc_set) &&
           library_find(l, "cublasLtMatrixLayoutCreate", &lt->layout_create) &&
           library_find(l, "cublasLtMatrixLayoutDestroy", &lt->layout_destroy) &&
           library_find(l, "cublasLtMatmulPreferenceCreate", &lt->preference_create) &&
           library_find(l, "cublasLtMatmulPreferenceDestroy", &lt->preference_destroy) &&
           library_find(l, "cublasLtMatmulPreferenceSetAttribute", &lt->preference_set) &&
           library_find(l, "cublasLtMatmulAlgoGetHeuristic", &lt->get_heuristic) &&
           library_find(l, "cublasLtMatmul", &lt->matmul);
}

static bool open_library(struct cublas_lt *lt)
{
    lt->library = library_open("libcublasLt");
    return lt->library && find_all(lt) && lt->create(&lt->handle) == STATUS_SUCCESS;
}

struct cublas_lt *cublas_lt_open(void)
{
    struct cublas_lt *lt = calloc(1, sizeof *lt);
    if (!lt || open_library(lt)) return lt;
    lt->handle = NULL;
    cublas_lt_close(lt);
    return NULL;
}

void cublas_lt_close(struct cublas_lt *lt)
{
    if (!lt) return;
    if (lt->handle) lt->destroy(lt->handle);
    if (lt->library) dlclose(lt->library);
    free(lt);
}

/* A matmul as cuBLASLt describes it. Its matrices are column-major, so it sees each of ours transposed: out'
 * [out_features, num_tokens] = weight x'. A is the weight, B is x, D is out. */
struct description {
    descriptor operation, a, b, d;
};

static int set_int(struct cublas_lt *lt, descriptor operation, int attribute, int32_t value)
{
    return lt->desc_set(operation, attribute, &value, sizeof value);
}

static int set_pointer(struct cublas_lt *lt, descriptor operation, int attribute, const void *value)
{
    return lt->desc_set(operation, attribute, &value, sizeof value);
}

static int type_of(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT16 ? CUDA_R_16F : CUDA_R_16BF;
}

static int describe_scales(struct cublas_lt *lt, const struct cublas_lt_matmul *m, descriptor o)
{
    const bool blocks = m->scaling == CUBLAS_LT_BLOCKS;
    if (m->scaling == CUBLAS_LT_SCALAR) return STATUS_SUCCESS;
    int result = set_int(lt, o, DESC_A_SCALE_MODE, blocks ? SCALE_BLK128x128_32F : SCALE_OUTER_VEC_32F);
    if (!result) result = set_int(lt, o, DESC_B_SCALE_MODE, blocks ? SCALE_VEC128_32F : SCALE_OUTER_VEC_32F);
    if (!result) result = set_pointer(lt, o, DESC_A_SCALE_POINTER, m->weight_scales);
    return result ? result : set_pointer(lt, o, DESC_B_SCALE_POINTER, m->x_scales);
}

/* FAST_ACCUM keeps sums with 14 bits, whose error is far below that of 8-bit operands. With the scales of blocks there
 * is no such kernel. */
static int describe_operation(struct cublas_lt *lt, const struct cublas_lt_matmul *m, descriptor o)
{
    const int8_t fast = m->scaling != CUBLAS_LT_BLOCKS;
    int result = set_int(lt, o, DESC_TRANSA, OP_T);
    if (!result) result = set_int(lt, o, DESC_TRANSB, OP_N);
    if (!result) result = lt->desc_set(o, DESC_FAST_ACCUM, &fast, sizeof fast);
    if (!result) result = describe_scales(lt, m, o);
    if (result || !m->bias) return result;
    result = set_int(lt, o, DESC_EPILOGUE, EPILOGUE_BIAS);
    if (!result) result = set_int(lt, o, DESC_BIAS_DATA_TYPE, type_of(m->dtype));
    return result ? result : set_pointer(lt, o, DESC_BIAS_POINTER, m->bias);
}

static int describe(struct cublas_lt *lt, const struct cublas_lt_matmul *m, struct description *out)
{
    const uint64_t in = (uint64_t)m->in_features, features = (uint64_t)m->out_features,
                   tokens = (uint64_t)m->num_tokens;
    *out = (struct description){NULL};
    int result = lt->desc_create(&out->operation, COMPUTE_32F, CUDA_R_32F);
    if (!result) result = describe_operation(lt, m, out->operation);
    if (!result) result = lt->layout_create(&out->a, CUDA_R_8F_E4M3, in, features, m->in_features);
    if (!result) result = lt->layout_create(&out->b, CUDA_R_8F_E4M3, in, tokens, m->in_features);
    return result ? result : lt->layout_create(&out->d, type_of(m->dtype), features, tokens, m->out_stride);
}

static void free_description(struct cublas_lt *lt, const struct description *d)
{
    if (d->operation) lt->desc_destroy(d->operation);
    if (d->a) lt->layout_destroy(d->a);
    if (d->b) lt->layout_destroy(d->b);
    if (d->d) lt->layout_destroy(d->d);
}

/* The first of the library's own list. */
static int choose(struct cublas_lt *lt, const struct description *d, struct heuristic *out)
{
    const uint64_t workspace = CUBLAS_WORKSPACE_BYTES;
    const uint32_t alignment = 16;
    descriptor preference = NULL;
    int count = 0, result = lt->preference_create(&preference);
    if (!result) result = lt->preference_set(preference, PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    for (int operand = PREF_MIN_ALIGNMENT_A_BYTES; operand <= PREF_MIN_ALIGNMENT_D_BYTES && !result; operand++)
        result = lt->preference_set(preference, operand, &alignment, sizeof alignment);
    if (!result)
        result = lt->get_heuristic(lt->handle, d->operation, d->a, d->b, d->d, d->d, preference, 1, out, &count);
    if (preference) lt->preference_destroy(preference);
    return result ? result : count > 0 ? out->state : STATUS_NOT_SUPPORTED;
}

static bool same_shape(const struct cublas_lt_matmul *a, const struct cublas_lt_matmul *b)
{
    return a->scaling == b->scaling && a->num_tokens == b->num_tokens && a->out_features == b->out_features &&
           a->in_features == b->in_features && a->out_stride == b->out_stride && a->dtype == b->dtype &&
           !a->bias == !b->bias;
}

static int64_t rounded_tokens(int64_t num_tokens)
{
    const int64_t step = num_tokens < 512 ? 16 : 128;
    return (num_tokens + step - 1) / step * step;
}

static struct choice *choice_of(struct cublas_lt *lt, const struct cublas_lt_matmul *matmul)
{
    struct cublas_lt_matmul rounded = *matmul, *m = &rounded;
    rounded.num_tokens = rounded_tokens(matmul->num_tokens);
    const uint64_t key = (uint64_t)m->num_tokens * 0x9e3779b97f4a7c15 + (uint64_t)m->out_features * 0xc2b2ae3d27d4eb4f +
                         (uint64_t)m->in_features * 0x165667b19e3779f9 + (uint64_t)m->scaling * 0x27d4eb2f165667c5;
    struct choice *c = &lt->choices[(key >> 40) % NUM_CHOICES];
    if (c->is_known && same_shape(&c->shape, m)) return c;
    struct heuristic best;
    struct description d;
    *c = (struct choice){.is_known = true, .shape = *m};
    c->is_taken = describe(lt, m, &d) == STATUS_SUCCESS && choose(lt, &d, &best) == STATUS_SUCCESS;
    if (c->is_taken) c->algorithm = best.algorithm;
    free_description(lt, &d);
    return c;
}

bool cublas_lt_takes(struct cublas_lt *lt, const struct cublas_lt_matmul *m)
{
    return lt && choice_of(lt, m)->is_taken;
}

static int start(struct cublas_lt *lt, const struct cublas_lt_matmul *m, const struct description *d,
                 const struct algorithm *algorithm, void *workspace, void *stream)
{
    const float scale = m->scaling == CUBLAS_LT_SCALAR ? m->scale : 1, zero = 0;
    return lt->matmul(lt->handle, d->operation, &scale, m->weight, d->a, m->x, d->b, &zero, m->out, d->d, m->out, d->d,
                      algorithm, workspace, workspace ? CUBLAS_WORKSPACE_BYTES : 0, stream);
}

/* An algorithm that was found for some more tokens and is refused for this number is searched again. */
int cublas_lt_run(struct cublas_lt *lt, const struct cublas_lt_matmul *m, void *workspace, void *stream)
{
    const struct choice *c = choice_of(lt, m);
    struct description d;
    struct heuristic exact;
    if (!c->is_taken) return STATUS_NOT_SUPPORTED;
    int result = describe(lt, m, &d);
    if (!result) result = start(lt, m, &d, &c->algorithm, workspace, stream);
    if (result && choose(lt, &d, &exact) == STATUS_SUCCESS)
        result = start(lt, m, &d, &exact.algorithm, workspace, stream);
    free_description(lt, &d);
    return result;
}
