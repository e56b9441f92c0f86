/* Drafts of which a given share is accepted, to measure what speculation costs and gains whatever the weights say. All
 * samples are made to draw one token by a bias on its logit. The drafter proposes that token with the probability that
 * is asked for, and another one otherwise. So each draft is accepted with that probability if those before it are. */
#ifndef QUIRE_RUNTIME_BENCH_DRAFTS_H
#define QUIRE_RUNTIME_BENCH_DRAFTS_H

#include "base/random.h"
#include "runtime/engine/draft.h"

enum { SYNTHETIC_TOKEN = 1 }; /* what all samples draw */
#define SYNTHETIC_BIAS 100.0f /* of its logit, with temperature 0 */

struct synthetic_drafter {
    struct drafter drafter; /* for engine_options */
    double acceptance;
    struct random random;
};

#endif
