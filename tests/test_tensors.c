/* The table of a model's tensors, against lists written by hand: names, shapes, parts of merged matrices; for Llama and
 * for every other way to build a layer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/config.h"
#include "model/checkpoint/tensor_file.h"
#include "model/tensors.h"
#include "tests/support/golden.h"

/* hidden 8, intermediate 12, 4 heads and 2 KV heads of 6: q has 24 features, k and v 12 */
static struct model_spec small(void)
{
    struct model_spec spec = {.hidden_size = 8, .num_layers = 1, .vocab_size = 10, .names = tensor_names_llama};
    spec.names.attention_norm = "norm_a";
    spec.names.post_attention_norm = "norm_b";
    spec.names.mlp_norm = "norm_c";
    spec.names.post_mlp_norm = "norm_d";
    for (int32_t i = 0; i < MODEL_MAX_LAYERS; i++)
        spec.layers[i] = (struct layer_spec){.attention = {.num_heads = 4, .num_kv_heads = 2, .head_size = 6},
                                             .mlp = {.intermediate_size = 12}};
    return spec;
}

/* One tensor as text: name shape [first row/rows of the merged matrix]. */
static void describe(const struct tensor *t, char *out, size_t size)
{
    static const char *const merged[] = {[MERGED_NONE] = "",
                                         [MERGED_QKV] = "qkv",
                                         [MERGED_GATE_UP] = "gate_up",
                                         [MERGED_ROUTER] = "router",
                                         [MERGED_EXPERTS] = "experts"};
    char shape[64], part[64] = "";
    if (t->kind == TENSOR_MATRIX)
        snprintf(shape, sizeof shape, "%dx%d", (int)t->out_features, (int)t->in_features);
    else
        snprintf(shape, sizeof shape, "%d%s", (int)t->out_features, t->kind == TENSOR_GAIN ? " gain" : "");
    if (t->merged != MERGED_NONE)
        snprintf(part, sizeof part, " %s %d/%d", merged[t->merged], (int)t->first_row, (int)t->merged_rows);
    else
        assert_true(t->first_row == 0 && t->merged_rows == t->out_features && t->num_parts == 1);
    const bool down = t->role == TENSOR_EXPERT_DOWN;
    if (t->merged == MERGED_EXPERTS)
        assert_int_equal(t->part, t->role == TENSOR_EXPERT_UP);
    else
        assert_int_equal(t->part, t->role == TENSOR_V ? 2 : t->role == TENSOR_K || t->first_row > 0);
    if (t->merged != MERGED_NONE) assert_int_equal(t->num_parts, t->merged == MERGED_QKV ? 3 : down ? 1 : 2);
    if (t->kind != TENSOR_MATRIX) assert_int_equal(t->in_features, 0);
    snprintf(out, size, "%s %s%s", t->name, shape, part);
}

/* From `first` on, the table has the two scales of each layer's cache. */
static void check_cache_scales(const struct model_spec *spec, const struct tensor_table *table, int32_t first)
{
    assert_int_equal(table->count, first + 2 * spec->num_layers);
    for (int32_t i = first; i < table->count; i++) {
        const struct tensor *t = &table->tensors[i];
        const int32_t layer = (i - first) / 2;
        const bool is_v = (i - first) % 2;
        char name[128];
        snprintf(name, sizeof name, "%s.%d.%s.%c_scale", spec->names.layers, layer, spec->names.attention,
                 is_v ? 'v' : 'k');
        assert_string_equal(t->name, name);
        assert_int_equal(t->kind, TENSOR_CACHE_SCALE);
        assert_ptr_equal(tensor_table_find(table, is_v ? TENSOR_V_SCALE : TENSOR_K_SCALE, layer), t);
        assert_int_equal(tensor_elements(t), 0);
        assert_true(t->optional && t->layer == layer);
    }
}

static void expect(const struct model_spec *spec, bool tied, const char *const *lines)
{
    struct tensor_table table;
    struct error err;
    assert_int_equal(tensor_table_make(spec, tied, &table, &err), STATUS_OK);
    int32_t count = 0;
    for (; lines[count]; count++) {
        char line[256];
        assert_true(count < table.count);
        describe(&table.tensors[count], line, sizeof line);
        assert_string_equal(line, lines[count]);
    }
    check_cache_scales(spec, &table, count);
    tensor_table_free(&table);
    assert_null(table.tensors);
}

