/* What the answers in a file are answers to: a JSON object in OUTPUT.quire beside the output OUTPUT, written whole
 * before the first answer. A run that finds both goes on where the earlier one ended, if all that answers follow from
 * is the same.
 *
 *   {"quire": "1.0", "input": HASH, "input_sizes": [BYTES, ...], "model": HASH, "parameters": {"--temperature": 0.5,
 * ...}, "num_prompts": 2000, "shard": "1/4", "begin": 0, "end": 500, "ordered": false, "engine": {"max_model_len":
 * 4096, "dtype": "bfloat16"}}
 *
 * "begin" and "end" are the indices of the shard, [begin, end). What changes the speed only, such as the number of
 * threads or of sequences in a step, is not in it. */
#ifndef QUIRE_RUNTIME_JOURNAL_H
#define QUIRE_RUNTIME_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/fingerprint.h"
#include "runtime/options/sampling_flags.h"

#define JOURNAL_SUFFIX ".quire"
#define JOURNAL_MAX_NAME 4080 /* bytes of an output's name: there is room for every suffix */

struct journal {
    struct fingerprint input, model;
    json_t *input_sizes; /* of its files, in bytes; owned; NULL: not known */
    json_t *parameters;  /* an object: flag -> value; owned */
    int64_t num_prompts; /* of the whole input */
    int64_t begin, end;  /* of the shard; 0 and num_prompts without one */
    char shard[32];      /* "I/N" */
    bool ordered;
    int32_t max_model_len; /* of the engine, which may have chosen it; 0: the engine is not there yet */
    char dtype[16];
    char version[32]; /* of quire */
    bool no_memory;   /* a parameter could not be added */
};

/* An empty one of this version of quire. False: memory ran out. Free it with journal_free. */
bool journal_init(struct journal *j);
void journal_free(struct journal *j); /* safe on a zeroed struct */

/* Adds a parameter. What is not given (NULL, false) is not written. Memory that runs out shows in journal_write. */
void journal_put_string(struct journal *j, const char *flag, const char *value); /* NULL: not given */
void journal_put_integer(struct journal *j, const char *flag, int64_t value);
void journal_put_switch(struct journal *j, const char *flag, bool value);
void journal_put_sampling(struct journal *j, const struct sampling_flags *flags); /* those that were given */

/* Reads OUTPUT.quire. *found is false, and *out zeroed, if there is none. INVALID: it is no journal. */
enum status journal_read(const char *output, struct journal *out, bool *found, struct error *err);
/* Writes it, by a rename of a file that is on the disk. */
enum status journal_write(const struct journal *j, const char *output, struct error *err);
void journal_remove(const char *output); /* absent is fine */

/* Whether a run of `now` may go on with what `before` began. INVALID: it may not; the sentence says what differs. The
 * engine's facts are compared where both have them. */
enum status journal_compare(const struct journal *before, const struct journal *now, const char *output,
                            struct error *err);

/* Whether both are of one run, but for their shards and orders. */
bool journal_same_answers(const struct journal *a, const struct journal *b);

#endif
