#include "scheduler/sampling_params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/batch.h"
#include "base/utf8.h"

const struct sampling_field sampling_fields[NUM_SAMPLING_FIELDS] = {
    {.name = "n",
     .type = SAMPLING_INT32,
     .offset = offsetof(struct sampling_params, n),
     .minimum = 1,
     .maximum = INFINITY,
     .usual = 1,
     .help = "Answers to each prompt."},
    {.name = "best_of",
     .type = SAMPLING_INT32,
     .offset = offsetof(struct sampling_params, best_of),
     .minimum = 1,
     .maximum = INFINITY,
     .minus_one = "off",
     .usual = -1,
     .help = "Sample N answers, and give the n with the highest cumulative log-probability, best first."},
    {.name = "beam_width",
     .type = SAMPLING_INT32,
     .offset = offsetof(struct sampling_params, beam_width),
     .minimum = 1,
     .maximum = SAMPLING_MAX_TOP / 2,
     .usual = 1,
     .help = "Beam search with N beams, at most 32, which gives the n best answers; 1: off. Temperature, top_p, top_k, "
             "min_p and seed play no part in it."},
    {.name = "length_penalty",
     .type = SAMPLING_DOUBLE,
     .offset = offsetof(struct sampling_params, length_penalty),
     .minimum = -INFINITY,
     .maximum = INFINITY,
     .usual = 1,
     .help = "Of a beam search: an answer's score is its log-probability / length ^ F; above 0: for long answers."},
    {.name = "early_stopping",
     .type = SAMPLING_EARLY_STOPPING,
     .offset = offsetof(struct sampling_params, early_stopping),
     .help =
         "When a beam search with as many finished answers as beams ends. true: at once; false: when the best beam, as "
         "it is, beats none of them; never: when it cannot at any length."},
    {.name = "logprobs",
     .type = SAMPLING_INT32,
     .offset = offsetof(struct sampling_params, logprobs),
     .minimum = 0,
     .maximum = SAMPLING_MAX_LOGPROBS,
     .minus_one = "none",
     .usual = -1,
     .help = "Give each token's log-probability, and the N most probable tokens, at most 20."},
    {.name = "prompt_logprobs",
     .type = SAMPLING_INT32,
     .offset = offsetof(struct sampling_params, prompt_logprobs),
     .minimum = 0,
     .maximum = SAMPLING_MAX_LOGPROBS,
     .minus_one = "none",
     .usual = -1,
     .help =
         "The same of the prompt's tokens, but the first. Such a prompt is computed whole, whatever the prefix cache "
         "has of it."},
    {.name = "temperature",
     .type = SAMPLING_DOUBLE,
     .offset = offsetof(struct sampling_params, temperature),
     .minimum = 0,
     .maximum = INFINITY,
     .usual = 1,
     .from_model = true,
     .help = "0: always the most probable token; above 1: more surprise."},
    {.name = "top_p",
     .type = SAMPLING_DOUBLE,
     .offset = offsetof(struct sampling_params, top_p),
     .minimum = 0,
     .above_minimum = true,
     .maximum = 1,
     .usual = 1,
     .from_model = true,
     .help = "Only the most probable tokens that together have this probability."},
    {.name = "top_k",
     .type = SAMPLING_INT32,
     .offset = offsetof(struct sampling_params, top_k),
     .minimum = 0,
     .maximum = INFINITY,
     .minus_one = "all",
     .usual = 0,
     .from_model = true,
     .help = "Only the N most probable tokens; 0 or -1: all."},
    {.name = "min_p",
     .type = SAMPLING_DOUBLE,
     .offset = offsetof(struct sampling_params, min_p),
     .minimum = 0,
     .maximum = 1,
     .usual = 0,
     .from_model = true,
     .help = "Only tokens at least F times as probable as the most probable one."},
    {.name = "repetition_penalty",
     .type = SAMPLING_DOUBLE,
     .offset = offsetof(struct sampling_params, repetition_penalty),
     .minimum = 0,
     .above_minimum = true,
     .maximum = INFINITY,
     .usual = 1,
     .from_model = true,
     .help = "Above 1: tokens of the prompt and the answer become less probable."},
    {.name = "presence_penalty",
     .type = SAMPLING_DOUBLE,
     .offset = offsetof(struct sampling_params, presence_penalty),
     .minimum = -2,
     .maximum = 2,
     .usual = 0,
     .help = "Subtracted from the logit of every token that the answer has, -2 to 2."},
    {.name = "frequency_penalty",
     .type = SAMPLING_DOUBLE,
     .offset = offsetof(struct sampling_params, frequency_penalty),
     .minimum = -2,
     .maximum = 2,
     .usual = 0,
     .help = "The same, once for each time that the answer has it."},
    {.name = "logit_bias",
     .type = SAMPLING_LOGIT_BIAS,
     .minimum = -100,
     .maximum = 100,
     .help = "Added to the logits of these tokens, -100 to 100."},
    {.name = "seed", .type = SAMPLING_SEED, .help = "The same seed gives the same answer; -1: any."},
    {.name = "max_tokens",
     .type = SAMPLING_INT32,
     .offset = offsetof(struct sampling_params, max_tokens),
     .minimum = 1,
     .maximum = INFINITY,
     .minus_one = "no limit",
     .usual = 16,
     .from_model = true,
     .help = "Longest answer in tokens; -1: until max_model_len, as usual in a conversation."},
    {.name = "min_tokens",
     .type = SAMPLING_INT32,
     .offset = offsetof(struct sampling_params, min_tokens),
     .minimum = 0,
     .maximum = INFINITY,
     .usual = 0,
     .help = "Shortest answer in tokens."},
    {.name = "stop", .type = SAMPLING_STOP, .help = "End the answer before this text; up to 16 of them."},
    {.name = "stop_token_ids", .type = SAMPLING_STOP_TOKEN_IDS, .help = "End the answer at one of these tokens."},
    {.name = "ignore_eos",
     .type = SAMPLING_BOOL,
     .offset = offsetof(struct sampling_params, ignore_eos),
     .help = "Go on past the model's own end."},
    {.name = "include_stop_str_in_output",
     .type = SAMPLING_BOOL,
     .offset = offsetof(struct sampling_params, include_stop_str_in_output),
     .help = "Keep the stop text in the answer."},
    {.name = "skip_special_tokens",
     .type = SAMPLING_BOOL,
     .offset = offsetof(struct sampling_params, skip_special_tokens),
     .usual = true,
     .help = "Leave special tokens out of the text."},
};