static void test_llama(void **state)
{
    (void)state;
    const struct model_spec spec = small();
    static const char *const lines[] = {
        "model.embed_tokens.weight 10x8",
        "model.layers.0.norm_a.weight 8 gain",
        "model.layers.0.self_attn.q_proj.weight 24x8 qkv 0/48",
        "model.layers.0.self_attn.k_proj.weight 12x8 qkv 24/48",
        "model.layers.0.self_attn.v_proj.weight 12x8 qkv 36/48",
        "model.layers.0.self_attn.o_proj.weight 8x24",
        "model.layers.0.norm_c.weight 8 gain",
        "model.layers.0.mlp.gate_proj.weight 12x8 gate_up 0/24",
        "model.layers.0.mlp.up_proj.weight 12x8 gate_up 12/24",
        "model.layers.0.mlp.down_proj.weight 8x12",
        "model.norm.weight 8 gain",
        "lm_head.weight 10x8",
        NULL,
    };
    expect(&spec, false, lines);
}

/* Gives it all norms and biases that a layer can have. */
static void fill_layer(struct layer_spec *l)
{
    l->norm_placement = NORM_AROUND;
    l->attention.qk_norm = QK_NORM_HEAD;
    l->attention.qkv_bias = l->attention.o_bias = l->mlp.bias = true;
}

static void test_everything(void **state)
{
    (void)state;
    struct model_spec spec = small();
    fill_layer(&spec.layers[0]);
    static const char *const lines[] = {
        "model.embed_tokens.weight 10x8",
        "model.layers.0.norm_a.weight 8 gain",
        "model.layers.0.self_attn.q_proj.weight 24x8 qkv 0/48",
        "model.layers.0.self_attn.q_proj.bias 24 qkv 0/48",
        "model.layers.0.self_attn.k_proj.weight 12x8 qkv 24/48",
        "model.layers.0.self_attn.k_proj.bias 12 qkv 24/48",
        "model.layers.0.self_attn.v_proj.weight 12x8 qkv 36/48",
        "model.layers.0.self_attn.v_proj.bias 12 qkv 36/48",
        "model.layers.0.self_attn.q_norm.weight 6 gain",
        "model.layers.0.self_attn.k_norm.weight 6 gain",
        "model.layers.0.self_attn.o_proj.weight 8x24",
        "model.layers.0.self_attn.o_proj.bias 8",
        "model.layers.0.norm_b.weight 8 gain",
        "model.layers.0.norm_c.weight 8 gain",
        "model.layers.0.mlp.gate_proj.weight 12x8 gate_up 0/24",
        "model.layers.0.mlp.gate_proj.bias 12 gate_up 0/24",
        "model.layers.0.mlp.up_proj.weight 12x8 gate_up 12/24",
        "model.layers.0.mlp.up_proj.bias 12 gate_up 12/24",
        "model.layers.0.mlp.down_proj.weight 8x12",
        "model.layers.0.mlp.down_proj.bias 8",
        "model.layers.0.norm_d.weight 8 gain",
        "model.norm.weight 8 gain",
        "lm_head.weight 10x8",
        NULL,
    };
    expect(&spec, false, lines);
}

