/* Streams, events and graphs. The handles are those of the CUDA runtime. */
#include <sched.h>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"
#include "kernels/group_failure.h"

/* The result of a synchronize: why the group cannot go on, the first operation that failed, or else `error`. */
static enum status result(struct backend *b, cudaError_t error, struct error *err)
{
    struct cuda_state *s = cuda_state(b);
    if (group_has_failed(b->failure)) return group_failure_get(b->failure, err);
    cuda_check(b, "an operation", error);
    pthread_mutex_lock(&s->failure_lock);
    enum status status = s->failure[0] ? error_set(err, STATUS_INTERNAL, "%s", s->failure) : STATUS_OK;
    pthread_mutex_unlock(&s->failure_lock);
    return status;
}

static enum status cannot(struct backend *b, const char *what, cudaError_t error, struct error *err)
{
    cudaGetLastError(); /* clears it: later checks must not report it again */
    return error_set(err, error == cudaErrorMemoryAllocation ? STATUS_OUT_OF_MEMORY : STATUS_INTERNAL,
                     "%s: cannot %s: %s", b->name, what, cudaGetErrorString(error));
}

static enum status stream_create(struct backend *b, backend_stream *out, struct error *err)
{
    cudaStream_t stream = NULL;
    *out = NULL;
    cuda_set_device(b);
    cudaError_t error = cuda_allocation_fails(b) ? cudaErrorMemoryAllocation
                                                 : cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) return cannot(b, "create a stream", error, err);
    *out = (backend_stream)stream;
    return STATUS_OK;
}

static void stream_destroy(struct backend *b, backend_stream stream)
{
    if (stream) cuda_check(b, "stream_destroy", cudaStreamDestroy(cuda_stream(b, stream)));
}

/* Waits for the device as long as the group has not failed: it may be waiting for a rank that does not come. `query`
 * returns cudaErrorNotReady until the device is there. */
template <class Query> static cudaError_t wait_as_rank(struct backend *b, Query query)
{
    enum { LOOKS = 64 /* until other threads get the processor */ };
    cudaError_t error;
    for (unsigned looks = 1; (error = query()) == cudaErrorNotReady; looks++) {
        cudaGetLastError(); /* clears it: later checks must not report it */
        if (group_has_failed(b->failure)) return cudaSuccess;
        if (looks % LOOKS == 0) sched_yield();
    }
    return error;
}

static enum status stream_synchronize(struct backend *b, backend_stream stream, struct error *err)
{
    const cudaStream_t s = cuda_stream(b, stream);
    return result(b, b->failure ? wait_as_rank(b, [&] { return cudaStreamQuery(s); }) : cudaStreamSynchronize(s), err);
}

static enum status event_create(struct backend *b, backend_event *out, struct error *err)
{
    cudaEvent_t event = NULL;
    *out = NULL;
    cuda_set_device(b);
    cudaError_t error =
        cuda_allocation_fails(b) ? cudaErrorMemoryAllocation : cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error != cudaSuccess) return cannot(b, "create an event", error, err);
    *out = (backend_event)event;
    return STATUS_OK;
}

static void event_destroy(struct backend *b, backend_event event)
{
    if (event) cuda_check(b, "event_destroy", cudaEventDestroy((cudaEvent_t)event));
}

static void event_record(struct backend *b, backend_event event, backend_stream stream)
{
    cuda_check(b, "event_record", cudaEventRecord((cudaEvent_t)event, cuda_stream(b, stream)));
}

static void event_wait(struct backend *b, backend_event event, backend_stream stream)
{
    cuda_check(b, "event_wait", cudaStreamWaitEvent(cuda_stream(b, stream), (cudaEvent_t)event, 0));
}

static enum status event_synchronize(struct backend *b, backend_event event, struct error *err)
{
    const cudaEvent_t e = (cudaEvent_t)event;
    return result(b, b->failure ? wait_as_rank(b, [&] { return cudaEventQuery(e); }) : cudaEventSynchronize(e), err);
}

/* Captures in thread-local mode, so that other threads may allocate during a capture, as those of preload.cu do. */
static enum status capture_begin(struct backend *b, struct error *err)
{
    cudaError_t error = cudaStreamBeginCapture(cuda_stream(b, NULL), cudaStreamCaptureModeThreadLocal);
    return error == cudaSuccess ? STATUS_OK : cannot(b, "begin a capture", error, err);
}

static enum status capture_end(struct backend *b, backend_graph *out, struct error *err)
{
    cudaStream_t captured = cuda_stream(b, NULL);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    *out = NULL;
    cudaError_t error = cudaStreamEndCapture(captured, &graph);
    /* The failure of a captured operation explains more than the error of the capture. */
    enum status status = result(b, cudaSuccess, err);
    if (status == STATUS_OK && error == cudaSuccess) {
        error = cudaGraphInstantiate(&executable, graph, 0);
        if (error == cudaSuccess) error = cudaGraphUpload(executable, captured);
    }
    if (graph) cudaGraphDestroy(graph);
    if (status == STATUS_OK && error == cudaSuccess) {
        *out = (backend_graph)executable;
        return STATUS_OK;
    }
    if (executable) cudaGraphExecDestroy(executable);
    cudaGetLastError();
    return status != STATUS_OK ? status : cannot(b, "make a graph of what was captured", error, err);
}

static void graph_launch(struct backend *b, backend_graph graph)
{
    cuda_check(b, "graph_launch", cudaGraphLaunch((cudaGraphExec_t)graph, cuda_stream(b, NULL)));
}

static void graph_destroy(struct backend *b, backend_graph graph)
{
    if (graph) cuda_check(b, "graph_destroy", cudaGraphExecDestroy((cudaGraphExec_t)graph));
}

static void call_host(struct backend *b, host_function *function, void *context)
{
    cuda_check(b, "call_host", cudaLaunchHostFunc(cuda_stream(b, NULL), function, context));
}

void cuda_stream_init(struct backend *b)
{
    b->stream_create = stream_create;
    b->stream_destroy = stream_destroy;
    b->stream_synchronize = stream_synchronize;
    b->event_create = event_create;
    b->event_destroy = event_destroy;
    b->event_record = event_record;
    b->event_wait = event_wait;
    b->event_synchronize = event_synchronize;
    b->call_host = call_host;
    b->capture_begin = capture_begin;
    b->capture_end = capture_end;
    b->graph_launch = graph_launch;
    b->graph_destroy = graph_destroy;
}
