#include "model/device_weights.h"

#include <stdlib.h>
#include <string.h>

/* Of a tensor: a quantized matrix has data, scales, zeros and an order of input features. */
enum { MAX_TRANSFERS = 4 };

struct placement {
    struct arena *arena;
    const struct model_weights *host;
    struct model_weights *device;
    enum dtype dtype;
    struct transfer *transfers; /* [count] */
    size_t count;
};

static enum status allocate(struct placement *p, int64_t bytes, void **out, struct error *err)
{
    return arena_alloc(p->arena, PURPOSE_WEIGHTS, bytes, out, err);
}

static int64_t order_bytes(const struct weight *w)
{
    return w->input_order ? w->in_features * (int64_t)sizeof *w->input_order : 0;
}

/* ---- merging ---- */

/* Where a tensor goes: to its rows of a merged matrix, or to all of its own. */
struct place {
    struct weight *matrix;
    int64_t first_row, num_rows; /* of the matrix */
};

static struct place place_of(const struct placement *p, const struct tensor *t)
{
    struct layer_weights *layer = t->layer >= 0 ? &p->device->layers[t->layer] : NULL;
    struct projection *projection = t->merged == MERGED_QKV       ? &layer->qkv
                                    : t->merged == MERGED_GATE_UP ? &layer->gate_up
                                                                  : NULL;
    if (projection && projection->num_parts == 1)
        return (struct place){&projection->parts[0], t->first_row, t->merged_rows};
    return (struct place){model_weights_matrix(p->device, t), 0, t->out_features};
}

static bool same_order(const struct weight *a, const struct weight *b)
{
    if (!a->input_order || !b->input_order) return a->input_order == b->input_order;
    return memcmp(a->input_order, b->input_order, (size_t)order_bytes(a)) == 0;
}

/* The parts of a projection have one scheme, beginning at schemes[0], and one order of input features, and each begins
 * with a row of scales. */
static bool can_merge(const struct projection *host, const uint8_t *schemes)
{
    for (int i = 0; i < host->num_parts; i++) {
        const struct weight *w = &host->parts[i];
        if (schemes[i] != schemes[0] || !same_order(w, &host->parts[0])) return false;
        if (!weight_is_quantized(w)) continue;
        if (w->scale_dtype != host->parts[0].scale_dtype || w->out_features % w->scale_rows) return false;
    }
    return true;
}

static void choose_merging(struct placement *p, const struct model_spec *spec)
{
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_weights *host = &p->host->layers[i];
        struct layer_weights *device = &p->device->layers[i];
        const uint8_t *schemes = spec->layers[i].schemes;
        device->qkv.num_parts = can_merge(&host->qkv, schemes + MATRIX_Q) ? 1 : host->qkv.num_parts;
        device->gate_up.num_parts = can_merge(&host->gate_up, schemes + MATRIX_GATE) ? 1 : host->gate_up.num_parts;
    }
}

/* ---- matrices ---- */

static void add_transfer(struct placement *p, const void *source, void *destination, int64_t count, enum dtype from,
                         enum dtype to)
{
    p->transfers[p->count++] = (struct transfer){
        .source = source, .file = p->host->file, .destination = destination, .count = count, .from = from, .to = to};
}

static void add_bytes(struct placement *p, const void *source, void *destination, int64_t bytes)
{
    add_transfer(p, source, destination, bytes, DTYPE_FP8_E4M3, DTYPE_FP8_E4M3);
}

/* Allocates a quantized matrix of so many rows. */
static enum status allocate_quantized(struct placement *p, const struct weight *from, bool has_zeros, int64_t num_rows,
                                      struct weight *to, struct error *err)
{
    const struct weight_part_bytes bytes = weight_part_bytes(from, has_zeros, num_rows);
    void *data = NULL, *scales = NULL, *zeros = NULL;
    enum status status = allocate(p, bytes.data, &data, err);
    if (status == STATUS_OK) status = allocate(p, bytes.scales, &scales, err);
    if (status == STATUS_OK && has_zeros) status = allocate(p, bytes.zeros, &zeros, err);
    *to = *from;
    to->out_features = num_rows;
    to->data = data, to->scales = scales, to->zeros = zeros, to->input_order = NULL;
    to->bias = NULL;
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
    add_bytes(p, from->input_order, order, order_bytes(from));
    return STATUS_OK;
}

/* What the host has as it is wanted is copied, the rest read by rows. */
static enum status place_quantized(struct placement *p, const struct tensor *t, struct error *err)
{
    const struct weight *from = model_weights_matrix(p->host, t);
    const bool has_zeros = t->scheme.has_zeros;
    const struct weight_part_bytes bytes = weight_part_bytes(from, has_zeros, t->out_features);
    const struct place place = place_of(p, t);
    struct weight *to = place.matrix;
    enum status status = STATUS_OK;
    if (place.first_row == 0) status = allocate_quantized(p, from, has_zeros, place.num_rows, to, err);
    if (status == STATUS_OK) status = place_order(p, from, to, err);
    if (status != STATUS_OK) return status;
    const struct weight_rows parts = {(void *)to->data, (void *)to->scales, (uint8_t *)to->zeros};
    struct weight_rows rows = weight_rows_at(to, &parts, place.first_row);
    if (from->data) add_bytes(p, from->data, rows.data, bytes.data), rows.data = NULL;
    if (from->scales) add_bytes(p, from->scales, rows.scales, bytes.scales), rows.scales = NULL;
    if (from->zeros) add_bytes(p, from->zeros, rows.zeros, bytes.zeros), rows.zeros = NULL;
    if (rows.data || rows.scales || rows.zeros)
        p->transfers[p->count++] =
            (struct transfer){.matrix = model_weights_source(p->host, t), .rows = rows, .count = t->out_features};
    return STATUS_OK;
}

