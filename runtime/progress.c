#include "runtime/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

static const double REDRAW_SECONDS = 0.2;

void progress_start(struct progress *p, bool wanted)
{
    *p = (struct progress){.shown = wanted && isatty(STDERR_FILENO), .start = clock_seconds()};
}

double progress_seconds(const struct progress *p)
{
    return clock_seconds() - p->start;
}

bool progress_due(const struct progress *p)
{
    return p->shown && (!p->drawn || progress_seconds(p) - p->last_drawn >= REDRAW_SECONDS);
}

void progress_update(struct progress *p, int64_t requests, int64_t tokens, double fraction)
{
    double seconds = progress_seconds(p);
    p->last_drawn = seconds;
    p->drawn = true;
    fprintf(stderr, "\r\033[K%lld done, %lld tokens, %.1f tokens/s", (long long)requests, (long long)tokens,
            seconds > 0 ? (double)tokens / seconds : 0);
    if (fraction > 0 && fraction <= 1) {
        long left = (long)(seconds * (1 - fraction) / fraction + 0.5);
        fprintf(stderr, ", %.0f %%, %ld:%02ld:%02ld left", 100 * fraction, left / 3600, left / 60 % 60, left % 60);
    }
    fflush(stderr);
}

void progress_clear(struct progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}
