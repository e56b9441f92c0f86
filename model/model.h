/* A model on a device: its memory, and its steps: a forward pass over a struct batch, then sampling.
 *
 * model_submit() puts a step on the device and returns; model_collect() waits for the oldest one. At most
 * model_options.max_in_flight are in flight. Everything is allocated by model_create, model_allocate_cache and
 * model_grow_swap_space; a step allocates nothing.
 *
 * A step whose samples may not be any id is submitted in two parts, model_forward() and model_sample(): what the
 * samples may be often follows from those of the step before, which is collected in between, while the device computes.
 *
 * A drafter is a second, smaller model that guesses what its target draws next (Leviathan et al., 2023). Both are on
 * one backend, or on those of the same ranks, and the drafter uses the target's block tables and sampling state: the
 * same block numbers, in cache tensors of its own, and the same random numbers, so that it draws what the target draws
 * wherever their logits agree.
 *
 * A head is a drafter that reads hidden states of its target (struct head_spec). Of each step the target keeps them for
 * all tokens of the batch, until its next step; batch.state_rows says which of them a token of the head reads.
 *
 * This is all that other folders know of a model. What it is made of is in model_state.h.
 */
#ifndef QUIRE_MODEL_MODEL_H
#define QUIRE_MODEL_MODEL_H

#include <signal.h>

#include "base/batch.h"
#include "kernels/backend.h"
#include "model/arena.h"
#include "model/model_spec.h"
#include "model/weights.h"

#define MODEL_MAX_STEPS 8 /* in flight */

struct model_options {
    struct batch_limits limits; /* those of the target, for a drafter */
    int32_t max_in_flight;      /* steps: 1 .. MODEL_MAX_STEPS; 0: 2 */
    bool is_drafter;            /* model_attach gives it the target's state. It finds no log-probabilities, and the
                                     entries of a run need not follow one another */
    int32_t num_passes;         /* of a drafter, for each step of this model, whose drafts it takes; 0: it has none */
    /* Of a model with a drafter, which uses its workspace and, if it is a head, its states. NULL: it has none */
    const struct model_spec *drafter_spec;
    const struct model_weights *drafter_weights;
    enum dtype dtype;             /* of activations */
    enum dtype cache_dtype;       /* of the KV cache */
    int32_t num_ids;              /* only ids 0 .. num_ids - 1 are sampled, at most vocab_size; 0: vocab_size */
    bool masks;                   /* model_masks() works: it is one process' model, and no drafter */
    bool keep_logits;             /* model_logits() works; for tests */
    bool copy_weights;            /* the device has memory of its own: weights are copied to it, projections merged */
    bool enforce_eager;           /* no graphs */
    struct backend *host_backend; /* the CPU's, where weights->host_expert_layers is above 0 and weights are copied;
                                     else not used. NULL in a plan: its workspace is not counted */
    struct nodes *nodes; /* the processes that have ranks of it, too (model/nodes/nodes.h); NULL: this one has all */
    const volatile sig_atomic_t *cancel; /* not 0: a step without graphs ends between two operations; NULL: none does */
};

struct model;

/* Bytes of experts: those that model_plan counts among the weights, and those that stay on the host; of the latter,
 * what a token reads. */
struct model_expert_bytes {
    int64_t counted, on_host, token_on_host;
};
struct model_expert_bytes model_expert_bytes(const struct model_spec *spec, const struct model_weights *weights,
                                             const struct model_options *options);

/* What model_create would allocate for each purpose, bytes[NUM_PURPOSES]; nothing is allocated or read. */
enum status model_plan(struct backend *backend, const struct model_spec *spec, const struct model_weights *weights,
                       const struct model_options *options, int64_t *bytes, struct error *err);
/* Allocates everything but the KV cache, and packs weights that are used on the host. The weights must outlive the
 * model; but with copy_weights, where threads start to upload them, and without experts that stay on the host, only
 * until model_wait_for_weights returns. The spec must outlive the model. */
enum status model_create(struct backend *backend, const struct model_spec *spec, struct model_weights *weights,
                         const struct model_options *options, struct model **out, struct error *err);
/* A model of several ranks (model/shard.h): each has a device, a spec and weights of its own. */
struct model_rank {
    struct backend *backend;
    const struct model_spec *spec; /* model_spec_shard */
    struct model_weights *weights;
    /* What the rank has of the model's drafter, in place of model_options'; NULL: the model has none. */
    const struct model_spec *drafter_spec;
    const struct model_weights *drafter_weights;
};
/* model_create of ranks [num_ranks], with options->nodes those of this process, whose backends become a group; a
 * drafter's are those of its target, which was created before. All other functions take such a model as any other: what
 * they allocate and compute, they do on all ranks, and samples are rank 0's. */
