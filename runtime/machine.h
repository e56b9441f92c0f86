/* What a person would say about the machine beside a measurement. */
#ifndef QUIRE_RUNTIME_MACHINE_H
#define QUIRE_RUNTIME_MACHINE_H

#include <stdint.h>

/* A text is "" where the system does not say. */
struct machine {
    char processor[128];     /* "Intel(R) Xeon(R) Platinum 8468" */
    int processors, allowed; /* logical ones: online, and those that this process may run on */
    int64_t memory;          /* bytes, or the limit of a container; 0: not known */
    char system[160];        /* "Linux 6.1.0 x86_64" */
    char driver[64];         /* the version of NVIDIA's kernel module */
};
void machine_read(struct machine *out);

#endif
