#include "tests/support/golden_choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "model/config.h"
#include "model/tensors.h"
#include "tests/support/golden.h"
#include "tests/support/must.h"

/* What a checkpoint can have: a field with a value of 0 to 31. */
enum { MODEL_FIELDS = 0, LAYER_FIELDS = 32, TENSOR_FIELDS = 80, NUM_FIELDS = TENSOR_FIELDS + NUM_TENSOR_ROLES };

struct met {
    uint32_t values[NUM_FIELDS]; /* a bit for each value */
    bool new;
};

static void meet(struct met *met, int field, unsigned value)
{
    assert_true(field < NUM_FIELDS && value < 32);
    met->new = met->new || !(met->values[field] >> value & 1);
    met->values[field] |= 1u << value;
}

static void meet_all(struct met *met, int first, const unsigned *values, size_t count)
{
    for (size_t i = 0; i < count; i++) meet(met, first + (int)i, values[i]);
}

static void meet_model(struct met *met, const struct model_spec *s)
{
    const unsigned values[] = {
        s->norm_type,     s->no_gains,           s->gain_offset != 0,       s->per_layer_size > 0,
        s->dtype,         s->layer_scalars,      s->logits_soft_cap > 0,    s->tie_word_embeddings,
        s->has_vision,    s->num_ropes > 1,      s->rope_interleaved,       s->rope_reversed,
        s->ropes[0].type, s->ropes[1].type,      s->logits_multiplier != 1, s->embedding_multiplier != 1,
        s->lm_head_bias,  s->position_offset > 0};
    meet_all(met, MODEL_FIELDS, values, sizeof values / sizeof *values);
}

static void meet_layer(struct met *met, const struct layer_spec *l)
{
    const struct attention_spec *a = &l->attention;
    const struct mlp_spec *m = &l->mlp;
    const struct experts_spec *e = &l->experts;
    const struct router_params *r = &e->router;
    const unsigned rotates = a->rotary_dim == 0 ? 0 : a->rotary_dim < a->head_size ? 1 : 2;
    const unsigned values[] = {l->norm_placement,
                               l->residual_multiplier != 1,
                               a->qk_norm,
                               a->output_gate,
                               a->head_gates,
                               a->sinks,
                               a->alibi_bias_max > 0,
                               a->qk_norm_bias,
                               a->clip > 0,
                               a->v_norm,
                               a->v_is_k,
                               a->norm_after_rotation,
                               rotates,
                               a->shares_kv > 0,
                               a->v_head_size > 0,
                               a->v_multiplier != 1,
                               a->soft_cap > 0,
                               a->window > 0,
                               a->chunk > 0,
                               m->kind,
                               m->intermediate_size > 0,
                               m->activation,
                               r->kind,
                               r->num_experts > 0,
                               r->num_groups > 1,
                               r->group_sums,
                               r->normalize,
                               r->scaling != 1,
                               r->soft_cap > 0,
                               e->gate.kind,
                               e->gate.activation,
                               e->weights_first,
                               e->mean,
                               r->by_logits,
                               a->no_qk_gains,
                               a->query_scaling.length > 0,
                               e->gate.limit > 0,
                               l->mixer,
                               l->recurrent.kind,
                               l->recurrent.layout,
                               l->latent.no_rotation};
    meet_all(met, LAYER_FIELDS, values, sizeof values / sizeof *values);
}

/* How the file has the tensors of each role. */
static void meet_tensors(struct met *met, const struct model_spec *spec)
{
    struct tensor_table table;
    struct error err;
    must(tensor_table_make(spec, spec->tie_word_embeddings, &table, &err), &err);
    for (int32_t i = 0; i < table.count; i++) {
        const struct tensor *t = &table.tensors[i];
        const bool is_bias = t->kind == TENSOR_BIAS;
        meet(met, TENSOR_FIELDS + (int)t->role,
             (unsigned)(is_bias | t->merged_in_file << 1 | t->transposed << 2 | (t->run < t->out_features) << 3));
    }
    tensor_table_free(&table);
}

struct model_config *golden_config(const char *name)
{
    char folder[512];
    struct error err;
    struct model_config *config = malloc(sizeof *config);
    assert_non_null(config);
    snprintf(folder, sizeof folder, "%s/golden/%s", QUIRE_TEST_DATA, name);
    must(model_config_load(folder, NULL, NULL, config, &err), &err);
    return config;
}

/* Whether the checkpoint has something new. */
static bool adds_something(struct met *met, const char *name)
{
    struct model_config *config = golden_config(name);
    met->new = false;
    meet_model(met, &config->spec);
    for (int32_t i = 0; i < config->spec.num_layers; i++) meet_layer(met, &config->spec.layers[i]);
    meet_tensors(met, &config->spec);
    free(config);
    return met->new;
}

struct golden_choice golden_choose(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const bool all = false;
#else
    const bool all = true;
#endif
    struct golden_choice choice = {.count = 0};
    struct met met = {.new = false};
    assert_true(golden_num_checkpoints <= GOLDEN_MOST);
    for (int i = 0; i < golden_num_checkpoints; i++) {
        const char *name = golden_checkpoints[i];
        if (adds_something(&met, name) || all) choice.names[choice.count++] = name;
    }
    return choice;
}
