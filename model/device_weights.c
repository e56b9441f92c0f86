#include "model/device_weights.h"

#include <stdlib.h>

struct placement {
    struct arena *arena;
    const struct model_weights *host;
    struct model_weights *device;
    enum dtype dtype;
    struct transfer *transfers; /* [count] one a tensor at most */
    size_t count;
};

static enum status allocate(struct placement *p, int64_t bytes, void **out, struct error *err)
{
    return arena_alloc(p->arena, PURPOSE_WEIGHTS, bytes, out, err);
}

/* The device's matrix that the tensor becomes a part of: a merged one, or its own. */
static struct weight *device_matrix(struct placement *p, const struct tensor *t)
{
    switch (t->merged) {
    case MERGED_QKV:
        return &p->device->layers[t->layer].qkv.parts[0];
    case MERGED_GATE_UP:
        return &p->device->layers[t->layer].gate_up.parts[0];
    default:
        return model_weights_matrix(p->device, t);
    }
}

/* The first part of a merged matrix allocates all of it; each part is copied to its own rows. */
static enum status place_matrix(struct placement *p, const struct tensor *t, struct error *err)
{
    const struct weight *from = model_weights_matrix(p->host, t);
    struct weight *to = device_matrix(p, t);
    const int64_t row_bytes = t->in_features * dtype_size(p->dtype);
    if (t->first_row == 0) {
        void *data;
        enum status status = allocate(p, t->merged_rows * row_bytes, &data, err);
        if (status != STATUS_OK) return status;
        *to = (struct weight){.format = weight_format_of(p->dtype),
                              .out_features = t->merged_rows,
                              .in_features = t->in_features,
                              .data = data};
    }
    p->transfers[p->count++] = (struct transfer){.source = from->data,
                                                 .file = p->host->file,
                                                 .destination = (char *)to->data + t->first_row * row_bytes,
                                                 .count = tensor_elements(t),
                                                 .from = weight_dtype(from),
                                                 .to = p->dtype};
    return STATUS_OK;
}

static enum status place_bias(struct placement *p, const struct tensor *t, struct error *err)
{
    const struct weight *from = model_weights_matrix(p->host, t);
    struct weight *to = device_matrix(p, t);
    const int64_t size = dtype_size(p->dtype);
    if (t->first_row == 0) {
        void *data;
        enum status status = allocate(p, t->merged_rows * size, &data, err);
        if (status != STATUS_OK) return status;
        to->bias = data;
        to->bias_dtype = p->dtype;
    }
    p->transfers[p->count++] = (struct transfer){.source = from->bias,
                                                 .file = p->host->file,
                                                 .destination = (char *)to->bias + t->first_row * size,
                                                 .count = tensor_elements(t),
                                                 .from = from->bias_dtype,
                                                 .to = p->dtype};
    return STATUS_OK;
}

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
    p->transfers = malloc((size_t)table->count * sizeof *p->transfers);
    if (!p->device->layers || !p->transfers)
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    for (int32_t i = 0; i < spec->num_layers; i++) {
        p->device->layers[i].qkv.num_parts = p->device->layers[i].gate_up.num_parts = 1;
        p->device->layers[i].xielu = p->host->layers[i].xielu;
    }
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

int64_t device_weights_bytes(const struct model_weights *host, enum dtype dtype)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < host->table.count; i++) {
        const struct tensor *t = &host->table.tensors[i];
        if (t->kind == TENSOR_SCALAR) continue;
        const enum dtype stored = t->kind == TENSOR_GAIN ? model_weights_norm(host, t)->gain_dtype : dtype;
        bytes += tensor_elements(t) * dtype_size(stored);
    }
    return bytes;
}