/* Layers of different kinds; norms of whole projections, which are split as those are; no lm_head. */
static void test_layers_differ(void **state)
{
    (void)state;
    struct model_spec spec = small();
    spec.num_layers = 2;
    spec.layers[0].norm_placement = NORM_AFTER;
    spec.layers[0].attention.qk_norm = QK_NORM_PROJECTION;
    spec.layers[1].attention.qkv_bias = true;
    static const char *const lines[] = {
        "model.embed_tokens.weight 10x8",
        "model.layers.0.self_attn.q_proj.weight 24x8 qkv 0/48",
        "model.layers.0.self_attn.k_proj.weight 12x8 qkv 24/48",
        "model.layers.0.self_attn.v_proj.weight 12x8 qkv 36/48",
        "model.layers.0.self_attn.q_norm.weight 24 gain",
        "model.layers.0.self_attn.k_norm.weight 12 gain",
        "model.layers.0.self_attn.o_proj.weight 8x24",
        "model.layers.0.norm_b.weight 8 gain",
        "model.layers.0.mlp.gate_proj.weight 12x8 gate_up 0/24",
        "model.layers.0.mlp.up_proj.weight 12x8 gate_up 12/24",
        "model.layers.0.mlp.down_proj.weight 8x12",
        "model.layers.0.norm_d.weight 8 gain",
        "model.layers.1.norm_a.weight 8 gain",
        "model.layers.1.self_attn.q_proj.weight 24x8 qkv 0/48",
        "model.layers.1.self_attn.q_proj.bias 24 qkv 0/48",
        "model.layers.1.self_attn.k_proj.weight 12x8 qkv 24/48",
        "model.layers.1.self_attn.k_proj.bias 12 qkv 24/48",
        "model.layers.1.self_attn.v_proj.weight 12x8 qkv 36/48",
        "model.layers.1.self_attn.v_proj.bias 12 qkv 36/48",
        "model.layers.1.self_attn.o_proj.weight 8x24",
        "model.layers.1.norm_c.weight 8 gain",
        "model.layers.1.mlp.gate_proj.weight 12x8 gate_up 0/24",
        "model.layers.1.mlp.up_proj.weight 12x8 gate_up 12/24",
        "model.layers.1.mlp.down_proj.weight 8x12",
        "model.norm.weight 8 gain",
        NULL,
    };
    expect(&spec, true, lines);
}

/* Each layer has the sizes of its own: other heads, and an MLP of another size. */
static void test_sizes_differ(void **state)
{
    (void)state;
    struct model_spec spec = small();
    spec.num_layers = 2;
    spec.layers[0].attention.qk_norm = spec.layers[1].attention.qk_norm = QK_NORM_HEAD;
    spec.layers[1].attention.num_heads = 3;
    spec.layers[1].attention.num_kv_heads = 1;
    spec.layers[1].attention.head_size = 10;
    spec.layers[1].mlp.intermediate_size = 20;
    static const char *const lines[] = {
        "model.embed_tokens.weight 10x8",
        "model.layers.0.norm_a.weight 8 gain",
        "model.layers.0.self_attn.q_proj.weight 24x8 qkv 0/48",
        "model.layers.0.self_attn.k_proj.weight 12x8 qkv 24/48",
        "model.layers.0.self_attn.v_proj.weight 12x8 qkv 36/48",
        "model.layers.0.self_attn.q_norm.weight 6 gain",
        "model.layers.0.self_attn.k_norm.weight 6 gain",
        "model.layers.0.self_attn.o_proj.weight 8x24",
        "model.layers.0.norm_c.weight 8 gain",
        "model.layers.0.mlp.gate_proj.weight 12x8 gate_up 0/24",
        "model.layers.0.mlp.up_proj.weight 12x8 gate_up 12/24",
        "model.layers.0.mlp.down_proj.weight 8x12",
        "model.layers.1.norm_a.weight 8 gain",
        "model.layers.1.self_attn.q_proj.weight 30x8 qkv 0/50",
        "model.layers.1.self_attn.k_proj.weight 10x8 qkv 30/50",
        "model.layers.1.self_attn.v_proj.weight 10x8 qkv 40/50",
        "model.layers.1.self_attn.q_norm.weight 10 gain",
        "model.layers.1.self_attn.k_norm.weight 10 gain",
        "model.layers.1.self_attn.o_proj.weight 8x30",
        "model.layers.1.norm_c.weight 8 gain",
        "model.layers.1.mlp.gate_proj.weight 20x8 gate_up 0/40",
        "model.layers.1.mlp.up_proj.weight 20x8 gate_up 20/40",
        "model.layers.1.mlp.down_proj.weight 8x20",
        "model.norm.weight 8 gain",
        NULL,
    };
    expect(&spec, true, lines);
    const struct layer_sizes largest = model_spec_largest(&spec);
    assert_int_equal(largest.num_heads, 4);
    assert_int_equal(largest.num_kv_heads, 2);
    assert_int_equal(largest.head_size, 10);
    assert_int_equal(largest.intermediate_size, 20);
}

