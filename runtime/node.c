#include "runtime/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "runtime/engine/loaded_model.h"
#include "runtime/fingerprint.h"
#include "runtime/options/command.h"
#include "runtime/version.h"

/* Who starts processes, and what it tells them: how many there are, which of them this is, and which on its host. */
static const struct launcher {
    const char *size, *rank, *local_rank;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}, /* Open MPI */
    {"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"},                                    /* MPICH, Intel MPI */
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"},                      /* srun */
};

static bool read_number(const char *variable, int32_t *out)
{
    const char *text = getenv(variable);
    char *end;
    if (!text || !*text) return false;
    const long value = strtol(text, &end, 10);
    *out = (int32_t)value;
    return *end == '\0' && value >= 0 && value < 1 << 20;
}

/* Each process of a host takes GPUs of its own, if nobody said which and it sees those of the others, too. */
static void find_device(struct engine_options *o, const char *local_rank)
{
    const int32_t per_node = o->tensor_parallel_size / o->nnodes;
    int32_t number;
    if ((strcmp(o->device, "auto") != 0 && strcmp(o->device, "cuda") != 0) || !read_number(local_rank, &number)) return;
    if (number == 0 || (number + 1) * per_node > backend_num_gpus()) return;
    snprintf(o->node_device, sizeof o->node_device, "cuda:%d", number * per_node);
    o->device = o->node_device;
}

static enum status find_rank(struct engine_options *o, struct error *err)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        int32_t size, rank;
        if (!read_number(launchers[i].size, &size) || !read_number(launchers[i].rank, &rank)) continue;
        if (size != o->nnodes)
            return error_set(err, STATUS_INVALID, "nnodes is %d, but %s says that %d process%s %s started", o->nnodes,
                             launchers[i].size, size, size == 1 ? "" : "es", size == 1 ? "was" : "were");
        o->node_rank = rank;
        find_device(o, launchers[i].local_rank);
        return STATUS_OK;
    }
    error_set(
        err, STATUS_INVALID,
        "nnodes is %d, and neither mpirun nor srun has started this process, so it is not known which of them it is",
        o->nnodes);
    error_advise(err, ADVICE_SET, "node_rank", NULL);
    return STATUS_INVALID;
}

/* The first name of a list as Slurm writes it, "gpu[03-06,09],login1": "gpu03". It is cut off at `size`. */
static void first_host(const char *list, char *out, size_t size)
{
    const size_t prefix = strcspn(list, "[,");
    const char *rest = list + prefix;
    const size_t number = *rest == '[' ? strcspn(rest + 1, "-,]") : 0;
    snprintf(out, size, "%.*s%.*s", (int)prefix, list, (int)number, number ? rest + 1 : "");
}

/* Where node 0 is, if nobody said so: with a launcher that tells. */
static void find_address(struct engine_options *o)
{
    const char *address = getenv("MASTER_ADDR"), *hosts = getenv("SLURM_STEP_NODELIST");
    int32_t port;
    if (!o->master_addr && address && *address) o->master_addr = address;
    if (!o->master_addr && hosts && *hosts) {
        first_host(hosts, o->node_address, sizeof o->node_address);
        o->master_addr = o->node_address;
    }
    if (!o->master_addr) o->master_addr = "127.0.0.1";
    if (o->master_port == 0) o->master_port = read_number("MASTER_PORT", &port) && port < 65536 ? port : 29501;
}

enum status node_find(struct engine_options *o, struct error *err)
{
    if (o->nnodes <= 1) {
        o->node_rank = 0;
        return STATUS_OK;
    }
    if (o->node_rank < 0 && find_rank(o, err) != STATUS_OK) return STATUS_INVALID;
    find_address(o);
    return STATUS_OK;
}

enum status node_prepare(struct engine_options *o, struct error *err)
{
    struct fingerprint model;
    if (node_find(o, err) != STATUS_OK) return STATUS_INVALID;
    if (o->nnodes <= 1) return STATUS_OK;
    const enum status status = fingerprint_model(o->model, o->load_format != LOAD_FORMAT_DUMMY, &model, err);
    snprintf(o->node_facts, sizeof o->node_facts, "program: %.150s\nmodel: %s\n", version_text(), model.text);
    return status;
}

bool node_serves(const struct engine_options *o)
{
    return o->node_rank > 0;
}

int node_run(const struct engine_options *o, const char *command)
{
    struct error err = {""};
    struct engine_options own = *o;
    own.skip_tokenizer = true; /* node 0 reads and writes the texts */
    if (loaded_model_serve(&own, &err) == STATUS_OK) return EXIT_STATUS_OK;
    return command_fail(command, &err, EXIT_STATUS_FAILURE);
}

void node_dismiss_others(const struct engine_options *o)
{
    struct error ignored; /* whoever does not come gives up without being told */
    if (o->nnodes > 1) loaded_model_dismiss_nodes(o, &ignored);
}
