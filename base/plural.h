/* Counted nouns. */
#ifndef QUIRE_BASE_PLURAL_H
#define QUIRE_BASE_PLURAL_H

#include <stdint.h>

/* The end of a counted noun, "1 prompt" but "2 prompts": "" for 1, else "s". */
const char *plural(int64_t count);

#endif
