#include "runtime/options/sampling_flags.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

static enum status out_of_memory(struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the sampling fields");
}

static enum status parse_stop(void *target, const char *text, struct error *err)
{
    struct sampling_params *params = target;
    size_t length = strlen(text);
    if (length == 0) return error_set(err, STATUS_INVALID, "expected a text, got an empty one");
    if (length >= SAMPLING_PARAMS_MAX_STOP_BYTES) {
        return error_set(err, STATUS_INVALID, "expected at most %d bytes, got %zu", SAMPLING_PARAMS_MAX_STOP_BYTES - 1,
                         length);
    }
    if (params->num_stop >= SAMPLING_PARAMS_MAX_STOP) {
        return error_set(err, STATUS_INVALID, "at most %d stop strings may be given", SAMPLING_PARAMS_MAX_STOP);
    }
    return sampling_params_add_stop(params, text) ? STATUS_OK : out_of_memory(err);
}

/* Reads a token id at *text and moves past it. */
static bool read_id(const char **text, int32_t *id)
{
    char *end;
    if (**text < '0' || **text > '9') return false;
    errno = 0;
    long value = strtol(*text, &end, 10);
    if (errno || value > INT32_MAX) return false;
    *id = (int32_t)value;
    *text = end;
    return true;
}

static enum status parse_stop_ids(void *target, const char *text, struct error *err)
{
    struct sampling_params *params = target;
    for (const char *at = text;; at++) {
        int32_t id;
        if (!read_id(&at, &id) || (*at && *at != ',')) {
            return error_set(err, STATUS_INVALID, "expected token ids as in 2,13,29, got '%s'", text);
        }
        if (params->num_stop_token_ids >= SAMPLING_PARAMS_MAX_STOP_IDS) {
            return error_set(err, STATUS_INVALID, "at most %d ids may be given", SAMPLING_PARAMS_MAX_STOP_IDS);
        }
        if (!sampling_params_add_stop_token_id(params, id)) return out_of_memory(err);
        if (!*at) return STATUS_OK;
    }
}

static enum status parse_logit_bias(void *target, const char *text, struct error *err)
{
    struct sampling_params *params = target;
    for (const char *at = text;; at++) {
        int32_t id;
        char *end = NULL;
        double value = 0;
        bool good = read_id(&at, &id) && *at++ == ':' && *at > ' ';
        if (good) value = strtod(at, &end);
        if (!good || end == at || (*end && *end != ',') || !isfinite(value)) {
            return error_set(err, STATUS_INVALID, "expected token ids and what to add as in 13:-100,29:2.5, got '%s'",
                             text);
        }
        if (params->num_logit_bias >= SAMPLING_PARAMS_MAX_BIAS) {
            return error_set(err, STATUS_INVALID, "at most %d ids may be given", SAMPLING_PARAMS_MAX_BIAS);
        }
        if (!sampling_params_add_logit_bias(params, (struct logit_bias){id, (float)value})) return out_of_memory(err);
        if (!*end) return STATUS_OK;
        at = end;
    }
}

static enum status parse_early_stopping(void *target, const char *text, struct error *err)
{
    struct sampling_params *params = target;
    if (sampling_params_parse_early_stopping(text, &params->early_stopping)) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "expected true, false or never, got '%s'", text);
}

/* ---- the flags ---- */

/* How the value of a flag is written, and how one of a kind of its own is read. */
static const struct {
    enum option_kind kind;
    const char *argument;
    enum status (*parse)(void *target, const char *text, struct error *err);
} types[] = {
    [SAMPLING_INT32] = {OPTION_INT32, "N"},
    [SAMPLING_DOUBLE] = {OPTION_DOUBLE, "F"},
    [SAMPLING_BOOL] = {OPTION_SWITCH},
    [SAMPLING_EARLY_STOPPING] = {OPTION_CUSTOM, "true|false|never", parse_early_stopping},
    [SAMPLING_STOP] = {OPTION_CUSTOM, "TEXT", parse_stop},
    [SAMPLING_STOP_TOKEN_IDS] = {OPTION_CUSTOM, "ID,...", parse_stop_ids},
    [SAMPLING_LOGIT_BIAS] = {OPTION_CUSTOM, "ID:VALUE,...", parse_logit_bias},
};

