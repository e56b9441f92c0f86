/* Candidates for the word before the cursor (line_editor.h): what they have in common, and the list that is shown. */
#ifndef QUIRE_RUNTIME_COMPLETION_H
#define QUIRE_RUNTIME_COMPLETION_H

#include <stdio.h>

#include "base/array.h"
#include "runtime/chat/line_editor.h"

struct line_candidates { /* zero-initialise it */
    char **words;        /* [count] */
    size_t count, capacity;
};

void line_candidates_free(struct line_candidates *c);
/* Bytes, in whole characters, that all words begin with; 0 if there is none. */
size_t line_candidates_common(const struct line_candidates *c);
/* Prints them in columns, sorted, `width` wide; of paths the last part. */
void line_candidates_print(struct line_candidates *c, FILE *screen, int width);

#endif
