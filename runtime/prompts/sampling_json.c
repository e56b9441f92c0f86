#include "runtime/prompts/sampling_json.h"

#include <math.h>
#include <stdlib.h>

static int32_t to_int32(struct json_reader *r, const char *name, const json_t *value)
{
    const int64_t number = json_reader_to_int64(r, name, value, INT64_MIN, INT64_MAX);
    if (number != (int32_t)number)
        json_reader_fail(r, STATUS_INVALID, "%s is %lld, which is too large", name, (long long)number);
    return (int32_t)number;
}

/* `added` is what a function that adds to a list returned. */
static void check_added(struct json_reader *r, const char *name, bool added)
{
    if (!added) json_reader_fail(r, STATUS_OUT_OF_MEMORY, "no memory for %s", name);
}

static void add_stop(struct json_reader *r, const json_t *value, struct sampling_params *params)
{
    const size_t length = json_string_length(value);
    if (!json_is_string(value))
        json_reader_expected(r, "stop", "a string or a list of strings", value);
    else if (length == 0)
        json_reader_fail(r, STATUS_INVALID, "stop holds an empty string");
    else if (!json_is_text(value))
        json_reader_expected(r, "a string in stop", JSON_TEXT, value);
    else if (length >= SAMPLING_PARAMS_MAX_STOP_BYTES)
        json_reader_fail(r, STATUS_INVALID, "stop holds a string of %zu bytes; at most %d are possible", length,
                         SAMPLING_PARAMS_MAX_STOP_BYTES - 1);
    else if (params->num_stop == SAMPLING_PARAMS_MAX_STOP)
        json_reader_fail(r, STATUS_INVALID, "stop holds more than %d strings", SAMPLING_PARAMS_MAX_STOP);
    else
        check_added(r, "stop", sampling_params_add_stop(params, json_string_value(value)));
}

static void read_stop(struct json_reader *r, const json_t *value, struct sampling_params *params)
{
    params->num_stop = 0;
    if (!json_is_array(value)) add_stop(r, value, params);
    for (size_t i = 0; i < json_array_size(value); i++) add_stop(r, json_array_get(value, i), params);
}

static void read_stop_token_ids(struct json_reader *r, const json_t *value, struct sampling_params *params)
{
    const size_t count = json_array_size(value);
    params->num_stop_token_ids = 0;
    if (!json_is_array(value))
        json_reader_expected(r, "stop_token_ids", "a list of token ids", value);
    else if (count > SAMPLING_PARAMS_MAX_STOP_IDS)
        json_reader_fail(r, STATUS_INVALID, "stop_token_ids holds more than %d ids", SAMPLING_PARAMS_MAX_STOP_IDS);
    for (size_t i = 0; i < count && r->status == STATUS_OK; i++) {
        const int32_t id = to_int32(r, "an id in stop_token_ids", json_array_get(value, i));
        check_added(r, "stop_token_ids", sampling_params_add_stop_token_id(params, id));
    }
}

/* The keys of a JSON object are strings: {"13": -100}. */
static bool parse_token_id(const char *key, int32_t *id)
{
    char *end;
    const long number = strtol(key, &end, 10);
    if (*key < '0' || *key > '9' || *end || number > INT32_MAX) return false;
    *id = (int32_t)number;
    return true;
}

static void read_logit_bias(struct json_reader *r, const json_t *value, struct sampling_params *params)
{
    params->num_logit_bias = 0;
    if (!json_is_map(value)) {
        json_reader_expected(r, "logit_bias", "an object {\"id\": value}", value);
        return;
    }
    if (json_object_size(value) > SAMPLING_PARAMS_MAX_BIAS)
        json_reader_fail(r, STATUS_INVALID, "logit_bias holds more than %d ids", SAMPLING_PARAMS_MAX_BIAS);
    const char *key;
    json_t *bias;
    json_object_foreach((json_t *)value, key, bias)
    {
        int32_t id = 0;
        if (!parse_token_id(key, &id))
            json_reader_fail(r, STATUS_INVALID, "logit_bias has the key '%s', which is no token id",
                             show_string(key).text);
        const double added = json_reader_to_number(r, "a value in logit_bias", bias, -INFINITY, INFINITY);
        if (r->status != STATUS_OK) return;
        check_added(r, "logit_bias", sampling_params_add_logit_bias(params, (struct logit_bias){id, (float)added}));
    }
}

