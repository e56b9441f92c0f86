#include "kernels/cpu/kernels.h"

#if QUIRE_X86

#include "kernels/cpu/vector.h"

#define TILE_MORE_TOKENS 1
static const struct cpu_kernels *const narrower = &cpu_kernels_avx2;

#include "kernels/cpu/vector_attention.h"
#include "kernels/cpu/vector_linear.h"

const struct cpu_kernels cpu_kernels_avx512 = {
    .to_float = to_float,
    .from_float = from_float,
    .sum_squares = sum_squares,
    .scale = scale,
    .silu_and_mul = silu_and_mul,
    .gelu_tanh_and_mul = gelu_tanh_and_mul,
    .rotate = rotate,
    .maximum = maximum,
    .exponentials = exponentials,
    .dot = dot_all,
    .tile_tokens = TILE_TOKENS,
    .tile_features = 2 * LANES,
    .few_tokens = 32,
    .pack = pack,
    .tile = tile,
    .scores = scores,
    .weighted_values = weighted_values,
};

#endif
