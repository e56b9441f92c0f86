/* Which quire this is: quire --version, and the head of a benchmark. */
#ifndef QUIRE_RUNTIME_VERSION_H
#define QUIRE_RUNTIME_VERSION_H

#include <stdio.h>

/* "quire 0.1.0, commit 0123456789ab, Release, GNU 12.2.0"; the commit is that at which the build was configured. */
const char *version_text(void);

/* The version, the machine, instruction sets, CUDA and the libraries, a line each. */
void version_print(FILE *out);

#endif
