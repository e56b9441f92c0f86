/* Opening a GPU, with a sentence for each thing that can be wrong, and the table of operations. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/nvml.h"
#include "kernels/cuda/matmul/few_tokens_wgmma.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"
#include "kernels/transfer.h"

void cuda_fail(struct backend *b, const char *format, ...)
{
    struct cuda_state *s = cuda_state(b);
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&s->failure_lock);
    if (!s->failure[0]) vsnprintf(s->failure, sizeof s->failure, format, args);
    pthread_mutex_unlock(&s->failure_lock);
    va_end(args);
}

bool cuda_check(struct backend *b, const char *operation, cudaError_t error)
{
    if (error == cudaSuccess) return true;
    cuda_fail(b, "%s failed on %s: %s", operation, cuda_state(b)->name, cudaGetErrorString(error));
    return false;
}

void backend_cuda_fail_allocation(struct backend *b, int countdown)
{
    cuda_state(b)->fail_allocation = countdown;
}

void backend_cuda_forget_failure(struct backend *b)
{
    struct cuda_state *s = cuda_state(b);
    pthread_mutex_lock(&s->failure_lock);
    s->failure[0] = '\0';
    pthread_mutex_unlock(&s->failure_lock);
}

static void destroy(struct backend *b)
{
    struct cuda_state *s = cuda_state(b);
    cudaSetDevice(s->device);
    cuda_preload_wait(s);
    cuda_group_leave(s);
    transfer_end_close(b);
    cublas_close(s->cublas);
    cublas_lt_close(s->cublas_lt);
    if (s->stream) cudaStreamDestroy(s->stream);
    pthread_mutex_destroy(&s->failure_lock);
    free(s->chain);
    free(s);
}

static void fill_table(struct backend *b)
{
    b->memory_info = cuda_memory_info;
    b->memory_alloc = cuda_memory_alloc;
    b->memory_free = cuda_memory_free;
    b->copy = cuda_copy;
    b->fill = cuda_fill;
    b->copy_many = cuda_copy_many;
    b->workspace_bytes = cuda_workspace_bytes;
    b->workspace_set = cuda_workspace_set;
    b->preload = cuda_preload;
    b->weight_prepare = cuda_weight_prepare;
    b->weight_quantize = cuda_weight_quantize;
    b->fill_dummy = cuda_fill_dummy;
    cuda_stream_init(b);
    b->embedding = cuda_embedding;
    b->rms_norm = cuda_rms_norm;
    b->fused_add_rms_norm = cuda_fused_add_rms_norm;
    b->rotary_embedding = cuda_rotary_embedding;
    b->reshape_and_cache = cuda_reshape_and_cache;
    b->calculate_kv_scales = cuda_calculate_kv_scales;
    b->paged_attention_v1 = cuda_paged_attention_v1;
    b->paged_attention_v2 = cuda_paged_attention_v2;
    b->paged_attention_prefill = cuda_paged_attention_prefill;
    b->latent_cache = cuda_latent_cache;
    b->latent_attention = cuda_latent_attention;
    b->heads_linear = cuda_heads_linear;
    b->short_conv = cuda_short_conv;
    b->recurrence = cuda_recurrence;
    b->gated_norm = cuda_gated_norm;
    b->all_norm = cuda_all_norm;
    b->gather_columns = cuda_gather_columns;
    b->act_and_mul = cuda_act_and_mul;
    b->activate = cuda_activate;
    b->clip = cuda_clip;
    b->scale_queries = cuda_scale_queries;
    b->scale_columns = cuda_scale_columns;
    b->output_gate = cuda_output_gate;
    b->linear = cuda_linear;
    b->takes_quantized_rows = cuda_takes_quantized_rows;
    b->quantize_rows = cuda_quantize_rows;
    b->gather_rows = cuda_gather_rows;
    b->scale_logits = cuda_scale_logits;
    b->scatter_logits = cuda_scatter_logits;
    b->update_block_tables = cuda_update_block_tables;
    b->copy_blocks = cuda_copy_blocks;
    b->swap_blocks = cuda_swap_blocks;
    b->sample = cuda_sample;
    b->linear_parts = cuda_linear_parts;
    b->norm_linear = cuda_norm_linear;
    b->linear_residual = cuda_linear_residual;
    b->gate_up = cuda_gate_up;
    b->route_experts = cuda_route_experts;
    b->experts_gate_up = cuda_experts_gate_up;
    b->experts_down = cuda_experts_down;
    b->latent_inputs = cuda_latent_inputs;
    b->decode_attention = cuda_decode_attention;
    b->decode_recurrence = cuda_decode_recurrence;
    b->destroy = destroy;
}

/* Checks that there is a driver that this build can use, and a device of that number. */
static enum status check_device(int device, struct error *err)
{
    int driver = 0, runtime = 0, count = 0;
    cudaRuntimeGetVersion(&runtime);
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        cudaGetLastError();
        return error_set(err, STATUS_UNSUPPORTED,
                         "cuda:%d: no NVIDIA driver was found on this machine: install one (the package is often "
                         "called nvidia-driver), or use the device 'cpu'",
                         device);
    }
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver)
        return error_set(err, STATUS_UNSUPPORTED,
                         "cuda:%d: the NVIDIA driver is for CUDA %d.%d, but this build of quire needs %d.x: install a "
                         "newer driver, or use the device 'cpu'",
                         device, driver / 1000, driver % 1000 / 10, runtime / 1000);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return error_set(err, STATUS_UNSUPPORTED,
                         "cuda:%d: there is an NVIDIA driver but no GPU that this process may use (see nvidia-smi, and "
                         "the variable CUDA_VISIBLE_DEVICES): use the device 'cpu'",
                         device);
    if (error != cudaSuccess)
        return error_set(err, STATUS_UNSUPPORTED, "cuda:%d: the NVIDIA driver cannot be used: %s", device,
                         cudaGetErrorString(error));
    if (device < 0 || device >= count)
        return error_set(err, STATUS_INVALID, "cuda:%d: there is no such GPU: this process sees %d, numbered from 0",
                         device, count);
    return STATUS_OK;
}

