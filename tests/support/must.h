#ifndef QUIRE_TESTS_SUPPORT_MUST_H
#define QUIRE_TESTS_SUPPORT_MUST_H

#include "base/status.h"

/* Ends the test with the error's sentence, unless the status is STATUS_OK. */
void must(enum status status, const struct error *err);

#endif
