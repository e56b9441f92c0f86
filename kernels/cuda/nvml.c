#include "kernels/cuda/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The part of nvml.h that is used here; a machine without the CUDA toolkit does not have that file. 0 is success. */
struct nvml_memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};
struct nvml_memory_v2 { /* nvmlMemory_v2_t */
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct nvml_process { /* nvmlProcessInfo_t */
    unsigned pid;
    unsigned long long used; /* all ones: not available */
    unsigned gpu_instance, compute_instance;
};
#define NVML_MEMORY_V2 ((unsigned)sizeof(struct nvml_memory_v2) | 2u << 24)

typedef int initialize_function(void);
typedef int find_function(const char *pci_bus_id, void **device);
typedef int memory_function(void *device, struct nvml_memory *memory);
typedef int memory_v2_function(void *device, struct nvml_memory_v2 *memory);
typedef int processes_function(void *device, unsigned *count, struct nvml_process *processes);

static void *open_library(void)
{
    return dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
}

void *nvml_preload(void *unused)
{
    (void)unused;
    void *library = open_library();
    initialize_function *initialize = library ? (initialize_function *)dlsym(library, "nvmlInit_v2") : NULL;
    if (initialize) initialize();
    return NULL;
}

static struct nvml_usage usage_of(void *library, void *device)
{
    struct nvml_memory_v2 v2 = {.version = NVML_MEMORY_V2};
    struct nvml_memory v1;
    memory_v2_function *memory_v2 = (memory_v2_function *)dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    memory_function *memory = (memory_function *)dlsym(library, "nvmlDeviceGetMemoryInfo");
    if (memory_v2 && memory_v2(device, &v2) == 0) return (struct nvml_usage){(int64_t)v2.used, false};
    if (memory && memory(device, &v1) == 0) return (struct nvml_usage){(int64_t)v1.used, true};
    return (struct nvml_usage){-1, false};
}

/* Calls use(library, device, user) with NVML started. */
typedef void use_function(void *library, void *device, void *user);
static void with_device(const char *pci_bus_id, use_function *use, void *user)
{
    void *library = open_library(), *device;
    if (!library) return;
    initialize_function *initialize = (initialize_function *)dlsym(library, "nvmlInit_v2");
    initialize_function *shut_down = (initialize_function *)dlsym(library, "nvmlShutdown");
    find_function *find = (find_function *)dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    if (initialize && shut_down && find && initialize() == 0) {
        if (find(pci_bus_id, &device) == 0) use(library, device, user);
        shut_down();
    }
    dlclose(library);
}

static void read_usage(void *library, void *device, void *user)
{
    struct nvml_usage *usage = user;
    *usage = usage_of(library, device);
}

struct nvml_usage nvml_memory_usage(const char *pci_bus_id)
{
    struct nvml_usage usage = {-1, false};
    with_device(pci_bus_id, read_usage, &usage);
    return usage;
}

/* ---- processes ---- */

struct listing {
    char *text;
    size_t size;
};

/* What the process is called; "" where /proc does not say. */
static void read_name(unsigned pid, char name[64])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(name, 64, file)) name[0] = '\0';
    name[strcspn(name, "\n")] = '\0';
    if (file) fclose(file);
}

static void list_process(struct listing *l, const struct nvml_process *p)
{
    const unsigned long long unknown = ~0ull;
    const size_t length = strlen(l->text);
    char name[64], memory[32] = "";
    read_name(p->pid, name);
    if (p->used != unknown) snprintf(memory, sizeof memory, " %.1f GiB", (double)p->used / (1 << 30));
    snprintf(l->text + length, l->size - length, "%s%s%s(pid %u)%s", length ? ", " : "", name, name[0] ? " " : "",
             p->pid, memory);
}

static void list_processes(void *library, void *device, void *user)
{
    struct listing *l = user;
    struct nvml_process processes[64];
    unsigned count = sizeof processes / sizeof *processes;
    processes_function *running = (processes_function *)dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (!running || running(device, &count, processes) != 0) return;
    for (unsigned i = 0; i < count; i++)
        if (processes[i].pid != (unsigned)getpid()) list_process(l, &processes[i]);
}

void nvml_list_processes(const char *pci_bus_id, char *text, size_t size)
{
    struct listing listing = {text, size};
    text[0] = '\0';
    with_device(pci_bus_id, list_processes, &listing);
}