/* A parallel block has one norm; q, k, v and gate, up may be one tensor of the file, with one bias. */
static void test_merged_in_the_file(void **state)
{
    (void)state;
    struct model_spec spec = small();
    spec.layers[0].norm_placement = NORM_PARALLEL;
    spec.layers[0].attention.qkv_bias = true;
    spec.names.qkv = "self_attn.qkv_proj";
    spec.names.gate_up = "ffn.in";
    spec.names.down = "ffn.out";
    static const char *const lines[] = {
        "model.embed_tokens.weight 10x8",
        "model.layers.0.norm_a.weight 8 gain",
        "model.layers.0.self_attn.qkv_proj.weight 24x8 qkv 0/48",
        "model.layers.0.self_attn.qkv_proj.bias 24 qkv 0/48",
        "model.layers.0.self_attn.qkv_proj.weight 12x8 qkv 24/48",
        "model.layers.0.self_attn.qkv_proj.bias 12 qkv 24/48",
        "model.layers.0.self_attn.qkv_proj.weight 12x8 qkv 36/48",
        "model.layers.0.self_attn.qkv_proj.bias 12 qkv 36/48",
        "model.layers.0.self_attn.o_proj.weight 8x24",
        "model.layers.0.ffn.in.weight 12x8 gate_up 0/24",
        "model.layers.0.ffn.in.weight 12x8 gate_up 12/24",
        "model.layers.0.ffn.out.weight 8x12",
        "model.norm.weight 8 gain",
        NULL,
    };
    expect(&spec, true, lines);
    struct tensor_table table;
    struct error err;
    assert_int_equal(tensor_table_make(&spec, true, &table, &err), STATUS_OK);
    for (int32_t i = 0; i < table.count; i++)
        assert_int_equal(table.tensors[i].merged_in_file, table.tensors[i].merged != MERGED_NONE);
    tensor_table_free(&table);
}

/* Learned positions, a norm of the embedding, norms and an lm_head with biases, two norms of a parallel block, and q, k
 * and v head by head. */
static void test_older_models(void **state)
{
    (void)state;
    struct model_spec spec = small();
    spec.layers[0].norm_placement = NORM_PARALLEL_TWO;
    spec.layers[0].attention.qkv_bias = true;
    spec.layers[0].attention.qk_norm = QK_NORM_HEAD;
    spec.layers[0].attention.qk_norm_bias = true;
    spec.layers[0].mlp.kind = MLP_PLAIN;
    spec.norm_bias = spec.lm_head_bias = spec.qkv_by_head = true;
    spec.max_position_embeddings = 30;
    spec.position_offset = 2;
    spec.names.position_embedding = "model.positions";
    spec.names.embedding_norm = "model.first_norm";
    spec.names.lm_head = "head";
    spec.names.qkv = "attention.qkv";
    spec.names.q_norm = "q_layernorm";
    static const char *const lines[] = {
        "model.embed_tokens.weight 10x8",
        "model.positions.weight 32x8",
        "model.first_norm.weight 8 gain",
        "model.first_norm.bias 8",
        "model.layers.0.norm_a.weight 8 gain",
        "model.layers.0.norm_a.bias 8",
        "model.layers.0.attention.qkv.weight 24x8 qkv 0/48",
        "model.layers.0.attention.qkv.bias 24 qkv 0/48",
        "model.layers.0.attention.qkv.weight 12x8 qkv 24/48",
        "model.layers.0.attention.qkv.bias 12 qkv 24/48",
        "model.layers.0.attention.qkv.weight 12x8 qkv 36/48",
        "model.layers.0.attention.qkv.bias 12 qkv 36/48",
        "model.layers.0.self_attn.q_layernorm.weight 6 gain",
        "model.layers.0.self_attn.q_layernorm.bias 6",
        "model.layers.0.self_attn.k_norm.weight 6 gain",
        "model.layers.0.self_attn.k_norm.bias 6",
        "model.layers.0.self_attn.o_proj.weight 8x24",
        "model.layers.0.norm_c.weight 8 gain",
        "model.layers.0.norm_c.bias 8",
        "model.layers.0.mlp.up_proj.weight 12x8",
        "model.layers.0.mlp.down_proj.weight 8x12",
        "model.norm.weight 8 gain",
        "model.norm.bias 8",
        "head.weight 10x8",
        "head.bias 10",
        NULL,
    };
    expect(&spec, false, lines);
    struct tensor_table table;
    struct error err;
    assert_int_equal(tensor_table_make(&spec, false, &table, &err), STATUS_OK);
    /* of two KV heads of two queries each, all of 6 elements: q q k v, q q k v */
    static const int64_t rows[][3] = {{0, 12, 24}, {12, 6, 24}, {18, 6, 24}};
    for (int i = 0; i < 6; i++) {
        const struct tensor *t = &table.tensors[6 + i];
        assert_true(t->file_row == rows[i / 2][0] && t->run == rows[i / 2][1] && t->step == rows[i / 2][2]);
    }
    tensor_table_free(&table);
}

