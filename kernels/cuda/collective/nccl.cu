#include "kernels/cuda/collective/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime.h>

extern "C" {
#include "kernels/cuda/library.h"
}

/* The part of nccl.h that is used here. A machine that quire is built on need not have that file, and these names and
 * numbers have not changed since version 2.10. */
struct unique_id {
    char bytes[NCCL_ID_BYTES];
};
enum { RESULT_SUCCESS = 0, RESULT_IN_PROGRESS = 7 };
enum { TYPE_FLOAT16 = 6, TYPE_FLOAT32 = 7, TYPE_BFLOAT16 = 9 };
enum { OPERATION_SUM = 0 };

struct functions {
    int (*get_id)(struct unique_id *);
    int (*init_rank)(void **communicator, int num_ranks, struct unique_id, int rank);
    int (*abort)(void *communicator);
    int (*get_async_error)(void *communicator, int *result);
    int (*all_reduce)(const void *in, void *out, size_t count, int type, int operation, void *communicator,
                      void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
    const char *(*error_string)(int);
};

struct nccl {
    struct functions f;
    struct unique_id id;
    int rank, num_ranks, device;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    void *communicator; /* NULL: it is not made yet, or could not be */
    bool is_made;       /* its thread is done */
    int result;         /* then: of making it */
    bool is_aborted, is_left;
    int users; /* calls that use the communicator now */
};

/* ---- the library ---- */

static bool find_all(void *l, struct functions *f)
{
    return library_find(l, "ncclGetUniqueId", &f->get_id) && library_find(l, "ncclCommInitRank", &f->init_rank) &&
           library_find(l, "ncclCommAbort", &f->abort) &&
           library_find(l, "ncclCommGetAsyncError", &f->get_async_error) &&
           library_find(l, "ncclAllReduce", &f->all_reduce) && library_find(l, "ncclGroupStart", &f->group_start) &&
           library_find(l, "ncclGroupEnd", &f->group_end) && library_find(l, "ncclGetErrorString", &f->error_string);
}

/* The library is never closed: it has threads of its own. */
static enum status find_functions(struct functions *f, struct error *err)
{
    static const char *const places[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"};
    struct error first;
    first.text[0] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        void *library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
        if (library && find_all(library, f)) return STATUS_OK;
        if (library)
            error_set(&first, STATUS_UNSUPPORTED, "%s lacks functions that are needed: it is too old", places[i]);
        else if (!first.text[0])
            error_set(&first, STATUS_UNSUPPORTED, "%s", dlerror());
    }
    return error_set(err, STATUS_UNSUPPORTED,
                     "NCCL is needed, but libnccl.so.2 cannot be used (%s): install NVIDIA's package libnccl2, or put "
                     "its folder into LD_LIBRARY_PATH",
                     first.text);
}

enum status nccl_make_id(uint8_t id[NCCL_ID_BYTES], struct error *err)
{
    struct functions f;
    struct unique_id unique;
    enum status status = find_functions(&f, err);
    if (status != STATUS_OK) return status;
    const int result = f.get_id(&unique);
    if (result != RESULT_SUCCESS)
        return error_set(err, STATUS_UNSUPPORTED, "NCCL cannot begin a group: %s", f.error_string(result));
    memcpy(id, unique.bytes, sizeof unique.bytes);
    return STATUS_OK;
}

/* ---- making a communicator ---- */

static void destroy(struct nccl *n)
{
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

static void *make(void *communicator)
{
    struct nccl *n = (struct nccl *)communicator;
    void *made = NULL;
    cudaSetDevice(n->device); /* an error is NCCL's, too */
    int (*const abandon)(void *) = n->f.abort;
    const int result = n->f.init_rank(&made, n->num_ranks, n->id, n->rank);
    pthread_mutex_lock(&n->lock);
    const bool is_left = n->is_left, is_wanted = !is_left && !n->is_aborted;
    if (result == RESULT_SUCCESS && is_wanted) n->communicator = made;
    n->result = result;
    n->is_made = true;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
    if (result == RESULT_SUCCESS && !is_wanted) abandon(made);
    if (is_left) destroy(n);
    return NULL;
}

enum status nccl_begin(const uint8_t id[NCCL_ID_BYTES], int32_t rank, int32_t num_ranks, int device, struct nccl **out,
                       struct error *err)
{
    pthread_t thread;
    *out = NULL;
    struct nccl *n = (struct nccl *)calloc(1, sizeof *n);
    if (!n) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    enum status status = find_functions(&n->f, err);
    if (status != STATUS_OK) {
        free(n);
        return status;
    }
    memcpy(n->id.bytes, id, NCCL_ID_BYTES);
    n->rank = rank;
    n->num_ranks = num_ranks;
    n->device = device;
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
    if (pthread_create(&thread, NULL, make, n) != 0) {
        destroy(n);
        return error_set(err, STATUS_OUT_OF_MEMORY, "cannot start a thread that opens NCCL");
    }
    pthread_detach(thread);
    *out = n;
    return STATUS_OK;
}

enum status nccl_wait(struct nccl *n, double seconds, struct error *err)
{
    struct timespec until;
    int waited = 0;
    clock_gettime(CLOCK_REALTIME, &until); /* which pthread_cond_timedwait goes by */
    until.tv_sec += (time_t)seconds;
    pthread_mutex_lock(&n->lock);
    while (!n->is_made && !n->is_aborted && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&n->changed, &n->lock, &until);
    const bool is_made = n->is_made, is_aborted = n->is_aborted;
    const int result = n->result;
    pthread_mutex_unlock(&n->lock);
    if (is_aborted) return error_set(err, STATUS_INTERNAL, "NCCL was ended while it connected the ranks");
    if (!is_made)
        return error_set(err, STATUS_INTERNAL, "NCCL has not connected rank %d with the other ranks after %.0f seconds",
                         n->rank, seconds);
    if (result != RESULT_SUCCESS)
        return error_set(err, STATUS_INTERNAL, "NCCL cannot connect rank %d with the other ranks: %s", n->rank,
                         n->f.error_string(result));
    return STATUS_OK;
}

/* ncclCommDestroy may wait for other processes, which may have ended. */
void nccl_close(struct nccl *n)
{
    if (!n) return;
    pthread_mutex_lock(&n->lock);
    const bool is_made = n->is_made, is_aborted = n->is_aborted;
    n->is_left = true;
    pthread_mutex_unlock(&n->lock);
    if (!is_made) return;
    if (n->communicator && !is_aborted) n->f.abort(n->communicator);
    destroy(n);
}

/* ---- operations ---- */

/* False: it has been aborted. A communicator is not aborted while it is used, except by calls that wait inside NCCL. */
static bool begin_use(struct nccl *n)
{
    pthread_mutex_lock(&n->lock);
    const bool usable = n->communicator && !n->is_aborted;
    n->users += usable;
    pthread_mutex_unlock(&n->lock);
    return usable;
}

static const char *end_use(struct nccl *n, int result)
{
    pthread_mutex_lock(&n->lock);
    n->users--;
    pthread_mutex_unlock(&n->lock);
    return result == RESULT_SUCCESS ? NULL : n->f.error_string(result);
}

static const char aborted[] = "the connection with the other ranks was ended";

const char *nccl_all_reduce(struct nccl *n, void *x, int64_t count, enum dtype dtype, void *stream)
{
    const int type = dtype == DTYPE_FLOAT32 ? TYPE_FLOAT32 : dtype == DTYPE_FLOAT16 ? TYPE_FLOAT16 : TYPE_BFLOAT16;
    if (!begin_use(n)) return aborted;
    return end_use(n, n->f.all_reduce(x, x, (size_t)count, type, OPERATION_SUM, n->communicator, stream));
}

const char *nccl_begin_several(struct nccl *n)
{
    if (!begin_use(n)) return aborted;
    return end_use(n, n->f.group_start());
}

const char *nccl_end_several(struct nccl *n)
{
    if (!begin_use(n)) return aborted;
    return end_use(n, n->f.group_end());
}

/* ---- failures ---- */

const char *nccl_failure(struct nccl *n)
{
    int failure = RESULT_SUCCESS;
    if (!begin_use(n)) return NULL;
    const int result = n->f.get_async_error(n->communicator, &failure);
    end_use(n, result);
    if (result != RESULT_SUCCESS) failure = result;
    return failure == RESULT_SUCCESS || failure == RESULT_IN_PROGRESS ? NULL : n->f.error_string(failure);
}

/* A call that waits inside NCCL for another rank goes on when the communicator is aborted; others end by themselves. */
void nccl_abort(struct nccl *n)
{
    enum { PATIENCE = 100 /* milliseconds */ };
    pthread_mutex_lock(&n->lock);
    void *communicator = n->is_aborted ? NULL : n->communicator;
    n->is_aborted = true;
    pthread_cond_broadcast(&n->changed);
    for (int i = 0; i < PATIENCE && communicator && n->users > 0; i++) {
        pthread_mutex_unlock(&n->lock);
        usleep(1000);
        pthread_mutex_lock(&n->lock);
    }
    pthread_mutex_unlock(&n->lock);
    if (communicator) n->f.abort(communicator);
}
