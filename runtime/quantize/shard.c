#include "runtime/quantize/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "model/checkpoint/compressed_weight.h"
#include "runtime/interrupt.h"

/* A stored tensor is copied in pieces of this size. */
enum { COPY_BYTES = 4 << 20 };
static const char PART[] = "model.safetensors.part";

/* Rows of a matrix that is quantized, or bytes of a tensor that is copied. */
struct piece {
    const struct planned_tensor *tensor;
    int64_t first, count;
};

struct writing {
    struct shard_writer *writer;
    const struct planned_shard *shard;
    const char *path;
    int fd;
    struct piece *pieces; /* [num_pieces] */
    size_t num_pieces, capacity;
    pthread_mutex_t lock; /* of what follows, and of writer->done */
    enum status status;
    struct error *err;
};

static bool path_of(const struct shard_writer *w, const char *name, char path[PATH_MAX])
{
    return path_join(path, PATH_MAX, w->folder, name);
}

/* ---- pieces ---- */

static int64_t size_of(const struct planned_tensor *t)
{
    return t->scheme ? t->source.weight.out_features : (int64_t)t->bytes;
}

static bool list_pieces(struct writing *w)
{
    const struct planned_shard *shard = w->shard;
    for (int64_t i = shard->first; i < shard->first + shard->count; i++) {
        const struct planned_tensor *t = &w->writer->plan->tensors[i];
        const int64_t size = size_of(t), step = t->scheme ? weight_source_band(&t->source) : COPY_BYTES;
        for (int64_t first = 0; first < size; first += step) {
            if (!array_reserve(&w->pieces, &w->capacity, w->num_pieces + 1, sizeof *w->pieces)) return false;
            w->pieces[w->num_pieces++] = (struct piece){t, first, size - first < step ? size - first : step};
        }
    }
    return true;
}

/* ---- writing ---- */

static enum status write_at(const struct writing *w, const void *bytes, int64_t count, uint64_t offset,
                            struct error *err)
{
    const char *from = bytes;
    while (count > 0) {
        const ssize_t written = pwrite(w->fd, from, (size_t)count, (off_t)offset);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            return error_set(err, STATUS_IO, "%s: cannot write: %s", w->path, strerror(written < 0 ? errno : ENOSPC));
        from += written;
        offset += (uint64_t)written;
        count -= written;
    }
    return STATUS_OK;
}

static enum status quantize_piece(const struct writing *w, const struct piece *p, struct error *err)
{
    const struct placed_tensor *placed = &w->shard->layout.tensors[p->tensor->first_placed];
    struct compressed_rows rows;
    enum status status = compressed_weight_read(&p->tensor->source, p->first, p->count, &rows, err);
    for (int i = 0; i < rows.num_parts && status == STATUS_OK; i++)
        status = write_at(w, rows.parts[i].data, rows.parts[i].bytes, placed[i].offset + (uint64_t)rows.parts[i].offset,
                          err);
    compressed_rows_free(&rows);
    return status;
}

static enum status copy_piece(const struct writing *w, const struct piece *p, struct error *err)
{
    const struct placed_tensor *placed = &w->shard->layout.tensors[p->tensor->first_placed];
    const struct tensor_file *file = w->writer->plan->weights.file;
    char *bytes = malloc((size_t)p->count);
    if (!bytes) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for copying the weights");
    enum status status =
        tensor_file_read(file, (const char *)p->tensor->stored->data + p->first, (uint64_t)p->count, bytes, err);
    if (status == STATUS_OK) status = write_at(w, bytes, p->count, placed->offset + (uint64_t)p->first, err);
    free(bytes);
    return status;
}

/* The first failure stays. */
static void note(struct writing *w, const struct piece *p, enum status status, const struct error *err)
{
    const uint64_t unit = p->tensor->bytes / (uint64_t)size_of(p->tensor);
    pthread_mutex_lock(&w->lock);
    if (w->status == STATUS_OK && status != STATUS_OK) {
        w->status = status;
        *w->err = *err;
    }
    w->writer->done += (uint64_t)p->count * unit;
    pthread_mutex_unlock(&w->lock);
}