static bool repeats(enum sampling_type type)
{
    return type == SAMPLING_STOP || type == SAMPLING_STOP_TOKEN_IDS || type == SAMPLING_LOGIT_BIAS;
}

static void write_name(char *out, size_t size, const char *field)
{
    snprintf(out, size, "%s", field);
    for (; *out; out++)
        if (*out == '_') *out = '-';
}

/* The field's sentence, and the default. */
static void write_help(char *out, size_t size, const struct sampling_field *f, const void *member)
{
    char usual[64] = "";
    const char *model = f->from_model ? "the model's, or " : "";
    double number = 0;
    if (f->type == SAMPLING_INT32) number = *(const int32_t *)member;
    if (f->type == SAMPLING_DOUBLE) number = *(const double *)member;
    if (f->type == SAMPLING_BOOL)
        snprintf(usual, sizeof usual, "%s", *(const bool *)member ? "on" : "off");
    else if (f->type == SAMPLING_EARLY_STOPPING)
        snprintf(usual, sizeof usual, "%s", sampling_params_early_stopping_name(*(const enum early_stopping *)member));
    else if (f->type == SAMPLING_INT32 || f->type == SAMPLING_DOUBLE)
        snprintf(usual, sizeof usual, "%s%.15g", model, number);
    if (f->minus_one && number == -1) snprintf(usual, sizeof usual, "%s-1, %s", model, f->minus_one);
    snprintf(out, size, "%s%s%s%s", f->help, *usual ? " Default: " : "", usual, *usual ? "." : "");
}

static bool is_common(const char *field)
{
    static const char *const common[] = {"n", "temperature", "top_p", "max_tokens", "stop"};
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        if (strcmp(common[i], field) == 0) return true;
    return false;
}

/* Ranges are left to sampling_params_check, which has them for flags and for JSON lines. */
static void add_field(struct option_table *table, struct sampling_flags *flags, int i, const char *heading)
{
    const struct sampling_field *f = &sampling_fields[i];
    void *member = (char *)&flags->params + f->offset;
    char *name = flags->texts[i].name, *help = flags->texts[i].help;
    write_name(name, sizeof flags->texts[i].name, f->name);
    write_help(help, sizeof flags->texts[i].help, f, member);
    const struct option_spec spec = {name,
                                     types[f->type].kind,
                                     types[f->type].kind == OPTION_CUSTOM ? (void *)&flags->params : member,
                                     types[f->type].argument,
                                     .help = help,
                                     .heading = heading,
                                     .common = is_common(f->name),
                                     .parse = types[f->type].parse,
                                     .repeats = repeats(f->type),
                                     .given = &flags->given,
                                     .given_bit = UINT64_C(1) << i};
    option_table_add(table, &spec, 1);
}

void sampling_flags_add_answers(struct option_table *table, struct sampling_flags *flags, const char *heading)
{
    for (int i = 0; i < NUM_ANSWER_FIELDS; i++) add_field(table, flags, i, i == 0 ? heading : NULL);
}

void sampling_flags_add(struct option_table *table, struct sampling_flags *flags)
{
    flags->table = table;
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++) {
        const char *name = sampling_fields[i].name, *heading = NULL;
        if (i < NUM_ANSWER_FIELDS || strcmp(name, "seed") == 0) continue;
        if (strcmp(name, "temperature") == 0) heading = "Sampling:";
        if (strcmp(name, "max_tokens") == 0) heading = "Where answers end:";
        add_field(table, flags, i, heading);
    }
}

/* The field that a sentence is about stands first in it. */
enum status sampling_flags_check(const struct sampling_flags *flags, struct error *err)
{
    char name[64], label[512];
    const enum status status = sampling_params_check(&flags->params, INT32_MAX, err);
    if (status == STATUS_OK || !flags->table) return status;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(err->text, " "), err->text);
    for (char *at = name; *at; at++)
        if (*at == '_') *at = '-';
    return options_origin(flags->table, name, label, sizeof label) ? error_prefix(err, status, label) : status;
}

enum status sampling_flags_apply(const struct sampling_flags *flags, struct sampling_params *params, struct error *err)
{
    return sampling_fields_copy(flags->given, &flags->params, params) ? STATUS_OK : out_of_memory(err);
}

void sampling_flags_free(struct sampling_flags *flags)
{
    sampling_params_free(&flags->params);
}