/* The first part of a merged matrix allocates all of it; each part is copied to its own rows. */
static enum status place_matrix(struct placement *p, const struct tensor *t, struct error *err)
{
    if (t->scheme.is_quantized) return place_quantized(p, t, err);
    const struct weight *from = model_weights_matrix(p->host, t);
    const struct place place = place_of(p, t);
    const int64_t row_bytes = t->in_features * dtype_size(p->dtype);
    if (place.first_row == 0) {
        void *data;
        enum status status = allocate(p, place.num_rows * row_bytes, &data, err);
        if (status != STATUS_OK) return status;
        *place.matrix = (struct weight){.format = weight_format_of(p->dtype),
                                        .out_features = place.num_rows,
                                        .in_features = t->in_features,
                                        .data = data};
    }
    add_transfer(p, from->data, (char *)place.matrix->data + place.first_row * row_bytes, tensor_elements(t),
                 weight_dtype(from), p->dtype);
    return STATUS_OK;
}

static enum status place_bias(struct placement *p, const struct tensor *t, struct error *err)
{
    const struct weight *from = model_weights_matrix(p->host, t);
    const struct place place = place_of(p, t);
    const int64_t size = dtype_size(p->dtype);
    if (place.first_row == 0) {
        void *data;
        enum status status = allocate(p, place.num_rows * size, &data, err);
        if (status != STATUS_OK) return status;
        place.matrix->bias = data;
        place.matrix->bias_dtype = p->dtype;
    }
    add_transfer(p, from->bias, (char *)place.matrix->bias + place.first_row * size, tensor_elements(t),
                 from->bias_dtype, p->dtype);
    return STATUS_OK;
}

/* ---- */

static enum status place_gain(struct placement *p, const struct tensor *t, struct error *err)
{
    const struct norm_params *from = model_weights_norm(p->host, t);
    struct norm_params *to = model_weights_norm(p->device, t);
    void *data;
    enum status status = allocate(p, tensor_elements(t) * dtype_size(from->gain_dtype), &data, err);
    if (status != STATUS_OK) return status;
    *to = *from;
    to->gain = data;
    p->transfers[p->count++] = (struct transfer){.source = from->gain,
                                                 .file = p->host->gains ? NULL : p->host->file,
                                                 .destination = data,
                                                 .count = tensor_elements(t),
                                                 .from = from->gain_dtype,
                                                 .to = from->gain_dtype};
    return STATUS_OK;
}

static enum status place(struct placement *p, const struct tensor *t, struct error *err)
{
    switch (t->kind) {
    case TENSOR_MATRIX:
        return place_matrix(p, t, err);
    case TENSOR_BIAS:
        return place_bias(p, t, err);
    case TENSOR_GAIN:
        return place_gain(p, t, err);
    case TENSOR_SCALAR: /* stays on the host */
        return STATUS_OK;
    }
    return STATUS_OK;
}

static enum status place_all(struct placement *p, const struct model_spec *spec, struct error *err)
{
    const struct tensor_table *table = &p->host->table;
    p->device->layers = calloc((size_t)spec->num_layers, sizeof *p->device->layers);
    p->transfers = malloc((size_t)table->count * MAX_TRANSFERS * sizeof *p->transfers);
    if (!p->device->layers || !p->transfers)
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    for (int32_t i = 0; i < spec->num_layers; i++) p->device->layers[i].xielu = p->host->layers[i].xielu;
    choose_merging(p, spec);
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < table->count && status == STATUS_OK; i++) status = place(p, &table->tensors[i], err);
    if (!p->device->lm_head.data) p->device->lm_head = p->device->embedding;
    return status;
}

enum status device_weights_begin(struct arena *arena, const struct model_spec *spec, const struct model_weights *host,
                                 enum dtype dtype, struct model_weights *device, struct upload **out, struct error *err)
{
    struct placement p = {.arena = arena, .host = host, .device = device, .dtype = dtype};
    *out = NULL;
    *device = (struct model_weights){.bytes = device_weights_bytes(host, dtype)};
    enum status status = place_all(&p, spec, err);
    if (status == STATUS_OK)
        status = upload_begin(arena->backend, p.transfers, p.count, out, err);
    else
        free(p.transfers);
    if (status != STATUS_OK) model_weights_close(device);
    return status;
}

static int64_t tensor_bytes(const struct model_weights *host, const struct tensor *t, enum dtype dtype)
{
    if (t->kind == TENSOR_SCALAR) return 0;
    if (t->kind == TENSOR_GAIN) dtype = model_weights_norm(host, t)->gain_dtype;
    if (!t->scheme.is_quantized) return tensor_elements(t) * dtype_size(dtype);
    return weight_bytes_of_parts(model_weights_matrix(host, t), t->scheme.has_zeros);
}

int64_t device_weights_bytes(const struct model_weights *host, enum dtype dtype)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < host->table.count; i++) bytes += tensor_bytes(host, &host->table.tensors[i], dtype);
    return bytes;
}

static void prepare(struct backend *b, const struct weight *w)
{
    if (weight_is_quantized(w)) b->weight_prepare(b, w);
}

void device_weights_prepare(struct backend *b, const struct model_spec *spec, const struct model_weights *device)
{
    if (!b->weight_prepare) return;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_weights *layer = &device->layers[i];
        for (int k = 0; k < layer->qkv.num_parts; k++) prepare(b, &layer->qkv.parts[k]);
        for (int k = 0; k < layer->gate_up.num_parts; k++) prepare(b, &layer->gate_up.parts[k]);
        prepare(b, &layer->o);
        prepare(b, &layer->down);
    }
    prepare(b, &device->lm_head); /* if it is the embedding, it has floats */
}