const struct sampling_field *sampling_field_find(const char *name)
{
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++)
        if (strcmp(sampling_fields[i].name, name) == 0) return &sampling_fields[i];
    return NULL;
}

/* Replaces the list whose address is `to` by a copy of entries[count]. */
static bool copy_list(void *to, int32_t *to_count, const void *entries, int32_t count, size_t size)
{
    void *old, *copy = NULL;
    if (count > 0) {
        copy = malloc((size_t)count * size);
        if (!copy) return false;
        memcpy(copy, entries, (size_t)count * size);
    }
    memcpy(&old, to, sizeof old);
    free(old);
    memcpy(to, &copy, sizeof copy);
    *to_count = count;
    return true;
}

bool sampling_field_copy(const struct sampling_field *field, const struct sampling_params *from,
                         struct sampling_params *to)
{
    char *member = (char *)to + field->offset;
    const char *source = (const char *)from + field->offset;
    switch (field->type) {
    case SAMPLING_INT32:
        memcpy(member, source, sizeof(int32_t));
        break;
    case SAMPLING_DOUBLE:
        memcpy(member, source, sizeof(double));
        break;
    case SAMPLING_BOOL:
        memcpy(member, source, sizeof(bool));
        break;
    case SAMPLING_EARLY_STOPPING:
        memcpy(member, source, sizeof(enum early_stopping));
        break;
    case SAMPLING_SEED:
        to->has_seed = from->has_seed;
        to->seed = from->seed;
        break;
    case SAMPLING_STOP:
        return copy_list(&to->stop, &to->num_stop, from->stop, from->num_stop, sizeof *to->stop);
    case SAMPLING_STOP_TOKEN_IDS:
        return copy_list(&to->stop_token_ids, &to->num_stop_token_ids, from->stop_token_ids, from->num_stop_token_ids,
                         sizeof *to->stop_token_ids);
    case SAMPLING_LOGIT_BIAS:
        return copy_list(&to->logit_bias, &to->num_logit_bias, from->logit_bias, from->num_logit_bias,
                         sizeof *to->logit_bias);
    }
    return true;
}

