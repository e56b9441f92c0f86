/* The engine answers requests. engine_step is the one loop that chat, generate, profile and bench run in: schedule,
 * forward, sample, deliver.
 *
 * Threads. One thread runs the loop: engine_step, engine_num_computed, engine_wait, engine_residence and
 * engine_reset_prefix_cache are its calls, and answers are delivered on it, by callback from inside engine_step. Every
 * other function may be called from any thread, also from a callback, while the engine lives; engine_destroy must be
 * the last call.
 */
#ifndef QUIRE_RUNTIME_ENGINE_H
#define QUIRE_RUNTIME_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/config.h"
#include "model/memory_profile.h"
#include "runtime/engine/engine_options.h"
#include "scheduler/sampling_params.h"
#include "scheduler/scheduler.h"
#include "tokenizer/tokenizer.h"

struct constraint;
struct engine;
struct grammars;
struct loaded_model;
struct model_residence;
struct model_weights;

/* Loads the model and allocates everything that the engine will need. */
enum status engine_create(const struct engine_options *options, struct engine **out, struct error *err);
/* NULL is allowed. Unfinished requests get no further piece. */
void engine_destroy(struct engine *e);
/* For a process that exits next: as engine_destroy, but leaves a GPU's memory to the driver, which frees it faster. */
void engine_leave(struct engine *e);

/* ---- requests ---- */

/* One piece of one answer. Pointers are valid during the callback only. The answers of a beam search and of best_of
 * come when all have ended, the best as answer 0. */
struct answer_piece {
    uint64_t request;
    int32_t index;            /* which of the n answers */
    const int32_t *token_ids; /* [num_tokens] new since the last piece: 0 or 1 */
    int32_t num_tokens;
    const char *text;   /* [text_length] new text: whole UTF-8 characters, never a part of a stop string that may still
                           be completed; "" without a tokenizer */
    size_t text_length; /* bytes */
    /* What is known of the new token, where the request asked for logprobs (logprobs >= 0); else NULL. */
    const float *logprob;
    const int32_t *rank;
    const int32_t *top_ids;    /* [num_top] */
    const float *top_logprobs; /* [num_top] */
    int32_t num_top;
    /* With the first token of answer 0, where the request asked for prompt_logprobs; else NULL. */
    const struct prompt_logprobs *prompt_logprobs;
    const int32_t *prompt_ids;        /* [prompt_tokens] with prompt_logprobs */
    enum finish_reason finish_reason; /* other than FINISH_NONE: this is the answer's last piece */
    const char *stop_reason;          /* the stop string that ended the answer, or NULL */
    int32_t stop_token;               /* the stop token id that ended it, or -1 (also for end of sequence) */
    const struct error *error;        /* why, with FINISH_ERROR; else NULL */
    int32_t prompt_tokens, cached_tokens, output_tokens; /* counts so far */
    const double *score;   /* of an answer's last piece, where answers are ranked (late_answers.h); else NULL */
    bool request_finished; /* no further piece of any of the request's answers follows */
};
typedef void answer_function(void *user, const struct answer_piece *piece);

/* A prompt, how to answer it, and where the answers go. */
struct engine_request {
    const int32_t *prompt; /* [prompt_len] token ids; copied */
    int32_t prompt_len;
    int32_t num_lasting; /* tokens of the prompt with which the next prompt of the conversation begins, whatever becomes
                            of the others: there the states of recurrent layers are kept for it; 0: unknown */
    const struct sampling_params *params; /* copied */
    const char *cache_salt; /* K and V are shared through the prefix cache only among requests of the same salt; NULL:
                               none; copied */
    int32_t priority;       /* smaller is earlier, with SCHEDULING_PRIORITY; else it must be 0 */
    bool at_start; /* the answer begins a text, as a chat answer does: the space that the tokenizer puts before a first
                      word is left out of it */
    struct constraint *constraint; /* what the answers' texts must be (tokenizer/grammar/matcher.h), made by the
                                      grammars of engine_info, those of any engine of a pool; NULL: any text. Kept */
    answer_function *deliver;
    void *user; /* for deliver */
};

