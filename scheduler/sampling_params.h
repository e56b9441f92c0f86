/* How a request is sampled and when it ends. Names, ranges and defaults are those of vLLM's SamplingParams. */
#ifndef QUIRE_SCHEDULER_SAMPLING_PARAMS_H
#define QUIRE_SCHEDULER_SAMPLING_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define SAMPLING_PARAMS_MAX_BIAS 300
#define SAMPLING_PARAMS_MAX_STOP_IDS 64
#define SAMPLING_PARAMS_MAX_STOP 16        /* stop strings */
#define SAMPLING_PARAMS_MAX_STOP_BYTES 256 /* of one stop string */

struct logit_bias {
    int32_t token;
    float value; /* added to its logit */
};

/* When a beam search is over, once beam_width answers are finished: at once (true); when no beam of the present length
 * can beat the worst of them (false); or when no beam of any length can ("never"). */
enum early_stopping { EARLY_STOPPING_FALSE, EARLY_STOPPING_TRUE, EARLY_STOPPING_NEVER };

/* sampling_fields has the meaning, the range and the default of each field. The struct owns its lists, which few
 * requests have: copy it with sampling_params_copy, not by assignment, and free it with sampling_params_free. */
struct sampling_params {
    /* What every step reads comes first: what ends a sequence. */
    int32_t min_tokens, num_stop_token_ids;
    int32_t *stop_token_ids; /* [num_stop_token_ids]; a list that is empty may be NULL */
    bool ignore_eos, skip_special_tokens, include_stop_str_in_output;
    bool has_seed; /* false: the engine chooses one */
    int32_t n, best_of, logprobs, prompt_logprobs, max_tokens, top_k;
    int32_t beam_width; /* 1: no beam search */
    enum early_stopping early_stopping;
    double length_penalty;
    uint64_t seed; /* the same seed gives the same text, whatever else is in the batch */
    double temperature, top_p, min_p;
    double repetition_penalty, presence_penalty, frequency_penalty;

    int32_t num_logit_bias, num_stop;
    struct logit_bias *logit_bias;                /* [num_logit_bias] */
    char (*stop)[SAMPLING_PARAMS_MAX_STOP_BYTES]; /* [num_stop] NUL-terminated UTF-8, not empty */
};

enum sampling_type {
    SAMPLING_INT32, /* this and the next two are one member of struct sampling_params */
    SAMPLING_DOUBLE,
    SAMPLING_BOOL,
    SAMPLING_EARLY_STOPPING,
    SAMPLING_SEED, /* this and the rest are several members, which are filled together */
    SAMPLING_STOP,
    SAMPLING_STOP_TOKEN_IDS,
    SAMPLING_LOGIT_BIAS
};

/* One field as users see it. The flags, the fields of JSON lines, the help and the checks all read the table below. */
struct sampling_field {
    const char *name; /* of the JSON field; of the flag, with dashes */
    enum sampling_type type;
    size_t offset; /* of the member, for the first three types */
    /* Numbers, and each value of logit_bias, have bounds: minimum <= value <= maximum. INFINITY: no maximum, and
     * -INFINITY: no minimum, but finite. */
    double minimum, maximum;
    bool above_minimum;    /* the value must be greater than the minimum */
    const char *minus_one; /* what -1 means beside the range ("no limit"); NULL: -1 is not allowed */
    double usual;          /* the default, false and true as 0 and 1; lists are empty by default */
    bool from_model;       /* the model's generation_config.json may give another default */
    const char *help;      /* one sentence, without the default */
};
#define NUM_SAMPLING_FIELDS 23
#define NUM_ANSWER_FIELDS 7 /* the first ones: those of several answers, and log-probabilities */
extern const struct sampling_field sampling_fields[NUM_SAMPLING_FIELDS];

const struct sampling_field *sampling_field_find(const char *name); /* NULL: there is none */
/* Writes what a number of this field may be, as in "at least 1, or -1 (no limit)". */
void sampling_field_range(const struct sampling_field *field, char *out, size_t size);
/* Copies one field over that of another struct. False: memory for a list ran out, and *to is as it was. */
bool sampling_field_copy(const struct sampling_field *field, const struct sampling_params *from,
                         struct sampling_params *to);

/* Copies those fields whose bit is set: bit i, sampling_fields[i]. False: memory ran out; some are copied. */
bool sampling_fields_copy(uint64_t given, const struct sampling_params *from, struct sampling_params *to);

/* The defaults of the table. It has no lists, so there is nothing to free yet. */
struct sampling_params sampling_params_default(void);

/* Overwrites *to, without freeing what it held. False: memory ran out, and *to has no lists. */
bool sampling_params_copy(const struct sampling_params *from, struct sampling_params *to);
void sampling_params_free(struct sampling_params *params); /* frees the lists, which are empty then */

/* Add an entry to a list. The caller keeps to the limits above, of which it knows how to speak. False: memory ran out,
 * and the list is as it was. */
bool sampling_params_add_stop(struct sampling_params *params, const char *text);
bool sampling_params_add_stop_token_id(struct sampling_params *params, int32_t id);
bool sampling_params_add_logit_bias(struct sampling_params *params, struct logit_bias bias);

const char *sampling_params_early_stopping_name(enum early_stopping value); /* "false", "true", "never" */
/* Returns false for a text that is none of these. */
bool sampling_params_parse_early_stopping(const char *text, enum early_stopping *out);

/* How many sequences a request runs: beam_width, best_of or n, whichever is the largest. *name gets that field's. */
int32_t sampling_params_num_sequences(const struct sampling_params *params, const char **name);

/* The answers are ranked, and so they come when all have ended: those of a beam search or of best_of. */
bool sampling_params_ranks(const struct sampling_params *params);

/* Checks every range; the sentence names the field, the value and the range. num_ids bounds the token ids:
 * stop_token_ids and logit_bias may name those that can be sampled, 0 .. num_ids - 1. */
enum status sampling_params_check(const struct sampling_params *params, int32_t num_ids, struct error *err);

#endif
