#include "tests/support/guarded_device.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { MAX_PIECES = 1024 };

static struct {
    memory_alloc_function *alloc;
    memory_free_function *free;
    struct {
        void *data;
        int64_t bytes;
    } pieces[MAX_PIECES]; /* of device memory */
    int count;
    int *calls;
} device;

static enum status memory_alloc(struct backend *b, enum memory_kind kind, int64_t bytes, void **out, struct error *err)
{
    enum status status = device.alloc(b, kind, bytes, out, err);
    if (status != STATUS_OK || kind != MEMORY_DEVICE) return status;
    if (device.count == MAX_PIECES) abort();
    device.pieces[device.count].data = *out;
    device.pieces[device.count++].bytes = bytes;
    return status;
}

static void memory_free(struct backend *b, enum memory_kind kind, void *data, int64_t bytes)
{
    for (int i = 0; i < device.count; i++)
        if (device.pieces[i].data == data) device.pieces[i] = device.pieces[--device.count];
    device.free(b, kind, data, bytes);
}

static void protect(int protection)
{
    for (int i = 0; i < device.count; i++)
        if (mprotect(device.pieces[i].data, (size_t)device.pieces[i].bytes, protection) != 0) abort();
}

static void call_host(struct backend *b, host_function *function, void *context)
{
    (void)b;
    ++*device.calls;
    protect(PROT_NONE);
    function(context);
    protect(PROT_READ | PROT_WRITE);
}

void guarded_device_wrap(struct backend *b, int *calls)
{
    device.alloc = b->memory_alloc;
    device.free = b->memory_free;
    device.count = 0;
    device.calls = calls;
    *calls = 0;
    b->memory_alloc = memory_alloc;
    b->memory_free = memory_free;
    b->call_host = call_host;
}
