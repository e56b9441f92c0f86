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

struct packing {
    struct weights_memory memory;
    struct job *jobs; /* [num_jobs]; NULL: they are only counted, as the memory is */
    int64_t num_jobs;
    pthread_mutex_t lock; /* of the failure */
    enum status status;
    struct error err;
};

/* Gives the parts that a matrix lacks their memory, and adds the jobs that fill them. */
static void place(struct packing *p, const struct weight_source *s, struct weight *w)
{
    const int64_t band = weight_source_band(s), before = p->memory.bytes;
    const struct weight_rows taken = weights_memory_take_parts(&p->memory, w, s->scheme->has_zeros);
    for (int64_t first = 0; first < w->out_features && p->memory.bytes > before; first += band) {
        const int64_t rows = first + band < w->out_features ? band : w->out_features - first;
        if (p->jobs) p->jobs[p->num_jobs] = (struct job){s, first, rows, weight_rows_at(w, &taken, first)};
        p->num_jobs++;
    }
}

static void place_all(struct packing *p, const struct model_weights *w)
{
    p->memory.bytes = p->num_jobs = 0;
    for (int32_t i = 0; w->sources && i < w->table.count; i++) {
        const struct tensor *t = &w->table.tensors[i];
        if (t->scheme.is_quantized) place(p, &w->sources[i], model_weights_matrix(w, t));
    }
}

int64_t model_weights_to_pack(const struct model_weights *w)
{
    struct packing p = {0};
    place_all(&p, w);
    return p.memory.bytes;
}

static void run_job(void *packing, int64_t index, int thread)
{
    (void)thread;
    struct packing *p = packing;
    const struct job *job = &p->jobs[index];
    struct error failure;
    const enum status status = weight_source_read(job->source, job->first, job->rows, &job->out, &failure);
    if (status == STATUS_OK) return;
    pthread_mutex_lock(&p->lock);
    p->status = error_set(&p->err, status, "%s", failure.text);
    pthread_mutex_unlock(&p->lock);
}

static enum status run_jobs(struct packing *p, struct error *err)
{
    struct pool *pool = pool_open_allowed();
    pthread_mutex_init(&p->lock, NULL);
    pool_run(pool, INT_MAX, p->num_jobs, run_job, p);
    pthread_mutex_destroy(&p->lock);
    pool_close(pool);
    return p->status == STATUS_OK ? STATUS_OK : error_set(err, p->status, "%s", p->err.text);
}

enum status model_weights_pack(struct model_weights *w, struct error *err)
{
    struct packing p = {0};
    place_all(&p, w);
    if (p.memory.bytes == 0) return STATUS_OK;
    p.jobs = malloc((size_t)p.num_jobs * sizeof *p.jobs);
    if (!p.jobs) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    enum status status = model_weights_allocate(w, p.memory.bytes, "the quantized weights", err);
    if (status == STATUS_OK) {
        p.memory.at = w->memory;
        place_all(&p, w);
        status = run_jobs(&p, err);
    }
    free(p.jobs);
    return status;
}
