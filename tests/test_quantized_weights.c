/* Quantized matrices of checkpoints, in every way in which files store them: each element, on the CPU and copied to a
 * device, for which the CPU stands in; and files that are not what config.json says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/random.h"
#include "model/device_weights.h"
#include "model/quantization.h"
#include "model/checkpoint/quantize.h"
#include "tests/support/must.h"
#include "tests/support/quantized_checkpoint.h"

#define FP8 .storage = STORED_ROWS, .is_quantized = true, .format = WEIGHT_FP8
#define INT8 .storage = STORED_ROWS, .is_quantized = true, .format = WEIGHT_INT8
#define PACKED .storage = STORED_PACKED, .is_quantized = true, .format = WEIGHT_INT4
#define PACKED8 .storage = STORED_PACKED, .is_quantized = true, .format = WEIGHT_INT8
#define GPTQ .storage = STORED_GPTQ, .is_quantized = true, .format = WEIGHT_INT4
#define MXFP4 .storage = STORED_MXFP4, .is_quantized = true, .format = WEIGHT_MXFP4
#define NVFP4 .storage = STORED_NVFP4, .is_quantized = true, .format = WEIGHT_MXFP4
#define AWQ .storage = STORED_AWQ, .is_quantized = true, .format = WEIGHT_INT4

static const struct quantized_form forms[] = {
    {"fp8, a scale of each row", {FP8, .quantize_x = true}, DTYPE_FLOAT32},
    {"fp8, bfloat16 scales in a vector", {FP8}, DTYPE_BFLOAT16, SCALE_VECTOR},
    {"fp8, one scale", {FP8}, DTYPE_FLOAT32, SCALE_SCALAR},
    {"fp8, one scale in a vector", {FP8}, DTYPE_FLOAT16, SCALE_1},
    {"fp8, one scale in a matrix", {FP8}, DTYPE_FLOAT32, SCALE_1_1},
    {"fp8, one scale, merged", {FP8}, DTYPE_FLOAT32, SCALE_1, .merged = true},
    {"fp8, a scale of each part, merged", {FP8}, DTYPE_BFLOAT16, SCALE_PARTS, .merged = true},
    {"fp8, rows, merged", {FP8}, DTYPE_FLOAT32, .merged = true},
    {"fp8, blocks", {FP8, .group_size = 128, .blocks = true}, DTYPE_FLOAT32, .inverse = true},
    {"fp8, blocks, bfloat16", {FP8, .group_size = 128, .blocks = true}, DTYPE_BFLOAT16, .inverse = true},
    {"fp8, lm_head", {FP8}, DTYPE_FLOAT32, .lm_head = true},
    {"int8", {INT8, .quantize_x = true}, DTYPE_FLOAT32},
    {"int8, float16 scales, groups, merged", {INT8, .group_size = 64}, DTYPE_FLOAT16, .merged = true},
    {"packed", {PACKED, .group_size = 128}, DTYPE_BFLOAT16},
    {"packed, float32 scales, lm_head", {PACKED, .group_size = 32}, DTYPE_FLOAT32, .lm_head = true},
    {"packed, rows", {PACKED}, DTYPE_FLOAT16},
    {"packed, one scale", {PACKED}, DTYPE_FLOAT16, SCALE_1},
    {"packed, zeros", {PACKED, .group_size = 64, .has_zeros = true}, DTYPE_FLOAT16},
    {"packed, zeros, merged", {PACKED, .group_size = 64, .has_zeros = true}, DTYPE_BFLOAT16, .merged = true},
    {"packed, ordered", {PACKED, .group_size = 64, .has_zeros = true, .ordered = true}, DTYPE_FLOAT16},
    {"packed, 8 bits", {PACKED8, .group_size = 128}, DTYPE_BFLOAT16},
    {"packed, 8 bits, ordered, merged", {PACKED8, .group_size = 32, .ordered = true}, DTYPE_BFLOAT16, .merged = true},
    {"fp8, head by head", {FP8}, DTYPE_FLOAT32, .merged = true, .by_head = true},
    {"fp8, blocks of whole heads",
     {FP8, .group_size = 32, .blocks = true},
     DTYPE_FLOAT32,
     .merged = true,
     .by_head = true},
    {"int8, groups, head by head", {INT8, .group_size = 64}, DTYPE_FLOAT16, .merged = true, .by_head = true},
    {"packed, zeros, head by head",
     {PACKED, .group_size = 64, .has_zeros = true},
     DTYPE_BFLOAT16,
     .merged = true,
     .by_head = true},
    {"gptq", {GPTQ, .group_size = 128, .zeros_less_one = true}, DTYPE_FLOAT16},
    {"gptq, v2", {GPTQ, .group_size = 32}, DTYPE_FLOAT16},
    {"gptq, v1, as its scheme does not say", {GPTQ, .group_size = 32}, DTYPE_FLOAT16, .zeros_are_7 = true},
    {"gptq, one group", {GPTQ, .zeros_less_one = true}, DTYPE_FLOAT16},
    {"gptq, zeros", {GPTQ, .group_size = 64, .has_zeros = true, .zeros_less_one = true}, DTYPE_FLOAT16},
    {"gptq, zeros, v2, merged", {GPTQ, .group_size = 64, .has_zeros = true}, DTYPE_BFLOAT16, .merged = true},
    {"gptq, ordered", {GPTQ, .group_size = 64, .zeros_less_one = true, .ordered = true}, DTYPE_FLOAT16},
    {"gptq, ordered, zeros, merged, lm_head",
     {GPTQ, .group_size = 64, .has_zeros = true, .zeros_less_one = true, .ordered = true},
     DTYPE_FLOAT16,
     .merged = true,
     .lm_head = true},
    {"gptq, ordered, k and up otherwise", {GPTQ, .group_size = 64, .ordered = true}, DTYPE_FLOAT16, .own_orders = true},
    {"gptq, ordered, in the usual order", {GPTQ, .group_size = 64, .ordered = true}, DTYPE_FLOAT16, .no_sorting = true},
    {"gptq, 8 bits",
     {.storage = STORED_GPTQ,
      .is_quantized = true,
      .format = WEIGHT_INT8,
      .group_size = 128,
      .zeros_less_one = true,
      .ordered = true},
     DTYPE_FLOAT16},
    {"awq", {AWQ, .group_size = 128, .has_zeros = true}, DTYPE_FLOAT16},
    {"awq, merged", {AWQ, .group_size = 64, .has_zeros = true}, DTYPE_FLOAT16, .merged = true},
    {"awq, no zeros, lm_head", {AWQ, .group_size = 32}, DTYPE_BFLOAT16, .lm_head = true},
    {"mxfp4, lm_head", {MXFP4, .group_size = 32}, DTYPE_E8M0, .lm_head = true},
    {"mxfp4, merged", {MXFP4, .group_size = 32}, DTYPE_E8M0, .merged = true},
    {"nvfp4", {NVFP4, .group_size = 16}, DTYPE_FP8_E4M3},
    {"nvfp4, merged, lm_head", {NVFP4, .group_size = 16}, DTYPE_FP8_E4M3, .merged = true, .lm_head = true},
};
enum { NUM_FORMS = sizeof forms / sizeof *forms };

/* ---- right answers ---- */

