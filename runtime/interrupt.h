/* Signals that ask a command to end, as a flag: SIGINT (Ctrl-C), SIGTERM (from batch systems) and SIGHUP (the terminal
 * was closed). The command writes what is finished and returns; then main lets the signal do what it would have done
 * at once, so that a shell sees a process that the signal ended (130, 143, 129) and its loops end, too.
 *
 * A second SIGINT ends the process at once. Of the other signals two may come for one event: the shell and the kernel
 * send SIGHUP, and timeout(1) sends its signal to the process and to its group. A signal that was ignored when the
 * process started stays ignored (SIGHUP under nohup). A process has one handler for a signal, so only the command that
 * runs may call these. */
#ifndef QUIRE_RUNTIME_INTERRUPT_H
#define QUIRE_RUNTIME_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* Catches the three signals: from now on they set the flag. Reads and writes are not cut short, so a caller that may
 * wait long does so in poll, which fails with EINTR. */
void interrupt_catch_to_end(void);
/* Catches them, too, but SIGINT ends only what the command does now, and not the command: the flag is cleared, and the
 * next SIGINT is the first again. */
void interrupt_catch(void);

bool interrupt_pending(void);                      /* the flag */
const volatile sig_atomic_t *interrupt_flag(void); /* the flag as a number, for engine_options.cancel */
bool interrupt_ends(void);                         /* the command is to end */

/* A descriptor that can be read, and polled, from the first of the three signals on: each adds 1 to its 64-bit count
 * (eventfd(2)). For a command that waits for its end and for something else. It is made by the first call; -1: the
 * system gives none. */
int interrupt_descriptor(void);

/* Between these a second SIGINT waits: for writes to files, which take no time but must be whole. */
void interrupt_hold(void);
void interrupt_release(void);

/* Does what the signal does when it asks for the end of the command; 0: no signal has asked for it. */
void interrupt_end(int signal_number);
/* Ends the process by the signal that asked for the end of the command. Returns if none did. */
void interrupt_raise(void);

#endif
