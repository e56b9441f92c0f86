#include "runtime/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t interrupted;

static void remember(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* SA_RESTART: an answer that is being written is written to its end; stdio would take EINTR for a failed write. */
static void catch_signal(int signal_number, int flags)
{
    struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESTART | flags}, before;
    sigemptyset(&action.sa_mask);
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler == SIG_IGN) return;
    sigaction(signal_number, &action, NULL);
}

void interrupt_catch(void)
{
    interrupted = 0;
    catch_signal(SIGINT, (int)SA_RESETHAND);
}

void interrupt_catch_to_end(void)
{
    catch_signal(SIGINT, (int)SA_RESETHAND);
    catch_signal(SIGTERM, (int)SA_RESETHAND);
    catch_signal(SIGHUP, 0);
}

bool interrupt_pending(void)
{
    return interrupted != 0;
}

const volatile sig_atomic_t *interrupt_flag(void)
{
    return &interrupted;
}

void interrupt_clear(void)
{
    interrupted = 0;
}
