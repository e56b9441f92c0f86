#include "model/upload.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/processors.h"

/* Transfers are cut into chunks, which the threads share; a buffer holds one chunk. Pinning a byte takes as long as
 * copying ten, so there are few buffers. */
enum { MAX_LANES = 14, BUFFERS = 2, CHUNK_BYTES = 1 << 20 };

struct upload {
    struct backend *backend;    /* NULL: host memory is filled */
    struct transfer *transfers; /* [count] */
    size_t count;
    int num_lanes;
    atomic_long next;     /* the number of the step that is taken next */
    char *buffers;        /* pinned [num_lanes, BUFFERS, CHUNK_BYTES] */
    pthread_mutex_t lock; /* of the first failure: */
    enum status status;
    struct error err;
    pthread_t thread;
};

/* One thread's stream, and its buffers, which it fills in turn. */
struct lane {
    backend_stream stream;
    backend_event done[BUFFERS];
    char *buffers;     /* [BUFFERS, CHUNK_BYTES] */
    int64_t sent;      /* chunks */
    char *raw;         /* elements as they are in the file, before conversion, or a band of a quantized matrix */
    int64_t raw_bytes; /* allocated */
};

static enum status reserve_raw(struct lane *lane, int64_t bytes, struct error *err)
{
    if (bytes <= lane->raw_bytes) return STATUS_OK;
    free(lane->raw);
    lane->raw = malloc((size_t)bytes);
    lane->raw_bytes = lane->raw ? bytes : 0;
    return lane->raw ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for loading the weights");
}

