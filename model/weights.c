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

enum status model_weights_init(const struct model_spec *spec, bool tied, struct model_weights *w, struct error *err)
{
    *w = (struct model_weights){0};
    enum status status = tensor_table_make(spec, tied, &w->table, err);
    if (status == STATUS_OK) {
        w->layers = calloc((size_t)spec->num_layers, sizeof *w->layers);
        if (!w->layers)
            status = error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights of %d layer%s",
                               spec->num_layers, plural(spec->num_layers));
    }
    if (status != STATUS_OK) {
        model_weights_close(w);
        return status;
    }
    for (int32_t i = 0; i < spec->num_layers; i++) w->layers[i].xielu = initial_xielu;
    for (int32_t i = 0; i < w->table.count; i++) {
        const struct tensor *t = &w->table.tensors[i];
        const struct weights_place place = model_weights_place(w, t);
        if (place.projection) place.projection->num_parts = t->num_parts;
        if (place.norm) *place.norm = (struct norm_params){.type = spec->norm_type, .eps = (float)spec->norm_eps};
    }
    return STATUS_OK;
}

/* Where a role leads to: a place in struct layer_weights or, for what is in no layer, in struct model_weights. */
enum place_kind { NO_PLACE, PLACE_PROJECTION, PLACE_MATRIX, PLACE_NORM };
static const struct {
    enum place_kind kind;
    size_t offset;
} places[NUM_TENSOR_ROLES] = {
    [TENSOR_EMBEDDING] = {PLACE_MATRIX, offsetof(struct model_weights, embedding)},
    [TENSOR_POSITION_EMBEDDING] = {PLACE_MATRIX, offsetof(struct model_weights, position_embedding)},
    [TENSOR_EMBEDDING_NORM] = {PLACE_NORM, offsetof(struct model_weights, embedding_norm)},
    [TENSOR_ATTENTION_NORM] = {PLACE_NORM, offsetof(struct layer_weights, attention_norm)},
    [TENSOR_Q] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_K] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_V] = {PLACE_PROJECTION, offsetof(struct layer_weights, qkv)},
    [TENSOR_Q_NORM] = {PLACE_NORM, offsetof(struct layer_weights, q_norm)},
    [TENSOR_K_NORM] = {PLACE_NORM, offsetof(struct layer_weights, k_norm)},
    [TENSOR_O] = {PLACE_MATRIX, offsetof(struct layer_weights, o)},
    [TENSOR_POST_ATTENTION_NORM] = {PLACE_NORM, offsetof(struct layer_weights, post_attention_norm)},
    [TENSOR_MLP_NORM] = {PLACE_NORM, offsetof(struct layer_weights, mlp_norm)},
    [TENSOR_GATE] = {PLACE_PROJECTION, offsetof(struct layer_weights, gate_up)},
    [TENSOR_UP] = {PLACE_PROJECTION, offsetof(struct layer_weights, gate_up)},
    [TENSOR_DOWN] = {PLACE_MATRIX, offsetof(struct layer_weights, down)},
    [TENSOR_POST_MLP_NORM] = {PLACE_NORM, offsetof(struct layer_weights, post_mlp_norm)},
    [TENSOR_FINAL_NORM] = {PLACE_NORM, offsetof(struct model_weights, final_norm)},
    [TENSOR_LM_HEAD] = {PLACE_MATRIX, offsetof(struct model_weights, lm_head)},
};

struct weights_place model_weights_place(const struct model_weights *w, const struct tensor *t)
{
    struct weights_place place = {.num_rows = t->out_features};
    void *found = (t->layer >= 0 ? (char *)&w->layers[t->layer] : (char *)w) + places[t->role].offset;
    if (places[t->role].kind == PLACE_NORM) {
        const bool bias = t->kind == TENSOR_BIAS;
        place.norm = found;
        place.vector = bias ? &place.norm->bias : &place.norm->gain;
        place.vector_dtype = bias ? &place.norm->bias_dtype : &place.norm->gain_dtype;
        return place;
    }
    if (places[t->role].kind == NO_PLACE) return place;
    place.matrix = found;
    if (places[t->role].kind == PLACE_PROJECTION) {
        place.projection = found;
        const bool merged = place.projection->num_parts == 1;
        if (merged) place.first_row = t->first_row, place.num_rows = t->merged_rows;
        place.matrix = &place.projection->parts[merged ? 0 : t->part];
    }
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
    return weight_bytes(w) + (t->scheme.has_zeros && !w->zeros ? w->out_features * weight_groups(w) : 0);
}

void model_weights_set(struct model_weights *w, const struct tensor *t, const struct weight *from)
{
    const struct weights_place to = model_weights_place(w, t);
    w->bytes += model_weights_tensor_bytes(t, from);
    if (t->kind == TENSOR_MATRIX) {
        *to.matrix = *from;
    } else {
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

const struct weight_source *model_weights_source(const struct model_weights *w, const struct tensor *t)
{
    return w->sources ? &w->sources[t - w->table.tensors] : NULL;
}

enum dtype model_weights_dtype(const struct model_spec *spec, const struct tensor *t)
{
    const bool converted = t->kind == TENSOR_GAIN && spec->gain_offset != 0; /* see model_weights_open */
    return converted ? DTYPE_FLOAT32 : spec->dtype;
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
    tensor_table_free(&w->table);
    *w = (struct model_weights){0};
}
