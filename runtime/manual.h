/* The manual page quire.1, made from the flags of all commands. */
#ifndef QUIRE_RUNTIME_MANUAL_H
#define QUIRE_RUNTIME_MANUAL_H

#include <stdbool.h>
#include <stdio.h>

/* Writes the page in the man macros (man(7)). False: memory ran out. */
bool manual_print(FILE *out);

#endif
