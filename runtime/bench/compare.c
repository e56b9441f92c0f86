#include "runtime/bench/bench.h"

#include <string.h>

#include "base/json.h"
#include "base/visible.h"

/* A figure: the median and the range of its runs. */
struct figure {
    double median, minimum, maximum;
    int64_t count; /* of the runs; 0: not known, but there were several */
};

struct comparison {
    const char *path[2];
    json_t *json[2];
    struct table table;
    int compared, better, worse;
};

/* ---- figures ---- */

static struct figure figure_of_values(const json_t *values)
{
    struct samples samples = {0};
    for (size_t i = 0; i < json_array_size(values); i++)
        samples_add(&samples, json_number_value(json_array_get(values, i)));
    const struct figure figure = {samples_percentile(&samples, 50), samples_percentile(&samples, 0),
                                  samples_percentile(&samples, 100), (int64_t)samples.count};
    samples_free(&samples);
    return figure;
}

/* A kernel, or an operation of the scheduler: in microseconds, the spread beside them. */
static struct figure figure_of_row(const json_t *row)
{
    const json_t *median = json_object_get(row, "median_microseconds");
    if (!median) median = json_object_get(row, "microseconds");
    const json_t *fastest = json_object_get(row, "fastest_microseconds");
    if (!fastest) fastest = json_object_get(row, "microseconds");
    return (struct figure){json_number_value(median), json_number_value(fastest),
                           json_number_value(json_object_get(row, "slowest_microseconds")), 0};
}

static void spread_cell(struct table *t, const struct figure *f)
{
    char low[32], high[32];
    report_format(low, sizeof low, f->minimum);
    report_format(high, sizeof high, f->maximum);
    table_cell(t, "%s .. %s", low, high);
}

static const char *verdict(struct comparison *c, const struct figure *figures, bool lower_is_better)
{
    const bool up = figures[1].minimum > figures[0].maximum, down = figures[1].maximum < figures[0].minimum;
    if (figures[0].count == 1 || figures[1].count == 1) return "one run alone: no spread";
    if (!up && !down) return "within the spread";
    const bool better = lower_is_better ? down : up;
    c->better += better;
    c->worse += !better;
    return better ? "BETTER" : "WORSE";
}

static void add_row(struct comparison *c, const char *name, const char *unit, const struct figure *figures,
                    bool lower_is_better)
{
    char text[32];
    if (c->compared == 0) table_row(&c->table, "", "A", "spread of A", "B", "spread of B", "B / A", "");
    c->compared++;
    table_cell(&c->table, "%s%s%s", name, *unit ? ", " : "", unit);
    for (int i = 0; i < 2; i++) {
        report_format(text, sizeof text, figures[i].median);
        table_cell(&c->table, "%s", text);
        spread_cell(&c->table, &figures[i]);
    }
    table_cell(&c->table, "%.3f", figures[1].median / figures[0].median);
    table_cell(&c->table, "%s", verdict(c, figures, lower_is_better));
}

static void compare_runs(struct comparison *c)
{
    const char *key;
    json_t *a;
    json_object_foreach(json_object_get(c->json[0], "runs"), key, a)
    {
        const json_t *b = json_object_get(json_object_get(c->json[1], "runs"), key);
        const char *unit = json_string_value(json_object_get(a, "unit"));
        const char *better = json_string_value(json_object_get(a, "better"));
        const struct figure figures[2] = {figure_of_values(json_object_get(a, "values")),
                                          figure_of_values(json_object_get(b, "values"))};
        if (b && better && figures[0].count > 0 && figures[1].count > 0)
            add_row(c, key, unit ? unit : "", figures, strcmp(better, "lower") == 0);
    }
}

static void name_of_row(const json_t *row, char *out, size_t size)
{
    const char *kernel = json_string_value(json_object_get(row, "kernel"));
    const char *name = json_string_value(json_object_get(row, kernel ? "shape" : "operation"));
    snprintf(out, size, "%s%s%s", kernel ? kernel : "", kernel ? " " : "", name ? name : "");
}

