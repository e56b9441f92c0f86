#include "kernels/ranks.h"

#include <stdlib.h>

#include "kernels/backend.h"

void backend_expect_ranks(void)
{
    static const char *const settings[][2] = {
        {"CUDA_MODULE_LOADING", "EAGER"}, {"NCCL_RUNTIME_CONNECT", "0"}, {"NCCL_NVLS_ENABLE", "0"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) setenv(settings[i][0], settings[i][1], 0);
}

enum status backend_group_set_nccl_from(struct backend *const *ranks, int64_t bytes, struct error *err)
{
#ifdef QUIRE_HAVE_CUDA
    if (ranks[0]->discrete) return backend_cuda_group_set_nccl_from(ranks, bytes, err);
#endif
    (void)bytes;
    return error_set(err, STATUS_UNSUPPORTED, "'%s' does nothing through NCCL", ranks[0]->name);
}
