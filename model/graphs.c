#include "model/graphs.h"

enum { MOST_DRAFT_ENTRIES = 128 }; /* of a graph of a step with drafts */

/* Few sizes, because capturing one takes about ten milliseconds of the start-up. Padding up to the next size costs
 * little, because matmul kernels work on tiles of as many tokens. */
static int32_t next_size(int32_t num_seqs)
{
    if (num_seqs < 16) return num_seqs * 2;
    if (num_seqs < 64) return num_seqs + 16;
    return num_seqs < 256 ? num_seqs + 32 : num_seqs + 64;
}

/* The contents of the inputs do not matter for what is captured. The bound on the context length does, and must hold
 * for every later step. */
static enum status capture(const struct decoder *d, int32_t num_seqs, int32_t num_drafts, int32_t max_seq_len,
                           backend_graph *out, struct error *err)
{
    struct backend *b = d->backend;
    const bool is_head = d->spec->head.kind != HEAD_NONE;
    const struct step_shape shape = {.num_tokens = num_seqs,
                                     .num_seqs = num_seqs,
                                     .num_decodes = num_seqs,
                                     .num_drafts = num_drafts,
                                     .num_samples = num_seqs,
                                     .max_query_len = 1,
                                     .max_seq_len = max_seq_len,
                                     .all_sampled = true,
                                     .target_states = is_head && num_drafts > 0,
                                     .own_states = is_head && num_drafts == 0};
    enum status status = b->capture_begin(b, err);
    if (status != STATUS_OK) return status;
    decoder_forward(d, &shape);
    return b->capture_end(b, out, err);
}

/* Captures graphs of `smallest` to `largest` entries, of which num_drafts are drafts. */
static enum status capture_sizes(struct decode_graphs *g, const struct decoder *d, int32_t smallest, int32_t largest,
                                 int32_t num_drafts, int32_t max_seq_len, struct error *err)
{
    for (int32_t size = smallest; g->count < DECODE_MAX_GRAPHS; size = next_size(size)) {
        struct decode_graph *graph = &g->graphs[g->count];
        graph->num_seqs = size < largest ? size : largest;
        enum status status = capture(d, graph->num_seqs, num_drafts, max_seq_len, &graph->graph, err);
        if (status != STATUS_OK) return status;
        g->count++;
        if (graph->num_seqs == largest) break;
    }
    return STATUS_OK;
}

enum status decode_graphs_capture(struct decode_graphs *g, const struct decoder *d, const struct batch_limits *limits,
                                  struct error *err)
{
    return capture_sizes(g, d, 1, limits->max_num_seqs, 0, limits->max_model_len, err);
}

/* A run has two entries at least. */
enum status draft_graphs_capture(struct decode_graphs *g, const struct decoder *d, const struct batch_limits *limits,
                                 struct error *err)
{
    int32_t largest = batch_max_entries(limits);
    if (largest > limits->max_num_tokens) largest = limits->max_num_tokens;
    if (largest > MOST_DRAFT_ENTRIES) largest = MOST_DRAFT_ENTRIES;
    return largest < 2 ? STATUS_OK : capture_sizes(g, d, 2, largest, 1, limits->max_model_len, err);
}

const struct decode_graph *decode_graphs_find(const struct decode_graphs *g, int32_t num_decodes)
{
    for (int32_t i = 0; i < g->count; i++)
        if (g->graphs[i].num_seqs >= num_decodes) return &g->graphs[i];
    return NULL;
}

void decode_graphs_destroy(struct decode_graphs *g, struct backend *b)
{
    for (int32_t i = 0; i < g->count; i++) b->graph_destroy(b, g->graphs[i].graph);
    *g = (struct decode_graphs){0};
}
