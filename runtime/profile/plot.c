#include "runtime/profile/series.h"

#include <stddef.h>

#include "base/plural.h"
#include "runtime/profile/bar.h"

enum { PLOT_COLUMNS = 72, BLOCK_LINES = 10, SLOT_LINES = 4 };

/* What an area shows: blocks or state slots. */
struct area {
    int32_t total;
    int lines;
    size_t in_use, cached; /* offsets in struct series_row, of an int32_t each */
};

static int32_t value_of(const struct series_row *row, size_t offset)
{
    return *(const int32_t *)((const char *)row + offset);
}

/* The character of one cell: what is in use fills it from below, in eighths; above that, what is cached is shaded.
 * `bottom` and `top` are the numbers at its edges. */
static const char *cell(int32_t used, int32_t cached, double bottom, double top, bool utf8)
{
    const int eighths = (int)((used - bottom) / (top - bottom) * 8 + 0.5);
    if (eighths > 0) return bar_column(eighths, utf8);
    return used + cached > (bottom + top) / 2 ? utf8 ? "░" : "-" : " ";
}

static void print_area(const struct area *a, const struct series_row *rows, size_t count, bool utf8, FILE *out)
{
    for (int line = a->lines - 1; line >= 0; line--) {
        const double bottom = (double)a->total * line / a->lines, top = (double)a->total * (line + 1) / a->lines;
        if (line == a->lines - 1 || line == 0 || line == a->lines / 2 - 1)
            fprintf(out, "%9d %s", (int)(line == 0 ? 0 : top), utf8 ? "┤" : "|");
        else
            fprintf(out, "%9s %s", "", utf8 ? "│" : "|");
        for (size_t i = 0; i < count; i++)
            fputs(cell(value_of(&rows[i], a->in_use), value_of(&rows[i], a->cached), bottom, top, utf8), out);
        fputc('\n', out);
    }
}

static void print_slots(const struct series *s, const struct series_row *rows, size_t count, bool utf8, FILE *out)
{
    const struct area slots = {s->num_slots, SLOT_LINES, offsetof(struct series_row, slots_in_use),
                               offsetof(struct series_row, slots_cached)};
    if (s->num_slots == 0) return;
    fprintf(out, "%9s  %s of sequences  %s snapshots that none of them reads\n", "slots", utf8 ? "█" : "#",
            utf8 ? "░" : "-");
    print_area(&slots, rows, count, utf8, out);
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
        values[i] = value_of(&rows[i], offset);
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
    const struct area blocks = {s->num_blocks, BLOCK_LINES, offsetof(struct series_row, blocks_in_use),
                                offsetof(struct series_row, blocks_cached)};
    const int64_t steps = s->count ? s->rows[s->count - 1].step : 0;
    fprintf(out, "%9s  %s in use  %s cached, over %lld step%s\n", "blocks", utf8 ? "█" : "#", utf8 ? "░" : "-",
            (long long)steps, plural(steps));
    print_area(&blocks, rows, count, utf8, out);
    print_slots(s, rows, count, utf8, out);
    if (s->preemptions > 0) print_preemptions(rows, count, utf8, out);
    print_queue("running", offsetof(struct series_row, num_running), false, rows, count, utf8, out);
    print_queue("waiting", offsetof(struct series_row, num_waiting), false, rows, count, utf8, out);
    print_queue("swapped", offsetof(struct series_row, num_swapped), true, rows, count, utf8, out);
    return !ferror(out);
}
