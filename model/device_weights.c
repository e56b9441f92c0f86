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

static struct place place_of(const struct model_weights *device, const struct tensor *t)
{
    const struct projection *projection = model_weights_projection(device, t);
    struct weight *matrix = model_weights_matrix(device, t);
    if (projection && projection->num_parts == 1) return (struct place){matrix, t->first_row, t->merged_rows};
    return (struct place){matrix, 0, t->out_features};
}

static bool same_order(const struct weight *a, const struct weight *b)
{
    if (!a->input_order || !b->input_order) return a->input_order == b->input_order;
    return memcmp(a->input_order, b->input_order, (size_t)order_bytes(a)) == 0;
}

/* Two parts of a projection have one scheme and one order of input features, and begin with a row of scales. */
static bool can_merge(const struct model_weights *host, const struct tensor *first, const struct tensor *t)
{
    const struct weight *a = model_weights_matrix(host, first), *b = model_weights_matrix(host, t);
    if (!weight_scheme_equal(&first->scheme, &t->scheme) || !same_order(a, b)) return false;
    return !weight_is_quantized(b) || (a->scale_dtype == b->scale_dtype && b->out_features % b->scale_rows == 0);
}

/* A projection is merged unless one of its parts cannot be merged with the first. */
static void choose_merging(struct placement *p)
{
    const struct tensor *first = NULL;
    for (int32_t i = 0; i < p->host->table.count; i++) {
        const struct tensor *t = &p->host->table.tensors[i];
        if (t->kind != TENSOR_MATRIX || t->merged == MERGED_NONE) continue;
        struct projection *projection = model_weights_projection(p->device, t);
        if (t->part == 0) {
            first = t;
            projection->num_parts = 1;
        }
        if (!can_merge(p->host, first, t)) projection->num_parts = t->num_parts;
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
    const struct place place = place_of(p->device, t);
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
    const struct place place = place_of(p->device, t);
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
    const struct place place = place_of(p->device, t);
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
    const bool tied = !tensor_table_find(table, TENSOR_LM_HEAD, -1);
    enum status status = model_weights_init(spec, tied, p->device, err);
    if (status != STATUS_OK) return status;
    p->device->bytes = device_weights_bytes(p->host, p->dtype);
    p->transfers = malloc((size_t)table->count * MAX_TRANSFERS * sizeof *p->transfers);
    if (!p->transfers) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    for (int32_t i = 0; i < spec->num_layers; i++) p->device->layers[i].xielu = p->host->layers[i].xielu;
    choose_merging(p);
    for (int32_t i = 0; i < table->count && status == STATUS_OK; i++) status = place(p, &table->tensors[i], err);
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

void device_weights_prepare(struct backend *b, const struct model_weights *device)
{
    if (!b->weight_prepare) return;
    for (int32_t i = 0; i < device->table.count; i++) {
        const struct tensor *t = &device->table.tensors[i];
        if (t->kind != TENSOR_MATRIX) continue;
        const struct place place = place_of(device, t);
        if (place.first_row == 0 && weight_is_quantized(place.matrix)) b->weight_prepare(b, place.matrix);
    }
}
