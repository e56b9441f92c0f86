#include <limits.h>

#include "kernels/cpu/kernels.h"

#if QUIRE_X86

#include "kernels/cpu/vector.h"

#include "kernels/cpu/vector_quantized.h"

const struct cpu_quantized_kernels cpu_quantized_avx2 = {
    .lanes = LANES,
    .dequantize = dequantize,
    .round_x = round_x,
    .dot = dot_quantized,
    .few_fp8 = 27,
    .few_int8 = INT_MAX,
    .few_int4 = INT_MAX,
};

#endif
