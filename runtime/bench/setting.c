#include "runtime/bench/bench.h"

#include <string.h>

#include "base/json.h"
#include "base/plural.h"
#include "kernels/backend.h"
#include "runtime/version.h"

/* What the CUDA backend says of the device: "NVIDIA H200, sm_90"; "" if it says nothing. */
static void describe_gpu(const char *gpu, char *out, size_t size)
{
    char all[4096], begin[32];
    backend_describe_cuda(all, sizeof all);
    snprintf(begin, sizeof begin, "%s: ", gpu);
    const char *at = strstr(all, begin);
    out[0] = '\0';
    if (at) snprintf(out, size, "%.*s", (int)strcspn(at + strlen(begin), "\n"), at + strlen(begin));
}

static void append_line(struct report *r, const char *name, const char *text)
{
    const size_t length = strlen(r->title);
    snprintf(r->title + length, sizeof r->title - length, "\n%-8s %s", name, text);
}

void bench_report_machine(struct report *r, const char *gpu)
{
    struct machine m;
    char text[512];
    machine_read(&m);
    snprintf(text, sizeof text, "%s, %d of %d processor%s, %.1f GiB, %s",
             *m.processor ? m.processor : "processor unknown", m.allowed, m.processors, plural(m.processors),
             (double)m.memory / (1 << 30), m.system);
    append_line(r, "machine", text);
    report_string(r, "processor", m.processor);
    report_integer(r, "processors", NULL, m.allowed);
    report_integer(r, "memory_bytes", NULL, m.memory);
    report_string(r, "system", m.system);
    if (gpu) {
        describe_gpu(gpu, text, 256);
        report_string(r, "gpu", text);
        report_string(r, "driver", m.driver);
        snprintf(text + strlen(text), sizeof text - strlen(text), ", driver %s", *m.driver ? m.driver : "unknown");
        append_line(r, "GPU", text);
    }
    append_line(r, "build", version_text());
    report_string(r, "build", version_text());
}

void bench_report_device(struct report *r, const char *benchmark, const char *model, const char *device, int threads,
                         const char *isa, char words[40])
{
    words[0] = '\0';
    if (isa) {
        snprintf(words, 40, " (%d thread%s, %s)", threads, plural(threads), isa);
        report_integer(r, "threads", NULL, threads);
        report_string(r, "cpu_isa", isa);
    }
    report_string(r, "benchmark", benchmark);
    report_string(r, "model", model);
    report_string(r, "device", device);
}

struct option_spec bench_count_flag(const char *name, int32_t *target, int minimum, int maximum, const char *help)
{
    return (struct option_spec){name, OPTION_INT32, target, "N", .help = help, .minimum = minimum, .maximum = maximum};
}