/* Rows from `first` on of w are the matrix of tensor t. Each input feature has one column of data. */
static void check_matrix(const struct quantized_form *form, const struct tensor *t, const struct weight *w,
                         int64_t first)
{
    int32_t columns[384];
    memset(columns, 0xff, sizeof columns);
    for (int32_t i = 0; i < (int32_t)w->in_features; i++) columns[w->input_order ? w->input_order[i] : i] = i;
    assert_int_equal(w->format, form->scheme.format);
    assert_int_equal(w->in_features, t->in_features);
    assert_int_equal(w->quantize_x, form->scheme.quantize_x);
    assert_int_equal(w->zeros != NULL, form->scheme.has_zeros);
    assert_int_equal(w->input_order != NULL,
                     form->scheme.ordered && !form->no_sorting && form->scheme.group_size < t->in_features);
    for (int64_t row = 0; row < t->out_features; row += 1 + row % 3)
        for (int64_t i = 0; i < t->in_features; i++) {
            assert_true(columns[i] >= 0);
            const float found = weight_element(w, first + row, columns[i]);
            const float expected = quantized_element(form, t, row, i);
            if (found != expected)
                fail_msg("%s: %s: element [%lld, %lld] is %g and not %g", form->name, t->name, (long long)row,
                         (long long)i, (double)found, (double)expected);
        }
}