/* Rows of kernels or operations that have the same name in both files. */
static void compare_rows(struct comparison *c, const char *list)
{
    const json_t *all[2] = {json_object_get(c->json[0], list), json_object_get(c->json[1], list)};
    char name[160], other[160];
    for (size_t i = 0; i < json_array_size(all[0]); i++) {
        name_of_row(json_array_get(all[0], i), name, sizeof name);
        for (size_t j = 0; j < json_array_size(all[1]); j++) {
            name_of_row(json_array_get(all[1], j), other, sizeof other);
            if (strcmp(name, other) != 0) continue;
            const struct figure figures[2] = {figure_of_row(json_array_get(all[0], i)),
                                              figure_of_row(json_array_get(all[1], j))};
            add_row(c, name, "us", figures, true);
            break;
        }
    }
}

/* ---- the report ---- */

static bool is_setting(const char *key)
{
    static const char *const settings[] = {
        "model", "device", "dtype", "threads",    "cpu_isa",       "block_size",  "processor",  "processors",  "system",
        "gpu",   "driver", "build", "batch_size", "weights_dtype", "num_prompts", "prefix_len", "quantization"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        if (strcmp(settings[i], key) == 0) return true;
    return false;
}

static void print_settings(const struct comparison *c)
{
    const char *key;
    json_t *a;
    visible_printf(stdout, "%s: A is %s, B is %s\n", json_string_value(json_object_get(c->json[0], "benchmark")),
                   c->path[0], c->path[1]);
    json_object_foreach(c->json[0], key, a)
    {
        const json_t *b = json_object_get(c->json[1], key);
        if (!is_setting(key) || !b) continue;
        if (json_equal(a, b))
            visible_printf(stdout, "  %-13s %s\n", key, show_value(a).text);
        else
            visible_printf(stdout, "  %-13s differs: %s, %s\n", key, show_value(a).text, show_value(b).text);
    }
    putchar('\n');
}

static enum status read_results(struct comparison *c, struct error *err)
{
    const char *names[2];
    for (int i = 0; i < 2; i++) {
        enum status status = json_object_read(c->path[i], &c->json[i], err);
        if (status != STATUS_OK) return status;
        names[i] = json_string_value(json_object_get(c->json[i], "benchmark"));
        if (!names[i])
            return error_set(err, STATUS_INVALID, "%s: no result of quire bench NAME --json: it has no \"benchmark\"",
                             c->path[i]);
    }
    if (strcmp(names[0], names[1]) == 0) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s is of quire bench %s, but %s of %s: compare two of the same benchmark",
                     c->path[0], show_string(names[0]).text, c->path[1], show_string(names[1]).text);
}

static enum status compare(struct comparison *c, struct error *err)
{
    enum status status = read_results(c, err);
    if (status != STATUS_OK) return status;
    compare_runs(c);
    compare_rows(c, "kernels");
    compare_rows(c, "operations");
    if (c->compared == 0)
        return error_set(err, STATUS_INVALID, "%s and %s have no figure in common", c->path[0], c->path[1]);
    print_settings(c);
    if (!table_print(&c->table, stdout)) return error_set(err, STATUS_IO, "cannot write to standard output");
    printf("\nOf %d figures, B is better in %d and worse in %d: there the runs of A and B have no value in common.\n",
           c->compared, c->better, c->worse);
    return STATUS_OK;
}

int bench_compare(int argc, char **argv)
{
    struct error err;
    if (argc != 3) {
        error_set(&err, STATUS_INVALID, "--compare needs two files: quire bench --compare A.json B.json");
        return command_fail("bench", &err, EXIT_STATUS_USAGE);
    }
    struct comparison c = {.path = {argv[1], argv[2]}, .table = {.columns = "lrrrrrl"}};
    const enum status status = compare(&c, &err);
    json_decref(c.json[0]);
    json_decref(c.json[1]);
    table_free(&c.table);
    return status == STATUS_OK ? EXIT_STATUS_OK : command_fail("bench", &err, EXIT_STATUS_FAILURE);
}