/* up, and the scalars of xIELU in the order in which they are read; a squared ReLU has none. */
static void test_mlp_without_a_gate(void **state)
{
    (void)state;
    struct model_spec spec = small();
    spec.num_layers = 2;
    spec.layers[0].norm_placement = spec.layers[1].norm_placement = NORM_PARALLEL;
    spec.layers[0].mlp.kind = spec.layers[1].mlp.kind = MLP_PLAIN;
    spec.layers[0].mlp.activation = ACTIVATION_XIELU;
    spec.layers[1].mlp.activation = ACTIVATION_RELU2;
    spec.layers[1].mlp.bias = true;
    static const char *const lines[] = {
        "model.embed_tokens.weight 10x8",
        "model.layers.0.norm_a.weight 8 gain",
        "model.layers.0.self_attn.q_proj.weight 24x8 qkv 0/48",
        "model.layers.0.self_attn.k_proj.weight 12x8 qkv 24/48",
        "model.layers.0.self_attn.v_proj.weight 12x8 qkv 36/48",
        "model.layers.0.self_attn.o_proj.weight 8x24",
        "model.layers.0.mlp.up_proj.weight 12x8",
        "model.layers.0.mlp.act_fn.beta 1",
        "model.layers.0.mlp.act_fn.eps 1",
        "model.layers.0.mlp.act_fn.alpha_p 1",
        "model.layers.0.mlp.act_fn.alpha_n 1",
        "model.layers.0.mlp.down_proj.weight 8x12",
        "model.layers.1.norm_a.weight 8 gain",
        "model.layers.1.self_attn.q_proj.weight 24x8 qkv 0/48",
        "model.layers.1.self_attn.k_proj.weight 12x8 qkv 24/48",
        "model.layers.1.self_attn.v_proj.weight 12x8 qkv 36/48",
        "model.layers.1.self_attn.o_proj.weight 8x24",
        "model.layers.1.mlp.up_proj.weight 12x8",
        "model.layers.1.mlp.up_proj.bias 12",
        "model.layers.1.mlp.down_proj.weight 8x12",
        "model.layers.1.mlp.down_proj.bias 8",
        "model.norm.weight 8 gain",
        NULL,
    };
    expect(&spec, true, lines);
}

/* Experts alone, each with tensors of its own; and all in two tensors, with everything that there can be beside them.
 */
