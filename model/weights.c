#include "model/weights.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/host_memory.h"
#include "base/plural.h"

static const struct xielu_params initial_xielu = {.alpha_p = 0.8f, .alpha_n = 0.8f, .beta = 0.5f, .eps = -1e-6f};

static enum status allocate_layers(const struct model_spec *spec, struct model_weights *w, struct error *err)
{
    enum { OF_AN_EXPERT = 3 };
    w->layers = calloc((size_t)spec->num_layers, sizeof *w->layers);
    w->experts = calloc(model_spec_num_experts(spec) * OF_AN_EXPERT + 1, sizeof *w->experts);
    if (!w->layers || !w->experts)
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights of %d layer%s",
                         spec->num_layers, plural(spec->num_layers));
    struct weight *next = w->experts;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const int32_t n = router_num_own(&spec->layers[i].experts.router);
        w->layers[i].experts = (struct expert_weights){.gate_up = next, .down = next + 2 * n};
        next += OF_AN_EXPERT * n;
    }
    return STATUS_OK;
}

static double norm_eps_of(const struct model_spec *spec, const struct tensor *t)
{
    const bool latent = t->role == TENSOR_LATENT_Q_NORM || t->role == TENSOR_LATENT_NORM;
    return latent ? spec->layers[t->layer].latent.norm_eps : spec->norm_eps;
}

static void set_part(struct projection *p, const struct tensor *t)
{
    p->num_parts = t->num_parts;
    p->starts[t->part] = t->first_row;
    p->starts[t->num_parts] = t->merged_rows;
}

enum status model_weights_init(const struct model_spec *spec, bool tied, struct model_weights *w, struct error *err)
{
    *w = (struct model_weights){0};
    enum status status = tensor_table_make(spec, tied, &w->table, err);
    if (status == STATUS_OK) status = allocate_layers(spec, w, err);
    if (status != STATUS_OK) {
        model_weights_close(w);
        return status;
    }
    for (int32_t i = 0; i < spec->num_layers; i++) {
        w->layers[i].xielu = initial_xielu;
        w->layers[i].scalar = 1;
    }
    for (int32_t i = 0; i < w->table.count; i++) {
        const struct tensor *t = &w->table.tensors[i];
        const struct weights_place place = model_weights_place(w, t);
        if (place.projection) set_part(place.projection, t);
        if (place.norm) *place.norm = (struct norm_params){.type = spec->norm_type, .eps = (float)norm_eps_of(spec, t)};
    }
    return STATUS_OK;
}

