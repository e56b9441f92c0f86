/* How much memory of a GPU is in use before this process has a CUDA context on it. The CUDA runtime cannot tell,
 * because asking it creates the context. NVML comes with the driver and is opened at run time. */
#ifndef QUIRE_KERNELS_CUDA_NVML_H
#define QUIRE_KERNELS_CUDA_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A thread's function: starts NVML while the CUDA driver starts. NVML stays started until the process ends. */
void *nvml_preload(void *unused);

struct nvml_usage {
    int64_t bytes;    /* in use by all processes; -1: NVML is not there, or does not know the device */
    bool has_reserve; /* bytes includes what the driver reserves for itself (drivers before 510 do not tell it apart) */
};

/* What is in use of the GPU with this PCI bus id ("0000:65:00.0"). */
struct nvml_usage nvml_memory_usage(const char *pci_bus_id);

/* Writes to text[size] which other processes hold memory of it, as far as NVML and /proc tell: "python3 (pid 712) 20.1
 * GiB, quire (pid 9) 3.0 GiB"; "" where they tell nothing, as in most containers. */
void nvml_list_processes(const char *pci_bus_id, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
