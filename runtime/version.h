/* Which quire this is, and on which machine: quire --version, and the head of a benchmark. */
#ifndef QUIRE_RUNTIME_VERSION_H
#define QUIRE_RUNTIME_VERSION_H

#include <stdint.h>
#include <stdio.h>

/* "quire 0.1.0, commit 0123456789ab, Release, GNU 12.2.0"; the commit is that at which the build was configured. */
const char *version_text(void);

/* What a person would say about the machine beside a measurement. A text is "" where the system does not say. */
struct machine {
    char processor[128];     /* "Intel(R) Xeon(R) Platinum 8468" */
    int processors, allowed; /* logical ones: online, and those that this process may run on */
    int64_t memory;          /* bytes, or the limit of a container; 0: not known */
    char system[160];        /* "Linux 6.1.0 x86_64" */
    char driver[64];         /* the version of NVIDIA's kernel module */
};
void machine_read(struct machine *out);

/* The version, the machine, instruction sets, CUDA and the libraries, a line each. */
void version_print(FILE *out);

#endif