/* Rows from the middle of a matrix are those of the whole, however they are read. */
static void check_bands(const struct model_weights *w, const struct tensor *t)
{
    const struct weight *m = model_weights_matrix(w, t);
    const struct weight_source *s = model_weights_source(w, t);
    const struct weight_rows whole = weight_parts(m);
    const struct weight_part_bytes most = weight_part_bytes(m, true, m->out_features);
    struct weight_rows read = {{NULL}};
    for (int i = 0; i < NUM_WEIGHT_PARTS; i++)
        if (whole.at[i]) assert_non_null(read.at[i] = malloc((size_t)most.of[i]));
    for (int64_t first = 0; first < m->out_features; first += WEIGHT_SOURCE_ROWS) {
        const int64_t rest = m->out_features - first, count = rest < WEIGHT_SOURCE_ROWS ? rest : WEIGHT_SOURCE_ROWS;
        const struct weight_part_bytes bytes = weight_part_bytes(m, m->zeros != NULL, count);
        const struct weight_rows expected = weight_rows_at(m, &whole, first);
        struct error err;
        must(weight_source_read(s, first, count, &read, &err), &err);
        for (int i = 0; i < NUM_WEIGHT_PARTS; i++)
            if (read.at[i]) assert_memory_equal(read.at[i], expected.at[i], bytes.of[i]);
    }
    for (int i = 0; i < NUM_WEIGHT_PARTS; i++) free(read.at[i]);
}

static void check_host(const struct quantized_form *form, struct model_weights *w)
{
    struct error err;
    int64_t bytes = 0;
    must(model_weights_pack(w, &err), &err);
    must(model_weights_pack(w, &err), &err);
    for (int32_t i = 0; i < w->table.count; i++) {
        const struct tensor *t = &w->table.tensors[i];
        const struct weight *m = model_weights_matrix(w, t);
        if (t->scheme.is_quantized) {
            check_matrix(form, t, m, 0);
            check_bands(w, t);
        }
        if (t->kind == TENSOR_BIAS) assert_non_null(m->bias);
        bytes += t->kind == TENSOR_MATRIX ? weight_bytes(m) : t->out_features * 2;
    }
    assert_int_equal(w->bytes, bytes);
}

/* Every matrix is prepared once. */
static int prepared;
static void count_prepared(struct backend *b, const struct weight *w)
{
    (void)b;
    assert_true(weight_is_quantized(w) && w->data && w->scales);
    prepared++;
}

static const struct weight *device_matrix(const struct model_weights *device, const struct tensor *t, int64_t *first)
{
    const struct weights_place place = model_weights_place(device, t);
    *first = place.first_row;
    return place.matrix;
}

static void check_device(const struct quantized_form *form, const struct model_spec *spec,
                         const struct model_weights *host)
{
    struct backend *b;
    struct arena arena;
    struct model_weights device;
    struct upload *upload;
    struct error err;
    must(backend_open("cpu", 1, &b, &err), &err);
    b->weight_prepare = count_prepared;
    arena_init(&arena, b);
    must(device_weights_begin(&arena, spec, host, DTYPE_BFLOAT16, &device, &upload, &err), &err);
    must(upload_finish(upload, &err), &err);
    prepared = 0;
    device_weights_prepare(b, &device);
    const struct layer_weights *layer = &device.layers[0];
    assert_int_equal(prepared, layer->qkv.num_parts + layer->gate_up.num_parts + 2 + form->lm_head);
    const bool split_block = form->scheme.blocks && host->layers[0].qkv.parts[1].out_features % form->scheme.group_size;
    assert_int_equal(layer->qkv.num_parts, form->own_orders ? 3 : split_block ? 2 : 1);
    assert_int_equal(layer->gate_up.num_parts, form->own_orders ? 2 : 1);
    for (int32_t i = 0; i < host->table.count; i++) {
        const struct tensor *t = &host->table.tensors[i];
        int64_t first;
        if (t->scheme.is_quantized) {
            const struct weight *w = device_matrix(&device, t, &first);
            check_matrix(form, t, w, first);
        }
        if (t->kind == TENSOR_BIAS) assert_non_null(device_matrix(&device, t, &first)->bias);
    }
    assert_int_equal(device.bytes, arena.bytes[PURPOSE_WEIGHTS]);
    assert_int_equal(device.bytes, device_weights_bytes(host, DTYPE_BFLOAT16));
    model_weights_close(&device);
    arena_free(&arena);
    b->destroy(b);
}

