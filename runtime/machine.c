#include "runtime/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host_memory.h"

/* The first line of a file that begins with `key`, without the key, blanks and a colon. */
static void read_line(const char *path, const char *key, char *out, size_t size)
{
    char line[512];
    FILE *file = fopen(path, "re");
    out[0] = '\0';
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        const char *value = line + strlen(key);
        value += strspn(value, " \t:");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
    }
    if (file) fclose(file);
}

void machine_read(struct machine *out)
{
    struct utsname name;
    *out = (struct machine){.processors = (int)sysconf(_SC_NPROCESSORS_ONLN), .allowed = processors_allowed()};
    struct host_memory memory;
    struct error ignored; /* then the memory is not known */
    if (host_memory_read(&memory, &ignored) == STATUS_OK) out->memory = memory.total_bytes;
    read_line("/proc/cpuinfo", "model name", out->processor, sizeof out->processor);
    read_line("/sys/module/nvidia/version", "", out->driver, sizeof out->driver);
    if (uname(&name) == 0)
        snprintf(out->system, sizeof out->system, "%.32s %.64s %.32s", name.sysname, name.release, name.machine);
}
