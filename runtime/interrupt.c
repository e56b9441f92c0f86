#include "runtime/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t interrupted;

static void remember(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

void interrupt_catch(bool once)
{
    /* Restarted, so that an answer which is just being written is written: stdio would call EINTR a failed write. */
    struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESTART};
    if (once) action.sa_flags |= (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool interrupt_pending(void)
{
    return interrupted != 0;
}

void interrupt_clear(void)
{
    interrupted = 0;
}
