#include "runtime/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/plural.h"

static const double REDRAW_SECONDS = 0.2, LOG_SECONDS = 10;
static const double OF_LATE_SECONDS = 5; /* a rate forgets what was before with this time constant */
enum { BAR_WIDTH = 20, USUAL_WIDTH = 80 };

void progress_start(struct progress *p, const char *command)
{
    *p = (struct progress){.command = command, .terminal = isatty(STDERR_FILENO), .start = clock_seconds()};
}

double progress_seconds(const struct progress *p)
{
    return clock_seconds() - p->start;
}

bool progress_due(const struct progress *p)
{
    if (!p->command) return false;
    const double since = progress_seconds(p) - p->last_drawn;
    return p->terminal ? !p->drawn || since >= REDRAW_SECONDS : since >= LOG_SECONDS;
}

/* ---- the line ---- */

/* The parts of a line, of which those that do not fit are left out. */
struct line {
    struct text *out;
    size_t start;
    int width; /* 0: no limit */
    bool full, ok;
};

static void add(struct line *l, const char *part)
{
    const char *gap = l->out->length == l->start ? "" : l->width > 0 ? "  " : ", ";
    const size_t length = l->out->length - l->start + strlen(gap) + strlen(part);
    if (l->width > 0 && length > (size_t)l->width) l->full = true;
    if (!l->full) l->ok = l->ok && text_append_string(l->out, gap) && text_append_string(l->out, part);
}

static double fraction_of(const struct progress_facts *f)
{
    if (f->total <= 0) return -1;
    return f->done >= f->total ? 1 : (double)f->done / (double)f->total;
}

static void add_done(struct line *l, const struct progress_facts *f)
{
    char part[160], unit[16] = "", bar[BAR_WIDTH + 1] = "";
    const double fraction = fraction_of(f);
    if (f->unit) snprintf(unit, sizeof unit, " %s", f->unit);
    if (f->total <= 0) {
        snprintf(part, sizeof part, "%s done", grouped(f->done).text);
    } else if (l->width == 0) {
        snprintf(part, sizeof part, "%s of %s%s%s", grouped(f->done).text, f->total_estimated ? "about " : "",
                 grouped(f->total).text, unit);
    } else {
        const int full = (int)(fraction * BAR_WIDTH);
        memset(bar, ' ', BAR_WIDTH);
        memset(bar, '=', (size_t)full);
        if (full < BAR_WIDTH) bar[full] = '>';
        snprintf(part, sizeof part, "[%s] %s/%s%s%s", bar, grouped(f->done).text, f->total_estimated ? "~" : "",
                 grouped(f->total).text, unit);
    }
    add(l, part);
}

static void add_reading(struct line *l, const struct progress_facts *f)
{
    char part[32];
    if (f->output_tokens > 0 || f->prompt_tokens >= f->prompt_tokens_known) return;
    snprintf(part, sizeof part, "reading %d %%", (int)(100 * f->prompt_tokens / f->prompt_tokens_known));
    add(l, part);
}

static void add_left(struct line *l, const struct progress_facts *f, double seconds)
{
    char part[48];
    const int64_t here = f->done - f->done_before, more = f->total - f->done;
    if (f->total <= 0 || here <= 0 || more < 0) return;
    const double left = seconds * (double)more / (double)here + 0.5;
    if (left >= 3.6e8) return; /* 100000 hours say no more than nothing */
    const long whole = (long)left;
    snprintf(part, sizeof part, "%ld:%02ld:%02ld left", whole / 3600, whole / 60 % 60, whole % 60);
    add(l, part);
}

static void add_requests(struct line *l, const struct progress *p, const struct progress_facts *f)
{
    char part[96];
    snprintf(part, sizeof part, "%.0f + %.0f tokens/s", p->prompt_rate, p->output_rate);
    add(l, part);
    snprintf(part, sizeof part, "%d running, %d waiting", f->running, f->waiting);
    add(l, part);
    snprintf(part, sizeof part, "KV %.0f %%, %.0f %% hits", 100 * f->cache_used, 100 * f->hit_rate);
    add(l, part);
}

bool progress_line(const struct progress *p, const struct progress_facts *f, double seconds, int width,
                   struct text *out)
{
    struct line l = {.out = out, .start = out->length, .width = width, .ok = true};
    add_done(&l, f);
    add_reading(&l, f);
    add_left(&l, f, seconds);
    if (!f->unit) add_requests(&l, p, f);
    return l.ok;
}

/* ---- drawing ---- */

static int terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return USUAL_WIDTH;
    return size.ws_col > 1 ? size.ws_col - 1 : 1; /* the last column would wrap the line */
}

static void note_rates(struct progress *p, const struct progress_facts *f, double seconds)
{
    const double since = seconds - p->last_drawn;
    const bool begun = p->last_prompt_tokens + p->last_output_tokens > 0; /* before, there is no rate to keep */
    const double keep = begun ? exp(-since / OF_LATE_SECONDS) : 0;
    if (since <= 0) return;
    p->prompt_rate = keep * p->prompt_rate + (1 - keep) * (double)(f->prompt_tokens - p->last_prompt_tokens) / since;
    p->output_rate = keep * p->output_rate + (1 - keep) * (double)(f->output_tokens - p->last_output_tokens) / since;
    p->last_prompt_tokens = f->prompt_tokens;
    p->last_output_tokens = f->output_tokens;
    p->last_drawn = seconds;
}

void progress_update(struct progress *p, const struct progress_facts *facts)
{
    const double seconds = progress_seconds(p);
    struct text line = {0};
    note_rates(p, facts, seconds);
    if (progress_line(p, facts, seconds, p->terminal ? terminal_width() : 0, &line) && p->terminal)
        fprintf(stderr, "\r\033[K%s", line.data ? line.data : "");
    else if (line.data && !p->terminal)
        fprintf(stderr, "quire %s: %s\n", p->command, line.data);
    fflush(stderr);
    p->drawn = p->terminal;
    text_free(&line);
}

void progress_clear(struct progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}
