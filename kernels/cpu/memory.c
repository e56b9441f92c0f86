#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/state.h"

/* The number after `key` in /proc/meminfo, in bytes; -1 if it is not there. */
static int64_t meminfo(const char *key)
{
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file) return -1;
    char line[256];
    int64_t kilobytes = -1;
    size_t length = strlen(key);
    while (kilobytes < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, key, length) == 0 && line[length] == ':') sscanf(line + length + 1, "%" SCNd64, &kilobytes);
    fclose(file);
    return kilobytes < 0 ? -1 : kilobytes * 1024;
}

/* One number from a file of a control group; `fallback` if there is none ("max" is none). */
static int64_t cgroup_number(const char *folder, const char *name, int64_t fallback)
{
    char path[512];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return fallback;
    FILE *file = fopen(path, "re");
    if (!file) return fallback;
    int64_t number;
    if (fscanf(file, "%" SCNd64, &number) != 1) number = fallback;
    fclose(file);
    return number;
}

/* The page cache of a control group counts as used, but goes when memory is wanted. */
static int64_t cgroup_page_cache(const char *folder)
{
    char path[512], line[256];
    if (snprintf(path, sizeof path, "%s/memory.stat", folder) >= (int)sizeof path) return 0;
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    int64_t bytes = 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "inactive_file %" SCNd64, &bytes) == 1) break;
    fclose(file);
    return bytes;
}

/* Lowers both numbers to what this control group (version 2, or 1 as a container sees it) may still take. */
static void apply_cgroup(int64_t *free_bytes, int64_t *total_bytes)
{
    static const struct {
        const char *folder, *limit, *used;
    } groups[] = {
        {"/sys/fs/cgroup", "memory.max", "memory.current"},
        {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"},
    };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        int64_t limit = cgroup_number(groups[i].folder, groups[i].limit, INT64_MAX);
        if (limit <= 0 || limit >= *total_bytes) continue;
        int64_t used = cgroup_number(groups[i].folder, groups[i].used, 0) - cgroup_page_cache(groups[i].folder);
        *total_bytes = limit;
        *free_bytes = min_i64(*free_bytes, max_i64(0, limit - max_i64(0, used)));
    }
}

enum status cpu_memory_info(struct backend *b, int64_t *free_bytes, int64_t *total_bytes, struct error *err)
{
    (void)b;
    *total_bytes = meminfo("MemTotal");
    *free_bytes = meminfo("MemAvailable");
    if (*total_bytes < 0 || *free_bytes < 0)
        return error_set(err, STATUS_IO, "/proc/meminfo: MemTotal and MemAvailable could not be read");
    apply_cgroup(free_bytes, total_bytes);
    return STATUS_OK;
}

/* munmap needs the same length that mmap was given; an empty allocation still gets an address of its own. */
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
        return error_set(err, STATUS_OUT_OF_MEMORY, "cannot allocate %.2f GiB of memory: %s", (double)bytes / (1 << 30),
                         strerror(errno));
    if (length >= (size_t)16 << 20) madvise(data, length, MADV_HUGEPAGE); /* only a hint */
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
