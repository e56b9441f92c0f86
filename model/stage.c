#include "model/stage.h"

#include <string.h>

#include "model/weight_parts.h"
#include "model/weights.h"

/* Where the bytes of the weights are. Layers that follow each other and that no stage begins with are in one stage. */
struct costs {
    int64_t before[MODEL_MAX_LAYERS + 1]; /* of all layers before this one */
    int64_t first, last;                  /* what these stages have besides */
    bool may_begin[MODEL_MAX_LAYERS];
};

static enum status find_costs(const struct model_spec *all, struct costs *c, struct error *err)
{
    struct model_weights sizes;
    enum status status = model_weights_init(all, all->tie_word_embeddings, &sizes, err);
    if (status != STATUS_OK) return status;
    *c = (struct costs){0};
    for (int32_t i = 0; i < sizes.table.count; i++) {
        const struct tensor *t = &sizes.table.tensors[i];
        const struct weight w = weight_of_tensor(t, model_weights_dtype(all, t));
        const int64_t bytes = tensor_is_weight(t) ? model_weights_tensor_bytes(t, &w) : 0;
        const bool is_head = t->role == TENSOR_LM_HEAD || t->role == TENSOR_FINAL_NORM;
        if (t->layer >= 0) c->before[t->layer + 1] += bytes;
        if (t->layer < 0 && !is_head) c->first += bytes;
        if (is_head || (t->role == TENSOR_EMBEDDING && all->tie_word_embeddings)) c->last += bytes;
    }
    for (int32_t i = 0; i < all->num_layers; i++) c->before[i + 1] += c->before[i], c->may_begin[i] = true;
    for (int32_t i = 0; i < all->num_layers; i++)
        for (int32_t k = 0; k < all->layers[i].attention.shares_kv; k++) c->may_begin[i - k] = false;
    model_weights_close(&sizes);
    return STATUS_OK;
}

/* The most stages that there can be. */
static int32_t most_stages(const struct model_spec *all, const struct costs *c)
{
    int32_t count = 0;
    for (int32_t i = 0; i < all->num_layers; i++) count += c->may_begin[i];
    return count;
}

/* The best way to cut layers 0 .. end - 1 into so many stages: the bytes of the largest, and where the last begins. */
struct cut {
    int64_t largest;
    int16_t begin;
};
struct cuts {
    struct cut best[COLLECTIVE_MAX_RANKS + 1][MODEL_MAX_LAYERS + 1]; /* [stages][end]; largest -1: there is none */
};

static void cut_at(const struct costs *c, int32_t num_layers, int32_t num_stages, int32_t stages, int32_t end,
                   struct cuts *cuts)
{
    struct cut *best = &cuts->best[stages][end];
    *best = (struct cut){.largest = -1};
    for (int32_t begin = stages == 1 ? 0 : 1; begin < (stages == 1 ? 1 : end); begin++) {
        const int64_t before = stages == 1 ? 0 : cuts->best[stages - 1][begin].largest;
        int64_t bytes = c->before[end] - c->before[begin];
        if (!c->may_begin[begin] || before < 0) continue;
        if (stages == 1) bytes += c->first;
        if (stages == num_stages && end == num_layers) bytes += c->last;
        if (bytes < before) bytes = before;
        if (best->largest < 0 || bytes < best->largest) *best = (struct cut){bytes, (int16_t)begin};
    }
}

/* begins[num_stages + 1] of the stages, and the end of the last, so that the largest is as small as can be. */
static void choose_begins(const struct costs *c, int32_t num_layers, int32_t num_stages, int32_t *begins)
{
    struct cuts cuts;
    for (int32_t stages = 1; stages <= num_stages; stages++)
        for (int32_t end = 1; end <= num_layers; end++) cut_at(c, num_layers, num_stages, stages, end, &cuts);
    begins[num_stages] = num_layers;
    for (int32_t stages = num_stages; stages > 0; stages--)
        begins[stages - 1] = cuts.best[stages][begins[stages]].begin;
}

static enum status check(const struct model_spec *all, int32_t num_stages, const struct costs *c, struct error *err)
{
    const char *what = all->head.kind != HEAD_NONE ? "a head that drafts from the states of its target"
                       : all->per_layer_size       ? "per-layer embeddings, which all layers read"
                                                   : NULL;
    if (what) return error_set(err, STATUS_UNSUPPORTED, "a model with %s is not computed in stages; use one", what);
    if (num_stages > COLLECTIVE_MAX_RANKS)
        return error_set(err, STATUS_UNSUPPORTED, "%d stages are more than quire computes: at most %d", num_stages,
                         COLLECTIVE_MAX_RANKS);
    const int32_t most = most_stages(all, c);
    if (num_stages <= most) return STATUS_OK;
    return error_set(
        err, STATUS_UNSUPPORTED, "the model's %d layers%s are too few for %d stages; use %d or fewer", all->num_layers,
        most < all->num_layers ? ", some of which read the K and V that others cache," : "", num_stages, most);
}

enum status model_spec_stage(const struct model_spec *all, int32_t stage, int32_t num_stages, struct model_spec *out,
                             struct error *err)
{
    struct costs costs;
    int32_t begins[COLLECTIVE_MAX_RANKS + 1];
    *out = *all;
    if (num_stages <= 1) return STATUS_OK;
    enum status status = find_costs(all, &costs, err);
    if (status == STATUS_OK) status = check(all, num_stages, &costs, err);
    if (status != STATUS_OK) return status;
    choose_begins(&costs, all->num_layers, num_stages, begins);
    out->all_stages = all;
    out->stage = stage, out->num_stages = num_stages;
    out->first_layer = begins[stage];
    out->num_layers = begins[stage + 1] - begins[stage];
    out->names.first_layer += out->first_layer;
    memmove(out->layers, all->layers + out->first_layer, (size_t)out->num_layers * sizeof *out->layers);
    return STATUS_OK;
}
