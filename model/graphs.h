/* Decode steps captured as graphs at start-up, so that a step costs one launch. A batch that is smaller than a captured
 * one is padded with sequences that store nothing and attend to nothing.
 *
 * A head's graphs of decodes without drafts read its own states, those of steps with drafts the target's. */
#ifndef QUIRE_MODEL_GRAPHS_H
#define QUIRE_MODEL_GRAPHS_H

#include "model/decoder.h"

#define DECODE_MAX_GRAPHS 64

struct decode_graph {
    int32_t num_seqs; /* entries */
    backend_graph graph;
};

/* Zero-initialise it. */
struct decode_graphs {
    struct decode_graph graphs[DECODE_MAX_GRAPHS]; /* [count] by num_seqs, ascending */
    int32_t count;
};

/* Captures graphs of up to limits->max_num_seqs decodes without drafts. The cache must have been allocated, and must
 * stay. */
enum status decode_graphs_capture(struct decode_graphs *g, const struct decoder *d, const struct batch_limits *limits,
                                  struct error *err);
/* The same for steps with drafts, of as many entries as drafts are worth while for. */
enum status draft_graphs_capture(struct decode_graphs *g, const struct decoder *d, const struct batch_limits *limits,
                                 struct error *err);
/* The smallest graph for so many entries, all of which are sampled from, without swaps; NULL if there is none. */
const struct decode_graph *decode_graphs_find(const struct decode_graphs *g, int32_t num_decodes);
void decode_graphs_destroy(struct decode_graphs *g, struct backend *b);

#endif