/* Where a role leads to: a place in struct layer_weights or, for what is in no layer, in struct model_weights. */
enum place_kind { NO_PLACE, PLACE_PROJECTION, PLACE_MATRIX, PLACE_EXPERTS, PLACE_NORM, PLACE_VECTOR };
static const struct {
    enum place_kind kind;
    size_t offset;
} places[NUM_TENSOR_ROLES] = {
    [TENSOR_EMBEDDING] = {PLACE_MATRIX, offsetof(struct model_weights, embedding)},
    [TENSOR_POSITION_EMBEDDING] = {PLACE_MATRIX, offsetof(struct model_weights, position_embedding)},
    [TENSOR_HEAD_PROJECTION] = {PLACE_MATRIX, offsetof(struct model_weights, head_projection)},
    [TENSOR_HEAD_STATE_NORM] = {PLACE_NORM, offsetof(struct model_weights, head_state_norm)},
    [TENSOR_HEAD_EMBEDDING_NORM] = {PLACE_NORM, offsetof(struct model_weights, head_embedding_norm)},
    [TENSOR_EMBEDDING_NORM] = {PLACE_NORM, offsetof(struct model_weights, embedding_norm)},
    [TENSOR_PER_LAYER_EMBEDDING] = {PLACE_MATRIX, offsetof(struct model_weights, per_layer_embedding)},
    [TENSOR_PER_LAYER_PROJECTION] = {PLACE_PROJECTION, offsetof(struct model_weights, per_layer_projection)},
    [TENSOR_PER_LAYER_NORM] = {PLACE_NORM, offsetof(struct model_weights, per_layer_norm)},
    [TENSOR_ATTENTION_NORM] = {PLACE_NORM, offsetof(struct layer_weights, attention_norm)},
    [TENSOR_STREAM_NORM] = {PLACE_NORM, offsetof(struct layer_weights, stream_norm)},
    [TENSOR_Q] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_K] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_V] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_OUTPUT_GATE] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_Q_NORM] = {PLACE_NORM, offsetof(struct layer_weights, q_norm)},
    [TENSOR_K_NORM] = {PLACE_NORM, offsetof(struct layer_weights, k_norm)},
    [TENSOR_SINKS] = {PLACE_VECTOR, offsetof(struct layer_weights, sinks)},
    [TENSOR_V_NORM] = {PLACE_NORM, offsetof(struct layer_weights, v_norm)},
    [TENSOR_MIX_Q] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_MIX_K] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_MIX_V] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_MIX_GATE] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_MIX_A] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_MIX_B] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_MIX_GATE_B] = {PLACE_MATRIX, offsetof(struct layer_weights, recurrent.gate_b)},
    [TENSOR_MIX_A_B] = {PLACE_MATRIX, offsetof(struct layer_weights, recurrent.a_b)},
    [TENSOR_CONV] = {PLACE_VECTOR, offsetof(struct layer_weights, recurrent.conv)},
    [TENSOR_CONV_BIAS] = {PLACE_VECTOR, offsetof(struct layer_weights, recurrent.conv_bias)},
    [TENSOR_A_LOG] = {PLACE_VECTOR, offsetof(struct layer_weights, recurrent.a_log)},
    [TENSOR_DT_BIAS] = {PLACE_VECTOR, offsetof(struct layer_weights, recurrent.dt_bias)},
    [TENSOR_SKIP] = {PLACE_VECTOR, offsetof(struct layer_weights, recurrent.skip)},
    [TENSOR_MIX_NORM] = {PLACE_VECTOR, offsetof(struct layer_weights, recurrent.norm)},
    [TENSOR_MIX_O] = {PLACE_MATRIX, offsetof(struct layer_weights, recurrent.o)},
    [TENSOR_LATENT_Q] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_LATENT_KV] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_LATENT_Q_NORM] = {PLACE_NORM, offsetof(struct layer_weights, latent.q_norm)},
    [TENSOR_LATENT_Q_B] = {PLACE_PROJECTION, offsetof(struct layer_weights, latent.q_b)},
    [TENSOR_LATENT_NORM] = {PLACE_NORM, offsetof(struct layer_weights, latent.norm)},
    [TENSOR_LATENT_KV_B] = {PLACE_MATRIX, offsetof(struct layer_weights, latent.kv_b)},
    [TENSOR_O] = {PLACE_MATRIX, offsetof(struct layer_weights, o)},
    [TENSOR_POST_ATTENTION_NORM] = {PLACE_NORM, offsetof(struct layer_weights, post_attention_norm)},
    [TENSOR_MLP_NORM] = {PLACE_NORM, offsetof(struct layer_weights, mlp_norm)},
    [TENSOR_MLP_STREAM_NORM] = {PLACE_NORM, offsetof(struct layer_weights, mlp_stream_norm)},
    [TENSOR_GATE] = {PLACE_PROJECTION, offsetof(struct layer_weights, gate_up)},
    [TENSOR_UP] = {PLACE_PROJECTION, offsetof(struct layer_weights, gate_up)},
    [TENSOR_DOWN] = {PLACE_MATRIX, offsetof(struct layer_weights, down)},
    [TENSOR_ROUTER_NORM] = {PLACE_NORM, offsetof(struct layer_weights, experts.router_norm)},
    [TENSOR_ROUTER] = {PLACE_PROJECTION, offsetof(struct layer_weights, experts.router)},
    [TENSOR_CHOICE_BIAS] = {PLACE_VECTOR, offsetof(struct layer_weights, experts.choice_bias)},
    [TENSOR_EXPERT_SCALES] = {PLACE_VECTOR, offsetof(struct layer_weights, experts.expert_scales)},
    [TENSOR_EXPERTS_NORM] = {PLACE_NORM, offsetof(struct layer_weights, experts.norm)},
    [TENSOR_POST_EXPERTS_NORM] = {PLACE_NORM, offsetof(struct layer_weights, experts.post_norm)},
    [TENSOR_POST_SHARED_NORM] = {PLACE_NORM, offsetof(struct layer_weights, experts.post_shared_norm)},
    [TENSOR_SHARED_GATE] = {PLACE_PROJECTION, offsetof(struct layer_weights, experts.router)},
    [TENSOR_EXPERTS_IN] = {PLACE_MATRIX, offsetof(struct layer_weights, experts.in)},
    [TENSOR_EXPERTS_OUT] = {PLACE_MATRIX, offsetof(struct layer_weights, experts.out)},
    [TENSOR_EXPERT_GATE] = {PLACE_EXPERTS, offsetof(struct layer_weights, experts.gate_up)},
    [TENSOR_EXPERT_UP] = {PLACE_EXPERTS, offsetof(struct layer_weights, experts.gate_up)},
    [TENSOR_EXPERT_DOWN] = {PLACE_EXPERTS, offsetof(struct layer_weights, experts.down)},
    [TENSOR_POST_MLP_NORM] = {PLACE_NORM, offsetof(struct layer_weights, post_mlp_norm)},
    [TENSOR_PER_LAYER_GATE] = {PLACE_PROJECTION, offsetof(struct layer_weights, per_layer_gate)},
    [TENSOR_PER_LAYER_DOWN] = {PLACE_MATRIX, offsetof(struct layer_weights, per_layer_down)},
    [TENSOR_POST_PER_LAYER_NORM] = {PLACE_NORM, offsetof(struct layer_weights, post_per_layer_norm)},
    [TENSOR_FINAL_NORM] = {PLACE_NORM, offsetof(struct model_weights, final_norm)},
    [TENSOR_LM_HEAD] = {PLACE_MATRIX, offsetof(struct model_weights, lm_head)},
    [TENSOR_TARGET_IDS] = {PLACE_VECTOR, offsetof(struct model_weights, target_ids)},
};

