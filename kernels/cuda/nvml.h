/* What a device's memory holds before this process has a CUDA context on it: the one thing that the CUDA runtime cannot
 * tell, since asking it makes the context. NVML comes with the driver and is opened when a GPU is. */
#ifndef QUIRE_KERNELS_CUDA_NVML_H
#define QUIRE_KERNELS_CUDA_NVML_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A thread's function: starts NVML, until the process ends, while CUDA's driver starts. */
void *nvml_preload(void *unused);

/* Bytes in use on the GPU with this PCI bus id ("0000:65:00.0"); -1 where NVML is not there or does not say. */
int64_t nvml_used_bytes(const char *pci_bus_id);

#ifdef __cplusplus
}
#endif

#endif