struct sampling_params sampling_params_default(void)
{
    struct sampling_params p = {0};
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++) {
        const struct sampling_field *f = &sampling_fields[i];
        char *member = (char *)&p + f->offset;
        if (f->type == SAMPLING_INT32) *(int32_t *)member = (int32_t)f->usual;
        if (f->type == SAMPLING_DOUBLE) *(double *)member = f->usual;
        if (f->type == SAMPLING_BOOL) *(bool *)member = f->usual != 0;
    }
    return p;
}

/* ---- lists ---- */

static void clear_lists(struct sampling_params *p)
{
    p->num_stop_token_ids = p->num_logit_bias = p->num_stop = 0;
    p->stop_token_ids = NULL;
    p->logit_bias = NULL;
    p->stop = NULL;
}

void sampling_params_free(struct sampling_params *params)
{
    free(params->stop_token_ids);
    free(params->logit_bias);
    free(params->stop);
    clear_lists(params);
}

bool sampling_fields_copy(uint64_t given, const struct sampling_params *from, struct sampling_params *to)
{
    bool ok = true;
    for (int i = 0; i < NUM_SAMPLING_FIELDS && ok; i++)
        ok = !(given >> i & 1) || sampling_field_copy(&sampling_fields[i], from, to);
    return ok;
}

bool sampling_params_copy(const struct sampling_params *from, struct sampling_params *to)
{
    *to = *from;
    clear_lists(to);
    const bool ok = sampling_fields_copy(UINT64_MAX, from, to);
    if (!ok) sampling_params_free(to);
    return ok;
}

/* The list with room for one entry more; NULL: memory ran out, and the list is as it was. */
static void *grown(void *list, int32_t count, size_t size)
{
    return realloc(list, ((size_t)count + 1) * size);
}

bool sampling_params_add_stop(struct sampling_params *params, const char *text)
{
    char(*stop)[SAMPLING_PARAMS_MAX_STOP_BYTES] = grown(params->stop, params->num_stop, sizeof *stop);
    if (!stop) return false;
    params->stop = stop;
    snprintf(stop[params->num_stop++], sizeof *stop, "%s", text);
    return true;
}

bool sampling_params_add_stop_token_id(struct sampling_params *params, int32_t id)
{
    int32_t *ids = grown(params->stop_token_ids, params->num_stop_token_ids, sizeof *ids);
    if (!ids) return false;
    params->stop_token_ids = ids;
    ids[params->num_stop_token_ids++] = id;
    return true;
}

bool sampling_params_add_logit_bias(struct sampling_params *params, struct logit_bias bias)
{
    struct logit_bias *list = grown(params->logit_bias, params->num_logit_bias, sizeof *list);
    if (!list) return false;
    params->logit_bias = list;
    list[params->num_logit_bias++] = bias;
    return true;
}

/* ---- several sequences ---- */

static const char *const early_stopping_names[] = {
    [EARLY_STOPPING_FALSE] = "false", [EARLY_STOPPING_TRUE] = "true", [EARLY_STOPPING_NEVER] = "never"};

