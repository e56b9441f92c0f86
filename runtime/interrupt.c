#include "runtime/interrupt.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t ending;       /* the signal that ends the command, or 0 */
static volatile sig_atomic_t sigint_ends;  /* SIGINT ends the command, too */
static volatile sig_atomic_t held, second; /* a second SIGINT waits; it has come */
static volatile sig_atomic_t counter = -1; /* interrupt_descriptor */

static void end_by(int signal_number)
{
    sigset_t set;
    signal(signal_number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(signal_number);
}

/* A write fails only where the count is at its end. */
static void count_signal(void)
{
    const uint64_t one = 1;
    const int saved = errno;
    if (counter < 0 || write(counter, &one, sizeof one) < 0) errno = saved;
}

static void remember(int signal_number)
{
    count_signal();
    if (interrupted && signal_number == SIGINT) {
        second = 1;
        if (!held) end_by(SIGINT);
    }
    interrupted = 1;
    if (ending == 0 && (signal_number != SIGINT || sigint_ends)) ending = signal_number;
}

/* SA_RESTART: an answer that is being written is written to its end; stdio would take EINTR for a failed write. */
static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &before) != 0 || before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
}

void interrupt_catch_to_end(void)
{
    sigint_ends = 1;
    catch_signals();
}

void interrupt_catch(void)
{
    interrupted = ending != 0;
    second = 0;
    catch_signals();
}

bool interrupt_pending(void)
{
    return interrupted != 0;
}

const volatile sig_atomic_t *interrupt_flag(void)
{
    return &interrupted;
}

bool interrupt_ends(void)
{
    return ending != 0;
}

int interrupt_descriptor(void)
{
    if (counter < 0) {
        counter = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (interrupted) count_signal(); /* it came before */
    }
    return counter;
}

void interrupt_hold(void)
{
    held = 1;
}

void interrupt_release(void)
{
    held = 0;
    if (second) end_by(SIGINT);
}

void interrupt_end(int signal_number)
{
    ending = signal_number;
}

void interrupt_raise(void)
{
    if (ending != 0) end_by(ending);
}
