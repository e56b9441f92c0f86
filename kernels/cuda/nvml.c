#include "kernels/cuda/nvml.h"

#include <dlfcn.h>
#include <stddef.h>

/* The part of nvml.h that is used here; a machine without the CUDA toolkit does not have that file. 0 is success. */
struct nvml_memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};
struct nvml_memory_v2 { /* nvmlMemory_v2_t */
    unsigned version;
    unsigned long long total, reserved, free, used;
};
#define NVML_MEMORY_V2 ((unsigned)sizeof(struct nvml_memory_v2) | 2u << 24)

typedef int initialize_function(void);
typedef int find_function(const char *pci_bus_id, void **device);
typedef int memory_function(void *device, struct nvml_memory *memory);
typedef int memory_v2_function(void *device, struct nvml_memory_v2 *memory);

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

struct nvml_usage nvml_memory_usage(const char *pci_bus_id)
{
    struct nvml_usage usage = {-1, false};
    void *library = open_library(), *device;
    if (!library) return usage;
    initialize_function *initialize = (initialize_function *)dlsym(library, "nvmlInit_v2");
    initialize_function *shut_down = (initialize_function *)dlsym(library, "nvmlShutdown");
    find_function *find = (find_function *)dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    if (initialize && shut_down && find && initialize() == 0) {
        if (find(pci_bus_id, &device) == 0) usage = usage_of(library, device);
        shut_down();
    }
    dlclose(library);
    return usage;
}
