#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/host_memory.h"
#include "kernels/cpu/state.h"

enum status cpu_memory_info(struct backend *b, int64_t *free_bytes, int64_t *total_bytes, struct error *err)
{
    struct host_memory memory;
    (void)b;
    enum status status = host_memory_read(&memory, err);
    if (status != STATUS_OK) return status;
    *free_bytes = memory.free_bytes;
    *total_bytes = memory.total_bytes;
    return STATUS_OK;
}

/* The length that both mmap and munmap are given. An empty allocation has an address of its own. */
static size_t mapping_bytes(int64_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return ((bytes > 0 ? (size_t)bytes : 1) + page - 1) & ~(page - 1);
}

enum status cpu_memory_alloc(struct backend *b, enum memory_kind kind, int64_t bytes, void **out, struct error *err)
{
    (void)b, (void)kind;
    *out = NULL;
    if (bytes < 0) return error_set(err, STATUS_INVALID, "%" PRId64 " bytes of memory were asked for", bytes);
    size_t length = mapping_bytes(bytes);
    void *data = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return error_set(err, STATUS_OUT_OF_MEMORY, "cannot allocate %.2f MiB of memory: %s", (double)bytes / (1 << 20),
                         strerror(errno));
    if (length >= (size_t)16 << 20) madvise(data, length, MADV_HUGEPAGE); /* a hint: errors do not matter */
    *out = data;
    return STATUS_OK;
}

void cpu_memory_free(struct backend *b, enum memory_kind kind, void *data, int64_t bytes)
{
    (void)b, (void)kind;
    if (data) munmap(data, mapping_bytes(bytes));
}

void cpu_copy(struct backend *b, void *destination, const void *source, int64_t bytes, backend_stream stream)
{
    (void)b, (void)stream;
    if (bytes > 0) memmove(destination, source, (size_t)bytes);
}

void cpu_copy_many(struct backend *b, const struct copy_many_args *args)
{
    for (int32_t i = 0; i < args->count; i++)
        cpu_copy(b, args->segments[i].destination, args->segments[i].source, args->segments[i].bytes, NULL);
}

void cpu_fill(struct backend *b, void *destination, int byte, int64_t bytes)
{
    (void)b;
    if (bytes > 0) memset(destination, byte, (size_t)bytes);
}

void cpu_call_host(struct backend *b, host_function *function, void *context)
{
    (void)b;
    function(context);
}
