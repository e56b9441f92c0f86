/* A checkpoint that is cut short or replaced while quire reads it: the page that is touched is gone, and the kernel
 * sends SIGBUS. The weights are read by many threads, in the middle of kernels, so the process cannot go on. */
#ifndef QUIRE_RUNTIME_BUS_ERROR_H
#define QUIRE_RUNTIME_BUS_ERROR_H

/* From now on such a SIGBUS ends the process with a sentence that names the file, and exit status 1. Any other SIGBUS
 * kills it as before. */
void bus_error_catch(void);

#endif