static void test_every_element(void **state)
{
    const struct temp_folder *folder = *state;
    for (int i = 0; i < NUM_FORMS; i++) {
        const struct quantized_form *form = &forms[i];
        struct model_spec *spec = malloc(sizeof *spec);
        struct model_weights w, sizes;
        struct error err;
        assert_non_null(spec);
        quantized_spec(form, i % 2, spec);
        quantized_write(folder, form, spec, i % 3 == 0, NULL);
        must(model_weights_open(folder->path, spec, NULL, &w, &err), &err);
        check_device(form, spec, &w);
        check_host(form, &w);
        check_device(form, spec, &w);
        if (form->scale_dtype == DTYPE_FLOAT16) { /* as sizes are counted without files */
            must(model_weights_sizes(spec, &sizes, &err), &err);
            int64_t unused = 0; /* orders that change nothing */
            for (int32_t k = 0; k < w.table.count && form->no_sorting; k++)
                if (weight_is_ordered(&w.table.tensors[k])) unused += w.table.tensors[k].in_features * 4;
            assert_int_equal(sizes.bytes, w.bytes + unused);
            model_weights_close(&sizes);
        }
        model_weights_close(&w);
        free(spec);
    }
}

/* All experts of a layer in one tensor, rows of gate and up in turn. */
static void test_blocks_of_experts(void **state)
{
    static const struct quantized_form form = {
        "mxfp4, experts",
        {.storage = STORED_MXFP4_BLOCKS, .is_quantized = true, .format = WEIGHT_MXFP4, .group_size = 32},
        DTYPE_E8M0,
        .experts = true};
    const struct temp_folder *folder = *state;
    struct model_spec *spec = malloc(sizeof *spec);
    struct model_weights w;
    struct error err;
    assert_non_null(spec);
    for (int sharded = 0; sharded < 2; sharded++) {
        quantized_spec(&form, false, spec);
        quantized_write(folder, &form, spec, sharded, NULL);
        must(model_weights_open(folder->path, spec, NULL, &w, &err), &err);
        check_host(&form, &w);
        model_weights_close(&w);
    }
    free(spec);
}

/* ---- quantizing while loading ---- */

static void check_quantized(const struct tensor *t, const struct weight *w, int64_t first, const struct weight *floats)
{
    const struct weight_part_bytes bytes = weight_part_bytes(w, t->scheme.has_zeros, t->out_features);
    void *parts[NUM_WEIGHT_PARTS];
    for (int i = 0; i < NUM_WEIGHT_PARTS; i++) assert_non_null(parts[i] = malloc((size_t)bytes.of[i] + 1));
    const struct weight_quantize_args args = {.rows = floats->data,
                                              .dtype = weight_dtype(floats),
                                              .num_rows = t->out_features,
                                              .in_features = t->in_features,
                                              .format = t->scheme.format,
                                              .group_size = t->scheme.group_size,
                                              .data = parts[WEIGHT_DATA],
                                              .scales = parts[WEIGHT_SCALES],
                                              .scale_dtype = t->scheme.scale_dtype,
                                              .zeros = t->scheme.has_zeros ? parts[WEIGHT_ZEROS] : NULL};
    const struct weight_rows all = weight_parts(w);
    const struct weight_rows rows = weight_rows_at(w, &all, first);
    quantize_rows(&args);
    for (int i = 0; i < NUM_WEIGHT_PARTS; i++) {
        if (bytes.of[i]) assert_memory_equal(parts[i], rows.at[i], bytes.of[i]);
        free(parts[i]);
    }
}

