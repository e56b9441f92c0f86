/* The engine: everything that answers requests, behind a dozen functions. Its step() is the one loop that chat,
 * generate, profile and bench run in: schedule -> forward -> sample -> deliver.
 *
 * Threads: engine_add and engine_abort may be called from any thread, engine_step and the rest from one. Answers are
 * delivered by callback from inside engine_step.
 */
#ifndef QUIRE_RUNTIME_ENGINE_H
#define QUIRE_RUNTIME_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "model/config.h"
#include "model/memory_profile.h"
#include "scheduler/sampling_params.h"
#include "scheduler/scheduler.h"
#include "tokenizer/tokenizer.h"

enum load_format { LOAD_FORMAT_AUTO, LOAD_FORMAT_DUMMY }; /* dummy: random weights, only config.json is read */

/* vLLM's names and meanings. engine_options_default() gives the defaults. */
struct engine_options {
    const char *model;          /* checkpoint folder */
    const char *device;         /* "auto", "cpu", "cuda", "cuda:N" */
    const char *dtype;          /* "auto", "float32", "float16", "bfloat16": activations. auto: float32 on the CPU */
    const char *kv_cache_dtype; /* "auto": as dtype */
    enum load_format load_format;
    int32_t block_size;              /* 16 */
    int32_t max_model_len;           /* 0: the model's, or the largest that fits */
    int32_t max_num_seqs;            /* 256 */
    int32_t max_num_batched_tokens;  /* 8192 */
    double gpu_memory_utilization;   /* 0.9; of a GPU */
    double kv_cache_space;           /* GiB, on the CPU; 0: the lesser of 4 and a quarter of what is free */
    int32_t num_gpu_blocks_override; /* 0: computed */
    double swap_space;               /* GiB of host memory for preempted requests, taken as it is needed; 4 */
    bool enable_prefix_caching, enable_chunked_prefill; /* both true */
    enum preemption_mode preemption_mode;               /* auto */
    bool enforce_eager;                                 /* no CUDA graphs */
    int async_scheduling;  /* 1: schedule a step while the last one runs; 0: not; -1: where the device is not the CPU */
    bool skip_tokenizer;   /* no tokenizer is opened: prompts are ids, answers have no text */
    int threads;           /* 0: all allowed processors */
    uint64_t seed;         /* of sampling where a request has none, and of dummy weights */
    const struct log *log; /* may be NULL */
};
struct engine_options engine_options_default(void);

struct engine;

enum status engine_create(const struct engine_options *options, struct engine **out, struct error *err);
void engine_destroy(struct engine *e); /* NULL is allowed; unfinished requests end without a word */
/* engine_destroy where the process ends next: a GPU's memory is left to the driver, which gives it back then anyway. */
void engine_leave(struct engine *e);

/* One piece of one answer. Pointers are valid during the callback only. */
struct answer_piece {
    uint64_t request;
    int32_t index;            /* which of the n answers */
    const int32_t *token_ids; /* [num_tokens] new since the last piece: 0 or 1 */
    int32_t num_tokens;
    const char
        *text; /* [text_length] new text: whole UTF-8 characters, never part of a stop string; "" without tokenizer */
    size_t text_length;
    /* Of the new token, where the request asked for logprobs (num_logprobs >= 0); else NULL. */
    const float *logprob;
    const int32_t *rank;
    const int32_t *top_ids;    /* [num_top] */
    const float *top_logprobs; /* [num_top] */
    int32_t num_top;
    enum finish_reason finish_reason;                    /* other than FINISH_NONE: the answer's last piece */
    const char *stop_reason;                             /* the stop string that ended it, or NULL */
    int32_t stop_token;                                  /* the stop token id that ended it, or -1 (also for eos) */
    const char *error;                                   /* with FINISH_ERROR: the sentence */
    int32_t prompt_tokens, cached_tokens, output_tokens; /* counts so far */
    bool request_finished;                               /* no more pieces of any of its answers will come */
};
typedef void answer_function(void *user, const struct answer_piece *piece);

/* Queues a prompt of token ids (copied). Refuses what can be known at once: no tokens, a token out of the vocabulary, a
 * prompt that leaves no room for one token in max_model_len, params out of range. *request gets an id > 0. */
enum status engine_add(struct engine *e, const int32_t *prompt, int32_t prompt_len,
                       const struct sampling_params *params, answer_function *deliver, void *user, uint64_t *request,
                       struct error *err);
/* As engine_add; at_start says that the answer begins a text (a chat answer), so that the space which the tokenizer
 * puts before a first word is left out of it. */
enum status engine_add_chat(struct engine *e, const int32_t *prompt, int32_t prompt_len,
                            const struct sampling_params *params, answer_function *deliver, void *user,
                            uint64_t *request, struct error *err);
/* Ends a request; its unfinished answers get a last piece with FINISH_ABORT. Unknown ids are ignored. */
void engine_abort(struct engine *e, uint64_t request);

/* Runs one step and delivers what it brought. *worked is false when there was nothing to do. */
enum status engine_step(struct engine *e, bool *worked, struct error *err);
bool engine_has_work(struct engine *e);

const struct tokenizer *engine_tokenizer(const struct engine *e); /* NULL with skip_tokenizer */
const struct model_config *engine_model_config(const struct engine *e);
const struct memory_profile *engine_memory_profile(const struct engine *e);
const struct batch_limits *engine_limits(const struct engine *e);
const char *engine_device(const struct engine *e);
int engine_threads(const struct engine *e);
double engine_start_seconds(const struct engine *e); /* engine_create's duration */
void engine_stats(struct engine *e, struct scheduler_stats *stats);
void engine_reset_prefix_cache(struct engine *e); /* with nothing running */

/* Sampling defaults for this model: sampling_params_default() overridden by its generation_config.json, as vLLM does;
 * max_tokens is left alone. */
void engine_default_sampling(const struct engine *e, struct sampling_params *params);

#endif
