#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

/* --- Files --- */

static enum status parse_file(const char *path, const char *bytes, size_t length, json_t **out, struct error *err)
{
    if (length == 0) return error_set(err, STATUS_INVALID, "%s: the file is empty; expected a JSON object", path);
    enum status status = file_refuse_lfs_pointer(path, bytes, length, err);
    return status ? status : json_object_parse(bytes, length, 0, path, out, err);
}

enum status json_object_read(const char *path, json_t **out, struct error *err)
{
    struct mapped_file file;
    *out = NULL;
    enum status status = mapped_file_open(path, &file, err);
    if (status != STATUS_OK) return status;
    status = parse_file(path, (const char *)file.data, file.size, out, err);
    mapped_file_close(&file);
    return status;
}

/* --- Typed reading --- */

struct json_reader json_reader(const json_t *object, const char *source, struct error *err)
{
    return (struct json_reader){.object = object, .source = source, .prefix = "", .status = STATUS_OK, .err = err};
}

/* error_set, with "SOURCE: " before the sentence where there is a source. */
static enum status vfail(const char *source, enum status status, struct error *err, const char *format, va_list args)
{
    char text[sizeof err->text];
    vsnprintf(text, sizeof text, format, args);
    return error_set(err, status, "%s%s%s", source ? source : "", source ? ": " : "", text);
}

void json_reader_fail(struct json_reader *r, enum status status, const char *format, ...)
{
    if (r->status != STATUS_OK) return;
    va_list args;
    va_start(args, format);
    r->status = vfail(r->source, status, r->err, format, args);
    va_end(args);
}

void json_reader_warn(const struct json_reader *r, const char *format, ...)
{
    char sentence[512];
    if (r->status != STATUS_OK) return;
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    log_write(r->log, LOG_WARNING, "%s%s%s", r->source ? r->source : "", r->source ? ": " : "", sentence);
}

void json_reader_expected(struct json_reader *r, const char *name, const char *expected, const json_t *found)
{
    const char *spelling = json_spelling(found);
    json_reader_fail(r, STATUS_INVALID, "%s%s must be %s, found %s%s", r->prefix, name, expected,
                     found ? show_value(found).text : "nothing",
                     spelling && strcmp(spelling, "NaN") == 0 ? "; null stands for no value" : "");
}

const json_t *json_reader_get(const struct json_reader *r, const char *key)
{
    const json_t *value = json_object_get(r->object, key);
    return json_is_null(value) ? NULL : value;
}

bool json_reader_has(const struct json_reader *r, const char *key)
{
    return json_object_get(r->object, key) != NULL;
}

/* An integer, also if it is written as 5.0: of such a number, as far as every integer is a double. */
static bool is_integer(const json_t *value, int64_t *number)
{
    const double real = json_real_value(value), most = 0x1p53;
    *number = json_is_integer(value) ? json_integer_value(value) : 0;
    if (!json_is_real(value) || real < -most || real > most || real != trunc(real)) return json_is_integer(value);
    *number = (int64_t)real;
    return true;
}

int64_t json_reader_to_int64(struct json_reader *r, const char *name, const json_t *value, int64_t min, int64_t max)
{
    int64_t number;
    if (is_integer(value, &number) && number >= min && number <= max) return number;
    char expected[96];
    if (min > INT64_MIN && max < INT64_MAX)
        snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)min, (long long)max);
    else if (min > INT64_MIN)
        snprintf(expected, sizeof expected, "an integer of %lld or more", (long long)min);
    else if (max < INT64_MAX)
        snprintf(expected, sizeof expected, "an integer of %lld or less", (long long)max);
    else
        snprintf(expected, sizeof expected, "an integer");
    json_reader_expected(r, name, expected, value);
    return min;
}

double json_reader_to_number(struct json_reader *r, const char *name, const json_t *value, double min, double max)
{
    const double number = json_number_value(value);
    if (json_is_number(value) && number >= min && number <= max) return number;
    char expected[96];
    if (isfinite(min) && isfinite(max))
        snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
    else if (isfinite(min))
        snprintf(expected, sizeof expected, "a number of %g or more", min);
    else if (isfinite(max))
        snprintf(expected, sizeof expected, "a number of %g or less", max);
    else
        snprintf(expected, sizeof expected, "a number");
    json_reader_expected(r, name, expected, value);
    return min;
}

int64_t json_reader_int64(struct json_reader *r, const char *key, int64_t absent, int64_t min, int64_t max)
{
    const json_t *value = json_reader_get(r, key);
    if (!value) return absent;
    const int64_t number = json_reader_to_int64(r, key, value, min, max);
    return r->status == STATUS_OK ? number : absent;
}

int32_t json_reader_int(struct json_reader *r, const char *key, int32_t absent, int32_t min, int32_t max)
{
    return (int32_t)json_reader_int64(r, key, absent, min, max);
}

double json_reader_number(struct json_reader *r, const char *key, double absent, double min, double max)
{
    const json_t *value = json_reader_get(r, key);
    if (!value) return absent;
    const double number = json_reader_to_number(r, key, value, min, max);
    return r->status == STATUS_OK ? number : absent;
}

bool json_reader_bool(struct json_reader *r, const char *key, bool absent)
{
    const json_t *value = json_reader_get(r, key);
    if (!value) return absent;
    if (json_is_boolean(value)) return json_is_true(value);
    json_reader_expected(r, key, "true or false", value);
    return absent;
}

const char *json_reader_string(struct json_reader *r, const char *key, const char *absent)
{
    const json_t *value = json_reader_get(r, key);
    if (!value) return absent;
    if (json_is_text(value)) return json_string_value(value);
    json_reader_expected(r, key, json_is_string(value) ? JSON_TEXT : "a string", value);
    return absent;
}

static void require(struct json_reader *r, const char *key, const char *expected)
{
    if (!json_reader_get(r, key))
        json_reader_fail(r, STATUS_INVALID, "the key %s%s is missing; expected %s", r->prefix, key, expected);
}

int32_t json_reader_require_int(struct json_reader *r, const char *key, int32_t min, int32_t max)
{
    require(r, key, "an integer");
    return json_reader_int(r, key, min, min, max);
}

double json_reader_require_number(struct json_reader *r, const char *key, double min, double max)
{
    require(r, key, "a number");
    return json_reader_number(r, key, min, min, max);
}

bool json_reader_require_bool(struct json_reader *r, const char *key)
{
    if (!json_reader_get(r, key)) json_reader_expected(r, key, "true or false", NULL);
    return json_reader_bool(r, key, false);
}
