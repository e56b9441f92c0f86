#include "tests/support/quantized_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/array.h"
#include "base/random.h"

static const int awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

void quantized_spec(const struct quantized_form *form, bool wide, struct model_spec *spec)
{
    *spec = (struct model_spec){.hidden_size = 256,
                                .num_layers = 1,
                                .vocab_size = 24,
                                .names = tensor_names_llama,
                                .dtype = DTYPE_BFLOAT16,
                                .num_schemes = 2,
                                .lm_head_scheme = form->lm_head};
    if (form->merged) spec->names.qkv = "self_attn.qkv_proj", spec->names.gate_up = "mlp.gate_up_proj";
    spec->qkv_by_head = form->by_head;
    spec->schemes[1] = form->scheme;
    for (int i = 0; i < NUM_TENSOR_ROLES; i++) spec->layers[0].schemes[i] = 1;
    spec->layers[0].attention = (struct attention_spec){
        .num_heads = 4, .num_kv_heads = wide ? 4 : 2, .head_size = 32, .qkv_bias = true, .v_multiplier = 1};
    spec->layers[0].mlp.intermediate_size = 384;
    if (!form->experts) return;
    spec->names.experts = NULL;
    spec->names.expert_gate_up = "mlp.experts.gate_up_proj";
    spec->names.expert_down = "mlp.experts.down_proj";
    spec->names.experts_transposed = spec->names.experts_interleaved = true; /* of floats; blocks are not transposed */
    for (int i = 0; i < NUM_TENSOR_ROLES; i++) spec->layers[0].schemes[i] = i >= TENSOR_EXPERT_GATE;
    spec->layers[0].mlp.intermediate_size = 0;
    spec->layers[0].experts.router = (struct router_params){.num_experts = 5, .top_k = 2};
    spec->layers[0].experts.intermediate_size = 160;
}

/* ---- the numbers ---- */

/* A number of the matrix in the file, from 0 on. The name's digits and the last letters of its module tell it from
 * others. */
static uint64_t hash(const struct tensor *t, int64_t row, int64_t i, int kind)
{
    uint64_t seed;
    memcpy(&seed, t->name + strlen(t->name) - 14, sizeof seed);
    seed += (uint64_t)kind;
    return random_mix(random_mix(seed + (uint64_t)row) + (uint64_t)i) >> 20;
}

static int64_t file_row(const struct tensor *t, int64_t row)
{
    return t->file_row + row / t->run * t->step + row % t->run;
}

static int64_t file_rows(const struct tensor *t)
{
    return t->merged_in_file ? t->merged_rows : t->out_features;
}

static int64_t group_size(const struct quantized_form *form, const struct tensor *t)
{
    return form->scheme.group_size > 0 ? form->scheme.group_size : t->in_features;
}

static int64_t num_groups(const struct quantized_form *form, const struct tensor *t)
{
    return (t->in_features + group_size(form, t) - 1) / group_size(form, t);
}

static int64_t group_of(const struct quantized_form *form, const struct tensor *t, int64_t i)
{
    const bool sorted = !form->scheme.ordered || form->no_sorting;
    const int64_t factor = form->own_orders && (t->role == TENSOR_K || t->role == TENSOR_UP) ? 79 : 77;
    return (sorted ? i : (i * factor + 5) % t->in_features) / group_size(form, t);
}

/* What is stored: 0 to 15, -128 to 127, or the bits of an fp8 or e2m1. */
static int code(const struct quantized_form *form, const struct tensor *t, int64_t row, int64_t i)
{
    const int byte = (int)(hash(t, row, i, 0) & 255);
    if (weight_is_packed(form->scheme.format)) return byte & 15;
    if (form->scheme.format == WEIGHT_INT8) return byte - 128;
    return (byte & 127) == 127 ? byte - 1 : byte;
}

static int zero(const struct quantized_form *form, const struct tensor *t, int64_t row, int64_t group)
{
    if (form->scheme.format != WEIGHT_INT4) return 0;
    return form->scheme.has_zeros ? (int)(hash(t, row, group, 1) & 15) : 8;
}

static const float global_scale = 7; /* of NVFP4 */

/* A number that the type of scales can hold; each type of 16 or 32 bits can hold the same. */
static float scale(const struct quantized_form *form, const struct tensor *t, int64_t row, int64_t group)
{
    const uint64_t number = hash(t, row, group, 2) % 64;
    if (form->scale_dtype == DTYPE_E8M0) return 1 / (float)(1 << number % 16);
    return (float)(64 + (form->scale_dtype == DTYPE_FP8_E4M3 ? number / 8 * 8 : number)) / 4096;
}