/* Stands for a device that quantizes by itself. */
static void weight_quantize(struct backend *b, const struct weight_quantize_args *args, backend_stream stream)
{
    (void)b, (void)stream;
    quantize_rows(args);
}

static void check_quantizing(const struct temp_folder *folder, const struct quantized_form *form, bool by_device)
{
    struct model_spec *spec = malloc(2 * sizeof *spec);
    struct model_weights w, floats, device;
    struct backend *b;
    struct arena arena;
    struct upload *upload;
    struct error err;
    assert_non_null(spec);
    quantized_spec(form, false, spec);
    spec[1] = spec[0];
    spec[1].schemes[1] = (struct weight_scheme){0};
    quantized_write(folder, form, spec, false, NULL);
    must(model_weights_open(folder->path, &spec[0], NULL, &w, &err), &err);
    must(model_weights_open(folder->path, &spec[1], NULL, &floats, &err), &err);
    must(backend_open("cpu", 1, &b, &err), &err);
    b->weight_quantize = by_device ? weight_quantize : NULL;
    arena_init(&arena, b);
    must(device_weights_begin(&arena, spec, &w, DTYPE_BFLOAT16, &device, &upload, &err), &err);
    must(upload_finish(upload, &err), &err);
    must(model_weights_pack(&w, &err), &err);
    for (int32_t i = 0; i < w.table.count; i++) {
        const struct tensor *t = &w.table.tensors[i];
        if (!t->scheme.is_quantized) continue;
        int64_t first;
        const struct weight *copied = device_matrix(&device, t, &first);
        check_bands(&w, t);
        check_quantized(t, model_weights_matrix(&w, t), 0, model_weights_matrix(&floats, t));
        check_quantized(t, copied, first, model_weights_matrix(&floats, t));
    }
    assert_int_equal(device.bytes, arena.bytes[PURPOSE_WEIGHTS]);
    model_weights_close(&device);
    model_weights_close(&w);
    model_weights_close(&floats);
    arena_free(&arena);
    b->destroy(b);
    free(spec);
}

