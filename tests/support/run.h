/* Runs prompts through an engine and keeps what came, so that two ways of running can be compared. */
#ifndef QUIRE_TESTS_SUPPORT_RUN_H
#define QUIRE_TESTS_SUPPORT_RUN_H

#include "base/array.h"
#include "kernels/cpu/cpu.h"
#include "runtime/engine/engine.h"

struct run_answer {
    int32_t *tokens; /* [count] */
    float *gaps;     /* [count] logprob of the best token minus that of the second */
    int32_t count, capacity;
    struct text text;
    enum finish_reason finish;
    char error[5120], stop_reason[64];
    int32_t prompt_tokens, cached_tokens, output_tokens, stop_token;
    double score;
    int pieces_after_end;
};

struct run {
    struct run_answer *answers; /* [num_prompts * n]: answer j of prompt i is i * n + j */
    int32_t num_prompts, n;
};

struct run_prompt {
    const int32_t *ids;
    int32_t length;
};

/* Engines of this test program are made on `device` from now on ("cpu" at first). Where it cannot be opened,
 * run_options skips the test that called it, and says so. */
void run_set_device(const char *device);
const char *run_need_device(void); /* its name; skips the test where it cannot be opened */
/* How many ranks may share a model there: of GPUs one each. Skips the test where there are fewer than two. */
int32_t run_max_ranks(void);
/* The device of a rank other than the first: a GPU of its own, or a thread of the CPU. */
struct backend *run_rank_device(const struct backend *first, int32_t rank);

/* Whether kernels of an instruction set are tested: of each that this processor has; under ThreadSanitizer only of the
 * widest, because threads do the same for each and tests take ten times as long. */
bool run_has_isa(enum cpu_isa isa);

/* Options for a test: `folder` is "golden/NAME" of the test data, or a path; token ids only, float32, little memory. */
struct engine_options run_options(const char *folder, char *path, size_t size);

/* Creates an engine or fails the test. */
struct engine *run_engine(const struct engine_options *options);

/* A way to run the same requests: how they share steps and memory. num_blocks 0: as many as fit. */
struct run_variant {
    const char *name;
    int32_t block_size, max_num_seqs, max_num_batched_tokens, num_blocks;
    bool caching;
    int async;
    enum preemption_mode preemption_mode;
};
/* run_options of this folder with those of the variant, and run_engine with them. */
struct engine_options run_variant_options(const char *folder, int32_t max_model_len, const struct run_variant *v,
                                          char *path, size_t size);
struct engine *run_variant_engine(const char *folder, int32_t max_model_len, const struct run_variant *v);

/* A test that adds its requests itself uses these: open the answer, add each piece that belongs to it, check that it
 * ended once and has as many tokens as it says (fails the test), free it. */
void run_answer_open(struct run_answer *a, int32_t capacity);
void run_answer_add(struct run_answer *a, const struct answer_piece *piece);
void run_answer_check(const struct run_answer *a);
void run_answer_free(struct run_answer *a);

/* Adds all prompts at once with the same params, steps until all is done. Fails the test on any error but FINISH_ERROR.
 */
void run_prompts(struct engine *e, const struct run_prompt *prompts, int32_t num_prompts,
                 const struct sampling_params *params, struct run *out);
/* Runs each prompt with params of its own: params[num_prompts]; out->n is the largest n. */
void run_requests(struct engine *e, const struct run_prompt *prompts, int32_t num_prompts,
                  const struct sampling_params *params, struct run *out);
/* Requests of all kinds, so that two ways of computing a model can be compared: greedy, sampled with several answers,
 * with penalties, with log-probabilities of the prompt, and beams; from one to some forty tokens, two of which begin
 * alike. run_mixed makes an engine and runs them; *stats are the engine's at the end. */
enum { RUN_MIXED_LENGTH = 160 };
extern const struct run_variant run_plenty;
extern const struct run_variant run_scarce; /* two long answers do not fit, so that requests are preempted */
void run_mixed(const struct engine_options *options, struct run *run, struct scheduler_stats *stats);
/* Cancels the step after the first token of a request, three times with one engine: each time the request ends. */
void run_cancelled(const struct engine_options *options);
void run_free(struct run *run);

/* Deterministic prompts of the given lengths; free with run_prompts_free. */
struct run_prompt *run_random_prompts(const int32_t *lengths, int32_t count, int32_t vocab_size, uint64_t seed);
void run_prompts_free(struct run_prompt *prompts, int32_t count);

/* RUN_CUT: they differ at a step at which the reference's best two logits are so close that rounding may change which
 * is larger. *at gets the first token that differs. */
enum run_match { RUN_SAME, RUN_CUT, RUN_DIFFERENT };
enum run_match run_answer_match(const struct run_answer *reference, const struct run_answer *other, int32_t *at);

/* Fails the test if an answer is RUN_DIFFERENT. Returns how many were cut. */
int run_assert_same(const struct run *reference, const struct run *other, const char *what);

#endif
