/* Ctrl-C as something to ask about. Only one part of a process can own SIGINT; here it is the command. */
#ifndef QUIRE_RUNTIME_INTERRUPT_H
#define QUIRE_RUNTIME_INTERRUPT_H

#include <stdbool.h>

/* From now on SIGINT sets a flag; reads and writes go on, so whoever waits long does so in poll, which ends with EINTR.
 */
void interrupt_catch(void);
/* The same for SIGTERM too, with which batch systems end a run; the second of either kills the process, as it would
 * without this. */
void interrupt_catch_once(void);
bool interrupt_pending(void); /* since the last clear */
void interrupt_clear(void);

#endif
