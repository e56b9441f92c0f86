#include "runtime/serve/process_facts.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* The folder that is read is open, too, and has entries for itself and the one above. */
static int32_t count_descriptors(void)
{
    enum { OTHERS = 3 };
    DIR *folder = opendir("/proc/self/fd");
    int32_t count = 0;
    if (!folder) return 0;
    while (readdir(folder)) count++;
    closedir(folder);
    return count > OTHERS ? count - OTHERS : 0;
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

struct process_facts process_facts_read(void)
{
    struct process_facts facts = {.num_descriptors = count_descriptors()};
    long long pages = 0, resident = 0;
    struct rusage used;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%lld %lld", &pages, &resident) == 2) {
        facts.virtual_bytes = pages * sysconf(_SC_PAGESIZE);
        facts.resident_bytes = resident * sysconf(_SC_PAGESIZE);
    }
    if (file) fclose(file);
    if (getrusage(RUSAGE_SELF, &used) == 0) facts.cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
    return facts;
}
