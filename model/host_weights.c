/* Weights in host memory: what they are placed in, and model_weights_pack. */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/host_memory.h"
#include "model/upload.h"
#include "model/weights.h"

enum { ALIGNMENT = 64 }; /* bytes */

void *weights_memory_take(struct weights_memory *memory, int64_t bytes)
{
    char *taken = memory->at && bytes > 0 ? memory->at + memory->bytes : NULL;
    memory->bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return taken;
}

struct weight_rows weights_memory_take_parts(struct weights_memory *memory, struct weight *w, bool has_zeros)
{
    const struct weight_part_bytes bytes = weight_part_bytes(w, has_zeros, w->out_features);
    struct weight_rows parts = weight_parts(w), taken = {{NULL}};
    for (int i = 0; i < NUM_WEIGHT_PARTS; i++)
        if (!parts.at[i]) parts.at[i] = taken.at[i] = weights_memory_take(memory, bytes.of[i]);
    if (memory->at) weight_set_parts(w, &parts);
    return taken;
}

/* Linux grants memory that it does not have, and kills the process when it is used: so the size is compared with what
 * is available first. */
enum status model_weights_allocate(struct model_weights *w, int64_t bytes, const char *what, struct error *err)
{
    struct host_memory memory;
    enum status status = host_memory_read(&memory, err);
    if (status != STATUS_OK) return status;
    if (bytes <= memory.free_bytes) {
        void *data = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data != MAP_FAILED) {
            madvise(data, (size_t)bytes, MADV_HUGEPAGE); /* fewer page faults; no harm where refused */
            w->memory = data;
            w->memory_bytes = bytes;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_OUT_OF_MEMORY, "%s take %.1f GiB of host memory, and %.1f GiB are available", what,
                     (double)bytes / (1 << 30), (double)memory.free_bytes / (1 << 30));
}

/* Takes memory for what matrices cannot use in the files, and adds the transfers that fill it unless the memory is only
 * counted. Returns how many there are. */
static size_t place(const struct model_weights *w, bool only_host_experts, struct weights_memory *memory,
                    struct transfer *transfers)
{
    size_t count = 0;
    for (int32_t i = 0; w->sources && i < w->table.count; i++) {
        const struct tensor *t = &w->table.tensors[i];
        const int64_t before = memory->bytes;
        if (t->kind != TENSOR_MATRIX) continue;
        if (only_host_experts && !model_weights_stays_on_host(w, t)) continue;
        const struct weight_rows taken =
            weights_memory_take_parts(memory, model_weights_matrix(w, t), t->scheme.has_zeros);
        if (memory->bytes == before) continue;
        if (memory->at)
            transfers[count] =
                (struct transfer){.matrix = model_weights_source(w, t), .rows = taken, .count = t->out_features};
        count++;
    }
    return count;
}

int64_t model_weights_to_pack(const struct model_weights *w)
{
    struct weights_memory memory = {0};
    place(w, false, &memory, NULL);
    return memory.bytes;
}

static enum status pack(struct model_weights *w, bool only_host_experts, struct error *err)
{
    struct weights_memory memory = {0};
    const size_t count = place(w, only_host_experts, &memory, NULL);
    if (count == 0) return STATUS_OK;
    struct transfer *transfers = malloc(count * sizeof *transfers);
    if (!transfers) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    enum status status = model_weights_allocate(w, memory.bytes, "the weights that cannot be used in their files", err);
    if (status == STATUS_OK) {
        memory = (struct weights_memory){.at = w->memory};
        place(w, only_host_experts, &memory, transfers);
        status = upload_to_host(transfers, count, err);
    }
    free(transfers);
    return status;
}

enum status model_weights_pack(struct model_weights *w, struct error *err)
{
    return pack(w, false, err);
}

enum status model_weights_pack_host_experts(struct model_weights *w, struct error *err)
{
    return pack(w, true, err);
}
