/* The table of the planner of CUDA's matmuls: which kernel computes which. It needs no GPU.
 *
 *     build/release/test_matmul_plan print      every case, one a line */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/matmul/plan.h"

enum { MAX_TOKENS = 8192 };

static const char *const kernel_names[NUM_MATMUL_KERNELS] = {
    [MATMUL_DECLINED] = "declined",
    [MATMUL_FEW_TOKENS] = "few_tokens",
    [MATMUL_CHAIN] = "matmul_chain",
    [MATMUL_LINEAR_WGMMA] = "linear_wgmma",
    [MATMUL_CUBLAS] = "cublas",
    [MATMUL_LINEAR_MIXED] = "linear_mixed",
    [MATMUL_FEW_TOKENS_WGMMA] = "few_tokens_wgmma",
    [MATMUL_FEW_TOKENS_QUANTIZED] = "few_tokens_quantized",
    [MATMUL_LINEAR_WGMMA_INT4] = "linear_wgmma_int4",
    [MATMUL_LINEAR_WGMMA_QUANTIZED] = "linear_wgmma_quantized",
    [MATMUL_LINEAR_MMA_QUANTIZED] = "linear_mma_quantized",
    [MATMUL_IN_ORDER] = "in_order",
    [MATMUL_DEQUANTIZE] = "dequantize",
    [MATMUL_ROWS_WGMMA] = "rows_wgmma",
    [MATMUL_CUBLAS_LT] = "cublas_lt",
};

/* Addresses, which count by their alignment alone. */
#define ALIGNED ((void *)(uintptr_t)4096)
#define UNALIGNED ((void *)(uintptr_t)4104)

/* GPUs with kernels compiled for them: H100, H100 with kernels for 90, A100, L40S. */
static const struct {
    const char *name;
    struct matmul_device device;
} gpus[] = {
    {"90a", {90, true, 132, 227 << 10, true, ALIGNED, 64 << 20}},
    {"90", {90, false, 132, 227 << 10, true, ALIGNED, 64 << 20}},
    {"80", {80, false, 108, 163 << 10, true, ALIGNED, 64 << 20}},
    {"89", {89, false, 142, 99 << 10, true, ALIGNED, 64 << 20}},
};

static const struct format {
    const char *name;
    enum weight_format format;
    enum dtype dtype, scale_dtype;
    int64_t scale_rows, group_size; /* group_size 0: the whole row */
    bool has_order, has_rows;
} formats[] = {
    {"bf16", WEIGHT_BFLOAT16, DTYPE_BFLOAT16},
    {"fp16", WEIGHT_FLOAT16, DTYPE_FLOAT16},
    {"fp32", WEIGHT_FLOAT32, DTYPE_FLOAT32},
    {"fp8", WEIGHT_FP8, DTYPE_BFLOAT16, DTYPE_FLOAT32, 1, 0},
    {"fp8 128x128", WEIGHT_FP8, DTYPE_BFLOAT16, DTYPE_FLOAT32, 128, 128},
    {"int8", WEIGHT_INT8, DTYPE_BFLOAT16, DTYPE_FLOAT32, 1, 0},
    {"int4 g128", WEIGHT_INT4, DTYPE_BFLOAT16, DTYPE_FLOAT16, 1, 128},
    {"int4 g32", WEIGHT_INT4, DTYPE_BFLOAT16, DTYPE_FLOAT16, 1, 32},
    {"int4 fp16", WEIGHT_INT4, DTYPE_FLOAT16, DTYPE_FLOAT16, 1, 128},
    {"int4 order", WEIGHT_INT4, DTYPE_BFLOAT16, DTYPE_FLOAT16, 1, 128, .has_order = true},
    {"mxfp4", WEIGHT_MXFP4, DTYPE_BFLOAT16, DTYPE_E8M0, 1, 32},
    {"W8A8", WEIGHT_FP8, DTYPE_BFLOAT16, DTYPE_FLOAT32, 1, 0, .has_rows = true},
};

