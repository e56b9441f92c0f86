#include "base/processors.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cgroup.h"

static int in_affinity_mask(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    const bool known = sched_getaffinity(0, sizeof set, &set) == 0; /* else there are more than a set holds */
    const int count = known ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? count : 1;
}

/* Lowers *count to the quota of a group: microseconds of processor time in a period of so many. */
static void apply_quota(void *count, const struct cgroup *group)
{
    int64_t quota = -1, period = -1;
    char line[64];
    if (group->version == 1) {
        quota = cgroup_number(group, "cpu.cfs_quota_us", "", -1);
        period = cgroup_number(group, "cpu.cfs_period_us", "", -1);
    } else if (cgroup_line(group, "cpu.max", line, sizeof line) &&
               sscanf(line, "%" SCNd64 " %" SCNd64, &quota, &period) != 2) {
        return; /* "max" */
    }
    if (quota <= 0 || period <= 0) return;
    const int64_t processors = (quota - 1) / period + 1;
    if (processors < *(int *)count) *(int *)count = (int)processors;
}

int processors_allowed_below(const char *root)
{
    int count = in_affinity_mask();
    cgroup_walk(root, "cpu", apply_quota, &count);
    return count;
}

int processors_allowed(void)
{
    return processors_allowed_below("");
}
