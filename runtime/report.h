/* The results of a run: numbers, figures of several runs and distributions. Printed as tables, or as one JSON object
 * with the names of vLLM's bench. */
#ifndef QUIRE_RUNTIME_REPORT_H
#define QUIRE_RUNTIME_REPORT_H

#include <jansson.h>

#include "runtime/table.h"

/* Values in the order they came. Zero-initialise; free with samples_free. */
struct samples {
    double *values; /* [count] */
    size_t count, capacity;
    bool failed; /* memory ran out: values are missing */
};
void samples_add(struct samples *s, double value);
void samples_free(struct samples *s);
double samples_mean(const struct samples *s); /* NaN without values */
/* Percentile 0 .. 100 with linear interpolation, as numpy's; NaN without values. */
double samples_percentile(const struct samples *s, double percent);

struct report {
    json_t *json;
    char title[2048];           /* lines before the tables; "": none */
    struct table numbers;       /* "what", value and unit */
    struct table runs;          /* "what", median, min, max and unit */
    struct table distributions; /* "what", mean, p50, p90, p99 */
};
void report_init(struct report *r);
void report_free(struct report *r);

void report_string(struct report *r, const char *key, const char *value); /* only in the JSON */
/* `key` is the name in the JSON, `label` the one in the table; label NULL: only in the JSON. */
void report_integer(struct report *r, const char *key, const char *label, int64_t value);
void report_amount(struct report *r, const char *key, const char *label, int64_t value, const char *unit);
/* `unit` stands after the value ("", "tokens/s"), here and above; a NaN is left out. */
void report_number(struct report *r, const char *key, const char *label, double value, const char *unit);
/* mean_KEY_ms, median_KEY_ms, p90_KEY_ms and p99_KEY_ms of samples that are seconds. Adds nothing if there are no
 * samples. */
void report_milliseconds(struct report *r, const char *key, const char *label, const struct samples *seconds);

/* A figure that was measured in several runs. In the JSON, runs.KEY has unit, better ("higher" or "lower": which way is
 * an improvement) and values, in their order; quire bench --compare reads them. Adds nothing if there are no values. */
void report_runs(struct report *r, const char *key, const char *label, const struct samples *values, const char *unit,
                 const char *better);

/* A number with four significant digits, which is what a measurement is worth. */
void report_format(char *text, size_t size, double value);

/* Writes a report as JSON on several lines, with nine digits. False if memory ran out or the stream refused. */
bool report_print_json(const json_t *json, FILE *out);
/* Writes the tables, or the JSON, to `out`. False if memory ran out or the stream refused. */
bool report_print(const struct report *r, bool as_json, FILE *out);

#endif
