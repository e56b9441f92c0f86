/* The table of the planner of the CPU's matmuls: which kernels compute which. It needs none of the instruction sets.
 *
 *     build/release/test_cpu_plan print      every case, one a line */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/plan.h"

enum { IN_FEATURES = 4096, MAX_TOKENS = 256 };

static const struct format {
    const char *name;
    enum weight_format format;
    enum dtype x;
    int64_t scale_rows, group_size; /* of a quantized format; 0: the whole row */
} formats[] = {
    {"bf16", WEIGHT_BFLOAT16, DTYPE_FLOAT32},
    {"bf16, x bf16", WEIGHT_BFLOAT16, DTYPE_BFLOAT16},
    {"bf16, x fp16", WEIGHT_BFLOAT16, DTYPE_FLOAT16},
    {"fp16", WEIGHT_FLOAT16, DTYPE_FLOAT32},
    {"fp32", WEIGHT_FLOAT32, DTYPE_FLOAT32},
    {"fp8", WEIGHT_FP8, DTYPE_FLOAT32, 1, 0},
    {"fp8 128x128", WEIGHT_FP8, DTYPE_FLOAT32, 128, 128},
    {"fp8 g48", WEIGHT_FP8, DTYPE_FLOAT32, 1, 48},
    {"int8", WEIGHT_INT8, DTYPE_FLOAT32, 1, 0},
    {"int8 g32", WEIGHT_INT8, DTYPE_BFLOAT16, 1, 32},
    {"int8 g16", WEIGHT_INT8, DTYPE_FLOAT32, 1, 16},
    {"int4 g128", WEIGHT_INT4, DTYPE_FLOAT32, 1, 128},
    {"int4 g32", WEIGHT_INT4, DTYPE_FLOAT32, 1, 32},
    {"int4 g96", WEIGHT_INT4, DTYPE_FLOAT32, 1, 96},
    {"mxfp4", WEIGHT_MXFP4, DTYPE_FLOAT32, 1, 32},
    {"nvfp4", WEIGHT_MXFP4, DTYPE_FLOAT32, 1, 16},
};

/* "KERNEL N, ..." up to N tokens, the last one for more. The first row that fits a case counts; NULL fits any, "bf16"
 * all formats whose names begin so. */
static const struct row {
    const char *isa, *format, *choice;
} table[] = {
    {"scalar", "bf16", "floats"},
    {"scalar", "fp16", "floats"},
    {"scalar", "fp32", "floats"},
    {"scalar", NULL, "dequantized"},

    {"avx2", "fp8 g48", "dequantized 64, float tiles"},
    {"avx2", "fp8", "quantized 27, dequantized 64, float tiles"},
    {"avx2", "int8 g16", "dequantized 64, float tiles"},
    {"avx2", "int8", "quantized"},
    {"avx2", "int4 g96", "dequantized 64, float tiles"},
    {"avx2", "int4", "quantized"},
    {"avx2", "mxfp4", "quantized"},
    {"avx2", "nvfp4", "dequantized 64, float tiles"},
    {"avx2", NULL, "floats 64, float tiles"},

    {"avx512", "fp8 g48", "dequantized 32, float tiles"},
    {"avx512", "fp8", "quantized 16, dequantized 32, float tiles"},
    {"avx512", "int8 g16", "dequantized 32, float tiles"},
    {"avx512", "int8", "quantized 32, float tiles"},
    {"avx512", "int4 g96", "dequantized 32, float tiles"},
    {"avx512", "int4", "quantized"},
    {"avx512", "mxfp4", "quantized"},
    {"avx512", "nvfp4", "dequantized 32, float tiles"},
    {"avx512", NULL, "floats 32, float tiles"},

    /* AVX-512 VNNI, and AMX with it. */
    {"amx", "bf16, x bf16", "floats 12, bf16 tiles of bf16"},
    {"amx", "bf16", "floats 12, bf16 tiles"},
    {NULL, "fp8 g48", "dequantized 32, float tiles"},
    {NULL, "fp8", "quantized 16, dequantized 32, float tiles"},
    {NULL, "int8 g16", "dequantized 32, float tiles"},
    {NULL, "int8", "quantized 16, int8 tiles"},
    {NULL, "int4 g96", "dequantized 32, int8 tiles"},
    {NULL, "int4", "quantized 16, int8 tiles"},
    {NULL, "mxfp4", "quantized 16, int8 tiles"},
    {NULL, "nvfp4", "dequantized 32, float tiles"},
    {NULL, NULL, "floats 32, float tiles"},
};

