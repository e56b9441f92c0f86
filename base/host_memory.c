#include "base/host_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PATH_SIZE = 4096 };

static FILE *open_below(const char *root, const char *path)
{
    char full[PATH_SIZE];
    return snprintf(full, sizeof full, "%s%s", root, path) < (int)sizeof full ? fopen(full, "re") : NULL;
}

/* The number of the first line that begins with `key`, which may be empty; `fallback` if there is none, as where a
 * limit is "max". */
static int64_t read_number(const char *root, const char *path, const char *key, int64_t fallback)
{
    FILE *file = open_below(root, path);
    if (!file) return fallback;
    char line[256];
    int64_t number = fallback;
    const size_t length = strlen(key);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, key, length) == 0) {
            if (sscanf(line + length, "%" SCNd64, &number) != 1) number = fallback;
            break;
        }
    fclose(file);
    return number;
}

/* The two versions of control groups: where they are mounted and what their files are called. */
struct cgroup_version {
    const char *mount, *limit, *used, *droppable;
};
static const struct cgroup_version version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                               "memory.usage_in_bytes", "total_inactive_file "};
static const struct cgroup_version version2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

static int64_t group_number(const char *root, const char *group, const char *name, const char *key, int64_t fallback)
{
    char path[PATH_SIZE];
    return snprintf(path, sizeof path, "%s/%s", group, name) < (int)sizeof path ? read_number(root, path, key, fallback)
                                                                                : fallback;
}

/* Lowers *memory to what one group may still take. Its page cache counts as used, but goes when memory is wanted. */
static void apply_group(const char *root, const struct cgroup_version *version, const char *group,
                        struct host_memory *memory)
{
    const int64_t limit = group_number(root, group, version->limit, "", INT64_MAX);
    if (limit <= 0 || limit >= memory->total_bytes) return;
    const int64_t used = group_number(root, group, version->used, "", 0) -
                         group_number(root, group, "memory.stat", version->droppable, 0);
    const int64_t left = used <= 0 ? limit : used < limit ? limit - used : 0;
    memory->total_bytes = limit;
    if (left < memory->free_bytes) memory->free_bytes = left;
}

/* Applies a group and all groups above it. A container may see only its own group, mounted as the root: the path is not
 * there then, and only the root counts. */
static void apply_groups(const char *root, const struct cgroup_version *version, const char *path,
                         struct host_memory *memory)
{
    char group[PATH_SIZE];
    const size_t mount_length = strlen(version->mount);
    if (snprintf(group, sizeof group, "%s%s", version->mount, path) >= (int)sizeof group) return;
    for (;;) {
        apply_group(root, version, group, memory);
        char *last = strrchr(group, '/');
        if (last < group + mount_length) return;
        *last = '\0';
    }
}

/* Lines of /proc/self/cgroup: ID:CONTROLLERS:PATH. Version 2 names no controllers. */
static void apply_all_groups(const char *root, struct host_memory *memory)
{
    FILE *file = open_below(root, "/proc/self/cgroup");
    if (!file) return;
    char line[PATH_SIZE];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        if (!controllers[1]) apply_groups(root, &version2, path, memory);
        if (strstr(controllers, "memory")) apply_groups(root, &version1, path, memory);
    }
    fclose(file);
}

enum status host_memory_read_below(const char *root, struct host_memory *out, struct error *err)
{
    const int64_t total = read_number(root, "/proc/meminfo", "MemTotal:", -1),
                  available = read_number(root, "/proc/meminfo", "MemAvailable:", -1);
    if (total < 0 || available < 0)
        return error_set(err, STATUS_IO, "%s/proc/meminfo: MemTotal and MemAvailable could not be read", root);
    *out = (struct host_memory){.free_bytes = available * 1024, .total_bytes = total * 1024};
    apply_all_groups(root, out);
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
