/* Streams and events do nothing, because every operation is done when it returns. Of a rank they tell whether its group
 * has failed. A handle is the backend itself, so that it is not NULL and need not be freed. */
#include "kernels/cpu/state.h"
#include "kernels/group_failure.h"

static enum status stream_create(struct backend *b, backend_stream *out, struct error *err)
{
    (void)err;
    *out = b->state;
    return STATUS_OK;
}

static void stream_destroy(struct backend *b, backend_stream stream)
{
    (void)b, (void)stream;
}

static enum status stream_synchronize(struct backend *b, backend_stream stream, struct error *err)
{
    (void)stream;
    return group_failure_get(b->failure, err);
}

static enum status event_create(struct backend *b, backend_event *out, struct error *err)
{
    (void)err;
    *out = b->state;
    return STATUS_OK;
}

static void event_destroy(struct backend *b, backend_event event)
{
    (void)b, (void)event;
}

static void event_on_stream(struct backend *b, backend_event event, backend_stream stream)
{
    (void)b, (void)event, (void)stream;
}

static enum status event_synchronize(struct backend *b, backend_event event, struct error *err)
{
    (void)event;
    return group_failure_get(b->failure, err);
}

void cpu_stream_init(struct backend *b)
{
    b->stream_create = stream_create;
    b->stream_destroy = stream_destroy;
    b->stream_synchronize = stream_synchronize;
    b->event_create = event_create;
    b->event_destroy = event_destroy;
    b->event_record = event_on_stream;
    b->event_wait = event_on_stream;
    b->event_synchronize = event_synchronize;
}
