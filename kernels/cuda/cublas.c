#include "kernels/cuda/cublas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/library.h"

/* The part of cuBLAS's interface that is used here. Its names and numbers have not changed since version 11. */
typedef struct cublasContext *handle;
enum { STATUS_SUCCESS = 0 };
enum { OP_N = 0, OP_T = 1 };
enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum { COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69 };
enum { GEMM_DEFAULT = -1 };
enum { MATH_DEFAULT = 0, MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };

struct cublas {
    void *library;
    handle handle;
    void *stream; /* the handle's current stream */
    void *workspace;
    size_t workspace_bytes;
    int (*create)(handle *);
    int (*destroy)(handle);
    int (*set_stream)(handle, void *);
    int (*set_workspace)(handle, void *, size_t);
    int (*set_math_mode)(handle, int);
    int (*gemm)(handle, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                const void *, void *, int, int, int, int);
    int (*gemm_batch)(handle, int, int, int, int, int, const void *, const void *, int, int, long long, const void *,
                      int, int, long long, const void *, void *, int, int, long long, int, int, int);
    const char *(*status_string)(int);
};

static bool find_all(struct cublas *c)
{
    void *l = c->library;
    return library_find(l, "cublasCreate_v2", &c->create) && library_find(l, "cublasDestroy_v2", &c->destroy) &&
           library_find(l, "cublasSetStream_v2", &c->set_stream) &&
           library_find(l, "cublasSetWorkspace_v2", &c->set_workspace) &&
           library_find(l, "cublasSetMathMode", &c->set_math_mode) && library_find(l, "cublasGemmEx", &c->gemm) &&
           library_find(l, "cublasGemmStridedBatchedEx", &c->gemm_batch) &&
           library_find(l, "cublasGetStatusString", &c->status_string);
}

/* The math mode keeps partial sums in float32 until they are added up. */
static int make_handle(struct cublas *c)
{
    int result = c->create(&c->handle);
    if (result != STATUS_SUCCESS) {
        c->handle = NULL;
        return result;
    }
    return c->set_math_mode(c->handle, MATH_DEFAULT | MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
}

static void release(struct cublas *c)
{
    if (c->handle) c->destroy(c->handle);
    if (c->library) dlclose(c->library);
    memset(c, 0, sizeof *c);
}

/* Tries one file name. On failure *err says what is wrong with the library. */
static enum status try_library(struct cublas *c, const char *name, struct error *err)
{
    c->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!c->library) return error_set(err, STATUS_UNSUPPORTED, "%s", dlerror());
    if (!find_all(c)) {
        release(c);
        return error_set(err, STATUS_UNSUPPORTED, "%s lacks functions that are needed: it is too old", name);
    }
    int result = make_handle(c);
    if (result == STATUS_SUCCESS) return STATUS_OK;
    error_set(err, STATUS_UNSUPPORTED, "%s does not work with this GPU and driver: %s", name, c->status_string(result));
    release(c);
    return STATUS_UNSUPPORTED;
}

void *cublas_preload(void *unused)
{
    (void)unused;
    library_open("libcublas"); /* never closed: it stays loaded until the process ends */
    return NULL;
}

enum status cublas_open(struct cublas **out, struct error *err)
{
    struct error found = {""}, attempt;
    *out = NULL;
    struct cublas *c = calloc(1, sizeof *c);
    if (!c) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    for (int i = 0; i < LIBRARY_PLACES; i++) {
        if (try_library(c, library_path("libcublas", i).text, &attempt) == STATUS_OK) {
            *out = c;
            return STATUS_OK;
        }
        /* Report a library that exists but does not work rather than one that does not exist. */
        if (!found.text[0] || !strstr(attempt.text, "cannot open shared object file")) found = attempt;
    }
    free(c);
    return error_set(err, STATUS_UNSUPPORTED,
                     "cuBLAS is needed, but libcublas.so.13 or .12 cannot be used (%s): install NVIDIA's package "
                     "libcublas-13-0 or libcublas-12-8, or put its folder into LD_LIBRARY_PATH",
                     found.text);
}

void cublas_close(struct cublas *c)
{
    if (!c) return;
    release(c);
    free(c);
}

void cublas_set_workspace(struct cublas *c, void *workspace, int64_t bytes)
{
    c->workspace = workspace;
    c->workspace_bytes = (size_t)bytes;
    c->stream = NULL; /* so that the next matmul calls use_stream */
}

/* Setting a stream resets the handle's workspace, so both are set together, and only when the stream changes. */
static int use_stream(struct cublas *c, void *stream)
{
    if (stream == c->stream) return STATUS_SUCCESS;
    int result = c->set_stream(c->handle, stream);
    if (result == STATUS_SUCCESS && c->workspace)
        result = c->set_workspace(c->handle, c->workspace, c->workspace_bytes);
    c->stream = result == STATUS_SUCCESS ? stream : NULL;
    return result;
}

static int type_of(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT32 ? CUDA_R_32F : dtype == DTYPE_FLOAT16 ? CUDA_R_16F : CUDA_R_16BF;
}

static int compute_type(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT32 ? COMPUTE_32F_PEDANTIC : COMPUTE_32F;
}

const char *cublas_run(struct cublas *c, const struct cublas_matmul *m, void *stream)
{
    const float one = 1, keep = m->add ? 1 : 0;
    int type = type_of(m->dtype), compute = compute_type(m->dtype);
    int result = use_stream(c, stream);
    /* cuBLAS's matrices are column-major, so it sees each of ours transposed: out' [out_features, num_tokens] =
     * weight x'. */
    if (result == STATUS_SUCCESS)
        result = c->gemm(c->handle, OP_T, OP_N, (int)m->out_features, (int)m->num_tokens, (int)m->in_features, &one,
                         m->weight, type, (int)m->in_features, m->x, type, (int)m->x_stride, &keep, m->out,
                         type_of(m->out_dtype), (int)m->out_stride, compute, GEMM_DEFAULT);
    return result == STATUS_SUCCESS ? NULL : c->status_string(result);
}

const char *cublas_run_batch(struct cublas *c, const struct cublas_matmul *m, const struct cublas_batch *batch,
                             void *stream)
{
    const float one = 1, keep = m->add ? 1 : 0;
    const int type = type_of(m->dtype), weight_row = (int)(batch->transposed ? m->out_features : m->in_features);
    int result = use_stream(c, stream);
    if (result == STATUS_SUCCESS)
        result =
            c->gemm_batch(c->handle, batch->transposed ? OP_N : OP_T, OP_N, (int)m->out_features, (int)m->num_tokens,
                          (int)m->in_features, &one, m->weight, type, weight_row, batch->weight_stride, m->x, type,
                          (int)m->x_stride, batch->x_stride, &keep, m->out, type_of(m->out_dtype), (int)m->out_stride,
                          batch->out_stride, batch->count, compute_type(m->dtype), GEMM_DEFAULT);
    return result == STATUS_SUCCESS ? NULL : c->status_string(result);
}
