/* The progress of a run, on one line of the terminal that is redrawn a few times a second. */
#ifndef QUIRE_RUNTIME_PROGRESS_H
#define QUIRE_RUNTIME_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown; /* it was asked for, and stderr is a terminal */
    bool drawn; /* the line is on the screen */
    double start, last_drawn;
};

void progress_start(struct progress *p, bool wanted);
bool progress_due(const struct progress *p); /* time to draw again */
/* `fraction`: of the input that is done, 0 to 1; negative if it is not known. */
void progress_update(struct progress *p, int64_t requests, int64_t tokens, double fraction);
/* Takes the line off the screen, so that something else may be written. */
void progress_clear(struct progress *p);
double progress_seconds(const struct progress *p); /* since the start */

#endif
