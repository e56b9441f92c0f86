/* Ctrl-C, and other signals that ask a command to end, as a flag. A process has one handler for a signal, so only the
 * command that runs may call these. */
#ifndef QUIRE_RUNTIME_INTERRUPT_H
#define QUIRE_RUNTIME_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* Clears the flag; the next SIGINT sets it, and one more after that, without a further call of this, kills the process.
 * Reads and writes are not cut short by it, so a caller that may wait long does so in poll, which fails with EINTR. */
void interrupt_catch(void);
/* The same for the three signals that end a run: SIGINT, SIGTERM (from batch systems) and SIGHUP (the terminal was
 * closed). A second SIGINT or SIGTERM kills the process, as the first would without this call. A second SIGHUP does
 * not, because the shell and the kernel each send one. A signal that was ignored when the process started stays ignored
 * (SIGHUP under nohup). */
void interrupt_catch_to_end(void);
bool interrupt_pending(void);                      /* since the last clear */
const volatile sig_atomic_t *interrupt_flag(void); /* the same as a number: for engine_options.cancel */
void interrupt_clear(void);

#endif