static void test_experts(void **state)
{
    (void)state;
    struct model_spec spec = small();
    spec.layers[0].norm_placement = NORM_PARALLEL;
    spec.layers[0].mlp.intermediate_size = 0;
    spec.layers[0].experts = (struct experts_spec){.router = {.num_experts = 2, .top_k = 1}, .intermediate_size = 5};
    static const char *const alone[] = {
        "model.embed_tokens.weight 10x8",
        "model.layers.0.norm_a.weight 8 gain",
        "model.layers.0.self_attn.q_proj.weight 24x8 qkv 0/48",
        "model.layers.0.self_attn.k_proj.weight 12x8 qkv 24/48",
        "model.layers.0.self_attn.v_proj.weight 12x8 qkv 36/48",
        "model.layers.0.self_attn.o_proj.weight 8x24",
        "model.layers.0.mlp.gate.weight 2x8",
        "model.layers.0.mlp.experts.0.gate_proj.weight 5x8 experts 0/20",
        "model.layers.0.mlp.experts.0.up_proj.weight 5x8 experts 5/20",
        "model.layers.0.mlp.experts.0.down_proj.weight 8x5 experts 0/16",
        "model.layers.0.mlp.experts.1.gate_proj.weight 5x8 experts 10/20",
        "model.layers.0.mlp.experts.1.up_proj.weight 5x8 experts 15/20",
        "model.layers.0.mlp.experts.1.down_proj.weight 8x5 experts 8/16",
        "model.norm.weight 8 gain",
        NULL,
    };
    expect(&spec, true, alone);
    spec.layers[0].mlp.intermediate_size = 12;
    spec.layers[0].experts.bias = spec.layers[0].experts.router_bias = spec.layers[0].experts.choice_bias = true;
    spec.layers[0].experts.shared_gate = spec.layers[0].experts.own_norms = spec.layers[0].experts.expert_scales = true;
    spec.layers[0].experts.router.num_experts = 1;
    spec.names.shared = "mlp.shared";
    spec.names.shared_gate = "mlp.shared_gate";
    spec.names.experts = NULL;
    spec.names.expert_gate_up = "mlp.experts.in";
    spec.names.expert_down = "mlp.experts.out";
    static const char *const together[] = {
        "model.embed_tokens.weight 10x8",
        "model.layers.0.norm_a.weight 8 gain",
        "model.layers.0.self_attn.q_proj.weight 24x8 qkv 0/48",
        "model.layers.0.self_attn.k_proj.weight 12x8 qkv 24/48",
        "model.layers.0.self_attn.v_proj.weight 12x8 qkv 36/48",
        "model.layers.0.self_attn.o_proj.weight 8x24",
        "model.layers.0.mlp.gate.weight 1x8 router 0/2",
        "model.layers.0.mlp.gate.bias 1 router 0/2",
        "model.layers.0.mlp.gate.e_score_correction_bias 1",
        "model.layers.0.router.per_expert_scale 1",
        "model.layers.0.router.scale 8 gain",
        "model.layers.0.pre_feedforward_layernorm_2.weight 8 gain",
        "model.layers.0.post_feedforward_layernorm_2.weight 8 gain",
        "model.layers.0.post_feedforward_layernorm_1.weight 8 gain",
        "model.layers.0.mlp.experts.in 5x8 experts 0/10",
        "model.layers.0.mlp.experts.in_bias 5 experts 0/10",
        "model.layers.0.mlp.experts.in 5x8 experts 5/10",
        "model.layers.0.mlp.experts.in_bias 5 experts 5/10",
        "model.layers.0.mlp.experts.out 8x5 experts 0/8",
        "model.layers.0.mlp.experts.out_bias 8 experts 0/8",
        "model.layers.0.mlp.shared_gate.weight 1x8 router 1/2",
        "model.layers.0.mlp.shared.gate_proj.weight 12x8 gate_up 0/24",
        "model.layers.0.mlp.shared.up_proj.weight 12x8 gate_up 12/24",
        "model.layers.0.mlp.shared.down_proj.weight 8x12",
        "model.norm.weight 8 gain",
        NULL,
    };
    expect(&spec, true, together);
}

static void test_find(void **state)
{
    (void)state;
    struct model_spec spec = small();
    struct tensor_table table;
    struct error err;
    spec.num_layers = 2;
    spec.layers[0].attention.qkv_bias = spec.layers[1].attention.qkv_bias = true;
    assert_int_equal(tensor_table_make(&spec, true, &table, &err), STATUS_OK);
    const struct tensor *k = tensor_table_find(&table, TENSOR_K, 1);
    assert_string_equal(k->name, "model.layers.1.self_attn.k_proj.weight");
    assert_int_equal(k->kind, TENSOR_MATRIX);
    assert_int_equal(tensor_elements(k), 12 * 8);
    assert_int_equal(tensor_elements(k + 1), 12); /* its bias */
    assert_string_equal(tensor_table_find(&table, TENSOR_FINAL_NORM, -1)->name, "model.norm.weight");
    assert_int_equal(tensor_elements(tensor_table_find(&table, TENSOR_FINAL_NORM, -1)), 8);
    assert_null(tensor_table_find(&table, TENSOR_Q_NORM, 0));
    assert_null(tensor_table_find(&table, TENSOR_LM_HEAD, -1));
    assert_null(tensor_table_find(&table, TENSOR_Q, 2));
    tensor_table_free(&table);
}

/* The largest that a config.json may say, with every tensor that a layer can have: names and the table are long enough.
 */