static int64_t scale_row(const struct quantized_form *form, const struct tensor *t, int64_t row)
{
    if (form->scheme.blocks) return row / form->scheme.group_size;
    if (form->scales == SCALE_PARTS)
        return t->role == TENSOR_V ? 2 : t->role == TENSOR_K || t->role == TENSOR_UP ? 1 : 0;
    return form->scales >= SCALE_SCALAR ? 0 : row;
}

float quantized_element(const struct quantized_form *form, const struct tensor *t, int64_t row, int64_t i)
{
    const int64_t in_file = file_row(t, row), group = group_of(form, t, i);
    static const float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const int stored = code(form, t, in_file, i);
    const float stored_scale = scale(form, t, scale_row(form, t, in_file), group);
    const float s = form->scheme.storage == STORED_NVFP4 ? stored_scale / global_scale : stored_scale;
    const uint8_t bits = (uint8_t)stored;
    if (form->scheme.format == WEIGHT_FP8) return s * dtype_load(&bits, DTYPE_FP8_E4M3, 0);
    if (form->scheme.format == WEIGHT_MXFP4) return s * e2m1[bits];
    return s * (float)(stored - zero(form, t, in_file, group));
}

/* ---- the file ---- */

struct file {
    struct text header, data;
    const struct quantized_change *change;
};

static const char *dtype_text(enum dtype dtype)
{
    static const char *const names[] = {"F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "U8"};
    return names[dtype];
}

static bool names(const char *change, const char *name)
{
    return change && strcmp(change, name) == 0;
}

static void pad(struct text *data, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) assert_true(text_append(data, "\1", 1));
}

/* Adds a tensor of shape [rows, columns], [rows] if columns is 0, or [] if rows is too. */
static void add(struct file *f, const char *name, const char *dtype, int64_t rows, int64_t columns, const void *data,
                uint64_t bytes)
{
    const uint64_t first = f->data.length;
    uint64_t elements = (uint64_t)(rows ? rows : 1) * (uint64_t)(columns ? columns : 1);
    char shape[64] = "";
    if (names(f->change->skip, name)) return;
    assert_true(text_append(&f->data, data, bytes));
    if (names(f->change->patch, name)) memcpy(f->data.data + first, &f->change->word, 4);
    if (names(f->change->reshape, name)) {
        rows = rows ? rows + 1 : 2;
        pad(&f->data, bytes / elements * (uint64_t)(columns ? columns : 1));
    }
    if (names(f->change->retype, name)) {
        f->data.length = first + elements;
        dtype = strcmp(dtype, "U8") == 0 ? "I8" : "U8";
    }
    if (rows) snprintf(shape, sizeof shape, columns ? "%lld,%lld" : "%lld", (long long)rows, (long long)columns);
    assert_true(text_printf(&f->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                            f->header.length ? "," : "", name, dtype, shape, (unsigned long long)first,
                            (unsigned long long)f->data.length));
}

static void finish(struct file *f, const struct temp_folder *folder, const char *name)
{
    while ((f->header.length + 2) % 8) assert_true(text_append(&f->header, " ", 1));
    temp_folder_write_safetensors(folder, name, f->header.data, f->data.data, f->data.length);
    text_free(&f->header);
    text_free(&f->data);
}

/* ---- the tensors of a matrix ---- */

/* Adds a tensor of bytes, [num_experts, rows, groups] or, with a size of groups, [num_experts, rows, groups, size]. */
static void add_of_experts(struct file *f, const struct tensor *t, const char *end, int64_t groups, int64_t size,
                           const void *data, uint64_t bytes)
{
    const struct tensor_name name = tensor_name_ending(t, end);
    const uint64_t first = f->data.length;
    char last[32] = "";
    if (names(f->change->skip, name.text)) return;
    assert_true(text_append(&f->data, data, bytes));
    if (size > 0) snprintf(last, sizeof last, ",%lld", (long long)size);
    assert_true(text_printf(
        &f->header, "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[%d,%lld,%lld%s],\"data_offsets\":[%llu,%llu]}",
        f->header.length ? "," : "", name.text, t->num_experts, (long long)(t->merged_rows / t->num_experts),
        (long long)groups, last, (unsigned long long)first, (unsigned long long)f->data.length));
}

/* Numbers of `bits` in an array of int32 words. */
static void put(uint32_t *words, int64_t word, int place, int bits, int value)
{
    words[word] |= ((uint32_t)value & ((1u << bits) - 1)) << (place * bits);
}

