/* Runs a program to its end and keeps what it said. */
#ifndef QUIRE_TESTS_SUPPORT_PROGRAM_H
#define QUIRE_TESTS_SUPPORT_PROGRAM_H

#include <jansson.h>
#include <stdint.h>

#include "base/array.h"

struct program {
    int exit_status; /* 128 + signal if one killed it */
    struct text out, err;
};

/* argv[0] is the path; argv ends with NULL. `input` is its standard input (NULL: empty). Fails the test if the program
 * cannot be started. Free with program_free. */
void program_run(struct program *p, const char *const *argv, const char *input);
void program_free(struct program *p);

/* What a program that succeeded wrote, as JSON; the caller owns it. Fails the test if it is not JSON. */
json_t *program_json(const struct program *p);
/* A field of an object; fails the test if it is missing or not a number. */
int64_t json_require_integer(const json_t *object, const char *key);
double json_require_number(const json_t *object, const char *key);

#endif