const char *sampling_params_early_stopping_name(enum early_stopping value)
{
    return early_stopping_names[value];
}

bool sampling_params_parse_early_stopping(const char *text, enum early_stopping *out)
{
    for (int i = 0; i < (int)(sizeof early_stopping_names / sizeof *early_stopping_names); i++) {
        if (strcmp(text, early_stopping_names[i]) != 0) continue;
        *out = (enum early_stopping)i;
        return true;
    }
    return false;
}

int32_t sampling_params_num_sequences(const struct sampling_params *params, const char **name)
{
    int32_t most = params->n;
    *name = "n";
    if (params->best_of > most) most = params->best_of, *name = "best_of";
    if (params->beam_width > most) most = params->beam_width, *name = "beam_width";
    return most;
}

bool sampling_params_ranks(const struct sampling_params *params)
{
    return params->beam_width > 1 || params->best_of > 0;
}

/* ---- checks ---- */

void sampling_field_range(const struct sampling_field *f, char *out, size_t size)
{
    char range[64];
    if (isinf(f->minimum))
        snprintf(range, sizeof range, "finite");
    else if (isinf(f->maximum))
        snprintf(range, sizeof range, "%s %.15g", f->above_minimum ? "above" : "at least", f->minimum);
    else if (f->above_minimum)
        snprintf(range, sizeof range, "above %.15g and at most %.15g", f->minimum, f->maximum);
    else
        snprintf(range, sizeof range, "between %.15g and %.15g", f->minimum, f->maximum);
    snprintf(out, size, "%s%s%s%s", range, f->minus_one ? ", or -1 (" : "", f->minus_one ? f->minus_one : "",
             f->minus_one ? ")" : "");
}

/* Written so that a NaN is refused. */
static bool in_range(const struct sampling_field *f, double value)
{
    if (f->minus_one && value == -1) return true;
    return (f->above_minimum ? value > f->minimum : value >= f->minimum) && value <= f->maximum && !isinf(value);
}

static enum status check_value(const struct sampling_field *f, double value, struct error *err)
{
    char range[128];
    if (in_range(f, value)) return STATUS_OK;
    sampling_field_range(f, range, sizeof range);
    return error_set(err, STATUS_INVALID, "%s is %.15g; it must be %s", f->name, value, range);
}

static enum status check_field(const struct sampling_field *f, const struct sampling_params *p, struct error *err)
{
    const char *member = (const char *)p + f->offset;
    enum status status = STATUS_OK;
    if (f->type == SAMPLING_INT32) return check_value(f, *(const int32_t *)member, err);
    if (f->type == SAMPLING_DOUBLE) return check_value(f, *(const double *)member, err);
    if (f->type != SAMPLING_LOGIT_BIAS) return STATUS_OK;
    for (int32_t i = 0; i < p->num_logit_bias && status == STATUS_OK; i++)
        status = check_value(f, (double)p->logit_bias[i].value, err);
    return status;
}

