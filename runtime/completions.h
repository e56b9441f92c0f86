/* Completions of commands, flags and values for shells, made from the flags of all commands. */
#ifndef QUIRE_RUNTIME_COMPLETIONS_H
#define QUIRE_RUNTIME_COMPLETIONS_H

#include <stdbool.h>
#include <stdio.h>

/* Writes the script for "bash", "zsh" or "fish". False for any other shell, or if memory ran out. */
bool completions_print(const char *shell, FILE *out);

#endif
