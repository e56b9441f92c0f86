/* How much memory the process may take, and how many processors it may keep busy, from made-up /proc and /sys files. */
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/host_memory.h"
#include "base/processors.h"
#include "tests/support/temp_folder.h"

static const int64_t KIB = 1024, MIB = 1024 * 1024;

/* Writes a file below the folder, and the folders that it lies in. */
static void write_file(const struct temp_folder *root, const char *path, const char *content)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s/%s", root->path, path);
    for (char *slash = strchr(full + strlen(root->path) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    temp_folder_write_string(root, path, content);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status, (void)type, (void)where;
    return remove(path);
}

static void remove_all(const struct temp_folder *root)
{
    assert_int_equal(nftw(root->path, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* A machine of 1000 MiB, 600 of them available, and this /proc/self/cgroup. */
static struct temp_folder machine(const char *cgroup)
{
    struct temp_folder root;
    temp_folder_make(&root);
    write_file(&root, "proc/meminfo", "MemTotal:  1024000 kB\nMemFree:  1 kB\nMemAvailable:   614400 kB\n");
    if (cgroup) write_file(&root, "proc/self/cgroup", cgroup);
    return root;
}

static void check(const struct temp_folder *root, int64_t free_mib, int64_t total_mib)
{
    struct host_memory memory;
    struct error err;
    if (host_memory_read_below(root->path, &memory, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(memory.free_bytes, free_mib * MIB);
    assert_int_equal(memory.total_bytes, total_mib * MIB);
}

static void no_limits(void **state)
{
    (void)state;
    struct temp_folder root = machine(NULL);
    check(&root, 600, 1000);
    write_file(&root, "proc/self/cgroup", "0::/user.slice\nnot a line of this file\n");
    check(&root, 600, 1000); /* no such group */
    write_file(&root, "sys/fs/cgroup/user.slice/memory.max", "max\n");
    write_file(&root, "sys/fs/cgroup/user.slice/memory.current", "999999999999\n");
    check(&root, 600, 1000);
    remove_all(&root);
}

static void group_of_a_unit(void **state)
{
    (void)state;
    struct temp_folder root = machine("0::/system.slice/quire.service\n");
    write_file(&root, "sys/fs/cgroup/system.slice/quire.service/memory.max", "209715200\n");
    check(&root, 200, 200);
    write_file(&root, "sys/fs/cgroup/system.slice/quire.service/memory.current", "157286400\n"); /* 150 MiB */
    check(&root, 50, 200);
    write_file(&root, "sys/fs/cgroup/system.slice/quire.service/memory.stat",
               "anon 1\nactive_file 7\ninactive_file 104857600\n"); /* 100 MiB of page cache */
    check(&root, 150, 200);
    write_file(&root, "sys/fs/cgroup/system.slice/memory.max", "104857600\n"); /* the slice has less */
    write_file(&root, "sys/fs/cgroup/system.slice/memory.current", "104857600\n");
    check(&root, 0, 100);
    remove_all(&root);
}

/* A container without a namespace of control groups: its own group is mounted as the root. */
static void group_of_a_container(void **state)
{
    (void)state;
    struct temp_folder root = machine("0::/docker/0123456789\n");
    write_file(&root, "sys/fs/cgroup/memory.max", "314572800\n");
    write_file(&root, "sys/fs/cgroup/memory.current", "1048576\n");
    check(&root, 299, 300);
    remove_all(&root);
}

static void version_1(void **state)
{
    (void)state;
    struct temp_folder root = machine("5:cpu,cpuacct:/job\n4:memory:/job/step\n1:name=systemd:/\n");
    write_file(&root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    write_file(&root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "209715200\n");
    write_file(&root, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "157286400\n");
    write_file(&root, "sys/fs/cgroup/memory/job/memory.stat", "inactive_file 5\ntotal_inactive_file 52428800\n");
    write_file(&root, "sys/fs/cgroup/cpu,cpuacct/job/memory.limit_in_bytes", "1\n"); /* nobody's */
    check(&root, 100, 200);
    remove_all(&root);
}

/* Its siblings have used up what the slice has, though the slice's limit is above its own. */
static void groups_share_what_is_left(void **state)
{
    (void)state;
    struct temp_folder root = machine("0::/slice/quire.service\n");
    write_file(&root, "sys/fs/cgroup/slice/quire.service/memory.max", "209715200\n");
    write_file(&root, "sys/fs/cgroup/slice/quire.service/memory.current", "52428800\n"); /* 150 MiB left */
    write_file(&root, "sys/fs/cgroup/slice/memory.max", "314572800\n");
    write_file(&root, "sys/fs/cgroup/slice/memory.current", "304087040\n"); /* 10 MiB left */
    check(&root, 10, 200);
    remove_all(&root);
}

/* ulimit -v */
static void address_space(void **state)
{
    static const char limits[] = "Limit                     Soft Limit           Hard Limit           Units\n"
                                 "Max resident set          1                    1                    bytes\n"
                                 "Max address space         %-20s unlimited            bytes\n";
    char text[512];
    (void)state;
    struct temp_folder root = machine(NULL);
    write_file(&root, "proc/self/status", "Name:\tquire\nVmPeak:\t  409600 kB\nVmSize:\t  102400 kB\n");
    snprintf(text, sizeof text, limits, "unlimited");
    write_file(&root, "proc/self/limits", text);
    check(&root, 600, 1000);
    snprintf(text, sizeof text, limits, "314572800");
    write_file(&root, "proc/self/limits", text);
    check(&root, 200, 300);
    snprintf(text, sizeof text, limits, "1048576");
    write_file(&root, "proc/self/limits", text);
    check(&root, 0, 1);
    remove_all(&root);
}

/* ---- processors ---- */

static void quota_of_a_container(void **state)
{
    (void)state;
    struct temp_folder root = machine("0::/pod/container\n");
    const int all = processors_allowed_below(root.path), two = all < 2 ? all : 2;
    write_file(&root, "sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
    assert_int_equal(processors_allowed_below(root.path), all);
    write_file(&root, "sys/fs/cgroup/pod/container/cpu.max", "20000 100000\n");
    assert_int_equal(processors_allowed_below(root.path), 1);
    write_file(&root, "sys/fs/cgroup/pod/container/cpu.max", "100001 100000\n"); /* rounded up */
    assert_int_equal(processors_allowed_below(root.path), two);
    write_file(&root, "sys/fs/cgroup/pod/cpu.max", "50000 50000\n"); /* the least */
    assert_int_equal(processors_allowed_below(root.path), 1);
    write_file(&root, "sys/fs/cgroup/pod/cpu.max", "99999999999 1000\n");
    assert_int_equal(processors_allowed_below(root.path), two);
    remove_all(&root);
}

/* Other controllers have names that contain this one's. */
static void quota_of_version_1(void **state)
{
    (void)state;
    struct temp_folder root = machine("9:cpuset:/x\n8:cpuacct,cpu:/job/step\n4:memory:/\n0::/\n");
    const int all = processors_allowed_below(root.path);
    write_file(&root, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "1000\n"); /* nobody's */
    write_file(&root, "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    write_file(&root, "sys/fs/cgroup/cpu/job/step/cpu.cfs_quota_us", "-1\n");
    write_file(&root, "sys/fs/cgroup/cpu/job/step/cpu.cfs_period_us", "100000\n");
    assert_int_equal(processors_allowed_below(root.path), all);
    write_file(&root, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "20000\n");
    write_file(&root, "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(processors_allowed_below(root.path), 1);
    remove_all(&root);
}

static void nothing_to_read(void **state)
{
    (void)state;
    struct temp_folder root;
    struct host_memory memory;
    struct error err;
    temp_folder_make(&root);
    assert_int_equal(host_memory_read_below(root.path, &memory, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "/proc/meminfo"));
    write_file(&root, "proc/meminfo", "MemTotal: 5 kB\n");
    assert_int_equal(host_memory_read_below(root.path, &memory, &err), STATUS_IO);
    remove_all(&root);
}

static void this_machine(void **state)
{
    (void)state;
    struct host_memory memory;
    struct error err;
    assert_int_equal(host_memory_read(&memory, &err), STATUS_OK);
    assert_true(memory.free_bytes > 0 && memory.free_bytes <= memory.total_bytes);
    assert_true(memory.total_bytes > 64 * KIB * KIB);
    assert_true(processors_allowed() >= 1);
}

/* Pages that were touched, of ranges that need not begin or end with a page. */
static void touched_pages_are_resident(void **state)
{
    const long page = sysconf(_SC_PAGESIZE);
    char *data = mmap(NULL, (size_t)(5000 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_true(data != MAP_FAILED);
    madvise(data, (size_t)(5000 * page), MADV_NOHUGEPAGE);
    assert_int_equal(host_memory_resident(data, 5000 * page), 0);
    data[page] = 1;
    data[2 * page + 7] = 1;
    data[4999 * page] = 1; /* more pages than are asked for at a time lie before it */
    assert_int_equal(host_memory_resident(data, 5000 * page), 3 * page);
    assert_int_equal(host_memory_resident(data + page + 10, page), page);
    assert_int_equal(host_memory_resident(data + 3 * page - 5, 100), 5);
    assert_int_equal(host_memory_resident(data + page, 0), 0);
    munmap(data, (size_t)(5000 * page));
    assert_int_equal(host_memory_resident(data, page), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_limits),
        cmocka_unit_test(group_of_a_unit),
        cmocka_unit_test(group_of_a_container),
        cmocka_unit_test(version_1),
        cmocka_unit_test(groups_share_what_is_left),
        cmocka_unit_test(address_space),
        cmocka_unit_test(quota_of_a_container),
        cmocka_unit_test(quota_of_version_1),
        cmocka_unit_test(nothing_to_read),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(touched_pages_are_resident),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
