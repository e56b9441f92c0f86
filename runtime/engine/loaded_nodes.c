#include "runtime/engine/loaded_nodes.h"

#include <string.h>

#include "base/array.h"
#include "kernels/group_failure.h"
#include "model/nodes/nodes.h"
#include "model/nodes/serve.h"
#include "runtime/engine/loaded_ranks.h"

/* What is not combined with several nodes is refused. */
static enum status check(const struct engine_options *o, struct error *err)
{
    if (o->node_rank >= o->nnodes)
        return error_set(err, STATUS_INVALID, "node_rank is %d, but there are %d nodes: 0 to %d", o->node_rank,
                         o->nnodes, o->nnodes - 1);
    if (o->pipeline_parallel_size > 1)
        return error_set(err, STATUS_UNSUPPORTED,
                         "nnodes is %d, which quire does not combine with pipeline_parallel_size", o->nnodes);
    if (o->tensor_parallel_size % o->nnodes != 0)
        return error_set(err, STATUS_INVALID, "tensor_parallel_size is %d, which %d nodes cannot share equally",
                         o->tensor_parallel_size, o->nnodes);
    if (o->data_parallel_size > 1)
        return error_set(err, STATUS_UNSUPPORTED, "nnodes is %d, which quire does not combine with data_parallel_size",
                         o->nnodes);
    return STATUS_OK;
}

/* What answers follow from, and is read or made by each node. */
static bool append_facts(const struct engine_options *o, struct text *out)
{
    const bool dummy = o->load_format == LOAD_FORMAT_DUMMY;
    const struct speculative_config *s = &o->speculative;
    return text_append_string(out, o->node_facts) &&
           text_printf(out, "quantization: %s\n", o->quantization ? o->quantization : "none") &&
           text_printf(out, "load_format: %s\n", dummy ? "dummy" : "auto") &&
           text_printf(out, "seed: %llu\n", dummy ? (unsigned long long)o->seed : 0) &&
           text_printf(out, "enable_expert_parallel: %s\n", o->enable_expert_parallel ? "true" : "false") &&
           text_printf(out, "speculative method: %d\n", (int)s->method) &&
           text_printf(out, "num_speculative_tokens: %d\n", s->num_speculative_tokens);
}

enum status loaded_nodes_open(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct text facts = {0};
    if (o->nnodes <= 1 || l->nodes) return STATUS_OK;
    enum status status = check(o, err);
    if (status != STATUS_OK) return status;
    if (!append_facts(o, &facts)) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    const struct nodes_options options = {.node = o->node_rank,
                                          .num_nodes = o->nnodes,
                                          .num_ranks = o->tensor_parallel_size,
                                          .address = o->master_addr,
                                          .port = o->master_port,
                                          .timeout = o->distributed_timeout_seconds,
                                          .facts = facts.data};
    log_write(o->log, LOG_INFO, "node %d of %d: the nodes meet at port %d of %s", o->node_rank, o->nnodes,
              o->master_port, o->master_addr);
    status = nodes_open(&options, &l->nodes, err);
    text_free(&facts);
    return status;
}

enum status loaded_nodes_serve(struct loaded_model *l, struct error *err)
{
    struct model_rank ranks[COLLECTIVE_MAX_RANKS], drafter_ranks[COLLECTIVE_MAX_RANKS];
    loaded_ranks_list(l, ranks, drafter_ranks);
    return nodes_serve(l->nodes, ranks, l->draft.is_open ? drafter_ranks : NULL, l->num_ranks, err);
}

void loaded_nodes_close(struct loaded_model *l, enum status status, const struct error *why)
{
    struct error sentence;
    if (!l->nodes) return;
    const int32_t node = nodes_group(l->nodes).node;
    if (status != STATUS_OK) {
        const bool named = strncmp(why->text, "node ", 5) == 0; /* it came from there */
        if (named)
            sentence = *why;
        else
            error_set(&sentence, status, "node %d: %s", node, why->text);
        group_fail(nodes_failure(l->nodes), status, sentence.text);
    }
    nodes_close(l->nodes);
    l->nodes = NULL;
}
