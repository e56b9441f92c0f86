/* A program on a terminal of its own, as a person sees it: type, and wait for what appears. */
#ifndef QUIRE_TESTS_SUPPORT_PTY_H
#define QUIRE_TESTS_SUPPORT_PTY_H

#include <sys/types.h>

#include "base/array.h"

struct pty {
    pid_t pid;
    int fd;             /* the terminal's other side */
    struct text screen; /* all that was shown so far */
    size_t seen;        /* of it, what earlier expectations matched */
};

/* Starts argv[0]; argv ends with NULL. Fails the test if it cannot. */
void pty_start(struct pty *p, const char *const *argv);
void pty_type(struct pty *p, const char *keys);
/* Waits until `text` appears after what was matched before, for up to a minute; fails the test, with what was shown
 * instead, if it does not. */
void pty_expect(struct pty *p, const char *text);
/* Waits for the program's end and returns its exit status, 128 + signal if one killed it. */
int pty_finish(struct pty *p);

#endif
