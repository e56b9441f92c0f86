#include "runtime/machine.h"

#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/host_memory.h"
#include "base/kernel_file.h"
#include "base/processors.h"

void machine_read(struct machine *out)
{
    struct utsname name;
    *out = (struct machine){.processors = (int)sysconf(_SC_NPROCESSORS_ONLN), .allowed = processors_allowed()};
    struct host_memory memory;
    struct error ignored; /* then the memory is not known */
    if (host_memory_read(&memory, &ignored) == STATUS_OK) out->memory = memory.total_bytes;
    kernel_file_line("", "/proc/cpuinfo", "model name", out->processor, sizeof out->processor);
    kernel_file_line("", "/sys/module/nvidia/version", "", out->driver, sizeof out->driver);
    if (uname(&name) == 0)
        snprintf(out->system, sizeof out->system, "%.32s %.64s %.32s", name.sysname, name.release, name.machine);
}
