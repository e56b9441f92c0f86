#include "kernels/cpu/plan.h"

#include <limits.h>
#include <stddef.h>

static const struct cpu_tables tables[CPU_ISA_COUNT] = {
    [CPU_SCALAR] = {.kernels = &cpu_kernels_scalar, .few_floats = 64},
#if QUIRE_X86
    [CPU_AVX2] = {.kernels = &cpu_kernels_avx2,
                  .quantized = &cpu_quantized_avx2,
                  .tiles = {[CPU_TILES_FLOAT] = &cpu_tiles_avx2},
                  .few_floats = 64,
                  .few_fp8 = 27,
                  .few_int8 = INT_MAX,
                  .few_int4 = INT_MAX},
    [CPU_AVX512] = {.kernels = &cpu_kernels_avx512,
                    .quantized = &cpu_quantized_avx512,
                    .tiles = {[CPU_TILES_FLOAT] = &cpu_tiles_avx512},
                    .few_floats = 32,
                    .few_fp8 = 16,
                    .few_int8 = 32,
                    .few_int4 = INT_MAX},
    [CPU_AVX512_VNNI] = {.kernels = &cpu_kernels_avx512,
                         .quantized = &cpu_quantized_avx512vnni,
                         .tiles = {[CPU_TILES_FLOAT] = &cpu_tiles_avx512, [CPU_TILES_INT8] = &cpu_tiles_avx512vnni},
                         .few_floats = 32,
                         .few_fp8 = 16,
                         .few_int8 = 16,
                         .few_int4 = 16},
    [CPU_AMX] = {.kernels = &cpu_kernels_avx512,
                 .quantized = &cpu_quantized_avx512vnni,
                 .tiles = {[CPU_TILES_FLOAT] = &cpu_tiles_avx512,
                           [CPU_TILES_INT8] = &cpu_tiles_avx512vnni,
                           [CPU_TILES_BF16] = &cpu_tiles_amx,
                           [CPU_TILES_BF16_X] = &cpu_tiles_amx_bfloat16},
                 .few_floats = 32,
                 .few_fp8 = 16,
                 .few_int8 = 16,
                 .few_int4 = 16,
                 .few_bf16 = 12},
#endif
};

const struct cpu_tables *cpu_tables_of(enum cpu_isa isa)
{
    return &tables[isa];
}

/* Whether all columns of CPU_X_GROUP have one scale, so that integers can be multiplied. */
static bool is_integer(const struct weight *w)
{
    const bool bytes = w->format == WEIGHT_INT8 || weight_is_packed(w->format);
    return bytes && w->scale_rows == 1 && (w->group_size % CPU_X_GROUP == 0 || w->group_size >= w->in_features);
}

int64_t cpu_groups_of_vector(const struct cpu_tables *t, const struct weight *w)
{
    if (!t->quantized || !weight_is_quantized(w)) return 0;
    const int64_t columns = cpu_unit_columns(t->quantized->lanes, w->format);
    if (w->group_size >= w->in_features || w->group_size % columns == 0) return 1;
    return is_integer(w) && columns % w->group_size == 0 ? columns / w->group_size : 0;
}

int cpu_most_few_tokens(const struct cpu_tables *t, enum cpu_tile_kind kind)
{
    if (kind == CPU_TILES_FLOAT) return t->few_floats;
    if (kind == CPU_TILES_INT8) return t->few_int8 < t->few_int4 ? t->few_int8 : t->few_int4;
    return t->few_bf16;
}

static enum cpu_tile_kind tile_kind(const struct cpu_tables *t, const struct weight *w, enum dtype x)
{
    if (t->tiles[CPU_TILES_BF16] && w->format == WEIGHT_BFLOAT16)
        return x == DTYPE_BFLOAT16 ? CPU_TILES_BF16_X : CPU_TILES_BF16;
    return t->tiles[CPU_TILES_INT8] && is_integer(w) ? CPU_TILES_INT8 : CPU_TILES_FLOAT;
}

struct cpu_matmul_plan cpu_matmul_plan(const struct cpu_tables *t, const struct weight *w, enum dtype x,
                                       int64_t num_tokens)
{
    const enum cpu_tile_kind kind = tile_kind(t, w, x);
    struct cpu_matmul_plan plan = {.few = weight_is_quantized(w) ? CPU_FEW_DEQUANTIZED : CPU_FEW_FLOATS};
    int most = kind == CPU_TILES_BF16 || kind == CPU_TILES_BF16_X ? t->few_bf16 : t->few_floats;
    if (cpu_groups_of_vector(t, w) > 0) {
        if (w->format == WEIGHT_INT8) most = t->few_int8;
        if (weight_is_packed(w->format)) most = t->few_int4;
        if (w->format != WEIGHT_FP8 || num_tokens <= t->few_fp8) plan.few = CPU_FEW_QUANTIZED;
    }
    plan.is_few = num_tokens <= most;
    plan.tiles = plan.is_few ? NULL : t->tiles[kind];
    return plan;
}
