/* The facts of quire inspect as lines of a name and a value. */
#ifndef QUIRE_RUNTIME_INSPECT_TEXT_H
#define QUIRE_RUNTIME_INSPECT_TEXT_H

#include "runtime/inspect/inspection.h"

/* Prints names and values in groups on stdout. False if it could not be written. */
bool inspection_print(const struct inspection *i);

#endif