/* What a beam search cannot compute rightly. */
static enum status check_beams(const struct sampling_params *p, struct error *err)
{
    const struct {
        const char *name, *needed;
        bool given;
    } others[] = {{"stop", "empty", p->num_stop > 0},
                  {"logit_bias", "empty", p->num_logit_bias > 0},
                  {"repetition_penalty", "1", p->repetition_penalty != 1},
                  {"presence_penalty", "0", p->presence_penalty != 0},
                  {"frequency_penalty", "0", p->frequency_penalty != 0},
                  {"logprobs", "-1", p->logprobs != -1},
                  {"best_of", "-1", p->best_of != -1}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            return error_set(err, STATUS_INVALID,
                             "%s does not go with a beam search: it must be %s, or beam_width must be 1",
                             others[i].name, others[i].needed);
    if (p->n > p->beam_width)
        return error_set(err, STATUS_INVALID, "n is %d; it must be at most beam_width, which is %d", p->n,
                         p->beam_width);
    return STATUS_OK;
}

static enum status check_samples(const struct sampling_params *p, struct error *err)
{
    const char *name;
    const int32_t count = sampling_params_num_sequences(p, &name);
    if (p->best_of != -1 && p->n > p->best_of)
        return error_set(err, STATUS_INVALID, "n is %d; it must be at most best_of, which is %d", p->n, p->best_of);
    if (p->temperature == 0 && count > 1)
        return error_set(err, STATUS_INVALID,
                         "%s is %d with temperature 0: greedy answers are all the same; set %s to 1 or a temperature",
                         name, count, name);
    return STATUS_OK;
}

/* Fields that are in range and still do not go together. */
static enum status check_together(const struct sampling_params *p, struct error *err)
{
    const enum status status = p->beam_width > 1 ? check_beams(p, err) : check_samples(p, err);
    if (status != STATUS_OK) return status;
    if (p->max_tokens != -1 && p->min_tokens > p->max_tokens)
        return error_set(err, STATUS_INVALID, "min_tokens is %d; it must be at most max_tokens, which is %d",
                         p->min_tokens, p->max_tokens);
    return STATUS_OK;
}

static enum status check_count(const char *name, int32_t count, int32_t most, struct error *err)
{
    if (count >= 0 && count <= most) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s has %d entries; at most %d are possible", name, count, most);
}

static enum status check_counts(const struct sampling_params *p, struct error *err)
{
    enum status status = check_count("stop_token_ids", p->num_stop_token_ids, SAMPLING_PARAMS_MAX_STOP_IDS, err);
    if (status == STATUS_OK) status = check_count("logit_bias", p->num_logit_bias, SAMPLING_PARAMS_MAX_BIAS, err);
    if (status == STATUS_OK) status = check_count("stop", p->num_stop, SAMPLING_PARAMS_MAX_STOP, err);
    return status;
}

static enum status check_token(const char *name, int32_t token, int32_t num_ids, struct error *err)
{
    if (token >= 0 && token < num_ids) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s names token %d; this model's tokens are 0 to %d", name, token,
                     num_ids - 1);
}

static enum status check_stop(const struct sampling_params *p, struct error *err)
{
    for (int32_t i = 0; i < p->num_stop; i++) {
        if (!p->stop[i][0]) return error_set(err, STATUS_INVALID, "stop has an empty string at index %d", i);
        if (!memchr(p->stop[i], '\0', SAMPLING_PARAMS_MAX_STOP_BYTES))
            return error_set(err, STATUS_INVALID, "stop string %d is longer than %d bytes", i,
                             SAMPLING_PARAMS_MAX_STOP_BYTES - 1);
        /* Answers are UTF-8: another text would never be found in one. */
        const size_t length = strlen(p->stop[i]);
        if (utf8_valid_prefix(p->stop[i], length) < length)
            return error_set(err, STATUS_INVALID, "stop string %d is not UTF-8; write it as UTF-8", i);
    }
    return STATUS_OK;
}

enum status sampling_params_check(const struct sampling_params *params, int32_t num_ids, struct error *err)
{
    enum status status = check_counts(params, err);
    for (int i = 0; i < NUM_SAMPLING_FIELDS && status == STATUS_OK; i++)
        status = check_field(&sampling_fields[i], params, err);
    if (status == STATUS_OK) status = check_together(params, err);
    for (int32_t i = 0; status == STATUS_OK && i < params->num_stop_token_ids; i++)
        status = check_token("stop_token_ids", params->stop_token_ids[i], num_ids, err);
    for (int32_t i = 0; status == STATUS_OK && i < params->num_logit_bias; i++)
        status = check_token("logit_bias", params->logit_bias[i].token, num_ids, err);
    if (status == STATUS_OK) status = check_stop(params, err);
    return status;
}