static void read_early_stopping(struct json_reader *r, const json_t *value, struct sampling_params *params)
{
    if (json_is_word(value, "never"))
        params->early_stopping = EARLY_STOPPING_NEVER;
    else if (json_is_boolean(value))
        params->early_stopping = json_is_true(value) ? EARLY_STOPPING_TRUE : EARLY_STOPPING_FALSE;
    else
        json_reader_expected(r, "early_stopping", "true, false or \"never\"", value);
}

/* -1 asks for any seed, as in llama.cpp. */
static void read_seed(struct json_reader *r, const json_t *value, struct sampling_params *params)
{
    const int64_t seed = json_reader_to_int64(r, "seed", value, -1, INT64_MAX);
    params->has_seed = seed >= 0;
    params->seed = params->has_seed ? (uint64_t)seed : 0;
}

static void read_field(struct json_reader *r, const struct sampling_field *f, const json_t *value,
                       struct sampling_params *params)
{
    static void (*const readers[])(struct json_reader *, const json_t *,
                                   struct sampling_params *) = {[SAMPLING_EARLY_STOPPING] = read_early_stopping,
                                                                [SAMPLING_SEED] = read_seed,
                                                                [SAMPLING_STOP] = read_stop,
                                                                [SAMPLING_STOP_TOKEN_IDS] = read_stop_token_ids,
                                                                [SAMPLING_LOGIT_BIAS] = read_logit_bias};
    char *member = (char *)params + f->offset;
    if (f->type == SAMPLING_INT32)
        *(int32_t *)member = to_int32(r, f->name, value);
    else if (f->type == SAMPLING_DOUBLE)
        *(double *)member = json_reader_to_number(r, f->name, value, -INFINITY, INFINITY);
    else if (f->type == SAMPLING_BOOL)
        *(bool *)member = json_reader_bool(r, f->name, false);
    else
        readers[f->type](r, value, params);
}

void sampling_json_read(struct json_reader *r, struct sampling_params *params)
{
    for (int i = 0; i < NUM_SAMPLING_FIELDS && r->status == STATUS_OK; i++) {
        const json_t *value = json_reader_get(r, sampling_fields[i].name);
        if (value) read_field(r, &sampling_fields[i], value, params);
    }
}

/* ---- writing ---- */

static json_t *list_value(const struct sampling_field *f, const struct sampling_params *p)
{
    json_t *list = f->type == SAMPLING_LOGIT_BIAS ? json_object() : json_array();
    char id[16];
    if (f->type == SAMPLING_STOP)
        for (int32_t i = 0; i < p->num_stop; i++) json_array_append_new(list, json_string(p->stop[i]));
    if (f->type == SAMPLING_STOP_TOKEN_IDS)
        for (int32_t i = 0; i < p->num_stop_token_ids; i++)
            json_array_append_new(list, json_integer(p->stop_token_ids[i]));
    for (int32_t i = 0; f->type == SAMPLING_LOGIT_BIAS && i < p->num_logit_bias; i++) {
        snprintf(id, sizeof id, "%d", p->logit_bias[i].token);
        json_object_set_new(list, id, json_real((double)p->logit_bias[i].value));
    }
    return list;
}

json_t *sampling_json_value(const struct sampling_field *f, const struct sampling_params *p)
{
    const void *member = (const char *)p + f->offset;
    if (f->type == SAMPLING_INT32) return json_integer(*(const int32_t *)member);
    if (f->type == SAMPLING_DOUBLE) return json_real(*(const double *)member);
    if (f->type == SAMPLING_BOOL) return json_boolean(*(const bool *)member);
    if (f->type == SAMPLING_EARLY_STOPPING) return json_string(sampling_params_early_stopping_name(p->early_stopping));
    if (f->type == SAMPLING_SEED) return p->has_seed ? json_integer((json_int_t)p->seed) : json_null();
    return list_value(f, p);
}
