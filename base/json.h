/* JSON from outside: files of a checkpoint and lines of requests, read key by key. Errors name the file and the key.
 * json_parse.h makes the values, json_value.h says what they are.
 *
 *     struct json_reader r = json_reader(object, path, err);
 *     int32_t size = json_reader_require_int(&r, "hidden_size", 1, 1 << 20);
 *     double eps = json_reader_number(&r, "rms_norm_eps", 1e-6, 0, 1);
 *     return r.status;
 */
#ifndef QUIRE_BASE_JSON_H
#define QUIRE_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/json_parse.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/status.h"

/* json_object_parse of a regular file. */
enum status json_object_read(const char *path, json_t **out, struct error *err);

/* Typed reading of one object. A message is "SOURCE: PREFIXkey must be ..., found ...". The first failure sticks: later
 * ones leave `status` and the message as they are, so that a caller reads every key and checks `status` once. A null
 * counts as an absent key. */
struct json_reader {
    const json_t *object;
    const char *source; /* NULL: messages begin with the key */
    const char *prefix; /* "", or what stands before the names of keys: "rope_scaling." */
    enum status status;
    struct error *err;
    const struct log *log; /* gets warnings; NULL, as json_reader leaves it: nothing does */
};

struct json_reader json_reader(const json_t *object, const char *source, struct error *err);

/* Fails with "SOURCE: " and the formatted sentence. */
void json_reader_fail(struct json_reader *r, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes "SOURCE: " and the formatted sentence to the log, unless it has failed. */
void json_reader_warn(const struct json_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fails with STATUS_INVALID: "NAME must be EXPECTED, found VALUE". */
void json_reader_expected(struct json_reader *r, const char *name, const char *expected, const json_t *found);

const json_t *json_reader_get(const struct json_reader *r, const char *key); /* NULL: absent or null */
bool json_reader_has(const struct json_reader *r, const char *key);          /* true for null, too */

/* The value of a key; `absent` if there is none, or after a failure. 5.0 is an integer, too. Bounds are inclusive;
 * INT64_MIN and INT64_MAX, or -INFINITY and INFINITY, leave a side open and are not named in messages. */
int64_t json_reader_int64(struct json_reader *r, const char *key, int64_t absent, int64_t min, int64_t max);
int32_t json_reader_int(struct json_reader *r, const char *key, int32_t absent, int32_t min, int32_t max);
double json_reader_number(struct json_reader *r, const char *key, double absent, double min, double max);
bool json_reader_bool(struct json_reader *r, const char *key, bool absent);
/* json_is_text; lives in the object. */
const char *json_reader_string(struct json_reader *r, const char *key, const char *absent);

/* The value of a key that must be there; `min` after a failure. */
int32_t json_reader_require_int(struct json_reader *r, const char *key, int32_t min, int32_t max);
double json_reader_require_number(struct json_reader *r, const char *key, double min, double max);
bool json_reader_require_bool(struct json_reader *r, const char *key); /* false after a failure */

/* The number that `value` is, which has no key of its own, such as an element of an array, and which messages call
 * `name`; `min` after a failure. */
int64_t json_reader_to_int64(struct json_reader *r, const char *name, const json_t *value, int64_t min, int64_t max);
double json_reader_to_number(struct json_reader *r, const char *name, const json_t *value, double min, double max);

#endif