static const char *name_of(const struct cpu_matmul_plan *plan)
{
    static const char *const few[] = {
        [CPU_FEW_FLOATS] = "floats", [CPU_FEW_DEQUANTIZED] = "dequantized", [CPU_FEW_QUANTIZED] = "quantized"};
    static const char *const tiles[] = {[CPU_TILES_FLOAT] = "float tiles",
                                        [CPU_TILES_INT8] = "int8 tiles",
                                        [CPU_TILES_BF16] = "bf16 tiles",
                                        [CPU_TILES_BF16_X] = "bf16 tiles of bf16"};
    assert_true(!plan->is_few || !plan->tiles);
    return plan->tiles ? tiles[plan->tiles->kind] : few[plan->few];
}

static struct weight weight_of(const struct format *f)
{
    return (struct weight){.format = f->format,
                           .in_features = IN_FEATURES,
                           .scale_rows = f->scale_rows,
                           .group_size = f->group_size > 0 ? f->group_size : IN_FEATURES};
}

/* "quantized 27, dequantized 64, float tiles". */
static void describe(char *out, size_t size, enum cpu_isa isa, const struct format *f)
{
    const struct weight weight = weight_of(f);
    const char *before = NULL;
    size_t length = 0;
    for (int tokens = 1; tokens <= MAX_TOKENS; tokens++) {
        const struct cpu_matmul_plan plan = cpu_matmul_plan(cpu_tables_of(isa), &weight, f->x, tokens);
        const char *name = name_of(&plan);
        if (before && name != before) length += (size_t)snprintf(out + length, size - length, " %d, ", tokens - 1);
        if (name != before) length += (size_t)snprintf(out + length, size - length, "%s", name);
        before = name;
        assert_true(length < size);
    }
}

static size_t row_of(const char *isa, const struct format *format)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if ((!table[i].isa || strcmp(table[i].isa, isa) == 0) &&
            (!table[i].format || strncmp(table[i].format, format->name, strlen(table[i].format)) == 0))
            return i;
    fail_msg("the table has no row for %s, %s", isa, format->name);
    return 0;
}

static bool row_is_used[sizeof table / sizeof *table];
static int num_wrong;

static void check_case(enum cpu_isa isa, const struct format *format, const char *choice)
{
    const size_t row = row_of(cpu_isa_name(isa), format);
    row_is_used[row] = true;
    if (strcmp(table[row].choice, choice) == 0) return;
    num_wrong++;
    print_error("%s, %s:\n    expected %s\n    found    %s\n", cpu_isa_name(isa), format->name, table[row].choice,
                choice);
}

static void print_case(enum cpu_isa isa, const struct format *format, const char *choice)
{
    printf("%-11s %-13s %s\n", cpu_isa_name(isa), format->name, choice);
}

/* Calls `visit` with each case of the instruction sets of this build and what the planner chooses. */
static void for_each_case(void (*visit)(enum cpu_isa isa, const struct format *format, const char *choice))
{
    for (enum cpu_isa isa = CPU_SCALAR; isa < CPU_ISA_COUNT && cpu_tables_of(isa)->kernels; isa++)
        for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
            char choice[128];
            describe(choice, sizeof choice, isa, &formats[i]);
            visit(isa, &formats[i], choice);
        }
}

static void test_table(void **state)
{
    (void)state;
    for_each_case(check_case);
    assert_int_equal(num_wrong, 0);
    for (size_t i = 0; i < sizeof table / sizeof *table && cpu_tables_of(CPU_AMX)->kernels; i++)
        if (!row_is_used[i]) fail_msg("row %zu of the table fits no case", i);
}

/* No tiles are planned for so few tokens that the workspace, which is made for the most tokens of a call, lacks them.
 */
static void test_tiles_have_a_workspace(void **state)
{
    (void)state;
    for (enum cpu_isa isa = CPU_SCALAR; isa < CPU_ISA_COUNT && cpu_tables_of(isa)->kernels; isa++)
        for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
            for (int tokens = 1; tokens <= MAX_TOKENS; tokens++) {
                const struct format *f = &formats[i];
                const struct weight weight = weight_of(f);
                const struct cpu_tables *t = cpu_tables_of(isa);
                const struct cpu_matmul_plan plan = cpu_matmul_plan(t, &weight, f->x, tokens);
                if (plan.tiles) assert_true(tokens > cpu_most_few_tokens(t, plan.tiles->kind));
            }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_tiles_have_a_workspace),
    };
    if (argc > 1 && strcmp(argv[1], "print") == 0) {
        for_each_case(print_case);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
