/* Ctrl-C, and other signals that ask a command to end, as a flag. A process has one handler for a signal, so only the
 * command that runs may call these. */
#ifndef QUIRE_RUNTIME_INTERRUPT_H
#define QUIRE_RUNTIME_INTERRUPT_H

#include <stdbool.h>

/* From now on SIGINT sets a flag. Reads and writes are not cut short by it, so a caller that may wait long does so in
 * poll, which fails with EINTR. */
void interrupt_catch(void);
/* The same for all three signals that end a run: SIGINT, SIGTERM, with which batch systems do, and SIGHUP, which comes
 * when the terminal is closed. A second SIGINT or SIGTERM kills the process, as the first would without this call; a
 * second SIGHUP does not, because a shell and the kernel each send one. A signal that the process was started to ignore
 * (SIGHUP under nohup) stays ignored. */
void interrupt_catch_to_end(void);
bool interrupt_pending(void); /* since the last clear */
void interrupt_clear(void);

#endif