/* Llama 3.1 8B and Llama 3.2 1B, with the operation that each matrix is multiplied by in a fused layer. */
static const struct matrix {
    const char *name;
    int64_t out_features, in_features;
    enum matmul_result result; /* if it is fused */
    bool has_norm;
} matrices[] = {
    {"8B qkv", 6144, 4096, MATMUL_STORE, true},       {"8B o", 4096, 4096, MATMUL_ADD, false},
    {"8B gate_up", 28672, 4096, MATMUL_GATE, true},   {"8B down", 4096, 14336, MATMUL_ADD, false},
    {"8B lm_head", 128256, 4096, MATMUL_STORE, true}, {"1B qkv", 3072, 2048, MATMUL_STORE, true},
    {"1B o", 2048, 2048, MATMUL_ADD, false},          {"1B gate_up", 16384, 2048, MATMUL_GATE, true},
    {"1B down", 2048, 8192, MATMUL_ADD, false},       {"1B lm_head", 128256, 2048, MATMUL_STORE, true},
};

/* What the planner chooses: "KERNEL N, ..." up to N tokens, the last one for more. The first row that fits a case
 * counts; NULL fits any, "8B" all of its matrices, "fp8" both kinds, "bf16" fp16 as well, "quantized" every other
 * quantized format, "with a norm" norm_linear and gate_up. */
static const struct row {
    const char *gpu, *format, *operation, *matrix, *choice;
} table[] = {
    /* Hopper. */
    {"90a", "bf16", "linear", "8B", "few_tokens 5, linear_wgmma 64, cublas"},
    {"90a", "bf16", "linear", "1B", "few_tokens 8, linear_wgmma 64, cublas"},
    {"90a", "bf16", "linear_residual", "8B", "few_tokens 5, linear_wgmma 64, declined"},
    {"90a", "bf16", "linear_residual", "1B", "few_tokens 8, linear_wgmma 64, declined"},
    {"90a", "bf16", "with a norm", "8B", "few_tokens 5, declined"},
    {"90a", "bf16", "with a norm", "1B", "few_tokens 8, declined"},
    {"90a", "fp8", "linear", NULL, "few_tokens_wgmma 8, linear_wgmma_quantized 6143, dequantize"},
    {"90a", "fp8", "linear_residual", NULL, "few_tokens_wgmma 8, linear_wgmma_quantized 6143, declined"},
    {"90a", "fp8", "with a norm", NULL, "few_tokens_wgmma 8, declined"},
    {"90a", "int8", "linear", NULL, "few_tokens_quantized 8, linear_wgmma_quantized 6143, dequantize"},
    {"90a", "int8", "linear_residual", NULL, "few_tokens_quantized 8, linear_wgmma_quantized 6143, declined"},
    {"90a", "int8", "with a norm", NULL, "few_tokens_quantized 8, declined"},
    {"90a", "int4 g128", "linear", NULL,
     "few_tokens_wgmma 8, linear_wgmma_int4 32, linear_wgmma_quantized 6143, dequantize"},
    {"90a", "int4 g128", "linear_residual", NULL,
     "few_tokens_wgmma 8, linear_wgmma_int4 32, linear_wgmma_quantized 6143, declined"},
    {"90a", "int4 g128", "with a norm", NULL, "few_tokens_wgmma 8, declined"},
    {"90a", "int4 fp16", "linear", NULL,
     "few_tokens_wgmma 4, linear_wgmma_int4 32, linear_wgmma_quantized 6143, dequantize"},
    {"90a", "int4 fp16", "linear_residual", NULL,
     "few_tokens_wgmma 4, linear_wgmma_int4 32, linear_wgmma_quantized 6143, declined"},
    {"90a", "int4 fp16", "with a norm", NULL, "few_tokens_wgmma 4, declined"},
    {"90a", "int4 g32", "linear", NULL, "few_tokens_quantized 4, linear_wgmma_quantized 6143, dequantize"},
    {"90a", "int4 g32", "linear_residual", NULL, "few_tokens_quantized 4, linear_wgmma_quantized 6143, declined"},
    {"90a", "int4 g32", "with a norm", NULL, "few_tokens_quantized 4, declined"},
    {"90a", "int4 order", "linear_residual", "8B down", "in_order 2340, declined"},
    {"90a", "int4 order", "linear_residual", "1B down", "in_order 4096, declined"},
    {"90a", "int4 order", NULL, NULL, "in_order"},
    {"90a", "mxfp4", "linear", NULL, "linear_wgmma_quantized 6143, dequantize"},
    {"90a", "mxfp4", "linear_residual", NULL, "linear_wgmma_quantized 6143, declined"},
    {"90a", "mxfp4", "with a norm", NULL, "declined"},
    {"90a", "W8A8", "linear", NULL, "rows_wgmma 64, cublas_lt"},

    /* Floats without wgmma. */
    {"90", "bf16", "linear", "8B down", "few_tokens 5, cublas"},
    {"90", "bf16", "linear", "1B down", "few_tokens 8, cublas"},
    {"90", "bf16", "linear", NULL, "few_tokens 16, cublas"},
    {"90", "bf16", NULL, NULL, "few_tokens 8, declined"},

    /* 8.x: all of x has to fit beside enough weights. */
    {"80", "bf16", "linear", "8B down", "matmul_chain 4, cublas"},
    {"80", "bf16", "linear", "1B down", "matmul_chain 7, cublas"},
    {"89", "bf16", "linear", "8B down", "matmul_chain 2, cublas"},
    {"89", "bf16", "linear", "1B down", "matmul_chain 4, cublas"},
    {NULL, "bf16", "linear", NULL, "matmul_chain 8, cublas"},
    {NULL, "bf16", NULL, NULL, "matmul_chain 8, declined"},

    /* Quantized weights without wgmma. */
    {NULL, "W8A8", "linear", NULL, "cublas_lt"},
    {NULL, "mxfp4", "linear", NULL, "dequantize"},
    {NULL, "mxfp4", NULL, NULL, "declined"},
    {NULL, "int4 order", "linear", NULL, "in_order 512, dequantize"},
    {NULL, "int4 order", "gate_up", NULL, "in_order 8, declined"},
    {NULL, "int4 order", NULL, NULL, "in_order 512, declined"},
    {NULL, "quantized", "linear", NULL, "few_tokens_quantized 8, linear_mma_quantized 512, dequantize"},
    {NULL, "quantized", "linear_residual", NULL, "few_tokens_quantized 8, linear_mma_quantized 512, declined"},
    {NULL, "quantized", "with a norm", NULL, "few_tokens_quantized 8, declined"},

    /* All GPUs. */
    {NULL, "fp32", "linear", NULL, "cublas"},
    {NULL, "fp32", NULL, NULL, "declined"},
};