static void test_quantizing(void **state)
{
    static const struct quantized_form all[] = {
        {"fp8", {FP8, .quantize = true, .quantize_x = true}, .lm_head = true},
        {"int8", {INT8, .quantize = true, .scale_dtype = DTYPE_BFLOAT16}, .merged = true},
        {"int4",
         {.is_quantized = true,
          .quantize = true,
          .format = WEIGHT_INT4,
          .group_size = 64,
          .has_zeros = true,
          .scale_dtype = DTYPE_FLOAT16},
         .merged = true},
        {"int4, groups of 128, symmetric",
         {.is_quantized = true,
          .quantize = true,
          .format = WEIGHT_INT4,
          .group_size = 128,
          .scale_dtype = DTYPE_BFLOAT16},
         .merged = false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check_quantizing(*state, &all[i], false);
        check_quantizing(*state, &all[i], true);
    }
}

/* ---- dummy weights ---- */

/* Stands for a device that makes dummy weights by itself. */
static void fill_dummy(struct backend *b, const struct fill_dummy_args *args, backend_stream stream)
{
    (void)b, (void)stream;
    dummy_fill(args, NULL);
}

/* A device makes the bytes that `host` has. */
static void check_made_by_device(const struct model_spec *spec, const struct model_weights *host)
{
    struct model_weights left_out, device;
    struct backend *b;
    struct arena arena;
    struct upload *upload;
    struct error err;
    must(backend_open("cpu", 1, &b, &err), &err);
    b->fill_dummy = fill_dummy;
    arena_init(&arena, b);
    must(model_weights_dummy(spec, 7, true, &left_out, &err), &err);
    must(device_weights_begin(&arena, spec, &left_out, DTYPE_BFLOAT16, &device, &upload, &err), &err);
    must(upload_finish(upload, &err), &err);
    for (int32_t i = 0; i < host->table.count; i++) {
        const struct tensor *t = &host->table.tensors[i];
        int64_t first;
        if (!t->scheme.is_quantized) continue;
        const struct weight *w = device_matrix(&device, t, &first), *from = model_weights_matrix(host, t);
        const struct weight_part_bytes bytes = weight_part_bytes(from, t->scheme.has_zeros, t->out_features);
        const struct weight_rows all = weight_parts(w), rows = weight_rows_at(w, &all, first),
                                 there = weight_parts(from);
        for (int k = 0; k < NUM_WEIGHT_PARTS; k++)
            if (bytes.of[k]) assert_memory_equal(rows.at[k], there.at[k], bytes.of[k]);
    }
    model_weights_close(&device);
    model_weights_close(&left_out);
    arena_free(&arena);
    b->destroy(b);
}

/* The elements' deviation is 0.02, or what is nearest with powers of two as scales, none is NaN, and the same seed
 * gives the same bytes. */
static void check_dummy(const struct quantized_form *form)
{
    struct model_spec *spec = malloc(sizeof *spec);
    struct model_weights a, b, sizes;
    struct error err;
    assert_non_null(spec);
    quantized_spec(form, false, spec);
    must(model_weights_dummy(spec, 7, false, &a, &err), &err);
    must(model_weights_dummy(spec, 7, false, &b, &err), &err);
    must(model_weights_sizes(spec, &sizes, &err), &err);
    assert_int_equal(a.bytes, sizes.bytes);
    assert_int_equal(a.memory_bytes, b.memory_bytes);
    assert_memory_equal(a.memory, b.memory, (size_t)a.memory_bytes);
    must(model_weights_pack(&a, &err), &err);
    check_made_by_device(spec, &a);
    for (int32_t i = 0; i < a.table.count; i++) {
        const struct tensor *t = &a.table.tensors[i];
        const struct weight *w = model_weights_matrix(&a, t);
        double sum = 0, squares = 0;
        if (!t->scheme.is_quantized) continue;
        assert_int_equal(w->zeros != NULL, form->scheme.has_zeros);
        for (int64_t row = 0; row < w->out_features; row++)
            for (int64_t k = 0; k < w->in_features; k++) {
                const double value = weight_element(w, row, k);
                sum += value;
                squares += value * value;
            }
        const double count = (double)tensor_elements(t), deviation = sqrt(squares / count);
        const double off = form->scheme.storage == STORED_MXFP4 ? 0.0035 : 0.0005;
        if (!(fabs(deviation - 0.02) < off && fabs(sum / count) < 0.003))
            fail_msg("%s: %s: deviation %g, mean %g", form->name, t->name, deviation, sum / count);
    }
    model_weights_close(&a);
    model_weights_close(&b);
    model_weights_close(&sizes);
    free(spec);
}

static void test_dummy(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_FORMS; i++) check_dummy(&forms[i]);
}

/* ---- what is wrong ---- */

static void refuse(const struct temp_folder *folder, const struct quantized_form *form,
                   const struct quantized_change *change, enum status expected, const char *words)
{
    struct model_spec *spec = malloc(sizeof *spec);
    struct model_weights w;
    struct error err = {""};
    assert_non_null(spec);
    quantized_spec(form, true, spec);
    quantized_write(folder, form, spec, false, change);
    enum status status = model_weights_open(folder->path, spec, NULL, &w, &err);
    if (status == STATUS_OK) status = model_weights_pack(&w, &err);
    if (status != expected || !strstr(err.text, words))
        fail_msg("%s: expected \"%s\", found status %d: %s", form->name, words, (int)status, err.text);
    assert_non_null(strstr(err.text, folder->path));
    model_weights_close(&w);
    free(spec);
}

#define O "model.layers.0.self_attn.o_proj."

static const struct quantized_form *form_named(const char *name)
{
    const struct quantized_form *form = forms;
    while (strcmp(form->name, name) != 0) assert_true(++form < forms + NUM_FORMS);
    return form;
}

