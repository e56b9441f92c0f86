#include "runtime/generate/journal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "runtime/prompts/sampling_json.h"

bool journal_init(struct journal *j)
{
    *j = (struct journal){.parameters = json_object()};
    snprintf(j->version, sizeof j->version, "%s", QUIRE_VERSION);
    return j->parameters != NULL;
}

void journal_free(struct journal *j)
{
    json_decref(j->parameters);
    json_decref(j->input_sizes);
    *j = (struct journal){0};
}

static void path_of(char *path, size_t size, const char *output, const char *suffix)
{
    snprintf(path, size, "%s%s", output, suffix);
}

/* ---- parameters ---- */

static void put(struct journal *j, const char *flag, json_t *value)
{
    if (json_object_set_new(j->parameters, flag, value) != 0) j->no_memory = true;
}

/* A text that is not UTF-8 (a path) is put down as its bytes in Latin-1: it is compared, and shown in a sentence. */
static json_t *json_bytes(const char *value)
{
    json_t *string = json_string(value);
    struct text text = {0};
    if (string) return string;
    for (const unsigned char *c = (const unsigned char *)value; *c; c++) {
        const char two[] = {(char)(0xC0 | *c >> 6), (char)(0x80 | (*c & 0x3F))};
        if (!text_append(&text, *c < 0x80 ? (const char *)c : two, *c < 0x80 ? 1 : 2)) break;
    }
    string = json_stringn(text.data ? text.data : "", text.length);
    text_free(&text);
    return string;
}

void journal_put_string(struct journal *j, const char *flag, const char *value)
{
    if (value) put(j, flag, json_bytes(value));
}

void journal_put_integer(struct journal *j, const char *flag, int64_t value)
{
    put(j, flag, json_integer(value));
}

void journal_put_switch(struct journal *j, const char *flag, bool value)
{
    if (value) put(j, flag, json_true());
}

void journal_put_sampling(struct journal *j, const struct sampling_flags *flags)
{
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++) {
        char flag[40];
        if (!(flags->given >> i & 1)) continue;
        snprintf(flag, sizeof flag, "--%s", flags->texts[i].name);
        put(j, flag, sampling_json_value(&sampling_fields[i], &flags->params));
    }
}

/* ---- reading ---- */

static void copy_string(struct json_reader *r, const char *key, char *out, size_t size)
{
    snprintf(out, size, "%s", json_reader_string(r, key, ""));
}

static void read_engine(struct json_reader *r, struct journal *out)
{
    const json_t *engine = json_reader_get(r, "engine");
    if (!json_is_object(engine)) return;
    struct json_reader inner = json_reader(engine, r->source, r->err);
    out->max_model_len = json_reader_int(&inner, "max_model_len", 0, 0, INT32_MAX);
    copy_string(&inner, "dtype", out->dtype, sizeof out->dtype);
    if (inner.status != STATUS_OK) r->status = inner.status;
}

static enum status read_object(const json_t *object, const char *path, struct journal *out, struct error *err)
{
    struct json_reader r = json_reader(object, path, err);
    copy_string(&r, "quire", out->version, sizeof out->version);
    copy_string(&r, "input", out->input.text, sizeof out->input.text);
    copy_string(&r, "model", out->model.text, sizeof out->model.text);
    copy_string(&r, "shard", out->shard, sizeof out->shard);
    out->num_prompts = json_reader_int64(&r, "num_prompts", 0, 0, INT64_MAX);
    out->begin = json_reader_int64(&r, "begin", 0, 0, INT64_MAX);
    out->end = json_reader_int64(&r, "end", 0, 0, INT64_MAX);
    out->ordered = json_reader_bool(&r, "ordered", false);
    read_engine(&r, out);
    out->parameters = json_incref(json_object_get(object, "parameters"));
    out->input_sizes = json_incref(json_object_get(object, "input_sizes"));
    if (r.status == STATUS_OK && (!json_is_object(out->parameters) || !out->input.text[0] || out->end < out->begin))
        json_reader_fail(&r, STATUS_INVALID, "it is not what quire generate writes beside its output");
    return r.status;
}

enum status journal_read(const char *output, struct journal *out, bool *found, struct error *err)
{
    char path[4096];
    json_t *object = NULL;
    *out = (struct journal){0};
    path_of(path, sizeof path, output, JOURNAL_SUFFIX);
    enum status status = file_find(path, found, err);
    if (status != STATUS_OK || !*found) return status;
    status = json_object_read(path, &object, err);
    if (status == STATUS_OK) status = read_object(object, path, out, err);
    json_decref(object);
    if (status != STATUS_OK) journal_free(out);
    return status;
}

/* ---- writing ---- */

