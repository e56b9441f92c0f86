/* Time for measuring, and the number of processors for deciding. */
#ifndef QUIRE_BASE_CLOCK_H
#define QUIRE_BASE_CLOCK_H

double clock_seconds(void);        /* monotonic, from an arbitrary start */
double clock_thread_seconds(void); /* that this thread has computed; asking takes longer than clock_seconds */
int processors_allowed(void);      /* processors this process may run on (its affinity mask); at least 1 */

#endif