/* A row of what is printed. */
struct plan_case {
    const char *gpu;
    const struct format *format;
    const char *operation, *matrix;
};

static struct matmul_question question_of(const struct format *f, const struct matrix *matrix, bool is_fused)
{
    static struct norm_params norms[] = {{NORM_RMS, ALIGNED, DTYPE_BFLOAT16, 1e-5f},
                                         {NORM_RMS, ALIGNED, DTYPE_FLOAT16, 1e-5f}};
    const struct weight weight = {.format = f->format,
                                  .out_features = matrix->out_features,
                                  .in_features = matrix->in_features,
                                  .data = ALIGNED,
                                  .scales = ALIGNED,
                                  .scale_dtype = f->scale_dtype,
                                  .scale_rows = f->scale_rows,
                                  .group_size = f->group_size > 0 ? f->group_size : matrix->in_features,
                                  .input_order = f->has_order ? ALIGNED : NULL};
    const struct quantized_rows rows = {ALIGNED, ALIGNED, matrix->in_features};
    const struct linear_args args = {.out = ALIGNED,
                                     .out_stride = matrix->out_features,
                                     .out_dtype = f->dtype,
                                     .x = ALIGNED,
                                     .x_stride = matrix->in_features,
                                     .quantized_x = f->has_rows ? &rows : NULL,
                                     .dtype = f->dtype,
                                     .num_tokens = 1,
                                     .weight = &weight};
    if (!is_fused) return matmul_question_of(&args, MATMUL_STORE, NULL, ACTIVATION_SILU, false);
    return matmul_question_of(&args, matrix->result, matrix->has_norm ? &norms[f->dtype == DTYPE_FLOAT16] : NULL,
                              ACTIVATION_SILU, true);
}

/* "few_tokens 5, linear_wgmma 64, cublas". */
static void describe(char *out, size_t size, const struct matmul_device *device, struct matmul_question q)
{
    enum matmul_kernel before = NUM_MATMUL_KERNELS;
    size_t length = 0;
    for (int32_t tokens = 1; tokens <= MAX_TOKENS; tokens++) {
        q.matmul.num_tokens = tokens;
        const enum matmul_kernel kernel = matmul_plan(device, &q);
        if (kernel != before && tokens > 1)
            length += (size_t)snprintf(out + length, size - length, " %d, ", (int)tokens - 1);
        if (kernel != before) length += (size_t)snprintf(out + length, size - length, "%s", kernel_names[kernel]);
        before = kernel;
        assert_true(length < size);
    }
}