/* `place` with the gain or bias of a norm, or another vector. */
static struct weights_place vector_place(struct weights_place place, enum place_kind kind, void *found,
                                         const struct tensor *t)
{
    const bool bias = t->kind == TENSOR_BIAS;
    struct weight_vector *vector = found;
    struct norm_params *norm = found;
    if (kind == PLACE_NORM) {
        place.norm = norm;
        place.vector = bias ? &norm->bias : &norm->gain;
        place.vector_dtype = bias ? &norm->bias_dtype : &norm->gain_dtype;
    } else {
        place.vector = &vector->data;
        place.vector_dtype = &vector->dtype;
        place.first_row = t->first_row, place.num_rows = t->merged_rows;
    }
    return place;
}

/* In the part of the projection that has the tensor's rows. */
static void place_part(struct weights_place *place, const struct tensor *t)
{
    struct projection *p = place->projection;
    int i = 0;
    while (i + 1 < p->num_parts && p->starts[i + 1] <= t->first_row) i++;
    place->matrix = &p->parts[i];
    place->first_row = t->first_row - p->starts[i];
    place->num_rows = p->starts[i + 1] - p->starts[i];
}

static bool is_of_mlp(const struct tensor *t)
{
    return t->role == TENSOR_GATE || t->role == TENSOR_UP || t->role == TENSOR_DOWN;
}