static void add_data(struct file *f, const struct quantized_form *form, const struct tensor *t)
{
    const enum weight_storage storage = form->scheme.storage;
    const int64_t rows = file_rows(t), columns = t->in_features;
    const int bits = weight_is_packed(form->scheme.format) ? 4 : 8, n = 32 / bits;
    uint32_t *words = calloc((size_t)(rows * columns / n), sizeof *words);
    const uint64_t bytes = (uint64_t)(rows * columns * bits / 8);
    assert_non_null(words);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < columns; i++) {
            int value = code(form, t, row, i);
            if (bits == 8 && storage != STORED_ROWS) value += 128;
            if (storage == STORED_GPTQ) {
                put(words, i / n * rows + row, (int)(i % n), bits, value);
            } else if (storage == STORED_AWQ) {
                int place = 0;
                while (awq_order[place] != row % 8) place++;
                put(words, i * (rows / 8) + row / 8, place, 4, value);
            } else {
                put(words, row * (columns / n) + i / n, (int)(i % n), bits, value);
            }
        }
    if (storage == STORED_ROWS)
        add(f, t->name, form->scheme.format == WEIGHT_FP8 ? "F8_E4M3" : "I8", rows, columns, words, bytes);
    else if (storage == STORED_PACKED)
        add(f, tensor_name_ending(t, ".weight_packed").text, "I32", rows, columns / n, words, bytes);
    else if (form->experts)
        add_of_experts(f, t, "_blocks", columns / 32, 16, words, bytes);
    else if (form->scheme.format == WEIGHT_MXFP4)
        add(f, tensor_name_ending(t, ".weight_packed").text, "U8", rows, columns / 2, words, bytes);
    else if (storage == STORED_GPTQ)
        add(f, tensor_name_ending(t, ".qweight").text, "I32", columns / n, rows, words, bytes);
    else
        add(f, tensor_name_ending(t, ".qweight").text, "I32", columns, rows / 8, words, bytes);
    free(words);
}

static bool is_transposed(const struct quantized_form *form)
{
    return form->scheme.storage == STORED_GPTQ || form->scheme.storage == STORED_AWQ;
}

static int64_t num_scale_rows(const struct quantized_form *form, const struct tensor *t)
{
    if (form->scheme.blocks) return (file_rows(t) + form->scheme.group_size - 1) / form->scheme.group_size;
    if (form->scales == SCALE_PARTS && t->merged_in_file) return t->merged == MERGED_QKV ? 3 : 2;
    return form->scales >= SCALE_SCALAR ? 1 : file_rows(t);
}

static void add_scales(struct file *f, const struct quantized_form *form, const struct tensor *t)
{
    const int64_t rows = num_scale_rows(form, t), groups = num_groups(form, t);
    const int size = dtype_size(form->scale_dtype);
    const char *word = is_transposed(form) ? ".scales" : form->inverse ? ".weight_scale_inv" : ".weight_scale";
    const enum scale_form as = form->scales == SCALE_PARTS ? SCALE_VECTOR : form->scales;
    char *out = calloc((size_t)(rows * groups), (size_t)size);
    assert_non_null(out);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t g = 0; g < groups; g++)
            dtype_store(out, form->scale_dtype, is_transposed(form) ? g * rows + row : row * groups + g,
                        scale(form, t, row, g));
    const uint64_t bytes = (uint64_t)(rows * groups * size);
    const char *type = dtype_text(form->scale_dtype);
    if (form->experts)
        add_of_experts(f, t, "_scales", groups, 0, out, bytes);
    else if (is_transposed(form))
        add(f, tensor_name_ending(t, word).text, type, groups, rows, out, bytes);
    else
        add(f, tensor_name_ending(t, word).text, type, as == SCALE_SCALAR ? 0 : rows,
            as == SCALE_COLUMN || as == SCALE_1_1 ? groups : 0, out, bytes);
    free(out);
}

