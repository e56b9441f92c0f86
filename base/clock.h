/* Time for measuring. */
#ifndef QUIRE_BASE_CLOCK_H
#define QUIRE_BASE_CLOCK_H

double clock_seconds(void);        /* monotonic, from an arbitrary start */
double clock_thread_seconds(void); /* that this thread has computed; asking takes longer than clock_seconds */

#endif
