#include "runtime/version.h"

#include "kernels/backend.h"
#include "runtime/machine.h"

const char *version_text(void)
{
    return "quire " QUIRE_VERSION QUIRE_COMMIT ", " QUIRE_BUILD;
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