/* NULL, or the beginning of the name. */
static bool fits(const char *wanted, const char *name)
{
    return !wanted || strncmp(wanted, name, strlen(wanted)) == 0;
}

static bool format_fits(const char *wanted, const struct format *format)
{
    if (wanted && strcmp(wanted, "quantized") == 0) return format->format >= WEIGHT_FP8;
    return fits(wanted, strcmp(format->name, "fp16") == 0 ? "bf16" : format->name);
}

static bool operation_fits(const char *wanted, const char *operation)
{
    if (wanted && strcmp(wanted, "with a norm") == 0)
        return strcmp(operation, "norm_linear") == 0 || strcmp(operation, "gate_up") == 0;
    return !wanted || strcmp(wanted, operation) == 0;
}

static size_t row_of(const struct plan_case *c)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (fits(table[i].gpu, c->gpu) && format_fits(table[i].format, c->format) &&
            operation_fits(table[i].operation, c->operation) && fits(table[i].matrix, c->matrix))
            return i;
    fail_msg("the table has no row for %s, %s, %s, %s", c->gpu, c->format->name, c->operation, c->matrix);
    return 0;
}

enum { NUM_GPUS = sizeof gpus / sizeof *gpus, NUM_FORMATS = sizeof formats / sizeof *formats };
enum { NUM_MATRICES = sizeof matrices / sizeof *matrices };

/* Calls `visit` with each case and what the planner chooses. */
static void for_each_case(void (*visit)(const struct plan_case *c, const char *choice))
{
    static const char *const fused[] = {
        [MATMUL_STORE] = "norm_linear", [MATMUL_ADD] = "linear_residual", [MATMUL_GATE] = "gate_up"};
    for (int i = 0; i < NUM_GPUS * NUM_FORMATS * 2 * NUM_MATRICES; i++) {
        const struct matrix *matrix = &matrices[i % NUM_MATRICES];
        const bool is_fused = i / NUM_MATRICES % 2 == 1;
        const struct format *format = &formats[i / NUM_MATRICES / 2 % NUM_FORMATS];
        const int gpu = i / NUM_MATRICES / 2 / NUM_FORMATS;
        const struct plan_case c = {gpus[gpu].name, format, is_fused ? fused[matrix->result] : "linear", matrix->name};
        char choice[256];
        if (is_fused && format->has_rows) continue;
        describe(choice, sizeof choice, &gpus[gpu].device, question_of(format, matrix, is_fused));
        visit(&c, choice);
    }
}

static void print_case(const struct plan_case *c, const char *choice)
{
    printf("%-4s %-11s %-15s %-10s %s\n", c->gpu, c->format->name, c->operation, c->matrix, choice);
}

static bool row_is_used[sizeof table / sizeof *table];
static int num_wrong;

static void check_case(const struct plan_case *c, const char *choice)
{
    const size_t row = row_of(c);
    row_is_used[row] = true;
    if (strcmp(table[row].choice, choice) == 0) return;
    num_wrong++;
    print_error("%s, %s, %s, %s:\n    expected %s\n    found    %s\n", c->gpu, c->format->name, c->operation, c->matrix,
                table[row].choice, choice);
}

static void test_table(void **state)
{
    (void)state;
    for_each_case(check_case);
    assert_int_equal(num_wrong, 0);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!row_is_used[i]) fail_msg("row %zu of the table fits no case", i);
}

/* What changes one fact of a question. */
enum change {
    X_IS_UNALIGNED,
    WEIGHT_IS_UNALIGNED,
    STRIDE_IS_ODD,
    OUT_IS_FLOAT,
    BIAS_IS_FLOAT, /* of 16-bit activations */
    X_IS_FLOAT,
    GAIN_IS_FLOAT,
    NORM_IS_LAYER,
    GROUPS_OF_96,
    BLOCKS_OF_96, /* scale_rows */
    NO_PARTIALS,
    NO_SCRATCH,
    SCRATCH_OF_20_TOKENS,
    HUGE_ROWS,      /* in_features */
    HUGE_ROWS_ON_8, /* and eight multiprocessors */
    SEGMENTS        /* eight */
};