/* Every tensor that a form needs. */
static void test_missing_and_reshaped(void **state)
{
    static const struct {
        const char *form, *part;
    } all[] = {
        {"fp8, a scale of each row", "weight"},
        {"fp8, a scale of each row", "weight_scale"},
        {"packed, zeros", "weight_packed"},
        {"packed, zeros", "weight_scale"},
        {"packed, zeros", "weight_zero_point"},
        {"packed, ordered", "weight_g_idx"},
        {"gptq, zeros", "qweight"},
        {"gptq, zeros", "scales"},
        {"gptq, zeros", "qzeros"},
        {"gptq, ordered", "g_idx"},
        {"awq", "qweight"},
        {"awq", "scales"},
        {"awq", "qzeros"},
        {"int8", "weight"},
        {"int8", "weight_scale"},
        {"mxfp4, lm_head", "weight_packed"},
        {"mxfp4, lm_head", "weight_scale"},
        {"nvfp4", "weight_scale"},
        {"nvfp4", "weight_global_scale"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct quantized_form *form = form_named(all[i].form);
        char name[128], words[256];
        snprintf(name, sizeof name, O "%s", all[i].part);
        snprintf(words, sizeof words, "there is no tensor \"%s\" in the safetensors files; by the", name);
        refuse(*state, form, &(struct quantized_change){.skip = name}, STATUS_INVALID, words);
        snprintf(words, sizeof words, "tensor \"%s\" has shape [", name);
        refuse(*state, form, &(struct quantized_change){.reshape = name}, STATUS_INVALID, words);
        snprintf(words, sizeof words, "tensor \"%s\" has dtype %s, but by the \"quantization_config\" of", name,
                 form->scheme.storage == STORED_MXFP4 ? "I8" : "U8");
        refuse(*state, form, &(struct quantized_change){.retype = name}, STATUS_INVALID, words);
    }
}

/* config.json says nothing of quantization. */
static void test_unknown_to_config(void **state)
{
    static const struct {
        const char *form, *words;
    } cases[] = {{"packed, zeros",
                  "no tensor \"model.layers.0.self_attn.q_proj.weight\" in the safetensors files; it is packed"},
                 {"awq", "files; it is packed there, but no \"quantization_config\" in config.json says how"},
                 {"fp8, a scale of each row", "has dtype F8_E4M3, but config.json makes it F32, F16 or BF16: its"}};
    struct model_spec *spec = malloc(sizeof *spec);
    assert_non_null(spec);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct quantized_form *form = form_named(cases[i].form);
        struct model_weights w;
        struct error err = {""};
        quantized_spec(form, true, spec);
        quantized_write(*state, form, spec, false, NULL);
        quantization_remove(spec);
        assert_true(model_weights_open(((const struct temp_folder *)*state)->path, spec, NULL, &w, &err) != STATUS_OK);
        if (!strstr(err.text, cases[i].words)) fail_msg("expected \"%s\", found: %s", cases[i].words, err.text);
    }
    free(spec);
}

static void test_damaged_numbers(void **state)
{
    struct quantized_change change = {.patch = O "g_idx", .word = 7};
    refuse(*state, form_named("gptq, ordered"), &change, STATUS_INVALID,
           "tensor \"" O "g_idx\" puts input feature 0 into group 7, but the number of groups is 2");
    change.word = 0xffffffff;
    refuse(*state, form_named("gptq, ordered"), &change, STATUS_INVALID, "feature 0 into group -1, but the number");
    change.word = 1;
    refuse(*state, form_named("gptq, ordered"), &change, STATUS_INVALID,
           "input features into group 0, but groups have");
    change = (struct quantized_change){.patch = O "qzeros", .word = 0x77777977};
    refuse(*state, form_named("gptq"), &change, STATUS_INVALID,
           "tensor \"" O "qzeros\" has a zero point of 10; the quantization_config of config.json says that it is "
           "symmetric, so all must be 8");
    change = (struct quantized_change){.patch = O "weight_global_scale", .word = 0};
    refuse(*state, form_named("nvfp4"), &change, STATUS_INVALID,
           "tensor \"" O "weight_global_scale\" is 0; scales are divided by it, so it is above 0");
    const struct quantized_form narrow = {"narrow", {PACKED, .group_size = 48}, DTYPE_FLOAT16};
    refuse(*state, &narrow, NULL, STATUS_UNSUPPORTED, "has 256 input features, which are no multiple of 48");
}

