#include "model/device_weights.h"

#include <stdlib.h>
#include <string.h>

/* A quantized matrix has data, scales, zeros and an order of input features. */
enum { MAX_TRANSFERS = 4 };

/* Bytes that are no numbers are copied as this type. */
static const enum dtype BYTE = DTYPE_FP8_E4M3;

struct placement {
    struct arena *arena;
    const struct model_weights *host;
    struct model_weights *device;
    enum dtype dtype;
    struct transfer *transfers; /* [count] */
    size_t count;
};

/* Whether the device has no memory for the tensor. */
static bool is_on_host(const struct model_weights *host, const struct tensor *t)
{
    return model_weights_stays_on_host(host, t) || (host->host_embeddings && model_weights_is_looked_up(host, t));
}

static enum status allocate(struct placement *p, int64_t bytes, void **out, struct error *err)
{
    p->device->bytes += bytes;
    return arena_alloc(p->arena, PURPOSE_WEIGHTS, bytes, out, err);
}

/* Of a matrix; a part that the device reads on the host is none of its bytes. */
static enum status allocate_part(struct placement *p, const struct tensor *t, int64_t bytes, void **out,
                                 struct error *err)
{
    if (is_on_host(p->host, t)) return arena_alloc(p->arena, PURPOSE_HOST_WEIGHTS, bytes, out, err);
    return allocate(p, bytes, out, err);
}

static int64_t order_bytes(const struct weight *w)
{
    return w->input_order ? w->in_features * (int64_t)sizeof *w->input_order : 0;
}

/* ---- merging ---- */

static bool same_order(const struct weight *a, const struct weight *b)
{
    if (!a->input_order || !b->input_order) return a->input_order == b->input_order;
    return memcmp(a->input_order, b->input_order, (size_t)order_bytes(a)) == 0;
}

/* Two parts of a projection have one scheme and one order of input features, and the second begins with a row of
 * scales. */
static bool can_merge(const struct model_weights *host, const struct tensor *first, const struct tensor *t)
{
    const struct weight *a = model_weights_matrix(host, first), *b = model_weights_matrix(host, t);
    if (!weight_scheme_equal(&first->scheme, &t->scheme) || !same_order(a, b)) return false;
    if (!weight_is_quantized(b)) return true;
    return a->scale_dtype == b->scale_dtype && (t->first_row - first->first_row) % b->scale_rows == 0;
}

/* A part of a projection is merged with those before it if it can be merged with the first of these. */
static void choose_merging(struct placement *p)
{
    const struct tensor *first = NULL;
    for (int32_t i = 0; i < p->host->table.count; i++) {
        const struct tensor *t = &p->host->table.tensors[i];
        struct projection *projection = model_weights_place(p->device, t).projection;
        if (t->kind != TENSOR_MATRIX || !projection || t->merged == MERGED_NONE) continue;
        if (t->part == 0) projection->num_parts = 0;
        if (t->part == 0 || !can_merge(p->host, first, t)) {
            first = t;
            projection->starts[projection->num_parts++] = t->first_row;
        }
        projection->starts[projection->num_parts] = t->merged_rows;
    }
}

/* ---- experts and the MLP beside them ---- */

/* Whether a matrix of the MLP becomes on the device what that of an expert does. */
static bool same_matrices(const struct model_weights *host, int32_t layer, enum tensor_role of_mlp,
                          enum tensor_role of_expert)
{
    const struct tensor *a = tensor_table_find(&host->table, of_mlp, layer);
    const struct tensor *b = tensor_table_find(&host->table, of_expert, layer);
    if (!a || !b || !weight_scheme_equal(&a->scheme, &b->scheme)) return false;
    const struct weight *mlp = model_weights_matrix(host, a), *expert = model_weights_matrix(host, b);
    return !mlp->input_order && !expert->input_order && mlp->scale_dtype == expert->scale_dtype;
}

/* Whether the MLP computes what one more expert would, whose weight the token's gate is, or 1. Behind some of the
 * experts it is no expert, because how many rows these have depends on the tokens. */
