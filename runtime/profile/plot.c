#include "runtime/profile/series.h"

#include <stddef.h>

#include "base/plural.h"
#include "runtime/profile/bar.h"

enum { PLOT_COLUMNS = 72, PLOT_LINES = 10 };

/* The character of one cell: blocks in use fill it from below, in eighths; above them cached ones are shaded. `bottom`
 * and `top` are the blocks at its edges. */
static const char *cell(const struct series_row *row, double bottom, double top, bool utf8)
{
    const double used = row->blocks_in_use, held = used + row->blocks_cached;
    const int eighths = (int)((used - bottom) / (top - bottom) * 8 + 0.5);
    if (eighths > 0) return bar_column(eighths, utf8);
    return held > (bottom + top) / 2 ? utf8 ? "░" : "-" : " ";
}

static void print_blocks(const struct series *s, const struct series_row *rows, size_t count, bool utf8, FILE *out)
{
    for (int line = PLOT_LINES - 1; line >= 0; line--) {
        const double bottom = (double)s->num_blocks * line / PLOT_LINES,
                     top = (double)s->num_blocks * (line + 1) / PLOT_LINES;
        if (line == PLOT_LINES - 1 || line == 0 || line == PLOT_LINES / 2 - 1)
            fprintf(out, "%9d %s", (int)(line == 0 ? 0 : top), utf8 ? "┤" : "|");
        else
            fprintf(out, "%9s %s", "", utf8 ? "│" : "|");
        for (size_t i = 0; i < count; i++) fputs(cell(&rows[i], bottom, top, utf8), out);
        fputc('\n', out);
    }
}

static void print_preemptions(const struct series_row *rows, size_t count, bool utf8, FILE *out)
{
    fprintf(out, "%9s  ", "preempted");
    for (size_t i = 0; i < count; i++) fputs(rows[i].num_preemptions == 0 ? " " : utf8 ? "▲" : "^", out);
    fputc('\n', out);
}

/* One line of the queue whose length lies at that offset of a row; the largest value fills its character. A queue that
 * is always empty is left out if `optional`. */
static void print_queue(const char *name, size_t offset, bool optional, const struct series_row *rows, size_t count,
                        bool utf8, FILE *out)
{
    int32_t values[PLOT_COLUMNS], most = 0;
    for (size_t i = 0; i < count; i++) {
        values[i] = *(const int32_t *)((const char *)&rows[i] + offset);
        most = values[i] > most ? values[i] : most;
    }
    if (optional && most == 0) return;
    fprintf(out, "%9s  ", name);
    for (size_t i = 0; i < count; i++) {
        const int eighths = most ? (int)((8LL * values[i] + most - 1) / most) : 0;
        fputs(bar_column(eighths, utf8), out);
    }
    fprintf(out, "  at most %d\n", most);
}

bool plot_print(const struct series *s, bool utf8, FILE *out)
{
    struct series_row rows[PLOT_COLUMNS];
    const size_t count = series_thin(s, rows, PLOT_COLUMNS);
    const int64_t steps = s->count ? s->rows[s->count - 1].step : 0;
    fprintf(out, "%9s  %s in use  %s cached, over %lld step%s\n", "blocks", utf8 ? "█" : "#", utf8 ? "░" : "-",
            (long long)steps, plural(steps));
    print_blocks(s, rows, count, utf8, out);
    if (s->preemptions > 0) print_preemptions(rows, count, utf8, out);
    print_queue("running", offsetof(struct series_row, num_running), false, rows, count, utf8, out);
    print_queue("waiting", offsetof(struct series_row, num_waiting), false, rows, count, utf8, out);
    print_queue("swapped", offsetof(struct series_row, num_swapped), true, rows, count, utf8, out);
    return !ferror(out);
}
