/* Quantized weights in host memory: model_weights_pack. */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/pool.h"
#include "model/weights.h"

/* A band of a matrix. */
struct job {
    const struct weight_source *source;
    int64_t first, rows;
    struct weight_rows out;
};

struct jobs {
    struct job *jobs;
    int64_t count;
    pthread_mutex_t lock; /* of the failure */
    enum status status;
    struct error err;
};

/* Bytes of the parts that the weight does not have yet. */
static struct weight_part_bytes missing_parts(const struct weight_source *s, const struct weight *w)
{
    struct weight_part_bytes bytes = weight_part_bytes(w, s->has_zeros && !w->zeros, w->out_features);
    if (w->data) bytes.data = 0;
    if (w->scales) bytes.scales = 0;
    return bytes;
}

int64_t model_weights_to_pack(const struct model_weights *w)
{
    int64_t bytes = 0;
    if (!w->sources || w->memory) return 0;
    for (int32_t i = 0; i < w->table.count; i++) {
        const struct tensor *t = &w->table.tensors[i];
        if (!t->scheme.is_quantized) continue;
        const struct weight_part_bytes parts = missing_parts(&w->sources[i], model_weights_matrix(w, t));
        bytes += model_weights_aligned_parts(&parts);
    }
    return bytes;
}

static void *take(char **memory, int64_t bytes)
{
    char *taken = *memory;
    *memory += model_weights_aligned(bytes);
    return bytes > 0 ? taken : NULL;
}

/* Gives the missing parts of a matrix their memory, and adds the jobs that fill it. */
static void place(const struct weight_source *s, struct weight *w, char **memory, struct jobs *jobs)
{
    const struct weight_part_bytes bytes = missing_parts(s, w);
    const int64_t band = weight_source_band(s);
    struct weight_rows parts;
    parts.data = take(memory, bytes.data);
    parts.scales = take(memory, bytes.scales);
    parts.zeros = take(memory, bytes.zeros);
    if (parts.data) w->data = parts.data;
    if (parts.scales) w->scales = parts.scales;
    if (parts.zeros) w->zeros = parts.zeros;
    for (int64_t first = 0; first < w->out_features && (parts.data || parts.scales || parts.zeros); first += band)
        jobs->jobs[jobs->count++] =
            (struct job){.source = s,
                         .first = first,
                         .rows = first + band < w->out_features ? band : w->out_features - first,
                         .out = weight_rows_at(w, &parts, first)};
}

static int64_t count_bands(const struct model_weights *w)
{
    int64_t bands = 0;
    for (int32_t i = 0; i < w->table.count; i++)
        if (w->table.tensors[i].scheme.is_quantized)
            bands += w->sources[i].weight.out_features / weight_source_band(&w->sources[i]) + 1;
    return bands;
}

static void run_job(void *all, int64_t index, int thread)
{
    (void)thread;
    struct jobs *jobs = all;
    const struct job *job = &jobs->jobs[index];
    struct error failure;
    const enum status status = weight_source_read(job->source, job->first, job->rows, &job->out, &failure);
    if (status == STATUS_OK) return;
    pthread_mutex_lock(&jobs->lock);
    jobs->status = error_set(&jobs->err, status, "%s", failure.text);
    pthread_mutex_unlock(&jobs->lock);
}

static enum status run_jobs(struct jobs *jobs, struct error *err)
{
    struct pool *pool = pool_open_allowed();
    pthread_mutex_init(&jobs->lock, NULL);
    pool_run(pool, INT_MAX, jobs->count, run_job, jobs);
    pthread_mutex_destroy(&jobs->lock);
    pool_close(pool);
    return jobs->status == STATUS_OK ? STATUS_OK : error_set(err, jobs->status, "%s", jobs->err.text);
}

enum status model_weights_pack(struct model_weights *w, struct error *err)
{
    const int64_t bytes = model_weights_to_pack(w);
    if (bytes == 0) return STATUS_OK;
    struct jobs jobs = {.jobs = malloc((size_t)count_bands(w) * sizeof *jobs.jobs)};
    if (!jobs.jobs) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    enum status status = model_weights_allocate(w, bytes, "the quantized weights", err);
    if (status == STATUS_OK) {
        char *memory = w->memory;
        for (int32_t i = 0; i < w->table.count; i++) {
            const struct tensor *t = &w->table.tensors[i];
            if (t->scheme.is_quantized) place(&w->sources[i], model_weights_matrix(w, t), &memory, &jobs);
        }
        status = run_jobs(&jobs, err);
    }
    free(jobs.jobs);
    return status;
}