static void make_change(enum change change, struct matmul_device *device, struct matmul_question *q)
{
    static struct norm_params float_gain = {NORM_RMS, ALIGNED, DTYPE_FLOAT32, 1e-5f};
    static struct norm_params layer_norm = {NORM_LAYER, ALIGNED, DTYPE_BFLOAT16, 1e-5f};
    struct matmul *m = &q->matmul;
    if (change == X_IS_UNALIGNED) m->x = UNALIGNED;
    if (change == WEIGHT_IS_UNALIGNED) m->weight = UNALIGNED;
    if (change == STRIDE_IS_ODD) m->x_stride += 1;
    if (change == OUT_IS_FLOAT) q->out_dtype = DTYPE_FLOAT32, m->out_is_float = true;
    if (change == BIAS_IS_FLOAT) q->bias_dtype = DTYPE_FLOAT32, m->bias = ALIGNED;
    if (change == X_IS_FLOAT) m->dtype = DTYPE_FLOAT32;
    if (change == GAIN_IS_FLOAT) q->norm = &float_gain, m->gain_is_float = true;
    if (change == NORM_IS_LAYER) q->norm = &layer_norm;
    if (change == GROUPS_OF_96) m->group_size = 96;
    if (change == BLOCKS_OF_96) m->scale_rows = 96;
    if (change == NO_PARTIALS) device->has_partials = false;
    if (change == NO_SCRATCH) device->scratch = NULL;
    if (change == SCRATCH_OF_20_TOKENS) device->scratch_bytes = 20 * 2 * m->in_features;
    if (change == HUGE_ROWS || change == HUGE_ROWS_ON_8) m->in_features = m->x_stride = 131072;
    if (change == HUGE_ROWS_ON_8) device->num_sms = 8;
    if (change == SEGMENTS) m->segments = (struct row_segments){ALIGNED, 8};
}

