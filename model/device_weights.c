#include "model/device_weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/array.h"
#include "base/clock.h"

/* One contiguous piece of the upload: `count` elements, converted on the way where the types differ. */
struct transfer {
    const void *source;
    void *destination;
    int64_t count;
    enum dtype from, to;
};

struct weights_upload {
    struct arena *arena;            /* of which the threads use the backend alone */
    const struct safetensors *file; /* what sources point into; NULL: memory */
    enum dtype dtype;
    struct transfer *transfers; /* [count] */
    size_t count, capacity;
    int num_lanes;
    char *buffers;      /* pinned [num_lanes, BUFFERS, CHUNK_BYTES] */
    enum status status; /* the first failure */
    struct error err;
    pthread_t thread;
};

/* A transfer is cut so that threads share it; a buffer holds one cut. Pinning takes as long as copying ten times as
 * much, so there are few bytes of it. */
enum { MAX_LANES = 14, BUFFERS = 2, CHUNK_BYTES = 1 << 20 };

static void add_transfer(struct weights_upload *u, const void *source, enum dtype from, void *destination,
                         enum dtype to, int64_t count)
{
    if (u->status != STATUS_OK) return;
    if (!array_reserve(&u->transfers, &u->capacity, u->count + 1, sizeof *u->transfers)) {
        u->status = error_set(&u->err, STATUS_OUT_OF_MEMORY, "out of host memory for loading the weights");
        return;
    }
    u->transfers[u->count++] = (struct transfer){source, destination, count, from, to};
}

static void *allocate(struct weights_upload *u, int64_t bytes)
{
    void *data = NULL;
    if (u->status == STATUS_OK) u->status = arena_alloc(u->arena, PURPOSE_WEIGHTS, bytes, &data, &u->err);
    return data;
}

/* The parts below each other in one matrix; one part is a plain matrix. */
static struct weight place_matrix(struct weights_upload *u, const struct weight *parts, int num_parts)
{
    struct weight out = {
        .format = weight_format_of(u->dtype), .bias_dtype = u->dtype, .in_features = parts[0].in_features};
    bool bias = false;
    for (int i = 0; i < num_parts; i++) {
        out.out_features += parts[i].out_features;
        bias = bias || parts[i].bias;
    }
    const int64_t size = dtype_size(u->dtype);
    char *data = allocate(u, out.out_features * out.in_features * size),
         *bias_data = bias ? allocate(u, out.out_features * size) : NULL;
    out.data = data;
    out.bias = bias_data;
    for (int64_t i = 0, row = 0; i < num_parts && u->status == STATUS_OK; row += parts[i++].out_features) {
        const struct weight *p = &parts[i];
        add_transfer(u, p->data, weight_dtype(p), data + row * out.in_features * size, u->dtype,
                     p->out_features * p->in_features);
        if (p->bias) add_transfer(u, p->bias, p->bias_dtype, bias_data + row * size, u->dtype, p->out_features);
    }
    return out;
}

static const void *place_gain(struct weights_upload *u, const void *gain, enum dtype dtype, int64_t count)
{
    void *data = allocate(u, count * dtype_size(dtype));
    add_transfer(u, gain, dtype, data, dtype, count);
    return data;
}

static struct projection place_projection(struct weights_upload *u, const struct projection *p)
{
    return (struct projection){.parts = {place_matrix(u, p->parts, p->num_parts)}, .num_parts = 1};
}

static void place_all(struct weights_upload *u, const struct model_config *c, const struct model_weights *host,
                      struct model_weights *device)
{
    const int64_t hidden = c->hidden_size;
    device->embedding = place_matrix(u, &host->embedding, 1);
    device->lm_head =
        host->lm_head.data == host->embedding.data ? device->embedding : place_matrix(u, &host->lm_head, 1);
    device->final_norm = place_gain(u, host->final_norm, host->norm_dtype, hidden);
    for (int32_t i = 0; i < c->num_layers; i++) {
        const struct layer_weights *from = &host->layers[i];
        device->layers[i] = (struct layer_weights){
            .input_norm = place_gain(u, from->input_norm, host->norm_dtype, hidden),
            .qkv = place_projection(u, &from->qkv),
            .o = place_matrix(u, &from->o, 1),
            .post_attention_norm = place_gain(u, from->post_attention_norm, host->norm_dtype, hidden),
            .gate_up = place_projection(u, &from->gate_up),
            .down = place_matrix(u, &from->down, 1),
        };
    }
}

