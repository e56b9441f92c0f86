/* The control groups that this process is in, of version 1 or 2: those of a container, of a systemd unit, of a batch
 * job. A limit of a group holds for all groups below it. */
#ifndef QUIRE_BASE_CGROUP_H
#define QUIRE_BASE_CGROUP_H

#include <stdint.h>

#include "base/kernel_file.h"

struct cgroup {
    const char *root; /* the folder that stands for /, "" for / itself */
    const char *path; /* of the group's folder, below root */
    int version;      /* 1 or 2: files have other names */
};
typedef void cgroup_visit(void *user, const struct cgroup *group);

/* Visits the groups that the process is in for a controller, "memory" or "cpu", from its own to the topmost. */
void cgroup_walk(const char *root, const char *controller, cgroup_visit *visit, void *user);

/* kernel_file_line and kernel_file_number of a file of the group. */
bool cgroup_line(const struct cgroup *group, const char *file, char *out, size_t size);
int64_t cgroup_number(const struct cgroup *group, const char *file, const char *key, int64_t fallback);

#endif