static __global__ void probe_kernel() {}

/* What a kernel was compiled for. A build may hold several versions of each kernel, and every version has its own copy
 * of `target`. The version that the driver chooses may be for less than the device can do: 80, or 90 instead of 90a, on
 * a device of compute capability 9.0. */
struct kernels_target {
    int compute_capability;
    bool has_wgmma;
};
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
static __constant__ struct kernels_target target = {90, true};
#elif defined(__CUDA_ARCH__)
static __constant__ struct kernels_target target = {__CUDA_ARCH__ / 10, false};
#else
static __constant__ struct kernels_target target;
#endif

/* What to compile for, so that the kernels run on a device of this compute capability: as CMake takes it
 * (cmake/cuda_architectures.cmake). */
static int architecture_of(const struct cudaDeviceProp *p)
{
    return p->major < 10 ? 10 * p->major + p->minor : p->major < 12 ? 100 : 120;
}

/* The errors that mean: of the versions of a kernel, the driver can run none. */
static bool is_no_kernel_image(cudaError_t error)
{
    return error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
           error == cudaErrorUnsupportedPtxVersion || error == cudaErrorJitCompilerNotFound;
}

static enum status no_kernel_image(const struct cuda_state *s, const struct cudaDeviceProp *p, struct error *err)
{
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s (%s) is sm_%d%d, but this build of quire has kernels for " QUIRE_CUDA_ARCHITECTURES
                     " alone: run ./quickstart on this machine, which builds for its GPUs, or give CMake "
                     "-DCMAKE_CUDA_ARCHITECTURES=%d%s",
                     s->name, p->name, p->major, p->minor, architecture_of(p), p->major == 9 ? "a" : "");
}

/* The device's properties, and whether this build has kernels for it. */
static enum status read_device(struct cuda_state *s, struct error *err)
{
    struct cudaDeviceProp properties;
    struct cudaFuncAttributes attributes;
    struct kernels_target kernels;
    cudaError_t error = cudaSetDevice(s->device);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, s->device);
    if (error != cudaSuccess)
        return error_set(err, STATUS_UNSUPPORTED, "%s cannot be opened: %s", s->name, cudaGetErrorString(error));
    s->num_sms = properties.multiProcessorCount;
    s->max_shared_bytes = (int)properties.sharedMemPerBlockOptin;
    if (properties.major < 8)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s (%s) has compute capability %d.%d, but 8.0 or later is needed (an A100 or newer): use the "
                         "device 'cpu'",
                         s->name, properties.name, properties.major, properties.minor);
    error = cudaFuncGetAttributes(&attributes, probe_kernel);
    if (error == cudaSuccess) error = cudaMemcpyFromSymbol(&kernels, target, sizeof kernels);
    if (error == cudaSuccess) {
        s->compute_capability = kernels.compute_capability;
        s->has_wgmma = kernels.has_wgmma;
        snprintf(s->description, sizeof s->description, "%s, sm_%d%d, kernels for sm_%d%s", properties.name,
                 properties.major, properties.minor, kernels.compute_capability, kernels.has_wgmma ? "a" : "");
        return STATUS_OK;
    }
    cudaGetLastError();
    if (is_no_kernel_image(error)) return no_kernel_image(s, &properties, err);
    return error_set(err, STATUS_UNSUPPORTED, "%s cannot be opened: %s", s->name, cudaGetErrorString(error));
}