/* One thread's stream and its buffers, filled in turn. */
struct lane {
    backend_stream stream;
    backend_event done[BUFFERS];
    char *buffers; /* [BUFFERS, CHUNK_BYTES] */
    char *raw;     /* [CHUNK_BYTES] elements as they lie in the file, where they are converted */
};

/* Elements of a transfer, into a buffer. The file is read, not touched: one that becomes shorter is an error then, not
 * a signal. */
static enum status fetch(const struct weights_upload *u, const struct transfer *t, int64_t first, int64_t count,
                         const struct lane *lane, void *out, struct error *err)
{
    const int64_t bytes = count * dtype_size(t->from);
    const char *source = (const char *)t->source + first * dtype_size(t->from);
    void *raw = t->from == t->to ? out : lane->raw;
    enum status status = STATUS_OK;
    if (u->file)
        status = safetensors_read(u->file, source, (uint64_t)bytes, raw, err);
    else
        memcpy(raw, source, (size_t)bytes);
    for (int64_t i = 0; raw != out && i < count && status == STATUS_OK; i++)
        dtype_store(out, t->to, i, dtype_load(raw, t->from, i));
    return status;
}

static enum status lane_open(struct backend *b, struct lane *lane, struct error *err)
{
    lane->raw = malloc(CHUNK_BYTES);
    if (!lane->raw) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for loading the weights");
    enum status status = b->stream_create(b, &lane->stream, err);
    for (int i = 0; i < BUFFERS && status == STATUS_OK; i++) status = b->event_create(b, &lane->done[i], err);
    return status;
}

static void lane_close(struct backend *b, struct lane *lane)
{
    for (int i = 0; i < BUFFERS; i++)
        if (lane->done[i]) b->event_destroy(b, lane->done[i]);
    if (lane->stream) b->stream_destroy(b, lane->stream);
    free(lane->raw);
}

static int64_t chunk_elements(const struct transfer *t)
{
    const int from = dtype_size(t->from), to = dtype_size(t->to);
    return CHUNK_BYTES / (from > to ? from : to);
}

/* Every lane takes the chunks whose number is its own modulo the number of lanes. */
static enum status run_lane(struct backend *b, struct lane *lane, const struct weights_upload *u, int number,
                            struct error *err)
{
    int64_t chunk = 0, used = 0;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < u->count; i++) {
        const struct transfer *t = &u->transfers[i];
        const int64_t step = chunk_elements(t);
        for (int64_t first = 0; first < t->count; first += step) {
            if (chunk++ % u->num_lanes != number) continue;
            const int64_t count = first + step < t->count ? step : t->count - first;
            const int slot = (int)(used++ % BUFFERS);
            char *buffer = lane->buffers + slot * (int64_t)CHUNK_BYTES;
            if (used > BUFFERS) status = b->event_synchronize(b, lane->done[slot], err);
            if (status == STATUS_OK) status = fetch(u, t, first, count, lane, buffer, err);
            if (status != STATUS_OK) return status;
            b->copy(b, (char *)t->destination + first * dtype_size(t->to), buffer, count * dtype_size(t->to),
                    lane->stream);
            b->event_record(b, lane->done[slot], lane->stream);
        }
    }
    return b->stream_synchronize(b, lane->stream, err);
}

/* The thread: several lanes. */
static void *run_transfers(void *upload)
{
    struct weights_upload *u = upload;
    struct backend *b = u->arena->backend;
    struct lane lanes[MAX_LANES] = {{0}};
    enum status results[MAX_LANES] = {STATUS_OK};
    struct error errors[MAX_LANES];
#pragma omp parallel for num_threads(u->num_lanes) schedule(static, 1)
    for (int i = 0; i < u->num_lanes; i++) {
        lanes[i].buffers = u->buffers + (int64_t)i * BUFFERS * CHUNK_BYTES;
        results[i] = lane_open(b, &lanes[i], &errors[i]);
        if (results[i] == STATUS_OK) results[i] = run_lane(b, &lanes[i], u, i, &errors[i]);
        lane_close(b, &lanes[i]);
    }
    for (int i = 0; i < u->num_lanes && u->status == STATUS_OK; i++)
        if (results[i] != STATUS_OK) u->status = error_set(&u->err, results[i], "%s", errors[i].text);
    return NULL;
}

