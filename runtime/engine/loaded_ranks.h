/* This process's ranks of a loaded model with tensor parallelism (model/shard.h), those of each stage of pipeline
 * parallelism (model/stage.h) after those of the stage before. The first one's device and weights are those of the
 * loaded_model. Private to runtime/engine/ and tests. */
#ifndef QUIRE_RUNTIME_LOADED_RANKS_H
#define QUIRE_RUNTIME_LOADED_RANKS_H

#include "runtime/engine/loaded_model_state.h"

struct loaded_rank {
    struct backend *backend; /* the first: the loaded_model's, as its weights */
    struct model_spec spec;
    struct model_weights weights;
};

/* What the model's first rank computes; without ranks the whole model. */
const struct model_spec *loaded_spec(const struct loaded_model *l);

/* How many ranks this process has, at least one, and what each of them has; they are counted from 0. */
int32_t loaded_num_ranks(const struct loaded_model *l);
struct backend *loaded_rank_backend(const struct loaded_model *l, int32_t rank);
const struct model_spec *loaded_rank_spec(const struct loaded_model *l, int32_t rank);
struct model_weights *loaded_rank_weights(struct loaded_model *l, int32_t rank);
struct memory_profile *loaded_rank_profile(struct loaded_model *l, int32_t rank);

/* What a rank of this process computes of the model, by l->config.spec and l->stages. */
enum status loaded_rank_share(const struct loaded_model *l, int32_t rank, struct model_spec *out, struct error *err);
/* Makes l->stages, if there are several. */
enum status loaded_stages_make(struct loaded_model *l, struct error *err);

/* The device of a rank of this node, counted from 0: "cuda:0,2" names each; "auto", "cuda" and "cuda:N" the first,
 * which the others follow; ranks on the CPU share its processors. INVALID: a list of another length. */
enum status loaded_rank_device(const struct engine_options *o, const struct backend *first, int32_t rank, char *device,
                               size_t size, struct error *err);

/* Threads of a CPU that a rank has. */
int loaded_rank_threads(const struct engine_options *o);

/* Where options ask for ranks: shares the model between them, and opens the devices of all but the first, which is
 * there. */
enum status loaded_ranks_open(const struct engine_options *o, struct loaded_model *l, struct error *err);
/* Opens the weights of all ranks but the first, as those were opened. */
enum status loaded_ranks_open_weights(const struct engine_options *o, struct loaded_model *l, struct error *err);
/* Finds out their sizes alone. */
enum status loaded_ranks_size_weights(struct loaded_model *l, struct error *err);
void loaded_ranks_close(struct loaded_model *l); /* after the model */

/* The ranks as model_create_ranks takes them, of the model and, if it has one, of its drafter. */
void loaded_ranks_list(struct loaded_model *l, struct model_rank *ranks, struct model_rank *drafter_ranks);
/* model_create of the ranks. */
enum status loaded_ranks_create(struct loaded_model *l, const struct model_options *options, struct error *err);

/* memory_info of a rank's device, or of one of another node that has less free. */
enum status loaded_rank_memory(const struct loaded_model *l, int32_t rank, int64_t *available, int64_t *total,
                               struct error *err);

#endif