static enum status lane_open(struct backend *b, struct lane *lane, struct error *err)
{
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

/* The next buffer, once what it held is on the device. */
static enum status next_buffer(struct backend *b, const struct lane *lane, char **out, struct error *err)
{
    const int64_t index = lane->sent % BUFFERS;
    *out = lane->buffers + index * CHUNK_BYTES;
    return lane->sent >= BUFFERS ? b->event_synchronize(b, lane->done[index], err) : STATUS_OK;
}

/* Sends the first `bytes` of the buffer that next_buffer gave. */
static void send_buffer(struct backend *b, struct lane *lane, void *destination, int64_t bytes)
{
    const int64_t index = lane->sent++ % BUFFERS;
    b->copy(b, destination, lane->buffers + index * CHUNK_BYTES, bytes, lane->stream);
    b->event_record(b, lane->done[index], lane->stream);
}

/* ---- a piece ---- */

/* Reads elements [first, first + count) of a transfer into a buffer. */
static enum status fetch(const struct transfer *t, int64_t first, int64_t count, struct lane *lane, void *out,
                         struct error *err)
{
    const int64_t bytes = count * dtype_size(t->from);
    const char *source = (const char *)t->source + first * dtype_size(t->from);
    enum status status = t->from == t->to ? STATUS_OK : reserve_raw(lane, bytes, err);
    void *raw = t->from == t->to ? out : lane->raw;
    if (status != STATUS_OK) return status;
    if (t->file)
        status = tensor_file_read(t->file, source, (uint64_t)bytes, raw, err);
    else
        memcpy(raw, source, (size_t)bytes);
    for (int64_t i = 0; raw != out && i < count && status == STATUS_OK; i++)
        dtype_store(out, t->to, i, dtype_load(raw, t->from, i));
    return status;
}

static enum status send_piece(struct backend *b, struct lane *lane, const struct transfer *t, int64_t first,
                              int64_t count, struct error *err)
{
    const int size = dtype_size(t->to);
    char *buffer;
    enum status status = next_buffer(b, lane, &buffer, err);
    if (status == STATUS_OK) status = fetch(t, first, count, lane, buffer, err);
    if (status == STATUS_OK) send_buffer(b, lane, (char *)t->destination + first * size, count * size);
    return status;
}

/* ---- a band of a matrix ---- */

static enum status send_bytes(struct backend *b, struct lane *lane, void *destination, const void *source,
                              int64_t bytes, struct error *err)
{
    enum status status = STATUS_OK;
    for (int64_t at = 0; at < bytes && status == STATUS_OK; at += CHUNK_BYTES) {
        const int64_t count = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        char *buffer;
        status = next_buffer(b, lane, &buffer, err);
        if (status != STATUS_OK) break;
        memcpy(buffer, (const char *)source + at, (size_t)count);
        send_buffer(b, lane, (char *)destination + at, count);
    }
    return status;
}

/* The parts lie one after the other in `raw`: data first, whose rows are whole words, then scales, then zeros. */
static enum status send_band(struct backend *b, struct lane *lane, const struct transfer *t, int64_t first,
                             int64_t count, struct error *err)
{
    const struct weight *w = &t->matrix->weight;
    const struct weight_rows to = weight_rows_at(w, &t->rows, first);
    const struct weight_part_bytes bytes = weight_part_bytes(w, true, count);
    int64_t offset[NUM_WEIGHT_PARTS + 1] = {0};
    struct weight_rows band = {{NULL}};
    for (int i = 0; i < NUM_WEIGHT_PARTS; i++) offset[i + 1] = offset[i] + (bytes.of[i] + 63) / 64 * 64;
    enum status status = reserve_raw(lane, offset[NUM_WEIGHT_PARTS], err);
    for (int i = 0; i < NUM_WEIGHT_PARTS; i++)
        if (to.at[i]) band.at[i] = lane->raw + offset[i];
    if (status == STATUS_OK) status = weight_source_read(t->matrix, first, count, &band, err);
    for (int i = 0; i < NUM_WEIGHT_PARTS && status == STATUS_OK; i++)
        if (to.at[i]) status = send_bytes(b, lane, to.at[i], band.at[i], bytes.of[i], err);
    return status;
}

/* Rows of floats that are read as those of a quantized matrix are. */
static enum status send_float_rows(struct backend *b, struct lane *lane, const struct transfer *t, int64_t first,
                                   int64_t count, struct error *err)
{
    const int64_t in_features = t->matrix->weight.in_features, elements = count * in_features;
    const int64_t size = dtype_size(t->to), raw_bytes = elements * dtype_size(t->from);
    const int64_t at = t->from == t->to ? 0 : (raw_bytes + 63) / 64 * 64; /* of the converted ones */
    char *to = (char *)t->rows.at[WEIGHT_DATA] + first * in_features * size;
    enum status status = reserve_raw(lane, at > 0 ? at + elements * size : raw_bytes, err);
    if (status == STATUS_OK) status = weight_source_read_floats(t->matrix, first, count, lane->raw, err);
    if (status != STATUS_OK) return status;
    for (int64_t i = 0; at > 0 && i < elements; i++)
        dtype_store(lane->raw + at, t->to, i, dtype_load(lane->raw, t->from, i));
    return send_bytes(b, lane, to, lane->raw + at, elements * size, err);
}

/* ---- rows of floats that the device quantizes ---- */

/* How many rows of a transfer a buffer holds for the device to quantize; 0 if the host quantizes them, or none fits. */
static int64_t rows_to_quantize(const struct backend *b, const struct transfer *t)
{
    if (!b || !b->weight_quantize || !t->matrix->scheme->quantize) return 0;
    const struct weight_rows none = {{NULL}};
    const struct weight_quantize_args args = weight_source_quantizing(t->matrix, &none);
    return CHUNK_BYTES / (args.in_features * dtype_size(args.dtype));
}

/* The device reads the rows from the buffer itself. */
static enum status send_rows(struct backend *b, struct lane *lane, const struct transfer *t, int64_t first,
                             int64_t count, struct error *err)
{
    const struct weight_rows to = weight_rows_at(&t->matrix->weight, &t->rows, first);
    struct weight_quantize_args args = weight_source_quantizing(t->matrix, &to);
    const int64_t index = lane->sent % BUFFERS;
    char *buffer;
    enum status status = next_buffer(b, lane, &buffer, err);
    if (status == STATUS_OK) status = weight_source_read_floats(t->matrix, first, count, buffer, err);
    if (status != STATUS_OK) return status;
    args.rows = buffer;
    args.num_rows = count;
    b->weight_quantize(b, &args, lane->stream);
    b->event_record(b, lane->done[index], lane->stream);
    lane->sent++;
    return STATUS_OK;
}

/* ---- */

/* How many elements or rows of a transfer a thread takes at a time. */
static int64_t step_of(const struct backend *b, const struct transfer *t)
{
    if (t->dummy.out) return 1;
    if (t->matrix && rows_to_quantize(b, t) > 0) return rows_to_quantize(b, t);
    if (t->matrix) return weight_source_band(t->matrix);
    const int from = dtype_size(t->from), to = dtype_size(t->to);
    return CHUNK_BYTES / (from > to ? from : to);
}

static enum status send(struct backend *b, struct lane *lane, const struct transfer *t, int64_t first, int64_t count,
                        struct error *err)
{
    if (t->dummy.out) {
        b->fill_dummy(b, &t->dummy, lane->stream);
        return STATUS_OK;
    }
    if (!t->matrix) return send_piece(b, lane, t, first, count, err);
    if (rows_to_quantize(b, t) > 0) return send_rows(b, lane, t, first, count, err);
    if (!t->matrix->scheme->is_quantized) return send_float_rows(b, lane, t, first, count, err);
    return send_band(b, lane, t, first, count, err);
}

/* ---- threads ---- */

/* Where a thread is among the steps of all transfers. */
struct cursor {
    size_t transfer;
    int64_t first, number;
};

/* The next step that no other thread has taken: `count` elements or rows from `first` on of the transfer that it
 * returns. NULL: there is none. */
static const struct transfer *next_step(struct upload *u, struct cursor *c, int64_t *first, int64_t *count)
{
    const int64_t mine = atomic_fetch_add(&u->next, 1);
    for (; c->transfer < u->count; c->transfer++, c->first = 0) {
        const struct transfer *t = &u->transfers[c->transfer];
        const int64_t step = step_of(u->backend, t);
        while (c->first < t->count) {
            *first = c->first;
            *count = *first + step < t->count ? step : t->count - *first;
            c->first += step;
            if (c->number++ == mine) return t;
        }
    }
    return NULL;
}

/* Keeps the first failure. */
static void note_failure(struct upload *u, enum status status, const struct error *failure)
{
    pthread_mutex_lock(&u->lock);
    if (u->status == STATUS_OK && status != STATUS_OK) u->status = error_set(&u->err, status, "%s", failure->text);
    pthread_mutex_unlock(&u->lock);
}

static void run_lane(void *upload, int64_t i, int thread)
{
    (void)thread;
    struct upload *u = upload;
    struct backend *b = u->backend;
    struct lane lane = {.buffers = u->buffers + i * BUFFERS * CHUNK_BYTES};
    struct cursor cursor = {0};
    const struct transfer *t;
    int64_t first, count;
    struct error err;
    enum status status = lane_open(b, &lane, &err);
    while (status == STATUS_OK && (t = next_step(u, &cursor, &first, &count)))
        status = send(b, &lane, t, first, count, &err);
    if (status == STATUS_OK) status = b->stream_synchronize(b, lane.stream, &err);
    lane_close(b, &lane);
    note_failure(u, status, &err);
}

/* The upload's own thread: it runs the lanes, a thread each. */
static void *run_lanes(void *upload)
{
    struct upload *u = upload;
    struct pool *pool;
    u->status = pool_open(u->num_lanes, &pool, &u->err);
    if (u->status != STATUS_OK) return NULL;
    pool_run(pool, u->num_lanes, u->num_lanes, run_lane, u);
    pool_close(pool);
    return NULL;
}

static void read_steps(void *upload, int64_t i, int thread)
{
    (void)i, (void)thread;
    struct upload *u = upload;
    struct cursor cursor = {0};
    const struct transfer *t;
    int64_t first, count;
    struct error err;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && (t = next_step(u, &cursor, &first, &count))) {
        const struct weight_rows rows = weight_rows_at(&t->matrix->weight, &t->rows, first);
        status = weight_source_read(t->matrix, first, count, &rows, &err);
    }
    note_failure(u, status, &err);
}