/* Queues a request; *id (may be NULL) gets its number, which is never 0. Refuses what can be known at once: no tokens,
 * a token outside the vocabulary, a prompt that leaves no room for one token in max_model_len, params out of range, a
 * priority that would be ignored, a constraint that beams or several nodes cannot have. */
enum status engine_add(struct engine *e, const struct engine_request *request, uint64_t *id, struct error *err);
/* What engine_add refuses of a request, before it is added. */
enum status engine_check(const struct engine *e, const struct engine_request *request, struct error *err);
/* Ends a request at the next step: each unfinished answer gets a last piece with FINISH_ABORT. The id of a request that
 * is finished, aborted already or unknown is ignored. O(1), and takes no memory. */
void engine_abort(struct engine *e, uint64_t id);

/* ---- the loop ---- */

/* Runs one step and delivers its tokens. *worked is false if there was nothing to do. An error ends the engine:
 * answers that are unfinished then get no further piece, and only engine_destroy or engine_leave may follow. */
enum status engine_step(struct engine *e, bool *worked, struct error *err);
bool engine_has_work(struct engine *e); /* some request is not finished */
/* How far the prompt of a request is: tokens of its first answer whose K and V were found in the prefix cache, are
 * computed, or are in a step in flight. 0 if the request has not started, is finished or unknown. */
int32_t engine_num_computed(struct engine *e, uint64_t id);

/* Blocks until there is work (see engine_has_work) or engine_wake is called, so that a thread which serves requests of
 * other threads sleeps while there are none. A wake-up is kept until one wait has returned for it. */
void engine_wait(struct engine *e);
/* Makes engine_wait return. Not for signal handlers: it takes a lock. */
void engine_wake(struct engine *e);

/* ---- facts ---- */

/* What is known of an engine from engine_create to its end. Nothing of it changes. */
struct engine_info {
    /* the device */
    const char *device;             /* "cpu", "cuda:0" */
    const char *device_description; /* backend->description; NULL: nothing to say */
    bool discrete;                  /* it is a GPU: backend->discrete */
    int threads;                    /* of the CPU */
    const char *isa;                /* backend->isa; NULL on a GPU */
    /* the model */
    const struct model_config *config;
    const struct tokenizer *tokenizer; /* NULL with skip_tokenizer */
    /* Answers have the ids 0 .. num_ids - 1: those of the tokenizer, because checkpoints pad the model's vocabulary to
     * a round number; without a tokenizer all of the model's. An id below the tokenizer's size that is no token can be
     * sampled. */
    int32_t num_ids;
    struct grammars *grammars; /* they make constraints (grammars.h), which must be given back before the engine ends;
                                  NULL: there is no tokenizer */
    struct sampling_params default_sampling; /* sampling_params_default() with the values of generation_config.json over
                                                it, as vLLM does; without lists, so that it may be assigned */
    const struct model_config *draft_config; /* of a draft model or a head; NULL: there is none */
    const struct model_weights *draft_weights; /* likewise */
    const struct model_weights *weights; /* as the host has them, in files or memory: their table, files and sizes */
    int64_t decode_weight_bytes;         /* model_decode_weight_bytes */
    /* the plan */
    const struct memory_profile *memory;      /* of several ranks, that of the one with room for the fewest blocks */
    const struct memory_profile *rank_memory; /* [num_ranks] of each, with the name of its device */
    int32_t num_ranks;
    const struct batch_limits *limits;
    const struct loaded_model *loaded; /* for plan_again */
    const char *drafter;               /* its name; NULL: nothing drafts */
    double start_seconds;              /* how long engine_create took */
};
const struct engine_info *engine_info(const struct engine *e);

void engine_stats(struct engine *e, struct scheduler_stats *stats);
double engine_blocks_filled(struct engine *e);    /* scheduler_blocks_filled */
int64_t engine_blocks_unshared(struct engine *e); /* scheduler_blocks_unshared */
/* [NUM_PURPOSES] model_residence, on the CPU. A call of the loop's thread. */
void engine_residence(const struct engine *e, struct model_residence *out);
void engine_reset_prefix_cache(struct engine *e); /* only while no request is running */

#endif
