#include "runtime/bus_error.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "runtime/options/command.h"

/* Everything below runs in a signal handler: only functions that signal-safety(7) lists, and no memory of the heap. */

/* Reads /proc/self/maps through a buffer, byte by byte; -1 at the end. */
struct maps {
    int fd;
    char buffer[1024];
    ssize_t length, at;
};

static int next_byte(struct maps *m)
{
    if (m->at == m->length) {
        m->length = read(m->fd, m->buffer, sizeof m->buffer);
        m->at = 0;
    }
    return m->length > 0 ? (unsigned char)m->buffer[m->at++] : -1;
}

static uintptr_t read_address(struct maps *m, int *end)
{
    uintptr_t address = 0;
    for (;;) {
        *end = next_byte(m);
        const int digit = *end >= '0' && *end <= '9' ? *end - '0' : *end >= 'a' && *end <= 'f' ? *end - 'a' + 10 : -1;
        if (digit < 0) return address;
        address = address * 16 + (uintptr_t)digit;
    }
}

/* The rest of a line, whose path begins at the first slash. Control characters become '?'. */
static void read_path(struct maps *m, char *path, size_t size)
{
    size_t length = 0;
    for (int c; (c = next_byte(m)) >= 0 && c != '\n';)
        if ((length > 0 || c == '/') && length + 1 < size) path[length++] = (char)(c < 0x20 || c == 0x7F ? '?' : c);
    path[length] = '\0';
}

/* Lines are "START-END PERMISSIONS OFFSET DEVICE INODE PATH". False if no file is mapped at the address. */
static bool find_mapped_file(uintptr_t address, char *path, size_t size)
{
    struct maps m = {.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    bool found = false;
    while (m.fd >= 0 && !found) {
        int end;
        const uintptr_t first = read_address(&m, &end);
        if (end != '-') break;
        const uintptr_t after = read_address(&m, &end);
        read_path(&m, path, size);
        found = address >= first && address < after;
    }
    if (m.fd >= 0) close(m.fd);
    return found && path[0] == '/';
}

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return; /* nobody listens */
}

static void end_process(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    static char path[4096];
    if (info->si_code != BUS_ADRERR || !find_mapped_file((uintptr_t)info->si_addr, path, sizeof path)) {
        signal(signal_number, SIG_DFL);
        return; /* the access is tried again, and kills the process */
    }
    say("\nquire: ");
    say(path);
    say(": the file was cut short while it was in use; start again, once it is complete\n");
    _exit(EXIT_STATUS_FAILURE);
}

void bus_error_catch(void)
{
    struct sigaction action = {.sa_sigaction = end_process, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
