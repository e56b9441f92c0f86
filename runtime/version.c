#include "runtime/version.h"

#include <sys/utsname.h>
#include <unistd.h>

#include "base/host_memory.h"
#include "base/kernel_file.h"
#include "base/processors.h"
#include "kernels/backend.h"

const char *version_text(void)
{
    return "quire " QUIRE_VERSION QUIRE_COMMIT ", " QUIRE_BUILD;
}

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

void version_print(FILE *out)
{
    char text[4096];
    struct machine m;
    machine_read(&m);
    fprintf(out, "%s\n", version_text());
    backend_describe_cpu(text, sizeof text);
    fprintf(out, "%s%sCPU kernels for %s\n", m.processor, m.processor[0] ? ": " : "", text);
    backend_describe_cuda(text, sizeof text);
    fputs(text, out);
    fprintf(out, "built with %s\n", QUIRE_LIBRARIES);
}
