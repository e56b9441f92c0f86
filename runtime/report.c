#include "runtime/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/plural.h"
#include "base/visible.h"

void samples_add(struct samples *s, double value)
{
    if (!array_reserve(&s->values, &s->capacity, s->count + 1, sizeof *s->values)) {
        s->failed = true;
        return;
    }
    s->values[s->count++] = value;
}

void samples_free(struct samples *s)
{
    free(s->values);
    *s = (struct samples){0};
}

double samples_mean(const struct samples *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->count; i++) sum += s->values[i];
    return s->count ? sum / (double)s->count : NAN;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_percentile(const struct samples *s, double percent)
{
    if (s->count == 0) return NAN;
    double *sorted = malloc(s->count * sizeof *sorted);
    if (!sorted) return NAN;
    memcpy(sorted, s->values, s->count * sizeof *sorted);
    qsort(sorted, s->count, sizeof *sorted, compare_doubles);
    const double place = percent / 100 * (double)(s->count - 1);
    const size_t below = (size_t)place;
    const size_t above = below + 1 < s->count ? below + 1 : below;
    const double value = sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
    free(sorted);
    return value;
}

void report_init(struct report *r)
{
    *r = (struct report){.json = json_object(),
                         .numbers = {.columns = "lrl"},
                         .runs = {.columns = "lrrrl"},
                         .distributions = {.columns = "lrrrr"}};
}

void report_free(struct report *r)
{
    json_decref(r->json);
    table_free(&r->numbers);
    table_free(&r->runs);
    table_free(&r->distributions);
}

static void number_row(struct report *r, const char *label, const char *value, const char *unit)
{
    if (label) table_row(&r->numbers, label, value, unit);
}

void report_string(struct report *r, const char *key, const char *value)
{
    json_put_string(r->json, key, value);
}

void report_amount(struct report *r, const char *key, const char *label, int64_t value, const char *unit)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    if (key) json_put_integer(r->json, key, value);
    number_row(r, label, text, unit);
}

void report_integer(struct report *r, const char *key, const char *label, int64_t value)
{
    report_amount(r, key, label, value, "");
}

void report_format(char *text, size_t size, double value)
{
    const double magnitude = fabs(value);
    const int decimals = magnitude >= 1000 ? 0 : magnitude >= 100 ? 1 : magnitude >= 10 ? 2 : 3;
    snprintf(text, size, "%.*f", decimals, value);
}

void report_number(struct report *r, const char *key, const char *label, double value, const char *unit)
{
    if (!isfinite(value)) return;
    char text[64];
    report_format(text, sizeof text, value);
    if (key) json_put_real(r->json, key, value);
    number_row(r, label, text, unit);
}

static void distribution_cell(struct report *r, const char *name, const char *key, double milliseconds)
{
    char full_key[64], text[64];
    snprintf(full_key, sizeof full_key, "%s_%s_ms", name, key);
    json_put_real(r->json, full_key, milliseconds);
    report_format(text, sizeof text, milliseconds);
    table_cell(&r->distributions, "%s", text);
}

void report_milliseconds(struct report *r, const char *key, const char *label, const struct samples *seconds)
{
    if (seconds->count == 0) return;
    if (seconds->failed) r->distributions.failed = true;
    if (r->distributions.num_cells == 0) table_row(&r->distributions, "milliseconds", "mean", "p50", "p90", "p99");
    table_cell(&r->distributions, "%s", label);
    distribution_cell(r, "mean", key, 1e3 * samples_mean(seconds));
    distribution_cell(r, "median", key, 1e3 * samples_percentile(seconds, 50));
    distribution_cell(r, "p90", key, 1e3 * samples_percentile(seconds, 90));
    distribution_cell(r, "p99", key, 1e3 * samples_percentile(seconds, 99));
}

void report_runs(struct report *r, const char *key, const char *label, const struct samples *values, const char *unit,
                 const char *better)
{
    char heading[64], texts[3][64];
    if (values->count == 0) return;
    if (values->failed) r->runs.failed = true;
    if (r->runs.num_cells == 0) {
        snprintf(heading, sizeof heading, "of %zu run%s", values->count, plural((int64_t)values->count));
        table_row(&r->runs, heading, "median", "min", "max", "");
    }
    for (int i = 0; i < 3; i++)
        report_format(texts[i], sizeof texts[i], samples_percentile(values, i == 0 ? 50 : i == 1 ? 0 : 100));
    table_row(&r->runs, label, texts[0], texts[1], texts[2], unit);
    json_t *all = json_object_get(r->json, "runs"), *list = json_array();
    if (!all) json_object_set_new(r->json, "runs", all = json_object());
    for (size_t i = 0; i < values->count; i++) json_array_append_new(list, json_real(values->values[i]));
    json_object_set_new(all, key, json_pack("{s:s, s:s, s:o}", "unit", unit, "better", better, "values", list));
}

bool report_print_json(const json_t *json, FILE *out)
{
    return json_print(json, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9), out);
}

bool report_print(const struct report *r, bool as_json, FILE *out)
{
    if (as_json) return report_print_json(r->json, out);
    if (r->title[0]) visible_printf(out, "%s\n\n", r->title);
    if (!table_print(&r->numbers, out)) return false;
    if (r->runs.num_cells > 0 && ((r->numbers.num_cells > 0 && fputc('\n', out) == EOF) || !table_print(&r->runs, out)))
        return false;
    if (r->distributions.num_cells == 0) return true;
    fputc('\n', out);
    return table_print(&r->distributions, out);
}
