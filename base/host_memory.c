#include "base/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/cgroup.h"

/* Lowers *memory to a limit and to what it leaves beside what is used. */
static void apply_limit(struct host_memory *memory, int64_t limit, int64_t used)
{
    const int64_t left = used <= 0 ? limit : used < limit ? limit - used : 0;
    if (limit < memory->total_bytes) memory->total_bytes = limit;
    if (left < memory->free_bytes) memory->free_bytes = left;
}

/* The page cache of a group counts as used, but goes when memory is wanted. */
static void apply_group(void *memory, const struct cgroup *group)
{
    const bool first = group->version == 1;
    const int64_t limit = cgroup_number(group, first ? "memory.limit_in_bytes" : "memory.max", "", -1);
    if (limit <= 0) return;
    apply_limit(memory, limit,
                cgroup_number(group, first ? "memory.usage_in_bytes" : "memory.current", "", 0) -
                    cgroup_number(group, "memory.stat", first ? "total_inactive_file " : "inactive_file ", 0));
}

/* RLIMIT_AS (ulimit -v) counts addresses, whether there is memory behind them or not. */
static void apply_address_space(const char *root, struct host_memory *memory)
{
    const int64_t limit = kernel_file_number(root, "/proc/self/limits", "Max address space", -1);
    if (limit >= 0) apply_limit(memory, limit, kernel_file_number(root, "/proc/self/status", "VmSize", 0) * 1024);
}

enum status host_memory_read_below(const char *root, struct host_memory *out, struct error *err)
{
    const int64_t total = kernel_file_number(root, "/proc/meminfo", "MemTotal", -1),
                  available = kernel_file_number(root, "/proc/meminfo", "MemAvailable", -1);
    if (total < 0 || available < 0)
        return error_set(err, STATUS_IO, "%s/proc/meminfo: MemTotal and MemAvailable could not be read", root);
    *out = (struct host_memory){.free_bytes = available * 1024, .total_bytes = total * 1024};
    cgroup_walk(root, "memory", apply_group, out);
    apply_address_space(root, out);
    return STATUS_OK;
}

enum status host_memory_read(struct host_memory *out, struct error *err)
{
    return host_memory_read_below("", out, err);
}

int64_t host_memory_resident(const void *data, int64_t bytes)
{
    enum { PAGES = 4096 }; /* asked for at a time */
    unsigned char present[PAGES];
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)data, end = begin + (uintptr_t)bytes;
    int64_t resident = 0;
    for (uintptr_t at = begin & ~(page - 1); at < end; at += PAGES * page) {
        const uintptr_t left = (end - at + page - 1) / page, count = left < PAGES ? left : PAGES;
        if (mincore((void *)at, count * page, present) != 0) return -1;
        for (uintptr_t i = 0; i < count; i++) {
            if (!(present[i] & 1)) continue;
            const uintptr_t first = at + i * page, last = first + page;
            resident += (int64_t)((last < end ? last : end) - (first > begin ? first : begin));
        }
    }
    return resident;
}