/* Whether the rest need not be done. */
static bool is_over(struct writing *w)
{
    pthread_mutex_lock(&w->lock);
    if (w->status == STATUS_OK && interrupt_pending()) w->status = STATUS_CANCELLED;
    const bool over = w->status != STATUS_OK;
    pthread_mutex_unlock(&w->lock);
    return over;
}

static void show_progress(struct writing *w)
{
    enum { MB = 1000000 };
    struct shard_writer *writer = w->writer;
    if (!progress_due(&writer->progress)) return;
    pthread_mutex_lock(&w->lock);
    const struct progress_facts facts = {.done = (int64_t)(writer->done / MB),
                                         .total = (int64_t)(writer->total / MB),
                                         .done_before = (int64_t)(writer->done_before / MB),
                                         .unit = "MB"};
    pthread_mutex_unlock(&w->lock);
    progress_update(&writer->progress, &facts);
}

static void do_piece(void *context, int64_t index, int thread)
{
    struct writing *w = context;
    const struct piece *p = &w->pieces[index];
    struct error err;
    if (is_over(w)) return;
    note(w, p, p->tensor->scheme ? quantize_piece(w, p, &err) : copy_piece(w, p, &err), &err);
    if (thread == 0) show_progress(w);
}

static enum status write_all(struct writing *w)
{
    const struct text *head = &w->shard->layout.head;
    struct shard_writer *writer = w->writer;
    if (!list_pieces(w)) return error_set(w->err, STATUS_OUT_OF_MEMORY, "out of host memory for the pieces of a file");
    w->status = write_at(w, head->data, (int64_t)head->length, 0, w->err);
    pool_run(writer->pool, pool_threads(writer->pool), (int64_t)w->num_pieces, do_piece, w);
    if (w->status == STATUS_OK) w->status = tensor_file_check_unchanged(writer->plan->weights.file, w->err);
    if (w->status == STATUS_OK && fsync(w->fd) != 0)
        w->status = error_set(w->err, STATUS_IO, "%s: cannot write: %s", w->path, strerror(errno));
    return w->status;
}

enum status shard_write(struct shard_writer *w, const struct planned_shard *shard, struct error *err)
{
    char path[PATH_MAX], part[PATH_MAX];
    if (!path_of(w, shard->name, path) || !path_of(w, PART, part))
        return error_set(err, STATUS_INVALID, "%s: the path is too long", w->folder);
    struct writing writing = {.writer = w,
                              .shard = shard,
                              .path = path,
                              .fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666),
                              .lock = PTHREAD_MUTEX_INITIALIZER,
                              .err = err};
    if (writing.fd < 0) return error_set(err, STATUS_IO, "%s: cannot write: %s", part, strerror(errno));
    enum status status = write_all(&writing);
    close(writing.fd);
    free(writing.pieces);
    if (status == STATUS_OK && rename(part, path) != 0)
        status = error_set(err, STATUS_IO, "%s: cannot write: %s", path, strerror(errno));
    if (status == STATUS_OK)
        file_sync_name(path);
    else
        unlink(part);
    return status;
}

/* ---- what an earlier run wrote ---- */

bool shard_is_whole(const struct shard_writer *w, const struct planned_shard *shard)
{
    const struct text *head = &shard->layout.head;
    char path[PATH_MAX];
    struct mapped_file file;
    struct error ignored;
    if (!path_of(w, shard->name, path) || mapped_file_open(path, &file, &ignored) != STATUS_OK) return false;
    const bool whole = file.size == shard->layout.file_bytes && memcmp(file.data, head->data, head->length) == 0;
    mapped_file_close(&file);
    return whole;
}

void shard_remove_part(const struct shard_writer *w)
{
    char part[PATH_MAX];
    if (path_of(w, PART, part)) unlink(part);
}
