#include "kernels/backend.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/gpu_list.h"

static enum status open_cuda(const char *device, int number, struct backend **out, struct error *err)
{
#ifdef QUIRE_HAVE_CUDA
    (void)device;
    return backend_cuda_open(number, out, err);
#else
    (void)number, (void)out;
    return error_set(err, STATUS_UNSUPPORTED,
                     "device '%s' was asked for, but this build of quire has no CUDA: use the device 'cpu', or build "
                     "quire where the CUDA toolkit is installed",
                     device);
#endif
}

#ifdef QUIRE_HAVE_CUDA
static void read_word(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "re");
    out[0] = '\0';
    if (file && fgets(out, (int)size, file)) out[strcspn(out, "\n")] = '\0';
    if (file) fclose(file);
}

/* Whether a GPU of NVIDIA is in this machine, with a driver or without one. Where /sys is hidden, a driver says so. */
static bool has_gpu(void)
{
    char path[512], vendor[16] = "", class[16] = "";
    bool found = access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0 ||
                 access("/dev/dxg", F_OK) == 0; /* the last is that of Windows' Linux */
    DIR *devices = opendir("/sys/bus/pci/devices");
    struct dirent *entry;
    while (devices && !found && (entry = readdir(devices)) != NULL) {
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/vendor", entry->d_name);
        read_word(path, vendor, sizeof vendor);
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/class", entry->d_name);
        read_word(path, class, sizeof class);
        found = strcmp(vendor, "0x10de") == 0 && strncmp(class, "0x03", 4) == 0; /* a display or 3D controller */
    }
    if (devices) closedir(devices);
    return found;
}
#endif

static enum status open_auto(int threads, struct backend **out, struct error *err)
{
    if (err) err->text[0] = '\0';
#ifdef QUIRE_HAVE_CUDA
    if (backend_cuda_open(0, out, err) == STATUS_OK) return STATUS_OK;
    if (err && !has_gpu()) err->text[0] = '\0'; /* nothing is missed */
#endif
    struct error cpu_error;
    enum status status = backend_cpu_open(threads, out, &cpu_error);
    if (status != STATUS_OK && err) *err = cpu_error;
    return status;
}

enum status backend_open(const char *device, int threads, struct backend **out, struct error *err)
{
    *out = NULL;
    if (strcmp(device, "cpu") == 0) return backend_cpu_open(threads, out, err);
    if (strcmp(device, "auto") == 0) return open_auto(threads, out, err);
    if (strcmp(device, "cuda") == 0) return open_cuda(device, 0, out, err);
    if (gpu_list_count(device) == 1) return open_cuda(device, gpu_list_at(device, 0), out, err);
    return error_set(err, STATUS_INVALID,
                     "device '%s' is not known: give 'auto', 'cpu', 'cuda' or 'cuda:N' with N from 0", device);
}

#ifndef QUIRE_HAVE_CUDA
int backend_num_gpus(void)
{
    return 0;
}

void backend_describe_cuda(char *text, size_t size)
{
    snprintf(text, size, "no CUDA kernels: built for the CPU alone\n");
}
#endif