static bool is_an_expert(const struct layer_spec *l)
{
    const struct mlp_spec *m = &l->mlp;
    const struct experts_spec *e = &l->experts;
    return m->intermediate_size > 0 && m->intermediate_size == e->intermediate_size && m->kind == MLP_GATED &&
           e->gate.kind == GATE_MULTIPLY && m->activation == e->gate.activation && m->limit == e->gate.limit &&
           (m->gate_multiplier == 0 || m->gate_multiplier == 1) && !m->bias && !e->bias && e->latent_size == 0 &&
           !e->own_norms && !e->weights_first && e->router.num_own == 0;
}

static void choose_sharing(struct placement *p, const struct model_spec *spec)
{
    for (int32_t i = 0; i < spec->num_layers; i++) {
        struct expert_weights *e = &p->device->layers[i].experts;
        e->has_shared = e->stacked && is_an_expert(&spec->layers[i]) &&
                        same_matrices(p->host, i, TENSOR_GATE, TENSOR_EXPERT_GATE) &&
                        same_matrices(p->host, i, TENSOR_UP, TENSOR_EXPERT_UP) &&
                        same_matrices(p->host, i, TENSOR_DOWN, TENSOR_EXPERT_DOWN);
    }
}

/* The MLP's matrices are those of the last expert. */
static void point_to_shared(struct layer_weights *w, int32_t num_experts)
{
    if (!w->experts.has_shared) return;
    const struct weight gate_up = weight_of_segment(w->experts.gate_up, num_experts);
    w->gate_up = (struct projection){.parts = {gate_up}, .num_parts = 1, .starts = {0, gate_up.out_features}};
    w->down = weight_of_segment(w->experts.down, num_experts);
}

/* ---- placing ---- */

static void add_transfer(struct placement *p, const void *source, void *destination, int64_t count, enum dtype from,
                         enum dtype to)
{
    p->transfers[p->count++] = (struct transfer){
        .source = source, .file = p->host->file, .destination = destination, .count = count, .from = from, .to = to};
}

/* Allocates the matrix that `rows` rows of *from become on the device. */
static enum status allocate_matrix(struct placement *p, const struct tensor *t, const struct weight *from, int64_t rows,
                                   struct weight *to, struct error *err)
{
    struct weight_rows parts = {{NULL}};
    enum status status = STATUS_OK;
    *to = t->scheme.is_quantized ? *from : weight_of_tensor(t, p->dtype);
    to->out_features = rows;
    to->input_order = NULL;
    to->bias = NULL;
    const struct weight_part_bytes bytes = weight_part_bytes(to, t->scheme.has_zeros, rows);
    for (int i = 0; i < NUM_WEIGHT_PARTS && status == STATUS_OK; i++)
        if (bytes.of[i] > 0) status = allocate_part(p, t, bytes.of[i], &parts.at[i], err);
    weight_set_parts(to, &parts);
    return status;
}

/* Each part of a merged matrix brings its order, all of which are the same. */
static enum status place_order(struct placement *p, const struct weight *from, struct weight *to, struct error *err)
{
    void *order;
    if (!from->input_order) return STATUS_OK;
    enum status status = allocate(p, order_bytes(from), &order, err);
    if (status != STATUS_OK) return status;
    to->input_order = order;
    add_transfer(p, from->input_order, order, order_bytes(from), BYTE, BYTE);
    return STATUS_OK;
}

/* The rows of an expert begin with a row of scales, as those behind it do; so do those of the MLP behind them. */
static enum status check_blocks(const struct tensor *t, const struct weight *from, struct error *err)
{
    if (t->num_experts == 0 || from->scale_rows <= 1 || t->out_features % from->scale_rows == 0) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "the matrix \"%s\" of an expert has %lld output features, no multiple of the %lld that share a "
                     "scale; quire computes such experts on the CPU only",
                     t->name, (long long)t->out_features, (long long)from->scale_rows);
}

/* Dummy weights that the host does not have. */
static void place_dummy(struct placement *p, const struct tensor *t, const struct weight *from,
                        struct weight_rows *rows)
{
    for (int i = 0; i < NUM_WEIGHT_PARTS && p->host->made_by_device; i++) {
        struct fill_dummy_args args = {.out = rows->at[i]};
        if (!args.out) continue;
        args = dummy_part(p->host, t, from, i, args.out);
        args.dtype = p->dtype;
        p->transfers[p->count++] = (struct transfer){.dummy = args, .count = 1};
        rows->at[i] = NULL;
    }
}

