#include "kernels/cuda/nvml.h"

#include <dlfcn.h>
#include <stddef.h>

/* Of nvml.h, which a machine without the toolkit does not have: nvmlMemory_t, and success is 0. */
struct nvml_memory {
    unsigned long long total, free, used;
};

typedef int initialize_function(void);
typedef int find_function(const char *pci_bus_id, void **device);
typedef int memory_function(void *device, struct nvml_memory *memory);

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

int64_t nvml_used_bytes(const char *pci_bus_id)
{
    int64_t used = -1;
    void *library = open_library();
    if (!library) return -1;
    initialize_function *initialize = (initialize_function *)dlsym(library, "nvmlInit_v2");
    initialize_function *shut_down = (initialize_function *)dlsym(library, "nvmlShutdown");
    find_function *find = (find_function *)dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    memory_function *memory = (memory_function *)dlsym(library, "nvmlDeviceGetMemoryInfo");
    if (initialize && shut_down && find && memory && initialize() == 0) {
        void *device;
        struct nvml_memory info;
        if (find(pci_bus_id, &device) == 0 && memory(device, &info) == 0) used = (int64_t)info.used;
        shut_down();
    }
    dlclose(library);
    return used;
}