int backend_num_gpus(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    cudaGetLastError();
    return 0;
}

void backend_describe_cuda(char *text, size_t size)
{
    struct error why;
    struct cudaDeviceProp properties;
    size_t n = (size_t)snprintf(text, size, "CUDA kernels for " QUIRE_CUDA_ARCHITECTURES ", toolkit %d.%d\n",
                                CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    int count = 0;
    if (check_device(0, &why) != STATUS_OK) {
        if (n < size) snprintf(text + n, size - n, "%s\n", why.text);
        return;
    }
    cudaGetDeviceCount(&count);
    for (int i = 0; i < count && n < size; i++)
        if (cudaGetDeviceProperties(&properties, i) == cudaSuccess)
            n += (size_t)snprintf(text + n, size - n, "cuda:%d: %s, sm_%d%d\n", i, properties.name, properties.major,
                                  properties.minor);
}

/* The shared memory that a block may have is a property of the device (CUDA C++ programming guide, "compute
 * capabilities"). */
void backend_cuda_choose_as(struct backend *b, int compute_capability)
{
    enum { SHARED_80 = 163 * 1024, SHARED_89 = 99 * 1024 };
    struct cuda_state *s = cuda_state(b);
    struct error err;
    if (read_device(s, &err) != STATUS_OK || compute_capability == 0) return;
    const int shared_bytes = compute_capability == 80 ? SHARED_80 : SHARED_89;
    s->compute_capability = compute_capability;
    s->has_wgmma = false;
    if (s->max_shared_bytes > shared_bytes) s->max_shared_bytes = shared_bytes;
}

/* The device's memory in use, by NVML's count. */
static struct nvml_usage memory_usage(const char *bus_id)
{
    return bus_id[0] ? nvml_memory_usage(bus_id) : nvml_usage{-1, false};
}

/* What other processes hold: what CUDA says is in use now, less what NVML's count has grown by since `before`, when
 * this process had no context. -1: not known, because NVML is not there, or does not see this context come into being,
 * as in some containers; then it does not see other processes either. A context takes more than MIN_CONTEXT. */
static int64_t others_bytes(const char *bus_id, const struct nvml_usage &before)
{
    const int64_t MIN_CONTEXT = 16 << 20;
    size_t available, total;
    if (before.bytes < 0) return -1;
    const struct nvml_usage after = memory_usage(bus_id);
    if (cudaMemGetInfo(&available, &total) != cudaSuccess) return -1;
    const int64_t held = (int64_t)(total - available), context = after.bytes - before.bytes;
    return context >= MIN_CONTEXT && context <= held ? held - context : -1;
}

/* read_device creates this process's context on the device; asking for the bus id before that does not. */
static enum status open_device(struct cuda_state *s, struct error *err)
{
    pthread_t preload;
    s->backend.discrete = true;
    char bus_id[32];
    if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, s->device) != cudaSuccess) {
        cudaGetLastError();
        bus_id[0] = '\0';
    }
    const struct nvml_usage before = memory_usage(bus_id);
    const bool preloads = pthread_create(&preload, NULL, cublas_preload, NULL) == 0;
    enum status status = read_device(s, err);
    if (preloads) pthread_join(preload, NULL);
    if (status != STATUS_OK) return status;
    s->backend.others_bytes = others_bytes(bus_id, before);
    if (bus_id[0]) nvml_list_processes(bus_id, s->others, sizeof s->others);
    cudaError_t error = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
    if (error != cudaSuccess)
        return error_set(err, STATUS_OUT_OF_MEMORY, "%s cannot be opened: %s", s->name, cudaGetErrorString(error));
    s->cublas_lt = cublas_lt_open();
    status = cublas_open(&s->cublas, err);
    return status == STATUS_OK ? status : error_prefix(err, status, s->name);
}

enum status backend_cuda_open(int device, struct backend **out, struct error *err)
{
    pthread_t preload;
    *out = NULL;
    const bool preloads = pthread_create(&preload, NULL, nvml_preload, NULL) == 0;
    enum status status = check_device(device, err);
    if (preloads) pthread_join(preload, NULL);
    if (status != STATUS_OK) return status;
    struct cuda_state *s = (struct cuda_state *)calloc(1, sizeof *s);
    if (!s) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory opening cuda:%d", device);
    snprintf(s->name, sizeof s->name, "cuda:%d", device);
    s->device = device;
    s->backend.name = s->name;
    s->backend.description = s->description;
    s->backend.others = s->others;
    s->backend.state = s;
    pthread_mutex_init(&s->failure_lock, NULL);
    fill_table(&s->backend);
    status = open_device(s, err);
    if (status != STATUS_OK) {
        destroy(&s->backend);
        return status;
    }
    *out = &s->backend;
    return STATUS_OK;
}