/* Blocks that do not begin where a part of a merged matrix begins. */
static void test_parts_across_blocks(void **state)
{
    struct quantized_form form = *form_named("fp8, blocks");
    struct model_spec *spec = malloc(sizeof *spec);
    struct model_weights w;
    struct error err;
    assert_non_null(spec);
    form.merged = true;
    quantized_spec(&form, true, spec);
    quantized_write(*state, &form, spec, false, NULL);
    must(model_weights_open(((struct temp_folder *)*state)->path, spec, NULL, &w, &err), &err);
    check_device(&form, spec, &w);
    check_host(&form, &w);
    model_weights_close(&w);
    quantized_spec(&form, false, spec);
    quantized_write(*state, &form, spec, false, NULL);
    assert_int_equal(model_weights_open(((struct temp_folder *)*state)->path, spec, NULL, &w, &err),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "rows from 192 to 256, which are no multiples of 128"));
    form.by_head = true;
    quantized_spec(&form, true, spec);
    assert_int_equal(model_weights_open(((struct temp_folder *)*state)->path, spec, NULL, &w, &err),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "head by head, and in words or blocks of rows"));
    free(spec);
}

/* Symmetric or not is a property of the file, not only of config.json. */
static void test_no_warnings(void **state)
{
    const struct temp_folder *folder = *state;
    const struct log log = {LOG_WARNING};
    char path[512];
    assert_true(path_join(path, sizeof path, folder->path, "stderr"));
    for (int i = 0; i < NUM_FORMS; i++) {
        struct model_spec *spec = malloc(sizeof *spec);
        struct model_weights w;
        struct text text = {0};
        struct error err;
        assert_non_null(spec);
        quantized_spec(&forms[i], true, spec);
        quantized_write(folder, &forms[i], spec, false, NULL);
        fflush(stderr);
        const int saved = dup(STDERR_FILENO), fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
        assert_true(saved >= 0 && fd >= 0);
        dup2(fd, STDERR_FILENO);
        const enum status status = model_weights_open(folder->path, spec, &log, &w, &err);
        fflush(stderr);
        dup2(saved, STDERR_FILENO);
        close(saved);
        close(fd);
        must(status, &err);
        must(file_read(path, &text, &err), &err);
        if (text.length) fail_msg("%s: %s", forms[i].name, text.data);
        text_free(&text);
        model_weights_close(&w);
        free(spec);
    }
}

/* Any byte of a file may be wrong: it is refused, or loaded, and nothing breaks. */
static void test_random_damage(void **state)
{
    const struct temp_folder *folder = *state;
    struct random random = {42};
    struct model_spec *spec = malloc(sizeof *spec);
    char path[512];
    assert_non_null(spec);
    assert_true(path_join(path, sizeof path, folder->path, "model.safetensors"));
    for (int i = 0; i < NUM_FORMS; i++) {
        struct text sound = {0};
        struct error err;
        quantized_spec(&forms[i], false, spec);
        quantized_write(folder, &forms[i], spec, false, NULL);
        must(file_read(path, &sound, &err), &err);
        uint64_t header;
        memcpy(&header, sound.data, 8);
        for (int k = 0; k < 12; k++) {
            struct model_weights w;
            const bool in_header = k % 2;
            const size_t at = in_header ? 8 + random_bits(&random) % header : random_bits(&random) % sound.length;
            const char was = sound.data[at];
            sound.data[at] = in_header ? (char)('0' + random_bits(&random) % 10) : (char)random_bits(&random);
            temp_folder_write(folder, "model.safetensors", sound.data, sound.length);
            enum status status = model_weights_open(folder->path, spec, NULL, &w, &err);
            if (status == STATUS_OK) status = model_weights_pack(&w, &err);
            if (status != STATUS_OK) assert_true(strlen(err.text) > 20);
            model_weights_close(&w);
            sound.data[at] = was;
        }
        text_free(&sound);
    }
    free(spec);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, temp_folder_setup, temp_folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_element),     TEST(test_quantizing),           TEST(test_dummy),
        TEST(test_blocks_of_experts), TEST(test_missing_and_reshaped), TEST(test_unknown_to_config),
        TEST(test_damaged_numbers),   TEST(test_parts_across_blocks),  TEST(test_no_warnings),
        TEST(test_random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