enum status model_create_ranks(const struct model_rank *ranks, int32_t num_ranks, const struct model_options *options,
                               struct model **out, struct error *err);
/* Allocates the cache tensors for blocks 0 (the null block) .. num_blocks. */
enum status model_allocate_cache(struct model *m, int32_t num_blocks, struct error *err);
/* Allocates host memory for *added more blocks (swap_space_grow). */
enum status model_grow_swap_space(struct model *m, int32_t limit, int32_t *added, struct error *err);
/* The same for *added more host slots, of states. */
enum status model_grow_host_slots(struct model *m, int32_t limit, int32_t *added, struct error *err);
/* Runs a decode and a prefill that store nothing, so that the device loads now what it loads on first use. Call it
 * before model_allocate_cache. */
enum status model_warm_up(struct model *m, struct error *err);
/* Until it is called with false, steps compute nothing but what the device does itself: the host's experts are left
 * out, and ranks do nothing together. model_warm_up calls it. */
void model_set_idle(struct model *m, bool idle);
/* Frees the cache tensors. */
void model_release_cache(struct model *m);
/* Captures the graphs of decode steps, if the backend has graphs. Call it after model_allocate_cache. */
enum status model_capture(struct model *m, struct error *err);
/* Waits until the weights are on the device. Call it before the first step; warming up and capturing need no weights.
 */
enum status model_wait_for_weights(struct model *m, struct error *err);
void model_destroy(struct model *m); /* NULL is allowed; a drafter before its target */

/* Connects a drafter with its target, right after both were created. */
void model_attach(struct model *drafter, const struct model *target);
/* Makes the tokens that the drafter's last submitted step draws known to the target: batch_device_draft of this pass
 * names them. */
void model_take_drafts(struct model *target, int32_t pass, const struct model *drafter, int32_t num_samples);

/* Sets the sampling state and the tokens so far, [num_tokens], of a sequence that has taken this state index. Call it
 * before the first submit of a batch that names the state index. */
void model_set_sampling_state(struct model *m, int32_t state_index, const struct sampling_state *state,
                              const int32_t *tokens, int32_t num_tokens);

/* Puts one step on the device: block moves, forward pass, sampling, copy of the results to the host. The batch may be
 * reused when this returns. CANCELLED: the step ended early, as options.cancel asked, and is not in flight; its block
 * moves are made, but what K and V it wrote is not known. */
enum status model_submit(struct model *m, const struct batch *batch, struct error *err);

/* model_submit in two parts. After model_forward the step is in flight, but draws nothing before model_sample of the
 * same batch; until then the calls that may come are model_collect, of earlier steps, and model_masks. Only with
 * options.masks. */
enum status model_forward(struct model *m, const struct batch *batch, struct error *err);
/* What the samples of a step may be, in memory of the model: the caller writes it. */
struct sample_masks {
    uint32_t *words; /* [batch_max_entries, num_words] masks, as struct sample_args has them */
    int32_t num_words;
    int32_t *rows; /* [num_samples] of each sample its row of words; -1: it may be any id */
};
/* For the step that model_forward has submitted. Unless the model has stages, all earlier steps that had masks must be
 * collected by then. */
struct sample_masks model_masks(struct model *m);
/* num_rows: how many rows of words are used; 0: all samples may be any id. */
enum status model_sample(struct model *m, const struct batch *batch, int32_t num_rows, struct error *err);

/* Waits for the oldest submitted step. */
enum status model_collect(struct model *m, struct sample_output *out, struct error *err);
/* With keep_logits: the raw logits of the last collected step, [num_samples, vocab_size] on the device. */
const float *model_logits(const struct model *m);

/* Bytes of weights that a decode step reads in all ranks: all of them, but of the embedding only a few rows, which are
 * not counted, unless it is the output matrix, too. */
int64_t model_decode_weight_bytes(const struct model *m);

/* Host memory of one purpose. */
struct model_residence {
    int64_t reserved; /* bytes */
    int64_t resident; /* bytes of those that are in memory now; -1: the system does not tell */
};
/* Fills what a model on the CPU holds in all ranks, where staging is a part of the state. Call it between steps. */
void model_residence(const struct model *m, struct model_residence out[NUM_PURPOSES]);

#endif