/* The first part of a merged matrix allocates all of it; each part is copied to its own rows. What the host has as it
 * is wanted is copied, the rest made by the device or read by rows. */
static enum status place_matrix(struct placement *p, const struct tensor *t, const struct weight *from,
                                const struct weights_place *place, struct error *err)
{
    struct weight *to = place->matrix;
    enum status status = check_blocks(t, from, err);
    if (status == STATUS_OK && place->first_row == 0) {
        status = allocate_matrix(p, t, from, place->num_rows, to, err);
        to->out_features /= place->num_segments;
    }
    if (status == STATUS_OK) status = place_order(p, from, to, err);
    if (status != STATUS_OK) return status;
    const bool quantized = t->scheme.is_quantized;
    const enum dtype from_dtype = quantized ? BYTE : weight_dtype(from), to_dtype = quantized ? BYTE : p->dtype;
    const struct weight_part_bytes bytes = weight_part_bytes(from, t->scheme.has_zeros, t->out_features);
    const struct weight_rows parts = weight_parts(to), there = weight_parts(from);
    struct weight_rows rows = weight_rows_at(to, &parts, place->first_row);
    bool read = false;
    place_dummy(p, t, from, &rows);
    for (int i = 0; i < NUM_WEIGHT_PARTS; i++) {
        read |= rows.at[i] && !there.at[i];
        if (!there.at[i]) continue;
        add_transfer(p, there.at[i], rows.at[i], bytes.of[i] / dtype_size(from_dtype), from_dtype, to_dtype);
        rows.at[i] = NULL;
    }
    if (read)
        p->transfers[p->count++] = (struct transfer){.matrix = model_weights_source(p->host, t),
                                                     .rows = rows,
                                                     .count = t->out_features,
                                                     .from = from_dtype,
                                                     .to = to_dtype};
    return STATUS_OK;
}

/* The type that a vector has on the device: a bias of a matrix that of the activations, `dtype`; gain and bias of a
 * norm, and other vectors, their own. */
static enum dtype vector_dtype(const struct tensor *t, const struct weights_place *place, enum dtype dtype)
{
    return t->kind == TENSOR_BIAS && !place->norm ? dtype : *place->vector_dtype;
}

/* A bias is merged as its matrix is; merged vectors are so on the host, too. */
static enum status place_vector(struct placement *p, const struct tensor *t, const struct weights_place *from,
                                const struct weights_place *to, struct error *err)
{
    const enum dtype dtype = vector_dtype(t, from, p->dtype), from_dtype = *from->vector_dtype;
    const char *source = (const char *)*from->vector + from->first_row * dtype_size(from_dtype);
    if (to->first_row == 0) {
        void *data;
        enum status status = allocate(p, to->num_rows * dtype_size(dtype), &data, err);
        if (status != STATUS_OK) return status;
        *to->vector = data;
        *to->vector_dtype = dtype;
    }
    add_transfer(p, source, (char *)*to->vector + to->first_row * dtype_size(dtype), t->out_features, from_dtype,
                 dtype);
    return STATUS_OK;
}

/* What is no weight stays on the host, too. */
static enum status place(struct placement *p, const struct tensor *t, struct error *err)
{
    const struct weights_place from = model_weights_place(p->host, t), to = model_weights_place(p->device, t);
    if (!tensor_is_weight(t) || model_weights_stays_on_host(p->host, t)) return STATUS_OK;
    return t->kind == TENSOR_MATRIX ? place_matrix(p, t, from.matrix, &to, err) : place_vector(p, t, &from, &to, err);
}

/* Experts that stay on the host are where they are. */
static void place_experts(struct placement *p, int32_t layer)
{
    struct expert_weights *device = &p->device->layers[layer].experts;
    const struct expert_weights *host = &p->host->layers[layer].experts;
    device->stacked = layer >= p->host->host_expert_layers;
    if (device->stacked) return;
    device->gate_up = host->gate_up;
    device->down = host->down;
}

