#include "runtime/chat/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"
#include "base/visible.h"
#include "runtime/options/foreign_flags.h"
#include "runtime/prompts/sampling_json.h"

static enum status out_of_memory(struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the settings");
}

/* `written` is the name with '_'. */
static enum status unknown_field(const char *name, const char *written, struct error *err)
{
    const struct foreign_flag *foreign = foreign_flag_find(written);
    struct nearest nearest = nearest_begin(written);
    char field[EDIT_DISTANCE_MAX_LENGTH + 1];
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++) nearest_consider(&nearest, sampling_fields[i].name);
    snprintf(field, sizeof field, "%s", foreign && foreign->flag ? foreign->flag : nearest.word ? nearest.word : "");
    for (char *at = field; *at; at++)
        if (*at == '-') *at = '_';
    if (sampling_field_find(field))
        return error_set(err, STATUS_INVALID, "there is no setting %s; did you mean %s?", name, field);
    return error_set(err, STATUS_INVALID, "there is no setting %s; Tab after /set lists the names", name);
}

/* The field of that name, which may be written like a flag, with dashes. */
static enum status find_field(const char *name, const struct sampling_field **out, struct error *err)
{
    char written[EDIT_DISTANCE_MAX_LENGTH + 1];
    snprintf(written, sizeof written, "%s", name);
    for (char *at = written; *at; at++)
        if (*at == '-') *at = '_';
    *out = sampling_field_find(written);
    if (*out) return STATUS_OK;
    return unknown_field(name, written, err);
}

/* ---- values as JSON ---- */

static bool is_number(const struct sampling_field *f)
{
    return f->type == SAMPLING_INT32 || f->type == SAMPLING_DOUBLE;
}

/* A list as the flags take it, 2,13 or 13:-100,29:2.5, as JSON. NULL: it is none. */
static json_t *read_list(const struct sampling_field *f, const char *text)
{
    const bool bias = f->type == SAMPLING_LOGIT_BIAS;
    struct text json = {0};
    bool ok = text_append_string(&json, bias ? "{\"" : "[");
    for (const char *at = text; ok && *at; at++) {
        if (bias && *at == ':')
            ok = text_append_string(&json, "\":");
        else
            ok = text_append(&json, at, 1) && (!bias || *at != ',' || text_append_string(&json, "\""));
    }
    ok = ok && text_append_string(&json, bias ? "}" : "]");
    json_t *value = NULL;
    if (ok) json_value_parse(json.data, json.length, 0, NULL, &value, NULL);
    text_free(&json);
    return value;
}

/* What was typed, as JSON of the type that the field may have; sampling_json_read checks it. NULL: memory ran out. */
static json_t *read_value(const struct sampling_field *f, const char *text)
{
    static const char *const words[] = {"off", "on", "no", "yes", "false", "true", "0", "1"};
    json_t *value = NULL;
    char *end;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (f->type == SAMPLING_BOOL && strcmp(text, words[i]) == 0) return json_boolean(i & 1);
    if (strchr("[{\"", *text) || f->type == SAMPLING_SEED || f->type == SAMPLING_EARLY_STOPPING ||
        f->type == SAMPLING_INT32)
        json_value_parse(text, strlen(text), JSON_DECODE_ANY, NULL, &value, NULL);
    else if (f->type == SAMPLING_STOP_TOKEN_IDS || f->type == SAMPLING_LOGIT_BIAS)
        value = read_list(f, text);
    else if (f->type == SAMPLING_DOUBLE && strtod(text, &end) * 0 == 0 && end > text && !*end)
        value = json_real(strtod(text, NULL));
    return !value || json_is_null(value) ? json_string(text) : value;
}

/* ---- /set ---- */

/* n and logprobs have no place in a chat. */
static enum status check_shown(const struct session *s, const struct sampling_params *p, struct error *err)
{
    if (p->n != s->usual.n)
        return error_set(err, STATUS_INVALID, "n is %d; a chat has one answer (quire generate gives several)", p->n);
    if (p->logprobs != s->usual.logprobs)
        return error_set(err, STATUS_INVALID, "logprobs is %d; a chat does not show them (quire generate does)",
                         p->logprobs);
    return STATUS_OK;
}

static enum status read_field(const struct sampling_field *f, const char *text, struct sampling_params *params,
                              struct error *err)
{
    json_t *object = json_object();
    enum status status = STATUS_OK;
    if (!object || json_object_set_new(object, f->name, read_value(f, text)) != 0) status = out_of_memory(err);
    if (status == STATUS_OK) {
        struct json_reader reader = json_reader(object, NULL, err);
        sampling_json_read(&reader, params);
        status = reader.status;
    }
    json_decref(object);
    return status;
}

enum status settings_set(struct session *s, const char *name, const char *text, struct error *err)
{
    const struct sampling_field *field;
    struct sampling_params params;
    enum status status = find_field(name, &field, err);
    if (status != STATUS_OK) return status;
    if (!sampling_params_copy(&s->params, &params)) return out_of_memory(err);
    if (strcmp(text, "default") == 0)
        status = sampling_field_copy(field, &s->usual, &params) ? STATUS_OK : out_of_memory(err);
    else
        status = read_field(field, text, &params, err);
    if (status == STATUS_OK) status = sampling_params_check(&params, engine_info(s->engine)->num_ids, err);
    if (status == STATUS_OK) status = check_shown(s, &params, err);
    if (status == STATUS_OK) {
        sampling_params_free(&s->params);
        s->params = params;
    } else {
        sampling_params_free(&params);
    }
    return status;
}

/* ---- what is set ---- */

static void print_value(const struct sampling_field *f, const json_t *value, FILE *out)
{
    const bool is_bool = f->type == SAMPLING_BOOL;
    const bool text = f->type == SAMPLING_EARLY_STOPPING || json_is_null(value);
    char *json = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    if (is_bool)
        fputs(json_is_true(value) ? "on" : "off", out);
    else if (text)
        fputs(json_is_null(value) ? "random" : json_string_value(value), out);
    else if (is_number(f))
        fprintf(out, "%.6g", json_number_value(value));
    else if (json)
        visible_write(out, json, strlen(json));
    free(json);
}

/* "temperature = 0.3 (default 1", with a bracket left open. */
static void print_pair(const struct sampling_field *f, const json_t *value, const json_t *usual, FILE *out)
{
    fprintf(out, "%s = ", f->name);
    print_value(f, value, out);
    fputs(" (default ", out);
    print_value(f, usual, out);
}

enum status settings_show(const struct session *s, const char *name, FILE *out, struct error *err)
{
    const struct sampling_field *field;
    char range[128];
    const enum status status = find_field(name, &field, err);
    if (status != STATUS_OK) return status;
    json_t *value = sampling_json_value(field, &s->params), *usual = sampling_json_value(field, &s->usual);
    sampling_field_range(field, range, sizeof range);
    print_pair(field, value, usual, out);
    fprintf(out, "%s%s)\n  %s\n", is_number(field) ? "; " : "", is_number(field) ? range : "", field->help);
    json_decref(value);
    json_decref(usual);
    return STATUS_OK;
}

int settings_list(const struct session *s, FILE *out)
{
    int count = 0;
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++) {
        const struct sampling_field *field = &sampling_fields[i];
        json_t *value = sampling_json_value(field, &s->params), *usual = sampling_json_value(field, &s->usual);
        if (!json_equal(value, usual)) {
            print_pair(field, value, usual, out);
            fputs(")\n", out);
            count++;
        }
        json_decref(value);
        json_decref(usual);
    }
    return count;
}
