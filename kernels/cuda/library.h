/* Libraries of CUDA's toolkit that are opened at run time, so that the executable also starts where they are missing.
 */
#ifndef QUIRE_KERNELS_CUDA_LIBRARY_H
#define QUIRE_KERNELS_CUDA_LIBRARY_H

#include <stdbool.h>

/* A library is looked for in so many places: versions 13 and 12, where the system finds them and in /usr/local/cuda. */
enum { LIBRARY_PLACES = 4 };

struct library_path {
    char text[64];
};
/* "libcublas" and 0: "libcublas.so.13". */
struct library_path library_path(const char *name, int place);

void *library_open(const char *name); /* from the first place that has it; NULL: none */

/* Points *function, a pointer to a function, to that symbol. False: the library does not have it. */
bool library_find(void *library, const char *symbol, void *function);

#endif
