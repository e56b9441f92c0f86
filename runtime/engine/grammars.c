#include "runtime/engine/grammars.h"

#include <pthread.h>
#include <stdlib.h>

#include "runtime/engine/job.h"
#include "runtime/engine/loaded_model_state.h"
#include "runtime/engine/plan.h"

/* Of grammars that nobody uses any more, with their masks. */
enum { KEPT_BYTES = 256 << 20 };

struct grammars {
    const struct loaded_model *loaded;
    pthread_mutex_t lock;
    struct vocabulary *vocabulary; /* NULL: no grammar was wanted yet */
    struct structured_cache *cache;
};

enum status grammars_create(const struct loaded_model *l, struct grammars **out, struct error *err)
{
    struct grammars *g = calloc(1, sizeof *g);
    *out = g;
    if (!g) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    g->loaded = l;
    pthread_mutex_init(&g->lock, NULL);
    return STATUS_OK;
}

void grammars_free(struct grammars *g)
{
    if (!g) return;
    structured_cache_free(g->cache);
    vocabulary_free(g->vocabulary);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static void make(struct grammars *g)
{
    const struct token_table *tokens = tokenizer_tokens(g->loaded->tokenizer);
    int32_t stop_ids[JOB_MAX_EOS];
    const int32_t num_stop_ids = job_eos_ids(g->loaded, stop_ids);
    struct error ignored;
    if (!g->vocabulary && vocabulary_create(tokens, plan_num_ids(g->loaded), stop_ids, num_stop_ids, &g->vocabulary,
                                            &ignored) != STATUS_OK)
        return;
    structured_cache_create(g->vocabulary, KEPT_BYTES, &g->cache, &ignored);
}

struct structured_cache *grammars_cache(struct grammars *g)
{
    if (!g->loaded->tokenizer) return NULL;
    pthread_mutex_lock(&g->lock);
    if (!g->cache) make(g);
    struct structured_cache *cache = g->cache;
    pthread_mutex_unlock(&g->lock);
    return cache;
}
