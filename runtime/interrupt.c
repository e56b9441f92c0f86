#include "runtime/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t interrupted;

static void remember(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* Restarted, so that an answer which is just being written is written: stdio would call EINTR a failed write. */
static void catch_signal(int signal_number, int flags)
{
    struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESTART | flags};
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
}

void interrupt_catch(void)
{
    catch_signal(SIGINT, 0);
}

void interrupt_catch_once(void)
{
    catch_signal(SIGINT, (int)SA_RESETHAND);
    catch_signal(SIGTERM, (int)SA_RESETHAND);
}

bool interrupt_pending(void)
{
    return interrupted != 0;
}

void interrupt_clear(void)
{
    interrupted = 0;
}
