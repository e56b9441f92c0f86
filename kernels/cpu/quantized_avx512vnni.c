#include "kernels/cpu/kernels.h"

#if QUIRE_X86

#include "kernels/cpu/vector.h"

#include "kernels/cpu/vector_tiles.h"

const struct cpu_quantized_kernels cpu_quantized_avx512vnni = {
    .lanes = LANES,
    .dequantize = dequantize,
    .round_x = round_x,
    .dot = dot_quantized,
    .few_fp8 = 16,
    .few_int8 = 16,
    .few_int4 = 16,
    .tile_tokens = BYTE_TILE_TOKENS,
    .tile_features = BYTE_TILE_FEATURES,
    .pack_x = pack_x,
    .pack_w = pack_w,
    .tile = byte_tile,
};

#endif
