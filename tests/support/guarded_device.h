/* Makes a CPU backend a device whose memory is not the host's, for what calls the host (backend->call_host): while the
 * host computes, a touch of device memory ends the test. */
#ifndef QUIRE_TESTS_SUPPORT_GUARDED_DEVICE_H
#define QUIRE_TESTS_SUPPORT_GUARDED_DEVICE_H

#include "kernels/backend.h"

/* *calls counts the calls of the host from 0. One backend at a time. */
void guarded_device_wrap(struct backend *b, int *calls);

#endif
