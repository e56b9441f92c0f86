#include <assert.h>

#include "kernels/backend.h"

static const enum dtype element_types[] = {
    [WEIGHT_FLOAT32] = DTYPE_FLOAT32,
    [WEIGHT_FLOAT16] = DTYPE_FLOAT16,
    [WEIGHT_BFLOAT16] = DTYPE_BFLOAT16,
};

enum dtype weight_dtype(const struct weight *w)
{
    return element_types[w->format];
}

enum weight_format weight_format_of(enum dtype dtype)
{
    assert(dtype_size(dtype) > 1);
    return dtype == DTYPE_FLOAT32 ? WEIGHT_FLOAT32 : dtype == DTYPE_FLOAT16 ? WEIGHT_FLOAT16 : WEIGHT_BFLOAT16;
}

int64_t weight_bytes(const struct weight *w)
{
    return w->out_features * w->in_features * dtype_size(weight_dtype(w));
}