static const struct {
    const char *gpu, *format;
    bool is_fused;
    const char *matrix;
    enum change change;
    const char *choice;
} changes[] = {
    {"90a", "bf16", false, "8B qkv", X_IS_UNALIGNED, "cublas"},
    {"90a", "bf16", false, "8B qkv", STRIDE_IS_ODD, "cublas"},
    {"90a", "bf16", true, "8B qkv", WEIGHT_IS_UNALIGNED, "declined"},
    {"90a", "bf16", false, "8B lm_head", OUT_IS_FLOAT, "few_tokens 5, linear_wgmma 64, cublas"},
    {"90a", "bf16", true, "8B o", OUT_IS_FLOAT, "declined"},
    {"90a", "bf16", false, "8B qkv", BIAS_IS_FLOAT, "linear_mixed"},
    {"90a", "bf16", false, "8B qkv", SEGMENTS, "linear_wgmma"},
    {"90a", "bf16", true, "8B o", SEGMENTS, "linear_wgmma"},
    {"90a", "bf16", true, "8B qkv", SEGMENTS, "declined"},
    {"90a", "fp32", false, "8B qkv", SEGMENTS, "linear_mixed"},
    {"90a", "fp8", false, "8B qkv", SEGMENTS, "linear_wgmma_quantized"},
    {"90a", "fp8 128x128", true, "8B down", SEGMENTS, "linear_wgmma_quantized"},
    {"90a", "int4 g128", false, "8B qkv", SEGMENTS, "linear_wgmma_int4 256, linear_wgmma_quantized"},
    {"90a", "W8A8", false, "8B qkv", SEGMENTS, "rows_wgmma"},
    {"90", "bf16", false, "8B qkv", SEGMENTS, "linear_mixed"},
    {"80", "int8", false, "8B qkv", SEGMENTS, "linear_mma_quantized"},
    {"80", "int8", true, "8B o", SEGMENTS, "linear_mma_quantized"},
    {"89", "bf16", true, "8B o", SEGMENTS, "declined"},
    {"90a", "bf16", false, "8B qkv", X_IS_FLOAT, "linear_mixed"},
    {"90a", "bf16", true, "8B qkv", GAIN_IS_FLOAT, "few_tokens 5, declined"},
    {"90a", "bf16", true, "8B qkv", NORM_IS_LAYER, "declined"},
    {"90", "bf16", false, "8B down", NO_PARTIALS, "few_tokens 6, cublas"},
    {"90", "bf16", true, "8B down", NO_PARTIALS, "few_tokens 6, declined"},
    {"80", "bf16", true, "8B down", NO_PARTIALS, "matmul_chain 4, declined"},
    {"89", "bf16", true, "8B qkv", GAIN_IS_FLOAT, "matmul_chain 7, declined"},
    {"89", "bf16", true, "8B o", HUGE_ROWS, "matmul_chain 4, declined"},
    {"90a", "int8", false, "8B qkv", X_IS_UNALIGNED, "dequantize"},
    {"90a", "int8", false, "8B qkv", BIAS_IS_FLOAT, "dequantize"},
    {"90a", "int8", false, "8B qkv", HUGE_ROWS, "few_tokens_quantized 8, linear_wgmma_quantized 6143, dequantize"},
    {"90a", "fp8", true, "8B gate_up", HUGE_ROWS, "few_tokens_quantized 8, declined"},
    {"90a", "int4 g128", false, "8B qkv", GROUPS_OF_96, "dequantize"},
    {"90a", "fp8", false, "8B qkv", BLOCKS_OF_96, "few_tokens_wgmma 8, linear_wgmma_quantized 6143, dequantize"},
    {"80", "fp8", false, "8B qkv", BLOCKS_OF_96, "dequantize 8, linear_mma_quantized 512, dequantize"},
    {"89", "int8", true, "8B o", HUGE_ROWS, "few_tokens_quantized 2, declined 8, linear_mma_quantized 512, declined"},
    {"89", "int8", true, "8B o", HUGE_ROWS_ON_8,
     "few_tokens_quantized 1, declined 8, linear_mma_quantized 512, declined"},
    {"90", "bf16", true, "8B o", HUGE_ROWS_ON_8, "few_tokens 5, declined"},
    {"90a", "int4 order", false, "8B qkv", NO_SCRATCH, "dequantize"},
    {"90a", "int4 order", true, "8B o", SCRATCH_OF_20_TOKENS, "in_order 20, declined"},
    {"90a", "int4 order", false, "8B o", SCRATCH_OF_20_TOKENS, "in_order"},
    {"80", "int4 order", false, "8B o", X_IS_UNALIGNED, "dequantize"},
    {"90a", "int4 order", true, "8B qkv", HUGE_ROWS, "declined"},
    {"90a", "W8A8", false, "8B qkv", WEIGHT_IS_UNALIGNED, "cublas_lt"},
};

static void test_changes(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        int gpu = 0, format = 0, matrix = 0;
        while (strcmp(gpus[gpu].name, changes[i].gpu) != 0) gpu++;
        while (strcmp(formats[format].name, changes[i].format) != 0) format++;
        while (strcmp(matrices[matrix].name, changes[i].matrix) != 0) matrix++;
        struct matmul_device device = gpus[gpu].device;
        struct matmul_question q = question_of(&formats[format], &matrices[matrix], changes[i].is_fused);
        char choice[256];
        make_change(changes[i].change, &device, &q);
        describe(choice, sizeof choice, &device, q);
        if (strcmp(choice, changes[i].choice) == 0) continue;
        wrong++;
        print_error("change %zu, %s, %s, %s:\n    expected %s\n    found    %s\n", i, changes[i].gpu, changes[i].format,
                    changes[i].matrix, changes[i].choice, choice);
    }
    assert_int_equal(wrong, 0);
}

/* The parts of a weight with an input_order have about the same size and fit into the workspace; their x lies there. */
static void test_parts_in_order(void **state)
{
    (void)state;
    struct matmul_device device = gpus[0].device;
    const struct matmul_question q = question_of(&formats[9], &matrices[0], false);
    struct matmul m = q.matmul;
    assert_true(formats[9].has_order);
    device.scratch_bytes = 100 * 2 * m.in_features + 1;
    static const struct {
        int32_t tokens, of_part;
    } cases[] = {{1, 1}, {100, 100}, {101, 51}, {200, 100}, {201, 67}, {1000, 100}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        m.num_tokens = cases[i].tokens;
        assert_int_equal(matmul_part_tokens(&device, &m), cases[i].of_part);
    }
    const struct matmul part = matmul_ordered_part(&device, &m, 100, 3);
    assert_int_equal(part.num_tokens, 3);
    assert_ptr_equal(part.x, device.scratch);
    assert_int_equal(part.x_stride, m.in_features);
    assert_int_equal((uintptr_t)part.out - (uintptr_t)m.out, 100 * 2 * m.out_features);
    assert_null(part.input_order);
    device.scratch = NULL;
    assert_int_equal(matmul_part_tokens(&device, &m), 0);
}