static int64_t buffers_bytes(const struct weights_upload *u)
{
    return (int64_t)u->num_lanes * BUFFERS * CHUNK_BYTES;
}

/* Before the threads, which would keep others from allocating while they do. Their streams do not follow the main one,
 * where the weights' memory is being set to zero. */
static enum status prepare_lanes(struct weights_upload *u, struct error *err)
{
    struct backend *b = u->arena->backend;
    void *buffers = NULL;
    const int processors = processors_allowed();
    u->num_lanes = processors < MAX_LANES ? processors : MAX_LANES;
    enum status status = b->memory_alloc(b, MEMORY_HOST_PINNED, buffers_bytes(u), &buffers, err);
    u->buffers = buffers;
    return status == STATUS_OK ? b->stream_synchronize(b, NULL, err) : status;
}

/* Frees it; returns its status. */
static enum status end_upload(struct weights_upload *u, struct error *err)
{
    struct backend *b = u->arena->backend;
    const enum status status = u->status;
    if (u->buffers) b->memory_free(b, MEMORY_HOST_PINNED, u->buffers, buffers_bytes(u));
    if (status != STATUS_OK) error_set(err, status, "%s", u->err.text);
    free(u->transfers);
    free(u);
    return status;
}

enum status device_weights_begin(struct arena *arena, const struct model_config *config,
                                 const struct model_weights *host, enum dtype dtype, struct model_weights *device,
                                 struct weights_upload **out, struct error *err)
{
    const int64_t before = arena->bytes[PURPOSE_WEIGHTS];
    struct weights_upload *u = calloc(1, sizeof *u);
    *device = (struct model_weights){.norm_dtype = host->norm_dtype, .num_layers = config->num_layers};
    if (!u) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    u->arena = arena;
    u->file = host->file;
    u->dtype = dtype;
    device->layers = calloc((size_t)config->num_layers, sizeof *device->layers);
    if (device->layers)
        place_all(u, config, host, device);
    else
        u->status = error_set(&u->err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    device->bytes = arena->bytes[PURPOSE_WEIGHTS] - before;
    if (u->status == STATUS_OK) u->status = prepare_lanes(u, &u->err);
    if (u->status == STATUS_OK && pthread_create(&u->thread, NULL, run_transfers, u) != 0)
        u->status = error_set(&u->err, STATUS_OUT_OF_MEMORY, "cannot start a thread to load the weights");
    if (u->status == STATUS_OK) {
        *out = u;
        return STATUS_OK;
    }
    model_weights_close(device);
    return end_upload(u, err);
}

enum status device_weights_finish(struct weights_upload *u, struct error *err)
{
    pthread_join(u->thread, NULL);
    return end_upload(u, err);
}

static int64_t projection_elements(const struct projection *p)
{
    int64_t count = 0;
    for (int i = 0; i < p->num_parts; i++)
        count += p->parts[i].out_features * (p->parts[i].in_features + (p->parts[i].bias ? 1 : 0));
    return count;
}

int64_t device_weights_bytes(const struct model_config *config, const struct model_weights *host, enum dtype dtype)
{
    int64_t elements = host->embedding.out_features * host->embedding.in_features,
            gains = 1 + 2 * (int64_t)config->num_layers;
    if (host->lm_head.data != host->embedding.data) elements += host->lm_head.out_features * host->lm_head.in_features;
    for (int32_t i = 0; i < config->num_layers; i++) {
        const struct layer_weights *l = &host->layers[i];
        const struct projection o = {.parts = {l->o}, .num_parts = 1}, down = {.parts = {l->down}, .num_parts = 1};
        elements += projection_elements(&l->qkv) + projection_elements(&l->gate_up) + projection_elements(&o) +
                    projection_elements(&down);
    }
    return elements * dtype_size(dtype) + gains * config->hidden_size * dtype_size(host->norm_dtype);
}
