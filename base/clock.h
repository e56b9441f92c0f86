/* Time for measuring. */
#ifndef QUIRE_BASE_CLOCK_H
#define QUIRE_BASE_CLOCK_H

double clock_seconds(void); /* monotonic, from an arbitrary start */

#endif