/* What the rows of segments become. */
static void test_quantized_segments(void **state)
{
    (void)state;
    for (int gpu = 0; gpu < NUM_GPUS; gpu++)
        for (int format = 0; format < NUM_FORMATS; format++) {
            struct matmul_device device = gpus[gpu].device;
            struct matmul_question q = question_of(&formats[format], &matrices[0], false);
            struct weight w = {
                .in_features = q.matmul.in_features, .scale_rows = q.matmul.scale_rows, .quantize_x = true};
            const bool is_fp8 = strcmp(formats[format].name, "fp8") == 0,
                       is_mxfp4 = strcmp(formats[format].name, "mxfp4") == 0;
            make_change(SEGMENTS, &device, &q);
            if (formats[format].has_rows) continue;
            const bool has_blocks = strcmp(formats[format].name, "fp8 128x128") == 0;
            const enum segment_rows otherwise = device.has_wgmma && is_mxfp4 ? SEGMENT_ROWS_SPLIT : SEGMENT_ROWS_PLAIN;
            assert_int_equal(matmul_segment_rows(&device, &q, &w), device.has_wgmma && is_fp8 ? SEGMENT_ROWS_QUANTIZED
                                                                   : device.has_wgmma && has_blocks
                                                                       ? SEGMENT_ROWS_BLOCKS
                                                                       : otherwise);
            struct matmul_question one_group = q;
            w.in_features = one_group.matmul.in_features = one_group.matmul.x_stride = 128;
            if (has_blocks && device.has_wgmma)
                assert_int_equal(matmul_segment_rows(&device, &one_group, &w), SEGMENT_ROWS_BLOCKS);
            w.in_features = q.matmul.in_features;
            w.quantize_x = false;
            assert_int_equal(matmul_segment_rows(&device, &q, &w), otherwise);
            q.matmul.num_tokens = 128 * q.matmul.segments.count;
            assert_int_equal(matmul_segment_rows(&device, &q, &w), SEGMENT_ROWS_PLAIN);
            w.quantize_x = true, w.in_features = 2 * QUANTIZED_SEGMENTS_MAX;
            assert_int_equal(matmul_segment_rows(&device, &q, &w), SEGMENT_ROWS_PLAIN);
        }
}

/* From how many tokens on x is quantized (W8A8). */
static void test_quantized_rows(void **state)
{
    (void)state;
    struct weight w = {.format = WEIGHT_FP8,
                       .out_features = 4096,
                       .in_features = 4096,
                       .data = ALIGNED,
                       .scales = ALIGNED,
                       .scale_dtype = DTYPE_FLOAT32,
                       .scale_rows = 1,
                       .group_size = 4096,
                       .quantize_x = true};
    for (int gpu = 0; gpu < NUM_GPUS; gpu++) {
        const struct matmul_device *device = &gpus[gpu].device;
        const int32_t first = device->has_wgmma ? 9 : 17;
        w.scale_rows = 1, w.group_size = 4096;
        assert_false(matmul_wants_quantized_rows(device, &w, first - 1, DTYPE_BFLOAT16));
        assert_true(matmul_wants_quantized_rows(device, &w, first, DTYPE_BFLOAT16));
        assert_false(matmul_wants_quantized_rows(device, &w, first, DTYPE_FLOAT32));
        w.scale_rows = w.group_size = 128;
        assert_false(matmul_wants_quantized_rows(device, &w, 16, DTYPE_BFLOAT16));
        assert_true(matmul_wants_quantized_rows(device, &w, 17, DTYPE_BFLOAT16));
    }
    w.quantize_x = false;
    assert_false(matmul_wants_quantized_rows(&gpus[0].device, &w, 1000, DTYPE_BFLOAT16));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),          cmocka_unit_test(test_changes),
        cmocka_unit_test(test_parts_in_order), cmocka_unit_test(test_quantized_segments),
        cmocka_unit_test(test_quantized_rows),
    };
    if (argc > 1 && strcmp(argv[1], "print") == 0) {
        for_each_case(print_case);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
