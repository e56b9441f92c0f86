/* Runs quire generate with a toy model. */
#ifndef QUIRE_TESTS_SUPPORT_GENERATE_H
#define QUIRE_TESTS_SUPPORT_GENERATE_H

#include "tests/support/program.h"
#include "tests/support/toy_model.h"

/* `more`: flags beside those that make the run small, ended by NULL. `input` is its standard input (NULL: empty). Free
 * with program_free. */
void generate_run(struct program *p, const struct temp_folder *model, const char *input, const char *const *more);

/* Line `index` of text that a program wrote, as JSON; fails the test if there is none or it is no object. The caller
 * owns it. */
json_t *generate_line(const struct text *written, int index);
int generate_count_lines(const struct text *written);

#endif
