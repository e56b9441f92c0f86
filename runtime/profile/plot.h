/* The blocks over the steps in the terminal, of block characters, or of ASCII where the locale is not UTF-8. */
#ifndef QUIRE_RUNTIME_PLOT_H
#define QUIRE_RUNTIME_PLOT_H

#include <stdio.h>

#include "runtime/profile/series.h"

/* Draws a plot of 72 columns: blocks in use and cached, preemptions, requests running, waiting and swapped. False if
 * the stream refused. */
bool plot_print(const struct series *s, bool utf8, FILE *out);

#endif