static json_t *journal_json(const struct journal *j)
{
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:O, s:I, s:I, s:I, s:b}", "quire", j->version, "input", j->input.text, "model",
                  j->model.text, "parameters", j->parameters, "num_prompts", (json_int_t)j->num_prompts, "begin",
                  (json_int_t)j->begin, "end", (json_int_t)j->end, "ordered", j->ordered);
    if (object && j->input_sizes) json_object_set(object, "input_sizes", j->input_sizes);
    if (object && j->shard[0]) json_put_string(object, "shard", j->shard);
    if (object && j->max_model_len > 0)
        json_object_set_new(object, "engine",
                            json_pack("{s:i, s:s}", "max_model_len", j->max_model_len, "dtype", j->dtype));
    return object;
}

enum status journal_write(const struct journal *j, const char *output, struct error *err)
{
    char path[4096];
    struct text text = {0};
    path_of(path, sizeof path, output, JOURNAL_SUFFIX);
    json_t *object = j->no_memory ? NULL : journal_json(j);
    const bool ok = object && json_append(&text, object, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) &&
                    text_append_string(&text, "\n");
    json_decref(object);
    enum status status = ok ? file_replace(path, text.data, text.length, err)
                            : error_set(err, STATUS_OUT_OF_MEMORY, "no memory for %s", path);
    text_free(&text);
    return status;
}

void journal_remove(const char *output)
{
    char path[4096];
    path_of(path, sizeof path, output, JOURNAL_SUFFIX);
    unlink(path);
}

/* ---- comparing ---- */

#define WAYS_OUT "name another output, or start anew with --overwrite"

static enum status differs(struct error *err, const char *output, const char *flag, const json_t *before,
                           const json_t *now)
{
    if (!before) return error_set(err, STATUS_INVALID, "%s was begun without %s; " WAYS_OUT, output, flag);
    if (json_is_true(before))
        return error_set(err, STATUS_INVALID, "%s was begun with %s; give it again, " WAYS_OUT, output, flag);
    return error_set(err, STATUS_INVALID, "%s was begun with %s %s, %s%s; " WAYS_OUT, output, flag,
                     show_value(before).text, now ? "and now it is " : "which is missing now",
                     now ? show_value(now).text : "");
}

static enum status compare_parameters(json_t *before, json_t *now, const char *output, struct error *err)
{
    const char *flag;
    json_t *value;
    json_object_foreach(before, flag, value)
    {
        if (!json_equal(value, json_object_get(now, flag)))
            return differs(err, output, flag, value, json_object_get(now, flag));
    }
    json_object_foreach(now, flag, value)
    {
        if (!json_object_get(before, flag)) return differs(err, output, flag, NULL, value);
    }
    return STATUS_OK;
}

static enum status compare_engine(const struct journal *before, const struct journal *now, const char *output,
                                  struct error *err)
{
    if (before->max_model_len == 0 || now->max_model_len == 0) return STATUS_OK;
    if (before->max_model_len != now->max_model_len)
        return error_set(err, STATUS_INVALID,
                         "%s was begun with a max_model_len of %d, which is %d now; give --max-model-len, " WAYS_OUT,
                         output, before->max_model_len, now->max_model_len);
    if (strcmp(before->dtype, now->dtype) != 0)
        return error_set(err, STATUS_INVALID, "%s was begun in %s, and now it would be %s; give --dtype, " WAYS_OUT,
                         output, before->dtype, now->dtype);
    return STATUS_OK;
}

enum status journal_compare(const struct journal *before, const struct journal *now, const char *output,
                            struct error *err)
{
    if (strcmp(before->version, now->version) != 0)
        return error_set(err, STATUS_INVALID, "%s was begun by quire %s, and this is %s; " WAYS_OUT, output,
                         before->version, now->version);
    if (strcmp(before->input.text, now->input.text) != 0)
        return error_set(err, STATUS_INVALID, "%s holds answers to another input, or the input has changed; " WAYS_OUT,
                         output);
    if (strcmp(before->model.text, now->model.text) != 0)
        return error_set(err, STATUS_INVALID, "%s holds answers of another model, or the model has changed; " WAYS_OUT,
                         output);
    if (strcmp(before->shard, now->shard) != 0)
        return error_set(err, STATUS_INVALID, "%s was begun %s%s; " WAYS_OUT, output,
                         before->shard[0] ? "with --shard " : "without --shard", before->shard);
    if (before->ordered != now->ordered)
        return error_set(err, STATUS_INVALID, "%s was begun with%s --ordered; " WAYS_OUT, output,
                         before->ordered ? "" : "out");
    const enum status status = compare_parameters(before->parameters, now->parameters, output, err);
    return status == STATUS_OK ? compare_engine(before, now, output, err) : status;
}

bool journal_same_answers(const struct journal *a, const struct journal *b)
{
    return strcmp(a->version, b->version) == 0 && strcmp(a->input.text, b->input.text) == 0 &&
           strcmp(a->model.text, b->model.text) == 0 && json_equal(a->parameters, b->parameters) &&
           a->max_model_len == b->max_model_len && strcmp(a->dtype, b->dtype) == 0;
}
