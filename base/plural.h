/* Counted nouns, and numbers for people. */
#ifndef QUIRE_BASE_PLURAL_H
#define QUIRE_BASE_PLURAL_H

#include <stdint.h>

/* The end of a counted noun, "1 prompt" but "2 prompts": "" for 1, else "s". */
const char *plural(int64_t count);

/* 1204 as "1,204". */
struct grouped {
    char text[32];
};
struct grouped grouped(int64_t number);

#endif
