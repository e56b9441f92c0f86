/* Headers of safetensors files. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/checkpoint/tensor_file.h"
#include "tests/fuzz/fuzz.h"

/* Every byte that the reader vouches for must be readable, and every name findable. */
static void touch(const struct tensor_file *s)
{
    volatile uint8_t sum = 0;
    for (int64_t i = 0; i < tensor_file_count(s); i++) {
        const struct stored_tensor *t = tensor_file_at(s, i);
        if (tensor_file_find(s, t->name) != t) abort();
        if ((uintptr_t)t->data % (uintptr_t)t->type->bytes != 0) abort();
        for (uint64_t j = 0; j < t->bytes; j++) sum = (uint8_t)(sum + ((const uint8_t *)t->data)[j]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct error err = {""};
    struct tensor_file *s = NULL;
    const int fd = memfd_create("safetensors", MFD_CLOEXEC);
    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size)) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const enum status status = tensor_file_open_path(path, &s, &err);
    if ((status == STATUS_OK) != (s != NULL)) abort();
    if (s) touch(s);
    tensor_file_close(s);
    close(fd);
    return 0;
}
