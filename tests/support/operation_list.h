/* What a model checker does to a scheduler, as a list of small records. Each is printed as one line and read again, so
 * a list can be kept, replayed and made shorter:
 *
 *     config blocks=4 size=2 tokens=8 seqs=3 length=24
 *     add request=0 length=3 max=2
 *     schedule
 *     collect
 *
 * A parameter that is not named has its usual value. Every list is valid: an operation on a request that was never
 * added does nothing, and values out of range are clamped where they are used. */
#ifndef QUIRE_TESTS_SUPPORT_OPERATION_LIST_H
#define QUIRE_TESTS_SUPPORT_OPERATION_LIST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

enum operation_kind {
    OPERATION_CONFIG, /* the first of a list */
    OPERATION_ADD,
    OPERATION_ABORT,
    OPERATION_FINISH,   /* one sequence */
    OPERATION_SCHEDULE, /* and submit */
    OPERATION_COLLECT,
    OPERATION_BEAMS, /* scheduler_set_beams, where a request waits for it */
    OPERATION_RESET, /* of the prefix cache, where no sequence holds blocks */
    NUM_OPERATION_KINDS
};

/* Indices into operation.values, by kind. */
enum {
    CONFIG_BLOCKS,
    CONFIG_HOST,   /* blocks of swap space */
    CONFIG_SIZE,   /* tokens of a block */
    CONFIG_TOKENS, /* of a step */
    CONFIG_SEQS,   /* that run at once */
    CONFIG_LENGTH, /* max_model_len */
    CONFIG_GROUPS, /* KV cache groups */
    CONFIG_WINDOW, /* of the first group, and of the three after it; 0: full attention */
    CONFIG_CACHING = CONFIG_WINDOW + 4,
    CONFIG_CHUNKED,
    CONFIG_MODE,      /* enum preemption_mode */
    CONFIG_POLICY,    /* enum scheduling_policy */
    CONFIG_HASHES,    /* different hashes of the prefix cache; 0: its own hash */
    CONFIG_GROW,      /* host blocks that are added at a time; 0: all at once, without an allocation */
    CONFIG_FAILS,     /* the allocation of host blocks that fails, from 1; 0: none */
    CONFIG_NAMESPACE, /* first_namespace_len */
    CONFIG_WATERMARK, /* blocks that stay free; 0: the scheduler's own choice, which is none of less than 100 */
    CONFIG_SHIFT,     /* block_shifts of the first group, and of the three after it */
    CONFIG_CHUNKS = CONFIG_SHIFT + 4, /* bit i: the window of group i is a chunk */
    CONFIG_DRAFTS,                    /* max_num_drafts */
    CONFIG_STATES,     /* state slots beyond those that a scheduler needs, from 1; 0: no layer has a state */
    CONFIG_INTERVAL,   /* state_interval */
    CONFIG_HOST_SLOTS, /* for swapped states */
    CONFIG_BATCHES,    /* num_batches */
    NUM_CONFIG_VALUES
};
enum {
    ADD_REQUEST, /* the number by which later operations name it */
    ADD_LENGTH,  /* of the prompt */
    ADD_BASE,    /* the text that its first tokens are taken from */
    ADD_SHARED,  /* how many of them; the others are its own */
    ADD_N,
    ADD_MAX, /* max_tokens; 0: no limit */
    ADD_MIN, /* min_tokens */
    ADD_EOS, /* 1: it ends at the eos token; 2: and at two stop tokens */
    ADD_PRIORITY,
    ADD_SALT,  /* 0: none; the last two are long, and differ in their last byte */
    ADD_BEAMS, /* 1: beam search of n beams */
    ADD_SEED,
    ADD_LOGPROBS, /* 1 + prompt_logprobs; 0: none */
    ADD_STATE,    /* state_boundary */
    NUM_ADD_VALUES
};
enum { FINISH_REQUEST, FINISH_SEQUENCE, NUM_FINISH_VALUES };
enum {
    SCHEDULE_CANCEL, /* 1: the step is cancelled and writes nothing; more: it writes a part, chosen by this */
    SCHEDULE_DRAFTS, /* drafts that each sequence gets which may have some */
    SCHEDULE_RIGHT,  /* of these, how many are the tokens that will be drawn, before the first that is not */
    SCHEDULE_SPREAD, /* 0: all sequences get as many; otherwise each gets up to that, chosen by this */
    SCHEDULE_DEVICE, /* 1: the drafts are the device's, and known when the step is collected */
    NUM_SCHEDULE_VALUES
};
enum { COLLECT_DAMAGED }; /* the sample or target, from 1, whose logits are damaged; 0: none */
enum { BEAMS_REQUEST, BEAMS_CHOICE, NUM_BEAMS_VALUES };

#define OPERATION_MAX_VALUES NUM_CONFIG_VALUES

struct operation {
    enum operation_kind kind;
    int32_t values[OPERATION_MAX_VALUES];
};

struct operation_parameter {
    const char *name;
    int32_t usual; /* the smallest, too, that the shrinker tries */
};
/* The kind's parameters; *count gets their number. */
const struct operation_parameter *operation_parameters(enum operation_kind kind, int32_t *count);

/* All values are usual. */
struct operation operation_of(enum operation_kind kind);

void operation_print(const struct operation *operation, FILE *out);
/* Reads one line. False: it is none of an operation, and *err says why. */
bool operation_parse(const char *line, struct operation *out, struct error *err);

/* Whether a list still does what is looked for. */
typedef bool operation_test(const struct operation *list, int32_t count, void *user);
/* Makes a list shorter for which `fails` holds: drops runs of operations, then single ones, and then lowers values.
 * Returns the new length. */
int32_t operation_list_shrink(struct operation *list, int32_t count, operation_test *fails, void *user);

#endif
