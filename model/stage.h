/* Pipeline parallelism (Huang et al., 2019): the layers of a model in ranges, *stages*, each on a device of its own or,
 * with ranks (shard.h), on several. The first stage has the embedding, the last one the final norm and lm_head, so
 * where these are tied both have the matrix. A stage gets the residual stream of all tokens from the one before it. */
#ifndef QUIRE_MODEL_STAGE_H
#define QUIRE_MODEL_STAGE_H

#include "model/model_spec.h"

/* *out = one of num_stages stages of a whole model, with out->all_stages = all, which must outlive it. One stage: *out
 * is a copy of *all. Stages have weights of about as many bytes, and at least one layer each. UNSUPPORTED, with a
 * sentence: there are too few layers, or layers read what layers of other stages keep. A stage may then be shared
 * between ranks: model_spec_shard takes it for the whole model. */
enum status model_spec_stage(const struct model_spec *all, int32_t stage, int32_t num_stages, struct model_spec *out,
                             struct error *err);

/* The whole model of a stage, or of a rank's part of one: sizes are not the rank's. */
static inline const struct model_spec *model_spec_all_stages(const struct model_spec *spec)
{
    return spec->all_stages ? spec->all_stages : model_spec_whole(spec);
}

static inline bool stage_is_first(const struct model_spec *spec)
{
    return spec->stage == 0;
}

static inline bool stage_is_last(const struct model_spec *spec)
{
    return spec->stage == spec->num_stages - 1 || spec->num_stages <= 1;
}

/* Ranks of a stage; and the number of a rank among those of all stages: first come those of the first one. */
static inline int32_t stage_num_ranks(const struct model_spec *spec)
{
    return spec->num_ranks > 1 ? spec->num_ranks : 1;
}

static inline int32_t stage_rank(const struct model_spec *spec)
{
    return spec->stage * stage_num_ranks(spec) + spec->rank;
}

#endif