static void test_largest(void **state)
{
    (void)state;
    struct model_spec spec = small();
    struct tensor_table table;
    struct error err;
    spec.num_layers = MODEL_MAX_LAYERS;
    for (int32_t i = 0; i < spec.num_layers; i++) fill_layer(&spec.layers[i]);
    assert_int_equal(tensor_table_make(&spec, false, &table, &err), STATUS_OK);
    const int32_t weights = 3 + 20 * MODEL_MAX_LAYERS;
    check_cache_scales(&spec, &table, weights);
    assert_string_equal(table.tensors[weights - 3].name, "model.layers.1023.norm_d.weight");
    tensor_table_free(&table);
}

/* A checkpoint of each family, written by transformers, holds the tensors of its table and no others, unless it has
 * parts for images or sound. */
static void test_golden(void **state)
{
    (void)state;
    for (int i = 0; i < golden_num_checkpoints; i++) {
        struct model_config config;
        struct tensor_file *file;
        struct tensor_table table;
        struct error err;
        char folder[512];
        snprintf(folder, sizeof folder, QUIRE_TEST_DATA "/golden/%s", golden_checkpoints[i]);
        assert_int_equal(model_config_load(folder, NULL, NULL, &config, &err), STATUS_OK);
        if (config.spec.has_vision || config.spec.has_audio) continue;
        assert_int_equal(tensor_file_open(folder, &file, &err), STATUS_OK);
        assert_int_equal(tensor_table_make(&config.spec, config.spec.tie_word_embeddings, &table, &err), STATUS_OK);
        for (int p = 1; p < NUM_TENSOR_PREFIXES && !tensor_file_find(file, table.tensors[0].name); p++)
            if (tensor_file_find(file, tensor_name_with(table.tensors[0].name, &tensor_prefixes[p]).text))
                tensor_table_rename(&table, &tensor_prefixes[p]);
        int64_t elements = 0, stored = 0, in_file = 0;
        for (int32_t k = 0; k < table.count; k++) {
            const struct tensor *t = &table.tensors[k];
            const struct stored_tensor *found = tensor_file_find(file, t->name);
            if (t->kind == TENSOR_CACHE_SCALE || !tensor_is_stored(t)) continue;
            if (!found) fail_msg("%s: there is no %s", golden_checkpoints[i], t->name);
            if (t->role == TENSOR_V && config.spec.layers[t->layer].attention.v_is_k) continue; /* k's */
            elements += tensor_elements(t);
            in_file += t->file_row == 0;
            if (t->kind == TENSOR_SCALAR) continue; /* [] or [1] */
            const int64_t rows = t->file_rows;
            const int of_experts = t->merged_in_file && t->num_experts > 0 && !t->flat;
            const bool is_line = t->kind == TENSOR_VECTOR && t->width == 0; /* [n]; [1, n] in ERNIE 4.5; [1, 1, n, 1] */
            if (t->width > 0) assert_int_equal(found->shape[2], t->width);
            const int64_t columns = t->flat ? t->num_experts * t->in_features : t->in_features;
            const int of_conv = t->width > 0 ? 2 : 0; /* [channels, 1, width] */
            const int64_t first = of_conv                                     ? rows / t->width
                                  : t->kind == TENSOR_MATRIX && t->transposed ? columns
                                                                              : rows;
            const int num_dims = (t->kind == TENSOR_MATRIX ? 2 : 1) + of_experts + of_conv;
            if (!is_line) assert_int_equal(found->num_dims, num_dims);
            if (!is_line) assert_int_equal(found->shape[0], of_experts ? t->num_experts : first);
            assert_int_equal(found->bytes / (uint64_t)found->type->bytes,
                             rows * (t->kind == TENSOR_MATRIX ? t->in_features : 1));
        }
        for (int64_t k = 0; k < tensor_file_count(file); k++)
            stored += (int64_t)tensor_file_at(file, k)->bytes / tensor_file_at(file, k)->type->bytes;
        assert_int_equal(in_file, tensor_file_count(file));
        assert_int_equal(elements, stored);
        tensor_table_free(&table);
        tensor_file_close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_everything),
        cmocka_unit_test(test_layers_differ),
        cmocka_unit_test(test_sizes_differ),
        cmocka_unit_test(test_merged_in_the_file),
        cmocka_unit_test(test_older_models),
        cmocka_unit_test(test_mlp_without_a_gate),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