/* GPTQ and AWQ files have zero points even if all are the middle of the range. */
static void add_zeros(struct file *f, const struct quantized_form *form, const struct tensor *t)
{
    const int bits = form->scheme.format == WEIGHT_INT4 ? 4 : 8, n = 32 / bits;
    const int64_t rows = file_rows(t), groups = num_groups(form, t), words = (rows + n - 1) / n;
    const bool packed = form->scheme.storage == STORED_PACKED;
    if (form->scheme.storage == STORED_ROWS || form->scheme.format == WEIGHT_MXFP4) return;
    if (packed && !form->scheme.has_zeros) return;
    uint32_t *out = calloc((size_t)(words * groups), sizeof *out);
    assert_non_null(out);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t g = 0; g < groups; g++) {
            const int value =
                (bits == 8 ? 128 : zero(form, t, row, g)) - (form->scheme.zeros_less_one || form->zeros_are_7);
            int place = (int)(row % n);
            if (form->scheme.storage == STORED_AWQ) {
                place = 0;
                while (awq_order[place] != row % 8) place++;
            }
            put(out, packed ? row / n * groups + g : g * words + row / n, place, bits, value);
        }
    const uint64_t bytes = (uint64_t)(words * groups * 4);
    if (packed)
        add(f, tensor_name_ending(t, ".weight_zero_point").text, "I32", words, groups, out, bytes);
    else
        add(f, tensor_name_ending(t, ".qzeros").text, "I32", groups, words, out, bytes);
    free(out);
}

static void add_g_idx(struct file *f, const struct quantized_form *form, const struct tensor *t)
{
    const bool gptq = form->scheme.storage == STORED_GPTQ;
    if (!gptq && !form->scheme.ordered) return;
    int32_t *out = calloc((size_t)t->in_features, sizeof *out);
    assert_non_null(out);
    for (int64_t i = 0; i < t->in_features; i++) out[i] = (int32_t)group_of(form, t, i);
    add(f, tensor_name_ending(t, gptq ? ".g_idx" : ".weight_g_idx").text, "I32", t->in_features, 0, out,
        (uint64_t)t->in_features * sizeof *out);
    free(out);
}

/* The scale of NVFP4's scales, and tensors that quire does not need. */
static void add_rest(struct file *f, const struct quantized_form *form, const struct tensor *t)
{
    const int64_t shape[2] = {t->out_features, t->in_features};
    const float one = 1;
    if (form->scheme.storage == STORED_PACKED)
        add(f, tensor_name_ending(t, ".weight_shape").text, "I64", 2, 0, shape, sizeof shape);
    if (form->scheme.storage == STORED_NVFP4)
        add(f, tensor_name_ending(t, ".weight_global_scale").text, "F32", 1, 0, &global_scale, sizeof global_scale);
    if (form->scheme.format == WEIGHT_FP8)
        add(f, tensor_name_ending(t, ".input_scale").text, "F32", 0, 0, &one, sizeof one);
}

static void add_quantized(struct file *f, const struct quantized_form *form, const struct tensor *t)
{
    add_data(f, form, t);
    add_scales(f, form, t);
    add_zeros(f, form, t);
    add_g_idx(f, form, t);
    add_rest(f, form, t);
}

/* bfloat16; matrices that are quantized while they are loaded, too. */
static void add_floats(struct file *f, const struct tensor *t)
{
    const int64_t rows = file_rows(t), columns = t->in_features ? t->in_features : 1;
    uint16_t *out = calloc((size_t)(rows * columns), sizeof *out);
    assert_non_null(out);
    for (int64_t i = 0; i < rows * columns; i++) out[i] = float_to_bf16((float)(hash(t, 0, i, 3) % 255) / 64 - 2);
    add(f, t->name, "BF16", rows, t->in_features, out, (uint64_t)(rows * columns * 2));
    free(out);
}

void quantized_write(const struct temp_folder *folder, const struct quantized_form *form, const struct model_spec *spec,
                     bool sharded, const struct quantized_change *change)
{
    static const struct quantized_change nothing = {0};
    struct tensor_table table;
    struct error err;
    struct file f = {.change = change ? change : &nothing};
    assert_int_equal(tensor_table_make(spec, spec->tie_word_embeddings, &table, &err), STATUS_OK);
    temp_folder_delete(folder, "model.safetensors");
    for (int32_t i = 0; i < table.count; i++) {
        const struct tensor *t = &table.tensors[i];
        if (sharded && i == table.count / 2) finish(&f, folder, "m-1.safetensors");
        if (t->kind == TENSOR_CACHE_SCALE || (t->merged_in_file && t->first_row > 0)) continue;
        if (t->scheme.is_quantized && !t->scheme.quantize)
            add_quantized(&f, form, t);
        else
            add_floats(&f, t);
    }
    finish(&f, folder, sharded ? "m-2.safetensors" : "model.safetensors");
    if (sharded)
        temp_folder_write_string(folder, "model.safetensors.index.json",
                                 "{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}}");
    tensor_table_free(&table);
}