enum status upload_to_host(struct transfer *transfers, size_t count, struct error *err)
{
    struct upload u = {.transfers = transfers, .count = count};
    struct pool *pool = pool_open_allowed();
    pthread_mutex_init(&u.lock, NULL);
    pool_run(pool, INT_MAX, pool_threads(pool), read_steps, &u);
    pthread_mutex_destroy(&u.lock);
    pool_close(pool);
    return u.status == STATUS_OK ? STATUS_OK : error_set(err, u.status, "%s", u.err.text);
}

static int64_t buffers_bytes(const struct upload *u)
{
    return (int64_t)u->num_lanes * BUFFERS * CHUNK_BYTES;
}

/* Allocates the buffers before the threads start, because pinning keeps other threads from allocating. Waits for the
 * main stream, which the lanes' streams do not follow, and where the weights' memory is being set to zero. */
static enum status prepare_lanes(struct upload *u, struct error *err)
{
    struct backend *b = u->backend;
    void *buffers = NULL;
    const int processors = processors_allowed();
    u->num_lanes = processors < MAX_LANES ? processors : MAX_LANES;
    enum status status = b->memory_alloc(b, MEMORY_HOST_PINNED, buffers_bytes(u), &buffers, err);
    u->buffers = buffers;
    return status == STATUS_OK ? b->stream_synchronize(b, NULL, err) : status;
}

/* Frees the upload; returns its status. */
static enum status close_upload(struct upload *u, struct error *err)
{
    struct backend *b = u->backend;
    const enum status status = u->status;
    if (u->buffers) b->memory_free(b, MEMORY_HOST_PINNED, u->buffers, buffers_bytes(u));
    if (status != STATUS_OK) error_set(err, status, "%s", u->err.text);
    pthread_mutex_destroy(&u->lock);
    free(u->transfers);
    free(u);
    return status;
}

enum status upload_begin(struct backend *b, struct transfer *transfers, size_t count, struct upload **out,
                         struct error *err)
{
    struct upload *u = calloc(1, sizeof *u);
    *out = NULL;
    if (!u) {
        free(transfers);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for loading the weights");
    }
    u->backend = b;
    u->transfers = transfers;
    u->count = count;
    pthread_mutex_init(&u->lock, NULL);
    u->status = prepare_lanes(u, &u->err);
    if (u->status != STATUS_OK) return close_upload(u, err);
    if (pthread_create(&u->thread, NULL, run_lanes, u) != 0) {
        u->status = error_set(&u->err, STATUS_OUT_OF_MEMORY, "cannot start a thread to load the weights");
        return close_upload(u, err);
    }
    *out = u; /* from here on, the status is the thread's until it is joined */
    return STATUS_OK;
}

enum status upload_finish(struct upload *u, struct error *err)
{
    pthread_join(u->thread, NULL);
    return close_upload(u, err);
}