/* Behind the stacked experts of the layer, and the MLP that is the last of them. */
static void place_stacked(const struct model_weights *w, struct weights_place *place, const struct tensor *t)
{
    const struct expert_weights *e = &w->layers[t->layer].experts;
    const struct tensor *experts = t;
    if (t->num_experts == 0) {
        const bool down = t->role == TENSOR_DOWN;
        experts = tensor_table_find(&w->table, down ? TENSOR_EXPERT_DOWN : TENSOR_EXPERT_UP, t->layer);
        place->matrix = down ? e->down : e->gate_up;
    }
    const int64_t of_expert = experts->merged_rows / experts->num_experts;
    place->projection = NULL;
    place->num_segments = experts->num_experts + e->has_shared;
    place->num_rows = place->num_segments * of_expert;
    place->first_row = t->num_experts > 0 ? t->first_row : experts->merged_rows + t->first_row;
}

struct weights_place model_weights_place(const struct model_weights *w, const struct tensor *t)
{
    const enum place_kind kind = places[t->role].kind;
    struct weights_place place = {.num_rows = t->out_features, .num_segments = 1};
    void *found = (t->layer >= 0 ? (char *)&w->layers[t->layer] : (char *)w) + places[t->role].offset;
    if (kind == NO_PLACE) return place;
    if (kind == PLACE_NORM || kind == PLACE_VECTOR) return vector_place(place, kind, found, t);
    place.matrix = found;
    if (kind == PLACE_PROJECTION) {
        place.projection = found;
        place_part(&place, t);
    } else if (kind == PLACE_EXPERTS) {
        const bool stacked = w->layers[t->layer].experts.stacked;
        place.matrix = *(struct weight **)found + (stacked ? 0 : t->expert * t->num_parts + t->part);
        if (stacked) place_stacked(w, &place, t);
    }
    if (is_of_mlp(t) && w->layers[t->layer].experts.has_shared) place_stacked(w, &place, t);
    place.vector = &place.matrix->bias;
    place.vector_dtype = &place.matrix->bias_dtype;
    return place;
}

struct weight *model_weights_matrix(const struct model_weights *w, const struct tensor *t)
{
    return model_weights_place(w, t).matrix;
}

int64_t model_weights_tensor_bytes(const struct tensor *t, const struct weight *w)
{
    return weight_bytes(w) +
           (t->scheme.has_zeros && weight_is_quantized(w) && !w->zeros ? w->out_features * weight_groups(w) : 0);
}