static enum status place_all(struct placement *p, const struct model_spec *spec, struct error *err)
{
    const struct tensor_table *table = &p->host->table;
    const bool tied = !tensor_table_find(table, TENSOR_LM_HEAD, -1);
    enum status status = model_weights_init(spec, tied, p->device, err);
    if (status != STATUS_OK) return status;
    p->transfers = malloc((size_t)table->count * MAX_TRANSFERS * sizeof *p->transfers);
    if (!p->transfers) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    p->device->host_expert_layers = p->host->host_expert_layers;
    p->device->host_embeddings = p->host->host_embeddings;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        p->device->layers[i].xielu = p->host->layers[i].xielu;
        place_experts(p, i);
        p->device->layers[i].scalar = p->host->layers[i].scalar;
    }
    choose_merging(p);
    choose_sharing(p, spec);
    for (int32_t i = 0; i < table->count && status == STATUS_OK; i++) status = place(p, &table->tensors[i], err);
    for (int32_t i = 0; i < spec->num_layers && status == STATUS_OK; i++)
        point_to_shared(&p->device->layers[i], spec->layers[i].experts.router.num_experts);
    if (tied) p->device->lm_head = p->device->embedding;
    return status;
}

enum status device_weights_begin(struct arena *arena, const struct model_spec *spec, const struct model_weights *host,
                                 enum dtype dtype, struct model_weights *device, struct upload **out, struct error *err)
{
    struct placement p = {.arena = arena, .host = host, .device = device, .dtype = dtype};
    *out = NULL;
    enum status status = place_all(&p, spec, err);
    if (status == STATUS_OK)
        status = upload_begin(arena->backend, p.transfers, p.count, out, err);
    else
        free(p.transfers);
    if (status != STATUS_OK) model_weights_close(device);
    return status;
}

/* The merged bias of q, k and v has zeros for output gates, which have none, and that of a router for a shared gate. */
static int64_t elements_of(const struct tensor *t)
{
    const bool has_zeros = t->merged == MERGED_QKV || t->merged == MERGED_ROUTER;
    if (t->kind != TENSOR_BIAS || !has_zeros) return tensor_elements(t);
    return t->part == 0 ? t->merged_rows : 0;
}

static int64_t tensor_bytes(const struct model_weights *host, const struct tensor *t, enum dtype dtype)
{
    const struct weights_place place = model_weights_place(host, t);
    if (!tensor_is_weight(t)) return 0;
    if (t->kind != TENSOR_MATRIX) dtype = vector_dtype(t, &place, dtype);
    return t->scheme.is_quantized ? model_weights_tensor_bytes(t, place.matrix) : elements_of(t) * dtype_size(dtype);
}

int64_t device_weights_bytes(const struct model_weights *host, enum dtype dtype)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < host->table.count; i++) {
        const struct tensor *t = &host->table.tensors[i];
        if (!is_on_host(host, t)) bytes += tensor_bytes(host, t, dtype);
    }
    return bytes;
}

int64_t device_weights_pinned_bytes(const struct model_weights *host, enum dtype dtype)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < host->table.count; i++) {
        const struct tensor *t = &host->table.tensors[i];
        if (is_on_host(host, t) && !model_weights_stays_on_host(host, t)) bytes += tensor_bytes(host, t, dtype);
    }
    return bytes;
}

int64_t device_weights_expert_bytes(const struct model_weights *host, enum dtype dtype)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < host->table.count; i++) {
        const struct tensor *t = &host->table.tensors[i];
        if (t->num_experts > 0 && !model_weights_stays_on_host(host, t)) bytes += tensor_bytes(host, t, dtype);
    }
    return bytes;
}

void device_weights_prepare(struct backend *b, const struct model_weights *device)
{
    if (!b->weight_prepare) return;
    for (int32_t i = 0; i < device->table.count; i++) {
        const struct tensor *t = &device->table.tensors[i];
        if (t->kind != TENSOR_MATRIX || model_weights_stays_on_host(device, t)) continue;
        const struct weights_place place = model_weights_place(device, t);
        struct weight w = *place.matrix;
        w.out_features *= place.num_segments;
        if (place.first_row == 0 && weight_is_quantized(&w)) b->weight_prepare(b, &w);
    }
}
