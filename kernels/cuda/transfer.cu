/* Copies from device to device (kernels/transfer.c): with peer access they do not pass through host memory. */
#include "kernels/transfer.h"

#include "kernels/cuda/state.cuh"

void backend_cuda_connect(struct backend *from, struct backend *to)
{
    int can = 0;
    const int device = cuda_state(from)->device, other = cuda_state(to)->device;
    if (device == other) return;
    cuda_set_device(from);
    if (cudaDeviceCanAccessPeer(&can, device, other) != cudaSuccess ||
        (can && cudaDeviceEnablePeerAccess(other, 0) != cudaSuccess))
        cudaGetLastError(); /* clears it: later checks must not report it again */
}