void model_weights_set(struct model_weights *w, const struct tensor *t, const struct weight *from)
{
    const struct weights_place to = model_weights_place(w, t);
    w->bytes += model_weights_tensor_bytes(t, from);
    if (t->num_experts > 0) w->expert_bytes += model_weights_tensor_bytes(t, from);
    if (t->kind == TENSOR_MATRIX) {
        *to.matrix = *from;
    } else if (t->kind != TENSOR_VECTOR || to.first_row == 0) {
        *to.vector = from->data;
        *to.vector_dtype = weight_dtype(from);
    }
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

void model_weights_set_scalar(struct model_weights *w, const struct tensor *t, float value)
{
    struct layer_weights *layer = &w->layers[t->layer];
    struct xielu_params *xielu = &layer->xielu;
    switch (t->role) {
    case TENSOR_K_SCALE:
        layer->kv_scales[0] = value;
        break;
    case TENSOR_V_SCALE:
        layer->kv_scales[1] = value;
        break;
    case TENSOR_LAYER_SCALAR:
        layer->scalar = value;
        break;
    case TENSOR_XIELU_BETA:
        xielu->beta = value;
        break;
    case TENSOR_XIELU_EPS:
        xielu->eps = value;
        break;
    case TENSOR_XIELU_ALPHA_P:
        xielu->alpha_p = softplus(value);
        break;
    case TENSOR_XIELU_ALPHA_N:
        xielu->alpha_n = xielu->beta + softplus(value);
        break;
    default:
        break;
    }
}

bool model_weights_stays_on_host(const struct model_weights *w, const struct tensor *t)
{
    return t->num_experts > 0 && t->layer < w->host_expert_layers;
}

bool model_weights_is_looked_up(const struct model_weights *w, const struct tensor *t)
{
    return t->role == TENSOR_PER_LAYER_EMBEDDING ||
           (t->role == TENSOR_EMBEDDING && tensor_table_find(&w->table, TENSOR_LM_HEAD, -1));
}

const struct weight_source *model_weights_source(const struct model_weights *w, const struct tensor *t)
{
    return w->sources ? &w->sources[t - w->table.tensors] : NULL;
}

bool model_weights_converts(const struct model_spec *spec, const struct tensor *t)
{
    return t->kind == TENSOR_VECTOR || (t->kind == TENSOR_GAIN && (spec->gain_offset != 0 || t->multiplier != 0));
}

enum dtype model_weights_dtype(const struct model_spec *spec, const struct tensor *t)
{
    const bool made = !tensor_is_stored(t) || t->kind == TENSOR_IDS || model_weights_converts(spec, t);
    return made ? DTYPE_FLOAT32 : spec->dtype;
}

enum status model_weights_sizes(const struct model_spec *spec, struct model_weights *w, struct error *err)
{
    enum status status = model_weights_init(spec, spec->tie_word_embeddings, w, err);
    if (status != STATUS_OK) return status;
    for (int32_t i = 0; i < w->table.count; i++) {
        const struct tensor *t = &w->table.tensors[i];
        const struct weight weight = weight_of_tensor(t, model_weights_dtype(spec, t));
        if (!tensor_is_weight(t)) continue;
        model_weights_set(w, t, &weight);
        if (weight_is_ordered(t)) w->bytes += t->in_features * (int64_t)sizeof *weight.input_order;
    }
    return STATUS_OK;
}

static enum status check_expert(const struct model_weights *w, const struct tensor *t, struct error *err)
{
    const struct weight *m = model_weights_matrix(w, t), *first = m - (t->expert * t->num_parts + t->part);
    if (m->input_order)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the matrix \"%s\" of an expert has an order of input features (GPTQ with desc_act), which "
                         "quire does not compute; use a model that was quantized without desc_act",
                         t->name);
    if (m->format == first->format && m->scale_dtype == first->scale_dtype) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "the matrix \"%s\" has another type than that of the layer's first expert; quire computes experts "
                     "of one type only",
                     t->name);
}

enum status model_weights_check_experts(const struct model_weights *w, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < w->table.count && status == STATUS_OK; i++) {
        const struct tensor *t = &w->table.tensors[i];
        if (t->num_experts > 0 && t->kind == TENSOR_MATRIX) status = check_expert(w, t, err);
    }
    return status;
}

/* Linux tells which pages of a file are in memory only to those who may write it; to others it says that all are. */
static bool may_ask_for_pages(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && (info.st_uid == geteuid() || access(path, W_OK) == 0);
}

static int64_t file_resident(const struct tensor_file *file)
{
    int64_t sum = 0;
    const char *last = "";
    for (int64_t i = 0; i < tensor_file_count(file); i++) {
        const struct stored_tensor *t = tensor_file_at(file, i);
        if (strcmp(t->path, last) != 0 && !may_ask_for_pages(t->path)) return -1;
        last = t->path;
        const int64_t resident = host_memory_resident(t->data, (int64_t)t->bytes);
        if (resident < 0) return -1;
        sum += resident;
    }
    return sum;
}

void model_weights_resident(const struct model_weights *w, int64_t *bytes, int64_t *resident)
{
    const int64_t of_file = w->file ? file_resident(w->file) : 0;
    const int64_t of_memory = w->memory ? host_memory_resident(w->memory, w->memory_bytes) : 0;
    *bytes = (w->file ? (int64_t)tensor_file_bytes(w->file) : 0) + w->memory_bytes;
    *resident = of_file < 0 || of_memory < 0 ? -1 : of_file + of_memory;
}

void model_weights_close(struct model_weights *w)
{
    if (w->memory) munmap(w->memory, (size_t)w->memory_bytes);
    for (int32_t i = 0; w->sources && i < w->table.count; i++) weight_source_close(&w->sources[i]);
    free(w->sources);
    tensor_file_close(w->file);
    free(w->layers);
    free(w->experts);
    tensor_table_free(&w->table);
    *w = (struct model_weights){0};
}
