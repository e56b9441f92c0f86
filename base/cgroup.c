#include "base/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The group below `mount` and all groups above it. A container may see only its own group, mounted as the topmost: the
 * path is not there then, and only the topmost has files. */
static void visit_groups(struct cgroup group, const char *mount, cgroup_visit *visit, void *user)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s", mount, group.path) >= (int)sizeof path) return;
    group.path = path;
    for (;;) {
        visit(user, &group);
        char *last = strrchr(path, '/');
        if (last < path + strlen(mount)) return;
        *last = '\0';
    }
}

/* Whether a list such as "cpu,cpuacct" names the controller. */
static bool lists(const char *list, const char *controller)
{
    const size_t length = strlen(controller);
    for (;; list++) {
        const size_t name = strcspn(list, ",");
        if (name == length && strncmp(list, controller, length) == 0) return true;
        list += name;
        if (!*list) return false;
    }
}

/* Lines of /proc/self/cgroup: ID:CONTROLLERS:PATH. Version 2 names no controllers. */
void cgroup_walk(const char *root, const char *controller, cgroup_visit *visit, void *user)
{
    char line[PATH_MAX], mount[64];
    if (snprintf(line, sizeof line, "%s/proc/self/cgroup", root) >= (int)sizeof line) return;
    FILE *file = fopen(line, "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        controllers++;
        if (*controllers && !lists(controllers, controller)) continue;
        snprintf(mount, sizeof mount, "/sys/fs/cgroup%s%s", *controllers ? "/" : "", *controllers ? controller : "");
        visit_groups((struct cgroup){root, path, *controllers ? 1 : 2}, mount, visit, user);
    }
    fclose(file);
}

bool cgroup_line(const struct cgroup *group, const char *file, char *out, size_t size)
{
    char path[PATH_MAX];
    out[0] = '\0';
    return snprintf(path, sizeof path, "%s/%s", group->path, file) < (int)sizeof path &&
           kernel_file_line(group->root, path, "", out, size);
}

int64_t cgroup_number(const struct cgroup *group, const char *file, const char *key, int64_t fallback)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", group->path, file) < (int)sizeof path
               ? kernel_file_number(group->root, path, key, fallback)
               : fallback;
}
