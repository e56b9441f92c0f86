/* The GPUs that the name of a device lists: "cuda:A" and "cuda:A,B,..". */
#ifndef QUIRE_KERNELS_GPU_LIST_H
#define QUIRE_KERNELS_GPU_LIST_H

#include <stdint.h>

/* How many numbers of GPUs follow "cuda:"; 0: none, or something else, too. */
int32_t gpu_list_count(const char *device);
/* Number `place` of them, which is below their count. */
int32_t gpu_list_at(const char *device, int32_t place);

#endif
